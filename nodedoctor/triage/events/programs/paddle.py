"""Paddle's launchers: which of their trainers ended, as `paddle.distributed.launch` tells at its end.

The texts are those of python/paddle/distributed/fleet/launch_utils.py and, since 2.3, of its
launch/job/container.py.
"""

from __future__ import annotations

from nodedoctor.triage.events.log_pattern import LogPattern, bounded_integer, log_pattern, ranks_in
from nodedoctor.triage.events.system.exits import ProcessExit

SIGNS: tuple[LogPattern, ...] = (
    log_pattern(
        r"trainer process(?:es)? with rank=\[(?P<tasks>\d[\d, ]*)\] (?:was|were) aborted",
        lambda found: ProcessExit(1, first=True, told=False, tasks=ranks_in(found["tasks"])),
    ),
    log_pattern(  # it counts the containers of its own pod
        r"\bContainer rank (?P<local>\d+) status failed cmd \[.*\] code (?P<code>-?[1-9]\d{0,2})\b",
        lambda found: ProcessExit(bounded_integer(found["code"])),
    ),
)
