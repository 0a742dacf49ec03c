"""Every shell block of README, site and CONTRIBUTING is run as it is printed, or says why not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_files import load

ROOT = Path(__file__).parents[2]
blocks = load("blocks")
KINDS = {"sh", "text", "python", "json"}
RUN = [page for page in blocks.pages() if any(block.kind == "sh" for block in blocks.to_run(page))]


def every() -> Iterator[blocks.Block]:
    for page in blocks.pages():
        yield from blocks.blocks(page)


def test_every_block_says_what_it_is_and_none_is_missed() -> None:
    for page in blocks.pages():
        text = page.read_text(encoding="utf-8")
        fences = re.findall(r"^[ ]*```", text, re.MULTILINE)
        found = list(blocks.blocks(page))
        assert len(fences) == 2 * len(found), page
        assert {block.kind for block in found} <= KINDS, page


def test_commands_are_in_shell_blocks() -> None:
    """Nothing that a reader would paste into a shell escapes by being called text."""
    for block in every():
        if block.kind == "text" and "--8<--" not in block.text:
            first = block.text.split(maxsplit=1)[0]
            assert first not in ("nodedoctor", "make", "python3", "sudo", "$"), (block.page, block.line)


def test_what_is_not_run_says_why() -> None:
    reasons = [(block.page, block.line, block.not_run) for block in every() if block.not_run]
    assert reasons
    assert [where for where in reasons if len(where[2].split()) < 3] == []


def test_suites_that_are_named_as_the_ones_that_run_it_exist() -> None:
    named = {path for block in every() for path in re.findall(r"tests/[\w/.]+\w", block.not_run)}
    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_an_output_that_a_page_shows_is_one_that_a_block_makes() -> None:
    for page in blocks.pages():
        shown = set(re.findall(r'--8<-- "([\w-]+)\.txt"', page.read_text(encoding="utf-8")))
        assert shown == {block.output for block in blocks.to_run(page) if block.output}, page


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    for block, code, output in blocks.run(blocks.to_run(page), tmp_path):
        assert code == block.exit, f"{page.name}:{block.line} ended with {code}\n{block.text}\n{output}"
