"""What NCCL Inspector measured of a job's collectives, and which rank is behind the others.

Format: NVIDIA/nccl 2.27 to 2.29, ext-profiler/inspector/inspector.cc (one JSON object a line).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Verdict, make_verdict
from nodedoctor.json_shapes import Json, loaded, mapping, number, part, text, whole_number
from nodedoctor.record import record
from nodedoctor.wording import comma_list, count_with_noun

PROBE = "nccl-inspector"
nccl_inspector = pasted(PROBE, "Lines that NCCL Inspector wrote (NCCL_INSPECTOR_ENABLE).")
_verdict = partial(make_verdict, PROBE, "NCCL Inspector")

LINES = 200_000
"""Lines that are read; ours: a day of a rank."""
_FEW = 4


@record
class _Measured:
    """One collective of one rank."""

    communicator: str
    rank: int
    operation: str
    sequence: int
    size: int
    busbw_gbytes_s: float
    line: str


def verdicts(output: str) -> Iterator[Verdict]:
    """The bus bandwidth of each operation at its largest size, and ranks whose last number is behind."""
    measured = [item for line in output.splitlines()[:LINES] if (item := _read_collective(line))]
    operations = sorted({item.operation for item in measured})
    for operation in operations[:_FEW]:
        of_kind = [item for item in measured if item.operation == operation]
        size = max(item.size for item in of_kind)
        largest = [item for item in of_kind if item.size == size]
        speed = median(item.busbw_gbytes_s for item in largest)
        ranks = len({item.rank for item in largest})
        words = (
            f"{operation} at {size / 2**20:g} MiB: busbw {speed:.1f} GB/s, median of "
            f"{len(largest)} on {count_with_noun(ranks, 'rank')}"
        )
        yield _verdict("note", words, f"operation:{operation}", largest[0].line)
    yield from _lagging_ranks(measured)


def _lagging_ranks(measured: list[_Measured]) -> Iterator[Verdict]:
    last: dict[str, dict[int, int]] = {}
    for item in measured:
        ranks = last.setdefault(item.communicator, {})
        ranks[item.rank] = max(item.sequence, ranks.get(item.rank, 0))
    for ranks in last.values():
        newest = max(ranks.values())
        late = sorted(rank for rank, sequence in ranks.items() if sequence < newest - 1)
        if late and len(late) * 2 < len(ranks):
            words = (
                f"ranks {comma_list(late, 8)} at most at number {max(ranks[rank] for rank in late)}, "
                f"others at {newest}"
            )
            yield _verdict("warn", words, "ranks:behind")


def _read_collective(line: str) -> _Measured | None:
    if '"coll_perf"' not in line or len(line) > 1 << 16:
        return None
    try:
        document = mapping(loaded(line))
    except ValueError:
        return None
    header, collective = part(document, "header"), part(document, "coll_perf")
    return _read_measurement(header, collective, line)


def _read_measurement(header: Json, collective: Json, line: str) -> _Measured | None:
    rank, sequence = whole_number(header, "rank"), whole_number(collective, "coll_sn")
    size, speed = whole_number(collective, "coll_msg_size_bytes"), number(collective.get("coll_busbw_gbs"))
    operation = text(collective, "coll")[:40]
    if rank is None or sequence is None or size is None or speed is None or not operation:
        return None
    return _Measured(text(header, "id"), rank, operation, sequence, size, speed, line.strip())
