"""MindSpore's launcher, msrun: which of its processes ended, and whom its scheduler no longer hears.

The texts are those of mindspore/python/mindspore/parallel/cluster/process_entity/_api.py.
"""

from __future__ import annotations

from nodedoctor.triage.events.sign import Sign, ranks_in, sign
from nodedoctor.triage.events.system.exits import ProcessExit

SIGNS: tuple[Sign, ...] = (
    sign(
        r"\bWorker process (?P<pid>\d+) exit with exception",
        lambda _: ProcessExit(1, told=False),
    ),
    sign(
        r"\bTime out nodes are \[(?P<tasks>'\d+'(?:, ?'\d+')*)\]",
        lambda found: ProcessExit(1, first=True, told=False, tasks=ranks_in(found["tasks"])),
    ),
)
