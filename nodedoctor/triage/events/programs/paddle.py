"""Paddle's launchers: which of their trainers ended, as `paddle.distributed.launch` tells at its end.

The texts are those of python/paddle/distributed/fleet/launch_utils.py and, since 2.3, of its
launch/job/container.py.
"""

from __future__ import annotations

from nodedoctor.triage.events.sign import Sign, numeral, ranks_in, sign
from nodedoctor.triage.events.system.exits import ProcessExit

SIGNS: tuple[Sign, ...] = (
    sign(
        r"trainer process(?:es)? with rank=\[(?P<tasks>\d[\d, ]*)\] (?:was|were) aborted",
        lambda found: ProcessExit(1, first=True, told=False, tasks=ranks_in(found["tasks"])),
    ),
    sign(  # it counts the containers of its own pod
        r"\bContainer rank (?P<local>\d+) status failed cmd \[.*\] code (?P<code>-?[1-9]\d{0,2})\b",
        lambda found: ProcessExit(numeral(found["code"])),
    ),
)
