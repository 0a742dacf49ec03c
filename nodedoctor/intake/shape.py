"""One output that is recognised: how it begins, and what its lines look like."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nodedoctor.patterns import regex
from nodedoctor.record import record

KEY_VALUE = r"\s+\S|(?!\d{4}-)[\w ./()#'-]{1,60}\s*(?::(?=\s|$|[\da-fA-F]{2}:)|=)|[-=]{3}"
"""Indented lines, `key: value`, `key = value`, and rules."""


JOB_LINE = regex(
    r"[\w.-]{1,64}:\d{1,9}:\d{1,9} \[-?\d{1,3}\] |Traceback \(most recent call last\)"
    r"|\[(?:rank|default)\d{1,6}\]:|(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception): "
)
"""The beginning of a job's line (NCCL, a traceback, a rank): it ends an output."""


TIMED_LINE = regex(r"[IWEF]\d{4} \d\d:\d\d:\d\d|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")
"""A line of a logger: it ends an output that would hold any line with a colon."""


LOOSE = rf"\A(?:{KEY_VALUE})"
"""What any program may print, too."""


FRONT = (
    r"^(?P<front>(?:[>|] ?){0,12}(?:[\w.-]{1,64}: |\[(?!\d+\.)\w[\w.-]{0,63}\]:? |[\w.-]{1,64} {1,20}\| )?"
    r"|[^\n=]{0,40}\d\d:\d\d:\d\d[^\n=]{0,80}?(?:[\]:|Z] ?| INFO | std(?:out|err) [FP] ))"
)
"""Prefixes of a line that is recognised by itself: quote marks, a node, a rank, a logger."""


_ABOUT: Mapping[str, tuple[str, ...]] = {
    "gpu": (
        *("nvidia-smi", "nvidia-smi-q", "nvidia-smi-xml", "nvidia-smi-topo", "nvidia-smi-topo-p2p"),
        *("nvidia-smi-nvlink", "nvidia-smi-nvlink-errors", "dcgm-health", "gpud-scan", "health-validation"),
        *("nvrx-health", "driver-files", "nvidia-smi-dmon", "nvidia-smi-list"),
    ),
    "rdma": (
        *("ibstat", "ibstatus", "ibv-devinfo", "rdma-link", "mlxlink", "ib-write-bw", "ibdiagnet"),
        *("ibdiagnet-csv", "ibqueryerrors", "perfquery"),
    ),
    "pci": ("lspci",),
    "kernel": ("kernel-log",),
    "cluster": (
        *("slurm-node", "sinfo", "sinfo-reasons", "kubernetes-node", "kubernetes-nodes", "kubernetes-pod"),
        "kubernetes-pods",
        *("nvcre-report", "ray-status", "device-plugin"),
    ),
    "services": ("services", "fabric-manager-log", "imex-domain"),
    "network": ("net", "ethtool", "chronyc-sources", "priority-counters", "mlnx-qos"),
    "stack": ("collect-env", "pip-list"),
    "host": (
        "disk",
        "limits",
        "numactl",
        "edac",
        "ipmitool",
        "host",
        "host-messages",
        "process-list",
        "docker-inspect",
    ),
    "job": ("env", "nccl-inspector", "nccl-lines"),
    "measured": (
        "dcgmi-diag",
        "nvbandwidth",
        "all-reduce-perf",
        "p2p-bandwidth",
        "bandwidth-test",
        "gpu-burn",
    ),
}
"""Which probes tell of what kind of thing."""


@record
class Shape:
    """One output. `probe` is "" where it is only known what it is; with `first` its head begins a new copy.

    `each_line` is an output without a head: every line of it matches the expression. `tool` is the command
    that prints it, `source` where its layout is from.
    """

    literals: tuple[str, ...]
    head: re.Pattern[str]
    what: str
    probe: str
    tool: str
    source: str
    body: re.Pattern[str]
    first: bool = False
    each_line: bool = False
    joins: bool = False
    """Several copies are parts of one output, and not the same thing at different times."""
    foreign: int = 4
    """Lines in a row that are none of its own, from which it has ended: one may be a warning. Ours."""
    needs: re.Pattern[str] | None = None
    """What its probe cannot be read without; lines that were cut out of it only tell what they are."""

    @property
    def about(self) -> str:
        """What kind of thing it tells of."""
        return next((kind for kind, probes in _ABOUT.items() if self.probe in probes), "")


def is_loose(shape: Shape) -> bool:
    """Whether an output's lines are known by nothing but a blank or a colon."""
    return KEY_VALUE in shape.body.pattern


def by_head(
    literal: str | tuple[str, ...],
    head: str,
    what: str,
    probe: str,
    source: str,
    *,
    tool: str = "",
    body: str = KEY_VALUE,
    first: bool = False,
    joins: bool = False,
    needs: str = "",
) -> Shape:
    """An output that is recognised by how it begins; its command is its name, unless it differs."""
    literals = (literal,) if isinstance(literal, str) else literal
    pattern = regex(rf"\A(?:{body})")
    return Shape(
        literals, regex(head), what, probe, tool or what, source, pattern,
        first=first, joins=joins, needs=regex(needs, re.MULTILINE) if needs else None,
    )  # fmt: skip


def by_lines(
    literals: tuple[str, ...],
    line: str,
    what: str,
    probe: str,
    source: str,
    *,
    tool: str = "",
    body: str = r"\s+\S",
    foreign: int = 1,
) -> Shape:
    """An output of which every line is recognised by itself."""
    pattern = regex(line, re.MULTILINE)
    rest = regex(rf"\A(?:{body})")
    return Shape(
        literals, pattern, what, probe, tool or what, source, rest,
        each_line=True, joins=True, foreign=foreign,
    )  # fmt: skip
