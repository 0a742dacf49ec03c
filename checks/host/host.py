"""Is the host at ease: nothing starved, processors free to run fast, no memory reserved without use?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.host.host import Host
from nodedoctor.facts.host.limits import Limits
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.knowledge.limits import limit
from nodedoctor.model import Evidence, Finding, Fix, file_reading, quoted_like
from nodedoctor.steps import look, repair
from nodedoctor.wording import count_with_noun

_STALLED_PERCENT = {"memory": 10.0, "io": 40.0}
"""Share of the last minute in which all tasks waited at once (PSI full): facebookincubator/oomd acts on
memory at 10; for io operational experience."""
_CROWDED_PERCENT = 60.0
"""Share of the last minute in which some task waited for a processor: full loaders reach 20."""
_LOAD = 3.0
"""Runnable tasks per processor: operational experience."""
_BLOCKED = 4
"""Processes asleep in the kernel at once from which it is no coincidence."""


@check("host.pressure", "Host pressure (CPU, memory, I/O)", tags={"fast"}, without=(Machine, Processes))
def pressure(limits: Limits, machine: Machine | None, processes: Processes | None) -> Iterator[Finding]:
    """Pressure stall information (PSI) of memory, I/O and CPU, load average, and processes in state D.

    Why: a starved data loader, or a rank that waits for a CPU, makes all other ranks wait in every step.
    Fix disturbs: other programs on this node.
    Judges: WARN for processes blocked in the kernel, for a high load, and for a minute in which tasks waited
    for memory, disk or processors.
    Fix: Find what loads the node (`top`, `iotop`), and whether it belongs to the job.
    Threshold: PSI full: 10 % for memory (facebookincubator/oomd); 40 % for io and 60 % for processors are
    ours.
    False positives: A compilation or a test run that loads all processors for a minute.
    """
    findings = [*_judge_stalls(limits), *_judge_load(limits, machine), *_judge_asleep(processes)]
    yield from findings
    if not findings and not limits.pressure and limits.load is None:
        yield Finding.unknown("not-visible-here", "/proc/pressure and /proc/loadavg could not be read")
    elif not findings:
        load = f"load {limits.load[0]:g}" if limits.load else "load unknown"
        psi = "no pressure" if limits.pressure else "no PSI in this kernel"
        yield Finding.ok(f"{psi}, {load}")


_NAMES = {"memory": "memory", "io": "I/O", "cpu": "CPU"}


def _judge_stalls(limits: Limits) -> Iterator[Finding]:
    for resource, most in _STALLED_PERCENT.items():
        share = limits.pressure.get(resource, {}).get("full_avg60", 0.0)
        if share >= most:
            summary = f"{_NAMES[resource]} pressure (PSI full, avg60): {share:g} %"
            yield Finding.warn(
                summary,
                subject=f"pressure:{resource}",
                evidence=_stall_evidence(resource, share),
                fix=_relieve_fix(resource),
            )
    share = limits.pressure.get("cpu", {}).get("some_avg60", 0.0)
    if share >= _CROWDED_PERCENT:
        summary = f"CPU pressure (PSI some, avg60): {share:g} %"
        yield Finding.warn(
            summary, subject="pressure:cpu", evidence=_stall_evidence("cpu", share), fix=_relieve_fix("cpu")
        )


def _stall_evidence(resource: str, share: float) -> list[Evidence]:
    return [quoted_like("limits", rf"^.*avg60={share:.2f}.*", f'files["/proc/pressure/{resource}"]')]


def _relieve_fix(what: str) -> Fix:
    text = (
        f"Find what uses the {_NAMES.get(what, what)}: other jobs, too many data-loader workers or threads, "
        "a slow disk."
    )
    return Fix(
        text,
        (look("ps -eo pid,stat,pcpu,rss,wchan:32,comm --sort=-pcpu | head -20"),),
        "investigate",
        "nothing",
        "nodedoctor host.pressure",
    )


def _judge_load(limits: Limits, machine: Machine | None) -> Iterator[Finding]:
    cpus = machine.cpus if machine else None
    if limits.load and cpus and limits.load[1] > _LOAD * cpus:
        summary = f"load {limits.load[1]:g} (5 min) on {count_with_noun(cpus, 'CPU')}"
        yield Finding.warn(summary, subject="pressure:load", fix=_relieve_fix("cpu"))


def _judge_asleep(processes: Processes | None) -> Iterator[Finding]:
    """Uninterruptible sleep, less that inside the GPU driver, which driver.processes judges."""
    blocked = [task for task in (processes.all if processes else ()) if task.blocked and not _in_driver(task)]
    if len(blocked) >= _BLOCKED:
        shown = ", ".join(f"{task.label}{f' in {task.wchan}' if task.wchan else ''}" for task in blocked[:4])
        summary = f"{count_with_noun(len(blocked), 'process')} in uninterruptible sleep: {shown}"
        yield Finding.warn(
            summary, subject="pressure:blocked", fix=_relieve_fix("disks and network file systems")
        )


def _in_driver(process: Process) -> bool:
    return bool(process.nvidia) or (process.wchan or "").startswith(("nv_", "nvidia", "uvm_", "os_acquire"))


_CHOOSES = ("intel_pstate", "amd-pstate-epp")
"""Drivers whose `powersave` still follows the load; with all others it is the lowest frequency (linux,
Documentation/admin-guide/pm/cpufreq.rst and intel_pstate.rst)."""


@check("host.governor", "CPU frequency governor", tags={"fast"}, without=(Machine,), stage="preview")
def governor(host: Host, machine: Machine | None) -> Iterator[Finding]:
    """The frequency governor of each CPU.

    Why: on some machines a slow governor delays kernel launches; with intel_pstate, powersave is fine.
    Fix disturbs: nothing.
    Judges: WARN for powersave with a driver that then keeps the lowest frequency, a note for any other one
    than performance.
    Fix: Set it with `cpupower frequency-set -g performance`.
    Threshold: facebookresearch/gcm, check_processor.py.
    False positives: Virtual machines and drivers that choose the frequency themselves show no governor.
    """
    best = limit("cpu_governor")
    if host.processors_hidden:
        yield Finding.unknown("not-visible-here", "/sys/devices/system/cpu is not visible")
        return
    if not host.governors:
        where = "virtual machine, set on its host" if machine and machine.virtual else "none reported"
        yield Finding.skip(f"no frequency governor here: {where}")
        return
    governors = ", ".join(f"{count} x {name}" for name, count in sorted(host.governors.items()))
    evidence = [file_reading("host", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")]
    if set(host.governors) == {best.value}:
        yield Finding.ok(f"frequency governor: {governors}", evidence=evidence)
        return
    fix = Fix(
        "Set the performance governor if CPU clocks are low.",
        (repair("sudo cpupower frequency-set -g performance"),),
        "config",
        "nothing",
        "nodedoctor host.governor",
    )
    own_choice = host.frequency_driver in _CHOOSES
    if host.frequency_driver and not own_choice and "powersave" in host.governors:
        summary = f"{governors}: {host.frequency_driver} then keeps the lowest frequency"
        yield Finding.warn(summary, evidence=evidence, fix=fix)
        return
    yield Finding.info(
        f"{governors}{' (normal with this driver)' if own_choice else ''}", evidence=evidence, fix=fix
    )


@check("host.hugepages", "Huge page reservation", tags={"fast"})
def hugepages(host: Host) -> Iterator[Finding]:
    """Reserved huge pages (vm.nr_hugepages) and transparent huge pages.

    Why: PyTorch and NCCL use no reserved huge pages; a large reservation is unusable memory.
    Fix disturbs: programs that use them.
    Judges: A note when huge pages are reserved and unused, or transparent huge pages are off.
    Fix: Release reserved pages with `sysctl vm.nr_hugepages=0` if no program needs them.
    Threshold: Operational experience, no external source.
    False positives: Programs that need reserved pages, such as DPDK.
    """
    if host.hugepages is None and host.thp is None:
        yield Finding.unknown("not-visible-here", "huge page settings could not be read")
        return
    gib = (host.hugepages or 0) * (host.hugepage_kib or 0) / 1024**2
    thp = f"transparent huge pages: {host.thp}" if host.thp else "transparent huge pages unknown"
    if gib:
        row = limit("hugepages")
        yield Finding.info(f"{gib:.1f} GiB reserved as huge pages ({row.text}); {thp}")
    elif host.thp == "never":
        yield Finding.info(f"{thp}: {limit('transparent_hugepages').text}")
    else:
        yield Finding.ok(f"no huge pages reserved; {thp}")
