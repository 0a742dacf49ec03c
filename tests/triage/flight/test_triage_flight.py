"""Flight-recorder dumps: who never came, who differs, what cannot be told, what a hostile file may not do."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from say import caught, culprits

from nodedoctor.triage.flight.dump import RankDump, _make_dump, read_dump
from nodedoctor.triage.flight.judge import judge_dumps
from nodedoctor.triage.flight.unpickle import HEAD, TAIL, PickleRefused, load_pickle, shorten_pickle
from nodedoctor.triage.identity.paths import rank_of_dump
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.live import saved
from nodedoctor.triage.live.running_job import LiveJob, PythonThread, RankProcess
from nodedoctor.triage.patterns.stacks import StackFrame

Entry = dict[str, Any]


def entry(seq: int, op: str = "all_reduce", numel: int = 64, state: str = "completed", **more: Any) -> Entry:
    """One record of torch 2.9 and later."""
    group = more.pop("group", ("0", "default_pg"))
    library = "/v/site-packages/torch/distributed/distributed_c10d.py"
    frames = [("all_reduce", library, 3245), (more.pop("at", "step"), "/job/train.py", 41)]
    return {
        "record_id": seq, "pg_id": 0, "process_group": group, "collective_seq_id": seq, "p2p_seq_id": 0,
        "op_id": seq, "profiling_name": f"nccl:{op}", "time_created_ns": 1_795_240_306_478_488_974 + seq,
        "is_p2p": False, "input_sizes": [[numel]], "input_dtypes": ["Float"], "output_sizes": [[numel]],
        "output_dtypes": ["Float"], "state": state, "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None, "retired": state == "completed", "timeout_ms": 600000,
        "frames": [{"name": name, "filename": file, "line": line} for name, file, line in frames],
        **more,
    }  # fmt: skip


def dump(entries: list[Entry], ranks: list[int], **groups: list[int]) -> dict[str, Any]:
    """A dump's top level; `groups` are further groups by name."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(ranks)}}
    config |= {name: {"name": name, "desc": "", "ranks": str(members)} for name, members in groups.items()}
    return {
        "version": "2.10",
        "pg_config": config,
        "pg_status": {},
        "comm_lib_version": "2.27",
        "entries": entries,
    }


def write(
    folder: Path, dumps: dict[int, dict[str, Any]], form: str = "pickle", prefix: str = "trace_rank_"
) -> str:
    """The dumps as files of a folder."""
    for rank, document in dumps.items():
        path = folder / f"{prefix}{rank}"
        if form == "pickle":
            path.write_bytes(pickle.dumps(document, protocol=2))
        else:
            Path(f"{path}.json").write_text(json.dumps(document))
    return str(folder)


def behind(ranks: int, missing: int, done: int = 5) -> dict[int, dict[str, Any]]:
    """All ranks but one wait in the next collective."""
    past = [entry(seq) for seq in range(1, done)]
    return {
        rank: dump([*past] if rank == missing else [*past, entry(done, state="started")], list(range(ranks)))
        for rank in range(ranks)
    }


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize(
    "prefix", ["nccl_trace_rank_", "comm_lib_trace_rank_", "node-7.example.org_rank_", "fr_"]
)
def test_the_missing_rank(form: str, prefix: str, tmp_path: Path) -> None:
    examined = examine_job([write(tmp_path, behind(4, 2), form, prefix)])
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [2])
    assert [who.rank for who in examined.verdict.victims] == [0, 1, 3]
    assert examined.verdict.coverage.ranks_expected == 4


def test_a_rank_that_runs_ahead_is_no_culprit(tmp_path: Path) -> None:
    dumps = behind(4, 2)
    dumps[0]["entries"] += [entry(seq, state="scheduled") for seq in (6, 7, 8)]
    assert culprits(examine_job([write(tmp_path, dumps)])) == [2]


