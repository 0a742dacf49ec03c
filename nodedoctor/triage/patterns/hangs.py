"""What monitors, launchers and programs say of a rank or a job that hangs, or that they stop for it."""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.patterns.log_pattern import rank_number, ranks_in
from nodedoctor.triage.patterns.rows import read_rows
from nodedoctor.triage.patterns.store import BarrierMissed


@record
class StragglerNamed:
    """A monitor says that a rank is slower than all others."""

    ranks: tuple[int, ...]


def _section_missed(match: re.Match[str]) -> BarrierMissed:
    section = match["section"]
    return BarrierMissed(
        ranks_in(match["rank"]), f"the end of its section {section}" if section else "its next heartbeat"
    )


def _rank_missed(match: re.Match[str]) -> BarrierMissed:
    awaited = "heartbeat" if "heartbeat" in match[0].lower() else "step"
    return BarrierMissed(ranks_in(match["rank"]), f"its next {awaited}")


def _straggler(match: re.Match[str]) -> StragglerNamed:
    return StragglerNamed((rank_number(match["rank"]),))


_RANK = (
    r"(?<![A-Za-z_])(?:global[ _])?(?:(?:[Rr]anks?|RANK)(?:[ =:#_-]{1,2}\[?|\[)?0{0,5}|[<(\[]?[rR])"
    r"(?P<rank>\d{1,7}(?:, ?\d{1,7}){0,63})(?![\d.]|/\d)[>)\]]?"
)
_NOT_AS_PLANNED = (
    r"(?!.*(?i:max|early stop|epochs?\b|patience|time limit|budget|converge|target|user|request|complete"
    r"|finish|success))"
)
"""Behind a reason for which a run was to end anyway."""

SIGNS = read_rows(
    r"""
# nvidia-resiliency-ext, fault_tolerance/rank_monitor_server.py
_section_missed
    rank=(?P<rank>\d{1,7})\b.{0,20}(?:Section '(?P<section>[\w.-]{1,60})' has been open for
    |Did not get (?:initial|subsequent) heartbeat)
_section_missed
    Did not get (?:initial|subsequent) heartbeat\.(?P<section>(?!))?.{0,60}?\brank=(?P<rank>\d{1,7})\b
# monitors of programs that watch their ranks
_rank_missed
    \b(?:(?:[Nn]o|[Ll]ost|[Mm]iss(?:ed|ing))\s(?:a\s)?heartbeats?\s(?:from|of)\s
    |(?:[Hh]eartbeats?|HEARTBEAT)\s(?:was\s|is\s)?(?:[Ll]ost|LOST|missed|missing|timed out|timeout|expired)\b
    .{0,16}?
    |(?:[Hh]ang|[Ss]tall|[Dd]eadlock)\s(?:was\s|is\s)?(?:detected\s)?(?:on|at|in|of|by|from)\s
    |[Ss]tale:?\s(?=.{1,24}\b(?:age|for|after|since)\b.{1,12}\d)
    |(?:[Tt]imed out|[Rr]unning for \d{2,7} ?s\b.{0,40}?)[ ;,]{1,2}wait(?:ing)?\s(?:on|for)\s
    |not (?:completed|finished) (?:after|in|within) \d{2,7}.{0,30}?\bmissing\s)
    <RANK>
_rank_missed
    \b[Hh]eartbeats?\s(?:from|of)\s<RANK>\s(?:was\s|is\s)?(?:lost|missed|missing|timed out|overdue)\b
_rank_missed
    \b[Rr]anks?\swithout\s(?:a\s)?heartbeats?:?\s\[?(?P<rank>\d{1,7}(?:, ?\d{1,7}){0,63})(?!\d)
_rank_missed
    <RANK>
    (?:(?: has)? (?:missed|sent no|not sent|stopped sending)\s(?:its\s|a\s|any\s|\d{1,6}\s)?heartbeats?\b
    |:? last heartbeat \d{2,7}(?:\.\d{1,3})? ?s(?:ec\w{0,4})? ago, limit
    |(?: has| is| was| seems| appears| made| to be){0,3}
    [ ](?:no progress|not (?:reported|responded|progressed|responding|moved)|stuck|hung|hanging|stalled
    |stale|unresponsive)\b.{0,40}?\b\d{2,6}(?:\.\d{1,3})? ?(?:s|sec|seconds|min|minutes)\b
    |(?: is| was| seems| appears) (?:unresponsive|not responding)\b)
# monitors, and people in what they write beside a log
HANG_SUSPECTED
    (?<!\b[Nn]o )\b(?:[Hh]ang|HANG|[Ss]tall|STALL|[Dd]eadlock|DEADLOCK)\s(?:was\s|is\s)?
    (?:detected|suspected|DETECTED|SUSPECTED)\b|\b[Nn]o progress (?:for|in) \d
    |\b(?:[Jj]ob|run|[Tt]raining|it)\s(?:just\s)?(?:is\s|was\s|has\s(?:been\s)?|appears\s|seems\s)?
    (?:to be\s)?(?:hung|hangs|stuck|hanging)\b|\bno (?:new )?output (?:since|for|in)\b
    |\b(?:[Rr]anks?|[Pp]rocess(?:es)?|[Tt]hread|[Cc]ollectives?|[Ll]oop|workers)\b.{0,40}?
    [ ](?:is|are|was|were|seems|appears) (?:stuck|hung|unresponsive|not responding|deadlocked)\b
    |\bnot (?:completed|finished) (?:after|in|within) \d{2,7} ?s|\bhas not entered the collective\b
    |\b(?:timed out|running for \d{2,7} ?s\b.{0,40}?)[ ;,]{1,2}waiting (?:on|for) ranks?\b
HANG_SUSPECTED
    \b[Nn]o (?:new )?(?:log )?(?:lines?|steps?) (?:since|for|in)\b|\b[Nn]o progress(?: since\b|: last step\b)
    |\b[Nn]o (?:steps?|iterations?|batch(?:es)?) (?:was |were |has |have )?(?:been )?
    (?:completed?|finished|done) (?:for|in|since|within)\b
HANG_SUSPECTED
    \b(?:stands?|stood) still (?:since|for)\b
    |^\W{0,3}(?:and |then ){0,2}nothing (?:after (?:that|this)|since(?: then)?|more)\W{0,3}$
# health controllers and trainers that end a run themselves
STOPPED_ITSELF
    \b(?:[Jj]ob|[Rr]un|[Tt]raining)\s(?:was\s|is\s)?(?:stopped|aborted|terminated)\s?(?:early\s)?(?:by\s(?:the\s)?health
    |due to\s|:\s|because\s)<NOT_AS_PLANNED>
    |\b[Ss]topping\s(?:the\s)?(?:run|job|training)(?:\sdue to\s|:\s|\sbecause\s)
    <NOT_AS_PLANNED>
_straggler
    \b[Ss]tragglers?(?: \w{1,12})? (?:identified|detected|found)?\W{0,3}<RANK>
""".replace("<RANK>", _RANK).replace("<NOT_AS_PLANNED>", _NOT_AS_PLANNED),
    _section_missed, _rank_missed, _straggler,
)  # fmt: skip
