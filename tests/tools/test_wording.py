"""What people read is plain English: no word of the list, no wrong number, names as titles, short summaries.

Over all that is written in the code and the tables, and over all that the recorded nodes make of it.
"""

import importlib.util
import re
from pathlib import Path

import pytest
import recorded

from nodedoctor.demo import DEMOS
from nodedoctor.report import brief, text
from nodedoctor.report import json as report_json
from nodedoctor.wording import (
    SUMMARY,
    comma_list,
    count_with_noun,
    numbered,
    plural,
    ranged,
    singular_or_plural,
)

TOP = Path(__file__).parents[2]
NODES = sorted(path.parent for path in (TOP / "tests/nodes").glob("*/manifest.json"))
TITLE_WORDS = 6

BANNED = """
anew | for good | for ever | in vain | amiss | unharmed | rightly | whoever | whose they are
not to be found | for want of | believes | the Python that trains | nobody | somebody | led astray
not told | was told | is told | untold | told its | stands in | stand in front | stands behind
ask for another | asks for another | is to be returned | it is returned | what this node must have
more check files | put that right | the own name | hands on | without a word | time and again
told | stands | stood | is gone | are gone | whom | shall | complained | call themselves | of its own accord
"""
"""Words and phrases that made readers stop: archaisms, riddles, idioms of another language."""

_BANNED = re.compile(
    "|".join(rf"\b{re.escape(phrase.strip())}\b" for phrase in re.split(r"[|\n]", BANNED) if phrase.strip())
)
_FILLED = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
_NOUNS = (
    "GPUs NICs NVLinks NVSwitches CPUs nodes ranks processes links checks ports rails files "
    "lines errors pairs "
    "findings jobs bridges adapters packages times steps banks rows pages"
)
_PLURAL = re.compile(rf"\(s\)|(?<![\w.,:/=-])1 (?:{'|'.join(_NOUNS.split())})\b")


@pytest.fixture(scope="module")
def strings():
    spec = importlib.util.spec_from_file_location("collect", TOP / "tools/wording/collect.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.collect(TOP))


@pytest.fixture(scope="module")
def reports():
    return {node.name: report_json.document(recorded.judged(node, preview=True)) for node in NODES}


ROOMS = sorted(
    [
        "checks/",
        *(f"nodedoctor/{path.name}/" for path in (TOP / "nodedoctor").iterdir() if path.is_dir()),
        *(f"nodedoctor/{path.name}" for path in (TOP / "nodedoctor").glob("*.py")),
    ]
)
"""Every room: its words are held from the day it is there."""


def written(one) -> str:
    """A text without the expressions that are filled in: those are names of the code."""
    return _FILLED.sub("{}", one.text)


@pytest.mark.lint
@pytest.mark.parametrize("room", ROOMS)
def test_no_string_has_a_word_of_the_list(strings, room):
    found = [
        f"{one.place}: {match[0]}: {one.text[:120]}"
        for one in strings
        if one.place.startswith(room)
        and (match := _BANNED.search(written(one)) or _PLURAL.search(written(one)))
    ]
    assert not found, "\n".join(found)


@pytest.mark.lint
def test_every_room_with_words_is_held(strings):
    assert {one.place for one in strings if not one.place.startswith(tuple(ROOMS))} == set()


@pytest.mark.lint
def test_a_word_of_the_list_is_found_and_a_name_of_the_code_is_not(strings):
    one = strings[0]._replace(text="{told} GPUs; the driver was told so")
    assert _BANNED.search(written(one)) and not _BANNED.search(written(one._replace(text="{told} GPUs")))
    assert _PLURAL.search("1 GPUs") and _PLURAL.search("file(s)") and not _PLURAL.search("11 GPUs")


@pytest.mark.lint
def test_the_strings_are_all_there(strings):
    kinds = {one.kind for one in strings}
    assert {"title", "about", "text"} <= kinds and len(strings) > 3000
    assert any(one.text == "NVLink links" for one in strings)


@pytest.mark.lint
def test_titles_are_names(strings):
    titles = [one.text for one in strings if one.kind == "title" and one.place.startswith("checks/")]
    assert len(titles) > 100 and len(set(titles)) == len(titles)
    long = [title for title in titles if len(title.split()) > TITLE_WORDS or title.endswith(".")]
    assert not long, long


@pytest.mark.slow
def test_no_report_has_a_wrong_number_or_a_word_of_the_list(reports):
    found = []
    for name, report in reports.items():
        ours = "\n".join(
            line for line in text.render(report).splitlines() if not line.lstrip().startswith(("|", "$"))
        )
        shown = [ours, brief.render(report)]
        found += [f"{name}: {m[0]}" for page in shown for m in _PLURAL.finditer(page)]
        found += [f"{name}: {m[0]}" for m in _BANNED.finditer(" ".join(ours.split()))]
    assert not found, "\n".join(sorted(set(found)))


@pytest.mark.parametrize("preview", [False, True])
def test_summaries_are_short(preview):
    demos = (TOP / "nodedoctor/demo" / name for name in DEMOS)
    found = {
        f"{len(finding.summary)} {result.check}: {finding.summary}"
        for node in (*NODES, *demos)
        for result in recorded.judged(node, preview=preview).results
        for finding in result.findings
        if len(finding.summary) > SUMMARY
    }
    assert not found, "\n".join(sorted(found))


def test_fixes_begin_with_a_verb_and_end_with_a_stop(reports):
    found = {
        f"{result['check']}: {finding['fix']['text']}"
        for report in reports.values()
        for result in report["results"]
        for finding in result["findings"]
        if finding["fix"] and not re.match(r"[A-Z`].*[.)`]$", finding["fix"]["text"], re.DOTALL)
    }
    assert not found, "\n".join(sorted(found))


def test_numbers_and_their_nouns():
    assert [count_with_noun(n, "GPU") for n in (0, 1, 8)] == ["0 GPUs", "1 GPU", "8 GPUs"]
    assert (
        count_with_noun(2.0, "process") == "2 processes"
        and count_with_noun(1, "access", "accesses") == "1 access"
    )
    assert [plural(word) for word in ("entry", "relay", "NVSwitch")] == ["entries", "relays", "NVSwitches"]
    assert singular_or_plural(1, "has", "have") == "has" and singular_or_plural(0, "has", "have") == "have"


def test_lists_and_ranges():
    assert [comma_list("a"), comma_list("ab"), comma_list("abc")] == ["a", "a and b", "a, b and c"]
    assert comma_list("abcde", 2) == "a, b and 3 more" and comma_list([]) == ""
    assert ranged(range(8)) == "0-7" and ranged([7, 0, 5, 6, 3]) == "0, 3 and 5-7"
    assert numbered("GPU", [3]) == "GPU 3" and numbered("GPU", [5, 3]) == "GPUs 3 and 5"
