"""From findings to a diagnosis: which finding follows from which, and the few causes that are left.

Three things tell what explains what: what checks declare (`explained_by`), which probe should have given an
answer that is missing (`speaks_for`), and that the same outcome of one check on all like devices has one
reason. Every finding then points at its root, never at another symptom, and statuses stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from nodedoctor.children.exhaustion import STARVED, exhausted_in
from nodedoctor.declare.registry import Check, probes_of
from nodedoctor.engine.causes.devices import Devices
from nodedoctor.engine.causes.headlines import headline, masked
from nodedoctor.grouping import group_by, group_pairs
from nodedoctor.knowledge.gates import is_harmless, schedulable, strictness, worst
from nodedoctor.knowledge.ownership import move_of, reason_of
from nodedoctor.model import (
    Cause,
    Finding,
    Observation,
    Outcome,
    Result,
    Schedulable,
    Severity,
    Status,
    identifier,
)
from nodedoctor.nodeset import natural_key
from nodedoctor.record import record, replace

PROBE = "probe:"
"""What the id of a cause starts with that is a failed probe of which no finding tells."""

_PROBE_ENDS = {
    "stuck": "hangs",
    "timeout": "did not answer in time",
    "unparsable": "gave an answer that was not understood",
}
"""What became of such a probe, by the reason of what it left unjudged."""
_FAILED = {Outcome.TIMEOUT: "timeout", Outcome.STUCK: "stuck", Outcome.CRASH: "crash"}


@record
class NamedFinding:
    """A check's finding under its id."""

    id: str
    check: str
    finding: Finding


def diagnose(
    results: Sequence[Result],
    checks: Iterable[Check],
    observations: Iterable[Observation] = (),
    devices: Devices | None = None,
    expected: Collection[str] = (),
) -> tuple[tuple[Result, ...], tuple[Cause, ...]]:
    """The results with `because_of` set, and the causes: the most severe first, then what explains most.

    A FAIL of one of the `expected` checks, which judge what is expected of the node, keeps new jobs away.
    """
    if all(result.severity <= Severity.BLIND for result in results):
        return tuple(results), ()
    work = _Work(results, {check.id: check for check in checks}, observations, devices or Devices(), expected)
    roots = work.roots()
    explained_results = tuple(_make_cause(result, roots) for result in results)
    return explained_results, work.causes(roots, work.unjudged(roots))


def _make_cause(result: Result, roots: Mapping[str, str]) -> Result:
    findings = tuple(_point_at_root(identifier(result.check, f.subject), f, roots) for f in result.findings)
    changed = any(new is not old for new, old in zip(findings, result.findings, strict=True))
    return replace(result, findings=findings) if changed else result


def _point_at_root(id: str, finding: Finding, roots: Mapping[str, str]) -> Finding:
    root = roots.get(id) if _is_sick(finding) else None
    cause = None if root == id else root
    return finding if finding.because_of == cause else replace(finding, because_of=cause)


def _is_sick(finding: Finding) -> bool:
    """Whether a finding has a cause: FAIL, WARN and broken UNKNOWN, unless the site accepts it."""
    return finding.severity > Severity.BLIND


