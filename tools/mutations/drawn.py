"""Change the judging core in one place at a time and see which changes no test notices.

    python tools/mutations/drawn.py --count 40 --seed 1 [FILE...]

A change that survives is a line that no test holds: a comparison turned, an `and` made an `or`, a `not` left
out, a number one larger, True made False. Files are changed in a copy of the repository. Each mutant is asked
of the tests of its own room first; only one that they miss is asked of the recorded nodes. Prints every
survivor with its place; exits with 1 when there is one, with 2 when the tests fail without any change.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from run import copy_tree

CORE = (
    "checks",
    "nodedoctor/engine/causes",
    "nodedoctor/declare/peers.py",
    "nodedoctor/triage/verdict/causes",
)
"""Where findings are judged, folded into causes, and where triage weighs."""
LIMIT_S = 300
"""Seconds for the tests of one mutant: a change that makes a loop endless counts as noticed."""
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


class Mutant(NamedTuple):
    """One change: the file, the line, and the line's expression before and after."""

    file: Path
    line: int
    before: str
    after: str
    text: str


def mutants(file: Path) -> Iterator[Mutant]:
    """Every change of one file; annotations, assertions and docstrings are no judgement."""
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    for node in judging(tree):
        for changed in changes(node):
            before, after = ast.unparse(node), ast.unparse(changed)
            whole = ast.get_source_segment(source, node)
            if whole is None or before == after:
                continue
            yield Mutant(file, node.lineno, before, after, placed(source, node, f"({after})"))


def judging(tree: ast.Module) -> Iterator[ast.expr]:
    """Expressions inside functions."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                yield from (
                    node
                    for node in ast.walk(statement)
                    if isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant)
                    and not isinstance(statement, ast.Assert | ast.FunctionDef)
                )


def changes(node: ast.expr) -> Iterator[ast.expr]:
    """What an expression becomes."""
    changed = copy.deepcopy(node)
    if isinstance(changed, ast.Compare) and len(changed.ops) == 1:
        changed.ops = [TURNED[type(changed.ops[0])]()]
        yield changed
    elif isinstance(changed, ast.BoolOp):
        changed.op = ast.Or() if isinstance(changed.op, ast.And) else ast.And()
        yield changed
    elif isinstance(changed, ast.UnaryOp) and isinstance(changed.op, ast.Not):
        yield changed.operand
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, bool):
        yield ast.Constant(not changed.value)
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, int):
        yield ast.Constant(changed.value + 1)


def placed(source: str, node: ast.expr, text: str) -> str:
    """The source with one expression replaced; columns count bytes."""
    lines = source.encode().splitlines(keepends=True)
    assert node.end_lineno is not None
    begin = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + (node.end_col_offset or 0)
    data = source.encode()
    return (data[:begin] + text.encode() + data[end:]).decode()


def rooms(file: Path, root: Path) -> list[list[str]]:
    """The tests to ask, one run after another: the folder that mirrors the file, then the recorded nodes."""
    inside = file.relative_to(root).parts
    folders = [root.joinpath("tests", *inside[int(inside[0] == "nodedoctor") : end]) for end in (-1, -2)]
    own = next((folder for folder in folders if folder.is_dir()), root / "tests")
    return [[str(own)], [str(root / "tests" / "test_nodes.py")]]


def noticed(root: Path, tests: list[str]) -> bool:
    """Whether a run of tests fails, or does not end."""
    asked = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not real and not slow",
    ]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "NODEDOCTOR_EXAMPLES": "10", "PYTHONPATH": str(root)}
    try:
        done = subprocess.run(
            [*asked, *tests],
            cwd=root,
            env=env,
            timeout=LIMIT_S,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> int:
    """Try the mutants that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "files", nargs="*", help="files or folders (default: checks, causes, triage's causes)"
    )
    parser.add_argument(
        "--count", type=int, default=40, help="how many, drawn at random (default 40; 0: all)"
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        copy_tree(root)
        paths = [root / name for name in arguments.files or CORE]
        files = sorted(file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path]))
        drawn = [mutant for file in files for mutant in mutants(file)]
        print(f"{len(drawn)} changes in {len(files)} files", flush=True)
        if arguments.count and arguments.count < len(drawn):
            drawn = random.Random(arguments.seed).sample(drawn, arguments.count)
        for tests in {tuple(tests): tests for mutant in drawn for tests in rooms(mutant.file, root)}.values():
            if noticed(root, tests):
                print(f"without any change these fail: {' '.join(tests)}")
                return 2
        survivors = 0
        for mutant in drawn:
            usual = mutant.file.read_text(encoding="utf-8")
            mutant.file.write_text(mutant.text, encoding="utf-8")
            caught = any(noticed(root, tests) for tests in rooms(mutant.file, root))
            mutant.file.write_text(usual, encoding="utf-8")
            survivors += not caught
            where = f"{mutant.file.relative_to(root)}:{mutant.line}"
            print(
                "noticed " if caught else "SURVIVED",
                where,
                f"{mutant.before}  ->  {mutant.after}",
                flush=True,
            )
        print(f"{len(drawn) - survivors} of {len(drawn)} noticed")
        return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
