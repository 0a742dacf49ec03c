"""`--gate`: may new jobs start here? Its exit codes, their precedence, and the one line that it prints."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import recorded
from fakes.tree import nvidia_tree
from forked import nodedoctor_forked

from nodedoctor.cli.exit_codes import exit_code
from nodedoctor.declare.registry import Options
from nodedoctor.engine.session import Request, Session
from nodedoctor.report import gate
from nodedoctor.report import json as json_report
from nodedoctor.report.document import Report

REPOSITORY = Path(__file__).parents[2]
FOLDERS = (REPOSITORY / "nodedoctor" / "demo", REPOSITORY / "tests" / "nodes")
NODES = [file.parent for folder in FOLDERS for file in sorted(folder.glob("*/manifest.json"))]
SCHEMA = json.loads((REPOSITORY / "nodedoctor" / "report" / "schemas" / "report.schema.json").read_text())


def node(name: str) -> Path:
    return next(path for path in NODES if path.name == name)


def nodedoctor(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return nodedoctor_forked(*words, env={**os.environ, **(env or {})}, cwd="/")


def gated(folder: Path, preview: bool = False, **expect: str) -> Report:
    options = Options(passive=True, expect=expect)
    session = Session(Request(replay=folder, preview=preview, gate=True, options=options))
    return json_report.document(asyncio.run(session.diagnosis().run()))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("folder", NODES, ids=lambda folder: folder.name)
@pytest.mark.parametrize("preview", [False, True])
def test_the_checks_of_a_gate_say_what_all_checks_say(folder: Path, preview: bool):
    """What a gate leaves out changes nothing: the whole report gives the same answer."""
    whole = json_report.document(recorded.judged(folder, preview=preview))
    assert gate.gate_of(gated(folder, preview)) == gate.gate_of(whole)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("folder", NODES, ids=lambda folder: folder.name)
def test_a_gate_refuses_nothing_that_a_plain_run_passes(folder: Path):
    whole = json_report.document(recorded.judged(folder))
    told = gate.gate_of(whole)
    if exit_code(whole) == 0:
        assert told["exit"] != gate.REFUSE
    if told["exit"] == gate.REFUSE:
        assert exit_code(whole) == 2
    assert gate.render(whole, told).count("\n") == 1


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("healthy", 0, "PASS: new jobs may start here"),
        ("nvlinks-down", 2, "provider: GPU 3 lost 2 NVLinks; request a replacement"),
        ("h100-driver-hangs", 2, "administrator: the driver hangs"),
        ("h100-off-the-bus", 2, "GPU 5"),
        ("log-denied", 3, "UNKN: kernel."),
        ("container-lost-devices", 3, "UNKN: this container is unusable; the node was not judged"),
        ("h100-braked", 4, "GPU 3"),
        ("net-wrong-interface-name", 0, "PASS"),
        ("environment-of-six-mistakes", 0, "PASS"),
        ("raylet-1024-files", 0, "PASS"),
        ("stack-in-pieces", 0, "PASS"),
        ("h100-one-gpu-fails-three-programs", 0, "PASS"),
    ],
)
def test_exit_code_and_line(name: str, code: int, words: str):
    done = nodedoctor("--gate", "--replay", str(node(name)))
    assert (done.returncode, done.stderr) == (code, "")
    assert words in done.stdout and done.stdout.count("\n") == 1


def test_the_document_has_the_answer_and_fits_its_schema():
    done = nodedoctor("--gate", "--json", "--replay", str(node("nvlinks-down")))
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert document["gate"] == {"exit": 2, "word": "refuse", "causes": ["nvlink.links@gpu:3"]}
    assert done.returncode == 2
    plain = json.loads(nodedoctor("--json", "--replay", str(node("nvlinks-down"))).stdout)
    assert "gate" not in plain
    assert {r["check"] for r in document["results"]} < {r["check"] for r in plain["results"]}
    assert not {"env.lint", "stack.python", "kernel.oom"} & {r["check"] for r in document["results"]}


@pytest.mark.parametrize(
    "words",
    [
        ["--fail-on", "warn"],
        ["--fail-on=fail"],
        ["--exit-zero"],
        ["--summary"],
        ["--text"],
        ["-q"],
        ["--deep"],
        ["stack"],
    ],
)
def test_options_that_have_no_meaning_beside_it(words: list[str]):
    done = nodedoctor("--gate", "--replay", str(node("healthy")), *words)
    assert (done.returncode, done.stdout) == (64, "") and "--gate" in done.stderr


def test_what_is_expected_gates_and_what_is_in_preview_does_not(tmp_path: Path):
    healthy = node("healthy")
    for wanted in ({"gpus": "16"}, {"driver": "999"}, {"nvlinks": "99"}):
        assert gate.gate_of(gated(healthy, **wanted))["exit"] == gate.REFUSE, wanted
    seven = node("b200-seven-of-eight")
    assert gate.gate_of(gated(seven, preview=True))["causes"] == ["driver.board-complete"]
    assert gate.gate_of(gated(seven))["exit"] == gate.PASS


def _changed(report: Report, **changes: Any) -> Report:
    for result in report["results"]:
        for finding in result["findings"]:
            finding.update(changes)  # type: ignore[typeddict-item]
    return report


def test_waived_and_preview_findings_never_gate():
    report = gated(node("log-denied"))
    assert gate.gate_of(report)["exit"] == gate.UNJUDGED
    assert gate.gate_of(_changed(report, waived="until then"))["exit"] == gate.PASS
    sick = gated(node("nvlinks-down"))
    for cause in sick["causes"]:
        cause["preview"] = True
    assert gate.gate_of(sick)["exit"] == gate.PASS


def test_what_decides_goes_before_what_could_not_be_judged():
    report = gated(node("nvlinks-down"))
    unjudged = gated(node("log-denied"))
    report["results"] += unjudged["results"]
    assert gate.gate_of(report)["exit"] == gate.REFUSE
    report["causes"][0]["schedulable"] = "drain-when-idle"
    assert gate.gate_of(report)["exit"] == gate.UNJUDGED
    report["results"] = []
    assert gate.gate_of(report)["exit"] == gate.DRAIN_WHEN_IDLE


@pytest.mark.slow
@pytest.mark.parametrize("load", [0, 8])
def test_a_driver_that_hangs_is_a_verdict_also_under_load(tmp_path: Path, fake_nvml, load: int):
    nvidia_tree(tmp_path / "tree")
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
    try:
        env = fake_nvml({"init_hang": 1})
        done = nodedoctor("--gate", "--json", "--root", str(tmp_path / "tree"), env=env)
    finally:
        for one in busy:
            one.kill()
            one.wait()
    document = json.loads(done.stdout)
    (finding,) = next(r for r in document["results"] if r["check"] == "driver.answers")["findings"]
    assert finding["status"] == "fail" and "hangs" in finding["summary"]
    assert (done.returncode, document["gate"]["word"]) == (2, "refuse")
    asked = next(probe for probe in document["probes"] if probe["name"] == "nvml")
    assert asked["seconds"] >= 5


@pytest.mark.slow
def test_a_driver_that_answers_after_the_time_it_has_is_one_that_hangs(tmp_path: Path, fake_nvml):
    nvidia_tree(tmp_path / "tree")
    slow = fake_nvml({"init_delay_ms": 7000})
    done = nodedoctor("--gate", "--root", str(tmp_path / "tree"), env=slow)
    assert done.returncode == 2 and "the driver hangs" in done.stdout
    more = nodedoctor("--gate", "--root", str(tmp_path / "tree"), "--deadline", "60", env=slow)
    assert more.returncode != 2, more.stdout


def test_what_the_caller_may_not_use_says_nothing_of_the_node():
    script = 'ulimit -u 1 2>/dev/null; exec "$@"'
    argv = ["sh", "-c", script, "sh", sys.executable, "-m", "nodedoctor", "--gate"]
    if os.geteuid() == 0:  # root is held to no such limit
        argv = ["setpriv", "--reuid=65534", "--clear-groups", *argv]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode != 2, done.stdout + done.stderr
