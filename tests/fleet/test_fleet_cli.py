"""`nodedoctor fleet --ssh` as scripts meet it: a stand-in for ssh runs here what nodes would run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from forked import nodedoctor_forked
from schemas import assert_fits_schema

HERE = Path(__file__).parents[1]

SSH = """#!/bin/sh
[ "$1" = -V ] && exit 0
while [ "$1" != -- ]; do shift; done
case $2 in
  off-*) echo "ssh: connect to host $2 port 22: No route to host" >&2; exit 255 ;;
  hang-*) exec sleep 1000 ;;
  bare-*) PATH=/bin HOME=/nowhere; echo "no nodedoctor here: not on PATH" >&2; exit 127 ;;
  motd-*) echo "Welcome to $2" ;;
esac
exec sh -c "$3"
"""


@pytest.fixture
def ssh(tmp_path: Path) -> dict[str, str]:
    """An environment whose ssh reaches this machine by any name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(SSH)
    (folder / "ssh").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"}


def argv(*words: str) -> list[str]:
    return [sys.executable, "-m", "nodedoctor", "fleet", *words]


def fleet(ssh: dict[str, str], *words: str) -> tuple[int, dict[str, Any]]:
    done = nodedoctor_forked("fleet", "--json", *words, timeout=150, env=ssh)
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    assert_fits_schema(document, "fleet")
    return done.returncode, document


@pytest.mark.slow
def test_every_node_is_there_whatever_became_of_it(ssh: dict[str, str], tmp_path: Path):
    kept, bad = tmp_path / "kept", tmp_path / "bad.txt"
    words = [
        "--ssh",
        "gpu-[1-2],motd-1,off-1,hang-1,bare-1",
        "--deadline",
        "12",
        "limits.nofile",
        "net.clock",
    ]
    rc, document = fleet(ssh, *words, "--save", str(kept), "--failing", str(bad))
    nodes = {node["host"]: node for node in document["nodes"]}
    assert {host: node["state"] for host, node in nodes.items()} == {
        "gpu-1": "answered",
        "gpu-2": "answered",
        "motd-1": "answered",
        "off-1": "unreachable",
        "hang-1": "silent",
        "bare-1": "unable",
    }
    assert rc in (2, 3)
    assert "No route to host" in nodes["off-1"]["note"]
    assert "--pyz" in nodes["bare-1"]["note"]
    assert "a banner of 1 line" in nodes["motd-1"]["note"]
    assert sum(nodes["gpu-1"]["counts"].values()) == 2  # only what was asked for
    assert {"off-1", "hang-1", "bare-1"} <= set(bad.read_text().split())
    saved = json.loads((kept / "gpu-1.json").read_text())
    assert saved["schema"] == "nodedoctor.report/1" and nodes["gpu-1"]["report"] == str(kept / "gpu-1.json")
    assert "same-machine" in {oddity["key"] for oddity in document["oddities"]}


@pytest.mark.slow
def test_saved_reports_say_the_same_when_they_are_read_again(ssh: dict[str, str], tmp_path: Path):
    kept = tmp_path / "kept"
    _, asked = fleet(ssh, "--ssh", "gpu-1", "--save", str(kept), "limits", "driver")
    done = subprocess.run(argv("--json", "--reports", str(kept)), capture_output=True, text=True, timeout=100)
    (before,), (after,) = asked["nodes"], json.loads(done.stdout)["nodes"]
    for key in ("verdict", "counts", "traits", "readings", "problems", "report"):
        assert after[key] == before[key]


@pytest.mark.slow
def test_every_node_survives_being_saved_and_read_again(ssh: dict[str, str], tmp_path: Path):
    """Stand-ins of one machine by several names, and nodes without a report: all are there again."""
    kept = tmp_path / "kept"
    words = ["--ssh", "root@gpu-[1-2],off-1,hang-1,bare-1", "--deadline", "12", "limits.nofile"]
    _, asked = fleet(ssh, *words, "--save", str(kept))
    assert len(asked["nodes"]) == 5
    done = subprocess.run(argv("--json", "--reports", str(kept)), capture_output=True, text=True, timeout=100)
    again = json.loads(done.stdout)
    assert_fits_schema(again, "fleet")
    after = {node["host"]: node for node in again["nodes"]}
    assert set(after) == {"root@gpu-1", "root@gpu-2", "off-1", "hang-1", "bare-1"}
    for node in asked["nodes"]:
        for key in ("state", "note", "verdict", "counts", "problems", "report"):
            assert after[node["host"]][key] == node[key], key
    assert again["failing"] == asked["failing"] and again["passing"] == asked["passing"]
    saved = json.loads((kept / "root@gpu-1.json").read_text())
    assert (saved["schema"], saved["asked"]) == ("nodedoctor.report/1", "root@gpu-1")


@pytest.mark.slow
def test_how_to_look_again_is_what_works(ssh: dict[str, str], tmp_path: Path):
    words = ["--text", "--ssh", "gpu-[1-2]", "--expect", "gpus=8", "driver.gpus-present"]
    done = subprocess.run(argv(*words), capture_output=True, text=True, timeout=100, env=ssh)
    told = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("$ nodedoctor")]
    assert told == ["$ nodedoctor fleet --ssh gpu-1 driver.gpus-present"]


@pytest.mark.slow
def test_nodes_are_asked_as_was_said(ssh: dict[str, str], tmp_path: Path):
    (tmp_path / "hosts").write_text("# all of them\ngpu-[1-2]  # two\nlogin\n")
    (tmp_path / "expect").write_text("gpus=8\n")
    words = ["--ssh", f"@{tmp_path / 'hosts'}", "--expect", str(tmp_path / "expect"), "driver.gpus-present"]
    rc, document = fleet(ssh, *words)
    assert {node["host"] for node in document["nodes"]} == {"gpu-1", "gpu-2", "login"}
    assert rc == 2 and document["failing"] == "gpu-[1-2],login"  # no GPU where eight are expected
    (check,) = document["checks"]
    assert (check["check"], check["fail"]) == ("driver.gpus-present", "gpu-[1-2],login")


@pytest.mark.slow
def test_interrupted_the_rest_is_silent(ssh: dict[str, str]):
    words = ["--json", "--ssh", "gpu-1,hang-[1-3]", "--deadline", "100", "net.clock"]
    process = subprocess.Popen(argv(*words), stdout=subprocess.PIPE, text=True, env=ssh)
    time.sleep(6)  # gpu-1 answers in less on most machines; whether it did changes nothing below
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    document = json.loads(out)
    assert process.returncode == 130
    assert document["counts"]["nodes"] == 4 and document["counts"]["silent"] >= 3
    silent = {n["note"] for n in document["nodes"] if n["host"].startswith("hang")}
    assert silent == {"interrupted before it answered"}


def test_the_fleet_is_not_imported_for_one_node():
    code = (
        "import sys; from nodedoctor.cli.main import main; main(['--json', 'limits.nofile']);"
        "print([m for m in sys.modules if m.startswith('nodedoctor.fleet')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stderr.strip() == "[]"
