"""Does a subnet manager know the InfiniBand rails, and do like adapters run one firmware?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.rdma.port import IbPort
from nodedoctor.facts.rdma.ports import Ib, Rails
from nodedoctor.grouping import group_by, group_pairs
from nodedoctor.knowledge.fixes.rdma import subnet_manager
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import look
from nodedoctor.wording import comma_list, count_with_noun, singular_or_plural


@check("ib.sm", "InfiniBand subnet manager", tags={"fast", "ib"}, explained_by=("ib.ports",))
def sm(ib: Ib, rails: Rails) -> Iterator[Finding]:
    """State Initializing, and the subnet manager's address (LID), of InfiniBand rails with a link.

    Why: without a subnet manager no port becomes active; when it is lost, new connections fail.
    Fix disturbs: nothing.
    Judges: FAIL when links are up and no subnet manager has configured them; WARN when an active port knows
    none.
    Fix: Start the subnet manager (opensm, UFM or the switch's own).
    Threshold: InfiniBand architecture: a port stays INIT without a subnet manager.
    False positives: Back-to-back test links without a subnet manager.
    """
    linked = [p for p in rails.ports if p.infiniband and (p.active or p.state in ("INIT", "ARMED"))]
    if not linked:
        yield Finding.skip("no InfiniBand rail has a link" if ib.ports else ib.absent)
        return
    waiting = [port for port in linked if port.state == "INIT"]
    unmanaged = [port for port in linked if port.active and port.sm_lid == 0]
    for port in waiting:
        summary = "link up, not configured by any subnet manager"
        yield Finding.fail(summary, subject=port.subject, evidence=ib.evidence(port), fix=subnet_manager())
    for port in unmanaged:
        yield Finding.warn("active, but no subnet manager known", subject=port.subject, fix=subnet_manager())
    if not waiting and not unmanaged:
        lids = sorted({port.sm_lid for port in linked if port.sm_lid})
        yield Finding.ok(
            f"{count_with_noun(len(linked), 'port')}, subnet manager at LID {comma_list(lids) or 'unknown'}"
        )


@check("ib.firmware", "NIC firmware versions", tags={"fast", "ib"})
def firmware(ib: Ib, rails: Rails) -> Iterator[Finding]:
    """Firmware versions of the rails' NICs, by model.

    Why: mixed firmware behaves differently under congestion, and vendors ask about it first.
    Fix disturbs: every job on this node (NIC reset).
    Judges: WARN when like rails run different firmware; a note where only some adapters differ.
    Fix: Bring all adapters of the model to one firmware.
    Threshold: No threshold: versions are compared within the model.
    False positives: Adapters for storage or management, which may have their own firmware.
    """
    by_model = group_by((port for port in rails.ports if port.firmware), lambda port: port.model or "adapter")
    if not by_model:
        yield ib.nothing(rails, "no firmware version reported")
    for model, ports in by_model.items():
        versions = Counter(str(port.firmware) for port in ports)
        subject, usual = f"model:{model}", versions.most_common(1)[0][0]
        different = [port for port in ports if port.firmware != usual]
        counts = ", ".join(f"{n} x {version}" for version, n in versions.most_common())
        if not different:
            yield Finding.ok(f"{model}: {counts}", subject=subject)
            continue
        evidence = [quote for port in different for quote in port.firmware_said(ib.source)]
        versions_text = _differing_versions(different, len(ports) - len(different), usual)
        if len({version.rpartition(".")[0] for version in versions}) == 1:
            yield Finding.info(f"{model}: {versions_text}", subject=subject, evidence=evidence)
            continue
        fix = Fix(
            "Update all NICs to one firmware release.",
            (look("sudo mlxfwmanager --query"),),
            "config",
            "every job on this node",
            "nodedoctor ib.firmware",
        )
        finding = Finding.warn(f"{model}: {versions_text}", subject=subject, evidence=evidence, fix=fix)
        yield finding.led_by(versions_text)


def _differing_versions(different: Sequence[IbPort], others: int, usual: str) -> str:
    """Which adapters differ from the others: `mlx5_4 firmware 28.39.1002, 7 others 28.43.2026`."""
    adapters = group_pairs((str(port.firmware), port.hca) for port in different)
    versions_text = [
        f"{comma_list(dict.fromkeys(names), 3)} firmware {version}" for version, names in adapters.items()
    ]
    return f"{', '.join(versions_text[:2])}, {others} {singular_or_plural(others, 'other', 'others')} {usual}"
