"""Progress bars, and Ray Tune's table of trials: how far each is, and its name."""

from __future__ import annotations

import re

BAR = re.compile(
    r"(?P<done>\d{1,12})(?:\.\d+)?"
    r"(?:/(?P<total>\d{1,12}|\?)(?:\.\d+)? \[(?:\d+:)?\d+:\d\d<(?P<left>[\d:?]+)"
    r"|(?:it)? \[(?:\d+:)?\d+:\d\d, +[\d.?]+ ?(?:\w{1,12}/s|s/\w{1,12})\b)"
)
"""A bar, and one of unknown length: `620/? [3:12:18<00:00,`, `620it [3:12:18, 18.60s/it]`."""
UNDRAWN = re.compile(
    r"(?P<done>\d{1,12})/(?P<total>\d{1,12})"
    r"(?: \[(?:\d+:)?\d+:\d\d, +[\d.?]+ ?(?:\w{1,12}/s|s/\w{1,12})\b| (?:\d+:)?\d\d:\d\d < \d)"
)
"""A bar without its drawing, by programs and in notebooks (transformers/utils/notebook.py)."""
PERCENT = re.compile(
    r"(?P<percent>\d{1,3})%\|(?:[█▉▊▋▌▍▎▏#\d ]{0,200}\|(?: *(?P<done>\d{1,12})/(?P<total>\d{1,12})\b)?"
    r"|[█▉▊▋▌▍▎▏#][█▉▊▋▌▍▎▏#\d ]{0,200}$)"
)
"""A bar of tqdm without a time, as its `bar_format` may have it and as it is cut off in front of it."""
RICH_BAR = re.compile(r"(?:━ |─ |╸ |╺ )(?P<done>\d{1,12})/(?P<total>\d{1,12})\b")
"""A bar of rich or of ultralytics, with the count behind it."""
KERAS = re.compile(r"(?<![\d.])(?P<done>\d{1,12})/(?P<total>\d{1,12}) (?:━━|\[==|\[=>|\[>\.|\[\.\.\.)")
"""A bar of Keras, with the count in front of it."""
ETA = re.compile(
    r"^\s*(?P<name>[A-Z][\w ()-]{0,40}?:? +)?\[ *(?P<done>\d{1,12})/(?P<total>\d{1,12})"
    r"(?:\] +eta: \d| \( *\d{1,3}%\)\] )"
)
"""How far torchvision's MetricLogger (`references/detection/utils.py`) is, or timm's `train.py`; some have no
name."""
COLUMN = re.compile(r"^(?P<done>\d{1,9}) (?P<name>train|val(?:id)?|test|eval):? +-?\d")
"""A table of losses that begins each row with its step, as nanoGPT's and its many copies' (`log.txt`)."""
PAIR = re.compile(r"^\[ *(?P<epoch>\d{1,7}), +(?P<done>\d{1,9})(?:/ *\d{1,9})?\],? +(?:\w{1,20}_)?[Ll]oss\b")
"""Epoch and step in front of a loss, as PyTorch's first tutorial prints them, and who learned from it."""
_DRAWING = re.compile(r"[█▉▊▋▌▍▎▏ ]{0,200}\|")
"""A bar's drawing alone, where what all lines begin with was taken off, the percentage too."""
_ROW = re.compile(r"(?:[Ee]poch:? )?(?P<done>\d{1,7})/(?P<total>\d{1,7})(?:\s+(?=\S)|$)")
"""Some tables end each row in a bar: the number of the row counts, and its other columns are no name."""
_PERCENT = re.compile(r"(?<!\d)\d{1,9}(?:\.\d{1,20})?%.*")
_VALUE = re.compile(r"[\d.]+")
_MEASURE = re.compile(r"-?(?<!\d)\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)")
"""Numbers in front of a bar that differ each time: a loss, a rate, a time."""
_STEP = re.compile(r"^(\d{1,7}\|)\d{1,9}(?=\|Loss: )")
"""torchtune's title of a bar, `epoch|step|Loss: x` (recipes/full_finetune_distributed.py)."""
_EPOCH = re.compile(r"\b[Ee]poch[\s#:=\[(]{0,9}(\d{1,7})(?![\w.]\d)")
"""The epoch in a bar's title: the bar of the next one goes on from it."""
_NAMES = {ETA: r"\g<name>eta/\g<total>", COLUMN: r"\g<name>"}
BARS = (UNDRAWN, BAR, RICH_BAR, KERAS, ETA, COLUMN, PAIR, PERCENT)
"""What `parse_bar` reads."""


def parse_bar(text: str) -> tuple[str, tuple[float, ...]] | None:
    """How far a bar is; its name is the text in front of it."""
    match = UNDRAWN.search(text) or BAR.search(text) or RICH_BAR.search(text) or KERAS.search(text)
    if match is None:
        pair = PAIR.match(text)
        if pair is not None:
            return "epoch, step", (float(pair["epoch"]), float(pair["done"]))
        plain = ETA.match(text) or COLUMN.match(text)
        if plain is not None:
            return plain.expand(_NAMES[plain.re]), (float(plain["done"]),)
        percent = PERCENT.search(text)
        return _percent_of(text, percent) if percent is not None else None
    title = _PERCENT.sub("", text[: match.start()]).rstrip("━─╸╺ ").strip()
    title = "" if _DRAWING.fullmatch(title) else _STEP.sub(r"\1", title)
    row = _ROW.match(title)
    done, total = float(match["done"]), match["total"] or "?"
    if row is not None:
        name = _VALUE.sub("0", title[row.end() :])
        return f"{name[-60:]}/{row['total']}/{total}", (float(row["done"]), done)
    return _with_epoch(f"{_MEASURE.sub('0', title)[-60:]}/{total}", done)


