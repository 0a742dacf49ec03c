"""What looks like progress erases no death: only a restart does, and then a counter that gets past it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from say import caught, culprits, elastic, judged, raised, steps
from test_triage_stories import ACTOR, BANNER, LOGS, STORIES

from nodedoctor.triage.model import Verdict
from nodedoctor.triage.patterns.progress import all_counters, step_counter

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
LOOKS_LIKE_PROGRESS = {
    "a redrawn bar": "".join(
        f"Train:  42%|####2     | 420/1000 [07:1{second}<10:00,  1.03s/it]\r" for second in range(5)
    )
    + "\n",
    "a redrawn bar of rich": "".join(
        f"Epoch 1/3 ━━━━━━╸━━━━━ 420/1000 0:07:1{second} • 0:10:00 1.03it/s\r" for second in range(5)
    )
    + "\n",
    "heartbeats": "".join(f"2026-11-21 11:00:0{second} worker alive, loss 0.0\n" for second in range(6)),
    "a monitor": "".join(
        f"gpu0 util 98 % mem 71000 MiB batch 4 power {watt} W\n" for watt in range(300, 306)
    ),
    "step lines": steps(900, 10),
}


def dead() -> Iterator[tuple[str, str]]:
    """Logs of jobs that died: those of the tests, and the examples of the pages."""
    yield from ((name, row[0]) for name, row in STORIES.items())
    paths = [*LOGS.rglob("*.log"), *EXAMPLES.glob("*.log"), EXAMPLES / "sleeping-rank" / "node-0.log"]
    yield from ((path.name, path.read_text(errors="replace")) for path in sorted(paths))


@cache
def verdict(text: str) -> Verdict:
    """What is said of a log by itself."""
    with TemporaryDirectory() as folder:
        return judged(Path(folder), text).verdict


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOOKS_LIKE_PROGRESS)
def test_no_death_is_erased(kind: str, tmp_path: Path) -> None:
    became_clean = []
    for number, (name, text) in enumerate(dead()):
        folder = tmp_path / str(number)
        folder.mkdir()
        before = verdict(text)
        after = judged(folder, text.rstrip("\n") + "\n" + LOOKS_LIKE_PROGRESS[kind]).verdict
        if before.outcome == "failure" and after.outcome != "failure":
            became_clean.append(name)
        if before.timeline and after.cause == "none" != before.cause:
            became_clean.append(name)
    assert became_clean == []


@pytest.mark.parametrize(
    ("restart", "outcome"),
    [
        ("", "undetermined"),
        (BANNER, "recovered"),
        ("INFO:torch.distributed.elastic.agent.server.api:[default] Starting worker group\n", "recovered"),
    ],
)
def test_only_a_restart_ends_an_incident(restart: str, outcome: str, tmp_path: Path) -> None:
    text = steps(1, 5) + caught(0) + elastic([(0, -6), (1, -15)], 0) + restart + steps(4, 9)
    assert judged(tmp_path, text).verdict.outcome == outcome


def test_a_restart_that_does_not_get_past_the_death_is_no_recovery(tmp_path: Path) -> None:
    text = steps(1, 30) + caught(0) + BANNER + steps(10, 5)
    assert judged(tmp_path, text).verdict.outcome == "undetermined"


def test_a_handled_error_in_the_middle_is_survived(tmp_path: Path) -> None:
    text = steps(1, 5) + raised(0, "RuntimeError: bad sample") + steps(6, 9)
    assert judged(tmp_path, text).verdict.outcome == "clean"


def test_an_abort_as_the_last_word_is_not_clean(tmp_path: Path) -> None:
    for last in (
        "Aborted (core dumped)\n",
        "terminate called after throwing an instance of 'std::runtime_error'\n",
        "[E1121 10:20:30.000000000 worker.cpp:1] the loader is broken\n",
        "vm:1:2 [0] NCCL WARN a thing that nobody knows\n",
        "Trainer.fit` stopped: `max_steps=9` reached.\n" + caught(0) + "Aborted (core dumped)\n",
    ):
        assert judged(tmp_path, steps(1, 9) + last).verdict.cause != "none", last


def test_the_terminal_was_closed(tmp_path: Path) -> None:
    text = steps(880, 3) + (
        "W1103 03:11:22.123000 12 torch/distributed/elastic/agent/server/api.py:719] Received Signals.SIGHUP "
        "death signal, shutting down workers\n"
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 1\n"
    )
    verdict = judged(tmp_path, text + steps(900, 9)).verdict
    assert verdict.cause == "peer_died" and "terminal" in verdict.headline


NCCL2 = "".join(
    f"[rank{rank}]:[E1103 03:21:31.40182394{rank} ProcessGroupNCCL.cpp:640] [TC][rank={rank}][name=0] "
    f"Aborting process on rank {rank} due to timeout - timeout watchdog detected operation timeout\n"
    for rank in (1, 0, 2)
)


@pytest.mark.parametrize("tail", ["", elastic([(0, -6), (1, -6), (2, -6), (3, -15)], 1), ACTOR])
def test_timeouts_of_torch_2_15(tail: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(119, 2) + NCCL2 + tail).verdict
    assert verdict.cause in ("undetermined", "cpu_stuck_or_slow_rank")
    assert {who.rank for who in verdict.victims} == {0, 1, 2}
    assert not {who.rank for who in verdict.culprits} & {0, 1, 2}


def test_an_error_of_torch_2_15_is_read(tmp_path: Path) -> None:
    text = (
        steps(1, 9)
        + NCCL2.splitlines()[0].partition("Aborting")[0]
        + "nccl hit async error: ncclRemoteError\n"
    )
    assert judged(tmp_path, text).verdict.outcome != "clean"


@pytest.mark.parametrize("launcher", [ACTOR.replace("4243", "4100"), elastic([(3, -6), (1, -15)], 3)])
def test_a_rank_that_gave_up_and_aborted_did_not_die_of_itself(launcher: str, tmp_path: Path) -> None:
    """The watchdog timeout of a process, its own abort, and then the launcher's word that it is dead."""
    says = "(PolicyWorker pid=4100) "
    text = (
        says
        + caught(3)
        + says
        + "[rank3]:[E1121 10:21:30.000000000 ProcessGroupNCCL.cpp:753] [Rank 3] To avoid data inconsistency, "
        "we are taking the entire process down.\n"
        + says
        + "*** SIGABRT received at time=1763961211 on cpu 45 ***\n"
        + says
        + "Fatal Python error: Aborted\n"
        + launcher
    )
    examined = judged(tmp_path, text)
    assert (examined.verdict.cause, culprits(examined)) == ("undetermined", [])
    told = " ".join([*(fix.text for fix in examined.verdict.fixes), *(f.text for f in examined.verdict.next)])
    assert "out-of-memory" not in told


