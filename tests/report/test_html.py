"""The HTML pages: what stands on them, that nothing foreign runs or loads, that garbage breaks none."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import re
import subprocess
import sys
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from forked import nodedoctor_forked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pages import HOSTILE, bandwidth, fleet, hostile, triage
from recorded import judged

from nodedoctor.nodeset import expand
from nodedoctor.report import html
from nodedoctor.report import json as report_json
from nodedoctor.report.comparison import compare, heading
from nodedoctor.report.comparison_views import render as comparison_text
from nodedoctor.report.inert import inert

HERE = Path(__file__).parents[1]
DEMO = HERE.parent / "nodedoctor" / "demo"
EMPTY = {"br", "input", "meta", "wbr"}
LIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


class Page(HTMLParser):
    """A page as a strict reader sees it: elements that close in order, their attributes, the text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.own: list[list[str]] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.inside: dict[str, list[str]] = {}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)
            self.own.append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag
        self.inside.setdefault(tag, []).append("".join(self.own.pop()))

    def handle_data(self, data: str) -> None:
        for own in self.own[-1:]:
            own.append(data)
        if not {"style", "script"} & set(self.open):
            self.texts.append(data)

    @property
    def many(self) -> int:
        """Elements a browser has to lay out; a place where a line may break is none."""
        return sum(tag != "wbr" for tag, _ in self.elements)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attributes
            for name, attributes in self.elements
            if name == tag and all(attributes.get(key.rstrip("_")) == value for key, value in wanted.items())
        ]


