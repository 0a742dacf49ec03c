"""Every node of a fleet measured: the one that is slower than the others is named, whatever the way to it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from forked import nodedoctor_forked
from hypothesis import given
from hypothesis import strategies as st
from measured_node import HEALTHY, all_reduce, disk_rates, make_node
from schemas import assert_fits_schema
from shown_text import moves_no_cursor

from nodedoctor.fleet import accept
from nodedoctor.fleet.model import Fleet, Node
from nodedoctor.report import html

SSH = """#!/bin/sh
if [ "$1" = -V ]; then exit 0; fi
while [ "$1" != -- ]; do shift; done
case $2 in
  off-*) echo "ssh: connect to host $2 port 22: No route to host" >&2; exit 255 ;;
  old-*) echo '{{"schema": "nodedoctor.report/1"}}'; exit 0 ;;
  *-motd) echo "Welcome to $2" ;;
esac
PATH={folder}/$2:$PATH; export PATH
exec sh -c "$3"
"""
NODEDOCTOR = '#!/bin/sh\nexec {python} -m nodedoctor "$@" --replay {node}\n'
Hosts = Callable[..., dict[str, str]]


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    """An environment whose ssh reaches nodes with these measurements by their names."""
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text(SSH.format(folder=tmp_path))
    ssh.chmod(0o755)

    def make(**probes_by_host: Mapping[str, str]) -> dict[str, str]:
        for host, probes in probes_by_host.items():
            folder = tmp_path / host.replace("_", "-")
            folder.mkdir()
            node = make_node(folder / "node", **{**HEALTHY, **probes})
            program = folder / "nodedoctor"
            program.write_text(NODEDOCTOR.format(python=sys.executable, node=node))
            program.chmod(0o755)
        return {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}

    return make


def fleet(env: dict[str, str], nodes: str, *words: str) -> tuple[int, dict[str, Any]]:
    done = nodedoctor_forked("fleet", "--ssh", nodes, "--accept", "--json", *words, timeout=150, env=env)
    document = json.loads(done.stdout)
    assert_fits_schema(document, "rates")
    return done.returncode, document


@pytest.mark.slow
def test_a_node_that_meets_its_floors_and_is_slower_than_the_others_is_named(hosts: Hosts, tmp_path: Path):
    usual, slow = ({"disk_rates": disk_rates(rate)} for rate in (6.0, 2.0))
    env = hosts(gpu_1=usual, gpu_2=usual, gpu_3_motd=usual, gpu_4=slow)
    bad, page = tmp_path / "bad.txt", tmp_path / "page.html"
    code, document = fleet(
        env, "gpu-[1-2],gpu-3-motd,gpu-4", "--failing", str(bad), "--html", str(page), "--max-failing=2"
    )
    (odd,) = [(rate["operation"], one) for rate in document["rates"] for one in rate["odd"]]
    assert (code, odd) == (4, ("disk-read", {"host": "gpu-4", "rate": 2.0}))
    assert (document["failing"], len(document["passing"])) == (["gpu-4"], 3)
    assert bad.read_text() == "gpu-4\n" and page.read_text() == html.render(document)
    text = accept.render(document)
    assert text.startswith("WARN 3 of 4 nodes as fast as they must be")
    assert "gpu-4: 2 GB/s, the others 6" in text and "disk read 67% below other nodes" in text
    assert "gpu-4: 2 GB/s, the others 6" in unescape(page.read_text())
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.slow
def test_what_is_wrong_with_a_node_itself_and_what_gave_no_answer_decides(hosts: Hosts):
    slow = {"all_reduce_perf": all_reduce(244.0)}
    env = hosts(gpu_1={}, gpu_2=slow)
    code, document = fleet(env, "gpu-[1-2],off-1,old-1")
    by_host = {node["host"]: node for node in document["nodes"]}
    assert code == 2 and {host: node["exit"] for host, node in by_host.items()} == {
        "gpu-1": 0, "gpu-2": 2, "off-1": 3, "old-1": 3,
    }  # fmt: skip
    assert by_host["gpu-2"]["why"][0] == "all-reduce below the floor"
    assert by_host["off-1"]["why"][0].startswith("unreachable")
    assert document["passing"] == ["gpu-1"] and document["failing"] == ["gpu-2", "off-1", "old-1"]
    assert fleet(env, "gpu-1,off-1")[0] == 3
    assert fleet(env, "gpu-1")[0] == 0


@pytest.mark.parametrize("words", [("--gate",), ("nvlink",), ("--deep",), ("--reports", "x"), ("--peers",)])
def test_another_question_beside_it_is_refused(words: tuple[str, ...]):
    way = () if "--reports" in words else ("--ssh", "gpu-1")
    assert nodedoctor_forked("fleet", *way, "--accept", *words).returncode == 64


def rates_of(values: list[float]) -> dict[str, Any]:
    nodes = tuple(
        Node(
            f"n{place}",
            acceptance={
                "exit": 0,
                "rows": [{"key": "p2p", "operation": "p2p", "title": "p2p", "lowest": rate}],
            },
        )
        for place, rate in enumerate(values)
    )
    return accept.make_document(Fleet("0", "ssh", "2026-11-22T00:00:00Z", 1.0, nodes))


@given(st.lists(st.floats(97.0, 103.0), min_size=3, max_size=40), st.floats(1.0, 80.0))
def test_one_slow_node_among_any_number_is_the_odd_one(values: list[float], slow: float):
    assert rates_of(values)["exit"] == 0
    document = rates_of([*values, slow])
    assert [one["host"] for one in document["rates"][0]["odd"]] == [f"n{len(values)}"]
    assert document["failing"] == [f"n{len(values)}"]


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=4) | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["rows", "key", "lowest", "why", "exit", "odd", "host"]), inner)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["rows", "exit", "faults"]), JSON))
def test_whatever_nodes_say_is_shown(acceptance: dict[str, Any]):
    nodes = tuple(Node(f"n{place}", acceptance=acceptance) for place in range(3))
    document = accept.make_document(Fleet("0", "ssh", "now", 1.0, nodes))
    assert_fits_schema(json.loads(json.dumps(document)), "rates")
    assert moves_no_cursor(accept.render(document).replace("\n", "")) and "<main>" in html.render(document)
