"""Which lines of a paste may be of a job's log: those in whose block something shows a job.

What a tool prints that is read nowhere has numbers that go up, and words like `failed`: triage would see
progress in them and a cause. A block is what came below one prompt, or below none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from nodedoctor.patterns import regex
from nodedoctor.record import record

_SHOWS_JOB = regex(
    r"Traceback \(most recent|\b[A-Z][A-Za-z]{0,60}[a-z](?:Error|Exception|Warning|Interrupt|Exit)\b"
    r"|\[rank \?\d|\[default\d|(?i:\b(?:global|local|world|tp|pp|dp)?_?rank[ :=]{0,2}\d)"
    r"|N(?:CCL|VSHMEM)|RCCL|nccl[A-Z]\w{2,40}|(?i:communicators?\b)|[Ss]tore->|TCPStore|Error 80\d\b"
    r"|torch(?:run|elastic|\.|::)|c10d|ProcessGroup|[Ww]atchdog|[Dd]eep[Ss]peed|[Mm]egatron|lightning|horovod"
    r"|\braylet\b|\bray::|\bray\.|\(pid=\d|vllm\.|sglang\.|PMIX|ORTE|PRTE|UCX +\w+|mpirun"
    r"|srun: |slurmstepd|sbatch: |salloc: |JobId=|NODE_FAIL|OUT_OF_MEMORY|CANCELLED|PREEMPTED|DUE TO"
    r"|CUDA (?:[Ee]rror|out of|driver|initiali[sz]ation|kernel|failure|unknown)|cuda[A-Z]\w{2,40}|cublas"
    r"|cudnn|[Ss]egmentation fault|core dumped|Bus error|\b[Kk]illed\b|Aborted|Terminated"
    r"|Illegal instruction|\bsignal[ :=]{1,2}\d|SIG(?:TERM|KILL|SEGV|ABRT|BUS|INT|HUP|FPE|ILL)"
    r"|exit(?:ed)?[ _]?(?:with )?[Cc]ode|Exit Code|returned non-zero|OOMKilled|(?i:out of memory)|OutOfMemory"
    r"|No space left|Input/output error|[Ss]tale file handle|[Tt]ransport endpoint|quota exceeded"
    r"|Cannot allocate memory|Too many open files|terminate called|panic(?:ked)?: |panicked at"
    r"|undefined symbol|GLIBC(?:XX)?_|cannot open shared object|^python[\d.]{0,5}: "
    r"|FailedScheduling|Back-off|BackOff|Evicted|FailedMount|FailedCreate|Preempt(?:ed|ing)|NotReady"
    r"|nvidia-container-cli|OCI runtime|docker: |[Cc]ontainerd task|could not select device driver"
    r"|\bXid\b|SXid|NVRM|[Ff]allen off the bus"
    r"|(?<!packet )\bloss\b\W{0,6}\d|\d ?(?:it/s|s/it|tokens?/s|samples/s)\b"
)
"""A line of a launcher, a scheduler, a library of jobs, or of a program's own end. Ours."""
_MAY_BE_JOB = regex(
    r"\b(?i:step|iter(?:ation)?|epoch|batch|round)s?\b[ :=#\[(]{0,3}\d{1,9}(?![\d.]*[ ]?[GMk]?Hz)"
    r"|(?<!modprobe: )(?<!modinfo: )(?<!insmod: )\b(?:CRITICAL|FATAL|ERROR|WARNING|INFO|DEBUG|WARN|TRACE)\b"
    r"|\w\.(?:py|cu|cpp|cc|rs|go)\b"
    r"|(?i:train|checkpoint|dataset|data-?loader|tokenizer|optimizer|gradient|\bfatal error|\bassert)"
    r"|^ ?\d{1,3}%\||\b[a-z]\w{0,30}=-?\d[\d.e+-]{0,20}\w{0,3}[ ,|]{1,4}[a-z]\w{0,30}=-?\d"
)
"""Words of any program's log; below a prompt where the machine was asked they show nothing. Ours."""