class _Work:
    """One run's findings, and what is known of how they hang together."""

    def __init__(
        self,
        results: Sequence[Result],
        checks: Mapping[str, Check],
        observations: Iterable[Observation],
        devices: Devices,
        expected: Collection[str],
    ) -> None:
        self.results, self.checks, self.devices, self.expected = results, checks, devices, expected
        observations = tuple(observations)
        self.outcomes = {observation.probe: observation.outcome for observation in observations}
        self.starved = {observation.probe for observation in observations if exhausted_in(observation)}
        self.sick: dict[str, NamedFinding] = {}
        for result in results:
            for finding in result.findings:
                id = identifier(result.check, finding.subject)
                previous = self.sick.get(id)
                if _is_sick(finding) and (previous is None or previous.finding.severity < finding.severity):
                    self.sick[id] = NamedFinding(id, result.check, finding)
        self.of_check = group_by(self.sick.values(), lambda entry: entry.check)
        self.leaders = self._find_leaders()

    def roots(self) -> dict[str, str]:
        """The cause of every sick finding; its own id where it is one."""
        parents = self._find_parents()
        for id, leader in self.leaders.items():
            if id != leader:
                parents.setdefault(id, leader)
        return {id: _chain_end(id, parents) for id in self.sick}

    def _find_parents(self) -> dict[str, str]:
        """What each finding follows from; whatever follows is never worse than what it follows from."""
        parents: dict[str, str] = {}
        inverse: dict[str, str] = {}
        for entry in self.sick.values():
            for explainer in self._explaining_findings(entry.check, entry.finding):
                if explainer.id == entry.id:
                    continue
                if explainer.finding.severity >= entry.finding.severity and not _preview_differs(
                    explainer, entry
                ):
                    parents[entry.id] = explainer.id
                    break
                if self._shows_as(explainer, entry):
                    inverse.setdefault(explainer.id, entry.id)
            else:
                if (source := self._broken_source(entry)) and source != entry.id:
                    parents[entry.id] = source
        return {**inverse, **parents}

    def _shows_as(self, milder: NamedFinding, entry: NamedFinding) -> bool:
        """Whether what explains a worse finding, and counts less, is of the same device or of the whole node.

        A service that is down is of the node, and so is what all like devices have.
        """
        source, target = (self.devices.name(side.finding.subject) for side in (milder, entry))
        if source == target:
            return True
        return not self.devices.like(source) and (not target or self.leaders.get(entry.id) == entry.id)

    def _explaining_findings(self, check: str, finding: Finding) -> Iterator[NamedFinding]:
        """Sick findings that explain this one, in the order in which they are named."""
        declared = self.checks[check].explained_by if check in self.checks else ()
        for name in (*finding.explainers, *declared):
            wanted, _, where = name.partition("@")
            for explainer in self.of_check.get(wanted, ()):
                if self._is_meant(explainer, where, finding.subject):
                    yield explainer

    def _is_meant(self, explainer: NamedFinding, where: str, subject: str) -> bool:
        name = self.devices.name(explainer.finding.subject)
        if where == "any":
            return True
        if where == "all":
            return self.leaders.get(explainer.id) == explainer.id
        if where == "node":
            return not name
        return name == self.devices.name(where) if where else name in self.devices.above(subject)

    def _broken_source(self, entry: NamedFinding) -> str | None:
        """Of an answer that broke: the finding that tells of its probe, or the probe itself."""
        if not entry.finding.broken:
            return None
        probe = entry.finding.missing or self._failed_probe(entry)
        if not probe:
            return None
        if probe in self.starved and STARVED in self.sick:
            return STARVED
        if self._speaks_for(entry.check, probe):
            return entry.id
        telling = (
            speaker
            for speaker in self.sick.values()
            if self._speaks_for(speaker.check, probe)
            and not speaker.finding.subject
            and not _preview_differs(speaker, entry)
        )
        worst = max(telling, key=lambda n: n.finding.severity, default=None)
        if worst is not None and worst.finding.severity >= entry.finding.severity:
            return worst.id
        return PROBE + probe

    def _speaks_for(self, check: str, probe: str) -> bool:
        return check in self.checks and probe in self.checks[check].speaks_for

    def _failed_probe(self, entry: NamedFinding) -> str:
        """The probe of a check that failed as the finding says; of several the first by name."""
        check = self.checks.get(entry.check)
        if check is None:
            return ""
        failed = [
            p
            for p in sorted(probes_of(check))
            if _FAILED.get(self._outcome_of_probe(p)) == entry.finding.reason
        ]
        return next((p for p in failed if p in self.starved), failed[0] if failed else "")

    def _outcome_of_probe(self, probe: str) -> Outcome:
        return self.outcomes.get(probe, Outcome.MISSING)

    def _find_leaders(self) -> dict[str, str]:
        """Findings that say the same of all like devices, each with the one of the lowest device."""
        comparable = (entry for entry in self.sick.values() if self.devices.like(entry.finding.subject))
        groups = group_by(comparable, _outcome_of)
        leaders: dict[str, str] = {}
        for group in groups.values():
            have = {self.devices.name(entry.finding.subject) for entry in group}
            like = self.devices.like(group[0].finding.subject)
            if len(have) > 1 and like - have <= self._out_of_order(group[0].check):
                first = min(group, key=lambda entry: natural_key(self.devices.name(entry.finding.subject)))
                leaders |= {entry.id: first.id for entry in group}
        return leaders

    def _out_of_order(self, check: str) -> frozenset[str]:
        """Devices that another check finds broken: this one need not say the same of them."""
        failed = (n for n in self.sick.values() if n.check != check and n.finding.status is Status.FAIL)
        return frozenset(self.devices.name(entry.finding.subject) for entry in failed)

    def unjudged(self, roots: Mapping[str, str]) -> dict[str, int]:
        """How many checks each cause left unjudged."""
        counts: dict[str, int] = {}
        for result in self.results:
            if result.status is not Status.UNKNOWN:
                continue
            worst = result.worst
            cause = roots.get(identifier(result.check, worst.subject)) if worst.broken else None
            if worst.blind:
                cause = self._blinding_cause(result, worst, roots)
            if cause is not None:
                counts[cause] = counts.get(cause, 0) + 1
        return counts

    def _blinding_cause(self, result: Result, finding: Finding, roots: Mapping[str, str]) -> str | None:
        """The cause for which something cannot be seen that could be seen on a healthy node."""
        if finding.missing and self._outcome_of_probe(finding.missing) is Outcome.MISSING:
            return None  # it was not asked, or there is no such tool
        for explainer in self._explaining_findings(result.check, finding):
            return roots[explainer.id]
        check = self.checks.get(result.check)
        if check is None:
            return None
        wanted = {finding.missing} if finding.missing else probes_of(check, required=True)
        probes = {
            probe
            for probe in wanted
            if self._outcome_of_probe(probe) not in (Outcome.MISSING, Outcome.DENIED)
        }
        for entry in self.sick.values():
            serious = entry.finding.broken or entry.finding.status is Status.FAIL
            if (
                serious
                and not entry.finding.subject
                and any(self._speaks_for(entry.check, p) for p in probes)
            ):
                return roots[entry.id]
        return None

    def causes(self, roots: Mapping[str, str], unjudged: Mapping[str, int]) -> tuple[Cause, ...]:
        """One for each root, in the order in which they matter."""
        members = group_pairs((root, self.sick[id]) for id, root in roots.items())
        ranked = [
            (self._root_severity(root, group), self._build_cause(root, group, unjudged.get(root, 0)))
            for root, group in members.items()
        ]
        return tuple(cause for _, cause in sorted(ranked, key=lambda pair: _sort_key(*pair)))

    def _root_severity(self, root: str, group: Sequence[NamedFinding]) -> int:
        head = self.sick.get(root)
        return head.finding.severity if head else max(entry.finding.severity for entry in group)

    def _build_cause(self, root: str, group: Sequence[NamedFinding], unjudged: int) -> Cause:
        head = self.sick.get(root)
        shared: tuple[str, ...] = ()
        explains = tuple(sorted((n.id for n in group if n.id != root), key=natural_key))
        if head is None:
            probe = root.removeprefix(PROBE)
            word = _PROBE_ENDS.get(group[0].finding.reason or "", "failed")
            finding, title = group[0].finding, f"probe {probe} {word}"
        else:
            finding = head.finding
            shared = tuple(n.finding.subject for n in group if self.leaders.get(n.id) == root)
            title = headline(finding, len(shared))
        subjects = sorted(set(shared), key=natural_key) if shared else [finding.subject] if head else []
        owner, action = move_of(head.check if head else "", finding, shared=len(shared) > 1)
        preview = all(entry.finding.preview for entry in group)
        gate: Schedulable = "yes" if preview else self._may_schedule([head] if head else group)
        if gate == "yes" and action == "replace-node":
            action = "investigate"  # what keeps no job away replaces no node
        about = tuple(subject for subject in subjects if subject)
        return Cause(
            id=root,
            headline=title,
            status=finding.status,
            subjects=about,
            explains=explains,
            unjudged=unjudged,
            owner=owner,
            action=action,
            schedulable=gate,
            reason=reason_of(title, action, owner, about),
            fix=finding.fix,
            preview=preview,
        )

    def _may_schedule(self, group: Sequence[NamedFinding]) -> Schedulable:
        """What the table says of the cause, or of all that a failed probe left unjudged."""
        if any(n.finding.status is Status.FAIL and n.check in self.expected for n in group):
            return "no"
        return worst(
            schedulable(n.id, n.finding.status, n.finding.fix.action if n.finding.fix else "") for n in group
        )


