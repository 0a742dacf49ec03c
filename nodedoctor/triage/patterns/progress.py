"""Signs of life: training steps, a good end, long legitimate work."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nodedoctor.record import record
from nodedoctor.triage.lines.prefix_pattern import STEP_WORDS
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import LARGEST_PID
from nodedoctor.triage.patterns import completed
from nodedoctor.triage.patterns.assertion import names_error
from nodedoctor.triage.patterns.bars import parse_bar, parse_row_number
from nodedoctor.triage.patterns.log_pattern import bounded_integer, rank_number, world_size
from nodedoctor.triage.patterns.rows import read_rows
from nodedoctor.whole_numbers import whole_number

_LENGTH = re.compile(r"/(\d{1,12})$")


@record
class TrainingStep:
    """A counter of steps moved, or was seen for the first time.

    `series` is the counter's own name and process: only the same series can go on. `part` counts how often it
    began again (a new epoch, a new run); `first` and `last` are its values in this part so far. `rises`: how
    often it passed its highest value of this part since the last event about it; a redrawn bar rises never.
    `stride`: its largest step so far, which is 50 where a program prints every 50th. `pause`: the longest
    time between two lines of it, in seconds.
    """

    series: str = ""
    part: int = 0
    first: tuple[float, ...] = ()
    last: tuple[float, ...] = ()
    rises: int = 0
    stride: float = 0.0
    pause: float = 0.0

    @property
    def epochs(self) -> float:
        """How many epochs it went through; 0 where it does not count them."""
        name = self.series.rpartition("|")[2]
        return self.last[0] - self.first[0] if name.startswith("epoch ") else 0.0

    @property
    def begins(self) -> bool:
        """True when this part begins at 0 or with one step at most."""
        *outer, inner = self.first or (0.0,)
        return all(value <= BEGINNING for value in outer) and inner <= max(BEGINNING, self.stride)

    @property
    def length(self) -> int | None:
        """The length of its bar; None for a counter without an end."""
        match = _LENGTH.search(self.series)
        return int(match[1]) if match is not None else None

    @property
    def is_full(self) -> bool:
        """True for a bar that came to its end."""
        return self.length is not None and self.last[-1] >= self.length

    @property
    def answers(self) -> bool:
        """True for the count of the requests that a server answered."""
        return self.series.endswith(f"|{ANSWERS}")


@record
class LongWork:
    """Legitimate work that others may have to wait for: saving, tokenising, evaluating, compiling."""

    kind: str

    @property
    def is_setup(self) -> bool:
        """True for what a program does before it trains, false for what it also does behind that."""
        return self.kind in ("preparing the data", "compiling", "downloading", "loading weights")


@record
class WorldSize:
    """The number of ranks of the job, from a line that says so."""

    ranks: int


@record
class SettingMentioned:
    """A framework or a setting that is named, with its value where that matters: advice depends on it."""

    name: str
    value: str = ""


@record
class AgentRanks:
    """The ranks that an agent of torchelastic gives to its local ranks."""

    ranks: tuple[int, ...]


@record
class PidRoster:
    """A printed list of process ids: of `ranks`, else in rank order if what else is known agrees."""

    pids: tuple[int, ...]
    ranks: tuple[int, ...] = ()


@record
class GroupJoined:
    """A process says which rank it is in a group of this size, the job's own or another one."""

    size: int
    rank: int


ANSWERS = "requests answered"
"""The name of the counter of requests that a server answered well."""
ANSWERED = re.compile(r'"POST /\S* HTTP/\d(?:\.\d)?" 200\b')
"""A line of a server's access log; what asks for its health or its metrics makes it do no work."""
GENERATES = re.compile(
    r"\b[Gg]en(?:eration)? throughput(?: \(tokens?/s\))?: (?P<speed>\d{1,9}(?:\.\d{1,9})?)"
)
"""How fast vLLM and SGLang generate, in their own logs, which print it of each interval."""
REFUSED = re.compile(r'"POST /\S* HTTP/\d(?:\.\d)?" 4\d\d\b')
BEGINNING = 1.0
"""Counters of steps and epochs start at 0 or 1."""

