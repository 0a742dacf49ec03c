"""Texts in which one value is wrong: every place of a JSON document, every number of a text.

Places are alike when they differ only in numbers: the clocks of eight GPUs are one place, tried once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

Place = tuple[Any, ...]
"""Keys and numbers that lead to a value."""
DEPTHS = (65, 100, 250, 490, 990)
NESTS = tuple(
    depth * opens + inside + depth * closes
    for depth in DEPTHS
    for opens, inside, closes in (("[", "", "]"), ('{"a":', "1", "}"))
)
"""Lists and objects, deeper than anything real, most of them not too deep for `json` itself."""
NUMBERS = (
    "Infinity", "-Infinity", "NaN", "-0", "-0.0", "1e400", "-1e400", "1e-320", "9" * 5000, "-" + "9" * 5000,
    "18446744073709551616", "18446744073709551615", "9223372036854775808", "4294967296", "-1", "0", "0.5",
    "1e18", "true", "false", '"7"', '"\\u00b2"', '"\\u0663"', '"12\\u00b2"', '"nan"', '"inf"', '"1e400"',
    '"-1"', '"' + "9" * 5000 + '"', '"0x1f"', '"1_000"',
)  # fmt: skip
"""What is no number, what no 64 bits hold, what only some readers take for one, and numbers as text."""
TEXTS = (
    '"\\ud800"', '"a\\udfffb"', '"\\u0000"', '"a\\rb"', '"a\\u2028b"', '"\\u202eabc\\u202c"',
    '"\\u001b[31mx"', '"%s%n"', '"{}"', '"[x](y)"', '"[/]"', '"\\n\\n"', '" "', '""', '"\\uff11"',
    '"\\ufffe"', '"' + "x" * 1_000_000 + '"', '"/\\u0000"', '"../../.."', '"a=b"', '","', '"::"',
)  # fmt: skip
"""Halves of a character, other ends of lines, marks of direction, escapes, markup, a megabyte in one line."""
SHAPES = ("null", "[]", "{}", "[null]", "[[]]", "[{}]", '{"":null}', '{"0":{}}', '["x"]', "[1,2]", "[true]")
"""What is right elsewhere."""
WRONG = (*NUMBERS, *TEXTS, *SHAPES, *NESTS)

_MARK = '"\\u0000the place\\u0000"'
_DIGITS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
IN_TEXT = (
    "\u00b2", "\u0663", "12\u00b2", "\uff11", "9" * 5000, "-1", "-0", "nan", "inf", "1e400", "99999999999",
    "18446744073709551616", "0", "", "0.0", "1.2.3", "0x1f", "1_000", "[" * 100,
)  # fmt: skip
"""What stands in a text where a number was."""


def places(
    document: Any, like: str = "", path: tuple[Any, ...] = ()
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Every place of a document, first of all the whole of it; with the name that it shares with its like."""
    yield like, path
    if isinstance(document, dict):
        for key, value in document.items():
            yield from places(value, f"{like}.{_DIGITS.sub('#', key)}", (*path, key))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from places(value, f"{like}[]", (*path, number))


def distinct(document: Any) -> dict[str, Place]:
    """The last place of each kind: what comes before it is right."""
    return dict(places(document))


def put(document: Any, path: Sequence[Any], wrong: str) -> str:
    """The text of the document with a wrong value, given as JSON, in one place."""
    return json.dumps(_replaced(document, path)).replace(_MARK, wrong, 1)


def _replaced(document: Any, path: Sequence[Any]) -> Any:
    if not path:
        return json.loads(_MARK)
    first, *rest = path
    inside = _replaced(document[first], rest)
    if isinstance(document, dict):
        return {**document, first: inside}
    return [*document[:first], inside, *document[first + 1 :]]


def numbers(text: str) -> list[re.Match[str]]:
    """The numbers of a text, of lines that differ only in their numbers those of the last."""
    found: dict[tuple[str, int], re.Match[str]] = {}
    for line in re.finditer(r"[^\n]+", text):
        like = _DIGITS.sub("#", line[0])
        for place, number in enumerate(_DIGITS.finditer(text, line.start(), line.end())):
            found[like, place] = number
    return list(found.values())
