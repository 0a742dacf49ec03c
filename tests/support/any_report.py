"""Reports of every kind that can be built, with text that nodes should never have said."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from nodedoctor.model import Action, Evidence, Finding, Fix, Reason, Report, Result, Role, Status, Step
from nodedoctor.report import json

HOSTILE = st.one_of(
    st.text(st.characters(), min_size=1, max_size=30),  # all of Unicode, lone surrogates included
    st.sampled_from(
        ["\x1b[31mred", "]]>", "</failure>", 'a"b\\c\nd', "\x00", "\ufffe", "a\r\nb", "{}", " ", "é"]
    ),
)

STEPS = st.builds(Step, st.sampled_from(sorted(set(get_args(Role)) - {"verify"})), HOSTILE, HOSTILE, HOSTILE)

_fixes = st.builds(
    Fix,
    HOSTILE,
    st.lists(STEPS, max_size=2).map(tuple),
    st.sampled_from(get_args(Action)),
    HOSTILE | st.just(""),
    HOSTILE | st.just(""),
)


@st.composite
def _findings(draw: st.DrawFn) -> Finding:
    status = draw(st.sampled_from(Status))
    evidence = draw(st.lists(st.builds(Evidence, HOSTILE, HOSTILE), max_size=2))
    return Finding(
        status,
        draw(HOSTILE),
        draw(st.sampled_from(["", "gpu:3", "mount:/dev/shm"]) | HOSTILE),
        tuple(evidence),
        draw(st.none() | _fixes),
        draw(st.booleans()) if status is Status.PASS else False,
        draw(st.sampled_from(get_args(Reason))) if status is Status.UNKNOWN else None,
        draw(st.none() | HOSTILE),
    )


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """A report of up to five checks, with ids as checks have them and anything else as anything."""
    ids = draw(st.lists(st.from_regex(r"[a-z]{1,6}\.[a-z-]{1,6}", fullmatch=True), max_size=5, unique=True))
    results = tuple(
        Result(
            check,
            draw(HOSTILE),
            tuple(draw(st.lists(_findings(), min_size=1, max_size=4))),
            draw(st.floats(0, 1e5)),
        )
        for check in ids
    )
    names = st.sampled_from(["hostname", "gpu", "driver", "container", "torch"])
    node = draw(st.dictionaries(names, st.none() | HOSTILE))
    return Report("0.1.0", "live", "2026-01-02T03:04:05Z", draw(st.floats(0, 1e5)), node, results)


def documents() -> st.SearchStrategy[dict[str, Any]]:
    """The JSON documents of `reports()`."""
    return reports().map(json.document)
