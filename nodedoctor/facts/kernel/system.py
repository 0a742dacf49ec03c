"""Lines of the kernel itself: PCI errors, the OOM killer, hangs and crashes, network adapters, the IOMMU.

Formats: linux, drivers/pci/pcie/{aer,dpc}.c, drivers/pci/hotplug/pciehp_ctrl.c, drivers/firmware/efi/cper.c,
mm/oom_kill.c, kernel/{hung_task,watchdog}.c, arch/x86/mm/fault.c, drivers/net/ethernet/mellanox/mlx5/core,
drivers/infiniband/ulp/ipoib/ipoib_main.c, drivers/iommu/{intel/dmar.c,amd/init.c}, net/core/neighbour.c,
net/ipv4/tcp.c, net/netfilter/nf_conntrack_core.c.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import takewhile

from nodedoctor.facts.kernel.events import (
    FullKind,
    FullTable,
    IommuFault,
    NicEvent,
    NicKind,
    OomKill,
    PcieError,
    RamError,
    Severity,
    Stall,
)
from nodedoctor.facts.kernel.lines import EVIDENCE, KernelLine
from nodedoctor.facts.kernel.nvidia import ADDRESS
from nodedoctor.facts.pci.pci import bdf
from nodedoctor.patterns import regex

_DEVICE = regex(rf"(?:^|\s|\()(?:(?P<driver>[\w-]{{1,32}}) )?(?P<device>{ADDRESS})(?=[\s:),]|$)")

_SEVERITY = regex(
    r"PCIe Bus Error: (?:severity=)?(?:(Corrected|Correctable)|(?:Uncorrect\w+ )?\(?(Non-Fatal|Fatal))",
    re.IGNORECASE,
)
_SUPPRESSED = regex(r"\b(?:aer|pci|pcie)_\w{1,30}: (\d{1,9}) callbacks suppressed")
"""What the kernel says where it prints no more than so many lines in five seconds (lib/ratelimit.c)."""
_MAKER = regex(r"device \[([0-9a-f]{4}):[0-9a-f]{4}\] error status/mask")
_HELPLESS = regex(
    rf"\b(nvidia|mlx[45]_core) {ADDRESS}: (?:AER: can't recover|device has no AER-aware driver)"
)
_LINK_LOST = regex(
    r"pciehp: Slot\([^)]*\): (?:Link Down|Card not present)|broken device, retraining|retraining failed"
    r"|[Uu]nable to change power state .*device inaccessible"
)
RECOVERY_FAILED = "AER: device recovery failed"
"""What a port says last, whose device did not come back (linux, drivers/pci/pcie/err.c)."""
_CPER = regex(r"event severity: (corrected|recoverable|fatal)")
_CPER_DEVICE = regex(rf"\[Hardware Error\]:\s+device_id: ({ADDRESS})")

_OOM = regex(
    r"Kill(?:ed)? process (?P<pid>\d{1,9})(?: \((?P<name>[^)]{0,64})\)|, UID \d+, \((?P<uname>[^)]{0,64})\))"
    r"(?P<rest>.*)",
    re.DOTALL,
)
_OOM_CALLER = regex(r"(?:^|\] |: )([^\s:]{1,64}) invoked oom-killer: ")
_OOM_CGROUP = regex(r"oom_memcg=(?P<cgroup>[^,]{1,300}).*?\bpid=(?P<pid>\d{1,9})")
_ANON = regex(r"(?:anon-rss|file-rss|shmem-rss):(\d{1,15})kB")

_HUNG = regex(
    r"task (?P<name>.{1,64}):(?P<pid>\d{1,9}) (?:blocked|stuck) for more than (?P<seconds>\d{1,9}) s"
)
_SOFT = regex(
    r"soft lockup - CPU#\d+ stuck for (?P<seconds>\d{1,9})s! \[(?P<name>[^\]]{1,64}):(?P<pid>\d{1,9})\]"
)
_HARD = regex(r"hard LOCKUP on cpu|NMI watchdog: Watchdog detected hard LOCKUP")
_RCU = regex(r"rcu\w*:? .*(?:self-)?detected (?:expedited )?stalls?\b")
_NO_BLOCK = regex(
    r"(?P<name>.{1,64}): page allocation failure[:.] order:\d{1,2}\b"
)  # mm/page_alloc.c, warn_alloc
_CRASH = regex(
    r"(?P<name>[^\s\[][^\[]{0,63})\[(?P<pid>\d{1,9})\]:? (?:segfault at|general protection"
    r"|trap (?!int3\b)\w).*? in (?P<where>[^\s\[]{1,128})\["
)
"""A breakpoint (int3) is where a program stops itself, whichever library it lies in."""
_OOPS = regex(
    r"BUG: unable to handle|BUG: kernel NULL pointer|kernel BUG at|Oops: [0-9a-f]{4}|Kernel panic"
    r"|general protection fault.* \[#\d"
)
_RIP = regex(r"RIP: .* \[(\w+)")
_MOUNT = regex(r"nfs: server (?P<where>\S{1,255}) not responding|(?P<fs>Lustre)\w*: .* was evicted by")
_MOUNT_BACK = regex(r"nfs: server (\S{1,255}) OK")
_MODULE = regex(r"\+0x[0-9a-f]+/0x[0-9a-f]+ \[(\w+)")

_NIC = regex(
    r"(?:mlx[45]_(?:core|en|ib|pci)\w*|bnxt_(?:en|re)|infiniband|\befa)[:) ]+(?:probe of )?"
    rf"(?P<device>{ADDRESS})?"
)
_NIC_LINK = regex(
    r"(?:^|[\s:])(?P<netdev>[\w.-]{1,15}): (?:NIC |Port: \d{1,3} )?[Ll]ink (?:is )?"
    r"(?P<way>[Dd]own|DOWN|[Uu]p|ACTIVE)\b"
)
"""A driver's own line, and that of the RDMA core (drivers/infiniband/core/cache.c of Linux 6.14)."""
_IPOIB = regex(r"(?P<netdev>ib[\w.-]{1,13}): transmit timeout: latency \d{1,12} msecs")
_WATCHED = regex(r"NETDEV WATCHDOG: (?P<netdev>[\w.-]{1,15}) \(")
_FULL: tuple[tuple[re.Pattern[str], FullKind], ...] = (
    (regex(r"nf_conntrack: table full, dropping packet"), "connections"),
    (regex(r"\barp_cache: neighbor table overflow"), "neighbours"),
    (regex(r"TCP: out of memory -- consider tuning tcp_mem"), "tcp-memory"),
    (regex(r"\bVFS: file-max limit \d{1,20} reached"), "files"),  # fs/file_table.c
)
_NIC_KINDS: tuple[tuple[re.Pattern[str], NicKind], ...] = (
    (regex(r"probe.* failed with error -(?!517\b)\d|mlx5_load_one failed|init_one.* failed"), "dead"),
    (regex(r"health recovery failed|device is in an unrecoverable|handling bad device here"), "dead"),
    (regex(r"[Ff]atal error \d|health compromised|assert_var|assert_exit_ptr|Fatal FW error"), "firmware"),
    (regex(r"\w\(0x[0-9a-f]+\) timeout\. Will cause a leak|firmware over \d+ MS in pre-init"), "firmware"),
    # Linux, drivers/infiniband/hw/efa/efa_com.c: the adapter did not answer, or refused. After the first
    # three the driver sends it no command any more, and without the last it has not started.
    (
        regex(
            r"completion \(polling\) timeout|didn't send any completion for admin cmd"
            r"|didn't receive any MSI-X interrupt for admin cmd"
        ),
        "firmware",
    ),
    (regex(r"Device isn't ready, abort com init"), "dead"),
    (regex(r"Failed to (?:process|submit) command .*\berr -?\d"), "errors"),
    (regex(r"transmit queue \d+ timed out|TX timeout"), "queue"),
    (regex(r"[Hh]igh [Tt]emperature"), "temperature"),
    (regex(r"(?:insufficient|unadvertised) power on the PCIe slot"), "slot-power"),
    (regex(r"(?:insufficient|unadvertised) power|[Pp]ower budget exceeded"), "power"),
    (regex(r"Port module event\[error\]|Cable error"), "module"),
    (regex(r"Cable unplugged"), "link-down"),
    (regex(r"Port module event: .*Cable plugged"), "plugged"),
    (regex(r"available PCIe bandwidth, limited by"), "slow-slot"),
    (regex(r"available PCIe bandwidth \("), "full-slot"),
    (regex(r"ACCESS_REG\(0x[0-9a-f]+\).*failed, status"), "register"),
    (regex(r"dump error cqe|WC error:|failed, status .*syndrome"), "errors"),
)

