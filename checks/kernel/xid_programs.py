"""Whose errors are they: a program's, of a job on several GPUs, or does the GPU fail every program?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.kernel.events import LoggedXid, line_of
from nodedoctor.facts.kernel.lines import When
from nodedoctor.knowledge import xids as table
from nodedoctor.model import Finding
from nodedoctor.wording import count_with_noun, fitting

_REMAPPED = 63
"""A row was remapped: NVIDIA's catalogue says to ignore it; what is pending memory.remap fails on."""
_JOB_SECONDS = 300.0
"""Within so much the ranks of one job meet the same bug; ours."""
_RUNS = 5
"""Failed runs of one program on one GPU from which the GPU is suspect; ours: restarts are mostly three."""


def of_wide_jobs(programs: frozenset[LoggedXid]) -> frozenset[LoggedXid]:
    """Errors of programs that hit several GPUs within minutes under one name: the job's bug, not a GPU's."""
    return frozenset(
        xid
        for xid in programs
        if any(
            peer.device != xid.device and peer.name == xid.name and _same_job(xid.when, peer.when)
            for peer in programs
        )
    )


def excusable(
    events: list[LoggedXid], gpu: Gpu | None, programs: frozenset[LoggedXid], wide: frozenset[LoggedXid]
) -> set[LoggedXid]:
    """The errors of one GPU that say nothing of it; `programs` and `wide` are those of the whole log.

    A program's error alone is the program's, until different ones fail on the GPU, or it counts an error.
    """
    own = [event for event in events if event in programs and event not in wide]
    if (gpu is not None and not clean(gpu)) or _is_suspect(own):
        return set()
    remapped = gpu is not None and gpu.remap_pending is False
    harmless = {event for event in events if event in wide or (remapped and event.code == _REMAPPED)}
    alone = programs.issuperset(event for event in events if event not in harmless)
    return set(events) if alone and any(map(_matters_alone, own)) else harmless


def _is_suspect(events: Iterable[LoggedXid]) -> bool:
    """Whether different programs fail on this GPU, or one again and again: NVIDIA's rule for Xid 13 and 31.

    What comes within minutes, or of one process, is one run; a run without a name counts as its process.
    """
    runs: list[LoggedXid] = []
    for event in filter(_matters_alone, events):
        if not any(_same_run(event, run) for run in runs):
            runs.append(event)
    return len({run.name or run.pid for run in runs}) > 1 or len(runs) >= _RUNS


def _matters_alone(event: LoggedXid) -> bool:
    """Whether it is more than the end of a channel (43, 45)."""
    row = table.xid(event.code)
    return row is not None and row.level != "info"


def _same_run(event: LoggedXid, run: LoggedXid) -> bool:
    if event.pid is not None and event.pid == run.pid:
        return True
    timed = event.when.seconds is not None and run.when.seconds is not None
    return _same_job(event.when, run.when) if timed else None in (event.pid, run.pid)


def _same_job(first: When, second: When) -> bool:
    return (
        first.seconds is not None
        and second.seconds is not None
        and abs(first.seconds - second.seconds) <= _JOB_SECONDS
    )


def excuse(events: list[LoggedXid]) -> Iterator[Finding]:
    """One line for all errors of programs, and one for rows that were remapped."""
    if programs := [event for event in events if event.code != _REMAPPED]:
        names = ", ".join(sorted({event.name for event in programs if event.name})[:3])
        where = f"{_codes(programs)}: program errors"
        summary = fitting(f"{where}{f' ({names})' if names else ''}, not hardware", f"{where}, not hardware")
        yield Finding.info(summary, subject="xid:programs", evidence=[line_of(e) for e in programs[:2]])
    if remapped := [event for event in events if event.code == _REMAPPED]:
        summary = f"{_codes(remapped)}: bad memory rows replaced by spare ones, no remap is pending"
        yield Finding.info(summary, subject="xid:remapped", evidence=[line_of(e) for e in remapped[:2]])


def _codes(events: list[LoggedXid]) -> str:
    codes = ", ".join(
        f"Xid {code} ({count} times)" if count > 1 else f"Xid {code}"
        for code, count in sorted(Counter(e.code for e in events).items())
    )
    return f"{codes} on {count_with_noun(len({event.device for event in events}), 'GPU')}"


def clean(gpu: Gpu) -> bool:
    """Whether nothing the GPU counts or asks for now speaks of an error."""
    asks = gpu.recovery_action not in (None, "none") or gpu.reset_required
    memory = gpu.remap_pending or gpu.remap_failure or gpu.ecc_volatile_uncorrectable
    links = any(link.active is False for link in gpu.nvlinks or ())
    return not (asks or memory or links or gpu.retired_pages_pending)
