"""Packets that an Ethernet adapter lost by priority, and which priorities are lossless.

Formats: linux, drivers/net/ethernet/mellanox/mlx5/core/en_stats.c (`ethtool -S`); MLNX_OFED, mlnx_qos.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.network.net import LOSS, loss_share
from nodedoctor.facts.verdicts.verdict import Verdict, make_verdict
from nodedoctor.grouping import group_pairs
from nodedoctor.patterns import regex
from nodedoctor.wording import count_with_noun

COUNTERS, SETTINGS = "priority-counters", "mlnx-qos"
priority_counters = pasted(COUNTERS, "Counters of ethtool -S by priority.")
mlnx_qos = pasted(SETTINGS, "The output of mlnx_qos.")

_COUNTER = regex(
    r"(?m)^[ \t]{0,40}(?P<way>[rt]x)_prio(?P<priority>[0-7])_(?P<name>\w{3,40}): (?P<count>\d{1,20})\b"
)
_ENABLED = regex(r"(?m)^[ \t]{1,20}enabled[ \t]{1,20}(?P<flags>[01](?:[ \t]{1,9}[01]){7})[ \t]{0,9}$")


def losses(output: str) -> Iterator[Verdict]:
    """A priority that lost more packets than RoCE bears; without a pause frame it was not lossless."""
    repeat = partial(make_verdict, COUNTERS, "ethtool -S")
    by_priority = group_pairs((row["priority"], row) for row in _COUNTER.finditer(output))
    lossy = False
    for priority, own in by_priority.items():
        counts = {f"{row['way']}_{row['name']}": int(row["count"]) for row in own}
        discards = counts.get("rx_discards")
        loss = loss_share(discards, counts.get("rx_packets"))
        if loss is not None and loss >= LOSS:
            lossy = True
            pauses = {counts[name] for name in ("rx_pause", "tx_pause") if name in counts}
            unpaused = (
                "; no pause frame was sent or seen: PFC seems to be off for it" if pauses == {0} else ""
            )
            quote = next(row[0] for row in own if row["way"] == "rx" and row["name"] == "discards")
            words = f"priority {priority} lost {discards} packets, {loss:.2%}{unpaused}"
            yield repeat("warn", words, f"priority:{priority}", quote)
    if not by_priority:
        yield repeat("note", "packets are not counted by priority")
    elif not lossy:
        yield repeat(
            "note", f"{count_with_noun(len(by_priority), 'priority', 'priorities')} without heavy loss"
        )


def lossless(output: str) -> Iterator[Verdict]:
    """The priorities with PFC, no fault by itself."""
    for row in _ENABLED.finditer(output):
        on = [str(number) for number, flag in enumerate(row["flags"].split()) if flag == "1"]
        words = f"PFC is on for priority {', '.join(on)}" if on else "PFC is off on all priorities"
        yield make_verdict(SETTINGS, "mlnx_qos", "note", words, "pfc", row[0])
