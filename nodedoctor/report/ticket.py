"""What a provider's support reads, on one page: the part, the proof, what was tried, what is asked for.

Markdown, ready to paste. It is made from the report alone, so one made with `--redact` names no one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from nodedoctor.json_shapes import mapping, objects, words
from nodedoctor.model import Status
from nodedoctor.report.document import Cause, Report, place_of, preview_mark
from nodedoctor.report.inert import inert, inert_lines
from nodedoctor.report.page import CHECK, SINCE, WHY, CausePage, action_of, cause_page
from nodedoctor.wording import count_with_noun


def fenced(text: str, title: str, language: str = "") -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    lines = [inert(title), *inert_lines(text.strip("\n"))] if title else inert_lines(text.strip("\n"))
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *lines, fence])


BUG_REPORT = "sudo nvidia-bug-report.sh"
PROOF_LINES = 16
"""Lines of proof of one cause: what support reads before it asks for the attached files; our choice."""
_NODE = (
    ("hostname", "Host"),
    ("product", "Machine"),
    ("cloud", "Cloud"),
    ("gpu", "GPU model"),
    ("gpus", "GPUs"),
    ("driver", "Driver"),
    ("cuda", "CUDA"),
    ("kernel", "Kernel"),
)
_OTHERS = ("you", "job-code")  # who has no support to write to
_PART = ("name", "serial", "uuid", "bus_id", "board_part_number", "vbios_version")


def render(report: Report, recording: str = "") -> str:
    """The ticket of all causes, the worst first; `recording` is the file to attach, if one was kept."""
    causes = [cause for cause in report["causes"] if cause["owner"] not in _OTHERS] or report["causes"]
    title = inert(causes[0]["headline"]) if causes else "no problem found"
    parts = [f"# {title}", "\n".join(_fact_lines(report))]
    for cause in causes:
        parts += _cause_lines(report, cause)
    parts += ["## Attached", "\n".join(_attachment_lines(recording))]
    return "\n\n".join(parts) + "\n"


def _fact_lines(report: Report) -> Iterator[str]:
    node = report["node"]
    for key, label in _NODE:
        if node.get(key):
            yield f"- {label}: {inert(str(node[key]))}"
    yield f"- Checked: {inert(report['started'])}, nodedoctor {inert(report['tool'])}"


def _cause_lines(report: Report, cause: Cause) -> Iterator[str]:
    page = cause_page(report, cause)
    yield f"## {Status(cause['status']).word}{preview_mark(cause)}: {page.headline}"
    opening = {part.label: part.text for part in page.opening}
    lines = [f"- Asked for: {action_of(cause)}"] if action_of(cause) else []
    lines += [f"- Part: {part}" for part in _part_lines(report, cause)]
    lines += [f"- Finding: `{inert(cause['id'])}`"]
    lines += [
        f"- {label.capitalize()}: {opening[label]}" for label in (CHECK, SINCE, WHY) if label in opening
    ]
    yield "\n".join(lines)
    if proof := _proof_lines(page):
        yield fenced("\n".join(proof), "")
    if tried := _repairs_to_tick(page):
        yield "\n".join(["Tried so far (tick what was done):", "", *tried])


def _proof_lines(page: CausePage) -> list[str]:
    """The lines that a cause rests on, under the probe that printed each, and how many more there are."""
    lines: list[str] = []
    for place, items in groupby(page.evidence, key=place_of):
        lines += [inert(place), *(line for item in items for line in inert_lines(item["text"].strip("\n")))]
    more = len(lines) - PROOF_LINES
    left_out = [f"# {count_with_noun(more, 'more line')} in the attached report"] if more > 0 else []
    return [*lines[:PROOF_LINES], *left_out]


def _repairs_to_tick(page: CausePage) -> list[str]:
    """What may repair it without support, to be ticked: of a repair's steps those that interrupt others."""
    repairs = [step for step in page.steps if step.repairs]
    shown = [step for step in repairs if step.interrupts] or repairs
    return [f"- [ ] `{step.command}`{f' ({step.when})' if step.when else ''}" for step in shown]


def _part_lines(report: Report, cause: Cause) -> Iterator[str]:
    """Model, serial number and place of the devices a cause names, as far as they are known."""
    for subject in cause["subjects"]:
        for gpu in objects(mapping(report["facts"].get("gpus")).get("gpus")):
            if subject in (f"gpu:{gpu.get('index')}", f"pci:{gpu.get('bus_id')}"):
                yield f"GPU {words(gpu.get('index'))}: {_subject_name(gpu)}"


def _subject_name(part: Mapping[str, Any]) -> str:
    values = ((key.replace("_", " "), words(part.get(key))) for key in _PART)
    return inert(", ".join(f"{key} {value}" for key, value in values if value))


def _attachment_lines(recording: str) -> Iterator[str]:
    if recording:
        yield (
            f"- `{inert(recording)}`: recording of this node; read it with `nodedoctor --replay "
            f"{inert(recording)}`"
        )
    else:
        yield "- nothing yet: record the node, without names, with `nodedoctor --record node.zip --redact`"
    yield f"- the output of `{BUG_REPORT}`, run on the node before any reset or reboot"
