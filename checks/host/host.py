"""Is the host at ease: nothing starved, processors free to run fast, no memory set aside in vain?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.engine.registry import check
from nodedoctor.facts.host.host import Host
from nodedoctor.facts.host.limits import Limits
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.knowledge.limits import limit
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.steps import look, repair

_STALLED_PERCENT = {"memory": 10.0, "io": 40.0}
"""Share of the last minute in which all tasks waited at once (PSI full): facebookincubator/oomd acts on
memory at 10; for io operational experience."""
_CROWDED_PERCENT = 60.0
"""Share of the last minute in which some task waited for a processor: full loaders reach 20."""
_LOAD = 3.0
"""Runnable tasks per processor: operational experience."""
_BLOCKED = 4
"""Processes asleep in the kernel at once from which it is no coincidence."""


@check(
    "host.pressure",
    "Nothing on this host is starved",
    tags={"fast"},
    without=(
        Machine,
        Processes,
    ),
)
def pressure(limits: Limits, machine: Machine | None, processes: Processes | None) -> Iterator[Finding]:
    """Pressure stall information of memory, io and processors, the load, and processes asleep in the kernel.

    Why: a starved data loader or a rank that waits for a processor makes all other ranks wait in every step.
    Fix disturbs: whatever else runs on this node.
    Judges: WARN for processes blocked in the kernel, for a high load, and for a minute in which tasks waited
    for memory, disk or processors.
    Fix: Find what loads the node (`top`, `iotop`), and whether it belongs to the job.
    Threshold: PSI full: 10 % for memory (facebookincubator/oomd); 40 % for io and 60 % for processors are
    ours.
    False positives: A compilation or a test run that loads all processors for a minute.
    """
    told = [*_stalls(limits), *_load(limits, machine), *_asleep(processes)]
    yield from told
    if not told and not limits.pressure and limits.load is None:
        yield Finding.unknown("not-visible-here", "/proc/pressure and /proc/loadavg could not be read")
    elif not told:
        load = f"load {limits.load[0]:g}" if limits.load else "load unknown"
        psi = "no pressure" if limits.pressure else "this kernel keeps no pressure figures"
        yield Finding.ok(f"{psi}, {load}")


def _stalls(limits: Limits) -> Iterator[Finding]:
    for resource, most in _STALLED_PERCENT.items():
        share = limits.pressure.get(resource, {}).get("full_avg60", 0.0)
        if share >= most:
            summary = f"{resource}: all tasks waited for it {share:g} % of the last minute"
            yield Finding.warn(
                summary,
                subject=f"pressure:{resource}",
                evidence=_psi(resource, share),
                fix=_relieve(resource),
            )
    share = limits.pressure.get("cpu", {}).get("some_avg60", 0.0)
    if share >= _CROWDED_PERCENT:
        summary = f"processors: some task waited for one {share:g} % of the last minute"
        yield Finding.warn(
            summary, subject="pressure:cpu", evidence=_psi("cpu", share), fix=_relieve("processors")
        )


def _psi(resource: str, share: float) -> list[Evidence]:
    return [Evidence("limits", f"/proc/pressure/{resource}: {share:g}")]


def _relieve(what: str) -> Fix:
    text = f"Find what uses the {what}: other jobs, too many loader workers or threads, a slow file system."
    return Fix(
        text,
        (look("ps -eo pid,stat,pcpu,rss,wchan:32,comm --sort=-pcpu | head -20"),),
        "investigate",
        "nothing",
        "nodedoctor host.pressure",
    )


def _load(limits: Limits, machine: Machine | None) -> Iterator[Finding]:
    cpus = machine.cpus if machine else None
    if limits.load and cpus and limits.load[1] > _LOAD * cpus:
        summary = f"load {limits.load[1]:g} over five minutes on {cpus} processors"
        yield Finding.warn(summary, subject="pressure:load", fix=_relieve("processors"))


def _asleep(processes: Processes | None) -> Iterator[Finding]:
    """Uninterruptible sleep, less that inside the GPU driver, which driver.processes judges."""
    blocked = [one for one in (processes.all if processes else ()) if one.blocked and not _in_driver(one)]
    if len(blocked) >= _BLOCKED:
        shown = ", ".join(f"{one.label}{f' in {one.wchan}' if one.wchan else ''}" for one in blocked[:4])
        summary = f"{len(blocked)} processes sleep in the kernel: {shown}"
        yield Finding.warn(
            summary, subject="pressure:blocked", fix=_relieve("disks and network file systems")
        )


def _in_driver(process: Process) -> bool:
    return bool(process.nvidia) or (process.wchan or "").startswith(("nv_", "nvidia", "uvm_", "os_acquire"))


@check("host.governor", "Processors may run fast", tags={"fast"}, without=(Machine,), stage="preview")
def governor(host: Host, machine: Machine | None) -> Iterator[Finding]:
    """The frequency governor of each processor.

    Why: on some machines a slow governor delays kernel launches; with intel_pstate powersave is not slow.
    Fix disturbs: nothing.
    Judges: A note when the frequency governor of processors is not performance.
    Fix: Set it with `cpupower frequency-set -g performance`.
    Threshold: facebookresearch/gcm, check_processor.py.
    False positives: Virtual machines and drivers that choose the frequency themselves show no governor.
    """
    best = limit("cpu_governor")
    if host.processors_hidden:
        yield Finding.unknown("not-visible-here", "/sys/devices/system/cpu cannot be seen")
        return
    if not host.governors:
        where = "a virtual machine leaves that to its host" if machine and machine.virtual else "none is told"
        yield Finding.skip(f"no frequency governor here: {where}")
        return
    told = ", ".join(f"{count} x {name}" for name, count in sorted(host.governors.items()))
    evidence = [Evidence("host", f"{told} ({host.frequency_driver or 'driver unknown'})")]
    if set(host.governors) == {best.value}:
        yield Finding.ok(told, evidence=evidence)
        return
    fix = Fix(
        "Set it, if clocks prove low.",
        (repair("sudo cpupower frequency-set -g performance"),),
        "config",
        "nothing",
        "nodedoctor host.governor",
    )
    normal = "; normal with its driver" if host.frequency_driver in ("intel_pstate", "amd-pstate-epp") else ""
    yield Finding.info(f"{told}{normal}", evidence=evidence, fix=fix)


@check("host.hugepages", "No memory is set aside in vain", tags={"fast"})
def hugepages(host: Host) -> Iterator[Finding]:
    """Reserved huge pages (vm.nr_hugepages) and transparent huge pages.

    Why: PyTorch and NCCL use no reserved pages; a large reservation is memory nobody else gets.
    Fix disturbs: programs that do use them.
    Judges: A note when huge pages are reserved and unused, or transparent huge pages are off.
    Fix: Release reserved pages with `sysctl vm.nr_hugepages=0` if no program needs them.
    Threshold: Operational experience, no external source.
    False positives: Programs that need reserved pages, such as DPDK.
    """
    if host.hugepages is None and host.thp is None:
        yield Finding.unknown("not-visible-here", "neither setting could be read")
        return
    gib = (host.hugepages or 0) * (host.hugepage_kib or 0) / 1024**2
    thp = f"transparent huge pages: {host.thp}" if host.thp else "transparent huge pages unknown"
    if gib:
        row = limit("hugepages")
        yield Finding.info(f"{gib:.1f} GiB reserved as huge pages ({row.text}); {thp}")
    elif host.thp == "never":
        yield Finding.info(f"{thp}: {limit('transparent_hugepages').text}")
    else:
        yield Finding.ok(f"none reserved; {thp}")
