"""Options of a child program without argparse, whose import takes as long as a typical program runs."""

from __future__ import annotations

import sys


def options(usage: str | None, **defaults: str) -> tuple[dict[str, str], list[str]]:
    """Read `--name VALUE` pairs before other words; prints the usage and exits 2 when they make no sense."""
    values, words = dict(defaults), sys.argv[1:]
    while words and words[0].startswith("--"):
        name = words[0][2:]
        if name not in values or len(words) < 2:
            sys.stderr.write(f"{usage}\n")
            sys.exit(2)
        values[name], words = words[1], words[2:]
    return values, words
