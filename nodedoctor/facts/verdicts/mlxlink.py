"""`mlxlink` as text and as JSON (`--json`): what it says of a port, and what it recommends.

Formats: Mellanox/mstflint 4.15 to 4.34, mlxlink/modules/mlxlink_commander.cpp (Operational Info,
Troubleshooting Info) and printutil/mlxlink_cmd_print.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.port_counters import exceeded_counters
from nodedoctor.facts.verdicts.verdict import Result, Verdict, in_json, make_verdict
from nodedoctor.json_shapes import loaded, mapping, part
from nodedoctor.patterns import regex
from nodedoctor.wording import comma_list

PROBE = "mlxlink"
mlxlink = pasted(PROBE, "The output of mlxlink, as text or as JSON.")

_PORT = regex(r"^# port (?P<name>[\w.:/-]{1,80})$", re.MULTILINE)
"""How intake/convert.py names the port that only the command at the prompt does."""
_LINE = regex(
    r"^[ \t]{0,8}(?P<key>[A-Z][\w ()[\].-]{2,60}?)[ \t]{0,60}: ?(?P<value>[^\n]{0,400})$", re.MULTILINE
)
_FINE = "No issue was observed"
_INTENDED = regex(
    r"(?i)\b(?:port is )?closed by command\b|disabled by (?:command|user)|port is not available"
)


def verdicts(output: str) -> Iterator[Verdict]:
    """One for each port: its state, and the recommendation where there is one."""
    marks = [*_PORT.finditer(output)]
    starts = [mark.end() for mark in marks] or [0]
    ends = [*(mark.start() for mark in marks[1:]), len(output)]
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        name = marks[number]["name"] if marks else ""
        block = output[start:end].strip()
        if verdict := _port_verdict(f"port:{name}" if name else "", _parse_fields(block), block):
            yield verdict


def _parse_fields(block: str) -> Mapping[str, str]:
    if not block.startswith("{"):
        fields: dict[str, str] = {}
        for line in _LINE.finditer(block):
            fields.setdefault(line["key"].strip(), line["value"].strip())
        return fields
    try:
        sections = part(part(mapping(loaded(block)), "result"), "output")
    except ValueError:
        return {}
    pairs = [item for name in sections for item in part(sections, name).items()]
    return {key: value.strip() for key, value in reversed(pairs) if isinstance(value, str)}


BER = 1e-12
"""Errors of bits that remain behind the correction; InfiniBand architecture: at most one in 10^12."""
DOWNS_IN_AN_HOUR, FEW_DOWNS = 1.0, 3
"""Times that a link went down, from which it is no reboot of the other end; ours."""
_REMAINING = ("Effective Physical BER", "Symbol BER")
_DOWNS, _MINUTES = "Link Down Counter", "Time Since Last Clear [Min]"
_NUMBER = regex(r"\d{1,15}(?:\.\d{1,9})?(?:[eE][+-]?\d{1,3})?")


def _link_quality(fields: Mapping[str, str]) -> list[str]:
    """What the counters show to be wrong: error rates beyond what is allowed, and a link that flaps."""
    values = {
        key: float(match[0])
        for key in (*_REMAINING, _DOWNS, _MINUTES)
        if (match := _NUMBER.fullmatch(fields.get(key, "")))
    }
    words = [f"{key} {fields[key]}" for key in _REMAINING if values.get(key, 0.0) > BER]
    downs, minutes = values.get(_DOWNS, 0.0), values.get(_MINUTES, 0.0)
    if minutes and downs >= FEW_DOWNS and downs / minutes * 60 > DOWNS_IN_AN_HOUR:
        words.append(f"the link went down {downs:.0f} times in {minutes:.0f} minutes")
    elif not minutes and exceeded_counters({"link_downed": round(downs)}):
        words.append(f"the link went down {downs:.0f} times since the counters were cleared")
    return words


def _port_verdict(subject: str, fields: Mapping[str, str], block: str) -> Verdict | None:
    state, advice = fields.get("State", ""), fields.get("Recommendation", "")
    if not state and not advice:
        return None
    speed = " ".join(fields[key] for key in ("Speed", "Width") if fields.get(key, "N/A") != "N/A")
    words = f"state {state or 'not reported'}{f' ({speed})' if speed else ''}"
    if advice:
        words += f": {advice.rstrip('.')}"
    result, quality = _port_result(state, advice), _link_quality(fields)
    if quality:
        words += f"; {comma_list(quality)}"
        result = "warn" if result in ("pass", "note", "unknown") else result
    quote = in_json(advice or state, block) if block.startswith("{") else _quoted_line(block, advice or state)
    return make_verdict(PROBE, PROBE, result, words, subject, quote)


def _port_result(state: str, advice: str) -> Result:
    if not advice or advice.startswith(_FINE):
        return "pass" if state == "Active" else "warn" if state else "unknown"
    if _INTENDED.search(advice):
        return "note"
    return "fail" if state and state != "Active" and "unplugged" not in advice.lower() else "warn"


def _quoted_line(block: str, words: str) -> str:
    return next((line.strip() for line in block.splitlines() if words in line), "")
