"""No reader sees the words by which programs write that there is no value: None, null, nan, `:?`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded import judged
from tuidriver import FRAMES

from nodedoctor.report import json as report_json
from nodedoctor.report.document import Report
from nodedoctor.report.job_page import job_page
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.verdict import document
from nodedoctor.tui.lines import card, detail, diagnosis, home
from nodedoctor.tui.lines.output import Output
from nodedoctor.tui.screens import probes
from nodedoctor.tui.state import State
from nodedoctor.tui.theme import UNICODE, Para, Row

NODES = Path(__file__).parents[1] / "nodes"
CASES = Path(__file__).parents[1] / "triage" / "logs" / "cases"
PLACEHOLDER = re.compile(r"(?<![\w'\"=\[(.])(?:None|null|nan)(?![\w'\"\])=(-])|:\?(?!\S)|\b(?:None|nan) s\b")
"""Where a value should be; not as a word of Python or of a shell that something quotes."""
names = sorted(path.parent.name for path in NODES.glob("*/manifest.json"))
cases = [json.loads(line) for line in (CASES / "truth.jsonl").read_text().splitlines()]


def said(paras: Iterable[Para]) -> Iterator[str]:
    """What we say: no commands, and nothing that a log or a program said."""
    for para in paras:
        yield para.lead
        if not para.verbatim:
            yield para.text or "".join(text for text, _ in para.parts)


def words_of(row: Row) -> list[str]:
    return [row.word, row.name, row.text, row.end, *(text for text, _ in row.parts)]


def no_placeholder(texts: Iterable[str], quoted: Iterable[str] = ()) -> None:
    """Holds the law; what is quoted from logs and nodes is taken out before."""
    for text in texts:
        for quote in quoted:
            text = text.replace(quote, "") if quote else text
        assert not PLACEHOLDER.search(text), text


def triage_screen(found: dict[str, Any]) -> None:
    """Hold the law on the whole Triage screen of a document."""
    quoted = [" ".join(item["text"].split()) for item in found["evidence"]] + [found["headline"]]
    for line in diagnosis.head(found, job_page(found)):
        no_placeholder("".join(text for text, _ in line).split("\n"), quoted)
    for entry in diagnosis.items(found, job_page(found), 100, UNICODE):
        if entry.row.word not in ("proof", "before"):  # the text of a log
            no_placeholder(words_of(entry.row), quoted)
        elif ":" in (place := entry.row.text.split("  ")[0]):
            no_placeholder([place])
        no_placeholder(said(entry.paras), quoted)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", cases, ids=lambda case: case.get("file") or case["files"][0])
def test_the_screen_of_a_dead_job(case: dict[str, Any]):
    examined = examine_job([str(CASES / name) for name in case.get("files") or [case["file"]]])
    triage_screen(
        json.loads(document.render_text(document.make_document(examined.verdict, examined.lines.line_of)))
    )


def test_the_screen_of_a_document_in_which_everything_is_unknown():
    found = json.loads((FRAMES / "triage.json").read_text())

    def emptied(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: emptied(inner) for key, inner in value.items()}
        return [emptied(inner) for inner in value] if isinstance(value, list) else None

    unknown = {key: emptied(value) for key, value in found.items()}
    for which in (
        {},
        unknown,
        {**found, "collective": emptied(found["collective"])},
        {**found, "coverage": {}},
    ):
        for line in diagnosis.head(which, job_page(which)):
            no_placeholder(text for text, _ in line)
        for entry in diagnosis.items(which, job_page(which), 100, UNICODE):
            no_placeholder([*words_of(entry.row), *said(entry.paras)])
            assert not any(PLACEHOLDER.search(para.text) for para in entry.paras if para.verbatim)


def test_the_screen_of_dumps_that_say_nothing_of_their_time_limit(tmp_path: Path):
    for rank in range(4):
        done = {"pg_id": 0, "process_group": ["0", "default_pg"], "profiling_name": "nccl:all_reduce"}
        entries = [
            {**done, "record_id": seq, "collective_seq_id": seq, "state": "completed"} for seq in (1, 2)
        ]
        if rank != 2:
            entries.append({**done, "record_id": 3, "collective_seq_id": 3, "state": "started"})
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
        dump = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}
        (tmp_path / f"trace_rank_{rank}.json").write_text(json.dumps(dump))
    examined = examine_job([str(tmp_path)])
    found = json.loads(document.render_text(document.make_document(examined.verdict, examined.lines.line_of)))
    assert found["culprits"][0]["rank"] == 2 and found["collective"]["timeout_seconds"] is None
    assert found["evidence"] and all(item["line"] is None for item in found["evidence"])
    triage_screen(found)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", names)
def test_the_screens_of_a_node(name: str):
    report: Report = json.loads(report_json.render(report_json.document(judged(NODES / name, preview=True))))
    state = State(report)
    for line in detail.head(state):
        no_placeholder(text for text, _ in line)
    for row in (*home.rows(state, ("", *home.folds(state)), UNICODE, 120), *probes._rows(state)):
        no_placeholder(words_of(row))
    for cause in report["causes"]:
        no_placeholder(said(card.card(report, cause)))
    for result in report["results"]:
        no_placeholder(said(detail.detail(state, result, None, full=True)))
        no_placeholder(words_of(detail.row(result, None)))
    for seen in report["probes"]:
        no_placeholder(said(probes._told(seen, "", Output((), {}), ())))
