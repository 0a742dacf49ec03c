"""MindSpore's launcher, msrun: which of its processes ended, and whom its scheduler no longer hears.

The texts are those of mindspore/python/mindspore/parallel/cluster/process_entity/_api.py.
"""

from __future__ import annotations

from nodedoctor.triage.events.log_pattern import LogPattern, log_pattern, ranks_in
from nodedoctor.triage.events.system.exits import ProcessExit

SIGNS: tuple[LogPattern, ...] = (
    log_pattern(
        r"\bWorker process (?P<pid>\d+) exit with exception",
        lambda _: ProcessExit(1, told=False),
    ),
    log_pattern(
        r"\bTime out nodes are \[(?P<tasks>'\d+'(?:, ?'\d+')*)\]",
        lambda found: ProcessExit(1, first=True, told=False, tasks=ranks_in(found["tasks"])),
    ),
)
