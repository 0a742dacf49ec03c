"""What the kernel and the driver report of a process or a GPU, and the rank that it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, judged, raised, steps

XID = "Nov 21 10:10:11 gpu-07 kernel: NVRM: Xid (PCI:0000:ab:00): {code}, pid={pid}, name=python3, {words}\n"
SWITCH = (
    "Nov 21 10:10:11 gpu-07 kernel: nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 12 LTSSM"
    " Fault Up\n"
)
NO_ANSWER = "Timeout after 45s of waiting for RPC response from GPU{gpu} GSP! Expected function 76"
HUNG = "Nov 21 10:10:11 gpu-07 kernel: INFO: task python3:{pid} blocked for more than 120 seconds.\n"


def waits(silent: int, prefix: str = "") -> str:
    """The timeouts of four ranks but one."""
    return "".join(prefix.format(pid=7100 + rank) + caught(rank) for rank in range(4) if rank != silent)


@pytest.mark.parametrize("log", [XID, XID + SWITCH, SWITCH + XID])
def test_a_switch_is_no_second_gpu(log: str, tmp_path: Path) -> None:
    words = "NVLink: fatal error detected on link 7(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"
    reports = log.format(code=74, pid="'<unknown>'", words=words)
    error = raised(2, "torch.AcceleratorError: CUDA error: unspecified launch failure", "loss.item()")
    examined = judged(tmp_path, steps(1, 20) + reports + error)
    cause = "nvlink_fabric" if SWITCH in log else "gpu_hardware_xid"
    assert (examined.verdict.cause, culprits(examined)) == (cause, [2])
    lost = log.format(code=79, pid="'<unknown>'", words="GPU has fallen off the bus.")
    assert judged(tmp_path, steps(1, 20) + lost + error).verdict.cause == "gpu_hardware_xid"


def test_two_gpus_name_no_rank_by_an_error_of_one(tmp_path: Path) -> None:
    xid = XID.format(code=79, pid="'<unknown>'", words="GPU has fallen off the bus.")
    error = raised(2, "torch.AcceleratorError: CUDA error: unspecified launch failure", "loss.item()")
    examined = judged(tmp_path, steps(1, 20) + xid + xid.replace("ab:00", "5d:00") + error)
    assert (examined.verdict.cause, culprits(examined)) == ("gpu_hardware_xid", [None])


NAMES = (
    "[rank2] pid 7102 cuda:2\n",
    "[7102] rank 2 started (pid 7102)\n",
    "rank=2 local_rank=2 pid=7102\n",
    "worker ready: pid 7102 is rank 2\n",
    "Nov 21 10:00:01 gpu-07 train[7102]: [rank2] model is built\n",
    "(launcher) pid map: 7100=rank0 7101=rank1 7102=rank2 7103=rank3\n",
    "pids: rank0=7100 rank1=7101 rank2=7102 rank3=7103\n",
)
"""How programs and launchers say which process a rank is."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "report",
    [XID.format(code=79, pid=7102, words="GPU has fallen off the bus."), HUNG.format(pid=7102)],
)
def test_the_process_of_a_report_is_a_rank(name: str, report: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, name + steps(1, 20) + report)
    assert culprits(examined) == [2]


@pytest.mark.parametrize(
    "name",
    [
        "[rank2] loader worker 1 has pid 7102\n",
        "rank 2: parent pid 7102\n",
        "local rank 2 (pid 7102), rank 6 of 8 on another node\n",
        "rank2=7102 rank3=7103 tokens\n",
        "".join(f"Nov 21 10:00:01 gpu-07 python[7102]: [rank{rank}] built\n" for rank in range(4)),
        "Nov 21 10:00:01 gpu-07 torchrun[7102]: [rank2] built\n",
        "Nov 21 10:00:01 gpu-07 /usr/bin/srun[7102]: [rank2] built\n",
    ],
)
def test_a_process_of_others_is_no_rank(name: str, tmp_path: Path) -> None:
    xid = XID.format(code=79, pid=7102, words="GPU has fallen off the bus.")
    assert culprits(judged(tmp_path, name + steps(1, 20) + xid)) == [None]


@pytest.mark.parametrize(
    ("silent", "gpu", "pid", "ranks"),
    [
        (2, 2, 9999, [2]),
        (2, 2, 7102, [2]),
        (2, 1, 9999, [None]),  # another GPU than that of its number
        (2, 2, 7101, [None]),  # the process waited, and is not the one that did not come
        (2, 1, 7101, [1]),
    ],
)
def test_a_silent_rank_is_on_the_gpu_of_its_number(
    silent: int, gpu: int, pid: int, ranks: list[int | None], tmp_path: Path
) -> None:
    xid = XID.format(code=119, pid=pid, words=NO_ANSWER.format(gpu=gpu))
    tag = "Nov 21 10:20:30 gpu-07 train[{pid}]: "
    examined = judged(tmp_path, steps(1, 20) + xid + waits(silent, tag))
    assert (examined.verdict.cause, culprits(examined)) == ("gpu_hardware_xid", ranks)


@pytest.mark.parametrize("hung", [HUNG.format(pid=9999), "gpu-07 kernel: nfs: server store not responding\n"])
def test_what_hung_in_the_kernel_is_the_silent_rank(hung: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, steps(1, 20) + hung + waits(2))
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [2])


def test_of_two_nodes_a_hang_on_another_names_no_silent_rank(tmp_path: Path) -> None:
    hung = HUNG.format(pid=9999) + HUNG.format(pid=9999).replace("gpu-07", "gpu-08")
    log = steps(1, 20) + hung + "".join(caught(rank) for rank in range(15))
    examined = judged(tmp_path, "world_size=16 nnodes=2\n" + log)
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [])


READERS = ("[rank0] dmesg: ", " 0: ", "rank=0 monitor: ", "0: gpu-07 kernel: ")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("code", [79, 48, 94, 74])
@pytest.mark.parametrize("guilty", [1, 3])
def test_who_reads_a_line_of_the_kernel_is_not_its_rank(
    reader: str, code: int, guilty: int, tmp_path: Path
) -> None:
    report = (
        f"NVRM: Xid (PCI:0000:ab:00): {code}, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    )
    error = raised(guilty, "torch.AcceleratorError: CUDA error: unspecified launch failure", "loss.item()")
    examined = judged(tmp_path, steps(1, 20) + reader + report + error + waits(guilty))
    assert culprits(examined) == [guilty]
    alone = judged(tmp_path, steps(1, 20) + reader + report + caught(0))
    assert 0 not in culprits(alone)


@pytest.mark.parametrize(
    "words", ["bad kernel: fused_rope needs a multiple of 8", "in kernel: too many registers"]
)
def test_a_kernel_of_a_program_is_not_the_kernel_of_its_node(words: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, steps(1, 20) + raised(2, f"RuntimeError: {words}", "step()"))
    assert culprits(examined) == [2]
