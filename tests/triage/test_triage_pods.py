"""What kubectl shows of pods: whose memory was used up, which rank that is, and what is over."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, judged, steps

from nodedoctor.triage.job import examine_job

POD = """Name:             {pod}
Namespace:        ml
Containers:
  pytorch:
    State:          {state}
      Reason:       {reason}
      Exit Code:    {code}
{last}    Restart Count:  1
    Limits:
      memory:          64Gi
      nvidia.com/gpu:  {gpus}
    Environment:
      WORLD_SIZE:   4
      RANK:         {rank}
"""
LAST = "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n"
FRONTS = ("", "$ kubectl describe pod {pod}\n", "$ kubectl -n ml describe po/{pod} | sed -n 1,40p\n")


def described(pod: str = "llm-worker-1", gpus: int = 1, rank: int = 2, **state: str) -> str:
    ended = {"state": "Terminated", "reason": "OOMKilled", "code": "137", "last": ""}
    return POD.format(pod=pod, gpus=gpus, rank=rank, **{**ended, **state})


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("rank", [0, 2])
def test_a_pod_with_one_gpu_is_the_rank_of_its_environment(front: str, rank: int, tmp_path: Path) -> None:
    text = front.format(pod="llm-worker-1") + described(rank=rank)
    text = text.replace("Name: ", "") if front else text
    examined = judged(tmp_path, steps(1, 20) + text)
    assert (examined.verdict.cause, culprits(examined)) == ("peer_host_oom", [rank])


def test_a_pod_with_several_gpus_is_a_node(tmp_path: Path) -> None:
    examined = judged(tmp_path, steps(1, 20) + described(gpus=8))
    assert culprits(examined) == [None] and examined.verdict.culprits[0].host == "llm-worker-1"


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [("Terminated", "Completed", "0"), ("Running", "", ""), ("Terminated", "Error", "1")],
)
def test_the_last_state_of_a_container_that_went_on_decides_nothing(
    state: str, reason: str, code: str, tmp_path: Path
) -> None:
    text = described(state=state, reason=reason, code=code, last=LAST)
    assert judged(tmp_path, text + steps(1, 40)).verdict.cause != "peer_host_oom"


@pytest.mark.parametrize("domain", ["", ".jobs.ml.svc.cluster.local"])
@pytest.mark.parametrize("pod", ["llm-worker-1", "llm-worker-2"])
def test_the_last_state_of_a_pod_that_others_lost_is_their_failure(
    pod: str, domain: str, tmp_path: Path
) -> None:
    lost = f"Last error:\nsocketProgress: Connection closed by remote peer {pod}{domain}<52044>\n"
    text = caught(0).partition(" ran for ")[0] + " raised the following async exception:\n" + lost
    state = described(state="Running", reason="", code="", last=LAST, gpus=8)
    examined = judged(tmp_path, steps(1, 40) + state + "$ kubectl logs llm-0\n" + text)
    is_described = pod == "llm-worker-1"
    assert (examined.verdict.cause == "peer_host_oom") is is_described


def test_the_last_state_of_a_container_that_waits_is_its_end(tmp_path: Path) -> None:
    text = described(state="Waiting", reason="CrashLoopBackOff", code="", last=LAST)
    assert judged(tmp_path, steps(1, 20) + text).verdict.cause == "peer_host_oom"


@pytest.mark.parametrize("index", [0, 3, 7])
def test_the_missing_task_is_the_one_of_the_pod_that_was_killed(index: int, tmp_path: Path) -> None:
    rows = "".join(
        f"mt-{n}-x{n}k2p   0/1     {'OOMKilled' if n == index else 'Error'}   0   61m\n" for n in range(8)
    )
    lost = (
        "The following tasks are unhealthy (stopped sending heartbeats):\n"
        f"/job:jax_worker/replica:0/task:{index}\n"
    )
    examined = judged(tmp_path, steps(1, 20) + lost + "$ kubectl get pods\n" + rows)
    assert (examined.verdict.cause, culprits(examined)) == ("peer_host_oom", [index])
    assert examined.verdict.culprits[0].host == f"mt-{index}-x{index}k2p"


@pytest.mark.parametrize("error", ["[rank3]: ValueError: bad row\n", "ValueError: bad row\n"])
def test_what_follows_a_pod_that_completed_is_none_of_it(error: str, tmp_path: Path) -> None:
    done = described(state="Terminated", reason="Completed", code="0")
    events = "Events:\n  Type     Reason  Age  From     Message\n"
    events += "  Warning  Failed  5m   kubelet  Error: ErrImagePull\n"
    assert judged(tmp_path, done + events).verdict.outcome == "clean"
    traceback = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    step()\n'
    examined = judged(tmp_path, done + events + steps(1, 5) + traceback + error)
    assert examined.verdict.cause == "user_code_exception"


LOST_BY = {
    "Ray, by its address": "(raylet) The node with node id: 5e1 and address: 10.4.7.21 and node name:"
    " 10.4.7.21 has been marked dead because the detector has missed too many heartbeats from it.\n",
    "Ray, by its name": "(raylet) The node with node id: 5e1 and address: llm-worker-1 and node name:"
    " llm-worker-1 has been marked dead because the detector has missed too many heartbeats from it.\n",
    "gloo": "RuntimeError: [/w/gloo/transport/tcp/pair.cc:553] Connection closed by peer"
    " [10.4.7.21]:29596.\n",
}


@pytest.mark.parametrize("lost", LOST_BY)
def test_the_memory_of_a_pod_that_runs_again_and_was_lost(lost: str, tmp_path: Path) -> None:
    pod = described(gpus=8, state="Running", reason="", code="", last=LAST)
    other = pod.replace("Containers:", "IP:               10.4.7.99\nContainers:").replace(
        "llm-worker-1", "w-9"
    )
    own = pod.replace("Containers:", "IP:               10.4.7.21\nContainers:")
    (tmp_path / "job.log").write_text(steps(1, 20) + LOST_BY[lost])
    for text, cause in ((own, "peer_host_oom"), (other, "peer_died")):
        (tmp_path / "pod.txt").write_text(text)
        verdict = examine_job([str(tmp_path / "job.log"), str(tmp_path / "pod.txt")]).verdict
        assert (verdict.outcome, verdict.cause) == ("failure", cause)
    (tmp_path / "job.log").write_text(steps(1, 20) + "Training completed.\n")
    (tmp_path / "pod.txt").write_text(own)
    assert examine_job([str(tmp_path / "job.log"), str(tmp_path / "pod.txt")]).verdict.outcome == "clean"
