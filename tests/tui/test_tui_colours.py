"""Colours that dark and light terminals both can show: yellow is a ground, no colour of letters."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from rich.style import Style

from nodedoctor.demo import folder
from nodedoctor.engine.session import Request, Session
from nodedoctor.tui.lines import detail, load
from nodedoctor.tui.screens import help, probes, steps
from nodedoctor.tui.state import State
from nodedoctor.tui.theme import DANGER, STYLE, is_light
from nodedoctor.tui.widgets.lines import strip

LETTERS = re.compile(r"(?<!on )\byellow\b")


def test_no_letters_are_yellow():
    styles = [*STYLE.values(), DANGER, *(style for _, style, _ in help.MEANING), *probes.STYLE.values()]
    assert not any(LETTERS.search(style) for style in styles)
    for module in (detail, load, probes, steps):
        source = Path(str(module.__file__)).read_text()
        assert not LETTERS.search(source), module.__name__


def test_what_a_step_interrupts_is_marked_in_a_colour_of_both():
    node = Path(folder("nvlinks-down"))
    state = State.of(asyncio.run(Session(Request(replay=node)).diagnosis().run()))
    result = next(one for one in state.report["results"] if one["check"] == "nvlink.links")
    paras = detail.detail(state, result, None, full=True)
    assert {para.style for para in paras if para.text.startswith("interrupts")} == {DANGER}


@pytest.mark.parametrize(
    ("said", "light"), [("0;15", True), ("15;0", False), ("0;default;15", True), ("", False)]
)
def test_a_terminal_that_says_so_is_light(said: str, light: bool):
    assert is_light({"COLORFGBG": said}) is light


def test_a_coloured_ground_ends_with_its_word():
    line = strip([("FAIL  ", STYLE[next(iter(STYLE))]), ("text", "")], 12, Style())
    assert [(segment.text, bool(segment.style and segment.style.bgcolor)) for segment in line][:2] == [
        ("FAIL", True),
        ("  ", False),
    ]
