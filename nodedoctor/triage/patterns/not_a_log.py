"""Lines that no pattern reads: announcements of trouble, prose, the state of a process."""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import ASSERTED, NOBODY, SERIOUS, Line
from nodedoctor.triage.patterns.assertion import assertion_of
from nodedoctor.triage.patterns.handling import is_handled


@record
class ProcessState:
    """The state of a process of the job, which is no trouble."""

    name: str


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

    def read(self, line: Line) -> None:
        """Take a line in."""
        if line.text == self._last:
            return
        self._last = line.text
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
        """True when a quarter of the lines or more are sentences.

        A time or a host in front of nearly every line is that of a collector.
        """
        sentences = self._marked_sentences if self._marked >= PASSED_ON * self._filled else self._sentences
        return len(sentences) >= SENTENCES and 4 * len(sentences) >= self._lines


ANNOUNCES = re.compile(
    r"\bNCCL WARN\b(?!.* which can lead to )|^\W{0,3}(?:ERROR|CRITICAL|FATAL)\b"
    r"|(?: - |\[|\|\s{0,3})(?:ERROR|CRITICAL|FATAL)(?: - |\]|\s{0,3}\|)"
    r"|^\W{0,3}(?:Fatal error|Error (?:executing|running|launching|starting|from server))\b"
    r"|^(?:Error|[Ff]atal(?: error)?): \S"
    r"|^(?!srun|slurmstepd|sbatch)[\w./@+-]{2,60}(?:\[\d+\])?: (?:fatal|(?:fatal )?error): \S"
    r"|terminate called|\bAborted(?: \(core|[.!]?$)|\bAborting\b(?! request)"
)


_LEVEL = re.compile(r"\W*(?:ERROR|CRITICAL|FATAL)\W*")
_WORD = re.compile(r"[^\W\d_]")

PASSING = re.compile(
    r"\bduring autotuning\b|\bNo valid triton configs\b|\bIgnoring this choice\b|\bW&B\b|^wandb: "
    r"|\[(?:wandb_\w+|internal|asyncio_manager|service_\w+|mailbox|retry|file_stream)\.py:\w+\(\):\d+\] "
    r"|\bexporter agent\. (?:Events and )?[Mm]etrics will not be exported"
    r"|^(?:-{3} )?Logging error -{3}$"
    r"|\bUnable to register cu\w+ factory: "
    r"|\bras/\w+\.cc:\d+ NCCL WARN\b|\bNCCL WARN (?:[Ff]ailed|[Uu]nable) to (?:open|load|find) lib\w+\.so"
)
"""What compilers say of a kernel that they try and do not take (`torch/_inductor/select_algorithm.py`), and
what Weights & Biases says of its own trouble, in its `debug.log`, too: it sends what a job measures, and the
job goes on without. NCCL takes sockets where there is no library for InfiniBand (`misc/ibvwrap.cc`), and
works without its RAS where another job on the node has that port. Ray goes on without the
metrics of its dashboard. TensorFlow registers the libraries of CUDA once for itself and once for XLA, and
calls it an error (`stream_executor/cuda/cuda_fft.cc`)."""


def trouble_announced(line: Line) -> Mark | None:
    """The announcement in a line that nothing else was read from."""
    match = ANNOUNCES.search(line.text)
    if not _WORD.search(line.text) or PASSING.search(line.text):
        return None
    if match is not None and _LEVEL.fullmatch(match[0]) and not _WORD.search(line.text, match.end()):
        return None  # an empty message, to set something off
    if match is None:
        went_on = is_handled(line.text) and line.level != "F"
        return Mark.UNREAD_TROUBLE if line.level in SERIOUS and not went_on else None
    how = assertion_of(line, match.start(), match.end())
    return Mark.UNREAD_TROUBLE if how in ASSERTED else None
