"""What to do with a job: laws over made verdicts, and over every log of the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.knowledge.kinds import kind, kinds
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.verdict.decision.resubmit import SHARE, decide, is_node, with_decision
from nodedoctor.triage.verdict.document import make_document

LOGS = Path(__file__).parents[1] / "logs" / "cases"
CASES = [json.loads(line)["files"] for line in (LOGS / "truth.jsonl").read_text().splitlines()]
WAITING = ("cpu_stuck_or_slow_rank", "timeout_too_short_legit_work", "collective_mismatch")

RESTARTED = {"s03_timelimit.log", "s05_preempt_requeue_ok.log", "t13_port.log"}
STOPPED = {
    *(
        "a01_accel_version.log",
        "a02_loader_bus.log",
        "d02_ds_oom_rank2.log",
        "j03_oom.log",
        "k01_oomkilled.log",
    ),
    *(
        "k02_evicted_shm.log",
        "m02_hvd_exc.log",
        "m03_mpi_abort.log",
        "r02_ray_oom.log",
        "r03_ray_train_exc.log",
    ),
    *("s01_srun_oom.log", "s02_srun_exit1.log", "t01_oom_one_of_8.log", "t04_exc_all_ranks_same.log"),
    *("t07_mismatch_majority.log", "t12_detail_mismatch.log", "t15_illegal.log", "u04_kernel_not_built.log"),
    *("u05_message_of_two_lines.log", "u09_memory_of_the_node.log", "u10_another_program_retries.log"),
    *("u11_warning_before_traceback.log", "v01_nccl_cuda.log", "v02_sglang_oom.log", "x03_no_space.log"),
    "x04_nan_raise.log",
}
WITHOUT = {"s04_node_fail.log": ["n023"]}
NOTHING = {
    *(
        "d03_ds_clean.log",
        "h01_recovered.log",
        "h02_healthy_warns.log",
        "h03_lightning.log",
        "t10_ctrl_c.log",
    ),
    *("u01_request_aborted.log", "v03_engine_healthy.log"),
}
"""What a person would do with these jobs, written down from their truth; with all others he looks first."""

hosts = st.sampled_from(["", "localhost", "10.0.0.7", "3f9a0b12cd45", *(f"n{i:03d}" for i in range(24))])
people = st.lists(
    st.builds(
        lambda host, rank: {"world": "default", "rank": rank, "host": host or None},
        hosts,
        st.one_of(st.none(), st.integers(0, 191)),
    ),
    max_size=4,
)
names = st.sampled_from([row.kind for row in kinds()])
nodes_of_jobs = st.lists(hosts.filter(bool), max_size=24, unique=True)
reports = st.dictionaries(hosts.filter(is_node), st.sampled_from(["", "GPU 3 fell off the bus"]), max_size=6)


@st.composite
def verdicts(draw: st.DrawFn) -> dict[str, Any]:
    """A verdict of any kind about anybody."""
    name = draw(names)
    cause = name.partition("/")[0]
    outcome = {"none": "clean", "undetermined": "undetermined"}.get(cause, "failure")
    return {
        "outcome": outcome,
        "cause": cause,
        "kind": name,
        "kinds_alike": draw(st.lists(names, max_size=2)),
        "confidence": draw(st.sampled_from(["high", "medium", "low"])),
        "headline": "rank 3 did it.",
        "culprits": draw(people),
        "victims": draw(people),
        "parties": draw(people),
        "ranks": [{"world": "default", "rank": i, "host": h} for i, h in enumerate(draw(nodes_of_jobs))],
        "jobs": [{"id": "1", "judged": True, "hosts": draw(nodes_of_jobs)}],
        "next": [{"text": "Look at rank 3."}],
        "fixes": [],
    }


@given(verdicts(), reports)
def test_laws(verdict: dict[str, Any], witness: dict[str, str]) -> None:
    decided = decide(verdict, witness)
    row = kind(verdict["kind"])
    assert row is not None
    assert decided.decision in (row.decision, "look")
    assert bool(decided.exclude) == (decided.decision == "restart-without")
    assert "\n" not in decided.line and decided.line.startswith(decided.decision)
    if decided.decision == "restart":
        assert row.same_nodes == "no"
    if verdict["confidence"] == "low":
        sick = {host for host, why in witness.items() if why}
        assert decided.decision == "look" or set(decided.exclude) <= sick != set()
    if verdict["cause"] in WAITING or verdict["cause"] == "undetermined":
        assert not decided.exclude


@given(verdicts(), reports)
def test_who_is_left_out(verdict: dict[str, Any], witness: dict[str, str]) -> None:
    decided = decide(verdict, witness)
    if not decided.exclude:
        return
    sick = {host for host, why in witness.items() if why}
    blamed = {who["host"] for who in verdict["culprits"]}
    placed = {who["rank"]: who["host"] for who in verdict["ranks"]}
    blamed |= {placed.get(who["rank"]) for who in verdict["culprits"] if not who["host"]}
    everybody = {
        who["host"]
        for key in ("culprits", "victims", "parties", "ranks")
        for who in verdict[key]
        if who["host"]
    } | set(verdict["jobs"][0]["hosts"])
    assert set(decided.exclude) <= {host for host in blamed if host} | (sick & everybody)
    assert all(map(is_node, decided.exclude))
    assert len(decided.exclude) <= max(1, len([host for host in everybody if is_node(host)]) // SHARE)
    if not set(decided.exclude) <= sick:
        assert verdict["confidence"] == "high" and not verdict["kinds_alike"]


@given(verdicts(), reports)
def test_a_saved_verdict_is_decided_as_before(verdict: dict[str, Any], witness: dict[str, str]) -> None:
    once = with_decision(verdict, witness)
    assert with_decision(json.loads(json.dumps(once)), witness) == once
    assert {key: once[key] for key in verdict} == verdict


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["host", "rank"]), inner),
)


@given(st.dictionaries(st.sampled_from(["kind", "cause", "culprits", "ranks", "jobs", "next"]), values))
def test_a_document_of_any_shape_gets_a_decision(document: dict[str, Any]) -> None:
    assert not decide(document).exclude


def made(**more: Any) -> dict[str, Any]:
    """A verdict of a GPU that failed on a node of eight."""
    ranks = [{"world": "default", "rank": rank, "host": f"n{rank:02d}"} for rank in range(8)]
    return {
        "outcome": "failure",
        "cause": "gpu_hardware_xid",
        "kind": "gpu_hardware_xid/fell_off_bus",
        "confidence": "high",
        "headline": "Xid 79",
        "culprits": [ranks[3]],
        "ranks": ranks,
        **more,
    }


def test_below_high_confidence_the_node_itself_must_be_seen_sick() -> None:
    assert decide(made()).exclude == ("n03",)
    assert decide(made(confidence="medium")).decision == "look"
    assert decide(made(confidence="medium"), {"n03": ""}).decision == "look"
    assert decide(made(confidence="medium"), {"n04": "NVLinks down"}).decision == "look"
    seen = decide(made(confidence="medium"), {"n03": "GPU 0 fell off the bus"})
    assert seen.decision == "restart-without" and seen.exclude == ("n03",)


def test_a_rank_without_a_host_has_that_of_its_other_lines() -> None:
    nameless = {"world": "default", "rank": 3, "host": None}
    assert decide(made(culprits=[nameless])).exclude == ("n03",)
    assert decide(made(culprits=[{**nameless, "rank": 99}])).decision == "look"


def test_at_most_one_node_in_ten_is_left_out() -> None:
    ranks = [{"world": "default", "rank": rank, "host": f"n{rank:02d}"} for rank in range(30)]
    assert decide(made(ranks=ranks, culprits=ranks[:3])).exclude == ("n00", "n01", "n02")
    assert decide(made(ranks=ranks, culprits=ranks[:4])).decision == "look"
    assert decide(made(culprits=ranks[:2])).decision == "look"  # two of eight


def test_two_causes_that_weigh_alike_are_looked_at_unless_they_ask_for_the_same() -> None:
    full = made(cause="peer_cuda_oom", kind="peer_cuda_oom/other")
    assert decide({**full, "kinds_alike": ["peer_died/killed"]}).decision == "look"
    assert decide({**full, "kinds_alike": ["user_code_exception/nan"]}).decision == "stop"


def test_a_verdict_of_an_earlier_version_has_its_cause() -> None:
    old = made(cause="peer_cuda_oom")
    del old["kind"]
    assert decide(old).decision == "stop"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("files", CASES, ids=lambda files: files[0])
def test_logs(files: list[str]) -> None:
    examined = examine_job([str(LOGS / name) for name in files])
    document = make_document(examined.verdict, examined.lines.line_of)
    name = files[0]
    expected = (
        "restart"
        if name in RESTARTED
        else "stop"
        if name in STOPPED
        else "none"
        if name in NOTHING
        else "look"
    )
    if name in WITHOUT:
        expected = "restart-without"
    assert document["decision"] == expected, document["decision_line"]
    assert document["exclude"] == WITHOUT.get(name, [])
    assert kind(document["kind"]) is not None
