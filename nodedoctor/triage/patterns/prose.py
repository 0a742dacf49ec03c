"""Sentences about errors: articles, help texts, commit messages or chats in a log.

A program says that something went wrong; a person says what it means when it does. The words of the error are
the same, those around them are not: they are general, and of the present.
"""

from __future__ import annotations

import re

from nodedoctor.triage.model import NOBODY, Line

_OWN = re.compile(
    r"(?:[\w.]{0,99}(?:Error|Exception|Warning)|CUDA(?: error(?: \d{1,4})?)?|NCCL WARN|ERROR|FATAL"
    r"|(?:[Ff]atal )?[Ee]rror):? {0,9}$"
)
"""What an error's own text begins with, in front of the words that a sign reads."""
_CLAUSES = re.compile(r"[.:;!?]\s+|[|>\]]\s*")
_BEGINS = re.compile(
    r"\W*(?:if|when(?:ever)?|in (?:this|that|such a) case|how to|why (?:do|does|did|is|are)"
    r"|what (?:does|is|to)"
    r"|(?:a |an |the )?(?:common|typical|usual|frequent|known)|errors? (?:such as|like)"
    r"|(?:the|this|an?) (?:error|message|exception|line)(?: message)? (?:says|reads|shows|[\"'`])"
    r"|(?:the|this) (?:error|message|exception)(?: message)?$)(?!\w)",
    re.IGNORECASE,
)
"""How a sentence begins that tells when an error comes, or what it is."""
_BEFORE_ERROR = re.compile(
    r"\b(?:such as|for example|e\.g\.|i\.e\.|(?:happens?|occurs?|appears?) (?:if|when)|means?|usually|often"
    r"|typically|commonly|you (?:may|might(?! not have a CUDA)|can|will|get|see|hit|run into|encounter)"
    r"|we (?:\w+ )?(?:saw|seen|see|get|hit)|(?:fix|solve|solving|fixing|avoid|avoiding|debugging)"
    r"|(?:the|your) logs? (?:shows?|says?))\b",
    re.IGNORECASE,
)
"""What such a sentence has in front of the error's words."""
_BEHIND_ERROR = re.compile(
    r"[^.:;({\n]{0,60}?,? (?:means?|indicates?|appears?|occurs?|happens?|which (?:usually|means|is)"
    r"|(?:is|are) (?:usually|often|typically|mostly|an?|the|printed|shown|raised|caused|consequences|only)"
    r"|(?:when|if) you|(?:can|may|might) (?:mean|happen|occur|come))\b"
)
"""How it goes on behind them."""
_REPORTED = re.compile(r"\b(?:[Ff]ail(?:ed|s|ure)?|[Ee]rrors?|raised|died|crashed|ended|exited|got|with)\b")
"""What announces an error, in front of its words in Markdown's quotes."""
_OF_A_PERSON = re.compile(
    r"(?<![\w./-])(?:I(?! \d)|I'm|I've|we|my|our|me|us|[Ss]ome(?:one|body)|colleagues?)(?![\w./-])"
)
"""Who writes about errors that others print."""
_PERSONS_WORDS = re.compile(
    r"\b(?:[Yy]esterday|[Tt]o(?:day|night)|[Ll]ast (?:night|week|month|year)|[Tt]his morning"
    r"|[Oo]n (?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|(?:days?|weeks?|months?) ago"
    r"|[Bb]efore (?:it|that) was|(?:says?|said|told|thinks?|guess(?:es|ed)?|believes?|suspects?|wonders?)"
    r" (?:me |us )?(?:if|it|that|this)"
    r"|[Ii]n (?:the|our|my) (?:failed|other|old|first|earlier|previous) (?:run|job|try|attempt))\b"
)
"""Times and sources that people name, and programs do not."""
_QUESTION = re.compile(
    r"\W*(?:is|are|was|were|do|does|did|might|could|can|should|would|has|have|had|why|what|how|which|any)\b",
    re.IGNORECASE,
)
_TITLE = re.compile(
    r"\W*\[(?:bug|usage|question|help|feature|rfc|docs?|installation|issue)[^\]]{0,24}\]:? ?", re.IGNORECASE
)
"""How the titles of issues begin, in which an error is named."""
_SENTENCE_ENDS = re.compile(r"[.!?](?=[\s*_\"')]|$)")
_LABELLED = re.compile(r"\W*[\w./-]{2,60}: ")
"""Who says it, or what kind of error it is, in front of a program's sentence."""
_LETTERS = re.compile(r"[A-Za-z']{2,}")
_QUOTES = {'"': '"', "'": "'", "`": "`", "\u201c": "\u201d"}
REACH = 400
"""Characters of a line on either side of the words that are looked at: sentences are shorter."""

WORDS_BEHIND = 3
"""Words behind a quotation with which a person's sentence goes on. Ours."""
SENTENCE = 60
"""Characters from an error's first word on that a sentence may need to show how it begins."""


