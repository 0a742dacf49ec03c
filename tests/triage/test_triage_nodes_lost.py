"""A node that does not answer any more, in the words of whoever noticed it: the verdict names the node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from say import caught, judged, raised, steps

from nodedoctor.triage.job import examine_job

SAID = {
    "srun": "srun: error: Node failure on {host}\n",
    "slurmctld": "slurmctld: error: Nodes {host} not responding, setting DOWN\n",
    "slurmctld, the job": "slurmctld: Killing JobId=4711 on failed node {host}\n",
    "slurmctld, again": "slurmctld: requeue job JobId=4711 due to failure of node {host}\n",
    "ray 2": "(raylet) The node with node id: 0f3c and address: {host} and node name: {host} has been marked"
    " dead because the detector has missed too many heartbeats from it.\n",
    "ray 1": "2026-11-07 05:42:38,294\tWARNING worker.py:1228 -- The node with node id: 0f3c and ip: {host}"
    " has been marked dead because the detector has missed too many heartbeats from it.\n",
    "ray, of a task": "ray.exceptions.NodeDiedError: Task failed due to the node (where this task was"
    " running) was dead or unavailable.\n\nThe node IP: {host}, node ID: 0f3c\n",
    "open mpi": "ORTE has lost communication with a remote daemon.\n\n"
    "  HNP daemon   : [[29713,0],0] on node head-1\n  Remote daemon: [[29713,0],1] on node {host}\n\n"
    "This is usually due to either a failure of the TCP network\nconnection to the node.\n",
    "prrte": "PRTE has lost communication with a remote daemon.\n\n"
    "  HNP daemon   : [prterun-head-1-88@0,0] on node head-1\n"
    "  Remote daemon: [prterun-head-1-88@0,1] on node {host}\n",
    "hydra": "[mpiexec@head-1] control_cb (pm/pmiserv/pmiserv_cb.c:207): connection to proxy 1 at host {host}"
    " failed\n",
    "torque": "=>> PBS: job killed: node 1 ({host}) requested job terminate, 'EOF' (code 1099) - received"
    " SISTER_EOF attempting to communicate with sister MOM's\n",
    "torchelastic": "As part of the sync operation the node(s) '{host}_811_0' have been removed from the"
    " rendezvous 'job-7' since they had no heartbeat.\n",
    "kubernetes": "Warning  NodeNotReady  node-controller  Node {host} status is now: NodeNotReady\n",
    "ssh": "Timeout, server {host} not responding.\n",
    "ssh of pdsh": "{host}: Connection to {host} closed by remote host.\n",
}


@pytest.mark.parametrize("by", SAID)
@pytest.mark.parametrize("host", ["gpu-17", "n042.cluster.example", "10.4.0.17"])
def test_a_lost_node_is_named(tmp_path: Path, by: str, host: str) -> None:
    verdict = judged(tmp_path, steps(1, 9) + SAID[by].format(host=host)).verdict
    assert (verdict.cause, [who.host for who in verdict.culprits]) == ("peer_died", [host])
    assert host in verdict.headline


@pytest.mark.parametrize("by", SAID)
def test_a_lost_node_explains_those_that_waited(tmp_path: Path, by: str) -> None:
    text = steps(1, 9) + SAID[by].format(host="gpu-17") + "".join(caught(rank) for rank in range(4))
    verdict = judged(tmp_path, text).verdict
    assert (verdict.cause, [who.host for who in verdict.culprits]) == ("peer_died", ["gpu-17"])


@pytest.mark.parametrize("job", ["41.0", "StepId=4711.0", "StepId=4711.batch"])
@pytest.mark.parametrize("why", ["Job credential expired", "Communication connection failure"])
def test_a_node_that_did_not_start_its_task_is_named(tmp_path: Path, job: str, why: str) -> None:
    line = "srun: error: Task launch for {} failed on node {}: {}\n"
    verdict = judged(tmp_path, line.format(job, "gpu-17", why)).verdict
    assert (verdict.cause, [who.host for who in verdict.culprits]) == ("peer_died", ["gpu-17"])
    assert verdict.headline == f"the node gpu-17 did not start its task: {why}"
    two = judged(tmp_path, line.format(job, "gpu-17", why) + line.format(job, "gpu-18", why)).verdict
    assert "nodes gpu-17, gpu-18 did not start" in two.headline


@pytest.mark.parametrize(
    "line",
    [
        "nfs: server filer-2 not responding, still trying\n",
        "Node gpu-17 responds again after 3 s\n",
        "Connection to gpu-17 closed.\n",
        "waiting for the node IP: none is known yet\n",
    ],
)
def test_what_names_a_node_without_losing_it(tmp_path: Path, line: str) -> None:
    verdict = judged(tmp_path, steps(1, 9) + line + steps(10, 9)).verdict
    assert verdict.outcome == "clean"


PLACED = (
    "srun: launching StepId=4711.0 on host gpu-16, 8 tasks: [0-7]\n"
    "srun: launching StepId=4711.0 on host gpu-17, 8 tasks: [8-15]\n",
    "srun: launching 4711.0 on host gpu-16, 8 tasks: 0-7\n"
    "srun: launching 4711.0 on host gpu-17, 8 tasks: 8-15\n",
)


@pytest.mark.parametrize("placed", PLACED)
def test_the_tasks_that_slurm_started_on_a_lost_node_are_named(tmp_path: Path, placed: str) -> None:
    said = SAID["srun"].format(host="gpu-17")
    verdict = judged(tmp_path, placed + "0: step 1\n8: step 1\n" + said).verdict
    assert [(who.rank, who.host) for who in verdict.culprits] == [(rank, "gpu-17") for rank in range(8, 16)]


@pytest.mark.parametrize("placed", PLACED)
@pytest.mark.parametrize(
    "others",
    ["[rank0]: world_size=32\n", "[rank31]: step 1\n", "torch/distributed/run.py:766] started\n"],
)
def test_tasks_that_are_not_the_ranks_name_none(tmp_path: Path, placed: str, others: str) -> None:
    verdict = judged(tmp_path, placed + others + SAID["srun"].format(host="gpu-17")).verdict
    assert [(who.rank, who.host) for who in verdict.culprits] == [(None, "gpu-17")]


CUT = (
    "Connection to {host} closed by remote host.\nConnection to {host} closed.\n",
    "client_loop: send disconnect: Broken pipe\n",
    "packet_write_wait: Connection to {host} port 22: Broken pipe\n",
)


@pytest.mark.parametrize("cut", CUT)
@pytest.mark.parametrize("host", ["gpu-17", "10.4.0.17"])
def test_a_session_that_was_cut_off_leaves_open_how_the_job_ended(
    tmp_path: Path, cut: str, host: str
) -> None:
    for before in ("", steps(1, 9)):
        verdict = judged(tmp_path, before + cut.format(host=host)).verdict
        assert (verdict.outcome, verdict.cause, verdict.culprits) == ("undetermined", "undetermined", ())
        assert "session" in verdict.headline


@pytest.mark.parametrize("cut", CUT)
def test_a_session_that_was_cut_off_after_the_end_is_none(tmp_path: Path, cut: str) -> None:
    verdict = judged(tmp_path, steps(1, 9) + "Training completed\n" + cut.format(host="gpu-17")).verdict
    assert verdict.outcome == "clean"


@pytest.mark.parametrize(
    "row", ["  Warning  {reason}  3m12s  kubelet  {text}\n", "3m  Warning  {reason}  pod/a-0  {text}\n"]
)
@pytest.mark.parametrize(
    ("reason", "text", "cause"),
    [
        ("Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi.", "peer_host_oom"),
        ("Evicted", "The node was low on resource: ephemeral-storage.", "shm_or_limits"),
        ("SystemOOM", "System OOM encountered, victim process: python3, pid: 4411", "peer_host_oom"),
        ("NodeNotReady", "Node is not ready", "peer_died"),
    ],
)
def test_the_worse_type_of_cluster_events_is_no_mere_warning(
    tmp_path: Path, row: str, reason: str, text: str, cause: str
) -> None:
    assert judged(tmp_path, row.format(reason=reason, text=text)).verdict.cause == cause


OFI = (
    "algo-{n}:320616:321316 [3] nccl_net_ofi_rdma.c:613 NCCL WARN NET/OFI Request 0x24 completed with error."
    " RC: 113. Error: 4107 (Unresponsive receiver (reachable by EFA device but handshake failed) My EFA addr:"
    " fi_addr_efa://[fe80::c3a:33]:0:1130923 My host id: i-0a33 Peer EFA addr:"
    " fi_addr_efa://[fe80::88:5]:0:2203113 Peer host id: i-0b77c15). Completed length: 0\n"
)


def test_who_reports_a_peer_that_does_not_answer_is_not_at_fault(tmp_path: Path) -> None:
    text = steps(1, 9) + "".join(OFI.format(n=n) for n in (1, 2, 4))
    assert judged(tmp_path, text).verdict.culprits == ()
    panic = "[ 91233.118301] Kernel panic - not syncing: Fatal hardware error!\n"
    streams = [
        json.dumps(
            {"timestamp": 1741082877000 + n, "message": line, "logStreamName": f"job/algo-{n}-1741082400"}
        )
        for n, line in ((3, panic), *((n, OFI.format(n=n)) for n in (1, 2, 4)))
    ]
    verdict = judged(tmp_path, "\n".join(streams) + "\n").verdict
    assert (verdict.cause, [who.host for who in verdict.culprits]) == ("peer_died", ["algo-3"])


NOT_MET = (
    "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n",
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has"
    " failed.\n",
    "torch.distributed.DistStoreError: Timed out after 60 seconds waiting for clients. 2/3 clients joined.\n",
)
DESCRIBED = (
    "Name:         {pod}\nNode:         gpu-9/10.9.3.1\nStatus:       Pending\nContainers:\n  pytorch:\n"
    "    State:          Waiting\n      Reason:       {state}\n"
)
LISTED = (
    "NAME      READY   STATUS             RESTARTS   AGE\n"
    "sft-w-0   0/1     Error              0          18m\n"
    "sft-w-1   0/1     Error              0          18m\n{pod}   0/1     {state}   0          18m\n"
)


@pytest.mark.parametrize("state", ["ImagePullBackOff", "ErrImagePull"])
@pytest.mark.parametrize("form", [DESCRIBED, LISTED])
@pytest.mark.parametrize("error", NOT_MET)
def test_a_member_that_never_started_outranks_the_wait_for_it(
    error: str, form: str, state: str, tmp_path: Path
) -> None:
    trace = f'Traceback (most recent call last):\n  File "t.py", line 8, in <module>\n    run()\n{error}'
    for number in (0, 1):
        (tmp_path / f"sft-w-{number}.log").write_text(trace)
    assert examine_job([str(tmp_path)]).verdict.cause != "peer_died"
    (tmp_path / "pods.txt").write_text(form.format(pod="sft-w-2", state=state))
    verdict = examine_job([str(tmp_path)]).verdict
    assert (verdict.cause, [who.host for who in verdict.culprits]) == ("peer_died", ["sft-w-2"])


def test_a_member_that_never_started_is_no_cause_of_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "sft-w-0.log").write_text(raised(0, "ValueError: boom"))
    (tmp_path / "pods.txt").write_text(LISTED.format(pod="sft-w-2", state="ImagePullBackOff"))
    assert examine_job([str(tmp_path)]).verdict.cause == "user_code_exception"
