"""Looks at a hanging job that black boxes saved, from one folder or many."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from nodedoctor import input_files
from nodedoctor.record import record
from nodedoctor.triage.live import saved
from nodedoctor.triage.live.running_job import LiveJob
from nodedoctor.wording import count_with_noun, singular_or_plural

MOST_APART = 3600.0
"""Seconds between two looks at one hang, at most: nodes notice it at different times, by their own steps."""


@record
class CapturedJob:
    """The newest hang as one job, with notes; `older` are folders of earlier hangs."""

    live: LiveJob
    notes: tuple[str, ...] = ()
    older: tuple[str, ...] = ()

    def is_older(self, path: str) -> bool:
        """True for a file that belongs to an earlier hang."""
        return any(path.startswith(folder + os.sep) for folder in self.older)


def read_captures(paths: Iterable[str]) -> CapturedJob | None:
    """The looks in these documents as one job; None when there is none."""
    looks: list[tuple[str, LiveJob]] = []
    notes: list[str] = []
    for path in paths:
        try:
            look = saved.read_look(input_files.read(path))
        except OSError as problem:
            notes.append(f"{path}: {problem.strerror}")
            continue
        if look is not None:
            looks.append((os.path.dirname(path), look))
    if not looks:
        return None
    newest, older = _newest_looks(looks)
    if older:
        count = len(older)
        notes.append(
            f"{count_with_noun(count, 'folder')} {singular_or_plural(count, 'is', 'are')} of an "
            "earlier hang, and "
            f"{singular_or_plural(count, 'was', 'were')} left out: {', '.join(older[:3])}"
        )
    return CapturedJob(saved.merge_looks(newest), tuple(notes), tuple(older))


def _newest_looks(looks: Sequence[tuple[str, LiveJob]]) -> tuple[list[LiveJob], list[str]]:
    """The last look of each node at each job, and the folders of older ones."""
    latest = max(look.time for _, look in looks)
    jobs: set[tuple[str, str]] = set()
    newest: list[LiveJob] = []
    older: list[str] = []
    for folder, look in sorted(looks, key=lambda pair: pair[1].time, reverse=True):
        fresh = tuple(process for process in look.processes if (look.host, process.job) not in jobs)
        if latest - look.time > MOST_APART or (look.processes and not fresh):
            older.append(folder)
            continue
        jobs |= {(look.host, process.job) for process in fresh}
        newest.append(replace(look, processes=fresh))
    return newest, older
