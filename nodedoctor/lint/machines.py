"""Settings that are for one kind of machine, beside those for another: copied from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodedoctor.lint.remark import NodeContext, Remark
from nodedoctor.patterns import regex
from nodedoctor.record import record
from nodedoctor.steps import repair


@record
class Machine:
    """A kind of machine, and which variables with which values only it needs."""

    name: str
    variable: str
    value: str
    source: str


_TCPX = "cloud.google.com, GPUDirect-TCPX and TCPXO"
_EFA = "aws/aws-ofi-nccl, doc/efa-env-var.md"
MACHINES: tuple[Machine, ...] = (
    Machine("AWS with EFA", r"FI_PROVIDER", r"efa", _EFA),
    Machine("AWS with EFA", r"FI_EFA_\w+", r".+", _EFA),
    Machine("Azure ND", r"NCCL_TOPO_FILE", r"/opt/microsoft/.+", "Azure/azhpc-images, topology files"),
    Machine("Azure ND", r"NCCL_IB_HCA", r"=?mlx5_ib\d?.*", "Azure/azhpc-images, udev names of the rails"),
    Machine("Google Cloud A3", r"NCCL_(?:FASTRAK|GPUDIRECTTCPX)_\w+", r".+", _TCPX),
    Machine("Google Cloud A3", r"NCCL_NET", r"(?i:FasTrak|GPUDirectTCPX)\w*", _TCPX),
)


def judge_machines(variables: Mapping[str, str], node: NodeContext) -> Iterator[tuple[str, Remark]]:
    """The settings of each further kind of machine; a job runs on one."""
    first: dict[str, str] = {}
    for name, value in sorted(variables.items()):
        for row in MACHINES:
            if regex(row.variable).fullmatch(name) and regex(row.value).fullmatch(value.strip()[:400]):
                first.setdefault(row.name, name)
    kinds = list(first)
    for kind in kinds[1:]:
        text = f"for {kind}, while {first[kinds[0]]} is for {kinds[0]}: copied from another kind of machine"
        fix = "Keep the settings of the machines that this job runs on, and remove the others."
        yield first[kind], Remark("warn", text, fix, (repair("unset {}", first[kind]),))