_EDAC = regex(r"EDAC \w+: (?P<count>\d{1,9}) (?P<kind>[CU]E) .*? on (?P<place>[\w#:.-]{1,80})")
_UNCORRECTED = regex(r"Uncorrected hardware memory error|Memory failure: 0x\w+: Sending SIGBUS")
_DMAR = regex(rf"DMAR:.{{0,90}}\[DMA (?:Read|Write)[^\]]*\] (?:Request device|request from) \[?({ADDRESS})")
_DMAR_NEW = regex(rf"DMAR: \[(?:DMA|INTR)[^\]]*\] Request device \[({ADDRESS})\]")
_AMD = regex(rf"AMD-Vi: Event logged \[\w+(?: device=({ADDRESS}))?")
_SMMU = regex(r"arm-smmu-v3 \S+: (?:event 0x(?:02|03|06|10|11|12|13)\b|\s*event: )")


def named_device(text: str) -> tuple[str | None, str | None]:
    """The driver and address at the start of `mlx5_core 0000:5d:00.0: …`."""
    match = _DEVICE.search(text)
    return (match.group("driver"), bdf(match.group("device"))) if match else (None, None)


def pcie(line: KernelLine, next_lines: Collection[str]) -> PcieError | None:
    """An error of the bus; `next_lines` name the maker and who suffers."""
    severity = _error_severity(line.text)
    if severity is None:
        return None
    driver, device = named_device(line.text)
    if report := _CPER.search(line.text):
        device = next((match.group(1) for match in map(_CPER_DEVICE.search, next_lines) if match), None)
        if device is None:  # firmware reports memory and processors in the same form
            return None
        levels: dict[str, Severity] = {"corrected": "corrected", "recoverable": "non-fatal"}
        return PcieError(line.when, line.text[:EVIDENCE], levels.get(report.group(1), "fatal"), bdf(device))
    below = (_HELPLESS.search(text) for text in next_lines)
    driver = next((match.group(1) for match in below if match), driver)
    makers = (_MAKER.search(text) for text in next_lines)
    maker = next((match.group(1) for match in makers if match), None)
    own = takewhile(lambda text: _error_severity(text) is None, next_lines)
    suppressed = sum(int(match[1]) for match in map(_SUPPRESSED.search, own) if match)
    return PcieError(line.when, line.text[:EVIDENCE], severity, device, driver, maker, suppressed)


