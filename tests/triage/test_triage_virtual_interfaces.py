"""Interfaces over which NCCL reaches no other node: loopbacks and networks of containers."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import as_document, judged, raised

USING = "gw7:61:61 [0] NCCL INFO {word} Using {name}:{address}<0>\n"
LAST = "[rank{rank}]: Last error:\n[rank{rank}]: socketPollConnect: Connect to {peer}<44311> returned {why}\n"
ERROR = (
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:77,"
    " unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2"
)
REFUSED = "111(Connection refused) errno 115(Operation now in progress)"


def log(name: str, address: str, peer: str, why: str, ranks: range, word: str = "Bootstrap:") -> str:
    """What the ranks of a node print."""
    ends = (raised(rank, ERROR) + LAST.format(rank=rank, peer=peer, why=why) for rank in ranks)
    return USING.format(word=word, name=name, address=address) + "".join(ends)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "name", ["docker0", "br-0a1b2c3d4e5f", "virbr0", "veth12ab", "cni0", "flannel.1", "lo", "[0]docker0"]
)
@pytest.mark.parametrize("word", ["Bootstrap:", "Bootstrap :", "NET/Socket :"])
def test_a_connection_over_a_bridge_fails_between_nodes(name: str, word: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, log(name, "172.17.0.1", "172.17.0.1", REFUSED, range(4, 8), word)).verdict
    assert verdict.cause == "network_socket_interface"
    assert name.removeprefix("[0]") in verdict.headline


@pytest.mark.parametrize(
    "why", [REFUSED, "110(Connection timed out) errno 115", "113(No route to host) errno 0"]
)
def test_however_the_connection_fails(why: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, log("docker0", "172.17.0.1", "172.17.0.1", why, range(4, 8)))
    assert as_document(examined)["kind"] == "network_socket_interface/wrong_interface"


@pytest.mark.parametrize(
    ("name", "peer", "ranks"),
    [
        ("eno1", "172.17.0.1", range(4, 8)),
        ("br0", "172.17.0.1", range(4, 8)),
        ("docker0", "10.1.0.5", range(4, 8)),
        ("docker0", "172.17.0.1", range(4)),  # on one node every interface reaches
        ("docker0", "172.17.0.1", range(1, 4)),
    ],
)
def test_other_connections_blame_no_interface(name: str, peer: str, ranks: range, tmp_path: Path) -> None:
    assert judged(tmp_path, log(name, "172.17.0.1", peer, REFUSED, ranks)).verdict.cause == "undetermined"
