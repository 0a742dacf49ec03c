"""A job that talks TCP between its nodes: a note, and no cause."""

from __future__ import annotations

from pathlib import Path

from say import as_document, judged, steps

SOCKET = "{host}:4000:4100 [0] NCCL INFO Using network {network}\n"


def notes(folder: Path, hosts: list[str], network: str = "Socket") -> list[str]:
    log = "".join(SOCKET.format(host=host, network=network) for host in hosts) + steps(1, 20)
    document = as_document(judged(folder, log))
    assert (document["outcome"], document["decision"]) == ("clean", "none")
    return [note for note in document["coverage"]["notes"] if "TCP" in note]


def test_nodes_that_talk_tcp_are_named(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, ["gpu-1", "gpu-2", "gpu-1"])
    assert "gpu-[1-2]" in note and "Using network Socket" in note


def test_one_node_needs_no_network_and_adapters_are_no_tcp(tmp_path: Path) -> None:
    assert notes(tmp_path, ["gpu-1", "gpu-1"]) == []
    assert notes(tmp_path, ["gpu-1", "gpu-2"], "IB") == []
