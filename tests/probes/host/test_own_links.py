"""No link of another user is followed to where we write."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from forked import nodedoctor_forked

from nodedoctor.probes.own_links import followed

REPOSITORY = Path(__file__).parents[3]


def nodedoctor(*words: str, at: Path) -> subprocess.CompletedProcess[str]:
    return nodedoctor_forked(*words, cwd=at)


def test_our_own_links_are_followed(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "one").symlink_to("real")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    assert followed(str(tmp_path / "two/new/file")) == str(tmp_path.resolve() / "real/new/file")
    assert followed("/dev/stdout").startswith("/proc/self/fd/")
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="Too many levels"):
        followed(str(tmp_path / "round"))


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder in which another user has put links: to a file, and to a folder."""
    if os.geteuid() != 0:
        pytest.skip("only root can give links to somebody else")
    (tmp_path / "secret.conf").write_text("ours\n")
    (tmp_path / "victim").mkdir()
    for name, target in (("debug.log", "secret.conf"), ("jobs", "victim")):
        (tmp_path / name).symlink_to(target)
        os.chown(tmp_path / name, 1234, 1234, follow_symlinks=False)
    return tmp_path


def test_root_appends_no_debug_log_through_another_users_link(planted: Path):
    done = nodedoctor("limits", "--json", "--exit-zero", "--debug-log", "debug.log", at=planted)
    assert (planted / "secret.conf").read_text() == "ours\n"
    assert done.returncode == 0 and f"the link {planted}/debug.log belongs to uid 1234" in done.stderr


@pytest.mark.parametrize("folder", ["jobs", "jobs/below"])
def test_run_follows_no_folder_of_another_user(planted: Path, folder: str):
    done = nodedoctor("run", "--dir", folder, "--", "echo", "trained", at=planted)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert f"the link {planted}/jobs belongs to uid 1234; the job is started without" in done.stderr
    assert not list((planted / "victim").iterdir())
