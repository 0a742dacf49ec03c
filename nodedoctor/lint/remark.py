"""What one rule has to say about one variable, and what the rules may know of the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from nodedoctor.facts.host.settings import Settings
from nodedoctor.facts.stack.packages import numbers
from nodedoctor.model import Step
from nodedoctor.record import field, record
from nodedoctor.whole_numbers import whole_number

Level = Literal["note", "warn", "fail"]


@record
class Remark:
    """One judgement; `fix` says what to do ("": nothing), `steps` are its commands, `docs` is an address."""

    level: Level
    text: str
    fix: str = ""
    steps: tuple[Step, ...] = ()
    docs: str = ""

    @property
    def rank(self) -> int:
        """For choosing the gravest."""
        return ("note", "warn", "fail").index(self.level)


@record
class NodeContext:
    """What rules may depend on; None is what could not be seen.

    `nccl` and `torch` are versions, "" when not known. `hcas` are RDMA devices with their ports
    (mlx5_0/1), `active_rdma` whether one of them carries data, `consumer` whether all GPUs are cards of
    workstations, `gpu_count` what the driver shows, `skyrl` the version of SkyRL where that trains, `vllm`
    that of vLLM where it is installed. `shell` is all of our own environment that was kept, `mnnvl` whether
    the GPUs are of racks in which NVLink joins nodes.
    """

    settings: Settings = field(default_factory=Settings)
    nccl: str = ""
    torch: str = ""
    rocm: bool = False
    interfaces: tuple[str, ...] | None = None
    hcas: tuple[str, ...] | None = None
    active_rdma: bool | None = None
    nvlink: bool | None = None
    consumer: bool = False
    gpu_count: int | None = None
    skyrl: str = ""
    vllm: str = ""
    shell: Mapping[str, str] = field(default_factory=dict)
    mnnvl: bool | None = None

    def version(self, owner: str) -> str:
        """The version of a library, without what names its build."""
        full_version = {"nccl": self.nccl, "torch": self.torch}.get(owner, "")
        return ".".join(str(part) for part in numbers(full_version))

    def named(self, owner: str) -> str:
        """A library with its version, as a sentence has it."""
        name = {"nccl": "NCCL", "torch": "torch"}.get(owner, owner)
        version = self.version(owner)
        return f"{name} {version}" if version else f"this {name}"


def switched_on(value: str) -> bool:
    """Whether a boolean is true to torch (c10d, Utils.hpp: y yes 1 t true) or to NCCL (a number, not 0)."""
    word = value.strip().lower()
    return word in ("y", "yes", "t", "true", "on") or bool(whole_number(word[:18]))


def switched_off(value: str) -> bool:
    """Whether a boolean is false."""
    return value.strip().lower() in ("0", "n", "no", "f", "false", "off")
