"""Threads and helpers that end while their program is taken down, all its work done."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import elastic, judged, steps

BAR = "train:  {percent}%|####| {n}/{of} [00:{n:02}<00:30,  1.02s/it]\n"
SAID = "(TaskRunner pid=4100) "


def bars(upto: int, of: int = 40) -> str:
    """A bar that came so far."""
    return "".join(BAR.format(percent=100 * n // of, n=n, of=of) for n in range(1, upto + 1))


def in_thread(error: str, head: str = "Exception in thread Thread-7:\n", prefix: str = "") -> str:
    """An exception that ends a thread, in the words of `threading.excepthook`."""
    lines = [
        *head.splitlines(),
        "Traceback (most recent call last):",
        '  File "/opt/env/lib/python3.11/threading.py", line 1045, in _bootstrap_inner',
        "    self.run()",
        '  File "/opt/env/lib/python3.11/site-packages/summary/writer.py", line 202, in run',
        "    data = self._queue.get(True, wait)",
        error,
    ]
    return "".join(f"{prefix}{line}\n" for line in lines)


CLOSED = [
    "OSError: handle is closed",
    "RuntimeError: cannot schedule new futures after shutdown",
    "EOFError",
    "BrokenPipeError: [Errno 32] Broken pipe",
]


@pytest.mark.parametrize("error", CLOSED)
def test_a_writer_that_finds_things_closed_behind_a_full_bar_is_no_failure(
    error: str, tmp_path: Path
) -> None:
    assert judged(tmp_path, bars(40) + in_thread(error)).verdict.outcome == "clean"


@pytest.mark.parametrize(
    "text",
    [
        bars(31) + in_thread(CLOSED[0]),  # there was more to do
        bars(40) + in_thread("ValueError: a batch of 0"),  # which is no end of anything else
        bars(40) + in_thread(CLOSED[0], head=""),  # of the process itself
        bars(40) + in_thread(CLOSED[0]) + elastic([(1, -9)], 1),
    ],
)
def test_everything_else_that_is_raised_there_counts(text: str, tmp_path: Path) -> None:
    assert judged(tmp_path, text).verdict.outcome == "failure"


def loader(signal: str = "Killed", prefix: str = SAID) -> str:
    """What a process says of a loader that was killed."""
    lines = [
        "Traceback (most recent call last):",
        '  File "/opt/env/lib/python3.11/site-packages/ray/_private/worker.py", line 1031, in main_loop',
        "    self.core_worker.run_task_loop()",
        f"RuntimeError: DataLoader worker (pid 4377) is killed by signal: {signal}. ",
    ]
    return "".join(f"{prefix}{line}\n" for line in lines)


DONE = "{who}Training completed\n"


def test_a_loader_that_ends_before_its_process_says_that_it_is_done_is_no_failure(tmp_path: Path) -> None:
    work = steps(1, 30)
    assert judged(tmp_path, work + loader() + DONE.format(who=SAID)).verdict.outcome == "clean"
    for text in (
        work + loader(),
        work + loader() + DONE.format(who="(TaskRunner pid=4101) "),
        work + loader(prefix="") + DONE.format(who=""),  # who says it is not known
        bars(40) + loader(prefix=""),  # the next bar had not begun
        work + loader() + DONE.format(who=SAID) + elastic([(0, 1)], 0),
    ):
        assert judged(tmp_path, text).verdict.outcome == "failure", text[-200:]
