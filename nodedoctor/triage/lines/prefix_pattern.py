"""Learns the prefix that a file's lines have in common, which no program printed.

`ts`, `date`, `grep -Hn`, `cat -n`, `parallel --tag`, a collector and a colleague's editor all put something
in front of every line. Digits, severities and names of months differ from line to line, the rest does not.
What is left after the prefixes that `lines` knows is compared by its shape. Whether there is a prefix most
lines decide, so that a bare traceback among them changes nothing; where it ends each shape decides once, so
that ten thousand equal step lines have one vote. No line may mean less without it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, islice, pairwise

from nodedoctor.patterns import mask_digits
from nodedoctor.record import record
from nodedoctor.triage.lines.times import MONTHS

PREFIX_SHARE = 0.6
"""Share of the lines, or of the shapes, that begin with a prefix; other speakers have none. Ours."""
SAME_SHARE = 0.85
"""Share of those that go on alike behind a possible end of the prefix: then it ends later. Ours."""
FEWEST = 2
"""Different shapes from which something can be learned, and that follow a prefix."""
LINES_TRIED = 50
"""Lines that are asked whether a known prefix follows."""
MANY, NEARLY_ALL = 8, 0.95
"""So many shapes, of which nearly all begin with the same plain word, begin with a name; ALL is that."""
FEW = 4
"""Shapes of so few must all have it."""
PREFIX_LENGTH = 160
"""Characters in front of a line in which a prefix ends."""
LEVELS = (
    "DEBUG", "INFO", "NOTICE", "WARNING", "WARN", "ERROR", "ERR", "CRITICAL", "FATAL", "TRACE", "SUCCESS",
    "Debug", "Info", "Notice", "Warning", "Error", "Critical",
)  # fmt: skip
_TOKEN = re.compile(r"^ *\d+|(?<! ) {2,}\d+|\d+|[A-Za-z]+|\s|.", re.DOTALL)
_BAR = "%" + re.escape("|")
"""Where a bar begins: its name is in front of it, and no prefix."""
_MONTHS = (*MONTHS, "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MASKS = {**dict.fromkeys(LEVELS, "L"), **dict.fromkeys(_MONTHS, "M")}
_PIECES = {
    "0": r" *(\d+)",
    "L": r"(?:" + "|".join(LEVELS) + r") *",
    "S": "[-:]",
    "M": r"(?:" + "|".join(_MONTHS) + r")",
}
_TEXT_WORD = re.compile(r"\w*(?:Error|Exception|Warning)|Traceback|NCCL|File$")
"""What begins texts and is never a prefix of them."""
STEP_MEANING = "TrainingStep"
"""What a line about progress means."""
LABEL = r" *(\d+)[-:]\ "
"""What `srun --label` prints is known already, and means more."""

PYTEST = r"\.py::"
"""In the name of a test, which pytest puts in front of what the test printed."""


def learn_pattern(
    texts: Sequence[str], is_known: Callable[[str], bool], meaning: Callable[[str], frozenset[str]]
) -> re.Pattern[str] | None:
    """The common prefix as a pattern with a group for each number, or None.

    It ends where a prefix begins that `is_known`, and no line loses any `meaning` without it.
    """
    shapes = _count_shapes(texts)
    of_most = _shapes_of_most_lines(shapes)
    if len(of_most) < len(shapes):
        pattern = _pattern_of(of_most, texts, is_known, meaning)
        if pattern is not None and with_columns(pattern, texts).has_label:
            return pattern
    return _pattern_of(list(shapes), texts, is_known, meaning)


def _pattern_of(
    shapes: Sequence[tuple[str, ...]],
    texts: Sequence[str],
    is_known: Callable[[str], bool],
    meaning: Callable[[str], frozenset[str]],
) -> re.Pattern[str] | None:
    """The prefix that these shapes have in common, or None."""
    common, ends = _common_beginning(shapes) if len(shapes) >= FEWEST and len(texts) > FEWEST else ([], [])
    ends = [end for end in ends if common[end : end + 1] != [" "]]  # a blank behind it is of the prefix
    for end in ends:
        pattern = re.compile("".join(map(_token_pattern, common[:end])))
        rests = [text[match.end() :] for text in texts[:LINES_TRIED] if (match := pattern.match(text))]
        if end == len(common) or sum(map(is_known, rests)) * 2 > len(rests) > 0:
            if (before := _shorter_prefix(pattern, common, ends, texts, is_known)) is not None:
                pattern = before
            lossy = (
                pattern.pattern == LABEL
                or PYTEST in pattern.pattern
                or _loses_meaning(pattern, texts, meaning)
            )
            return None if lossy else pattern
    return None


def _shorter_prefix(
    pattern: re.Pattern[str],
    common: Sequence[str],
    ends: Iterable[int],
    texts: Sequence[str],
    is_known: Callable[[str], bool],
) -> re.Pattern[str] | None:
    """A shorter prefix, where most lines go on with a known prefix behind it."""
    mine = list(islice((text for text in texts if pattern.match(text)), LINES_TRIED))
    for end in ends:
        shorter = re.compile("".join(map(_token_pattern, common[:end])))
        rests = [text[match.end() :] for text in mine if (match := shorter.match(text))]
        if shorter.pattern != pattern.pattern and sum(map(is_known, rests)) * 2 > len(rests) > 0:
            return shorter
    return None


def _loses_meaning(
    pattern: re.Pattern[str], texts: Iterable[str], meaning: Callable[[str], frozenset[str]]
) -> bool:
    """Whether a line says less without this prefix: then it is no prefix.

    What is the same in front of all lines counts nothing: `[Step 1/1]` is no progress. A rank in it is kept.
    """
    if _BAR in pattern.pattern:
        return True
    texts = list(texts)
    fronts = {match[0] for text in texts if (match := pattern.match(text))}
    is_same = len(fronts) == 1 < FEWEST < len(texts)
    _, rank = _columns_by_words(pattern)
    if _counts_up(pattern, texts[: LINES_TRIED * 4]):
        return True
    for match in islice((match for text in texts if (match := pattern.match(text))), LINES_TRIED * 4):
        with_prefix, without_prefix = meaning(match.string), meaning(match.string[match.end() :])
        missing = {
            kind
            for kind in with_prefix - without_prefix
            if not (is_same and kind == STEP_MEANING) and not (rank is not None and kind.endswith(" rank"))
        }
        if missing and not without_prefix - with_prefix:
            return True
    return False


def _counts_up(pattern: re.Pattern[str], texts: Iterable[str]) -> bool:
    """Whether a number that counts steps differs from line to line, as `iteration 7/ 100 |` does."""
    fronts = _fronts_of_columns(pattern)
    columns = [index for index, front in enumerate(fronts) if _COUNTS_STEPS.search(front)]
    matches = [match for text in texts if (match := pattern.match(text))] if columns else []
    return any(2 * len({match[index + 1] for match in matches}) > len(matches) for index in columns)


def _token_pattern(token: str) -> str:
    return _PIECES[token[0]] if token.endswith("\0") else re.escape(token)


def _line_shape(text: str) -> tuple[str, ...]:
    """The tokens of a line's beginning, with numbers, severities and months masked."""
    tokens: list[str] = []
    for token in _TOKEN.findall(text):
        if token[-1].isdigit():
            tokens.append("0\0")
        elif token in _MASKS:
            tokens.append(_MASKS[token] + "\0")
        elif token == " " and tokens and tokens[-1] == "L\0":
            continue  # severities are padded to one width
        elif tokens == ["0\0"] and token in "-:":
            tokens.append("S\0")
        else:
            tokens.append(token)
    return tuple(tokens)