def without_label(lead: str) -> str:
    """What is in front of an error, without the labels that are a part of its own text."""
    while own := _OWN.search(lead):
        lead = lead[: own.start()]
    return lead


def is_said_by_person(text: str, start: int, end: int) -> bool:
    """True for a person's sentence, question or title that has an error from `start` to `end` in it.

    A program's words in front of an error end with a colon; what it asks behind one is about that error.
    """
    lead, behind = text[max(0, start - REACH) : start], text[end : end + REACH]
    if _TITLE.match(lead) or (not _LETTERS.search(lead) and behind.lstrip("\"'`)*").startswith("?")):
        return True
    lead = _SENTENCE_ENDS.split(without_label(lead))[-1]
    rest = _SENTENCE_ENDS.split(behind, maxsplit=1)[0]
    if not _LETTERS.search(lead):
        return False
    if _PERSONS_WORDS.search(f"{lead}{text[start:end]}{rest}"):
        return True
    asks = _QUESTION.match(lead) is not None and behind[len(rest) : len(rest) + 1] == "?"
    reports = lead.rstrip("\"'`* ").endswith((":", "=", ">", "|")) or _LABELLED.match(lead) is not None
    return asks or (not reports and _OF_A_PERSON.search(f"{lead} {rest}") is not None)


def is_prose_about_error(text: str, start: int, end: int) -> bool:
    """True for a line that explains the error at `start`, and does not report it."""
    if is_said_by_person(text, start, end):
        return True
    lead, behind = without_label(text[max(0, start - REACH) : start]), text[end : end + REACH]
    closing = _QUOTES.get(lead[-1:], "")
    if behind.startswith("`") and text.count("`") % 2:  # the other one is gone with the bullet of its list
        return True
    if closing and closing in behind:
        behind = behind.partition(closing)[2]
    else:
        closing = ""
    if closing and len(behind.split()) >= WORDS_BEHIND and _OF_A_PERSON.search(f"{lead} {behind}"):
        return True
    before = lead.rstrip("\"'`*\u201c ")
    if before.endswith((":", "=", ">", "|")):
        return False
    clause = _CLAUSES.split(before)[-1]
    if _BEFORE_ERROR.search(clause) or (closing == "`" and not _REPORTED.search(clause)):
        return True
    if _BEGINS.match(f"{clause} {closing or text[start : start + SENTENCE]}") or _BEGINS.match(clause):
        return True
    return _BEHIND_ERROR.match(behind) is not None


_OF_A_MODEL = re.compile(
    r"\W{0,3}(?:\[\w{1,24}\]:? {0,2})?(?:prompt|completion|generation|question|answer|instruction|assistant"
    r"|user|human|chosen|rejected)(?: ?#?\d{1,9}|\[\d{1,9}\])?['\"]? {0,2}[:=] {0,2}(?=\S+ \S+ \S)",
    re.IGNORECASE,
)


def is_model_text(line: Line) -> bool:
    """True for a text that a model reads or writes, as programs label samples: it may quote any error."""
    return not line.level and _OF_A_MODEL.match(line.text) is not None


_SENTENCE = re.compile(r"^[-*#>\d.)\s]{0,6}[A-Z][a-z']*,? .{40,}")
_SMALL_WORDS = re.compile(
    r"\b(?:the|a|an|of|to|and|that|which|you|your|we|I|is|are|this|with|for|when|how)\b"
)
SENTENCES_KEPT = 4096
"""Different sentences remembered."""
SENTENCES = 12
"""Lines of prose that make a text an article; a program's advice seldom has more than a few."""

PASSED_ON = 0.9
"""Share of the lines with a time or a host in front, from which these are no program's. Ours."""


class ProseDetector:
    """Counts how much of a text is sentences that no process printed."""

    def __init__(self) -> None:
        self._lines = self._filled = self._marked = 0
        self._sentences: set[str] = set()
        self._marked_sentences: set[str] = set()
        self._last = ""
        self.is_page = False

    def read(self, line: Line) -> None:
        """Take a line in."""
        if line.text == self._last:
            return
        self._last = line.text
        self.is_page = self.is_page or line.on_page
        self._lines += 1
        self._filled += " " in line.text.strip()  # of an empty line only the prefix is left
        if line.level or line.origin:
            return
        marked = line.time is not None or line.who != NOBODY
        self._marked += marked
        sentences = self._marked_sentences if marked else self._sentences
        prose = _SENTENCE.match(line.text) and len(_SMALL_WORDS.findall(line.text)) >= 4
        if prose and len(sentences) < SENTENCES_KEPT:
            sentences.add(line.text[:80])

    @property
    def is_article(self) -> bool:
        """True for a written page, and when a quarter of the lines or more are sentences.

        A time or a host in front of nearly every line is that of a collector.
        """
        sentences = self._marked_sentences if self._marked >= PASSED_ON * self._filled else self._sentences
        return self.is_page or (len(sentences) >= SENTENCES and 4 * len(sentences) >= self._lines)
