"""A text cut into the outputs in it, each without the prefix of its lines.

Outputs are pasted one behind the other, with prompts, colours, quote marks, fences and the prefixes of
loggers. A prefix of an output's first line is taken from all of its lines; an output ends at
the next one's head, at a fence, at a prompt, or where its lines end.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

from nodedoctor.intake.all_shapes import QUERY, SHAPES
from nodedoctor.intake.answers import answer_shape, silent_node
from nodedoctor.intake.commands import (
    asks_machine,
    bare_query_columns,
    is_elsewhere,
    is_module_row,
    is_refusal,
    limit_line,
    starts_program,
)
from nodedoctor.intake.file_names import Headings, numbered_form
from nodedoctor.intake.host_shapes import LSMOD, ULIMIT
from nodedoctor.intake.shape import JOB_LINE, LOOSE, TIMED_LINE, Shape, is_loose
from nodedoctor.intake.wrapped_rows import (
    find_frame,
    find_log_width,
    join_log_lines,
    join_rank_lines,
    join_rows,
    join_window,
)
from nodedoctor.prompts import Prompt, login_host, match_prompt, remote_host
from nodedoctor.record import record, replace
from nodedoctor.triage.lines.plain import plain_text

LAYERS = 24
"""Times that something is taken from the front of lines: outputs may have fronts of their own. Ours."""
BACK = 12
"""Lines before a head that may be of its output; ours."""
LOOKAHEAD = 2048
HEAD_LINES = 5
"""Characters and lines from a literal's line on in which a head's further lines are looked for; ours."""
LONGEST_LINE = 12288
"""Characters of a line in which an output may begin: all fields of `--query-gpu` have 7000. Ours."""
LONGEST_FRONT = 160
"""Characters in front of an output's line that may be a logger's; ours."""

_FENCE = re.compile(r"(?:[>|#*] ?)*\s*(?:`{3,8}|~{3,8})[\w+-]*\s*$")
_FULL_FRONT = re.compile(
    r".*(?:[|>\]):#*-]|\d\d:\d\d:\d\d\S*|\b(?:INFO|DEBUG|WARN(?:ING)?|ERROR|std(?:out|err)(?: F)?)|^\d+)\s*$"
)
"""A front that a program, a quote or a comment could have put there: not words of a sentence."""
_ELIDED = re.compile(r"\s*\[?(?:\.{3,8}|\u2026)\]?\s*$")
"""What people put where they left lines out."""
_NODE_FRONT = re.compile(r"(?:[>|] ?)*(?P<host>[A-Za-z][\w.-]{0,63}): $")
_LABEL = re.compile(r"(?:[>|] ?)*(?P<host>[A-Za-z][\w.-]{0,63}): ?(?P<rest>[^\n]*)$")
_OF_KERNEL = re.compile(r"(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\dT\S+) (?P<host>[\w.-]+) kernel:")
_NUMBERED = re.compile(r" {0,5}(?P<number>\d{1,6})(?:\t|$)")
"""A line behind its number, as `cat -n` and `nl` print it."""
_SPACED = re.compile(r"(?=[ \d]{6}(?: |$)) {0,5}(?P<number>\d{1,6})(?: {1,2}|$)")
"""The same where the tab became blanks: only a text that is numbered from its first line on shows it."""
FEW_NUMBERED = 2
"""Lines in a row from which numbers in front of them are those of the lines; ours."""
_CONTROL = re.compile(
    r"[\x1b&<`*\ufeff\0\u200b-\u200e\u2060\xa0]|\[\d{1,3}(?:;\d{1,3})*m|\\u001b|\\x1b|\\033|\\e\[|\^\["
)


@record
class Piece:
    """One output: its text, the number of its first line, the node that its prompt or its prefix names."""

    shape: Shape
    text: str
    line: int = 1
    host: str = ""
    command: str = ""
    """What was typed at the prompt, as `ethtool -S ens1`."""
    is_cut: bool = False
    """Whether lines of it were left out: it was too long."""
    is_last: bool = False
    """Whether the text ends with it: what follows may not have been pasted."""
    is_elsewhere: bool = False
    """Whether it is of another node than the prompt's, and nothing names that."""