def _error_severity(text: str) -> Severity | None:
    if match := _SEVERITY.search(text):
        if match.group(1):
            return "corrected"
        return "non-fatal" if match.group(2).lower().startswith("non") else "fatal"
    if "DPC: containment event" in text or RECOVERY_FAILED in text:
        return "fatal"
    if _LINK_LOST.search(text):
        return "link-down"
    return "fatal" if _CPER.search(text) else None


def oom(line: KernelLine) -> OomKill | None:
    """The line with the victim's sizes, of this and of older kernels."""
    match = _OOM.search(line.text)
    if match is None or "oom_reaper" in line.text:
        return None
    sizes = [int(size) for size in _ANON.findall(match.group("rest"))]
    return OomKill(
        line.when,
        line.text[:EVIDENCE],
        int(match.group("pid")),
        match.group("name") or match.group("uname") or "",
        round(sum(sizes) / 1024**2, 1) if sizes else None,
        limited="emory cgroup out of memory" in line.text,
    )


def oom_caller(line: KernelLine) -> OomKill | None:
    """The line with which the OOM killer begins, of the process that asked for memory."""
    match = _OOM_CALLER.search(line.text)
    return OomKill(line.when, line.text[:EVIDENCE], 0, match[1], is_victim=False) if match else None


def mount_back(line: KernelLine) -> str | None:
    """The server that answers again."""
    match = _MOUNT_BACK.search(line.text)
    return match.group(1) if match else None


def oom_cgroup(line: KernelLine) -> tuple[int, str] | None:
    """The pid and control group of the summary line, which comes before the victim's."""
    match = _OOM_CGROUP.search(line.text)
    return (int(match.group("pid")), match.group("cgroup")) if match else None


