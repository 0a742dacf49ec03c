"""A line ends between words: none that fits into a line is broken, on any page of any screen."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.pilot import Pilot
from tuidriver import drive, press

from nodedoctor.engine.session import Request, Session
from nodedoctor.tui.app import NodeDoctor
from nodedoctor.tui.theme import Para
from nodedoctor.tui.widgets.page import Page

DEMOS = Path(__file__).parents[2] / "nodedoctor" / "demo"
NODES = Path(__file__).parents[1] / "nodes"


def broken(para: Para, width: int) -> list[str]:
    """The words that lines of a paragraph break although a line has room for them."""
    lines = [parts[1][0] for parts in para.lines(width) if len(parts) > 1] if not para.parts else []
    found = []
    for above, below in pairwise(lines):
        if para.most or not above or not below or above.endswith(" ") or below.startswith(" "):
            continue
        word = above.rpartition(" ")[2] + below.partition(" ")[0]
        if word in para.text.split(" ") and cell_len(word) <= width - 2:
            found.append(word)
    return found


@given(
    st.text(st.sampled_from("ab-/.漢 "), max_size=120),
    st.integers(20, 60),
    st.booleans(),
    st.sampled_from(["", "1 look    $ "]),
)
def test_no_line_breaks_a_word_that_fits(text: str, width: int, verbatim: bool, lead: str):
    para = Para(text, lead, verbatim=verbatim)
    assert not broken(para, width)
    assert all(cell_len("".join(text for text, _ in parts).rstrip()) <= width for parts in para.lines(width))
    if verbatim:
        rest = text
        for lead_part, *shown in para.lines(width):
            line = "".join(text for text, _ in shown)
            assert rest.startswith(line)
            rest = rest[len(line) :]
            if cell_len(lead_part[0] + line) == width:  # of a full line the blanks at its end are left out
                rest = rest.lstrip(" ")
        assert not rest


@given(
    st.text(st.sampled_from("ab-/.漢 "), min_size=1, max_size=200),
    st.integers(20, 60),
    st.integers(1, 3),
    st.booleans(),
)
def test_a_text_cut_to_some_lines_shows_as_much_as_fits(text: str, width: int, most: int, verbatim: bool):
    """A long word behind a short one is cut, too: nothing comes of a line that shows only the short one."""
    whole = [line[1][0] for line in Para(text, "lead ", verbatim=verbatim).lines(width) if len(line) > 1]
    shown = [line[1][0] for line in Para(text, "lead ", verbatim=verbatim, most=most).lines(width)]
    assert len(shown) <= most and all(cell_len(line.rstrip()) <= width - 5 for line in shown)
    if len(shown) < len(whole):
        assert shown[-1].endswith(" ...") and cell_len(shown[-1]) > (width - 5) // 2 - 4


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (100, 30), (140, 40), (200, 60)])
@pytest.mark.parametrize("node", [*sorted(DEMOS.glob("*-*")), DEMOS / "healthy", NODES / "mi300x-not-judged"])
def test_no_page_of_a_node_breaks_a_word(node: Path, size: tuple[int, int]):
    found = []

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        for keys in ((), ("enter",), ("escape", "2"), ("3",), ("6",)):
            await press(*keys)(app, pilot)
            for page in app.screen.query(Page):
                if page.room:
                    found.extend(word for para in page._paras for word in broken(para, page.room.width))

    drive(Session(Request(replay=node)), act, size)
    assert not found
