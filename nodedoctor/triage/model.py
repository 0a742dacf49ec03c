"""The nouns of triage: places, identities, lines, events, candidates and the verdict."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from nodedoctor.model import Fix
from nodedoctor.record import record
from nodedoctor.triage.marks import Kind, Mark, kind_of, published_name
from nodedoctor.triage.rank_groups import RankGroupActivity

Cause = Literal[
    "gpu_hardware_xid",
    "peer_host_oom",
    "peer_cuda_oom",
    "user_code_exception",
    "peer_died",
    "collective_mismatch",
    "cpu_stuck_or_slow_rank",
    "timeout_too_short_legit_work",
    "network_ib",
    "network_socket_interface",
    "p2p_pcie_acs_iommu",
    "nvlink_fabric",
    "shm_or_limits",
    "version_mismatch",
    "driver_problem",
    "none",
    "undetermined",
]
"""What a job can die of; the values are public."""

Confidence = Literal["high", "medium", "low"]
Outcome = Literal["failure", "clean", "recovered", "undetermined", "nothing"]

LARGEST_WORLD = 1 << 20
"""Ranks of a job; the largest runs known have some 10^5 GPUs. A larger number in a log is no world size."""
LARGEST_PID = 1 << 22
"""Linux's own limit of pid_max."""

DEFAULT_WORLD = "default"
"""The world of a job that has only one. RL jobs have several: policy, reference, inference."""


Owner = Literal["NODE", "CODE", "CONFIG", "UNDETERMINED"]
"""Who must act: who runs the machines, who wrote the program, who started the job with these settings."""


_ROLES = (
    ("policy", re.compile(r"ActorRollout")),
    ("reference", re.compile(r"[Rr]ef(?:erence)?(?![a-z])")),
    ("critic", re.compile(r"[Cc]ritic|ValueModel")),
    ("reward", re.compile(r"[Rr]eward")),
    (
        "rollout",
        re.compile(
            r"vLLM|[Vv]llm|VLLM|SGLang|sglang|[Rr]ollout|InferenceEngine|EngineCore|LLMRay|RayWorkerWrapper|EnvRunner"
        ),
    ),
    ("policy", re.compile(r"[Pp]olicy|(?<![a-z])[Aa]ctor(?:Model|Worker|RefRollout)|TrainWorker")),
)
"""Actors of SkyRL (PolicyWorker, RefWorker, CriticWorker), OpenRLHF (PolicyModelActor, ReferenceModelActor,
CriticModelActor, RewardModelActor, LLMRayActor), verl (ActorRolloutRefWorker, CriticWorker, vLLMHttpServer)
and NeMo-RL; the first that fits. verl's WorkerDict holds several of them."""
ENGINE_WORLD = "vLLM or SGLang"
"""The world of the workers of an inference engine, which count their own ranks, and those of one replica."""


@record
class Place:
    """The place of a line: its source's name and its first byte."""

    source: str
    offset: int
    line: int | None = None


@record
class Identity:
    """The process of a line: `rank` is global, `group_rank` inside one group."""

    rank: int | None = None
    group_rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None
    world: str = DEFAULT_WORLD
    labels: tuple[tuple[str, int], ...] = ()
    """Numbers in front of the line that may be its rank, and what they are; `identity` decides, none stay."""
    recorder: str | None = None
    """The host or container that recorded the line; `identity` decides if it is the host, none stay."""

    @property
    def role(self) -> str:
        """The role of its world in an RL job, by its actors' names."""
        return next((role for role, names in _ROLES if names.search(self.world)), "")

    def fill_from(self, source: Identity) -> Identity:
        """This identity, its gaps filled from another."""
        gaps = {name: getattr(source, name) for name in _IDENTITY if getattr(self, name) is None}
        world = source.world if self.world == DEFAULT_WORLD else self.world
        return replace(self, world=world, **gaps)


TASK_LABEL = "label"
"""Kind of the number in `3: `, as `srun --label` puts it in front of what task 3 prints."""
BESIDE_LABEL = "beside"
"""Kind of a number that is called something else than a rank: beside it a rank tells its process apart."""
SHORT_LABEL = "short"
"""Kind of the number in `(r3)` or `r3 | `, where a rank may be meant."""
RANK_LABEL = "stated"
"""The label of a line whose prefix calls its number a rank, as launchers do around all that a task prints."""

