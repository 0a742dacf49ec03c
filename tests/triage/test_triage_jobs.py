"""Several jobs in one folder: told apart, the newest judged; one job is never cut in two."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from say import as_document, caught, culprits, raised
from schemas import assert_fits_schema

from nodedoctor.triage.cli import main
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.read.sources import NoSuchPath


def stamped(hour: int, text: str, minute: int = 0) -> str:
    """A log of this hour."""
    lines = text.splitlines()
    return "".join(
        f"2026-11-21 {hour:02d}:{minute:02d}:{n % 60:02d},000 {line}\n" for n, line in enumerate(lines)
    )


def job(hour: int, guilty: int) -> str:
    """A job of two ranks, of which one raises an exception."""
    steps = "".join(f"[rank{rank}]: step {n} loss: 2.{n}\n" for n in range(5) for rank in (0, 1))
    boom = f"[rank{guilty}]: Traceback (most recent call last):\n[rank{guilty}]: ValueError: boom{hour}\n"
    return stamped(hour, "world_size=2\n" + steps + boom)


def test_the_newest_of_two_jobs_is_judged(tmp_path: Path) -> None:
    (tmp_path / "b-monday.log").write_text(job(8, 0))
    (tmp_path / "a-tuesday.log").write_text(job(14, 1))
    examined = examine_job([str(tmp_path)])
    assert culprits(examined) == [1]
    assert all("boom8" not in event.text for event in examined.verdict.evidence)
    told = [(one.id, one.cause, one.is_judged, one.world) for one in examined.verdict.jobs]
    assert told == [
        ("b-monday.log", "user_code_exception", False, 2),
        ("a-tuesday.log", "user_code_exception", True, 2),
    ]
    assert any("2 jobs" in note for note in examined.verdict.coverage.notes)
    document = as_document(examined)
    assert_fits_schema(document, "triage")
    assert document["jobs"][0]["last"].startswith("11-21 08:00")


def test_a_job_is_picked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, hour, guilty in ((4711, 8, 0), (4712, 8, 1)):
        (tmp_path / f"slurm-{number}.out").write_text(job(hour, guilty))
    assert culprits(examine_job([str(tmp_path)], job="4711")) == [0]
    assert culprits(examine_job([str(tmp_path)], job="4712")) == [1]
    with pytest.raises(NoSuchPath, match="jobs: 4711 4712"):
        examine_job([str(tmp_path)], job="9")
    assert main([str(tmp_path), "--job", "4711", "--json", "--no-node"]) == 2
    assert json.loads(capsys.readouterr().out)["culprits"][0]["rank"] == 0
    assert main([str(tmp_path), "--job", "9", "--no-node"]) == 64


@pytest.mark.parametrize("dated", [1, 2])
def test_an_old_log_with_hardly_a_time_is_another_job(dated: int, tmp_path: Path) -> None:
    first = "".join(f"2026-10-30 17:01:1{n} INFO epoch 1 batch {n} loss 0.91\n" for n in range(dated))
    trace = 'Traceback (most recent call last):\n  File "t.py", line 8, in f\n    f()\nValueError: old\n'
    (tmp_path / "old.log").write_text(first + "".join(f"[rank0]: {line}\n" for line in trace.splitlines()))
    (tmp_path / "new.log").write_text(job(14, 1))
    examined = examine_job([str(tmp_path)])
    assert culprits(examined) == [1] and len(examined.verdict.jobs) == 2


def test_a_late_error_in_a_log_without_other_times_is_of_the_same_job(tmp_path: Path) -> None:
    """Hours after the last step of the other log, and of a rank that has steps in it."""
    (tmp_path / "job.out").write_text(
        stamped(9, "".join(f"[rank0]: step {n} loss: 2.{n}\n" for n in range(9)))
    )
    error = "ValueError: boom"
    trace = f'Traceback (most recent call last):\n  File "t.py", line 8, in <module>\n    net(x)\n{error}\n'
    late = "[rank0]: reading\n" * 9 + "".join(f"[rank0]: {line}\n" for line in trace.splitlines())
    (tmp_path / "job.err").write_text("2026-11-21 19:00:00 [rank0]: bad batch\n" + late)
    examined = examine_job([str(tmp_path)])
    assert culprits(examined) == [0] and len(examined.verdict.jobs) == 1


def test_logs_of_ranks_are_one_job(tmp_path: Path) -> None:
    """One rank ended long before the others spoke: that is the failure, not another job."""
    for name in ("rank{}.log", "{}.err", "slurm-4711_{}.out"):
        folder = tmp_path / name.format("x")
        folder.mkdir()
        for rank in (0, 1, 3):
            (folder / name.format(rank)).write_text(stamped(12, caught(rank)))
        (folder / name.format(2)).write_text(stamped(9, "ValueError: boom"))
        examined = examine_job([str(folder)])
        assert len(examined.verdict.jobs) == 1
        assert culprits(examined) == [2]


def test_clocks_of_hosts_may_differ_by_hours(tmp_path: Path) -> None:
    for host, hour in (("node-1", 3), ("node-2", 12)):
        text = "".join(f"{host}: {line}\n" for line in ("step 1 loss: 2", "ValueError: x", "step 2 loss: 2"))
        (tmp_path / f"{host}.log").write_text(stamped(hour, text))
    assert len(examine_job([str(tmp_path)]).verdict.jobs) == 1


def test_a_log_that_speaks_of_no_job_belongs_to_all(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(job(8, 0))
    (tmp_path / "b.log").write_text(job(14, 1))
    (tmp_path / "kern.log").write_text("Nov 21 08:00:03 n1 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1\n")
    assert len(examine_job([str(tmp_path)]).verdict.jobs) == 2
    assert examine_job([str(tmp_path)], job="a.log").verdict.cause == "gpu_hardware_xid"


def test_one_log_is_one_job(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(job(8, 0))
    examined = examine_job([str(tmp_path)])
    assert [one.is_judged for one in examined.verdict.jobs] == [True]
    assert examined.verdict.coverage.notes == ()


@pytest.mark.parametrize("run", ["none_x8f1kq2c", "4711_abcdefgh"])
def test_local_ranks_of_two_nodes_are_not_the_same_ranks(tmp_path: Path, run: str) -> None:
    """The second node's died half an hour before the first one's gave up waiting."""
    for node, hour, text in (("east", 10, caught), ("west", 9, None)):
        for local in range(2):
            folder = tmp_path / node / run / "attempt_0" / str(local)
            folder.mkdir(parents=True)
            said = text(local) if text is not None else f"[rank{2 + local}]: ValueError: boom\n"
            (folder / "stderr.log").write_text(stamped(hour, said * 3, 20))
    examined = examine_job([str(tmp_path)])
    assert len(examined.verdict.jobs) == 1
    assert examined.verdict.cause == "user_code_exception"


def test_a_log_is_compared_with_those_of_its_folder(tmp_path: Path) -> None:
    """The ranks' own logs have no times; the launchers' have, ten minutes apart."""
    for node, minute, first in (("east", 30, 0), ("west", 10, 2)):
        folder = tmp_path / node
        folder.mkdir()
        for rank in (first, first + 1):
            (folder / f"rank{rank}.log").write_text(f"[rank{rank}]: ValueError: boom\n")
        ended = f"rank : {first} (local_rank: 0) exitcode : 1 (pid: 77)"
        (folder / "torchrun.log").write_text(stamped(12, f"{ended}\n{ended}\n", minute))
    assert len(examine_job([str(tmp_path)]).verdict.jobs) == 1


STREAMS = {
    "torchrun": "none_1/attempt_{run}/{rank}/std{stream}.log",
    "several agents": "n{rank}/none_{rank}/attempt_{run}/{rank}/std{stream}.log",
    "folders in names": "none_1__attempt_{run}__{rank}__std{stream}.log",
    "stems": "run{run}/rank{rank}.{stream}",
    "folders": "run{run}/rank{rank}/std{stream}.txt",
    "words": "run{run}/task{rank}_std{stream}.log",
    "log and errors": "run{run}/rank{rank}.{log}",
}
"""Where runners put the output and the errors of a process."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("guilty", [0, 1])
@pytest.mark.parametrize("before", [None, 0, 1])
@pytest.mark.parametrize("form", STREAMS)
def test_output_and_errors_of_a_process_are_one_log(
    form: str, before: int | None, guilty: int, tmp_path: Path
) -> None:
    """The errors have no times, and the run before may have failed of something else."""
    for run, failed in enumerate((before, guilty)):
        for rank in (0, 1):
            error = "ValueError: old" if run == 0 else "KeyError: 'new'"
            steps = "".join(f"[rank{rank}]: step {n} loss: 2.{n}\n" for n in range(9))
            trace = raised(rank, error) if rank == failed else f"[rank{rank}]: UserWarning: slow\n"
            for stream, text in (("out", stamped(8 + 2 * run, "world_size=2\n" + steps)), ("err", trace)):
                name = STREAMS[form].format(
                    run=run, rank=rank, stream=stream, log="log" if stream == "out" else "err"
                )
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).write_text(text)
    examined = examine_job([str(tmp_path)])
    assert culprits(examined) == [guilty] and "KeyError" in examined.verdict.headline
    assert len(examined.verdict.jobs) == (1 if "attempt" in STREAMS[form] else 2)


