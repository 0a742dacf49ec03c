"""The built site, opened from its folder in a real browser without a network: search, filters, pictures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, browser, missing

SITE = Path(__file__).parents[2] / "build" / "site"
PATIENCE = 60  # seconds; a hang guard

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if missing():
        pytest.skip(missing())
    if not (SITE / "index.html").exists():
        pytest.skip("no site: make site")
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def until(browser: Browser, script: str) -> Any:
    """What a script returns once it returns anything."""
    ends = time.monotonic() + PATIENCE
    while not (found := browser.run(script)):
        assert time.monotonic() < ends, script
        time.sleep(0.1)
    return found


def test_an_error_message_is_found_and_leads_to_its_check(chromium: Browser) -> None:
    chromium.open(SITE / "index.html")
    chromium.click(".md-search__input")
    chromium.type(".md-search__input", "couldn't communicate with the NVIDIA driver")
    links = "return [...document.querySelectorAll('.md-search-result__link')].map((link) => link.href)"
    found = until(chromium, f"const all = (() => {{ {links} }})(); return all.length ? all : null")
    assert any("checks/driver.answers.html" in link for link in found)


@pytest.mark.parametrize(
    ("page", "words", "left"),
    [
        ("xids", "fallen off bus", "79"),
        ("environment", "NCCL_P2P_DISABLE", "NCCL_P2P_DISABLE"),
        ("causes", "peer_died", "peer_died"),
    ],
)
def test_a_table_is_filtered_by_words(chromium: Browser, page: str, words: str, left: str) -> None:
    chromium.open(SITE / f"{page}.html")
    rows = until(
        chromium,
        f"""
        const box = document.querySelector(".table-filter");
        if (!box) return null;
        box.value = "{words}";
        box.dispatchEvent(new Event("input"));
        const rows = [...document.querySelector("table").tBodies[0].rows];
        return [rows.length, rows.filter((row) => row.offsetParent).map((row) => row.cells[0].textContent)];
        """,
    )
    assert left in rows[1] and len(rows[1]) < rows[0] / 4


@pytest.mark.parametrize("page", ["index", "fleets", "architecture", "checks/nvlink.links", "recipes/index"])
def test_a_page_fetches_nothing_from_elsewhere_and_every_picture_is_there(
    chromium: Browser, page: str
) -> None:
    chromium.open(SITE / f"{page}.html")
    until(chromium, "return document.readyState === 'complete'")
    loaded = chromium.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [name for name in loaded if not name.startswith(("file:", "data:"))] == []
    assert [line for line in chromium.said() if "ERR_" in line] == []
    shown = "[...document.images].filter((one) => one.offsetParent)"
    pictures = chromium.run(f"return {shown}.map((one) => [one.naturalWidth, one.alt])")
    assert all(width > 0 and len(alt) > 20 for width, alt in pictures)
