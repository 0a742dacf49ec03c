"""Lines of the NVIDIA driver in the kernel log: Xid, SXid, and what it says when it cannot start.

Formats: NVIDIA/open-gpu-kernel-modules, src/nvidia/src/kernel/gpu/rc/kernel_rc.c,
arch/nvalloc/unix/src/osapi.c and osinit.c, kernel-open/nvidia/nv.c; older ones as people have pasted them.
"""

from __future__ import annotations

import re

from nodedoctor.facts.kernel.events import DriverEvent, DriverKind, LoggedXid, Sxid
from nodedoctor.facts.kernel.lines import EVIDENCE, KernelLine
from nodedoctor.facts.pci.pci import bdf
from nodedoctor.patterns import regex

ADDRESS = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"

_XID = regex(
    rf"(?<!S)Xid(?::| \((?:PCI:)?(?P<device>{ADDRESS})"
    r"(?P<mig>(?: GPU-I:\d{1,3})?(?: GPU-CI:\d{1,3})?)\):?)\s*(?P<code>\d{1,4})\b,?\s*(?P<rest>.*)",
    re.DOTALL,
)
_XID_FIRST = regex(
    rf"(?<!S)Xid:? (?P<code>\d{{1,4}}),? \((?:PCI:)?(?P<device>{ADDRESS})(?P<mig>)\):?,?\s*(?P<rest>.*)",
    re.DOTALL,
)
"""As monitors and people write it: the number before the device."""
_OWNER = regex(r"pid='?(?P<pid>\d{1,9}|<unknown>)'?,(?: name=(?P<name>[^,]{0,64}),)?\s*")
_SXID = regex(
    rf"(?P<switch>nvidia-nvswitch\d*|(?<!\S)\S*): SXid \((?:PCI:)?(?P<device>{ADDRESS})\): "
    r"(?P<code>\d{1,6}), (?P<kind>Fatal|Non-fatal)\b,?\s*(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_LINK = regex(r"\b[Ll]ink (\d{1,3})\b")
_OFF_BUS = regex(
    rf"GPU(?: at PCI:)? (?P<device>{ADDRESS})(?::? \(PCI ID: [0-9a-f:]+\)|\b).{{0,80}}?fallen off the bus",
    re.DOTALL,
)
_OFF_BUS_FIRST = regex(rf"NVRM: The NVIDIA GPU (?P<device>{ADDRESS})\b")
_LOADED = regex(r"NVRM: loading NVIDIA UNIX .*?Kernel Module(?: for \w+)?\s+(?P<version>\d{3}\.[\d.]{1,12})")
_MISMATCH = regex(r"NVRM: API mismatch: the client(?: '(?P<client>[^']{1,64})')?")
_VERSION = regex(r"version:?\s+(\d{3}\.\d{1,4}(?:\.\d{1,4})?)\b")
_DEVICE = regex(rf"\b({ADDRESS})(?=[\s:),]|$)")
_BOUND = regex(rf"NVRM: GPU (?P<device>{ADDRESS}) is already bound to (?P<driver>[\w-]{{1,32}})")
_NUMBER = regex(r"NVRM: GPU(\d{1,3}) ")
"""RM's number of a GPU, which newer drivers put before their messages."""
_RESET = regex(rf"^nvidia (?P<device>{ADDRESS}): (?:enabling device|.*\breset done)")

# A message, what it means, longest story first.
_TROUBLE: tuple[tuple[re.Pattern[str], DriverKind], ...] = (
    (regex(r"RmInitAdapter failed|rm_init_adapter failed"), "gpu-failed"),
    (
        regex(r"NVRM: .*BAR\d is 0M @ 0x0|NVRM: Can't find an IRQ|NVRM: request_mem_region failed"),
        "gpu-failed",
    ),
    (regex(r"NVRM: .*[Ff]ailed to copy vbios to system memory"), "gpu-failed"),
    (regex(r"NVRM: This (?:PCI|64-bit) .{0,90}(?:BAR|I/O region).* (?:is invalid|assigned)"), "gpu-failed"),
    (
        regex(r"NVRM: .*(?:is not supported by|not supported by open|requires use of the NVIDIA open)"),
        "gpu-failed",
    ),
    (regex(r"NVRM: .*(?:GPU is lost|GPU has been lost)"), "gpu-failed"),
    # src/nvidia/src/kernel/gpu/gsp/kernel_gsp.c: what comes with an Xid 119 or 120, or alone.
    (
        regex(
            r"NVRM: .*(?:_kgsp\w{1,60}: (?:Heartbeat|(?:GSP RM|LibOS) heartbeat) timed out"
            r"|\* GSP Timeout \*|\* GSP-CrashCat Report \*)"
        ),
        "no-heartbeat",
    ),
    # nvstatuscodes.h: 0x62 and 0x0f; the calls to the GSP that fail print the number alone.
    (regex(r"NVRM: .*(?:NV_ERR_RESET_REQUIRED|\b(?:paramsS|s)tatus=0x0{0,6}62\b)"), "reset-required"),
    (regex(r"NVRM: .*NV_ERR_GPU_IS_LOST"), "gpu-lost"),
    (
        regex(r"nvidia: probe of \S+ failed with error|nvidia \S+: probe with driver nvidia failed"),
        "gpu-failed",
    ),
    (
        regex(
            r"NVRM: No NVIDIA (?:GPU|graphics adapter) found|None of the NVIDIA devices were (?:probed|init)"
        ),
        "no-gpu",
    ),
    (regex(r"NVRM: The NVIDIA probe routine (?:was not called|failed) for \d+ device"), "no-gpu"),
    (
        regex(r"(?:nvidia_peermem|nv_peer_mem): (?:Unknown symbol|disagrees about)|nvidia-peermem .*fail"),
        "peermem",
    ),
    (regex(r"nvidia(?:_uvm)?: (?:Unknown symbol|disagrees about version|version magic)"), "refused"),
    (
        regex(
            r"(?:nvidia|NVIDIA).*(?:unsigned module loading is restricted|Loading of (?:unsigned )?module)"
        ),
        "refused",
    ),
)


def xid(line: KernelLine) -> LoggedXid | None:
    """An Xid line, with or without a process, of a MIG instance, in the forms of old drivers."""
    match = _XID_FIRST.search(line.text) or _XID.search(line.text)
    if match is None:
        return None
    rest = match.group("rest")
    owner = _OWNER.match(rest)
    pid, name = owner.group("pid", "name") if owner else (None, None)
    device = match.group("device")
    return LoggedXid(
        line.when,
        line.text[:EVIDENCE],
        int(match.group("code")),
        bdf(device) if device else None,
        int(pid) if pid and pid.isdecimal() else None,
        name if name and name != "<unknown>" else None,
        (match.group("mig") or "").strip() or None,
    )


def off_bus(line: KernelLine, next_text: str) -> LoggedXid | None:
    """A GPU said to be off the bus without the number 79; `next_text` has the next lines."""
    match = _OFF_BUS.search(line.text)
    if match is None:
        first = _OFF_BUS_FIRST.search(line.text)
        match = first if first and "fallen off the bus" in f"{line.text} {next_text}" else None
    if match is None or "Xid" in line.text:
        return None
    return LoggedXid(line.when, line.text[:EVIDENCE], 79, bdf(match.group("device")))


def sxid(line: KernelLine) -> Sxid | None:
    """The first line of an NVSwitch error; its companions with severity and data count for nothing."""
    match = _SXID.search(line.text)
    if match is None:
        return None
    link = _LINK.search(match.group("rest"))
    return Sxid(
        line.when,
        line.text[:EVIDENCE],
        int(match.group("code")),
        match.group("kind").lower() == "fatal",
        match.group("switch").removeprefix("nvidia-"),
        bdf(match.group("device")),
        int(link.group(1)) if link else None,
    )


def driver_event(line: KernelLine, next_text: str) -> DriverEvent | None:
    """The driver was loaded, a GPU was reset, or something did not start."""
    text = line.text
    if loaded := _LOADED.search(text):
        return DriverEvent(line.when, text[:EVIDENCE], "loaded", version=loaded.group("version"))
    if again := _RESET.search(text):
        return DriverEvent(line.when, text[:EVIDENCE], "reset", bdf(again.group("device")))
    if bound := _BOUND.search(text):
        device, driver = bound.group("device", "driver")
        return DriverEvent(line.when, text[:EVIDENCE], "bound", bdf(device), driver)
    if mismatch := _MISMATCH.search(text):
        versions = _VERSION.findall(f"{text} {next_text}")[:2]
        shown = f"{text} {next_text}" if len(_VERSION.findall(text)) < 2 else text
        version, client = " ".join(versions) or None, mismatch.group("client")
        return DriverEvent(line.when, shown[:EVIDENCE], "mismatch", version=version, client=client)
    for pattern, kind in _TROUBLE:
        if pattern.search(text):
            device = _DEVICE.search(text)
            where = bdf(device.group(1)) if device else None
            number = _NUMBER.search(text)
            gpu = int(number.group(1)) if number else None
            return DriverEvent(line.when, text[:EVIDENCE], kind, where, gpu=gpu)
    return None
