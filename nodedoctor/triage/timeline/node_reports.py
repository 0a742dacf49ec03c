"""Faults of nodes when a job died, from their reports or recordings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from nodedoctor import input_files
from nodedoctor.errors import NodeDoctorError
from nodedoctor.json_shapes import loaded, objects
from nodedoctor.json_shapes import text as text_of_key
from nodedoctor.knowledge.kinds import cause_of_check
from nodedoctor.model import Action, Fix, Role, Step
from nodedoctor.record import record
from nodedoctor.report.document import SCHEMA as REPORT
from nodedoctor.report.json import document
from nodedoctor.report.saved import damage
from nodedoctor.report.saved import fix as fix_of
from nodedoctor.steps import look
from nodedoctor.triage.identity.world import is_address, short_host
from nodedoctor.triage.lines.prefixes import parse_line
from nodedoctor.triage.model import Cause, Event, Identity, Place
from nodedoctor.triage.patterns import read_events
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.machine import KernelTaskHung, XidReported
from nodedoctor.triage.timeline.model import Timeline

_ZIP = b"PK"
BEFORE = 600.0
"""Seconds before the first wait began in which a kernel message still counts: drivers retry for minutes."""

NOTED = 3
"""Messages of another time, or of none, that notes quote. Ours."""

_OTHER_CAUSES = {"p2p.status": "p2p_pcie_acs_iommu", "pcie.acs": "p2p_pcie_acs_iommu"}
"""Checks whose failure can end a job, beside those that are events of a kind (`knowledge.kinds`)."""


class NotANode(NodeDoctorError):
    """A file that is neither a report nor a recording, in one line."""


@record
class NodeFault:
    """A failed check of a node: it may explain a failure where logs do not."""

    cause: Cause
    check: str
    summary: str
    fixes: tuple[Fix, ...] = ()


@record
class NodeFaults:
    """One node's faults as events."""

    host: str | None
    events: tuple[Event[Any], ...]
    keeps_jobs_away: str = ""
    """Why no new job may start there; '' where one may."""


def read_node(path: str) -> NodeFaults:
    """Faults of a report (JSON) or a recording (zip or folder); else NotANode."""
    return faults_of_report(path, _load_report(path))


def faults_of_report(path: str, report: Mapping[str, Any]) -> NodeFaults:
    """Faults of a report; `path` names the source of its evidence."""
    host = report.get("node", {}).get("hostname") if isinstance(report.get("node"), dict) else None
    name = host if isinstance(host, str) else None
    away = (cause for cause in objects(report.get("causes")) if not cause.get("preview"))
    why = next((text_of_key(cause, "reason") for cause in away if cause.get("schedulable") in _AWAY), "")
    events = (*_node_events(path, name, report), *_loopback_names(path, name, report))
    return NodeFaults(name, events, why)


_AWAY = ("no", "drain-when-idle")
"""Answers of `schedulable` with which a node gets no new job, now or when it is idle."""


@record
class JoinedNodes:
    """Events of nodes: those of this job, those of an unknown time; and notes."""

    events: tuple[Event[Any], ...] = ()
    undated: tuple[Event[Any], ...] = ()
    notes: tuple[str, ...] = ()


def join_nodes(timeline: Timeline, nodes: Iterable[NodeFaults]) -> JoinedNodes:
    """Separate the events of nodes: those of the job's time, and undated ones."""
    job_events: list[Event[Any]] = []
    undated: list[Event[Any]] = []
    notes: list[str] = []
    dated = any(event.time is not None for event in timeline.events)
    hosts = hosts_in_logs(timeline)
    for node in nodes:
        if node.host and hosts and short_host(node.host) not in hosts:
            notes.append(f"{node.host}: this node is not in the logs ({', '.join(sorted(hosts)[:4])})")
            continue
        for event in node.events:
            if isinstance(event.what, NodeFault) or (dated and _in_time(event, timeline)):
                job_events.append(event)
            elif not dated:
                undated.append(event)
    notes += [
        f"{event.place.source}: perhaps of another job, since the logs have no times: {event.text[:200]}"
        for event in undated[:NOTED]
    ]
    return JoinedNodes(tuple(job_events), tuple(undated), tuple(notes))


def _load_report(path: str) -> Mapping[str, Any]:
    if os.path.isdir(path):
        return _replay_recording(path)
    try:
        data = input_files.read(path, pipes=True)
        if data.startswith(_ZIP):
            return _replay_recording(path)
        report = loaded(data)
    except OSError as error:
        raise NotANode(f"{path}: {error.strerror}") from None
    except ValueError:
        raise NotANode(f"{path}: neither a report nor a recorded node") from None
    if not isinstance(report, dict) or report.get("schema") != REPORT:
        raise NotANode(f"{path}: not a {REPORT} document")
    if wrong := damage(report):
        raise NotANode(f"{path}: a damaged report: {wrong}")
    return report


