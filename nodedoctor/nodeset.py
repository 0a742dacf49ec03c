"""Node sets as Slurm and ClusterShell write them: `gpu-[001-128,130],r[1-2]n[01-04]`, read and written.


Names that differ in a number fold into one word, which is what makes a list of a thousand nodes readable and
lets it be pasted into `srun -w`, `scontrol` or `clush`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, groupby, product
from math import prod

from nodedoctor.errors import NodeDoctorError
from nodedoctor.grouping import group_pairs

MOST = 65_536
"""Names one set may expand to, which is as many as Slurm takes in one (MAX_SLURM_NODES, slurm.h)."""
LONGEST = 255
"""Characters of a host's name (RFC 1035); what is longer is none."""

_DIGITS = 18  # of one number: what is longer is no count of nodes
_NUMBER = re.compile(rf"([0-9]{{1,{_DIGITS}}})")
_RANGE = re.compile(rf"([0-9]{{1,{_DIGITS}}})(?:-([0-9]{{1,{_DIGITS}}}))?")
_STRANGE = re.compile(r"[^A-Za-z0-9_.:%@+-]+")
_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%@+~-]{0,254}")
_WORD = re.compile(r"(?:[^\s,\[\]]|\[[^\[\]]*\])+")

Pieces = tuple[str, ...]
"""A name cut at its numbers: text and digits by turns, text first."""


class NodeSetError(NodeDoctorError):
    """Why a node set cannot be read, in one line."""


def expand(text: str) -> list[str]:
    """The names a node set expands to, in its order, each once; NodeSetError when it cannot be read."""
    names: dict[str, None] = {}
    for word in _split_words(text):
        parts = [_part_choices(part, word) for part in re.findall(r"\[[^\[\]]*\]|[^\[\]]+", word)]
        if len(names) + prod(map(len, parts)) > MOST:
            raise NodeSetError(f"{_shorten_text(word)}: more than {MOST} nodes")
        names.update(dict.fromkeys(map("".join, product(*parts))))
    return list(names)


def fold(hosts: Iterable[str]) -> str:
    """The shortest set we know for these names, each once, in the order people count."""
    return _fold_hosts(tuple(hosts))


@lru_cache(maxsize=32)  # the same thousand nodes are in many groups
def _fold_hosts(hosts: tuple[str, ...]) -> str:
    families: dict[Pieces, list[Pieces]] = {}
    for host in sorted(set(hosts), key=natural_key):
        if len(host) > LONGEST:  # no name: every number in it would be tried
            families[host,] = [(host,)]
            continue
        pieces = tuple(_NUMBER.split(host))
        families.setdefault(pieces[::2], []).append(pieces)
    return ",".join(chain.from_iterable(_fold_family(family) for family in families.values()))


@lru_cache(maxsize=MOST)
def natural_key(host: str) -> tuple[tuple[str | int, ...], str]:
    """Sort key: numbers by value, so that gpu-2 comes before gpu-10."""
    pieces = _NUMBER.split(host)
    return tuple(int(piece) if place % 2 else piece for place, piece in enumerate(pieces)), host


def short_host(host: str) -> str:
    """A name without its user and its domain, for comparing; addresses have none."""
    name = host.rpartition("@")[2]
    return name if ":" in name or name.replace(".", "").isdecimal() else name.split(".")[0].casefold()


def is_name(text: str) -> bool:
    """Whether this can be a node's name or address, and no command takes it for an option or a path."""
    return _NAME.fullmatch(text) is not None


def expand_nodes(text: str) -> list[str]:
    """The nodes a set expands to; NodeSetError also where one of them is no name or address."""
    names = expand(text)
    for name in names:
        if not is_name(name):
            raise NodeSetError(f"{_shorten_text(name)!r} is no name or address of a node")
    return names


def of_file(path: str) -> str:
    """The name of the node whose report a file is by the file's own name: `gpu-1` of `day/gpu-1.json.gz`."""
    name = plain(os.path.basename(path).removesuffix(".gz").removesuffix(".json")).lstrip("_.%@+~-")
    return name or "unnamed"


def plain(name: str) -> str:
    """A name from a foreign file as one that can be in a node set: anything else in it becomes `_`."""
    return _STRANGE.sub("_", name.strip())[:255].strip("_")


def _split_words(text: str) -> Iterator[str]:
    """The parts between commas and blanks that are not in brackets."""
    place = 0
    while place < len(text):
        if text[place] == "," or text[place].isspace():
            place += 1
            continue
        match = _WORD.match(text, place)
        if match is None or (match.end() < len(text) and text[match.end()] in "[]"):
            raise NodeSetError(f"{_shorten_text(text[place:])}: a bracket that does not close")
        yield match[0]
        place = match.end()


def _part_choices(part: str, word: str) -> list[str]:
    """What one part of a word expands to: itself, or the numbers of a bracket."""
    if not part.startswith("["):
        return [part]
    numbers: dict[str, None] = {}
    for item in part[1:-1].split(","):
        match = _RANGE.fullmatch(item.strip())
        if match is None:
            raise NodeSetError(
                f"{_shorten_text(word)}: {_shorten_text(item.strip()) or 'nothing'} is no number or range"
            )
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise NodeSetError(f"{_shorten_text(word)}: {item.strip()} counts downwards")
        if int(last) - int(first) >= MOST:
            raise NodeSetError(f"{_shorten_text(word)}: more than {MOST} nodes")
        numbers.update((str(n).zfill(len(first)), None) for n in range(int(first), int(last) + 1))
    return list(numbers)


def _fold_family(family: list[Pieces]) -> Iterator[str]:
    """Names of one build as words: folded at one number after another, each time where most fall together."""
    places = list(range(1, len(family[0]), 2))
    while places:
        place = min(places, key=lambda at: (len({_without_piece(pieces, at) for pieces in family}), -at))
        places.remove(place)
        together = group_pairs((_without_piece(pieces, place), pieces[place]) for pieces in family)
        family = [
            (*rest[:place], _format_bracket(numbers), *rest[place:]) for rest, numbers in together.items()
        ]
    return map("".join, family)


def _without_piece(pieces: Pieces, place: int) -> Pieces:
    return pieces[:place] + pieces[place + 1 :]


def _format_bracket(numbers: list[str]) -> str:
    """`7` for one number, `[01-04,7]` for several; 9 and 10 are neighbours, 09 and 10 too, 9 and 010 not."""
    padded = {len(number) for number in numbers if number[0] == "0" and len(number) > 1}

    def family(number: str) -> int:
        return len(number) if len(number) in padded else 0

    runs = []
    for _, members in groupby(sorted(numbers, key=lambda n: (family(n), int(n))), key=family):
        values = list(members)
        # Neighbours differ from their place in the list by the same amount.
        for _, run in groupby(enumerate(values), key=lambda pair: int(pair[1]) - pair[0]):
            ends = [value for _, value in run]
            runs.append(ends[0] if len(ends) == 1 else f"{ends[0]}-{ends[-1]}")
    return runs[0] if len(numbers) == 1 else f"[{','.join(runs)}]"


def _shorten_text(text: str) -> str:
    text = "".join(sign if sign.isprintable() else "?" for sign in text[:61])
    return text if len(text) <= 60 else f"{text[:57]}..."
