"""Jobs that were ended by somebody else, and what only looks so: each program says it in its own words."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import as_document, judged, raised, steps

PREEMPTED = {
    "Slurm": "slurmstepd: error: *** JOB 9 ON n020 CANCELLED AT 2026-11-07T10:48:10 DUE TO PREEMPTION ***",
    "kube-scheduler": "Normal  Preempted  12s  default-scheduler  Preempted by pod 1a2b3c on node gpu-7",
    "kubelet, a critical pod": "Warning  Preempting  12s  kubelet  Preempted in order to admit critical pod",
    "a pod's condition": "    reason: PreemptionByScheduler",
    "kubelet, a node that ends": "Message:  Pod was terminated in response to imminent node shutdown.",
    "Ray's control store": "[2026-11-26 10:20:29,123 I 77 77] (gcs_server) gcs_node_manager.cc:402: Node"
    " 262a3b was forcibly preempted",
    "SkyPilot": "I 11-26 10:20:29 controller.py:377] Cluster is preempted or failed. Recovering...",
    "Amazon": "WARNING EC2 Spot Instance Interruption Warning: i-0abc will be terminated in 2 minutes",
    "Google": "systemEvent compute.instances.preempted: Instance was preempted.",
    "LSF": "TERM_PREEMPT: job killed after preemption.",
}
OTHERS = {
    "slurmstepd: error: *** JOB 9 ON n020 CANCELLED AT 2026-11-07T10:48:10 DUE TO TIME LIMIT ***": (
        "none/time_limit",
        "restart",
    ),
    "Warning  DeadlineExceeded  3m  job-controller  Job was active longer than specified deadline": (
        "none/time_limit",
        "restart",
    ),
    "slurmstepd: error: *** JOB 9 ON n020 CANCELLED AT 2026-11-07T10:48:10 DUE TO JOB REQUEUE ***": (
        "none/requeued",
        "none",
    ),
    "slurmstepd: error: *** STEP 9.0 ON n020 CANCELLED AT 2026-11-07T10:48:10 ***": (
        "none/cancelled",
        "none",
    ),
    "Message: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi.": (
        "peer_host_oom/other",
        "stop",
    ),
}
CROWDED = (
    "WARNING 11-26 10:20:29 scheduler.py:1439] Sequence group cmpl-12 is preempted by"
    " PreemptionMode.RECOMPUTE mode because there is not enough KV cache space."
)


def answer(folder: Path, text: str) -> tuple[str, str]:
    document = as_document(judged(folder, text))
    return document["kind"], document["decision"]


@pytest.mark.parametrize("program", PREEMPTED)
def test_a_preempted_job_starts_again(program: str, tmp_path: Path) -> None:
    assert answer(tmp_path, steps(1, 20) + PREEMPTED[program] + "\n") == ("none/preempted", "restart")


@pytest.mark.parametrize("line", OTHERS)
def test_other_ends(line: str, tmp_path: Path) -> None:
    assert answer(tmp_path, f"{steps(1, 20)}{line}\n") == OTHERS[line]


def test_an_engine_that_preempts_its_own_requests_is_not_preempted(tmp_path: Path) -> None:
    log = steps(1, 20) + f"{CROWDED}\n" * 3 + steps(20, 20)
    assert answer(tmp_path, log + "Training completed\n") == ("none/finished", "none")
    assert answer(tmp_path, log + raised(3, "ValueError: boom")) == ("user_code_exception/other", "stop")


@pytest.mark.parametrize(
    ("error", "kind", "decision"),
    [
        ("OSError: [Errno 122] Disk quota exceeded: '/home/u/ckpt'", "shm_or_limits/quota_full", "stop"),
        ("OSError: [Errno 28] No space left on device: '/local/ckpt'", "shm_or_limits/disk_full", "stop"),
        ("OSError: [Errno 116] Stale file handle: '/nfs/a'", "shm_or_limits/stale_handle", "look"),
        ("hub.HfHubHTTPError: 429 Client Error", "user_code_exception/busy_server", "restart"),
        ("HTTPError: 503 Server Error", "user_code_exception/busy_server", "restart"),
        ("hub.errors.OfflineModeIsEnabledError: no network", "user_code_exception/server", "look"),
        ("huggingface_hub.errors.GatedRepoError: 403 Client Error.", "user_code_exception/access", "stop"),
        ("ValueError: loss is nan, stopping", "user_code_exception/nan", "stop"),
        ("RuntimeError: pidfd_getfd: Operation not permitted", "shm_or_limits/container_forbids", "stop"),
    ],
)  # fmt: skip
def test_storage_servers_and_numbers(error: str, kind: str, decision: str, tmp_path: Path) -> None:
    everywhere = "".join(raised(rank, error) for rank in range(4))
    assert answer(tmp_path, steps(1, 20) + everywhere) == (kind, decision)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("node-1:4000:4100 [0] NCCL DIAG [INFO] p2p: only 52/56 GPU-to-GPU peer accesses passed verification",
         "p2p_pcie_acs_iommu/verified_broken"),
        ("ray.train.NCCLHangError: NCCL hang detected on worker group", "undetermined/hang"),
        ("nvidia-fabricmanager: NV_WARN_NOTHING_TO_DO\nRuntimeError: CUDA error: system not yet initialized",
         "nvlink_fabric/fabric_not_registered"),
    ],
)  # fmt: skip
def test_what_a_look_is_for(line: str, kind: str, tmp_path: Path) -> None:
    assert answer(tmp_path, f"{steps(1, 20)}{line}\n") == (kind, "look")


@pytest.mark.parametrize(
    "line",
    [
        "Warning  Failed  12s (x3 over 40s)  kubelet  Error: ErrImagePull",
        "Warning  Failed  12s  kubelet  Error: CreateContainerConfigError",
        "slurmstepd: error: pyxis: container start failed with error code: 1",
    ],
)
def test_a_container_that_was_not_started(line: str, tmp_path: Path) -> None:
    assert answer(tmp_path, f"{line}\n") == ("undetermined/container_never_started", "look")