def _count_shapes(texts: Iterable[str]) -> Counter[tuple[str, ...]]:
    """The lines of each shape."""
    shapes: Counter[tuple[str, ...]] = Counter()
    fronts = (mask_digits(text[: 2 * PREFIX_LENGTH])[:PREFIX_LENGTH] for text in texts)
    for text, count in Counter(fronts).items():
        shapes[_line_shape(text)] += count
    del shapes[()]
    return shapes


def _shapes_of_most_lines(shapes: Counter[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The shapes that share a number in front with most lines, or all shapes.

    Lines that a launcher or a library adds, a traceback among them, may have as many shapes as all others.
    """
    rest, head, least = list(shapes), list[str](), PREFIX_SHARE * shapes.total()
    while not ("0\0" in head and _may_end_prefix(head)):
        votes: Counter[str] = Counter()
        for shape in rest:
            votes[shape[len(head)] if len(shape) > len(head) else ""] += shapes[shape]
        token, count = votes.most_common(1)[0] if votes else ("", 0)
        if not token or token == "%" or count < least or _TEXT_WORD.match(token):
            return list(shapes)
        rest = [shape for shape in rest if len(shape) > len(head) and shape[len(head)] == token]
        head.append(token)
    return rest


def _common_beginning(shapes: Sequence[tuple[str, ...]]) -> tuple[list[str], list[int]]:
    """The longest beginning that enough shapes share, and where the prefix may end in it.

    Behind the prefix the shapes part: what only some of them go on with is text.
    """
    rest, common, ends, last = list(shapes), list[str](), list[int](), 0
    least = len(shapes) if len(shapes) <= FEW else max(PREFIX_SHARE * len(shapes), FEWEST)
    while True:
        votes = Counter(shape[len(common)] for shape in rest if len(shape) > len(common))
        token, count = votes.most_common(1)[0] if votes else ("", 0)
        in_json = token in ('"', "'") and common[-1:] == ["{"]  # an envelope: what it holds is no prefix
        if count < least or in_json or _TEXT_WORD.match(token):
            return common[:last], [end for end in ends if end <= last]
        rest = [shape for shape in rest if len(shape) > len(common) and shape[len(common)] == token]
        common.append(token)
        sure = len(shapes) >= MANY or any(token[0] in "0-_[(<|" for token in common)
        if _goes_on_with_value(common, rest):
            continue
        if _may_end_prefix(common) or (token == " " and sure and len(rest) >= NEARLY_ALL * len(shapes)):
            ends.append(len(common))
            if len({shape[len(common) : len(common) + 2] for shape in rest}) >= FEWEST:
                last, least = len(common), max(least, SAME_SHARE * len(rest))


def _may_end_prefix(common: Sequence[str]) -> bool:
    """Whether a prefix may end here: at punctuation, a tab, or some blanks."""
    last, before = common[-1], common[-2] if len(common) > 1 else ""
    if last.isspace() and all(token.isspace() for token in common):
        return False
    if last in ("S\0", "\t", "|", ">", "]", ")", ":", "}", ";", "│", "+"):
        return not (last == "\t" and before == " ")
    plain = before.isalpha() and (len(common) < 3 or common[-3].isspace())
    return last == " " and bool(before) and not before.isspace() and not plain


def _goes_on_with_value(common: Sequence[str], shapes: Sequence[tuple[str, ...]]) -> bool:
    """Whether this is the middle of a value: `bus=0000:c1:00.0` in a table is no prefix `bus=0000:`."""
    word = [*accumulate(common, lambda before, token: "" if token.isspace() else before + token)][-1]
    name, is_pair, _ = word.rpartition("=")
    end = len(common)
    is_inside = bool(is_pair) and common[-1] == ":" and not name.endswith("rank")
    return is_inside and not all(shape[end : end + 1] in ((), (" ",)) for shape in shapes)


STEP_WORDS = r"(?:epoch|step|iter(?:ation)?|update|batch|trial|rollout|episode|round)s?"
"""What programs count, in small letters."""
_OTHER_RANK = r"(?!(?:global|world)[ _-]?rank)(?:[a-z]+[_-]|(?:local|node|group|machine) )rank"
_COUNTS_OTHERS = re.compile(
    rf"(?<![a-z])(?:{_OTHER_RANK}|lr|lrank|n|nodes?|host|machine|[tdpcesvm]p|stage|attempt|restart|try"
    r"|epoch|iter(?:ation)?|step|thread|tid|pid)[\s=:#_-]*$",
    re.IGNORECASE,
)
"""Words whose number is no rank: of nodes, of the ranks in a group or node, of steps."""
_COUNTS_STEPS = re.compile(rf"(?<![a-z])(?:[a-z]+[_ ])?{STEP_WORDS}[\s=:#_\[-]*$", re.IGNORECASE)
_GROUP = "[PG "
"""What c10d prints in front of a process group and the rank in it."""
_COUNTS_RANKS = re.compile(
    r"(?<![a-z])(?:(?:(?:global|world)[ _-]?)?rank|grank|gr)[\s=:#_-]*$", re.IGNORECASE
)


@record
class LearnedPrefix:
    """A common prefix with its numbers: the one that it calls a rank, else those that may be ranks."""

    pattern: re.Pattern[str]
    labels: frozenset[int]
    rank: int | None = None
    beside: frozenset[int] = frozenset()
    """Numbers that repeat, and are of nodes, of local ranks or of others by their words."""
    is_host: bool = False
    """Whether it is the name of the line's host, as pdsh and clush put it in front."""

    @property
    def has_label(self) -> bool:
        """Whether a number of it may tell processes apart."""
        return self.rank is not None or bool(self.labels)


def with_columns(pattern: re.Pattern[str], texts: Iterable[str]) -> LearnedPrefix:
    """A learned pattern with its numbers: words of its own say what most of them count."""
    others, rank = _columns_by_words(pattern)
    if rank is not None:
        return LearnedPrefix(pattern, frozenset(), rank)
    texts = list(texts)
    numbers = repeating_numbers(pattern, texts)
    return LearnedPrefix(pattern, numbers - others, None, numbers & others, _are_hosts(pattern, texts))


_HOST = re.compile(
    r"(?!(?:local)?rank|worker|thread|shard|part|chunk|fold|seed|run|job|task|trial|exp)"
    r"(?:[a-z]+(?:0\d|\d{3})\d{0,9}|[a-z]+\d{1,9}(?:\.[a-z][\w-]*)+):[ ]"
)
"""A host's name: its number is padded or long, or a domain is behind it."""


def _are_hosts(pattern: re.Pattern[str], texts: Iterable[str]) -> bool:
    """Whether a prefix is the name of a host, of which there are several."""
    fronts = {match[0] for text in texts if (match := pattern.match(text))}
    return len(fronts) > 1 and all(map(_HOST.fullmatch, fronts))


def _columns_by_words(pattern: re.Pattern[str]) -> tuple[frozenset[int], int | None]:
    """The columns whose words say that they count something else, and the one that is called a rank."""
    fronts = _fronts_of_columns(pattern)
    others = frozenset(i for i, front in enumerate(fronts) if _COUNTS_OTHERS.search(front) or _GROUP in front)
    ranks = [i for i, front in enumerate(fronts) if i not in others and _COUNTS_RANKS.search(front)]
    return others, ranks[0] if len(ranks) == 1 else None


def _fronts_of_columns(pattern: re.Pattern[str]) -> list[str]:
    """What is in front of each number of a prefix."""
    words = [re.sub(r"\\(.)", r"\1", part) for part in pattern.pattern.split(_PIECES["0"])[:-1]]
    return list(accumulate(words, "{}0{}".format))


def repeating_numbers(pattern: re.Pattern[str], texts: Iterable[str]) -> frozenset[int]:
    """The columns of numbers that repeat, as ranks do and line numbers do not."""
    columns: dict[int, Counter[str]] = {}
    for text in texts:
        match = pattern.match(text)
        for index, digits in enumerate(match.groups() if match else ()):
            columns.setdefault(index, Counter())[digits] += 1
    clocks = _clock_columns(pattern)
    return frozenset(
        index
        for index, counts in columns.items()
        if index not in clocks and 2 * len(counts) <= sum(counts.values())
    )


def _clock_columns(pattern: re.Pattern[str]) -> frozenset[int]:
    """The columns of a clock: three with equal separators, or two of a fraction."""
    between = pattern.pattern.split(r" *(\d+)")[1:-1]
    threes = (
        first
        for first, marks in enumerate(pairwise(between))
        if marks[0] == marks[1] and marks[0] in (":", "/", "-", r"\-")
    )
    twos = (first for first, mark in enumerate(between) if mark in (r"\.", ","))
    return frozenset(
        [index for first in threes for index in (first, first + 1, first + 2)]
        + [index for first in twos for index in (first, first + 1)]
    )
