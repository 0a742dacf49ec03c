"""A redacted fleet names no node, and its nodes are judged and told apart as before."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from nodedoctor.cli.main import main as nodedoctor
from nodedoctor.demo import folder
from nodedoctor.fleet import document
from nodedoctor.fleet.cli import main

SCHEMA = json.loads((Path(document.__file__).parents[1] / "report/schemas/fleet.schema.json").read_text())
HOSTS = ("gpu-a3-017", "gpu-a3-018", "gpu-a3-019", "fs07.mlab.example")
NAMES = ("gpu-a3", "fs07", "mlab", "carol", "5f1c64d2")


@pytest.fixture
def reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    nodedoctor(["--replay", str(folder("driver-mismatch")), "--json"])
    printed = capsys.readouterr().out
    for place, host in enumerate(HOSTS):
        told = json.loads(printed)
        told["node"] |= {"hostname": host, "boot_id": f"5f1c64d2-0000-4000-8000-{place:012}"}
        finding = next(f for result in told["results"] for f in result["findings"] if f["status"] == "fail")
        finding["summary"] = f"{finding['summary']}, as on gpu-a3-018 in /home/carol/run"
        (tmp_path / f"{host}.json").write_text(json.dumps(told))
    (tmp_path / "gpu-a3-020.json").write_text("not a report of gpu-a3-020")
    return tmp_path


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", ["--json", "--text"])
def test_nobody_is_named(reports: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    page, failing = reports / "page.html", reports / "failing"
    asked = ["--reports", str(reports), form, "--html", str(page), "--failing", str(failing)]
    code = main([*asked, "--max-failing", "100%", "--redact"])
    shown = capsys.readouterr().out + page.read_text()
    assert code == 2
    assert [name for name in NAMES if name in shown] == []
    assert "node-1" in shown
    assert set(HOSTS) <= set(failing.read_text().split()), "schedulers need names"


def test_nodes_stay_apart(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--reports", str(reports), "--json"])
    plain = json.loads(capsys.readouterr().out)
    main(["--reports", str(reports), "--json", "--redact"])
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    assert {node["host"] for node in plain["nodes"]} >= set(HOSTS)
    assert len({node["host"] for node in found["nodes"]}) == len(plain["nodes"])
    for key in ("verdict", "counts", "schema"):
        assert found[key] == plain[key]
    assert [node["state"] for node in found["nodes"]] == [node["state"] for node in plain["nodes"]]


def test_reports_are_not_saved_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--ssh", "localhost", "--redact", "--save", str(tmp_path)]) == 64
    assert "--save" in capsys.readouterr().err
