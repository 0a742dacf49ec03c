"""Names and sentences of the code are those of the field: what is left may only get less, room by room."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.lint
TOP = Path(__file__).parents[2]
HELP = "; `python tools/wording/words.py ROOM` lists them, docs/glossary.md has the words to use"


@pytest.fixture(scope="module")
def words():
    spec = importlib.util.spec_from_file_location("words", TOP / "tools/wording/words.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def counts(words):
    return words.count_rooms()


def test_no_room_has_more_riddles_than_before(words, counts):
    allowed = json.loads(words.COUNTS.read_text())
    risen = {
        f"{room}: {now[kind]} {kind}, at most {allowed.get(room, {}).get(kind, 0)}"
        for room, now in counts.items()
        for kind in now
        if now[kind] > allowed.get(room, {}).get(kind, 0)
    }
    assert not risen, "\n".join(sorted(risen)) + HELP


def test_counts_that_fell_stay_down(words, counts):
    assert counts == json.loads(words.COUNTS.read_text()), "run `python tools/wording/words.py --write`"


def test_a_participle_alone_counts_and_a_name_with_its_noun_does_not(words, tmp_path):
    file = tmp_path / "some.py"
    file.write_text(
        'def told(seen, rank_seen):\n    """What stands there."""\n    kept_lines = seen  # anew\n'
    )
    found = list(words.remarks(file))
    assert sorted(found) == [
        ("names", 1, "seen"),
        ("names", 1, "told"),
        ("sentences", 2, "stands"),
        ("sentences", 3, "anew"),
    ]


def test_the_glossary_has_one_row_for_each_noun_of_the_models():
    rows = set(re.findall(r"^\| \*\*(.+?)\*\* \|", (TOP / "docs/glossary.md").read_text(), re.M))
    assert len(rows) >= 30
    classes = {
        name
        for module in ("nodedoctor/model.py", "nodedoctor/triage/model.py")
        for name in re.findall(r"^class ([A-Z]\w+)", (TOP / module).read_text(), re.M)
    }
    nouns = {re.sub(r"(?<=[a-z])([A-Z])", r" \1", name).lower() for name in classes}
    assert nouns <= rows | {"expect", "moment"}, nouns - rows