def _replay_recording(path: str) -> Mapping[str, Any]:
    """A recording goes through the same checks as a live node."""
    import asyncio

    from nodedoctor.engine.session import Request, Session, UsageError

    async def run() -> Mapping[str, Any]:
        return document(await Session(Request(replay=Path(path))).diagnosis().run())

    try:
        return asyncio.run(run())
    except UsageError as problem:
        raise NotANode(str(problem)) from None


def _node_events(path: str, host: str | None, report: Mapping[str, Any]) -> Iterator[Event[Any]]:
    for check, finding in _failed_findings(report):
        texts = [str(e.get("text", "")) for e in finding.get("evidence") or () if isinstance(e, dict)]
        kernel_events = [
            e
            for text in texts
            for e in _kernel_line_events(path, host, text)
            if isinstance(e.what, (XidReported, HostOom, KernelTaskHung))
        ]
        yield from kernel_events
        cause = cause_of_check(check) or _OTHER_CAUSES.get(check)
        if not kernel_events and finding.get("status") == "fail" and cause:
            summary = str(finding.get("summary", ""))[:300]
            text = f"{check}: {summary}" + (f": {texts[0]}" if texts else "")
            what = NodeFault(cast(Cause, cause), check, summary, _check_fixes(finding.get("fix")))
            yield Event(what, Place(path, 0), Identity(host=host), None, text[:500])


def _loopback_names(path: str, host: str | None, report: Mapping[str, Any]) -> Iterator[Event[Any]]:
    """Of a node whose name leads to itself: fine alone, and a cause where ranks do not reach each other."""
    for result in objects(report.get("results")):
        for finding in objects(result.get("findings")) if result.get("check") == OWN_NAME else ():
            summary = str(finding.get("summary", ""))[:300]
            if _LEADS_BACK.search(summary):
                what = NodeFault("network_socket_interface", OWN_NAME, summary, (_REAL_ADDRESS,))
                yield Event(what, Place(path, 0), Identity(host=host), None, f"{OWN_NAME}: {summary}")


OWN_NAME = "net.hostname"
"""The check of the address of a node's own name."""
_LEADS_BACK = re.compile(r"resolves to (?:127\.|::1)")
_REAL_ADDRESS = Fix(
    "Give the node's name its real address in /etc/hosts on every node, or name the master and the interface "
    "by what others reach (MASTER_ADDR, GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME).",
    (look("grep -n 127 /etc/hosts"), look("hostname -I")),
    "config",
)


def _check_fixes(value: Any) -> tuple[Fix, ...]:
    """The check's own fix as the report has it."""
    fix = fix_of(value)
    if fix is None:
        return ()
    steps = tuple(
        Step(
            cast(Role, step["role"]),
            step["command"],
            step["when"] or "",
            step["disturbs"] or "",
            step["needs_root"],
        )
        for step in fix["steps"]
        if step["role"] != "verify"
    )
    verify = fix["verify"] or ""
    return (
        Fix(
            fix["text"], steps, cast(Action, fix["action"]), fix["disturbs"] or "", verify, fix["docs"] or ""
        ),
    )


def _failed_findings(report: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for result in report.get("results") or ():
        for finding in (result.get("findings") or ()) if isinstance(result, dict) else ():
            if (
                isinstance(finding, dict)
                and finding.get("status") in ("fail", "warn")
                and not finding.get("waived")
            ):
                yield str(result.get("check", "")), finding


def _kernel_line_events(path: str, host: str | None, text: str) -> Iterator[Event[Any]]:
    """Kernel lines among the evidence, read like those of a log."""
    lines = [line for raw in text.split("\n") for line in parse_line(raw, Place(path, 0))]
    for event in read_events(lines):
        who = Identity(host=event.who.host or host, pid=event.who.pid, gpu=event.who.gpu)
        yield replace(event, who=who)


def _in_time(event: Event[Any], timeline: Timeline) -> bool:
    if event.time is None:
        return True
    wait_starts = [wait.began for wait in timeline.waits if wait.began is not None]
    times = [e.time for e in timeline.events if e.time is not None]
    first = min(wait_starts) if wait_starts else min(times)
    return first - BEFORE <= event.time <= max(times) + BEFORE


def hosts_in_logs(timeline: Timeline) -> set[str]:
    """Short names of the hosts in the logs, without addresses and localhost."""
    return {
        short_host(event.who.host)
        for event in timeline.events
        if event.who.host and not is_address(event.who.host)
    }