def read(page: str) -> Page:
    """Read a page, and see that nothing in it loads or runs but what is ours."""
    page.encode()
    assert not LIVE.search(page)
    seen = Page(page)
    (style,), (script,) = seen.inside["style"], seen.inside["script"]
    (policy,) = (
        meta["content"] or "" for meta in seen.all("meta", **{"http-equiv": "Content-Security-Policy"})
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for rule, content in (("style-src", style), ("script-src", script)):
        assert rules[rule] == f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
    assert set(rules) == {"default-src", "style-src", "script-src", "base-uri", "form-action"}
    assert not {tag for tag, _ in seen.elements} & {"link", "img", "iframe", "object", "base", "form", "svg"}
    assert len(seen.all("meta", **{"http-equiv": "Content-Security-Policy"})) == 1
    for tag, attributes in seen.elements:
        assert not {"src", "srcset", "style", "action", "background"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")], tag
        assert re.match("#|https?://", attributes.get("href") or "#"), attributes
    assert not re.search(r"url\(|@import|//", style)
    assert not re.search(r"innerHTML|https?:|fetch\(|import\(", script)
    return seen


def follow(text: str, parts: list[str]) -> None:
    """Every part stands in the text, each after the one before it."""
    place = 0
    for part in parts:
        found = text.find(part, place)
        assert found >= 0, f"{part!r} does not follow in {text[place : place + 300]!r}"
        place = found + len(part)


def document_of(node: Path) -> dict[str, Any]:
    return dict(report_json.document(judged(node)))


@pytest.fixture(scope="module")
def links_down() -> dict[str, Any]:
    return document_of(DEMO / "nvlinks-down")


def test_a_report_says_the_verdict_first_then_the_problems_then_the_rest(links_down: dict[str, Any]) -> None:
    page = read(html.render(links_down))
    text = page.text
    order = ["FAIL gpu-a3-017", "8x NVIDIA H100", "3 fail", "Causes", "GPU 3 lost 2 NVLinks", "nvlink.links"]
    order += ["follows", "kernel.xid", "Every other finding", "topo.matrix", "Passed", "Skipped"]
    order += ["Topology", "Commands that were run", "Facts"]
    follow(text, order)
    assert page.inside["title"] == ["FAIL gpu-a3-017"]
    problem = text[text.index("Causes") : text.index("Every other finding")]
    told = [
        "provider; request a replacement; start no new jobs here",
        "16 of 18 NVLinks up (links 4 and 11 down)",
        "A link that is down",
        "gpus[index=3].links[link=4].values.active = 0",
        "fix",
        "Check the fabric manager",
    ]
    told += ["nvidia-smi nvlink -s -i 3", "interrupts", "ticket", "verify", "nodedoctor nvlink.links"]
    follow(problem, told)
    assert "https://docs.nvidia.com/deploy/xid-errors/" in [link["href"] for link in page.all("a")]


def test_only_what_is_well_is_folded(links_down: dict[str, Any]) -> None:
    page = html.render(links_down)
    before, _, _ = page.partition('<section id="passed">')
    shown = before[before.index('<section id="causes">') : before.index('<section id="noted">')]
    assert "<details" not in shown and shown.count("<article") == 3
    assert links_down["counts"]["pass"] > 50 and links_down["counts"]["skip"] > 20
    for key, title, status in (("passed", "Passed", "pass"), ("skipped", "Skipped", "skip")):
        count = links_down["counts"][status]
        head = f'<section id="{key}"><details><summary><h2>{title}<span class="count"> {count}<'
        assert head in page


def test_a_matrix_marks_the_odd_by_a_character(links_down: dict[str, Any]) -> None:
    page = read(html.render(links_down))
    assert page.text.count("NV16<") == 14 and page.text.count("NV18") >= 42
    assert "16/18<" in page.text and "mlx5_7" in page.text
    measured = read(html.render({**links_down, "facts": {"bandwidth": bandwidth(8, slow=(3, 5))}}))
    cells = [text for text in measured.inside["td"] if text in ("41<", "391")]
    assert (cells.count("41<"), cells.count("391")) == (1, 55)
    assert "55.1" in measured.inside["td"]
    wrong = {
        "pairs": [{"source": 0, "target": 1, "wrong": {"at": 4}}, {"source": 1, "target": 0, "error": "x"}]
    }
    assert {"WRONG<", "error<"} <= set(
        read(html.render({**links_down, "facts": {"bandwidth": wrong}})).inside["td"]
    )


def test_a_repair_that_mends_several_is_told_once(tmp_path: Path) -> None:
    page = read(html.render(document_of(DEMO / "driver-mismatch")))
    assert page.text.count("sudo modprobe -r < nodedoctor-modules.txt") == 1
    assert page.text.count("as for driver.module-userspace") == 2
    assert len(page.all("a", href="#cause-driver.module-userspace")) == 2
    assert "Could not be seen 28" in page.text and "14 checks" in page.text


def test_what_could_not_be_seen_says_how_to_see_it() -> None:
    page = read(html.render(document_of(HERE / "nodes" / "log-denied")))
    unseen = page.text[page.text.index("Could not be seen") :]
    assert "see it" in unseen and "UNKN" in unseen


def test_a_waiver_is_shown(links_down: dict[str, Any]) -> None:
    document = copy.deepcopy(links_down)
    for result in document["results"]:
        for finding in result["findings"]:
            if finding["status"] == "fail":
                finding["waived"] = "board is on order, until 2027-01-01"
    document["causes"] = []
    page = read(html.render(document))
    assert page.text.startswith("\n") or "PASS gpu-a3-017" in page.text
    assert "No problem was found." in page.text
    assert page.text.index("waived: board is on order") < page.text.index("Passed")


def test_a_verdict_of_triage_with_its_ranks() -> None:
    page = read(html.render(triage()))
    order = ["FAIL Rank 16 came late", "high confidence", "who", "rank 16 on node-2", "first", "py-spy dump"]
    order += [
        "Proof",
        "job/train.log:54",
        "rank 16",
        "STRAGGLER",
        "Ranks",
        "rank 16 on node-2: where it began",
    ]
    order += ["ranks 4, 6-7: nothing was read", "ranks 0-3: waited", "Fix", "py-spy dump --pid 4242"]
    order += ["What would decide", "nodedoctor triage LOGS", "What it is not", "NCCL_TIMEOUT", "Less likely"]
    order += ["peer_died", "Timeline", "asleep", "The collective", "67,108,864", "5.8 ms over 400 Gb/s"]
    order += ["Read", "3 files, 14,079 bytes, 6 of 20 ranks, 1 earlier failure", "one line was cut"]
    follow(page.text, order)
    ranks = [cell for cell in page.inside["span"] if re.fullmatch(r"\d+[Xa?.]?", cell)]
    assert ranks == ["0a", "1a", "2a", "3a", "4?", "5", "6?", "7?", "16X"]


@pytest.mark.slow
def test_a_real_log_gives_a_page() -> None:
    log = sorted((HERE / "triage" / "logs").iterdir())[0]
    document = json.loads(nodedoctor_forked("triage", "--json", str(log)).stdout)
    text = read(html.render(document)).text
    assert document["headline"][1:] in text and str(document["coverage"]["files"]) in text
    for fix in document["fixes"]:
        assert fix["text"] in text and all(command in text for command in fix["commands"])


def test_a_job_of_very_many_ranks_is_told_in_ranges() -> None:
    victims = [{"world": "default", "rank": rank} for rank in range(20_000)]
    page = html.render({"schema": "nodedoctor.triage/1", "victims": victims})
    assert "ranks 0-19999: waited" in read(page).text and len(page) < 40_000


def test_a_fleet_names_the_odd_the_silent_and_the_sick() -> None:
    document = fleet(500)
    page = read(html.render(document))
    order = ["FAIL 500 nodes", "failing", "The odd ones out", "gpu-128 has 550.54.15", "550.54.15 <"]
    order += ["Without a report 2", "gpu-[041-042]", "silent: no answer in 50 s", "Checks with a problem"]
    order += ["Nodes with a problem", "Nodes without a problem"]
    follow(page.text, order)
    assert "570.86.10 <" not in page.text
    shown = {host for text in page.inside["strong"] for host in expand(text) if host.startswith("gpu-")}
    sick = {node["host"] for node in document["nodes"] if node["problems"]}
    assert shown == sick
    for node in document["nodes"]:
        assert all(problem["summary"] in page.text for problem in node["problems"])
    assert page.many < 3000


def test_what_a_container_hides_makes_no_row_of_its_own() -> None:
    """Dozens of checks that cannot see from inside a container must not bury the one that failed."""
    document = fleet(30)
    hidden = [
        {"check": f"hidden.{n}", "status": "unknown", "reason": "not-visible-here", "summary": f"no {n}"}
        for n in range(60)
    ]
    stuck = {
        "check": "driver.answers",
        "status": "unknown",
        "reason": "stuck",
        "summary": "hangs in the kernel",
    }
    for node in document["nodes"]:
        if node["state"] == "answered":
            node["problems"] = [*hidden, *([stuck] if node["host"] == "gpu-007" else [])]
    page = html.render(document)
    matrix, _, rest = page.partition('<section id="nodes">')
    assert "driver.answers" in matrix and "hidden.0" not in matrix
    sick, _, unseen = rest.partition('<section id="unseen">')
    assert "hangs in the kernel" in sick and "60 checks could not see: hidden.0" in sick
    assert "60 checks could not see: hidden.0" in unseen and read(page).many < 200


def test_nodes_that_say_the_same_are_one_row() -> None:
    document = fleet(500)
    clock = {"id": "net.clock", "check": "net.clock", "status": "warn", "summary": "not synchronised"}
    for node in document["nodes"]:
        node["problems"] = [clock] if node["state"] == "answered" else []
    page = html.render(document)
    assert page.count("not synchronised") == 1 and read(page).many < 150


def test_a_comparison_says_what_the_text_says() -> None:
    before, after = (document_of(DEMO / name) for name in ("healthy", "nvlinks-down"))
    both = compare(before, after)
    page = read(html.render_comparison(both, heading(before), heading(after)))
    flat = " ".join(page.text.split())
    for line in comparison_text(both, heading(before), heading(after), width=9999).splitlines()[1:]:
        kind, rest = line.split(None, 1)
        if kind == "fact":
            name, change = re.sub(r" \(\d+ values\)$", "", rest).split("  ", 1)
            old, new = change.split(" -> ", 1)
            assert f"{name}{old}{new}" in flat.replace(" ", "") or all(
                x in page.text for x in (name, old, new)
            )
        else:
            words, check, told = rest.split("  ", 2)
            assert f"{kind}{check}{words}" in page.text and told in page.text
    same = html.render_comparison(compare(before, before), "a", "b")
    assert "nothing differs" in read(same).text


@pytest.mark.parametrize("make", [lambda: document_of(DEMO / "raylet-1024-files"), triage, lambda: fleet(30)])
def test_hostile_text_stays_text(make: Any) -> None:
    document = hostile(make())
    page = read(html.render(document))
    assert [tag for tag, _ in page.elements].count("script") == 1
    for poison in HOSTILE:
        assert inert(poison) in page.text


def test_hostile_comparison() -> None:
    document = document_of(DEMO / "healthy")
    both = compare(document, hostile(document))
    page = read(html.render_comparison(both, HOSTILE[0], HOSTILE[1]))
    assert page.text.count(inert(HOSTILE[0])) >= 1 and both.changes


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "data:text/html,x", "//evil", "vbscript:x", "http://[", "file:///etc"]
)
def test_only_the_web_is_linked(links_down: dict[str, Any], address: str) -> None:
    document = copy.deepcopy(links_down)
    document["results"] = [r for r in document["results"] if r["check"] == "kernel.xid"]
    document["results"][0]["findings"][0]["fix"]["docs"] = address
    page = read(html.render(document))
    assert address in page.text and address not in [link["href"] for link in page.all("a")]


