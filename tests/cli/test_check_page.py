"""Every check is documented under the same headings, and has a page made of them."""

from pathlib import Path

import pytest
from doc_files import load
from in_turn import in_turn

from nodedoctor.cli.check_page import error_texts, samples, sections
from nodedoctor.cli.explain import explain
from nodedoctor.demo import folder
from nodedoctor.engine.plugins import discover
from nodedoctor.knowledge import env_vars, kinds, xids

ROOT = Path(__file__).parent.parent.parent
CHECKS = discover().checks
HEADINGS = (
    "What it looks at",
    "Why it matters for training",
    "When it fails, warns, is unknown",
    "How to fix",
    "Where the threshold comes from",
    "Known false positives",
    "Seen on",
)


def generator():
    return load("pages")


@in_turn("check", CHECKS.values(), ids=lambda check: check.id)
def test_every_check_has_every_section(check):
    found = sections(check)
    assert tuple(section.heading for section in found) == HEADINGS
    for section in found:
        assert section.paragraphs or section.items, section.heading
        for text in (*section.paragraphs, *section.items):
            assert len(text) > 9 and "Not documented" not in text, (section.heading, text)
    words = {"What", "Why", "Judges", "Fix", "Threshold", "False positives", "Error texts", "Fix disturbs"}
    assert set(check.doc) <= words


def test_a_check_without_sections_says_that_it_is_not_documented(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from nodedoctor.plugin import Finding, Machine, check\n"
        "@check('mine.own', 'Mine')\n"
        "def own(machine: Machine):\n"
        '    """The machine."""\n'
        "    yield Finding.ok('fine')\n"
    )
    check = discover([tmp_path]).checks["mine.own"]
    told = {section.heading: section.paragraphs for section in sections(check)}
    assert told["What it looks at"] == ("The machine.",)
    assert told["Why it matters for training"] == ("Not documented.",)
    assert told["Seen on"] == ("Not recorded.",)
    assert error_texts(check) == ()


def test_explain_shows_the_sections_the_error_texts_and_an_example():
    text = explain("driver.module-userspace", CHECKS.values())
    assert [line for line in text.splitlines() if line in HEADINGS] == list(HEADINGS)
    assert '"Failed to initialize NVML: Driver/library version mismatch"' in text
    assert "Example, from `nodedoctor demo driver-mismatch`" in text
    assert all(
        len(line) <= 80 or "://" in line or line.startswith(("  |", "Source")) for line in text.splitlines()
    )


def test_explain_says_what_is_in_preview():
    text = explain("gpu.levels", CHECKS.values())
    assert text.splitlines()[0].endswith("(preview)")
    assert "Never on real hardware" in text


def test_samples_take_the_worst_finding_of_a_node():
    found = samples([folder("healthy"), folder("nvlinks-down")], (CHECKS["nvlink.links"],))
    sample = found["nvlink.links"]
    assert (sample.node, sample.provenance, sample.finding["status"]) == ("nvlinks-down", "synthetic", "fail")
    assert sample.finding["subject"] == "gpu:3"


@pytest.mark.slow
def test_pages_are_complete_and_come_out_the_same_again():
    pages = generator()
    made = pages.pages()
    assert made == pages.pages()
    assert {path for path in made if path.startswith("checks/")} == {
        "checks/index.md",
        *(f"checks/{id}.md" for id in CHECKS),
    }
    for id, check in CHECKS.items():
        text = made[f"checks/{id}.md"]
        assert [line[3:] for line in text.splitlines() if line.startswith("## ")][: len(HEADINGS)] == list(
            HEADINGS
        )
        assert "## Example" in text
        assert all(error in text for error in error_texts(check))
        assert f"({id}.md)" in made["checks/index.md"]
    assert all(f"| {row.xid} |" in made["xids.md"] for row in xids.xids())
    assert all(f"`{row.name}`" in made["environment.md"] for row in env_vars.env_vars())
    assert all(f"## {row.cause}\n" in made["causes.md"] for row in kinds.causes())
    for row in kinds.kinds():
        assert f"# {row.kind}\n" in made[f"kinds/{row.kind}.md"]
        assert f"| Decision | {row.decision}: " in made[f"kinds/{row.kind}.md"]
    assert all(f"[{row.kind}]({row.kind}.md)" in made["kinds/index.md"] for row in kinds.kinds())
    assert "7 of 8 GPUs" in made["checks/driver.board-complete.md"]