@record
class Parts:
    """The outputs in a text, and the lines that are of none."""

    pieces: tuple[Piece, ...] = ()
    rest: tuple[tuple[int, str], ...] = ()
    asides: tuple[tuple[int, str], ...] = ()
    """What programs said that were typed and refused, in place of an output: of no job."""
    prompts: tuple[tuple[int, bool], ...] = ()
    """The lines of prompts, and whether what was typed there asks the machine."""
    is_joined: bool = False
    """Whether lines of it were several in the text."""


@record
class _Head:
    """An output that begins in a line, or a line that is recognised by itself; `front` is its prefix."""

    shape: Shape
    front: str
    host: str = ""


_Heads = Mapping[int, _Head]


def split(text: str, host: str = "") -> Parts:
    """The outputs in a text, in its order."""
    lines = plain_lines(text)
    if frame := find_frame(lines):
        rows = join_rows(lines, frame)
        return _split_joined(rows, host)
    if width := find_log_width(lines):
        return _split_joined(join_log_lines(lines, width), host)
    if rows := join_window(text.replace("\r\n", "\n").split("\n")):
        return _split_joined(rows, host)
    if rows := join_rank_lines(lines):
        return _split_joined(rows, host)
    heads = _find_heads(lines)
    if not host and (labels := _host_labels(lines, heads)):
        return _by_label(lines, labels)
    for _ in range(LAYERS):
        if not _strip_front(lines, heads):
            break
        heads = _find_heads(lines)
    walk = _Walk(host)
    for number, line in enumerate(lines):
        walk.take(number, line, heads.get(number))
    walk.close(at_end=True)
    return Parts(tuple(walk.pieces), tuple(walk.rest), tuple(walk.asides), tuple(walk.prompts))


def _split_joined(rows: list[tuple[int, str]], host: str) -> Parts:
    """The outputs in lines of which some were several, each with the number of its first, from 0 on."""
    parts = split("\n".join(row for _, row in rows), host)
    return replace(_renumber(parts, [number + 1 for number, _ in rows]), is_joined=True)


def plain_lines(text: str) -> list[str]:
    """The lines without colours, tags, line ends of other systems, and what indents all of them."""
    lines = text.replace("\r\n", "\n").split("\n")
    lines = [plain_text(line) if _CONTROL.search(line) else line.rstrip() for line in lines]
    lines = _without_numbers(lines)
    indent = min((len(line) - len(line.lstrip()) for line in lines if line), default=0)
    return [line[indent:] for line in lines] if indent else lines


def _without_numbers(lines: list[str]) -> list[str]:
    """The lines without their own numbers in front of them."""
    numbers = [int(match["number"]) if (match := _NUMBERED.match(line)) else None for line in lines]
    bare = list(lines)
    for first, end in _counted_runs(numbers):
        is_matrix = numbers[first] == 0  # rows of a matrix; lines are numbered from 1 on
        if not is_matrix and sum("\t" in line for line in lines[first:end]) >= FEW_NUMBERED:
            bare[first:end] = [_NUMBERED.sub("", line, count=1) for line in lines[first:end]]
    spaced = [_SPACED.match(line) for line in lines if line]
    if len(spaced) >= FEW_NUMBERED and all(
        match and int(match["number"]) == place for place, match in enumerate(spaced, 1)
    ):
        return [_SPACED.sub("", line, count=1) for line in lines]
    return bare


def _counted_runs(numbers: list[int | None]) -> Iterator[tuple[int, int]]:
    """Where numbers go up by one from place to place: the first of them, and the place behind the last."""
    first = 0
    for place in range(1, len(numbers) + 1):
        before, here = numbers[place - 1], numbers[place] if place < len(numbers) else None
        if before is None or here != before + 1:
            if before is not None:
                yield first, place
            first = place


