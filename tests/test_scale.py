"""Large nodes and racks are judged as small ones are: what there is more of changes no finding."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import nvml_env, write_config
from fault_bank import KINDS, USUAL
from recorded import alarms, mesh, nvml, pci, replay, topo

from nodedoctor.engine.run import Diagnosis
from nodedoctor.engine.session import Request, Session
from nodedoctor.engine.sources import Recorded
from nodedoctor.fleet.compare import outliers
from nodedoctor.fleet.reports import read_reports
from nodedoctor.model import Observation, Report, Status
from nodedoctor.report import json as report_json

NODES = Path(__file__).parent / "nodes"
BAD = (Status.FAIL, Status.WARN)


def judged(session: Session, seen: Mapping[str, Observation]) -> Report:
    given, node = session.diagnosis()._given, {"hostname": "h"}

    async def run() -> Report:
        return await Diagnosis(session.checks, Recorded(seen), given, label="replay", node=node).run()

    return asyncio.run(run())


def statuses(report: Report) -> dict[str, str]:
    return {result.check: result.status.value for result in report.results}


def five_thousand_processes(document: dict[str, Any]) -> None:
    usual = document["processes"][0]
    document["processes"] += [
        {**usual, "pid": pid, "ppid": 1, "name": f"python3 {pid % 64}"} for pid in range(10_000, 15_000)
    ]


def of_256_cores(document: dict[str, Any]) -> None:
    one = document["files"]["/proc/cpuinfo"]
    document["files"]["/proc/cpuinfo"] = "".join(
        one.replace("processor\t: 0", f"processor\t: {n}") for n in range(256)
    )
    document["files"]["/sys/devices/system/cpu/online"] = "0-255\n"


def a_thousand_mounts(document: dict[str, Any]) -> None:
    path = next(name for name in document["files"] if name.endswith("/mountinfo"))
    document["files"][path] += "".join(
        f"{n} 22 0:{n} / /var/lib/containers/{n}/merged rw,relatime - overlay overlay rw\n"
        for n in range(2000, 3000)
    )


def a_hundred_thousand_lines(document: dict[str, Any]) -> None:
    last = 900.0
    document["text"] += "".join(
        f"[{last + n / 100:12.6f}] eth0: link becomes ready, queue {n % 97}\n" for n in range(100_000)
    )


@pytest.mark.parametrize(
    ("node", "probe", "grown"),
    [
        ("h100-healthy", "processes", five_thousand_processes),
        ("h100-healthy", "machine", of_256_cores),
        ("host-mounts-healthy", "disk", a_thousand_mounts),
        ("log-harmless-noise", "kernel-log", a_hundred_thousand_lines),
    ],
)
def test_a_large_node(node: str, probe: str, grown: Callable[[dict[str, Any]], None]) -> None:
    session = Session(Request(replay=NODES / node))
    assert session.snapshot is not None
    seen = dict(session.snapshot.observations)
    small = judged(session, seen)
    document = json.loads(seen[probe].text)
    grown(document)
    seen[probe] = replace(seen[probe], text=json.dumps(document))
    large = judged(session, seen)
    assert statuses(large) == statuses(small)


SIXTEEN = {
    "pci": pci(16, "20b2", ("1af1",) * 6),
    "nvidia-smi-topo": topo(mesh(16, "NV12")),
    "services": KINDS["a100"].around["services"],
}
"""Sixteen A100 on one NVSwitch fabric, as some clouds have them."""


def made(library: Path, folder: Path, values: Mapping[str, object], around: Mapping[str, str]) -> Report:
    """A node of this many GPUs, as the real child tells of them."""
    env = nvml_env(library, write_config(folder / "nvml.conf", values))
    return replay(folder / "node", {**USUAL, **around, "nvml": nvml(env)})


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ({}, ()),
        ({"gpu13.remap_failure": 1}, ("memory.remap@gpu:13",)),
        ({"gpus": 15}, ("driver.gpus-present@pci:0001:db:00.0",)),
    ],
    ids=["healthy", "one fails", "one is not there"],
)
def test_sixteen_gpus(
    fault: Mapping[str, object], found: tuple[str, ...], nvml_folder: Path, tmp_path: Path
) -> None:
    report = made(nvml_folder, tmp_path, {**KINDS["a100"].values, "gpus": 16, **fault}, SIXTEEN)
    assert tuple(cause.id for cause in report.causes) == found, alarms(report)


@pytest.mark.slow
def test_a_rack_of_72_gpus(nvml_folder: Path, tmp_path: Path) -> None:
    """Eighteen trays of four GPUs: those alike are silent, one with a fault or another driver is named."""
    kind = KINDS["gb200"]
    healthy, sick = (
        report_json.render(
            report_json.document(made(nvml_folder, tmp_path, {**kind.values, **more}, kind.around))
        )
        for more in ({}, {"gpu2.remap_failure": 1})
    )
    folder = tmp_path / "rack"
    folder.mkdir()
    for tray in range(18):
        text = sick if tray == 5 else healthy.replace("570.86.10", "570.86.15") if tray == 11 else healthy
        document = json.loads(text)
        document["node"]["hostname"] = f"tray-{tray:02d}"
        (folder / f"{tray}.json").write_text(json.dumps(document))
    nodes = [read_reports.read(str(path)) for path in sorted(folder.iterdir())]
    assert sum(len(json.loads(p.read_text())["facts"]["gpus"]["gpus"]) for p in folder.iterdir()) == 72
    wrong = {(node.host, found.check) for node in nodes for found in node.problems if found.status in BAD}
    assert wrong == {("tray-05", "memory.remap")}
    assert {oddity.odd for oddity in outliers.judge(nodes)} == {("tray-11",)}
