"""The pages in a real Chromium: they fit a phone, copy, filter, print, and a large fleet opens at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, browser, missing
from pages import HOSTILE, bandwidth, fleet, hostile, triage

from nodedoctor.cli.compare import document_of
from nodedoctor.report import html
from nodedoctor.report.comparison import compare, heading
from nodedoctor.report.inert import inert

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(bool(missing()), reason=missing() or "all is here"),
]

DEMO = Path(__file__).parents[2] / "nodedoctor" / "demo"
SOON = 2.0  # seconds in which a fleet is to be there
WAIT = 10.0  # seconds for what takes a moment


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A window on a desk."""
    with browser(tmp_path_factory.mktemp("desk")) as window:
        yield window


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A phone, 360 px wide."""
    with browser(tmp_path_factory.mktemp("phone"), phone=360) as window:
        yield window


def sick() -> dict[str, Any]:
    document = document_of(DEMO / "nvlinks-down")
    document["facts"]["bandwidth"] = bandwidth(8, slow=(3, 5))
    return document


def comparison() -> str:
    before, after = document_of(DEMO / "healthy"), sick()
    return html.render_comparison(compare(before, after), heading(before), heading(after))


PAGES = {
    "report": lambda: html.render(sick()),
    "unseen": lambda: html.render(document_of(DEMO / "driver-mismatch")),
    "triage": lambda: html.render(triage()),
    "fleet": lambda: html.render(fleet(500)),
    "comparison": comparison,
    "hostile report": lambda: html.render(hostile(sick())),
    "hostile triage": lambda: html.render(hostile(triage())),
    "hostile fleet": lambda: html.render(hostile(fleet(40))),
}


def show(window: Browser, folder: Path, name: str) -> None:
    """Open a page from its file, everything unfolded."""
    file = folder / f"{name.replace(' ', '-')}.html"
    file.write_text(PAGES[name](), encoding="utf-8")
    window.said()
    window.open(file)


def unfold(window: Browser) -> None:
    window.run("for (const fold of document.querySelectorAll('details')) fold.open = true")


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_a_phone(phone: Browser, tmp_path: Path, name: str) -> None:
    show(phone, tmp_path, name)
    unfold(phone)
    wide, room = phone.run(
        "const page = document.documentElement; return [page.scrollWidth, page.clientWidth]"
    )
    assert room == 360 and wide <= room
    beyond = phone.run(
        "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll') &&"
        " e.getBoundingClientRect().right > 360.5).map(e => e.outerHTML.slice(0, 200))"
    )
    assert beyond == []


@pytest.mark.parametrize("name", PAGES)
def test_the_console_stays_silent(desk: Browser, tmp_path: Path, name: str) -> None:
    """No error, and nothing that the page's own policy had to refuse."""
    show(desk, tmp_path, name)
    unfold(desk)
    assert desk.said() == []
    assert desk.run("return performance.getEntriesByType('resource').length") == 0


def test_hostile_text_is_only_shown(desk: Browser, tmp_path: Path) -> None:
    show(desk, tmp_path, "hostile report")
    unfold(desk)
    assert desk.run("return document.scripts.length") == 1
    assert desk.run("return document.images.length") == 0
    text = desk.run("return document.body.textContent")
    assert all(inert(poison) in text for poison in HOSTILE)


def test_the_policy_refuses_what_is_not_ours(desk: Browser, tmp_path: Path) -> None:
    """Were something to slip through, the browser would not run it."""
    show(desk, tmp_path, "triage")
    desk.run(
        "const script = document.createElement('script'); script.textContent = 'window.ran = 1';"
        "document.body.append(script);"
        "const img = document.createElement('img'); img.src = 'https://nodedoctor.invalid/x';"
        "document.body.append(img)"
    )
    assert desk.run("return window.ran === undefined")
    refused = " ".join(desk.said())
    assert "script-src" in refused and "img-src" in refused


def said_by(window: Browser, selector: str, wanted: str) -> bool:
    """Whether a button comes to say something."""
    ends = time.monotonic() + WAIT
    while time.monotonic() < ends:
        if window.run("return document.querySelector(arguments[0]).textContent", selector) == wanted:
            return True
        time.sleep(0.05)
    return False


NO_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
FIRST = "#causes .command:first-of-type button"


