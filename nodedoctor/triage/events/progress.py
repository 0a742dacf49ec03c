"""Signs of life: steps that went on, an end in good order, long work that is legitimate."""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.events.sign import Sign, sign, world_size
from nodedoctor.triage.model import LARGEST_PID
from nodedoctor.whole_numbers import whole


@record
class Step:
    """Training or evaluation went on: a step, an iteration, a moving progress bar."""


@record
class Finished:
    """The job says it ended well."""


@record
class LongWork:
    """Legitimate work that others may have to wait for: saving, tokenising, evaluating, compiling."""

    kind: str


@record
class Asleep:
    """A rank says it is waiting or sleeping on purpose."""


@record
class LocalFailure:
    """A rank announces in its own words that it fails."""


@record
class Size:
    """The number of ranks of the job, from a line that says so."""

    ranks: int


@record
class RankOfPid:
    """A line that ties this process to a global rank."""


@record
class Mentions:
    """A framework or a setting that is named: advice depends on it."""

    name: str


@record
class Roster:
    """A printed list of process ids: in rank order, if what else is known agrees."""

    pids: tuple[int, ...]


_ROSTER = re.compile(r"^\[(\d{2,7}(?:, \d{2,7}){1,1023})\]$")
_STEP = re.compile(
    r"\b(?:step|iter(?:ation)?|epoch|batch|update|global_step|train_loss|loss"
    r"|lm loss)s?\b['\"]?\s*[:=]?\s*[\[(]?\s*\d"
    r"|\d+(?:\.\d+)?\s?(?:it/s|s/it|tokens?/s|samples/s|tok/s)|\bstep-log\b"
    r"|Application startup complete|Uvicorn running|generation throughput: |\[\d+:\d\d<\d+:\d\d",
    re.IGNORECASE,
)
_WORK = (
    ("saving a checkpoint", r"[Ss]aving (?:model |the )?(?:checkpoint|state|weights)"
                            r"|[Ss]aving .*(?:checkpoint|\.pt\b|"
     r"safetensors)|Save(?:d|ing)? checkpoint|Start(?:ing|ed)? (?:to )?(?:save|checkpoint)"
     r"|checkpoint.*(?:in progress|begin)"
     r"|consolidating|gathering (?:the )?full state"),
    ("preparing the data", r"[Tt]okeniz(?:ing|er on|e) |Running tokenizer|^Map(?:ping)?\b.*(?:%|num_proc)"
     r"|[Pp]reprocess(?:ing)? (?:the )?(?:data|dataset)|Grouping texts|[Gg]enerating (?:train"
     r"|validation|test) split"
     r"|building (?:the )?(?:dataset|index)|Filter(?:ing)? .*examples|Packing "),
    ("evaluating", r"\*{3,} Running (?:[Ee]valuation|[Pp]rediction)|[Rr]unning (?:evaluation"
                   r"|validation)|[Ee]valuating\b"
     r"|[Ss]tart(?:ing)? (?:eval|validation)"),
    ("generating", r"[Gg]enerating (?:samples|responses|rollouts)|[Rr]ollout (?:start|in progress)"),
    ("compiling", r"torch\.compile|[Cc]ompiling (?:the )?(?:model|graph|kernel)|inductor.*compil"
                  r"|[Cc]ompilation (?:start|took)"
     r"|Capturing (?:CUDA|cuda) graph"),
    ("downloading", r"[Dd]ownloading (?:model|data|shards|checkpoint|.*\d+%)|Fetching \d+ files"),
    ("loading weights", r"Loading checkpoint shards|[Ll]oading (?:model )?(?:weights|checkpoint)"),
)  # fmt: skip
_WORKS = tuple((kind, re.compile(pattern)) for kind, pattern in _WORK)

