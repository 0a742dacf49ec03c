"""What the Xids of one GPU mean together: how bad each number is, and what NVIDIA's catalogue asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nodedoctor.facts.kernel.events import LoggedXid
from nodedoctor.knowledge import xids as table
from nodedoctor.knowledge.fixes.gpu import recovery_fix
from nodedoctor.model import Action, Status
from nodedoctor.patterns import regex
from nodedoctor.record import record

_CONTAINED = 94
"""Contained to one program, and still an uncorrectable memory error: the hardware's, unlike its bucket."""
_NO_SPARE = 64
_LINK_CODES = (74, *range(144, 151))
_LINK_SECONDS = 30.0
"""A link that went down within so much before explains a refused peer access (catalogue, XID_137_FLOW)."""
_REFUSED = 137
_RECOVERY = regex(r"GPU recovery action changed from .* to (?:0x)?([0-9a-fA-F]{1,2})\b")
_CAUSED = regex(r"caused by previous Xid (\d{1,4})\b")
_NVLINK5 = regex(
    r"(?P<unit>[A-Z][A-Z0-9_/]{1,40})\s+(?P<grade>Nonfatal|Fatal).{0,90}?\((?P<words>0x[0-9a-fA-F][^)]*)\)"
)
_LINK_REGISTERS = regex(
    r"\blink (?P<link>\d{1,2}) ?\((?P<words>0x[0-9a-fA-F]{1,8}(?:, ?0x[0-9a-fA-F]{1,8}){1,9})\)"
)
_SPENT = regex(r"All reserved rows|(?:[Tt]able|[Ll]ist) is full")
"""What the driver writes behind an Xid 64 where no spare is left: a reset has none to use."""
_RANK = (Status.FAIL, Status.WARN, Status.PASS)


@record
class JudgedXid:
    """All errors of one number on one GPU: how bad, what they mean, what to do."""

    code: int
    status: Status
    meaning: str
    action: Action
    advice: str
    events: tuple[LoggedXid, ...]
    of_program: bool = False

    @property
    def times(self) -> str:
        """The number, and how often it occurred."""
        return f"Xid {self.code}" + (f" ({len(self.events)} times)" if len(self.events) > 1 else "")


def judge_events(events: Iterable[LoggedXid], branch: int) -> list[JudgedXid]:
    """The errors by number, the worst first; `branch` is the driver's, which decides how words are read."""
    by_code: dict[int, list[LoggedXid]] = {}
    causes: dict[int, LoggedXid] = {}
    for event in events:
        by_code.setdefault(event.code, []).append(event)
        if (cause := cause_of(event)) is not None:
            causes.setdefault(cause, event)
    for code, event in causes.items():  # the line of the cause itself is lost
        by_code.setdefault(code, [event])
    errors = [error for code, group in by_code.items() if (error := _judge_code(code, tuple(group), branch))]
    return sorted(
        errors,
        key=lambda error: (
            _RANK.index(error.status),
            error.code == 154,
            not is_spent(error.code, error.events),
            error.events[0].when.at,
        ),
    )


def of_programs(events: Iterable[LoggedXid]) -> frozenset[LoggedXid]:
    """The errors whose likeliest culprit is the program, not the node.

    A channel that was removed (45) is of what its line names as cause, and a refused peer access (137) of a
    link that went down within half a minute, on whichever GPU.
    """
    xids = list(events)
    return frozenset(event for event in xids if _of_program(event) and link_behind(event, xids) is None)


def _of_program(event: LoggedXid) -> bool:
    cause = cause_of(event)
    row = table.xid(event.code if cause is None else cause)
    return row is not None and row.of_program


def link_behind(event: LoggedXid, events: Iterable[LoggedXid]) -> LoggedXid | None:
    """The error of a link that made the driver refuse a peer access; None where there is none, or another."""
    if event.code != _REFUSED:
        return None
    at = event.when.seconds
    return next(
        (
            xid
            for xid in events
            if xid.code in _LINK_CODES
            and (at is None or xid.when.seconds is None or abs(at - xid.when.seconds) <= _LINK_SECONDS)
        ),
        None,
    )


def cause_of(event: LoggedXid) -> int | None:
    """The number that an Xid 45 names as its cause; None for any other."""
    match = _CAUSED.search(event.text) if event.code == 45 else None
    return int(match.group(1)) if match else None


def recovery_asked(event: LoggedXid) -> int | None:
    """The recovery action an Xid 154 changes to; None for any other."""
    match = _RECOVERY.search(event.text) if event.code == 154 else None
    return int(match.group(1), 16) if match else None


