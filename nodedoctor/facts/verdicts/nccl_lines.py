"""Paths that NCCL says it does not use, in the lines of a job's log.

Format: NVIDIA/nccl 2.8 to 2.29, src/transport/net_ib and src/transport/net.cc.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Verdict, make_verdict
from nodedoctor.grouping import group_pairs
from nodedoctor.patterns import regex
from nodedoctor.wording import comma_list

PROBE = "nccl-lines"
nccl_lines = pasted(PROBE, "Lines of NCCL_DEBUG=INFO about paths that it does not use.")
_verdict = partial(make_verdict, PROBE, "NCCL")

NO_GPUDIRECT = "gpudirect-rdma"
NO_GPUDIRECT_LINE = regex(
    r"^(?:[^\n]{0,200}?\b(?P<host>[A-Za-z][\w.-]{0,63}):\d{1,9}:\d{1,9} )?[^\n]{0,200}?NCCL INFO NET/IB : "
    r"GPU Direct RDMA Disabled for HCA \d{1,3} '(?P<nic>[\w.-]{1,40})'"
)


def verdicts(output: str) -> Iterator[Verdict]:
    """The adapters without GPUDirect RDMA, once for each node."""
    rows = [match for line in output.splitlines() if (match := NO_GPUDIRECT_LINE.search(line))]
    for host, matches in group_pairs((row["host"] or "", row) for row in rows).items():
        nics = comma_list(sorted({row["nic"] for row in matches}), 4)
        where = f" on {host}" if host else ""
        words = f"GPUDirect RDMA is off for {nics}{where}: data goes through host memory"
        yield _verdict("warn", words, NO_GPUDIRECT, matches[0][0])
