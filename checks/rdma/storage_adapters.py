"""Adapters of another kind that NCCL_IB_HCA names beside the rails: those for storage or management."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.facts.rdma.port import IbPort
from nodedoctor.facts.rdma.ports import FEWEST_RAILS, Ib, Rails, by_class
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import look
from nodedoctor.wording import comma_list, count_with_noun

DOCS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca"


def storage_adapters_in_use(ib: Ib, rails: Rails) -> Iterator[Finding]:
    """Ports that are named one by one, work, and are slower or of another network than a set of rails."""
    active = tuple(port for port in rails.ports if port.active)
    main = by_class(active)
    if not rails.explicit or len(main) < FEWEST_RAILS:
        return
    names, spec = {port.name for port in main}, _adapter_names(rails.chosen_by)
    others = [
        port
        for port in active
        if port.name not in names and port.hca in spec and _ports_differ(port, main[0])
    ]
    if others and len(others) < len(main):
        adapters = comma_list((port.hca for port in others), 4)
        summary = (
            f"NCCL_IB_HCA also names {adapters} ({_port_kind(others[0])}), "
            f"not of the {count_with_noun(len(main), 'rail')} ({_port_kind(main[0])})"
        )
        finding = Finding.warn(
            summary, subject="ib:named", evidence=ib.evidence(others[0]), fix=_rails_fix(main)
        )
        yield finding.matters_as(
            "NCCL may send traffic of the job through an adapter for storage or management, and a ring is as "
            "slow as its slowest adapter."
        )


def _adapter_names(chosen_by: str) -> frozenset[str]:
    """The adapters that are named whole, not by a prefix."""
    spec = chosen_by.partition("NCCL_IB_HCA=")[2].partition(" in ")[0]
    return frozenset(word.partition(":")[0].strip() for word in spec.lstrip("=").split(","))


def _ports_differ(port: IbPort, rail: IbPort) -> bool:
    if port.link_layer and rail.link_layer and port.link_layer != rail.link_layer:
        return True
    return bool(port.rate_gbps and rail.rate_gbps and port.rate_gbps < rail.rate_gbps)


def _port_kind(port: IbPort) -> str:
    rate = f"{port.rate_gbps:g} Gb/s" if port.rate_gbps else ""
    return " ".join(part for part in (rate, port.kind) if part)


def _rails_fix(main: tuple[IbPort, ...]) -> Fix:
    return Fix(
        f"Name only the rails: NCCL_IB_HCA={','.join(port.hca for port in main)}.",
        (look("ibv_devinfo"), look("nvidia-smi topo -m")),
        "restart-job",
        "the job",
        "nodedoctor ib.ports",
        DOCS,
    )
