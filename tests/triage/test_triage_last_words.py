"""A log whose last words are of a failure has a verdict of its own, whatever program they are of."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from say import as_document, elastic, judged, steps

from nodedoctor.triage.patterns.stacks import StackFrame, source_place
from nodedoctor.triage.verdict.advice.fix_table import BY_FAMILY
from nodedoctor.triage.verdict.causes.families import FAMILIES, family_of
from nodedoctor.triage.verdict.judge import judge_incident

UNREAD = (
    "fabric link setup failed with status 7, giving up\n",
    "/src/host/init/init.cpp:88: non-zero status: 3 connecting endpoints\n",
    "*** The Barrier function was called before INIT was invoked. Your job will now abort.\n",
    "shm: error: cannot attach segment 12\n",
    "FATAL:   container creation failed: loop device busy\n",
    "Error: JobFailed\n",
    "the launcher exited with code 250\n",
    "Waiting for more workers to join: 1/16 (2692 seconds passed)\n",
    "h:3:4 [5] NCCL INFO [Service thread] Connection closed by localRank 7\n",
    "job step was cancelled: SCHEDULING_SETUP_FAILED\n",
    "Warning  FailedScheduling  40s  default-scheduler  0/2 nodes are available\n",
)
KINDS = (
    ("srun: error: Unable to create step for job 17: Invalid generic resource (gres) specification",
     "user_code_exception", "CONFIG"),
    ("compute-3: bash: torchrun: command not found", "user_code_exception", "CONFIG"),
    ("/bin/sh: 1: nvcc: not found", "user_code_exception", "CONFIG"),
    ("launch.sh: 12: sources: not found", "user_code_exception", "CONFIG"),
    ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "version_mismatch", "CONFIG"),
    ("worker-1: ssh: Could not resolve hostname worker-1: Name or service not known",
     "network_socket_interface", "CONFIG"),
    ("open /ckpt/step9: Permission denied", "user_code_exception", "CONFIG"),
    ("step abandoned: the loss became NaN and cannot be scaled", "user_code_exception", "CODE"),
)  # fmt: skip
RAISED = (
    ("omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct", "CONFIG", "Correct the setting"),
    ("pydantic_core._pydantic_core.ValidationError: 2 validation errors for ZeroConfig", "CONFIG", "setting"),
    ("ModuleNotFoundError: No module named 'apex'", "CONFIG", "Install"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/data/a'", "CONFIG", "the path exists"),
    ("PermissionError: [Errno 13] Permission denied: '/data/a'", "CONFIG", "this right"),
    ("hub.errors.GatedRepoError: 401 Client Error.", "CONFIG", "token"),
    ("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge", "CONFIG",
     "not complete"),
    ("subprocess.CalledProcessError: Command '['/usr/bin/gcc', 'm.c']' returned 1", "CONFIG", "compiler"),
    ("RuntimeError: shape '[4, 2]' is invalid for input of size 9", "CODE", "Begin at train.py, line 41"),
    ("FileExistsError: [Errno 17] File exists: '/cache/a'", "CODE", "Let one rank make"),
    ("RuntimeError: ABORTED: The TPU is already in use by process with pid 9.", "CONFIG", "a leftover"),
    ("AssertionError: 16 < 16", "CODE", "Begin at train.py, line 41"),
    ("KeyError: 'image'", "CODE", "Begin at train.py, line 41"),
)  # fmt: skip
TRACE = 'Traceback (most recent call last):\n  File "/job/train.py", line 41, in main\n    go()\n{}\n'


@pytest.mark.parametrize("text", UNREAD)
def test_a_log_that_ends_in_a_failure_is_never_called_nothing(text: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, "host gpu-1, 8 devices\n" + text).verdict
    assert verdict.outcome in ("failure", "undetermined") and verdict.evidence
    told = (verdict.headline, *(event.text for event in verdict.evidence))
    assert any(word in text for word in told[1].split()[:2]) and "no line" not in verdict.headline


@given(st.from_regex(r"[a-z]{2,12}: error: [a-z]{3,9} [a-z]{3,9} [a-z]{3,9}", fullmatch=True))
def test_an_error_of_any_program_is_told(text: str) -> None:
    from nodedoctor.triage.lines.prefixes import parse_line
    from nodedoctor.triage.model import Coverage, Place
    from nodedoctor.triage.patterns import read_events
    from nodedoctor.triage.timeline.build import build_timeline

    story = build_timeline(list(read_events(parse_line(text, Place("a.log", 0)))))
    assert judge_incident(story, Coverage(files=1, size=len(text))).outcome in ("failure", "undetermined")


@pytest.mark.parametrize(("text", "cause", "owner"), KINDS)
def test_the_words_of_a_failure_tell_its_kind(text: str, cause: str, owner: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, text + "\n").verdict
    assert (verdict.cause, verdict.owner) == (cause, owner)
    assert verdict.confidence != "high" and verdict.fixes


@pytest.mark.parametrize(("text", "owner", "advised"), RAISED)
def test_an_exception_tells_whose_move_it_is(text: str, owner: str, advised: str, tmp_path: Path) -> None:
    document = as_document(judged(tmp_path, TRACE.format(text)))
    assert (document["cause"], document["owner"]) == ("user_code_exception", owner)
    assert advised in document["fixes"][0]["text"] and "(train.py, line 41)" in document["headline"]


def test_a_library_that_does_not_fit_is_no_mistake_of_the_program(tmp_path: Path) -> None:
    text = "OSError: /opt/lib/libops_cpu.so: cannot open shared object file: No such file or directory"
    assert judged(tmp_path, TRACE.format(text)).verdict.cause == "version_mismatch"


@pytest.mark.parametrize("text", [*UNREAD[:3], *(row[0] + "\n" for row in KINDS)])
def test_a_job_that_goes_on_or_ends_well_is_healthy(text: str, tmp_path: Path) -> None:
    for log in (text + steps(1, 50), steps(1, 9) + text + steps(10, 50) + "Training completed\n"):
        assert judged(tmp_path, log).verdict.outcome == "clean"


@pytest.mark.parametrize("text", ["0 errors, 2 warnings", "eval: word error rate 0.08, 0 failed samples",
                                  "exit code: 0", "--on-error TEXT  what to do when it failed"])  # fmt: skip
def test_counts_of_no_failures_are_none(text: str, tmp_path: Path) -> None:
    assert judged(tmp_path, f"host gpu-1\n{text}\n").verdict.outcome != "failure"
    assert "lines about a failure" not in judged(tmp_path, f"host gpu-1\n{text}\n").verdict.headline


BEHIND_STEPS = (
    "bash: fork: cannot allocate anything more",
    "error: lost the link to the server",
    "rpc error: code = Unavailable desc = no more answers",
    "fetch: could not reach the server",
)


@pytest.mark.parametrize("text", BEHIND_STEPS)
def test_a_job_whose_log_ends_with_a_failure_is_not_called_healthy(text: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 20) + text + "\n").verdict
    assert (verdict.outcome, verdict.confidence) == ("undetermined", "low")
    assert text[:20] in verdict.headline


@pytest.mark.parametrize("text", BEHIND_STEPS)
@pytest.mark.parametrize("end", [steps(21, 1), "Training completed\n"])
def test_a_failure_that_is_not_the_end_of_a_log_leaves_it_healthy(
    text: str, end: str, tmp_path: Path
) -> None:
    verdict = judged(tmp_path, steps(1, 20) + text + "\n" + end).verdict
    assert verdict.outcome in ("clean", "recovered"), verdict.headline


@pytest.mark.parametrize("text", BEHIND_STEPS)
def test_what_a_job_outlived_before_it_outlives_again(text: str, tmp_path: Path) -> None:
    log = "".join(steps(number, 1) + f"{text} ({number})\n" for number in range(1, 20))
    assert judged(tmp_path, log).verdict.outcome == "clean"


@pytest.mark.parametrize("level", ["INFO", "WARNING", "DEBUG"])
def test_what_is_only_warned_of_at_the_end_is_no_failure(level: str, tmp_path: Path) -> None:
    line = f"2026-03-04 05:06:07,123 {level} could not reach the tracking server\n"
    assert judged(tmp_path, steps(1, 20) + line).verdict.outcome == "clean"


def test_a_known_cause_outweighs_other_words(tmp_path: Path) -> None:
    text = (
        "module: command not found\n" + TRACE.format("ValueError: bad shard") + "run.sh: error: giving up\n"
    )
    assert "bad shard" in judged(tmp_path, text).verdict.headline


def test_a_stack_without_its_head_is_read(tmp_path: Path) -> None:
    tail = TRACE.partition("\n")[2]
    assert "(train.py, line 41)" in judged(tmp_path, tail.format("ValueError: bad shard")).verdict.headline
    cut = judged(tmp_path, '  File "/job/train.py", line 41, in main\n    go()\n').verdict
    assert "the log ends in a traceback, at train.py, line 41" in cut.headline


def test_a_message_that_begins_in_the_next_line_is_read(tmp_path: Path) -> None:
    text = TRACE.format(
        "RuntimeError: \n        CUDA Setup failed although there is a GPU.\n        Look above."
    )
    assert "RuntimeError: CUDA Setup failed although" in judged(tmp_path, text).verdict.headline


def test_a_launcher_that_names_a_rank_is_believed(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "ERROR:launcher:Rank 2 crashed with exit code -11.\n").verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("peer_died", [2])
    assert judged(tmp_path, "Global rank 0 (PID 9) exited with code 0\n").verdict.outcome != "failure"


def test_the_place_is_the_programs_own_before_that_of_a_package() -> None:
    standard = StackFrame("/usr/lib/python3.11/subprocess.py", 4, "run")
    package = StackFrame("/v/lib/python3.11/site-packages/triton/backends/driver.py", 7, "build")
    own = StackFrame("C:\\job\\train.py", 9, "main")
    assert source_place([own, package, standard]) == "train.py, line 9"
    assert source_place([package, standard]) == "triton's driver.py, line 7"
    assert source_place([standard]) == ""


def test_each_kind_of_failure_has_a_first_step() -> None:
    without = {one.name for one in FAMILIES} - set(BY_FAMILY)
    assert without == {"no-answer", "assertion", "code"}
    assert set(BY_FAMILY) <= {one.name for one in FAMILIES}
    assert family_of("ValueError: bad shard") is None


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[h:9:0:9] ib_mlx5_log.c:143  Transport retry count exceeded on mlx5_2:1/RoCE (synd 0x15)",
         "network_ib"),
        ("app: kernels/norm.cc:88: void norm(int): Assertion `rows > 0' failed.", "user_code_exception"),
        ("Assertion failed: size_ > 0 (src/queue.cpp:97)", "user_code_exception"),
        ("F1121 10:00:00.1 9 plan.cc:12] Check failed: n > 0 (0 vs. 0)", "user_code_exception"),
    ],
)  # fmt: skip
def test_compiled_code_speaks_for_itself(text: str, cause: str, tmp_path: Path) -> None:
    log = f"{text}\n[gpu-1:4711] *** Process received signal ***\n[gpu-1:4711] Signal: Aborted (6)\n"
    assert judged(tmp_path, log).verdict.cause == cause


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("CUDA_ERROR_LAUNCH_FAILED", "user_code_exception"),
        ("cudaErrorIllegalAddress", "user_code_exception"),
        ("CUDA_ERROR_ECC_UNCORRECTABLE", "gpu_hardware_xid"),
        ("CUDA_ERROR_SYSTEM_NOT_READY", "nvlink_fabric"),
        ("CUDA_ERROR_NO_BINARY_FOR_GPU", "version_mismatch"),
    ],
)
def test_the_names_of_cudas_errors_are_known(name: str, cause: str, tmp_path: Path) -> None:
    text = TRACE.format(f"driver.CudaAPIError: [1] Call to cuStreamSync results in {name}")
    assert judged(tmp_path, text).verdict.cause == cause


def test_a_service_only_tells_that_a_script_failed(tmp_path: Path) -> None:
    text = "UnexpectedStatusException: Error for Training job a: Failed. Reason: ExecuteUserScriptError\n"
    assert judged(tmp_path, text).verdict.outcome == "undetermined"


@pytest.mark.parametrize(
    "row",
    ["Epoch(train)  [1][{0}/500]  lr: 1.0e-02  loss: 1.9  error_top1: 0.78",
     "epoch 001:    {0} / 1100 loss=12.3"],
)  # fmt: skip
def test_progress_within_an_epoch_is_progress(row: str, tmp_path: Path) -> None:
    log = "".join(row.format(number) + "\n" for number in range(50, 300, 50))
    assert judged(tmp_path, log).verdict.outcome == "clean"


def test_what_a_program_calls_an_error_counts_more_than_what_only_speaks_of_one(tmp_path: Path) -> None:
    text = (
        'Error.  nthreads cannot be larger than environment variable "LIMIT"\n'
        "please install a newer numexpr\n"
        "2025-11-06 18:40:07,709 - root - ERROR - Error running Designer: name 'nseqs' is not defined\n"
    )
    verdict = judged(tmp_path, text).verdict
    assert (verdict.cause, "a mistake in the program" in verdict.headline) == ("user_code_exception", True)
    alone = judged(tmp_path, "please install a newer numexpr, it is not found\n").verdict
    assert "a package that is missing" in alone.headline


def test_a_launchers_list_explains_nothing(tmp_path: Path) -> None:
    """Four ranks printed into each other's lines: only words are left of their tracebacks."""
    said = (
        "^IsADirectoryError\n: IsADirectoryErrorIsADirectoryError[Errno 21] Is a directory: '/data/run': : \n"
    )
    listed = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    verdict = judged(tmp_path, said + listed + elastic([(0, 1), (1, 1)], 0)).verdict
    assert verdict.cause == "user_code_exception"
    assert "Is a directory: '/data/run'" in verdict.headline


