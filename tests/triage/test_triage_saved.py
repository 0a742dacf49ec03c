"""Our own documents are no logs: a saved verdict is shown again, and of others it is said what reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from say import caught, raised, steps

from nodedoctor.cli.exit_codes import Exit
from nodedoctor.triage.cli import main

LOGS = {
    "failure": (steps(1, 4) + raised(3, "ValueError: boom"), Exit.FAIL),
    "undetermined": (steps(1, 4) + caught(0), Exit.UNKNOWN),
    "clean": (steps(1, 40) + "Training completed\n", Exit.OK),
}


def save(folder: Path, capsys: pytest.CaptureFixture[str], text: str) -> Path:
    log = folder / "train.log"
    log.write_text(text)
    main([str(log), "--no-node", "--json"])
    path = folder / "verdict.json"
    path.write_text(capsys.readouterr().out)
    log.unlink()
    return path


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("form", ["as it was", "indented", "in one line"])
def test_a_saved_verdict_is_the_same_again(
    name: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, code = LOGS[name]
    path = save(tmp_path, capsys, text)
    document = json.loads(path.read_text())
    if form != "as it was":
        path.write_text(json.dumps(document, indent=2 if form == "indented" else None))
    assert main([str(path), "--json"]) == code
    assert json.loads(capsys.readouterr().out) == document
    assert main([str(path), "--text"]) == code
    page = capsys.readouterr().out
    assert document["cause"] in page
    assert document["headline"][1:30] in " ".join(page.split())


def test_it_needs_the_logs_for_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path, capsys, LOGS["failure"][0])
    for words in ([str(path), "--job", "7"], [str(path), "--node", str(path)], [str(path), str(path)]):
        assert main(words) == Exit.USAGE
        assert "a saved verdict" in capsys.readouterr().err


@pytest.mark.parametrize("share", [0.2, 0.5, 0.99])
def test_a_damaged_one_is_said_to_be_damaged(
    share: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path, capsys, LOGS["failure"][0])
    text = path.read_text()
    path.write_text(text[: int(len(text) * share)])
    assert main([str(path)]) == Exit.USAGE
    assert "cut off or damaged" in capsys.readouterr().err
    path.write_text(text.replace("triage/1", "triage/9", 1))
    assert main([str(path)]) == Exit.USAGE
    assert "another version" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("schema", "why"), [("report", "--node FILE"), ("fleet", "--node FILE"), ("pairs", "between nodes")]
)
def test_other_documents_are_no_logs(
    schema: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "node.json"
    path.write_text(
        json.dumps({"schema": f"nodedoctor.{schema}/1", "note": "RuntimeError: CUDA out of memory"})
    )
    assert main([str(path)]) == Exit.USAGE
    assert why in capsys.readouterr().err


def test_beside_logs_they_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path, capsys, LOGS["failure"][0])
    (tmp_path / "train.log").write_text(LOGS["clean"][0])
    assert main([str(tmp_path), "--no-node", "--json"]) == Exit.OK
    coverage = json.loads(capsys.readouterr().out)["coverage"]
    assert coverage["files"] == 1
    assert any(str(path) in note and "left out" in note for note in coverage["notes"])


def test_a_log_that_speaks_of_one_is_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text('wrote {"schema": "nodedoctor.triage/1"}\n' + LOGS["failure"][0])
    assert main([str(log), "--no-node", "--json"]) == Exit.FAIL
    assert json.loads(capsys.readouterr().out)["cause"] == "user_code_exception"