def _with_epoch(name: str, done: float) -> tuple[str, tuple[float, ...]]:
    """A bar's name and value, which is behind that of the epoch in its title, if there is one."""
    epoch = _EPOCH.search(name)
    if epoch is None:
        return name, (done,)
    return f"epoch {name[: epoch.start(1)]}{name[epoch.end(1) :]}", (float(epoch[1]), done)


def _percent_of(text: str, match: re.Match[str]) -> tuple[str, tuple[float, ...]]:
    """How far a bar without a time is: its count, else its percentage."""
    title = _MEASURE.sub("0", text[: match.start()].strip())[-60:]
    return _with_epoch(f"{title}/{match['total'] or 100}", float(match["done"] or match["percent"]))


_MEASURE_WORD = (
    r"(?:[Ll]oss|lr\b|[Rr]eward|fps\b|(?:tok|tokens|samples|img|steps)/s"
    r"|[a-z_|]{1,12}[=: |]{1,3}-?\d{1,6}\.\d)"
)
MEASURED = re.compile(
    r"(?:^\W{0,4}(?P<done>\d{1,9})[\]\s|,]{1,4}"
    r"|(?<![\w.-])(?P<name>it|i|u|n|b|gs|mb|ts|upd|tick|round|cycle|frame|game|gen|chunk)s?\W{0,3}"
    rf"(?P<count>\d{{1,9}})\b(?![.:/-]\d).{{0,160}}?(?<!\w)){_MEASURE_WORD}"
)
"""A number in front of what a program measures: `it=51 loss=2.3`, `[00012] fps=1204`, `u=77079 nll=2.000`.

One without a name is right in front of it: what `grep -n` and editors print is in front of any text."""
COLUMNS = re.compile(
    r"[\s|,;]{0,9}(?P<done>\d{1,9})"
    r"(?:[\s|,;]{1,9}-?\d{1,9}(?:\.\d{1,9})?(?:e[+-]?\d{1,3})?){1,16}[\s|,;]{0,9}$"
)
"""A row of a table of numbers, which begins with that of the row."""


ITEMS = re.compile(
    r"(?<![\w./])(?P<done>\d{1,9}) ?(?:/|of) ?(?P<total>\d{1,9}) "
    r"(?P<name>file|doc|document|item|sample|shard|example|record|chunk|image|video|prompt|request|row|task|question)s?\b"
)
"""How many of the things that it works through a program has done: `344/400 files`."""
PARTS = re.compile(
    r"^\W{0,3}(?:[A-Za-z]{4,20}ing )?(?P<name>warm-?up|shard|chunk|part|fold|file|sample|item|rollout)"
    r"(?: step)? (?P<done>\d{1,9}) ?(?:/|of) ?(?P<total>\d{1,9})\b",
    re.IGNORECASE,
)
"""The same with the name in front: `warmup 2/3`, `loading shard 4 of 30`."""


def parse_row_number(text: str) -> tuple[str, tuple[float, ...]] | None:
    """The number in front of what a line measures or counts, for programs that do not name their steps."""
    match = MEASURED.search(text)
    if match is not None:
        return f"{match['name'] or 'row'} of measures", (float(match["done"] or match["count"]),)
    if (items := ITEMS.search(text) or PARTS.match(text)) is not None:
        return f"{items['name']}s of {items['total']}", (float(items["done"]),)
    row = COLUMNS.match(text)
    return ("row of numbers", (float(row["done"]),)) if row is not None else None


_BLANKS = re.compile(r"\s{2,}")
_COUNT = re.compile(r"\d{1,12}")


class RayTuneTable:
    """Reads rows under a heading with a column `iter`, Tune's own iterations: how far each running trial is.

    Rows have borders of `|` (ray/tune/progress_reporter.py), or of `│` around columns that blanks part
    (ray/tune/experimental/output.py).
    """

    def __init__(self) -> None:
        self._heading: list[str] = []

    def read(self, text: str) -> tuple[str, tuple[float, ...]] | None:
        """The running trial of a row and its iterations; None for other lines."""
        if not text.endswith(("|", "│")):  # what all lines begin with may have been taken off, the border too
            return None
        cells = _row_cells(text)
        if cells[0] == "Trial name":
            self._heading = cells
        elif "iter" in self._heading and len(cells) == len(self._heading) and "RUNNING" in cells[1:3]:
            count = cells[self._heading.index("iter")]
            return (f"trial {cells[0]}", (float(count),)) if _COUNT.fullmatch(count) else None
        return None


def _row_cells(text: str) -> list[str]:
    inside = text.strip("|│ ")
    return [cell.strip() for cell in inside.split("|")] if text[-1] == "|" else _BLANKS.split(inside)
