"""The kernel's log: what it says of GPUs, the PCI bus, memory, hangs, network adapters and the IOMMU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Options, fact, probe
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.kernel import nvidia, storage, system
from nodedoctor.facts.kernel.events import (
    CpuEvent,
    DriverEvent,
    FullTable,
    IommuFault,
    LogEvent,
    LoggedXid,
    NicEvent,
    OomKill,
    PcieError,
    RamError,
    Stall,
    StorageEvent,
    Sxid,
)
from nodedoctor.facts.kernel.lines import EVIDENCE, KernelLine, When, edges, following, lines_with
from nodedoctor.json_shapes import answer
from nodedoctor.model import Moment, Observation, Unseen
from nodedoctor.record import as_dict, field, record, replace
from nodedoctor.wording import count_with_noun

E = TypeVar("E", bound=LogEvent)

WAY_OUT = (
    "Run as root, or let this user read the journal (sudo usermod -aG systemd-journal USER); a recording may"
    " hold the output of `sudo journalctl -k -o short-iso-precise`."
)
FOR_ROOT = (
    "Root finds no log here. Inside a container or a sandbox, run on the host; else see that journald or"
    " syslog keeps the kernel's messages."
)
ON_HOST = "Run on the host: the kernel's log is not visible from inside this container."

_RECORDED = "recorded text"
_HANG = ("blocked for more than", "soft lockup", "LOCKUP", "detected stall", "detected expedited")
_CRASH = ("segfault at", "general protection", " trap ", "BUG: ", "kernel BUG", "Oops: ", "Kernel panic")
_STALL = (*_HANG, *_CRASH, "page allocation failure", "self-detected stall", "nfs: server ", "was evicted by")
_STACK_LINES = 40
_LOADING_SECONDS = 10.0
"""Eight GPUs are tried within seconds (NVIDIA/NVSentinel#155: the message came 0.2 s after the failure)."""

_NO_LOG = ("No journal files", "-- No entries --", "dmesg:", "Hint: You are currently not seeing")


@probe("kernel-log", timeout=9)
def kernel_log(options: Options) -> Command:
    """The kernel's messages since boot or --since: journal, else dmesg, else the files syslog writes."""
    since = ("--since", options.since) if options.since else ()
    return Command(child("kernel/kernel_log", "--root", options.root, *since))


@fact("kernel-log", Container)
@record
class KernelLog:
    """What the kernel said that may matter to training, in its order.

    `source` is what printed it ("recorded text" for a paste), `lines` how much there was, `begins` and `ends`
    its span, `cut` whether the beginning is missing. `drivers` maps PCI addresses to the drivers of them.
    `partly` says why there may be more than was seen: then the log shows what happened, and not what did not.
    """

    source: str
    lines: int
    begins: When = field(default_factory=When)
    ends: When = field(default_factory=When)
    cut: bool = False
    partly: Unseen | None = None
    xids: tuple[LoggedXid, ...] = ()
    sxids: tuple[Sxid, ...] = ()
    driver: tuple[DriverEvent, ...] = ()
    pcie: tuple[PcieError, ...] = ()
    oom: tuple[OomKill, ...] = ()
    stalls: tuple[Stall, ...] = ()
    nics: tuple[NicEvent, ...] = ()
    iommu: tuple[IommuFault, ...] = ()
    ram: tuple[RamError, ...] = ()
    storage: tuple[StorageEvent, ...] = ()
    cpus: tuple[CpuEvent, ...] = ()
    drivers: Mapping[str, str] = field(default_factory=dict)
    full: tuple[FullTable, ...] = ()

    @classmethod
    def parse(cls, observation: Observation, container: Container | Unseen) -> KernelLog | Unseen:
        """Read the child's document, or plain text that somebody pasted into a recording."""
        if not observation.answered and not observation.text:
            return Unseen.of(observation, WAY_OUT)
        document = _log_document(observation.text)
        if document is None:
            # Half of our child's document still shows what happened, its line ends as JSON writes them.
            plain = (
                observation.text.replace("\\n", "\n")
                if observation.text.startswith("{")
                else observation.text
            )
            part = Unseen.of(observation, WAY_OUT) if not observation.answered else _PASTED
            return _why_denied(observation) or cls.of(
                plain, _RECORDED, is_cut=observation.truncated, partly=part
            )
        text = document.get("text")
        if not isinstance(document.get("source"), str) or not isinstance(text, str) or not text.strip():
            return _why_no_log(document, isinstance(container, Container) and container.inside)
        epoch = document.get("boot_epoch")
        boot = float(epoch) if isinstance(epoch, int) else None
        partly = _why_unfinished(document, observation)
        return cls.of(text, document["source"], boot, is_cut=document.get("cut") is True, partly=partly)

    @classmethod
    def of(
        cls,
        text: str,
        source: str,
        boot_epoch: float | None = None,
        *,
        is_cut: bool = False,
        partly: Unseen | None = None,
    ) -> KernelLog:
        """Sort the lines of a log into events."""
        groups: dict[type, list[Any]] = {}
        drivers: dict[str, str] = {}
        cgroups: dict[int, str] = {}
        back: dict[str, int] = {}
        for line in lines_with(_WORDS, text, boot_epoch):
            event = _line_event(line, text)
            if event is not None:
                groups.setdefault(type(event), []).append(event)
            elif summary := system.oom_cgroup(line):
                cgroups[summary[0]] = summary[1]
            elif server := system.mount_back(line):
                back[server] = line.when.at
            _name_driver(line, event, drivers)
        begins, ends = edges(text, boot_epoch)
        return cls(
            source,
            text.count("\n") + (not text.endswith("\n")),
            begins,
            ends,
            is_cut,
            partly,
            tuple(_told_once(groups.get(LoggedXid, []))),
            tuple(groups.get(Sxid, ())),
            tuple(groups.get(DriverEvent, ())),
            tuple(groups.get(PcieError, ())),
            tuple(_merge_kills(groups.get(OomKill, []), cgroups)),
            tuple(s for s in groups.get(Stall, ()) if s.when.at > back.get(s.where or "", -1)),
            tuple(groups.get(NicEvent, ())),
            tuple(groups.get(IommuFault, ())),
            tuple(groups.get(RamError, ())),
            tuple(groups.get(StorageEvent, ())),
            tuple(groups.get(CpuEvent, ())),
            drivers,
            tuple(groups.get(FullTable, ())),
        )

    @property
    def span(self) -> str:
        """How much was looked at, for a finding that says there was nothing."""
        since = f" since {self.begins.short}" if self.begins.text else ""
        older = ", the older ones are lost" if self.cut else ""
        source = "" if self.source == _RECORDED else f" of {self.source}"
        return f"{count_with_noun(self.lines, 'line')}{source}{since}{older}"

    @property
    def booted(self) -> int:
        """Where in the log the running kernel starts, 0 when it holds one boot only."""
        return max((event.when.at for event in self.driver if event.kind == "boot"), default=0)

    def since(self, events: Iterable[E], moment: Moment) -> list[E]:
        """Those that are not older than --since, as far as their times are known."""
        if moment.since is None:
            return list(events)
        begin = moment.since.timestamp()
        dated = ((event, event.when.seconds if event.when.absolute else None) for event in events)
        return [event for event, seconds in dated if seconds is None or seconds >= begin]

    def starts(self, device: str | None = None, *, any_device: bool = False) -> tuple[When, ...]:
        """When kernel, driver or that device, or any, started again."""
        boots = (event.when for event in self.driver if event.kind == "boot")
        return (*boots, *self.cures(device, any_device=any_device))

    def cures(self, device: str | None = None, *, any_device: bool = False) -> tuple[When, ...]:
        """When NVIDIA's driver was loaded, or that GPU was reset: what was logged before is history."""
        ours = (
            event
            for event in self.driver
            if event.kind == "loaded" or (event.kind == "reset" and (any_device or event.device == device))
        )
        return tuple(event.when for event in ours)

    def public(self) -> dict[str, Any]:
        """How much there was of what; the events themselves are in the findings."""
        return {
            "source": self.source,
            "lines": self.lines,
            "begins": self.begins.text,
            "ends": self.ends.text,
            "booted": self.begins.boot,
            "cut": self.cut,
            "xids": {str(code): n for code, n in sorted(Counter(x.code for x in self.xids).items())},
            "sxids": {str(code): n for code, n in sorted(Counter(s.code for s in self.sxids).items())},
            "driver": [as_dict(event) for event in self.driver[-10:]],
            "pcie": dict(Counter(event.severity for event in self.pcie)),
            "oom": [as_dict(event) for event in self.oom[-10:]],
            "stalls": dict(Counter(event.kind for event in self.stalls)),
            "nics": dict(Counter(event.kind for event in self.nics)),
            "iommu": len(self.iommu),
            "ram": dict(Counter("corrected" if event.corrected else "uncorrected" for event in self.ram)),
            "storage": dict(Counter(event.kind for event in self.storage)),
            "cpus": dict(Counter(event.kind for event in self.cpus)),
            "full": dict(Counter(event.kind for event in self.full)),
        }


_PASTED = Unseen(
    "not-visible-here",
    "the log was pasted or cut, and may have had more lines",
    "Record the node with `nodedoctor --record FILE` instead of pasting a part of its log.",
    "kernel-log",
)


def is_over(event: When, starts: Iterable[When]) -> bool:
    """Whether a line came before one of the fresh starts.

    The driver says that it was loaded after it has tried its GPUs, so what came just before belongs to it.
    """
    return any(start.at > event.at and _seconds_between(event, start) > _LOADING_SECONDS for start in starts)


def _seconds_between(first: When, second: When) -> float:
    """Seconds between two lines; infinity when one has no time."""
    if first.seconds is None or second.seconds is None:
        return float("inf")
    return second.seconds - first.seconds


def _log_document(text: str) -> dict[str, Any] | None:
    """The child's document; None for anything else."""
    if not text.startswith("{"):
        return None
    try:
        document = answer(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) and "source" in document else None


def _why_unfinished(document: Mapping[str, Any], observation: Observation) -> Unseen | None:
    """Why the text is not the whole log: the child, or the tool that it asked, did not come to its end."""
    if not observation.answered:
        return Unseen.of(observation, WAY_OUT)
    reason = document.get("unfinished")
    return (
        Unseen("crash", f"{observation.probe}: {reason}", WAY_OUT, observation.probe)
        if isinstance(reason, str)
        else None
    )


def _why_denied(observation: Observation) -> Unseen | None:
    """A paste that holds only the complaint of a tool, or nothing."""
    lines = [line.strip() for line in observation.text.splitlines() if line.strip()]
    if any(line not in ("-- No entries --",) and not line.startswith(_NO_LOG) for line in lines):
        return None
    complaints = "; ".join(lines)
    denied = "not permitted" in complaints or "ermission" in complaints or "not seeing" in complaints
    if denied:
        return Unseen("denied", f"kernel-log: {complaints[:EVIDENCE]}", WAY_OUT, observation.probe)
    return Unseen("not-visible-here", "kernel-log: the log is empty", WAY_OUT, observation.probe)


def _why_no_log(document: Mapping[str, Any], inside: bool) -> Unseen:
    """Why no source had the log."""
    failures = document.get("failed")
    failed = [row for row in failures if isinstance(row, dict)] if isinstance(failures, list) else []
    reasons = "; ".join(f"{row.get('source')}: {row.get('said') or row.get('why')}" for row in failed)
    note = f"the kernel's log cannot be read: {reasons}"[: 2 * EVIDENCE]
    if inside:
        return Unseen("not-visible-here", note, ON_HOST, "kernel-log")
    denied = any(row.get("why") == "denied" for row in failed)
    way_out = FOR_ROOT if document.get("uid") == 0 else WAY_OUT
    return Unseen("denied" if denied else "not-visible-here", note, way_out, "kernel-log")


def _line_event(line: KernelLine, text: str) -> LogEvent | None:
    """The event a line tells of: what the first reader that understands it makes of it."""
    readers = (read for words, read in _READERS if not set(words).isdisjoint(line.words))
    return next((event for read in readers if (event := read(line, text))), None)


def _nvidia_event(line: KernelLine, text: str) -> LogEvent | None:
    if "Xid" in line.words and (event := nvidia.xid(line) or nvidia.sxid(line)):
        return event
    next_text = " ".join(following(text, line.when.at, 3)) if "NVRM: " in line.text else ""
    return nvidia.off_bus(line, next_text) or nvidia.driver_event(line, next_text)


_READERS: tuple[tuple[tuple[str, ...], Callable[[KernelLine, str], LogEvent | None]], ...] = (
    (("Xid", "NVRM:", "nvidia", "NVIDIA", "nv_peer_mem"), _nvidia_event),
    (
        (
            *("PCIe Bus Error", "DPC: containment", "pciehp", "retraining", "[Hardware Error]"),
            *("inaccessible", system.RECOVERY_FAILED),
        ),
        lambda line, text: system.pcie(line, tuple(following(text, line.when.at, 12))),
    ),
    (
        ("Killed process", "Kill process", "oom_memcg=", "invoked oom-killer"),
        lambda line, _: system.oom(line) or system.oom_caller(line),
    ),
    (_STALL, lambda line, text: system.stall(line, following(text, line.when.at, _STACK_LINES))),
    (("EDAC ", "hardware memory error", "Memory failure:"), lambda line, _: system.ram(line)),
    (storage.STORAGE_WORDS, lambda line, _: storage.storage(line)),
    (storage.CPU_WORDS, lambda line, text: storage.cpu(line, tuple(following(text, line.when.at, 12)))),
    (("DMAR:", "AMD-Vi:", "arm-smmu"), lambda line, _: system.iommu(line)),
    (
        ("NETDEV WATCHDOG", "mlx5", "mlx4", "bnxt_", "infiniband", "efa 0", "transmit timeout: "),
        lambda line, _: system.nic(line),
    ),
    (("table full, ", "table overflow", "tuning tcp_mem", "file-max"), lambda line, _: system.full(line)),
    (("Linux version ",), lambda line, _: DriverEvent(line.when, line.text[:EVIDENCE], "boot")),
)
"""Words that lead to a line, and what reads it, in this order. A word costs one pass over the text."""
_WORDS = tuple(word for words, _ in _READERS for word in words)


def _name_driver(line: KernelLine, event: LogEvent | None, drivers: dict[str, str]) -> None:
    """Remember whose device an address is: later lines of the bus name only the address."""
    if line.text.startswith(("nvidia ", "mlx4_core ", "mlx5_core ")):
        driver, device = system.named_device(line.text[:64])
        if driver and device:
            drivers.setdefault(device, driver)
    elif isinstance(event, LoggedXid) and event.device:
        drivers.setdefault(event.device, "nvidia")


def _told_once(xids: list[LoggedXid]) -> Iterator[LoggedXid]:
    """Less the sentences about a GPU off the bus that only repeat an Xid 79."""
    numbered = {xid.device for xid in xids if xid.code == 79 and "Xid" in xid.text}
    yield from (xid for xid in xids if "Xid" in xid.text or xid.device not in numbered)


def _merge_kills(killed: list[OomKill], cgroups: Mapping[int, str]) -> Iterator[OomKill]:
    """One kill per process: old kernels announce it first and say the sizes in a second line."""
    latest: dict[int, OomKill] = {}
    for kill in killed:
        earlier = latest.get(kill.pid)
        if earlier is None or kill.rss_gib is not None:
            # Before Linux 4.19 only the first line says that a control group's limit was reached.
            announced = earlier is not None and earlier.limited and earlier.rss_gib is None
            latest[kill.pid] = replace(kill, limited=True) if announced else kill
    for kill in latest.values():
        group = cgroups.get(kill.pid)
        limited = kill.limited or group is not None
        yield replace(kill, limited=limited, cgroup=group)
