"""Who is to blame for pairs of GPUs that are slow or wrong: the system, a GPU, or a link."""

from __future__ import annotations

from collections.abc import Collection

from nodedoctor.record import record

Pair = tuple[int, int]
NEARLY_ALL = 0.9
"""Of the pairs; ours. One bad GPU of eight spoils a quarter of them and two spoil 46 %, while a pair or two
that escape by chance must not hide a trouble of the whole system."""


@record
class Culprits:
    """`everything` when nearly all pairs are bad; GPUs whose row or column is; the pairs that remain."""

    everything: bool = False
    gpus: tuple[int, ...] = ()
    pairs: tuple[Pair, ...] = ()


def culprits(bad: Collection[Pair], measured: Collection[Pair]) -> Culprits:
    """One low row or column is the GPU, one cell is the link, everything low is the system.

    Pairs come back with the smaller number first. Two GPUs have only a link between them.
    """
    members = sorted({gpu for pair in measured for gpu in pair})
    rest = set(bad)
    if len(members) > 2 and len(rest) >= NEARLY_ALL * len(measured):
        return Culprits(everything=True)
    guilty: list[int] = []
    while len(members) > 2:
        worst = max(members, key=lambda gpu: sum(gpu in pair for pair in rest))
        open_pairs = [pair for pair in measured if not any(gpu in pair for gpu in guilty)]
        rows = [{pair for pair in open_pairs if pair[side] == worst} for side in (0, 1)]
        if not any(len(row) > 1 and row <= rest for row in rows):
            break
        guilty.append(worst)
        rest = {pair for pair in rest if worst not in pair}
    pairs = sorted({(min(pair), max(pair)) for pair in rest})
    return Culprits(gpus=tuple(sorted(guilty)), pairs=tuple(pairs))
