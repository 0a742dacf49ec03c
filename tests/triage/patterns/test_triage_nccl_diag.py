"""NCCL's own diagnostics: what failed decides where nothing else does, and what passed says nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from say import as_document, caught, elastic, judged, raised, steps

HEAD = "gpu-a:24563 NCCL DIAG "
PAIR = (
    "p2p: {} srcRank=0 srcCudaDev=0 srcNvmlDev=0 dstRank=3 dstCudaDev=3 dstNvmlDev=3 path={} handle={} {};"
    " check the affected pair with 'nvidia-smi topo -p2p p'"
)
SEEN = "expected=0x00000000d1a60001 got=0x0000000000000000"
FAILED = {
    "counts": ("p2p: only 52/56 GPU-to-GPU peer accesses passed verification", "p2p_pcie_acs_iommu", []),
    "edges": ("p2p: 52/56 directed GPU P2P edges verified (skipped indirect=2)", "p2p_pcie_acs_iommu", []),
    "a pair over PCIe": (
        PAIR.format("write mismatch", "PHB", "LEGACY_CUDA_IPC", SEEN),
        "p2p_pcie_acs_iommu",
        ["gpu-a"],
    ),
    "a pair over NVLink": (
        PAIR.format("read mismatch", "NVL", "CUMEM_POSIX_FD", SEEN),
        "nvlink_fabric",
        ["gpu-a"],
    ),
    "a pair of two trays": (
        PAIR.format("peer-memory import failed", "NET", "CUMEM_FABRIC", "reason=import"),
        "nvlink_fabric",
        ["gpu-a"],
    ),
    "a slow adapter": (
        "net bw: same-nic rank 3 (gpu-b): 190.0 Gbit/s, >30% off median 391.5 Gbit/s in comm 0x7a3f",
        "network_ib",
        [3],
    ),
    "a dead adapter": (
        "net bw: mode=same server_rank=0 server_host=gpu-a server_device=mlx5_0 client_rank=8"
        " client_host=gpu-b client_device=mlx5_0 memory=cuda tool run timed out in comm 0x7a3f",
        "network_ib",
        [],
    ),
    "memory": (
        "ECC: uncorrected volatile errors on rank(s) {3} (worst=2) across 8 ranks",
        "gpu_hardware_xid",
        [3],
    ),
    "links": ("NVLink: inactive link(s) on rank(s) {3} across 8 ranks in comm 0x7a3f", "nvlink_fabric", [3]),
}
SILENT = (
    "=== NCCL Diagnostics ===",
    "[OK]   p2p: verified P2P access in both directions between every GPU pair (56 peer accesses)",
    "[OK]   p2p: all 56 directed GPU P2P edges verified",
    "[OK] net bw: skipped (single host or no network transport)",
    "[OK] net bw: 376.1/391.5/398.2 Gbit/s min/median/max same-nic bw (across 8 ranks) in comm 0x7a3f",
    "[INFO] net bw: cross-nic rank 3 (gpu-b): 590.0 Gbit/s, >30% off median 391.5 Gbit/s in comm 0x7a3f",
    "[INFO] net bw: required external tool missing in comm 0x7a3f",
    "[INFO] net bw: setup failed on rank 3 in comm 0x7a3f",
    "[INFO] p2p: temporarily enabled context-wide CUDA peer access rank=0 cudaDev=0; avoid concurrent use",
    "[INFO] p2p: resource cleanup failed rank=0 result=1; some temporary resources may remain",
    "[INFO] ECC: unavailable via NVML across 8 ranks in comm 0x7a3f",
    "[OK]   ECC: no uncorrected volatile errors across 8 ranks in comm 0x7a3f",
    "[OK]   NVLink: found 18 link(s) per device, all active across 8 ranks in comm 0x7a3f",
    "[INFO] NCCL environment: mismatch across 8 ranks in comm 0x7a3f for NCCL_DEBUG",
    "NCCL diagnostics completed in 245.3 ms across 8 ranks",
)
HANG = caught(0, seq=1) + caught(1, seq=1)
HOW = {"hang": HANG, "exit": elastic([(0, 1), (1, 1)], 0), "nothing else": ""}


def told(lines: Iterable[str], prefix: str = "") -> str:
    """Lines of a report."""
    return "".join(f"{prefix}{HEAD}{line}\n" for line in lines)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "prefix", ["", "[rank0]: ", "(Worker pid=81, ip=10.0.0.3) ", "2026-11-21 10:20:30,120 "]
)
@pytest.mark.parametrize("name", FAILED)
def test_what_failed_decides(name: str, prefix: str, how: str, tmp_path: Path) -> None:
    line, cause, named = FAILED[name]
    examined = judged(tmp_path, told((SILENT[0], f"[INFO] {line}", SILENT[-1]), prefix) + HOW[how])
    verdict = examined.verdict
    people = [who.host if who.rank is None else who.rank for who in verdict.culprits]
    assert (verdict.cause, verdict.confidence, people) == (cause, "medium", named)
    assert line[:40] in str(as_document(examined)["evidence"])


def test_the_pair_says_more_than_the_count(tmp_path: Path) -> None:
    lines = [f"[INFO] {FAILED[name][0]}" for name in ("counts", "a pair over NVLink")]
    verdict = judged(tmp_path, told(lines) + HANG).verdict
    assert verdict.cause == "nvlink_fabric" and "rank 0 to rank 3" in verdict.headline


def test_an_error_of_the_program_is_no_work_of_a_path(tmp_path: Path) -> None:
    lines = told(["[INFO] " + FAILED["counts"][0]])
    assert judged(tmp_path, lines + raised(1, "KeyError: 'text'")).verdict.cause == "user_code_exception"


def test_a_job_that_works_has_no_failure(tmp_path: Path) -> None:
    lines = told(["[INFO] " + line for line, _, _ in FAILED.values()])
    assert judged(tmp_path, steps(1, 3) + lines + steps(4, 60)).verdict.cause == "none"


LOGS = (
    HANG,
    steps(1, 9),
    raised(2, "ValueError: no batch"),
    steps(1, 9) + elastic([(0, -15), (1, -9)], 1),
    "".join(caught(rank) for rank in (0, 1, 3)),
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=4002, name=python, GPU has fallen off the bus.\n",
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(
    log=st.sampled_from(LOGS),
    lines=st.lists(st.sampled_from(SILENT), min_size=1, max_size=6),
    behind=st.booleans(),
    prefix=st.sampled_from(["", "[rank0]: ", "(Worker pid=81) "]),
)
def test_what_passed_changes_nothing(
    tmp_path: Path, log: str, lines: list[str], behind: bool, prefix: str
) -> None:
    more = told(lines, prefix)
    one, other = judged(tmp_path, log).verdict, judged(tmp_path, log + more if behind else more + log).verdict
    assert (one.outcome, one.cause, one.confidence) == (other.outcome, other.cause, other.confidence)
    ranks = [[who.rank for who in verdict.culprits] for verdict in (one, other)]
    assert ranks[0] == ranks[1]
