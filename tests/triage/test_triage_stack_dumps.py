"""Stacks of py-spy and faulthandler: whose they are, what they show, and what is behind them."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, judged, status, steps

from nodedoctor.triage.job import examine_job

WAITS = ("all_reduce (torch/distributed/distributed_c10d.py:2806)", "reduce (metrics.py:44)")
READS = ("findall (re/__init__.py:217)", "reward (rewards.py:41)")
WRITES = ("fsync (os)", "save (torch/serialization.py:967)")
BACKWARD = ("_engine_run_backward (torch/autograd/graph.py:825)", "backward (torch/_tensor.py:581)")
WORKS = (BACKWARD, ("forward (model/block.py:55)", "step (loop.py:84)"))
HEAD = "Process {pid}: python3 -u train.py\nPython v3.12.3 (/usr/bin/python3.12)\n\n"


def dump(rank: int, frames: tuple[str, ...], note: str = "", head: str = HEAD, state: str = "idle") -> str:
    """A dump by py-spy of process 20110 and on, below a note."""
    pid = 20110 + rank
    main = f'Thread {pid} ({state}): "MainThread"\n' + "".join(f"    {frame}\n" for frame in frames)
    other = f'Thread {pid + 700} (idle): "Thread-1 (_pin_memory_loop)"\n    select (selectors.py:415)\n'
    return note.format(rank=rank, pid=pid) + head.format(pid=pid) + main + other


def dumps(outside: int, frames: tuple[str, ...], note: str = "", head: str = HEAD, ranks: int = 8) -> str:
    """Dumps of all ranks, one of which is elsewhere."""
    return "\n".join(dump(rank, frames if rank == outside else WAITS, note, head) for rank in range(ranks))


@pytest.mark.parametrize("head", [HEAD, "", HEAD.partition("Python")[0], "\n"])
@pytest.mark.parametrize("state", ["idle", "active", "active+gil"])
def test_a_main_thread_is_enough_for_a_dump(head: str, state: str, tmp_path: Path) -> None:
    text = dumps(6, READS, "== rank {rank} (pid {pid}) ==\n", head).replace("(idle)", f"({state})")
    examined = judged(tmp_path, steps(1, 20) + text)
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [6])
    alone = judged(tmp_path, steps(1, 20) + dump(6, READS, head=head, state=state))
    assert alone.verdict.outcome == "undetermined"


NOTES = (
    "== rank {rank} ==\n", "=== py-spy dump rank {rank} (pid {pid}) ===\n", "### RANK {rank}\n",
    "$ py-spy dump --pid {pid}   # RANK={rank}\n", "# RANK={rank}\n", "rank {rank}\n", "Rank {rank} (hung)\n",
    "+ RANK={rank} py-spy dump --pid {pid}\n", "[rank{rank}] py-spy:\n", "--- rank: {rank} ---\n",
    "== rank {rank} ==\n$ sudo py-spy dump --pid {pid}\n", "**Rank {rank}**, local rank 3:\n\n",
    "# rank {rank} on gpu-07\n$ py-spy dump --pid {pid}\n", "rank {rank} @ n4\n",
    "PID {pid}, RANK {rank}:\n", "> py-spy dump -p {pid} # rank {rank}/8\n",
)  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("note", NOTES)
@pytest.mark.parametrize("head", [HEAD, ""])
def test_a_note_above_a_dump_names_its_rank(note: str, head: str, tmp_path: Path) -> None:
    for rank in (3, 7):
        examined = judged(tmp_path, steps(1, 20) + dumps(rank, READS, note, head))
        assert culprits(examined) == [rank]
    between = "Process {pid}: python3\nPython v3.12.3\n# RANK=%d\n"
    text = "".join(dump(rank, READS if rank == 5 else WAITS, head=between % rank) for rank in range(8))
    assert culprits(judged(tmp_path, text)) == [5]


@pytest.mark.parametrize("mark", ["> ", "| ", ">> "])
def test_a_note_above_a_dump_names_its_rank_in_a_cited_mail(mark: str, tmp_path: Path) -> None:
    note = "# rank {rank} on gpu-07\n$ py-spy dump --pid {pid}\n"
    text = steps(1, 20) + dumps(3, READS, note, HEAD + "\n")
    cited = "".join((mark + line).rstrip() + "\n" for line in text.splitlines())
    assert culprits(judged(tmp_path, cited)) == [3]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "note",
    [
        "# local rank {rank}\n",
        "# local_rank_{rank}\n",
        "# pp_rank={rank}\n",
        "# lora rank {rank}\n",
        "[rank{rank}]: process group destroyed\n",
        "2026-11-21 10:20:00 INFO rank {rank} wrote a dump\n",
        "# rank -{rank}\n", "# LOCAL_RANK={rank}\n", "# node rank {rank}\n", "# TP rank {rank}\n",
        "[rank{rank}] saved the shard\n", "rank {rank}: step 41 loss 2.3\n", "# rank {rank}, not rank 9\n",
        "$ py-spy dump --pid 999   # RANK={rank}\n", "$ py-spy dump --pid {pid} --rank {rank}\n",
        "grpo-worker-{rank}:\n", "# rank {rank}\nready to look at another one\n",
    ],
)  # fmt: skip
def test_other_notes_above_a_dump_name_no_rank(note: str, tmp_path: Path) -> None:
    head = HEAD.replace("train.py", "train.py --rank 6 --lora_rank=8 --out exp/rank_3 exp.rank6.yaml")
    assert culprits(judged(tmp_path, dumps(6, READS, head=head))) == [None]
    assert culprits(judged(tmp_path, dumps(6, READS, note))) == [None]


PAIRS = (
    "[rank{rank}] pid={pid} starting\n", "[rank{rank}]: PID={pid}\n"[:-1] + " RANK={rank}\n",
    "rank {rank}: pid {pid}\n", "RANK={rank} LOCAL_RANK=1 PID={pid}\n", "pid {pid} # RANK={rank}\n",
)  # fmt: skip
TABLES = (
    ("rank  pid\n", "{rank}     {pid}\n"),
    ("PID,RANK,GPU\n", "{pid},{rank},1\n"),
    ("| host | global_rank | pid |\n|------|-----|-----|\n", "| n4 | {rank} | {pid} |\n"),
    ("NODE     RANK   PID    COMMAND\n", "n4       {rank}      {pid}  python3 train.py\n"),
    ("", "{rank} {pid}\n"),
)


@pytest.mark.parametrize("pair", [("", pair) for pair in PAIRS] + list(TABLES[:-1]))
def test_pairs_of_ranks_and_processes_name_a_dump(pair: tuple[str, str], tmp_path: Path) -> None:
    heading, row = pair
    rows = heading + "".join(row.format(rank=rank, pid=20110 + rank) for rank in range(8))
    assert culprits(judged(tmp_path, rows + steps(1, 20) + dumps(6, READS))) == [6]
    hung = "Nov 21 10:10:11 n4 kernel: INFO: task python3:20116 blocked for more than 120 seconds.\n"
    assert culprits(judged(tmp_path, rows + steps(1, 20) + hung)) == [6]


@pytest.mark.parametrize(
    "table",
    [
        TABLES[-1], ("rank  pid\n", "{half}     {pid}\n"), ("local_rank  pid\n", "{rank}     {pid}\n"),
        ("rank and pid of each\n", "{rank} is {pid}\n"), ("rank  ppid\n", "{rank}   {pid}\n"),
    ],
)  # fmt: skip
def test_other_tables_name_no_dump(table: tuple[str, str], tmp_path: Path) -> None:
    heading, row = table
    rows = "".join(row.format(rank=rank, half=rank % 4, pid=20110 + rank) for rank in range(8))
    assert culprits(judged(tmp_path, heading + rows + dumps(6, READS))) == [None]


def test_a_rank_of_a_dump_is_that_of_a_task_that_hung(tmp_path: Path) -> None:
    hung = "Nov 21 10:10:11 n4 kernel: INFO: task pt_main_thread:20112 blocked for more than 120 seconds.\n"
    text = (
        steps(1, 20) + caught(0) + caught(1) + hung + dump(2, WRITES, "$ py-spy dump --pid {pid} # RANK=2\n")
    )
    examined = judged(tmp_path, text)
    assert culprits(examined) == [2] and "waits for storage that hangs" in examined.verdict.headline


WORKING = [dump(rank, WORKS[rank % 2], state="active+gil") for rank in range(4)]
TOOK = "# py-spy taken at 10:00:51, the job keeps running\n"


@pytest.mark.parametrize(
    ("texts", "outcome"),
    [
        ([steps(1, 20) + "".join(WORKING) + steps(21, 9)], "clean"),
        ([steps(1, 20) + WORKING[1] + steps(21, 9)], "clean"),
        ([steps(1, 20) + "".join(WORKING)], "undetermined"),
        (["".join(WORKING) + steps(1, 20)], "undetermined"),  # the log may have been pasted below them
        ([*WORKING, steps(1, 40)], "undetermined"),
        ([*WORKING, steps(1, 40) + "training complete, exit code 0\n"], "clean"),
        ([*WORKING, steps(1, 40) + TOOK + steps(41, 9)], "clean"),
        ([*WORKING, steps(1, 40) + "profile collected, the run continues\n" + steps(41, 9)], "clean"),
        ([*WORKING, steps(1, 40) + TOOK], "undetermined"),
        ([*WORKING, TOOK + steps(1, 40)], "undetermined"),
        ([dump(rank, WAITS) for rank in range(4)] + [steps(1, 9) + "training complete\n"], "undetermined"),
        ([dumps(2, READS, "# rank {rank}\n"), steps(1, 9) + "training complete\n"], "failure"),
        ([steps(1, 9) + "".join(WORKING) + "training complete, exit code 0\n"], "clean"),
        ([steps(1, 9) + dumps(2, READS, "# rank {rank}\n") + "training complete, exit code 0\n"], "clean"),
        (["training complete\n" + "".join(WORKING)], "undetermined"),
        ([*WORKING[:2], "[rank3]: training complete\n"], "undetermined"),
    ],
)
def test_stacks_of_work_and_what_is_behind_them(texts: list[str], outcome: str, tmp_path: Path) -> None:
    for name, text in zip("abcdef", texts, strict=False):
        (tmp_path / f"kept_{name}.txt").write_text(text)
    assert examine_job([str(tmp_path)]).verdict.outcome == outcome


OUTSIDE = (
    dump(6, READS, "# rank {rank}\n", state="active+gil"), dump(6, WRITES, "# rank {rank}\n", head=""),
    dump(6, READS, "$ py-spy dump --pid {pid}  # RANK={rank}\n", state="active"),
    dump(6, ("_write_item (torch/distributed/checkpoint/filesystem.py:284)",
             "all_reduce (torch/distributed/checkpoint/utils.py:243)"), "[rank{rank}] py-spy:\n"),
)  # fmt: skip


@pytest.mark.parametrize("stack", OUTSIDE)
@pytest.mark.parametrize("waiting", [(0,), (0, 1, 5)])
def test_one_dump_outside_of_what_others_timed_out_in(
    stack: str, waiting: tuple[int, ...], tmp_path: Path
) -> None:
    timeouts = "".join(map(caught, waiting))
    for text in (steps(1, 20) + timeouts + stack, stack + steps(1, 20) + timeouts):
        examined = judged(tmp_path, text)
        assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [6])
        assert examined.verdict.confidence in (("low",) if len(waiting) == 1 else ("low", "medium"))


@pytest.mark.parametrize(
    "text",
    [
        caught(0) + dump(0, READS, "# rank {rank}\n"),  # it waited itself
        caught(0) + dump(6, BACKWARD, "# rank {rank}\n", state="active"),  # so do its victims
        caught(0) + dump(6, READS),  # of an unknown rank
        caught(0) + dump(6, READS, "# rank {rank}\n") + dump(5, READS, "# rank {rank}\n"),
        caught(0) + dump(6, READS, "# rank {rank}\n") + dump(5, READS),
        caught(0) + status(0, 7, 9, 6, "5(mesh_tp)") + dump(6, READS, "# rank {rank}\n"),  # of another group
        caught(0) + caught(6) + dump(6, READS, "# rank {rank}\n"),
        "".join(map(caught, range(8))) + dump(6, READS, "# rank {rank}\n"),
    ],
)
def test_a_dump_that_shows_no_culprit(text: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, steps(1, 20) + text)
    assert 6 not in culprits(examined) and 5 not in culprits(examined)


LOADER = ("get (multiprocessing/queues.py:113)", "_worker_loop (torch/utils/data/_utils/worker.py:253)")
AGENT = (
    "sleep (time)",
    "_invoke_run (torch/distributed/elastic/agent/server/api.py:883)",
    "main (torch/distributed/run.py:896)",
)


def test_processes_beside_the_ranks_hold_none_up(tmp_path: Path) -> None:
    beside = dump(90, AGENT) + "".join(dump(rank, LOADER) for rank in range(100, 120))
    for text in (dumps(6, READS, "# rank {rank}\n") + beside, beside + dumps(6, READS, "# rank {rank}\n")):
        assert culprits(judged(tmp_path, steps(1, 20) + text)) == [6]
    for waits in (caught(0), dump(0, WAITS) + dump(1, WAITS)):
        assert culprits(judged(tmp_path, steps(1, 20) + waits + beside)) == []


@pytest.mark.parametrize(("state", "named"), [("idle", [6]), ("active+gil", [6]), ("active", [2, 5, 6])])
def test_who_waits_for_the_gpu_is_a_victim_beside_one_elsewhere(
    state: str, named: list[int], tmp_path: Path
) -> None:
    frames = {2: BACKWARD, 5: BACKWARD, 6: READS}
    states = {2: "active", 5: "active", 6: state}
    note = "# rank {rank}\n"
    text = "".join(dump(n, frames.get(n, WAITS), note, state=states.get(n, "idle")) for n in range(8))
    assert culprits(judged(tmp_path, steps(1, 20) + text)) == named
    two = dump(5, BACKWARD, note, state="active") + dump(6, READS, note, state=state)
    assert culprits(judged(tmp_path, steps(1, 20) + caught(0) + two)) == ([6] if state != "active" else [])


def fault(rank: int, *frames: tuple[str, int, str], start: str = "Timeout (0:30:00)!") -> list[str]:
    """What faulthandler prints on a rank: a thread of torch's loader, then the main thread."""
    head = "Thread 0x00007f1{} (most recent call first):"
    lines = [start, head.format(rank), '  File "/usr/lib/python3.12/threading.py", line 359 in wait']
    lines += ['  File "/usr/lib/python3.12/threading.py", line 1032 in _bootstrap', "", head.format(9)]
    lines += [f'  File "{file}", line {number} in {name}' for file, number, name in frames]
    return [f"[rank{rank}]: {line}\n" for line in lines]


