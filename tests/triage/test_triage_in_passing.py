"""What a job meets in passing, and works on: cancelled saves, servers taken down, programs that it tried."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, judged, steps

from nodedoctor.triage.job import examine_job

CANCEL = "slurmstepd: error: *** JOB 661234 ON h11 CANCELLED AT 2026-03-08T01:40:00{why} ***\n"
DONE = "{'train_runtime': 9122.1, 'train_samples_per_second': 3.1, 'epoch': 1.0}\n"
MISTAKE = 'Traceback (most recent call last):\n  File "{file}", line 7, in <module>\n    f()\nKeyError: 1\n'


@pytest.mark.parametrize("why", ["", " DUE TO TIME LIMIT", " DUE TO PREEMPTION"])
@pytest.mark.parametrize(
    "last",
    [
        "Saving model checkpoint to out/checkpoint-139\nsrun: error: h11: task 0: Terminated\n",
        "[rank: 0] Received SIGTERM: 15\n[rank0]: lightning.pytorch.utilities.exceptions.SIGTERMException\n",
        "SystemExit: 143\n",
        "RuntimeError: received SIGTERM (signal 15)\n",
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:9, remote process exited\n",
    ],
)
def test_what_is_cancelled_saves_and_ends_in_its_own_way(why: str, last: str, tmp_path: Path) -> None:
    log = steps(1, 20) + CANCEL.format(why=why) + last
    assert judged(tmp_path, log).verdict.outcome == "clean"


@pytest.mark.parametrize(
    "error",
    [
        "KeyError: 1; falling back to default",
        "WARNING retry 1/3 after ConnectionResetError: [Errno 104] Connection reset by peer",
        "preprocessing worker 3 died (exit code -9), respawned; pool recovered",
    ],
)
def test_who_had_handled_an_error_is_killed_by_slurm_all_the_same(error: str, tmp_path: Path) -> None:
    log = steps(1, 20) + error + "\n" + steps(21, 8) + CANCEL.format(why=" DUE TO TIME LIMIT")
    assert judged(tmp_path, log + "srun: error: h11: tasks 0-7: Killed\n").verdict.outcome == "clean"


@pytest.mark.parametrize("word", ["respawned", "restarted", "replaced"])
def test_a_worker_in_whose_place_is_another_ended_nothing(word: str, tmp_path: Path) -> None:
    log = steps(1, 20) + f"loader worker 3 died (exit code -9), {word}\n" + steps(21, 3)
    assert judged(tmp_path, log).verdict.outcome == "clean"


@pytest.mark.parametrize(
    "end",
    [
        "ERROR 12-18 02:33:10 [core_client.py:600] Engine core proc EngineCore_DP0 died unexpectedly,"
        " shutting down client.\n",
        "asyncio.exceptions.CancelledError\n",
    ],
)
@pytest.mark.parametrize("done", [DONE, "|  Tasks  |Version|     Filter     |n-shot|  Metric   |\n"])
def test_servers_are_taken_down_behind_a_success(done: str, end: str, tmp_path: Path) -> None:
    assert judged(tmp_path, steps(1, 20) + done + end).verdict.outcome == "clean"


def test_an_engine_that_dies_before_the_success_is_a_failure(tmp_path: Path) -> None:
    end = "Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.\n"
    assert judged(tmp_path, steps(1, 20) + end).verdict.cause == "peer_died"


def test_ray_reports_the_success_of_a_job_that_lost_a_worker(tmp_path: Path) -> None:
    lost = "(raylet) A worker died or was killed while executing a task by an unexpected system error.\n"
    done = "SUCC cli.py:63 -- Job 'raysubmit_p1' succeeded\n"
    assert judged(tmp_path, steps(1, 20) + lost + done).verdict.outcome == "clean"
    assert judged(tmp_path, steps(1, 20) + lost + steps(21, 4)).verdict.outcome == "clean"
    assert judged(tmp_path, steps(1, 20) + lost).verdict.cause == "peer_died"


@pytest.mark.parametrize("next_line", ["INFO task prepare_shard retried (1/3), done", "task f resubmitted"])
def test_a_task_that_ray_runs_again_lost_nothing(next_line: str, tmp_path: Path) -> None:
    lost = (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. RayTask"
        " ID: 1631 Worker ID: 8f2a Worker IP address: 10.0.0.9 Worker PID: 7781"
        " Worker exit type: SYSTEM_ERROR\n"
    )
    log = steps(1, 20) + lost + f"{next_line}\n" + steps(21, 1)
    assert judged(tmp_path, log).verdict.outcome == "clean"


@pytest.mark.parametrize("prefix", ["2026-12-11 04:00:54,906 [worker 1] ", "[R06/08] ", ""])
def test_a_logger_puts_its_prefix_in_front_of_the_first_line_only(prefix: str, tmp_path: Path) -> None:
    def logged(text: str) -> str:
        return "".join(f"{prefix}{line}\n" for line in text.splitlines())

    error = MISTAKE.format(file="/app/save.py").replace("<module>", "save")
    log = logged(steps(1, 20)) + logged("WARNING async save failed and is ignored") + error
    assert judged(tmp_path, log + logged("step 21 loss: 2.1")).verdict.outcome == "clean"


def test_a_process_that_is_done_did_not_end_by_its_error(tmp_path: Path) -> None:
    error = "".join(f"(entry pid=51) {line}\n" for line in MISTAKE.format(file="main.py").splitlines())
    done = "(entry pid={}) trainer:train:290 - Training done!\n"
    log = "".join(f"(entry pid=51) {line}\n" for line in steps(1, 20).splitlines()) + error
    assert judged(tmp_path, log + done.format(51)).verdict.outcome == "clean"
    assert judged(tmp_path, log + done.format(52)).verdict.cause == "user_code_exception"


@pytest.mark.parametrize("folder", ["/tmp/tmpx81q_2ab", "/srv/sandbox/x81"])
def test_what_a_program_wrote_and_tried_is_none_of_the_job(folder: str, tmp_path: Path) -> None:
    tried = MISTAKE.format(file=f"{folder}/solution.py")
    assert judged(tmp_path, steps(1, 20) + tried + caught(3)).verdict.cause != "user_code_exception"
    assert judged(tmp_path, steps(1, 20) + tried + steps(21, 1)).verdict.outcome == "clean"


ROWS = (
    "it={n} loss=2.31 lr=1e-4", "it {n} loss 2.31", "[{n:05d}] fps=1204 reward=3.1", "{n} 2.31 0.0001",
    "|  {n}  | 2.31 | 1.0e-4 |", "upd {n:04d} | loss=2.000 | seq=3064", "u={n} nll=2.000 g=0.40",
    "{n:06d}  ce 2.9000  |g| 4.10",
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_a_number_in_front_of_measures_is_progress(row: str, tmp_path: Path) -> None:
    def rows(first: int, last: int) -> str:
        return "start\n" + "".join(row.format(n=10 * n) + "\n" for n in range(first, last))

    reward = "ERROR:root:reward failed\n" + MISTAKE.format(file="/job/reward.py")
    assert judged(tmp_path, rows(5, 12) + reward + rows(12, 20)).verdict.outcome == "clean"


@pytest.mark.parametrize("aside", ["INFO last step 4200", "INFO micro step 3", "resumed from step 0"])
def test_one_line_with_another_number_begins_no_part(aside: str, tmp_path: Path) -> None:
    error = "RuntimeError: CUDA error: out of memory\n"
    log = steps(1, 20) + error + steps(21, 2) + aside + "\n" + steps(23, 2)
    assert judged(tmp_path, log).verdict.outcome == "clean"


def rows_of_work(seconds: int, words: str) -> str:
    """Thirty lines of one form, so many seconds apart."""
    clocks = (divmod(seconds * number, 60) for number in range(30))
    return "".join(
        f"2026-12-11 04:{minute:02}:{second:02} {words.format(n=number)}\n"
        for number, (minute, second) in enumerate(clocks)
    )


def test_lines_of_one_form_are_work(tmp_path: Path) -> None:
    skipped = "ERROR in-17.gz failed, skipped\n" + MISTAKE.format(file="/app/prep.py").replace(
        "<module>", "parse"
    )
    parsed = rows_of_work(3, "parsed in-{n:03d}.gz: {n}36 docs kept")
    assert judged(tmp_path, parsed + skipped + parsed).verdict.outcome == "clean"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(3, "still waiting for peers, try {n}"), (0, "process {n} is ready"), (3, "rank {n} ready")],
)
def test_lines_of_one_form_that_wait_or_come_at_once_are_none(
    seconds: int, words: str, tmp_path: Path
) -> None:
    assert judged(tmp_path, rows_of_work(seconds, words)).verdict.outcome != "clean"


def test_who_raised_without_a_rank_is_the_one_that_never_came(tmp_path: Path) -> None:
    error = MISTAKE.format(file="/app/train.py")
    waits = "".join(caught(rank) for rank in range(8) if rank != 5)
    examined = judged(tmp_path, steps(1, 20) + error + waits)
    assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", [5])


def test_a_summary_is_read_behind_a_name_in_brackets(tmp_path: Path) -> None:
    lines = (
        "failed (exitcode: -11) local_rank: 4 (pid: 44) of binary: /usr/bin/python3.11",
        "Root Cause (first observed failure):",
        "[0]:",
        "  host      : pt-worker-2",
        "  rank      : 20 (local_rank: 4)",
        "  exitcode  : -11 (pid: 44)",
        "  traceback : Signal 11 (SIGSEGV) received by PID 44",
    )
    rows = "".join(f"[pt-worker-1] step {n} loss 1.8\n[pt-worker-2] took {n} ms\n" for n in range(700, 730))
    log = tmp_path / "job.log"
    log.write_text(rows + "".join(f"[pt-worker-2] {line}\n" for line in lines))
    assert culprits(examine_job([str(log)])) == [20]


def stalled(missing: int, times: int) -> str:
    """Horovod's report that a rank did not come, printed by rank 0 under mpirun."""
    head = (
        "[1,0]<stderr>:[2026-12-11 10:00:00: W /b/horovod/common/stall_inspector.cc:107] One or more tensors "
    )
    report = (
        f"{head}were submitted\n[1,0]<stderr>:Missing ranks:\n[1,0]<stderr>:{missing}: [allreduce.fc.bias]\n"
    )
    return report * times


