"""Whether logs evidently come from this machine, and what is wrong with it then."""

from __future__ import annotations

import glob
import os
import re
import socket
import time
from collections.abc import Sequence

from nodedoctor.triage.identity.world import short_host
from nodedoctor.triage.lines.times import year_seconds
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.timeline.node_reports import NodeFaults, faults_of_report, hosts_in_logs
from nodedoctor.wording import count_with_noun

CHECKS = ("kernel", "limits.nofile", "limits.shm", "driver", "ib")
"""What can end a job and is read quickly; the rest of a node's checks is one `nodedoctor` away."""
DEADLINE = 15.0
"""Seconds for these checks: a person waits for the verdict."""
RECENT = 86400.0
"""Seconds: after a day, limits and links of this machine say little about a job that died on it."""
_ZONES = 14 * 3600.0
"""Seconds that a clock of another time zone may be ahead or behind: logs do not say which zone is theirs."""
_YEAR = 366 * 86400.0
_LOCAL_PATHS = re.compile(r"/tmp/(?:ray/session_|(?:nccl|comm_lib)_trace_rank_)")
"""Where Ray and torch's flight recorder write by default; /tmp belongs to one machine."""


def evidence_for_machine(timeline: Timeline, paths: Sequence[str]) -> str:
    """Why the logs must come from this machine, as half a sentence, or ''."""
    ours = short_host(socket.gethostname())
    hosts = hosts_in_logs(timeline)
    if (hosts and ours not in hosts) or not _is_recent(timeline, paths):
        return ""
    if ours in hosts:
        return f"the logs name it ({ours})"
    written = next((path for path in paths if _LOCAL_PATHS.match(os.path.realpath(path))), None)
    if written is not None:
        return f"{written} is where its own jobs write"
    pid = _find_writer(paths)
    return f"its process {pid} writes one of the logs" if pid is not None else ""


def look_at_machine(why: str) -> tuple[tuple[NodeFaults, ...], str]:
    """This machine's faults now, and a note of why they were asked for."""
    from nodedoctor.cli import endings
    from nodedoctor.engine.session import Request, Session, UsageError
    from nodedoctor.report.json import document

    async def run() -> NodeFaults:
        report = await Session(Request(words=CHECKS, deadline=DEADLINE)).diagnosis().run()
        return faults_of_report("this machine", document(report))

    try:
        node = endings.run(run())
    except UsageError as problem:
        return (), f"this machine could not be checked: {problem}"
    faults = (
        f"{count_with_noun(len(node.events), 'fault')} that can end a job"
        if node.events
        else "nothing that can end a job"
    )
    return (node,), f"this machine was also checked, because {why}: {faults} (--no-node leaves it out)"


def _is_recent(timeline: Timeline, paths: Sequence[str]) -> bool:
    """True when the last timed line, or else the newest file, is recent."""
    times = [event.time for event in timeline.events if event.time is not None]
    if times:
        of_year = year_seconds(*time.gmtime()[1:6], None)
        return (of_year - max(times) + _ZONES) % _YEAR <= RECENT + 2 * _ZONES
    statuses = [status for path in paths if (status := _safe_stat(path)) is not None]
    return any(time.time() - status.st_mtime <= RECENT for status in statuses)


def _find_writer(paths: Sequence[str]) -> int | None:
    """Another process of this machine whose output goes to one of the files."""
    files = {(status.st_dev, status.st_ino) for path in paths if (status := _safe_stat(path)) is not None}
    for link in glob.iglob("/proc/[0-9]*/fd/[12]") if files else ():
        status = _safe_stat(link)
        pid = int(link.split("/")[2])
        if status is not None and (status.st_dev, status.st_ino) in files and pid != os.getpid():
            return pid
    return None


def _safe_stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
