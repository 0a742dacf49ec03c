"""A recorded node of eight healthy H100, and the measurements that an acceptance judges."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodedoctor import demo

DEMO = Path(demo.__file__).parent / "healthy"


def steps(
    *, pair: float = 388.0, slow_pair: float = 388.0, host: float = 54.0, memory: float = 2900.0
) -> str:
    """Eight H100 that were measured; the copy from GPU 2 to GPU 5 may be slower than the others."""
    gpus = range(8)
    told: list[dict[str, Any]] = [{"step": "init", "gpus": 8}, *({"step": "gpu", "index": i} for i in gpus)]
    told += [{"step": "memory", "index": i, "gbytes_s": memory} for i in gpus]
    told += [
        {"step": "host", "index": i, "kind": "near", "node": 0, "h2d_gbytes_s": host, "d2h_gbytes_s": host}
        for i in gpus
    ]
    told += [
        {
            "step": "pair",
            "source": a,
            "target": b,
            "access": True,
            "read_gbytes_s": slow_pair if (a, b) == (2, 5) else pair,
        }
        for a in gpus
        for b in gpus
        if a != b
    ]
    text = json.dumps({"steps": [*told, {"step": "end", "seconds": 30.0}]})
    return text.replace("}, {", "},\n{").replace("[{", "[\n{")


def all_reduce(busbw: float, size: int = 16 << 30) -> str:
    ranks = "".join(f"#  Rank {n:2} Group  0 Pid 77 on gpu-01 device {n:2} [0x1b] NVIDIA\n" for n in range(8))
    row = f"{size:12} {size // 4} float  sum  -1  412.1  162.84  {busbw}  0  410.9  163.32  {busbw}  0\n"
    return f"NCCL version 2.27.7+cuda12.9\n{ranks}{row}"


def gemm(tflops: float) -> str:
    rows = [
        {"index": index, "name": "NVIDIA H100 80GB HBM3", "tflops": tflops, "sums": [42]}
        for index in range(8)
    ]
    return json.dumps({"gpus": rows})


def written_steps(*steps: Mapping[str, Any]) -> str:
    return '{"steps": [\n' + ",\n".join(map(json.dumps, steps)) + "\n]}"


def disk_rates(*reads: float) -> str:
    alike = {"step": "disk", "model": "PM9A3", "write_gbytes_s": 4.0}
    return written_steps(
        *({**alike, "point": f"/d{n}", "read_gbytes_s": rate} for n, rate in enumerate(reads))
    )


HEALTHY = {"bandwidth_deep": steps(), "gemm": gemm(700.0), "all_reduce_perf": all_reduce(470.0)}


def make_node(folder: Path, **probes: str) -> Path:
    """The recorded node with these measurements."""
    shutil.copytree(DEMO, folder, dirs_exist_ok=True)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["options"] = {"deep": True}
    for name, text in probes.items():
        probe = name.replace("_", "-")
        manifest["probes"].append({"name": probe, "outcome": "ok", "rc": 0})
        (folder / "probes" / f"{probe}.txt").write_text(text)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder
