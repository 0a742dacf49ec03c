"""Tables of what lines of logs mean, as text, and the reader of their rows.

A row begins at the margin: with the event of its lines and values of its fields, or, below a heading with a
cause, with the name of a symptom and its flags; two blanks separate them. A symptom's sentence is indented by
two blanks, the pattern by four, in pieces. Lines behind `#` give the source or a reason. No line ends in a
blank: where a piece of a pattern does, it ends in `[ ]`.

    [peer_died]
    # vLLM (vllm/v1/executor/multiproc_executor.py)
    engine-died  personal  of_another
      an inference worker's process ended, the log does not say how
        Worker proc (?:\\w+-(?P<rank>\\d+)|\\S+) died unexpectedly
    # HPE's PALS
    ProcessExit
        ^(?P<host>[\\w.-]+): rank (?P<rank>\\d+) exited with code (?P<code>\\d+)

Groups of a pattern fill the fields of their names, `code2` that of `code`; `hint` is a symptom that settles
nothing by itself. `{error:12}` in a sentence is the group `error`, else 12. A row may begin with a function
instead, which makes the event from the match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast, get_args

from nodedoctor.record import replace
from nodedoctor.triage.lines.required_literals import required_literals
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Cause
from nodedoctor.triage.patterns.log_pattern import (
    LogPattern,
    Symptom,
    bounded_integer,
    optional_integer,
    quoted_text,
    rank_number,
    ranks_in,
    signal_number,
    task_numbers,
)

Maker = Callable[..., Any]

_READERS: dict[str, Callable[[str], object]] = {
    "arrivals": bounded_integer,
    "code": bounded_integer,
    "expected": bounded_integer,
    "from_rank": optional_integer,
    "gigabytes": float,
    "milliseconds": optional_integer,
    "operation": bounded_integer,
    "pid": bounded_integer,
    "rank": rank_number,
    "ranks": ranks_in,
    "received": bounded_integer,
    "seconds_stuck": optional_integer,
    "seq": bounded_integer,
    "signal": signal_number,
    "tasks": task_numbers,
}
"""How groups are read; those that are not listed are text."""

_BLOCK = re.compile(r"^(?!#)\S.*(?:\n .*)*", re.MULTILINE)
_DIGITS = "0123456789"
_GAP = re.compile(r"\{(\w+):([^{}]*)\}")


def read_rows(table: str, *makers: Maker) -> tuple[LogPattern, ...]:
    """The patterns of a table; `makers` are its rows' classes and functions."""
    makers_by_name = {maker.__name__: maker for maker in makers}
    cause = ""
    patterns = []
    for block in _BLOCK.findall(table):
        head, *below = block.splitlines()
        if head.startswith("["):
            cause = head.strip("[]")
            continue
        name, _, flags = head.partition("  ")
        sentence = " ".join(line.strip() for line in below if not line.startswith("    "))
        pieces = (line[4:] for line in below if line.startswith("    ") and not line.startswith("    # "))
        pattern, values = "".join(pieces), _read_values(flags)
        if sentence:
            make = _symptom_maker(cause, name, sentence, values)
        elif name.isupper():
            make = _mark_maker(Mark[name])
        else:
            make = _event_maker(makers_by_name[name], values)
        patterns.append(LogPattern(required_literals(pattern), pattern, make))
    return tuple(patterns)


def _read_values(flags: str) -> dict[str, Any]:
    """`first  helper=worker` as values of fields."""
    pairs = (flag.partition("=") for flag in flags.split("  ") if flag)
    return {name: _READERS.get(name, str)(value) if equals else True for name, equals, value in pairs}


def _symptom_maker(cause: str, name: str, sentence: str, values: dict[str, Any]) -> Maker:
    assert cause in get_args(Cause), cause
    quoted, hint = values.pop("quoted", False), values.pop("hint", False)
    what = Symptom(cast(Cause, cause), name, sentence, decisive=not hint, **values)
    if _GAP.search(sentence):
        return lambda match: replace(what, sentence=_fill_gaps(sentence, match))
    return (lambda match: replace(what, words=quoted_text(match))) if quoted else lambda _: what


def _fill_gaps(sentence: str, match: re.Match[str]) -> str:
    """A sentence with what the pattern's groups caught, or their defaults."""
    caught = match.groupdict()
    return _GAP.sub(lambda gap: caught.get(gap[1]) or gap[2], sentence)


def _mark_maker(mark: Mark) -> Maker:
    return lambda _: mark


def _event_maker(maker: Maker, values: Mapping[str, Any]) -> Maker:
    fields = getattr(maker, "__match_args__", None)
    if fields is None:
        return maker
    make = getattr(maker, "from_groups", maker)

    def make_event(match: re.Match[str]) -> object:
        arguments = dict(values)
        for group, text in match.groupdict().items():
            name = group.rstrip(_DIGITS)
            if text is not None and (name in fields or name == "signal") and name not in arguments:
                arguments[name] = _READERS.get(name, str)(text)
        return make(**arguments)

    return make_event