IN_REDUCE = (
    ("/v/lib/python3.12/site-packages/torch/distributed/c10d_logger.py", 81, "wrapper"),
    ("/v/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 2810, "all_reduce"),
    ("/w/train.py", 41, "<module>"),
)
IN_REGEX = (("/usr/lib/python3.12/re/__init__.py", 217, "findall"), ("/w/rewards.py", 41, "<module>"))


@pytest.mark.parametrize("rank", [1, 3])
def test_stacks_of_faulthandler(rank: int, tmp_path: Path) -> None:
    one = steps(1, 20) + caught(0) + "".join(fault(rank, *IN_REGEX))
    examined = judged(tmp_path, one)
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [rank])
    mixed = zip(*(fault(n, *(IN_REGEX + IN_REGEX[1:] if n == rank else IN_REDUCE)) for n in range(4)))  # noqa: B905
    examined = judged(tmp_path, steps(1, 20) + "".join(line for lines in mixed for line in lines))
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [rank])
    assert "findall" in examined.verdict.headline


def test_stacks_of_faulthandler_that_show_no_culprit(tmp_path: Path) -> None:
    for lines in (fault(6, *IN_REDUCE), fault(0, *IN_REGEX)):
        assert 6 not in culprits(judged(tmp_path, steps(1, 20) + caught(0) + "".join(lines)))
    fatal = fault(6, *IN_REGEX, start="Fatal Python error: Aborted")
    examined = judged(tmp_path, steps(1, 20) + caught(0) + "".join(fatal))
    assert "findall" not in examined.verdict.headline
    passed = judged(tmp_path, steps(1, 20) + "".join(fault(6, *IN_REGEX)) + steps(21, 40))
    assert passed.verdict.outcome == "clean"


