"""On which host a rank is: by its lines, by its scheduler's lists, by the blocks of ranks of all nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, elastic, judged, raised, steps

from nodedoctor.triage.job import examine_job

BOOM = raised(11, "ValueError: boom")


def places(tmp_path: Path, *texts: str) -> list[tuple[int | None, str | None]]:
    """Rank and host of each culprit."""
    return [(who.rank, who.host) for who in judged(tmp_path, *texts).verdict.culprits]


def ended(host: str, tasks: str, how: str = "Aborted (core dumped)") -> str:
    """srun's line about tasks that ended."""
    return f"srun: error: {host}: task{'s' if not tasks.isdigit() else ''} {tasks}: {how}\n"


ENDS = ended("n2", "11", "Exited with exit code 1") + ended("n1", "0-7") + ended("n2", "8-10,12-15")


@pytest.mark.parametrize("ends", [ENDS, ended("n1", "0-7") + ended("n2", "8-15"), ended("n2", "11")])
def test_the_tasks_of_a_host_are_its_ranks(tmp_path: Path, ends: str) -> None:
    text = "[rank0]: world_size=16\n" + "".join(caught(rank) for rank in (0, 8)) + BOOM
    assert places(tmp_path, steps(1, 9) + text + ends) == [(11, "n2")]


@pytest.mark.parametrize(
    "others",
    ["E1121 torch/distributed/run.py:766] started\n", "[rank31]: step 1\n", "[rank0]: world_size=2\n"],
)
def test_tasks_that_are_no_ranks_place_none(tmp_path: Path, others: str) -> None:
    text = steps(1, 9) + others + raised(1, "ValueError: boom") + ended("n1", "0") + ended("n2", "1-3")
    assert places(tmp_path, text) == [(1, None)]


def test_the_host_in_a_launchers_list_is_that_of_the_rank_that_raised(tmp_path: Path) -> None:
    assert places(tmp_path, steps(1, 9) + raised(3, "ValueError: boom") + elastic([(3, 1)], 3)) == [
        (3, "node-1")
    ]


def named(host: str, rank: int, local: int) -> str:
    """A line by which a rank says where it is."""
    return (
        f"{host}:{4000 + rank}:{5000 + rank} [{local}] NCCL INFO ncclCommInitRank comm 0x1 rank {rank}"
        " nranks 16 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x7 - Init COMPLETE\n"
    )


def test_ranks_beside_a_hosts_first_are_there_too(tmp_path: Path) -> None:
    heads = named("n1", 0, 0) + named("n2", 8, 0)
    assert places(tmp_path, heads + steps(1, 9) + BOOM) == [(11, "n2")]


def test_ranks_dealt_out_in_turns_are_in_no_block(tmp_path: Path) -> None:
    heads = named("n1", 0, 0) + named("n2", 1, 0)
    assert places(tmp_path, heads + steps(1, 9) + BOOM) == [(11, None)]


def test_a_rank_on_two_hosts_is_on_none(tmp_path: Path) -> None:
    heads = named("n1", 11, 0) + named("n2", 11, 0)
    assert places(tmp_path, heads + steps(1, 9) + BOOM) == [(11, None)]


def test_the_host_of_a_node_that_a_scheduler_lost_has_its_whole_block(tmp_path: Path) -> None:
    heads = "".join(named(f"n{host}", 8 * host, 0) for host in (0, 1))
    lost = "srun: error: Node failure on n1\n"
    assert places(tmp_path, heads + steps(1, 9) + lost) == [(rank, "n1") for rank in range(8, 16)]


@pytest.mark.parametrize(
    "name", ["dmesg-hgx-12.txt", "dmesg.hgx-12", "hgx-12-dmesg.txt", "hgx-12.dmesg.log", "kern_hgx-12.log"]
)
def test_a_report_of_a_node_has_it_in_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("[ 91.5] NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.\n")
    (tmp_path / "rank0.log").write_text(steps(1, 9) + caught(0))
    verdict = examine_job([str(tmp_path)]).verdict
    assert (verdict.cause, {who.host for who in verdict.culprits}) == ("gpu_hardware_xid", {"hgx-12"})


