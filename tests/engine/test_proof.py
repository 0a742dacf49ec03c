"""Evidence of every recorded node stands in the observation it names, and follows it when it changes."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from in_turn import in_turn
from recorded import judgement

from nodedoctor import demo
from nodedoctor.engine import evidence
from nodedoctor.model import Evidence, Finding, Observation, Outcome, file_reading, quoted_like, reading

NODES = Path(__file__).parent.parent / "nodes"
DEMOS = Path(demo.__file__).parent
RECORDED = sorted(path.parent for folder in (NODES, DEMOS) for path in folder.glob("*/manifest.json"))


def judged(node):
    """The report of a recorded node, and its observations by name."""
    report = judgement(node).report
    return report, {seen.probe: seen for seen in report.observations}


def pieces(report):
    return [(r.check, one) for r in report.results for f in r.findings for one in f.evidence]


@pytest.mark.slow
@in_turn("node", RECORDED, ids=lambda node: node.name)
def test_all_evidence_stands_in_the_observation_it_names(node):
    assert judgement(node).unproven == ()
    report, observed = judged(node)
    for check, one in pieces(report):
        seen = observed[one.probe]
        if one.kind == "quote":
            text = evidence.value_at(seen, one.path) if one.path else seen.text
            lines = text.split("\n")[one.line - 1 :]
            assert one.text in "\n".join(lines), (check, one)
            assert lines[0].endswith(one.text.split("\n")[0]) or one.text.split("\n")[0] in lines[0]
            assert "\r" not in one.text
        else:
            assert evidence.value_at(seen, one.path) == one.value, (check, one)
            assert one.text == evidence.text_of_reading(one.source, one.path, one.value)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("node", RECORDED, ids=lambda node: node.name)
def test_another_observation_gives_another_reading(node):
    """Every value that is shown is taken away or made another one, in the text the probe printed."""
    report, observed = judged(node)
    for check, one in pieces(report):
        seen = observed[one.probe]
        if one.kind == "reading" and not one.path.startswith("@"):
            other = replace(seen, text=without(seen, one))
            found = evidence.EvidenceResolver([other]).resolve(reading(one.probe, one.path))
            assert found is None or (found.value != one.value and found.text != one.text), (check, one)


def without(seen, one):
    """The observation's text in which what a reading says is not so."""
    try:
        document = json.loads(seen.text)
    except ValueError:
        if seen.text.startswith("{"):  # a document in each line
            document = evidence.parse_document(seen)
            return json.dumps(swapped(document, evidence.value_at(seen, one.path, document)))
        # lines of a name and its value
        return re.sub(rf"(:\s*){re.escape(one.value)}(?=\s|$)", r"\1?", seen.text)
    if one.value is None:  # it is absent: now it is there
        return "{}" if one.path.endswith("]") else added(document, one.path)
    whole = re.sub(r"\[\d+:\d+\]$", "", one.path)
    return json.dumps(swapped(document, evidence.value_at(seen, whole, document)))


def swapped(document, found):
    """The document with every such value made another one, wherever it stands."""
    if document == found and type(document) is type(found):
        return "?"
    if isinstance(document, dict):
        return {key: swapped(item, found) for key, item in document.items()}
    return [swapped(item, found) for item in document] if isinstance(document, list) else document


def added(document, path):
    section, _, key = path.partition("[")
    return json.dumps({**document, section: {**document.get(section, {}), json.loads(key[:-2]): "there"}})


def test_a_quote_that_is_nowhere_is_left_out():
    seen = Observation("p", text="Link 4: <inactive>\n")
    finding = Finding.fail(
        "x", evidence=[Evidence("p", "Link 5"), Evidence("p", "Link 4"), Evidence("q", "Link 4")]
    )
    [kept] = evidence.EvidenceResolver([seen]).resolve_finding(finding).evidence
    assert (kept.text, kept.line, kept.kind) == ("Link 4", 1, "quote")


def test_of_two_equal_lines_the_one_at_the_offset_is_quoted():
    seen = Observation("p", text="a\n[1] x\n[2] x\n")
    [found] = [evidence.EvidenceResolver([seen]).resolve(Evidence("p", "x", at=8))]
    assert (found.text, found.line) == ("[2] x", 3)
    assert (
        evidence.EvidenceResolver([seen]).resolve(Evidence("p", "x", at=3)).line == 2
    )  # no line begins there


def test_a_text_that_a_document_relays_is_quoted_with_its_path():
    seen = Observation("files", text=json.dumps({"files": {"/proc/modules": "ext4 1\nnvidia 2\n"}}))
    found = evidence.EvidenceResolver([seen]).resolve(
        quoted_like("files", "^nvidia .*", 'files["/proc/modules"]')
    )
    assert (found.text, found.line, found.path) == ("nvidia 2", 2, 'files["/proc/modules"]')


