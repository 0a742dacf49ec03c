"""Numbers and lists in sentences, made in one place: `1 GPU`, `2 GPUs`, `GPUs 3 and 5`, `ranks 0-7`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nodedoctor.patterns import regex

_STOP = regex(r"(?<=[^\d.\s])(?<!\.\w)\.\s+(?=[A-Z`])")
_ES = ("s", "x", "z", "ch", "sh")


def plural(noun: str) -> str:
    """The plural of a noun, or of a name's last word: `process` gives `processes`, `entry` `entries`."""
    if noun.endswith(_ES):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def singular_or_plural(number: float, singular: str, many: str) -> str:
    """The word that fits a number: `singular_or_plural(len(down), "is", "are")`."""
    return singular if number == 1 else many


def capitalised(text: str) -> str:
    """A sentence with a capital letter, unless it begins with the name of a file or a function."""
    first = (text.split() or [""])[0].rstrip(".,:;")
    return text if any(mark in first for mark in "._/") else text[:1].upper() + text[1:]


def count_with_noun(number: float, noun: str, many: str = "") -> str:
    """A number and its noun: `1 GPU`, `0.5 GPUs`, `0 processes`; `many` where the plural is irregular."""
    digits = f"{number:g}" if isinstance(number, float) else str(number)
    return f"{digits} {singular_or_plural(number, noun, many or plural(noun))}"


def decimal(value: float, digits: int = 12) -> str:
    """A number rounded to so many significant digits and never with an exponent: `280`, `0.0028`."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:.12f}".rstrip("0").rstrip(".") if abs(rounded) < 1 else f"{rounded:.12g}"


def comma_list(items: Iterable[object], most: int = 0) -> str:
    """`a`, `a and b`, `a, b and c`; with `most` the rest as a number: `a, b and 3 more`."""
    words = [str(item) for item in items]
    if most and len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def first_few(items: Sequence[object], most: int, between: str = ", ") -> str:
    """The first of many as a plain list, and how many are left: `a, b and 3 more`."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return between.join(map(str, items[:most])) + more


def and_more(count: int) -> str:
    """How many others there are, as ` (and 3 more)`; empty for none."""
    return f" (and {count} more)" if count > 0 else ""


def ranged(numbers: Iterable[int]) -> str:
    """Numbers in order, three and more that follow each other as a range: `0-7`, `0, 3 and 5-7`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return comma_list(piece for run in runs for piece in _run_pieces(run))


def numbered(noun: str, numbers: Iterable[int]) -> str:
    """A noun and the numbers of what it names: `GPU 3`, `GPUs 3 and 5`, `ranks 0-7`."""
    distinct = set(numbers)
    return f"{singular_or_plural(len(distinct), noun, plural(noun))} {ranged(distinct)}"


def utc_time(stamp: str) -> str:
    """A time as people read it, `2026-08-21 08:00:03 UTC` of `2026-08-21T08:00:03Z`."""
    return stamp.replace("T", " ").replace("Z", " UTC")


def sentences(text: str) -> list[str]:
    """The sentences of a text without their full stops; an abbreviation or a version does not end one."""
    return [part.strip().rstrip(".") for part in _STOP.split(text) if part.strip()]


def subject_label(subject: str) -> str:
    """A subject as a person says it: `GPU 3`, `mlx5_6 port 1`; empty for what only files findings."""
    kind, _, rest = subject.partition(":")
    if kind in ("gpu", "nvswitch"):
        return f"{'GPU' if kind == 'gpu' else 'NVSwitch'} {rest.partition('/')[0]}"
    if kind == "pair":
        return f"GPUs {' and '.join(rest.split('-'))}"
    if kind == "port":
        adapter, _, number = rest.partition("/")
        return f"{adapter} port {number.partition('/')[0]}" if number else adapter
    if kind in ("cpu", "numa") and rest.isdecimal():
        return f"{'CPU' if kind == 'cpu' else 'NUMA node'} {rest}"
    return (
        f"PCI device {rest.partition('/')[0]}"
        if kind == "pci"
        else rest
        if kind in ("hca", "mount", "process")
        else ""
    )


def label_if_unnamed(subject: str, summary: str) -> str:
    """The name of a subject where its summary does not name it; else empty."""
    name, own = subject_label(subject), subject.partition(":")[2]
    is_number = own[:1].isdecimal() and ":" not in own
    return "" if name in summary or (not is_number and own in summary) else name


def about(subject: str, summary: str) -> str:
    """A summary with the name of its subject before it, unless it names it itself."""
    name = label_if_unnamed(subject, summary)
    return f"{name}: {summary}" if name else summary


def clause(text: str) -> str:
    """The first clause of a text: `no answer in 30 s` of `no answer in 30 s and SIGKILL had no effect`."""
    return re.split(r"; |, | and ", text, maxsplit=1)[0]


SUMMARY = 90
"""Characters of a summary and a headline: what fits beside a hostname in a line of 120; our choice, no
external source."""


def fitting(*wordings: str, most: int = SUMMARY) -> str:
    """The first of several wordings that is short enough, else the last: the most telling one comes first."""
    return next((text for text in wordings if len(text) <= most), wordings[-1])


def shortened(text: str, longest: int) -> str:
    """The first sentence of a text, and of it what fits, ended at a clause or a word."""
    plain = re.split(r"(?<=[^.\d])(?<!\.[a-z])\. |\n", text, maxsplit=1)[0].rstrip(".")
    if len(plain) > longest:
        plain = _ASIDE.sub("", plain)
    if len(plain) <= longest:
        return plain
    # Every mark has two characters.
    for mark, least in ((_STRONG, longest // 2), (_WEAK, longest * 2 // 5), (_STRONG, _SHORTEST)):
        ends = [match.start() for match in mark.finditer(plain, least, longest + 2)]
        if complete := [plain[:end] for end in ends if " " in plain[:end] and not _OPEN.search(plain[:end])]:
            return complete[-1]
    return plain[: longest - 3].rsplit(" ", 1)[0] + "..."


_ASIDE = regex(r" \([^()]*\)")
_STRONG, _WEAK = regex("; |: "), regex(", ")
_OPEN = regex(r"\([^)]{0,299}$| '[^']{0,299}$")
_SHORTEST = 12
"""Characters of a clause that says more than its subject, as `GPU 3: Xid 31`."""


def short_name(name: str, most: int = 24) -> str:
    """A name with its middle left out: `ray::FSDPPo...se.forward`."""
    if len(name) <= most:
        return name
    half = (most - 3) // 2
    return f"{name[: most - 3 - half]}...{name[-half:]}"


def short_path(path: str) -> str:
    """A path with its middle left out: `/home/ray/.../nccl/lib/libnccl.so.2`."""
    parts = path.split("/")
    if len(path) <= 48 or len(parts) < 7:
        return path
    return "/".join([*parts[:3], "...", *parts[-3:]])


def _run_pieces(run: Sequence[int]) -> list[str]:
    return [f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(number) for number in run]
