"""Every call of a check, a parser or a plan: in bounded time, and a plug-in's in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from nodedoctor.children.exhaustion import note_of
from nodedoctor.debug import Log
from nodedoctor.declare.registry import Check, Command, Options, Probe, is_foreign
from nodedoctor.declare.unread import Unread, noticing
from nodedoctor.engine.plugin_code import PluginFailed, contained
from nodedoctor.engine.sandbox import run_in_fork
from nodedoctor.model import Finding, Observation, Outcome, Unseen

_log = Log(__name__)

TIMEOUT_S = 5.0  # seconds of pure Python a check or a parser may take before it is interrupted
MOST_FINDINGS = 20_000  # of one check; each NVLink of 72 GPUs gives 1300, each process of a busy node 5000

T = TypeVar("T")


def call_check(check: Check, arguments: Sequence[Any]) -> tuple[tuple[Finding, ...], tuple[Unread, ...]]:
    """What a check finds, and which refused values it read.

    Whatever it does wrong becomes an UNKNOWN finding beside what it had found.
    """

    def judge() -> tuple[tuple[Finding, ...], tuple[Unread, ...]]:
        with noticing() as refused:
            return _collect_findings(check, arguments), tuple(refused)

    if not check.foreign:
        return judge()
    return _call_in_fork(judge, "the check itself", lambda wrong: ((Finding.unknown("crash", wrong),), ()))


def _collect_findings(check: Check, arguments: Sequence[Any]) -> tuple[Finding, ...]:
    findings: list[Finding] = []
    try:
        with contained(TIMEOUT_S):
            for finding in check.function(*arguments):
                if not isinstance(finding, Finding):
                    raise TypeError(f"yielded {type(finding).__name__}, not a Finding")
                if len(findings) == MOST_FINDINGS:
                    raise OverflowError(f"yielded more than {MOST_FINDINGS} findings")
                findings.append(finding)
    except PluginFailed as failed:  # its crash is one finding, not ours
        _log.debug("check %s failed", check.id, exc_info=failed.error)
        return (*findings, Finding.unknown("crash", f"the check itself raised {where(failed.error)}"))
    if not findings:
        return (Finding.unknown("crash", f"the check returned nothing ({check.where})"),)
    return tuple(findings)


def call_parser(cls: type[Any], arguments: Sequence[Any]) -> tuple[Any, tuple[Unread, ...]]:
    """The fact that a class reads from what was seen, or an Unseen; and which refused values it read."""

    def parse() -> tuple[Any, tuple[Unread, ...]]:
        with noticing() as refused:
            try:
                with contained(TIMEOUT_S):
                    value = cls.parse(*arguments)
            except PluginFailed as failed:  # a parser is code for text we have not met yet
                _log.debug("reading %s failed", cls.__name__, exc_info=failed.error)
                value = Unseen("crash", f"reading {cls.__name__} raised {where(failed.error)}")
            return value, tuple(refused)

    if not is_foreign(cls):
        return parse()
    return _call_in_fork(parse, f"reading {cls.__name__}", lambda wrong: (Unseen("crash", wrong), ()))


def call_planner(probe: Probe, options: Options, earlier: Sequence[Observation]) -> Command | Observation:
    """What a probe wants to ask, or why it does not."""
    assert probe.plan is not None
    plan = probe.plan

    def answer() -> Command | Observation:
        try:
            return plan(options, *earlier)
        except Exception as error:
            note = f"planning raised {type(error).__name__}: {error}"
            _log.debug("%s: %s", probe.name, note, exc_info=True)
            return Observation(probe.name, Outcome.CRASH, note=note)

    if not probe.foreign:
        return answer()
    return _call_in_fork(answer, "planning", lambda wrong: Observation(probe.name, Outcome.CRASH, note=wrong))


def call_optional(value: Any, method: str, otherwise: Any) -> Any:
    """What an optional method of a fact returns; a fact that cannot tell must not cost us the report."""
    function = getattr(value, method, None)
    if not callable(function):  # a fact may have a field of that name
        return otherwise
    if is_foreign(type(value)):
        return _call_in_fork(function, f"{type(value).__name__}.{method}()", lambda _: otherwise)
    try:
        return function()
    except Exception:
        _log.debug("%s.%s() failed", type(value).__name__, method, exc_info=True)
        return otherwise


def _call_in_fork(work: Callable[[], T], doing: str, otherwise: Callable[[str], T]) -> T:
    """What a plug-in's code answers, or the fallback made from what it did wrong."""
    try:
        return run_in_fork(work, TIMEOUT_S, doing)
    except OSError as error:
        wrong = str(error) if isinstance(error, TimeoutError) else f"{doing}: {note_of(error)}"
    except Exception as error:  # what it handed over may be of any class of its own
        wrong = str(error) or f"{doing}: {type(error).__name__}"
    _log.debug("%s", wrong)
    return otherwise(wrong)


def where(error: BaseException) -> str:
    """One line: the exception, and the last line of code it passed."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
