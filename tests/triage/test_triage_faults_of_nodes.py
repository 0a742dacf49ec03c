"""Faults of nodes that look like a program's: drives, drivers, wrong values, tasks that are lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import as_document, culprits, judged, raised, steps

from nodedoctor.triage.verdict.result import TriageResult


def kind(examined: TriageResult) -> str:
    """The public kind of a verdict."""
    return str(as_document(examined)["kind"])


DRIVES = (
    "blk_update_request: I/O error, dev nvme2n1, sector 81923 op 0x0:(READ) flags 0x80700 phys_seg 16",
    "I/O error, dev sdb, sector 81923 op 0x0:(READ) flags 0x80700 phys_seg 16 prio class 2",
    "critical medium error, dev sdb, sector 81923 op 0x0:(READ) flags 0x0 phys_seg 1",
    "Buffer I/O error on dev md127, logical block 7, async page read",
    "nvme nvme2: I/O tag 41 (519b) opcode 0x2 (Read) QID 7 timeout, aborting req_op:READ(0) size:131072",
    "nvme nvme2: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
    'XFS (nvme2n1): metadata I/O error in "xfs_imap_to_bp" at daddr 0x140 len 32 error 5',
)
KERNEL = "Jan 12 04:10:11 {host} kernel: {line}\n"
ERRNO_5 = "OSError: [Errno 5] Input/output error"


@pytest.mark.parametrize("path", ["", ": '/scratch/tok/shard_7.bin'"])
@pytest.mark.parametrize("line", DRIVES)
def test_a_drive_that_the_kernel_reports_is_no_programs_error(line: str, path: str, tmp_path: Path) -> None:
    examined = judged(
        tmp_path, steps(1, 20) + KERNEL.format(host="gpu-4", line=line) + raised(2, ERRNO_5 + path)
    )
    assert (kind(examined), culprits(examined)) == ("shm_or_limits/drive_failed", [2])
    assert examined.verdict.culprits[0].host == "gpu-4"


@pytest.mark.parametrize(
    "line", ["I/O error, dev fd0, sector 0 op 0x0:(READ)", "I/O error, dev sr0, sector 0"]
)
def test_a_drive_without_a_disk_is_none(line: str, tmp_path: Path) -> None:
    log = steps(1, 20) + KERNEL.format(host="gpu-4", line=line) + raised(2, ERRNO_5)
    assert judged(tmp_path, log).verdict.cause == "user_code_exception"


def test_a_drive_alone_or_of_another_node_ends_nothing(tmp_path: Path) -> None:
    drive = KERNEL.format(host="gpu-4", line=DRIVES[0])
    assert judged(tmp_path, steps(1, 20) + drive + steps(21, 20)).verdict.outcome == "clean"
    assert judged(tmp_path, drive + raised(2, "ValueError: 3")).verdict.cause == "user_code_exception"
    error = "".join(f"gpu-5: {line}\n" for line in raised(2, ERRNO_5).splitlines())
    assert judged(tmp_path, steps(1, 20) + drive + error).verdict.cause == "user_code_exception"


REQUIRED = "nvidia-container-cli: requirement error: unsatisfied condition: {}"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (REQUIRED.format("cuda>=13.0, please update your driver to a newer version"), "too_old"),
        (REQUIRED.format("cuda >= 12.6"), "too_old"),
        (REQUIRED.format("driver>=575"), "too_old"),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded", "missing"),
        ("nvidia-container-cli: device error: unknown device id: 8", "missing"),
    ],
)
def test_what_a_container_misses_of_the_driver(words: str, expected: str, tmp_path: Path) -> None:
    assert (
        kind(judged(tmp_path, f"docker: Error response from daemon: {words}\n"))
        == f"driver_problem/{expected}"
    )


TEST = "# Out of bounds values : 17 FAILED\n# Avg bus bandwidth    : {speed}\n#\n"


@pytest.mark.parametrize(
    ("speed", "cause"),
    [
        ("471.233", "gpu_hardware_xid"),
        ("82.5", "gpu_hardware_xid"),
        ("41.2", "p2p_pcie_acs_iommu"),
        ("0.61", "p2p_pcie_acs_iommu"),
    ],
)
def test_wrong_values_faster_than_pcie_came_not_through_it(speed: str, cause: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, TEST.format(speed=speed))
    assert (examined.verdict.cause, culprits(examined)) == (cause, [])
    assert examined.verdict.confidence != "high"
    assert as_document(examined)["decision"] == "look"


def test_a_fast_test_without_wrong_values_says_nothing(tmp_path: Path) -> None:
    log = TEST.format(speed="471.2").replace("17 FAILED", "0 OK")
    assert judged(tmp_path, log).verdict.cause != "gpu_hardware_xid"


@pytest.mark.parametrize(
    "prefix", ["", "gpu-0: ", "[pod/job-worker-0/main] ", "2026-12-17T05:06:54.3Z job-group0-0 logs: "]
)
def test_who_reports_a_lost_task_is_not_its_node(prefix: str, tmp_path: Path) -> None:
    lost = "UNAVAILABLE: Task /job:jax_worker/replica:0/task:2 heartbeat timeout. This indicates that\n"
    examined = judged(tmp_path, steps(1, 20) + prefix + lost)
    assert culprits(examined) == [2]
    assert examined.verdict.culprits[0].host is None


@pytest.mark.parametrize(
    "reason",
    [
        "Failed to initialize NVML: Driver/library version mismatch",
        "[Sat Nov 21 09:58:01 2026] NVRM: API mismatch: the client has the version 570.133, but",
    ],
)
@pytest.mark.parametrize("seen", ["CUDA unknown error - this may be due to an environment", "no GPUs found!"])
def test_a_driver_that_says_why_leaves_nothing_to_guess(seen: str, reason: str, tmp_path: Path) -> None:
    for text in (f"RuntimeError: {seen}\n{reason}\n", f"{reason}\nRuntimeError: {seen}\n"):
        verdict = judged(tmp_path, text).verdict
        assert verdict.cause == "driver_problem" and "another version" in verdict.headline
    alone = judged(tmp_path, f"RuntimeError: {seen}\n").verdict
    assert alone.cause == "driver_problem" and "another version" not in alone.headline
