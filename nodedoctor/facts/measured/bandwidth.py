"""What copies reach between GPUs and with the host: measured on idle GPUs, once everything else was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.gpu.idle import idle, not_run
from nodedoctor.facts.measured.steps import BROKEN, cut_short, steps_of
from nodedoctor.grouping import group_by
from nodedoctor.json_shapes import Json, number, part, text, whole_number
from nodedoctor.model import Evidence, Observation, Outcome, Unseen, reading
from nodedoctor.record import field, record, replace

QUICK, DEEP = "bandwidth", "bandwidth-deep"
QUICK_SECONDS = 20  # contexts on eight GPUs take seconds; the copying itself three
DEEP_SECONDS = 60  # forty of copying (probes/measured/bandwidth.py), the rest for contexts and pinning
HUNG_SECONDS = 3.0
"""Ours: a step takes well below a second, a context on a cold driver about two; what was under way for less
when the child was given up is not said to hang."""
PASSIVE = "--passive puts no load on GPUs"
_NO_LIBRARY = "Give the container the driver's libraries (NVIDIA_DRIVER_CAPABILITIES=compute,utility)."


@probe(QUICK, timeout=QUICK_SECONDS, lane=Lane.GPU_LOAD, after=("nvml", "processes"))
def quick(options: Options, nvml: Observation, processes: Observation) -> Command | Observation:
    """Three seconds of copies between idle GPUs and with the host, verified."""
    return (
        skipped(QUICK, "measured with --deep")
        if options.deep
        else _plan_copies(QUICK, options, nvml, processes)
    )


@probe(DEEP, timeout=DEEP_SECONDS, lane=Lane.GPU_LOAD, after=("nvml", "processes"))
def deep(options: Options, nvml: Observation, processes: Observation) -> Command | Observation:
    """Up to forty seconds of copies with large buffers, device memory too (only with --deep)."""
    return _plan_copies(DEEP, options, nvml, processes) if options.deep else skipped(DEEP, "only with --deep")


def _plan_copies(
    name: str, options: Options, nvml: Observation, processes: Observation
) -> Command | Observation:
    if options.passive:
        return skipped(name, PASSIVE)
    free = idle(nvml, processes)
    if free.why_none:
        return skipped(name, free.why_none)
    gpus = ",".join(f"{gpu.index}={gpu.bus_id}" for gpu in free.gpus)
    leave = ",".join(f"{index}={why.replace(',', ';')}" for index, why in free.busy)
    words = ["--json", "--root", options.root, "--gpus", gpus, "--leave", leave]
    visible = {"CUDA_VISIBLE_DEVICES": free.uuids} if free.uuids else {}
    env = {**visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return Command(child("measured/bandwidth", *words, *(["--deep"] if name == DEEP else [])), env)


@record
class Pair:
    """Copies from one GPU to another, which reads. `wrong` is the first wrong byte, `error` what failed."""

    source: int
    target: int
    access: bool | None = None
    read_gbytes_s: float | None = None
    both_gbytes_s: float | None = None
    latency_us: float | None = None
    wrong: Mapping[str, int] | None = None
    error: str = ""


@record
class HostCopy:
    """Copies between a GPU and pinned memory of a NUMA node, `near` or `far`; `node` None: wherever."""

    index: int
    kind: str
    node: int | None = None
    h2d_gbytes_s: float | None = None
    d2h_gbytes_s: float | None = None
    wrong: Mapping[str, int] | None = None
    error: str = ""


@fact(QUICK, DEEP)
@record
class Bandwidth:
    """What was measured. `failed` are GPUs that could not be opened, `left_out` those in use, each with why.

    `unstarted` is CUDA's error when it does not start. `hung` names what was being done when the child was
    given up, `hung_gpus` whose it was; `cut_short` why the child ended early when nothing is known to hang.
    """

    deep: bool = False
    gpus: tuple[int, ...] = ()
    pairs: tuple[Pair, ...] = ()
    host: tuple[HostCopy, ...] = ()
    memory_gbytes_s: Mapping[int, float] = field(default_factory=dict)
    failed: Mapping[int, str] = field(default_factory=dict)
    left_out: Mapping[int, str] = field(default_factory=dict)
    unstarted: str = ""
    hung: str = ""
    hung_gpus: tuple[int, ...] = ()
    cut_short: str = ""
    seconds: float | None = None

    def pair_said(self, pair: tuple[int, int], *names: str) -> list[Evidence]:
        """What was measured from one GPU to another."""
        step = f"steps[step=pair&source={pair[0]}&target={pair[1]}]"
        return [reading(self._probe, f"{step}.{name}") for name in names]

    def host_said(self, copy: HostCopy, *names: str) -> list[Evidence]:
        """What was measured between a GPU and the host's memory of one kind."""
        node = f"&node={copy.node}" if copy.node is not None else ""
        step = f"steps[step=host&index={copy.index}&kind={copy.kind}{node}]"
        return [reading(self._probe, f"{step}.{name}") for name in names]

    def start_said(self) -> list[Evidence]:
        """Why CUDA did not start."""
        return [reading(self._probe, "steps[step=init].error")]

    def under_way(self) -> list[Evidence]:
        """The step that was announced last, which is the one that never ended."""
        return [reading(self._probe, "steps[-1]")]

    @property
    def _probe(self) -> str:
        return DEEP if self.deep else QUICK

    @classmethod
    def parse(cls, quick: Observation, deep: Observation) -> Bandwidth | Unseen:
        """Read the lines of probes/measured/bandwidth.py, as far as they go."""
        observation = next((run for run in (deep, quick) if run.answered or run.outcome in BROKEN), None)
        if observation is None:
            return _not_measured(quick, deep)
        steps = list(steps_of(observation.text))
        if any(text(step, "error") == "NO_LIBRARY" for step in steps):
            note = next(text(step, "text") for step in steps if text(step, "error") == "NO_LIBRARY")
            return Unseen("missing-tool", f"{observation.probe}: {note}", _NO_LIBRARY, observation.probe)
        if not steps:
            return Unseen.of(observation)
        return _read_steps(observation, steps)


