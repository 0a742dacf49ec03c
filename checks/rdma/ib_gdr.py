"""Can adapters reach GPU memory, and is RoCE set up as NCCL needs it?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.driver import PEER_MODULES, Driver, module_line, module_version
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.rdma.port import IbPort
from nodedoctor.facts.rdma.ports import Ib, Rails
from nodedoctor.facts.rdma.sysfs import CLASS, Gid
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.libraries import Libraries
from nodedoctor.facts.stack.loaded_nccl import LoadedNccl, versions_in_use
from nodedoctor.facts.stack.packages import numbers
from nodedoctor.knowledge.fixes.rdma import NCCL_DOCS, port_fix
from nodedoctor.knowledge.limits import limit
from nodedoctor.model import Evidence, Finding, Fix, file_reading, reading
from nodedoctor.steps import look, repair
from nodedoctor.wording import count_with_noun

_DMABUF_KERNEL = (5, 12)
"""The first kernel with DMA-BUF for RDMA (NVIDIA/nccl, GPU troubleshooting: kernel >= 5.12, open module)."""
_OLD_NAMES = frozenset({"nv_mem", "nv_mem_nc"})
"""All that old NCCL looks for below /sys/kernel/mm/memory_peers (NVIDIA/nccl, src/transport/net_ib.cc)."""
_IB_MTUS = (256, 512, 1024, 2048, 4096)
_ROCE_HEADERS = 96
"""Bytes RoCE needs beside its payload: linux, include/rdma/ib_addr.h, iboe_get_mtu."""


@check("ib.gdr", "GPUDirect RDMA", tags={"fast", "ib"}, without=(Machine,), stage="preview")
def gdr(
    rails: Rails,
    driver: Driver,
    machine: Machine | None,
    loaded: LoadedNccl | None,
    libraries: Libraries | None,
    target: TargetPython | None,
) -> Iterator[Finding]:
    """GPUDirect RDMA: nvidia_peermem loaded and supported by this NCCL, or DMA-BUF (kernel and open module).

    Why: without it all traffic between nodes goes through host memory, several times slower.
    Fix disturbs: nothing; jobs use it after a restart.
    Judges: WARN when neither nvidia_peermem nor DMA-BUF is usable for GPUDirect RDMA.
    Fix: Load nvidia_peermem, or use the open kernel module with Linux 5.12 and newer.
    Threshold: NVIDIA/nccl, GPU troubleshooting; NVIDIA/nccl issue 1676 for old NCCL.
    False positives: Clouds with an RDMA driver of their own; EFA is recognised.
    """
    if not rails.ports or not any(port.active for port in rails.ports):
        yield Finding.skip("NCCL uses no active RDMA port here")
    elif not driver.loaded:
        yield Finding.skip("NVIDIA's kernel module is not loaded")
    else:
        yield _judge_gdr(rails, driver, machine, dict(versions_in_use(loaded, libraries, target)))


def _judge_gdr(rails: Rails, driver: Driver, machine: Machine | None, nccl: Mapping[str, str]) -> Finding:
    modules = driver.modules or {}
    loaded = next((name for name in PEER_MODULES if name in modules), None)
    version = re.match(r"(\d{1,3})\.(\d{1,4})", (machine.kernel if machine else None) or "")
    kernel = (int(version.group(1)), int(version.group(2))) if version else None
    dmabuf = driver.kind == "open" and kernel is not None and kernel >= _DMABUF_KERNEL
    if any(port.efa for port in rails.ports):
        return _judge_efa(rails, loaded, dmabuf, driver)
    if loaded is not None:
        missed = loaded == "nvidia_peermem" and not _OLD_NAMES & set(driver.peer_memory)
        blind = [release for release in nccl if missed and _misses_peermem(release, dmabuf)]
        evidence = [module_line(loaded)]
        if blind:
            return _not_recognised(blind[0], nccl[blind[0]], evidence)
        return Finding.ok(f"{loaded} is loaded", evidence=evidence)
    if dmabuf:
        since = limit("dmabuf_nccl_since").value
        return Finding.ok(
            f"DMA-BUF: kernel {machine.kernel if machine else ''}, open module; NCCL >= {since} uses it"
        )
    if driver.modules is None or driver.kind is None or (driver.kind == "open" and kernel is None):
        return Finding.unknown("not-visible-here", "loaded modules and driver type not reported")
    summary = "nvidia_peermem not loaded, and DMA-BUF needs the open module and kernel 5.12"
    fix = Fix(
        "Load nvidia_peermem now and at every boot; jobs use it after a restart.",
        (
            repair("sudo modprobe nvidia_peermem"),
            repair("echo nvidia_peermem | sudo tee /etc/modules-load.d/nvidia-peermem.conf"),
        ),
        "config",
        "nothing",
        "nodedoctor ib.gdr",
        NCCL_DOCS,
    )
    return Finding.warn(summary, evidence=[module_version()], fix=fix)


def _judge_efa(rails: Rails, loaded: str | None, dmabuf: bool, driver: Driver) -> Finding:
    """Amazon's adapters: their driver says itself whether it reaches GPU memory, by a module of its own."""
    ours = [port for port in rails.ports if port.efa]
    denied = [port for port in ours if port.gdr is False]
    evidence = [file_reading("rdma", f"{CLASS}/{port.hca}/gdr") for port in ours if port.gdr is not None]
    if ours and all(port.gdr for port in ours):
        return Finding.ok(
            f"{count_with_noun(len(ours), 'EFA adapter')} with GPUDirect RDMA", evidence=evidence
        )
    if dmabuf or (loaded and not denied):
        return Finding.ok(f"EFA: {'DMA-BUF' if dmabuf else f'{loaded} is loaded'}", evidence=evidence)
    if not denied and driver.modules is None:
        return Finding.unknown("not-visible-here", "unknown whether EFA has GPUDirect RDMA")
    fix = Fix(
        "Run Amazon's EFA installer again: it builds efa_nv_peermem for this NVIDIA driver. "
        "NVIDIA's open kernel module does not need it. Jobs use it after a restart.",
        (look("modinfo -F version efa_nv_peermem"), look("cat /proc/driver/nvidia/version")),
        "config",
        "nothing",
        "nodedoctor ib.gdr",
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html",
    )
    summary = "no GPUDirect RDMA for EFA: neither efa_nv_peermem nor DMA-BUF"
    return Finding.warn(summary, evidence=evidence, fix=fix)


