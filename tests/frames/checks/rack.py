"""Checks for a made-up rack: one of every status, so that the screens can be held to a frame of text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nodedoctor.declare.registry import Command, Options, check, fact, probe
from nodedoctor.facts.gpu.links.topology import Topology
from nodedoctor.model import Evidence, Finding, Fix, Observation, Outcome, Unseen
from nodedoctor.steps import repair


@probe("rack-links")
def ask_links(options: Options) -> Command:
    """Links of every GPU."""
    return Command(("nvidia-smi", "nvlink", "-s"))


@probe("rack-health")
def ask_health(options: Options) -> Command:
    """What the manager says."""
    return Command(("dcgmi", "health", "-c"))


@fact("rack-links")
@dataclass(frozen=True, slots=True)
class RackLinks:
    """The links that are down, by GPU."""

    down: dict[str, list[str]]

    @classmethod
    def parse(cls, seen: Observation) -> RackLinks | Unseen:
        """Lines like `GPU 3 Link 4: <inactive>`."""
        if not seen.answered:
            return Unseen.of(seen)
        down: dict[str, list[str]] = {}
        for line in seen.text.splitlines():
            if line.endswith("<inactive>"):
                down.setdefault(line.split()[1], []).append(line)
        return cls(down)

    def headline(self) -> dict[str, object]:
        """What this says about the node as a whole."""
        return {"gpus": 8, "gpu": "H100 80GB", "driver": "570.86.10", "cuda": "12.8", "torch": "2.9.0+cu128"}


@fact("rack-health")
@dataclass(frozen=True, slots=True)
class RackHealth:
    """What the manager says, in its own words."""

    text: str

    @classmethod
    def parse(cls, seen: Observation) -> RackHealth | Unseen:
        """Any text."""
        if seen.outcome is Outcome.OK:
            return cls(seen.text.strip())
        return Unseen.of(seen, "Run nodedoctor as root, or join the group dcgm.")


@check("rack.links", "All links are active", tags={"fast", "nvlink"})
def links(rack: RackLinks) -> Iterator[Finding]:
    """The state of every link of every GPU.

    Why: All-reduce falls back to the slowest link; expect 8-GPU bus bandwidth near 340 GB/s, not 450.
    Fix disturbs: every job on the GPU.
    """
    if not rack.down:
        yield Finding.ok("18 links up on 8 GPUs")
    for gpu, lines in rack.down.items():
        fix = Fix(
            f"Drain the node and reset GPU {gpu}; if the links stay down after a reset, have it replaced.",
            (repair("nvidia-smi --gpu-reset -i {}", gpu),),
            "reset-gpu",
            f"every job on GPU {gpu}",
            "nodedoctor rack.links",
            "https://docs.nvidia.com/deploy/gpu-debug-guidelines/",
        )
        text = f"{len(lines)} of 18 links down"
        evidence = [Evidence("rack-links", "\n".join(lines))]
        yield Finding.fail(text, subject=f"gpu:{gpu}", evidence=evidence, fix=fix)


@check("rack.nccl", "One NCCL fits torch", tags={"stack"})
def nccl(rack: RackLinks) -> Iterator[Finding]:
    """The library that wins.

    Why: A symbol that is missing ends the job at its first collective.
    """
    yield Finding.fail("torch 2.9 wants NCCL 2.27; LD_PRELOAD gives 2.21", subject="package:torch")


@check("rack.health", "The manager finds no fault")
def health(rack: RackHealth) -> Iterator[Finding]:
    """What the manager says."""
    yield Finding.ok(rack.text)


@check("rack.rate", "Every port runs at full rate", tags={"ib"})
def rate(rack: RackLinks) -> Iterator[Finding]:
    """The rate of every port.

    Why: A ring is as fast as its slowest port.
    """
    for port in ("mlx5_4", "mlx5_7"):
        yield Finding.warn("trained at 200 of 400 Gb/s", subject=f"port:{port}/1")
    for port in ("mlx5_0", "mlx5_1"):
        yield Finding.ok("400 Gb/s", subject=f"port:{port}/1")


@check("rack.hostile", "Text from the node cannot take over the screen")
def hostile(rack: RackLinks) -> Iterator[Finding]:
    """Marks of every kind."""
    nasty = "[/] [bold]x[/bold] [red on blue] \x1b[31mred\x1b[0m \x07 \u202eabc " + "wide " * 2000
    yield Finding.warn(nasty, subject="pid:[/]", evidence=[Evidence("rack-links", nasty)])


@check("rack.matrix", "Every pair has the same link", tags={"nvlink"})
def matrix(topology: Topology) -> Iterator[Finding]:
    """The matrix of links."""
    odd = [gpu for gpu in topology.gpus if "SYS" in topology.links[gpu].values()]
    yield Finding.ok(f"{len(topology.gpus)} GPUs, {len(odd)} with far adapters")


@check("rack.driver", "The driver covers CUDA", tags={"fast"})
def driver(rack: RackLinks) -> Iterator[Finding]:
    """Versions."""
    yield Finding.info("driver 570.86 covers CUDA 12.8")


@check("rack.ray", "One Ray everywhere", tags={"ray"})
def ray(rack: RackLinks) -> Iterator[Finding]:
    """Versions of Ray."""
    yield Finding.skip("ray is not installed in this Python")


def _passing(number: int) -> None:
    @check(f"rack.port-{number}", f"Port {number} is up", tags={"ib"})
    def port(rack: RackLinks) -> Iterator[Finding]:
        """One port."""
        yield Finding.ok("Active, LinkUp", subject=f"port:mlx5_{number}/1")

    globals()[f"port_{number}"] = port


for _number in range(10):
    _passing(_number)
