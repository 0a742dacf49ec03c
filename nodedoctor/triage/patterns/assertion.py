"""The manner of a line: as an error, a warning, handled, or quoted.

A program that warns goes on, and a message in a configuration, a help text or a list is no event at all. The
words around a message tell; the message itself is the same.
"""

from __future__ import annotations

import re
from typing import Literal

from nodedoctor.triage.model import SERIOUS, Line
from nodedoctor.triage.patterns.handling import ENDS, is_handled
from nodedoctor.triage.patterns.prose import REACH, is_prose_about_error, without_label

Assertion = Literal["plain", "retold", "warning", "handled", "described", "quoted"]
"""`retold`: the program reports the error in its own words, so it had caught it; it may have ended then."""

_PYTHON_WARNS = re.compile(r"\b[A-Z]\w*Warning\b(?!: CUDA initialization:)\W|\bwarnings?\.warn\b")
"""Python's own; torch tells in one that CUDA could not be initialised, and that is an error."""
_WARNS = re.compile(
    r"^\W{0,3}(?:WARN(?:ING)?|[Ww]arning|INFO|DEBUG|NOTICE)\b"
    r"|(?: - |\[|\|\s{0,3}|\s)(?:WARN(?:ING)?|INFO|DEBUG)(?: - |\]|\s{0,3}\||: )"
)
"""The levels of loggers. NCCL's own WARN is the level of its errors, and a label."""
_CLUSTER_EVENT = re.compile(
    r"(?:.{0,80}\s)?(?:Warning|WARNING)\s{1,20}[A-Z][A-Za-z]{2,40}(?:\s{2,}|\t| (?=[a-z]+/))"
)
"""A row of `kubectl describe` or `get events`: Kubernetes has two types of events, Normal and Warning, and no
word that is worse (kubernetes.io/docs/reference/kubernetes-api, Event v1)."""
_LABEL = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL|[Ee]rror|[Ee]xception|[Ff]ail(?:ed|s|ure)?)\b|\w(?:Error|Exception)\b|\bWARN\b|what\(\)"
)
"""What announces an error; a message behind it is one."""
_LEVEL_IN_FRONT = re.compile(
    r"\W{0,3}(?:\d[\d:.,TZ/ +-]{4,40}\W{0,3})?(?:WARN(?:ING)?|INFO|DEBUG|NOTICE|TRACE"
    r"|warn(?:ing)?|info|debug|notice|trace|[WID](?=\]))\b(?! NCCL)(?=\W)"
)
"""A level below error at the beginning of a line: it outweighs the name of an exception behind it."""
_SEVERE = re.compile(r"\b(?:ERROR|FATAL|CRITICAL|WARN)\b|what\(\)")
"""What outweighs that level: the line passes on what another program calls an error."""
_NAME = re.compile(r"\w{1,60}(?:Error|Exception|Timeout|Expired|Interrupt|Failure)\b|\bNCCL WARN\b")
"""How the words of an error begin: the name of one kind of exception, or NCCL's mark."""
_LABELS_END = re.compile(r"[|\t\]]|(?<![-=])>|\s-\s|\d[Z ]\s{0,9}(?=[A-Z]{4,8}\b)")
"""The end of the labels of collectors and loggers, before the words of a program."""
_OWN_WORD = re.compile(
    r"(?<![\w./\\=:(\[-])(?!(?:DEBUG|INFO|NOTICE|WARN|WARNING|TRACE)\b)[A-Za-z][A-Za-z']{2,20}(?![\w./\\()\]=-]|::)"
)
"""A word that is no level and no part of a name, a path or a place; one before a colon may be a label."""
_OUTPUT = re.compile(r"(?i)\b(?:output|std(?:out|err)|observation|response|answer|feedback)\b")
"""What programs print as the words of another one, whatever its end was."""
_FAILS = re.compile(
    rf"(?i){ENDS.pattern}|error|fail|exception|stop|cannot|can't|could ?n[o']t|unable|lost|critical|traceback"
    r"|reason|\bcause[sd]?\b|\bend(?:s|ed)\b"
)
"""That, and what a program says of an error that may end it."""
_MILD_LETTER = re.compile(r"[WID] \d{4}-\d\d-\d\d[ T]\d")
"""A severity in front of a date."""
_OPENS = ("=", "'", '"', "(")
"""What opens a value or a quotation."""
_MARKS = frozenset(".=*!~>")
"""Punctuation that no label has between its end and the name of an error."""
_OUTCOME = re.compile(r"\s\|\s+[a-z]{3,}|\s\([a-z]{2,20}(?:,? [a-z']{2,20}){1,8}\)$")
"""What became of an error, behind its message."""
_ARROW = re.compile(r"\s(?:->|=>)\s+[a-z]{2}")
"""With which a program, and no library, puts what came of an error behind it."""
_CLAUSE = re.compile(
    r"(?:[;,]\s|\s\(|\s-\s)(?:[a-z'-]{1,20}|\d[\w.%]{0,20})"
    r"(?:,? (?:[a-z'-]{1,20}|\d[\w.%]{0,20})){0,12}\W{0,3}$"
)
"""A clause of ordinary words at the end of a line, behind an error's own words."""
_COMMENT = re.compile(r"(?:^|\s)#+\s")
_COMMENT_BEHIND = re.compile(r"\s{2}#\s")
_LEVEL_BEFORE = re.compile(
    r"(?<!NCCL )\b(?:WARN(?:ING)?|DEBUG|NOTICE|TRACE|[Ww]arn(?:ing)?|[Dd]ebug|[Nn]otice)\b"
    r"\W{1,12}$"
)
"""A level as the last word in front of an error's name."""
_FIELD_LEVEL = re.compile(
    r"\b(?:level|lvl|severity)[\"']?\s?[=:]\s?[\"']?(?i:warn(?:ing)?|info|debug|notice|trace)\b"
)
"""The level in a line of fields, as logfmt and JSON write it."""
_OPTION = re.compile(r"^\s*(?:-\w, )?--[a-z][\w-]*")
_SETTING = re.compile(
    r"^(?:\s{2,}|\s*- )?['\"]?(?P<key>[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*)['\"]?\s*(?::\s+|=\s*)\S"
)
"""`retry_on: ...`: a lower-case name, indented or made of several words."""
_EVENT_KEYS = re.compile(
    r"(?:error|exception|reason|message|msg|detail|status|state|cause|what|kernel|stderr|stdout|exit|exitcode|code"
    r"|signal|output|log|text|event|warning|failed|pid|rank|host|node|name)s?$"
)
"""Keys whose values are what happened."""
_VARIABLE = re.compile(r"(?:export |declare -x |set )?(?P<key>[A-Z_][A-Z0-9_]*)=(?!=)")
"""A line of `env`, which job scripts print: the value of a variable is no event."""
_EVENT_VARIABLES = re.compile(r"(?:ERROR|EXCEPTION|REASON|MESSAGE|CAUSE)S?$")
"""Names of variables whose values are what happened."""
_ACTION_KEYS = re.compile(r"^(?:on|retry|skip|ignore|restart)_|patterns?$")
"""Settings that end in such a word."""
_X_SERVER_LINE = re.compile(r"(?:\[ *\d+\.\d{3}\] )?\((?:EE|WW|II|!!|\?\?)\) ")
"""How an X server marks its lines (`man Xorg`, its log), which bug reports hold: it is no part of a job."""
_REPORTS = re.compile(r"\S+:\d+: |line \d+: |(?:fatal |internal )?error: ")
"""What compilers, shells and asserts print behind a program's name, which may look like a setting's."""
_WORD = re.compile(r"(?<![\w./\\-])[a-z']{1,20}(?![\w./\\(=-])")
RETOLD = 2
"""Words of its own with which a program retells an error; one may be a label. Ours."""
PROSE = 4
"""Ordinary words in a row before a message that make it part of a sentence about it."""


