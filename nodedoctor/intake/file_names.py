"""Names of nodes in names of files that lie in one folder: `node01.nvidia-smi.txt`, `gpu-3_ibstat.out`.

A node's name has a number, and is beside words that say what the file holds. A number that counts
something else (rank3, run2, mlx5_0, h100) is none.

Beside them the lines that name the node whose outputs follow: what `hostname` and `uname -a` print, and
headings of tools: dshbak of pdsh 2.18 to 2.35 and clush -b of ClusterShell 1.6 to 1.9 (a name between two
rules); ansible 2.9 to 2.19 (`NODE | CHANGED | rc=0 >>`); head, tail and more (coreutils, util-linux).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from nodedoctor.intake.all_shapes import SHAPES
from nodedoctor.intake.commands import loop_names

_DATE = re.compile(
    r"(?<!\d)20\d\d([-_.]?)[01]\d\1[0-3]\d(?:[T_.-]?[0-2]\d[:.h-]?[0-5]\d(?:[:.m-]?[0-5]\d)?)?Z?(?!\d)"
)
_WORD = re.compile(r"[^\W_]+")
_ALSO_IN_NAMES = {"node", "gpu", "ip"}
"""Words of commands that names of nodes begin with, too."""
_PLAIN = re.compile(
    r"txt|log|out|err|gz|xz|bz2|zst|json|csv|xml|md|html|text|stdout|stderr|output|report|paste|dump|info"
    r"|syslog|messages|journal|journalctl|kern|kernel|bug|topology|nvsmi|smi|inxi|lscpu|uname|hostname|slurm"
    r"|[esxm]",
    re.IGNORECASE,
)
"""Kinds of files, and outputs by other names than their commands."""
_KINDS = {
    word
    for shape in SHAPES
    for word in re.findall(r"[a-z][a-z_]*", f"{shape.probe} {shape.tool}")
    if word not in _ALSO_IN_NAMES
}
"""Words of commands and probes."""
_OTHER_NUMBERS = re.compile(
    r"(?:rank|local|run|job|test|try|attempt|retry|part|page|step|iter|epoch|v|ver|version|rev|cuda|cu|py|torch"
    r"|driver|nccl|case|day|copy|exp|ib|eth|ens|eno|enp\w*|mlx|bond|port|link|xid|sxid|r|issue|ticket|pr|fig"
    r"|screenshot|image|file|sample|example|log|out|no|nr|pid|uid|tp|pp|dp|world|size|pcie|gen|slurm)\d{1,9}",
    re.IGNORECASE,
)
"""Words whose number counts something else than nodes."""
_MODEL = re.compile(
    r"(?:sm|mlx|cx|connectx|nvlink|rtx|gtx|gt|gh|gb|mi|[abhlptk])\d{1,4}[a-z]{0,2}", re.IGNORECASE
)
"""Models, whose number is a part of their name."""


def file_of(path: str) -> str:
    """The name of a file without its folders, in an archive or not."""
    return path.replace("!", "/").rpartition("/")[2]


def node_names(files: Sequence[str]) -> dict[str, str]:
    """The node in the name of each file that names one; {} for fewer than two files."""
    if len(files) < 2:
        return {}
    names = {path: name for path in files if (name := node_name(file_of(path)))}
    short = sorted(set(names.values()), key=len)
    return {path: next(item for item in short if _ends_with(name, item)) for path, name in names.items()}


def node_name(file: str) -> str:
    """The node that the name of a file names; "" for none, and for more than one."""
    text = _DATE.sub(lambda match: " " * len(match[0]), file)
    runs = [name for run in _word_runs(text) if (name := _through_number(text, run))]
    return runs[0] if len(runs) == 1 else ""


def _ends_with(name: str, end: str) -> bool:
    """Whether a name is the other one with words before it, as before-node01 is node01."""
    return name == end or (name.endswith(end) and not name[-len(end) - 1].isalnum())


def _word_runs(text: str) -> list[list[re.Match[str]]]:
    """Words beside each other that do not say what the file holds."""
    runs: list[list[re.Match[str]]] = [[]]
    for word in _WORD.finditer(text):
        is_kind = word[0].lower() in _KINDS or bool(_PLAIN.fullmatch(word[0]))
        if is_kind or (runs[-1] and " " in text[runs[-1][-1].end() : word.start()]):
            runs.append([])
        if not is_kind:
            runs[-1].append(word)
    return [run for run in runs if run]


def _through_number(text: str, run: Sequence[re.Match[str]]) -> str:
    """The words up to the last that numbers a node."""
    numbers_other, last = False, -1
    for place, word in enumerate(run):
        before = run[place - 1][0] if place else ""
        if word[0].isdigit():
            numbers_other = (
                numbers_other or not before or bool(_OTHER_NUMBERS.fullmatch(f"{before}{word[0]}"))
            )
            numbers = not numbers_other
        else:
            numbers_other = bool(_OTHER_NUMBERS.fullmatch(word[0]))
            numbers = (
                word[0][0].isalpha()
                and word[0][-1].isdigit()
                and not (numbers_other or _MODEL.fullmatch(word[0]))
            )
        last = place if numbers else last
    return text[run[0].start() : run[last].end()] if last >= 0 else ""


def numbered_form(name: str) -> str:
    """A node's name with its numbers left out, as its neighbours have it; "" for a name that numbers none."""
    return re.sub(r"\d+", "#", name) if node_name(name) else ""


_HOST = r"[A-Za-z0-9][\w.-]{0,63}(?:\[[\d,-]{1,80}\][\w.-]{0,40})?"
_ASKS = re.compile(r"\s*(?:sudo )?(?:hostname(?: -[sf]| --short| --fqdn)?|uname -n|cat /etc/hostname)\s*$")
_UNAME = re.compile(rf"Linux (?P<host>{_HOST}) \d{{1,2}}\.\d{{1,3}}[.-]\S{{0,80}} #\d")
_ANSIBLE = re.compile(rf"(?P<host>{_HOST}) \| (?:CHANGED|SUCCESS|FAILED|UNREACHABLE!) (?:\| rc=|=>)")
_FILE = re.compile(r"==> (?P<file>\S{1,300}) <==$")
_RULE = re.compile(r"-{10,}$")
_COLONS = re.compile(r":{14}$")
_NAME = re.compile(rf"(?P<host>{_HOST})(?: \(\d+\))?$")


class Headings:
    """Goes over the lines between outputs, and says which node is named."""

    def __init__(self) -> None:
        self._last = ("", "")

    def node_of(self, line: str, command: str) -> tuple[str, int]:
        """The node that a line names, "" for none, and how many lines name it.

        `command` is what was typed at the last prompt.
        """
        rule, title = self._last
        text = line.strip()
        self._last = (title, text) if text else self._last
        if (
            match := _UNAME.match(text)
            or _ANSIBLE.match(text)
            or (_ASKS.match(command) and _NAME.match(text))
        ):
            return match["host"], 1
        if _RULE.match(text) and _RULE.match(rule) and (match := _NAME.match(title)):
            return match["host"], 3
        if (name := text.strip("=-#*: ")) in loop_names(command):
            return name, 1
        if match := _FILE.match(text):
            return node_name(file_of(match["file"])), 1
        if _COLONS.match(text) and _COLONS.match(rule):
            return node_name(file_of(title)), 3
        return "", 0
