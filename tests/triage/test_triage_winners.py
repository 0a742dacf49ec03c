"""Two causes in one job: the one that explains the other wins, wherever it stands in the material."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, elastic, judged, raised, steps

GUILTY = 2
OTHERS = (0, 1, 3)
GONE = "RuntimeError: [/w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:29596."

# The kernel's own lines: their clock says that they came before all the others.
KERNEL = {
    "a GPU off the bus": "[Sat Nov 21 10:10:00 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=4002, name=python, "
    "GPU has fallen off the bus.\n",
    "an OOM kill": "[Sat Nov 21 10:10:05 2026] Memory cgroup out of memory: Killed process 4002 (python3) "
    "total-vm:1875232kB, anon-rss:1875000kB\n",
}
# What the job itself prints.
PRINTED = {
    "a CUDA OOM": raised(GUILTY, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."),
    "an exception": raised(GUILTY, "ValueError: could not convert string to float"),
    "a killed rank": elastic([(0, -6), (1, -6), (GUILTY, -9), (3, -6)], GUILTY),
    "a rank that exited": elastic([(0, -6), (1, -6), (GUILTY, 1), (3, -6)], GUILTY),
    "an aborted rank": elastic([(0, -6), (1, -6), (GUILTY, -6), (3, -6)], GUILTY),
    "a rank that never came": "".join(caught(rank) for rank in OTHERS),
    "another collective": caught(GUILTY, seq=9, op="BROADCAST", numel=1)
    + "".join(caught(rank, seq=8) for rank in OTHERS),
    "closed connections": "".join(raised(rank, GONE) for rank in OTHERS),
    "a silent InfiniBand peer": "node-2:5776:5902 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got "
    "completion from peer 10.2.0.5<33092> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=0 len=0 vendor_err=129 "
    "hca mlx5_0\n",
    "no Fabric Manager": "RuntimeError: CUDA error: system not yet initialized\n",
    "a full /dev/shm": "a:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-UbzKZ9 "
    "to 9637892 bytes, error: No space left on device (28)\n",
    "no interface": "vm:28710:28710 [0] bootstrap.cc:126 (bootstrapNetInit) NCCL WARN Bootstrap : no socket "
    "interface found\n",
    "a foreign libnccl": "ImportError: /venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so: "
    "undefined symbol: ncclCommShrink\n",
    "an old driver": "RuntimeError: The NVIDIA driver on your system is too old (found version 12020).\n",
}
TEXTS = {**KERNEL, **PRINTED}

# A cause, its name in the verdict, and what it makes happen in the rest of the job.
WINS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "a GPU off the bus",
        "gpu_hardware_xid",
        (
            "an OOM kill",
            "a CUDA OOM",
            "an exception",
            "a killed rank",
            "an aborted rank",
            "a rank that never came",
            "another collective",
            "closed connections",
            "a silent InfiniBand peer",
        ),
    ),
    (
        "an OOM kill",
        "peer_host_oom",
        ("a killed rank", "a rank that never came", "closed connections", "a silent InfiniBand peer"),
    ),
    (
        "a CUDA OOM",
        "peer_cuda_oom",
        ("a rank that exited", "a rank that never came", "closed connections", "a silent InfiniBand peer"),
    ),
    (
        "an exception",
        "user_code_exception",
        ("a rank that exited", "a rank that never came", "closed connections", "a silent InfiniBand peer"),
    ),
    (
        "a killed rank",
        "peer_died",
        ("a rank that never came", "closed connections", "a silent InfiniBand peer"),
    ),
    ("no Fabric Manager", "nvlink_fabric", ("a rank that exited", "closed connections")),
    ("a full /dev/shm", "shm_or_limits", ("a rank that exited", "closed connections")),
    ("no interface", "network_socket_interface", ("a rank that exited", "closed connections")),
    ("a foreign libnccl", "version_mismatch", ("a rank that exited", "closed connections")),
    ("an old driver", "driver_problem", ("a rank that exited", "closed connections")),
)
PAIRS = [(first, cause, then) for first, cause, follows in WINS for then in follows]
OF_THE_KERNEL = [pair for pair in PAIRS if pair[0] in KERNEL and pair[2] in PRINTED]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("first", "cause", "then"), PAIRS)
def test_what_explains_the_other_wins(first: str, cause: str, then: str, tmp_path: Path) -> None:
    found = judged(tmp_path, steps(1, 4) + TEXTS[first] + TEXTS[then]).verdict
    assert found.cause == cause


@pytest.mark.parametrize(("first", "cause", "then"), OF_THE_KERNEL)
def test_a_kernel_log_counts_by_its_clock_and_not_by_its_place(
    first: str, cause: str, then: str, tmp_path: Path
) -> None:
    found = judged(tmp_path, steps(1, 4) + TEXTS[then], TEXTS[first]).verdict
    assert found.cause == cause