def test_counters() -> None:
    same = step_counter("Train:  42%|####2     | 420/1000 [07:10<10:00,  1.03s/it]")
    assert same == step_counter("Train:  42%|####2     | 420/1000 [07:44<10:01,  1.04s/it]")
    assert step_counter("Epoch [3/10], Step [100/500], loss 2.0") == ("epoch step", (3.0, 100.0))
    assert step_counter("{'loss': 2.3, 'epoch': 0.35}") == ("epoch", (0.35,))
    assert step_counter("Predicting: |   | 620/? [3:12:18<00:00,  0.05it/s]") == (
        "Predicting: |   |/?",
        (620.0,),
    )
    assert step_counter("620it [3:12:18, 18.60s/it]") == ("/?", (620.0,))
    assert step_counter("309/500 [11:50, 2.28s/it] last_len=340") == ("/500", (309.0,))
    assert step_counter(" [14/60 02:09 < 06:50, 0.11 it/s, Epoch 0.2/1]") == ("[/60", (14.0,))
    assert step_counter("found 620 files [3:12:18, none]") is None
    assert step_counter("  [ 40/79]  eta: 0:00:06  time: 0.16") == ("eta/79", (40.0,))
    assert step_counter("1987 train 3.418830") == ("train", (1987.0,))
    assert step_counter("4 train cars") is None
    assert step_counter("Epoch 2/9 ━━━━━━╸━━━━━━ 120/508 0:00:10 • 0:00:50 12.3it/s") == (
        "/9/508",
        (2.0, 120.0),
    )
    assert step_counter("scanning: 8% ━━────────── 640/8122 4.2Kit/s 2.1s") == ("scanning:/8122", (640.0,))
    assert step_counter("120/508 ━━━━━━━━━━━━━━━━━━━━ 10s 12ms/step - loss: 0.3") == ("/508", (120.0,))
    assert step_counter(" 12/508 [=====>.......] - ETA: 10s - loss: 0.3") == ("/508", (12.0,))
    assert step_counter("take 3/4 [by mail]") is None
    told = "Training loss: {loss} lr: 5.98e-06:   1%|          | {done}/10000 [02:18<7:08:34,  2.59s/it]"
    first, then = (
        step_counter(told.format(loss=loss, done=n)) for n, loss in enumerate(("2.77e+00", "2.6e+00"))
    )
    assert first is not None and then is not None and first[0] == then[0]
    assert step_counter('"metadata": {"epoch_num": 0.4537205081669691}') == ("epoch", (0.4537205081669691,))
    assert step_counter("save_steps=500 lr=1e-5 loss 2.0 98 %") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Test: [750/1814] Data 0.280 (0.847) Batch 0.405 (0.989).", ("test", (750.0,))),
        ("Test:  [  20/124]  eta: 0:01:10  loss: 0.61", ("test", (20.0,))),
        ("Train: 3 [1150/1251 ( 92%)]  Loss: 5.622 (5.64)", ("train ~1251", (3.0, 1150.0))),
        ("batch 0.512 s, data 0.1 s", None),
        ("step: 100.0 loss: 2.1", ("step", (100.0,))),
        ("epoch 1.25 loss 2.1", ("epoch", (1.25,))),
    ],
)
def test_what_a_meter_counts_and_what_it_times(
    text: str, found: tuple[str, tuple[float, ...]] | None
) -> None:
    assert all_counters(text) == found