def _host_labels(lines: list[str], heads: _Heads) -> set[str]:
    """Names of nodes in front of lines, as pdsh and clush put them, where outputs are behind them.

    One line is enough below a command that asks several nodes, and beside a name that differs in its number.
    """
    commands = _commands_elsewhere(lines)
    fronts = ((number, _NODE_FRONT.fullmatch(head.front)) for number, head in heads.items())
    names = [(number, front["host"]) for number, front in fronts if front]
    names += [
        (number, label["host"])
        for number, command in enumerate(commands)
        if command and (label := _LABEL.match(lines[number])) and _is_answer(label["rest"], command)
    ]
    forms: dict[str, set[str]] = {}
    for _, name in names:
        if form := numbered_form(name):
            forms.setdefault(form, set()).add(name)
    siblings = {name for same in forms.values() if len(same) > 1 for name in same}
    return {
        name
        for number, name in names
        if name in siblings or commands[number] or sum(line.startswith(f"{name}:") for line in lines) > 1
    }


def _commands_elsewhere(lines: list[str]) -> list[str]:
    """For each line the command above it that asks other nodes; "" where none does."""
    commands, command = [], ""
    for line in lines:
        if prompt := match_prompt(line):
            command = prompt.command if is_elsewhere(prompt.command) else ""
            commands.append("")
        else:
            commands.append(command)
    return commands


def _is_answer(line: str, command: str) -> bool:
    """Whether a line is an output by what was typed above it alone."""
    columns = bare_query_columns(command)
    return (
        _is_row(line, columns)
        or answer_shape(line, command) is not None
        or limit_line(line, command) != ""
        or is_module_row(line, command)
    )


def _is_row(line: str, columns: tuple[str, ...]) -> bool:
    """Whether a line can be one of a table without its heading; its index is a number."""
    cells = line.split(", ")
    is_row = bool(columns) and len(cells) == len(columns)
    return is_row and ("index" not in columns or cells[columns.index("index")].strip().isdecimal())


def _by_label(lines: list[str], labels: set[str]) -> Parts:
    """The outputs of each node whose name is a prefix of lines, and those of no name.

    What was typed to ask several nodes was typed for each of them.
    """
    streams: dict[str, list[tuple[int, str]]] = {name: [] for name in ("", *sorted(labels))}
    for number, line in enumerate(lines):
        label = _LABEL.match(line)
        name = label["host"] if label and label["host"] in labels else ""
        prompt = None if name else match_prompt(line)
        for stream in (name, *(labels if prompt and is_elsewhere(prompt.command) else ())):
            streams[stream].append((number, label["rest"] if label and name else line))
    pieces: list[Piece] = []
    rest: list[tuple[int, str]] = []
    asides: list[tuple[int, str]] = []
    prompts: dict[int, bool] = {}
    for name, stream in streams.items():
        numbers = [number + 1 for number, _ in stream]
        parts = _renumber(split("\n".join(line for _, line in stream), name or "-"), numbers)
        pieces += parts.pieces
        rest += parts.rest
        asides += parts.asides
        prompts |= dict(parts.prompts)
    pieces.sort(key=lambda piece: piece.line)
    return Parts(tuple(pieces), tuple(sorted(rest)), tuple(sorted(asides)), tuple(sorted(prompts.items())))


def _renumber(parts: Parts, numbers: list[int]) -> Parts:
    """The parts of a text whose first line is of the first of these numbers, and so on."""
    return Parts(
        tuple(replace(piece, line=numbers[piece.line - 1]) for piece in parts.pieces),
        tuple((numbers[number - 1], line) for number, line in parts.rest),
        tuple((numbers[number - 1], line) for number, line in parts.asides),
        tuple((numbers[number - 1], asks) for number, asks in parts.prompts),
    )


