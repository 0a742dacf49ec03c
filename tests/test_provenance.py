"""Every recorded node says where it comes from, and a recording of a recording keeps that."""

import asyncio
import json
import re
from pathlib import Path

import jsonschema
from in_turn import in_turn

from nodedoctor.demo import DEMOS, folder
from nodedoctor.engine import recording
from nodedoctor.engine.session import Request, Session
from nodedoctor.report import json as report_json

SCHEMA = json.loads((Path(report_json.__file__).parent / "schemas" / "snapshot.schema.json").read_text())
NODES = sorted((Path(__file__).parent / "nodes").glob("*/manifest.json"))
MANIFESTS = [*NODES, *(folder(name) / "manifest.json" for name in DEMOS)]


@in_turn("path", MANIFESTS, ids=lambda path: path.parent.name)
def test_a_recorded_node_says_where_it_comes_from(path):
    manifest = json.loads(path.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(manifest)
    assert manifest["provenance"] in ("real", "pasted", "synthetic")
    assert manifest["provenance"] == "real" or manifest["origin"]
    assert isinstance(manifest["hardware"], list)


@in_turn("path", MANIFESTS, ids=lambda path: path.parent.name)
def test_nvml_of_a_recorded_node_was_loaded_as_on_its_machine(path):
    """From where a stand-in lay while the node was made is no fact of the node."""
    nvml = path.parent / "probes" / "nvml.txt"
    text = nvml.read_text() if nvml.exists() else ""
    assert not re.findall(r'"library": "(?!/usr/|lib)[^"]*"', text)


def test_a_live_recording_is_real(tmp_path):
    async def run():
        session = Session(Request(words=("host.hugepages",)))
        diagnosis = session.diagnosis()
        await diagnosis.run()
        session.close()
        return session.recording(diagnosis)

    path = tmp_path / "node.zip"
    path.write_bytes(asyncio.run(run()))
    seen = recording.load(path)
    assert seen.provenance == "real" and seen.hardware


def test_a_recording_of_a_recording_keeps_its_provenance(tmp_path):
    async def run():
        session = Session(Request(replay=folder("healthy")))
        diagnosis = session.diagnosis()
        await diagnosis.run()
        return session.recording(diagnosis)

    path = tmp_path / "node.zip"
    path.write_bytes(asyncio.run(run()))
    assert recording.load(path).about == recording.load(folder("healthy")).about
    assert recording.load(path).provenance == "synthetic"


def test_a_manifest_may_say_nothing_or_nonsense(tmp_path):
    for told in ({}, {"provenance": "rumour", "hardware": [1], "origin": None}):
        manifest = {"schema": "nodedoctor.snapshot/1", "probes": [], **told}
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        assert recording.load(tmp_path).provenance is None
