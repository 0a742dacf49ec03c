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
    seen: PlanOutcome, floors: Mapping[str, float], *, preview: bool = False
) -> tuple[tuple[Result, ...], tuple[Cause, ...]]:
    """All findings, each check with at least one, and the causes they have.

    `floors` are rates that are expected, by their keys of `--expect`. What was never tried on real hardware
    warns at most, unless `preview` says otherwise.
    """
    found: dict[str, list[Finding]] = {name: [] for name in _TITLES}
    for culprit in seen.fit.culprits:
        found[f"pairs.{culprit.kind}"].append(_culprit(culprit, seen, preview))
    blamed = {name for culprit in seen.fit.culprits for name in culprit.names}
    if seen.smallest and blamed.isdisjoint(seen.smallest):
        found["pairs.group"].append(_together(seen))
    for member in seen.members:
        if member.why:
            finding = Finding.unknown("timeout", f"not measured: {member.why}", subject=member.host)
            found["pairs.node"].append(finding)
        elif member.busy and member.host not in seen.plan.nodes:
            said = f"left out, not idle: {', '.join(member.busy)}"
            fix = Fix("Wait until the node is idle, or measure it under load.", action="none")
            found["pairs.node"].append(
                Finding.unknown("not-visible-here", said, subject=member.host, fix=fix)
            )
    if seen.fit.closed:
        found["pairs.port"].append(_closed(seen))
    found["pairs.floor"].append(_floor(seen, floors))
    _nothing_wrong(found, seen)
    results = [Result(name, _TITLES[name], tuple(findings), why=_WHY) for name, findings in found.items()]
    return diagnose(results, ())


def summary(culprit: Culprit, fit: Fit, *, alone: bool = False) -> str:
    """What is wrong, as a clause without its subject; `alone` where no other pair was measured."""
    said = _WORDS[culprit.fault]
    losses = [one.loss for one in culprit.seen if one.loss is not None]
    trips = [one.rtt_us for one in culprit.seen if one.rtt_us is not None]
    rate = lost = ""
    share, good = culprit.share, fit.reference_gbps
    if share is not None and good and (culprit.fault == "slow" or share < fit.slow_below):
        rate = f"{share:.0%} of the rate of a good pair ({share * good:.3g} of {good:.3g} Gb/s)"
    if losses and median_high(losses) > fit.lossy_above:
        lost = f"{median_high(losses):.1%} of segments sent again"
    if culprit.fault == "slow":
        said = ", ".join(filter(None, (rate or said, lost)))
    elif culprit.fault == "loss":
        said = ", ".join(filter(None, (lost or said, rate)))
    elif culprit.fault == "late" and trips:
        said = f"a small message and its answer take {decimal(median_high(trips) / 1000, 2)} ms"
    if rail := _rail(culprit):
        said += f" on rail {rail}"
    partners = {name for one in culprit.seen for name in one.pair} - set(culprit.names)
    with_whom = {
        "node": f", with {len(partners)} partners" if culprit.fault != "lost" else "",
        "path": f", {len(culprit.seen)} measurements; "
        + ("no other pair was measured" if alone else "both ends well elsewhere"),
        "group": f", with {len(partners)} nodes outside; well inside",
    }
    return said + with_whom[culprit.kind]


def _rail(culprit: Culprit) -> str:
    """The rail that is the slowest in all measurements of a slow culprit; empty where it differs."""
    slowest = {min(one.rails, key=lambda name: one.rails[name]) for one in culprit.seen if len(one.rails) > 1}
    return next(iter(slowest)) if culprit.fault == "slow" and len(slowest) == 1 else ""


def proven(seen: PlanOutcome) -> bool:
    """Whether what was measured was tried on real hardware: TCP and gloo were, rails, RDMA and NCCL not."""
    return seen.plan.what == "tcp" or (seen.plan.what == "collective" and not seen.gpus)


def _culprit(culprit: Culprit, seen: PlanOutcome, preview: bool) -> Finding:
    alone = len({one.pair for one in seen.measured if not set(one.pair) & set(seen.gone)}) == 1
    said = summary(culprit, seen.fit, alone=alone)
    late = culprit.fault == "late"
    shown = sorted(culprit.seen, key=lambda one: (not one.fault, one.round))[:SHOWN]  # faults first
    evidence = tuple(Evidence("pairs", _quoted(one, late)) for one in shown)
    finding = (
        Finding.unknown("timeout", said, subject=culprit.where, evidence=evidence)
        if culprit.fault == "lost"
        else Finding(
            Status.FAIL if fails(culprit, seen, preview) else Status.WARN, said, culprit.where, evidence
        )
    )
    subject = {"node": "node", "path": "the path", "group": "the nodes"}[culprit.kind]
    fixed = Finding(
        finding.status,
        finding.summary,
        finding.subject,
        finding.evidence,
        _fix(culprit, seen, alone=alone),
        reason=finding.reason,
        why=_WHY,
    )
    return fixed.led_by(f"{subject} {culprit.where}: {said.partition(',')[0].partition(' (')[0]}")


def _together(seen: PlanOutcome) -> Finding:
    """The smallest set that failed, where each of its pairs is well."""
    rate = next((one.gbps for one in reversed(seen.tries) if set(one.nodes) == set(seen.smallest)), None)
    had = f" at {rate:.3g} Gb/s" if rate else ""
    fix = Fix(
        "Measure these nodes again with --pairs=bisect; if it repeats, look at what they share: a switch, "
        "its uplinks, settings of NCCL.",
        (look("ip -s link", when="on these nodes"),),
        "investigate",
        verify=line("nodedoctor fleet --ssh {} --pairs=bisect", fold(seen.smallest)),
    )
    said = f"these nodes fail together{had}, although their pairs are well"
    return Finding.warn(said, subject=fold(seen.smallest), fix=fix)


