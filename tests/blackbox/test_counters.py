"""Error counters: only what grew while the job was watched is worth a line."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nodedoctor.blackbox import counters
from nodedoctor.model import Observation

PORT, NET = "sys/class/infiniband/mlx5_0/ports/1", "sys/class/net/eth0"


def node(folder: Path, **counts: int) -> counters.Counters:
    places = {
        "link_downed": f"{PORT}/counters", "port_rcv_data": f"{PORT}/counters",
        "rnr_nak_retry_err": f"{PORT}/hw_counters", "rx_errors": f"{NET}/statistics",
    }  # fmt: skip
    for name, count in counts.items():
        (folder / places[name]).mkdir(parents=True, exist_ok=True)
        (folder / places[name] / name).write_text(f"{count}\n")
    return asyncio.run(counters.read(str(folder)))


def test_what_grew_is_told(tmp_path: Path) -> None:
    before = node(tmp_path, link_downed=7, port_rcv_data=5, rnr_nak_retry_err=9, rx_errors=3)
    assert before.gained_since(before) == ()
    now = node(tmp_path, link_downed=9, port_rcv_data=500, rnr_nak_retry_err=0, rx_errors=4)
    assert now.gained_since(before) == ("eth0 rx_errors +1", "mlx5_0/1 link_downed +2")


def test_a_node_without_any(tmp_path: Path) -> None:
    assert counters.note(node(tmp_path).gained_since(node(tmp_path))) == ()


def test_gpus_by_their_first_and_their_last_sample() -> None:
    line = (
        '{{"time_seconds": {0}, "gpus": [{{"index": 3, "values": {{"pcie_replays": {1}}}, "errors": {{}}}}]}}'
    )
    first = Observation("nvml-growth", text=f"{line.format(1.0, 4)}\n{line.format(1.1, 5)}\n")
    later = Observation("nvml-growth", text=f"{line.format(99.0, 5)}\n{line.format(99.1, 6)}\n")
    gained = counters.Counters(gpus=later).gained_since(counters.Counters(gpus=first))
    assert gained == ("GPU 3 pcie_replays +2",)