_PAIR = re.compile(
    r"\b(?P<pid>\d{2,7}) ?(?:=|:|->) ?rank[ _]?(?P<rank>\d{1,6})\b"
    r"|\brank[ _]?(?P<rank2>\d{1,6}) ?(?:=|:|->) ?(?P<pid2>\d{2,7})(?![\w.])"
)
_ROSTER = re.compile(r"^\[(\d{2,7}(?:, \d{2,7}){1,1023})\]$")
COUNTER = re.compile(
    # Megatron counts those that it skipped in the same line
    rf"(?<![\w.])(?<!skipped )(?<!nan )(?P<name>(?:[a-z]+_)?{STEP_WORDS}"
    # Swin's and its many copies': `Train: [30/300][210/2859]`; torchvision's: `Test:  [  20/124]`;
    # timm's, behind the epoch: `Train: 0 [  50/1251 (  4%)]`
    r"|(?:train|test|val|eval)(?=:? {0,2}(?:\d{1,6} )?\[ {0,6}\d{1,9}/\d{1,9}(?:\]| \()))"
    r"(?:[_ ]?(?:idx|num|no)|\([a-z]{1,12}\))?"
    r"['\"]?\s{0,40}(?:[:=#]\s{0,40})?(?:[\[(\"]\s{0,9})?"
    r"(?P<value>\d{1,12}(?:\.\d{1,20})?)(?![\w%]|\.\d)"
)
"""In a text of small letters."""
_FRACTION = re.compile(r"(?<![\w./])(?P<done>\d{1,9}) ?/ ?(?P<total>\d{2,9})(?![\w./])")
"""How far within what a counter names: `epoch 1: 100 / 1100`, `Epoch(train) [1][ 50/500]`."""
_SETTING = re.compile(
    r"^(?:size|per|num(?!_updates)|max|total|every|warmup|save|eval|log|accumulation|micro)_|^batches$"
)
"""Names whose number is a setting and no count: `save_steps=500`."""
_FULL = re.compile(r"\b100%\|.*\[(?:(\d{1,3}):)?(\d{1,2}):(\d\d)<")
_EXPECTED = re.compile(r"\d%\|.*\[(?:(\d{1,3}):)?(\d{1,2}):(\d\d)<(?:(\d{1,3}):)?(\d{1,2}):(\d\d)")
"""How long a bar has taken, and how long it still will."""
SHORTEST_LIMIT = 300
"""Seconds of the shortest default timeout of torch.distributed, the store's (c10d Store::kDefaultTimeout)."""
_SERVING = re.compile(
    r"Application startup complete|Uvicorn running|The server is fired up and ready to roll"
    r"|Running: 0 reqs, (?:Swapped: 0 reqs, )?(?:Pending|Waiting): 0 reqs"
)
"""A server that is up; one that has requests and generates nothing may hang."""
TROUBLE = re.compile(
    r"(?:[Ee]rror|[Tt]imeout)(?!s?(?:_\w{1,32})?['\"]?\s?[:=]\s*-?\d)|Traceback|[Ee]xception"
)
"""Words of lines that count nothing; `error_top1: 0.3` is a measure."""
_WORK = (
    ("saving a checkpoint", r"[Ss]aving (?:model |the )?(?:checkpoint|state|weights)"
                            r"|[Ss]aving .*(?:checkpoint|\.pt\b|"
     r"safetensors)|Save(?:d|ing)? checkpoint|Start(?:ing|ed)? (?:to )?(?:save|checkpoint)"
     r"|checkpoint.*(?:in progress|begin)"
     r"|[Cc]onsolidat(?:ing|ed)\b|gathering (?:the )?full state"
     r"|[Ss]aving (?:the )?full\b"
     r"|\b[Ss]aving .{0,60}\b(?:shards?|state_dict|hf_model|optimizer)\b"
     r"|\b(?:[Ww]riting|[Ee]xporting|[Dd]umping) .{0,60}\b(?:model|weights?|ckpt|checkpoint|state_dict"
     r"|optimizer)\b"
     r"|\b(?:[Ss]aving|[Ww]riting|[Ee]xporting|[Dd]umping) .{0,120}/(?:ckpts?|checkpoints?|global_step_\d+"
     r"|iter_\d+)\b"),
    ("preparing the data", r"[Tt]okeniz(?:ing|er on|e) |Running tokenizer|^Map(?:ping)?\b.*(?:%|num_proc)"
     r"|[Pp]reprocess(?:ing)? (?:the )?(?:data|dataset)|Grouping texts|[Gg]enerating (?:train"
     r"|validation|test) split"
     r"|[Bb]uilding (?:the )?(?:\w{1,20} ){0,2}(?:dataset|ind(?:ex|ices)|mapping)\b"
     r"|el(?:aps|asp)ed time to build\b|Filter(?:ing)? .*examples|Packing "),
    ("evaluating", r"\*{3} Running (?:[Ee]valuation|[Pp]rediction)|[Rr]unning (?:\w{1,12} )?(?:evaluation"
                   r"|validation)|[Ee]valuating\b|[Vv]alidating\b"
     r"|[Ss]tart(?:ing)? (?:eval|validation)"
     r"|\b(?:[Ee]val|[Ee]valuation|[Vv]alidation) (?:has )?(?:started|begins|begun)\b"),
    ("generating", r"[Gg]enerating (?:samples|responses|rollouts)|[Rr]ollout (?:start|in progress)"),
    ("compiling", r"torch\.compile|[Cc]ompiling (?:the )?(?:model|graph|kernel)|inductor.*compil"
                  r"|[Cc]ompilation (?:start|took)"
     r"|Capturing (?:CUDA|cuda) graph"),
    ("downloading", r"[Dd]ownloading (?:model|data|shards|checkpoint|.*\d%)|Fetching \d+ files"),
    ("uploading", r"push_to_hub|[Pp]ushing (?:to|model|weights)\b.{0,40}[Hh]ub"
                  r"|[Uu]ploading (?:model|folder|checkpoint|shards)"),
    ("loading weights", r"Loading checkpoint shards|[Ll]oading (?:model )?(?:weights|checkpoint)"),
)  # fmt: skip
_WORKS = tuple((kind, re.compile(pattern)) for kind, pattern in _WORK)

