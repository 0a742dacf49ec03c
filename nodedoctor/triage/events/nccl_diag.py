"""What NCCL's own diagnostics report as failed (NCCL 2.31: NCCL_RUN_DIAGNOSTICS, NCCL_RUN_RAS_DIAGNOSTICS).

Their lines have two tags: `[OK]`, and `[INFO]` for all else, a check that could not run among them
(NVIDIA/nccl, src/diagnostics and src/ras/diagnostics_*.cc). Read is only what failed; none of it ends a job.
"""

from __future__ import annotations

import re

from nodedoctor.record import replace
from nodedoctor.triage.events.log_pattern import LogPattern, Symptom, log_pattern
from nodedoctor.triage.model import Cause

SLOWER = 0.7
"""Of the median bandwidth: what NCCL itself calls off it."""

_PAIR = (
    r"p2p: (?:(?:write|read) mismatch|(?:peer-memory import|launch/check) failed)"
    r" srcRank=(?P<src>\d{1,7}) .{0,60}?dstRank=(?P<dst>\d{1,7}) "
)
_RANKS = r".{0,80}?rank\(s\) \{?(?:(?P<rank>\d+)\})?"
"""Their numbers in the communicator, those of the job in its first one; of several none is named."""
_RATE = r"\d{1,6}\.\d"


def _failed(
    cause: Cause, name: str, pattern: str, says: str, *, decisive: bool = True, here: bool = False
) -> LogPattern:
    """A check that failed, on a rank that its line names, or `here`: on the node of the line.

    The printer reports for others. It may do so when all have given up: that is no consequence.
    """
    what = Symptom(cause, name, says, decisive, of_node=True, as_warning=True, of_another=True)
    host = r"(?:(?P<host>[\w.-]{1,255}):\d+ )?" if here else ""

    def made(found: re.Match[str]) -> Symptom | None:
        src, dst, rate, median = map(found.groupdict().get, ("src", "dst", "rate", "median"))
        if rate and float(rate) >= SLOWER * float(median or 0):
            return None
        return replace(what, words=f"rank {src} to rank {dst}") if src else what

    return log_pattern(rf"{host}\bNCCL DIAG \[INFO\] +{pattern}", made)


SIGNS: tuple[LogPattern, ...] = (
    _failed(
        "nvlink_fabric",
        "diag-nvlink",
        _PAIR + r".{0,60}?(?:path=NV[LB]|handle=CUMEM_FABRIC)\b",
        "NCCL's own diagnostics could not move data between two GPUs over NVLink",
        here=True,
    ),
    _failed(
        "nvlink_fabric",
        "diag-links",
        rf"(?:NVLink|XGMI): (?:inactive|down) link\(s\){_RANKS}",
        "NCCL's own diagnostics found links between GPUs that are down",
    ),
    _failed(
        "p2p_pcie_acs_iommu",
        "diag-pair",
        _PAIR,
        "NCCL's own diagnostics could not move data between two GPUs",
        here=True,
    ),
    _failed(
        "p2p_pcie_acs_iommu",
        "diag-p2p",
        r"p2p: (?:only \d+/\d+ GPU-to-GPU peer accesses passed|\d+/\d+ directed GPU P2P edges verified)",
        "NCCL's own diagnostics could not move data between some of the GPUs",
    ),
    _failed(
        "network_ib",
        "diag-network",
        rf"net bw: (?:\S+ rank (?P<rank>\d+) \((?P<host>[\w.-]{{1,255}})\): (?P<rate>{_RATE}) Gbit/s, >\d+%"
        rf" off median (?P<median>{_RATE})|mode=.{{1,300}}\btool run timed out)",
        "NCCL's own diagnostics found an adapter far slower than the others",
    ),
    _failed(
        "gpu_hardware_xid",
        "diag-ecc",
        rf"ECC: uncorrected volatile errors{_RANKS}",
        "NCCL's own diagnostics found uncorrected memory errors of a GPU",
    ),
    _failed(
        "version_mismatch",
        "diag-driver",
        r"(?:CUDA|HIP|NVIDIA graphics) driver version: mismatch across ",
        "NCCL's own diagnostics found another driver on some ranks",
        decisive=False,
    ),
)
