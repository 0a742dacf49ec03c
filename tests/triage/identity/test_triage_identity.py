"""Numbers in front of lines, in names of files and hosts: ranks when they prove to be, and else nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, elastic, raised, steps

from nodedoctor.triage.job import examine_job

BOOM = 'Traceback (most recent call last):\n  File "/job/train.py", line 4, in f\n    g()\nValueError: boom\n'


def said(folder: Path, content: str, name: str = "job.log") -> list[int | None]:
    """Who is guilty, by one log."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return culprits(examine_job([str(path)]))


def each(prefix: str, ranks: int = 4, guilty: int = 2, world: int = 4) -> str:
    """Steps of all ranks, and the traceback of one, with this prefix."""
    start = [prefix.format(n=rank, l=rank) + f"world_size={world}" for rank in range(ranks)]
    lines = [
        prefix.format(n=rank, l=rank) + f"step {n} loss: 2.{n}" for n in range(3) for rank in range(ranks)
    ]
    lines = start + lines + [prefix.format(n=guilty, l=guilty) + line for line in BOOM.splitlines()]
    return "\n".join(lines) + "\n"


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "prefix",
    [
        "[rank{n}]: ", "{n}: ", " {n}: ", "[Rank {n}] ", "Rank {n}: ", "rank {n} | ", "[rank: {n}] ",
        "[RANK {n}] ", "[rank={n}] ", "[1,{n}]<stderr>:", "[prterun-n1-812@1,{n}]<stderr>: ",
        "[{n}]<stderr>:", "[mpirank:{n}]: ", "(VllmWorker rank={n} pid=81{n}) ",
        "(VllmWorker TP{n} pid=81{n}) ", "(Worker_TP{n} pid=81{n}) ",
        "(WorkerDict_0:{n} pid=81{n}) ", "[default{n}]:", "[node-1:{n}]: ", "worker-{n}  | ", "worker {n} > ",
        "proc{n}\t", "job-worker-{n} pytorch ", "[pod/job-worker-{n}/pytorch] ",
        "Sat Nov 21 10:20:00 2026[1,{n}]<stderr>:", "[1,mpirank:{n},algo-1]<stderr>:", "job-worker-{n}: ",
        "(worker{n}, rank={n}, pid=81{n}, ip=10.0.0.{n}) ", "ns/job-worker-{n}[pytorch]: ",
        "2026-11-21 10:20:00,123 - {n} - levanter.trainer - INFO - ", "INFO:rank{n}:", "rank{n}-1  | ",
        "2026-11-21 10:20:00,123: rank{n}[81{n}][MainThread]: INFO: composer.cli: ",
        "[2026-11-21T10:20:00.123Z] a1b2c3d4 [rank={n}] || ", "Nov 21 10:20:00 node-1 rank{n}[81{n}]: ",
        "(TorchTrainer pid=81{n}) [Rank {n}] ", "(TorchTrainer pid=81{n}) rank={n} ", "worker{n}: ",
    ],
)  # fmt: skip
def test_notations_of_ranks(prefix: str, tmp_path: Path) -> None:
    assert said(tmp_path, each(prefix)) == [2]


STATED = ["[1,{n}]<stdout>: ", "[rank: {n}] ", "rank{n}[700][MainThread]: INFO: composer.cli: ",
          "[2026-11-21T10:20:00.123Z] a1b2c3d4 [rank={n}] || ", "[{n}]<stderr>:"]  # fmt: skip


@pytest.mark.parametrize("prefix", STATED)
def test_around_several_ranks_a_stated_rank_is_a_label(prefix: str, tmp_path: Path) -> None:
    """What a launcher's only task prints, or each of two: who fails is whom its own lines name."""
    launched = "W1121 10:20:00.000000 812 torch/distributed/run.py:803] Setting OMP_NUM_THREADS\n"
    inner = launched + each("[rank{n}]: ")
    one = "".join(prefix.format(n=0) + line + "\n" for line in inner.splitlines())
    assert said(tmp_path, one) == [2]
    bare = launched + each("")
    assert said(tmp_path, "".join(prefix.format(n=0) + x + "\n" for x in bare.splitlines())) in ([], [None])
    nccl = (
        "gpu-1:{pid}:900 [{n}] NCCL INFO comm 0x1 rank {n} nranks 4 cudaDev {n} busId 1000 - Init COMPLETE\n"
    )
    several = "".join(nccl.format(pid=812 + n, n=n) for n in range(4)) + BOOM
    log = "".join(prefix.format(n=0) + line + "\n" for line in several.splitlines())
    assert 0 not in said(tmp_path, log)
    raised_by = (launched + each("[rank{n}]: ", 8, 6, 8)).splitlines()
    nodes = ((int("[rank" in x and int(x[5]) > 3), x) for x in raised_by)
    assert said(tmp_path, "".join(prefix.format(n=node) + x + "\n" for node, x in nodes)) == [6]


