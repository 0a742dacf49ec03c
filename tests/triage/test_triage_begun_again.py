"""One file, several runs that people started by hand: the last one is judged, if it got anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from say import culprits, elastic, judged, raised, steps

BANNER = (
    "[2026-11-07 10:00:00,926] [INFO] [real_accelerator.py:219:get_accelerator] Setting ds_accelerator\n"
    "INFO 11-07 10:00:02 __init__.py:183] Automatically detected platform cuda.\n"
)
HEADER = "Sat Nov  7 10:00:00 2026\nrunning on gpu017 as job 8812\nmodel gemma, 4 GPUs\n"
ERROR = (
    'Traceback (most recent call last):\n  File "/job/train.py", line {line}, in <module>\n    main()\n'
    "{error}\n"
)
BROKEN = ERROR.format(line=12, error="ValueError: peft is not installed")
SERVES = "INFO:     Application startup complete.\n" + "".join(
    f'INFO:     10.0.0.9:{port} - "POST /act HTTP/1.1" 200 OK\n' for port in range(50000, 50006)
)
WORKS = {"it counts": steps(1, 9), "it serves": SERVES, "it ends": "{'train_runtime': 211.4}\n"}


@pytest.mark.parametrize("begin", [BANNER, HEADER])
@pytest.mark.parametrize("works", WORKS)
def test_a_run_that_failed_and_was_started_again(begin: str, works: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, begin + BROKEN + begin + WORKS[works]).verdict
    assert (verdict.outcome, verdict.cause, verdict.incidents) == ("recovered", "none", 1)


def test_the_log_may_begin_with_an_error(tmp_path: Path) -> None:
    first = ERROR.format(line=1, error="IndentationError: unexpected indent")
    verdict = judged(tmp_path, first + BANNER + BROKEN + BANNER + steps(1, 9)).verdict
    assert (verdict.outcome, verdict.incidents) == ("recovered", 1)


def test_a_run_that_fails_in_its_turn(tmp_path: Path) -> None:
    again = ERROR.format(line=44, error="KeyError: 'labels'")
    verdict = judged(tmp_path, BANNER + BROKEN + BANNER + steps(1, 9) + again).verdict
    assert (verdict.outcome, "KeyError: 'labels'" in verdict.headline) == ("failure", True)


@pytest.mark.parametrize(
    "behind",
    [
        BANNER,  # got nowhere
        BANNER + BROKEN,
        steps(1, 9),  # another program, or other ranks: nothing says that it began again
        BANNER.partition("\n")[0] + "\n" + steps(1, 9),
        BANNER + elastic([(2, 1)], 2) + steps(1, 9),  # a rank that came later to the same failure
    ],
)
def test_an_error_that_nothing_got_past(behind: str, tmp_path: Path) -> None:
    assert judged(tmp_path, BANNER + BROKEN + behind).verdict.outcome == "failure"


def test_what_a_program_says_of_each_error_is_no_beginning(tmp_path: Path) -> None:
    told = BROKEN + "the row could not be read\nanother row is taken for it\n"
    text = BANNER + steps(1, 9) + told + steps(10, 3) + told + steps(13, 30) + told + steps(43, 5)
    verdict = judged(tmp_path, text).verdict
    assert (verdict.outcome, verdict.incidents) == ("clean", 0)


def test_lines_that_count_are_no_beginning(tmp_path: Path) -> None:
    """Other ranks go on a little after one has failed."""
    assert judged(tmp_path, steps(1, 9) + BROKEN + steps(10, 9)).verdict.incidents < 2
    told = "".join(f"round {number} of the data\nloss {number}.25 after it\n" for number in range(4))
    assert judged(tmp_path, told + BROKEN + told).verdict.outcome == "failure"


TRACKED = "wandb: Tracking run with wandb version 0.24.2\n"
FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.70 GiB."
NO_ROOM = "OSError: [Errno 28] No space left on device: '/data/checkpoint'"


def test_a_program_says_that_each_of_them_is_a_run(tmp_path: Path) -> None:
    """Then the last one counts, wherever it got to; the others stay to be read."""
    text = TRACKED + ERROR.format(line=41, error=FULL) + TRACKED + ERROR.format(line=60, error=NO_ROOM)
    verdict = judged(tmp_path, text).verdict
    assert (verdict.cause, [run.cause for run in verdict.earlier]) == ("shm_or_limits", ["peer_cuda_oom"])


@pytest.mark.parametrize("echo", ["EOFError", "ConnectionResetError: [Errno 104] Connection reset by peer"])
def test_a_process_that_is_tracked_later_and_only_lost_its_peer(echo: str, tmp_path: Path) -> None:
    text = TRACKED + ERROR.format(line=41, error=FULL) + TRACKED + ERROR.format(line=60, error=echo)
    assert judged(tmp_path, text).verdict.cause == "peer_cuda_oom"


def test_all_ranks_may_be_tracked(tmp_path: Path) -> None:
    text = TRACKED * 4 + ERROR.format(line=41, error=FULL) + elastic([(2, 1)], 2)
    assert judged(tmp_path, text).verdict.cause == "peer_cuda_oom"


def test_another_rank_is_tracked_later(tmp_path: Path) -> None:
    text = BANNER + TRACKED
    for rank in (3, 1, 2):
        text += raised(rank, "OSError: [Errno 28] No space left on device: '/data/checkpoint'")
    text += TRACKED + BANNER + raised(0, "OSError: [Errno 28] No space left on device: '/data/checkpoint'")
    examined = judged(tmp_path, text)
    assert (examined.verdict.cause, examined.verdict.incidents) == ("shm_or_limits", 1)
    assert sorted(culprits(examined)) == [0, 1, 2, 3]


def test_the_next_stage_of_a_script_fails_where_the_one_before_it_did(tmp_path: Path) -> None:
    stage = ERROR.format(line=60, error="FileNotFoundError: no checkpoint").replace("train.py", "sft.py")
    text = BANNER + TRACKED + ERROR.format(line=41, error=NO_ROOM) + BANNER + TRACKED + steps(1, 9) + stage
    assert judged(tmp_path, text).verdict.cause == "shm_or_limits"


LATER = {
    "another error": ("FileNotFoundError: '/data/val.json'", "FileNotFoundError"),
    "the same error elsewhere": ("ValueError: peft is not installed", "line 71"),
}


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("begin", [BANNER, HEADER])
def test_a_run_that_gets_past_the_error_before_it_to_another_one(
    later: str, begin: str, tmp_path: Path
) -> None:
    error, shown = LATER[later]
    text = begin + BROKEN + begin + ERROR.format(line=71, error=error)
    verdict = judged(tmp_path, text).verdict
    assert (verdict.outcome, verdict.incidents) == ("failure", 2)
    assert shown in verdict.headline


def test_another_rank_that_raises_the_same_is_no_run_of_its_own(tmp_path: Path) -> None:
    verdict = judged(tmp_path, BANNER + BROKEN + BANNER + BROKEN).verdict
    assert (verdict.outcome, verdict.incidents) == ("failure", 1)


STOPPED = (
    'Traceback (most recent call last):\n  File "/job/train.py", line 60, in <module>\nKeyboardInterrupt\n'
)


def test_a_run_that_somebody_stopped_while_it_worked(tmp_path: Path) -> None:
    working = "Loading checkpoint shards:   0%|          | 0/2 [00:00<?, ?it/s]\nepoch: 0\n"
    text = BANNER + BROKEN + BANNER + working + STOPPED
    assert judged(tmp_path, text).verdict.outcome == "recovered"
    got_nowhere = judged(tmp_path, BANNER + BROKEN + BANNER + STOPPED).verdict
    assert got_nowhere.outcome == "failure" and "peft" in got_nowhere.headline


def test_what_python_says_of_a_file_that_it_compiles_is_said_once(tmp_path: Path) -> None:
    compiled = "/job/config.py:41: DeprecationWarning: invalid escape sequence \\d\n  pattern = '\\d'\n"
    verdict = judged(tmp_path, compiled + BANNER + BROKEN + BANNER + steps(1, 9)).verdict
    assert (verdict.outcome, verdict.incidents) == ("recovered", 1)


PROMPT = "(ml) ed@gpu-7:~/run$ "


@pytest.mark.parametrize("command", ["bash scripts/train.sh", "CUDA_VISIBLE_DEVICES=0,1 torchrun train.py"])
def test_a_command_at_a_prompt_begins_a_run(command: str, tmp_path: Path) -> None:
    first = steps(1, 9) + raised(2, FULL) + elastic([(0, -15), (2, 1)], 2)
    second = steps(1, 9) + raised(1, NO_ROOM) + elastic([(0, -15), (1, 1)], 1)
    verdict = judged(tmp_path, first + PROMPT + command + "\n" + second).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("shm_or_limits", [1])
    looked = judged(tmp_path, first + PROMPT + "dmesg | tail -1\nall quiet\n").verdict
    assert (looked.cause, [who.rank for who in looked.culprits]) == ("peer_cuda_oom", [2])


def test_people_try_again_with_other_arguments(tmp_path: Path) -> None:
    told = "Namespace(arch='resnet50', batch_size={}, data='/data/imagenet', workers={})\n=> creating model\n"
    text = told.format(32, 8) + BROKEN + told.format(16, "'none'") + steps(1, 9)
    assert judged(tmp_path, text).verdict.outcome == "recovered"
    other = "Parsed(arch='vit', batch_size=16)\n=> creating model\n"
    assert judged(tmp_path, told.format(32, 8) + BROKEN + other + steps(1, 9)).verdict.outcome == "failure"


TYPED = ("nohup: ignoring input\n", "nohup: 忽略输入\n")
OTHER = ERROR.format(line=31, error="KeyError: 'image'")


@pytest.mark.parametrize("typed", TYPED)
@pytest.mark.parametrize("works", WORKS)
def test_nohup_begins_a_run(typed: str, works: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, typed + BROKEN + typed + WORKS[works]).verdict
    assert (verdict.outcome, verdict.cause, verdict.incidents) == ("recovered", "none", 1)
    again = judged(tmp_path, typed + BROKEN + typed + steps(1, 9) + OTHER).verdict
    assert again.outcome == "failure" and "KeyError" in again.headline and len(again.earlier) == 1
    silent = judged(tmp_path, typed + BROKEN + typed + "loading\n").verdict
    assert silent.outcome == "failure" and "peft" in silent.headline
    alone = judged(tmp_path, typed + steps(1, 9) + BROKEN).verdict
    assert (alone.outcome, len(alone.earlier)) == ("failure", 0)


UP = "INFO:     Started server process [{}]\nINFO:     Application startup complete.\n"
ANSWERS = SERVES.partition("\n")[2]


def test_a_server_that_is_up_is_past_what_it_raised_before(tmp_path: Path) -> None:
    started = UP.format(77) + ANSWERS + BROKEN + UP.format(91) + ANSWERS
    verdict = judged(tmp_path, started).verdict
    assert (verdict.outcome, verdict.cause, len(verdict.earlier)) == ("recovered", "none", 1)
    died = judged(tmp_path, started + OTHER).verdict
    assert died.outcome == "failure" and "KeyError" in died.headline
    engine = "(EngineCore_0 pid=811) " + BROKEN.rstrip("\n").replace("\n", "\n(EngineCore_0 pid=811) ") + "\n"
    assert judged(tmp_path, engine + UP.format(91)).verdict.outcome == "failure"  # another one is up


@pytest.mark.parametrize("world", [1, 4])
def test_what_counts_when_every_rank_has_ended_is_another_run(world: int, tmp_path: Path) -> None:
    """A script trains one model after another; the launcher of one process does not say that it begins."""
    ended = elastic([(rank, 1 if rank == 0 else -15) for rank in range(world)], 0)
    first = f"world size: {world}\n" + steps(0, 30) + raised(0, "KeyError: 'labels'") + ended
    assert judged(tmp_path, first + "the next model\n" + steps(30, 30)).verdict.outcome != "recovered"
    assert judged(tmp_path, first + "the next model\n" + steps(0, 2)).verdict.outcome == "failure"
    verdict = judged(tmp_path, first + "the next model\n" + steps(0, 9)).verdict
    assert (verdict.outcome, verdict.incidents) == ("recovered", 1)


LAUNCHER = "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n"


def test_a_launcher_that_begins_behind_a_program_that_failed_is_another_command(tmp_path: Path) -> None:
    alone = ERROR.format(line=12, error="ValueError: the weights do not fit")
    many = LAUNCHER + raised(2, "KeyError: 'labels'") + elastic([(2, 1), (0, -15), (1, -15)], 2)
    found = judged(tmp_path, alone + many)
    assert "KeyError: 'labels'" in found.verdict.headline and culprits(found) == [2]
    assert judged(tmp_path, alone + LAUNCHER + steps(0, 9)).verdict.outcome == "recovered"
    assert "ValueError" in judged(tmp_path, alone + LAUNCHER).verdict.headline
    ranked = raised(1, "ValueError: the weights do not fit")
    assert "ValueError" in judged(tmp_path, ranked + LAUNCHER + raised(2, "KeyError: 'x'")).verdict.headline


HANGUP = "torch.distributed.elastic.multiprocessing.api.SignalException: Process {pid} got signal: 1\n"


def test_what_goes_on_from_a_checkpoint_behind_its_launcher_is_another_run(tmp_path: Path) -> None:
    lost = steps(0, 60) + HANGUP.format(pid=4711)
    assert judged(tmp_path, lost).verdict.cause == "peer_died"
    assert judged(tmp_path, lost + steps(40, 15)).verdict.cause == "peer_died"  # not as far as it was
    verdict = judged(tmp_path, lost + "resuming from step 40\n" + steps(40, 30)).verdict
    assert (verdict.outcome, verdict.incidents) == ("recovered", 1)


EPOCHS = "".join(f"Epoch: {epoch:3} [{step:5}/10000] loss 2.1\n" for epoch in range(5) for step in (1, 5000))


def test_epochs_behind_a_launcher_that_ended_are_of_another_run(tmp_path: Path) -> None:
    """The first run failed before it counted; the next program of a script may be one that only looks."""
    lost = elastic([(0, 1)], 0)
    assert judged(tmp_path, lost + EPOCHS).verdict.outcome == "recovered"
    looks = "".join(f"Predicting: {n}%|##  | {n}/100 [00:{n:02}<00:40,  4.97s/it]\n" for n in range(60))
    assert judged(tmp_path, lost + looks).verdict.outcome != "recovered"
    assert judged(tmp_path, EPOCHS + lost).verdict.outcome != "recovered"


CONTROLLER = "(TrainController pid=90) "
FULL_GPU = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
DECIDED = (
    "[FailurePolicy] Decision: FailureDecision.RETRY, Error source: worker group, Error count / maximum"
    " errors allowed: 1/3, Error: Training failed due to worker errors:\n"
)


def of_ray_train(error: str, states: Sequence[str], front: str = CONTROLLER, decided: str = DECIDED) -> str:
    """A worker's error, how the controller retells it, and the states that it comes to."""
    told = f"{decided}[Rank 2]\nTraceback (most recent call last):\n{error}\n" if decided else ""
    told += "".join(f"[State Transition] {state}.\n" for state in states)
    said = "".join(f"{front}{line}\n" for line in told.splitlines())
    return f"(RayTrainWorker pid=63, ip=10.1.0.4) [rank2]: {error}\n" + said


