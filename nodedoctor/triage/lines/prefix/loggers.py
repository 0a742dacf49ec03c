"""Prefixes of loggers: a severity, their name, the place in the source."""

from __future__ import annotations

import re

from nodedoctor.triage.lines.prefix.info import DIGITS, LOWER, UPPER, PrefixInfo, Reader, ignore_prefix
from nodedoctor.triage.lines.prefix_pattern import STEP_WORDS
from nodedoctor.triage.lines.times import parse_time, year_seconds
from nodedoctor.triage.model import COMPILED, LARGEST_PID
from nodedoctor.whole_numbers import whole_number

_PADDED = {"DEBUG": 4, "INFO": 5, "NOTICE": 3, "WARNING": 2, "WARN": 5, "ERROR": 4, "CRITICAL": 1, "FATAL": 4,
           "TRACE": 4, "SUCCESS": 2}  # fmt: skip
"""Severities, and the blanks behind them at most: what is further in belongs to the text."""
_NAMED_LEVEL = re.compile(r"\[(" + "|".join(_PADDED) + r"):[A-Za-z_][\w.-]{0,60}\] (?=\S)")
"""ModelScope's loggers, `[INFO:swift] `."""
_LEVEL = re.compile(
    r" {0,12}(?:\[|<)?(?:("
    + "|".join(_PADDED)
    + r")(?:\]|>)?(?: *\| ?| +- |\t|:(?=[\w.]+:|\d{4}-\d\d-\d\d )|:$|(?<=[\]>]):? ?)"
    r"|(" + "|".join(f"{word}:? {{1,{most}}}" for word, most in _PADDED.items()) + r")(?=[^:\s]| ))"
)
_LOGGER = re.compile(
    r"\[(?!rank|default)[A-Za-z_][\w.:/-]*\](?: - |: | ?(?=[\[<]))"
    r"|[\w.<>/-]+(?::[\w.<>]+)*(?::\d+)?(?: - | +\| |\|)"
    r"|(?:[\w.<>/-]+\.\w{1,4}|[A-Za-z_][\w.<>/-]*:[\w.<>]+):\d+:? (?=\S)"
    r"|\[[\w./-]+\.\w{1,4}:\d+\] "
    r"|[\w./-]+\.\w{1,4}:\d+\] "
)
_MEASURE = re.compile(rf"(?:[\w./-]*[_/.-])?(?i:{STEP_WORDS})[:_-]?\d|[\w./-]+:\d+\.\d")
"""A count or a value in the place of a logger's name: `step:34 - loss:2.1 - `."""
_NAME_COLON = re.compile(r"[a-z_][\w.]*:(?=\S)")
_BASIC = re.compile(r"[a-z_][\w.]*:(?=\S|[ \t]{2})")
"""In logging's basic format, blanks behind the name belong to the message."""
_VALUE = re.compile(r"[a-z_][\w.]*:\d")
"""The name of a number and no logger's, except in logging's basic format, `INFO:root:`."""
_RANK_NAME = re.compile(r"(rank[_-]?)?(\d{1,6})(?![\w.])")
"""The rank of a process in the place of a logger's name."""
_COMMAND = re.compile(r"##\[(\w+)\]|::(error|warning|notice)(?: [^:]*)?::")
_PRIORITY = re.compile(r"<\d{1,3}>(?=\S)")
_FIELD = re.compile(r" {4}MESSAGE=(?=\S)")
"""The text of an entry that `journalctl -o verbose` prints, a field per line."""
_MARKUP = re.compile(r"[ \t]{0,3}(?:(?!-> [a-z]+ [a-z])(?:[#>*-]{1,4}\s)+`*(?=.)|`+(?=\S))")
"""Marks of text; an arrow in front of words is what a program puts there to say what came of an error."""
_GLOG = re.compile(
    r"\[?([EWIF])(?:(\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+)|0000 00:00:(1\d{9}\.\d{1,9}))?"
    r"(?: +\d+)? ([\w./-]+\.\w+:\d+)\] ?"
)
"""Abseil has no date until it is initialized (`absl/log/internal/log_format.cc`): then seconds of Unix."""
_NCCL = re.compile(r"([A-Za-z0-9][\w.-]*):(\d{1,7}):\d+ \[(-?\d+)\] (?=\S)")
_UCX = re.compile(
    r"\[([A-Za-z0-9][\w.-]*):(\d{1,7}):\d{1,7}\] {1,24}[\w.-]+\.\w{1,3}:\d{1,5} {1,4}UC[XC] {1,4}"
    r"(FATAL|ERROR|WARN|DIAG|INFO|DEBUG|TRACE|REQ|DATA|ASYNC|FUNC|POLL) {1,4}(?=\S)"
)
"""UCX's and UCC's logger, behind its time: host, pid and thread, place and severity (ucs/debug/log.c)."""