def _misses_peermem(version: str, dmabuf: bool) -> bool:
    """Whether this NCCL knows only the module's old name, and cannot do without it."""
    release, last = numbers(version)[:3], numbers(str(limit("peermem_old_nccl").value))
    helped = dmabuf and release >= numbers(str(limit("dmabuf_nccl_since").value))
    return bool(release) and release <= last and not helped


def _not_recognised(version: str, where: str, evidence: list[Evidence]) -> Finding:
    row = limit("peermem_old_nccl")
    summary = (
        f"nvidia_peermem is loaded, and NCCL {version} ({where}) does not recognise it: "
        "it looks for nv_mem, copies through host memory, and is about ten times slower between nodes"
    )
    fix = Fix(
        "Use NCCL 2.23.4 or newer. Until then: the open kernel module, whose DMA-BUF does the same.",
        (look("ls /sys/kernel/mm/memory_peers"),),
        "config",
        "jobs that use this Python environment, and the job",
        "NCCL_DEBUG=INFO prints `GPU Direct RDMA Enabled for HCA` at init",
        row.source,
    )
    evidence = [*evidence, reading("driver-files", 'stats["/sys/kernel/mm/memory_peers/nv_mem/version"]?')]
    return Finding.warn(summary, subject="nccl:peermem", evidence=evidence, fix=fix)


@check("ib.roce", "RoCE addresses and MTU", tags={"fast", "ib"}, explained_by=("ib.ports",), stage="preview")
def roce(ib: Ib, rails: Rails, env: Env | None) -> Iterator[Finding]:
    """GID table, NCCL_IB_GID_INDEX and MTU of the rails whose link layer is Ethernet.

    Why: without a RoCE v2 address no connection works; a wrong index uses the wrong network or no QoS.
    Fix disturbs: traffic on that port.
    Judges: FAIL when a RoCE port has no usable GID or NCCL_IB_GID_INDEX points at none; WARN when rails
    differ in MTU.
    Fix: Give the interface its address back, set the index of a RoCE v2 entry, and one MTU on all rails.
    Threshold: linux, include/rdma/ib_addr.h for the MTU; the kernel's GID table.
    False positives: Rails of separate networks with different MTU on purpose.
    """
    ours = [port for port in rails.ports if port.active and port.link_layer == "Ethernet"]
    readable = [port for port in ours if port.gids]
    if not ours:
        yield Finding.skip("no active RoCE rail" if ib.ports else ib.absent)
        return
    if not readable and ib.source != "rdma":
        yield Finding.unknown(
            "not-visible-here", f"{ib.source} shows no GID table (/sys/class/infiniband has it)"
        )
        return
    findings = [finding for port in ours for finding in _judge_addresses(port, ib)]
    index = env.get("NCCL_IB_GID_INDEX") if env else None
    findings += (*_without_address(ours, ib), *_judge_index(ours, index, ib))
    findings += _judge_packets(ours)
    yield from findings
    if not findings:
        yield Finding.ok(f"{count_with_noun(len(ours), 'port')} with RoCE v2 addresses")