def epochs(first: int, last: int) -> str:
    return "".join(
        f"[1,0]<stdout>:Epoch: 2 [{n * 100}/5000]\tLoss: 0.{999 - n}\n" for n in range(first, last)
    )


HANDLED = (
    "weight sync failed: RuntimeError: NCCL error; retrying\n",
    MISTAKE.format(file="x.py").replace("Tr", "E bad row, ignored\nTr"),
)


@pytest.mark.parametrize("at", [1, 9, 25, 36])
@pytest.mark.parametrize("handled", HANDLED)
def test_a_stall_behind_the_last_step_is_weighed_whatever_was_handled(
    handled: str, at: int, tmp_path: Path
) -> None:
    log = epochs(0, at) + handled + epochs(at, 40) + stalled(3, times=4)
    examined = judged(tmp_path, log + "[1,0]<stderr>:HorovodInternalError: Horovod has been shut down\n")
    assert examined.verdict.cause == "cpu_stuck_or_slow_rank" and culprits(examined) == [3]


@pytest.mark.parametrize("times", [1, 3])
def test_a_stall_is_over_where_who_was_missing_prints_on(times: int, tmp_path: Path) -> None:
    came = "[1,0]<stdout>:Test set: Average loss: 0.0712\n[1,0]<stdout>:saved model.pt\n"
    log = epochs(0, 40) + stalled(0, times)
    assert judged(tmp_path, log).verdict.outcome == "failure"
    assert judged(tmp_path, log + came).verdict.outcome == "clean"
    assert judged(tmp_path, log + came + stalled(0, 1)).verdict.outcome == "failure"


