"""One sitting: from what was asked for to a diagnosis that can be run, and run again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodedoctor.declare.registry import Check, Options
from nodedoctor.engine import recording as snapshot
from nodedoctor.engine.plugins import PATIENCE, Catalogue, DiscoveryError, Plugins, discover
from nodedoctor.engine.run import Diagnosis, this_node, utc_now
from nodedoctor.engine.sandbox import end_by
from nodedoctor.engine.sources import ObservationSource, Recorded
from nodedoctor.errors import NodeDoctorError
from nodedoctor.expectations import checks_for
from nodedoctor.model import Expect, Moment, Report
from nodedoctor.record import field, record
from nodedoctor.spelling import COMMANDS
from nodedoctor.whole_numbers import whole_number

if TYPE_CHECKING:
    from nodedoctor.children.fork_server import ForkServer
    from nodedoctor.engine.live import Live, Prefetcher

DEADLINE = 50.0
"""Seconds for a whole run. Slurm ends a HealthCheckProgram after HealthCheckTimeout, 60 s (slurm.conf(5))."""
DEADLINE_DEEP = 900.0
"""Seconds for a run with checks that load GPUs (chosen by us, no external source)."""
DEADLINE_GATE = 8.0
"""Seconds for a gate: a job waits, and Slurm gives a prolog 10 s (BatchStartTimeout, slurm.conf(5))."""
_DRIVER_LEAST, _OTHERS = 5.0, 3.0
"""Seconds that the driver has to answer a gate at least, as long as driver.answers calls no driver slow, and
what the other probes need (chosen by us, no external source)."""
DEEP = "deep"
"""Checks with this tag run only with --deep or by name."""


class UsageError(NodeDoctorError):
    """What was asked for cannot be done, in one line."""


@record
class Request:
    """What was asked for on the command line, in the terms of the engine.

    A node that is not asked now is a recording to be loaded (`replay`), or already there (`snapshot`).
    """

    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)
    deadline: float | None = None
    replay: Path | None = None
    snapshot: snapshot.Snapshot | None = None
    folders: tuple[Path, ...] = ()
    redact: bool = False
    preview: bool = False
    gate: bool = False


class Session:
    """The catalogue, the selected checks and the source; `diagnosis()` makes one run of them."""

    def __init__(self, request: Request, server: ForkServer | None = None) -> None:
        """Load checks and, for a replay, the recording; UsageError when either cannot be.

        With a `server` that was started before this could be imported, what will be asked begins while checks
        are loaded; without, one is started for the first run.
        """
        self.request = request
        self._server = server
        end_by(math.inf)  # an earlier run of this process had a deadline of its own
        patience = PATIENCE if request.deadline is None else min(PATIENCE, request.deadline / 2)
        try:
            # a wrong path at once
            self.snapshot = snapshot.load(request.replay) if request.replay else request.snapshot
            fetcher = self._prefetcher()
            self.catalogue = discover(request.folders, fetcher.on_check_loaded if fetcher else None, patience)
            self._loading = self.catalogue.spent  # is part of the first run
            if fetcher is not None:
                fetcher.start_rest()
        except (DiscoveryError, snapshot.SnapshotError) as error:
            raise UsageError(str(error)) from None
        self._judged_moment()  # complains now about a --since that cannot be read
        chosen = select(self.catalogue, request.words, request.tags, deep=request.options.deep)
        if request.gate and not (chosen := tuple(filter(self._may_gate_jobs, chosen))):
            raise UsageError("--gate: none of these checks keeps jobs away from a node")
        ids = {check.id for check in chosen} | checks_for(self._expected_values().values)
        self.checks = tuple(check for _, check in sorted(self.catalogue.checks.items()) if check.id in ids)

    def _may_gate_jobs(self, check: Check) -> bool:
        """Whether a check may keep jobs away: none in preview, as those count in no verdict."""
        from nodedoctor.knowledge.gates import may_gate

        return may_gate(check.id) and (self.request.preview or check.stage == "stable")

    @property
    def deadline(self) -> float:
        """Seconds the whole run may take; as long as --deep has, where a check that needs it was named."""
        if self.request.deadline is not None:
            return self.request.deadline
        if self.request.gate:
            return DEADLINE_GATE
        deep = self.request.options.deep or any(DEEP in check.tags for check in self.checks)
        return DEADLINE_DEEP if deep else DEADLINE

    def diagnosis(self, checks: Iterable[Check] | None = None) -> Diagnosis:
        """A fresh run: probes are asked again. Must be called inside a running event loop."""
        chosen = self.checks if checks is None else tuple(checks)
        plugins = Plugins(len(self.catalogue.checks), tuple(self.catalogue.broken))
        context = {Plugins: plugins, Expect: self._expected_values(), Moment: self._judged_moment()}
        if self.snapshot is None:
            live, here = self._live_source(), this_node()
            return Diagnosis(chosen, live, context, label="live", node=here, preview=self.request.preview)
        end_by(math.inf)
        source: ObservationSource = Recorded(self.snapshot.observations)
        node = {"hostname": None, "boot_id": None, **self.snapshot.node}
        return Diagnosis(chosen, source, context, label="replay", node=node, preview=self.request.preview)

    def nothing_yet(self) -> Report:
        """The report before anything was asked."""
        context = {Plugins: Plugins(0, ()), Expect: self._expected_values(), Moment: self._judged_moment()}
        return Diagnosis(self.checks, Recorded({}), context, preview=self.request.preview).report()

    def recording(self, diagnosis: Diagnosis, report: Report | None = None) -> bytes:
        """The zip that keeps what a finished run has seen; `report` when later runs have added to it.

        With `redact` names are replaced as in a report that is redacted by itself.
        """
        options: dict[str, Any] = {
            "since": self.request.options.since,
            "expect": dict(self.request.options.expect),
        }
        report = report or diagnosis.report()
        observations, node = report.observations, report.node
        if self.request.redact:
            from nodedoctor.redact import Redaction

            redaction = Redaction.of(observations, node)
            observations, node = tuple(map(redaction.observation, observations)), redaction.node(node)
            options = redaction.document(options)
        return snapshot.pack(
            observations, node, diagnosis.moment.started, options, self._recording_about(report)
        )

    def _recording_about(self, report: Report) -> dict[str, Any]:
        """Where a recording comes from; one of a recording has its provenance."""
        if self.snapshot is not None:
            return self.snapshot.about
        gpus, gpu = report.node.get("gpus"), report.node.get("gpu")
        return {"provenance": "real", "hardware": [f"{gpus}x {gpu}" if gpus and gpu else "no GPU"]}

    def close(self) -> None:
        """No more runs."""
        if self._server is not None:
            self._server.close()

    def _prefetcher(self) -> Prefetcher | None:
        if self._server is None:
            return None
        from nodedoctor.engine.live import Prefetcher

        request, judging = self.request, checks_for(self._expected_values().values)
        words, tags = request.words, frozenset(request.tags)

        def chosen(check: Check) -> bool:
            wanted = _is_chosen(check, words, tags, deep=request.options.deep)
            return check.id in judging or (wanted and (not request.gate or self._may_gate_jobs(check)))

        return Prefetcher(self._server, request.options, chosen)

    def _live_source(self) -> Live:
        from nodedoctor.children.fork_server import ForkServer  # a replay does without
        from nodedoctor.engine.live import Live

        self._server = self._server or ForkServer()
        remaining_s = max(0.0, self.deadline - self._loading)
        self._loading = 0.0
        # Slower than this, the driver counts as hung.
        driver_s = max(remaining_s - _OTHERS, min(_DRIVER_LEAST, remaining_s)) if self.request.gate else 0.0
        return Live(self.catalogue.probes, self.request.options, remaining_s, self._server, driver_s)

    def _expected_values(self) -> Expect:
        recorded = self.snapshot.options.get("expect") if self.snapshot else None
        values = dict(recorded) if isinstance(recorded, dict) else {}
        return Expect({**{str(k): str(v) for k, v in values.items()}, **self.request.options.expect})

    def _judged_moment(self) -> Moment:
        when = self.snapshot.when if self.snapshot else None
        recorded = self.snapshot.options.get("since") if self.snapshot else None
        since = self.request.options.since or str(recorded or "")
        started = when or utc_now()
        return Moment(started, since_when(since, started) if since else None)


def select(
    catalogue: Catalogue, words: Iterable[str], tags: Iterable[str], *, deep: bool
) -> tuple[Check, ...]:
    """The checks that ids, subjects and tags name, or all; UsageError for a name that means nothing."""
    checks = catalogue.checks
    words, tags = tuple(words), frozenset(tags)
    subjects = {check.subject for check in checks.values()}
    known_tags = frozenset().union(*(check.tags for check in checks.values()))
    for word in words:
        if word not in checks and word not in subjects:
            raise UsageError(_unknown_name("check or subject", word, {*checks, *subjects, *COMMANDS}))
    for tag in tags - known_tags:
        raise UsageError(_unknown_name("tag", tag, known_tags))
    return tuple(check for _, check in sorted(checks.items()) if _is_chosen(check, words, tags, deep=deep))


def _is_chosen(check: Check, words: tuple[str, ...], tags: frozenset[str], *, deep: bool) -> bool:
    is_named = check.id in words or check.subject in words
    return (
        (is_named or not words)
        and bool(not tags or tags & check.tags)
        and (is_named or deep or DEEP not in check.tags)
    )


_LONG_AGO = 10**11
"""Of any unit: more than the calendar has seconds."""


def since_when(text: str, started: datetime) -> datetime:
    """The moment `24h`, `30m`, `7d` or `90s` before the start of the run; UsageError for anything else."""
    match = re.fullmatch(r"(\d+)([smhd])", text)
    if match is None:
        raise UsageError(f"--since: expected a number and s, m, h or d, like 24h, not {text[:40]!r}")
    number = whole_number(match[1], most=_LONG_AGO)
    if number is None:
        raise UsageError(f"--since {text[:40]} is too far back")
    unit = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}[match[2]]
    try:
        return started - timedelta(**{unit: number})
    except OverflowError:
        raise UsageError(f"--since {text[:40]} is too far back") from None


def _unknown_name(kind: str, word: str, names: Iterable[str]) -> str:
    from nodedoctor.spelling import suggest_word

    return f"no {kind} {word!r}; {suggest_word(word, names, 'see `nodedoctor list checks`')}"
