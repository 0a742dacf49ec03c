"""Does a subnet manager know the InfiniBand rails, and do like adapters run one firmware?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.rdma.ports import Ib, Rails
from nodedoctor.knowledge.fixes.rdma import subnet_manager
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import look
from nodedoctor.wording import comma_list, count_with_noun


@check(
    "ib.sm",
    "InfiniBand subnet manager",
    tags={"fast", "ib"},
    explained_by=("ib.ports",),
)
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
        yield _no_infiniband(ib)
        return
    waiting = [port for port in linked if port.state == "INIT"]
    lost = [port for port in linked if port.active and port.sm_lid == 0]
    for port in waiting:
        summary = "link up, not configured by any subnet manager"
        yield Finding.fail(summary, subject=port.subject, evidence=ib.evidence(port), fix=subnet_manager())
    for port in lost:
        yield Finding.warn("active, but no subnet manager known", subject=port.subject, fix=subnet_manager())
    if not waiting and not lost:
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
    by_model: dict[str, Counter[str]] = {}
    for port in rails.ports:
        if port.firmware:
            by_model.setdefault(port.model or "adapter", Counter())[port.firmware] += 1
    if not by_model:
        yield ib.nothing(rails, "no firmware version reported")
    for model, versions in by_model.items():
        told = ", ".join(f"{n} x {version}" for version, n in versions.most_common())
        if len({version.rpartition(".")[0] for version in versions}) > 1:
            fix = Fix(
                "Update all NICs to one firmware release.",
                (look("sudo mlxfwmanager --query"),),
                "config",
                "every job on this node",
                "nodedoctor ib.firmware",
            )
            finding = Finding.warn(f"{model}: {told}", subject=f"model:{model}", fix=fix)
            yield finding.led_by(f"{model} NICs run {len(versions)} firmware versions")
        elif len(versions) > 1:
            yield Finding.info(f"{model}: {told}", subject=f"model:{model}")
        else:
            yield Finding.ok(f"{model}: {told}", subject=f"model:{model}")


def _no_infiniband(ib: Ib) -> Finding:
    return Finding.skip("no InfiniBand rail has a link" if ib.ports else ib.absent)