def _preview_differs(explainer: NamedFinding, entry: NamedFinding) -> bool:
    """Whether what counts would follow from what does not: a preview explains nothing but previews."""
    return explainer.finding.preview and not entry.finding.preview


def _sort_key(severity: int, cause: Cause) -> tuple[object, ...]:
    """Sorts causes: what counts, the most severe, what keeps jobs away, down and slow before odd.

    Jobs wait for what keeps them away, a slow device slows them, and a version that differs from the others'
    does neither by itself. Of equals what explains most comes first, then what somebody can act on.
    """
    explained = len(cause.explains) + cause.unjudged
    return (
        cause.preview,
        -severity,
        strictness(cause.schedulable),
        is_harmless(cause.id),
        -explained,
        cause.owner == "undetermined",
        natural_key(cause.id),
    )


def _chain_end(id: str, parents: Mapping[str, str]) -> str:
    """Where the chain ends; should declarations form a circle, at the first name in it by the alphabet."""
    chain = [id]
    while (id := parents.get(id, "")) and id not in chain:
        chain.append(id)
    return min(chain[chain.index(id) :]) if id else chain[-1]


def _outcome_of(entry: NamedFinding) -> tuple[object, ...]:
    """What a finding says, without the numbers and names that differ from device to device."""
    finding = entry.finding
    action = finding.fix.action if finding.fix else None
    kind = finding.subject.partition(":")[0]
    return entry.check, finding.status, finding.preview, finding.reason, action, kind, masked(finding.summary)
