"""The report as one line: the worst first, short enough for a drain reason, and always one line."""

from __future__ import annotations

from any_report import reports
from hypothesis import given

from nodedoctor.cli.main import main
from nodedoctor.model import Finding, Report, Result, Status
from nodedoctor.report import json, summary


def said(*results: Result) -> str:
    return summary.render(json.document(Report("0", "live", "2026-01-02T03:04:05Z", 1, {}, results)))


def test_the_worst_is_told_and_the_rest_counted():
    warned = Result("a.b", "t", (Finding.warn("slow", subject="gpu:1"),))
    failed = Result("c.d", "t", (Finding.warn("odd"), Finding.fail("2 links down", subject="gpu:3")))
    unseen = Result("e.f", "t", (Finding.unknown("denied", "not for you"),))
    well = Result("g.h", "t", (Finding.ok("fine"),))
    assert said(warned, failed, unseen, well) == "FAIL c.d: GPU 3: 2 links down (and 2 more)\n"
    assert said(warned, unseen, well) == "WARN a.b: GPU 1: slow\n"
    assert said(unseen, well) == "UNKN e.f: not for you\n"
    assert said(unseen, unseen, well) == "UNKN: no problem found; 2 of 3 checks could not judge\n"
    assert said(well) == "PASS 1 pass\n"
    assert said() == "SKIP\n"


def test_what_is_waived_is_no_problem():
    waived = Finding(Finding.fail("x").status, "2 links down", "gpu:3", waived="board is on order")
    assert said(Result("a.b", "t", (waived,))) == "PASS 1 pass\n"


def test_a_long_line_loses_its_middle_and_keeps_its_count():
    long = Result("a.b", "t", (Finding.fail("word " * 100), Finding.fail("x")))
    line = said(long)
    assert len(line) == summary.LONGEST + 1 and line.startswith("FAIL a.b: word")
    assert line.endswith("... (and 1 more)\n")


@given(reports())
def test_it_is_always_one_printable_line(report: Report):
    told = json.document(report)
    line = summary.render(told)
    assert line.endswith("\n") and line.count("\n") == 1 and len(line) <= summary.LONGEST + 1
    assert line.split()[0].rstrip(":") == Status(told["verdict"]).word
    assert not [c for c in line[:-1] if ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000]


def test_it_is_a_form_of_output_with_the_same_exit_code(capsys):
    assert main(["demo", "nvlinks-down", "--summary"]) == 2
    told = capsys.readouterr()
    assert told.out == "provider: GPU 3 lost 2 NVLinks; request a replacement\n"
    assert told.err == ""
    assert main(["demo", "healthy", "--summary"]) == 0
    assert capsys.readouterr().out.startswith("PASS ")
