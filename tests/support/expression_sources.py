"""All expressions of the project, and how each is used: from loaded modules and from their source."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
METHODS = {"search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split"}


def expressions() -> Iterator[tuple[Any, int, str, set[str]]]:
    """Those that are written down, and those that functions put together."""
    yield from written_expressions()
    yield from put_together()


def written_expressions() -> Iterator[tuple[Any, int, str, set[str]]]:
    """All that modules compile when they load, the signs of triage, and those that calls of `re` name."""
    compiled = _compiled()
    uses, names, inline = _source()
    readers = {reader[0].pattern for reader in _readers()}
    for (expression, flags), (path, line) in compiled.items():
        used = uses.get((path, names.get((path, line), "")), set())
        if expression in readers:
            used = {"match"}
        yield expression, flags, f"{path}:{line}", used or {"search"}
    for sign in _signs():
        yield sign.expression, 0, "triage.patterns.signs.SIGNS", {"search"}
    yield from inline


def put_together() -> Iterator[tuple[Any, int, str, set[str]]]:
    """What functions put together while they judge all cases of triage and all recorded nodes, and redact.

    What modules compile when they load is not among it: how that is used, their source tells.
    """
    written = {expression for expression, *_ in written_expressions()}
    found: dict[tuple[Any, int], tuple[str, set[str]]] = {}
    for text, as_bytes, flags, where, method in json.loads(_output(_JUDGE)):
        expression = text.encode("latin-1") if as_bytes else text
        if expression not in written:
            found.setdefault((expression, flags), (where, set()))[1].add(method)
    for (expression, flags), (where, used) in found.items():
        yield expression, flags, where, used - {"compile"} or {"search"}


def _signs() -> Any:
    return importlib.import_module("nodedoctor.triage.patterns.signs").SIGNS


def _readers() -> Any:
    return importlib.import_module("nodedoctor.triage.lines.prefixes")._READERS


_LIST = """
import importlib, json, os, pkgutil, re, sys
found = []
ours = lambda frame: os.path.relpath(frame.f_code.co_filename).startswith(("nodedoctor/", "checks/"))
def note(expression, flags):
    frame = sys._getframe(2)
    while frame and ours(frame) and frame.f_code.co_filename.endswith("nodedoctor/patterns.py"):
        frame = frame.f_back
    if frame and ours(frame):
        as_bytes = isinstance(expression, bytes)
        text = expression.decode("latin-1") if as_bytes else expression
        found.append((text, as_bytes, int(flags), os.path.relpath(frame.f_code.co_filename), frame.f_lineno))
real = re.compile
def compiled(expression, flags=0):
    if isinstance(expression, (str, bytes)):
        note(expression, flags)
    return real(expression, flags)
re.compile = compiled
import checks, nodedoctor
from nodedoctor import patterns
def later(expression, flags=0):
    note(expression, flags)
    return real(expression, flags)
patterns.regex = later
for package in (nodedoctor, checks):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
json.dump(found, sys.stdout)
"""


_JUDGE = """
import asyncio, json, os, re, sys
from pathlib import Path
found = set()
real = re._compile
def compiled(expression, flags):
    frame = sys._getframe(1)
    method, frame = frame.f_code.co_name, frame.f_back
    file = os.path.relpath(frame.f_code.co_filename)
    while file.endswith("nodedoctor/patterns.py"):
        frame = frame.f_back
        file = os.path.relpath(frame.f_code.co_filename)
    if isinstance(expression, (str, bytes)) and file.startswith(("nodedoctor/", "checks/")):
        as_bytes = isinstance(expression, bytes)
        text = expression.decode("latin-1") if as_bytes else expression
        found.add((text, as_bytes, int(flags), f"{file}:{frame.f_lineno}", method))
    return real(expression, flags)
re._compile = compiled
from nodedoctor.engine.session import Request, Session
from nodedoctor.redact.documents import redacted_triage
from nodedoctor.report.json import document
from nodedoctor.triage.verdict import document as triage_document
from nodedoctor.triage.job import examine_job
for path in sorted(Path("tests/triage/logs/cases").iterdir()):
    examined = examine_job([str(path)])
    redacted_triage(triage_document.make_document(examined.verdict, examined.lines.line_of))
for path in sorted(Path("tests/nodes").glob("*/manifest.json")):
    document(asyncio.run(Session(Request(replay=path.parent, redact=True)).diagnosis().run()))
json.dump(sorted(found), sys.stdout)
"""


def _output(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def _compiled() -> dict[tuple[Any, int], tuple[str, int]]:
    """What is compiled while all modules are loaded, in a process of its own, with the place of each."""
    return {
        (text.encode("latin-1") if as_bytes else text, flags): (path, line)
        for text, as_bytes, flags, path, line in json.loads(_output(_LIST))
    }


def _source() -> tuple[
    dict[tuple[str, str], set[str]], dict[tuple[str, int], str], list[tuple[Any, int, str, set[str]]]
]:
    """How names are used, by file; names of expressions, by line; expressions in calls of `re`."""
    uses: dict[tuple[str, str], set[str]] = {}
    names: dict[tuple[str, int], str] = {}
    inline: list[tuple[Any, int, str, set[str]]] = []
    for path in sorted([*(ROOT / "nodedoctor").rglob("*.py"), *(ROOT / "checks").rglob("*.py")]):
        tree, file = ast.parse(path.read_text()), str(path.relative_to(ROOT))
        looked_at: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                chosen = isinstance(node.value, ast.IfExp | ast.BoolOp)
                for name in ast.walk(node.value) if chosen else (node.value,):
                    if isinstance(name, ast.Name):
                        looked_at.add(id(name))
                        if node.attr in METHODS:
                            uses.setdefault((file, name.id), set()).add(node.attr)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for line in range(node.value.lineno, (node.value.end_lineno or 0) + 1):
                    if isinstance(node.targets[0], ast.Name):
                        names[file, line] = node.targets[0].id
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                of, pattern = node.func.value, node.args[0]
                named = isinstance(of, ast.Name) and of.id == "re" and isinstance(pattern, ast.Constant)
                if named and node.func.attr in METHODS:
                    assert isinstance(pattern, ast.Constant)
                    flags = _flags(node)
                    inline.append((pattern.value, flags, f"{file}:{node.lineno}", {node.func.attr}))
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in looked_at:
                uses.setdefault((file, node.id), set()).add("handed on")
    for (_, name), used in list(uses.items()):
        if not name.startswith("_"):  # other modules may use it otherwise
            used.add("handed on")
    return uses, names, inline


def _flags(call: ast.Call) -> int:
    """The flags in a call of `re`, by their names."""
    words = [node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute) and node.attr.isupper()]
    return sum(int(getattr(re, word)) for word in words if hasattr(re, word))
