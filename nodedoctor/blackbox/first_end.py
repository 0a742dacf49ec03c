"""The rank that left a job by itself, which no log tells: it ended before all others, and not badly."""

from __future__ import annotations

from collections.abc import Sequence

from nodedoctor.blackbox.samples.sample import ProcessEnd, RankSample

BEFORE = 0.02
"""Seconds by which its end comes before the next one, at least."""


def line(ends: Sequence[ProcessEnd], ranks: Sequence[RankSample], *, failed: bool) -> str:
    """What is kept of it, which `patterns/exits.py` reads; '' where no rank did.

    Ranks of a job that ends well all end with 0, one after another: some other one has to fail, or, of a
    command, the whole (`failed`). A status is not known where the parent collects it at once: then the line
    only says who was the first.
    """
    by_key = {rank.key: rank for rank in ranks}
    in_order = sorted((end for end in ends if end.key in by_key), key=lambda end: end.moment)
    if len(ranks) < 2 or not in_order or in_order[0].status:
        return ""
    first, others = in_order[0], in_order[1:]
    if others and others[0].moment - first.moment < BEFORE:
        return ""
    successes = [end for end in others if end.status == 0]
    certain = failed or any(end.status for end in others)
    if len(successes) == len(ranks) - 1 or not (certain or any(end.status is None for end in others)):
        return ""
    rank = by_key[first.key].rank
    who = f"rank {rank}, " if rank is not None else ""
    if not certain:
        return f"nodedoctor: {who}pid {first.pid} was the first to end"
    code = "" if first.status is None else " with exit code 0"
    return f"nodedoctor: {who}pid {first.pid} ended{code} before all others"
