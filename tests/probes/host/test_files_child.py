"""The file-reading child on real trees: what it reads, what it could not, and that nothing stops it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from asking import write
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.children.programs import child
from nodedoctor.facts.files import Files, whole_number
from nodedoctor.model import Observation, Outcome, Unseen
from nodedoctor.probes.plain_json import dumps

PATIENCE = 60


def read(*args: str, root: Path | None = None) -> dict[str, Any]:
    place = ["--root", str(root)] if root else []
    done = subprocess.run(
        child("host/files", *place, *args), capture_output=True, timeout=PATIENCE, check=True
    )
    assert done.stderr == b""
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    device = tmp_path / "sys/devices/pci0/0000:01:00.0"
    write(device / "vendor", "0x10de\n")
    write(device / "config", bytes(range(256)) * 20)
    (tmp_path / "sys/bus").mkdir()
    (tmp_path / "sys/bus/one").symlink_to("../devices/pci0/0000:01:00.0")
    write(device / "pci_bus/x")
    write(tmp_path / "sys/devices/pci0/0000:02:00.0/vendor", "0x15b3\n")
    (tmp_path / "sys/bus/two").symlink_to("../devices/pci0/0000:02:00.0")
    return tmp_path


@pytest.mark.parametrize("each", [(), ("--each", "20")])
def test_reads_texts_links_bytes_names_and_stats(tree: Path, each: tuple[str, ...]):
    words = ["read:/sys/bus/*/vendor", "link:/sys/bus/*", "hex64:/sys/bus/*/config", "list:/sys/bus"]
    words += ["stat:/sys/bus/one", "statvfs:/sys"]
    found = read(*each, *words, root=tree)
    assert found["files"] == {"/sys/bus/one/vendor": "0x10de\n", "/sys/bus/two/vendor": "0x15b3\n"}
    assert found["links"]["/sys/bus/two"] == "../devices/pci0/0000:02:00.0"
    assert found["hex"] == {"/sys/bus/one/config": bytes(range(64)).hex()}
    assert found["lists"] == {"/sys/bus": ["one", "two"]}
    assert found["stats"]["/sys/bus/one"]["type"] == "dir"
    assert found["stats"]["/sys/bus/one"]["uid"] == os.getuid()
    assert found["statvfs"]["/sys"]["size_bytes"] > 0
    assert found["errors"] == {}


def test_a_component_after_a_glob_selects(tree: Path):
    found = read("hex:/sys/bus/*/pci_bus/../config", root=tree)
    assert list(found["hex"]) == ["/sys/bus/one/config"]
    assert len(found["hex"]["/sys/bus/one/config"]) == 2 * 4096


def test_what_cannot_be_read_has_its_reason(tree: Path):
    os.mkfifo(tree / "pipe")
    words = ["read:/gone", "read:/sys", "read:/pipe", "list:/sys/devices/pci0/0000:01:00.0/vendor"]
    found = read(*words, "read:/no/such/*/folder", "read:/sys/bus/*/no_such_file", root=tree)
    assert found["errors"] == {
        "/gone": "ENOENT",
        "/sys": "EISDIR",
        "/pipe": "EINVAL",  # a pipe is not opened: that would wait for a writer
        "/sys/devices/pci0/0000:01:00.0/vendor": "ENOTDIR",
        "/no/such": "ENOENT",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_is_denied_is_not_empty(tmp_path: Path):
    write(tmp_path / "closed/one", "x").parent.chmod(0)
    write(tmp_path / "secret", "x").chmod(0)
    found = read("read:/closed/*", "read:/secret", root=tmp_path)
    (tmp_path / "closed").chmod(0o700)
    assert found["errors"] == {"/closed": "EACCES", "/secret": "EACCES"}


def test_device_nodes_are_described_not_read():
    found = read("stat:/dev/null", "read:/dev/zero")
    assert (found["stats"]["/dev/null"]["type"], found["stats"]["/dev/null"]["device"]) == ("char", "1:3")
    assert found["errors"] == {"/dev/zero": "EINVAL"}


def test_links_stay_below_the_root(tmp_path: Path):
    write(tmp_path / "run/found", "inside")
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    (tmp_path / "up").symlink_to("../../../../../../../../../../etc/hostname")
    (tmp_path / "loop").symlink_to("/loop")
    write(tmp_path / "etc/hostname", "inside too")
    found = read("read:/var/run/found", "read:/up", "read:/loop", "link:/loop", root=tmp_path)
    assert found["files"] == {"/var/run/found": "inside", "/up": "inside too"}
    assert found["links"] == {"/loop": "/loop"}
    assert found["errors"] == {"/loop": "ELOOP"}


def test_any_bytes_survive(tmp_path: Path):
    write(tmp_path / "text", b"\x1b[2J\x00\xff\xfe\nlast")
    write(Path(os.fsdecode(bytes(tmp_path) + b"/d/\xff\x1b[31m")), "x")
    found = read("read:/text", "list:/d", "read:/d/*", root=tmp_path)
    assert found["files"] == {"/text": "\x1b[2J\x00\ufffd\ufffd\nlast", "/d/\ufffd\x1b[31m": "x"}
    assert found["lists"] == {"/d": ["\ufffd\x1b[31m"]}


def test_large_files_are_cut_and_say_so(tmp_path: Path):
    write(tmp_path / "large", "é" * 40_000)
    found = read("read:/large", root=tmp_path)
    assert found["files"]["/large"].rstrip("\ufffd") == "é" * 32_768
    assert found["errors"] == {"/large": "EFBIG"}


def test_the_document_is_bounded(tmp_path: Path):
    for number in range(100):
        write(tmp_path / f"d/{number:03}", "\x01" * 65_536)  # six bytes each in JSON
    found = read("read:/d/*", root=tmp_path)
    assert len(json.dumps(found)) < 4 * 1024 * 1024
    assert set(found["files"]) | set(found["errors"]) == {f"/d/{number:03}" for number in range(100)}
    assert found["errors"]["/d/099"] == "EFBIG"


def test_wrong_words_are_refused():
    done = subprocess.run(child("host/files", "eat:/etc/hostname"), capture_output=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert b"VERB:/PATH" in done.stderr


@contextmanager
def leased(*paths: Path) -> Iterator[None]:
    """Opening these files does not return: we hold a write lease on them and do not give it back."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # how the kernel asks the holder
    fds = [os.open(path, os.O_WRONLY) for path in paths]
    try:
        for fd in fds:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        pytest.skip("this file system has no leases")
    yield
    for fd in fds:
        os.close(fd)
    signal.signal(signal.SIGIO, before)


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Path]:
    """A file whose open does not return, in a folder like that of the kernel's adapters."""
    with leased(write(tmp_path / "class/mlx5_1/ports/1/state", "4: ACTIVE\n")):
        yield tmp_path


