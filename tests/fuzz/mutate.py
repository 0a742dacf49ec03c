"""Inputs made of others: a few edits of a seed, drawn from any source of choices."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

LARGEST = 1 << 16
"""Bytes of an input: parsers are held to a time, so the input has an end."""
ODD = (
    b"", b"0", b"-1", b"9" * 25, b"1e999", b"NaN", b"null", b"[]", b"{}", b'"', b"\\", b"\x00", b"\xff\xfe",
    b"\x1b[31m", b"\n", b"\r\n", b"\t", b" " * 300, b"[" * 3000, b"(" * 300, b"\xc2\xb2", b"\xed\xa0\x80",
    b"%s", b"$(x)", b"<x>", b"../", b"\x1f", b"\x80\x04", b"PK\x03\x04", b"\xe2\x80\xae", b"=", b":", b",",
)  # fmt: skip
"""What is put in: what readers take for numbers, ends, marks and other encodings."""
HOW = ("put", "over", "drop", "twice", "flip", "cut", "splice")


class Edit(NamedTuple):
    """One change: how, where, how long, and which of what is put in."""

    how: str
    at: int
    length: int
    which: int


def apply(seed: bytes, edits: Sequence[Edit], others: Sequence[bytes] = ()) -> bytes:
    """The seed after its edits, at most LARGEST bytes."""
    data = bytearray(seed[:LARGEST])
    for edit in edits:
        at = edit.at % (len(data) + 1)
        end = min(at + edit.length, len(data))
        odd = ODD[edit.which % len(ODD)]
        if edit.how == "put":
            data[at:at] = odd
        elif edit.how == "over":
            data[at:end] = odd
        elif edit.how == "drop":
            del data[at:end]
        elif edit.how == "twice":
            data[at:at] = data[at:end]
        elif edit.how == "flip" and at < len(data):
            data[at] ^= 1 << edit.which % 8
        elif edit.how == "cut":
            del data[at:]
        elif edit.how == "splice" and others:
            other = others[edit.which % len(others)]
            data[at:end] = other[at : at + edit.length]
    return bytes(data[:LARGEST])


def drawn(seeds: Sequence[bytes], source: random.Random) -> bytes:
    """A seed with one to five edits."""
    edits = [
        Edit(
            source.choice(HOW), source.randrange(LARGEST), 1 << source.randrange(9), source.randrange(1 << 16)
        )
        for _ in range(source.randint(1, 5))
    ]
    return apply(source.choice(seeds), edits, seeds)
