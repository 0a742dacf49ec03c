"""Phrases with which programs say that they handled an error.

A line with such a phrase decides nothing: the program that wrote it went on. What messages of errors say
themselves (`Expected all tensors ...`, `Caught RuntimeError in DataLoader worker`, `Watchdog caught ...`) is
not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from nodedoctor.record import record
from nodedoctor.text_table import table_rows


@record
class HandlingPhrase:
    """A phrase for a handled error, and an `example` line for the tests."""

    name: str
    expression: str
    example: str


_TABLE = r"""
ignored
  Ignoring error: {}
    (?:will|can) (?:be )?ignore|ignor(?:ed|ing)\b|suppress(?:ed|ing)\b|swallow(?:ed|ing)\b
retry
  {} -> retry
    retry loop\b|re-?try$
retried
  {}; retrying in 5 s
    re-?trying\b|re-?try (?:in|after)\b
    |(?:retried|resubmitted|submitted again)(?=\W{0,3}$|[;,] | \()
    |will (?:be )?(?:re-?tr(?:y|ied)|try|tried)\b
    |trying (?:again|another|the next|mirror|once more|a smaller|\d{1,6})\b
    |(?:before (?:the )?)?next (?:attempt|try)\b|back(?:ing|ed) off\b|re-?tries (?:left|remaining)\b
again
  {}; re-opening the file
    (?:^|(?<=[:;,(\]-] ))re-?
    (?:open|creat|build|load|connect|initiali[sz]|queu|schedul|submitt|sampl|read)ing\b
    |(?:^|(?<=[;,:] )|(?<=was )|(?<=and ))re-?
    (?:opened|connected|built|loaded|created|queued|scheduled|submitted)(?: ok)?(?=\W{0,3}$|[;,] )
    |connection restored\b|put back in(?:to)? the queue\b
replaced
  {}: worker 3 was restarted
    respawn(?:ed|ing)\b|start(?:ed|ing) (?:it again|another|a new one)\b
    |(?:(?<=[,;] )|(?:and|was|been|is) )(?:restart|replac|recreat|relaunch)(?:ed|ing)(?=\W{0,3}$|[;,] )
fallback
  {}; falling back to the CPU
    (?:going|switching|switched|reverting|reverted|defaulting) (?:back )?to\b
    |(?:using|will use) (?:the )?(?:default\b|\S{1,80}(?: \S{1,80}){0,3} instead\b)
    |fall(?:s|ing|en)?[ -]?back\b|(?<=[;,(] )\w{2,20}ing (?:\S{1,80} ){0,4}instead\b
    |disabling\b|will be disabled\b|(?:(?<=\()|(?<=[;,-] ))(?:\w{1,40} ){1,4}(?:disabled|off)\W{0,3}$
    |(?:using|will use) (?:an? |the )?(?:cached|old|previous|last|local)\b
    |(?:reduc|halv|lower|decreas|shrink)(?:ed|ing) (?:the )?(?:train )?(?:batch|micro)
    |will be (?:reduced|halved|lowered|decreased)\b
skipped
  Skipping sample 17 because of {}
    skipping\b|dropping\b|discarding\b|will be skipped\b
    |(?<=[,;] )skipped\W{0,3}$|skipped (?:\w{1,30} ){0,4}(?:due|because|since|as|for|after)\b
    |(?:sample|batch|rollout|episode|prompt|request|file|record|row|shard|item)(?:e?s)?[ ]
    (?:#?\d{1,12} )?(?:was |were )?(?:dropped|discarded|skipped|replaced)\b(?!:$)
    |(?:skipped|dropped|discarded) (?:the |a |an |one |\d{1,9} )?(?:bad |corrupt(?:ed)? |broken |invalid )?
    (?:sample|batch|rollout|episode|prompt|request|file|record|row|shard|item)(?:e?s)?\b
scored
  {}, reward set to 0.0
    (?:reward|score|advantage|loss|weight|value|result)s? (?:is |was )?set to \S
    |scored 0\b|(?<=[,;] )(?:reward|score) ?= ?0(?:\.0)?\b
    |returning (?:None|0|default|empty|an empty)\b
continued
  {} (non-fatal)
    continuing\b|proceeding (?:anyway|without)\b|(?:carry|go|mov)ing on\b|(?:carries|goes|moves) on\b
    |best[- ]effort\b|(?:is|are|an) optional\b|optional (?:dependency|feature|module|package|plug-?in)\b
    |non-?(?:fatal|critical)\b|not (?:fatal|critical)\b|harmless\b|tolerat(?:ed|ing)\b
    |soft (?:error|failure)\b|degraded\b|transient\b|(?:ok|fine|healthy) (?:now|again)\b
    |unaffected\b|(?:is|are) not affected\b
expected
  expected exception in test: {} (ok)
    expected (?:exception|error|failure|timeout)\b|\(expected\)
    |(?:as|(?:this|that|it|which|error|failure) (?:was|is)) expected\b|known issue\b
    |expecting an? (?:exception|error|failure)\b|(?<!probably )(?<!likely )means that\b
    |pytest\.raises\b|assertraises\b|xfail(?:ed)?\b|test\w{0,60} passed\b
    |(?:simulated|injected|mocked?|fake) (?:\w{1,30} )?(?:fault|error|failure|exception)\b
caught
  handled exception: {}
    (?:(?:\w{0,40}(?:exception|error)|failure) (?:was )?|was |been )(?:handled|caught)\b
    |handled (?:an? )?(?:exception|error|failure)\b|(?<!not )handled:|caught and \w+\b
other run
  note: previous run ended with {}
    (?:previous|earlier|prior|last) (?:run|job|session|launch)\b|for reference\b
    |(?:last (?:week|month|night|time)|yesterday)(?:'s)? (?:run|job|try|attempt|launch)\b
earlier try
  recovered from {}
    (?:previous|earlier|prior) (?:attempt|try)\b
    |last (?:attempt|try) (?:had |was )?(?:ended|failed|died|crashed|killed)\b
    |(?:resum(?:ed|ing)|restart(?:ed|ing)|recover(?:ed|ing|y)|succeeded) (?:after|from)\b|reconnected\b
    |succeeded (?:on|at) (?:the )?(?:second|third|next|\d{1,3}(?:nd|rd|th)) (?:attempt|try)\b
    |auto-?recover\w{0,4}\b|(?:re-?try|attempt|try)(?: ?#? ?\d{1,6}:?)? (?:succeeded|worked|ok)\b
    |recovered(?=\W{0,3}$|[:;,] )
onlooker
  wandb: ERROR Error while calling W&B API: {}
    wandb: (?:ERROR|WARN(?:ING)?|Network)\b
silenced
  {} (silence this warning)
    (?:silence|suppress|disable|hide) this warning\b
"""
PHRASES = tuple(HandlingPhrase(row.name, row.pattern, row.sentence) for row in table_rows(_TABLE))
"""Chosen by us from logs of trainers and servers. An error of level FATAL is not handled (`assertion_of`)."""


def _any_of(phrases: Iterable[HandlingPhrase]) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{'|'.join(row.expression for row in phrases)})", re.IGNORECASE)


_HANDLED = _any_of(PHRASES)
_REPLACED = _any_of(row for row in PHRASES if row.name == "replaced")
_OTHER_RUN = _any_of(row for row in PHRASES if row.name == "other run")
_TRY_COUNT = re.compile(
    r"(?<![\w-])(?:retry|attempt|try)\W{0,2}(\d{1,6}) ?(?:/|of|out of) ?(\d{1,6})\b", re.IGNORECASE
)
"""A counter of tries: before the last one the program tries again."""
_NUMBERED = re.compile(
    r"(?<![\w-])(?:retry(?: attempt)?|attempt|try) ?#? ?\d{1,6}:? (?:failed|after)\b", re.IGNORECASE
)
"""A program that numbers its attempts has another one; the line does not say how many."""
_NOTED = re.compile(
    r"^\W{0,40}(?:note|hint|tip|fyi|example|todo|fixme|raises|fixed|fixes)\b\W|^\W{0,3}\u26a0", re.IGNORECASE
)
"""What begins a remark."""


_NOT = re.compile(
    r"(?:\b(?:not|never|no|nothing|neither|nor|cannot|unable|failed|fails)|n't)"
    r" (?:(?:be|been|being|to|have|has|get|even|able|going|possible|yet|more|further|other) ){0,3}$",
    re.IGNORECASE,
)
"""What in front of a phrase says that this did not come about."""
_NEITHER = re.compile(
    r" (?:\w{1,16} )?(?:(?:also|has|have|then) )?(?:failed|fails|failing|impossible|exhausted|unavailable"
    r"|disabled|not available|(?:did|does|was|is)(?: not|n't) \w{1,16})"
    r"(?= ?(?:too|as well|also|again|either)?\W{0,3}$|[:;,])",
    re.IGNORECASE,
)
"""The same behind a phrase: `fallback failed too`."""

_GIVES_UP = re.compile(r"[,;:.(-] ?(?:so |now )?(?:giving|gave|gives) up\b", re.IGNORECASE)
"""With which a program ends its tries, whatever it says of them before."""


def has_phrase(text: str) -> bool:
    """True for a line with a phrase, even about the line before, that nothing negates."""
    if text.startswith(("Exception ignored", "nohup: ")):
        return False
    return any(
        not (
            _NOT.search(text, 0, phrase.start())
            or _NEITHER.match(text, phrase.end())
            or _GIVES_UP.search(text, phrase.end())
        )
        for phrase in _HANDLED.finditer(text)
    )


ENDS = re.compile(
    r"fatal|abort|terminat|uncaught|unhandled|panic|kill|die[sd]\b|dead|exit|crash|\bhalt|\brais|what\(\)"
    r"|\b(?:dy|end|fail|giv|leav|quit|shutt|stopp)ing\b",
    re.IGNORECASE,
)
"""What a program says with an error that it does not survive."""
_PARTICIPLE = re.compile(r"[;,] (\w{2,20}ing)\b")
"""With which a program says what it does instead."""
_AGAIN = re.compile(r"(?<![\w-])re-?tr(?:y|ies|ied)", re.IGNORECASE)
"""Another try, which may be the last one."""


def tells_what_is_next(text: str) -> bool:
    """True for a line beside a caught error that says what the program does instead."""
    if _AGAIN.search(text):
        return False
    return has_phrase(text) or any(not ENDS.search(next_step) for next_step in _PARTICIPLE.findall(text))


def tells_outcome(text: str) -> bool:
    """True for a line behind an error that says how its program went on, or which of several tries it was."""
    return has_phrase(text) or _is_last_try(text) is False


def tells_replacement(text: str) -> bool:
    """True for a line that says of a process that ended that another one has its place."""
    return _REPLACED.search(text) is not None


def is_of_other_run(text: str) -> bool:
    """True for a line about a run before this one."""
    return _OTHER_RUN.search(text) is not None


def counts_tries(text: str) -> bool:
    """True for a line that numbers its try, and not as the last one."""
    last = _is_last_try(text)
    return _NUMBERED.search(text) is not None if last is None else not last


def _is_last_try(text: str) -> bool | None:
    """Whether a line counts its last try; None for a line without count."""
    tries = _TRY_COUNT.search(text)
    return int(tries[1]) >= int(tries[2]) if tries else None


def is_handled(text: str) -> bool:
    """True for a line that says how the program went on after its error."""
    if (last := _is_last_try(text)) is not None:
        return not last
    return any(pattern.search(text) for pattern in (_NOTED, _NUMBERED)) or has_phrase(text)