def fails(culprit: Culprit, seen: PlanOutcome, preview: bool) -> bool:
    """Whether a culprit is sure enough to bar a node."""
    return culprit.confidence == "high" and culprit.fault != "late" and (preview or proven(seen))


def _quoted(one: Measurement, late: bool = False) -> str:
    parts = [f"{one.pair[0]} - {one.pair[1]}, round {one.round}:"]
    parts += [f"{one.gbps:.3g} Gb/s"] if one.gbps is not None else []
    parts += [f"{one.loss:.2%} sent again"] if one.loss else []
    parts += [f"{decimal(one.rtt_us / 1000, 2)} ms"] if late and one.rtt_us is not None else []
    if len(one.rails) > 1:
        slow = min(one.rails, key=lambda name: one.rails[name])
        parts += [f"(the slowest of {len(one.rails)} rails, {slow})"]
    parts += [one.fault] if one.fault else []
    parts += [f"({one.note})"] if one.note else []
    return " ".join(parts)


def _fix(culprit: Culprit, seen: PlanOutcome, *, alone: bool) -> Fix:
    everybody = fold(sorted({name for one in culprit.seen for name in one.pair}))
    verify = line("nodedoctor fleet --ssh {} --pairs", everybody)
    verify += " --what rails" if seen.plan.what == "rails" else ""
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


def _closed(seen: PlanOutcome) -> Finding:
    if seen.fit.closed == "error":
        notes = [one.note for one in seen.measured if one.fault == "error" and one.note]
        said = f"most pairs could not run the test{f': {notes[0]}' if notes else ''}"
        return Finding.unknown("crash", said, evidence=tuple(_evidence(seen, "error")))
    fix = Fix(
        "Open TCP ports between the nodes: NCCL, gloo and MPI choose theirs at random.",
        (look("sudo nft list ruleset", when="on a node"),),
        "config",
    )
    said = "most pairs cannot connect: firewall? Nothing is known of their speed"
    return Finding.unknown("denied", said, fix=fix, evidence=tuple(_evidence(seen, *CONNECTING)))


def _evidence(seen: PlanOutcome, *faults: str) -> list[Evidence]:
    return [Evidence("pairs", _quoted(one)) for one in seen.measured if one.fault in faults][:SHOWN]


def _floor(seen: PlanOutcome, floors: Mapping[str, float]) -> Finding:
    reference, what = seen.fit.reference_gbps, seen.plan.what
    if reference is None:
        return Finding.unknown("not-visible-here", "no pair has a rate")
    method = METHODS[what]
    said = f"a good pair has {reference:.3g} Gb/s {method.rate}"
    if method.key in floors:
        expected = floors[method.key] * method.gbps_of_key
        if reference < expected:
            return Finding.fail(f"{said}, expected {expected:g}", fix=_ALL_SLOW)
        return Finding.ok(f"{said}, at least {expected:g} expected")
    speed = _built_for(seen)
    row = share_of(what, speed) if speed else None
    if speed is None or row is None:
        return Finding.info(f"{said}; no bound is known for these links, --expect {method.key}=N sets one")
    if reference < row.share * speed:
        return Finding.warn(
            f"{said}, less than {row.share:.0%} of {row.of} ({speed:g} Gb/s), on all nodes", fix=_ALL_SLOW
        )
    return Finding.ok(f"{said}, at least {row.share:.0%} of {row.of} ({speed:g} Gb/s)")


def _built_for(seen: PlanOutcome) -> float | None:
    """The speed that the links of all measured nodes have alike; None where they differ or none is known."""
    members = [member for member in seen.members if member.host in seen.plan.nodes]
    if seen.plan.what == "rails" or (seen.plan.what == "collective" and not seen.gpus):
        return None
    speeds = {
        member.link_gbps
        if seen.plan.what == "tcp"
        else member.rail_gbps
        and member.rail_gbps * (len(member.rails) if seen.plan.what == "collective" else 1)
        for member in members
    }
    return next(iter(speeds)) if len(speeds) == 1 else None


def _nothing_wrong(found: dict[str, list[Finding]], seen: PlanOutcome) -> None:
    """What is said where nothing is wrong: only of what was measured."""
    pairs = {one.pair for one in seen.measured if not one.fault}
    if pairs and seen.fit.slow_below < BLURRED:
        said = f"rates scatter too much: only a pair below {seen.fit.slow_below:.0%} of the others would show"
        blurred = Finding.unknown("not-visible-here", said)
        for name in ("pairs.node", "pairs.path", "pairs.group"):
            found[name] = found[name] or [blurred]
    nodes = {name for one in pairs for name in one}
    every = len(seen.plan.nodes) * (len(seen.plan.nodes) - 1) // 2
    of_pairs = f"{len(pairs)} of {every} pairs"
    for name, count, what in (
        ("pairs.node", len(nodes), f"{len(nodes)} nodes"),
        ("pairs.path", len(pairs), of_pairs),
    ):
        if not found[name]:
            said = f"{what} measured, none is the odd one out"
            found[name].append(
                Finding.ok(said) if count else Finding.unknown("not-visible-here", "none measured")
            )
    if not found["pairs.group"]:
        found["pairs.group"].append(
            Finding.ok("no group of nodes is slow with the rest")
            if pairs
            else Finding.unknown("not-visible-here", "none measured")
        )
    if not found["pairs.port"]:
        found["pairs.port"].append(
            Finding.ok("pairs could connect")
            if pairs
            else Finding.unknown("not-visible-here", "none measured")
        )
