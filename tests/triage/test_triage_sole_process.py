"""One process that was seen to end is who an error line of its log is of; marks of a chat hide nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged, steps

from nodedoctor.triage.lines.plain import plain_text

FAULTS = (
    "Memory access fault by GPU node-4 on address 0x7e11c4000. Reason: Page not present.",
    "Memory access fault by GPU **node-4** on address 0x7e11c4000. Reason: Page not present.",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
)
ENDED = "*** SIGABRT (@0x21c4) received by PID {pid} (TID 0x7f1a) from PID {pid}; stack trace: ***\n"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("first", [True, False])
def test_an_error_is_of_the_one_process_that_ended(fault: str, first: bool, tmp_path: Path) -> None:
    ended = ENDED.format(pid=8812)
    text = f"{fault}\n{ended}" if first else f"{ended}{fault}\n"
    verdict = judged(tmp_path, steps(1, 9) + text).verdict
    assert [who.pid for who in verdict.culprits] == [8812]
    two = judged(tmp_path, steps(1, 9) + text + ENDED.format(pid=8813)).verdict
    assert two.cause == verdict.cause and not two.culprits


@pytest.mark.parametrize(
    ("marked", "shown"),
    [
        ("fault by GPU **node-2** on", "fault by GPU node-2 on"),
        ("**Error:** no space", "Error: no space"),
        ("fn(*args, **kwargs) and fn(**a, **b)", "fn(*args, **kwargs) and fn(**a, **b)"),
        ("2**3 + 4**5", "2**3 + 4**5"),
        ("address: [10.0.1.7](http://10.0.1.7/) port", "address: 10.0.1.7 port"),
        ("mail [ml@a.org](mailto:ml@a.org)", "mail ml@a.org"),
        ("index[0](x) and [rank0](http://n1/)", "index[0](x) and [rank0](http://n1/)"),
        ("***** Running training *****", "***** Running training *****"),
        (
            "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED ***",
            "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED ***",
        ),
    ],
)
def test_marks_of_a_page_are_none_of_the_text(marked: str, shown: str) -> None:
    assert plain_text(marked) == shown


@pytest.mark.parametrize("milliseconds", [60000, 300000])
def test_a_store_that_did_not_answer(milliseconds: int, tmp_path: Path) -> None:
    text = f"RuntimeError: connect() timed out. Original timeout was {milliseconds} ms.\n"
    verdict = judged(
        tmp_path, 'Traceback (most recent call last):\n  File "x.py", line 3, in f\n' + text
    ).verdict
    assert verdict.cause == "network_socket_interface"


def test_of_a_cut_traceback_of_a_spawned_process_its_rank_is_named(tmp_path: Path) -> None:
    lines = (
        "Traceback (most recent call last):",
        '  File "C:\\env\\torch\\multiprocessing\\spawn.py", line 160, in join',
        "    raise ProcessRaisedException(msg, error_index, failed_process.pid)",
        "torch.multiprocessing.spawn.ProcessRaisedException:",
        "",
        "-- Process 5 terminated with the following error:",
        "Traceback (most recent call last):",
        '  File "C:\\job\\save.py", line 423, in save',
        "    write(",
    )
    verdict = judged(tmp_path, "\n".join(lines) + "\n").verdict
    assert [who.rank for who in verdict.culprits] == [5]


LATE = (
    'Traceback (most recent call last):\n  File "/job/train.py", line 84, in <module>\n    main()\n'
    '  File "/job/evaluate.py", line 143, in {function}\n    from scripts.labels import names\n'
    "ModuleNotFoundError: No module named 'scripts.labels'\n"
)


def test_a_function_imports_when_it_is_called(tmp_path: Path) -> None:
    """What a program cannot import at its start is another one's, once it counts; a function may be late."""
    late = judged(tmp_path, steps(1, 60) + LATE.format(function="process")).verdict
    assert (late.outcome, late.cause) == ("failure", "user_code_exception")
    assert judged(tmp_path, steps(1, 60) + LATE.format(function="<module>")).verdict.outcome != "failure"


@pytest.mark.parametrize(
    "bar", ["train:   8%|###   | {n}/99 [00:{n}<01:09,  2.59s/it]", "{n}/99 loss: 2.9100"]
)
@pytest.mark.parametrize("died", ["Killed", "Segmentation fault (core dumped)", "Bus error"])
def test_what_the_shell_says_may_stand_behind_a_bar(bar: str, died: str, tmp_path: Path) -> None:
    drawn = "\r".join(bar.format(n=n) for n in range(10, 40))
    assert judged(tmp_path, drawn + died + "\n").verdict.cause == "peer_died"
    assert judged(tmp_path, drawn + "\nEnemies:39" + died + " more than\n").verdict.cause != "peer_died"