def _judge_addresses(port: IbPort, ib: Ib) -> Iterator[Finding]:
    kinds = {gid.kind for gid in port.gids if gid.kind}
    fix = port_fix(
        "Give its network interface an IP address; the driver then creates the RoCE v2 entries.", (), "config"
    )
    if not port.gids:
        yield Finding.fail("GID table empty", subject=port.subject, evidence=ib.evidence(port), fix=fix)
    elif kinds and "RoCE v2" not in kinds:
        summary = "no RoCE v2 entry in the GID table"
        yield Finding.fail(summary, subject=port.subject, evidence=ib.evidence(port), fix=fix)


def _without_address(ports: list[IbPort], ib: Ib) -> Iterator[Finding]:
    """Rails with link-local rows only, where those of the others have an IP address."""
    routable = [port for port in ports if any(_is_routable(gid) for gid in port.gids)]
    for port in ports:
        if routable and port.gids and port not in routable and len(routable) >= len(ports) - len(routable):
            summary = (
                "only link-local rows in the GID table, "
                f"{count_with_noun(len(routable), 'other rail')} with an IP address: its interface has none"
            )
            fix = port_fix("Give its network interface its IP address back.", (), "config")
            yield Finding.fail(summary, subject=port.subject, evidence=ib.evidence(port), fix=fix)


def _is_routable(gid: Gid) -> bool:
    """Whether a row is of an address that was given to the interface."""
    return not gid.gid.lower().startswith("fe80:")


def _judge_index(ports: list[IbPort], index: str | None, ib: Ib) -> Iterator[Finding]:
    """NCCL_IB_GID_INDEX names a row that must be there, and be of RoCE v2, on every rail."""
    if index is None or not re.fullmatch(r"\d{1,3}", index):
        return
    fix = Fix(
        "Unset NCCL_IB_GID_INDEX (NCCL >= 2.21 finds the entry), or set it to a RoCE v2 entry.",
        (look("show_gids"),),
        "restart-job",
        "the job",
    )
    for port in ports:
        row = next((gid for gid in port.gids if gid.index == int(index)), None)
        if row is None and port.gids and int(index) <= 15:
            summary = f"NCCL_IB_GID_INDEX={index}, not in the GID table"
            yield Finding.fail(summary, subject=port.subject, evidence=ib.evidence(port), fix=fix)
        elif row is not None and row.kind not in (None, "RoCE v2"):
            summary = f"NCCL_IB_GID_INDEX={index} is {row.kind}, not routable"
            yield Finding.warn(summary, subject=port.subject, evidence=ib.evidence(port), fix=fix)


def _judge_packets(ports: list[IbPort]) -> Iterator[Finding]:
    """MTU of the interfaces: equal on all rails, and large enough for 4096 bytes of payload."""
    mtus = {
        port.name: net.mtu
        for port in ports
        for net in port.netdevs
        if net.mtu and net.port in (None, port.number)
    }
    if len(set(mtus.values())) > 1:
        text = ", ".join(f"{name} {mtu}" for name, mtu in mtus.items())
        fix = port_fix("Set one MTU on all rails and on the switch.", (), "config")
        yield Finding.warn(f"the rails have different MTUs: {text}", subject="ib:mtu", fix=fix)
    elif mtus:
        mtu = next(iter(mtus.values()))
        payload = max((size for size in _IB_MTUS if size + _ROCE_HEADERS <= mtu), default=0)
        if payload < 4096:
            summary = f"MTU {mtu} gives RDMA packets of {payload} bytes; 4200 or more gives 4096"
            yield Finding.info(summary, subject="ib:mtu")
