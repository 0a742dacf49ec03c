"""Packets that an Ethernet adapter lost or found damaged, and which priorities are lossless.

Formats: linux, drivers/net/ethernet/mellanox/mlx5/core/en_stats.c (`ethtool -S`) and
Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst; MLNX_OFED, mlnx_qos.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.network.net import LOSS, is_damaging, loss_share
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


_PHYSICAL = regex(r"(?m)^[ \t]{0,40}(?P<name>[a-z][\w]{3,60}): (?P<count>\d{1,20})[ \t]{0,9}$")
_INTERFACE = "NIC statistics:"
_DAMAGED: Mapping[str, str] = {
    "rx_crc_errors_phy": "packets dropped for a wrong checksum (FCS)",
    "rx_symbol_err_phy": "packets dropped for errors of the physical coding",
}
_DISCARDED: Mapping[str, str] = {
    "rx_discards_phy": "packets dropped as the port had no buffers",
}
_DOWN = "link_down_events_phy"
FLAPS = 20
"""Times a link went down from which it flaps, as in net.link; ours."""
_MEANINGS: Mapping[str, str] = {
    **_DAMAGED,
    **_DISCARDED,
    "rx_pcs_symbol_err_phy": "symbol errors that FEC did not correct",
    "rx_in_range_len_errors_phy": "packets of a wrong length",
    "rx_out_of_range_len_phy": "packets of a wrong length",
    "rx_undersize_pkts_phy": "packets too short",
    "rx_oversize_pkts_phy": "packets too long",
    "rx_jabbers_phy": "packets too long, with a wrong checksum",
    "rx_fragments_phy": "packets too short, with a wrong checksum",
    "tx_errors_phy": "packets not sent for an error",
    "tx_discards_phy": "packets not sent, dropped",
    "rx_out_of_buffer": "packets without a buffer of the host",
}
"""Counters of errors of mlx5, and what they count (counters.rst); all count from the driver's loading on."""


def losses(output: str) -> Iterator[Verdict]:
    """What each interface lost or found damaged; a counter that is not 0 may be old, as one look shows."""
    blocks = [block for block in output.split(_INTERFACE) if block.strip()] or [output]
    for number, block in enumerate(blocks, 1):
        where = f"interface {number}, " if len(blocks) > 1 else ""
        yield from _physical(block, where)
        yield from _by_priority(block, where)


def _physical(block: str, where: str) -> Iterator[Verdict]:
    """What the port counted of errors, whatever the priority."""
    repeat = partial(make_verdict, COUNTERS, "ethtool -S")
    rows = {row["name"]: row for row in _PHYSICAL.finditer(block)}
    counts = {name: int(row["count"]) for name, row in rows.items()}
    received = counts.get("rx_packets_phy")
    sick: set[str] = set()
    for name, meaning in _DAMAGED.items():
        if is_damaging(counts.get(name), received):
            sick.add(name)
            words = f"{where}{counts[name]} of {received} packets received: {meaning}"
            yield repeat("warn", words, f"port:{_number_of(where)}{name}", rows[name][0])
    for name, meaning in _DISCARDED.items():
        if (share := loss_share(counts.get(name), received)) is not None and share >= LOSS:
            sick.add(name)
            words = f"{where}{counts[name]} {meaning}, {share:.2%}"
            yield repeat("warn", words, f"port:{_number_of(where)}{name}", rows[name][0])
    if counts.get(_DOWN, 0) >= FLAPS:
        words = f"{where}the link went down {count_with_noun(counts[_DOWN], 'time')}"
        yield repeat("warn", words, f"port:{_number_of(where)}{_DOWN}", rows[_DOWN][0])
    rest = [name for name in _MEANINGS if counts.get(name) and name not in sick]
    if rest:
        shown = ", ".join(f"{counts[name]} {_MEANINGS[name]} ({name})" for name in rest[:_SHOWN_AT_MOST])
        words = f"{where}{shown}: whether they still grow, only a second look shows"
        yield repeat("unknown", words, f"port:{_number_of(where)}counters", rows[rest[0]][0])


def _number_of(where: str) -> str:
    """The part of a subject that tells interfaces apart."""
    return f"{where.partition(',')[0].rpartition(' ')[2]}/" if where else ""


_SHOWN_AT_MOST = 3
"""Counters that are named in one statement; ours."""


def _by_priority(block: str, where: str) -> Iterator[Verdict]:
    """A priority that lost more packets than RoCE bears; without a pause frame it was not lossless."""
    repeat = partial(make_verdict, COUNTERS, "ethtool -S")
    by_priority = group_pairs((row["priority"], row) for row in _COUNTER.finditer(block))
    readable, lossy = 0, False
    for priority, own in by_priority.items():
        counts = {f"{row['way']}_{row['name']}": int(row["count"]) for row in own}
        discards = max(
            (name for name in _DISCARDS if name in counts), key=lambda name: counts[name], default=""
        )
        loss = loss_share(counts.get(discards), counts.get("rx_packets"))
        readable += loss is not None or (bool(discards) and not counts[discards])
        if loss is not None and loss >= LOSS:
            lossy = True
            pauses = {counts[name] for name in ("rx_pause", "tx_pause") if name in counts}
            unpaused = (
                "; no pause frame was sent or seen: PFC seems to be off for it" if pauses == {0} else ""
            )
            quote = next(row[0] for row in own if f"{row['way']}_{row['name']}" == discards)
            words = f"{where}priority {priority} lost {counts[discards]} packets, {loss:.2%}{unpaused}"
            yield repeat("warn", words, f"priority:{_number_of(where)}{priority}", quote)
    if not readable:
        yield repeat("unknown", f"{where}packets that were lost are not counted by priority")
    elif not lossy:
        yield repeat(
            "note", f"{where}{count_with_noun(readable, 'priority', 'priorities')} without heavy loss"
        )


_DISCARDS = ("rx_discards", "rx_buf_discard")
"""What a priority lost: by the port's buffers, by those of the host (counters.rst)."""


def lossless(output: str) -> Iterator[Verdict]:
    """The priorities with PFC, no fault by itself."""
    for row in _ENABLED.finditer(output):
        on = [str(number) for number, flag in enumerate(row["flags"].split()) if flag == "1"]
        words = f"PFC is on for priority {', '.join(on)}" if on else "PFC is off on all priorities"
        yield make_verdict(SETTINGS, "mlnx_qos", "note", words, "pfc", row[0])
