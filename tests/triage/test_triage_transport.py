"""A job that talks TCP between its nodes, and servers that are none of its nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import as_document, caught, judged, steps

from nodedoctor.triage.job import examine_job

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


UNREACHED = (
    "urllib.error.URLError: <urlopen error [Errno 101] Network is unreachable>",
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub.example.com', port=443): Max retries"
    " exceeded with url: /x (Caused by NewConnectionError('[Errno 101] Network is unreachable'))",
    "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host api.example.com:443 ssl:default"
    " [No route to host]",
    "OSError: [Errno 113] No route to host",
)


@pytest.mark.parametrize("error", UNREACHED)
def test_a_server_that_a_program_cannot_reach_is_no_peer_of_its_job(error: str, tmp_path: Path) -> None:
    """Nodes of clusters often have no way to the hub of a model."""
    stack = 'Traceback (most recent call last):\n  File "/job/main.py", line 20, in <module>\n    load()\n'
    assert as_document(judged(tmp_path, f"{stack}{error}\n"))["kind"] == "user_code_exception/server"
    peer = "[rank1]: gloo/transport/tcp/pair.cc connect to 10.0.0.2: No route to host\n"
    assert judged(tmp_path, steps(1, 9) + peer).verdict.cause == "network_socket_interface"


@pytest.mark.parametrize(("host", "named"), [("scores", True), ("localhost", False)])
def test_a_server_by_its_name_is_no_part_of_the_job(host: str, named: bool, tmp_path: Path) -> None:
    """One on the same machine is often the job's own engine, which may have died."""
    stack = 'Traceback (most recent call last):\n  File "/job/main.py", line 20, in <module>\n    load()\n'
    error = (
        f"requests.exceptions.ConnectionError: HTTPConnectionPool(host='{host}', port=8000): Max retries\n"
    )
    told = "".join(f"[rank2]: {line}\n" for line in (stack + error).splitlines())
    verdict = judged(tmp_path, steps(1, 9) + told + "".join(map(caught, (0, 1, 3)))).verdict
    assert (verdict.cause == "user_code_exception") == named
    assert [who.rank for who in verdict.culprits] == [2]


def test_nodes_whose_errors_name_different_versions_of_nccl(tmp_path: Path) -> None:
    """The errors name no rank; the host of each file is in front of what NCCL printed there."""
    folder = tmp_path / "job"
    folder.mkdir()
    for host, version in (("east", "2.21.5"), ("west", "2.26.2")):
        (folder / f"{host}.log").write_text(
            f"{host}:100:131 [0] NCCL INFO Bootstrap : Using bond0:10.8.1.5<0>\n"
            f"{host}:100:131 [0] misc/socket.cc:59 NCCL WARN Message truncated :"
            " received 1024 bytes instead of 256\n"
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, internal error -"
            f" please report this issue to the NCCL developers, NCCL version {version}\n"
        )
    verdict = examine_job([str(folder)]).verdict
    assert (verdict.cause, verdict.headline) == (
        "version_mismatch",
        "ranks run different versions of NCCL: 2.21.5 on east, 2.26.2 on west",
    )


@pytest.mark.parametrize("peers", [1, 9])
def test_many_peers_that_stop_answering_share_a_switch(peers: int, tmp_path: Path) -> None:
    text = "".join(
        f"[rank{n}]: node-{n}:70:71 [0] transport/net_ib.cc:2244 NCCL WARN NET/IB: Got completion from peer"
        f" 10.1.0.{n % peers}<4711> with status=12 opcode=0 len=0 vendor err 129 hca mlx5_{n % peers}\n"
        for n in range(18)
    )
    verdict = judged(tmp_path, steps(1, 9) + text).verdict
    assert ("switch" in verdict.headline) == (peers > 1)
    assert any("Exclude" in fix.text for fix in verdict.fixes) == (peers == 1)
