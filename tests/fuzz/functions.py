"""The functions of the package that read text from outside, listed by their signatures alone."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nodedoctor

HOME = Path(nodedoctor.__file__).parent
READERS = (
    "blackbox",
    "children",
    "cli/arguments.py",
    "cli/compare.py",
    "declare",
    "engine",
    "expectations.py",
    "facts",
    "fleet",
    "input_files.py",
    "json_shapes.py",
    "lint",
    "nodeset.py",
    "pairs",
    "probes",
    "redact",
    "report",
    "triage",
    "spelling.py",
    "whole_numbers.py",
    "wording.py",
)
"""Rooms in which text is read that nodes, jobs, users or files have written."""
TEXT = ("str", "bytes", "bytes | bytearray", "str | None", "object", "Observation", "Observation | None")
LINES = ("list[str]", "Iterable[str]", "Sequence[str]", "tuple[str, ...]", "Iterable[bytes]")
PLACES = frozenset(
    [
        "argv",
        "base",
        "binary",
        "command",
        "cuda_home",
        "file",
        "folder",
        "folders",
        "given",
        "here",
        "libtorch_python",
        "net",
        "path",
        "paths",
        "place",
        "proc",
        "program",
        "python",
        "root",
        "script",
        "shim",
        "site_folders",
        "torch_folder",
        "words",
    ]
)
"""Names of parameters that say where something lies or what shall be done: no text to be read."""


class Reader(NamedTuple):
    """A public function whose first argument is text: its module, name, line, and required parameters."""

    module: str
    name: str
    line: int
    parameters: tuple[tuple[str, str], ...]

    @property
    def is_pure(self) -> bool:
        """Whether text is all that it needs."""
        return all(kind in (*TEXT, *LINES) and name not in PLACES for name, kind in self.parameters)

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself, without what decorates it."""
        found = getattr(importlib.import_module(self.module), self.name)
        return inspect.unwrap(found)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


def readers() -> Iterator[Reader]:
    """Every one of them, in the order of their files."""
    for room in READERS:
        place = HOME / room
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            inside = file.relative_to(HOME.parent).with_suffix("")
            module = ".".join(inside.parts).removesuffix(".__init__")
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    needed = required(node)
                    if needed and needed[0][1] in (*TEXT, *LINES) and needed[0][0] not in PLACES:
                        yield Reader(module, node.name, node.lineno, needed)


def required(node: ast.FunctionDef) -> tuple[tuple[str, str], ...]:
    """Names and annotations of the parameters that have no default."""
    usual = [*node.args.posonlyargs, *node.args.args]
    needed = usual[: len(usual) - len(node.args.defaults)]
    keyed = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    needed += [argument for argument, default in keyed if default is None]
    return tuple((one.arg, ast.unparse(one.annotation) if one.annotation else "") for one in needed)