_DONE = re.compile(
    r"exits? successfully|[Tt]raining (?:is )?(?:completed?|finished|done)|[Ff]inished [Tt]raining"
    r"|Done training"
    r"|exit code(?: of \w+)?: 0\b|^exit 0$|error string: no error|\btrain_runtime\b"
    r"|[Jj]ob (?:completed|finished) success"
    r"|^step-log .*finished|COMPLETED\b.*ExitCode 0|Trainer.fit` stopped: `max_(?:steps|epochs)|Done!?$"
    r"|Avg bus bandwidth +:|Out of bounds values : 0 OK"
    r"|peak memory consumption"
)


def read(text: str) -> object | None:
    """The sign of life in a line: the kinds are tried in the order in which they would mislead least."""
    listed = _ROSTER.match(text)
    if listed:
        return Roster(tuple(whole(pid, LARGEST_PID) or 0 for pid in listed[1].split(", ")))
    if text.startswith("wandb:"):  # its summary at the end repeats the last step's numbers
        return None
    if _DONE.search(text):
        return Finished()
    for kind, pattern in _WORKS:
        if pattern.search(text):
            return LongWork(kind)
    if _STEP.search(text) and not re.search(r"[Ee]rror|[Tt]imeout|Traceback|[Ee]xception", text):
        return Step()
    return None


SIGNS: tuple[Sign, ...] = (
    sign(
        "sleeping|SLEEP|Sleeping|breakpoint|(Pdb)|Enter your choice|[y/N]",
        r"(?:\b[Rr]ank[ =:]?(?P<rank>\d+)\b.*)?"
        r"(?:\b[Ss]leep(?:ing)? (?:for )?\d+ ?s|\(Pdb\)|breakpoint\(\)|Enter your choice|\[y/N\])",
        lambda _: Asleep(),
    ),
    sign(
        "local failure|injecting|simulated failure|raising ",
        r"(?:\b[Rr]ank[ =:]?(?P<rank>\d+)\b.*)?(?:(?:injecting"
        r"|simulat\w+) (?:a )?(?:local )?(?:failure|exception|error|crash))",
        lambda _: LocalFailure(),
    ),
    sign(
        "world_size|WORLD_SIZE|world size|world=|size: |distributed world|nranks ",
        r"(?:world[_ ]?size|WORLD_SIZE|world)['\"]?\s*[=:]+\s*(?P<n>\d{1,5})\b"
        r"|\bsize: (?P<n2>\d+), global rank|nranks (?P<n3>\d+)",
        lambda found: Size(world_size(found["n"] or found["n2"] or found["n3"])),
    ),
    sign(
        "kyrl|kyRL|SKYRL|policy_train|deepspeed|DeepSpeed|openrlhf|OpenRLHF|verl|WorkerDict|egatron"
        "|swift|torchtitan|lightning"
        "|NCCL_TIMEOUT|accelerate|transformers|llamafactory",
        r"(?P<skyrl>[Ss]ky[Rr][Ll]|SKYRL_|policy_train)|(?P<deepspeed>[Dd]eep[Ss]peed)"
        r"|(?P<openrlhf>[Oo]pen[Rr][Ll][Hh][Ff])"
        r"|(?P<verl>\bverl\b|WorkerDict)|(?P<megatron>[Mm]egatron)|(?P<swift>\bswift[/.]|ms-swift)"
        r"|(?P<torchtitan>torchtitan)"
        r"|(?P<lightning>lightning)|(?P<variable>\bNCCL_TIMEOUT\b)|(?P<accelerate>accelerate)"
        r"|(?P<transformers>transformers)",
        lambda found: Mentions(found.lastgroup or ""),
    ),
    sign(
        "vision|image|Gemma|gemma|-VL|pixel_values",
        r"vision_tower|vision tower|pixel_values|[Gg]emma-?[34]|-VL\b|image[_ ]token|multi-?modal",
        lambda _: Mentions("multimodal"),
    ),
    sign("rank=", r"\brank=(?P<rank>\d+)\b", lambda _: RankOfPid()),
)
