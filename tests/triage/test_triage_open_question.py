"""What an open verdict says: who waited, who ended, where the log breaks off, and what was said first."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, elastic, judged, raised, status

from nodedoctor.triage.model import Coverage
from nodedoctor.triage.timeline.build import build_timeline
from nodedoctor.triage.verdict.judge import judge_incident


def test_all_came_says_the_desync_report(tmp_path: Path) -> None:
    ranks = "0, 1, 2, 3, 4, 5"
    text = (
        "[rank4]:[E1121 10:00:00.1 ProcessGroupNCCL.cpp:1936] Rank 4\n\t - [4] Timeout at collective:"
        f" BROADCAST, #88\n\t   - [{ranks}] joined but didn't finish collective #88 (count from 1)\n"
    )
    verdict = judged(tmp_path, text).verdict
    assert verdict.outcome == "undetermined" and not verdict.culprits
    assert verdict.headline.startswith("all 6 ranks entered BROADCAST 88 and none left it")


def test_a_stall_of_horovod_that_passed_is_no_failure(tmp_path: Path) -> None:
    stall = "[2026-11-21 10:00:00.8: W horovod/common/operations.cc:588] grads_7 [missing ranks: 1]\n"
    assert judged(tmp_path, stall + "Training completed\n").verdict.outcome == "clean"


def test_nobody_lacks_an_error_whose_error_is_there(tmp_path: Path) -> None:
    error = "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors from rank 0\n"
    verdict = judged(tmp_path, error + elastic([(0, -15), (1, 1)], 1)).verdict
    assert "not in these logs" not in verdict.headline and "monitoredBarrier" in verdict.headline


def test_a_status_alone_tells_the_number_of_the_collective(tmp_path: Path) -> None:
    verdict = judged(tmp_path, status(2, 716, 747, 715)).verdict
    assert "rank 2 gave up waiting in collective number 716, with 31 more" in verdict.headline


def test_a_log_that_ends_in_a_traceback_says_where(tmp_path: Path) -> None:
    text = "".join(f"step {n} loss 2.{n}\n" for n in range(1, 20)) + raised(3, "")
    verdict = judged(tmp_path, text[: text.rindex("[rank3]: \n")]).verdict
    assert verdict.outcome == "undetermined" and "rank 3" in verdict.headline
    assert "train.py, line 41" in verdict.headline


def test_a_traceback_without_its_end_is_nothing_when_the_job_goes_on(tmp_path: Path) -> None:
    cut = raised(3, "")
    cut = cut[: cut.rindex("[rank3]: \n")]
    text = "".join(f"step {n} loss 2.{n}\n" for n in range(1, 20))
    more = "".join(f"step {n} loss 2.{n}\n" for n in range(20, 90))
    assert judged(tmp_path, text + cut + more).verdict.outcome == "clean"


def test_an_open_question_quotes_the_first_trouble(tmp_path: Path) -> None:
    text = "[rank2]: RuntimeError: NCCL communicator was aborted\n"
    assert "NCCL communicator was aborted" in judged(tmp_path, text).verdict.headline


def test_all_that_waited_in_one_collective_are_named(tmp_path: Path) -> None:
    verdict = judged(tmp_path, caught(2, seq=9, out=4096 * 8) + caught(5, seq=9, out=4096 * 8)).verdict
    assert verdict.headline.startswith("ranks 2 and 5 waited for 600 s in ALLREDUCE")


@pytest.mark.parametrize("length", [15, 24, 40])
def test_a_cut_announcement_of_the_watchdog_is_one(length: int, tmp_path: Path) -> None:
    line = caught(5)
    verdict = judged(tmp_path, line[: line.index("Watchdog") + length] + "\n").verdict
    assert verdict.headline == "rank 5 gave up waiting; no line gives the collective or its number"


def test_a_store_that_failed_for_itself_accuses_nobody(tmp_path: Path) -> None:
    text = (
        "[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving"
        " ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error:"
        " bad family\n"
    )
    verdict = judged(tmp_path, text).verdict
    assert verdict.cause == "undetermined" and "bad family" in verdict.evidence[0].text


def test_the_same_process_id_on_two_hosts_is_two_processes(tmp_path: Path) -> None:
    ray = (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker IP"
        " address: 10.1.0.{} Worker port: 10005 Worker PID: 833 Worker exit type: SYSTEM_ERROR\n"
    )
    heard = "(WorkerDict pid=833, ip=10.1.0.7) [rank12]: loading weights\n"
    heard += "(WorkerDict pid=833, ip=10.1.0.7) [rank12]: UserWarning: rank=12 uses defaults\n"
    assert culprits(judged(tmp_path, heard + ray.format(8))) == [None]
    assert culprits(judged(tmp_path, heard + ray.format(7))) == [12]


CALL = "OpType={}, TensorShape=[{}], TensorDtypes={}"
SUMS = (CALL.format("ALLREDUCE", "4, 2", "Float"), CALL.format("ALLREDUCE", "4, 3", "Float"))
OTHERS = (CALL.format("ALLREDUCE", "4", "Float"), CALL.format("BROADCAST", "1", "Long"))


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (*SUMS, "called ALLREDUCE with different tensors: rank 0: [4, 2] Float; rank 3: [4, 3] Float"),
        (*OTHERS, "at the same time: rank 0: ALLREDUCE [4] Float; rank 3: BROADCAST [1] Long"),
    ],
)
def test_a_mismatch_tells_in_what(one: str, other: str, said: str, tmp_path: Path) -> None:
    call = "Rank {} is running collective: CollectiveFingerPrint(SequenceNumber=9, {}))"
    text = f"RuntimeError: Detected mismatch between collectives on ranks. {call.format(0, one)}, but "
    assert said in judged(tmp_path, text + call.format(3, other) + "\n").verdict.headline


def test_rays_kill_names_the_node_and_how_full_it_was(tmp_path: Path) -> None:
    text = (
        "Memory on the node (IP: 10.2.0.9, ID: ab12) where the task (actor ID: 77, name=W.__init__, pid=4242,"
        " memory used=3.10GB) was running was 120.50GB / 126.00GB (0.956349), which exceeds the memory usage"
        " threshold of 0.95.\n"
    )
    headline = judged(tmp_path, text).verdict.headline
    assert headline.startswith(
        "the memory of 10.2.0.9 was full (120.50GB / 126.00GB), and Ray killed process 4242"
    )


def test_tasks_that_ended_together_are_parties(tmp_path: Path) -> None:
    text = "srun: error: gpu-005: tasks 40-42,47: Bus error\nsrun: error: gpu-004: tasks 0-39: Killed\n"
    verdict = judged(tmp_path, text).verdict
    assert verdict.headline == "ranks 40, 41, 42 and 47 were killed by SIGBUS" and not verdict.culprits
    assert [who.rank for who in verdict.parties] == [40, 41, 42, 47]


RAY = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    "\tclass_name: PolicyWorker\n\tpid: 4711\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n"
)


@pytest.mark.parametrize("first", ["ray", "watchdog"])
def test_rays_echo_is_one_wherever_it_stands(first: str, tmp_path: Path) -> None:
    watchdog = f"(PolicyWorker pid=4711) {caught(3)}"
    text = RAY + watchdog if first == "ray" else watchdog + RAY
    examined = judged(tmp_path, text)
    assert examined.verdict.cause == "undetermined" and not examined.verdict.culprits
    assert any("out-of-memory kill" in claim for claim, _ in examined.verdict.not_the_cause)
    assert judged(tmp_path, RAY.replace("4711", "4712") + watchdog).verdict.cause == "peer_died"


def test_a_symptom_of_many_forms_says_which_it_was(tmp_path: Path) -> None:
    text = raised(4, "ImportError: /opt/v/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi")
    assert judged(tmp_path, text).verdict.headline.endswith("(undefined symbol: _ZN3c104cuda9SetDeviceEi)")


def _notice(local: int, alive: int) -> str:
    """What torchelastic prints when it finds that processes ended; its list is not in the log."""
    head = "torch.distributed.elastic.multiprocessing.api: "
    stops = "".join(
        f"{head}[WARNING] Sending process {n} closing signal SIGTERM\n" for n in range(50, 50 + alive)
    )
    return f"{stops}{head}[ERROR] failed (exitcode: 1) local_rank: {local} (pid: 99) of binary: python\n"


def test_who_ended_while_all_others_lived_is_named(tmp_path: Path) -> None:
    for rank in (0, 3):
        examined = judged(tmp_path, elastic([(rank, 1), (5, -15)], rank))
        assert culprits(examined) == [rank] and examined.verdict.cause == "undetermined"


def test_of_several_found_ended_at_once_none_is_first(tmp_path: Path) -> None:
    verdict = judged(tmp_path, elastic([(0, 1), (2, 1), (3, -15)], 0)).verdict
    assert not verdict.culprits and [who.rank for who in verdict.parties] == [0, 2]
    assert "does not tell which one was first" in verdict.headline


def test_the_notice_without_its_list_tells_who_was_the_lowest(tmp_path: Path) -> None:
    assert culprits(judged(tmp_path, _notice(3, 2))) == [3]
    lowest = judged(tmp_path, _notice(0, 2)).verdict  # of the others nothing is known
    assert not lowest.culprits and [who.rank for who in lowest.parties] == [0]
    assert "nothing says whether others had ended before" in lowest.headline


def test_who_gave_up_waiting_did_not_end_first(tmp_path: Path) -> None:
    assert culprits(judged(tmp_path, status(2, 716, 747, 715) + elastic([(2, 1), (0, -15)], 2))) == []


@pytest.mark.parametrize("task", [0, 3])
def test_slurm_tells_ends_in_their_order(task: int, tmp_path: Path) -> None:
    others = {0: "tasks 1-3", 3: "tasks 0-2"}[task]
    end = f"srun: error: n7: task {task}: Exited with exit code 255\nsrun: Terminating job step 17.0\n"
    assert culprits(judged(tmp_path, f"{end}srun: error: n7: {others}: Terminated\n")) == [task]
    after = f"{end}srun: error: n7: {others}: Exited with exit code 1\n"
    assert culprits(judged(tmp_path, after)) == [task]
    together = after.replace("srun: Terminating job step 17.0\n", "")
    assert culprits(judged(tmp_path, together)) == []


def test_tasks_that_a_scheduler_sent_home_failed_at_nothing(tmp_path: Path) -> None:
    stop = "slurmstepd: error: *** JOB 608 ON n7 CANCELLED AT 2026-11-21T02:06:12 DUE TO JOB REQUEUE ***\n"
    end = "srun: error: n7: tasks 2-3: Exited with exit code 1\n"
    assert judged(tmp_path, stop + end).verdict.outcome == "clean"
    assert judged(tmp_path, end + stop).verdict.outcome == "undetermined"


def test_open_mpi_breaks_its_sentence_behind_a_long_name(tmp_path: Path) -> None:
    text = "prterun noticed that process rank 7 with PID 0 on node gpu0304 exited on\nsignal 6 (Aborted).\n"
    assert culprits(judged(tmp_path, text)) == [7]


@pytest.mark.parametrize("rank", [2, 11])
def test_the_process_that_aborted_all_is_the_one_that_got_a_signal(rank: int, tmp_path: Path) -> None:
    fault = "[pod-7:6939 :0:10213] Caught signal 11 (Segmentation fault: address not mapped to object)\n"
    text = f"{fault}MPI_ABORT was invoked on rank {rank} in communicator MPI_COMM_WORLD\nwith errorcode 1.\n"
    assert culprits(judged(tmp_path, text)) == [rank]


def test_all_that_ended_by_one_signal_at_one_look_are_named(tmp_path: Path) -> None:
    assert culprits(judged(tmp_path, elastic([(0, -11), (1, -11), (2, -15)], 0))) == [0, 1]
    assert culprits(judged(tmp_path, elastic([(0, -15), (1, -6), (2, -11)], 2))) == [2]


def test_a_rank_that_is_there_and_says_nothing_of_itself(tmp_path: Path) -> None:
    """The default group's sizes tell that there are two ranks, and both are read."""
    text = "Rank 1 prepares its share (batch 1)...\n"
    text += caught(0, seq=9, op="_ALLGATHER_BASE", numel=1024, out=2048) + status(0, 9, 12, 8)
    verdict = judged(tmp_path, text).verdict
    assert verdict.headline.endswith("in _ALLGATHER_BASE 9, and rank 1 does not say where it was")
    assert "all ranks" not in "".join(fix.text for fix in verdict.next)


