"""What a device plugin, modprobe and the list of mounts say of a node, each line by itself.

Formats: NVIDIA/k8s-device-plugin 0.9 to 0.17, internal/rm/health.go; kmod 9 to 34, tools/modprobe.c with the
kernel's ENOKEY and EKEYREJECTED; util-linux 2.20 to 2.41 (mount, findmnt) and proc(5), /proc/mounts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Result, Verdict, make_verdict
from nodedoctor.knowledge.xids import xid
from nodedoctor.patterns import regex
from nodedoctor.wording import count_with_noun

DEVICE_PLUGIN, HOST = "device-plugin", "host-messages"
device_plugin_log = pasted(DEVICE_PLUGIN, "The log of NVIDIA's device plugin for Kubernetes.")
host_messages = pasted(HOST, "Lists of mounts, and why a write or a kernel module was refused.")
_of_plugin = partial(make_verdict, DEVICE_PLUGIN, "device plugin")
_of_modprobe = partial(make_verdict, HOST, "modprobe")
_of_kernel = partial(make_verdict, HOST, "kernel parameters")
_of_mounts = partial(make_verdict, HOST, "mounts")

_XID = regex(
    r"XidCriticalError: Xid=(?P<code>\d{1,4}) on (?:Device|GPU)=(?P<gpu>[\w-]{3,60})"
    r"|XidCriticalError: Xid=(?P<code_of_all>\d{1,4}) on all devices"
)
_UNHEALTHY = regex(r"'(?P<resource>[\w./-]{3,60})' device marked unhealthy: (?P<gpu>[\w-]{3,60})")


def device_plugin(output: str) -> Iterator[Verdict]:
    """Each GPU that it took out of service, with the Xid for which it did, or without a reason."""
    codes: dict[str, str] = {}
    for match in _XID.finditer(output):
        code = match["code"] or match["code_of_all"]
        gpu = match["gpu"] or "all GPUs"
        if (gpu, code) not in codes.items():
            codes[gpu] = code
            row = xid(int(code))
            meaning = f" ({row.meaning.partition(':')[0].rstrip('.')})" if row else ""
            result: Result = "note" if row and row.of_program else "fail"
            words = f"Xid {code} on {gpu}{meaning}" + (": out of service" if result == "fail" else "")
            yield _of_plugin(result, words, f"device:{gpu.replace(' ', '-')}", match[0])
    for match in _UNHEALTHY.finditer(output):
        if match["gpu"] not in codes and "all GPUs" not in codes:
            codes[match["gpu"]] = ""
            yield _of_plugin("fail", f"{match['gpu']} is unhealthy", f"device:{match['gpu']}", match[0])


_NOT_LOADED = regex(
    r"modprobe: (?:ERROR|FATAL): (?:could not insert '(?P<module>nvidia[\w-]{0,30})': (?P<why>[^\n]{3,200})"
    r"|Module (?P<absent>nvidia[\w/-]{0,30}) not found in directory (?P<folder>/[^\s]{1,200}))"
)
PEER_MEMORY = "nvidia_peermem"
_OTHER_STACK = regex(r"^(?:Invalid argument|Unknown symbol|Exec format error)")
"""Errors of a module whose symbols the loaded kernel modules do not have (module.c, EINVAL and ENOENT)."""
_KEY = regex(r"Key (?:was rejected|has been rejected|has expired)|Required key not available|Key was revoked")


def host(output: str) -> Iterator[Verdict]:
    """What is said of modules, of the kernel's parameters and of mounts."""
    yield from _modules(output)
    yield from _parameters(output)
    yield from _mounts(output)


def _modules(output: str) -> Iterator[Verdict]:
    """Why the module was not loaded, where modprobe says so: no signature, no module for this kernel."""
    for match in {match[0]: match for match in _NOT_LOADED.finditer(output)}.values():
        module = match["module"] or match["absent"]
        if match["absent"]:
            kernel = match["folder"].rpartition("/")[2]
            words = f"no module {module} for kernel {kernel}"
        elif _KEY.search(match["why"]):
            words = f"the kernel rejects module {module}: no enrolled key has signed it (Secure Boot)"
        elif module.replace("-", "_") == PEER_MEMORY and _OTHER_STACK.search(match["why"]):
            words = f"{module} does not fit the RDMA stack ({match['why']}): built without it, or before it"
        else:
            yield _of_modprobe("note", f"{module}: {match['why']}", f"module:{module}", match[0])
            continue
        optional = module.replace("-", "_") in (PEER_MEMORY, "nvidia_fs")
        yield _of_modprobe("warn" if optional else "fail", words, f"module:{module}", match[0])