def _find_heads(lines: list[str]) -> dict[int, _Head]:
    """The heads, and the lines that are recognised by themselves, each by the number of its line."""
    text = "\n".join(lines)
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    heads: dict[int, _Head] = {}
    for shape in SHAPES:
        if not shape.literals:
            for match in shape.head.finditer(text):
                heads.setdefault(bisect_right(starts, match.start()) - 1, _Head(shape, match["front"]))
        for number in _lines_with(shape.literals, text, starts):
            if number not in heads and (head := _parse_head(shape, text, starts, number)):
                heads[number] = head
    return heads


def _strip_front(lines: list[str], heads: _Heads) -> bool:
    """Take the prefix of an output from all its lines; False where there is none."""
    for number in sorted(heads):
        front = heads[number].front
        if not front.strip():
            continue
        pattern = _front_pattern(front)
        first = last = number
        while first > 0 and (pattern.match(lines[first - 1]) or _ELIDED.match(lines[first - 1])):
            first -= 1
        while last + 1 < len(lines) and (pattern.match(lines[last + 1]) or _ELIDED.match(lines[last + 1])):
            last += 1
        lines[first : last + 1] = [pattern.sub("", line, count=1) for line in lines[first : last + 1]]
        return True
    return False


def _lines_with(literals: Iterable[str], text: str, starts: list[int]) -> Iterator[int]:
    """Numbers of the lines that hold one of the literals."""
    for literal in literals:
        at = text.find(literal)
        while at >= 0:
            number = bisect_right(starts, at) - 1
            yield number
            at = text.find(literal, starts[number + 1]) if number + 1 < len(starts) else -1


def _parse_head(shape: Shape, text: str, starts: list[int], number: int) -> _Head | None:
    """The head that begins in a line with one of its literals."""
    start, end = starts[number], starts[number + 1] if number + 1 < len(starts) else len(text)
    if shape.each_line:
        line = shape.head.match(text, start, end)
        return _Head(shape, line["front"]) if line else None
    if end - start > LONGEST_LINE:
        return None
    last = starts[number + HEAD_LINES] if number + HEAD_LINES < len(starts) else len(text)
    match = shape.head.search(text, start, min(last, end + LOOKAHEAD))
    if match is None or match.start() >= end:
        return None
    front = text[start : match.start()]
    return _Head(shape, front, match.groupdict().get("host") or "") if _is_front(front, text, end) else None


def _is_front(front: str, text: str, end: int) -> bool:
    """Whether the text before an output is a prefix of a quote, a logger or a node, and no sentence."""
    if not front.strip(" \t>|#*"):
        return True
    if len(front) > LONGEST_FRONT or not _FULL_FRONT.fullmatch(front):
        return False
    following = text[end : end + LOOKAHEAD].lstrip("\n").partition("\n")[0]
    return not following or _front_pattern(front).match(following) is not None


def _front_pattern(front: str) -> re.Pattern[str]:
    """An expression for the prefix of each line: its numbers may differ."""
    front_text = front.rstrip(" \t")
    parts = re.split(r"(\d+)", front_text)
    expression = "".join(
        r"\d+" if part.isdecimal() else re.escape(part).replace(r"\ ", r"\s+") for part in parts
    )
    return re.compile(expression + (r"(?: |$)?" if len(front_text) < len(front) else ""))


