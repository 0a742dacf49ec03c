"""What scripts rely on, each promise in a process of its own."""

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from forked import nodedoctor_forked

from nodedoctor.cli.main import MODULES
from nodedoctor.cli.reference import SCHEMAS as DOCUMENTS
from nodedoctor.spelling import COMMANDS

REPOSITORY = Path(__file__).parents[2]
SCHEMAS = REPOSITORY / "nodedoctor" / "report"


def nodedoctor(*words, **more):
    if not more:
        return nodedoctor_forked(*words, cwd="/")
    settings = {"capture_output": True, "text": True, "timeout": 120, "cwd": "/", **more}
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **settings.pop("env", {})}
    argv = [sys.executable, "-m", "nodedoctor", *words]
    return subprocess.run(argv, env=environment, check=False, **settings)


@pytest.fixture(scope="module")
def live():
    return nodedoctor("--json")


def test_json_is_one_document_that_fits_its_schema_and_stderr_is_silent(live):
    assert live.stderr == ""
    report = json.loads(live.stdout)
    jsonschema.validate(report, json.loads(nodedoctor("schema", "report").stdout))
    assert [r["check"] for r in report["results"]] == sorted(r["check"] for r in report["results"])
    assert sum(report["counts"].values()) == len(report["results"])
    assert live.stdout.isascii()


def test_the_exit_code_is_that_of_the_verdict(live):
    statuses = {f["status"] for r in json.loads(live.stdout)["results"] for f in r["findings"]}
    assert (live.returncode == 2) == ("fail" in statuses)


def test_a_probe_that_broke_counts_in_the_exit_code(tmp_path):
    node = shutil.copytree(REPOSITORY / "nodedoctor" / "demo" / "healthy", tmp_path / "node")
    manifest = json.loads((node / "manifest.json").read_text())
    next(probe for probe in manifest["probes"] if probe["name"] == "driver-files")["outcome"] = "timeout"
    (node / "manifest.json").write_text(json.dumps(manifest))
    assert nodedoctor("--summary", "--replay", str(node)).returncode == 3


@pytest.mark.slow
def test_a_recording_replays_to_the_same_results(tmp_path):
    path = tmp_path / "node.zip"
    first = nodedoctor("--json", "--record", str(path), "--tag", "fast")
    again = nodedoctor("--json", "--replay", str(path), "--tag", "fast")
    assert first.stderr == again.stderr == ""
    before, after = json.loads(first.stdout), json.loads(again.stdout)
    assert after["results"] == before["results"]
    assert after["facts"] == before["facts"]
    assert after["node"] == before["node"]
    assert (after["started"], after["source"]) == (before["started"], "replay")
    assert again.returncode == first.returncode


def test_text_is_for_people_and_says_the_same(live):
    text = nodedoctor("-v").stdout
    for result in json.loads(live.stdout)["results"]:
        assert result["check"] in text
    assert "\x1b" not in text


def test_quiet_shows_only_problems():
    quiet = nodedoctor("--text", "-q", "doctor.plugins")
    assert "PASS  1 pass" in quiet.stdout
    assert "doctor.plugins" not in quiet.stdout


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no.such"], "no check or subject 'no.such'"),
        (["doctor.plugin"], "did you mean doctor.plugins"),
        (["--tag", "fats"], "did you mean fast"),
        (["--expect", "gpu=H100", "--expect", "drivr=570"], "did you mean driver"),
        (["--expect", "/no/such/file"], "/no/such/file"),
        (["--since", "yesterday"], "--since: expected"),
        (["--exec", "docker exec 'x"], "No closing quotation"),
        (["--since", "99999999999d"], "too far back"),
        (["--deadline", "0"], "--deadline"),
        (["--deadline", "soon"], "--deadline"),
        (["--replay", "/no/such/node"], "nodedoctor: /no/such/node: No such file or directory\n"),
        (
            ["--replay", str(REPOSITORY / "README.md")],
            "README.md: not a recorded node: `nodedoctor read /",
        ),
        (["--replay", "/etc/passwd"], "not a recorded node"),
        (["--checks", "/no/such/folder"], "no folder of checks"),
        (["--record", "/no/such/folder/x.zip"], "no folder /no/such/folder"),
        (["--nonsense"], "unknown option --nonsense; see"),
        (["--jsn"], "nodedoctor: unknown option --jsn; did you mean --json?\n"),
        (["fleet", "--jsn"], "unknown option --jsn; did you mean --json?\n"),
        (["triage", "--jsn=1", "x"], "unknown option --jsn; did you mean --json?\n"),
        (["--text=no"], "nodedoctor: --text: takes no value, not 'no' (see"),
        (["--fail-on"], "nodedoctor: --fail-on: needs a value (see"),
        ([str(REPOSITORY / "README.md")], "README.md: not a check: `nodedoctor read "),
        (
            [str(REPOSITORY / "nodedoctor" / "demo" / "healthy")],
            "not a check: it is a recorded node; `nodedoctor --replay /",
        ),
        (["--json", "--text"], "not allowed with"),
        (["list"], "missing: kind"),
        (["list", "everything"], "everything"),
        (["schema", "world"], "world"),
        (["explain", "qwertyuiop"], "qwertyuiop"),
    ],
)
def test_usage_errors_are_64_and_one_line(words, says):
    done = nodedoctor(*words)
    assert done.returncode == 64
    assert says in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_subjects_ids_and_tags_select():
    ids = [r["check"] for r in json.loads(nodedoctor("--json", "doctor").stdout)["results"]]
    assert ids == ["doctor.amd", "doctor.exhausted", "doctor.plugins", "doctor.waivers"]
    one = json.loads(nodedoctor("--json", "doctor.plugins").stdout)
    assert [r["check"] for r in one["results"]] == ["doctor.plugins"]
    assert one["probes"] == [] or {p["name"] for p in one["probes"]} <= {"waivers"}
    fast = json.loads(nodedoctor("--json", "--tag", "fast", "doctor").stdout)
    assert all("fast" in r["tags"] for r in fast["results"])


