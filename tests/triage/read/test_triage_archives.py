"""Archives: members read on several cores come to what one core makes of them, and to what a folder says."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from formats import PACKED
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutate import HOW, Edit, apply
from say import as_document, caught, raised, steps
from test_triage_flight import behind

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.read import archives, parallel
from nodedoctor.triage.read.archives import ArchiveShare
from nodedoctor.triage.read.reader import SourceReading
from nodedoctor.triage.read.sources import LogSource, find_sources, kind_of

Files = Mapping[str, bytes]


def zipped(files: Files) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(files: Files) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


PACKS: dict[str, Callable[[Files], bytes]] = {
    "zip": zipped,
    "tar": tarred,
    "tar.gz": lambda files: gzip.compress(tarred(files), 1),
}
RANKS = {
    f"run/rank{rank}.log": (steps(1, 300) + ("" if rank == 3 else caught(rank))).encode() for rank in range(8)
}
ODD: Files = {
    "../rank0.log": caught(0).encode(),
    "run/": b"",
    "inner.tar": tarred({f"rank{rank}.log": caught(rank).encode() for rank in (1, 3)}),
    "inner.zip": zipped({"rank4.log": caught(4).encode()}),
    "weights.bin": bytes(range(256)) * 40,
    "rank5.log.gz": gzip.compress(caught(5).encode()),
    "rank6.log.gz": gzip.compress((steps(1, 900) + caught(6)).encode())[:-30],
    "trace_rank_2": pickle.dumps(behind(4, 2)[1], 2),
    "empty.log": b"",
    "rank7.log": raised(7, "ValueError: x").encode(),
}
"""A member of every kind: hostile names, archives in an archive, damaged, binary, a dump, nothing."""


@pytest.fixture(autouse=True)
def _small_work_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real threshold takes seconds of CPU."""
    monkeypatch.setattr(parallel, "ENOUGH", 0)


def on(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))


