"""Who started a program reports its end; often that is all that a log has of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import elastic, judged, raised, steps

from nodedoctor.triage.verdict.decision.kind import kind_of

WHOLE_JOBS = {
    "Airflow": "[2026-02-02T01:03:02.601+0000] {local_task_job_runner.py:266} INFO - Task exited with return"
    " code {code}",
    "Prefect": "01:02:03.001 | ERROR   | prefect.flow_runs.runner - Process for flow run 'amber-elk' exited"
    " with status code: {code}",
    "Flyte": "Pod failed. No message from kubernetes. [fx1-n0-0] terminated with exit code ({code}).",
    "Argo": 'level=info msg="node train-x1 message: Error (exit code {code})"',
    "Vertex AI": "The replica workerpool0-0 exited with a non-zero status of {code}.",
    "Ray": "Job entrypoint command failed with exit code {code}, last available logs:",
    "GitLab": "ERROR: Job failed: exit code {code}",
    "GitHub": "##[error]Process completed with exit code {code}.",
}
WITHOUT_CODE = (
    "[2026-02-02T01:03:02.701+0000] {taskinstance.py:1226} INFO - Marking task as FAILED. dag_id=nightly",
    "PyTorchJob ft-elk is failed because 1 Worker replica(s) failed.",
    "jobset failed due to one or more job failures",
    "Job has reached the specified backoff limit",
    "Job 'raysubmit_aB3' failed",
    "2026-03-03 10:02:03.101 Workflow failed.",
    "2026-05-05 01:25:31 Failed - Training job failed",
)
PROGRAMS = (
    "make: *** [Makefile:3: train] Error 1",
    "make: *** [Makefile:3: train] Killed",
    "error: Recipe `train` failed on line 3 with exit code 1",
    "Command exited with non-zero status 1",
    "Command terminated by signal 9",
    "pdsh@head: node-3: ssh exited with exit code 255",
    "2026-01-01 10:00:00,001 WARN exited: train (terminated by SIGKILL; not expected)",
    "2026-01-01 10:00:00,001 WARN exited: train (terminated by SIGSEGV (core dumped); not expected)",
    "2026-01-01 10:00:00,001 WARN exited: train (exit status 1; not expected)",
    "2026-01-01 10:00:01,001 INFO gave up: train entered FATAL state, too many start retries too quickly",
    "trainer-1 exited with code 1",
    "train.py exited with status 2",
    "Training failed with exit code 1",
    "exit code: 1",
)
KILLED = {
    "zsh: killed     python train.py": "SIGKILL",
    "zsh: segmentation fault  python train.py": "SIGSEGV",
    "[1]    4411 killed     python train.py": "SIGKILL",
    "[1]+  Killed                  python train.py": "SIGKILL",
    "[1]+  Segmentation fault      (core dumped) python train.py": "SIGSEGV",
    "fish: Job 1, 'python train.py' terminated by signal SIGKILL (Forced quit)": "SIGKILL",
    "Killed: 9": "SIGKILL",
    "Illegal instruction (core dumped)": "SIGILL",
    "slurm_script: line 21: 8811 Killed                  python train.py": "SIGKILL",
}
UNEXPLAINED = (
    "[1]+  Exit 1                  python train.py",
    "double free or corruption (!prev)",
    "malloc(): unaligned tcache chunk detected",
    "corrupted size vs. prev_size",
    "*** stack smashing detected ***: terminated",
    "Kernel died, waiting for restart...",
    "docker: Error response from daemon: OCI runtime create failed: no such device",
    "========= 1 failed, 3 passed in 41.00s =========",
    "FAILED (errors=1)",
    "811.batch   train   FAILED   1:0",
    "JobState=FAILED Reason=NonZeroExitCode ExitCode=1:0",
    "State: FAILED (exit code 1)",
    "Slurm Job_id=811 Name=elk Failed, Run time 01:00:00, FAILED, ExitCode 1",
)
MEMORY = (
    "systemd-oomd[900]: Killed /user.slice/user-1.slice due to memory pressure for /user.slice being 81.22%",
    'earlyoom[811]: sending SIGKILL to process 8110 uid 1000 "python": oom_score 1200, VmRSS 88120 MiB',
    "Your notebook tried to allocate more memory than is available. It has restarted.",
)


@pytest.mark.parametrize("line", KILLED)
def test_what_shells_saw_killed(tmp_path: Path, line: str) -> None:
    verdict = judged(tmp_path, steps(1, 30) + line + "\n").verdict
    assert verdict.cause == "peer_died"
    assert KILLED[line] in verdict.headline


@pytest.mark.parametrize("line", UNEXPLAINED)
def test_an_end_without_a_reason_is_no_progress(tmp_path: Path, line: str) -> None:
    assert judged(tmp_path, steps(1, 30) + line + "\n").verdict.outcome == "undetermined"


@pytest.mark.parametrize("line", MEMORY)
def test_who_ends_processes_for_memory(tmp_path: Path, line: str) -> None:
    assert judged(tmp_path, steps(1, 30) + line + "\n").verdict.cause == "peer_host_oom"


@pytest.mark.parametrize("what", ["nan", "inf"])
def test_a_program_that_stops_at_its_loss(tmp_path: Path, what: str) -> None:
    text = steps(1, 30) + f"Loss is {what}, stopping training\n"
    verdict = judged(tmp_path, text).verdict
    assert kind_of(verdict.cause, verdict.evidence) == "user_code_exception/nan"
    assert judged(tmp_path, text + steps(31, 60)).verdict.outcome == "clean"


NO_END = (
    "GET /v1/models failed with status code 503",
    "upload failed with code 404",
    "exit code: 0",
    "trainer-1 exited with code 0",
    "trainer-1 exited with code 143",
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("by", WHOLE_JOBS)
@pytest.mark.parametrize("code", [1, 3, 137])
def test_the_code_of_a_whole_job_is_an_end(tmp_path: Path, by: str, code: int) -> None:
    verdict = judged(tmp_path, steps(1, 30) + WHOLE_JOBS[by].replace("{code}", str(code)) + "\n").verdict
    assert verdict.outcome == ("failure" if code == 137 else "undetermined")
    assert verdict.cause == ("peer_died" if code == 137 else "undetermined")


@pytest.mark.parametrize("line", [*WITHOUT_CODE, *PROGRAMS])
def test_a_reported_failure_is_no_progress(tmp_path: Path, line: str) -> None:
    assert judged(tmp_path, steps(1, 30) + line + "\n").verdict.outcome == "undetermined"


@pytest.mark.parametrize("line", [*WITHOUT_CODE, *PROGRAMS])
def test_the_program_s_own_error_explains_it(tmp_path: Path, line: str) -> None:
    error = raised(3, "ValueError: no such shard")
    verdict = judged(tmp_path, steps(1, 30) + error + line + "\n").verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("user_code_exception", [3])


@pytest.mark.parametrize("line", PROGRAMS)
def test_a_program_behind_which_the_job_goes_on_was_another_one(tmp_path: Path, line: str) -> None:
    assert judged(tmp_path, steps(1, 30) + line + "\n" + steps(31, 60)).verdict.outcome == "clean"


@pytest.mark.parametrize("line", NO_END)
def test_other_numbers_are_no_ends(tmp_path: Path, line: str) -> None:
    assert judged(tmp_path, steps(1, 30) + line + "\n" + steps(31, 32)).verdict.outcome == "clean"


@pytest.mark.parametrize("by", WHOLE_JOBS)
def test_a_job_that_counts_on_from_its_checkpoint_was_started_again(tmp_path: Path, by: str) -> None:
    end = WHOLE_JOBS[by].replace("{code}", "137") + "\n"
    assert judged(tmp_path, steps(1, 60) + end + steps(50, 80)).verdict.outcome == "recovered"


SUCCESS = (
    "Job 'raysubmit_aB3' succeeded",
    "PyTorchJob ft-elk is successfully completed.",
    "jobset completed successfully",
    "[2026-02-02T01:03:02.601+0000] {local_task_job_runner.py:266} INFO - Task exited with return code 0",
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("line", SUCCESS)
@pytest.mark.parametrize("code", [1, 137, 143])
def test_an_operator_that_reports_success_had_restarted_what_ended(
    tmp_path: Path, line: str, code: int
) -> None:
    end = f"Normal  ExitedWithCode  3h  operator  Pod: ml.ft-elk-worker-0 exited with code {code}\n"
    assert judged(tmp_path, steps(1, 30) + end + steps(1, 30) + line + "\n").verdict.outcome == "clean"
    assert judged(tmp_path, steps(1, 30) + end).verdict.outcome != "clean"
    assert judged(tmp_path, steps(1, 30) + line + "\n" + end).verdict.outcome != "clean"


def test_what_a_stopped_library_raises_is_of_the_stop(tmp_path: Path) -> None:
    stop = "Detected KeyboardInterrupt, attempting graceful shutdown ...\n"
    error = (
        "Traceback (most recent call last):\n"
        '  File "/home/elk/train.py", line 8, in <module>\n    trainer.fit(model)\n'
        '  File "{where}", line 64, in _stop\n    exit(1)\n'
        "NameError: name 'exit' is not defined\n"
    )
    package = error.replace("{where}", "/venv/lib/python3.12/site-packages/lightning/call.py")
    own = error.replace("{where}", "/home/elk/stop.py")
    assert judged(tmp_path, steps(1, 30) + stop + package).verdict.outcome == "clean"
    assert judged(tmp_path, steps(1, 30) + stop + own).verdict.outcome == "failure"
    assert judged(tmp_path, steps(1, 30) + package).verdict.outcome == "failure"


def test_python_s_tracker_of_resources_is_no_part_of_the_job(tmp_path: Path) -> None:
    frame = '  File "/usr/lib/python3.11/multiprocessing/resource_tracker.py", line 239, in main\n'
    error = "KeyError: '/psm_6ac2'\n"
    tracker = f"Traceback (most recent call last):\n{frame}    cache[rtype].remove(name)\n{error}"
    own = f'Traceback (most recent call last):\n  File "/job/a.py", line 1, in <module>\n{frame}{error}'
    assert judged(tmp_path, steps(1, 30) + tracker).verdict.outcome == "clean"
    assert judged(tmp_path, steps(1, 30) + own).verdict.outcome == "failure"


@pytest.mark.parametrize("which", ["subsequent", "initial"])
def test_a_rank_that_its_monitor_killed_had_hung(tmp_path: Path, which: str) -> None:
    missed = (
        f"[2026-08-08 03:29:11,102] [WARNING] [RankMonitorServer:3411] Did not get {which} heartbeat."
        " Waited 1200.00 seconds.\n"
    )
    killed = elastic([(0, -15), (4, -9)], root=4)
    assert judged(tmp_path, steps(1, 30) + killed).verdict.cause == "peer_died"
    verdict = judged(tmp_path, steps(1, 30) + missed + killed).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("cpu_stuck_or_slow_rank", [4])


@pytest.mark.parametrize(
    "line",
    [
        "E0101 cuda_dnn.cc:522] Loaded runtime CuDNN library: 8.9.7 but source was compiled with: 9.1.0.",
        "RuntimeError: Configured CUDA binary not found at /venv/lib/libbits_cuda130.so",
    ],
)
def test_a_library_that_was_built_for_another_one(tmp_path: Path, line: str) -> None:
    assert judged(tmp_path, line + "\n").verdict.cause == "version_mismatch"


@pytest.mark.parametrize("word", ["probably ", "likely "])
def test_an_error_that_guesses_its_reason_is_not_handled(tmp_path: Path, word: str) -> None:
    error = f"RuntimeError: A new process cannot begin yet. This {word}means that the main guard is missing."
    assert judged(tmp_path, raised(0, error)).verdict.cause == "user_code_exception"