LOCAL_RANK_LABEL = "seated"
"""The label of a number that its prefix calls a local rank."""

NOBODY = Identity()
"""The identity of a line that names no process."""

_IDENTITY = ("rank", "group_rank", "local_rank", "host", "pid", "gpu", "recorder")


COMPILED = re.compile(r"\.(?:c|cc|cpp|cu|h|hpp):\d+$")
"""The end of a line's origin that is a place in a compiled library."""


SERIOUS = ("E", "F")
"""Severities of errors: they are kept, also those of a collector."""


@record
class Line:
    """One line as one process printed it: prefixes taken off and understood.

    `time` is seconds since the start of a year (c10 prints no year), None when the line has none.
    `repeated` counts copies folded by Ray: which process each came from is lost. `level` is the severity that
    the program's logger gave it: D I W E F, '' when it gave none. D, I and W of a collector are left out:
    they say nothing about the line. `cited`: it has the mark of a quotation or a comment in front. `on_page`:
    the whole text is a page that somebody wrote about failures. `front_time` is that of another clock in
    front: who passed the line on wrote it.
    """

    text: str
    place: Place
    who: Identity = field(default_factory=Identity)
    time: float | None = None
    origin: str = ""
    repeated: int = 0
    key: str = ""
    level: str = ""
    cited: bool = False
    printer: int | None = None
    """The process that gave the line to syslog: its own, or one that passes on the lines of several."""
    on_page: bool = False
    front_time: float | None = None

    @property
    def severity(self) -> str:
        """The level of a compiled library such as c10, whose lines are its own."""
        return self.level if COMPILED.search(self.origin) else ""


@record
class RankState:
    """What one rank did last: it waited, died, ended or is missing.

    `step` is the last value of its busiest counter, None without one.
    """

    who: Identity
    state: str
    last_event: str = ""
    op: str = ""
    seq: int | None = None
    place: Place | None = None
    step: float | None = None


W = TypeVar("W", covariant=True)
What = TypeVar("What")


ASSERTED = ("plain", "retold")
"""Manners of a line that says that something happened (`events.assertion`)."""


@dataclass(frozen=True)
class Event(Generic[W]):
    """An event of a line: `what` happened, and the `manner` of the line."""

    what: W
    place: Place
    who: Identity
    time: float | None
    text: str
    repeated: int = 0
    origin: str = ""
    manner: str = "plain"

    @property
    def asserted(self) -> bool:
        """True where its line says that it happened, in whatever words."""
        return self.manner in ASSERTED

    @property
    def kind(self) -> Kind:
        """The class of what happened, or the mark that it is."""
        return kind_of(self.what)

    @property
    def published_name(self) -> str:
        """Its name in documents."""
        return published_name(self.what)

    @property
    def kind_name(self) -> str:
        """Its name in the code."""
        return self.what.name if isinstance(self.what, Mark) else type(self.what).__name__

    @staticmethod
    def at(line: Line, what: What, **changes: Any) -> Event[What]:
        """An event at a line, with its identity, its time and its count."""
        event = Event(what, line.place, line.who, line.time, line.text, line.repeated, line.origin)
        return replace(event, **changes) if changes else event


ErrorFate = Literal["handled", "survived", "echoed", "quoted"]
"""What became of an error that decides nothing."""


@record
class SideError:
    """An error that decides nothing: its fate, the reason, and how often it was printed."""

    event: Event[Any]
    fate: ErrorFate
    reason: str
    count: int = 1


@record
class ProcessGroup:
    """A process group as a rank names it; `name` is stable across ranks."""

    name: str = ""
    desc: str = ""


_UNEVEN = ("ALLTOALL", "GATHER", "SCATTER", "SEND", "RECV")
"""Operations whose ranks, or whose root, pass tensors of other sizes (torch/csrc/distributed/c10d/OpType)."""