def is_warning(text: str, end: int) -> bool:
    """True when one of Python's warnings says what ends at `end`."""
    return _PYTHON_WARNS.search(text[:end]) is not None


def assertion_of(line: Line, start: int, end: int, words: int | None = None) -> Assertion:
    """The manner of a line's text, `start` to `end`; its words may begin at `words`."""
    text = line.text
    if _CLUSTER_EVENT.match(text[:start]):
        return "plain"
    if is_warning(text, end) or line.severity in ("W", "I", "D"):
        return "warning"
    if line.level != "F" and is_handled(text):  # what ends a program is not handled, whatever it says
        return "handled"
    if _OPTION.match(text) or _X_SERVER_LINE.match(text) or _is_setting(text, end):
        return "quoted"
    begin = start if words is None else words
    if not line.level and is_prose_about_error(text, begin, end):
        return "quoted"
    outside, quoted = _split_quotes(text[:start], text[start:])
    if _COMMENT.search(text[:end]) or _COMMENT_BEHIND.search(text, end):
        return "quoted"
    level = _LEVEL_IN_FRONT.match(outside)
    name = _name_begin(text, end)
    mild = (
        _FIELD_LEVEL.search(text[:start])
        or _LEVEL_BEFORE.search(text[: start if name is None else name][-32:])
        or ((level or line.level == "D") and not _SEVERE.search(outside, level.end() if level else 0))
    )
    below_error = bool(mild) or line.level in ("W", "I", "D")
    if name is not None and _is_caught(text, name, below_error=below_error):
        return "handled"
    if mild:
        return "warning"
    mentioned = name is not None and _is_mentioned(line, name, end)
    goes_on = _goes_on(line, begin if name is None else min(begin, name), end)
    as_report: Assertion = "retold" if mentioned or goes_on else "plain"
    if _LABEL.search(outside):
        return as_report
    if line.level == "W" or _WARNS.search(text[: start + 40]):
        return "warning"
    if quoted:
        return "quoted"
    clause = re.split(r"[:\])>|]", outside)[-1]
    return "described" if len(_WORD.findall(clause)) >= PROSE else as_report