KERNEL = "Nov 21 10:10:11 n4 kernel: "
BLOCKED = KERNEL + "INFO: task python3:{pid} blocked for more than 120 seconds.\n"


@pytest.mark.parametrize(
    ("reports", "storage"),
    [
        (BLOCKED + KERNEL + "Call Trace:\n" + KERNEL + " ll_fsync+0x1ab/0x5d0 [lustre]\n", True),
        (BLOCKED + KERNEL + " rpc_wait_bit_killable+0x1e/0xb0 [sunrpc]\n", True),
        (BLOCKED + KERNEL + " xfs_file_fsync+0x1e/0xb0\n", True),
        (BLOCKED + KERNEL + " io_schedule+0x46/0x80\n", True),
        (KERNEL + "nfs: server nas7 not responding, still trying\n", True),
        (BLOCKED, False),
        (BLOCKED + KERNEL + " os_acquire_mutex+0x36/0x40 [nvidia]\n", False),
        (KERNEL + " nfs_file_read+0x76/0xc0 [nfs]\n" + BLOCKED, False),
    ],
)
def test_a_hang_in_a_file_system_says_so(reports: str, storage: bool, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 20) + caught(0) + caught(1) + reports.format(pid=20116)).verdict
    assert verdict.cause == "cpu_stuck_or_slow_rank"
    assert ("storage" in verdict.headline) is storage


WITH_OPTION = 'Process {pid}: python3 -u train.py {option}\nThread {pid} (idle): "MainThread"\n    {frame}\n'
IN_COLLECTIVE = "all_reduce (torch/distributed/distributed_c10d.py:2400)"


@pytest.mark.parametrize("option", ["--rank {}", "--rank={}", "--global_rank {}", "trainer.rank={}"])
def test_a_rank_in_the_commands_of_processes_is_theirs_where_all_differ(option: str, tmp_path: Path) -> None:
    def dumped(ranks: list[int]) -> str:
        return "".join(
            WITH_OPTION.format(
                pid=3000 + n,
                option=option.format(rank),
                frame="read (data.py:10)" if n == 2 else IN_COLLECTIVE,
            )
            for n, rank in enumerate(ranks)
        )

    assert culprits(judged(tmp_path, dumped([4, 5, 6, 7]))) == [6]
    assert culprits(judged(tmp_path, dumped([8, 8, 8, 8]))) == [None]
