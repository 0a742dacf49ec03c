"""Tables of what lines of logs mean, as text, and the reader of their rows.

A row's name is the event of its lines, with values of its fields as flags, or, below a heading with a cause,
that of a symptom with a sentence. Its lines are the pattern (`text_table`).

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
from nodedoctor.text_table import table_rows
from nodedoctor.triage.lines.required_literals import required_literals
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Cause
from nodedoctor.triage.patterns.log_pattern import (
    LogPattern,
    Symptom,
    bounded_integer,
    quoted_text,
    rank_number,
    ranks_in,
    signal_number,
    task_numbers,
)
from nodedoctor.whole_numbers import signed

Maker = Callable[..., Any]

_READERS: dict[str, Callable[[str], object]] = {
    "arrivals": bounded_integer,
    "code": bounded_integer,
    "expected": bounded_integer,
    "gigabytes": float,
    "milliseconds": signed,
    "operation": bounded_integer,
    "pid": bounded_integer,
    "rank": rank_number,
    "ranks": ranks_in,
    "received": bounded_integer,
    "seconds_stuck": signed,
    "seq": bounded_integer,
    "signal": signal_number,
    "tasks": task_numbers,
}
"""How groups are read; those that are not listed are text."""

_DIGITS = "0123456789"
_GAP = re.compile(r"\{(\w+):([^{}]*)\}")


def read_rows(table: str, *makers: Maker) -> tuple[LogPattern, ...]:
    """The patterns of a table; `makers` are its rows' classes and functions."""
    makers_by_name = {maker.__name__: maker for maker in makers}
    patterns = []
    for row in table_rows(table):
        values = {
            flag: _READERS.get(flag, str)(value) if isinstance(value, str) else value
            for flag, value in row.flags.items()
        }
        if row.sentence:
            make = _symptom_maker(row.heading, row.name, row.sentence, values)
        elif row.name.isupper():
            make = _mark_maker(Mark[row.name])
        else:
            make = _event_maker(makers_by_name[row.name], values)
        patterns.append(LogPattern(required_literals(row.pattern), row.pattern, make))
    return tuple(patterns)


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