@pytest.mark.parametrize("prefix", STATED)
def test_the_log_of_one_task(prefix: str, tmp_path: Path) -> None:
    lines = (steps(1, 4) + BOOM).splitlines()
    assert said(tmp_path, "".join(prefix.format(n=3) + line + "\n" for line in lines)) == [3]


def test_workers_are_counted_behind_their_master(tmp_path: Path) -> None:
    """A PyTorchJob's `worker-1` is rank 2, where its pods have one process each."""
    for form in ("train-{pod} pytorch ", "[pod/train-{pod}/pytorch] ", "train-{pod}: ", "train-{pod}  | "):
        log = each("<{n}>").replace("<0>", form.format(pod="master-0"))
        for rank in (1, 2, 3):
            log = log.replace(f"<{rank}>", form.format(pod=f"worker-{rank - 1}"))
        assert said(tmp_path, log) == [2], form
        assert set(said(tmp_path, log.replace("world_size=4", "world_size=32"))) <= {None}, form


def test_local_ranks_of_the_whole_world_are_ranks(tmp_path: Path) -> None:
    assert said(tmp_path, each("[default{n}]:", 16, 11, 16)) == [11]
    assert said(tmp_path, each("[default{n}]:", 8, 5, 16)) in ([], [None])


@pytest.mark.parametrize(
    "name",
    ["rank{n}.log", "rank_{n}.err", "slurm-4711_{n}.out", "global_rank_{n}/stdout.log", "{n}.log", "log.{n}",
     "out/{n}/stderr", "attempt_0/{n}/stderr.log", "rank_{n}_gpu-00{n}.log", "train-worker-{n}.txt",
     "1/rank.{n}/stdout", "workerlog.{n}", "rank-{n}-of-4.log", "host1_rank{n}.txt", "1_4711/{n}.out"],
)  # fmt: skip
def test_names_of_files(name: str, tmp_path: Path) -> None:
    for rank in range(4):
        path = tmp_path / "logs" / name.format(n=rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("world_size=4\n" + steps(1, 4) + (BOOM if rank == 2 else ""))
    assert culprits(examine_job([str(tmp_path / "logs")])) == [2]


@pytest.mark.parametrize("world", [2, 4, 8])
@pytest.mark.parametrize("tree", ["logs/none_x{node}", "{node}/logs"])
def test_the_output_and_the_errors_of_a_local_rank_are_of_one_process(
    tree: str, world: int, tmp_path: Path
) -> None:
    """torchrun writes both; two nodes have the same folders, each in a tree of its own."""
    for node in range(2):
        for rank in range(world):
            folder = tmp_path / tree.format(node=node) / f"attempt_0/{rank}"
            folder.mkdir(parents=True)
            (folder / "stdout.log").write_text(steps(1, 4))
            (folder / "stderr.log").write_text(BOOM if (node, rank) == (0, world - 1) else "a warning\n")
        people = culprits(examine_job([str(tmp_path)]))
        assert people == [world - 1] if node == 0 else set(people) <= {None}


@pytest.mark.parametrize(
    "name", ["rank3.log", "rank_3.txt", "global_rank_3/stdout.log", "rank_3_gpu-005.log", "1/rank.3/stderr"]
)
def test_the_name_of_one_file(name: str, tmp_path: Path) -> None:
    assert said(tmp_path, BOOM, name) == [3]


@pytest.mark.parametrize("name", ["rank_0/sweep/7/train.log", "ckpt/global_rank_2/eval/out/train.log"])
def test_a_folder_further_up_is_of_a_whole_run(name: str, tmp_path: Path) -> None:
    assert said(tmp_path, BOOM, name) in ([], [None])


def test_paths_in_messages_name_nobody(tmp_path: Path) -> None:
    for error in ("cannot write logs/rank_3/model.pt", "no such file: '/ckpt/global_rank_3/optim.pt'"):
        assert said(tmp_path, steps(1, 4) + BOOM.replace("boom", error)) in ([], [None])


def test_seconds_since_the_start_are_no_ranks(tmp_path: Path) -> None:
    lines = (steps(1, 29) + BOOM).splitlines()
    for form in ("+{t:.3f}s {line}", "[{t:8.3f}s] {line}", "t={t:.0f} {line}", "{t:.0f}s | {line}"):
        log = "".join(form.format(t=0.14 * n, line=line) + "\n" for n, line in enumerate(lines))
        assert said(tmp_path, log) in ([], [None]), form


def test_a_number_in_front_of_few_lines_is_no_label(tmp_path: Path) -> None:
    assert said(tmp_path, "train.log\n" + steps(1, 3) + "2: " + BOOM.splitlines()[-1] + "\n") in ([], [None])


def test_labels_of_launchers_are_nodes(tmp_path: Path) -> None:
    """`srun --label torchrun`: the task is the launcher of a whole node."""
    launched = "W1121 10:20:00.000000 812 torch/distributed/run.py:803] Setting OMP_NUM_THREADS\n"
    log = "".join(
        f"{node}: {line}\n"
        for node in (0, 1)
        for line in (
            launched + (raised(9, "ValueError: x") if node else steps(1, 3)) + BOOM * node
        ).splitlines()
    )
    assert said(tmp_path, log) == [9]
    assert 1 not in said(tmp_path, log.replace("[rank9]: ", ""))


def test_labels_that_other_lines_contradict(tmp_path: Path) -> None:
    log = "".join(f"{label}: {caught(label + 4)}" for label in range(3)) + "3: ValueError: x\n"
    assert 3 not in said(tmp_path, log)


def test_line_numbers_are_no_ranks(tmp_path: Path) -> None:
    for form in ("{n}: {line}", "{n}:{line}", "x.log:{n}:{line}", "{n:6d}\t{line}", "[{n}] {line}"):
        lines = (steps(1, 9) + BOOM).splitlines()
        log = "\n".join(form.format(n=n, line=line) for n, line in enumerate(lines)) + "\n"
        assert said(tmp_path, log) in ([], [None]), form


def test_a_label_beyond_the_world_is_none(tmp_path: Path) -> None:
    assert said(tmp_path, each("{n}: ", guilty=3, world=2)) in ([], [None])


def test_logs_of_attempts_are_not_those_of_ranks(tmp_path: Path) -> None:
    for attempt in (0, 1):
        log = "".join(f"2026-11-21 1{attempt}:00:0{n} {line}\n" for n, line in enumerate(BOOM.splitlines()))
        (tmp_path / f"run-{attempt}.log").write_text(log)
    assert culprits(examine_job([str(tmp_path)])) in ([], [None])


def test_ranks_renumbered_move_the_culprit(tmp_path: Path) -> None:
    for guilty in range(4):
        assert said(tmp_path, each("worker {n} > ", guilty=guilty)) == [guilty]


PASSED_ON = ["[rank0]: ", "[rank0]:", "[default0]:", "[default0]: "]
"""What a tee puts in front of every line that comes through one pipe."""


@pytest.mark.parametrize("prefix", PASSED_ON)
def test_one_rank_in_front_of_all_lines_names_nobody(prefix: str, tmp_path: Path) -> None:
    """What the lines themselves say stays: a rank of their own, or none."""
    healthy = [f"2026-11-21 10:20:0{n} INFO step {n} loss: 2.{n}" for n in range(6)]
    nobody = [*healthy, *BOOM.splitlines()]
    own = [*healthy, *("[rank2]: " + line for line in BOOM.splitlines())]
    slurm = [
        *healthy,
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks died.",
    ]
    for lines in (nobody, own, slurm):
        plain = said(tmp_path, "\n".join(lines) + "\n")
        assert said(tmp_path, "".join(f"{prefix}{line}\n" for line in lines)) == plain


def test_torch_puts_a_rank_in_front_of_a_traceback_and_it_is_the_rank(tmp_path: Path) -> None:
    """A log of nothing else, pasted: no tee is to be seen."""
    for rank in (0, 3):
        warned = f"[rank{rank}]:[W1121 10:20:00.000000000 ProcessGroupNCCL.cpp:1250] Warning: not destroyed\n"
        traceback = "".join(f"[rank{rank}]: {line}\n" for line in BOOM.splitlines())
        assert said(tmp_path, traceback) == [rank]
        assert said(tmp_path, traceback + warned) == [rank]
        assert said(tmp_path, warned + traceback) == [rank]


def test_another_rank_in_front_of_later_lines_tells_them_apart(tmp_path: Path) -> None:
    """A launcher that shows one rank's steps, and then what another one died of."""
    steps_of_0 = [f"[rank0]: 2026-11-21 10:20:0{n} INFO step {n} loss: 2.{n}" for n in range(6)] * 100
    died = [f"[rank3]: {line}" for line in BOOM.splitlines()]
    assert said(tmp_path, "\n".join([*steps_of_0, *died]) + "\n") == [3]


def test_a_launcher_s_code_below_a_rank_s_program_is_no_launcher_that_speaks(tmp_path: Path) -> None:
    frames = BOOM.replace(
        '  File "/job',
        '  File "/x/torch/distributed/elastic/errors/__init__.py", line 9, in w\n    f()\n  File "/job',
    )
    lines = [f"[1,{rank}]<stderr>:step {n} loss: 2.{n}" for n in range(3) for rank in range(4)]
    lines += [f"[1,2]<stderr>:{line}" for line in frames.splitlines()]
    assert said(tmp_path, "\n".join(lines) + "\n") == [2]


def test_what_is_indented_behind_a_name_in_the_basic_format_is_read(tmp_path: Path) -> None:
    """torchelastic's table and tracebacks are indented, also where a logger printed them line by line."""
    table = elastic([(3, 1), (0, -15)], 3)
    plain = said(tmp_path, table)
    assert plain == [3]
    assert said(tmp_path, "".join(f"INFO:root:{line}\n" for line in table.splitlines())) == plain


AGENT = "I1121 11:02:00.120000 771 torch/distributed/elastic/agent/server/api.py:525]"


def of_agent(*ranks: int) -> str:
    """What an agent of torchelastic prints when its node has met the others."""
    lists = f"{AGENT}   local_ranks={[*range(len(ranks))]}\n{AGENT}   global_ranks={[*ranks]}\n"
    return f"{AGENT} [default] Rendezvous complete for workers. Result:\n{lists}"


@pytest.mark.parametrize("per_node", [1, 2, 4, 8])
@pytest.mark.parametrize("node", [0, 1, 3])
def test_an_agent_tells_the_ranks_of_its_local_ranks(node: int, per_node: int, tmp_path: Path) -> None:
    ranks = range(node * per_node, (node + 1) * per_node)
    killed = f"{AGENT} failed (exitcode: -9) local_rank: {{}} (pid: 803) of binary: python\n"
    for local, rank in enumerate(ranks):
        assert said(tmp_path, of_agent(*ranks) + killed.format(local)) == [rank]


@pytest.mark.parametrize("local", [0, 1])
def test_the_agents_of_two_nodes_in_one_log_leave_a_local_rank_open(local: int, tmp_path: Path) -> None:
    killed = f"{AGENT} failed (exitcode: -9) local_rank: {local} (pid: 803) of binary: python\n"
    assert said(tmp_path, of_agent(0, 1) + of_agent(2, 3) + killed) == [None]


SEVERAL = (
    "+ torchrun --nnodes=2 --nproc_per_node=4 train.py",
    "+ torchrun --nnodes 4 --nproc_per_node=4 train.py",
    "NODE_RANK=3",
    "SLURM_JOB_NUM_NODES=2",
    "declare -x SLURM_NNODES=16",
    "Launching training on 2 machines, machine_rank: 1",
    "  num_machines: 2",
    "  min_nodes        : 2",
    "   group_world_size=2",
)
ONE = (
    "+ torchrun --nnodes=1 --nproc_per_node=4 train.py",
    "NODE_RANK=0",
    "SLURM_NNODES=1",
    "  num_machines: 1",
    "",
)
KILLED = (
    "E1121 11:02:18.120000 771 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9)"
)


@pytest.mark.parametrize("node", [0, 1, 5])
def test_a_local_rank_and_the_number_of_a_node_are_a_rank(node: int, tmp_path: Path) -> None:
    started = f"+ torchrun --node_rank={node} --nproc_per_node=4 train.py\n"
    killed = f"{KILLED} local_rank: 3 (pid: 803) of binary: python\n"
    assert said(tmp_path, started + steps(1, 9) + killed) == [4 * node + 3]


@pytest.mark.parametrize("started", [*SEVERAL, *ONE])
def test_a_local_rank_is_a_rank_only_where_one_node_was_started(started: str, tmp_path: Path) -> None:
    killed = f"{KILLED} local_rank: 3 (pid: 803) of binary: python\n"
    assert said(tmp_path, f"{started}\n{steps(1, 9)}{killed}") == [3 if started in ONE else None]


@pytest.mark.parametrize("rank", [0, 5])
def test_the_list_of_ray_train_names_the_rank_of_a_process(rank: int, tmp_path: Path) -> None:
    listed = "".join(
        f"(TorchTrainer pid=11, ip=10.0.0.5) - (node_id=a{n}, ip=10.0.0.{5 + n // 4}, pid={2200 + n})"
        f" world_rank={n}, local_rank={n % 4}, node_rank={n // 4}\n"
        for n in range(8)
    )
    failed = (
        "Traceback (most recent call last):\n"
        "ray.exceptions.RayTaskError(ValueError): ray::_RayTrainWorker__execute.get_next()"
        f" (pid={2200 + rank}, ip=10.0.0.{5 + rank // 4}, actor_id=12, repr=<RayTrainWorker at 0x7f>)\n"
        '  File "/job/fit.py", line 20, in fit\n    raise ValueError("no label")\nValueError: no label\n'
    )
    assert said(tmp_path, listed + failed) == [rank]
