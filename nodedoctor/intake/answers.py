"""Answers that only the command at their prompt explains: a number, a word, a file's text.

Each row has what was typed, and what the lines of its answer look like; the probe that reads it gets the
command, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from nodedoctor.facts.host.cgroup import ROOT
from nodedoctor.facts.verdicts.node_messages import READ_ONLY
from nodedoctor.intake.shape import Shape, by_head
from nodedoctor.patterns import regex
from nodedoctor.record import record

if TYPE_CHECKING:
    from nodedoctor.intake.split import Piece

_CAT = r"(?:sudo )?(?:cat|head(?: -n? ?\d{1,4})?|more|less)"
_CGROUP = r"/sys/fs/cgroup/(?:[\w.@:-]{1,200}/){0,12}(?:memory|cpu|cpuset|pids)\.\w[\w.]{1,40}"
_NEVER = r"(?!)"
_ROW = r"(?:\S{1,200} on /\S{0,400} type \w{2,20} \(|\S{1,200} /\S{0,400} \w{2,20} r[ow][, ]|TARGET +SOURCE"
_TREE_ROW = r"[^\w\n]{0,9}/\S{0,400} +\S{1,200} +\w{2,20} +r[ow](?:,|$))"


@record
class Answer:
    """What was typed, and the output that its answer is."""

    typed: re.Pattern[str]
    shape: Shape


def _answer(typed: str, line: str, what: str, probe: str, source: str) -> Answer:
    shape = by_head((), _NEVER, what, probe, source, body=rf"(?:{line})$", joins=True)
    return Answer(regex(typed), shape)


_GROUP = _answer(
    rf"\A{_CAT}(?: {_CGROUP}){{1,12}}\s*\Z",
    r"(?:max|-?\d{1,20})(?: \d{1,20})?|[a-z][a-z_]{1,40} (?:max|\d{1,20})|\d{1,5}(?:[,-]\d{1,5}){1,200}",
    "limits of a control group",
    "limits",
    "linux, Documentation/admin-guide/cgroup-v2.rst",
)
_IS_ACTIVE = _answer(
    r"\A(?:sudo )?systemctl is-active(?: [\w@.=-]{1,80}){1,14}\s*\Z",
    r"active|failed|activating|deactivating|inactive|unknown|reloading",
    "systemctl is-active",
    "services",
    "systemd 183 to 258, src/systemctl/systemctl-is-active.c",
)
_FREQUENCY = _answer(
    r"/sys/devices/system/cpu/\S{1,80}/scaling_(?:governor|driver)\b",
    r" {0,8}(?:\d{1,5} )?(?:performance|powersave|schedutil|ondemand|conservative|userspace)"
    r"|(?:intel|amd|acpi|cppc|pcc|apple)[\w-]{3,20}",
    "the governor of processors",
    "host",
    "linux, Documentation/admin-guide/pm/cpufreq.rst",
)
HOST_ADDRESSES = _answer(
    r"\A(?:sudo )?getent (?:-s \w{2,12} )?(?:a?hosts(?:v[46])?)(?: [\w.-]{1,253}){0,4}\s*\Z",
    r"(?:(?:\d{1,3}\.){3}\d{1,3}|[\da-f:]{2,39})[ \t]{1,40}[A-Z\w][\w. -]{0,400}",
    "getent hosts",
    "net",
    "getent(1), glibc",
)
HOST_NAME = _answer(
    r"\A(?:hostname(?: -[fs])?|uname -n|hostnamectl --static|cat /(?:etc|proc/sys/kernel)/hostname)\s*\Z",
    r"[A-Za-z][\w.-]{0,252}",
    "hostname",
    "net",
    "hostname(1), net-tools and Debian's",
)
GPU_COUNT = _answer(
    r"nvidia-smi (?:-L|--list-gpus)\s{0,4}(?:2>\S{1,12}\s{0,4})?\|\s{0,4}"
    r"(?:wc -l|grep (?:-c|-ic|-ci|-i -c|-c -i)\b)|--query-gpu[= ]['\"]?count\b(?!,)[^|;\n]{0,40}noheader",
    r" {0,8}\d{1,3}",
    "the number of GPUs",
    "nvidia-smi-list",
    "wc(1), nvidia-smi(1)",
)
ANSWERS: tuple[Answer, ...] = (
    GPU_COUNT,
    _GROUP,
    _IS_ACTIVE,
    _FREQUENCY,
    HOST_ADDRESSES,
    HOST_NAME,
    _answer(
        r"\A(?:sudo )?systemd-detect-virt(?: -[vcq])?\s*\Z",
        r"[a-z][\w-]{1,30}",
        "systemd-detect-virt",
        "",
        "systemd 183 to 258, src/detect-virt",
    ),
    _answer(
        r"\A(?:sudo )?(?:mount|findmnt)\b|/proc/(?:self/|1/)?mounts\b",
        rf"(?:{_ROW}|{_TREE_ROW})[^\n]*",
        "the list of mounts",
        "host-messages",
        "util-linux 2.20 to 2.41; proc(5)",
    ),
    _answer(
        r"\A(?:sudo )?(?:touch|mkdir|cp|mv|rm|tee|ln|dd|mktemp|echo|truncate|rsync|tar)\b",
        READ_ONLY,
        "a write that was refused",
        "host-messages",
        "coreutils 8 to 9; errno(3), EROFS",
    ),
)


_SILENT = regex(
    r"(?:[\w.-]{1,64}: )?ssh: (?:connect to host (?P<ssh>[\w.-]{1,64}) port \d{1,5}: "
    r"(?:No route to host|Connection (?:refused|timed out|reset by peer)|Operation timed out"
    r"|Network is unreachable|Host is down)|Could not resolve hostname (?P<dns>[\w.-]{1,64}): )"
    r"|pdsh@[\w.-]{1,64}: (?P<pdsh>[\w.-]{1,64}): (?:ssh exited with exit code 255|command timeout)"
    r"|clush: (?P<clush>[\w.,[\]-]{1,200})(?: \(\d{1,5}\))?: (?:exited with exit code 255|command timeout)"
    r"|(?P<ansible>[\w.-]{1,64}) \| UNREACHABLE! =>"
    r"|\[\d{1,5}\] [\d:]{8} \[FAILURE\] (?P<pssh>[\w.-]{1,64}) (?:Exited with error code 255|Timed out)"
)
"""A node that could not be asked: OpenSSH 6 to 10, pdsh 2.18 to 2.35, ClusterShell 1.6 to 1.9, ansible 2.9 to
2.19, pssh 2.3."""


def silent_node(line: str) -> str:
    """The node that a line says could not be asked; "" for any other line."""
    match = _SILENT.match(line.strip())
    return next(filter(None, match.groups()), "") if match else ""


def answer_shape(line: str, command: str) -> Shape | None:
    """The output that a line begins, where what was typed says so."""
    match = (row.shape for row in ANSWERS if row.typed.search(command) and row.shape.body.match(line))
    return next(match, None)


def group_files(piece: Piece) -> dict[str, str]:
    """The texts of a control group's files that a piece is; lines with a name are of each file that has some.

    How much memory is used is left out: without memory.stat nothing tells what of it is page cache.
    """
    if piece.shape is not _GROUP.shape:
        return {}
    paths = [word for word in piece.command.split() if word.startswith("/")]
    pairs = [line for line in piece.text.splitlines() if _PAIR.match(line)]
    values = [line for line in piece.text.splitlines() if line and not _PAIR.match(line)]
    alone = [path for path in paths if not _HAS_PAIRS.search(path)]
    files = {path: "\n".join(pairs) for path in paths if path not in alone and pairs}
    if len(values) == len(alone):
        files |= zip(alone, values, strict=True)
    return {path: text for path, text in files.items() if not path.endswith(_USAGE)}


_USAGE = ("/memory.current", "/memory.usage_in_bytes")
_PAIR = re.compile(r"[a-z]\w{1,40} \d")
_HAS_PAIRS = re.compile(r"/(?:memory\.(?:stat|events\S*|oom_control)|cpu\.stat)$")


def own_group(files: Iterable[str]) -> dict[str, str]:
    """/proc/self/cgroup of a process whose group has these files: the deepest folder among them."""
    folders = [path.rpartition("/")[0].removeprefix(ROOT) for path in files if path.startswith(f"{ROOT}/")]
    if not folders:
        return {}
    first = _OF_VERSION_1.match(max(folders, key=len))
    text = f"1:memory,cpu,cpuset,pids:{first[1] or '/'}" if first else f"0::{max(folders, key=len) or '/'}"
    return {"/proc/self/cgroup": f"{text}\n"}


_OF_VERSION_1 = re.compile(r"/(?:memory|cpu|cpuset|pids|cpu,cpuacct)(/.*)?$")


def unit_states(piece: Piece) -> str | None:
    """`systemctl is-active` as `systemctl show` says it; None for other pieces.

    Of what does not run it does not say whether it is installed.
    """
    if piece.shape is not _IS_ACTIVE.shape:
        return None
    units = [word for word in piece.command.split() if not word.startswith("-")]
    names: Sequence[str] = units[units.index("is-active") + 1 :]
    states = piece.text.split()
    return "\n\n".join(
        f"Id={name if '.' in name else f'{name}.service'}\nLoadState=loaded\nActiveState={state}"
        for name, state in zip(names, states, strict=False)
        if len(names) == len(states) and state in ("active", "failed", "activating")
    )


_CPUS = "/sys/devices/system/cpu"
_ROW_OF_UNIQ = re.compile(r" *(?:(\d{1,4}) )?([a-z][\w-]{3,24})")
_POLICY = re.compile(
    r"analyzing CPU (?P<cpu>\d{1,5}):\n(?:[ \t]{1,8}driver: (?P<driver>[\w-]{3,24}))?"
    r"|[Tt]he governor \"(?P<governor>[a-z_]{3,24})\" may decide"
)


def governors(piece: Piece) -> dict[str, str]:
    """The governor of each processor and their driver, by file: of `uniq -c` as many as it counts."""
    files: dict[str, str] = {}
    driver = f"{_CPUS}/cpu0/cpufreq/scaling_driver"
    if piece.shape is not _FREQUENCY.shape:
        cpu = "0"
        for match in _POLICY.finditer(piece.text):
            cpu = match["cpu"] or cpu
            files |= {driver: match["driver"]} if match["driver"] else {}
            if match["governor"]:
                files[f"{_CPUS}/cpu{cpu}/cpufreq/scaling_governor"] = match["governor"]
        return files
    if "scaling_governor" not in piece.command:
        return {driver: piece.text.split()[0]}
    rows = [match for match in map(_ROW_OF_UNIQ.fullmatch, piece.text.splitlines()) if match]
    processors = [name for count, name in (match.groups() for match in rows) for _ in range(int(count or 1))]
    return {f"{_CPUS}/cpu{cpu}/cpufreq/scaling_governor": name for cpu, name in enumerate(processors)}