_PRINTED = regex(
    r"\d\d:\d\d:\d\d|Traceback \(most recent|\[(?:default|rank) ?\d|^[ \t>|]{0,8}rank ?\d{1,6}\b ?[:|\]]"
    r"|\(pid=|\bpid[ =:]\d|\w\.(?:py|cu|cpp|cc|rs|go|c|h)\"?(?::|, line )\d|0x[\da-f]{6}|\[ ?\d{1,9}\.\d{6}\]"
    r"|:\d{1,9}:\d{1,9} \[-?\d{1,3}\] |NCCL (?:INFO|WARN|ERROR) "
    r"|\b(?:step|iter(?:ation)?|epoch|batch|loss|lr)s?\b[ :=/#\[(]{1,3}\d|Tried to allocate \d|\[Errno \d"
    r"|^[ \t>|]{0,8}(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception): "
    r"|^[ \t>|]{0,8}[\w./-]{1,60}(?:\[\d{1,9}\])?: (?i:error|fatal|critical|warning|panic)\b"
    r"|^[ \t>|]{0,8}(?:Warning|Normal) {2,20}\w|\(core dumped\)[ \t]{0,4}$"
)
"""What a program has in front of or in its words, and a person hardly ever writes. Ours."""
_TITLE = regex(r"^[ \t>|]{0,8}(?:#{1,6} |(?i:(?:subject|topic|title|ticket|re|aw|fwd?)[ \t]{0,4}:))")
"""The heading of a mail, a ticket or a page: about a log, and none of its lines."""
FEW_WORDS = 6
"""Lines in a row from which a text without marks of a program is a log all the same; ours."""


@record
class Sorted:
    """The lines of a paste that are of no output; `shows_job`: whether a line of `mine` shows a job."""

    mine: tuple[tuple[int, str], ...]
    others: tuple[tuple[int, str], ...]
    shows_job: bool


LONGEST_ANSWER = 5000
"""Lines from which a block is a log, whatever it says: to look for a job in each takes seconds. Ours."""


def is_of_job(line: str) -> bool:
    """Whether a line shows by itself that a job printed it, or what watches one."""
    return _SHOWS_JOB.search(line) is not None


def line_runs(lines: Iterable[tuple[int, str]]) -> list[list[tuple[int, str]]]:
    """Lines that follow each other, blank ones between them aside."""
    runs: list[list[tuple[int, str]]] = []
    for number, line in lines:
        if runs and number - runs[-1][-1][0] <= 2:
            runs[-1].append((number, line))
        else:
            runs.append([(number, line)])
    return runs


def is_of_person(run: Sequence[tuple[int, str]]) -> bool:
    """Whether lines beside outputs are words of the one who pasted them: few, without a program's marks."""
    return len(run) < FEW_WORDS and not any(_PRINTED.search(line) for _, line in run)


def _own_words(rest: Sequence[tuple[int, str]], prompts: Sequence[tuple[int, bool]]) -> set[int]:
    """The numbers of lines that people wrote around outputs: no answer, nothing below a log."""
    starts = [number for number, _ in prompts]
    started = {number for number, asks in prompts if not asks}
    candidates = [
        (number, line)
        for number, line in rest
        if not (before := bisect_right(starts, number)) or starts[before - 1] not in started
    ]
    titles = {number for number, line in candidates if _TITLE.match(line)}
    runs = line_runs(entry for entry in candidates if entry[0] not in titles)
    answers = {number + 1 for number in starts}
    with_log: set[int] = set()
    own = titles
    for run in runs:
        block = bisect_right(starts, run[0][0])
        if run[0][0] in answers or block in with_log or not is_of_person(run):
            with_log.add(block)
        else:
            own |= {number for number, _ in run}
    return own


def sort_lines(
    rest: Sequence[tuple[int, str]], prompts: Sequence[tuple[int, bool]], *, has_outputs: bool = False
) -> Sorted:
    """Lines that may be of a job, and those of none.

    What came below a prompt where the machine was asked must show a job by itself; beside prompts and outputs
    a few plain sentences are of the person who pasted them, whatever fault they name.
    """
    blocks: dict[int, list[tuple[int, str]]] = {}
    starts = [number for number, _ in prompts]
    own = _own_words(rest, prompts) if prompts or has_outputs else set()
    for number, line in rest:
        if number in own:
            continue
        blocks.setdefault(bisect_right(starts, number) - 1, []).append((number, line))
    questions = {block for block in blocks if block >= 0 and prompts[block][1]}
    shows = {
        block
        for block, lines in blocks.items()
        if len(lines) > LONGEST_ANSWER or any(is_of_job(line) for _, line in lines)
    }
    mine = blocks.keys() - questions | shows
    entries = {
        is_mine: tuple(sorted(entry for block in chosen for entry in blocks[block]))
        for is_mine, chosen in ((True, mine), (False, blocks.keys() - mine))
    }
    entries[False] = tuple(sorted((*entries[False], *(entry for entry in rest if entry[0] in own))))
    may_be = bool(shows) or any(_MAY_BE_JOB.search(line) for _, line in entries[True])
    return Sorted(entries[True], entries[False], may_be)
