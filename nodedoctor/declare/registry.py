"""What a plug-in declares: probes (what to ask), facts (how to read it), checks (how to judge it).

Needs are annotations: a check's parameters name the facts it wants, and `X | None` makes one optional.
Declaring costs an attribute on the function or class; nothing is registered until a module is collected.
"""

from __future__ import annotations

import contextlib
import functools
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar

from nodedoctor.model import Finding, Observation, Outcome, Stage
from nodedoctor.record import field, record, replace
from nodedoctor.spelling import COMMANDS

_MARK = "__nodedoctor__"

_HEADING = re.compile(
    r"^[ \t]*(Why|Judges|Fix|Threshold|False positives|Error texts|Fix disturbs):", re.MULTILINE
)
_SHOWN = ("What", "Why", "Fix disturbs")

RESERVED = frozenset(COMMANDS)
"""Subcommand names; no check and no subject may be called like one."""


class Lane(str, Enum):
    """Probes of one lane share its width, and its fate when one of them cannot be killed."""

    CPU = "cpu"  # 8 wide: cheap commands and our own children
    NVIDIA = "nvidia"  # 1 wide: one stuck driver call predicts the next
    FS = "fs"  # 4 wide: files that may hang (firmware reads, dead mounts)
    GPU_LOAD = "gpu-load"  # alone, after everything else: puts load on GPUs


@record
class Command:
    """One child process to run: `env` is added to ours, `stdin` is what it may read.

    With `hold` its answer ends with its output, and it is kept alive until the run ends. With `tied` its
    stdin does not end after `stdin` but when it is let go: so a command on another node learns that we are
    gone.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes | None = None
    hold: bool = False
    tied: bool = False


@record
class Options:
    """What the person asked for and where we run; all a probe may know besides other observations."""

    root: str = "/"
    since: str = ""
    passive: bool = False
    deep: bool = False
    python: str = ""
    exec_prefix: tuple[str, ...] = ()
    env_file: str = ""
    peers: tuple[str, ...] = ()
    expect: Mapping[str, str] = field(default_factory=dict)


@record
class Probe:
    """A named question to the node; `plan` makes a command of options and earlier observations.

    A `foreign` one, as a fact or a check, is a plug-in's: its code runs in a process of its own.
    """

    name: str
    about: str
    plan: Callable[..., Command | Observation] | None
    timeout: float = 10.0
    lane: Lane = Lane.CPU
    after: tuple[str, ...] = ()
    foreign: bool = False


@record
class Fact:
    """A frozen dataclass that can be parsed from observations (by probe name) and other facts (by type).

    With `shown` False it is not in the report: what it says is there under a fact made of it, or under
    those it is made of.
    """

    name: str
    about: str
    cls: type[Any]
    sources: tuple[str | type[Any], ...]
    shown: bool = True
    foreign: bool = False


@record
class Need:
    """One parameter of a check: a fact type, and whether the check can do without."""

    parameter: str
    cls: type[Any]
    optional: bool


@record
class Check:
    """A pure function of facts that yields findings.

    `without` are the optional facts whose absence leaves a PASS a PASS: they only name, excuse or repeat.
    `explained_by` names the checks whose findings, where they are as bad, explain this check's (the forms of
    `Finding.explained_by`). `speaks_for` names the probes of whose failure this check tells. With the stage
    `preview` what it finds is at most a warning and counts in no exit code, unless `--preview` asks for it.
    """

    id: str
    title: str
    tags: frozenset[str]
    function: Callable[..., Iterable[Finding]]
    what: str
    why: str
    disturbs: str
    where: str
    without: frozenset[type[Any]] = frozenset()
    explained_by: tuple[str, ...] = ()
    speaks_for: tuple[str, ...] = ()
    stage: Stage = "stable"
    doc: Mapping[str, str] = field(default_factory=dict)
    foreign: bool = False

    @property
    def subject(self) -> str:
        """The part of the id before the dot, by which checks are selected together."""
        return self.id.partition(".")[0]

    def needs(self) -> tuple[Need, ...]:
        """The facts this check wants, from its annotations; TypeError when one is not a class."""
        return _function_needs(self.function)


@functools.cache
def _function_needs(function: Callable[..., Iterable[Finding]]) -> tuple[Need, ...]:
    return tuple(_parameter_need(name, _type_hint(function, name)) for name in _parameter_names(function))


def _parameter_names(function: Any) -> Iterable[str]:
    """The names of a function's parameters; inspect takes 20 times as long, so only where it must."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__") or code.co_kwonlyargcount:
        import inspect

        return inspect.signature(function).parameters
    names: tuple[str, ...] = code.co_varnames
    return names[: code.co_argcount]


def _type_hint(function: Any, name: str) -> Any:
    """The annotation of a parameter, evaluated; the name of a class is looked up without typing's detour."""
    hint = function.__annotations__.get(name)
    if not isinstance(hint, str):
        return hint
    cls = function.__globals__.get(hint.removesuffix(" | None"))
    if isinstance(cls, type):
        return cls | None if hint.endswith(" | None") else cls
    return typing.get_type_hints(function).get(name)


def _parameter_need(name: str, hint: Any) -> Need:
    arms = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    wanted = [arm for arm in arms if arm is not type(None)]
    if len(wanted) != 1 or not isinstance(wanted[0], type):
        raise TypeError(f"parameter {name!r} must be annotated with one fact, optionally `| None`")
    return Need(name, wanted[0], optional=len(wanted) != len(arms))


Plan = TypeVar("Plan", bound=Callable[..., Any])
Parsed = TypeVar("Parsed", bound=type[Any])
Judge = TypeVar("Judge", bound=Callable[..., Iterable[Finding]])


