"""Whose errors are they: a program's, of a job on several GPUs, or does the GPU fail every program?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.kernel.events import LoggedXid, line_of
from nodedoctor.facts.kernel.lines import When
from nodedoctor.facts.kernel.log import KernelLog
from nodedoctor.knowledge import xids as table
from nodedoctor.model import Finding, Moment
from nodedoctor.wording import counted

_REMAPPED = 63
"""A row was remapped: NVIDIA's catalogue says to ignore it; what is pending memory.remap fails on."""
_OLD_SECONDS = 24 * 3600.0
"""Age from which a program's error is history where the GPU counts none; ours."""
_JOB_SECONDS = 300.0
"""Within so much the ranks of one job meet the same bug; ours."""
_RUNS = 5
"""Failed runs of one program on one GPU from which the GPU is suspect; ours: restarts are mostly three."""


def of_wide_jobs(programs: frozenset[LoggedXid]) -> frozenset[LoggedXid]:
    """Errors of programs that hit several GPUs within minutes under one name: the job's bug, not a GPU's."""
    return frozenset(
        one
        for one in programs
        if any(
            other.device != one.device and other.name == one.name and _near(one.when, other.when)
            for other in programs
        )
    )


def matters(events: Iterable[LoggedXid]) -> bool:
    """Whether one of them is more than the end of a channel (43, 45)."""
    return any(row.level != "info" for event in events if (row := table.xid(event.code)))


def suspect(events: Iterable[LoggedXid]) -> bool:
    """Whether different programs fail on this GPU, or one again and again: NVIDIA's rule for Xid 13 and 31.

    What comes within minutes, or of one process, is one run; a run without a name counts as its process.
    """
    runs: list[LoggedXid] = []
    for event in events:
        same = ((event.pid and event.pid == run.pid) or _near(event.when, run.when) for run in runs)
        if matters([event]) and not any(same):
            runs.append(event)
    return len({run.name or run.pid for run in runs}) > 1 or len(runs) >= _RUNS


def bug_of_a_job(
    event: LoggedXid,
    gpu: Gpu | None,
    programs: frozenset[LoggedXid],
    wide: frozenset[LoggedXid],
    log: KernelLog,
    moment: Moment,
) -> bool:
    """Whether an error says nothing of the GPU: it was met on others too, or long ago, and left nothing."""
    if gpu is not None and not clean(gpu):
        return False
    if event in wide:
        return True
    if event.code == _REMAPPED:
        return gpu is not None and gpu.remap_pending is False
    return event in programs and gpu is not None and _age_seconds(event, log, moment) >= _OLD_SECONDS


def _near(one: When, other: When) -> bool:
    return (
        one.seconds is not None
        and other.seconds is not None
        and abs(one.seconds - other.seconds) <= _JOB_SECONDS
    )


def _age_seconds(event: LoggedXid, log: KernelLog, moment: Moment) -> float:
    """How old an error is at least: by the clock, else by the last line of the log."""
    when = event.when
    if when.seconds is None:
        return 0.0
    return (moment.started.timestamp() if when.absolute else log.ends.seconds or 0.0) - when.seconds


def excuse(events: list[LoggedXid]) -> Finding:
    """One line for all of them."""
    codes = ", ".join(
        f"Xid {code} ({count} times)" if count > 1 else f"Xid {code}"
        for code, count in sorted(Counter(e.code for e in events).items())
    )
    names = ", ".join(sorted({event.name for event in events if event.name})[:3])
    devices = len({event.device for event in events})
    summary = f"{codes} on {counted(devices, 'GPU')}: program errors{f' ({names})' if names else ''}"
    lines = [line_of(e) for e in events[:2]]
    return Finding.info(f"{summary}, not hardware", subject="xid:programs", evidence=lines)


def clean(gpu: Gpu) -> bool:
    """Whether nothing the GPU counts or asks for now speaks of an error."""
    asks = gpu.recovery_action not in (None, "none") or gpu.reset_required
    memory = gpu.remap_pending or gpu.remap_failure or gpu.ecc_volatile_uncorrectable
    links = any(link.active is False for link in gpu.nvlinks or ())
    return not (asks or memory or links or gpu.retired_pages_pending)
