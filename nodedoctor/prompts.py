"""Prompts of shells in a paste: whose they are, what was typed, and on which node that runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from nodedoctor.patterns import regex
from nodedoctor.record import record

_MARKS = r"$#%>\u276f"
"""How prompts end: those of sh, csh, PowerShell, and of themes for zsh."""
_PROMPT = re.compile(
    r"(?:[>|#] ?){0,12}\s{0,40}(?:\([\w.:/-]{1,40}\) ?){0,4}"
    rf"(?:\[?(?:\[\d+\])?(?:[\w.+-]{{1,64}}@(?P<host>[A-Za-z0-9][\w.-]{{0,63}}))[^\n{_MARKS}]{{0,80}}"
    rf"(?<! \d)(?<! \d\d)(?<! \d\d\d)[{_MARKS}]\s?"
    r"|\[[\w.-]+@(?P<node>[\w.-]+)[^\]\n]{0,80}\][$#%>]\s?"
    r"|\u279c {2,3}(?P<folder>[\w./~-]{1,80})(?: git:\([^()\n]{1,80}\))?(?: \u2717)? "
    rf"|(?P<bare>[{_MARKS}+] ?)"
    r"|(?P<folder_of>[A-Za-z0-9][\w.-]{0,63}):(?:~|/)[\w./~-]{0,80} ?[#>$] "
    r"|(?P<named>(?:[\w.-]{1,64}|\[[\w.-]{1,64}(?: [\w./~-]{1,80})?\]) ?[$#%] ))"
    r"(?P<command>[^\n]*)$"
)
_WATCH = re.compile(r"Every \d{1,5}(?:[.,]\d{1,3})?s: (?P<rest>\S[^\n]{0,600})$")
_WATCHED_AT = re.compile(
    r" (?:(?P<host>[A-Za-z\d][\w.-]{0,63}): )?(?:[A-Z][a-z]{2} [A-Z][a-z]{2} |\d{4}-\d\d-\d\d )"
)
"""The heading of watch(1): what it repeats, since procps 3.3.13 the node's name, and the time."""
_BEFORE = r"(?:cmd:|sudo |kubectl |docker |srun |ssh |watch |cat |\w+=\S+ )*"
_TOOLS = (
    r"nvidia-smi|dmesg|journalctl|ibstat|ibstatus|ibv_devinfo|ib_\w+_bw|ibdiagnet|mlxlink|gpud|rdma|ip|ethtool|"
    r"lspci|scontrol|sinfo|squeue|ray|ibqueryerrors|perfquery|lsmod|uname|systemctl|lscpu|numactl|free|df|ulimit|"
    r"show_gids|ibdev2netdev|ibv_devices|ofed_info|env|printenv|pip|uv|conda|python3?|dcgmi|nvbandwidth|nvcc|"
    r"hostname|kubectl|exit"
)
_USUAL = (
    r"tail|head|e?grep|zgrep|ls|cat|less|more|echo|cd|timedatectl|chronyc|ntpq|date|uptime|ps|top|fuser|lsof|mount|"
    r"lsblk|nvme|smartctl|ipmitool|sysctl|modinfo|modprobe|rpm|dpkg|apt|yum|docker|podman|crictl|torchrun|mpirun|"
    r"wc|awk|sed|stat|dmidecode|numastat|ping|ss|nvidia-[a-z-]{1,40}|bash|sh"
)
_ASKS = re.compile(rf"{_BEFORE}(?:{_TOOLS})\b")
_TYPED = re.compile(rf"{_BEFORE}(?:{_TOOLS}|{_USUAL})\b(?![:.])")
_ANY_COMMAND = re.compile(
    r"(?:\w{1,40}=\S{1,200} ){0,8}(?:[a-z][\w.+-]{0,60}|[.~]{0,2}/[\w./+-]{1,200})(?: |$)"
)
"""Behind a dollar any word is a command: no output has lines that begin with one."""


@record
class Prompt:
    """A prompt: the node that it names ("" where it names none), and what was typed."""

    host: str
    command: str


def match_prompt(line: str) -> Prompt | None:
    """A shell's prompt with its command; where it names no host, with one that prints outputs.

    The heading of `watch` says the same: what is repeated, and where.
    """
    if watched := _WATCH.match(line.lstrip(">|# \t")):
        at = _WATCHED_AT.search(watched["rest"])
        return Prompt(at["host"] or "", watched["rest"][: at.start()].strip()) if at else None
    match = _PROMPT.match(line)
    if match is None or not _is_typed(match):
        return None
    host = match["host"] or match["node"] or match["folder_of"] or ""
    return Prompt(host, match["command"])


def _is_typed(match: re.Match[str]) -> bool:
    command = match["command"]
    if match["folder"]:
        return not command or _ANY_COMMAND.match(command) is not None
    if match["named"] or match["folder_of"]:
        return _TYPED.match(command) is not None
    mark = (match["bare"] or "").strip()
    if mark == "$" and (match["bare"] != "$" or not command):
        return not command or _ANY_COMMAND.match(command) is not None
    if mark == "#":
        return _TYPED.match(command) is not None
    return not mark or _ASKS.match(command) is not None


_ASSIGNMENT = re.compile(r"\w{1,40}=")
_WRAPPERS = frozenset(("sudo", "time", "env", "exec", "nice", "watch", "nohup", "timeout"))
"""Programs that start the one behind them."""


def split_words(part: str) -> list[str]:
    """A program and what is behind it, without what is in front of it."""
    words = part.split()
    if words and words[0] in _WRAPPERS:
        words = [word for word in words if word not in _WRAPPERS and not re.match(r"-|\d+$", word)]
    while words and _ASSIGNMENT.match(words[0]):
        del words[0]
    return [words[0].rpartition("/")[2], *words[1:]] if words else []


_ONE_NODE = regex(r"[A-Za-z][\w.-]{0,63}")
_WITH_VALUE = ("-p", "-i", "-l", "-o", "-F", "-J", "-L", "-R")
"""Options of ssh that have a value behind them."""


def remote_host(command: str) -> str:
    """The one node on which something was started from here: `srun -w NODE`, `ssh NODE PROGRAM`."""
    words = split_words(command)
    if words[:1] in (["srun"], ["clush"], ["pdsh"]):
        options = [word.partition("=")[2] for word in words if word.startswith("--nodelist=")]
        behind = [value for word, value in pairwise(words) if word in ("-w", "--nodelist")]
        names = options + behind
    elif words[:1] == ["ssh"]:
        plain = _plain_words(words)
        names = plain[:1] if len(plain) > 1 else []
    else:
        names = []
    return names[0] if len(names) == 1 and _ONE_NODE.fullmatch(names[0]) else ""


def login_host(command: str) -> str:
    """The node whose shell `ssh NODE` opens: what is typed behind it at bare prompts is typed there."""
    words = split_words(command)
    plain = _plain_words(words) if words[:1] == ["ssh"] else []
    return plain[0] if len(plain) == 1 and _ONE_NODE.fullmatch(plain[0]) else ""


def _plain_words(words: Sequence[str]) -> list[str]:
    """The node and what is behind it, without the options of ssh."""
    plain = [
        word for before, word in pairwise(words) if not word.startswith("-") and before not in _WITH_VALUE
    ]
    return [plain[0].rpartition("@")[2], *plain[1:]] if plain else []
