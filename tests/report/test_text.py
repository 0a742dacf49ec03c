"""The text report: problems first, commands on lines of their own, nothing from the node live."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.model import Evidence, Finding, Fix, Report, Result, Unseen
from nodedoctor.report import document, json, text
from nodedoctor.report.inert import inert, inert_lines
from nodedoctor.steps import repair

RESET = Fix(
    "Reset it.", (repair("nvidia-smi --gpu-reset -i 3"),), "reset-gpu", "jobs on GPU 3", "nodedoctor a.b"
)


def result(check: str, *findings: Finding, why: str = "") -> Result:
    return Result(check, "title", findings, why=why)


def report(*results: Result, **node: object) -> document.Report:
    node = {"hostname": "gpu-1", **node}
    return json.document(Report("0", "live", "2026-01-02T03:04:05Z", 1.25, node, results))


def test_problems_come_first_with_evidence_fix_and_reason():
    page = text.render(
        report(
            result("z.well", Finding.ok("all good")),
            result("b.odd", Finding.warn("a bit odd", subject="gpu:1")),
            result(
                "a.bad",
                Finding.fail("2 links down", subject="gpu:3", evidence=[Evidence("p", "Link 4")], fix=RESET),
                why="rings get slow",
            ),
            gpus=8,
            gpu="NVIDIA H100",
            driver="570.86.10",
        )
    )
    assert page == (
        "gpu-1   8x NVIDIA H100   driver 570.86.10\n"
        "FAIL  1 fail  1 warn  1 pass   in 1.2 s\n"
        "\n"
        "FAIL a.bad  GPU 3: 2 links down\n"
        "     | Link 4\n"
        "     fix      Reset it.\n"
        "     repair: interrupts jobs on GPU 3\n"
        "     $ nvidia-smi --gpu-reset -i 3\n"
        "     verify   nodedoctor a.b\n"
        "     why      rings get slow\n"
        "\n"
        "WARN b.odd  GPU 1: a bit odd\n"
        "\n"
        "PASS z.well  all good\n"
    )


def test_what_many_say_alike_is_said_once_and_a_fix_is_not_repeated():
    denied = Unseen("denied", "the log may not be read", "sudo usermod -aG systemd-journal USER")
    stuck = Finding.unknown("stuck", "the driver hangs")
    page = text.render(
        report(
            result("k.one", Finding.unseen(denied)),
            result("k.two", Finding.unseen(denied)),
            result("g.one", stuck),
            result("g.two", stuck),
            result("a.bad", Finding.fail("bad", fix=RESET)),
            result("b.bad", Finding.fail("bad too", fix=RESET)),
            result("s.one", Finding.skip("no GPU")),
            result("s.two", Finding.skip("no GPU")),
        )
    )
    for sentence in ("the log may not be read", "the driver hangs", "no GPU", "systemd-journal", "Reset it."):
        assert page.count(sentence) == 1
    assert "k.one k.two" in page and "g.one g.two" in page and "s.one s.two" in page
    assert "as for a.bad, above" in page


def test_quiet_leaves_out_what_is_well():
    results = (result("a.ok", Finding.ok("fine")), result("b.skip", Finding.skip("none")))
    assert text.render(report(*results), quiet=True) == "gpu-1\nPASS  1 pass  1 skip   in 1.2 s\n"


def test_a_waived_failure_stays_in_sight():
    page = text.render(report(result("a.bad", replace(Finding.fail("bad"), waived="board on order"))))
    assert "PASS a.bad  bad [waived: board on order]" in page


def test_without_colour_nothing_is_painted():
    painted = text.render(report(result("a.bad", Finding.fail("bad"))), colour=True)
    plain = text.render(report(result("a.bad", Finding.fail("bad"))))
    assert "\x1b[" in painted and "\x1b" not in plain


@given(st.text(), st.text(), st.text())
def test_nothing_from_the_node_is_live(summary, evidence, command):
    hostile = Finding.fail(
        summary or "x",
        subject=summary,
        evidence=[Evidence("p", evidence)],
        fix=Fix("f", (repair("{}", command),)),
    )
    page = text.render(report(result("a.bad", hostile), hostname=summary, gpu=evidence, gpus=1))
    assert not [
        c for c in page if (ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2028"
    ]


@given(st.text())
def test_inert_keeps_what_is_harmless(words):
    harmless = "".join(c for c in words if c.isprintable())
    assert inert_lines("") == []
    assert inert(harmless) == harmless
    assert "\n" not in inert(words) and "\x1b" not in inert(words)
