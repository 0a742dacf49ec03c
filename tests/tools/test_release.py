"""`make release` on a clone: what it refuses, what it changes, and that it pushes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FIRST = "0.1.0"
CHANGES = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n\n## [0.1.0] - 2026-01-02\n\n- First.\n"


def git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@example")
    done = subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with what a release touches, and its first release."""
    folder = tmp_path_factory.mktemp("origin")
    for name in ("Makefile", "tools/release/cut.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "nodedoctor").mkdir()
    (folder / "nodedoctor" / "__init__.py").write_text(f'"""Doc."""\n\n__version__ = "{FIRST}"\n')
    (folder / "CHANGELOG.md").write_text(CHANGES)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "First")
    git(folder, "tag", "v0.1.0")
    return folder


@pytest.fixture
def clone(origin: Path, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "--quiet", str(origin), "clone")
    for key, value in (("user.name", "a"), ("user.email", "a@example")):
        git(tmp_path / "clone", "config", key, value)
    return tmp_path / "clone"


def release(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # The tests may be run by make themselves, with options and ARGS of their own.
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "ARGS"))
    }
    asked = ["make", "release", *words]
    return subprocess.run(asked, cwd=clone, env=ours, capture_output=True, text=True, timeout=60)


def state(folder: Path) -> tuple[str, ...]:
    return git(folder, "rev-parse", "HEAD"), git(folder, "tag"), git(folder, "status", "--porcelain")


@pytest.mark.parametrize("dry", ["--dry-run", "ARGS=--dry-run"])
def test_a_dry_run_says_what_it_would_do_and_does_nothing(clone: Path, dry: str) -> None:
    before = state(clone)
    done = release(clone, "VERSION=0.2.0", dry)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing is in the way of 0.2.0" in done.stdout and "tag v0.2.0" in done.stdout
    assert state(clone) == before


@pytest.mark.slow
def test_a_release_is_dated_committed_and_tagged_and_stays_here(clone: Path, origin: Path) -> None:
    there = state(origin)
    done = release(clone, "VERSION=0.2.0")
    assert (done.returncode, done.stderr) == (0, "")
    assert state(origin) == there
    assert git(clone, "describe") == "v0.2.0" and git(clone, "status", "--porcelain") == ""
    assert '__version__ = "0.2.0"\n' in (clone / "nodedoctor" / "__init__.py").read_text()
    assert "## [Unreleased]\n\n## [0.2.0] - 20" in (clone / "CHANGELOG.md").read_text()
    cut = ["python3", "tools/release/cut.py", "0.2.0"]
    assert subprocess.run([*cut, "--released"], cwd=clone).returncode == 0
    notes = subprocess.run([*cut, "--notes"], cwd=clone, capture_output=True, text=True).stdout
    assert notes.strip() == "### Added\n\n- A thing."
    again = release(clone, "VERSION=0.2.0")
    assert again.returncode != 0 and "the tag v0.2.0 exists" in again.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("version", "spoil", "said"),
    [
        ("0.2", "true", "expected three numbers"),
        ("v0.2.0", "true", "expected three numbers"),
        ("0.1.0", "true", "the tag v0.1.0 exists"),
        ("0.0.9", "true", "older than the tag v0.1.0"),
        ("0.2.0", "echo x >> CHANGELOG.md", "not clean"),
        ("0.2.0", "touch new", "not clean"),
        ("0.2.0", "git checkout -q -b other", "releases are made on main"),
        (
            "0.2.0",
            "sed -i '/Added/d; /A thing/d' CHANGELOG.md && git commit -qa -m x",
            "nothing under [Unreleased]",
        ),
        (
            "0.2.0",
            "echo '## [0.2.0] - 2026-02-03' >> CHANGELOG.md && git commit -qa -m x",
            "has a section",
        ),
        ("0.2.0", "echo > nodedoctor/__init__.py && git commit -qa -m x", "no single line"),
    ],
)
def test_what_is_in_the_way_is_said_and_nothing_is_done(
    clone: Path, version: str, spoil: str, said: str
) -> None:
    subprocess.run(["sh", "-c", spoil], cwd=clone, check=True)
    before = state(clone)
    done = release(clone, f"VERSION={version}")
    assert done.returncode != 0 and said in done.stderr
    assert state(clone) == before


def test_a_tree_that_is_not_the_release_is_refused_by_the_workflow(clone: Path) -> None:
    cut = ["python3", "tools/release/cut.py", "0.2.0", "--released"]
    done = subprocess.run(cut, cwd=clone, capture_output=True, text=True)
    assert done.returncode == 1 and "not 0.2.0" in done.stderr and "[Unreleased]" in done.stderr


def test_the_version_is_in_one_place() -> None:
    import nodedoctor

    files = git(ROOT, "ls-files", "*.py", "*.toml", "*.yml", "*.yaml", "Makefile", ":!tests").splitlines()
    line = f'version__ = "{nodedoctor.__version__}"'
    holding = [name for name in files if (ROOT / name).exists() and line in (ROOT / name).read_text()]
    assert holding == ["nodedoctor/__init__.py"]


def test_the_workflow_publishes_without_a_password_and_only_what_was_tested() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert all(set(jobs[name]["needs"]) == {"test", "build"} for name in ("publish", "attach"))
    assert "password" not in text.replace("no password", "") and "secrets." not in text
    assert "nodedoctor.pyz" in jobs["attach"]["steps"][-1]["run"]
