"""The last words of launchers, shells and sessions: what they leave open, and what they settle."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged, raised, steps

from nodedoctor.triage.verdict.decision.kind import kind_of

TERMINATED = (
    "Terminated",
    "run.sh: line 12: 88123 Terminated              {command}",
    "[1]+  Terminated              {command}",
    "[1]    4411 terminated  {command}",
    "zsh: terminated  {command}",
    "fish: Job 1, '{command}' terminated by signal SIGTERM (Polite quit request)",
)
ENDED_WELL = (
    "[exiting program at iteration 30] datetime: 2026-11-29 14:00:00 ",
    "[exiting program after 234.1 minutes] datetime: 2026-11-29 14:00:00 ",
    "2026-11-29 11:00:01,104 sagemaker-training-toolkit INFO     Reporting training SUCCESS",
    "LAUNCH INFO 2026-11-29 10:11:01,100 Pod completed\nLAUNCH INFO 2026-11-29 10:11:01,100 Exit code 0",
    "2026-11-29 11:11:11,104\tSUCC cli.py:65 -- Job 'raysubmit_Ab1' succeeded",
)
SESSIONS = (
    "remote command exited without exit status or exit signal",
    "Shared connection to gpu-7 closed.",
)
FRAMES = ["Traceback (most recent call last):", '  File "/w/t.py", line 3, in <module>', "    f()"]
STOPPED = "*** SIGTERM received at time=1790000000 on cpu 3 ***\n"
PYXIS = (
    "slurmstepd: error: pyxis: child 12004 failed with error code: 1\n"
    "slurmstepd: error: pyxis: failed to import docker image\n"
    "slurmstepd: error: spank_task_init_privileged failed\n"
    "slurmstepd: error: write to unblock task 0 failed: Broken pipe\n"
    "srun: error: cn-044: task 0: Exited with exit code 1\n"
    "srun: error: cn-045: task 1: Exited with exit code 1\n"
)


@pytest.mark.parametrize("words", TERMINATED)
def test_a_job_that_a_shell_saw_terminated_is_not_called_clean(words: str, tmp_path: Path) -> None:
    text = steps(1, 30) + words.format(command="python train.py --lr 0.1") + "\n"
    verdict = judged(tmp_path, text).verdict
    assert (verdict.outcome, [who.rank for who in verdict.culprits]) == ("undetermined", [])
    done = judged(tmp_path, steps(1, 30) + "Training completed\n" + text[len(steps(1, 30)) :]).verdict
    assert done.outcome == "clean"


@pytest.mark.parametrize("words", TERMINATED[1:3])
@pytest.mark.parametrize("command", ["nvidia-smi dmon > gpu.log", "python monitor.py", "sleep 3600"])
def test_a_monitor_that_a_script_ends_is_no_trouble(words: str, command: str, tmp_path: Path) -> None:
    assert judged(tmp_path, steps(1, 30) + words.format(command=command) + "\n").verdict.outcome == "clean"


@pytest.mark.parametrize("words", ENDED_WELL)
def test_who_watches_over_a_job_says_that_it_came_to_its_end(words: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, f"{steps(1, 30)}{words}\n").verdict
    assert (verdict.outcome, kind_of(verdict.cause, verdict.evidence)) == ("clean", "none/finished")
    assert judged(tmp_path, f"{words}\n").verdict.outcome == "clean"


def test_megatron_that_saves_after_sigterm_was_ended_in_order(tmp_path: Path) -> None:
    words = "[exiting program after receiving SIGTERM.] datetime: 2026-11-29 14:00:00 \n"
    verdict = judged(tmp_path, steps(1, 30) + words).verdict
    assert (verdict.outcome, verdict.cause) == ("clean", "none")
    assert "terminated" in verdict.headline


@pytest.mark.parametrize("words", SESSIONS)
def test_a_session_that_ended_leaves_the_job_open(words: str, tmp_path: Path) -> None:
    assert judged(tmp_path, f"{steps(1, 30)}{words}\n").verdict.outcome == "undetermined"
    done = f"{steps(1, 30)}Training completed\n{words}\n"
    assert judged(tmp_path, done).verdict.outcome == "clean"


def test_sigterm_behind_the_end_of_the_training_is_its_teardown(tmp_path: Path) -> None:
    assert judged(tmp_path, steps(1, 30) + "Training completed\n" + STOPPED).verdict.outcome == "clean"
    assert judged(tmp_path, steps(1, 30) + STOPPED).verdict.outcome == "failure"
    more = steps(1, 30) + "Training completed\n" + steps(31, 60) + STOPPED
    assert judged(tmp_path, more).verdict.outcome == "failure"


def test_a_container_that_never_started_is_no_peer_that_went_away(tmp_path: Path) -> None:
    verdict = judged(tmp_path, PYXIS).verdict
    assert kind_of(verdict.cause, verdict.evidence) == "undetermined/container_never_started"
    assert "failed to import docker image" in verdict.headline
    assert (verdict.culprits, verdict.parties) == ((), ())


def test_a_pod_that_kubernetes_evicts_for_a_taint_ends_its_job(tmp_path: Path) -> None:
    words = "34s  Normal  TaintManagerEviction  pod/w-2  {} Pod ml/w-2\n"
    verdict = judged(tmp_path, steps(1, 30) + words.format("Marking for deletion")).verdict
    assert (verdict.outcome, verdict.cause) == ("failure", "peer_died")
    assert judged(tmp_path, steps(1, 30) + words.format("Cancelling deletion of")).verdict.outcome == "clean"
    gone_on = steps(1, 30) + words.format("Marking for deletion") + steps(31, 60)
    assert judged(tmp_path, gone_on).verdict.outcome == "clean"


@pytest.mark.parametrize("cancelled", [0, 1, 2])
def test_what_xla_cancels_points_to_another_process(cancelled: int, tmp_path: Path) -> None:
    """It cancels what waits for a process that failed."""
    error = "jaxlib.xla_extension.XlaRuntimeError: CANCELLED: Execution cancelled."
    text = "".join(
        f"{rank}: {line}\n"
        for rank in range(3)
        for line in (*FRAMES, "ValueError: bad batch" if rank == cancelled else error)
    )
    verdict = judged(tmp_path, text).verdict
    assert [who.rank for who in verdict.culprits] == [cancelled]


@pytest.mark.parametrize("decision", ["RETRY", "Decision: FailureDecision.RETRY"])
def test_ray_train_that_starts_its_workers_again_goes_on(decision: str, tmp_path: Path) -> None:
    lost = (
        "(raylet) The node with node id: 88ab and address: 10.0.0.9 and node name: 10.0.0.9 has been marked"
        " dead because the detector has missed too many heartbeats from it.\n"
    )
    text = steps(1, 30) + lost + f"(TrainController pid=9) [FailurePolicy] {decision}\n" + steps(20, 60)
    assert judged(tmp_path, text + "Training completed\n").verdict.outcome == "recovered"
    assert judged(tmp_path, steps(1, 30) + lost).verdict.cause == "peer_died"


STOPS = (
    "I 11-29 10:21:11 controller.py:221] Cluster t preempted or failed (status: None). Recovering...",
    "Warning  Preempted  12s  default-scheduler  Preempted by pod ml/other on node a3-1: Pod was preempted",
)


@pytest.mark.parametrize("stop", STOPS)
def test_a_job_that_worked_on_behind_its_preemption_came_to_its_end(stop: str, tmp_path: Path) -> None:
    end = "I 11-29 12:00:00 controller.py:301] Managed job 9 (task: 0, name: t) status: SUCCEEDED\n"
    stopped = judged(tmp_path, f"{steps(1, 30)}{stop}\n").verdict
    assert (stopped.outcome, stopped.cause) == ("clean", "none")
    assert "preempted" in stopped.headline
    done = judged(tmp_path, f"{steps(1, 30)}{stop}\n{steps(20, 60)}{end}").verdict
    assert (done.outcome, kind_of(done.cause, done.evidence)) == ("clean", "none/finished")


def test_requests_that_a_server_preempts_stop_no_job(tmp_path: Path) -> None:
    text = f"WARNING 11-29 10:00:00 [scheduler.py:1754] preempted 12 sequences\n{steps(1, 30)}"
    verdict = judged(tmp_path, text).verdict
    assert (verdict.outcome, "preempted" in verdict.headline) == ("clean", False)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (
            "n1:9:3 [0] bootstrap.cc:77 NCCL WARN Bootstrap Root : mismatch in rank count from procs 8 : 16\n"
            "n1:9:3 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer n2<51>",
            "user_code_exception/settings",
        ),
        (
            "but OMPI was not built with SLURM's PMI support and therefore cannot\n"
            "srun: error: n7: tasks 0-3: Exited with exit code 1",
            "version_mismatch/other",
        ),
    ],
)
def test_processes_that_were_started_as_another_job_than_they_are(
    words: str, kind: str, tmp_path: Path
) -> None:
    verdict = judged(tmp_path, f"{words}\n").verdict
    assert kind_of(verdict.cause, verdict.evidence) == kind
    assert verdict.culprits == ()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "words",
    [
        "<error>   [2026-11-29, 01:55:03] trial failed (restart {done}/{of})",
        "<error>   [2026-11-29, 01:55:03] unexpected failure of trial after restart {done}/{of}: container"
        " failed with non-zero exit code: 1",
    ],
)
@pytest.mark.parametrize(("done", "of"), [(0, 5), (1, 15), (5, 5), (0, 0)])
def test_determined_starts_a_trial_again_until_it_has_used_up_its_restarts(
    words: str, done: int, of: int, tmp_path: Path
) -> None:
    failed = steps(1, 30) + raised(1, "ValueError: bad shard") + words.format(done=done, of=of) + "\n"
    assert judged(tmp_path, failed).verdict.cause == "user_code_exception"
    again = judged(tmp_path, failed + steps(1, 60) + "Training completed\n").verdict
    assert done == of or again.outcome == "recovered"


@pytest.mark.parametrize("blank", ["", "\n", "  \n"])
def test_a_message_that_begins_behind_a_line_break_is_read(blank: str, tmp_path: Path) -> None:
    error = f"RuntimeError: \n{blank}CUDA VERSION MISMATCH\nRequested CUDA version: 12.8"
    text = "".join(f"[rank1]: {line}\n" for line in FRAMES + error.split("\n"))
    verdict = judged(tmp_path, text).verdict
    assert (verdict.cause, "CUDA VERSION MISMATCH" in verdict.headline) == ("version_mismatch", True)
    bare = "".join(f"[rank1]: {line}\n" for line in [*FRAMES, "AssertionError", "CUDA VERSION MISMATCH"])
    assert "MISMATCH" not in judged(tmp_path, bare).verdict.headline


@pytest.mark.parametrize(("error", "met"), [("Timeout", True), ("Connection", False)])
def test_a_rendezvous_whose_store_is_gone_is_none_that_nodes_missed(
    error: str, met: bool, tmp_path: Path
) -> None:
    name = f"torch.distributed.elastic.rendezvous.api.Rendezvous{error}Error"
    text = "\n".join([*FRAMES, f"{name}: The connection to the C10d store has failed.", ""])
    verdict = judged(tmp_path, steps(1, 30) + text).verdict
    assert verdict.cause == "network_socket_interface"
    assert ("did not all meet" in verdict.headline) == met


CAPACITY = (
    'Error from server (Forbidden): error when creating "job.yaml": pods "t-0" is forbidden: exceeded quota:'
    " gpus, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=24",
    "sbatch: error: QOSMaxSubmitJobPerUserLimit",
    "(autoscaler +30s) Error: No available node types can fulfill resource request {'GPU': 8.0}. Add suitable"
    " node types to this cluster to resolve this issue.",
    "ValueError: There are not enough GPUs available for the number of processes requested (16).",
)


@pytest.mark.parametrize("words", CAPACITY)
def test_more_was_asked_for_than_there_is(words: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, f"{words}\n").verdict
    assert kind_of(verdict.cause, verdict.evidence) == "user_code_exception/settings"
    assert verdict.culprits == ()


@pytest.mark.parametrize("words", [CAPACITY[0], CAPACITY[2]])
def test_a_job_that_got_what_it_asked_for_later_did_not_fail(words: str, tmp_path: Path) -> None:
    text = f"{words}\n{steps(1, 30)}Training completed\n"
    assert judged(tmp_path, text).verdict.outcome == "clean"


@pytest.mark.parametrize("why", ["No preemption victims found", "Preemption is not helpful for scheduling"])
def test_a_pod_that_no_node_has_room_for_was_not_preempted(why: str, tmp_path: Path) -> None:
    room = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu. preemption: 0/4 nodes are available"
    line = f"Warning  FailedScheduling  3m  default-scheduler  {room}: 4 {why}.\n"
    verdict = judged(tmp_path, line).verdict
    assert (verdict.outcome, "preempted" in verdict.headline) == ("undetermined", False)