def test_a_line_of_an_error_alone_shows_no_failure(tmp_path: Path) -> None:
    said = "2026-11-07 08:12:40,118 - ERROR - the second mirror is behind the first\n"
    verdict = judged(tmp_path, said).verdict
    assert verdict.outcome == "undetermined"
    assert verdict.headline.startswith("a line of an error was read, and nothing that shows whether")
    assert "the second mirror is behind" in verdict.headline
    ended = judged(tmp_path, said + "srun: error: n1: task 0: Exited with exit code 1\n").verdict
    assert "nothing that shows whether" not in ended.headline


@pytest.mark.parametrize("library", ["cuFFT", "cuDNN", "cuBLAS"])
def test_what_tensorflow_says_whenever_it_starts_is_no_failure(library: str, tmp_path: Path) -> None:
    said = (
        "E0000 00:00:1794039161.301218   81077 cuda_dnn.cc:8454] Unable to register {0} factory:"
        " Attempting to register factory for plugin {0} when one has already been registered\n"
    )
    assert judged(tmp_path, said.format(library)).verdict.outcome == "nothing"


def test_a_severity_before_the_log_is_set_up_is_one(tmp_path: Path) -> None:
    """Abseil has no date until then."""
    told = (
        "{}0000 00:00:1794039161.301218   81077 cuda_executor.cc:1001] could not open file to read the node\n"
    )
    assert judged(tmp_path, told.format("I")).verdict.outcome == "nothing"
    assert "could not open" in judged(tmp_path, told.format("E")).verdict.headline