OFI = "NCCL WARN NET/OFI Unable to find a protocol that worked. Failed to retrieve libfabric provider\n"
UP = "NCCL INFO ncclCommInitRankConfig comm 0x88 rank {0} nranks 2 cudaDev 0 busId 1e0 - Init COMPLETE"


def test_a_network_that_nccl_did_without_is_no_failure(tmp_path: Path) -> None:
    front = "bert-0:31:60 [0] "
    log = front + OFI + front + "NCCL INFO Using network Socket\n" + front + UP.format(0) + "\n"
    assert judged(tmp_path, log + "step 1000 acc 0.4\nstep 2000 acc 0.5\n").verdict.cause == "none"


@pytest.mark.parametrize("front", ["bert-0:32:61 [1] ", "bert-1:31:60 [0] "])
def test_the_communicator_of_another_process_says_nothing_of_this_one(front: str, tmp_path: Path) -> None:
    log = front + OFI + "bert-0:31:60 [0] " + UP.format(0)
    assert judged(tmp_path, log).verdict.cause == "network_ib"


@pytest.mark.parametrize(
    "words", ["GPU{}: 0000:81:00.0: GPU is lost.", "GPU {}: 0000:81:00.0: Unknown Error"]
)
def test_a_lost_gpu_is_of_the_rank_that_failed_on_it(words: str, tmp_path: Path) -> None:
    error = "[rank2]: torch.AcceleratorError: CUDA error: unspecified launch failure\n"
    listed = "E1125 10:10:12.8 9 torch/x.py:874] failed (exitcode: 1) local_rank: 2 (pid: 933) of binary: x\n"
    for gpu, named in ((2, [2]), (3, [None])):
        lost = f"Unable to determine the device handle for {words.format(gpu)}\n"
        examined = judged(tmp_path, error + listed + lost)
        assert examined.verdict.cause == "gpu_hardware_xid" and culprits(examined) == named