def stall(line: KernelLine, next_lines: Iterable[str]) -> Stall | None:
    """A hang or a crash; in `next_lines` the stack names the modules it went through."""
    text = line.text[:EVIDENCE]
    if match := _CRASH.search(line.text):
        pid, name, where = int(match.group("pid")), match.group("name").strip(), match.group("where")
        return Stall(line.when, text, "crash", pid, name.rpartition(": ")[2], None, where)
    for pattern, kind in ((_HUNG, "hung-task"), (_SOFT, "soft-lockup")):
        if match := pattern.search(line.text):
            pid, seconds = int(match.group("pid")), int(match.group("seconds"))
            return Stall(line.when, text, kind, pid, match.group("name"), seconds, _stack_module(next_lines))  # type: ignore[arg-type]
    if match := _NO_BLOCK.search(line.text):
        return Stall(line.when, text, "no-block", name=match.group("name"), where=_stack_module(next_lines))
    if _OOPS.search(line.text):
        fault = next((match.group(1) for match in map(_RIP.search, next_lines) if match), None)
        return Stall(line.when, text, "oops", where=fault)
    if match := _MOUNT.search(line.text):
        return Stall(line.when, text, "dead-mount", where=match.group("where") or match.group("fs"))
    if _HARD.search(line.text):
        return Stall(line.when, text, "hard-lockup", where=_stack_module(next_lines))
    if _RCU.search(line.text):
        return Stall(line.when, text, "rcu-stall", where=_stack_module(next_lines))
    return None


def _stack_module(next_lines: Iterable[str]) -> str | None:
    """The first module of interest in a stack; it ends where the next report begins."""
    for text in next_lines:
        if "blocked for more than" in text or "</TASK>" in text:
            return None
        match = _MODULE.search(text)
        if match and re.match(
            r"nvidia|nv_|gdrdrv|mlx|ib_|rdma|lustre|ptlrpc|lnet|gpfs|mmfs|nfs|wekafs|beegfs", match.group(1)
        ):
            return match.group(1)
    return None


def nic(line: KernelLine) -> NicEvent | None:
    """What an RDMA adapter's driver said of firmware, module, power, heat or link."""
    text = line.text
    if late := _IPOIB.search(text):
        return NicEvent(line.when, text[:EVIDENCE], "queue", None, late.group("netdev"))
    match = _NIC.search(text)
    if match is None:
        return None
    device = match.group("device")
    where = bdf(device) if device else None
    kind: NicKind | None = next((kind for pattern, kind in _NIC_KINDS if pattern.search(text)), None)
    if kind is not None:
        watched = _WATCHED.search(text)
        return NicEvent(line.when, text[:EVIDENCE], kind, where, watched.group("netdev") if watched else None)
    link = _NIC_LINK.search(text)
    if link is None:
        return None
    way: NicKind = "link-down" if link.group("way").lower() == "down" else "link-up"
    return NicEvent(line.when, text[:EVIDENCE], way, where, link.group("netdev"))


def full(line: KernelLine) -> FullTable | None:
    """A table that had no room, so that packets were dropped or files refused."""
    kind = next((kind for pattern, kind in _FULL if pattern.search(line.text)), None)
    return FullTable(line.when, line.text[:EVIDENCE], kind) if kind else None


def ram(line: KernelLine) -> RamError | None:
    """What EDAC, the machine check code and the memory failure handler say of the host's memory."""
    if match := _EDAC.search(line.text):
        corrected, count = match.group("kind") == "CE", int(match.group("count"))
        return RamError(line.when, line.text[:EVIDENCE], corrected, match.group("place"), count)
    return RamError(line.when, line.text[:EVIDENCE], False) if _UNCORRECTED.search(line.text) else None


def iommu(line: KernelLine) -> IommuFault | None:
    """A fault of Intel's, AMD's or ARM's IOMMU, with the device that caused it."""
    for pattern in (_DMAR, _DMAR_NEW):
        if match := pattern.search(line.text):
            return IommuFault(line.when, line.text[:EVIDENCE], bdf(match.group(1)))
    if match := _AMD.search(line.text):
        device = match.group(1) or named_device(line.text)[1]
        return IommuFault(line.when, line.text[:EVIDENCE], bdf(device) if device else None)
    return IommuFault(line.when, line.text[:EVIDENCE]) if _SMMU.search(line.text) else None