class _Walk:
    """Puts lines together, one after the other."""

    def __init__(self, host: str) -> None:
        self.pieces: list[Piece] = []
        self.rest: list[tuple[int, str]] = []
        self.asides: list[tuple[int, str]] = []
        self.prompts: list[tuple[int, bool]] = []
        self._label = "" if host == "-" else host
        self._host = self._label
        self._remote = ""
        self._is_elsewhere = False
        self._command = ""
        self._columns: tuple[str, ...] = ()
        self._shape: Shape | None = None
        self._first = 0
        self._lines: list[str] = []
        self._foreign: list[tuple[int, str]] = []
        self._named = ""
        self._headings = Headings()

    def take(self, number: int, line: str, head: _Head | None) -> None:
        """Take the next line in."""
        if _FENCE.match(line):
            self.close()
        elif head is not None and head.shape.each_line:
            prompt = match_prompt(line) if head.shape.probe == "env" else None
            if prompt:
                self._begin_command(number, line, prompt)
            if not (prompt and starts_program(prompt.command)):
                self._add_alone(number, line, head.shape)
        elif head is not None:
            self._begin_or_add(number, line, head)
        elif prompt := match_prompt(line):
            self._begin_command(number, line, prompt)
        elif (heading := self._headings.node_of(line, self._command))[0]:
            self._begin_node(number, *heading)
            if silent_node(line):
                self._leave(number, line)
        elif self._shape is QUERY and self._shows_again(line):
            self.close()
            self._begin_table(number, line)
        elif self._shape is not None and _ends(self._shape, line):
            self.close()
            self._leave(number, line)
        elif self._shape is not None:
            self._add_line(number, line)
        elif _is_row(line, self._columns):
            self._begin_table(number, line)
        elif shape := answer_shape(line, self._command):
            self._begin_piece(number, shape)
            self._append_line(line)
        elif answer := limit_line(line, self._command):
            self._begin_piece(number, ULIMIT)
            self._lines.append(answer)
            self.close()
        elif is_module_row(line, self._command):
            self._begin_piece(number, LSMOD)
            self._append_line(line)
        elif line.strip(" \t>|"):
            self._columns = bare_query_columns(line) or self._columns
            self._leave(number, line)

    def _begin_table(self, number: int, line: str) -> None:
        """A table whose heading is what was typed."""
        self._begin_piece(number, QUERY)
        self._lines += [", ".join(self._columns), line]

    def _shows_again(self, line: str) -> bool:
        """Whether a row of several nodes has an index that the table has: it is of the next node."""
        if not self._is_elsewhere or "index" not in self._columns or not _is_row(line, self._columns):
            return False
        place = self._columns.index("index")
        return any(row.split(", ")[place] == line.split(", ")[place] for row in self._lines)

    def _begin_command(self, number: int, line: str, prompt: Prompt) -> None:
        """What follows is what a program printed that was typed here."""
        self.close()
        login = login_host(prompt.command)
        self._is_elsewhere = is_elsewhere(prompt.command) and not login
        here = self._label if self._label and self._is_elsewhere else prompt.host or self._host
        self._host = login or here
        self._remote = remote_host(prompt.command)
        self._command = prompt.command
        self.prompts.append((number + 1, asks_machine(prompt.command)))
        self._columns = bare_query_columns(line)

    def _leave(self, number: int, line: str) -> None:
        """Put a line aside that is of no output."""
        (self.asides if is_refusal(line, self._command) else self.rest).append((number + 1, line))

    def _begin_node(self, number: int, host: str, lines: int) -> None:
        """What follows is of the node that these lines name."""
        self.close()
        self._host, self._remote, self._is_elsewhere = host, "", False
        self._command = self._command if is_elsewhere(self._command) else ""
        while self.rest and self.rest[-1][0] > number + 1 - lines:
            self.rest.pop()

    def close(self, *, at_end: bool = False) -> None:
        """End the output under way; `at_end` where the text ends, too."""
        if self._shape is not None:
            text = "\n".join(self._lines).rstrip("\n") + "\n"
            is_unnamed = self._is_elsewhere and not (self._label or self._remote)
            own = self._remote or ("" if is_unnamed else self._host)
            host = self._named or ("" if self._shape.probe in _OF_CLUSTERS else own)
            self.pieces.append(
                Piece(
                    self._shape, text, self._first + 1, host, self._command,
                    is_last=at_end and not self._foreign,
                    is_elsewhere=is_unnamed and not host and self._shape.probe not in _OF_CLUSTERS,
                )
            )  # fmt: skip
        for number, line in self._foreign:
            if line.strip(" \t>|"):
                self._leave(number, line)
        self._shape, self._lines, self._foreign, self._named = None, [], [], ""

    def _begin_or_add(self, number: int, line: str, head: _Head) -> None:
        shape = head.shape
        if shape.probe in _PLAIN and self._shape is not None and _is_of(self._shape, line):
            self._append_line(line)
            return
        is_next_node = shape is QUERY and self._is_elsewhere and line in self._lines
        same = self._shape is not None and self._shape.probe == shape.probe and bool(shape.probe)
        same = same and not is_next_node
        if same and not shape.first and self._shape is not None and not self._shape.each_line:
            self._append_line(line)
            return
        errors_first = same and self._shape is not None and not self._shape.first
        if errors_first:
            self._shape = shape
            self._append_line(line)
            return
        self.close()
        self._begin_piece(number, shape)
        self._named = head.host
        self._take_back()
        self._append_line(line)

    def _take_back(self) -> None:
        """Lines right before a head that are of the output, too: a table's date, the first half of a list."""
        shape, back = self._shape, 0
        assert shape is not None
        while back < BACK and len(self.rest) > back:
            number, line = self.rest[-1 - back]
            if number != self._first - back or not _is_of(shape, line):
                break
            if shape.first and shape.body.pattern == LOOSE and not line[:1].isspace():
                break
            back += 1
        if back:
            self._first -= back
            self._lines += [line for _, line in self.rest[-back:]]
            del self.rest[-back:]

    def _begin_piece(self, number: int, shape: Shape) -> None:
        self._shape, self._first = shape, number

    def _add_alone(self, number: int, line: str, shape: Shape) -> None:
        if self._shape is not shape:
            if self._shape is not None and self._shape.probe in _HOLDS.get(shape.probe, ()):
                self._append_line(line)
                return
            self.close()
            self._begin_piece(number, shape)
        if shape.probe == "kernel-log" and (match := _OF_KERNEL.search(line[:LONGEST_FRONT])):
            self._named = match["host"]
        self._append_line(line)

    def _add_line(self, number: int, line: str) -> None:
        assert self._shape is not None
        if not line.strip():
            if self._foreign:
                self._foreign.append((number, line))
            else:
                self._lines.append("")
        elif _is_of(self._shape, line):
            self._append_line(line)
        else:
            self._foreign.append((number, line))
            if sum(bool(item.strip()) for _, item in self._foreign) >= self._shape.foreign:
                self.close()

    def _append_line(self, line: str) -> None:
        self._lines += [foreign for _, foreign in self._foreign]
        self._foreign = []
        self._lines.append(line)


