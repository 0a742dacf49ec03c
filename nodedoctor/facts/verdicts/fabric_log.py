"""The fabric manager's log: errors of NVSwitches, of its start, and of GPUs that it could not register.

Format: NVIDIA's fabric manager user guide, R450 to R590: /var/log/fabricmanager.log has `[date] [LEVEL]
[tid N]` before its words, the journal `nv-fabricmanager[pid]:`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Result, Verdict, make_verdict
from nodedoctor.patterns import regex
from nodedoctor.wording import count_with_noun

PROBE = "fabric-manager-log"
fabric_manager_log = pasted(PROBE, "/var/log/fabricmanager.log, or what journalctl has of its unit.")
_verdict = partial(make_verdict, PROBE, "fabric manager")
_SERVICE = "service:nvidia-fabricmanager"
OTHER_VERSION = f"{_SERVICE}/version"
"""What a fabric manager of another version than the driver's is about."""

_LINE = regex(
    r"(?:\] \[(?P<level>[A-Z]{4,8})\] \[tid \d{1,10}\] "
    r"|(?:nv-fabricmanager|nvidia-fabricmanager-start\.sh)\[\d{1,10}\]: )"
    r"(?P<words>[^\n]{3,600})$"
)
_SWITCH = regex(r"NVSwitch (?P<non>non-)?fatal error (?P<code>\d{4,6})", re.IGNORECASE)
_ADDRESS = regex(r"\b(?:[\da-f]{4,8}:)?[\da-f]{2}:[\da-f]{2}\.\d\b", re.IGNORECASE)
_PORT = regex(r"\bport (\d{1,3})\b")
_EXIT = "failed! Exit code"
"""What its start script says last, after the reason."""
NO_SWITCH = f"{_SERVICE}/switches"
"""What a fabric manager that found no NVSwitch is about."""
_NO_SWITCH = "NV_WARN_NOTHING_TO_DO"
"""What the driver answers where there is no NVSwitch: the service is not needed then."""
_FAILED = regex(
    r"^(?:failed|error|unable|could not|fatal)\b|\bfailed\b(?! Exit code)|\bnot (?:found|supported)\b",
    re.IGNORECASE,
)
_UNIT = regex(
    r"systemd\[\d{1,10}\]: (?:nvidia-fabricmanager\.service: (?P<end>Failed with result '[\w-]{1,30}'"
    r"|(?:Main|Control) process exited, [^\n]{1,80})|(?P<start>Started|Failed to start) "
    r"(?:nvidia-fabricmanager|NVIDIA [Ff]abric [Mm]anager)[^\n]{0,80})"
)
"""What systemd's journal says of its unit (systemd, src/core/unit.c and service.c)."""
_OTHER_VERSION = regex(
    r"interface version (?P<own>\d{3,4}\.[\d.]{1,12}?)\.? (?:don't|doesn't|does not|do not) match"
    r" with driver version (?P<driver>\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)"
)
"""Why it does not start; that it did not start follows."""
_UP = regex(r"[Ss]uccessfully configured all the available")
_MOST = 20
"""Different errors that are named; ours."""


def verdicts(output: str) -> Iterator[Verdict]:
    """Each different error once, with how often it was logged; how it came up where there is none."""
    counts: dict[tuple[Result, str, str], list[str]] = {}
    success = failure = ""
    for line in output.splitlines():
        if unit := _UNIT.search(line):
            started = unit["start"] == "Started"
            failure = "" if started else line[unit.start() :].partition("]: ")[2].strip()
            success = success if started else ""
        if not (match := _LINE.search(line)):
            continue
        words = match["words"].strip()
        success = words if _UP.search(words) else success
        if kind := _classify_line(match["level"] or "", words):
            counts.setdefault(kind, []).append(words)
    if len(counts) > 1:
        counts = {kind: lines for kind, lines in counts.items() if _EXIT not in lines[0]}
    for (result, subject, summary), lines in list(counts.items())[:_MOST]:
        times = f", {count_with_noun(len(lines), 'time')}" if len(lines) > 1 else ""
        yield _verdict(result, f"{summary}{times}", subject, lines[0])
    if failure and any(subject == NO_SWITCH for _, subject, _ in counts):
        words = (
            "its service does not run: the driver shows no NVSwitch, which it needs only on boards with some"
        )
        yield _verdict("warn", words, NO_SWITCH, failure)
    elif failure and not any(subject == OTHER_VERSION for _, subject, _ in counts):
        yield _verdict("fail", f"its service does not run: {failure}", _SERVICE, failure)
    elif success and not any(result in ("fail", "warn") for result, _, _ in counts):
        yield _verdict("pass", success, quote=success)
    elif not counts:
        yield _verdict("note", "no error in these lines of its log")


def _classify_line(level: str, words: str) -> tuple[Result, str, str] | None:
    """The result, the subject and the words of a line that is an error; None for any other."""
    if _NO_SWITCH in words:
        return "note", NO_SWITCH, "it found no NVSwitch: not needed on boards without any"
    if match := _OTHER_VERSION.search(words):
        summary = f"version {match['own']} does not match the driver's {match['driver']}: it does not run"
        return "fail", OTHER_VERSION, summary
    if match := _SWITCH.search(words):
        address, number = _ADDRESS.search(words), _PORT.search(words)
        where = address[0].lower()[-12:] if address else ""
        grave = not match["non"]
        port = f", port {number[1]}" if number else ""
        summary = (
            f"{'fatal' if grave else 'non-fatal'} error {match['code']} of NVSwitch {where or '?'}{port}"
        )
        return "fail" if grave else "note", f"switch:{where}/{match['code']}", summary
    if level in ("ERROR", "CRITICAL") or (not level and _FAILED.search(words)):
        plain = re.sub(r"\d+", "#", words)
        return "warn", f"line:{plain[:60]}", words
    return None