def test_a_helper_that_a_shell_kills_far_back_leaves_later_errors_handled(tmp_path: Path) -> None:
    killed = "bash: line 1: 44121 Killed                  timeout -s KILL 60 python /tmp/patch.py\n"
    log = "".join(
        f"(driver pid=20114) step {n} reward 0.4{n}\n" + ("(pool pid=20930) " + killed if n == 3 else "")
        for n in range(60)
    )
    error = "ERROR agent loop failed\n" + MISTAKE.format(file="/w/runtime.py")
    late = "".join(f"(driver pid=20114) {line}\n" for line in error.splitlines())
    done = "(driver pid=20114) Training done!\n"
    assert judged(tmp_path, log + late + done).verdict.outcome == "clean"
    assert judged(tmp_path, log + late).verdict.cause == "user_code_exception"


@pytest.mark.parametrize(
    "front",
    ["[rank{}]: ", "[2026-08-08 08:23:20,501][rank {}][INFO] ", "[2026-08-08 08:23:20,501][rank{}][INFO] "],
)
def test_who_speaks_is_in_front_and_not_whom_the_words_mention(front: str, tmp_path: Path) -> None:
    bye = front.format(7) + "training done, saving nothing (not rank 0), bye\n"
    waits = "".join(
        f"[rank{rank}]:[E0808 08:33:20.9 ProcessGroupNCCL.cpp:683] [Rank {rank}] Watchdog caught collective"
        " operation timeout: WorkNCCL(SeqNum=62011, OpType=ALLREDUCE, NumelIn=9, NumelOut=9,"
        " Timeout(ms)=600000) ran for 600053 milliseconds before timing out.\n"
        for rank in range(7)
    )
    examined = judged(tmp_path, steps(1, 20) + bye + waits)
    assert examined.verdict.cause == "collective_mismatch" and culprits(examined) == [7]
