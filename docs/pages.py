"""`make docs`: a Markdown page for each check, and one for each table behind `nodedoctor explain`.

`docs/pages.py FOLDER` writes them. They are made of docstrings and tables, and so not kept in the repository.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from nodedoctor.cli.check_page import SampleFinding, error_texts, samples, sections
from nodedoctor.cli.explain import CULPRITS, DECISIONS, OWNERS, RECURRENCE, SAFETY
from nodedoctor.declare.registry import Check
from nodedoctor.engine.plugins import discover
from nodedoctor.knowledge import env_vars, kinds, xids
from nodedoctor.knowledge.floors import floors, shares
from nodedoctor.knowledge.tested_hardware import seen_on
from nodedoctor.model import Status
from nodedoctor.report.inert import inert_lines
from nodedoctor.report.text import sentence

ROOT = Path(__file__).parent.parent
MADE = {"real": "real", "pasted": "from what somebody posted", "synthetic": "made up"}
WIDE = ("---", "hide: [toc]", "---", "")
"""The head of a page whose table needs the room of the table of contents."""
LINES = 6
"""Lines of evidence that an example shows."""


def recorded_nodes() -> list[Path]:
    """The recorded nodes that examples come from: the demos first, as anybody can replay them."""
    folders = (ROOT / "nodedoctor" / "demo", ROOT / "tests" / "nodes")
    return [path.parent for folder in folders for path in sorted(folder.glob("*/manifest.json"))]


def pages() -> dict[str, str]:
    """Every page by its path."""
    catalogue, found = discover(), samples(recorded_nodes())
    checks = [check for _, check in sorted(catalogue.checks.items())]
    made = {f"checks/{check.id}.md": "\n".join(_check(check, found.get(check.id))) for check in checks}
    made["checks/index.md"] = "\n".join(_index(checks))
    made["xids.md"] = "\n".join(_xids())
    made["environment.md"] = "\n".join(_variables())
    made["causes.md"] = "\n".join(_causes())
    made["kinds/index.md"] = "\n".join(_kinds())
    made |= {f"kinds/{row.kind}.md": "\n".join(_kind(row)) for row in kinds.kinds()}
    made["floors.md"] = "\n".join(_floors())
    return {path: f"{text.rstrip()}\n" for path, text in sorted(made.items())}


def _check(check: Check, sample: SampleFinding | None) -> Iterator[str]:
    yield from (f"# {check.id}", "")
    if texts := error_texts(check):
        yield from ("```text", *texts, "```", "")
    else:
        yield from (
            "No error message names this fault: jobs fail or are slow, as for many reasons.",
            "",
        )
    yield from (f"{_plain(check.title)}.", "")
    if check.stage == "preview":
        yield from ("*In preview: what it finds is at most a warning and counts only with `--preview`.*", "")
    for section in sections(check):
        yield from (f"## {section.heading}", "")
        for paragraph in section.paragraphs:
            yield from (_plain(paragraph), "")
        yield from (f"- {_plain(item)}" for item in section.items)
        if section.items:
            yield ""
    yield from _example(sample)
    yield from ("## Run it", "", "```sh", f"nodedoctor {check.id}", "```")


def _example(sample: SampleFinding | None) -> Iterator[str]:
    yield from ("## Example", "")
    if sample is None:
        yield from ("No recorded node has this fault.", "")
        return
    finding = sample.finding
    lines = [line for one in finding["evidence"] for line in inert_lines(one["text"].strip("\n"))]
    yield from (f"On the recorded node `{sample.node}` ({MADE[sample.provenance]}):", "", "```text")
    yield f"{Status(finding['status']).word} {sample.result['check']}  {sentence(finding)}"
    yield from (f"     | {line}" for line in lines[:LINES])
    if finding["fix"]:
        yield f"     fix  {finding['fix']['text']}"
        yield from (f"     $ {command}" for command in finding["fix"]["commands"])
    yield from ("```", "")


def _index(checks: Iterable[Check]) -> Iterator[str]:
    yield from (*WIDE, "# Checks", "")
    yield from _head("Check", "What holds when it passes", "Stage", "Seen on")
    for check in checks:
        hardware = ", ".join(dict.fromkeys(row.hardware for row in seen_on(check.id))) or "stand-ins only"
        yield _row(f"[{check.id}]({check.id}.md)", check.title, check.stage, hardware)


def _xids() -> Iterator[str]:
    yield from (*WIDE, "# Xids and SXids", "")
    yield from _head("Xid", "Name", "Meaning", "Severity", "Culprit", "What to do", "Source")
    for row in xids.xids():
        culprits = ", ".join(CULPRITS.get(name, name) for name in row.fault)
        yield _row(
            str(row.xid), row.mnemonic, row.meaning, row.level, culprits, row.what_to_do.text, row.source
        )
    yield from ("", "## NVSwitch", "")
    yield from _head("SXid", "Name", "Severity", "What to do", "Source")
    for switch in xids.sxids():
        advice = xids.sxid_kind(switch.kind).advice
        yield _row(str(switch.sxid), switch.name, switch.kind, advice, switch.source)


def _variables() -> Iterator[str]:
    yield from (*WIDE, "# Environment variables", "")
    yield from _head("Variable", "Read by", "Effect", "Default", "In production", "Source")
    for row in env_vars.env_vars():
        owner = "nothing" if row.phantom else OWNERS.get(row.owner, row.owner)
        safe = SAFETY[row.production_safe]
        yield _row(f"`{row.name}`", owner, f"{row.effect} {row.note}", row.default, safe, row.source)


def _causes() -> Iterator[str]:
    yield from ("# Causes that triage names", "")
    yield from _head("Cause", "What it is", "What it means")
    for row in kinds.causes():
        yield _row(f"[{row.cause}](#{row.cause})", row.title, row.means)
    yield ""
    for row in kinds.causes():
        yield from (f"## {row.cause}", "", f"{_plain(row.title)}. {_plain(row.means)}", "")
        for heading, steps in (("How to confirm it", row.confirm), ("What to do", row.fix)):
            yield from (f"### {heading}", "")
            yield from (f"{number}. {_plain(step)}" for number, step in enumerate(steps, 1))
            yield ""
        yield from (f"Source: {_plain(row.source)}", "")


def _kinds() -> Iterator[str]:
    yield from (*WIDE, "# What to do with a job that died", "")
    yield from (f"`nodedoctor triage --decide` answers by the kind of what ended the job. {_plain(_LAW)}", "")
    yield from _head("Kind", "What it is", "Decision", "Again on the same nodes", "On others")
    for row in kinds.kinds():
        again = (row.same_nodes, row.other_nodes)
        yield _row(f"[{row.kind}]({row.kind}.md)", row.title, row.decision, *again)


_LAW = (
    "Below high confidence no node is left out unless a report shows it sick, never one because its rank"
    " reported a timeout, and never more than one in ten."
)


def _kind(row: kinds.Kind) -> Iterator[str]:
    yield from (f"# {row.kind}", "", f"{_plain(row.title)}. {_plain(row.reason)}", "")
    yield from _head("", "")
    yield _row("Decision", DECISIONS[row.decision])
    yield _row("Expected again", RECURRENCE[row.same_nodes, row.other_nodes])
    yield _row("Whose move it is", row.owner)
    if row.differs:
        yield _row("Differs", row.differs)
    yield ""
    cause = kinds.cause(row.cause)
    if cause is not None:
        yield from ("## What to do", "")
        yield from (f"{number}. {_plain(step)}" for number, step in enumerate(cause.fix, 1))
        yield from ("", f"[{row.cause}](../../causes.md#{row.cause}) says how to confirm it.", "")
    yield from (f"Source: {_plain(row.source)}", "")


def _floors() -> Iterator[str]:
    yield from ("# Rates that are too low", "")
    yield from (
        "A floor holds only where all of its row fits: another board or a shorter message has none.",
        "",
    )
    yield from _head(
        "measured", "fabric", "gate", "passes from", "a good run", "below it", "messages", "source"
    )
    for gate in floors():
        size = f"{gate.least_bytes / 1e9:.0f} GB or more" if gate.least_bytes else "any"
        passes, healthy = f"{gate.least:g} {gate.unit}", f"{gate.healthy:g}" if gate.healthy else ""
        source = f"{gate.source} (read {gate.read})"
        yield _row(gate.operation, gate.fabric, f"{gate.gate:g}", passes, healthy, gate.level, size, source)
    yield from ("", "Others are shares of what links and memory are built for:", "")
    yield from _head("measured", "fabric", "at least", "of", "links", "note", "source")
    for row in shares():
        links = f"up to {row.up_to_gbps:g} Gb/s" if row.up_to_gbps else "all"
        yield _row(row.operation, row.fabric, f"{row.share:.0%}", row.of, links, row.why, row.source)


def _head(*names: str) -> Iterator[str]:
    yield _row(*names)
    yield _row(*("---" for _ in names))


def _row(*cells: str) -> str:
    return "| " + " | ".join(_plain(cell).replace("|", "\\|").strip() for cell in cells) + " |"


def _plain(text: str) -> str:
    """Text that is no markup: what a table or a docstring says, not a tag; addresses can be followed."""
    escaped = " ".join(str(text).split()).replace("<", "&lt;")
    return re.sub(r"(?<!\()https://([^\s/]+)[^\s,;)|]*", lambda found: f"[{found[1]}]({found[0]})", escaped)


def main(folder: Path) -> None:
    """Write every page below the folder."""
    for path, text in pages().items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
