"""Which process a rank is: by what the process says of itself, and not of others."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, judged, raised, steps

AT = "2026-11-20 08:12:08.875 | INFO     | worker:init:121 - "
GLOO = "[Gloo] Rank {r} is connected to {m} peer ranks. Expected number of connected peer ranks is : {m}"
SAYS = {
    "fields": AT + "rank: {r}, local_rank: 0, world_size: {n}",
    "two fields": AT + "rank: {r}, world_size: {n}",
    "words": "Global rank {r} of this job, world size {n}",
    "gloo": AT + GLOO,
    "gloo alone": GLOO,
    "a prefix": AT + "[rank{r}] ready",
    "settings": AT + "rank={r} world_size={n}",
}
GROUPED = ["fields", "two fields", "words", "gloo", "gloo alone"]
FAILED = (
    "ray.exceptions.RayTaskError(ValueError): ray::Policy.ppo_train() (pid={pid}, ip=10.0.0.2, actor_id=8c)\n"
    '  File "/w/ppo.py", line 9, in train\n    loss(batch)\nValueError: sizes differ\n'
)


def spoken(form: str, ranks: range, first_pid: int = 2050, world: int = 4, actor: str = "Policy") -> str:
    """What the actors of one class say of themselves."""
    return "".join(
        f"({actor} pid={first_pid + at}) {SAYS[form].format(r=rank, n=world, m=world - 1)}\n"
        for at, rank in enumerate(ranks)
    )


@pytest.mark.parametrize("form", SAYS)
@pytest.mark.parametrize("rank", [0, 2])
def test_an_actor_is_the_rank_that_it_says(form: str, rank: int, tmp_path: Path) -> None:
    log = spoken(form, range(4)) + steps(1, 9) + FAILED.format(pid=2050 + rank)
    assert culprits(judged(tmp_path, log)) == [rank]


@pytest.mark.parametrize("form", SAYS)
def test_a_rank_of_another_class_is_another_process(form: str, tmp_path: Path) -> None:
    other = spoken(form, range(4), first_pid=3050, actor="Critic")
    log = spoken(form, range(4)) + other + steps(1, 9)
    assert culprits(judged(tmp_path, log + FAILED.format(pid=2051))) == [1]
    assert culprits(judged(tmp_path, log + FAILED.format(pid=9999))) == [None]


@pytest.mark.parametrize("form", GROUPED)
def test_the_ranks_of_several_groups_of_a_class_are_none_of_the_job(form: str, tmp_path: Path) -> None:
    twice = spoken(form, range(2), world=2) + spoken(form, range(2), first_pid=3050, world=2)
    folded = spoken(form, range(1), world=2) + "".join(
        f"(Policy pid={pid}) step {pid}\n" for pid in range(61, 64)
    )
    for groups in (twice, folded, spoken(form, range(1), world=1)):
        assert culprits(judged(tmp_path, groups + steps(1, 9) + FAILED.format(pid=2050))) == [None]


@pytest.mark.parametrize("form", GROUPED)
def test_the_largest_group_of_a_class_has_the_ranks_of_the_job(form: str, tmp_path: Path) -> None:
    pairs = spoken(form, range(2), world=2) + spoken(form, range(2), first_pid=2052, world=2)
    log = pairs + spoken(form, range(4)) + steps(1, 9)
    assert culprits(judged(tmp_path, log + FAILED.format(pid=2053))) == [3]


def test_who_raised_before_the_others_gave_up_is_named_by_that(tmp_path: Path) -> None:
    waits = [(rank, caught(rank)) for rank in (0, 1, 2)]
    said = [(3, raised(3, "AssertionError: empty response")), *waits]
    log = "".join(
        f"(Policy pid={900 + rank}, ip=10.4.0.2) {line}\n"
        for rank, text in said
        for line in text.splitlines()
    )
    examined = judged(tmp_path, steps(1, 9) + log)
    assert examined.verdict.cause == "user_code_exception" and culprits(examined) == [3]


XID = "[5811.1182] NVRM: Xid (PCI:0000:46:00): 119, pid={pid}, name=python, Timeout after 6s of waiting\n"


@pytest.mark.parametrize(
    "form",
    [
        "[rank {r}] host cn4 pid {pid} device cuda:1",
        "[rank {r}] host=cn4, local_rank=1, pid={pid}",
        "[rank{r}] host cn4 pid {pid} ready",
        "[rank{r}]: node 4 gpu 1 pid {pid}",
        "[rank {r}] started, pid {pid} on cn4",
        "rank {r} on cn4 with pid {pid}",
    ],
)
@pytest.mark.parametrize("front", ["", "2026-09-09 09:00:00,755 ", "{n}: 2026-09-09 09:00:00,755 "])
def test_a_line_of_a_rank_with_its_process_joins_the_kernels_report(
    form: str, front: str, tmp_path: Path
) -> None:
    said = [(front + form).format(r=rank, n=rank // 4, pid=7100 + rank) + "\n" for rank in range(8)]
    log = "".join(said) + steps(1, 9) + XID.format(pid=7105)
    assert culprits(judged(tmp_path, log)) == [5]


@pytest.mark.parametrize(
    "form",
    [
        "[rank {r}] killed worker pid {pid}",
        "[rank {r}] sends a signal to pid {pid}",
        "[rank {r}] pid {pid} is gone",
    ],
)
def test_who_speaks_of_another_process_is_not_that_process(form: str, tmp_path: Path) -> None:
    said = "".join(form.format(r=rank, pid=7100 + rank) + "\n" for rank in range(8))
    assert culprits(judged(tmp_path, said + steps(1, 9) + XID.format(pid=7105))) != [5]


LISTED = (
    "kT2aWorkerDict_0:{r} pid={p}",
    "  0a6f0{r}  WorkerDict  DEAD  02000000  kT2aWorkerDict_0:{r}  77aafe01  {p}  ml",
    "q9RefWorker_0:{r}   pid: {p}",
)


@pytest.mark.parametrize("row", LISTED)
@pytest.mark.parametrize("rank", [0, 5])
def test_verls_name_of_an_actor_is_a_rank_on_the_first_node(row: str, rank: int, tmp_path: Path) -> None:
    rows = "".join(row.format(r=at, p=2050 + at) + "\n" for at in range(8))
    assert culprits(judged(tmp_path, rows + steps(1, 9) + FAILED.format(pid=2050 + rank))) == [rank]
    second = rows.replace("_0:", "_1:")
    assert culprits(judged(tmp_path, second + steps(1, 9) + FAILED.format(pid=2050 + rank))) == [None]
