"""What cannot be redacted as text: ids written as numbers or bytes, findings' names, reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from nodedoctor.knowledge.ownership import REASON
from nodedoctor.model import identifier
from nodedoctor.redact.standins import StandIns
from nodedoctor.report.document import Report
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
        return _CONFIG.sub(lambda match: _redact_config(match[0], stand_ins), text)
    if probe == "nvml":
        return _CLUSTER.sub(lambda match: _redact_cluster(match[1] or match[2], stand_ins), text)
    return text


_TEXTS: Mapping[str, tuple[str, ...]] = {
    "causes": ("headline", "subjects", "reason"),
    "first_step": ("command", "when", "disturbs"),
    "findings": ("subject", "summary", "waived", "why", "judged_without"),
    "evidence": ("text", "path"),
    "fix": ("text", "commands", "disturbs", "verify"),
    "steps": ("command", "when", "disturbs"),
    "probes": ("argv", "note"),
}
"""Where texts tell of the node, by the key of what holds them; all else is the tool's own words."""
_IDS: Mapping[str, tuple[str, ...]] = {"causes": ("id", "explains"), "findings": ("id", "because_of")}
_LONGEST = {"headline": SUMMARY, "reason": REASON}


def redacted_report(report: Report, redaction: Redaction) -> Report:
    """A report with all texts replaced that tell of the node."""
    parts = {key: _redact_value(report[key], key, redaction) for key in ("causes", "results", "probes")}
    node, facts = redaction.node(report["node"]), redaction.document(report["facts"])
    document: Any = {**report, "node": node, **parts, "facts": facts}
    return cast("Report", document)


def _redact_value(value: Any, noun: str, redaction: Redaction) -> Any:
    """What a report has under a key, with every text in it replaced."""
    if isinstance(value, list):
        return [_redact_value(member, noun, redaction) for member in value]
    if not isinstance(value, dict):
        return value
    return {key: _redact_member(inner, key, noun, redaction) for key, inner in value.items()}


def _redact_member(value: Any, key: str, noun: str, redaction: Redaction) -> Any:
    if key in _IDS.get(noun, ()):
        return _replace_each(value, lambda id: _redact_id(id, redaction))
    if key in _TEXTS.get(noun, ()):
        return _replace_each(value, lambda text: redaction.text(text)[: _LONGEST.get(key)])
    return redaction.document(value) if key == "value" else _redact_value(value, key, redaction)


def _replace_each(value: Any, replaced: Callable[[str], str]) -> Any:
    """A text replaced, or each text of a list; null stays."""
    if isinstance(value, list):
        return list(map(replaced, value))
    return value if value is None else replaced(value)


def _redact_id(id: str, redaction: Redaction) -> str:
    check, _, subject = id.partition("@")
    return identifier(check, redaction.text(subject))


def _redact_config(digits: str, stand_ins: StandIns) -> str:
    """A configuration space with another serial number, which adapters make of their MAC address."""
    data = bytearray.fromhex(digits[: len(digits) & ~1])
    place, remaining = _EXTENDED, 64
    while _EXTENDED <= place <= len(data) - 12 and remaining:
        header = int.from_bytes(data[place : place + 4], "little")
        if header & 0xFFFF == _SERIAL_NUMBER:
            value = int.from_bytes(data[place + 4 : place + 12], "little")
            data[place + 4 : place + 12] = stand_ins.addresses.guid(value).to_bytes(8, "little")
        place, remaining = header >> 20 & 0xFFC, remaining - 1
    return data.hex()


def _redact_cluster(numbers: str, stand_ins: StandIns) -> str:
    values = [int(number) for number in numbers.split(",") if number.strip()]
    if len(values) != 16 or max(values) > 255 or not any(values):
        return f"[{numbers}]"
    return f"[{', '.join(map(str, bytes.fromhex(stand_ins.uuid(bytes(values).hex()))))}]"
