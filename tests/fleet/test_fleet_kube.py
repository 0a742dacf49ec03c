"""Nodes behind a made-up kubectl: pods are folders, and what it runs in one it runs here."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from nodedoctor.children.search_path import search_path
from nodedoctor.fleet.model import FleetError, FleetRequest, Node
from nodedoctor.fleet.transports import node_side
from nodedoctor.fleet.transports.kube import Kube, one_a_node, pod

KUBECTL = """#!/bin/sh
# kubectl --namespace NS get pods ... | exec --stdin POD [--container NAME] -- COMMAND
echo "$*" >>{folder}/asked
if [ "$3" = get ]; then cat {folder}/pods.json; exit; fi
pod={folder}/$5
while [ "$1" != -- ]; do shift; done
shift
if [ -e "$pod/before" ]; then . "$pod/before"; fi
HOME=$pod TMPDIR=$pod PATH=$pod/bin:$PATH "$@"
code=$?
if [ $code != 0 ]; then echo "command terminated with exit code $code" >&2; fi
exit $code
"""
ANSWER = json.dumps(
    {
        "schema": "nodedoctor.report/1",
        "tool": "1",
        "node": {"hostname": "worker-0"},
        "verdict": "pass",
        "results": [{"check": "gpu.count", "status": "pass"}],
    }
)


def listed(name: str, node: str, phase: str = "Running", **spec: Any) -> dict[str, Any]:
    """A pod as kubectl lists it."""
    inside = spec.pop("containers", [{"name": "train"}])
    about = {"name": name, **spec}
    return {"metadata": about, "spec": {"nodeName": node, "containers": inside}, "status": {"phase": phase}}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a made-up cluster with two workers; each node's nodedoctor is a script."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "kubectl").write_text(KUBECTL.format(folder=shlex.quote(str(tmp_path))))
    (folder / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    assert str(folder) in search_path().folders  # looked at by this interpreter, and remembered
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere/python3"))
    has(tmp_path, listed("worker-0", "gpu-1"), listed("worker-1", "gpu-2"))
    for name in ("worker-0", "worker-1"):
        put(tmp_path / name / "bin/nodedoctor", f"echo '{ANSWER}'")
    return tmp_path


def has(cluster: Path, *pods: dict[str, Any]) -> None:
    (cluster / "pods.json").write_text(json.dumps({"items": pods}))


def put(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def ask(pods: str = "training/app=llama", *, every: bool = False, **request: Any) -> dict[str, Node]:
    async def collect() -> dict[str, Node]:
        kube = Kube(pods, every=every)
        hosts = await kube.hosts()
        nodes = {node.host: node async for node in kube.ask(FleetRequest(**{"deadline": 20.0, **request}))}
        assert set(nodes) == set(hosts)
        return nodes

    return asyncio.run(collect())


def test_one_pod_of_each_node_answers(cluster: Path) -> None:
    has(cluster, listed("worker-1", "gpu-2"), listed("worker-7", "gpu-1"), listed("worker-0", "gpu-1"))
    nodes = ask()
    assert {host: (node.state, node.note) for host, node in nodes.items()} == {
        "gpu-1": ("answered", "pod worker-0"),
        "gpu-2": ("answered", "pod worker-0"),
    }
    asked = (cluster / "asked").read_text()
    assert "--namespace training get pods --selector app=llama --output=json" in asked
    assert "worker-7" not in asked


def test_each_pod_can_be_a_host_of_its_own(cluster: Path) -> None:
    has(cluster, listed("worker-0", "gpu-1"), listed("worker-1", "gpu-1"))
    assert {host: node.state for host, node in ask(every=True).items()} == {
        "worker-0": "answered",
        "worker-1": "answered",
    }


def test_pods_that_cannot_be_entered_are_named(cluster: Path) -> None:
    leaving = listed("worker-2", "gpu-3", deletionTimestamp="2026-01-01T00:00:00Z")
    has(cluster, listed("worker-0", "gpu-1"), listed("worker-1", "", "Pending"), leaving)
    nodes = ask()
    assert (nodes["gpu-1"].state, nodes["worker-1"].state) == ("answered", "unreachable")
    assert nodes["worker-1"].note == "pod worker-1 is pending"
    assert nodes["gpu-3"].note == "pod worker-2 is being deleted"


@pytest.mark.parametrize(
    ("said", "code", "state"),
    [
        ('Error from server (NotFound): pods "worker-1" not found', 1, "unreachable"),
        ('error: unable to upgrade connection: container not found ("train")', 1, "unreachable"),
        ("Unable to connect to the server: dial tcp 10.0.0.1:443: i/o timeout", 1, "unreachable"),
        ('OCI runtime exec failed: exec failed: "/bin/sh": stat /bin/sh: no such file', 126, "unreachable"),
    ],
)
def test_what_kubectl_says_is_the_reason(cluster: Path, said: str, code: int, state: str) -> None:
    (cluster / "worker-1/before").write_text(f"echo {shlex.quote(said)} >&2; exit {code}")
    nodes = ask()
    assert nodes["gpu-1"].state == "answered"
    assert (nodes["gpu-2"].state, nodes["gpu-2"].note) == (state, f"pod worker-1: {said}")


def test_the_single_file_goes_over_stdin(cluster: Path) -> None:
    packed = cluster / "nodedoctor.pyz"
    packed.write_text(f"print('''{ANSWER}''')\n" + "#" * 300_000)
    for name in ("worker-0", "worker-1"):
        (cluster / name / "bin/nodedoctor").unlink()
    assert {node.state for node in ask(pyz=str(packed)).values()} == {"answered"}
    (kept,) = (cluster / f"worker-0/nodedoctor-{os.getuid()}").iterdir()
    assert kept.read_bytes() == packed.read_bytes()
    bare = ask()["gpu-1"]
    assert bare.state == "unable" and bare.note.startswith(node_side.NO_NODEDOCTOR)


def test_the_container_with_gpus_is_entered(cluster: Path) -> None:
    gpus = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    has(cluster, listed("worker-0", "gpu-1", containers=[{"name": "proxy"}, gpus]))
    ask()
    assert "exec --stdin worker-0 --container train -- /bin/sh" in (cluster / "asked").read_text()
    named = {"kubectl.kubernetes.io/default-container": "proxy"}
    assert pod(listed("w", "n", annotations=named, containers=[gpus])).container == "proxy"


def test_without_pods_or_kubectl_nobody_is_asked(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has(cluster)
    with pytest.raises(FleetError, match="no pod in namespace training has app=llama"):
        ask()
    put(cluster / "bin/kubectl", "echo 'error: You must be logged in to the server' >&2; exit 1")
    with pytest.raises(FleetError, match="does not list the pods: error: You must be logged in"):
        ask()
    monkeypatch.setenv("PATH", str(cluster))
    with pytest.raises(FleetError, match="kubectl is not on PATH"):
        ask()


@pytest.mark.parametrize("pods", ["", "training", "training/", "/app=x", "training/-x", "-n/app=x"])
def test_what_names_no_pods_is_refused(pods: str) -> None:
    with pytest.raises(FleetError, match="expected NAMESPACE/SELECTOR"):
        Kube(pods)


ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "status", "name", "containers", "resources", "limits", "phase"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), ANYTHING), max_size=4))
def test_any_listing_gives_pods(items: list[dict[str, Any]]) -> None:
    found = tuple(pod(item) for item in items)
    assert {one.node or one.name for one in found} == set(one_a_node(found))