@pytest.mark.parametrize(
    "text",
    [
        "[2026-11-07 08:12:41,118 | __main__ | CRITICAL]: \n\n=====\n",
        "2026-11-07 08:12:41 - job - ERROR - \n",
    ],
)
def test_an_error_without_words_is_none(text: str, tmp_path: Path) -> None:
    assert judged(tmp_path, text + "New run\n").verdict.outcome == "nothing"
    told = judged(tmp_path, text.replace("\n", "the index is gone\n", 1)).verdict
    assert told.outcome == "undetermined"


@pytest.mark.parametrize(
    ("coverage", "words"),
    [
        (Coverage(files=1, size=0, unread=1), "could be read; the notes say why"),
        (Coverage(files=1, size=0), "is empty"),
        (Coverage(files=1, size=9, unread=1), "1 line or file could not be opened"),
    ],
)
def test_what_could_not_be_read_is_not_called_empty(coverage: Coverage, words: str) -> None:
    assert words in judge_incident(build_timeline([]), coverage).headline


WATCHDOGS = {
    "[PG ID 0 PG GUID 0(default_pg) Rank 2] ProcessGroupNCCL's watchdog got stuck for 480 seconds without"
    " making progress in monitoring enqueued collectives.": "the watchdog of rank 2 was stuck for 480 s",
    "[Rank 2] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels,"
    " subsequent GPU operations might run on corrupted/incomplete data.": "the watchdog of rank 2 gave up",
    "[Rank 2] To avoid data inconsistency, we are taking the entire process down.": "the watchdog of rank 2"
    " gave up",
}


