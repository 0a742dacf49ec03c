"""`triage --decide`: a line and an exit code, the list of nodes to leave out, reports as witnesses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from say import caught, raised, steps
from schemas import assert_fits_schema

from nodedoctor.cli.exit_codes import Exit
from nodedoctor.triage.cli import main

REPOSITORY = Path(__file__).parents[3]
NODES = REPOSITORY / "tests" / "nodes"
PREEMPTED = "slurmstepd: error: *** JOB 9 ON n020 CANCELLED AT 2026-11-07T10:48:10 DUE TO PREEMPTION ***\n"
LOST = "slurmstepd: error: *** JOB 9 ON n020 CANCELLED AT 2026-11-07T10:48:10 DUE TO NODE FAILURE ***\n"
LOST += "srun: error: Node failure on {host}\n"
TEXTS = {
    Exit.OK: steps(1, 40) + "Training completed\n",
    Exit.RESTART: steps(1, 40) + PREEMPTED,
    Exit.RESTART_WITHOUT: steps(1, 40) + LOST.format(host="n023"),
    Exit.STOP: steps(1, 4) + raised(3, "ValueError: boom"),
    Exit.LOOK: steps(1, 4) + caught(0),
}


def log(folder: Path, text: str) -> str:
    path = folder / "train.log"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("code", TEXTS, ids=lambda code: code.name)
def test_one_line_and_a_code(code: Exit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path, TEXTS[code])
    assert main([path, "--no-node", "--decide"]) == code
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and not out.startswith("\x1b")
    word = "none" if code is Exit.OK else code.name.lower().replace("_", "-")
    assert out.split(":")[0].split(" ")[0] == word
    assert main([path, "--no-node", "--decide", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert_fits_schema(document, "triage")
    assert document["decision"] == word
    assert out == document["decision_line"] + "\n"
    assert main([path, "--no-node", "--decide", "--text"]) == code
    assert f"decision {word}" in capsys.readouterr().out


def test_an_empty_log_is_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([log(tmp_path, ""), "--no-node", "--decide"]) == Exit.LOOK
    assert capsys.readouterr().out.startswith("look: undetermined/nothing_read")


def test_the_list_of_nodes_grows_from_try_to_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = tmp_path / "bad.txt"
    for host in ("n023", "n007", "n023"):
        path = log(tmp_path, steps(1, 9) + LOST.format(host=host))
        assert main([path, "--no-node", "--decide", "--exclude", str(listed)]) == Exit.RESTART_WITHOUT
    assert listed.read_text() == "n023\nn007\n"
    assert (
        main([log(tmp_path, TEXTS[Exit.STOP]), "--no-node", "--decide", "--exclude", str(listed)])
        == Exit.STOP
    )
    assert listed.read_text() == "n023\nn007\n"


def test_a_list_that_cannot_be_read_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path, TEXTS[Exit.RESTART_WITHOUT])
    assert main([path, "--no-node", "--decide", "--exclude", str(tmp_path)]) == Exit.OUTPUT
    captured = capsys.readouterr()
    assert captured.out == "" and str(tmp_path) in captured.err


@pytest.mark.parametrize(
    "words",
    [
        ["--live", "--decide"],
        ["x.log", "--exclude", "bad.txt"],
        ["x.log", "--decide", "--exclude", "b", "--redact"],
    ],
)
def test_words_that_do_not_go_together(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == Exit.USAGE
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1


def test_a_saved_verdict_is_decided_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for code, text in TEXTS.items():
        assert main([log(tmp_path, text), "--no-node", "--json"]) in (Exit.OK, Exit.FAIL, Exit.UNKNOWN)
        saved = tmp_path / "verdict.json"
        saved.write_text(capsys.readouterr().out)
        assert main([str(saved), "--decide"]) == code
        again = capsys.readouterr().out
        assert again == json.loads(saved.read_text())["decision_line"] + "\n"


def report(folder: Path, host: str, **cause: Any) -> Path:
    """A node's report with one cause or none."""
    from recorded import judgement

    from nodedoctor.report.json import document

    made = json.loads(json.dumps(document(judgement(next(NODES.glob("*/manifest.json")).parent).report)))
    made["node"]["hostname"] = host
    made["causes"] = [{**made_cause(), **cause}] if cause else []
    path = folder / f"{host}.json"
    path.write_text(json.dumps(made))
    return path


def made_cause() -> dict[str, Any]:
    return {
        "id": "gpu.lost@gpu:3",
        "reason": "GPU 3 fell off the bus",
        "schedulable": "no",
        "owner": "provider",
    }


def medium(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A saved verdict that names a node and is not sure."""
    main([log(folder, TEXTS[Exit.RESTART_WITHOUT]), "--no-node", "--json"])
    saved = folder / "verdict.json"
    saved.write_text(json.dumps({**json.loads(capsys.readouterr().out), "confidence": "medium"}))
    return saved


def test_reports_are_witnesses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = medium(tmp_path, capsys)
    reports = tmp_path / "reports"
    reports.mkdir()
    assert main([str(saved), "--decide"]) == Exit.LOOK
    well = report(reports, "n023")
    assert main([str(saved), "--decide", "--node", str(well)]) == Exit.LOOK
    assert main([str(saved), "--decide", "--reports", str(reports)]) == Exit.LOOK
    report(reports, "n023", schedulable="no")
    assert main([str(saved), "--decide", "--reports", str(reports)]) == Exit.RESTART_WITHOUT
    report(reports, "n023", schedulable="yes")
    assert main([str(saved), "--decide", "--reports", str(reports)]) == Exit.LOOK
    report(reports, "n023", schedulable="no", preview=True)
    assert main([str(saved), "--decide", "--reports", str(reports)]) == Exit.LOOK
    assert main([str(saved), "--decide", "--reports", str(tmp_path / "nowhere")]) == Exit.USAGE


def test_stand_ins_in_the_line_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path, TEXTS[Exit.RESTART_WITHOUT].replace("n023", "secretnode7"))
    assert main([path, "--no-node", "--decide", "--redact"]) == Exit.RESTART_WITHOUT
    line = capsys.readouterr().out
    assert "secretnode7" not in line and line.startswith("restart-without ")
    assert main([path, "--no-node", "--decide", "--redact", "--json"]) == Exit.RESTART_WITHOUT
    document = json.loads(capsys.readouterr().out)
    assert document["exclude"] == [document["culprits"][0]["host"]] != ["secretnode7"]
    assert document["kind"] == "peer_died/node_lost"
