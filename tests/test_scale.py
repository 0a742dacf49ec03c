"""Large nodes are judged as small ones are: what there is more of on them changes no finding."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodedoctor.engine.run import Diagnosis
from nodedoctor.engine.session import Request, Session
from nodedoctor.engine.sources import Recorded
from nodedoctor.model import Observation, Report

NODES = Path(__file__).parent / "nodes"


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