def test_a_document_of_another_kind_is_refused() -> None:
    for schema in ("nodedoctor.snapshot/1", "", None, 7):
        with pytest.raises(ValueError, match="no page"):
            html.render({"schema": schema})


def test_what_is_not_understood_is_unknown_and_never_well() -> None:
    results = [
        {"check": "a.b", "findings": [{"status": "splendid", "summary": "?"}]},
        {"check": "c.d"},
        {},
        7,
    ]
    page = read(html.render({"schema": "nodedoctor.report/1", "results": results}))
    assert "3 unknown" in page.text and "PASS" not in page.text
    assert "this report does not say what was found" in page.text


def test_facts_stand_side_by_side_and_equal_values_once() -> None:
    gpus = [
        {"index": n, "name": "H100", "vbios": "96.00" if n != 5 else "95.01", "none": None} for n in range(8)
    ]
    status = {f"{a}-{b}": "ok" for a in range(8) for b in range(8) if a != b} | {"0-3": "no"}
    facts = {"gpus": {"gpus": gpus}, "peer-access": {"read": status}, "again": {"gpus": gpus}}
    page = read(html.render({"schema": "nodedoctor.report/1", "facts": facts}))
    assert page.text.count("H100") == 1 and "95.01 <" in page.text and page.text.count("96.00") == 7
    assert "ok x55; no: 0-3" in page.text and "as in gpus.gpus" in page.text and "none" not in page.text


