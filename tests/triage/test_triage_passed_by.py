"""Notices and warnings that the job went past, ends behind its success, and who is named beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, judged

from nodedoctor.triage.job import examine_job

LOSSES = "".join(f"{{'loss': {2 - n / 10:.1f}, 'epoch': 0.0{n}}}\n" for n in range(1, 7))
DONE = "{'train_runtime': 1022.1, 'train_samples_per_second': 3.2, 'train_loss': 1.6, 'epoch': 1.0}\n"


@pytest.mark.parametrize(
    "end",
    [
        "subprocess.CalledProcessError: Command '['python3', 'train.py']' returned non-zero exit status {}.",
        "exit status {}",
        "Job 1234 exited with code {}",
        "wandb: Program failed with code {}.",
        "make: *** [train] Error {}",
        "    State:          Terminated\n      Reason:       Error\n      Exit Code:    {}",
        "error: recipe `train` failed on line 12 with exit code {}",
        "script returned exit code {}",
        "return code {}",
        "+ exit {}",
    ],
)
@pytest.mark.parametrize("log", [LOSSES, LOSSES + DONE], ids=["working", "done"])
def test_a_code_that_something_ended_with_is_not_clean(end: str, log: str, tmp_path: Path) -> None:
    assert judged(tmp_path, log + end.format(1) + "\n").verdict.outcome != "clean"
    assert judged(tmp_path, log).verdict.outcome == "clean"


def test_an_exit_of_zero_behind_the_success_is_clean(tmp_path: Path) -> None:
    for end in ("exit status 0", "Job 1234 exited with code 0", "return code 0", "+ exit 0", "rc=0"):
        assert judged(tmp_path, LOSSES + DONE + end + "\n").verdict.outcome == "clean", end


BUSES = ("07", "0F", "47", "4E")


@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize("shown", [4, 3])
@pytest.mark.parametrize(
    "row",
    [
        "|   {gpu}  NVIDIA H100 80GB HBM3          On  |   00000000:{bus}:00.0 Off |       0 |\n",
        "{gpu}, NVIDIA H100 80GB HBM3, 00000000:{bus}:00.0\n",
    ],
)
def test_the_rank_on_a_bus_is_that_of_the_gpu_that_nvidia_smi_lists(
    rank: int, shown: int, row: str, tmp_path: Path
) -> None:
    bus = BUSES[rank].lower()
    xid = f"Nov 14 14:14:14 cl-b kernel: NVRM: Xid (PCI:0000:{bus}:00): 79, GPU has fallen off the bus.\n"
    listed = "".join(row.format(gpu=gpu, bus=bus) for gpu, bus in enumerate(BUSES[:shown]))
    examined = judged(tmp_path, f"world_size=4\n{LOSSES}{xid}{listed}")
    assert culprits(examined) == ([rank] if shown == 4 else [None])


LIBRARY = (
    "misc/cudawrap.cc:179 NCCL WARN Failed to find CUDA library libcuda.so : libcuda.so: cannot open shared\
 object file: No such file or directory\n"
)
COMPLETE = "ncclCommInitRank comm 0x55d0 rank 0 nranks 2 cudaDev 0 busId 1000 commId 0xbf - Init COMPLETE\n"


def test_nccl_did_without_what_it_missed_before_its_communicator(tmp_path: Path) -> None:
    process = "ws04:41631:41631 [0] "
    examined = judged(tmp_path, f"{process}{LIBRARY}{process}NCCL INFO {COMPLETE}{LOSSES[:80]}")
    assert examined.verdict.outcome != "failure"
    assert judged(tmp_path, process + LIBRARY).verdict.cause == "driver_problem"
    other = "ws05:777:777 [0] NCCL INFO "
    assert judged(tmp_path, f"{process}{LIBRARY}{other}{COMPLETE}").verdict.cause == "driver_problem"


def test_a_batch_that_will_be_smaller_is_an_error_handled(tmp_path: Path) -> None:
    full = "2024-08-30 11:07:44,118: rank{}[20886][MainThread]: INFO: trainer: CUDA out of memory detected."
    less = " Train microbatch size will be decreased from 16 -> 8."
    steps = "[batch=1/4800]:\n[batch=2/4800]:\n[batch=3/4800]:\n"
    assert (
        judged(tmp_path, f"{full.format(0)}{less}\n{full.format(3)}{less}\n{steps}").verdict.outcome
        == "clean"
    )


EVENT = "gpu-c1{}:950:1835 [0] transport/net_ib.cc:1948 NCCL WARN NET/IB : mlx5_0:1 Got async event : {}\n"


@pytest.mark.parametrize("event", ["GID table change", "port active", "LID change", "client reregistration"])
def test_a_notice_of_an_adapter_is_no_fault(event: str, tmp_path: Path) -> None:
    events = EVENT.format(0, event) + EVENT.format(3, event)
    assert judged(tmp_path, LOSSES[:60] + events).verdict.cause in ("none", "undetermined")
    assert judged(tmp_path, LOSSES[:60] + EVENT.format(0, "port error")).verdict.cause == "network_ib"


NODE = "The node with node id: c118 and address: 10.0.3.192 and node name: 10.0.3.192 has been marked dead\
 because the detector has missed too many heartbeats from it.\n"
RAISED = "(RayTrainWorker pid=3302, ip=10.0.1.10) ray.exceptions.RayTaskError(NodeDiedError)\n"
RECAP = (
    "ray.train.base_trainer.TrainingFailedError: The Ray Train run failed. Please inspect the previous error\
 messages for a cause.\n"
)


def test_a_lost_node_is_the_one_that_is_named_and_a_recap_is_no_cause(tmp_path: Path) -> None:
    verdict = judged(tmp_path, LOSSES + NODE + RAISED + RECAP).verdict
    assert (verdict.cause, [who.host for who in verdict.culprits]) == ("peer_died", ["10.0.3.192"])


@pytest.mark.parametrize("rank", range(4))
def test_the_rank_of_a_lost_node_is_the_one_that_all_others_missed(rank: int, tmp_path: Path) -> None:
    lost = "9m Normal NodeNotReady node/gke-7x Node gke-7x status is now: NodeNotReady\n"
    missed = f"/job:jax_worker/replica:0/task:{rank}\n"
    examined = judged(tmp_path, LOSSES + lost + missed)
    assert [(who.host, who.rank) for who in examined.verdict.culprits] == [("gke-7x", rank)]
    examined = judged(tmp_path, LOSSES + lost + missed + f"/job:jax_worker/replica:0/task:{rank + 4}\n")
    assert culprits(examined) == [None]


def peer_logs(folder: Path, lost: int, own: str = "") -> Path:
    """Logs of four nodes with a rank each, one of which says that it lost another."""
    folder.mkdir()
    for rank in range(4):
        init = COMPLETE.replace("rank 0 nranks 2", f"rank {rank} nranks 4")
        closed = f"gpu-c1{rank}:950:990 [0] misc/socket.cc:49 NCCL WARN Connection closed by remote"
        text = f"gpu-c1{rank}:950:1835 [0] NCCL INFO {init}{LOSSES}" + (own if rank == lost else "")
        text += f"{closed} peer gpu-c1{lost}<39114>\n" if rank == (lost + 1) % 4 else ""
        (folder / f"gpu-c1{rank}.log").write_text(text)
    return folder


@pytest.mark.parametrize("lost", range(4))
def test_a_peer_that_is_named_and_silent_is_who_was_lost(lost: int, tmp_path: Path) -> None:
    examined = examine_job([str(peer_logs(tmp_path / "silent", lost))])
    assert (examined.verdict.cause, culprits(examined)) == ("peer_died", [lost])
    victim = (
        f"gpu-c1{lost}:950:990 [0] misc/socket.cc:49 NCCL WARN Connection closed by remote peer 10.0.0.9<3>\n"
    )
    assert culprits(examine_job([str(peer_logs(tmp_path / "victim", lost, victim))])) == []


def test_a_full_bar_whose_program_ended_by_itself_is_an_end(tmp_path: Path) -> None:
    bar = "Train: 100%|██████████| 3214/3214 [2:51:07<00:00,  3.19s/it]\n"
    left = "[rank0]:[W205 18:00:34.953 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group()"
    left += " was not called before program exit, which can leak resources.\n"
    assert judged(tmp_path, bar + left).verdict.outcome == "clean"
    assert (
        judged(tmp_path, bar.replace("3214/3214", "3100/3214").replace("100%", "96%") + left).verdict.outcome
        != "clean"
    )


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("It works with NCCL_P2P_DISABLE=1, but hangs right after the init without.", "p2p_pcie_acs_iommu"),
        ("Solved by setting NCCL_P2P_DISABLE=1.", "p2p_pcie_acs_iommu"),
        ("It does not work with NCCL_P2P_DISABLE=1 either.", "undetermined"),
        ("With NCCL_P2P_DISABLE=1 the job runs fine.", "p2p_pcie_acs_iommu"),
        ("Setting NCCL_P2P_DISABLE=1 did not help.", "undetermined"),
    ],
)
def test_a_setting_that_helped_says_where_the_fault_is(words: str, cause: str, tmp_path: Path) -> None:
    log = f"worker2:182125:182159 [0] NCCL INFO {COMPLETE}"
    assert judged(tmp_path, f"{words}\n\n{log}").verdict.cause == cause


def test_a_stall_that_a_new_epoch_follows_passed(tmp_path: Path) -> None:
    stall = "[1,0]<stderr>:Stalled ops:allreduce.val_loss [missing ranks: 3]\n"
    bar = "[1,0]<stdout>:Train Epoch     #{}: 100% 1252/1252 [30:40<00:00, 1.47s/it]\n"
    bars = [bar.format(n) for n in range(1, 7)]
    assert judged(tmp_path, bars[0] + stall + "".join(bars[1:])).verdict.outcome == "clean"
    assert judged(tmp_path, bars[0] + stall).verdict.outcome == "failure"


def test_a_watchdog_outweighs_what_was_said_before_the_communicator(tmp_path: Path) -> None:
    process = "ws04:41631:41631 [0] "
    examined = judged(tmp_path, f"{process}{LIBRARY}{process}NCCL INFO {COMPLETE}{caught(0)}{caught(1)}")
    assert examined.verdict.cause != "driver_problem"


@pytest.mark.parametrize("rank", [6, 22])
def test_the_rank_on_a_bus_is_the_one_that_a_program_says_is_there(rank: int, tmp_path: Path) -> None:
    places = {6: "gpu-00", 22: "gpu-02"}
    row = "[05:00:00] rank {} host={} local_rank=6 bus=0000:c1:00.0\n"
    table = "".join(row.format(number, host) for number, host in places.items())
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.log").write_text(LOSSES + table + LOSSES)
    for node in range(4):
        name = f"gpu-0{node}"
        xid = f"Apr 11 05:30:53 {name} kernel: NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.\n"
        own = xid if places[rank] == name else ""
        (folder / f"{name}_kern.log").write_text(f"Apr 11 04:40:53 {name} systemd[1]: Started.\n{own}")
    assert culprits(examine_job([str(folder)])) == [rank]
