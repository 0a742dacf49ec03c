"""What a provider's support wants to read first: which machine, which part, the proof, what was tried.

Markdown, ready to paste. It is made from the report alone, so one made with `--redact` names nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodedoctor.json_shapes import mapping, objects, words
from nodedoctor.model import Status
from nodedoctor.report.document import Cause, Finding, Report, full_summary, place_of, preview_mark
from nodedoctor.report.inert import inert
from nodedoctor.report.lead import of_cause, root, whose
from nodedoctor.report.markdown import fenced
from nodedoctor.report.steps import advice, repair_steps
from nodedoctor.wording import about

BUG_REPORT = "sudo nvidia-bug-report.sh"
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
    title = of_cause(causes[0]) if causes else "no problem found"
    parts = [f"# {title}", "\n".join(_facts(report))]
    for cause in causes:
        parts += _cause(report, cause)
    parts += ["## Attached", "\n".join(_attached(recording))]
    return "\n\n".join(parts) + "\n"


def _facts(report: Report) -> Iterator[str]:
    node = report["node"]
    for key, label in _NODE:
        if node.get(key):
            yield f"- {label}: {inert(str(node[key]))}"
    yield f"- Checked:  {inert(report['started'])}, nodedoctor {inert(report['tool'])}"


def _cause(report: Report, cause: Cause) -> Iterator[str]:
    yield f"## {Status(cause['status']).word}{preview_mark(cause)}: {inert(cause['headline'])}"
    lines = [f"- Owner: {whose(report, cause)}", f"- Finding: `{inert(cause['id'])}`"]
    lines += [f"- Part: {part}" for part in _parts(report, cause)]
    lines += [f"- Consequences:  {inert(', '.join(cause['explains']))}"] if cause["explains"] else []
    yield "\n".join(lines)
    members = {cause["id"], *cause["explains"]}
    quoted = [f for result in report["results"] for f in result["findings"] if f["id"] in members]
    for finding in sorted(quoted, key=lambda one: one["id"] != cause["id"]):
        yield from _quotes(finding)
    found = root(report, cause)
    fix = found[1]["fix"] if found else None
    if fix:
        yield f"Advice: {inert(advice(fix))}"
        for step in repair_steps(fix):
            yield f"{step.heading[:1].upper()}{step.heading[1:]}"
            yield fenced(step.command, "", "sh")


def _quotes(finding: Finding) -> Iterator[str]:
    yield inert(about(finding["subject"] or "", full_summary(finding)))
    for one in finding["evidence"]:
        yield fenced(one["text"], place_of(one))


def _parts(report: Report, cause: Cause) -> Iterator[str]:
    """Model, serial number and place of the devices a cause names, as far as they are known."""
    for subject in cause["subjects"]:
        for gpu in objects(mapping(report["facts"].get("gpus")).get("gpus")):
            if subject in (f"gpu:{gpu.get('index')}", f"pci:{gpu.get('bus_id')}"):
                yield f"GPU {words(gpu.get('index'))}: {_subject_name(gpu)}"


def _subject_name(part: Mapping[str, Any]) -> str:
    told = ((key.replace("_", " "), words(part.get(key))) for key in _PART)
    return inert(", ".join(f"{key} {value}" for key, value in told if value))


def _attached(recording: str) -> Iterator[str]:
    if recording:
        yield (
            f"- `{inert(recording)}`: recording of this node; read it with `nodedoctor --replay "
            f"{inert(recording)}`"
        )
    else:
        yield "- nothing yet: record the node, without names, with `nodedoctor --record node.zip --redact`"
    yield f"- the output of `{BUG_REPORT}`, run on the node before any reset or reboot"
