"""What the screens are made from, and what they may ask of the engine that runs the checks."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Protocol

from nodedoctor import __version__
from nodedoctor.errors import NodeDoctorError
from nodedoctor.model import Observation
from nodedoctor.record import field, record
from nodedoctor.report.document import Report
from nodedoctor.report.saved import read

if TYPE_CHECKING:
    from nodedoctor.engine.session import Session
    from nodedoctor.model import Report as Found


@record
class Waiting:
    """A check without an answer: the probe it waits for, and for how long. No probe: not begun."""

    probe: str = ""
    seconds: float = 0.0


@record
class State:
    """What all screens are made from: the report so far, and what has not answered.

    `running` holds checks, `asking` probes with the seconds they have been running, `answers` by probe what
    a report leaves out: all that was printed. A saved report has none.
    """

    report: Report
    running: Mapping[str, Waiting] = field(default_factory=dict)
    asking: Mapping[str, float] = field(default_factory=dict)
    answers: Mapping[str, Observation] = field(default_factory=dict)

    @classmethod
    def of(cls, report: Found) -> State:
        """What a run has found so far, with nothing under way."""
        from nodedoctor.report import json

        return cls(
            json.document(report),
            answers={observation.probe: observation for observation in report.observations},
        )

    @property
    def done(self) -> int:
        """How many checks have answered."""
        return len(self.report["results"]) - len(self.running)


@record
class CheckInfo:
    """What a check looks at, and what repairing it disturbs, in its own words."""

    what: str
    disturbs: str = ""


@record
class EngineInfo:
    """What does not change while it runs: cards by check, a line per probe, and where the node is.

    A recorded node is not this machine; `root` is where this machine's files are mounted. With `redact` a
    saved recording holds no real names, and neither does its file's name.
    """

    checks: Mapping[str, CheckInfo] = field(default_factory=dict)
    probes: Mapping[str, str] = field(default_factory=dict)
    recorded: bool = False
    root: str = "/"
    nothing: str = ""
    redact: bool = False

    @classmethod
    def of(cls, session: Session) -> EngineInfo:
        """What a session is about."""
        catalogue = session.catalogue
        return cls(
            checks={check.id: CheckInfo(check.what, check.disturbs) for check in session.checks},
            probes={name: probe.about for name, probe in catalogue.probes.items()},
            recorded=session.snapshot is not None,
            root=session.request.options.root,
            redact=session.request.redact,
        )


class RequestRefused(NodeDoctorError):
    """Why an engine cannot run what was asked for, in one line."""


class Engine(Protocol):
    """Runs checks for the screens."""

    about: EngineInfo
    latest: State | None
    """What is known before the screens open, if anything."""

    def states(self) -> AsyncIterator[State]:
        """A new state after every change, and once a second while something runs; never ends."""

    def again(self, check: str = "") -> None:
        """Ask one check once more, its probes afresh; all of them when none is named."""

    async def recording(self) -> bytes:
        """The zip that keeps what was seen so far."""


class Nothing:
    """An engine with no checks, for screens that look at files only."""

    about = EngineInfo(recorded=True, nothing="no node is looked at here")
    latest: State | None = None

    async def states(self) -> AsyncIterator[State]:
        """None."""
        return
        yield

    def again(self, check: str = "") -> None:
        """There is nothing to ask."""

    async def recording(self) -> bytes:
        """Nothing was seen."""
        return b""


def empty_report() -> Report:
    """A report of nothing."""
    return read({"tool": __version__, "source": "none", "started": "1970-01-01T00:00:00Z"})


def file_name(report: Report, redact: bool = False) -> str:
    """A name for a recording: the host, unless it must not be named, and when it was looked at."""
    name = "" if redact else str(report["node"].get("hostname") or "")
    host = re.sub(r"[^A-Za-z0-9.-]", "-", name or "node")[:64]
    return f"nodedoctor-{host}-{re.sub('[^0-9T]', '', report['started'])}.zip"
