"""Files that no job printed, beside its logs: scripts, settings, pages and letters that quote errors.

What a folder's logs say does not depend on them: a folder with a runbook is judged as without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event
from nodedoctor.triage.timeline.jobs import OF_A_JOB
from nodedoctor.triage.timeline.model import is_trouble

_SCRIPT = re.compile(
    r"\.(?:sh|bash|sbatch|slurm|py|ya?ml|toml|cfg|ini)$|(?:^|/)(?:requirements|constraints)[\w.-]{0,40}\.txt$",
    re.IGNORECASE,
)
"""Names of programs and of what they are given."""
_LETTER = re.compile(
    r"(?:^|/)(?:readme|notes?|todo|faq|changelog|mail|message|ticket|thread|slack)"
    r"(?:[-_](?!dump)[\w-]{0,40})?(?:\.txt)?$|\.(?:md|rst|eml)$",
    re.IGNORECASE,
)
"""Names of what people write, which may hold a log all the same."""


def scripts_and_pages(events: Sequence[Event[Any]], *, with_dumps: bool = False) -> frozenset[str]:
    """Scripts, settings and written pages, where there are logs, or dumps."""
    pages = {event.place.source for event in events if event.what is Mark.NOT_A_LOG}
    pages |= {source for source in _sources(events) if _SCRIPT.search(source)}
    has_log = with_dumps or any(
        e.place.source not in pages and (e.kind in OF_A_JOB or is_trouble(e)) for e in events
    )
    return frozenset(pages) if has_log else frozenset()


def letters_beside_logs(events: Sequence[Event[Any]]) -> frozenset[str]:
    """What people wrote in a folder whose logs tell by themselves how their job ended."""
    letters = {source for source in _sources(events) if _LETTER.search(source)}
    logs = [event for event in events if event.place.source not in letters]
    tells = any(event.what is Mark.JOB_FINISHED or (is_trouble(event) and event.asserted) for event in logs)
    return frozenset(letters) if tells else frozenset()


def _sources(events: Iterable[Event[Any]]) -> set[str]:
    return {event.place.source for event in events}