def probe(
    name: str, *, timeout: float = 10.0, lane: Lane = Lane.CPU, after: Iterable[str] = ()
) -> Callable[[Plan], Plan]:
    """Declare a probe: the function gets the Options, then the observations named in `after`.

    It returns a Command, or `skipped(name, why)` when asking makes no sense here. It must not touch the node.
    """

    def declare(plan: Plan) -> Plan:
        _mark_target(plan, Probe(name, _first_line(plan), plan, timeout, lane, tuple(after)))
        return plan

    return declare


def pasted(name: str, about: str) -> Probe:
    """Declare text that no probe asks for but a recorded node may hold, because people paste it."""
    return Probe(name, about, None)


def fact(*sources: str | type[Any], name: str = "", shown: bool = True) -> Callable[[Parsed], Parsed]:
    """Declare a fact: `parse(*sources)` gets one Observation per probe name, one fact (or Unseen) per type.

    `name` is its key under `facts` in the report, by default the class name in kebab case; with `shown` False
    it is not put there.
    """

    def declare(cls: Parsed) -> Parsed:
        _mark_target(cls, Fact(name or _kebab_case(cls.__name__), _first_line(cls), cls, sources, shown))
        return cls

    return declare


def check(
    id: str,
    title: str,
    *,
    tags: Iterable[str] = (),
    without: Iterable[type[Any]] = (),
    explained_by: Iterable[str] = (),
    speaks_for: Iterable[str] = (),
    stage: Stage = "stable",
) -> Callable[[Judge], Judge]:
    """Declare a check. Its docstring says what it looks at, then has a section for each of these headings.

    `Why:` it matters for training, `Judges:` when it fails and warns, `Fix:` how to repair it, `Threshold:`
    where its limits come from, `False positives:` what looks sick and is not, `Fix disturbs:` what a repair
    interrupts; and `Error texts:`, a list of lines that begin with a dash, where people meet the fault as an
    error message. `nodedoctor explain CHECK` and the pages of the documentation are made of them.

    A PASS judged while an optional fact could not be seen becomes UNKNOWN, unless the fact is named in
    `without`: name one there only if knowing it could never turn this check's PASS into a WARN or FAIL.
    `explained_by` and `speaks_for` say what its findings follow from, `stage` whether they count: see
    `Check`.
    """
    subject, dot, condition = id.partition(".")
    if not (subject and dot and condition) or subject in RESERVED:
        raise ValueError(f"check id {id!r} must be subject.condition, and the subject not a subcommand")

    def declare(function: Judge) -> Judge:
        parts = _split_docstring(function.__doc__ or "")
        what, why, disturbs = (" ".join(parts.get(name, "").split()) for name in _SHOWN)
        where = getattr(getattr(function, "__code__", None), "co_filename", "?")
        all_tags = frozenset(tags) | {subject}
        links = frozenset(without), tuple(explained_by), tuple(speaks_for), stage, parts
        _mark_target(function, Check(id, title, all_tags, function, what, why, disturbs, where, *links))
        return function

    return declare


def skipped(name: str, why: str) -> Observation:
    """The answer of a probe that chose not to ask."""
    return Observation(name, Outcome.SKIPPED, note=why)


def declared(module: types.ModuleType, *, foreign: bool = False) -> Iterator[Probe | Fact | Check]:
    """Everything a module itself declares, in the order of the source; imported names do not count.

    What a plug-in declares is marked as foreign.
    """
    here = module.__name__
    for value in vars(module).values():
        if isinstance(value, Probe):
            yield value
        elif (
            isinstance(value, type | types.FunctionType)
            and value.__module__ == here
            and hasattr(value, _MARK)
        ):
            if foreign:
                _mark_target(value, replace(getattr(value, _MARK), foreign=True))
            yield getattr(value, _MARK)


def probes_of(check: Check, *, required: bool = False) -> frozenset[str]:
    """The names of all probes a check rests on, through its facts; or only of those it cannot do without."""
    names: frozenset[str] = frozenset()
    with contextlib.suppress(Exception):  # a check with unusable annotations rests on nothing
        wanted: list[Any] = [need.cls for need in check.needs() if not (required and need.optional)]
        names = names.union(*map(_asked_for, wanted))
    return names


@functools.cache
def _asked_for(cls: Any) -> frozenset[str]:
    """The names of the probes a fact rests on, through the facts it is made of."""
    names: set[str] = set()
    for source in getattr(vars(cls).get(_MARK), "sources", ()):
        names |= {source} if isinstance(source, str) else _asked_for(source)
    return frozenset(names)


def fact_of(cls: type[Any]) -> Fact:
    """The declaration behind a fact class; TypeError for a class that is not a fact."""
    marked = vars(cls).get(_MARK)
    if not isinstance(marked, Fact):
        raise TypeError(f"{cls.__name__} is not declared with @fact")
    return marked


def is_foreign(cls: type[Any]) -> bool:
    """Whether a class is a plug-in's fact."""
    return getattr(vars(cls).get(_MARK), "foreign", False)


def _mark_target(target: Any, declaration: Probe | Fact | Check) -> None:
    setattr(target, _MARK, declaration)


def _first_line(target: Any) -> str:
    return (target.__doc__ or "").strip().partition("\n")[0].rstrip()


def _kebab_case(name: str) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def _split_docstring(doc: str) -> dict[str, str]:
    """A check's docstring by its headings; the text before the first is what the check looks at."""
    what, *rest = _HEADING.split(doc)
    return {"What": " ".join(what.split()), **dict(zip(rest[::2], map(str.strip, rest[1::2]), strict=True))}
