"""Many nodes on one page: what is shortened says so, and one fix for several nodes is everybody's."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from forked import nodedoctor_forked
from hypothesis import given
from hypothesis import strategies as st
from pages import fleet

from nodedoctor.report import html
from nodedoctor.report.html.markup import prose


def nodes(count: int, fixes: list[str]) -> dict[str, Any]:
    """A fleet whose nodes have one problem each, with fixes in turn."""
    made = fleet(1)
    made["oddities"] = []
    made["nodes"] = [
        {
            "host": f"s{number}",
            "state": "answered",
            "verdict": "fail",
            "report": f"reports/s{number}.json",
            "problems": [
                {
                    "check": "memory.ecc",
                    "subject": "gpu:0",
                    "status": "fail",
                    "summary": "uncorrected errors",
                    "action": "replace",
                    "fix": fixes[number % len(fixes)],
                }
            ],
        }
        for number in range(count)
    ]
    return made


class Told(HTMLParser):
    """The text of a page, and that of its code elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.code: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._inside = tag == "code"

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._inside:
            self.code.append(data)


def told(document: dict[str, Any]) -> Told:
    return Told(html.render(document))


def test_reports_that_are_not_named_are_counted() -> None:
    many = told(nodes(17, ["Replace it."])).text
    assert "reports/s11.json and 5 more" in many and "s12.json" not in many
    assert "more" not in told(nodes(12, ["Replace it."])).text.partition("reports/s11.json")[2][:20]


def test_a_fix_for_several_nodes_names_nothing_of_one_of_them() -> None:
    fixes = [f"Replace the GPU, serial 16549{n}. Then run `dcgmi diag -r 3`." for n in range(3)]
    page = told(nodes(3, fixes))
    assert "16549" not in page.text
    assert "Then run dcgmi diag -r 3. What differs between them" in page.text
    alone = told(nodes(1, fixes)).text
    assert "Replace the GPU, serial 165490. Then run" in alone and "What differs" not in alone


def test_what_stands_between_backticks_is_code() -> None:
    page = told(nodes(1, ["Run `nvidia-smi -r` and `a < b`."]))
    assert "nvidia-smi -r" in page.code and "a < b" in page.code
    assert "Run nvidia-smi -r and a < b." in page.text
    document = nodes(1, [""])
    document["nodes"][0]["problems"][0]["summary"] = "set before `ray start`"
    assert "ray start" in told(document).code
    assert prose("an odd ` stays") == "an odd ` stays"
    assert prose("`<b>`") == "<code>&lt;b&gt;</code>"


@given(st.text("ab`<& "))
def test_no_text_is_lost_between_backticks(value: str) -> None:
    assert Told(prose(value)).text == (value if value.count("`") % 2 else value.replace("`", ""))


def test_kinds_of_nodes_are_shown_where_there_are_several() -> None:
    document = nodes(2, ["Replace it."])
    assert 'id="kinds"' not in html.render(document)
    document["kinds"] = [{"kind": "8 x H100", "nodes": "s[0-6]", "count": 7}]
    assert 'id="kinds"' not in html.render(document)
    document["kinds"].append({"kind": "4 x A100", "nodes": "s7", "count": 1})
    text = told(document).text
    assert "Kinds of nodes8 x H1007 nodess[0-6]4 x A1001 nodes7" in text


def test_the_page_begins_with_causes_owner_nodes_and_the_first_command() -> None:
    document = nodes(4, ["Replace it."])
    document["kinds"] = [{"kind": kind, "nodes": "s0", "count": 2} for kind in ("8 x H100", "4 x A100")]
    cause = {
        "check": "memory.ecc",
        "status": "fail",
        "owner": "provider",
        "action": "replace-node",
        "todo": "request a replacement",
        "headline": "GPU 0 has <uncorrected> errors",
        "alike": False,
        "host": "s2",
        "command": "nvidia-smi -q -d ECC -i 0",
        "fix": "Replace it.",
        "follows": ["kernel.xid"],
        "nodes": "s[0-3]",
        "count": 4,
    }
    document["causes"] = [cause, {**cause, "count": 1, "command": None, "nodes": "s9", "alike": True}]
    page, text = html.render(document), told(document).text
    order = ["causes", "mute", "odd", "matrix", "nodes", "kinds"]
    sections = re.findall('<section id="([a-z]+)"', page)
    assert sections == [name for name in order if name in sections] and sections[0] == "causes"
    first, second = text.partition("Causes 2")[2].split("FAIL")[1:3]
    assert first.startswith(" GPU 0 has <uncorrected> errors")
    assert "ownerprovider; request a replacement" in first and "firstnvidia-smi -q -d ECC -i 0on s2" in first
    assert "nodess[0-3] 4 nodes, others with other numbers" in first and "followskernel.xid" in first
    assert "nodess9" in second and "first" not in second.partition("check")[0]
    document["causes"] = [cause] * 30
    assert "10 more causes" in told(document).text


def test_a_version_stays_on_one_line() -> None:
    assert re.search('<th scope="row" class="odd whole">550.54.15 &lt;</th>', html.render(fleet(130)))


def test_the_document_of_a_fleet_has_its_kinds(tmp_path: Path) -> None:
    for demo in ("healthy", "raylet-1024-files"):
        (tmp_path / f"{demo}.json").write_text(ask("demo", demo, "--exit-zero", "--json"))
    page = tmp_path / "page.html"
    told = json.loads(ask("fleet", "--reports", tmp_path, "--exit-zero", "--json", "--html", page))
    assert sum(kind["count"] for kind in told["kinds"]) == 2
    several = len(told["kinds"]) > 1
    assert ('id="kinds"' in page.read_text()) is several


def ask(*words: str | Path) -> str:
    done = nodedoctor_forked(*map(str, words))
    done.check_returncode()
    return done.stdout
