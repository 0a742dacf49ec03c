"""A process is one culprit by all its names, and an error is not of who only missed its answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, elastic, judged, raised, steps

from nodedoctor.triage.describe import blameable_identities
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.model import Identity

HOST, PID = "10.1.1.1", 4411
ON_HOST, UNPLACED = Identity(host=HOST, pid=PID), Identity(pid=PID, world="TaskRunner")
ELSEWHERE = Identity(host="10.1.1.2", pid=PID)


def test_a_process_with_and_without_its_host_is_one() -> None:
    for people in ((ON_HOST, UNPLACED), (UNPLACED, ON_HOST)):
        assert blameable_identities(*people) == (Identity(host=HOST, pid=PID, world="TaskRunner"),)


def test_processes_of_two_hosts_with_one_id_are_two() -> None:
    assert blameable_identities(ON_HOST, ELSEWHERE) == (ON_HOST, ELSEWHERE)
    assert len(blameable_identities(ON_HOST, UNPLACED, ELSEWHERE)) == 3
    assert len(blameable_identities(UNPLACED, Identity(pid=PID + 1))) == 2


FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 3 has a total capacity of"
    " 79.11 GiB of which 612.00 MiB is free. Process 4418 has 61.02 GiB memory in use.\n"
)
KEY = 'Traceback (most recent call last):\n  File "/w/serve.py", line 7, in <module>\n    f()\nKeyError: 1\n'
UNREACHED = (
    "ConnectionError: The vLLM server can't be reached at http://0.0.0.0:8000 after 240.0 seconds.",
    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=8000): refused",
    "httpx.ConnectError: All connection attempts failed",
    "ConnectionRefusedError: [Errno 111] Connection refused",
)


@pytest.mark.parametrize("error", [FULL, KEY])
@pytest.mark.parametrize("unreached", UNREACHED)
def test_who_reached_no_server_did_not_raise_what_the_server_raised(
    error: str, unreached: str, tmp_path: Path
) -> None:
    log = steps(1, 3) + error + raised(0, unreached) + elastic([(0, 1)], 0)
    examined = judged(tmp_path, log)
    assert examined.verdict.cause in ("peer_cuda_oom", "user_code_exception")
    assert 0 not in culprits(examined)


@pytest.mark.parametrize("error", [FULL, KEY])
def test_an_error_without_a_name_is_of_the_only_rank_that_failed(error: str, tmp_path: Path) -> None:
    assert culprits(judged(tmp_path, steps(1, 3) + error + elastic([(0, 1)], 0))) == [0]


def actor(pid: int, text: str) -> str:
    return f"(PolicyWorker pid={pid}) {text}\n"


def raised_by(pid: int) -> str:
    lines = ("Traceback (most recent call last):", '  File "/w/train.py", line 7, in step', "KeyError: 'a'")
    return "".join(actor(pid, line) for line in lines)


@pytest.mark.parametrize("missing", [1, 2, 6])
def test_the_only_process_of_a_class_without_a_rank_has_the_one_that_is_missing(
    missing: int, tmp_path: Path
) -> None:
    waits = "".join(actor(5000 + rank, caught(rank).strip()) for rank in range(8) if rank != missing)
    assert culprits(judged(tmp_path, raised_by(5000 + missing) + waits)) == [missing]


@pytest.mark.parametrize("ranks", [(0, 1, 4, 5, 6, 7), (0, 1, 2, 3), ()])
def test_no_rank_is_guessed_where_none_or_several_are_missing(ranks: tuple[int, ...], tmp_path: Path) -> None:
    waits = "".join(actor(5000 + rank, caught(rank).strip()) for rank in ranks)
    assert culprits(judged(tmp_path, raised_by(5012) + waits)) == [None]


def test_two_groups_of_one_class_have_no_missing_rank(tmp_path: Path) -> None:
    waits = "".join(actor(5000 + rank, caught(rank).strip()) for rank in (0, 1, 3))
    more = "".join(actor(6000 + rank, caught(rank).strip()) for rank in (0, 1, 2, 3))
    assert culprits(judged(tmp_path, raised_by(5012) + waits + more)) == [None]


def session(folder: Path, actors: dict[int, str], guilty: int, silent: int = 0) -> None:
    """The files of Ray's workers: each has its class at its head, and a rank in its lines, but one."""
    for at, (pid, name) in enumerate(actors.items()):
        head = f":job_id:0100000{at % 2}\n:actor_name:{name}\n"
        own = "" if at in (guilty, silent) else caught(at)
        full = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
        error = (
            'Traceback (most recent call last):\n  File "/job/actor.py", line 9, in f\n    step()\n' + full
        )
        text = head + own + (f"{error}\n" if at == guilty else "")
        (folder / f"worker-{pid:08x}ab-01000000-{pid}.err").write_text(text)
        (folder / f"worker-{pid:08x}cd-01000000-{pid}.out").write_text(head)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ["Trainer", "WorkerDict", "PolicyWorker"])
@pytest.mark.parametrize("guilty", [0, 3, 6])
def test_the_worker_whose_files_name_no_rank_has_the_missing_one(
    guilty: int, name: str, tmp_path: Path
) -> None:
    session(tmp_path, {4100 + at: name for at in range(8)}, guilty, guilty)
    examined = examine_job([str(tmp_path)])
    assert (examined.verdict.cause, culprits(examined)) == ("peer_cuda_oom", [guilty])


def test_of_two_without_a_rank_or_of_other_classes_none_is_known(tmp_path: Path) -> None:
    session(tmp_path, {4100 + at: "Trainer" for at in range(8)}, 3, 5)
    assert culprits(examine_job([str(tmp_path)])) == [None]
    session(tmp_path, {4100 + at: "Trainer" if at != 3 else "Reader" for at in range(8)}, 3, 3)
    assert culprits(examine_job([str(tmp_path)])) == [None]