def bar(first: int, last: int) -> str:
    """A bar that is drawn anew in one line."""
    draw = "\r {percent:3}%|##        | {done}/5153 [2:40:07<4:05:49,  4.97s/it]"
    return "".join(draw.format(percent=done * 100 // 5153, done=done) for done in range(first, last))


FULL = (
    'Traceback (most recent call last):\n  File "/job/score.py", line 276, in <module>\n    go(ids)\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 102.00 MiB.\n"
)


def test_a_bar_that_begins_again_goes_on_behind_an_error(tmp_path: Path) -> None:
    """Of a thousand drawings a few are read, which looks like steps of a thousand."""
    text = bar(0, 900) + "\n" + bar(0, 60) + FULL
    assert judged(tmp_path, text).verdict.cause == "peer_cuda_oom"
    assert judged(tmp_path, text + bar(60, 120) + "\n").verdict.outcome == "clean"


def test_a_line_that_saves_counts_as_well(tmp_path: Path) -> None:
    epochs = "".join(
        f"Epoch {epoch}, global step {352 * epoch}: 'val/loss' reached 0.4, saving model to '/job/m.pt'\n"
        for epoch in range(6)
    )
    assert judged(tmp_path, epochs).verdict.outcome == "clean"
    loads = "Loading checkpoint shards:  {done}%|###  | {done}/99 [00:{done}<00:01,  3.05it/s]\n"
    assert judged(tmp_path, "".join(loads.format(done=n) for n in range(10, 50))).verdict.outcome != "clean"


UNTIMED = {
    "a count": "Reading: {percent}%|{drawn}| {done}/20",
    "a percentage": "Reading: {percent}%|{drawn}|",
    "an old terminal": "{percent:3}%|{ascii}| {done}/20",
}


def untimed(form: str, done: int) -> str:
    """A bar of tqdm without a time."""
    drawn = "█" * (done // 2) + " " * (10 - done // 2)
    line = UNTIMED[form].format(percent=5 * done, drawn=drawn, ascii=drawn.replace("█", "#"), done=done)
    return line + "\n"


@pytest.mark.parametrize("form", UNTIMED)
def test_a_bar_without_a_time_counts(form: str, tmp_path: Path) -> None:
    rising = "".join(untimed(form, done) for done in (2, 6, 10, 16))
    assert judged(tmp_path, rising).verdict.outcome == "clean"


@pytest.mark.parametrize("form", UNTIMED)
@pytest.mark.parametrize("done", [8, 20])
def test_a_bar_that_is_seen_once_is_told_and_proves_nothing(form: str, done: int, tmp_path: Path) -> None:
    for text in (untimed(form, done), untimed(form, done) * 3):
        verdict = judged(tmp_path, text).verdict
        assert verdict.outcome == "undetermined" and "nothing was read" not in verdict.headline
        assert ("came to its end" in verdict.headline) == (done == 20)
        assert verdict.evidence
