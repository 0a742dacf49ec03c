"""What a misspelt word was probably meant to be."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

COMMANDS = (
    "accept", "arm", "compare", "completion", "demo", "expect", "explain", "fleet", "history", "list", "mcp",
    "read", "run", "schema", "triage", "watch",
)  # fmt: skip
"""Words that are no checks when they come first."""


def suggest_word(word: str, names: Iterable[str], otherwise: str, prefix: str = "") -> str:
    """`did you mean ...?` for a misspelt word, or what is said where nothing is like it.

    A `prefix` that all words have, as `--`, makes none of them alike.
    """
    from difflib import get_close_matches

    close = get_close_matches(word.removeprefix(prefix), [name.removeprefix(prefix) for name in names], 3)
    return f"did you mean {' or '.join(prefix + match for match in close)}?" if close else otherwise