@pytest.mark.parametrize("clipboard", ["granted", "denied", "absent"])
def test_a_command_is_copied_and_the_button_says_so(desk: Browser, tmp_path: Path, clipboard: str) -> None:
    """By the clipboard where there is one, by a selection where there is none (plain HTTP)."""
    show(desk, tmp_path, "report")
    if clipboard == "absent":
        desk.run(NO_CLIPBOARD)
    else:
        desk.devtools("Browser.setPermission", permission={"name": "clipboard-write"}, setting=clipboard)
    command = desk.run("return document.querySelector('#causes .command code').textContent")
    assert desk.run("return document.querySelector(arguments[0]).textContent", FIRST) == "copy"
    desk.click(FIRST)
    assert said_by(desk, FIRST, "copied")
    assert said_by(desk, FIRST, "copy")
    if clipboard != "granted":
        assert desk.run("return getSelection().toString()") == command
    desk.run(
        "const box = document.createElement('textarea'); box.id = 'paste'; document.body.prepend(box);"
        "box.focus()"
    )
    desk.type("#paste", "\ue009v\ue000")  # Control and v
    assert desk.run("return document.querySelector('#paste').value") == command


def test_where_nothing_can_be_copied_the_command_is_selected(desk: Browser, tmp_path: Path) -> None:
    show(desk, tmp_path, "report")
    desk.run(f"{NO_CLIPBOARD}; document.execCommand = () => false")
    desk.click(FIRST)
    assert said_by(desk, FIRST, "selected")
    command = desk.run("return document.querySelector('#causes .command code').textContent")
    assert desk.run("return getSelection().toString()") == command


def test_without_script_commands_are_text_and_nothing_is_lost(desk: Browser, tmp_path: Path) -> None:
    desk.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        show(desk, tmp_path, "report")
    finally:
        desk.devtools("Emulation.setScriptExecutionDisabled", value=False)
    assert desk.run("return document.querySelectorAll('button, input').length") == 0
    assert "nvidia-smi nvlink -s -i 3" in desk.run("return document.querySelector('#causes').innerText")


def test_the_filter_opens_what_it_finds_and_closes_it_again(desk: Browser, tmp_path: Path) -> None:
    show(desk, tmp_path, "report")
    shown = (
        "return [...document.querySelectorAll('#passed .item')]"
        ".filter(e => e.checkVisibility()).map(e => e.innerText)"
    )
    assert desk.run(shown) == []
    desk.type(".filter input", "memlock unlimited")
    (row,) = desk.run(shown)
    assert "limits.memlock" in row
    assert desk.run("return !document.querySelector('.problem').checkVisibility()")
    assert desk.run("return document.querySelector('.filter [role=status]').textContent").startswith("1 of ")
    desk.type(".filter input", "\ue00c")  # Escape
    assert desk.run(shown) == []
    assert desk.run("return document.querySelector('.problem').checkVisibility()")


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_words_can_be_read_by_day_and_by_night(
    desk: Browser, tmp_path: Path, scheme: str, dark: bool
) -> None:
    """Every status word stands out from the ground by 4.5 to 1 at least (WCAG 2.2, 1.4.3)."""
    desk.media(prefers_color_scheme=scheme)
    show(desk, tmp_path, "unseen")
    ground, *colours = desk.run(
        "const of = e => getComputedStyle(e).color.match(/\\d+/g).map(Number);"
        "const ground = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);"
        "const words = [...document.querySelectorAll('.word, .quiet, .label')];"
        "return [ground, of(document.body), ...words.map(of)]"
    )
    assert (luminance(ground) < 0.1) is dark
    for colour in {tuple(colour[:3]) for colour in colours}:
        light, deep = sorted((luminance(colour), luminance(ground)), reverse=True)
        assert (light + 0.05) / (deep + 0.05) >= 4.5, colour


def luminance(colour: Any) -> float:
    """The relative luminance of a colour, 0 to 1 (WCAG 2.2)."""
    parts = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_paper_has_the_problems_and_no_buttons(desk: Browser, tmp_path: Path) -> None:
    desk.media(media="print", prefers_color_scheme="dark")
    try:
        show(desk, tmp_path, "report")
        seen = "return [...document.querySelectorAll(arguments[0])].filter(e => e.offsetParent).length"
        assert desk.run(seen, "button") == desk.run(seen, "input") == 0
        assert desk.run(seen, "#causes .command") > 5 and desk.run(seen, "#problems pre") == 2
        assert desk.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    finally:
        desk.media(media="", prefers_color_scheme="light")


def test_five_hundred_nodes_open_at_once(desk: Browser, tmp_path: Path) -> None:
    show(desk, tmp_path, "fleet")
    took = desk.run(
        "const t = performance.timing; document.body.offsetHeight; return t.loadEventEnd - t.navigationStart"
    )
    assert 0 < took < SOON * 1000
    assert desk.run("return document.querySelectorAll('.checks tbody tr').length") > 10
