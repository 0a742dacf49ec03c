"""Recorded nodes made for one test: the fake NVML tells of the GPUs, documents of the rest of the node."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fakes.tree import SLOTS, VERSION, gpu_address

from nodedoctor import demo
from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Options
from nodedoctor.engine import evidence
from nodedoctor.engine.causes.devices import Devices
from nodedoctor.engine.session import Request, Session
from nodedoctor.model import Report

DEVICES = "/sys/bus/pci/devices"
DRIVER = "570.86.10"  # as the fake NVML has it
A100 = {
    "name": "NVIDIA A100-SXM4-80GB",
    "pci_id": "0x20b210de",
    "architecture": 7,
    "cc": "8.0",
    "links": 12,
    "nvlink_version": 4,
    "speed_mbytes_s": 25000,
    "nvlink_switch_links": 12,
    "pcie_generation": 4,
    "pcie_generation_max": 4,
    "pcie_generation_device_max": 4,
    "clock_max_graphics": 1410,
    "clock_max_sm": 1410,
    "clock_app_graphics": 1155,
    "clock_default_app_graphics": 1155,
    "power_limit": 400,
    "power_limit_requested": 400,
    "power_limit_default": 400,
    "power_limit_max": 400,
    "t_limit_margin": "-",
    "fabric_state": "-",
}
"""What the fake NVML says of an A100, where that is not what it says of an H100."""
NIC = ("15b3", "1021", "020000")


STORE = "NODEDOCTOR_TEST_REPORTS"
"""Variable with the folder in which the workers of one test run keep what they have judged (see conftest)."""


KEPT = (Path(__file__).parents[1] / "nodes", Path(demo.__file__).parent)
"""The folders of the repository's recorded nodes."""


@dataclass(frozen=True)
class Judgement:
    """One replay of a recorded node."""

    report: Report
    devices: Devices
    unproven: tuple[str, ...]
    """What the engine could not prove and logged."""


@cache
def judgement(folder: Path, *, preview: bool = False) -> Judgement:
    """What every check says of a node: one of the repository is judged once for all workers of a test run."""
    store = os.environ.get(STORE)
    if not store or folder.parent not in KEPT:
        return _judgement(folder, preview)
    file = Path(store) / f"{folder.parent.name}-{folder.name}-{preview}"
    with file.open("a+b") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        if kept.seek(0, os.SEEK_END) == 0:
            kept.write(pickle.dumps(_judgement(folder, preview)))
        kept.seek(0)
        found = pickle.loads(kept.read())
    assert isinstance(found, Judgement)
    return found


def _judgement(folder: Path, preview: bool) -> Judgement:
    with listening() as said:
        diagnosis = Session(Request(replay=folder, preview=preview)).diagnosis()
        report = asyncio.run(diagnosis.run())
    return Judgement(report, diagnosis.devices(), tuple(said))


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """What the engine logs about evidence that it did not find."""
    log, said = logging.getLogger(evidence.__name__), _Said()
    level = log.level
    log.addHandler(said)
    log.setLevel(logging.DEBUG)
    try:
        yield said.lines
    finally:
        log.removeHandler(said)
        log.setLevel(level)


class _Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def judged(folder: Path, *, preview: bool = False) -> Report:
    """The report of a recorded node; reports are frozen, so all tests share one."""
    return judgement(folder, preview=preview).report


def replay(
    folder: Path, probes: Mapping[str, str], expect: Mapping[str, str] | None = None, *, deep: bool = False
) -> Report:
    """Write a recorded node and judge it with every check, those in preview as if they were stable.

    Whatever a test makes up, each piece of evidence must be in what was observed.
    """
    (folder / "probes").mkdir(parents=True, exist_ok=True)
    named = [{"name": name, "outcome": "ok", "rc": 0} for name in probes]
    manifest = {"schema": "nodedoctor.snapshot/1", "probes": named}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for name, text in probes.items():
        (folder / "probes" / f"{name}.txt").write_text(text)
    request = Request(replay=folder, preview=True, options=Options(expect=dict(expect or {}), deep=deep))
    with listening() as said:
        report = asyncio.run(Session(request).diagnosis().run())
    assert said == [], "evidence that is not in what was observed"
    return report


def alarms(report: Report) -> list[str]:
    """Everything that warns or fails, and every crash, in words."""
    return [
        f"{finding.status.word} {result.check}@{finding.subject}: {finding.summary}"
        for result in report.results
        for finding in result.findings
        if finding.status.value in ("warn", "fail") or finding.reason == "crash"
    ]


def nvml(env: Mapping[str, str]) -> str:
    """What the real NVML child says behind the fake library."""
    asked = Command(child("gpu/nvml", packages=True), env=dict(env))
    return asyncio.run(child_process.run("nvml", asked, 60)).text


def files(**sections: Any) -> str:
    """A document of the file-reading child."""
    return json.dumps({"files": {}, **sections})


