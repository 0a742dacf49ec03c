"""RDMA between hosts of namespaces, as far as a made-up ib_write_bw shows it: the real one needs adapters."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fake_rails import program, rails
from hosts import Hosts, need

pytestmark = [pytest.mark.real, pytest.mark.alone]


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    need("ssh", "sshd", "ssh-keygen", "ip", "unshare", "nsenter")
    made = Hosts(tmp_path_factory.mktemp("rails"), count=4)
    for host in made:
        rails(host.folder / "tree", 2)
    with made, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", made.path)
        yield made


def measure() -> tuple[dict[str, Any], int]:
    argv = [sys.executable, "-m", "nodedoctor", "fleet", "--ssh", "gpu-node-[0-3]", "--pairs", "--seconds=1"]
    argv += ["--load-busy", "--json"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)
    assert done.stderr == ""
    return json.loads(done.stdout), done.returncode


def test_a_slow_rail_is_named_and_rdma_that_fails_everywhere_falls_back_to_tcp(hosts: Hosts):
    for host in hosts:
        slow = host is hosts[2]
        host.command("ib_write_bw", program({"mlx5_0": 391.5, "mlx5_1": 201.3 if slow else 390.1}))
    document, code = measure()
    assert document["plan"]["what"] == "rdma" and code == 0, "in preview: it warns"
    (odd,) = [one for one in document["findings"] if one["status"] not in ("pass", "skip")]
    assert (odd["id"], odd["status"]) == ("pairs.node@gpu-node-2", "warn") and "mlx5_1" in odd["summary"]
    assert document["failing"] == []
    for host in hosts:
        host.command("ib_write_bw", program({"mlx5_0": -1, "mlx5_1": -1}))
    document, _ = measure()  # how fast TCP is between four hosts of one busy machine is nobody's fault
    assert document["plan"]["what"] == "tcp"
    assert "RDMA failed between all nodes" in document["untried"][0]
    for _ in range(50):
        left = [line for host in hosts for line in host.processes() if "sshd" not in line]
        if not left:
            break
        time.sleep(0.1)
    assert left == []
