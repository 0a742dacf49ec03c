"""As much of a terminal as nodedoctor uses: what stands on it after some writing."""

from __future__ import annotations

import re

from rich.cells import cell_len

Cell = tuple[str, frozenset[str]]

ATTRIBUTES = {"1": "bold", "2": "dim", "4": "line", "7": "reverse"}
ENDS = {"22": ("bold", "dim"), "24": ("line",), "27": ("reverse",)}
BLANK: Cell = (" ", frozenset())
SHOWN_ON_BLANKS = ("back", "line", "reverse", "link")
SEQUENCE = re.compile(
    r"\x1b\[(?P<numbers>[\d;]*)(?P<end>[HmXC])|\x1b\]8;[^;]*;(?P<link>[^\x1b\x07]*)\x1b\\"
    r"|\x1b\[[?>=<]?[\d;]*\$?[a-zA-Z]|\x1b\][^\x1b\x07]*(?:\x07|\x1b\\)|\x1b[P_X^][^\x1b]*\x1b\\|\x1b[=>]"
    r"|(?P<text>\r*\n|[^\x1b])",
    re.DOTALL,
)


class TerminalScreen:
    """A grid of cells; a character is a string and the names of what it is drawn with."""

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.cells = [[BLANK] * width for _ in range(height)]
        self.style: frozenset[str] = frozenset()
        self.row = self.column = 0
        self._rest = ""

    def write(self, data: str) -> None:
        """Take over some writing; the beginning of a sequence waits for its end."""
        at, data = 0, self._rest + data
        while at < len(data) and (found := SEQUENCE.match(data, at)):
            at, end, text, link = found.end(), found["end"], found["text"], found["link"]
            numbers = [int(number) for number in (found["numbers"] or "").split(";") if number]
            if text and text.endswith("\n"):
                self._next_line()
            elif text == "\r":
                self.column = 0
            elif text and text >= " ":
                self._put(text)
            elif end == "H":
                row, self.column = (number - 1 for number in numbers or (1, 1))
                self.row = min(row, len(self.cells) - 1)  # as terminals do with a place below their end
            elif end == "C":
                self.column += numbers[0]
            elif end == "X":
                ground = frozenset(kind for kind in self.style if kind.startswith("back"))
                for column in range(self.column, min(self.column + numbers[0], self.width)):
                    self._set(column, (" ", ground))
            elif end == "m":
                for number in numbers or [0]:
                    self._restyle(str(number))
            elif link is not None:
                self._replace("link", link)
        self._rest = data[at:]

    def seen(self) -> list[list[Cell]]:
        """What a person sees: a blank has no colour, weight or shade of its own."""
        return [
            [(c, frozenset(s for s in how if c != " " or s.startswith(SHOWN_ON_BLANKS))) for c, how in line]
            for line in self.cells
        ]

    def text(self) -> str:
        """The lines without their styles."""
        return "\n".join("".join(char for char, _ in line).rstrip() for line in self.cells)

    def _restyle(self, number: str) -> None:
        if number == "0":
            self.style = frozenset(kind for kind in self.style if kind.startswith("link"))
        elif number in ATTRIBUTES:
            self.style |= {ATTRIBUTES[number]}
        elif number in ENDS:
            self.style -= set(ENDS[number])
        else:
            kind = "fore" if number[0] in "39" else "back"
            self._replace(kind, "" if number in ("39", "49") else number)

    def _replace(self, kind: str, value: str) -> None:
        self.style = frozenset(one for one in self.style if not one.startswith(kind))
        self.style |= {f"{kind} {value}"} if value else set()

    def _next_line(self) -> None:
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.cells):
            self.row -= 1
            self.cells = [*self.cells[1:], [BLANK] * self.width]

    def _put(self, char: str) -> None:
        for at in range(min(cell_len(char), self.width - self.column)):
            self._set(self.column + at, ("" if at else char, self.style))
        self.column += cell_len(char)

    def _set(self, at: int, cell: Cell) -> None:
        """A cell; what is left of a wide character beside it becomes blank."""
        line = self.cells[self.row]
        if line[at][0] == "" and cell[0] != "":
            line[at - 1] = BLANK
        if cell_len(line[at][0]) == 2 and at + 1 < self.width and line[at + 1][0] == "":
            line[at + 1] = BLANK
        line[at] = cell