def pci(gpus: int, device: str, switches: Sequence[str] = (), nics: int = 0, bus: int = 5) -> str:
    """GPUs where the fake NVML has them, NVSwitches by device id, ConnectX adapters."""
    listed = {gpu_address(index): ("10de", device, "030200") for index in range(gpus)}
    listed |= {f"0000:{bus + i:02x}:00.0": ("10de", switch, "068000") for i, switch in enumerate(switches)}
    listed |= {f"0000:{0x40 + i:02x}:00.0": NIC for i in range(nics)}
    texts: dict[str, str] = {}
    links: dict[str, str] = {}
    for place, (address, (vendor, number, kind)) in enumerate(listed.items()):
        here = f"{DEVICES}/{address}"
        texts |= {f"{here}/vendor": f"0x{vendor}\n", f"{here}/device": f"0x{number}\n"}
        texts |= {f"{here}/class": f"0x{kind}\n", f"{here}/numa_node": f"{place % 2}\n"}
        links[here] = f"../../../devices/pci0000:00/0000:00:{place:02x}.0/{address}"
        if vendor == "10de" and kind == "030200":
            links[f"{here}/driver"] = "../../../bus/pci/drivers/nvidia"
    return files(files=texts, links=links)


def driver_files(nodes: Mapping[str, str] | None = None) -> str:
    """A loaded driver; `nodes` are device nodes by path with the access we have to them."""
    texts = {
        "/proc/driver/nvidia/version": VERSION.format(driver=DRIVER),
        "/sys/module/nvidia/version": f"{DRIVER}\n",
        "/proc/modules": "nvidia_uvm 4956160 0 - Live 0x0\nnvidia 11481088 1 nvidia_uvm, Live 0x0\n",
    }
    texts |= {
        f"/proc/driver/nvidia/gpus/{address}/information": f"Device Minor: \t {minor}\nGPU Excluded:\t No\n"
        for minor, address in enumerate(SLOTS)
        if nodes
    }
    stats = {path: {"type": "char", "mode": "0666", "access": rw} for path, rw in (nodes or {}).items()}
    return files(files=texts, stats=stats)


def machine(virtual: bool = False, arm: bool = False) -> str:
    """An x86 or Grace server, or a virtual machine; up for ten days."""
    flags = f"flags\t\t: fpu vme lm{' hypervisor' if virtual else ''}\n"
    texts = {
        "/proc/cpuinfo": "CPU architecture: 8\n" if arm else f"processor\t: 0\n{flags}",
        "/proc/sys/kernel/arch": "aarch64\n" if arm else "x86_64\n",
        "/proc/sys/kernel/osrelease": "6.8.0-64-generic\n",
        "/proc/uptime": "864000.10 90000000.00\n",
        "/sys/class/dmi/id/sys_vendor": "NVIDIA\n" if arm else "Supermicro\n",
        "/sys/class/dmi/id/product_name": "Server\n",
    }
    return files(files=texts)


def container(inside: bool = False) -> str:
    """The host, or a Docker container on it."""
    numbers = {"pid": 4026531836, "mnt": 4026531841, "ipc": 4026531839}
    links = {
        f"/proc/{who}/ns/{ns}": f"{ns}:[{n + inside}]" for ns, n in numbers.items() for who in ("self", "1")
    }
    rights = "CapEff:\t000001ffffffffff\nSeccomp:\t0\n"
    stats = {"/.dockerenv": {"type": "file", "mode": "0755"}} if inside else {}
    return files(links=links, stats=stats, files={"/proc/self/status": rights})


def processes(*programs: str) -> str:
    """All processes of a host: its first one, and these programs."""
    rows = [{"pid": pid, "ppid": 0, "program": name} for pid, name in enumerate(("systemd", *programs), 1)]
    return json.dumps({"left_out": 0, "unread": 0, "processes": rows})


def services(*running: str) -> str:
    """Units that run; every other one is not there."""
    names = ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-imex")
    blocks = []
    for name in names:
        up = name in running
        loaded = "LoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled"
        absent = "LoadState=not-found\nActiveState=inactive\nSubState=dead\nUnitFileState="
        blocks.append(f"Id={name}.service\n{loaded if up else absent}\nResult=success")
    return "\n\n".join(blocks) + "\n"


def iommu(*units: str, kind: str = "identity", parameters: str = "iommu=pt") -> str:
    """IOMMU units; groups are of one type."""
    texts = {f"/sys/kernel/iommu_groups/{group}/type": f"{kind}\n" for group in range(16)}
    return files(
        files={**texts, "/proc/cmdline": f"ro {parameters}\n"}, lists={"/sys/class/iommu": list(units)}
    )


def topo(cells: Sequence[Sequence[str]], nics: int = 0, near: str = "PIX", far: str = "SYS") -> str:
    """`topo -m`: the tokens between GPUs, and adapters of which the n-th is near the n-th GPU."""
    count = len(cells)
    names = [f"GPU{i}" for i in range(count)] + [f"NIC{i}" for i in range(nics)]
    lines = ["\t\x1b[4m" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + "\x1b[0m"]
    for i, row in enumerate(cells):
        own = [" X " if i == j else token for j, token in enumerate(row)]
        own += [near if i == n else far for n in range(nics)]
        half = 0 if i * 2 < count else 1
        lines.append("\t".join([f"GPU{i}", *own, f"{half * 32}-{half * 32 + 31}", str(half), "", "N/A"]))
    for n in range(nics):
        row = [near if i == n else far for i in range(count)]
        row += [" X " if m == n else far for m in range(nics)]
        lines.append("\t".join([f"NIC{n}", *row]))
    legend = "\n".join(f"  NIC{n}: mlx5_{n}" for n in range(nics))
    return (
        "\n".join(lines) + "\n\nLegend:\n\n  X    = Self\n" + (f"\nNIC Legend:\n\n{legend}\n" if nics else "")
    )


def mesh(count: int, token: str) -> list[list[str]]:
    """The same token between all GPUs."""
    return [[token] * count for _ in range(count)]
