"""Who only waited, or fell over while it ended, is no culprit; limits of containers and guests."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import as_document, caught, culprits, elastic, judged, raised, status, steps

PAIR = "Application timeout caused pair closure"
GLOO = {
    "recv": "[/pytorch/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 30000ms for"
    " recv operation to complete",
    "closure": PAIR,
    "closure, with a place": f"[/w/gloo/transport/tcp/unbound_buffer.cc:76] {PAIR}",
    "read": "[../third_party/gloo/gloo/transport/tcp/buffer.cc:72] Read timeout [127.0.0.1]:29501",
    "write": "[../third_party/gloo/gloo/transport/tcp/pair.cc:314] Write timeout [127.0.0.1]:29501",
    "send": "[../third_party/gloo/gloo/transport/ibverbs/buffer.cc:144] Send timeout lid 7",
}


@pytest.mark.parametrize("name", GLOO)
def test_a_timeout_of_gloos_is_a_wait(name: str, tmp_path: Path) -> None:
    """The rank that prints it waited, alone or beside others."""
    one = judged(tmp_path, steps(1, 5) + raised(2, f"RuntimeError: {GLOO[name]}")).verdict
    assert (one.cause, [who.rank for who in one.victims]) == ("undetermined", [2])
    assert "rank 2 waited" in one.headline
    told = "".join(raised(rank, f"RuntimeError: {GLOO[name]}") for rank in (1, 2, 3))
    examined = judged(tmp_path, "world_size=4\n" + told)
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [0])


def test_a_connection_that_was_closed_is_something_else(tmp_path: Path) -> None:
    gone = "RuntimeError: [/w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:29596."
    assert judged(tmp_path, "".join(raised(rank, gone) for rank in (0, 1, 3))).verdict.cause == "peer_died"


REMOTE = "NCCL error: remote process exited or there was a network error, NCCL version 2.22.3"
LOST = (
    "[rank{0}]:[E722 08:55:15.724116323 ProcessGroupNCCL.cpp:1605] [PG ID 0 PG GUID 0(default_pg) Rank {0}]"
    f" Process group watchdog thread terminated with exception: {REMOTE}\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting early.\n"
)
THROWN = (
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    f"  what():  [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated: {REMOTE}\n"
)
CRASHES = (
    "[node-3:1    :0:98] Caught signal 11 (Segmentation fault: Sent by the kernel at address (nil))\n",
    "[node-3:71002:0:98] Caught signal 7 (Bus error: nonexistent physical address)\n",
    "Fatal Python error: Segmentation fault\n",
)


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_of_who_aborts_is_part_of_the_abort(crash: str, tmp_path: Path) -> None:
    alone = judged(tmp_path, steps(1, 5) + LOST.format(0) + THROWN + crash).verdict
    assert (alone.cause, alone.culprits) == ("undetermined", ())
    assert (
        "rank 0" in alone.headline
        and "lost a peer" in alone.headline
        and "part of the abort" in alone.headline
    )
    first = judged(tmp_path, steps(1, 5) + crash + LOST.format(0)).verdict
    assert "part of the abort" not in first.headline


def test_a_launcher_sees_who_crashed_in_its_abort(tmp_path: Path) -> None:
    text = "".join(map(LOST.format, (0, 1, 3))) + elastic([(0, -11), (1, -6), (2, -9), (3, -6)], 2)
    examined = judged(tmp_path, steps(1, 5) + text)
    assert (examined.verdict.cause, culprits(examined)) == ("peer_died", [2])


SHM = (
    "a:8639:8745 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\n",
    "a:8639:8745 [0] NCCL INFO include/shm.h:41 -> 2\n\n",
    "a:8639:8745 [0] include/shm.h:48 NCCL WARN Error while creating shared memory segment nccl-1 (size 9)\n",
)
FULL = "RuntimeError: CUDA error: system not yet initialized\n"
GUEST = "nv-fabricmanager: request failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\n"
STATE = "    Fabric\n        State                             : In Progress\n        Status : N/A\n"
LIMITS = [
    ("".join(SHM), "shm_or_limits", ("--shm-size",)),
    (SHM[0], "shm_or_limits", ("--shm-size",)),
    (
        raised(1, "RuntimeError: pidfd_getfd: Operation not permitted"),
        "shm_or_limits",
        ("SYS_PTRACE", "seccomp=unconfined", "--ipc=host"),
    ),
    (FULL + STATE + GUEST, "nvlink_fabric", ("Ask the provider", "new instance")),
    (FULL + GUEST, "nvlink_fabric", ("Ask the provider", "new instance")),
    (FULL + STATE, "nvlink_fabric", ("ask the provider", "lspci")),
    (FULL, "nvlink_fabric", ("Start or repair the Fabric Manager",)),
    (
        "a:1:2 [0] bootstrap.cc:48 NCCL WARN Bootstrap : no socket interface found\n",
        "network_socket_interface",
        ("Unset NCCL_SOCKET_IFNAME", "ip -br addr"),
    ),
]


WRAPPERS = (
    "CUDA driver initialization failed, you might not have a CUDA gpu.",
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before?",
)
NUMBERS = [
    ("802: system not yet initialized", "nvlink_fabric"),
    ("803: system has unsupported display driver / cuda driver combination", "version_mismatch"),
    ("804: forward compatibility was attempted on non supported HW", "version_mismatch"),
    ("100: no CUDA-capable device is detected", "driver_problem"),
]


@pytest.mark.parametrize(("number", "cause"), NUMBERS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_number_of_an_error_says_more_than_the_words_around_it(
    wrapper: str, number: str, cause: str, tmp_path: Path
) -> None:
    text = f"Traceback (most recent call last):\nRuntimeError: {wrapper} Error {number}\n"
    assert judged(tmp_path, text).verdict.cause == cause


@pytest.mark.parametrize(("text", "cause", "words"), LIMITS)
def test_what_a_container_or_a_guest_lacks(
    text: str, cause: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    examined = judged(tmp_path, text)
    assert examined.verdict.cause == cause
    told = str(as_document(examined)["fixes"])
    assert all(word in told for word in words)
    assert ("Fabric Manager; its version" in told) == (text == FULL)


def test_a_server_without_nvswitches_has_no_fabric_to_blame(tmp_path: Path) -> None:
    assert judged(tmp_path, GUEST + steps(1, 9)).verdict.cause == "none"
    assert judged(tmp_path, GUEST).verdict.cause != "nvlink_fabric"


def test_all_ranks_in_their_first_collective(tmp_path: Path) -> None:
    sizes = {"seq": 1, "op": "ALLGATHER", "numel": 1, "out": 4}
    document = as_document(judged(tmp_path, "".join(caught(rank, **sizes) for rank in range(4))))  # type: ignore[arg-type]
    assert "no data ever moved" in document["headline"]
    told = str(document["next"])
    assert "NCCL_P2P_DISABLE=1" in told and "logs of all ranks" not in told
    assert "no other rank's collective" not in str(document["alternatives"])


HANG = (
    "ray.train.v2.api.exceptions.NCCLHangError: NCCL hang detector: 1 of 3 communicators made no progress for"
    " 120 seconds. This usually means the ranks disagreed on a collective, or a hardware failure.\n"
)
NAMED = (
    "  - World rank 3 (host 10.0.0.4, pid 4711, cuda:0), rank 1 of communicator 0x1234/0x99, is behind by 1"
    " AllReduce launch(es).\n"
)
SILENT = "  - World rank 3 (host 10.0.0.4, pid 4711), rank 1 of communicator 0x1/0x9, is unresponsive.\n"
FOLDER = "  - Folder with the per-rank stack traces and RAS artifacts: /exp/run/nv_hang_detector_artifacts\n"
OLD = "  - per-rank stack traces: /exp/run/hang_detector/stack_traces\n"


@pytest.mark.parametrize("prefix", ["", "(TrainController pid=811) "])
@pytest.mark.parametrize(
    ("named", "cause", "ranks"),
    [("", "undetermined", []), (NAMED, "cpu_stuck_or_slow_rank", [3]), (SILENT, "peer_died", [3])],
)
def test_rays_hang_detector(named: str, cause: str, ranks: list[int], prefix: str, tmp_path: Path) -> None:
    for folder, path in ((FOLDER, "/exp/run/nv_hang_detector_artifacts"), (OLD, "/exp/run/hang_detector")):
        text = "".join(prefix + line + "\n" for line in (HANG + named + folder).splitlines())
        examined = judged(tmp_path, steps(1, 5) + text)
        assert (examined.verdict.cause, culprits(examined)) == (cause, ranks)
        document = as_document(examined)
        if cause != "peer_died":
            assert f"nodedoctor triage {path}'" in str(document["fixes"]) + str(document["next"])


def test_a_warning_of_rays_detector_is_none(tmp_path: Path) -> None:
    said = "Possible NCCL hang detected! 1 of 3 communicators (0x1/0x2) have made no progress for 60 seconds."
    said += " A NCCLHangError will be raised after 120 seconds of no progress if this persists.\n"
    assert judged(tmp_path, steps(1, 5) + said + steps(6, 60)).verdict.cause == "none"


def test_statuses_alone_show_who_is_behind(tmp_path: Path) -> None:
    """The lines that name the collective are often left out of what is pasted."""
    waiting = "".join(status(rank, 9301, 9306, 9300) for rank in (0, 1, 3))
    signal = (
        "[rank2]:[E1121 10:20:30.500000000 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 2]"
        " Received a dump signal due to a collective timeout from rank 0 and we will try our best to dump the"
        " debug info. Last enqueued NCCL work: {}, last completed NCCL work: {}.\n"
    )
    behind = judged(tmp_path, waiting + signal.format(9300, 9300))
    assert (behind.verdict.cause, culprits(behind)) == ("cpu_stuck_or_slow_rank", [2])
    assert judged(tmp_path, waiting + signal.format(9306, 9300)).verdict.cause == "undetermined"
