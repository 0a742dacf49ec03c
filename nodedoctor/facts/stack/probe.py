"""How the training Python is asked, and once more with torch imported when there is time for it."""

from __future__ import annotations

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.host.processes import Processes
from nodedoctor.json_shapes import document, part, text, texts, whole_number
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import record

TIMEOUT = 15.0  # a cold network file system takes seconds to list 400 packages
IMPORT_TIMEOUT = 90.0  # importing torch takes seconds, from a cold network file system a minute
MOST_OF_A_ROLE = 16  # eight ranks are usual; hundreds of Ray workers share one environment


@probe("target-python", timeout=TIMEOUT, lane=Lane.FS, after=("processes",))
def target_python(options: Options, processes: Observation) -> Command:
    """The packages, torch and NCCL libraries of the training Python, from its own answer."""
    table = Processes.parse(processes)
    # Processes of another root are numbered as that one sees them.
    running = table if isinstance(table, Processes) and options.root == "/" else Processes(())
    words = [word for name in _worth_asking(running) for word in ("--pid", name)]
    return Command(child("stack/find_python", *words, *_target_words(options, options.python, TIMEOUT)))


def _worth_asking(processes: Processes) -> list[str]:
    """ROLE:PID of ranks, then Ray's, then inference engines; never one whose memory map is locked."""
    names: list[str] = []
    for role in ("rank", "raylet", "gcs-server", "ray-worker", "engine"):
        readable = [process for process in processes.of(role) if process.stuck_at is None]
        names += [f"{role}:{process.pid}" for process in readable[:MOST_OF_A_ROLE]]
    return names


@probe("target-torch", timeout=IMPORT_TIMEOUT, lane=Lane.NVIDIA, after=("target-python",))
def target_torch(options: Options, target: Observation) -> Command | Observation:
    """What torch knows of itself and the GPUs once imported in the training Python (only with --deep)."""
    if not options.deep:
        return skipped("target-torch", "torch is imported only with --deep")
    answer = document(target)
    if not answer or not part(answer, "torch"):
        return skipped("target-torch", "there is no torch to import")
    python = options.python if options.exec_prefix else text(answer, "executable")
    return Command(child("stack/find_python", "--deep", *_target_words(options, python, IMPORT_TIMEOUT)))


def _target_words(options: Options, python: str, limit: float) -> list[str]:
    words = ["--python", python] if python else []
    # On the far side of a prefix a stuck interpreter must end by itself, a second before we give up.
    return [*words, "--limit", f"{limit - 1:g}", "--", *options.exec_prefix] if options.exec_prefix else words


@fact("target-torch")
@record
class ImportedTorch:
    """What torch knows of itself once imported; `error` is what the import or CUDA raised, "" for nothing."""

    version: str = ""
    cuda: str = ""
    archs: tuple[str, ...] = ()
    nccl: tuple[str, ...] = ()
    available: bool = False
    devices: int | None = None
    error: str = ""

    @classmethod
    def parse(cls, observation: Observation) -> ImportedTorch | Unseen:
        """Read what probes/stack/target_python.py --deep prints."""
        answer = document(observation) or {}
        torch, refused = part(answer, "deep"), text(part(answer, "error"), "note")
        if refused:
            return Unseen(
                "denied",
                f"{observation.probe}: {refused}",
                "Run as the owner of that Python.",
                observation.probe,
            )
        if not torch:
            return Unseen.of(observation, "Run with --deep to import torch and ask it.")
        return cls(
            text(torch, "version"),
            text(torch, "cuda"),
            texts(torch, "archs"),
            texts(torch, "nccl"),
            torch.get("available") is True,
            whole_number(torch, "devices"),
            text(torch, "error"),
        )