@pytest.mark.parametrize("waited", [60, 600, 1800])
def test_a_wait_to_the_timeout_separates_no_jobs(waited: int, tmp_path: Path) -> None:
    """Logs that were rotated while the ranks waited: nothing was printed until the watchdog gave up."""
    for rank in (0, 1, 2):
        steps = "".join(f"[rank{rank}]: step {n} loss: 2.{n}\n" for n in range(9))
        last = raised(rank, "KeyError: 'x'") if rank == 1 else ""
        (tmp_path / f"rank{rank}.part1.log").write_text(stamped(9, "world_size=3\n" + steps + last, 50))
        if rank != 1:
            end = 9 * 60 + 50 + waited // 60
            late = caught(rank, ms=1000 * waited, at=f"{end // 60:02d}:{end % 60:02d}:09.0")
            (tmp_path / f"rank{rank}.part2.log").write_text(late)
    examined = examine_job([str(tmp_path)])
    assert culprits(examined) == [1] and len(examined.verdict.jobs) == 1


ROTATED = {
    "logrotate": ("{name}.log.2.gz", "{name}.log.1", "{name}.log"),
    "dates": ("{name}.log-20261119.gz", "{name}.log-20261120", "{name}.log"),
    "handlers": ("{name}.log.2026-11-19", "{name}.log.2026-11-20_08-00", "{name}.log"),
    "containers": ("", "{name}.previous.log", "{name}.log"),
}
"""The files of one log, the oldest first."""


