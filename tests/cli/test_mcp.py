"""`nodedoctor mcp` over stdio, by the official client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from forked import nodedoctor_forked
from pastes import DMESG

from nodedoctor.agent.tools import LARGEST, TOOLS, Limits, Refused, bounded
from nodedoctor.json_shapes import Json

ROOT = Path(__file__).parents[2]
JOB = ROOT / "docs/examples/dead-job.log"
NAMED = {tool.name: tool for tool in TOOLS}


def asked(talk: Callable[[Any], Awaitable[Any]], *words: str) -> Any:
    client = pytest.importorskip("mcp", reason="nodedoctor[mcp] is not installed")
    from mcp.client.stdio import StdioServerParameters

    async def run() -> Any:
        start = StdioServerParameters(
            command=sys.executable, args=["-m", "nodedoctor", "mcp", *words], env={"PYTHONPATH": str(ROOT)}
        )
        async with client.Client(start) as session:
            return await talk(session)

    return asyncio.run(run())


@cache
def saved_report() -> str:
    return nodedoctor_forked("--replay", f"nodedoctor/demo/{DEMO}", "--json", cwd=ROOT).stdout


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All tools called once in one sitting."""
    folder = tmp_path_factory.mktemp("allowed")
    (folder / "dmesg.txt").write_text(f"root@gpu-a3-017:~# dmesg\n{DMESG}")
    (folder / "job.log").write_text(JOB.read_text())
    for name in ("one", "two"):
        (folder / f"{name}.json").write_text(saved_report())
    (folder / "way-out").symlink_to("/etc/passwd")

    async def talk(session: Any) -> dict[str, Any]:
        calls: dict[str, tuple[str, Json]] = {
            "diagnose": ("diagnose", {"checks": ["host"]}),
            "explain": ("explain", {"word": "nvlink.links"}),
            "triage": ("triage", {"paths": [str(folder / "job.log")]}),
            "read": ("read", {"paths": [str(folder / "dmesg.txt")]}),
            "fleet_reports": (
                "fleet_reports",
                {"paths": [str(folder / "one.json"), str(folder / "two.json")]},
            ),
            "outside": ("read", {"paths": ["/etc/passwd"]}),
            "link": ("read", {"paths": [str(folder / "way-out")]}),
            "option": ("diagnose", {"checks": ["--deep"]}),
            "command": ("diagnose", {"checks": ["fleet"]}),
            "nothing": ("launch", {}),
        }
        found: dict[str, Any] = {"tools": (await session.list_tools()).tools}
        for name, (tool, arguments) in calls.items():
            found[name] = await session.call_tool(tool, arguments)
        return found

    told: dict[str, Any] = asked(talk, "--allow", str(folder))
    return told


DEMO = "nvlinks-down"


@pytest.mark.slow
def test_the_tools_are_read_only_and_have_their_schemas(answers: dict[str, Any]):
    tools = {tool.name: tool for tool in answers["tools"]}
    assert set(tools) == {"diagnose", "explain", "triage", "read", "fleet_reports"}
    for name, tool in tools.items():
        assert tool.annotations.read_only_hint and tool.description
        assert (tool.output_schema is None) == (name == "explain")


@pytest.mark.parametrize(
    ("name", "schema"),
    [("diagnose", "report"), ("triage", "triage"), ("read", "read"), ("fleet_reports", "fleet")],
)
def test_each_answer_is_a_sentence_and_its_document(answers: dict[str, Any], name: str, schema: str):
    answer = answers[name]
    assert not answer.is_error
    sentence, _, document = answer.content[0].text.partition("\n")
    assert sentence and not sentence.startswith("{") and len(sentence) < 400
    assert json.loads(document) == answer.structured_content
    path = ROOT / f"nodedoctor/report/schemas/{schema}.schema.json"
    jsonschema.validate(answer.structured_content, json.loads(path.read_text()))


def test_what_is_wrong_is_the_first_line_and_names_are_replaced(answers: dict[str, Any]):
    assert "Xid 79" in answers["read"].content[0].text.partition("\n")[0]
    assert "gpu-a3-017" not in answers["read"].content[0].text
    assert answers["explain"].content[0].text.startswith("nvlink.links")


@pytest.mark.parametrize("name", ["outside", "link", "option", "command", "nothing"])
def test_what_is_not_allowed_is_refused(answers: dict[str, Any], name: str):
    assert answers[name].is_error
    assert "root:" not in answers[name].content[0].text


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read", {}),
        ("read", {"paths": "x"}),
        ("read", {"paths": [1]}),
        ("read", {"paths": ["-"]}),
        ("read", {"paths": ["a\0b"]}),
        ("read", {"paths": ["/allowed-not/x"]}),
        ("triage", {"paths": ["/allowed/../etc/passwd"]}),
        ("explain", {"word": "--help"}),
        ("explain", {}),
        ("diagnose", {"checks": ["run"]}),
    ],
)
def test_arguments_that_are_no_paths_or_words_are_refused(tool: str, arguments: Json):
    with pytest.raises(Refused):
        NAMED[tool].words(arguments, Limits(("/allowed",)))


def test_diagnose_is_always_passive():
    assert NAMED["diagnose"].words({}, Limits()) == ["--passive"]


def test_a_document_is_bounded_and_still_fits_its_schema():
    report = json.loads(saved_report())
    report["results"] = report["results"] * 50
    assert len(json.dumps(report)) > LARGEST
    cut = bounded(report)
    assert len(json.dumps(cut)) <= LARGEST
    jsonschema.validate(cut, json.loads((ROOT / "nodedoctor/report/schemas/report.schema.json").read_text()))


def test_without_the_package_it_says_what_to_install(tmp_path: Path):
    (tmp_path / "mcp.py").write_text("raise ImportError('none')")
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin"}
    argv = [sys.executable, "-m", "nodedoctor", "mcp"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 64 and "pip install 'nodedoctor[mcp]'" in done.stderr
