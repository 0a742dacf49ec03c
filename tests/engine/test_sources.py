"""Each probe once, lanes that trip, a deadline that holds."""

import asyncio
import sys
import time

from nodedoctor.declare.registry import Command, Lane, Options, Probe, skipped
from nodedoctor.engine.live import Live
from nodedoctor.engine.sources import Recorded
from nodedoctor.model import Observation, Outcome


def shell(script: str) -> Command:
    return Command(("sh", "-c", script))


def probe(name, plan, lane=Lane.CPU, timeout=10.0, after=()):
    return Probe(name, "a test", plan, timeout, lane, after)


def observe(probes, *names, deadline=30.0):
    async def go():
        live = Live({p.name: p for p in probes}, Options(), deadline)
        try:
            return await asyncio.gather(*(live.ask(name) for name in names)), live
        finally:
            live.close()

    return asyncio.run(go())


def test_a_probe_runs_once_however_many_want_it(tmp_path):
    log = tmp_path / "log"
    once = probe("once", lambda options: shell(f"echo ran >> {log}; echo yes"))
    seen, live = observe([once], "once", "once", "once")
    assert [s.text for s in seen] == ["yes\n"] * 3
    assert log.read_text() == "ran\n"
    assert live.observations() == (seen[0],)


def test_a_probe_sees_what_came_before_it():
    first = probe("first", lambda options: shell("echo 8"))
    second = probe("second", lambda options, first: shell(f"echo {int(first.text) + 1}"), after=("first",))
    seen, _ = observe([first, second], "second")
    assert seen[0].text == "9\n"


def test_a_probe_may_decline():
    seen, _ = observe([probe("no", lambda options: skipped("no", "nothing to ask"))], "no")
    assert (seen[0].outcome, seen[0].note) == (Outcome.SKIPPED, "nothing to ask")


def test_a_plan_that_raises_is_a_crash_of_that_probe_only():
    def plan(options):
        raise KeyError("gone")

    seen, _ = observe([probe("bad", plan), probe("good", lambda options: shell("echo ok"))], "bad", "good")
    assert seen[0].outcome is Outcome.CRASH and "KeyError" in seen[0].note
    assert seen[1].text == "ok\n"


def test_an_unknown_probe_is_missing():
    seen, _ = observe([], "nowhere")
    assert seen[0].outcome is Outcome.MISSING


def test_a_driver_that_does_not_answer_is_not_asked_again():
    hang = probe("hang", lambda options: shell("sleep 60"), Lane.NVIDIA, timeout=0.2)
    later = probe("later", lambda options: shell("echo never"), Lane.NVIDIA)
    other = probe("other", lambda options: shell("echo fine"))
    seen, _ = observe([hang, later, other], "hang", "later", "other")
    assert [s.outcome for s in seen] == [Outcome.TIMEOUT, Outcome.SKIPPED, Outcome.OK]
    assert "hang" in seen[1].note


def test_a_slow_file_does_not_trip_its_lane():
    slow = probe("slow", lambda options: shell("sleep 60"), Lane.FS, timeout=0.2)
    fine = probe("fine", lambda options: shell("sleep 0.4; echo fine"), Lane.FS)
    more = probe("more", lambda options, slow: shell("echo more"), Lane.FS, after=("slow",))
    seen, _ = observe([slow, fine, more], "slow", "fine", "more")
    assert [s.outcome for s in seen] == [Outcome.TIMEOUT, Outcome.OK, Outcome.OK]


def test_the_deadline_ends_everything():
    probes = [probe(f"p{i}", lambda options: shell("sleep 60"), timeout=60) for i in range(12)]
    began = time.monotonic()
    seen, _ = observe(probes, *(p.name for p in probes), deadline=0.5)
    assert time.monotonic() - began < 10
    assert {s.outcome for s in seen} == {Outcome.TIMEOUT}


def test_load_on_gpus_waits_for_everything_else(tmp_path):
    log = tmp_path / "log"
    load = probe("load", lambda options: shell(f"echo load >> {log}"), Lane.GPU_LOAD)
    others = [
        probe(f"p{i}", lambda options, i=i: shell(f"sleep 0.{i}; echo other >> {log}")) for i in range(3)
    ]
    observe([load, *others], "load", *(p.name for p in others))
    assert log.read_text().split() == ["other", "other", "other", "load"]


def test_a_held_child_stays_until_the_end():
    code = "import os, sys; print(os.getpid(), flush=True); os.close(1); sys.stdin.read()"
    held = probe("held", lambda options: Command((sys.executable, "-c", code), hold=True), Lane.NVIDIA)
    check = probe("alive", lambda options, held: shell(f"kill -0 {held.text}"), Lane.NVIDIA, after=("held",))
    seen, _ = observe([held, check], "alive")
    assert seen[0].rc == 0


def test_what_others_wait_for_is_asked_first(tmp_path):
    log = tmp_path / "log"

    def noted(name, after=(), lane=Lane.NVIDIA):
        return probe(name, lambda *_: shell(f"echo {name} >>{log}"), lane, after=after)

    first, root, long = noted("first"), noted("root"), noted("long")
    probes = [first, root, long, noted("leaf", ("root",), Lane.CPU), noted("middle", ("long",), Lane.CPU)]
    probes += [
        noted("end", ("middle",), Lane.CPU),
        noted("load", lane=Lane.GPU_LOAD),
        noted("on", ("load",), Lane.GPU_LOAD),
    ]
    names = [one.name for one in probes]

    async def go():
        live = Live({one.name: one for one in probes}, Options(), 30)
        live.foresee(names)
        await asyncio.gather(*(live.ask(name) for name in names))
        live.close()

    asyncio.run(go())
    ran = log.read_text().split()
    assert [name for name in ran if name in ("first", "root", "long")] == ["long", "root", "first"]
    assert ran[-2:] == ["load", "on"]


def test_to_wait_for_what_nobody_has_is_to_wait_for_nothing(tmp_path):
    """A plug-in's probe may name one of another edition; and a probe that loads a GPU still runs."""
    after = probe("after", lambda *_: shell("echo after"), after=("nowhere",))
    load = probe("load", lambda *_: shell("echo load"), Lane.GPU_LOAD, after=("elsewhere",))
    names = ("after", "load")

    async def go():
        live = Live({one.name: one for one in (after, load)}, Options(), 30)
        live.foresee(names)
        assert live.waiting_for() == {} and live.observations() == ()
        seen = await asyncio.gather(*(live.ask(name) for name in names))
        live.close()
        return seen

    assert [one.text for one in asyncio.run(go())] == ["after\n", "load\n"]


def test_a_recording_answers_and_says_what_it_lacks():
    kept = Observation("kept", text="text")

    source = Recorded({"kept": kept})
    seen, lost = source.ask("kept").result(), source.ask("lost").result()
    assert seen is kept
    assert (lost.outcome, lost.note) == (Outcome.MISSING, "not in this recording")