PATTERNS = (*completed.PATTERNS, _SERVING, *(pattern for _, pattern in _WORKS))
"""What `read_liveness` looks for, beside a roster."""


def read_liveness(text: str) -> object | None:
    """The sign of life in a line; the least misleading kind is tried first."""
    roster = _ROSTER.match(text)
    if roster:
        return PidRoster(tuple(whole_number(pid, LARGEST_PID) or 0 for pid in roster[1].split(", ")))
    if text.startswith("wandb:"):  # its summary at the end repeats the last step's numbers
        return None
    if completed.says_done(text):
        return Mark.JOB_FINISHED
    for kind, pattern in _WORKS:
        if pattern.search(text) and not _was_brief(text) and not names_error(text):
            return LongWork(kind)
    if _SERVING.search(text):
        return Mark.SERVER_READY
    return None


def _was_brief(text: str) -> bool:
    """True for the bar of work that ended within the shortest timeout."""
    bar = _FULL.search(text)
    if bar is None:
        return False
    return _duration_seconds(bar.groups()) < SHORTEST_LIMIT


def is_brief(text: str) -> bool:
    """True for the bar of work that will end within the shortest timeout."""
    bar = _EXPECTED.search(text)
    if bar is None:
        return False
    return _duration_seconds(bar.groups()[:3]) + _duration_seconds(bar.groups()[3:]) < SHORTEST_LIMIT


def _duration_seconds(parts: Iterable[str | None]) -> int:
    """A time in hours, which may be missing, minutes and seconds."""
    hours, minutes, seconds = (int(part or 0) for part in parts)
    return 3600 * hours + 60 * minutes + seconds


def step_counter(text: str) -> tuple[str, tuple[float, ...]] | None:
    """Name and value of a line's step counter; None without one."""
    if (bar := parse_bar(text)) is not None or TROUBLE.search(text):
        return bar
    return all_counters(text) or parse_row_number(text)


def is_request_served(text: str) -> bool:
    """True for a line that tells that a server did work for a client."""
    speed = GENERATES.search(text)
    return (speed is not None and float(speed["speed"]) > 0) or ANSWERED.search(text) is not None