def names_error(text: str) -> bool:
    """True for a text with an exception's name, or NCCL's mark of an error."""
    return _NAME.search(text) is not None


def _is_caught(text: str, end: int, *, below_error: bool) -> bool:
    """True where a program's own words precede an error's name: it caught it.

    One word may be a label; below the level of an error it is enough.
    """
    begin = _labels_end(text, end)
    words = list(_OWN_WORD.finditer(text, begin, end))
    if all(text.startswith(":", word.end()) for word in words):
        return False
    return below_error or (len(words) >= RETOLD and _FAILS.search(text, begin, end) is None)


def is_heading(text: str) -> bool:
    """True for a heading in a program's words: over what another one printed, or about no error or end."""
    if not text.endswith(":") or len(_OWN_WORD.findall(text)) < RETOLD or _LABEL.search(text):
        return False
    return _OUTPUT.search(text) is not None or ENDS.search(text) is None


def _is_mentioned(line: Line, name: int, end: int) -> bool:
    """True where a program mentions an error: the interpreter prints the name first.

    An error's own logger level, or a word of an end, leaves open that it was the end.
    """
    text = line.text
    if line.level in SERIOUS or _SEVERE.search(text, 0, end):  # NCCL's mark is one, too
        return False
    if line.cited or line.level in ("W", "I", "D") or _MILD_LETTER.match(text) or _OUTCOME.search(text, end):
        return True
    begin = _labels_end(text, name)
    if text[max(begin, name - 1) : name] in _OPENS or set(text[begin:name]) & _MARKS:
        return True
    own = _OWN_WORD.search(text, begin, name)
    return own is not None and ENDS.match(own[0]) is None


def _goes_on(line: Line, begin: int, end: int) -> bool:
    """True where an error is in the middle of a program's own sentence, which goes on to what came of it.

    What the interpreter or a library prints of an error ends with its words.
    """
    text = line.text
    if line.level in SERIOUS or _SEVERE.search(text, 0, end):
        return False
    if _ARROW.search(text, end):
        return True
    lead = without_label(text[max(_labels_end(text, begin), begin - REACH) : begin])
    clause = _CLAUSE.search(text, end) if _OWN_WORD.search(lead) else None
    if clause is None or ENDS.search(clause[0]):
        return False
    ends = ENDS.search(lead)
    return ends is None or ends[0].lower().strip() == "rais"  # who tells what another one raised, caught it


def _labels_end(text: str, end: int) -> int:
    """Where the labels in front of `end` stop and the program's words begin."""
    return max((label.end() for label in _LABELS_END.finditer(text, 0, end)), default=0)


def _name_begin(text: str, end: int) -> int | None:
    """Where an error's name with its module begins, until `end`; None without one."""
    match = _NAME.search(text[:end])
    if match is None:
        return None
    begin = match.start()
    while begin and (text[begin - 1].isalnum() or text[begin - 1] in "._"):
        begin -= 1
    return begin


def _is_setting(text: str, end: int) -> bool:
    """True when a line begins with a setting's name, in front of `end`."""
    variable = _VARIABLE.match(text)
    if variable is not None and variable.end() <= end:
        return _EVENT_VARIABLES.search(variable["key"]) is None
    match = _SETTING.match(text)
    if match is None or match.end("key") > end or _REPORTS.match(text, match.end() - 1):
        return False
    key = match["key"]
    holds_event = _EVENT_KEYS.search(key) is not None and not _ACTION_KEYS.search(key)
    return not holds_event and ("_" in key or text[:1] in " -")


def _split_quotes(lead: str, rest: str) -> tuple[str, bool]:
    """The part of a line's beginning outside quotation marks, and whether its end is inside."""
    outside: list[str] = []
    quote, before = "", " "
    for index, char in enumerate(lead):
        next_char = lead[index + 1 : index + 2] or rest[:1] or " "
        if quote:
            if char == quote and not next_char.isalnum():
                quote = ""
        elif char in "'\"" and not before.isalnum() and before not in "])":
            quote = char
        else:
            outside.append(char)
        before = char
    return "".join(outside), bool(quote) and quote in rest