def counted(first: int, count: int, pid: int = 61) -> str:
    """Steps that a worker prints, each tenth one."""
    return "".join(
        f"(RayTrainWorker pid={pid}, ip=10.1.0.4) step {10 * step} loss {9 - step / 9:.3f}\n"
        for step in range(first, first + count)
    )


AGAIN = ("RUNNING -> RESTARTING", "RESTARTING -> SCHEDULING", "SCHEDULING -> RUNNING")
DONE = f"{CONTROLLER}[State Transition] RUNNING -> FINISHED.\n"


@pytest.mark.parametrize(
    "error", [FULL_GPU, "ValueError: no such shard", "ray.exceptions.ActorDiedError: gone"]
)
@pytest.mark.parametrize("decided", [DECIDED, ""])
@pytest.mark.parametrize("state", ["RESTARTING", "RESCHEDULING"])
def test_ray_train_begins_again_and_comes_to_its_end(
    state: str, decided: str, error: str, tmp_path: Path
) -> None:
    states = [name.replace("RESTARTING", state) for name in AGAIN]
    text = counted(1, 9) + of_ray_train(error, states, decided=decided) + counted(10, 9, pid=73)
    verdict = judged(tmp_path, text + DONE).verdict
    assert (verdict.outcome, len(verdict.earlier)) == ("recovered", 1)
    assert "came to its end" in verdict.headline
    ended = judged(tmp_path, counted(1, 9) + DONE).verdict
    assert (ended.outcome, ended.headline) == ("clean", "no failure: the job came to its end")


@pytest.mark.parametrize("state", ["ERRORED", "ABORTED", "SHUTTING_DOWN"])
def test_ray_train_that_fails_again_or_gives_up_has_failed(state: str, tmp_path: Path) -> None:
    given_up = of_ray_train(FULL_GPU, [f"RUNNING -> {state}"], decided="")
    assert judged(tmp_path, counted(1, 9) + given_up).verdict.cause == "peer_cuda_oom"
    again = counted(1, 9) + of_ray_train(FULL_GPU, AGAIN) + counted(10, 9, pid=73) + given_up
    verdict = judged(tmp_path, again).verdict
    assert (verdict.outcome, verdict.cause, len(verdict.earlier)) == ("failure", "peer_cuda_oom", 1)
