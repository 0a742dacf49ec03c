"""Many small cases of one law in a single test.

For pytest and its workers each test costs about 3 ms, more than such a case takes. All cases are tried, and
each that failed is listed. They share the test's fixtures, so nothing that a case changes may be among these.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

OF_ONE_CASE = {"tmp_path", "monkeypatch", "caplog", "capsys", "capfd", "fake_nvml"}
"""Fixtures that one case would leave changed for the next one."""

Test = Callable[..., None]


def in_turn(
    names: str | Sequence[str],
    cases: Iterable[Any],
    ids: Sequence[str] | Callable[[Any], str] | None = None,
) -> Callable[[Test], Test]:
    """Try a test with each of these cases; takes what `pytest.mark.parametrize` takes."""
    arguments = [names] if isinstance(names, str) else list(names)
    listed = list(cases)
    assert listed, f"no case of {names}"

    def decorated(test: Test) -> Test:
        parameters = inspect.signature(test).parameters
        assert not OF_ONE_CASE & parameters.keys(), f"{test.__name__} changes a fixture"

        @functools.wraps(test)
        def tried(**others: Any) -> None:
            failures = []
            for number, case in enumerate(listed):
                values = (case,) if isinstance(names, str) else case
                try:
                    test(**dict(zip(arguments, values, strict=True)), **others)
                except (Exception, pytest.fail.Exception) as error:
                    label = ids(case) if callable(ids) else ids[number] if ids else repr(case)
                    failures.append(f"{', '.join(arguments)}: {label}\n{_explained(error)}")
            if failures:
                heading = f"{len(failures)} of {len(listed)} cases failed"
                pytest.fail("\n\n".join([heading, *failures]), pytrace=False)

        left = [parameter for name, parameter in parameters.items() if name not in arguments]
        tried.__signature__ = inspect.Signature(left)  # type: ignore[attr-defined]  # the fixtures pytest fills in
        return tried

    return decorated


def _explained(error: BaseException) -> str:
    """The error and where it was raised, without our own frame; an inner `in_turn` has listed its cases."""
    if isinstance(error, pytest.fail.Exception):
        return str(error)
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()
