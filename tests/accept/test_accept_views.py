"""An acceptance on the screen, as text and as HTML: the same words, and nothing that a view obeys."""

from __future__ import annotations

import asyncio
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from forked import nodedoctor_forked
from hypothesis import given
from hypothesis import strategies as st
from measured_node import HEALTHY, disk_rates, make_node, steps
from shown_text import moves_no_cursor
from tuidriver import frame

from nodedoctor.report import html
from nodedoctor.report.accept_page import accept_page, accept_text
from nodedoctor.tui.app import NodeDoctor
from nodedoctor.tui.lines import accept
from nodedoctor.tui.screens.measured import MeasuredScreen
from nodedoctor.tui.state import Nothing

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["key", "title", "status", "lowest", "count", "why", "id", "hostname"]), inner
        )
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node with a slow pair of GPUs and a slow disk, of which not all was measured."""
    rates = {"bandwidth_deep": steps(slow_pair=345.0), "disk_rates": disk_rates(6.0, 6.0, 2.0)}
    return make_node(tmp_path_factory.mktemp("accept") / "node", **{**HEALTHY, **rates})


@pytest.fixture(scope="module")
def document(node: Path) -> dict[str, Any]:
    return json.loads(nodedoctor_forked("accept", "--json", "--replay", str(node)).stdout)


def words_of(shown: str) -> str:
    return " ".join(shown.split())


def test_all_views_show_all_of_the_page(document: dict[str, Any]):
    page = accept_page(document)
    facts = [page.headline, page.when, *(line for title, lines in page.lists for line in (title, *lines))]
    for rate in page.rates:
        facts += [rate.title, rate.why, rate.circumstances, *rate.figures]
    as_html = unescape(re.sub(r"<[^>]+>", " ", html.render(document)))
    rows = accept.rows(document)
    on_screen = [part for line in accept.head(document) for part, _ in line] + [row.name for row in rows]
    on_screen += [para.lead + para.text for row in rows for para in accept.page(document, row.key)]
    for view in (accept_text(document), as_html, " ".join(on_screen)):
        missing = [fact for fact in facts if words_of(fact) not in words_of(view)]
        assert missing == []
    assert {rate.status.value for rate in page.rates} == {"pass", "warn"}


def test_the_screen_opens_on_the_rates_and_shows_one(document: dict[str, Any]):
    async def scenario() -> None:
        app = NodeDoctor(Nothing(), measured=document)
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            assert isinstance(app.screen, MeasuredScreen)
            shown = frame(app)
            assert "WARN  slower than its peers" in shown and "345 GB/s" in shown
            await pilot.press("enter")
            await pilot.pause()
            assert "11% below its peers, lowest GPU 2->5" in frame(app)
            await pilot.press("escape", "c")
            assert app.copied == ["p2p (NV18)"]

    asyncio.run(scenario())


def test_a_page_is_written_and_a_saved_acceptance_is_shown_again(
    node: Path, document: dict[str, Any], tmp_path: Path
):
    saved, page = tmp_path / "accept.json", tmp_path / "accept.html"
    saved.write_text(json.dumps(document))
    first = nodedoctor_forked("accept", "--replay", str(node), "--html", str(page))
    again = nodedoctor_forked("accept", "--report", str(saved))
    assert (first.returncode, again.returncode) == (4, 4)
    # How long the judging took is another time each time.
    shown, written = (re.sub(r" in \d+ s\b", "", one) for one in (first.stdout, page.read_text()))
    assert shown == re.sub(r" in \d+ s\b", "", again.stdout)
    assert written == re.sub(r" in \d+ s\b", "", html.render(document))
    assert nodedoctor_forked("accept", "--report", str(saved), "--html", "/nowhere/x").returncode == 64


@given(st.dictionaries(st.sampled_from(["rows", "faults", "not_measured", "node", "exit", "status"]), VALUES))
def test_whatever_a_file_holds_is_shown_and_moves_no_cursor(document: dict[str, Any]):
    document = {**document, "schema": "nodedoctor.accept/1"}
    rows = accept.rows(document)
    paras = [para for row in rows for para in accept.page(document, row.key)]
    shown = [accept_text(document).replace("\n", ""), *(row.name + row.text for row in rows)]
    shown += [para.lead + para.text for para in paras]
    assert all(map(moves_no_cursor, shown))
    assert "<main>" in html.render(document)
