"""Parsers whose answer is kept, because probes plan by the same observations that facts are made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

Parser = TypeVar("Parser", bound=Callable[..., Any])


def once(parse: Parser) -> Parser:
    """Parse the latest few observations once each; what is made of them is a value, and may be shared."""
    return cast(Parser, lru_cache(maxsize=4)(parse))
