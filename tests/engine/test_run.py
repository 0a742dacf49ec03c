"""Checks over observations: what is judged, and what becomes of checks and parsers that misbehave."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timezone

import pytest

from nodedoctor.cli.exit_codes import exit_code
from nodedoctor.declare.registry import Check, check, declared, fact
from nodedoctor.engine import calls
from nodedoctor.engine.plugins import discover
from nodedoctor.engine.run import Diagnosis
from nodedoctor.engine.sources import Recorded
from nodedoctor.model import Expect, Finding, Moment, Observation, Outcome, Report, Status, Unseen
from nodedoctor.record import record
from nodedoctor.report.json import document

NOON = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)


@fact("colour")
@dataclass(frozen=True, slots=True)
class Colour:
    """A colour."""

    name: str

    @classmethod
    def parse(cls, seen: Observation) -> "Colour | Unseen":
        if not seen.answered:
            return Unseen.of(seen, "paint it")
        if seen.text == "boom":
            raise ValueError("no such colour")
        if seen.text == "endless":
            while True:
                pass
        if seen.text == "none":
            return Unseen.skip("nothing is painted here")
        return cls(seen.text)


@fact(Colour)
@dataclass(frozen=True, slots=True)
class Shade:
    """A shade of a colour, or of nothing."""

    of: str

    @classmethod
    def parse(cls, colour: "Colour | Unseen") -> "Shade":
        return cls("nothing" if isinstance(colour, Unseen) else colour.name)


@check("wall.colour", "The wall is white", tags={"fast"})
def wall(colour: Colour):
    """Whether the wall is white.

    Why: dark walls swallow light.
    Fix disturbs: the room.
    """
    yield Finding.ok("white") if colour.name == "white" else Finding.fail(f"it is {colour.name}")


@check("wall.maybe", "The wall may have a colour", without=(Colour,))
def maybe(colour: Colour | None, shade: Shade, expect: Expect):
    """Whether anything is known."""
    known = colour.name if colour else "unknown"
    yield Finding.ok(f"{known}, shade of {shade.of}, expected {expect.get('colour')}")


@check("bad.raises", "It raises half-way")
def raises(colour: Colour):
    """Raises after one finding."""
    yield Finding.warn("half a look")
    raise RuntimeError("oops")


@check("bad.silent", "It says nothing")
def silent(colour: Colour):
    """Yields nothing."""
    yield from ()


@check("bad.endless", "It never ends")
def endless(colour: Colour):
    """Never ends."""
    while True:
        pass
    yield Finding.ok("never")


@check("bad.talkative", "It finds something for ever")
def talkative(colour: Colour):
    """Yields without end."""
    while True:
        yield Finding.ok("again")


@check("bad.needs", "It needs what is not a fact")
def needs(colour: int):
    """Asks for a number."""
    yield Finding.ok("never")


@check("bad.types", "It yields something else")
def types(colour: Colour):
    """Yields text."""
    yield "fine"  # type: ignore[misc]


def checks(*functions) -> list[Check]:
    return [vars(function)["__nodedoctor__"] for function in functions]


def run(*functions, **seen: Observation | str) -> Report:
    observations = {
        name: Observation(name, text=value) if isinstance(value, str) else value
        for name, value in seen.items()
    }
    given = {Expect: Expect({"colour": "white"}), Moment: Moment(NOON)}

    async def go() -> Report:
        node = {"hostname": "h", "boot_id": None}
        return await Diagnosis(checks(*functions), Recorded(observations), given, node=node).run()

    return asyncio.run(go())


def only(report: Report) -> Finding:
    (result,) = report.results
    (finding,) = result.findings
    return finding


def test_a_check_judges_its_facts():
    report = run(wall, colour="white")
    assert only(report).status is Status.PASS
    assert document(report)["verdict"] == "pass"
    assert document(report)["facts"] == {"colour": {"name": "white"}}
    assert only(run(wall, colour="grey")).summary == "it is grey"


def test_the_docstring_says_why():
    (declaration,) = checks(wall)
    assert declaration.what == "Whether the wall is white."
    assert declaration.why == "dark walls swallow light."
    assert declaration.disturbs == "the room."
    assert declaration.tags == {"fast", "wall"}
    assert run(wall, colour="white").results[0].why == declaration.why


@pytest.mark.parametrize(
    ("outcome", "reason", "broken"),
    [
        (Outcome.MISSING, "missing-tool", False),
        (Outcome.DENIED, "denied", False),
        (Outcome.SKIPPED, "not-visible-here", False),
        (Outcome.TIMEOUT, "timeout", True),
        (Outcome.STUCK, "stuck", True),
        (Outcome.CRASH, "crash", True),
    ],
)
def test_without_its_fact_a_check_is_unknown_and_says_why(outcome, reason, broken):
    report = run(wall, colour=Observation("colour", outcome, note="because"))
    finding = only(report)
    assert (finding.status, finding.reason, finding.broken) == (Status.UNKNOWN, reason, broken)
    assert "because" in finding.summary
    assert finding.fix is not None and finding.fix.text == "paint it"
    assert exit_code(document(report)) == (3 if broken else 0)


def test_what_does_not_apply_is_skipped():
    report = run(wall, colour="none")
    assert only(report).status is Status.SKIP
    assert exit_code(document(report), "warn") == 0


def test_an_optional_fact_may_be_absent_and_facts_build_on_facts():
    assert only(run(maybe)).summary == "unknown, shade of nothing, expected white"
    assert only(run(maybe, colour="red")).summary == "red, shade of red, expected white"


def test_a_parser_that_raises_is_one_unknown():
    finding = only(run(wall, colour="boom"))
    assert (finding.status, finding.reason) == (Status.UNKNOWN, "crash")
    assert "ValueError: no such colour" in finding.summary


def test_a_check_that_raises_keeps_what_it_found_and_the_others_go_on():
    report = run(raises, wall, colour="white")
    assert [r.check for r in report.results] == ["bad.raises", "wall.colour"]
    half, crash = report.results[0].findings
    assert half.summary == "half a look"
    assert crash.reason == "crash" and "RuntimeError: oops" in crash.summary
    assert report.results[1].status is Status.PASS


def test_a_check_that_looks_at_nothing_is_not_a_pass():
    assert only(run(silent, colour="white")).reason == "crash"


def test_a_check_that_never_ends_is_interrupted(monkeypatch):
    monkeypatch.setattr(calls, "TIMEOUT_S", 0.2)
    report = run(endless, wall, colour="white")
    assert "took longer than" in report.results[0].findings[0].summary
    assert report.results[1].status is Status.PASS


def test_a_parser_that_never_ends_is_interrupted(monkeypatch):
    monkeypatch.setattr(calls, "TIMEOUT_S", 0.2)
    finding = only(run(wall, colour="endless"))
    assert (finding.status, finding.reason) == (Status.UNKNOWN, "crash")
    assert "took longer than 0.2 s" in finding.summary


def test_a_check_that_finds_something_for_ever_is_cut_off(monkeypatch):
    monkeypatch.setattr(calls, "MOST_FINDINGS", 30)
    report = run(talkative, wall, colour="white")
    *found, last = report.results[0].findings
    assert len(found) == 30 and "yielded more than 30 findings" in last.summary
    assert report.results[1].status is Status.PASS


@pytest.mark.parametrize("function", [needs, types])
def test_a_malformed_check_is_one_unknown(function):
    assert only(run(function, colour="white")).reason == "crash"


def test_a_run_ended_early_says_what_had_not_answered():
    async def go() -> Report:
        given = {Expect: Expect(), Moment: Moment(NOON)}
        node = {"hostname": "h", "boot_id": None}
        return Diagnosis(checks(wall), Recorded({}), given, node=node).report()

    finding = only(asyncio.run(go()))
    assert (finding.status, finding.reason) == (Status.UNKNOWN, "timeout")


def test_waivers_mark_and_never_hide():
    text = (
        "# agreed\nwall.colour 2026-01-02 painter comes on Monday\nwall.maybe 2020-01-01 long ago\nnonsense\n"
    )
    import json

    waivers = json.dumps({"files": {"/etc/nodedoctor/waivers": text}})
    report = run(wall, colour="grey", waivers=waivers)
    finding = only(report)
    assert finding.status is Status.FAIL
    assert finding.waived == "painter comes on Monday (until 2026-01-02)"
    assert document(report)["verdict"] == "pass"
    assert exit_code(document(report), "warn") == 0


def test_a_module_declares_only_what_is_its_own():
    import sys

    ids = [item.id for item in declared(sys.modules[__name__]) if isinstance(item, Check)]
    assert "wall.colour" in ids
    assert all(hasattr(item, "name") or hasattr(item, "id") for item in declared(sys.modules[__name__]))


def test_reserved_words_are_no_subjects():
    with pytest.raises(ValueError, match="subcommand"):
        check("triage.now", "No")
    with pytest.raises(ValueError, match=r"subject\.condition"):
        check("nodots", "No")


@pytest.mark.parametrize(
    ("findings", "fail_on", "code"),
    [
        ([Finding.ok("a")], "warn", 0),
        ([Finding.warn("a")], "fail", 0),
        ([Finding.warn("a")], "unknown", 0),
        ([Finding.warn("a")], "warn", 1),
        ([Finding.fail("a"), Finding.unknown("stuck", "b")], "fail", 2),
        ([Finding.warn("a"), Finding.unknown("stuck", "b")], "warn", 3),
        ([Finding.unknown("denied", "b")], "fail", 0),
        ([Finding.unknown("denied", "b")], "unknown", 3),
        ([Finding.warn("a"), Finding.unknown("denied", "b")], "warn", 1),
        ([Finding.skip("a")], "warn", 0),
    ],
)
def test_exit_codes(findings, fail_on, code):
    from nodedoctor.model import Result

    report = Report("0", "live", "", 0, {}, (Result("a.b", "t", tuple(findings)),))
    assert exit_code(document(report), fail_on) == code


def test_what_one_fact_makes_of_another_stands_in_the_report_once():
    @fact("colour", shown=False)
    @record
    class Said:
        """What was said."""

        word: str

        @classmethod
        def parse(cls, seen: Observation) -> "Said":
            return cls(seen.text)

    @fact(Said)
    @record
    class Heard:
        """What was understood."""

        word: str

        @classmethod
        def parse(cls, said: "Said | Unseen") -> "Heard | Unseen":
            return said if isinstance(said, Unseen) else cls(said.word)

    def judge(heard, said):
        """Whether they are the same."""
        yield Finding.ok(said.word) if heard == Heard(said.word) else Finding.fail(str(heard))

    judge.__annotations__ = {"heard": Heard, "said": Said}
    report = run(check("talk.same", "Heard as said")(judge), colour="white")
    assert only(report).summary == "white"
    assert document(report)["facts"] == {"heard": {"word": "white"}}


def test_what_a_fact_that_is_not_shown_says_is_shown_by_others():
    """By one that is made of it, or by all those it is made of."""
    facts = discover().facts.values()
    shown = {fact.cls for fact in facts if fact.shown}
    told = {source for fact in facts if fact.shown for source in fact.sources}
    hidden = [fact for fact in facts if not fact.shown]
    assert hidden
    assert [fact.name for fact in hidden if fact.cls not in told and not set(fact.sources) <= shown] == []