def test_what_rays_dashboard_fails_to_show_is_no_failure(tmp_path: Path) -> None:
    text = (
        "2026-11-07 23:22:16,313 ERROR reporter_agent.py:706 -- Error publishing node physical stats.\n"
        'Traceback (most recent call last):\n  File "/opt/lib/python3.8/site-packages/ray/dashboard/modules/'
        'reporter/reporter_agent.py", line 690, in _perform_iteration\n    stats = self._get_all_stats()\n'
        "psutil.NoSuchProcess: process no longer exists (pid=99889)\n"
    )
    assert judged(tmp_path, text).verdict.outcome == "undetermined"
    assert judged(tmp_path, steps(1, 9) + text + steps(10, 9)).verdict.outcome == "clean"


AT_FIRST = (
    "cat: 'shards.txt': No such file or directory\n",
    "/var/spool/slurmd/job17/slurm_script: line 12: python: command not found\n",
    "mkdir: cannot create directory '/ckpt': Permission denied\n",
)


@pytest.mark.parametrize("said", AT_FIRST)
def test_what_a_script_complains_of_long_before_the_end_is_none_of_its_last_words(
    said: str, tmp_path: Path
) -> None:
    talk = [f"loader {index}: {'abcdefgh'[index % 8]} of the shard is mapped\n" for index in range(200)]
    short = judged(tmp_path, said + "".join(talk[:20])).verdict
    assert short.outcome == "failure"
    long = judged(tmp_path, said + "".join(talk)).verdict
    assert (long.outcome, long.cause) == ("undetermined", "undetermined")
    again = judged(tmp_path, said + "".join(talk) + said).verdict
    assert (again.outcome, again.cause) == (short.outcome, short.cause)


@pytest.mark.parametrize(
    "what", ["Final Bellman Error for the critic: 0.0154. Epochs: 35", "Error of y: -1.5"]
)
def test_a_measure_that_is_called_an_error_is_none(what: str, tmp_path: Path) -> None:
    assert judged(tmp_path, f"{what}\n").verdict.outcome == "nothing"


LEAVING = "WARNING:root:You must call parse(conf) before loading data. {end}\n"


@pytest.mark.parametrize(("end", "outcome"), [("Exiting.", "failure"), ("It was done for you.", "nothing")])
def test_a_program_that_warns_that_it_ends_has_ended(end: str, outcome: str, tmp_path: Path) -> None:
    assert judged(tmp_path, LEAVING.format(end=end) * 4 + "=== done ===\n").verdict.outcome == outcome
    assert judged(tmp_path, LEAVING.format(end=end) + steps(1, 30)).verdict.outcome == "clean"
