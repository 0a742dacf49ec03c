"""Every string that a person can read, with the place it is written at: the whole voice of the product.

From Python by its syntax tree: all literals with words, except docstrings (those of checks are printed by
`explain`), patterns, commands, comparisons and evidence. From tables: all values with words, except sources
and what is matched against logs. `{name}` is filled in at run time.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[2]

NOT_SPOKEN = ("nodedoctor/probes/", "nodedoctor/cli/completion/", "nodedoctor/redact/names.py")
"""Code whose strings are programs, protocols between processes and lists of names."""
NOT_READ = {
    "source",
    "sources",
    "pattern",
    "patterns",
    "match",
    "quote",
    "quotes",
    "lines",
    "as_of",
    "note_to_us",
}
"""Keys of tables that nobody is shown."""

_WORDS = re.compile(r"[A-Za-z]{2,}[,;:.)]* +\(?[a-z]{2,}|\{[^}]*\} [a-z]{2,}|[a-z]{3,}:? \{")
_PATTERN = re.compile(r"\\[dwsSbnDW]|\(\?[:P<!=i]|\[\^|\.\*|\$$|^\^")
_SENTENCES = re.compile(r"(?<=\n)  (?! )[^\n]*(?:\n  (?! )[^\n]*)*")
"""In tables of patterns (`nodedoctor/text_table.py`): what stands two blanks deep."""
_SILENT = frozenset(
    [
        "compile",
        "search",
        "match",
        "fullmatch",
        "sub",
        "findall",
        "finditer",
        "startswith",
        "endswith",
        "split",
        "partition",
        "rpartition",
        "removeprefix",
        "removesuffix",
        "find",
        "index",
        "replace",
        "strip",
        "get",
        "getLogger",
        "debug",
        "Evidence",
        "Command",
        "look",
        "keep",
        "repair",
        "last_resort",
    ]
)
"""Calls whose literals nobody reads: patterns, keys, commands, evidence."""


class Text(NamedTuple):
    """One string, where it is written and what it is (`title`, `about`, `text`, a key of a table)."""

    place: str
    kind: str
    text: str


def collect(top: Path = TOP) -> Iterator[Text]:
    """All strings under the package, the checks and the tables."""
    files = sorted([*top.glob("checks/**/*.py"), *top.glob("nodedoctor/**/*.py")])
    for file in files:
        name = file.relative_to(top).as_posix()
        if not name.startswith(NOT_SPOKEN):
            yield from of_code(file.read_text(), name)
    for file in sorted(top.glob("nodedoctor/knowledge/tables/*.json")):
        yield from of_table(json.loads(file.read_text()), file.relative_to(top).as_posix())


def of_code(code: str, name: str) -> Iterator[Text]:
    """The strings of one module, in the order of its lines."""
    tree = ast.parse(code)
    found: list[tuple[int, Text]] = []
    for node in _spoken(tree, _docstrings(tree)):
        text, kind = _rendered(node), "text"
        for sentence in _SENTENCES.findall(text) if text.startswith("\n") else ():
            found.append((node.lineno, Text(f"{name}:{node.lineno}", "sentence", " ".join(sentence.split()))))
        if _is_prose(text):
            found.append((node.lineno, Text(f"{name}:{node.lineno}", kind, text)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (call := _declaration(node)):
            place = f"{name}:{node.lineno}"
            if len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
                found.append((call.lineno, Text(place, "title", str(call.args[1].value))))
            found.append((node.lineno, Text(place, "about", ast.get_docstring(node) or "")))
    seen = {text.text for _, text in found if text.kind == "title"}
    yield from (
        text
        for _, text in sorted(found, key=lambda pair: pair[0])
        if text.kind == "title" or text.text not in seen
    )


def of_table(value: object, place: str, kind: str = "") -> Iterator[Text]:
    """The strings of one table, each under its path."""
    if isinstance(value, dict):
        named = value.get("name") or value.get("id") or value.get("code")
        here = f"{place}:{named}" if named is not None else place
        for key, item in value.items():
            if key not in NOT_READ:
                yield from of_table(item, here, key)
    elif isinstance(value, list):
        for item in value:
            yield from of_table(item, place, kind)
    elif isinstance(value, str) and _WORDS.search(value) and not value.startswith("http"):
        yield Text(place, kind, value)


def _docstrings(tree: ast.AST) -> set[ast.AST]:
    """Strings that stand alone: docstrings of modules, functions, classes and constants."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _spoken(node: ast.AST, quiet: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Literals in the order of the code, without those that are patterns, commands or compared."""
    if node in quiet and isinstance(node, (ast.Constant, ast.JoinedStr)):
        return
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node
        return
    if isinstance(node, ast.JoinedStr):
        yield node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and _added(node):
        yield node
        return
    if isinstance(node, ast.Compare):
        return
    if isinstance(node, ast.Call) and _called(node) in _SILENT:
        for child in (*node.args, *(k.value for k in node.keywords)):
            if not isinstance(child, (ast.Constant, ast.JoinedStr)):
                yield from _spoken(child, quiet)
        return
    for field, child in ast.iter_fields(node):
        if field in ("annotation", "returns", "slice", "bases"):
            continue
        for item in child if isinstance(child, list) else [child]:
            if isinstance(node, ast.JoinedStr):
                if isinstance(item, ast.FormattedValue):
                    yield from _spoken(item.value, quiet)
            elif isinstance(item, ast.AST):
                yield from _spoken(item, quiet)


def _added(node: ast.BinOp) -> bool:
    ends = (node.left, node.right)
    return all(
        isinstance(end, (ast.Constant, ast.JoinedStr)) or (isinstance(end, ast.BinOp) and _added(end))
        for end in ends
    )


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _declaration(node: ast.FunctionDef) -> ast.Call | None:
    calls = (item for item in node.decorator_list if isinstance(item, ast.Call))
    return next((call for call in calls if _called(call) == "check"), None)


def _rendered(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"{{{_expression(part)}}}"
            for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return _rendered(node.left) + _rendered(node.right)
    return "{...}"


def _expression(part: ast.AST) -> str:
    return ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else "..."


def _is_prose(text: str) -> bool:
    return bool(_WORDS.search(text)) and not _PATTERN.search(text) and "import " not in text


def main() -> int:
    """Print all strings, or those of the files whose path contains one of the words given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("where", nargs="*", help="only files whose path contains one of these")
    where = parser.parse_args().where
    last = ""
    for place, kind, text in collect():
        file = place.partition(":")[0]
        if where and not any(word in file for word in where):
            continue
        if file != last:
            print(f"\n== {file}")
            last = file
        print(f"{place[len(file) + 1 :]:>6} {'' if kind == 'text' else kind}| {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