def black_box(
    folder: Path, host: str, *ranks: RankProcess, at: float, dumps: dict[int, Any] | None = None
) -> Path:
    """The folder that a watch on one node leaves."""
    box = folder / f"{host}-{at:.0f}"
    (box / "fr").mkdir(parents=True)
    for name in ("run.json", "samples.jsonl"):
        (box / name).write_text("{}")
    look = LiveJob(host, ranks, time=at)
    (box / "capture.json").write_text(json.dumps(saved.look_document(look)))
    write(box / "fr", dumps or {}, prefix="rank_")
    return box


def waiting(rank: int, function: str = "all_reduce", **more: Any) -> RankProcess:
    frame = StackFrame("/v/torch/distributed/distributed_c10d.py", 1, function)
    return RankProcess(100 + rank, rank, 4, 2, ("S", "S"), threads=(PythonThread((frame,)),), **more)


def test_the_looks_of_all_nodes_and_their_dumps_are_one_job(tmp_path: Path) -> None:
    """All ranks are in the same call: only the recorder says that one of them has not come to it."""
    dumps = behind(4, 2)
    black_box(tmp_path, "n1", waiting(0), waiting(1), at=1e9, dumps={r: dumps[r] for r in (0, 1)})
    black_box(tmp_path, "n2", waiting(2), waiting(3), at=1e9 + 5, dumps={r: dumps[r] for r in (2, 3)})
    found = examine_job([str(tmp_path)])
    assert (found.verdict.cause, culprits(found)) == ("cpu_stuck_or_slow_rank", [2])
    assert found.verdict.coverage.ranks_seen == (0, 1, 2, 3)
    assert [standing.hosts for standing in found.verdict.standings] == [("n1", "n2")]


def test_an_earlier_hang_in_the_same_folder_is_left_out(tmp_path: Path) -> None:
    """Its stacks and its dumps: rank 3 was missing then."""
    old = black_box(tmp_path, "n1", waiting(0), waiting(3, "x"), at=1e9, dumps=behind(4, 3))
    dumps = behind(4, 2)
    black_box(tmp_path, "n1", *map(waiting, range(4)), at=1e9 + 9, dumps=dumps)
    found = examine_job([str(tmp_path)])
    assert culprits(found) == [2]
    assert any(str(old) in note for note in found.verdict.coverage.notes)
    two_jobs = black_box(tmp_path, "n1", waiting(0, job="other"), at=1e9 + 5)
    notes = examine_job([str(tmp_path)]).verdict.coverage.notes
    assert not any(str(two_jobs) in note for note in notes)
    assert any("another job runs there" in note for note in notes)


@pytest.mark.parametrize("odd", [{"numel": 128}, {"op": "broadcast"}, {"input_dtypes": ["BFloat16"]}])
def test_the_majority_tells_who_differs(odd: dict[str, Any], tmp_path: Path) -> None:
    past = [entry(seq) for seq in range(1, 5)]
    dumps = {
        rank: dump([*past, entry(5, state="started", **(odd if rank == 1 else {}))], [0, 1, 2, 3])
        for rank in range(4)
    }
    examined = examine_job([write(tmp_path, dumps)])
    assert (examined.verdict.cause, culprits(examined)) == ("collective_mismatch", [1])


def test_two_ranks_have_no_majority(tmp_path: Path) -> None:
    dumps = {rank: dump([entry(1, numel=8 + rank, state="started")], [0, 1]) for rank in (0, 1)}
    examined = examine_job([write(tmp_path, dumps)])
    assert (examined.verdict.cause, culprits(examined)) == ("collective_mismatch", [])
    assert [who.rank for who in examined.verdict.parties] == [0, 1]


def test_equal_calls_from_different_lines(tmp_path: Path) -> None:
    dumps = {
        rank: dump([entry(1, state="started", at="save" if rank == 0 else "step")], [0, 1, 2, 3])
        for rank in range(4)
    }
    assert culprits(examine_job([write(tmp_path, dumps)])) == [0]


