"""What NCCL's own diagnostics report as failed (NCCL 2.31: NCCL_RUN_DIAGNOSTICS, NCCL_RUN_RAS_DIAGNOSTICS).

Their lines have two tags: `[OK]`, and `[INFO]` for all else, a check that could not run among them
(NVIDIA/nccl, src/diagnostics and src/ras/diagnostics_*.cc). Read is only what failed; none of it ends a job.
The printer reports for others, and may do so when all have given up: that is no consequence.
"""

from __future__ import annotations

import re

from nodedoctor.record import replace
from nodedoctor.triage.patterns.log_pattern import LogPattern
from nodedoctor.triage.patterns.rows import read_rows

SLOWER = 0.7
"""Of the median bandwidth: what NCCL itself calls off it."""

_PAIR = (
    r"(?:(?P<host>[\w.-]{1,255}):\d+ )?\bNCCL DIAG \[INFO\] +"
    r"p2p: (?:(?:write|read) mismatch|(?:peer-memory import|launch/check) failed)"
    r" srcRank=(?P<src>\d{1,7}) .{0,60}?dstRank=(?P<dst>\d{1,7}) "
)
_RANKS = r".{0,80}?rank\(s\) \{?(?:(?P<rank>\d+)\})?"
"""Their numbers in the communicator, those of the job in its first one; of several none is named."""

_ROWS = r"""
[nvlink_fabric]
diag-nvlink  of_node  as_warning  of_another  ground=path
  NCCL's own diagnostics could not move data between two GPUs over NVLink
    <PAIR>.{0,60}?(?:path=NV[LB]|handle=CUMEM_FABRIC)\b
diag-links  of_node  as_warning  of_another  ground=path
  NCCL's own diagnostics found links between GPUs that are down
    \bNCCL DIAG \[INFO\] +(?:NVLink|XGMI): (?:inactive|down) link\(s\)<RANKS>
[p2p_pcie_acs_iommu]
diag-pair  of_node  as_warning  of_another
  NCCL's own diagnostics could not move data between two GPUs
    <PAIR>
diag-p2p  of_node  as_warning  of_another
  NCCL's own diagnostics could not move data between some of the GPUs
    \bNCCL DIAG \[INFO\] +p2p: (?:only \d+/\d+ GPU-to-GPU peer accesses passed
    |\d+/\d+ directed GPU P2P edges verified)
[network_ib]
diag-network  of_node  as_warning  of_another
  NCCL's own diagnostics found an adapter far slower than the others
    \bNCCL DIAG \[INFO\] +net bw: (?:\S+ rank (?P<rank>\d+) \((?P<host>[\w.-]{1,255})\):[ ]
    (?P<rate>\d{1,6}\.\d) Gbit/s, >\d+% off median (?P<median>\d{1,6}\.\d)|mode=.{1,300}\btool run timed out)
[gpu_hardware_xid]
diag-ecc  of_node  as_warning  of_another  ground=named
  NCCL's own diagnostics found uncorrected memory errors of a GPU
    \bNCCL DIAG \[INFO\] +ECC: uncorrected volatile errors<RANKS>
[version_mismatch]
diag-driver  hint  of_node  as_warning  of_another
  NCCL's own diagnostics found another driver on some ranks
    \bNCCL DIAG \[INFO\] +(?:CUDA|HIP|NVIDIA graphics) driver version: mismatch across[ ]
"""


def _with_pair(row: LogPattern) -> LogPattern:
    """The row with its pair of ranks; none for a slightly slower adapter."""

    def make_event(match: re.Match[str]) -> object:
        src, dst, rate, median = map(match.groupdict().get, ("src", "dst", "rate", "median"))
        if rate and float(rate) >= SLOWER * float(median or 0):
            return None
        what = row.make(match)
        return replace(what, words=f"rank {src} to rank {dst}") if src else what

    return replace(row, make=make_event)


SIGNS = tuple(map(_with_pair, read_rows(_ROWS.replace("<PAIR>", _PAIR).replace("<RANKS>", _RANKS))))
