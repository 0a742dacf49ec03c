"""Count names and sentences that a stranger cannot guess, room by room: `words.json` holds how many are left.

    words.py             rooms with their counts
    words.py ROOM        what is counted in a room, with its place
    words.py --write     lower the counts in words.json to those of now; a count never rises

A name counts if all its words are on the list (`told`, `_kept`), a sentence if it has one of the phrases.
Keys of documents and command lines are names that others rely on: fields of TypedDicts do not count.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[2]
COUNTS = Path(__file__).with_name("words.json")

ALONE_TEXT = """
said told seen heard kept taken named known held parted ended begun judged asked planned parsed
counted grown called listed lost gone left found given made meant settled placed drawn filled joined
turned cut apart ahead instead after keep ways well unopened stands alike anew whom talk tied odd
begun spoken unnamed agree of one each other whole even entered saw clear put say says hear
"""
ALONE = frozenset(ALONE_TEXT.split())
"""Words that say nothing alone: participles without their noun, adverbs, pronouns."""

PHRASES = re.compile(
    r"\b(?:told|untold|anew|stands?|stood|amiss|in vain|for good|for ever|whoever|whom|nobody|rightly"
    r"|for want of|of its own accord|hands? on|sent home|says? of (?:it|him)self|time and again)\b",
    re.IGNORECASE,
)
"""Words and phrases of docstrings, comments and pages that made readers stop; see docs/glossary.md."""


def room_of(path: Path) -> str:
    """The folder that a file is counted with: `nodedoctor/triage`, `checks/gpu`, `docs`."""
    parts = path.relative_to(TOP).parts
    return "/".join(parts[:2]) if parts[0] in ("nodedoctor", "checks") and len(parts) > 2 else parts[0]


def tracked_files() -> Iterator[Path]:
    """Files of the rooms: code of the package and its checks, and pages."""
    for folder in ("nodedoctor", "checks"):
        yield from sorted((TOP / folder).rglob("*.py"))
    yield from sorted((TOP / "docs").rglob("*.md"))
    yield from (TOP / "README.md", TOP / "CONTRIBUTING.md")


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that a module defines, with its line: functions, classes, arguments, variables, fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any("TypedDict" in ast.unparse(base) for base in node.bases):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    field.target.id = "key_of_a_document"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def words_of(name: str) -> list[str]:
    """The words of a name, in small letters."""
    return [word for word in re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().split("_") if word]


def sentences_of(text: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Docstrings, the strings below constants, and comments, with the lines they begin at."""
    for node in ast.walk(tree):
        text_alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if text_alone and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def remarks(path: Path) -> Iterator[tuple[str, int, str]]:
    """What counts in a file: `names` or `sentences`, the line and the words."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from (("sentences", text.count("\n", 0, m.start()) + 1, m[0]) for m in PHRASES.finditer(text))
        return
    tree = ast.parse(text)
    for line, name in sorted(set(defined_names(tree))):
        words = words_of(name)
        if words and ALONE.issuperset(words):
            yield "names", line, name
    for line, sentence in sentences_of(text, tree):
        yield from (("sentences", line, match[0]) for match in PHRASES.finditer(sentence))


def count_rooms() -> dict[str, dict[str, int]]:
    """How many names and sentences count in each room."""
    found: dict[str, Counter[str]] = {}
    for path in tracked_files():
        room = found.setdefault(room_of(path), Counter(names=0, sentences=0))
        room.update(kind for kind, _, _ in remarks(path))
    return {room: dict(counts) for room, counts in sorted(found.items())}


def main(words: list[str]) -> int:
    """Print or write the counts; 1 when one would rise."""
    counts = count_rooms()
    if words == ["--write"]:
        allowed = json.loads(COUNTS.read_text()) if COUNTS.exists() else counts
        risen = [
            room for room, now in counts.items() if any(now[k] > allowed.get(room, {}).get(k, 0) for k in now)
        ]
        if risen:
            print(f"more than before in {', '.join(risen)}", file=sys.stderr)
            return 1
        COUNTS.write_text(json.dumps(counts, indent=1) + "\n")
        return 0
    for path in tracked_files() if words else ():
        if room_of(path) in words:
            for kind, line, what in remarks(path):
                print(f"{path.relative_to(TOP)}:{line}: {kind}: {what}")
    if not words:
        print(
            "\n".join(
                f"{now['names']:5} names {now['sentences']:5} sentences  {room}"
                for room, now in counts.items()
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