@pytest.mark.slow
def test_one_that_hangs_is_named_and_the_rest_reported(hanging: Path):
    for name in ("mlx5_0", "mlx5_1", "mlx5_2"):
        write(hanging / f"class/{name}/fw_ver", "28.1\n")
        write(hanging / f"class/{name}/ports/1/zlast", "1\n")
    write(hanging / "class/mlx5_0/ports/1/state", "1: DOWN\n")
    words = ["read:/class/*/fw_ver", "read:/class/*/ports/*/*", "read:/class/mlx5_1/ports/1/state"]
    found = read("--each", "3", *words, "statvfs:/", root=hanging)
    assert found["errors"] == {"/class/mlx5_1": "TIMEOUT", "/class/mlx5_1/ports/1/state": "TIMEOUT"}
    assert {f"/class/{name}/fw_ver" for name in ("mlx5_0", "mlx5_1", "mlx5_2")} <= set(found["files"])
    assert found["files"]["/class/mlx5_0/ports/1/state"] == "1: DOWN\n"
    assert "/" in found["statvfs"]


@pytest.mark.slow
def test_however_many_hang_the_rest_is_read(tmp_path: Path):
    files = [write(tmp_path / f"mount{number:02}", "x") for number in range(24)]
    dead = files[1:20:2]
    with leased(*dead):
        found = read("--each", "2", *(f"read:/{file.name}" for file in files), root=tmp_path)
    assert found["errors"] == {f"/{file.name}": "TIMEOUT" for file in dead}
    assert set(found["files"]) == {f"/{file.name}" for file in files if file not in dead}


def test_one_reader_reads_all_that_answers():
    """A fork for each path would cost a fast run a tenth of its time."""
    found = read("--each", "20", "link:/proc/self", "read:/etc/hostname", "list:/proc/self/task")
    assert found["lists"]["/proc/self/task"] == [found["links"]["/proc/self"]]


