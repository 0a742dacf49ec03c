"""Errors that their rank outlived: it counted on, or the whole job did, before another one failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits, elastic, judged, raised, steps

from nodedoctor.triage.patterns.handling import has_phrase

ERRORS = (
    "ValueError: no answer in the completion",
    "OSError: [Errno 116] Stale file handle: '/nfs/data/b.bin'",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has 79 GiB",
    "RuntimeError: DataLoader worker (pid 40122) is killed by signal: Killed. ",
)


def dated(first: int, count: int) -> str:
    """Steps that a logger prints with their time, without a rank."""
    return "".join(
        f"[2026-03-30 15:{n:02}:40] step {n} loss {5 / n:.3f}\n" for n in range(first, first + count)
    )


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("before", ["", dated(1, 8)])
def test_a_rank_did_not_end_with_an_error_behind_which_all_counted_on(
    error: str, before: str, tmp_path: Path
) -> None:
    log = before + raised(1, error) + dated(9, 8)
    assert judged(tmp_path, log).verdict.outcome == "clean"
    later = judged(tmp_path, log + raised(3, "KeyError: 'pixel_values'") + elastic([(3, 1)], 3))
    assert (later.verdict.cause, culprits(later)) == ("user_code_exception", [3])


@pytest.mark.parametrize("error", ERRORS[:3])
def test_a_rank_that_counts_itself_behind_its_error_went_on(error: str, tmp_path: Path) -> None:
    own = "".join(f"[rank1]: step {n} loss {5 / n:.3f}\n" for n in range(1, 4))
    assert judged(tmp_path, raised(1, error) + own).verdict.outcome == "clean"
    of_another = own.replace("[rank1]", "[rank2]")
    assert judged(tmp_path, raised(1, error) + of_another).verdict.outcome == "failure"


NEGATED = (
    "will not be retried",
    "not retrying",
    "fallback failed too",
    "no fallback available",
    "cannot be ignored",
    "could not be recovered",
    "nothing to fall back to",
    "retrying is disabled",
    "skipped 20 batches, giving up",
)


@pytest.mark.parametrize("words", NEGATED)
def test_a_negated_word_of_handling_handles_nothing(words: str, tmp_path: Path) -> None:
    assert not has_phrase(words)
    log = steps(1, 20) + raised(5, "KeyError: 'x'") + f"[rank5]: {words}\n"
    assert (found := judged(tmp_path, log)).verdict.outcome == "failure" and culprits(found) == [5]


def test_an_error_that_says_what_was_skipped_is_one(tmp_path: Path) -> None:
    log = raised(6, "RuntimeError: 20 batches skipped in a row, giving up") + elastic([(6, 1)], 6)
    assert culprits(judged(tmp_path, steps(1, 9) + log)) == [6]


STACK = (
    "Traceback (most recent call last):\n"
    '  File "/job/train.py", line 9, in <module>\n    main()\n'
    "KeyError: 'pixel_values'\n"
)


@pytest.mark.parametrize(
    "words", ["WARNING: NCCL_DEBUG ignored", "Using fallback tokenizer for the log", "upload will be retried"]
)
def test_what_python_printed_is_handled_by_words_about_it_alone(words: str, tmp_path: Path) -> None:
    log = f"{steps(1, 20)}{STACK}{words}\n"
    assert judged(tmp_path, log).verdict.outcome == "failure"
    about = f"{steps(1, 20)}{STACK}no pixel_values in sample 12, skipping it\n"
    assert judged(tmp_path, about).verdict.outcome == "clean"


FAILED_PLUGIN = "gpu-1:40:41 [0] init_plugin:260 NCCL WARN NET/OFI Failed to initialize rdma protocol\n"
CHOSEN = "gpu-1:40:41 [0] NCCL INFO Using network Socket\n"


def test_a_plugin_that_fails_is_no_failure_where_nccl_chose_another_network(tmp_path: Path) -> None:
    assert judged(tmp_path, FAILED_PLUGIN + CHOSEN + steps(1, 9)).verdict.outcome == "clean"
    other = CHOSEN.replace("gpu-1:40", "gpu-2:40")
    assert judged(tmp_path, FAILED_PLUGIN + other).verdict.cause == "network_ib"


def test_warnings_of_a_communicator_that_was_taken_down_in_order_are_no_failure(tmp_path: Path) -> None:
    warning = (
        "gpu-1:40:42 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.1.0.7<4> failed : x\n"
    )
    down = "gpu-1:40:40 [0] NCCL INFO comm 0x5 rank 0 nranks 4 cudaDev 0 busId 1b000 - Destroy COMPLETE\n"
    assert judged(tmp_path, steps(1, 9) + warning + down).verdict.outcome == "clean"
    assert judged(tmp_path, steps(1, 9) + down + warning).verdict.outcome == "failure"
    assert (
        judged(tmp_path, steps(1, 9) + warning + down.replace("Destroy", "Abort")).verdict.outcome
        == "failure"
    )


CLIENTS = (
    "openai.APIConnectionError: Connection error.",
    "redis.exceptions.ConnectionError: Error 111 connecting to cache:6379. Connection refused.",
    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='10.0.0.4', port=8000): Max retries",
)


@pytest.mark.parametrize("error", CLIENTS)
def test_a_lost_service_is_the_error_of_its_client(error: str, tmp_path: Path) -> None:
    log = raised(0, error) + elastic([(0, 1)], 0)
    assert (judged(tmp_path, log).verdict.cause, culprits(judged(tmp_path, log))) == (
        "user_code_exception",
        [0],
    )


@pytest.mark.parametrize("end", ["terminated with signal 9", "was killed by SIGSEGV", "exited with 139"])
def test_a_launcher_that_names_a_rank_and_its_signal(end: str, tmp_path: Path) -> None:
    found = judged(tmp_path, steps(1, 9) + f"ERROR: one or more processes (first noticed rank 17) {end}\n")
    assert (found.verdict.cause, culprits(found)) == ("peer_died", [17])


def test_a_program_that_saves_when_it_is_told_to_end_was_stopped(tmp_path: Path) -> None:
    saved = (
        "SIGTERM received, will checkpoint and exit after this step\nsaving checkpoint\ncheckpoint complete\n"
    )
    end = "W0611 10:21:22.118000 9 torch/elastic/agent/server/api.py:704] Received SIGTERM death signal\n"
    assert judged(tmp_path, steps(1, 9) + saved + end).verdict.outcome == "clean"
    failed = judged(tmp_path, steps(1, 9) + raised(2, "KeyError: 'x'") + saved + end)
    assert culprits(failed) == [2]


def of_process(pid: int, text: str) -> str:
    return "".join(f"(Trainer pid={pid}) {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("error", ERRORS[:3])
@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize(
    "count", ["step {n} loss 1.{n}", "Training Step:  {n}%|   | {n}/100 [0{n}:02<3:00:00, 60.2s/it]"]
)
def test_a_process_that_counts_behind_its_error_went_on(
    count: str, cut: int, error: str, tmp_path: Path
) -> None:
    """Also where the log begins amid the traceback, and its head is not there."""
    trace = ["Traceback (most recent call last):", '  File "/job/env.py", line 41, in step', "    f()", error]
    trace_text = "\n".join(trace[cut:])
    counts = "\n".join(count.format(n=n) for n in range(3, 8))
    went_on = of_process(3111, trace_text) + of_process(3111, counts)
    assert judged(tmp_path, went_on).verdict.outcome == "clean"
    other = of_process(3111, trace_text) + of_process(3112, counts)
    assert judged(tmp_path, other).verdict.outcome == "failure"


GRADED = (
    "NameError: name 'np' is not defined",
    "MemoryError",
    "RecursionError: too deep",
    "TypeError: no len()",
)
ACTORS = ("", "(Grader pid=41) ", "(Grader pid=41, ip=10.0.0.7) ")


def graded(error: str, actor: str, call: str = "grade", line: int = 88) -> str:
    """What a program prints of an exception that one of its calls caught."""
    shown = ("Traceback (most recent call last):", f'  File "/job/grade.py", line {line}, in {call}')
    shown += ("    exec(code)", '  File "<answer>", line 3, in <module>', error)
    return "".join(f"{actor}{text}\n" for text in shown)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("last", GRADED)
@pytest.mark.parametrize("actor", ACTORS)
def test_what_a_call_catches_as_before_ends_no_program(last: str, actor: str, tmp_path: Path) -> None:
    before = "".join(steps(n, 1) + graded(GRADED[n % 3], actor) for n in range(1, 9)) + steps(9, 1)
    for cut in (graded(last, actor) + steps(10, 1), graded(last, actor) + graded("", actor)[:-1]):
        assert judged(tmp_path, before + cut).verdict.outcome == "clean", cut
    assert (judged(tmp_path, before + graded(last, actor)).verdict.outcome == "clean") == bool(actor)
    for other in (
        graded(last, actor, call="<module>"),
        graded(last, actor, line=140),
        graded(last, actor, call="train"),
        graded(last, actor) + elastic([(3, 1)], 3),
    ):
        assert judged(tmp_path, before + other).verdict.outcome == "failure", other


def test_a_call_that_has_caught_little_may_end_its_program(tmp_path: Path) -> None:
    for count in (0, 2):
        before = "".join(steps(n, 1) + graded(GRADED[0], "") for n in range(1, 1 + count)) + steps(9, 1)
        assert judged(tmp_path, before + graded(GRADED[3], "")).verdict.outcome == "failure"


INTERRUPTS = (
    "Traceback (most recent call last):\n"
    '  File "/job/grade.py", line 88, in grade\n    exec(code)\nKeyboardInterrupt\n',
    "KeyboardInterrupt: cancelled\n",
)


@pytest.mark.parametrize("interrupt", INTERRUPTS)
@pytest.mark.parametrize("actor", ACTORS)
def test_a_job_that_counts_on_was_not_interrupted(interrupt: str, actor: str, tmp_path: Path) -> None:
    caught = "".join(f"{actor}{line}\n" for line in interrupt.splitlines())
    on = judged(tmp_path, steps(1, 9) + caught + steps(10, 5)).verdict
    assert (on.outcome, "interrupted" in on.headline) == ("clean", False)
    for text in (steps(1, 9) + caught, steps(1, 9) + caught + steps(10, 1)):
        assert "interrupted" in judged(tmp_path, text).verdict.headline
    often = "".join(steps(n, 4) + caught for n in range(1, 20, 4))
    assert ("interrupted" in judged(tmp_path, often).verdict.headline) == (not actor)