_COMMAND_LINE = regex(r"^[^\n]{0,80}?BOOT_IMAGE=[^\n]{1,4000}$", 8)
_TRANSLATES = regex(r"\b(?:intel|amd)_iommu=on\b")
_PASSES = regex(r"\biommu=(?:pt|off)\b|\biommu\.passthrough=1\b|\b(?:intel|amd)_iommu=off\b")


def _parameters(output: str) -> Iterator[Verdict]:
    """An IOMMU that was switched on and translates what GPUs and adapters send (NCCL, troubleshooting)."""
    for line in {match[0]: match for match in _COMMAND_LINE.finditer(output)}.values():
        switched = _TRANSLATES.search(line[0])
        if switched and not _PASSES.search(line[0]):
            words = f"{switched[0]} without iommu=pt: transfers between GPUs and NICs go through the CPU"
            yield _of_kernel("warn", words, "parameter:iommu", switched[0])
        else:
            words = "the IOMMU is passed through or off" if _PASSES.search(line[0]) else "none of the IOMMU"
            yield _of_kernel("note", words, "parameter:iommu")


_OPTIONS = r"(?P<{0}>r[ow](?:,[\w.=:/@%+-]{{1,200}}){{0,40}})"
_MOUNTED = regex(
    r"^[^\S\n]{0,8}(?:"
    rf"(?P<source>/dev/\S{{1,200}}) on (?P<point>/\S{{0,400}}) type \w{{2,20}} \({_OPTIONS.format('options')}"
    rf"|(?P<proc>/dev/\S{{1,200}}) (?P<at>/\S{{0,400}}) \w{{2,20}} {_OPTIONS.format('of_proc')} \d \d"
    r"|(?:[^\w\s/]{1,8} ?)?(?P<found>/\S{0,400}) +(?P<on>/dev/\S{1,200}) +\w{2,20} +"
    rf"{_OPTIONS.format('of_found')})",
    8,
)
READ_ONLY = r"[\w.-]{1,20}: [^\n]{1,400}: Read-only file system"
_REFUSED = regex(rf"^{READ_ONLY}$", 8)
_PATH = regex(r"['\"\u2018](/[^'\"\u2019\n]{1,200})['\"\u2019]|: (/[^:\n]{1,200}): ")
_SYSTEM = regex(r"/(?:proc|sys|dev|usr|boot|etc|lib|bin|sbin|run|opt)(?:/|$)|/[^/]{0,200}$")
"""Where no job has to write: images of systems and containers are read-only there."""


def _mounts(output: str) -> Iterator[Verdict]:
    """File systems that are read-only though an error alone makes them so, and writes refused for it."""
    rows = [*_MOUNTED.finditer(output)]
    sick: list[str] = []
    for row in rows:
        point = row["point"] or row["at"] or row["found"]
        options = (row["options"] or row["of_proc"] or row["of_found"]).split(",")
        if "ro" in options and "errors=remount-ro" in options:
            source = row["source"] or row["proc"] or row["on"]
            words = f"{point} ({source}) is read-only, as errors of its disk make it"
            sick.append(f"{point.rstrip('/')}/")
            yield _of_mounts("warn", words, f"mount:{point}", row[0])
    for line in _REFUSED.finditer(output):
        path = next((part for match in _PATH.finditer(line[0]) for part in match.groups() if part), "")
        words = f"{path or 'a file'} cannot be written: its file system is read-only"
        if not path or _SYSTEM.match(path):
            yield _of_mounts("note", words, f"mount:{path}", line[0])
        elif not path.startswith(tuple(sick)):
            sick.append(path)
            yield _of_mounts("warn", words, f"mount:{path}", line[0])
    if rows and not sick:
        count = count_with_noun(len(rows), "file system")
        yield _of_mounts("pass", f"no error made any of {count} read-only", quote=rows[0][0])
