"""Nothing passes unseen: whatever happens to one probe of a recorded node, no trouble turns into health."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from nodedoctor.declare.registry import check, fact
from nodedoctor.engine.run import Diagnosis, probes_of, utc_now
from nodedoctor.engine.session import Request, Session
from nodedoctor.engine.sources import Recorded, normalise_observation
from nodedoctor.facts.host.waivers import Waivers
from nodedoctor.model import Finding, Moment, Observation, Outcome, Result, Status, Unseen

ROOT = Path(__file__).parents[2]
NODES = sorted(
    path.parent
    for folder in (ROOT / "tests" / "nodes", ROOT / "nodedoctor" / "demo")
    for path in folder.glob("*/manifest.json")
)
TROUBLE = (Status.FAIL, Status.WARN)
HEALTH = (Status.PASS, Status.SKIP)


@fact("numbers")
@dataclass(frozen=True)
class Numbers:
    """What is always seen here."""

    @classmethod
    def parse(cls, seen: Observation) -> Numbers:
        return cls()


@fact("names")
@dataclass(frozen=True)
class Names:
    """What may be unseen, or seen in part."""

    partly: Unseen | None = None

    @classmethod
    def parse(cls, seen: Observation) -> Names | Unseen:
        if not seen.answered:
            return Unseen.of(seen)
        return cls(Unseen("unparsable", "the list is cut", probe="names") if "half" in seen.text else None)


OWN = {
    ("nvml", "driver.answers"),
    ("nvml", "driver.gpus-present"),
    ("nvidia-smi-xml", "driver.answers"),
    ("nvidia-smi", "driver.answers"),
    ("nvidia-smi-q", "driver.answers"),
}
"""Probe and check: a probe that hung or crashed is news about the driver or device it asked only."""


def _half(seen: Observation) -> str:
    return seen.text[: len(seen.text) // 2]


def _lost(seen: Observation) -> Iterator[tuple[str, Observation | None]]:
    """The same probe without an answer, or with half of one that looks whole."""
    yield "gone", None
    yield "denied", replace(seen, outcome=Outcome.DENIED, text="", rc=None, note="permission denied")
    yield "cut", replace(seen, text=_half(seen))
    yield "cut at a line", replace(seen, text=_half(seen)[: _half(seen).rfind("\n") + 1])


def _broken(seen: Observation) -> Iterator[tuple[str, Observation]]:
    """The same probe with the beginning of an answer, and its end as the engine saw it."""
    yield (
        "timeout",
        replace(seen, outcome=Outcome.TIMEOUT, text=_half(seen), rc=None, note="no answer in 9 s"),
    )
    yield "stuck", replace(seen, outcome=Outcome.STUCK, text=_half(seen), rc=None, note="pid 7 state D")
    yield "crash", replace(seen, outcome=Outcome.CRASH, text=_half(seen), rc=-11, note="SIGSEGV")


def _failed(seen: Observation) -> Iterator[tuple[str, Observation]]:
    """A tool of somebody else's that printed some of its lines, or all, and then ended with an error."""
    if seen.text.lstrip().startswith(("{", "[")):
        return  # of our own programs `entered` says what that means
    lines = seen.text.splitlines(keepends=True)
    for quarter in range(5):
        printed = "".join(lines[: len(lines) * quarter // 4])
        yield "failed", replace(seen, text=printed, rc=1, note="internal error")


class _Node:
    """A recorded node, judged again and again with one probe changed; only checks that rest on it are run."""

    def __init__(self, folder: Path) -> None:
        self.session = Session(Request(replay=folder, preview=True))
        assert self.session.snapshot is not None
        self.recorded = dict(self.session.snapshot.observations)
        self.rests = {item.id: probes_of(item) for item in self.session.checks}

    def judge(self, probe: str, changed: Observation | None) -> dict[str, Result]:
        seen = {name: one for name, one in self.recorded.items() if name != probe}
        seen |= {probe: changed} if changed else {}
        assert self.session.snapshot is not None
        self.session.snapshot = replace(self.session.snapshot, observations=seen)
        chosen = [item for item in self.session.checks if probe in self.rests[item.id]]

        async def run() -> dict[str, Result]:
            report = await self.session.diagnosis(chosen).run()
            return {result.check: result for result in report.results}

        return asyncio.run(run())


@pytest.fixture(scope="module", params=NODES, ids=lambda path: path.name)
def node(request: pytest.FixtureRequest) -> _Node:
    return _Node(request.param)


SLOW = pytest.mark.slow
KINDS = [
    pytest.param(("gone", "cut at a line"), id="lost"),
    pytest.param(("crash",), id="broken"),
    pytest.param(("failed",), id="failed"),
    pytest.param(("denied", "cut"), id="lost-otherwise", marks=SLOW),
    pytest.param(("timeout", "stuck"), id="broken-otherwise", marks=SLOW),
]


@pytest.mark.slow
@pytest.mark.parametrize("kinds", KINDS)
def test_less_seen_makes_no_trouble_health_and_nothing_a_failure(node: _Node, kinds: tuple[str, ...]) -> None:
    """Only the driver or device whose probe hung or crashed may fail because of it."""
    wrong = []
    for probe, seen in node.recorded.items():
        if not seen.answered:
            continue
        before = node.judge(probe, seen)
        for kind, changed in (*_lost(seen), *_broken(seen), *_failed(seen)):
            if kind not in kinds:
                continue
            asked = kind in ("timeout", "stuck", "crash")
            for name, result in node.judge(probe, changed).items():
                was = before[name].status
                healed = was in TROUBLE and result.status in HEALTH
                failed = result.status is Status.FAIL and was is not Status.FAIL
                failed = failed and not (asked and (probe, name) in OWN)
                if healed or failed:
                    wrong.append(f"{probe} {kind}: {name} {was.value} -> {result.worst}")
    assert wrong == []


@pytest.mark.sampled(2)
def test_line_ends_of_another_system_change_nothing(node: _Node) -> None:
    for probe, seen in node.recorded.items():
        changed = replace(seen, text=seen.text.replace("\n", "\r\n"))
        before, after = node.judge(probe, seen), node.judge(probe, changed)
        assert {key: result.findings for key, result in after.items()} == {
            key: result.findings for key, result in before.items()
        }, probe


@check("site.shared", "Both are seen")
def _both(numbers: Numbers, names: Names | None) -> Iterator[Finding]:
    """A PASS that an unseen fact could have turned."""
    yield Finding.ok("fine") if numbers else Finding.fail("bad", subject="a")
    yield Finding.fail("bad")


@check("site.excused", "One only names", without=(Names,))
def _one(numbers: Numbers, names: Names | None) -> Iterator[Finding]:
    """A PASS that stays one."""
    yield Finding.ok("fine")


def test_a_pass_is_unknown_without_what_it_needs_and_other_findings_stand() -> None:
    shared, excused = _judge_site(names=None)
    assert [(f.status, f.reason) for f in shared.findings] == [
        (Status.UNKNOWN, "missing-tool"),
        (Status.FAIL, None),
    ]
    assert shared.findings[0].without == "names: not in this recording"
    assert excused.status is Status.PASS
    shared, excused = _judge_site(names="a")
    assert [f.status for f in shared.findings] == [Status.PASS, Status.FAIL]


def test_a_fact_that_says_it_is_partial_passes_nothing() -> None:
    shared, excused = _judge_site(names="half of it")
    assert shared.findings[0].status is Status.UNKNOWN and shared.findings[0].reason == "unparsable"
    assert excused.status is Status.PASS


def _judge_site(names: str | None) -> list[Result]:
    seen = {"numbers": Observation("numbers", text="1")}
    seen |= {"names": Observation("names", text=names)} if names else {}
    declared_here = [function.__nodedoctor__ for function in (_both, _one)]
    given = {Moment: Moment(utc_now()), Waivers: Waivers(())}
    results = asyncio.run(Diagnosis(declared_here, Recorded(seen), given).run()).results
    return sorted(results, key=lambda result: result.check, reverse=True)


def test_half_of_an_answer_of_ours_that_ended_badly_is_a_crash() -> None:
    argv = ("/usr/bin/python3", "-I", "-S", "/opt/nodedoctor/probes/bandwidth.py", "--quick")
    seen = Observation(
        "bandwidth", text='{"step": "begin"}\n', rc=1, argv=argv, note="AttributeError: cuDevice"
    )
    assert normalise_observation(seen).outcome is Outcome.CRASH
    assert normalise_observation(seen).note == "AttributeError: cuDevice"
    assert normalise_observation(replace(seen, rc=0)).outcome is Outcome.OK
    foreign = replace(seen, argv=("nvidia-smi", "topo", "-m"))
    assert normalise_observation(foreign).outcome is Outcome.OK, (
        "nvidia-smi's exit codes are news, not a crash"
    )
