"""Files that no job printed, beside its logs: scripts, changes, pages, helpers and letters that quote errors.

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
    r"\.(?:sh|bash|sbatch|slurm|py|ya?ml|toml|cfg|ini|diff|patch)$"
    r"|(?:^|/)(?:requirements|constraints)[\w.-]{0,40}\.txt$"
    r"|(?:^|/|__)(?:git|code)[-_.]?(?:info|diff|patch|status|log|state|commit)[\w.-]{0,40}\.(?:log|txt)$",
    re.IGNORECASE,
)
"""Names of programs, of what they are given, and of what changed in them (NeMo, W&B, scripts)."""
_RULES = re.compile(
    r"(?:^|/)[\w.-]{0,40}(?:run[-_ ]?book|play[-_ ]?book|how[-_]?to|trouble[-_]?shooting"
    r"|known[-_]?(?:issues|errors)|hand[-_]?book|wiki)[\w.-]{0,40}$",
    re.IGNORECASE,
)
"""Names of pages about what may happen: they quote errors and hold no log."""
_AGENT = re.compile(
    r"(?:^|/|__)(?:dashboard\w*|runtime_env_agent|agent-\d{6,12}|log_monitor)\.(?:log|out|err)$"
)
"""Logs of Ray's helpers, which show and collect what others do: no job fails of them (_private/node.py)."""
_LETTER = re.compile(
    r"(?:^|/)(?:readme|notes?|todo|faq|changelog|mail|message|ticket|thread|slack)"
    r"(?:[-_](?!dump)[\w-]{0,40})?(?:\.txt)?$|\.(?:md|rst|eml)$",
    re.IGNORECASE,
)
"""Names of what people write, which may hold a log all the same."""

_BESIDE = (_SCRIPT, _RULES, _AGENT)


def scripts_and_pages(events: Sequence[Event[Any]], *, with_dumps: bool = False) -> frozenset[str]:
    """Scripts, settings and written pages, where there are logs, or dumps."""
    pages = {event.place.source for event in events if event.what is Mark.NOT_A_LOG}
    pages |= {source for source in _sources(events) if any(names.search(source) for names in _BESIDE)}
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