def _judge_code(code: int, events: tuple[LoggedXid, ...], branch: int) -> JudgedXid | None:
    row = table.xid(code)
    if row is None:
        return JudgedXid(
            code, Status.WARN, "not in the catalogue", "investigate", "Contact the vendor.", events
        )
    if code == 154:
        return _requested_recovery(events)
    advice = row.what_to_do
    if row.level == "decode":
        return max((_judge_nvlink5(event, events, row, branch) for event in events), key=_badness_rank)
    status = {"fatal": Status.FAIL, "warn": Status.WARN, "info": Status.PASS}[row.level]
    if code == _CONTAINED:
        status = Status.FAIL
    if advice.key == "ignore_unless_repeat" and len(events) == 1:
        status = Status.PASS
    if row.legacy:
        status = Status.WARN
    if is_spent(code, events):
        meaning = "A bad memory row could not be replaced: the spares are used up"
        advice_text = "A reset does not help, as no spare row is left: request a replacement of the GPU."
        return JudgedXid(code, status, meaning, "replace", advice_text, events)
    return JudgedXid(
        code, status, row.meaning, advice.action, _xid_advice(row, events), events, row.of_program
    )


def is_spent(code: int, events: Iterable[LoggedXid]) -> bool:
    """Whether a GPU's memory has no spare rows left, says the driver."""
    return code == _NO_SPARE and any(_SPENT.search(event.text) for event in events)


def _xid_advice(row: table.XidRow, events: Iterable[LoggedXid]) -> str:
    """What to do, and the catalogue's rule where one number has several stories."""
    rule = table.workflow(row.investigate or "") or table.workflow(row.bucket or "")
    more = rule.rule if rule and row.xid in (13, 31) else _register_meanings(events) if row.xid == 74 else ""
    return f"{row.what_to_do.text} {more}".rstrip()


def _register_meanings(events: Iterable[LoggedXid]) -> str:
    """What the catalogue says of the registers that Xid 74 prints, by link."""
    matches = [_LINK_REGISTERS.search(event.text) for event in events]
    reports = dict.fromkeys(
        (match["link"], row.meaning)
        for match in matches
        if match
        for row in table.xid74_meanings(tuple(int(word, 16) for word in match["words"].split(",")))
    )
    sentence = "For the registers of link {} NVIDIA's catalogue says: {}."
    return " ".join(sentence.format(link, meaning) for link, meaning in list(reports)[:3])


def _requested_recovery(events: tuple[LoggedXid, ...]) -> JudgedXid | None:
    """The step that the latest Xid 154 asks for; nothing once the driver asks for none."""
    value = recovery_asked(events[-1])
    wanted = table.recovery_action(value) if value is not None else None
    if value == 0:
        return None
    if wanted is None:
        number = "an action" if value is None else f"recovery action 0x{value:x}"
        what, advice = (f"{number} unknown to this version", "Run `nvidia-smi -q`: it shows the action.")
        return JudgedXid(154, Status.FAIL, f"the driver requests {what}", "investigate", advice, events)
    text = recovery_fix(wanted.word, 0).text
    meaning = f"the driver requests a recovery action: {wanted.name}"
    return JudgedXid(154, Status.FAIL, meaning, wanted.action, text, events)


def _judge_nvlink5(
    event: LoggedXid, events: tuple[LoggedXid, ...], row: table.XidRow, branch: int
) -> JudgedXid:
    """Judge an NVLink 5 event by its sub-code, or by its own word for how bad it is."""
    match = _NVLINK5.search(event.text)
    words = (
        [int(word, 16) for word in re.findall(r"0x([0-9a-fA-F]{1,8})\b", match.group("words"))]
        if match
        else []
    )
    code = (
        table.nvlink5(row.xid, words[0], words[1], branch, match.group("unit"))
        if match and len(words) > 1
        else None
    )
    fatal = match is not None and match.group("grade") == "Fatal"
    if code is not None:
        status, key = _BUCKETS.get(code.bucket, (Status.WARN, "restart_app"))
        if fatal and status is Status.PASS:
            status = Status.WARN  # nothing to do for the GPU, and a link that somebody took down
        advice = table.advice(key)
        rule = table.workflow(code.bucket)
        text = f"{advice.text} {rule.rule}" if rule else advice.text
        meaning = f"{row.meaning} {_OF_A_LINK} NVIDIA's action for {code.unit}: {code.bucket}."
        return JudgedXid(row.xid, status, meaning, advice.action, text, events)
    advice = table.advice("reset_gpu") if fatal else row.what_to_do
    status = Status.FAIL if fatal else Status.WARN
    return JudgedXid(row.xid, status, row.meaning, advice.action, advice.text, events)


_OF_A_LINK = "Where a link is bad, collectives over it are slow or fail."
_BUCKETS = {"IGNORE": (Status.PASS, "ignore"), "RESET_GPU": (Status.FAIL, "reset_gpu")}
"""What NVIDIA's buckets of NVLink 5 sub-codes ask for; the others restart the program."""


def _badness_rank(error: JudgedXid) -> int:
    return -_RANK.index(error.status)