def read_on(cores: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """All that is read of a file: the same reading on one core and on several is the same judgement."""
    on(cores, monkeypatch)
    reading = SourceReading()
    parallel.read_all(find_sources([str(path)]).sources, reading)
    return (
        reading.events,
        reading.notes,
        reading.unread,
        reading.size,
        reading.dumps,
        list(reading.speakers.items()),
    )


def loads(path: Path) -> int:
    """How many processes read it."""
    return len(parallel._assign_loads(find_sources([str(path)]).sources, SourceReading()))


@pytest.mark.slow
@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("files", [RANKS, ODD], ids=["ranks", "odd"])
def test_members_are_read_on_several_cores_as_on_one(
    pack: str, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "logs"
    path.write_bytes(PACKS[pack](files))
    alone = read_on(1, path, monkeypatch)
    assert alone[0]
    for cores in (2, 3, 16):
        assert read_on(cores, path, monkeypatch) == alone
        assert loads(path) == min(cores, parallel.OF_A_STREAM if pack != "zip" else len(files))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("pack", PACKS)
def test_an_archive_says_what_the_unpacked_folder_says(
    pack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the names of its files, how many there are, numbers of lines, and how many bytes were read."""
    (folder := tmp_path / "folder" / "run").mkdir(parents=True)
    for name, data in RANKS.items():
        (folder.parent / name).write_bytes(data)
    (packed := tmp_path / "packed").write_bytes(PACKS[pack](RANKS))
    on(3, monkeypatch)
    said = []
    for path, front in ((folder.parent, f"{folder.parent}/"), (packed, f"{packed}!")):
        document = as_document(examine_job([str(path)]))
        document["coverage"].pop("files")
        document["coverage"].pop("bytes")
        rows = json.dumps(document, indent=1).replace(front, "").splitlines()
        said.append([row for row in rows if not row.strip().startswith('"line":')])
    assert said[0] == said[1]
    assert '"rank": 3' in " ".join(said[0])


def test_a_member_whose_name_cannot_be_read_costs_no_other_one(tmp_path: Path) -> None:
    whole = PACKS["zip"]({"\u00e9.log": b"step 1\n", "rank3.log": caught(3).encode()})
    path = tmp_path / "logs.zip"
    path.write_bytes(whole.replace("\u00e9".encode(), b"\x93\x93", 1))
    reading = SourceReading()
    parallel.read_all(find_sources([str(path)]).sources, reading)
    assert len(reading.events) == 1 and len(reading.notes) == 1


@pytest.mark.slow
@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damaged_archives_are_read_on_several_cores_as_on_one(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    pack = data.draw(st.sampled_from(sorted(PACKS)))
    whole = PACKS[pack](data.draw(st.sampled_from([RANKS, ODD])))
    edits = st.builds(
        Edit, st.sampled_from(HOW), st.integers(0, len(whole)), st.integers(0, 300), st.integers(0, 9999)
    )
    path = tmp_path_factory.mktemp("damaged") / "logs"
    path.write_bytes(apply(whole, data.draw(st.lists(edits, min_size=1, max_size=4)), [whole]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "ENOUGH", 0)
        assert read_on(1, path, patch) == read_on(3, path, patch)


@pytest.mark.parametrize("pack", PACKS)
def test_the_bound_of_all_members_holds_however_many_read_them(
    pack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where one share alone is too large: what may be unpacked is that of the archive."""
    monkeypatch.setattr(archives, "LARGEST", 1 << 17)
    path = tmp_path / "logs"
    large = (b"step 1 loss 2 " + b"x" * 1000 + b"\n") * 56
    for sizes in ((1, 0, 0, 0), (1, 0, 1, 0), (1, 1, 1, 1)):
        files = {f"{n}.log": caught(n).encode() + large * size for n, size in enumerate(sizes)}
        path.write_bytes(PACKS[pack](files))
        alone = read_on(1, path, monkeypatch)
        assert read_on(2, path, monkeypatch) == alone
    assert any("GiB" in note for note in alone[1])


def test_one_damaged_member_costs_no_other(tmp_path: Path) -> None:
    """A dump is read as a whole: where that fails, the logs behind it are read all the same."""
    whole = zipped({"trace_rank_0": bytes(pickle.dumps(behind(4, 2)[0], 2)), "rank1.log": caught(1).encode()})
    at = whole.index(b"trace_rank_0") + 40
    path = tmp_path / "logs.zip"
    path.write_bytes(whole[:at] + bytes(byte ^ 0x55 for byte in whole[at : at + 20]) + whole[at + 20 :])
    coverage = examine_job([str(path)]).verdict.coverage
    assert coverage.ranks_seen == (1,) and coverage.unread == 1
    assert any("trace_rank_0" in note for note in coverage.notes)


@pytest.mark.parametrize("name", [name for name in PACKED if "tar" not in name])
def test_what_has_one_member_is_read_by_one(name: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(PACKED[name](caught(1).splitlines()))
    (source,) = find_sources([str(path)]).sources
    assert archives.count_members(source) == 1


def test_small_archives_beside_others_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen nodes' archives: who reads a share of each tar would unpack all sixteen."""
    on(2, monkeypatch)
    for node in range(16):
        (tmp_path / f"node{node}.tgz").write_bytes(PACKS["tar.gz"](RANKS))
    tasks = [
        task
        for load in parallel._assign_loads(find_sources([str(tmp_path)]).sources, SourceReading())
        for task in load
    ]
    assert len(tasks) == 16 and all(task.share == ArchiveShare() for task in tasks)


def test_every_member_is_in_one_share() -> None:
    for of in range(1, 9):
        for member in range(40):
            assert sum(ArchiveShare(first, of).has(member) for first in range(of)) == 1


def test_what_cannot_be_opened_has_one_member(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for data in (b"", b"PK\3\4", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", zipped(RANKS)[:-40]):
        path.write_bytes(data)
        assert archives.count_members(LogSource(str(path), kind_of(data), len(data))) == 1