_TAG = re.compile(r"\[[A-Za-z][\w.-]{0,30}\] (?=\d{4}-\d\d-\d\d[ T]\d\d:\d\d)")
"""The name of a program in front of its logger's date, as torchtitan's (torchtitan/tools/logging.py)."""


def name_ends(text: str, prefix: PrefixInfo) -> int:
    """The end of a logger's name at the beginning of a text; 0 without."""
    match = _LOGGER.match(text) if _MEASURE.match(text) is None else None
    if match is None and prefix.level and (prefix.basic or not _VALUE.match(text)):
        match = (_BASIC if prefix.basic else _NAME_COLON).match(text)
    if match is None or match[0].startswith(("Error", "Warning")) or text.startswith("NCCL ", match.end()):
        return 0
    rank_name = _RANK_NAME.match(match[0])
    if rank_name and rank_name[1]:
        prefix.add_rank(int(rank_name[2]))
    elif rank_name:
        prefix.labels += (("name", int(rank_name[2])),)
    return match.end()


def _severity_letter(severity: str) -> str:
    """The letter for one of `_PADDED`."""
    return {"S": "I", "T": "D", "N": "I", "C": "F"}.get(severity[0], severity[0])


def _read_level(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.level = _severity_letter(match[1] or match[2])
    prefix.severities += (True,)
    prefix.logged = True
    prefix.basic = match[0].endswith(":")


def _read_named_level(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.level = _severity_letter(match[1])
    prefix.severities += (True,)


def _read_command(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.level = {"error": "E", "warning": "W"}.get(match[1] or match[2], prefix.level)
    prefix.severities += (True,)


def _read_glog(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.level = match[1]
    prefix.origin = match[9]
    prefix.severities += (not COMPILED.search(match[9]),)
    if match[8]:
        prefix.time = parse_time(match[8])
    if match[2]:
        prefix.time = year_seconds(*match.group(2, 3, 4, 5, 6, 7))


def _read_nccl(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.add(host=match[1], pid=whole_number(match[2], LARGEST_PID))


def _read_ucx(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.add(host=match[1], pid=whole_number(match[2], LARGEST_PID))
    prefix.level = {"FATAL": "F", "ERROR": "E", "WARN": "W", "DIAG": "I", "INFO": "I"}.get(match[3], "D")
    prefix.severities += (False,)


def _read_markup(match: re.Match[str], prefix: PrefixInfo) -> None:
    """The mark of a quotation, a comment, or an item of a list."""
    prefix.cited = match[0].lstrip()[:1] in (">", "#")


GLOG: Reader = (_GLOG, _read_glog, "[EWIF")
PRIORITY: Reader = (_PRIORITY, ignore_prefix, "<")
NCCL: Reader = (_NCCL, _read_nccl, UPPER + LOWER + DIGITS)
UCX: Reader = (_UCX, _read_ucx, "[")
TAG: Reader = (_TAG, ignore_prefix, "[")
NAMED_LEVEL: Reader = (_NAMED_LEVEL, _read_named_level, "[")
LEVEL: Reader = (_LEVEL, _read_level, " [<DINWECFTS")
FIELD: Reader = (_FIELD, ignore_prefix, " ")
COMMAND: Reader = (_COMMAND, _read_command, "#:")
MARKUP: Reader = (_MARKUP, _read_markup, " \t#>*-`")