def test_the_end_of_the_chain_is_guilty(tmp_path: Path) -> None:
    """Ranks 0 and 1 wait in the world's barrier for 2 and 3, but 2 itself waits for 3 in a smaller group."""
    inner = entry(1, state="started", group=("dp_1", ""))
    dumps = {
        0: dump([entry(4), entry(5, state="started")], [0, 1, 2, 3], dp_1=[2, 3]),
        1: dump([entry(4), entry(5, state="started")], [0, 1, 2, 3], dp_1=[2, 3]),
        2: dump([entry(4), inner], [0, 1, 2, 3], dp_1=[2, 3]),
        3: dump([entry(4)], [0, 1, 2, 3], dp_1=[2, 3]),
    }
    examined = examine_job([write(tmp_path, dumps)])
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [3])


def test_a_rank_without_a_dump(tmp_path: Path) -> None:
    dumps = behind(4, 9)
    del dumps[1]
    examined = examine_job([write(tmp_path, dumps)])
    assert (examined.verdict.cause, culprits(examined), examined.verdict.confidence) == (
        "peer_died",
        [1],
        "low",
    )


def test_most_dumps_missing_blames_nobody(tmp_path: Path) -> None:
    dumps = behind(8, 9)
    examined = examine_job([write(tmp_path, {0: dumps[0], 1: dumps[1]})])
    assert (examined.verdict.cause, culprits(examined)) == ("undetermined", [])


def test_all_came_and_none_finished(tmp_path: Path) -> None:
    examined = examine_job([write(tmp_path, behind(4, 9))])
    assert (examined.verdict.cause, culprits(examined)) == ("undetermined", [])
    assert any("data path" in note for note in examined.verdict.coverage.notes)


def test_healthy(tmp_path: Path) -> None:
    dumps = {rank: dump([entry(seq) for seq in range(1, 9)], [0, 1]) for rank in (0, 1)}
    assert examine_job([write(tmp_path, dumps)]).verdict.outcome == "clean"


def test_an_empty_recorder_is_not_healthy(tmp_path: Path) -> None:
    examined = examine_job([write(tmp_path, {0: dump([], [0, 1]), 1: dump([], [0, 1])})])
    assert examined.verdict.outcome == "undetermined"
    assert any("was off" in note for note in examined.verdict.coverage.notes)


def test_gloo_means_the_opposite_with_retired(tmp_path: Path) -> None:
    def gloo(seq: int, done: bool) -> Entry:
        return entry(seq, state="scheduled") | {"profiling_name": "gloo:all_reduce", "retired": done}

    dumps = {
        rank: dump([gloo(1, True), *([gloo(2, False)] if rank != 1 else [])], [0, 1, 2]) for rank in range(3)
    }
    for document in dumps.values():
        document["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[0, 1, 2]"}}
    assert culprits(examine_job([write(tmp_path, dumps)])) == [1]


def test_the_list_that_torch_2_2_wrote(tmp_path: Path) -> None:
    def old(seq: int, state: str) -> Entry:
        return {"pg_id": 0, "seq_id": seq, "profiling_name": "nccl:all_reduce", "time_created_us": seq,
                "state": state, "input_sizes": [[8]], "output_sizes": [[8]], "retired": False}  # fmt: skip

    for rank in range(4):
        records = [old(1, "completed"), *([old(2, "scheduled")] if rank != 3 else [])]
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(records, protocol=2))
    assert culprits(examine_job([str(tmp_path)])) == [3]


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_a_cut_off_dump_still_counts(form: str, tmp_path: Path) -> None:
    write(tmp_path, behind(4, 2, done=40), form)
    path = next(tmp_path.glob("*_1*"))
    path.write_bytes(path.read_bytes()[: -400 if form == "pickle" else -900])
    examined = examine_job([str(tmp_path)])
    assert culprits(examined) == [2]
    assert any("cut off" in note for note in examined.verdict.coverage.notes)