def all_counters(text: str) -> tuple[str, tuple[float, ...]] | None:
    """The counters that a line names. An epoch counts before the step within it."""
    values: dict[str, float] = {}
    first = len(text)
    for match in COUNTER.finditer(text.lower()):
        if not _SETTING.search(match["name"]) and not _is_a_time(match):
            values.setdefault(match["name"], float(match["value"]))
            first = min(first, match.end())
    if not values:
        return None
    within = _FRACTION.search(text, first)
    done = float(within["done"]) if within is not None else 0.0
    if within is not None and done <= float(within["total"]) and done not in values.values():
        values[f"~{within['total']}"] = done  # sorts behind all names
    order = sorted(values, key=lambda name: ("epoch" not in name, name))
    return " ".join(order), tuple(values[name] for name in order)


def _is_a_time(match: re.Match[str]) -> bool:
    """True for the duration of a batch or step: only epochs have fractions."""
    return "epoch" not in match["name"] and not float(match["value"]).is_integer()


def _world_size(match: re.Match[str]) -> WorldSize:
    return WorldSize(world_size(next(filter(None, match.groups()))))


def _agent_ranks(match: re.Match[str]) -> AgentRanks:
    """The ranks of a node that has its number, and as many processes as all others."""
    count = world_size(match["count"] or match["count2"] or match["count3"])
    first = rank_number(match["node"] or match["node2"] or match["node3"]) * count
    return AgentRanks(tuple(range(rank_number(str(first)), first + count)))


def _group_joined(match: re.Match[str]) -> GroupJoined:
    size = match["size"] or match["size3"] or match["size4"]
    own = match["own"] or match["own2"] or match["own3"] or match["own4"]
    return GroupJoined(world_size(size) if size else bounded_integer(match["peers"]) + 1, rank_number(own))


def _pids_of_ranks(match: re.Match[str]) -> PidRoster:
    """A list of process ids with their ranks, in either order."""
    pairs = list(_PAIR.finditer(match[0]))
    return PidRoster(
        tuple(bounded_integer(pair["pid"] or pair["pid2"], LARGEST_PID) for pair in pairs),
        tuple(rank_number(pair["rank"] or pair["rank2"]) for pair in pairs),
    )


def _setting_mentioned(match: re.Match[str]) -> SettingMentioned:
    return SettingMentioned((match.lastgroup or "").replace("_", "-"))


