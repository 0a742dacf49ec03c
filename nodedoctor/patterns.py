"""Regular expressions that are compiled when they are first used.

To compile one takes 0.1 to 1 ms. There are some two hundred, for kernel messages, credentials and pasted
outputs above all, of which a run on a healthy node uses a third: this takes 20 ms off the 250 ms of CPU of a
fast run. What nearly every run uses stays with `re.compile`.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, AnyStr, cast

mask_digits = partial(re.compile(r"\d+").sub, "0")
"""A text with 0 for each number: lines that differ in their numbers alone have one form."""


def regex(expression: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What `re.compile` returns, later."""
    return cast("re.Pattern[AnyStr]", _Later(expression, flags))


class _Later:
    """Takes the place of a pattern, and becomes as fast as one at its first use."""

    def __init__(self, expression: Any, flags: int) -> None:
        self._expression = expression
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # somebody looks for a mark or a protocol
            raise AttributeError(name)
        compiled = re.compile(self._expression, self._flags)
        for method in ("search", "match", "fullmatch", "findall", "finditer", "sub", "split"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)
