"""Standard streams that are closed or full, and surroundings so bare that Python does not know itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from forked import nodedoctor_forked

from nodedoctor.cli.completion.vocabulary import vocabulary
from nodedoctor.cli.exit_codes import Exit
from nodedoctor.spelling import COMMANDS

REPOSITORY = Path(__file__).parents[2]
LOG = REPOSITORY / "tests" / "triage" / "lines.jsonl"
HEALTHY = REPOSITORY / "nodedoctor" / "demo" / "healthy"
UMASK = os.umask(0o022)
os.umask(UMASK)
OUTPUTS = (
    "doctor --text",
    "doctor --json",
    "doctor --summary",
    "demo",
    "demo healthy driver --text",
    f"expect --replay {HEALTHY}",
    "expect --keys",
    "schema report",
    "completion bash",
    "list checks",
    "list facts --json",
    "explain 79",
    f"compare {HEALTHY} {HEALTHY}",
    f"triage {LOG} --no-node",
    f"fleet --reports {REPOSITORY / 'tests' / 'frames' / 'triage.json'}",
    "--help",
    "--version",
    "fleet --help",
    "list checks --help",
)


def shell(words: str) -> subprocess.CompletedProcess[str]:
    line = f"exec {sys.executable} -m nodedoctor {words}"
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=120, cwd=REPOSITORY, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("words", OUTPUTS)
def test_what_cannot_be_written_is_74_and_one_line(words: str) -> None:
    for redirection, why in ((">&-", "Bad file descriptor"), ("> /dev/full", "No space left on device")):
        done = shell(f"{words} {redirection}")
        assert (done.returncode, done.stdout) == (Exit.OUTPUT, "")
        assert done.stderr == f"nodedoctor: cannot write the report: {why}\n"


@pytest.mark.slow
@pytest.mark.parametrize("words", OUTPUTS)
def test_a_stderr_that_nobody_hears_changes_nothing(words: str) -> None:
    heard = shell(words)
    for redirection in ("2>&-", "2> /dev/full", "<&- 2>&-"):
        done = shell(f"{words} {redirection}")
        assert (done.returncode, bool(done.stdout)) == (heard.returncode, True)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("redirection", ["2>&-", "2> /dev/full", "<&- >&- 2>&-"])
def test_a_complaint_that_nobody_hears_keeps_its_code(redirection: str) -> None:
    for words in ("--nonsense", "no.such", "--replay /no/such/node", "compare /no/such /no/such", "list"):
        assert shell(f"{words} {redirection}").returncode == Exit.USAGE


def test_a_python_that_does_not_know_itself_still_asks_the_node() -> None:
    """As with `env -i python3 ...`: without PATH, sys.executable is empty."""
    paths = f"{REPOSITORY}:{sysconfig.get_paths()['purelib']}"
    argv = ["python3", "-m", "nodedoctor", "--json", "limits"]
    done = subprocess.run(
        argv,
        executable=sys.executable,
        env={"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    report = json.loads(done.stdout)
    ours = [probe for probe in report["probes"] if probe["argv"][1:3] == ["-I", "-S"]]
    assert ours and {probe["outcome"] for probe in ours} == {"ok"}
    assert {"pass", "warn", "fail"} & {result["status"] for result in report["results"]}


@pytest.mark.parametrize("option", ["--html", "--junit", "--prometheus", "--record"])
def test_a_dash_is_no_file(option: str, tmp_path: Path) -> None:
    done = nodedoctor_forked("doctor", "--json", option, "-", cwd=tmp_path)
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (Exit.USAGE, "", [])
    assert done.stderr == (
        f"nodedoctor: {option}: '-' is not allowed, stdout has the report; use /dev/stdout\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_what_is_asked_for_on_stdout_comes_after_the_report(path: str) -> None:
    node = Path(__file__).parents[2] / "nodedoctor" / "demo" / "nvlinks-down"
    argv = [sys.executable, "-m", "nodedoctor", "--replay", str(node), "--summary", "--ticket", path]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    first, second, *_ = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (Exit.FAIL, "")
    assert "GPU 3 lost 2 NVLinks" in first and second.startswith("# ")
    with open("/dev/full", "w") as nowhere:
        full = subprocess.run(
            [*argv[:-1], "/dev/stderr"], stdout=subprocess.PIPE, stderr=nowhere, timeout=60, check=False
        )
    assert full.returncode == Exit.OUTPUT


@pytest.mark.parametrize(
    ("words", "meant"), [("flet", "fleet"), ("traige x.log", "triage"), ("demo helthy", "healthy")]
)
def test_a_misspelt_word_is_guessed(words: str, meant: str) -> None:
    done = nodedoctor_forked(*words.split())
    assert done.returncode == Exit.USAGE and f"did you mean {meant}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_every_command_is_known() -> None:
    assert set(COMMANDS) == {command.name for command in vocabulary().commands if command.name}


def test_what_names_people_is_for_its_owner_alone(tmp_path: Path) -> None:
    """A page, a ticket or a recording; what CI and node_exporter read is as the umask has it."""
    kept = tmp_path / "kept.html"
    kept.write_text("")
    kept.chmod(0o640)
    forms = ("html", "ticket", "junit", "prometheus")
    files = " ".join(f"--{form} {tmp_path / form}" for form in forms)
    for words in (files, f"--html {kept} --record {tmp_path / 'record'}"):
        assert nodedoctor_forked("demo", "healthy", "--json", *words.split()).returncode == 0
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    usual = 0o666 & ~UMASK
    assert modes == {
        "html": 0o600,
        "ticket": 0o600,
        "record": 0o600,
        "junit": usual,
        "prometheus": usual,
        "kept.html": 0o640,
    }