def test_every_command_has_a_module_and_a_name_that_no_check_may_have():
    elsewhere = {"demo", "explain", "list", "run", "schema"}
    assert {*MODULES} | elsewhere == {*COMMANDS}
    for module in MODULES.values():
        assert callable(importlib.import_module(module).main)


@pytest.mark.parametrize("kind", ["checks", "facts", "probes", "knowledge"])
def test_lists_fit_a_hundred_columns_and_have_every_row(kind: str):
    lines = nodedoctor("list", kind).stdout.splitlines()
    rows = json.loads(nodedoctor("list", kind, "--json").stdout)
    assert max(map(len, lines)) <= 100
    named = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert named == [row.get("id") or row["name"] for row in rows]
    words = " ".join(lines).split()
    told = " ".join(words)
    assert all(" ".join((row.get("title") or row["about"]).split()) in told for row in rows)


def test_schemas_are_schemas():
    for name in DOCUMENTS:
        jsonschema.Draft202012Validator.check_schema(json.loads(nodedoctor("schema", name).stdout))


def imported(words: list[str], heavy: set[str]) -> str:
    """Which of these modules a command has loaded by its end."""
    code = (
        "import sys\n"
        "from nodedoctor.cli.main import main\n"
        f"try: main({words})\n"
        "except SystemExit: pass\n"
        f"print(*sorted({heavy} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=60
    )
    return done.stderr.strip()


@pytest.mark.parametrize("words", [["--json"], ["--text"], ["--help"], ["--version"], ["list", "checks"]])
def test_headless_runs_import_no_screen_and_no_driver(words):
    chosen = ["doctor"] if words[0] in ("--json", "--text") else []
    assert imported([*words, *chosen], {"textual", "rich", "pynvml", "psutil", "sh", "torch"}) == ""


def test_a_replay_loads_no_event_loop():
    heavy = {"asyncio", "logging", "dataclasses", "inspect", "subprocess", "packaging.requirements"}
    assert imported(["demo", "healthy", "--json"], heavy) == ""


def test_a_reader_that_leaves_is_no_traceback():
    read, write = os.pipe()
    os.close(read)
    done = nodedoctor("--json", "doctor", capture_output=False, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.stderr == ""


def test_a_full_disk_is_said(tmp_path):
    with open("/dev/full", "w") as full:
        done = nodedoctor("--json", "doctor", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 74
    assert "No space left" in done.stderr
    done = nodedoctor("--json", "doctor", "--record", "/dev/full")
    assert done.returncode == 74
    assert "No space left" in done.stderr
    json.loads(done.stdout)


def test_a_folder_that_may_not_be_written_is_said(tmp_path):
    done = nodedoctor("--json", "doctor", "--record", "/proc/x.zip")
    assert done.returncode == 74
    assert "/proc/x.zip" in done.stderr
    json.loads(done.stdout)


def test_any_locale_prints(live):
    done = nodedoctor("--text", "doctor", env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_no_child(tmp_path, number, code):
    plugin = tmp_path / "slow.py"
    plugin.write_text(SLOW_PLUGIN.replace("PIDFILE", str(tmp_path / "pid")))
    argv = [sys.executable, "-m", "nodedoctor", "--json", "--checks", str(tmp_path), "slow.check"]
    run = subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    pidfile = tmp_path / "pid"
    while not (pidfile.exists() and pidfile.read_text().strip()):
        assert run.poll() is None, run.stderr.read()
        time.sleep(0.02)
    run.send_signal(number)
    out, err = run.communicate(timeout=30)
    assert (run.returncode, out, err) == (code, b"", b"")
    gone = Path(f"/proc/{pidfile.read_text().strip()}/stat")
    for _ in range(100):
        if not gone.exists() or gone.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.02)
    assert not gone.exists() or gone.read_text().rpartition(")")[2].split()[0] == "Z"


SLOW_PLUGIN = '''
"""A check whose probe takes a minute."""
from dataclasses import dataclass
from nodedoctor.model import Finding
from nodedoctor.declare.registry import Command, check, fact, probe

@probe("slow", timeout=60)
def slow(options):
    """Sleeps."""
    return Command(("sh", "-c", "echo $$ > PIDFILE; exec sleep 60"))

@fact("slow")
@dataclass(frozen=True)
class Slow:
    """Sleep."""
    @classmethod
    def parse(cls, seen):
        return cls()

@check("slow.check", "It is slow")
def slow_check(slow: Slow):
    """Sleeps."""
    yield Finding.ok("awake")
'''
