"""This node as Slurm knows it: the GPUs it may give away, those it has given, its state."""

from __future__ import annotations

import re

from nodedoctor.declare.registry import Command, Options, fact, probe, skipped
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import record

NO_SLURM = "no Slurm on this node: there is no scontrol"
_ASK = 'exec scontrol -o show node "${SLURMD_NODENAME:-$(hostname -s)}"'


@probe("slurm-node", timeout=6)
def slurm_node(options: Options) -> Command | Observation:
    """What Slurm's controller says of this node."""
    if options.root != "/":
        return skipped("slurm-node", "Slurm knows this node by its name, not what is mounted at --root")
    return Command(("sh", "-c", f"command -v scontrol >/dev/null || exit 127; {_ASK}"))


@fact("slurm-node")
@record
class SlurmNode:
    """`gpus` are those configured (GRES), `allocated` those given to jobs; None where Slurm does not say.

    `states` are its words: IDLE MIXED ALLOCATED DRAIN DOWN ...; `reason` why it was drained.
    """

    name: str
    states: tuple[str, ...] = ()
    gpus: int | None = None
    allocated: int | None = None
    gres: str = ""
    reason: str = ""

    @classmethod
    def parse(cls, observation: Observation) -> SlurmNode | Unseen:
        """Read the one line of `scontrol -o show node`; without Slurm there is nothing to see."""
        if observation.answered and observation.rc == 127:
            return Unseen.skip(NO_SLURM)
        name = re.search(r"\bNode(?:Host)?Name=(\S+)", observation.text)
        state, gres = _field_value("State", observation.text), _field_value("Gres", observation.text)
        if not observation.answered or not (name or state):
            return Unseen.of(observation, "See whether slurmctld answers: scontrol ping.")
        reason = re.search(r"\bReason=(.*)", observation.text)
        resources = _field_value("AllocTRES", observation.text)
        return cls(
            name.group(1) if name else "this node",
            tuple(word.rstrip("*~#!%$@^-") for word in state.split("+")) if state else (),
            _gres_gpus(gres),
            _tres_gpus(resources) if "AllocTRES=" in observation.text else None,
            gres,
            re.sub(r" \[[^\[\]]*\]$", "", reason.group(1).rstrip()).strip() if reason else "",
        )

    @property
    def idle(self) -> bool:
        """Nothing of this node is given to a job."""
        return "IDLE" in self.states and not self.allocated


def _field_value(key: str, text: str) -> str:
    match = re.search(rf"(?:^|\s){key}=(\S*)", text)
    return match.group(1) if match else ""


def _gres_gpus(gres: str) -> int | None:
    """Of `gpu:h100:8(S:0-1),gpu:a100:2,nic:1` ten; None where GRES names no GPU at all (`(null)`)."""
    counts = re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d{1,4})(?=[(,]|$)", gres)
    return sum(map(int, counts)) if counts else 0 if gres else None


def _tres_gpus(resources: str) -> int:
    """Of `cpu=96,gres/gpu=4,gres/gpu:h100=4` four."""
    match = re.search(r"(?:^|,)gres/gpu=(\d{1,6})", resources)
    return int(match.group(1)) if match else 0