@pytest.mark.parametrize(
    "name", ["dmesg.0", "dmesg-2026-11-21.txt", "dmesg_after.txt", "syslog.1", "dmesg.txt"]
)
def test_a_report_may_name_no_node(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("[ 91.5] NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.\n")
    (tmp_path / "rank0.log").write_text(steps(1, 9) + caught(0))
    assert {who.host for who in examine_job([str(tmp_path)]).verdict.culprits} <= {None}


STARTS = {
    "DeepSpeed": "{host}: [2026-11-21 10:00:00,114] [INFO] [launch.py:152:main] nnodes=2, num_local_procs=8,"
    " node_rank={node}\n",
    "torchrun": "{host}: + torchrun --nnodes 2 --nproc-per-node 8 --node-rank {node} train.py\n",
    "torchrun, in another order": "{host}: + torchrun --node_rank={node} --nproc_per_node=8 train.py\n",
}
SPAWNED = (
    "{host}: [2026-11-21 10:00:00,123] [INFO] [launch.py:256:main] process {pid} spawned with command:"
    " ['/usr/bin/python3', '-u', 'train.py', '--local_rank={local}']\n"
)


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_the_process_that_the_kernel_killed_has_the_rank_of_its_node_and_seat(
    tmp_path: Path, start: str
) -> None:
    hosts = ("worker-1", "worker-2")
    text = "".join(start.format(host=host, node=node) for node, host in enumerate(hosts))
    for node, host in enumerate(hosts):
        for local in range(8):
            text += SPAWNED.format(host=host, pid=7000 + 100 * node + local, local=local)
    kernel = "worker-2: [ 91.5] Out of memory: Killed process 7103 (python3) total-vm:91234kB\n"
    assert places(tmp_path, text + steps(1, 9) + kernel) == [(11, "worker-2")]


STRAY = {
    "Ray's prefix": "(prep pid=8120, ip=10.9.9.9) hello\n",
    "Ray's prefix without a class": "(pid=8120, ip=10.9.9.9) hello\n",
    "pdsh": "nfs-7: mounted /data\n",
    "mpirun": "[other-host:0]: hello\n",
    "syslog": "Nov 21 03:11:15 other-host sshd[811]: Accepted publickey for root\n",
    "kernel": "Nov 21 03:11:15 other-host kernel: [8123.678901] EXT4-fs (sda1): mounted filesystem\n",
    "syslog with a year": "2026-11-21T03:11:15Z other-host cron[811]: (root) CMD (true)\n",
    "compose": "trainer-7  | hello\n",
    "kubectl": "[pod/web-3/nginx] GET / 200\n",
    "mount": "10.9.9.9:/export on /data type nfs4 (rw,relatime)\n",
}
STATED = {
    "a launcher's list": (raised(3, "ValueError: boom") + elastic([(3, 1)], 3), (3, "node-1")),
    "a scheduler's list": (raised(11, "ValueError: boom") + ENDS, (11, "n2")),
    "NCCL": (named("n1", 11, 3) + raised(11, "ValueError: boom"), (11, "n1")),
    "nothing": (raised(3, "ValueError: boom"), (3, None)),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("stray", STRAY.values(), ids=STRAY)
@pytest.mark.parametrize(("text", "place"), STATED.values(), ids=STATED)
def test_a_stray_line_of_another_host_moves_no_rank(
    tmp_path: Path, text: str, place: tuple[int, str | None], stray: str
) -> None:
    lines = (steps(1, 9) + text).splitlines(keepends=True)
    for at in (0, 4, 9, len(lines)):
        assert places(tmp_path, "".join([*lines[:at], stray, *lines[at:]])) == [place]


RECORDED = {
    "compose": "trainer-1  | ",
    "kubectl": "[pod/trainer-1/main] ",
    "syslog": "Nov 21 03:11:15 submit01 train.sh[90211]: ",
    "syslog with a year": "2026-11-21T03:11:15+00:00 submit01 train[12]: ",
}


@pytest.mark.parametrize("front", RECORDED.values(), ids=RECORDED)
@pytest.mark.parametrize("form", [name for name, (_, place) in STATED.items() if place[1]])
def test_who_wrote_a_log_down_is_nobodys_host_where_another_is_known(
    tmp_path: Path, form: str, front: str
) -> None:
    text, place = STATED[form]
    lines = (steps(1, 9) + text).splitlines(keepends=True)
    assert places(tmp_path, "".join(front + line for line in lines)) == [place]


def test_a_pod_stands_for_its_node_where_nothing_names_that(tmp_path: Path) -> None:
    lines = (steps(1, 9) + raised(3, "ValueError: boom")).splitlines(keepends=True)
    assert places(tmp_path, "".join(RECORDED["kubectl"] + line for line in lines)) == [(3, "trainer-1")]


@pytest.mark.parametrize("words", ["Epoch 0:  12%|#2     | 12/100", "Training loss: 2.31", "step lr: 1e-4"])
def test_a_word_behind_a_time_is_no_host(tmp_path: Path, words: str) -> None:
    for time in ("2026-11-21T03:11:15.012345678Z ", "Nov 21 03:11:15 "):
        text = steps(1, 9) + words + "\n" + raised(1, "ValueError: boom")
        lines = [time + line for line in text.splitlines(keepends=True)]
        assert places(tmp_path, "".join(lines)) == [(1, None)]


STOPPED = (
    "W1121 10:30:00.000000 3999 torch/distributed/elastic/multiprocessing/api.py:908] Sending process {pid}"
    " closing signal SIGTERM\n"
)


@pytest.mark.parametrize(("stopped", "host"), [(range(4001, 4008), "node-1"), (range(4001, 4003), None)])
def test_the_host_of_an_agent_is_that_of_all_ranks_it_started(
    tmp_path: Path, stopped: range, host: str | None
) -> None:
    text = steps(1, 9) + "".join(caught(rank) for rank in range(8) if rank != 5)
    text += "".join(STOPPED.format(pid=pid) for pid in stopped) + elastic([(0, -6)], 0)
    assert places(tmp_path, text) == [(5, host)]


@pytest.mark.parametrize("form", ["rank {}/16 on {}", "Rank {} of 16, on host {}", "rank={}/16 on node {}"])
def test_a_program_that_says_where_it_is_is_there(tmp_path: Path, form: str) -> None:
    heads = "".join(f"{form.format(rank, f'm-{rank // 8:02}')} local_rank={rank % 8}\n" for rank in range(16))
    assert places(tmp_path, heads + steps(1, 9) + BOOM) == [(11, "m-01")]


@pytest.mark.parametrize("words", ["cuda:3", "gpu3", "GPU 3", "device", "port 29500", "step-3"])
def test_what_a_rank_is_on_is_no_host(tmp_path: Path, words: str) -> None:
    assert places(tmp_path, f"rank 11/16 on {words} ready\n" + steps(1, 9) + BOOM) == [(11, None)]


def test_a_rank_is_where_its_own_log_says(tmp_path: Path) -> None:
    logs = [f"rank 5/8 on cn4{task} local_rank=5\n" + steps(1, 9) for task in range(3)]
    assert places(tmp_path, *logs[:2], logs[2] + raised(5, "ValueError: boom")) == [(5, "cn42")]