@record
class CollectiveCall:
    """One collective as the watchdog prints it; sizes are elements, not bytes."""

    op: str = ""
    seq: int | None = None
    numel_in: int | None = None
    numel_out: int | None = None
    timeout_ms: int | None = None
    group: ProcessGroup = ProcessGroup()

    @property
    def words(self) -> str:
        """Its name and number: `ALLREDUCE 4411`, or `a collective`."""
        return (self.op or "a collective") + (f" {self.seq}" if self.seq is not None else "")

    @property
    def signature(self) -> tuple[str, int | None, int | None, int | None]:
        """What must be equal on all ranks of a group at the same time; each may exchange what it likes."""
        if self.op.startswith(_UNEVEN):
            return (self.op, self.seq, None, None)
        return (self.op, self.seq, self.numel_in, self.numel_out)


Ground = Literal[
    "fault",
    "own error",
    "compared",
    "named",
    "death",
    "path",
    "different",
    "absence",
    "echo",
    "last words",
    "node",
    "hint",
]
"""What a candidate rests on, from what explains most to what explains least; see `causes.weigh`."""


@record
class Candidate:
    """One possible cause with what speaks for it.

    `parties` are ranks of which at least one is guilty, without it being known which.
    """

    cause: Cause
    ground: Ground
    confidence: Confidence
    headline: str
    evidence: tuple[Event[Any], ...] = ()
    culprits: tuple[Identity, ...] = ()
    victims: tuple[Identity, ...] = ()
    parties: tuple[Identity, ...] = ()
    fixes: tuple[Fix, ...] = ()
    collective: CollectiveCall | None = None
    owner: Owner | None = None
    """Who must act, where the evidence shows another one than its kind's."""
    decides: bool = True
    """False for what is only a suspicion, whatever its ground: the verdict stays open."""


@record
class Coverage:
    """What was read and what is missing.

    A verdict from one rank of 64 must not look like one from all.
    """

    files: int = 0
    size: int = 0
    ranks_seen: tuple[int, ...] = ()
    ranks_expected: int | None = None
    notes: tuple[str, ...] = ()
    unread: int = 0
    """Lines, members of archives and envelopes that could not be opened."""
    silent: tuple[tuple[str, str], ...] = ()
    """Nodes that were asked about the running job and gave no answer, each with the reason."""

    @property
    def ranks_missing(self) -> tuple[int, ...]:
        """Ranks that nothing was read from."""
        present = frozenset(self.ranks_seen)
        return tuple(r for r in range(min(self.ranks_expected or 0, LARGEST_WORLD)) if r not in present)


@record
class OtherJob:
    """A job in the same logs, `is_judged` or not; times are seconds of a year."""

    id: str
    hosts: tuple[str, ...]
    world: int | None
    first: float | None
    last: float | None
    outcome: Outcome
    cause: Cause
    is_judged: bool = False


@record
class EarlierRun:
    """How a run of the job before the judged one ended."""

    outcome: Outcome
    cause: Cause
    headline: str
    culprits: tuple[Identity, ...] = ()
    evidence: tuple[Event[Any], ...] = ()


@record
class Verdict:
    """What triage found; the text, the JSON and the screen are made from this alone."""

    outcome: Outcome
    cause: Cause
    confidence: Confidence
    headline: str
    culprits: tuple[Identity, ...] = ()
    victims: tuple[Identity, ...] = ()
    parties: tuple[Identity, ...] = ()
    collective: CollectiveCall | None = None
    evidence: tuple[Event[Any], ...] = ()
    timeline: tuple[Event[Any], ...] = ()
    weighed: str = ""
    """What outweighed what, in a sentence or two; empty when nothing else came into question."""
    alternatives: tuple[tuple[Cause, str], ...] = ()
    fixes: tuple[Fix, ...] = ()
    not_the_cause: tuple[tuple[str, str], ...] = ()
    next: tuple[Fix, ...] = ()
    incidents: int = 0
    coverage: Coverage = Coverage()
    jobs: tuple[OtherJob, ...] = ()
    earlier: tuple[EarlierRun, ...] = ()
    owner: Owner = "UNDETERMINED"
    kinds_alike: tuple[str, ...] = ()
    """Kinds of other causes that weigh nearly as much."""
    ranks: tuple[RankState, ...] = ()
    also_seen: tuple[SideError, ...] = ()
    """Errors that decided nothing, those that are alike as one."""
    standings: tuple[RankGroupActivity, ...] = ()
    """Of a job that still runs: what its ranks do, in groups."""
