"""Checks over one source: an async iterator of results, and the report made of them."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from nodedoctor import __version__
from nodedoctor.children.exhaustion import Starts
from nodedoctor.debug import Log
from nodedoctor.declare.registry import Check, Need, fact_of, probes_of
from nodedoctor.declare.unread import Unread
from nodedoctor.engine.calls import call_check, call_optional, call_parser, where
from nodedoctor.engine.causes.devices import Devices
from nodedoctor.engine.causes.roots import diagnose
from nodedoctor.engine.evidence import EvidenceResolver
from nodedoctor.engine.pending import Pending, Ready, result_of
from nodedoctor.engine.plugin_code import watching
from nodedoctor.engine.plugins import Plugins
from nodedoctor.engine.sources import ObservationSource
from nodedoctor.expectations import apply_expectations, checks_for
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.host.waivers import Waivers
from nodedoctor.knowledge.fixes.recipes import (
    for_distribution,
    names_distribution,
    touches_driver,
    where_it_stands,
)
from nodedoctor.model import BLIND, Expect, Finding, Fix, Moment, Observation, Report, Result, Status, Unseen
from nodedoctor.record import replace
from nodedoctor.wording import clause

_log = Log(__name__)


class Facts:
    """Facts of one source, each parsed once. `context` holds values not parsed: Expect, Moment, ..."""

    def __init__(self, source: ObservationSource, context: Mapping[type[Any], Any]) -> None:
        self._source = source
        self._given = dict(context)
        self._parsed: dict[type[Any], Pending[Any]] = {}
        self._unread: dict[type[Any], tuple[Unread, ...]] = {}

    def give(self, cls: type[Any], value: Any) -> None:
        """Add a value that is not parsed."""
        self._given[cls] = value

    async def get(self, cls: type[Any]) -> Any:
        """The fact, or an Unseen that says why there is none."""
        return await result_of(self.begin(cls))

    async def several(self, classes: Collection[type[Any]]) -> list[Any]:
        """Facts that are asked for at the same time."""
        tasks = [self.begin(cls) for cls in classes]
        return [await result_of(task) for task in tasks]

    def begin(self, cls: type[Any]) -> Pending[Any]:
        """Read a fact once what it is read from has come; one that is given is there."""
        if cls in self._given:
            return Ready(self._given[cls])
        if cls not in self._parsed:
            self._parsed[cls] = self._source.begin(self._parse_fact(cls))
        return self._parsed[cls]

    def unread(self, cls: type[Any]) -> tuple[Unread, ...]:
        """What was refused of the values that this fact, or one that it is made of, was read from."""
        return self._unread.get(cls, ())

    def shown_facts(self) -> dict[str, Any]:
        """The facts to show that have been parsed so far, by name, without those that are not known."""
        done = {cls: t.result() for cls, t in self._parsed.items() if t.done() and not t.cancelled()}
        facts = {fact_of(cls): value for cls, value in done.items() if not isinstance(value, Unseen)}
        return {fact.name: value for fact, value in facts.items() if fact.shown}

    async def _parse_fact(self, cls: type[Any]) -> Any:
        try:
            sources = fact_of(cls).sources
            wanted = [self._source.ask(s) if isinstance(s, str) else self.begin(s) for s in sources]
            arguments = [await result_of(task) for task in wanted]
            began = time.perf_counter()
            value, refused = call_parser(cls, arguments)
            below = (unread for s in sources if not isinstance(s, str) for unread in self.unread(s))
            self._unread[cls] = tuple(dict.fromkeys((*below, *refused)))
            _log.debug("%s read in %.1f ms", cls.__name__, (time.perf_counter() - began) * 1000)
            return value
        except Exception as error:
            _log.debug("reading %s failed", cls.__name__, exc_info=True)
            return Unseen("crash", f"reading {cls.__name__} raised {where(error)}")


class Diagnosis:
    """One run of some checks over one source."""

    def __init__(
        self,
        checks: Iterable[Check],
        source: ObservationSource,
        context: Mapping[type[Any], Any],
        *,
        label: str = "live",
        node: Mapping[str, Any] | None = None,
        preview: bool = False,
    ) -> None:
        self.checks = tuple(checks)
        self.source = source
        self.facts = Facts(source, context)
        self.finished: dict[str, Result] = {}
        self._proof = EvidenceResolver(_of_plugins(context.get(Plugins)))
        self._given = context
        self._label = label
        self._preview = preview
        self._node = dict(node if node is not None else this_node())
        self._began = time.monotonic()
        self._seconds: float | None = None
        self._took: dict[str, float] = {}  # seconds, by probe

    @property
    def moment(self) -> Moment:
        """When the node was looked at."""
        moment: Moment = self._given[Moment]
        return moment

    @property
    def seconds(self) -> float:
        """How long the run has lasted, or took."""
        return round(self._seconds or time.monotonic() - self._began, 3)

    async def results(self) -> AsyncIterator[Result]:
        """Yield each check's result as soon as it is known; ends when all are."""
        self.source.foresee(frozenset().union(*map(probes_of, self.checks)))
        self.facts.begin(Waivers)  # every check will ask for them
        last = [check for check in self.checks if _needs_all(check)]
        first = [check for check in self.checks if check not in last]
        completed = self.source.as_completed(self._check_result(check) for check in first)
        try:
            with watching():
                for task in completed:
                    result = await task
                    self.finished[result.check] = result
                    yield result
                self.facts.give(Starts, Starts.of(self.source.observations()))
                for check in last:
                    result = await self._check_result(check)
                    self.finished[result.check] = result
                    yield result
        finally:
            self._seconds = time.monotonic() - self._began
            completed.close()
            self.source.close()

    async def run(self) -> Report:
        """All results, as a report."""
        async for _ in self.results():
            pass
        return self.report()

    def expectations(self) -> dict[str, str]:
        """What a node like this one would be expected to have, as `--expect` takes it."""
        expectations: dict[str, str] = {}
        for value in self.facts.shown_facts().values():
            expectations.update(call_optional(value, "expectations", {}))
        return expectations

    def devices(self) -> Devices:
        """The devices that facts name, under all their names."""
        facts = self.facts.shown_facts().values()
        return Devices(group for value in facts for group in call_optional(value, "devices", ()))

    def report(self) -> Report:
        """The report of what is known now; checks that have not answered are unknown."""
        waiting = self.source.waiting_for()
        finished = [
            self.finished.get(check.id) or self._unanswered_result(check, waiting) for check in self.checks
        ]
        facts = self.facts.shown_facts()
        observations = self.source.observations()
        ordered = sorted(finished, key=lambda result: result.check)
        results, causes = diagnose(
            ordered, self.checks, observations, self.devices(), checks_for(self._expected)
        )
        node = dict(self._node)
        for value in facts.values():
            node.update(call_optional(value, "headline", {}))
        return Report(
            tool=__version__,
            source=self._label,
            started=self.moment.started.strftime("%Y-%m-%dT%H:%M:%SZ"),
            seconds=self.seconds,
            node=node,
            results=results,
            observations=observations,
            facts={name: public_form(value) for name, value in sorted(facts.items())},
            causes=causes,
        )

    async def _check_result(self, check: Check) -> Result:
        raw_findings = await self._check_findings(check)
        findings = apply_expectations(
            check.id, tuple(self._stage_finding(check, finding) for finding in raw_findings), self._expected
        )
        findings = tuple([_add_verification(check, await self._fit_fix(finding)) for finding in findings])
        accepted = await self.facts.get(Waivers)
        if isinstance(accepted, Waivers):
            findings = tuple(accepted.apply(check.id, finding, self.moment) for finding in findings)
        return _check_result(check, findings, self._check_cost(check))

    async def _check_findings(self, check: Check) -> tuple[Finding, ...]:
        try:
            needs = check.needs()
        except Exception as error:
            return (Finding.unknown("crash", f"{check.where}: {where(error)}"),)
        values = await self.facts.several([need.cls for need in needs])
        required = (value for value, need in zip(values, needs, strict=True) if not need.optional)
        missing = [Finding.unseen(value) for value in required if isinstance(value, Unseen)]
        if missing:
            # "Does it apply here?" comes first; then a broken source says more than a blind one.
            return (min(missing, key=_does_not_apply_first),)
        arguments = [None if isinstance(value, Unseen) else value for value in values]
        gap = _find_gap(check, needs, values)
        began = time.perf_counter()
        findings, refused = call_check(check, arguments)
        findings = self._prove_findings(findings)
        _log.debug("%s judged in %.1f ms", check.id, (time.perf_counter() - began) * 1000)
        if gap is not None:
            return tuple(downgrade_pass(finding, gap) for finding in findings)
        needed = [need.cls for need in needs if need.cls not in check.without]
        below = (unread for cls in needed for unread in self.facts.unread(cls))
        return tuple(_without_pass(findings, tuple(dict.fromkeys((*below, *refused)))))

    def _stage_finding(self, check: Check, finding: Finding) -> Finding:
        """The finding, at most a warning where its check or rule is in preview and was not asked for.

        What is expected of the node was asked for.
        """
        if self._preview or check.id in checks_for(self._expected):
            return replace(finding, preview=False) if finding.preview else finding
        if not (finding.severity.is_problem and (finding.preview or check.stage == "preview")):
            return finding
        status = Status.WARN if finding.status is Status.FAIL else finding.status
        return replace(finding, status=status, preview=True)

    def _prove_findings(self, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Findings with what they rest on, as found in what was observed."""
        if not any(finding.evidence for finding in findings):
            return findings
        proof = self._proof.add(self.source.observations())
        return tuple(proof.resolve_finding(finding) if finding.evidence else finding for finding in findings)

    async def _fit_fix(self, finding: Finding) -> Finding:
        """The finding with a fix for this place: a rented machine is not repaired like one's own."""
        if finding.fix is None or not (touches_driver(finding.fix) or names_distribution(finding.fix)):
            return finding
        machine, container = await self.facts.several((Machine, Container))
        rented = isinstance(machine, Machine) and (machine.virtual or machine.cloud is not None)
        inside = isinstance(container, Container) and container.inside
        distribution = machine.distro_id if isinstance(machine, Machine) else None
        fix = for_distribution(finding.fix, distribution or "")
        return replace(finding, fix=where_it_stands(fix, inside=inside, rented=rented))

    def _unanswered_result(self, check: Check, waiting: Mapping[str, float]) -> Result:
        """The result of a check whose probes, of which the oldest is named, had not answered."""
        oldest = max(probes_of(check) & waiting.keys(), key=lambda name: waiting[name], default="")
        finding = Finding.unknown("timeout", "had not finished when the run ended")
        return _check_result(check, (self._stage_finding(check, replace(finding, missing=oldest)),), 0.0)

    @property
    def _expected(self) -> Mapping[str, str]:
        return self._given[Expect].values if Expect in self._given else {}

    def _check_cost(self, check: Check) -> float:
        names = probes_of(check)
        if not names <= self._took.keys():
            # Some are never asked: for them the answers are read again only when there are more.
            observations = self.source.observations()
            if len(observations) != len(self._took):
                self._took = {observation.probe: observation.seconds for observation in observations}
        return max((self._took.get(name, 0.0) for name in names), default=0.0)


def _needs_all(check: Check) -> bool:
    """Whether a check is about the run itself, and so judged when everything else was asked."""
    try:
        return any(need.cls is Starts for need in check.needs())
    except Exception:  # its parameters are wrong, which its own result says
        return False


def _of_plugins(plugins: Plugins | None) -> Iterator[Observation]:
    """Why plug-ins did not load, as findings about them quote it."""
    if plugins is not None and plugins.broken:
        yield Observation("plugins", text="\n".join(broken.error for broken in plugins.broken))


def _find_gap(check: Check, needs: Iterable[Need], values: Iterable[Any]) -> Unseen | None:
    """What this check needs for a PASS and could not see, broken before blind; None when it saw all."""
    gaps = []
    for need, value in zip(needs, values, strict=True):
        if need.cls in check.without:
            continue
        unseen = value if isinstance(value, Unseen) else getattr(value, "partly", None)
        if isinstance(unseen, Unseen) and unseen.applies:
            gaps.append(unseen)
    return min(gaps, key=lambda gap: gap.reason in BLIND, default=None)


def downgrade_pass(finding: Finding, gap: Unseen) -> Finding:
    """A PASS that rests on half of what it needs is UNKNOWN; other findings rest on what was seen."""
    if finding.status is not Status.PASS:
        return finding
    fix = Fix(gap.way_out, action="none") if gap.way_out else finding.fix
    note = clause(gap.note.removeprefix(f"{gap.probe}: "))
    what = note if note.startswith(gap.probe) else f"{gap.probe}: {note}"
    about, proof = finding.subject, finding.evidence
    downgraded = Finding.unknown(gap.reason, finding.summary, subject=about, evidence=proof, fix=fix)
    return replace(downgraded, missing=gap.probe, without=what)


def _add_verification(check: Check, finding: Finding) -> Finding:
    """The finding whose fix ends with what shows whether it worked: the same check, if nothing better."""
    if finding.fix is None or finding.fix.verify or finding.status not in (Status.FAIL, Status.WARN):
        return finding
    return replace(finding, fix=replace(finding.fix, verify=f"nodedoctor {check.id}"))


def _without_pass(findings: Iterable[Finding], refused: tuple[Unread, ...]) -> Iterator[Finding]:
    """The findings, of which none is a PASS where values that the check reads were refused."""
    for finding in findings:
        if finding.status is not Status.PASS or not refused:
            yield finding
            continue
        first = refused[0]
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        downgraded = replace(
            finding,
            status=Status.UNKNOWN,
            reason="not-visible-here",
            note=False,
            without=f"{first.what} ({first.why}){more}",
        )
        yield downgraded.explained_by(*dict.fromkeys(unread.told_by for unread in refused))


def public_form(value: Any) -> Any:
    """A fact as the report shows it: its own short form if it has one, else itself, with all its fields."""
    return call_optional(value, "public", None) or value


def this_node() -> dict[str, Any]:
    """What names this machine, from calls that cannot hang."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot_id: str | None = file.read().strip()
    except OSError as error:
        _log.debug("boot id: %s", error)
        boot_id = None
    return {"hostname": os.uname().nodename, "boot_id": boot_id}


def utc_now() -> datetime:
    """The present moment, aware and in UTC."""
    return datetime.now(timezone.utc)


def _check_result(check: Check, findings: tuple[Finding, ...], seconds: float) -> Result:
    tags = tuple(sorted(check.tags))
    return Result(check.id, check.title, findings, round(seconds, 3), tags, check.why, check.stage)


def _does_not_apply_first(finding: Finding) -> int:
    return 0 if finding.status is Status.SKIP else (1 if finding.broken else 2)
