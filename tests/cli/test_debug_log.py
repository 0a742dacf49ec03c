"""`--debug-log FILE`: what the engine did and passed over; nothing of it where it is not asked for."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nodedoctor.cli.exit_codes import Exit

LIVE = ("kernel", "limits", "--passive", "--json", "--exit-zero", "--deadline", "40")


def run(*words: str, code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    start = ["-c", code] if code else ["-m", "nodedoctor"]
    argv = [sys.executable, *start, *words]
    env = {**os.environ, **environment}
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, env=env, check=False)


def test_it_says_what_was_started_and_what_came_of_it(tmp_path: Path) -> None:
    file = tmp_path / "debug.log"
    assert run(*LIVE, "--debug-log", str(file)).returncode == Exit.OK
    log = file.read_text()
    started = dict(re.findall(r"child_process: (\S+) started as pid (\d+): .*nodedoctor/probes", log))
    answers = dict(re.findall(r"child_process: (\S+): (\w+), exit code -?\w+, after [\d.]+ s", log))
    assert {"kernel-log", "limits"} <= started.keys()
    assert answers.keys() >= started.keys()
    assert "Traceback" not in log
    assert re.search(r"run: limits\.\w+ judged in [\d.]+ ms", log)
    assert all(
        re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \d+ nodedoctor\.", line) for line in log.splitlines()
    )


NO_FORK_SERVER = """
import sys
from nodedoctor.children import fork_server
from nodedoctor.cli.main import main

fork_server.child = lambda *words, **_: ("/nonexistent/python",)
sys.exit(main())
"""


@pytest.mark.slow
def test_a_fork_server_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    file = tmp_path / "debug.log"
    done = run(*LIVE, "--debug-log", str(file), code=NO_FORK_SERVER)
    assert done.returncode == Exit.OK, done.stderr
    assert "no fork server: " in file.read_text()


WATCHED = """
import sys
from nodedoctor.cli.main import main

try:
    code = main()
except SystemExit as end:
    code = end.code
found = {"logging", "logging.handlers", "nodedoctor.cli.debug_log"} & sys.modules.keys()
print(sorted(found), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("words", "modules"),
    [
        (("--help",), []),
        (("demo", "healthy", "--json"), []),
    ],
)
def test_without_the_option_nothing_is_imported_for_it(words: tuple[str, ...], modules: list[str]) -> None:
    assert run(*words, code=WATCHED).stderr.splitlines()[-1] == repr(modules)


@pytest.mark.slow
def test_a_file_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    assert run(*LIVE, "--debug-log", str(tmp_path / "no" / "file")).returncode == Exit.USAGE
    done = run(*LIVE, "--debug-log", "/dev/full")
    assert done.returncode == Exit.OK
    assert "--debug-log /dev/full: No space left on device" in done.stderr
    assert done.stdout.startswith("{")


def test_a_file_system_that_never_answers_is_not_waited_for(tmp_path: Path) -> None:
    """A FIFO that nobody reads stands for a dead mount: opening it hangs, and its child is ended with us."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert run("demo", "healthy", "--json", "--debug-log", str(fifo)).returncode == Exit.OK
    until = time.monotonic() + 10  # a busy machine takes its time to carry out a SIGKILL
    while (left := _that_name(fifo)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left


def _that_name(path: Path) -> list[Path]:
    """The processes with this path among their arguments."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [file] if str(path).encode() in file.read_bytes() else []
    return found


@pytest.mark.slow
def test_a_fleet_says_what_came_from_each_node(tmp_path: Path) -> None:
    report = tmp_path / "gpu-1.json"
    report.write_text(run("demo", "healthy", "--json").stdout)
    (tmp_path / "gpu-2.json").write_text("no report")
    file = tmp_path / "debug.log"
    done = run("fleet", "--reports", str(tmp_path), "--json", "--exit-zero", "--debug-log", str(file))
    assert done.returncode == Exit.OK, done.stderr
    log = file.read_text()
    assert re.search(r"fleet\.gather: \S+ answered after [\d.]+ s$", log, re.MULTILINE)
    assert re.search(r"fleet\.gather: gpu-2 unreadable after [\d.]+ s: .*not a report", log)
    assert re.search(r"fleet\.gather: 2 nodes gathered in [\d.]+ s over reports", log)


def test_triage_says_what_each_file_was_read_as(tmp_path: Path) -> None:
    logs = tmp_path / "job.log"
    logs.write_text("Epoch 1\n" * 9)
    dump = tmp_path / "dump_0.json"
    dump.write_text('{"version": "2.4", "entries": []}')
    file = tmp_path / "debug.log"
    run("triage", "--json", "--no-node", str(logs), str(dump), "--debug-log", str(file))
    log = file.read_text()
    assert re.search(rf"triage\.read\.parallel: {logs} read as text in [\d.]+ s", log)
    assert re.search(rf"triage\.job: {dump} read as a dump in [\d.]+ s", log)
