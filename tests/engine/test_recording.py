"""Recordings: kept as seen, readable by hand, and never trusted."""

import json
import os
import warnings
import zipfile
from datetime import datetime, timezone

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from nodedoctor.engine import recording
from nodedoctor.model import Observation, Outcome

WHEN = datetime(2026, 3, 4, 5, 6, 7, tzinfo=timezone.utc)
SEEN = [
    Observation("nvidia-smi", text="Failed\x1b[1m\nüñ", rc=9, seconds=0.5, argv=("nvidia-smi",), note="n"),
    Observation("ibstat", Outcome.MISSING, rc=None, note="ibstat: not found"),
    Observation("kernel-log", Outcome.STUCK, text="half", rc=None, truncated=True),
]


def write(folder, manifest, **texts):
    (folder / "probes").mkdir(parents=True)
    (folder / "manifest.json").write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    for name, text in texts.items():
        (folder / "probes" / f"{name}.txt").write_text(text)
    return folder


def test_what_was_seen_comes_back(tmp_path):
    path = tmp_path / "node.zip"
    node = {"hostname": "gpu-1", "boot_id": "b", "gpus": 8}
    path.write_bytes(recording.pack(SEEN, node, WHEN, {"since": "24h", "expect": {"gpus": "8"}}))
    back = recording.load(path)
    assert list(back.observations.values()) == SEEN
    assert back.when == WHEN
    assert back.node == {"hostname": "gpu-1", "boot_id": "b"}
    assert back.options == {"since": "24h", "expect": {"gpus": "8"}}


def test_an_unpacked_recording_is_one_too(tmp_path):
    path = tmp_path / "node.zip"
    path.write_bytes(recording.pack(SEEN, {}, WHEN, {}))
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "node")
    assert recording.load(tmp_path / "node") == recording.load(path)


def test_a_node_written_by_hand(tmp_path):
    manifest = {"schema": "nodedoctor.snapshot/1", "probes": [{"name": "nvidia-smi-topo"}]}
    loaded = recording.load(write(tmp_path / "n", manifest, **{"nvidia-smi-topo": "GPU0\n"}))
    seen = loaded.observations["nvidia-smi-topo"]
    assert (seen.outcome, seen.text, seen.rc) == (Outcome.OK, "GPU0\n", 0)
    assert loaded.when is None


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        ("", "not JSON"),
        ("[" * 100000, "not JSON"),
        ("[]", "does not say"),
        ('{"schema": "nodedoctor.report/1", "probes": []}', "does not say"),
        ('{"schema": "nodedoctor.snapshot/1"}', "no list of probes"),
        ('{"schema": "nodedoctor.snapshot/1", "probes": [3]}', "names a probe None"),
        ('{"schema": "nodedoctor.snapshot/1", "probes": [{"name": "../../etc/passwd"}]}', "names a probe"),
        ('{"schema": "nodedoctor.snapshot/1", "probes": [{"name": "a"}]}', "is not there"),
        (
            '{"schema": "nodedoctor.snapshot/1", "probes": [{"name": "a", "outcome": "fine"}]}',
            "unknown outcome",
        ),
    ],
)
def test_a_broken_manifest_is_refused_in_one_line(tmp_path, manifest, says):
    with pytest.raises(recording.SnapshotError, match=says) as caught:
        recording.load(write(tmp_path / "n", manifest))
    assert "\n" not in str(caught.value)


def archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("manifest.json", '{"schema": "nodedoctor.snapshot/1", "probes": [{"name": "a"}]}')
        for name, data in members.items():
            file.writestr(name.replace("__", "/"), data)
    return path


@pytest.mark.parametrize("name", ["../evil", "probes__..__..__evil", "__etc__passwd", "a\\..\\b"])
def test_an_archive_cannot_name_paths_outside_its_folder(tmp_path, name):
    with pytest.raises(recording.SnapshotError, match="outside its folder"):
        recording.load(archive(tmp_path / "x.zip", **{name: "x"}))


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        with file.open("manifest.json", "w") as member:
            member.write(b'{"schema": "nodedoctor.snapshot/1", "probes": [{"name": "a"}]}')
        with file.open("probes/a.txt", "w", force_zip64=True) as member:
            for _ in range(64):
                member.write(bytes(1024 * 1024))
    with pytest.raises(recording.SnapshotError, match="would unpack to"):
        recording.load(path)


def test_a_bomb_that_lies_about_its_size_is_cut_short(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "LARGEST", 1000)
    path = archive(tmp_path / "x.zip", probes__a={"x": 1} and "y" * 5000)
    lie = path.read_bytes().replace((5000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    path.write_bytes(lie)
    with pytest.raises(recording.SnapshotError):
        recording.load(path)


def test_other_files_are_not_recordings(tmp_path):
    for name, data in {"text": b"hello", "empty": b"", "cut.zip": b"PK\x03\x04" + bytes(50)}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(recording.SnapshotError, match="not a recorded node"):
            recording.load(tmp_path / name)
    with pytest.raises(recording.SnapshotError, match="No such file"):
        recording.load(tmp_path / "absent")


def test_a_fifo_or_a_link_in_a_directory_is_refused_not_waited_for(tmp_path):
    folder = write(tmp_path / "n", {"schema": "nodedoctor.snapshot/1", "probes": [{"name": "a"}]})
    os.mkfifo(folder / "probes" / "a.txt")
    with pytest.raises(recording.SnapshotError, match="regular"):
        recording.load(folder)
    (folder / "probes" / "a.txt").unlink()
    (folder / "probes" / "a.txt").symlink_to("/etc/passwd")
    with pytest.raises(recording.SnapshotError):
        recording.load(folder)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)
entries = st.dictionaries(
    st.sampled_from(["name", "outcome", "rc", "seconds", "argv", "note", "truncated"]),
    json_values | st.sampled_from(["a", "ok", "missing"]),
)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "schema": st.just(recording.SCHEMA) | json_values,
            "probes": st.lists(entries, max_size=3) | json_values,
        },
        optional={"when": json_values, "options": json_values, "hostname": json_values},
    )
)
def test_any_manifest_loads_or_is_refused(manifest):
    texts = {"manifest.json": json.dumps(manifest), "probes/a.txt": "text"}
    try:
        loaded = recording._unpack(texts.get)
    except recording.SnapshotError:
        return
    assert all(isinstance(seen, Observation) for seen in loaded.observations.values())


def test_a_name_twice_is_refused(tmp_path):
    twice = {"schema": "nodedoctor.snapshot/1", "probes": [{"name": "env"}] * 2}
    folder = write(tmp_path / "n", twice, env="x")
    with pytest.raises(recording.SnapshotError, match="names 'env' twice"):
        recording.load(folder)
    path = tmp_path / "twice.zip"
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in ("one", "two"):
            archive.writestr("probes/env.txt", text)
    with pytest.raises(recording.SnapshotError, match=r"it holds 'probes/env\.txt' twice"):
        recording.load(path)


def test_every_read_is_charged(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "LARGEST_ALL", 5000)
    manifest = {"schema": "nodedoctor.snapshot/1", "probes": [{"name": f"p{i}"} for i in range(5)]}
    texts = {f"p{i}": "x" * 900 for i in range(5)}
    assert len(recording.load(write(tmp_path / "ok", manifest, **texts)).observations) == 5
    with pytest.raises(recording.SnapshotError, match="it holds more than"):
        recording.load(write(tmp_path / "n", manifest, **texts | {"p3": "x" * 1800}))
