"""The ranks of torchrun's --log-dir, whose folders count local ranks, and the order of its attempts."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, elastic, steps

from nodedoctor.triage.job import examine_job

ERROR = (
    "Traceback (most recent call last):\n"
    '  File "/work/train.py", line 41, in <module>\n    main()\n'
    '  File "/work/train.py", line 38, in main\n    loss = step(batch)\n'
    "KeyError: 'caption_ids'\n"
)
AGENT = (
    "[2026-11-21 10:02:14,118] torch.distributed.elastic.agent.server.api: [INFO] [default] Rendezvous"
    " complete for workers. Result:\n  restart_count=0\n  group_rank=1\n  group_world_size=2\n"
    "  local_ranks=[0, 1, 2, 3]\n  global_ranks=[4, 5, 6, 7]\n"
)
SAYS = (
    "[rank{rank}]:[W1121 10:02:30.100000000 ProcessGroupNCCL.cpp:4115] [PG ID 0 PG GUID 0 Rank {rank}]  using"
    " GPU {local} to perform barrier\n",
    "rank={rank} local_rank={local} world_size=8\n",
    "Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {member}/8\n",
    "2026-11-21 10:02:30 | INFO | rank {rank}/8 | starting\n",
    "n2:711:711 [{local}] NCCL INFO ncclCommInitRankConfig comm 0x5581 rank {rank} nranks 8 cudaDev {local} "
    "nvmlDev {local} busId 1000 commId 0x9 - Init COMPLETE\n",
)
"""How a process says which rank it is."""


def written(folder: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return [str(folder)]


def of_node(say: str, speakers: range, guilty: int = 3) -> dict[str, str]:
    """The files of the second node of two with four GPUs, some of which say their rank."""
    files = {}
    for local in range(4):
        own = say.format(rank=4 + local, local=local, member=5 + local) if local in speakers else "hello\n"
        files[f"none_x1/attempt_0/{local}/stderr.log"] = own + (ERROR if local == guilty else "")
    return files


@pytest.mark.parametrize("say", SAYS)
@pytest.mark.parametrize("speakers", [range(3, 4), range(3), range(4)], ids=["its own", "the others", "all"])
def test_a_tree_of_the_second_node_has_its_ranks(say: str, speakers: range, tmp_path: Path) -> None:
    assert culprits(examine_job(written(tmp_path, of_node(say, speakers)))) == [7]


@pytest.mark.parametrize("agent", ["agent.log", "launcher_n2.log"])
@pytest.mark.parametrize("list_", [AGENT, elastic([(7, 1)], 7).replace("local_rank: 7", "local_rank: 3")])
def test_an_agent_tells_the_ranks_of_its_tree(agent: str, list_: str, tmp_path: Path) -> None:
    tree = {f"n2/{name}": text for name, text in of_node("", range(0)).items()}
    folder = "" if agent.startswith("launcher") else "n2/"
    files = {**tree, folder + agent: list_.replace("node-1", "n2")}
    assert culprits(examine_job(written(tmp_path, files))) == [7]


def test_files_that_contradict_each_other_tell_no_rank(tmp_path: Path) -> None:
    files = of_node(SAYS[1], range(2))
    files["none_x1/attempt_0/1/stderr.log"] = SAYS[1].format(rank=2, local=1, member=1)
    assert culprits(examine_job(written(tmp_path, files))) in ([], [None])


@pytest.mark.parametrize("attempts", [2, 3])
@pytest.mark.parametrize("earlier", [ERROR, caught(1), "torch.OutOfMemoryError: CUDA out of memory.\n"])
def test_the_last_attempt_is_judged(attempts: int, earlier: str, tmp_path: Path) -> None:
    files = {
        f"n_x/attempt_{n}/{r}/stderr.log": f"[rank{r}]: ready\n" for n in range(attempts) for r in (0, 1, 2)
    }
    for number in range(attempts - 1):
        files[f"n_x/attempt_{number}/1/stderr.log"] += earlier
    failed = {**files, f"n_x/attempt_{attempts - 1}/2/stderr.log": ERROR}
    examined = examine_job(written(tmp_path / "failed", failed))
    assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", [2])
    done = {**files, f"n_x/attempt_{attempts - 1}/0/stderr.log": steps(1, 30) + "training complete\n"}
    assert examine_job(written(tmp_path / "done", done)).verdict.outcome in ("clean", "recovered")