SIGNS = read_rows(
    r"""
# LSF's report of a job, HTCondor's event log, the logs of Kaldi's and ESPnet's jobs
JOB_FINISHED
    ^Successfully completed\.$|^\s*\(1\) Normal termination \(return value 0\)|^(?:# )?Ended \(code 0+\) at[ ]
# programs and pdb, which wait for somebody
DELIBERATE_SLEEP
    (?:\b[Rr]ank[ =:]?(?P<rank>\d+)\b.{0,200})?(?:\b[Ss]leep(?:ing)? (?:for )?\d+ ?s|\(Pdb\)|breakpoint\(\)
    |Enter your choice|\[y/N\])
# Lib/multiprocessing/resource_tracker.py, main()
RESOURCE_TRACKER_WARNING
    resource_tracker: There appear to be \d+ leaked \w+ objects to clean up at shutdown
# launchers and programs
_world_size
    (?:world[_ ]?size|WORLD_SIZE|world)['"]?\s*[=:]+\s*(?P<n>\d{1,5})\b|\bsize: (?P<n2>\d+), global rank
    |nranks (?P<n3>\d+)|\bMEMBER: \d{1,6}/(?P<n5>\d{1,6})\b
    |(?:^|[(\[] ?|[Gg]lobal[ _])[Rr]ank[ :=]{1,2}\d{1,6} ?(?:/|of) ?(?P<n4>\d{1,6})\b
# options, settings and variables of torchrun, accelerate, Slurm and others
SEVERAL_NODES
    (?<![\w.])-{0,2}(?:(?:nnodes|NNODES|num_nodes|num_machines|SLURM_JOB_NUM_NODES|SLURM_NNODES|min_nodes
    |group_world_size)['"]?\s{0,9}[:= ]\s{0,3}['"]?(?:[2-9]|[1-9]\d{1,4})
    |(?:node_rank|node-rank|NODE_RANK|machine_rank|group_rank)['"]?\s{0,9}[:= ]\s{0,3}['"]?[1-9]\d{0,4})
    (?![\w.])
# deepspeed/launcher/launch.py; torchrun's options, where each node has its number
_agent_ranks
    \bnnodes=\d{1,6}, num_local_procs=(?P<count>\d{1,3}), node_rank=(?P<node>\d{1,6})\b
    |--nproc[-_]per[-_]node[= ](?P<count2>\d{1,3})\b.{0,200}?--node[-_]rank[= ](?P<node2>\d{1,6})\b
    |--node[-_]rank[= ](?P<node3>\d{1,6})\b.{0,200}?--nproc[-_]per[-_]node[= ](?P<count3>\d{1,3})\b
# torch/distributed/elastic/agent/server/api.py
AgentRanks
    ^\W*global_ranks=\[(?P<ranks>\d[\d, ]{0,9999})\]$
# modules, classes and variables of frameworks
_setting_mentioned
    (?P<vllm>\bvllm[./_]|\bvLLM\b|\bVllmWorker|EngineCore)|(?P<sglang>\bsglang\b|SGLang)
    |(?P<llamafactory>LLaMA-?Factory|LlamaFactory|llamafactory)
    |(?P<ray_train>RayTrainWorker|TorchTrainer|ray[./]train\b)|(?P<hybrid_shard>HYBRID_SHARD)
_setting_mentioned
    (?P<skyrl>SkyRL|skyrl|skyRL|SKYRL_|policy_train)|(?P<deepspeed>DeepSpeed|deepspeed|Deepspeed)
    |(?P<openrlhf>OpenRLHF|openrlhf)|(?P<verl>\bverl\b|WorkerDict)|(?P<megatron>[Mm]egatron)
    |(?P<swift>\bswift[/.]|ms-swift)|(?P<torchtitan>torchtitan)|(?P<lightning>lightning)
    |(?P<accelerate>accelerate)|(?P<transformers>transformers)
# no library reads it, and many set it
SettingMentioned  name=NCCL_TIMEOUT
    \bNCCL_TIMEOUT\b
# NVIDIA/nccl, src/misc/param.cc and socket.cc; a shell
SettingMentioned  name=NCCL_SOCKET_IFNAME
    \bNCCL_SOCKET_IFNAME(?:=| set (?:by environment )?to )(?P<value>[^\s,;'"]{1,40})
SettingMentioned  name=multimodal
    vision_tower|vision tower|pixel_values|[Gg]emma-?[34]|-VL\b|image[_ ]token|multi-?modal
RANK_OF_PID
    \b(?:global_|world_)?rank=(?P<rank>\d+)\b
# launchers and programs that say which process a rank is, and not to which they send a signal
RANK_OF_PID
    (?<![\w.[])(?<!to )(?<!ocal )(?<!ode )(?<!roup )(?<!chine )(?:[Rr]ank|RANK)[ :=]{0,2}(?P<rank>\d{1,6})\b
    (?:(?!\b(?:[Ww]orker|[Ll]oader|[Cc]hild|[Pp]arent|[Ss]erver|[Ee]ngine|by|to|from|other)\b).){0,60}?
    [ (,;](?:p(?:id|ID)|--pid|PID)[ :=]{1,2}(?P<pid>\d{2,7})\b
RANK_OF_PID
    \b(?:(?:p(?:id|ID)|PID)[ :=]|[Pp]rocess ){1,2}(?P<pid>\d{2,7})[,;:]? {1,4}(?:is |as |-> |# ?)?
    (?:global[_ ]|world[_ ])?(?:[Rr]ank|RANK)[ :=]{1,2}(?P<rank>\d{1,6})\b
# deepspeed/launcher/launch.py
RANK_OF_PID
    \b[Pp]rocess (?P<pid>\d{2,7}) spawned with command: \[.{0,2000}--local[_-]rank(?:=|\s|',\s')
    (?P<local>\d{1,4})\b
# ps and pgrep, of what launchers start
RANK_OF_PID
    ^\s{0,8}(?:[a-z_][\w.+-]{0,31}\s{1,12})?(?P<pid>\d{2,7})\s.{0,400}?\bpython.{0,2000}--local[_-]rank[=\s]
    (?P<local>\d{1,4})\b
# Slurm's number of a task, which is the rank where it is no launcher
RANK_OF_PID
    (?:\bSLURM_PROCID[ :=]{1,2}|\btask[ :=]{1,2})(?P<rank>\d{1,6})\b
    (?:\W{1,3}\w{1,20}[=:]\S{1,64}){0,4}?\W{1,3}
    p(?:id|ID)[ :=]{1,2}(?P<pid>\d{2,7})\b
# torch's gloo, Lightning, and what programs say of themselves behind a prefix with their process
_group_joined
    ^\[Gloo\] Rank (?P<own>\d{1,6}) is connected to (?P<peers>\d{1,6}) peer ranks\b
    |^(?:[Gg]lobal[_ ]|[Ww]orld[_ ])?[Rr]ank[ :=]{1,2}(?P<own2>\d{1,6})\b.{0,60}?
    \bworld[_ ]size[ :=]{1,2}(?P<size>\d{1,6})\b
    |(?:^|[|\[(] ?)[Rr]ank[ :=]{1,2}(?P<own3>\d{1,6}) ?(?:/|of) ?(?P<size3>\d{1,6})\b
    |\bGLOBAL_RANK: (?P<own4>\d{1,6}), MEMBER: \d{1,6}/(?P<size4>\d{1,6})\b
# people and shells, while a job runs
STACKS_TAKEN
    \bpy-?spy\b.{0,40}\b(?:taken|ran|run|attached|dumped|done)\b|\b(?:took|taking|take) .{0,20}\bpy-?spy\b
    |\b(?:stacks?|profiles?) (?:dumps? )?(?:were |was )?(?:taken|dumped|collected)\b
# which process a rank is, behind a prefix with the rank
RANK_OF_PID
    (?:^|\[rank[ :=]?(?P<rank>\d{1,6})\]:? )(?:[Ss]tart(?:ed|ing)|[Rr]eady|[Rr]unning|[Hh]ello)?[ :,(]{0,3}
    (?:host(?:name)?[ :=]{1,2}(?P<host>[\w.-]{1,64})[ ,;]{1,2})?
    (?:(?:host(?:name)?|node|device|local[_ ]rank|world[_ ]size|[gG][pP][uU])[ :=]{1,2}
    [\w.:-]{1,64}[ ,;]{1,2}){0,4}
    [Pp](?:id|ID)[ :=]{1,2}(?P<pid>\d{2,7})\b
    [ ,;)]{0,3}(?:$|on\b|host|cuda|device|[gG][pP][uU]|local|node|(?:is )?(?:ready|start|running|up\b)|world)
_pids_of_ranks
    \b[Pp](?:id|ID)s?\b.{0,60}?\b
    (?:\d{2,7} ?(?:=|:|->) ?rank[ _]?\d|rank[ _]?\d{1,6} ?(?:=|:|->) ?\d{2,7}\b).*
# programs that begin with where they are, beside the size of the job
RANK_OF_PID
    (?:(?<!ocal )(?<!ode )(?<!roup )(?:[Rr]ank|RANK)[ :=]{1,2}(?P<rank>\d{1,6})|^[Ww]orker \d{1,6})
    (?:/|[ ]of[ ])\d{1,6},?[ ]on[ ](?:(?:host(?:name)?|node|machine)[ :=]{1,2})?
    (?!(?i:gpu|cuda|device|rank|port|cpu|epoch|step)[ :_-]?\d+\b)
    (?P<host>[A-Za-z](?=[\w.-]*\d)[\w.-]{0,62}\w)(?![\w-])
# ray/train, of its worker group
RANK_OF_PID
    \bip=(?P<host>[\w.:-]{1,64}), pid=(?P<pid>\d+)\) world_rank=(?P<rank>\d+), local_rank=(?P<local>\d+)\b
# verl's names of actors, in a list of Ray's (`ray list actors`): of those on the first node it is their rank
RANK_OF_PID
    \b\w{0,40}Worker\w{0,40}_0:(?P<rank>\d{1,3})(?:\s{1,40}[0-9a-f]{4,64})?\s{1,40}(?:pid[=:]\s?)?
    (?P<pid>\d{2,7})\b
""",
    AgentRanks, SettingMentioned, _agent_ranks, _group_joined,
    _world_size, _setting_mentioned, _pids_of_ranks,
)  # fmt: skip