def test_headless_and_late(links_down: dict[str, Any], tmp_path: Path) -> None:
    """The pages need no textual, and nothing of them is imported before they are asked for."""
    (tmp_path / "report.json").write_text(json.dumps(links_down))
    code = (
        "import json, sys; import nodedoctor.report.text, nodedoctor.cli.main\n"
        "assert not [name for name in sys.modules if name.startswith('nodedoctor.report.html')]\n"
        "from nodedoctor.report import html\n"
        "html.render(json.load(open(sys.argv[1])))\n"
        "assert not {'textual', 'rich', 'nodedoctor.tui'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "report.json")], check=True, timeout=60)


KEYS = """
    schema tool source started seconds node verdict counts results probes facts hostname gpus gpu check
    title status tags why findings subject summary note reason waived evidence fix text commands action
    disturbs verify docs name argv outcome rc truncated probe topology nics links affinity bandwidth
    pairs target source access read_gbytes_s wrong host kind nv-links index peers path cause confidence
    headline culprits victims parties collective timeline alternatives fixes not_the_cause next
    incidents coverage world rank line time op seq numel_in bytes_by_dtype expected_seconds
    size_can_explain_wait files bytes ranks_seen ranks_missing notes passing failing oddities checks
    nodes key majority groups value odd state problems id report GPU0 GPU1 numa
""".split()  # noqa: SIM905
WORDS = [
    "pass",
    "fail",
    "warn",
    "unknown",
    "skip",
    "answered",
    "silent",
    "GPU0",
    "GPU1",
    "NV18",
    "clean",
    "denied",
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10**15)
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=40,
)


@pytest.mark.slow
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["report", "triage", "fleet"]), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=12)
)
def test_garbage_of_the_right_outer_shape_gives_a_page(kind: str, document: dict[str, Any]) -> None:
    read(html.render({**document, "schema": f"nodedoctor.{kind}/1"}))


@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 2**32), st.lists(JSON, min_size=1, max_size=6), st.sampled_from([0, 1, 2]))
def test_a_damaged_document_gives_a_page(
    links_down: dict[str, Any], seed: int, junk: list[Any], which: int
) -> None:
    """Parts of a real document replaced by anything: every view still opens."""
    small = {
        **links_down,
        "results": links_down["results"][::9],
        "facts": dict(list(links_down["facts"].items())[::5]),
    }
    small["facts"]["topology"] = links_down["facts"]["topology"]
    document = copy.deepcopy((small, triage(), fleet(20))[which])
    chance = random.Random(seed)
    for part in junk:
        _replace(document, part, chance)
    document["schema"] = ("nodedoctor.report/1", "nodedoctor.triage/1", "nodedoctor.fleet/1")[which]
    read(html.render(document))


def _replace(value: Any, junk: Any, chance: random.Random) -> None:
    """Put junk at one place somewhere in a document."""
    while True:
        places = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not places:
            return
        place = chance.choice(places)
        inner = value[place]
        if not isinstance(inner, dict | list) or chance.random() < 0.3:
            value[place] = junk
            return
        value = inner
