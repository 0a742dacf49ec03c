"""As root, no program of another user is run because PATH leads to it; for others PATH stays as it is."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from nodedoctor.children import child_process, fork_server, programs, search_path
from nodedoctor.declare.registry import Command
from nodedoctor.model import Outcome

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")
THEM = 4321


def planted(folder: Path, name: str = "a-tool-of-nobody") -> Path:
    folder.mkdir()
    tool = folder / name
    tool.write_text(f"#!/bin/sh\nid -u >{folder}/ran\necho found\n")
    tool.chmod(0o755)
    return folder


def answer(path: str, monkeypatch, name: str = "a-tool-of-nobody"):
    monkeypatch.setenv("PATH", path)
    return asyncio.run(child_process.run("tool", Command((name,)), 10))


@as_root
@pytest.mark.parametrize("how", ["owner", "everybody", "sticky", "relative"])
def test_a_folder_of_others_is_not_searched(tmp_path, monkeypatch, how):
    folder = planted(tmp_path / "theirs")
    if how == "owner":
        os.chown(folder, THEM, THEM)
    if how == "everybody":
        folder.chmod(0o777)
    if how == "sticky":  # root's own programs are safe there, but anybody may put one beside them
        folder.chmod(0o1777)
    monkeypatch.chdir(folder)
    path = f"{'' if how == 'relative' else folder}:{os.environ['PATH']}"
    seen = answer(path, monkeypatch)
    assert seen.outcome is Outcome.MISSING
    assert not (folder / "ran").exists()
    assert "as root these folders of PATH are not searched" in seen.note
    said = {
        "owner": f"belongs to uid {THEM}",
        "everybody": str(folder),
        "sticky": "add",
        "relative": "absolute",
    }
    assert said[how] in seen.note


@as_root
def test_the_next_folder_of_root_is_searched(tmp_path, monkeypatch):
    theirs, ours = planted(tmp_path / "theirs"), planted(tmp_path / "ours")
    os.chown(theirs, THEM, THEM)
    seen = answer(f"{theirs}:{ours}:{os.environ['PATH']}", monkeypatch)
    assert (seen.outcome, seen.text) == (Outcome.OK, "found\n")
    assert (ours / "ran").exists()
    assert not (theirs / "ran").exists()


@as_root
def test_what_root_does_not_search_is_still_known_to_children(tmp_path, monkeypatch):
    folder = planted(tmp_path / "theirs")
    os.chown(folder, THEM, THEM)
    path = f"{folder}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    environment = programs.environment()
    assert environment["NODEDOCTOR_CALLER_PATH"] == path
    assert str(folder) not in environment["PATH"].split(":")


def test_a_folder_that_gives_no_answer_is_left_out(tmp_path, monkeypatch):
    """As one on a dead mount: the look at it ends in time, and the folders before it are known."""
    monkeypatch.setattr(search_path, "_PROGRAM", tmp_path / "hangs.py")
    monkeypatch.setattr(search_path, "NEXT_S", 0.5)
    (tmp_path / "hangs.py").write_text("import time; print('0 yes', flush=True); time.sleep(60)\n")
    found = search_path._judge_folders("/usr/bin:/dead", root=True)
    assert found.folders == "/usr/bin"
    assert "/dead gave no answer" in found.left_out


@as_root
def test_the_fork_server_looks_as_a_child_of_its_own_does(tmp_path, monkeypatch):
    """What it starts searches the same folders, and the reasons are the same."""
    theirs, ours = planted(tmp_path / "theirs"), planted(tmp_path / "ours")
    os.chown(theirs, THEM, THEM)
    path = f"{theirs}:relative:{ours}:{tmp_path}/none:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    server = fork_server.ForkServer()
    told = search_path.search_path()
    (tmp_path / "told.py").write_text(
        "import os\ndef main():\n"
        "    for name in ('PATH', 'NODEDOCTOR_CALLER_PATH', 'LC_ALL'):\n        print(os.environ[name])\n"
    )

    async def ask():
        program = Command((sys.executable, "-I", "-S", str(tmp_path / "told.py")))
        running = await child_process.start("told", program, server)
        assert isinstance(running, child_process.Running)
        seen = await running.answer(20)
        running.close()
        return seen

    seen = asyncio.run(ask())
    assert server.asked == 1
    server.close()
    search_path._known.clear()
    assert search_path.search_path() == told
    assert str(theirs) in " ".join(told.left_out) and str(ours) in told.folders.split(":")
    assert seen.text.splitlines() == [told.folders, path, "C.UTF-8"]


@as_root
def test_a_server_that_says_nothing_of_path_leaves_the_usual_folders(monkeypatch):
    monkeypatch.setenv("PATH", "/some/where:/usr/bin")
    monkeypatch.setattr(search_path, "FIRST_S", 0.3)
    (folders, telling) = search_path.look_for_us()
    assert folders[:2] == ("/some/where", "/usr/bin")
    found = search_path.search_path()
    os.close(telling)
    assert found.folders.split(":")[0] == "/usr/bin" and "/some/where gave no answer" in found.left_out


def test_another_user_s_path_stays_as_it_is():
    found = search_path._judge_folders("/one::/usr/sbin", root=False)
    assert found.folders == "/one::/usr/sbin:/usr/local/sbin:/sbin"
    assert not found.left_out
