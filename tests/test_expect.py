"""What a healthy node has, written down, holds for its sisters and fails on a sick one."""

import json
import re
from pathlib import Path

import pytest
from test_plugins import nodedoctor

from nodedoctor.expect import KEYS, ExpectError, expectations

NODES = Path(__file__).parent / "nodes"


def statuses(*words):
    done = nodedoctor("--json", *words)
    return done.returncode, {r["check"]: r["status"] for r in json.loads(done.stdout)["results"]}


def test_a_healthy_node_meets_its_own_expectations_and_a_sick_sister_does_not(tmp_path):
    written = nodedoctor("expect", "--replay", str(NODES / "h100-healthy"))
    assert written.stderr == ""
    model = tmp_path / "h100.expect"
    model.write_text(written.stdout)
    assert {"gpus": "8", "nvlinks": "18", "pcie": "5x16"}.items() <= expectations([str(model)]).items()
    code, own = statuses("--expect", str(model), "--replay", str(NODES / "h100-healthy"))
    assert (code, own["driver.gpus-present"], own["nvlink.links"]) == (0, "pass", "pass")
    code, sick = statuses("--expect", str(model), "--replay", str(NODES / "h100-off-the-bus"))
    assert (code, sick["driver.gpus-present"]) == (2, "fail")


def test_a_node_without_gpus_fails_where_gpus_are_expected():
    code, found = statuses("driver", "--replay", str(NODES / "cpu-only"))
    assert (code, found["driver.gpus-present"]) == (0, "skip")
    code, found = statuses("driver", "--replay", str(NODES / "cpu-only"), "--expect", "gpus=8")
    assert (code, found["driver.gpus-present"]) == (2, "fail")


def test_a_sick_node_is_no_model():
    done = nodedoctor("expect", "--replay", str(NODES / "h100-off-the-bus"))
    assert done.returncode == 2
    assert "not well" in done.stderr


def test_every_key_is_told():
    told = nodedoctor("expect", "--keys").stdout
    assert [line.split()[0] for line in told.splitlines()] == list(KEYS)


def test_words_and_files_in_order(tmp_path):
    file = tmp_path / "node"
    file.write_text("# a comment\n\ngpus = 8  # eight\ngpu=H100\n")
    assert expectations([str(file), "gpus=4"]) == {"gpus": "4", "gpu": "H100"}
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for words in (["gpuss=8"], [str(tmp_path / "absent")], [str(tmp_path / "binary")], [str(tmp_path)]):
        with pytest.raises(ExpectError):
            expectations(words)


def test_every_key_a_check_asks_for_is_known():
    checks = (Path(__file__).parent.parent / "checks").glob("*.py")
    asked = {key for path in checks for key in re.findall(r'expect\.get\("(\w+)"\)', path.read_text())}
    assert asked
    assert asked <= set(KEYS)