@pytest.mark.parametrize("words", WATCHDOGS)
def test_a_watchdog_s_own_lines_are_told_and_not_quoted(words: str, tmp_path: Path) -> None:
    line = f"[rank2]:[E1121 10:00:00.120000000 ProcessGroupNCCL.cpp:684] {words}\n"
    verdict = judged(tmp_path, line).verdict
    assert (verdict.outcome, verdict.culprits) == ("undetermined", ())
    assert verdict.headline.startswith(WATCHDOGS[words])
    raising = judged(tmp_path, raised(1, "ValueError: no label") + line).verdict
    assert raising.cause == "user_code_exception"


def test_the_shutdown_of_a_library_points_to_an_end_elsewhere(tmp_path: Path) -> None:
    line = "W tensorflow/core/framework/op_kernel.cc:1318] Aborted: Horovod has been shut down.\n"
    verdict = judged(tmp_path, line).verdict
    assert verdict.outcome == "undetermined" and "what ended first is not in these logs" in verdict.headline


@pytest.mark.parametrize(("ranks", "complete"), [((3,), False), ((0,), False), ((0, 1, 2, 3), True)])
def test_ranks_that_may_be_all_are_not_said_to_lack_others(
    ranks: tuple[int, ...], complete: bool, tmp_path: Path
) -> None:
    headline = judged(tmp_path, "".join(map(caught, ranks))).verdict.headline
    assert ("no line says whether there were others" in headline) is complete
    assert ("are not in these logs" in headline) is not complete