DOCUMENT = {
    "gpus": [{"index": 0, "values": {"width": 16}}, {"index": 3, "values": {"width": 8, "mode": [1, 0]}}],
    "peers": [{"index": 0, "peer": 1, "read": 0}, {"index": 0, "peer": 2, "read": 4}],
    "files": {"/a b": "1\n"},
    "requires": ["numpy>1", "torch==2"],
}


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("gpus[index=3].values.width", 8, "NVML gpus[index=3].values.width = 8"),
        ("gpus[-1].values.mode[1]", 0, "NVML gpus[-1].values.mode[1] = 0"),
        ("peers[index=0&peer=2].read", 4, "NVML peers[index=0&peer=2].read = 4"),
        ("gpus[index=7]", None, "NVML gpus[index=7] is absent"),
        ('files["/a b"]', "1\n", "/a b = 1"),
        ('files["/none"]?', None, "/none is absent"),
        ("requires[^torch]", "torch==2", "NVML requires[^torch] = torch==2"),
        ("requires[0][0:5]", "numpy", "NVML requires[0][0:5] = numpy"),
        ("@outcome", "ok", "NVML @outcome = ok"),
    ],
)
def test_paths(path, value, text):
    found = evidence.EvidenceResolver([Observation("nvml", text=json.dumps(DOCUMENT))]).resolve(
        reading("nvml", path)
    )
    assert (found.value, found.text) == (value, text)


@pytest.mark.parametrize(
    "path", ["gpus[index=7].values", "gpus[9]", "files.x", "gpus.index", "!", 'files["/none"]']
)
def test_what_is_not_there_is_no_reading(path):
    assert (
        evidence.EvidenceResolver([Observation("nvml", text=json.dumps(DOCUMENT))]).resolve(
            reading("nvml", path)
        )
        is None
    )


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.CRASH, Outcome.DENIED])
def test_half_an_answer_shows_no_absence(outcome):
    seen = Observation("files", outcome, json.dumps({"files": {}}))
    assert evidence.EvidenceResolver([seen]).resolve(reading("files", 'files["/x"]?')) is None
    assert evidence.EvidenceResolver([seen]).resolve(file_reading("files", "/x")) is None


@given(
    st.text(max_size=40),
    st.recursive(
        st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    ),
)
def test_any_path_ends(path, document):
    seen = Observation("p", text=json.dumps(document))
    found = evidence.EvidenceResolver([seen]).resolve(reading("p", path))
    assert found is None or found.path == path


@given(st.text(max_size=200), st.text(min_size=1, max_size=20))
def test_a_quote_is_a_slice(text, wanted):
    found = evidence.EvidenceResolver([Observation("p", text=text)]).resolve(Evidence("p", wanted))
    assert found is None or (found.text in text and found.text in wanted)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("gpus[index=3].links[link=4].values.active", 0, "= 0 (down)"),
        ("gpus[index=3].values.clock_event_reasons", 136, "= 136 (hw_slowdown, hw_power_brake_slowdown)"),
        ("gpus[index=3].values.fabric.state", 2, "= 2 (in-progress)"),
        ("gpus[index=3].values.fabric.status", 0, "= 0 (SUCCESS)"),
        ("gpus[index=3].values.fabric.healthMask", 0x19A, "route_unhealthy true"),
        ("gpus[index=3].values.ecc_mode[1]", 0, "= 0 (off)"),
        ("peers[index=0&peer=1].values.read", 4, "= 4 (disabled-by-regkey)"),
        ("gpus[index=3].values.pcie_width", 1, "pcie_width = 1"),
    ],
)
def test_a_number_that_stands_for_a_word_is_shown_with_it(path, value, text):
    said = evidence.text_of_reading("NVML", path, value)
    assert text in said and said.endswith(("pcie_width = 1", ")"))
    assert "(" not in evidence.text_of_reading("processes", path, value).partition(" = ")[2]


@pytest.mark.parametrize("broken", ["[", "(", "\\", "*", "(?P<x", "a{2"])
def test_a_name_that_breaks_a_pattern_or_a_path_costs_no_more_than_its_quote(broken):
    seen = Observation("p", text=f"{broken} is all")
    whole = quoted_like("p", ".+")
    wrong = (quoted_like("p", f'"{broken}"+('), reading("p", f'files["\\x{broken}"]'))
    settled = evidence.EvidenceResolver([seen]).resolve_finding(Finding.warn("odd", evidence=(*wrong, whole)))
    assert [one.text for one in settled.evidence] == [seen.text]