def write_parts(folder: Path, form: str, name: str, texts: list[str]) -> None:
    """Parts of a log, the oldest first; what has no file of its own goes into the next."""
    before = ""
    for pattern, text in zip(ROTATED[form], texts, strict=True):
        if not pattern:
            before = text
            continue
        data = (before + text).encode()
        before = ""
        path = folder / pattern.format(name=name)
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def rank_steps(first: int, count: int) -> str:
    return "".join(f"[rank0]: step {n} loss: 2.{n}\n" for n in range(first, first + count))


@pytest.mark.parametrize("form", ROTATED)
def test_a_failure_in_an_older_part_is_over_where_the_log_works_on(form: str, tmp_path: Path) -> None:
    oldest = stamped(8, "world_size=1\n" + rank_steps(1, 9))
    failed = stamped(8, rank_steps(10, 9), 1) + raised(0, "KeyError: 'old'")
    resumed = stamped(8, rank_steps(15, 30), 6)
    write_parts(tmp_path, form, "train", [oldest, failed, resumed])
    examined = examine_job([str(tmp_path)])
    assert examined.verdict.outcome == "recovered"
    write_parts(tmp_path, form, "train", [oldest, failed, resumed + raised(0, "ValueError: new")])
    assert "new" in examine_job([str(tmp_path)]).verdict.headline
    write_parts(tmp_path, form, "train", [oldest, failed, stamped(8, "[rank0]: exit\n", 6)])
    assert "old" in examine_job([str(tmp_path)]).verdict.headline


@pytest.mark.parametrize("form", ROTATED)
def test_a_rank_that_failed_is_not_over_by_the_log_of_another(form: str, tmp_path: Path) -> None:
    """Its watchdogs tell of the wait alone, and no newer part of its own log works on."""
    for rank in (0, 1):
        last = raised(1, "KeyError: 'x'") if rank else ""
        own = rank_steps(10, 9).replace("rank0", f"rank{rank}")
        texts = [
            stamped(8, "world_size=2\n"),
            stamped(8, own, 1) + last,
            "" if rank else caught(0, at="08:11:40.0"),
        ]
        write_parts(tmp_path, form, f"rank{rank}", texts)
    assert culprits(examine_job([str(tmp_path)])) == [1]


@pytest.mark.parametrize("failed", [0, 1, 2])
def test_numbered_files_of_processes_are_no_parts_of_one_log(failed: int, tmp_path: Path) -> None:
    for number in range(3):
        name = f"train.log.{number}" if number else "train.log"
        last = raised(number, "KeyError: 'x'") if number == failed else ""
        text = "world_size=3\n" + rank_steps(1, 30).replace("rank0", f"rank{number}")
        (tmp_path / name).write_text(stamped(8, text) + last)
    assert culprits(examine_job([str(tmp_path)])) == [failed]
