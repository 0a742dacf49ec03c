"""Sentences of recorded nodes are whole: nothing is cut in a word, and a reason has its whole action."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import recorded
from in_turn import in_turn

from nodedoctor.knowledge.ownership import REASON, action_words
from nodedoctor.model import Report
from nodedoctor.triage.model import Cause
from nodedoctor.wording import SUMMARY

HERE = Path(__file__).parents[1]
DEMOS = HERE.parent / "nodedoctor" / "demo"
NODES = [path.parent for folder in (DEMOS, HERE / "nodes") for path in sorted(folder.glob("*/manifest.json"))]
KEYS = [cause for cause in get_args(Cause) if "_" in cause]
_CUT = re.compile(r"\w(?:\.\.\.|…)$")


def sentences(report: Report) -> Iterator[str]:
    for cause in report.causes:
        yield cause.headline
        yield cause.reason
    for result in report.results:
        yield result.why
        for finding in result.findings:
            yield finding.summary
            yield finding.why
            yield finding.fix.text if finding.fix else ""


@in_turn("preview", [False, True])
@in_turn("node", NODES, ids=[node.name for node in NODES])
def test_no_sentence_of_a_node_is_cut_or_a_key(node: Path, preview: bool) -> None:
    report = recorded.judged(node, preview=preview)
    assert not [text for text in sentences(report) if _CUT.search(text)]
    assert not [text for text in sentences(report) for key in KEYS if key in text]


@in_turn("preview", [False, True])
@in_turn("node", NODES, ids=[node.name for node in NODES])
def test_a_reason_is_whole_and_names_more_than_a_device(node: Path, preview: bool) -> None:
    for cause in recorded.judged(node, preview=preview).causes:
        words = action_words(cause.action, cause.owner, cause.subjects)
        assert len(cause.headline) <= SUMMARY and len(cause.reason) <= REASON
        assert "..." not in cause.reason and cause.reason.endswith(words)
        said = cause.reason.removesuffix(f"; {words}")
        assert " " in said and not re.fullmatch(r"(?:PCI device|GPU) \S+|\S+ port \d+", said)
        complete = re.sub(r" \([^()]*\)", "", cause.headline)
        assert cause.headline.startswith(said) or complete.startswith(said)
