"""Ray's own view of its resources against the node's; files of a session, and text of a cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from asking import ask, brief, judge, said, write
from hypothesis import given
from hypothesis import strategies as st
from test_stack_checks import H100, NO_NVIDIA, gpus

from nodedoctor.declare.registry import Command, Options
from nodedoctor.facts.cluster.ray_node import RayCluster, RaySession, ray_session, ray_status
from nodedoctor.facts.host.limits import Limits, Shm
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.model import Observation, Outcome, Unseen

STATUS = """======== Autoscaler status: 2026-11-21 09:29:10.256954 ========
Node status
---------------------------------------------------------------
Active:
 1 node_01b8
 1 node_77aa
Pending:
 (no pending nodes)
Recent failures:
 {failures}

Resources
---------------------------------------------------------------
Total Usage:
 0.0/64.0 CPU
 3.0/16.0 GPU
 0B/23.21GiB memory

From request_resources:
 (none)
Pending Demands:
 {demands}

Node: 01b8 (node_01b8)
 Usage:
  0.0/32.0 CPU
  3.0/8.0 GPU

Node: 77aa (node_77aa)
 Usage:
  0.0/32.0 CPU
  0.0/8.0 GPU
"""
STATE = """NodeManager:
Node ID: 01b8
Node name: 192.0.2.2
InitialConfigResources: {{memory: 2.4924e+10, GPU: {gpus}, CPU: 1, object_store_memory: 1e+11}}
ClusterLeaseManager:
secrets that follow are not kept
"""
DEATH = (
    "[2026-11-21 09:{minute}:04,119 W 6725 6725] (gcs_server) gcs_worker_manager.cc:70: Reporting worker "
    "exit, worker id = 89c2, node id = 01b8, address = 192.0.2.2, exit_type = SYSTEM_ERROR, exit_detail = W\n"
)
RAYLET = Processes((Process(7, program="raylet", role="raylet"),))


def cluster(demands: str = "(no resource demands)", failures: str = "(no failures)") -> RayCluster:
    made = RayCluster.parse(said(STATUS.format(demands=demands, failures=failures)))
    assert isinstance(made, RayCluster)
    return made


def test_the_text_of_a_cluster():
    seen = cluster(
        "{'CPU': 1.0, 'GPU': 6.0}: 1+ pending tasks/actors\n"
        " {'GPU': 8.0} * 2 (PACK): 1+ pending placement groups"
    )
    assert (seen.active, seen.gpus, seen.gpus_used) == (2, 16.0, 3.0)
    assert seen.nodes == {"01b8": 8.0, "77aa": 8.0}
    assert [(one.gpus, one.pieces, one.kind) for one in seen.demands] == [(6.0, 1, ""), (8.0, 2, "PACK")]
    assert seen.failures == ()


@pytest.mark.parametrize(
    ("demand", "expected"),
    [
        ("{'GPU': 9.0}: 1+ pending tasks/actors", "fail"),
        ("{'GPU': 1.0} * 17 (PACK): 1+ pending placement groups", "fail"),
        ("{'GPU': 1.0} * 9 (STRICT_PACK): 1+ pending placement groups", "fail"),
        ("{'GPU': 1.0} * 9 (PACK): 1+ pending placement groups", "note"),
        ("{'GPU': 8.0}: 1+ pending tasks/actors", "note"),
    ],
)
def test_work_that_never_fits(demand, expected):
    found = judge("ray.resources", RAYLET, cluster(demand))
    assert brief(found)[0] == (expected, "ray:demand-0")
    if expected == "fail":
        assert "forever" in found[0].summary


def test_nodes_that_failed():
    found = judge("ray.resources", RAYLET, cluster(failures="node_77aa: died"))
    assert brief(found)[0] == ("warn", "ray:nodes")


@pytest.mark.parametrize(
    ("pieces", "lost", "advice"),
    [(24, 1, "Bring back"), (32, 2, "Bring back"), (32, 1, "Request fewer"), (24, 0, "Request fewer")],
)
def test_work_that_fitted_before_nodes_failed_needs_them_back(pieces: int, lost: int, advice: str):
    demand = f"{{'GPU': 1.0}} * {pieces} (PACK): 1+ pending placement groups"
    failures = "\n ".join(f"10.8.0.{n}: RayletUnexpectedlyDied" for n in range(lost)) or "(no failures)"
    found = judge("ray.resources", RAYLET, cluster(demand, failures))
    (waits,) = (one for one in found if one.subject == "ray:demand-0")
    assert waits.fix is not None and waits.fix.text.startswith(advice)
    assert ["10.8.0.0" in one.summary for one in found if one.subject == "ray:nodes"] == [True] * bool(lost)


def test_all_is_well():
    found = judge("ray.resources", RAYLET, cluster())
    assert brief(found) == [("pass", "")]
    assert brief(judge("ray.resources", Processes(()))) == [("skip", "")]


def session(tmp_path: Path, given_gpus: int = 8, log: str = "") -> RaySession:
    here = tmp_path / "tmp/ray/session_2026"
    write(here / "logs/debug_state.txt", STATE.format(gpus=given_gpus))
    write(here / "logs/gcs_server.out", log)
    (tmp_path / "tmp/ray/session_latest").symlink_to("session_2026")
    nothing = Observation("env", Outcome.MISSING)
    made = RaySession.parse(ask(ray_session, nothing, root=tmp_path))
    assert isinstance(made, RaySession)
    return made


def test_more_gpus_than_the_driver_shows(tmp_path):
    seen = session(tmp_path)
    assert (seen.node_id, seen.gpus) == ("01b8", 8.0)
    found = judge("ray.resources", seen, RAYLET, cluster(), gpus(*[H100] * 7))
    assert brief(found) == [("fail", "ray:gpus")]
    assert "8 GPUs" in found[0].summary and "the driver 7" in found[0].summary
    assert brief(judge("ray.resources", seen, RAYLET, cluster(), *NO_NVIDIA)) == [("fail", "ray:gpus")]
    assert brief(judge("ray.resources", seen, RAYLET, cluster(), gpus(*[H100] * 8))) == [("pass", "ray:gpus")]
    assert brief(judge("ray.resources", replace(seen, gpus=4.0), RAYLET, cluster(), gpus(*[H100] * 8))) == [
        ("note", "ray:gpus")
    ]


def test_object_store_and_shm(tmp_path):
    seen = session(tmp_path)
    same = seen.object_store_gib
    small, large, equal = (
        Limits(shm=Shm(size, size, "tmpfs", own_mount=True)) for size in (10.0, 200.0, same)
    )
    assert brief(judge("ray.resources", seen, RAYLET, cluster(), small)) == [("warn", "ray:object-store")]
    assert brief(judge("ray.resources", seen, RAYLET, cluster(), large)) == [("pass", "ray:object-store")]
    assert brief(judge("ray.resources", seen, RAYLET, cluster(), equal)) == [("pass", "ray:object-store")]


def test_deaths_in_the_logs(tmp_path):
    recent = session(tmp_path / "a", log=DEATH.format(minute="10") * 3)
    found = judge("ray.resources", recent, RAYLET, cluster())
    assert brief(found) == [("warn", "ray:worker-death")]
    assert "3 lines" in found[0].summary and "SYSTEM_ERROR" in found[0].evidence[0].text
    later = "[2026-11-21 11:30:00,000 I 1 1] (gcs_server) fine\n"
    old = session(tmp_path / "b", log=DEATH.format(minute="10") + later)
    assert brief(judge("ray.resources", old, RAYLET, cluster())) == [("pass", "")]


def test_a_silent_cluster_is_news():
    silent = RayCluster.parse(Observation("ray-status", Outcome.TIMEOUT, note="no answer within 8 s"))
    assert isinstance(silent, RayCluster)
    found = judge("ray.resources", silent, Processes(()))
    assert brief(found) == [("unknown", "ray:status")]
    assert found[0].reason == "timeout" and "8 s" in found[0].summary
    assert isinstance(RayCluster.parse(Observation("ray-status", Outcome.SKIPPED)), Unseen)


def env(**variables: str) -> Observation:
    return said(json.dumps({"variables": variables}), "env")


def test_who_is_asked():
    nobody = said('{"processes": []}', "processes")
    target = said(
        json.dumps(
            {
                "executable": "/v/bin/python",
                "version": "3.11.1",
                "distributions": [{"name": "ray", "version": "2"}],
            }
        ),
        "target-python",
    )
    none = Observation("ray-session", Outcome.MISSING)
    asked = ray_status(Options(), nobody, env(RAY_ADDRESS="10.0.0.1:6379"), target, none)
    assert isinstance(asked, Command) and asked.argv[-2:] == ("/v/bin/python", "10.0.0.1:6379")
    for address in ("", "auto", "ray://head:10001"):
        skipped = ray_status(Options(), nobody, env(RAY_ADDRESS=address), target, none)
        assert isinstance(skipped, Observation) and skipped.outcome is Outcome.SKIPPED


def test_no_session_is_nothing_to_see(tmp_path):
    seen = RaySession.parse(ask(ray_session, Observation("env", Outcome.MISSING), root=tmp_path))
    assert isinstance(seen, Unseen) and not seen.applies


LINES = st.sampled_from(
    [
        "Active:",
        " 1 node",
        "Pending Demands:",
        " {'GPU': 1..0}: 1+ pending x",
        " {'GPU': 9}: 2+ pending y",
        "Node: a (b)",
        "  1.0/x GPU",
        "  1.0/2.0 GPU",
        "Total Usage:",
        " 1.0.0/2 GPU",
        "Node status",
        "",
        "Recent failures:",
    ]
)


@given(st.text() | st.lists(LINES).map(lambda lines: "Node status\n" + "\n".join(lines)))
def test_any_text_is_a_cluster_or_unseen(text):
    assert isinstance(RayCluster.parse(said(text)), (RayCluster, Unseen))


LEAVES = st.none() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
KEYS = st.sampled_from(["session", "state", "logs", "errors", "folder", "address"])


@given(st.text() | st.dictionaries(KEYS, LEAVES | st.dictionaries(KEYS, LEAVES, max_size=2)).map(json.dumps))
def test_any_document_is_a_session_or_unseen(text):
    assert isinstance(RaySession.parse(said(text)), (RaySession, Unseen))