def _ends(shape: Shape, line: str) -> bool:
    """Whether a line is a job's, and none that the output could have by more than a colon."""
    if is_loose(shape):
        return bool(JOB_LINE.match(line) or TIMED_LINE.match(line))
    return JOB_LINE.match(line) is not None and not _is_of(shape, line)


def _is_of(shape: Shape, line: str) -> bool:
    """Whether a line can be one of an output's, indented or not."""
    return bool(shape.body.match(line) or shape.body.match(line.lstrip()))


_OF_CLUSTERS = (
    "sinfo",
    "sinfo-reasons",
    "kubernetes-nodes",
    "kubernetes-node",
    "kubernetes-pod",
    "kubernetes-pods",
    "ray-status",
)
"""Outputs about other nodes than the one at whose prompt they were asked for."""
_PLAIN = ("", "nvidia-smi-list")
"""Outputs whose lines other outputs have, too."""
_MATRICES = ("nvidia-smi-topo", "nvidia-smi-topo-p2p")
_HOLDS = {
    "env": ("collect-env", "docker-inspect"),
    "pip-list": ("collect-env", "pip-list"),
    "nvidia-smi-topo": _MATRICES,
    "priority-counters": ("ethtool",),
    "kubernetes-node": ("kubernetes-node",),
    "kubernetes-pods": ("kubernetes-pods",),
    "lspci": ("lspci",),
    "perfquery": ("perfquery",),
}
"""Lines that are an output by themselves elsewhere, and outputs that hold such lines."""
