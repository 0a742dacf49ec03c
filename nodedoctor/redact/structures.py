"""What cannot be redacted as text: ids written as numbers or bytes, findings' names, reports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nodedoctor.knowledge.ownership import REASON
from nodedoctor.model import identifier
from nodedoctor.redact.standins import StandIns
from nodedoctor.report.document import Cause, Evidence, Finding, Fix, Probe, Report, Result, Step
from nodedoctor.wording import SUMMARY

if TYPE_CHECKING:
    from nodedoctor.redact import Redaction

_CONFIG = re.compile('(?<=/config": ")[0-9a-f]{520,8192}')
_CLUSTER = re.compile(r'(?<="clusterUuid": )\[([0-9,\s]{31,128})\]|(?<="clusterUuid":)\[([0-9,\s]{31,128})\]')
_SERIAL_NUMBER = 3  # Device Serial Number, an extended capability: linux, include/uapi/linux/pci_regs.h
_EXTENDED = 0x100  # where extended capabilities begin, each naming the next


def redacted(probe: str, text: str, stand_ins: StandIns) -> str:
    """A probe's text with the ids replaced that are no text: of PCI devices, of NVLink clusters."""
    if probe == "pci":
        return _CONFIG.sub(lambda found: _config(found[0], stand_ins), text)
    if probe == "nvml":
        return _CLUSTER.sub(lambda found: _cluster(found[1] or found[2], stand_ins), text)
    return text


def redacted_report(report: Report, redaction: Redaction) -> Report:
    """A report with all texts replaced that tell of the node."""
    return {
        **report,
        "node": redaction.node(report["node"]),
        "causes": [_cause(cause, redaction) for cause in report["causes"]],
        "results": [_result(result, redaction) for result in report["results"]],
        "probes": [_probe(seen, redaction) for seen in report["probes"]],
        "facts": redaction.document(report["facts"]),
    }


def _result(result: Result, redaction: Redaction) -> Result:
    return {**result, "findings": [_finding(result["check"], one, redaction) for one in result["findings"]]}


def _finding(check: str, finding: Finding, redaction: Redaction) -> Finding:
    text = redaction.text
    subject = text(finding["subject"] or "")
    told: Finding = {
        **finding,
        "id": identifier(check, subject),
        "summary": text(finding["summary"]),
        "subject": subject or None,
        "evidence": [_evidence(one, redaction) for one in finding["evidence"]],
        "fix": _fix(finding["fix"], redaction) if finding["fix"] else None,
        "because_of": _id(finding["because_of"], redaction) if finding["because_of"] else None,
        "waived": None if finding["waived"] is None else text(finding["waived"]),
    }
    if "why" in finding:
        told["why"] = text(finding["why"])
    if "judged_without" in finding:
        told["judged_without"] = text(finding["judged_without"])
    return told


def _evidence(one: Evidence, redaction: Redaction) -> Evidence:
    told: Evidence = {**one, "text": redaction.text(one["text"])}
    if "path" in one:
        told["path"] = redaction.text(one["path"])
    if "value" in one:
        told["value"] = redaction.document(one["value"])
    return told


def _cause(cause: Cause, redaction: Redaction) -> Cause:
    text, step = redaction.text, cause["first_step"]
    return {
        **cause,
        "id": _id(cause["id"], redaction),
        "headline": text(cause["headline"])[:SUMMARY],
        "subjects": [text(subject) for subject in cause["subjects"]],
        "explains": [_id(id, redaction) for id in cause["explains"]],
        "reason": text(cause["reason"])[:REASON],
        "first_step": {**step, "command": text(step["command"])} if step else None,
    }


def _id(id: str, redaction: Redaction) -> str:
    check, _, subject = id.partition("@")
    return identifier(check, redaction.text(subject))


def _fix(fix: Fix, redaction: Redaction) -> Fix:
    text = redaction.text
    return {
        **fix,
        "text": text(fix["text"]),
        "commands": list(map(text, fix["commands"])),
        "disturbs": text(fix["disturbs"] or "") or None,
        "verify": text(fix["verify"] or "") or None,
        "steps": [_step(step, redaction) for step in fix["steps"]],
    }


def _step(step: Step, redaction: Redaction) -> Step:
    text = redaction.text
    return {
        **step,
        "command": text(step["command"]),
        "when": text(step["when"] or "") or None,
        "disturbs": text(step["disturbs"] or "") or None,
    }


def _probe(seen: Probe, redaction: Redaction) -> Probe:
    text = redaction.text
    return {**seen, "argv": list(map(text, seen["argv"])), "note": text(seen["note"] or "") or None}


def _config(digits: str, stand_ins: StandIns) -> str:
    """A configuration space with another serial number, which adapters make of their MAC address."""
    data = bytearray.fromhex(digits[: len(digits) & ~1])
    place, left = _EXTENDED, 64
    while _EXTENDED <= place <= len(data) - 12 and left:
        header = int.from_bytes(data[place : place + 4], "little")
        if header & 0xFFFF == _SERIAL_NUMBER:
            value = int.from_bytes(data[place + 4 : place + 12], "little")
            data[place + 4 : place + 12] = stand_ins.addresses.guid(value).to_bytes(8, "little")
        place, left = header >> 20 & 0xFFC, left - 1
    return data.hex()


def _cluster(numbers: str, stand_ins: StandIns) -> str:
    values = [int(number) for number in numbers.split(",") if number.strip()]
    if len(values) != 16 or max(values) > 255 or not any(values):
        return f"[{numbers}]"
    return f"[{', '.join(map(str, bytes.fromhex(stand_ins.uuid(bytes(values).hex()))))}]"
