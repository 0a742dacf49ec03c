"""What a healthy node has, written down, holds for its sisters and fails on a sick one."""

import json
import re
from pathlib import Path

import pytest
from test_plugins import nodedoctor

from nodedoctor.engine.plugins import discover
from nodedoctor.expectations import KEYS, ExpectError, checks_for, expectations
from nodedoctor.model import Expect

NODES = Path(__file__).parents[1] / "nodes"


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
    assert "has problems" in done.stderr


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


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--tag", "nvlink"], ["limits"], ["--tag", "fast", "doctor"]])
def test_an_expectation_brings_its_checks_along(words):
    for expected in ("gpus=8", "gpu=H100", "driver=570", "nvlinks=18", "pcie=5x16"):
        code, found = statuses(*words, "--expect", expected, "--replay", str(NODES / "cpu-only"))
        assert (code, list(found.values()).count("fail")) == (2, 1), expected
    code, found = statuses(*words, "--expect", "gpus=0", "--replay", str(NODES / "cpu-only"))
    assert (code, found["driver.gpus-present"]) == (0, "skip")


def test_what_cannot_be_seen_is_not_absent():
    """No probe of the target Python is in this recording."""
    words = ("doctor", "--replay", str(NODES / "cpu-only"), "--expect", "torch=yes", "--expect", "ib=8x400")
    code, found = statuses(*words)
    assert (code, found["stack.torch-driver"], found["ib.ports"]) == (0, "unknown", "unknown")


def test_a_recording_is_held_to_what_was_expected_of_it(tmp_path):
    kept = str(tmp_path / "node.zip")
    first = nodedoctor("--json", "limits", "--expect", "ib=64", "--record", kept)
    again = nodedoctor("--json", "limits", "--replay", kept)
    assert (first.returncode, again.returncode) == (2, 2)
    assert json.loads(again.stdout)["results"] == json.loads(first.stdout)["results"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "word",
    ["gpus=abc", "gpus=", "gpus=-1", "pcie=5", "ib=8 x400", "driver=x", "torch=no", "gpu="],
)
def test_a_value_that_means_nothing_is_a_usage_error(word, tmp_path):
    file = tmp_path / "node"
    file.write_text(word)
    for given in (word, str(file)):
        done = nodedoctor("--json", "--expect", given)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (64, "", 1)
        assert f"--expect {word}: not valid" in done.stderr


@pytest.mark.slow
def test_what_a_node_says_of_itself_can_be_expected():
    """Whatever is recorded: the model of a node is understood, and the node is what it says."""
    for node in sorted(path for path in NODES.iterdir() if (path / "manifest.json").exists()):
        written = nodedoctor("expect", "--replay", str(node)).stdout
        lines = [line.partition("#")[0].strip() for line in written.splitlines()]
        own = expectations(line for line in lines if line)
        assert dict(line.split("=", 1) for line in lines if line) == own


def test_who_judges_an_expectation_asks_for_it():
    by_id = {check.id: check for check in discover().checks.values()}
    for key in KEYS:
        for check in checks_for({key: ""}):
            assert Expect in [need.cls for need in by_id[check].needs()], (key, check)
    assert checks_for({"nonsense": "1"}) == frozenset()


def test_every_key_a_check_asks_for_is_known():
    checks = (Path(__file__).parents[2] / "checks").rglob("*.py")
    asked = {key for path in checks for key in re.findall(r'expect\.get\("(\w+)"\)', path.read_text())}
    assert asked
    assert asked <= set(KEYS)
