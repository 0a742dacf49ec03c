"""Documents for the pages: a fleet of any size, a verdict of triage, measured bandwidth, and hostile text."""

from __future__ import annotations

import random
from typing import Any

from nodedoctor.nodeset import fold

HOSTILE = (
    "</script><script>alert(1)</script>",
    "\"'><img src=x onerror=alert(2)>",
    "a\u202eb\x1b[31mc\u2066d\x00e\u061cf",
    "</title></style><!--",
    "&lt;b&gt;&amp;",
)
_KEPT = ("schema", "status", "state", "outcome", "world", "verdict", "reason", "action", "probe")


def hostile(value: Any, key: str = "", count: list[int] | None = None) -> Any:
    """The document, every text in it that is no word of ours replaced by a hostile one."""
    count = count if count is not None else [0]
    if isinstance(value, dict):
        return {name: hostile(inner, name, count) for name, inner in value.items()}
    if isinstance(value, list):
        return [hostile(inner, key, count) for inner in value]
    if not isinstance(value, str) or key in _KEPT:
        return value
    count[0] += 1
    return f"{count[0] if key in ('check', 'host') else ''}{HOSTILE[count[0] % len(HOSTILE)]}"


def bandwidth(gpus: int, slow: tuple[int, int]) -> dict[str, Any]:
    """The fact of measured copies: one pair is slow."""
    pairs = [
        {"source": b, "target": a, "access": True, "read_gbytes_s": 41.0 if (a, b) == slow else 391.4}
        for a in range(gpus)
        for b in range(gpus)
        if a != b
    ]
    host = [
        {"index": n, "kind": "near", "node": n // 4, "h2d_gbytes_s": 55.1, "d2h_gbytes_s": 54.9}
        for n in range(gpus)
    ]
    return {"pairs": pairs, "host": host}


def triage() -> dict[str, Any]:
    """A verdict with something in every part."""
    who = {"world": "default", "group_rank": None, "gpu": 0, "pid": 4242}
    return {
        "schema": "nodedoctor.triage/1",
        "outcome": "failure",
        "cause": "cpu_stuck_or_slow_rank",
        "confidence": "high",
        "headline": "rank 16 came late; the others waited for it",
        "culprits": [{**who, "rank": 16, "host": "node-2"}],
        "victims": [{**who, "rank": rank, "host": None} for rank in range(4)],
        "parties": [],
        "collective": {
            "op": "ALLREDUCE",
            "seq": 3,
            "group": "0",
            "numel_in": 67108864,
            "numel_out": 67108864,
            "implied_ranks": None,
            "timeout_seconds": 45.0,
            "bytes_by_dtype": {"bf16": 134217728},
            "expected_seconds": {"ib_400g": 0.0058, "ethernet_1g": 2.29},
            "size_can_explain_wait": False,
        },
        "evidence": [
            {
                "source": "job/train.log",
                "line": 54,
                "time": "07-24 08:34:25.963",
                "rank": 16,
                "text": "STRAGGLER rank=16 sleeping 70s",
            }
        ],
        "timeline": [{"time": "07-24 08:34:00.940", "rank": 16, "event": "asleep"}],
        "alternatives": [{"cause": "peer_died", "why_less_likely": "no process ended first"}],
        "fixes": [
            {
                "text": "See what that rank does.",
                "commands": ["py-spy dump --pid 4242"],
                "action": "investigate",
            }
        ],
        "not_the_cause": [{"claim": "NCCL_TIMEOUT", "why": "nothing reads it"}],
        "next": [{"text": "Read all logs together.", "commands": ["nodedoctor triage LOGS"]}],
        "incidents": 2,
        "coverage": {
            "files": 3,
            "bytes": 14079,
            "ranks_seen": [0, 1, 2, 3, 5, 16],
            "ranks_expected": 20,
            "ranks_missing": [4, 6, 7],
            "notes": ["one line was cut"],
        },
    }


_TROUBLE = (
    ("nvlink.links", "gpu:3", "fail", None, "2 of 18 links down: 4, 11", "reset-gpu"),
    ("memory.ecc", "gpu:6", "fail", None, "uncorrected errors since the driver was loaded", "replace"),
    ("ib.ports", "mlx5_4/1", "fail", None, "mlx5_4/1 is Down", "investigate"),
    ("limits.memlock", "shell", "warn", None, "64 KiB may be locked", "config"),
    ("kernel.xid", "gpu:2", "fail", None, "Xid 79 (1 time): the GPU fell off the bus", "reboot"),
    ("driver.answers", "", "unknown", "timeout", "nvml: no answer in 10 s", "reboot"),
    ("net.clock", "", "warn", None, "not synchronised", "config"),
)
_KEYS = ("check", "subject", "status", "reason", "summary", "action")
_WORST = ("pass", "warn", "unknown", "fail")


def fleet(size: int) -> dict[str, Any]:
    """A fleet in which every fifth node has problems of its own, one another driver, and two are silent."""
    chance = random.Random(5)
    nodes = [_node(number, chance) for number in range(1, size + 1)]
    nodes.sort(key=lambda node: -_WORST.index(node["verdict"] or "unknown"))
    hosts = [node["host"] for node in nodes]
    failing = [node["host"] for node in nodes if node["verdict"] in ("fail", "unknown", None)]
    usual = fold(host for host in hosts if host != "gpu-128")
    groups = [
        {"value": "570.86.10", "nodes": usual, "count": size - 1},
        {"value": "550.54.15", "nodes": "gpu-128", "count": 1},
    ]
    oddity = {
        "key": "driver",
        "title": "NVIDIA driver",
        "status": "warn",
        "summary": f"gpu-128 has 550.54.15, {size - 1} others 570.86.10",
        "why": "a job runs on all of them.",
        "fix": "Install the driver that the others have.",
        "majority": groups[0],
        "groups": groups,
        "odd": "gpu-128",
    }
    verdicts = [node["verdict"] for node in nodes]
    silent = verdicts.count(None)
    return {
        "schema": "nodedoctor.fleet/1",
        "tool": "0.1.0",
        "source": "ssh",
        "started": "2026-11-14T09:11:00Z",
        "seconds": 53.2,
        "verdict": "fail",
        "counts": {
            "nodes": size,
            "answered": size - silent,
            "silent": silent,
            **{verdict: verdicts.count(verdict) for verdict in _WORST},
        },
        "passing": fold(set(hosts) - set(failing)),
        "failing": fold(failing),
        "oddities": [oddity],
        "checks": [{"check": trouble[0], "title": trouble[0]} for trouble in _TROUBLE],
        "nodes": nodes,
    }


def _node(number: int, chance: random.Random) -> dict[str, Any]:
    host = f"gpu-{number:03d}"
    node: dict[str, Any] = {"host": host, "state": "answered", "note": "", "verdict": "pass", "problems": []}
    if number in (41, 42):
        return {**node, "state": "silent", "note": "no answer in 50 s", "verdict": None}
    chosen = chance.sample(_TROUBLE, chance.choice((1, 1, 2, 3))) if number % 5 == 0 else []
    problems = [dict(zip(_KEYS, trouble, strict=True)) for trouble in chosen]
    for problem in problems:
        problem["id"] = f"{problem['check']}@{problem['subject']}"
        problem["summary"] += f" ({number})" if problem["check"] == "memory.ecc" else ""
    verdict = max((problem["status"] for problem in problems), key=_WORST.index, default="pass")
    report = {"seconds": 3.1, "started": "2026-11-14T09:11:00Z", "gpus": 8, "report": f"reports/{host}.json"}
    return {**node, **report, "verdict": verdict, "problems": problems}
