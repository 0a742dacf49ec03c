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
    """The packages, torch and NCCL libraries of the training Python, told by itself."""
    seen = Processes.parse(processes)
    # Processes of another root are numbered as that one sees them.
    running = seen if isinstance(seen, Processes) and options.root == "/" else Processes(())
    words = [word for name in _worth_asking(running) for word in ("--pid", name)]
    return Command(child("stack/find_python", *words, *_where(options, options.python, TIMEOUT)))


def _worth_asking(processes: Processes) -> list[str]:
    """ROLE:PID of ranks, then Ray's, then inference engines; never one whose memory map is locked."""
    found: list[str] = []
    for role in ("rank", "raylet", "gcs-server", "ray-worker", "engine"):
        well = [process for process in processes.of(role) if process.stuck_at is None]
        found += [f"{role}:{process.pid}" for process in well[:MOST_OF_A_ROLE]]
    return found


@probe("target-torch", timeout=IMPORT_TIMEOUT, lane=Lane.NVIDIA, after=("target-python",))
def target_torch(options: Options, target: Observation) -> Command | Observation:
    """What torch says of itself and the GPUs once imported in the training Python (only with --deep)."""
    if not options.deep:
        return skipped("target-torch", "torch is imported only with --deep")
    told = document(target)
    if not told or not part(told, "torch"):
        return skipped("target-torch", "there is no torch to import")
    python = options.python if options.exec_prefix else text(told, "executable")
    return Command(child("stack/find_python", "--deep", *_where(options, python, IMPORT_TIMEOUT)))


def _where(options: Options, python: str, limit: float) -> list[str]:
    words = ["--python", python] if python else []
    # On the far side of a prefix a stuck interpreter must end by itself, a second before we give up.
    return [*words, "--limit", f"{limit - 1:g}", "--", *options.exec_prefix] if options.exec_prefix else words


@fact("target-torch")
@record
class ImportedTorch:
    """What torch says of itself once imported; `error` is what the import or CUDA raised, "" for nothing."""

    version: str = ""
    cuda: str = ""
    archs: tuple[str, ...] = ()
    nccl: tuple[str, ...] = ()
    available: bool = False
    devices: int | None = None
    error: str = ""

    @classmethod
    def parse(cls, seen: Observation) -> ImportedTorch | Unseen:
        """Read what probes/stack/target_python.py --deep prints."""
        answer = document(seen) or {}
        told, refused = part(answer, "deep"), text(part(answer, "error"), "note")
        if refused:
            return Unseen(
                "denied", f"{seen.probe}: {refused}", "Run as the owner of that Python.", seen.probe
            )
        if not told:
            return Unseen.of(seen, "Run with --deep to import torch and ask it.")
        return cls(
            text(told, "version"),
            text(told, "cuda"),
            texts(told, "archs"),
            texts(told, "nccl"),
            told.get("available") is True,
            whole_number(told, "devices"),
            text(told, "error"),
        )
