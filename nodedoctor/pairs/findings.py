"""What was measured as findings with causes, owners and steps, like those of every other check."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median_high

from nodedoctor.engine.causes.roots import diagnose
from nodedoctor.knowledge.floors import share_of
from nodedoctor.model import Action, Cause, Evidence, Finding, Fix, Result, Status
from nodedoctor.nodeset import fold
from nodedoctor.pairs.bounds import BLURRED
from nodedoctor.pairs.drive import PlanOutcome
from nodedoctor.pairs.methods import METHODS
from nodedoctor.pairs.model import CONNECTING, Culprit, Fault, Fit, Measurement
from nodedoctor.steps import line, look
from nodedoctor.wording import decimal

SHOWN = 6
"""Measurements quoted as evidence of one finding."""

_WHY = "A synchronous job runs at the pace of its slowest node: every collective waits for it."
_WORDS: Mapping[Fault, str] = {
    "loss": "loses segments",
    "late": "answers late",
    "corrupt": "delivers wrong bytes",
    "hang": "hangs under load",
    "refused": "refuses connections: firewall?",
    "filtered": "does not answer connections: firewall?",
    "lost": "stopped answering",
    "error": "could not run the test",
    "slow": "is slow",
}
_TITLES = {
    "pairs.node": "Node in pairs",
    "pairs.path": "Path in pairs",
    "pairs.group": "Group in pairs",
    "pairs.port": "Ports between nodes",
    "pairs.floor": "Rate of a good pair",
}


_ALL_SLOW = Fix(
    "All pairs are slow alike, so look for one cause: MTU, speed of switch ports, uplinks with too little "
    "room, PCIe settings.",
    (look("nodedoctor net ib pcie", when="on a node"),),
    "investigate",
)


def judge_pairs(
    outcome: PlanOutcome, floors: Mapping[str, float], *, preview: bool = False
) -> tuple[tuple[Result, ...], tuple[Cause, ...]]:
    """All findings, each check with at least one, and the causes they have.

    `floors` are rates that are expected, by their keys of `--expect`. What was never tried on real hardware
    warns at most, unless `preview` says otherwise.
    """
    by_check: dict[str, list[Finding]] = {name: [] for name in _TITLES}
    for culprit in outcome.fit.culprits:
        by_check[f"pairs.{culprit.kind}"].append(_culprit_finding(culprit, outcome, preview))
    blamed = {name for culprit in outcome.fit.culprits for name in culprit.names}
    if outcome.smallest and blamed.isdisjoint(outcome.smallest):
        by_check["pairs.group"].append(_together_finding(outcome))
    for member in outcome.members:
        if member.why:
            finding = Finding.unknown("timeout", f"not measured: {member.why}", subject=member.host)
            by_check["pairs.node"].append(finding)
        elif member.busy and member.host not in outcome.plan.nodes:
            text = f"left out, not idle: {', '.join(member.busy)}"
            fix = Fix("Wait until the node is idle, or measure it under load.", action="none")
            by_check["pairs.node"].append(
                Finding.unknown("not-visible-here", text, subject=member.host, fix=fix)
            )
    if outcome.fit.closed:
        by_check["pairs.port"].append(_closed_finding(outcome))
    by_check["pairs.floor"].append(_floor_finding(outcome, floors))
    _nothing_wrong(by_check, outcome)
    results = [Result(name, _TITLES[name], tuple(findings), why=_WHY) for name, findings in by_check.items()]
    return diagnose(results, ())


def summary(culprit: Culprit, fit: Fit, *, alone: bool = False) -> str:
    """What is wrong, as a clause without its subject; `alone` where no other pair was measured."""
    text = _WORDS[culprit.fault]
    losses = [measurement.loss for measurement in culprit.seen if measurement.loss is not None]
    trips = [measurement.rtt_us for measurement in culprit.seen if measurement.rtt_us is not None]
    rate = loss = ""
    share, good = culprit.share, fit.reference_gbps
    if share is not None and good and (culprit.fault == "slow" or share < fit.slow_below):
        rate = f"{share:.0%} of the rate of a good pair ({share * good:.3g} of {good:.3g} Gb/s)"
    if losses and median_high(losses) > fit.lossy_above:
        loss = f"{median_high(losses):.1%} of segments sent again"
    if culprit.fault == "slow":
        text = ", ".join(filter(None, (rate or text, loss)))
    elif culprit.fault == "loss":
        text = ", ".join(filter(None, (loss or text, rate)))
    elif culprit.fault == "late" and trips:
        text = f"a small message and its answer take {decimal(median_high(trips) / 1000, 2)} ms"
    if rail := _slowest_rail(culprit):
        text += f" on rail {rail}"
    partners = {name for measurement in culprit.seen for name in measurement.pair} - set(culprit.names)
    with_whom = {
        "node": f", with {len(partners)} partners" if culprit.fault != "lost" else "",
        "path": f", {len(culprit.seen)} measurements; "
        + ("no other pair was measured" if alone else "both ends well elsewhere"),
        "group": f", with {len(partners)} nodes outside; well inside",
    }
    return text + with_whom[culprit.kind]


def _slowest_rail(culprit: Culprit) -> str:
    """The rail that is the slowest in all measurements of a slow culprit; empty where it differs."""
    slowest = {
        min(measurement.rails, key=lambda name: measurement.rails[name])
        for measurement in culprit.seen
        if len(measurement.rails) > 1
    }
    return next(iter(slowest)) if culprit.fault == "slow" and len(slowest) == 1 else ""


def proven(outcome: PlanOutcome) -> bool:
    """Whether what was measured was tried on real hardware: TCP and gloo were, rails, RDMA and NCCL not."""
    return outcome.plan.what == "tcp" or (outcome.plan.what == "collective" and not outcome.gpus)


def _culprit_finding(culprit: Culprit, outcome: PlanOutcome, preview: bool) -> Finding:
    alone = (
        len(
            {
                measurement.pair
                for measurement in outcome.measured
                if not set(measurement.pair) & set(outcome.gone)
            }
        )
        == 1
    )
    text = summary(culprit, outcome.fit, alone=alone)
    late = culprit.fault == "late"
    shown = sorted(culprit.seen, key=lambda measurement: (not measurement.fault, measurement.round))[
        :SHOWN
    ]  # faults first
    evidence = tuple(Evidence("pairs", _quote_measurement(measurement, late)) for measurement in shown)
    finding = (
        Finding.unknown("timeout", text, subject=culprit.where, evidence=evidence)
        if culprit.fault == "lost"
        else Finding(
            Status.FAIL if fails(culprit, outcome, preview) else Status.WARN, text, culprit.where, evidence
        )
    )
    subject = {"node": "node", "path": "the path", "group": "the nodes"}[culprit.kind]
    fixed = Finding(
        finding.status,
        finding.summary,
        finding.subject,
        finding.evidence,
        _culprit_fix(culprit, outcome, alone=alone),
        reason=finding.reason,
        why=_WHY,
    )
    return fixed.led_by(f"{subject} {culprit.where}: {text.partition(',')[0].partition(' (')[0]}")


def _together_finding(outcome: PlanOutcome) -> Finding:
    """The smallest set that failed, where each of its pairs is well."""
    rate = next(
        (attempt.gbps for attempt in reversed(outcome.tries) if set(attempt.nodes) == set(outcome.smallest)),
        None,
    )
    had = f" at {rate:.3g} Gb/s" if rate else ""
    fix = Fix(
        "Measure these nodes again with --pairs=bisect; if it repeats, look at what they share: a switch, "
        "its uplinks, settings of NCCL.",
        (look("ip -s link", when="on these nodes"),),
        "investigate",
        verify=line("nodedoctor fleet --ssh {} --pairs=bisect", fold(outcome.smallest)),
    )
    text = f"these nodes fail together{had}, although their pairs are well"
    return Finding.warn(text, subject=fold(outcome.smallest), fix=fix)


def fails(culprit: Culprit, outcome: PlanOutcome, preview: bool) -> bool:
    """Whether a culprit is sure enough to bar a node."""
    return culprit.confidence == "high" and culprit.fault != "late" and (preview or proven(outcome))


def _quote_measurement(measurement: Measurement, late: bool = False) -> str:
    parts = [f"{measurement.pair[0]} - {measurement.pair[1]}, round {measurement.round}:"]
    parts += [f"{measurement.gbps:.3g} Gb/s"] if measurement.gbps is not None else []
    parts += [f"{measurement.loss:.2%} sent again"] if measurement.loss else []
    parts += (
        [f"{decimal(measurement.rtt_us / 1000, 2)} ms"] if late and measurement.rtt_us is not None else []
    )
    if len(measurement.rails) > 1:
        slow = min(measurement.rails, key=lambda name: measurement.rails[name])
        parts += [f"(the slowest of {len(measurement.rails)} rails, {slow})"]
    parts += [measurement.fault] if measurement.fault else []
    parts += [f"({measurement.note})"] if measurement.note else []
    return " ".join(parts)


def _culprit_fix(culprit: Culprit, outcome: PlanOutcome, *, alone: bool) -> Fix:
    everybody = fold(sorted({name for measurement in culprit.seen for name in measurement.pair}))
    verify = line("nodedoctor fleet --ssh {} --pairs", everybody)
    verify += " --what rails" if outcome.plan.what == "rails" else ""
    if culprit.fault in CONNECTING:
        where = "on the node" if culprit.kind == "node" else "on both ends"
        text = "Open TCP ports between the nodes of a job: NCCL, gloo and MPI choose theirs at random."
        return Fix(text, (look("sudo nft list ruleset", when=where),), "config", verify=verify)
    if culprit.kind == "node":
        text = "Keep jobs off this node; check its NIC, cable and switch port, then measure it again."
        looks = (
            look("nodedoctor --deep", when="on the node"),
            look("ip -s link", when="on the node"),
        )
        action: Action = "drain" if culprit.fault == "lost" else "investigate"
        return Fix(text, looks, action, verify=verify)
    text = "Check the switch ports and cables on this path; both ends are well with other nodes."
    if alone:
        text = "Check NICs, cables and switch ports of both ends; measured with a third node, one is named."
    if culprit.kind == "group":
        text = "Check the uplinks of the switch that these nodes share; they are well among themselves."
    return Fix(text, (look("ip -s link", when="on both ends"),), "investigate", verify=verify)


def _closed_finding(outcome: PlanOutcome) -> Finding:
    if outcome.fit.closed == "error":
        notes = [
            measurement.note
            for measurement in outcome.measured
            if measurement.fault == "error" and measurement.note
        ]
        text = f"most pairs could not run the test{f': {notes[0]}' if notes else ''}"
        return Finding.unknown("crash", text, evidence=tuple(_fault_evidence(outcome, "error")))
    fix = Fix(
        "Open TCP ports between the nodes: NCCL, gloo and MPI choose theirs at random.",
        (look("sudo nft list ruleset", when="on a node"),),
        "config",
    )
    text = "most pairs cannot connect: firewall? Nothing is known of their speed"
    return Finding.unknown("denied", text, fix=fix, evidence=tuple(_fault_evidence(outcome, *CONNECTING)))


def _fault_evidence(outcome: PlanOutcome, *faults: str) -> list[Evidence]:
    return [
        Evidence("pairs", _quote_measurement(measurement))
        for measurement in outcome.measured
        if measurement.fault in faults
    ][:SHOWN]


def _floor_finding(outcome: PlanOutcome, floors: Mapping[str, float]) -> Finding:
    reference, what = outcome.fit.reference_gbps, outcome.plan.what
    if reference is None:
        return Finding.unknown("not-visible-here", "no pair has a rate")
    method = METHODS[what]
    text = f"a good pair has {reference:.3g} Gb/s {method.rate}"
    if method.key in floors:
        expected = floors[method.key] * method.gbps_of_key
        if reference < expected:
            return Finding.fail(f"{text}, expected {expected:g}", fix=_ALL_SLOW)
        return Finding.ok(f"{text}, at least {expected:g} expected")
    speed = _built_for(outcome)
    row = share_of(what, speed) if speed else None
    if speed is None or row is None:
        return Finding.info(f"{text}; no bound is known for these links, --expect {method.key}=N sets one")
    if reference < row.share * speed:
        return Finding.warn(
            f"{text}, less than {row.share:.0%} of {row.of} ({speed:g} Gb/s), on all nodes", fix=_ALL_SLOW
        )
    return Finding.ok(f"{text}, at least {row.share:.0%} of {row.of} ({speed:g} Gb/s)")


def _built_for(outcome: PlanOutcome) -> float | None:
    """The speed that the links of all measured nodes have alike; None where they differ or none is known."""
    members = [member for member in outcome.members if member.host in outcome.plan.nodes]
    if outcome.plan.what == "rails" or (outcome.plan.what == "collective" and not outcome.gpus):
        return None
    speeds = {
        member.link_gbps
        if outcome.plan.what == "tcp"
        else member.rail_gbps
        and member.rail_gbps * (len(member.rails) if outcome.plan.what == "collective" else 1)
        for member in members
    }
    return next(iter(speeds)) if len(speeds) == 1 else None


def _nothing_wrong(by_check: dict[str, list[Finding]], outcome: PlanOutcome) -> None:
    """What is said where nothing is wrong: only of what was measured."""
    pairs = {one.pair for one in outcome.measured if not one.fault}
    if pairs and outcome.fit.slow_below < BLURRED:
        text = (
            f"rates scatter too much: only a pair below {outcome.fit.slow_below:.0%} of the others would show"
        )
        blurred = Finding.unknown("not-visible-here", text)
        for name in ("pairs.node", "pairs.path", "pairs.group"):
            by_check[name] = by_check[name] or [blurred]
    nodes = {name for one in pairs for name in one}
    every = len(outcome.plan.nodes) * (len(outcome.plan.nodes) - 1) // 2
    of_pairs = f"{len(pairs)} of {every} pairs"
    for name, count, what in (
        ("pairs.node", len(nodes), f"{len(nodes)} nodes"),
        ("pairs.path", len(pairs), of_pairs),
    ):
        if not by_check[name]:
            text = f"{what} measured, none is the odd one out"
            by_check[name].append(
                Finding.ok(text) if count else Finding.unknown("not-visible-here", "none measured")
            )
    if not by_check["pairs.group"]:
        by_check["pairs.group"].append(
            Finding.ok("no group of nodes is slow with the rest")
            if pairs
            else Finding.unknown("not-visible-here", "none measured")
        )
    if not by_check["pairs.port"]:
        by_check["pairs.port"].append(
            Finding.ok("pairs could connect")
            if pairs
            else Finding.unknown("not-visible-here", "none measured")
        )