def test_logs_and_dumps_together(tmp_path: Path) -> None:
    write(tmp_path, behind(4, 2))
    (tmp_path / "train.log").write_text(
        caught(0, seq=5)
        + "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    verdict = examine_job([str(tmp_path)]).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("peer_cuda_oom", [2])


@given(
    lengths=st.lists(st.integers(150, 260), min_size=2, max_size=3),
    sequence=st.lists(st.sampled_from(["0", "0", "0", "tp", "dp"]), min_size=260, max_size=260),
    pending=st.integers(0, 5),
    fast=st.booleans(),
)
@settings(max_examples=examples(25))
def test_the_ends_of_a_long_dump_say_what_the_whole_says(
    lengths: list[int],
    sequence: list[str],
    pending: int,
    fast: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Loading only the first and last records is a matter of speed: the judgement must not change."""
    folder = tmp_path_factory.mktemp("dumps")
    whole: list[RankDump] = []
    for rank, length in enumerate(lengths):
        counts: dict[str, int] = {}
        records = []
        for index, group in enumerate(sequence[:length]):
            counts[group] = counts.get(group, 0) + 1
            state = "scheduled" if index >= length - pending else "completed"
            records.append(entry(counts[group], state=state, group=(group, "")) | {"pg_id": group})
        ranks = list(range(len(lengths)))
        document = dump(records, ranks, tp=ranks, dp=ranks)
        path = folder / f"trace_rank_{rank}"
        with path.open("wb") as file:
            pickler = pickle.Pickler(file, protocol=2)
            pickler.fast = fast
            pickler.dump(document)
        whole.append(_make_dump(str(path), document, "", path.stat().st_size))
    told = [judge_dumps(dumps) for dumps in (whole, [read_dump(dump.path) for dump in whole])]
    assert [(c.cause, c.culprits, c.headline) for c in told[0].candidates] == [
        (c.cause, c.culprits, c.headline) for c in told[1].candidates
    ]
    assert told[0].calm == told[1].calm


def test_a_long_dump_is_cut() -> None:
    data = pickle.dumps(dump([entry(seq) for seq in range(2000)], [0, 1]), protocol=2)
    short = shorten_pickle(data)
    assert short is not None and len(short) < len(data) / 10
    seqs = [record["collective_seq_id"] for record in load_pickle(short)["entries"]]
    assert seqs[0] == 0 and seqs[-1] == 1999 and len(seqs) == HEAD + TAIL + 1


class Payload:
    """What an attacker would send instead of a dump."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self.path}",))


def test_a_pickle_that_would_run_code_does_not(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "trace_rank_0").write_bytes(pickle.dumps({"entries": [Payload(ran)]}, protocol=2))
    examined = examine_job([str(tmp_path / "trace_rank_0")])
    assert not ran.exists()
    assert any("was not loaded" in note for note in examined.verdict.coverage.notes)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01r\xff\xff\xff\xffK\x01s.",  # a memo of 64 GiB
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",  # bytes of 8 EiB
        b"\x80\x02" + b"(" * 100_000,
        b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00trueo.",
        b"\x80\x02}.",
    ],
)
def test_hostile_pickles_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace_rank_0"
    path.write_bytes(data)
    with pytest.raises(PickleRefused):
        read_dump(str(path))


@given(st.binary(max_size=400))
def test_any_bytes_load_or_are_refused(data: bytes) -> None:
    try:
        load_pickle(b"\x80\x02" + data)
    except PickleRefused as refused:
        assert str(refused)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=20,
    )
)
def test_any_json_with_entries_is_read(value: Any) -> None:
    records = [
        {"collective_seq_id": 1, "process_group": value},
        {"collective_seq_id": 2, **dict.fromkeys(entry(1), value)},
    ]
    document = {"entries": records, "pg_config": value, "pg_status": {"0": value}, "version": value}
    assert _make_dump("trace_rank_0", document, "", 1000).rank == 0
    if isinstance(value, list) and all(isinstance(record, dict) for record in value):
        assert _make_dump("trace_rank_0", {"entries": value}, "", 1000).entries == len(value)
    else:
        with pytest.raises(PickleRefused, match="entries"):
            _make_dump("trace_rank_0", {"entries": value}, "", 1000)


def test_ranks_in_file_names() -> None:
    assert rank_of_dump("/x/comm_lib_trace_rank_12") == 12
    assert rank_of_dump("/x/nccl_trace_rank_12.json") == 12
    assert rank_of_dump("/x/host-3_rank_12") == 12
    assert rank_of_dump("/x/rank7/dump_4") == 4
    assert rank_of_dump("/x/dump") is None