def _not_measured(quick: Observation, deep: Observation) -> Unseen:
    """It was not asked for, or nothing was idle: nothing to judge."""
    for observation in (deep, quick):
        if observation.outcome is Outcome.DENIED:
            return Unseen.of(observation)
    skips = [observation for observation in (quick, deep) if observation.outcome is Outcome.SKIPPED]
    telling = [observation for observation in skips if "--deep" not in observation.note] or skips
    return not_run(telling[0]) if telling else Unseen.skip("no bandwidth was measured")


def _read_steps(observation: Observation, steps: list[Json]) -> Bandwidth:
    kinds = group_by(steps, lambda step: text(step, "step"))
    last = steps[-1] if text(steps[-1], "step") == "begin" else {}
    under_way = observation.seconds - (number(last.get("at")) or 0.0)
    is_hang = observation.outcome is Outcome.CRASH or not observation.seconds or under_way >= HUNG_SECONDS
    hung = _step_activity(last) if observation.outcome in BROKEN and last and is_hang else ""
    started = kinds.get("init", [{}])[0]
    gpus = [
        (whole_number(step, "index"), text(step, "error"), text(step, "call"))
        for step in kinds.get("gpu", ())
    ]
    memory = ((whole_number(step, "index"), number(step.get("gbytes_s"))) for step in kinds.get("memory", ()))
    skipped_gpus = ((whole_number(step, "index"), text(step, "why")) for step in kinds.get("left-out", ()))
    return Bandwidth(
        deep=observation.probe == DEEP,
        gpus=tuple(index for index, error, _ in gpus if index is not None and not error),
        pairs=tuple(_read_pairs(kinds.get("pair", []), kinds.get("both", []))),
        host=tuple(copy for step in kinds.get("host", ()) if (copy := _read_host_copy(step))),
        memory_gbytes_s={index: speed for index, speed in memory if index is not None and speed},
        failed={index: f"{call}: {error}" for index, error, call in gpus if index is not None and error},
        left_out={index: why for index, why in skipped_gpus if index is not None},
        unstarted=text(started, "error"),
        hung=f"{hung} ({observation.note})" if hung else "",
        hung_gpus=tuple(
            n for key in ("source", "target", "index") if (n := whole_number(last, key)) is not None
        )
        if hung
        else (),
        cut_short="" if hung else cut_short(observation),
        seconds=number(kinds.get("end", [{}])[0].get("seconds")),
    )


def _step_activity(step: Json) -> str:
    what, index = text(step, "what"), whole_number(step, "index")
    if what == "both":
        return (
            f"copies both ways between GPU {whole_number(step, 'source')} and GPU "
            f"{whole_number(step, 'target')}"
        )
    if what == "pair":
        return f"the copy from GPU {whole_number(step, 'source')} to GPU {whole_number(step, 'target')}"
    names = {"gpu": "opening", "host": "a copy between the host and", "memory": "a copy inside"}
    return f"{names.get(what, what)} GPU {index}" if index is not None else what


def _read_pairs(single: list[Json], both: list[Json]) -> Iterator[Pair]:
    speeds = {
        (whole_number(step, "source"), whole_number(step, "target")): number(step.get("both_gbytes_s"))
        for step in both
    }
    for step in single:
        if pair := _read_pair(step):
            yield replace(pair, both_gbytes_s=speeds.get((pair.source, pair.target)))


def _read_pair(step: Json) -> Pair | None:
    source, target, access = whole_number(step, "source"), whole_number(step, "target"), step.get("access")
    if source is None or target is None:
        return None
    return Pair(
        source,
        target,
        access if isinstance(access, bool) else None,
        number(step.get("read_gbytes_s")),
        latency_us=number(step.get("latency_us")),
        wrong=_wrong_counts(step),
        error=text(step, "error"),
    )


def _read_host_copy(step: Json) -> HostCopy | None:
    index = whole_number(step, "index")
    if index is None:
        return None
    speeds = (number(step.get("h2d_gbytes_s")), number(step.get("d2h_gbytes_s")))
    return HostCopy(
        index,
        text(step, "kind"),
        whole_number(step, "node"),
        *speeds,
        _wrong_counts(step),
        text(step, "error"),
    )


def _wrong_counts(step: Json) -> Mapping[str, int] | None:
    numbers = part(step, "wrong")
    return {key: value for key in numbers if (value := whole_number(numbers, key)) is not None} or None