def test_what_is_left_behind_holds_none_of_our_pipes(hanging: Path):
    """Even when SIGKILL has no effect, for which os.kill is made to do nothing."""
    program = child("host/files")[-1]
    script = f"import os, runpy; os.kill = lambda *a: None; runpy.run_path({program!r}, run_name='__main__')"
    argv = [sys.executable, "-I", "-c", script, "--root", str(hanging), "--each", "0.3"]
    running = subprocess.Popen(
        [*argv, "read:/class/mlx5_1/ports/1/state"], stdout=subprocess.PIPE, start_new_session=True
    )
    answer: list[bytes] = []
    reader = threading.Thread(target=lambda: answer.append(running.stdout.read()), daemon=True)
    reader.start()
    assert running.wait(PATIENCE) == 0
    reader.join(PATIENCE)
    try:
        os.killpg(running.pid, 0)  # the reader is still there, waiting for the file
        assert json.loads(answer[0])["errors"] == {"/class/mlx5_1/ports/1/state": "TIMEOUT"}
    finally:
        os.killpg(running.pid, signal.SIGKILL)


def test_a_reader_that_dies_is_a_crash(tmp_path: Path):
    """A reader that aborts stands for one that the kernel kills."""
    program = child("host/files")[-1]
    abort = "m['READERS']['read'] = ('files', lambda path: __import__('os').abort())"
    script = f"import runpy; m = runpy.run_path({program!r}); {abort}; m['main']()"
    write(tmp_path / "one", "x")
    argv = [
        sys.executable,
        "-I",
        "-c",
        script,
        "--root",
        str(tmp_path),
        "--each",
        "20",
        "read:/one",
        "list:/",
    ]
    done = subprocess.run(argv, capture_output=True, timeout=PATIENCE, check=True)
    found = json.loads(done.stdout)
    assert (found["errors"], found["lists"]) == ({"/one": "CRASH"}, {"/": ["one"]})


def test_files_reads_the_document(tree: Path):
    seen = Observation(
        "x", text=json.dumps(read("read:/sys/bus/*/vendor", "link:/sys/bus/*", "read:/no", root=tree))
    )
    files = Files.parse_json(seen)
    assert isinstance(files, Files)
    assert files.text("/sys/bus/one/vendor") == "0x10de"
    assert files.number("/sys/bus/one/vendor") == 0x10DE
    assert files.leaf("/sys/bus/two") == "0000:02:00.0"
    assert files.error("/no") == "ENOENT"
    assert files.children("/sys/bus") == ("one", "two")
    assert files.under("/sys/bus") == {"one/vendor": "0x10de", "two/vendor": "0x15b3"}
    assert (files.text("/never"), files.names("/never")) == (None, None)


def test_an_observation_without_an_answer_is_unseen():
    hung = Files.parse_json(Observation("pci", Outcome.TIMEOUT, note="no answer in 10 s"))
    assert isinstance(hung, Unseen)
    assert hung.reason == "timeout"
    assert Files.parse_json(Observation("pci", Outcome.MISSING)) != Files()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)
SECTIONS = st.sampled_from(["files", "links", "hex", "lists", "stats", "statvfs", "errors", "other"])


@given(st.text() | st.dictionaries(SECTIONS, JSON).map(json.dumps))
def test_any_text_is_files_or_unseen(text: str):
    files = Files.parse_json(Observation("x", text=text))
    if isinstance(files, Files):
        assert all(isinstance(value, str) for value in [*files.files.values(), *files.errors.values()])
        for path in [*files.files, *files.hex, "/"]:
            files.text(path), files.number(path), files.under(path), files.children(path)


@given(st.text())
def test_whole_numbers_never_raise(text: str):
    assert whole_number(text) is None or isinstance(whole_number(text), int)


@pytest.mark.parametrize(
    ("text", "number"), [("12", 12), ("0x10de", 0x10DE), ("-1", -1), ("1.5", None), ("9" * 30, None)]
)
def test_whole_numbers(text: str, number: int | None):
    assert whole_number(text) == number


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(values)
def test_plain_json_is_json(value):
    assert json.loads(dumps(value)) == value
    assert dumps(value).isascii() and "\n" not in dumps(value)
