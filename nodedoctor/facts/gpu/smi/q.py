"""Reads `nvidia-smi -q` into sections by its indentation; the width of the key column does not matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache

from nodedoctor.facts.gpu.smi import fields
from nodedoctor.facts.gpu.smi.flat_lines import is_flat, nest_flat_lines, parse_line
from nodedoctor.facts.gpu.smi.merge import merge_documents, put_nameless_last
from nodedoctor.facts.gpu.smi.query import query_columns, read_query
from nodedoctor.facts.gpu.smi.sections import UNREAD, Section, inert, plain
from nodedoctor.patterns import regex

_RULE = regex(r"\s*={3,40}\s{0,4}NVSMI LOG\s{0,4}=")
_GPU = regex(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])$")
_PARTS = frozenset(
    plain(heading)
    for heading in (
        *("ECC Mode", "ECC Errors", "Remapped Rows", "Retired Pages", "Temperature", "Clocks", "Max Clocks"),
        *("GPU Power Readings", "Clocks Event Reasons", "Clocks Throttle Reasons", "PCI", "Fabric"),
        *("FB Memory Usage", "Utilization", "MIG Mode", "Processes"),
    )
)
"""Headings of a GPU's sections, by which a paste without the line that names the GPU is known."""
_OF_GPU = frozenset(
    plain(heading)
    for heading in ("Remapped Rows", "Retired Pages", "Clocks Event Reasons", "Clocks Throttle Reasons")
)
"""Headings that are right below their GPU and nowhere else, however far in a mail has moved them."""
_OWN_NAMES = frozenset(("replays_since_reset", "replay_number_rollovers", "gpu_recovery_action"))
"""Lines that nothing but `-q` prints: each is known alone, as grep leaves it."""
_STATES = frozenset(
    plain(name)
    for name in (*("HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown", "SW Thermal Slowdown"),)
)
"""Reasons for low clocks that are trouble. Without their heading only an active one is taken: a list that may
not be whole proves no absence."""
_COUNTS = ("dram_correctable", "dram_uncorrectable", "sram_correctable", "sram_uncorrectable")
"""Lines of both kinds of counts of errors."""
_INNER = {"volatile": "ecc_errors", "aggregate": "ecc_errors"}
"""Headings that are below one other heading only, and that."""
_TROUBLES = ("Yes", "Active", "Required")
"""Values that are worth a quote before others."""
_QUERIED = regex(r"ecc_errors_(corrected|uncorrected)_(volatile|aggregate)_(total|dram|sram)")
"""A count of errors by its name in `--query-gpu`, which scripts print in front of the value."""
_ENOUGH = 3
"""Lines without their heading from which a paste is taken for a part of `-q` (chosen by us, no external
source): one line alone may come from anywhere."""


def read_q(text: str) -> Section | None:
    """A root that holds the header's keys and one `gpu` section per device, None when there is neither.

    The table of `--query-gpu` is one, too; several outputs are put together.
    Sections cut out of the text of one GPU are that GPU's, though its name and address are not known.
    """
    roots = [root for part in _documents(inert(text)) if (root := _read_document(part)) is not None]
    merged = merge_documents(roots)
    return put_nameless_last(merged) if merged else None


def _documents(text: str) -> Iterator[str]:
    """The outputs in a text: each begins at the rule of `-q` or at the heading of a query."""
    lines: list[str] = []
    columns = 0
    for line in text.splitlines():
        heading = query_columns(line)
        outside = columns and line.strip() and line.count(",") < columns - 1
        if heading or outside or _RULE.match(line):
            yield "\n".join(lines)
            lines, columns = [], heading
        lines.append(line)
    yield "\n".join(lines)


def _read_document(text: str) -> Section | None:
    if (queried := read_query(text)) is not None:
        for gpu in queried.all("gpu"):
            _put_queried(gpu)
        return queried
    root = _read_nested(text)
    if root.find("gpu") or root.find("attached_gpus"):
        _take_nameless_parts(root)
        return _settle_lines(root)
    _put_queried(root)
    if gpus := _repeated_parts(root.parts):
        return _settle_lines(Section("", parts=[Section("gpu", parts=parts) for parts in gpus]))
    return _headless_gpu(root.parts)


def _take_nameless_parts(root: Section) -> None:
    """Make what is above the first GPU's name one more GPU, whose name was cut off, where it has headings."""
    first = next((place for place, part in enumerate(root.parts) if part.name == "gpu"), 0)
    parts = [part for part in root.parts[:first] if part.name in _PARTS or _is_lost(part)]
    if any(part.name in _PARTS and part.parts for part in parts):
        rest = [part for part in root.parts if part not in parts]
        root.parts = [Section("gpu", parts=parts), *rest]


def _settle_lines(root: Section) -> Section:
    """The root; lines of its GPUs that lost their heading are below it, or noted as not read."""
    unread = [part for part in root.parts if part.name != "gpu" and _is_lost(part)]
    root.parts = [part for part in root.parts if part not in unread]
    unread += [line for gpu in root.all("gpu") for line in _settle_gpu(gpu)]
    if unread:
        line = next((line for line in unread if line.text in _TROUBLES), unread[0])
        root.parts.append(Section(UNREAD, f"{line.name}: {line.text}"))
    return root


def _settle_gpu(gpu: Section) -> list[Section]:
    """Put lines without their heading below the one that has such lines; what remains of them.

    A name that several headings have is of the one that the lines beside it are of.
    """
    strays = [inner for part in gpu.parts if _is_lost(part) for inner in (part, *part.parts)]
    gpu.parts = [part for part in gpu.parts if part not in strays]
    homes = {home for line in strays if (home := _home_path(line))}
    names = Counter(line.name for line in strays)
    unread = []
    for heading in [part for part in gpu.parts if part.name in _INNER and part.parts]:
        gpu.parts.remove(heading)
        _inner_section(gpu, _INNER[heading.name]).parts.append(heading)
    for line in strays:
        beside = homes & _deep_names().get(line.name, set()) if names[line.name] == 1 else set()
        home = _home_path(line) or (beside.pop() if len(beside) == 1 else None)
        if home:
            _inner_section(gpu, home).parts.append(Section(line.name, line.text))
        elif line.name in _deep_names():
            unread.append(line)
    return unread


def _is_lost(part: Section) -> bool:
    """Whether a line with a value is of a section, whose heading should be above it."""
    return bool(part.text) and (part.name in _STATES or part.name in _deep_names())


def _repeated_parts(parts: list[Section]) -> list[list[Section]]:
    """The sections of each GPU, where none has the line that names it: all have the same, in one order."""
    size = next(
        (place for place, part in enumerate(parts) if place and part.name == parts[0].name), len(parts)
    )
    names = [part.name for part in parts[:size]]
    gpus = [parts[start : start + size] for start in range(0, len(parts), size or 1)]
    is_known = any(part.name in (_PARTS if part.parts else _OWN_NAMES) for part in parts)
    distinct = len(set(names)) == len(names)
    return gpus if is_known and distinct and all([part.name for part in gpu] == names for gpu in gpus) else []


def _read_nested(text: str) -> Section:
    """Lines below the ones that they are indented under; `--` is what grep puts between its finds."""
    lines = [line for line in text.expandtabs().splitlines() if line.strip() not in ("", "--")]
    if is_flat(_GPU, lines):
        return nest_flat_lines(_GPU, lines)
    root = Section("")
    branch = [(-1, root)]  # the sections around the line, each with its indentation
    for line in lines:
        content = line.strip()
        indent = len(line) - len(line.lstrip())
        device = _GPU.match(content)
        while branch[-1][0] >= indent or (device and len(branch) > 1):
            branch.pop()
        section = Section("gpu", device[1]) if device else parse_line(content)
        parent = branch[-1][1]
        if section.name in _OF_GPU and not section.text:
            parent = next((above for _, above in reversed(branch) if above.name in ("gpu", "")), parent)
        parent.parts.append(section)
        branch.append((indent, section))
    return root


def _put_queried(root: Section) -> None:
    """Put counts under their names of `--query-gpu` where `-q` has them."""
    counters = [(match, part) for part in root.parts if (match := _QUERIED.fullmatch(part.name))]
    if not counters or len({part.name for _, part in counters}) < len(counters):
        return  # those of several GPUs
    counts = Section("ecc_errors")
    for match, part in counters:
        if (counter := counts.find(match[2])) is None:
            counter = Section(match[2])
            counts.parts.append(counter)
        if match[3] == "total":
            bits = "single_bit" if match[1] == "corrected" else "double_bit"
            counter.parts.append(Section(bits, parts=[Section("total", part.text)]))
        else:
            counter.parts.append(Section(f"{match[3]}_{match[1].removesuffix('ed')}able", part.text))
    root.parts = [*(part for part in root.parts if not _QUERIED.fullmatch(part.name)), counts]


def _headless_gpu(lines: list[Section]) -> Section | None:
    """A GPU of lines that lost their headings, where enough of them have a name that no other section has.

    A state that is trouble and active is enough alone.
    """
    gpu = Section("gpu")
    lines = [inner for line in lines for inner in (line, *line.parts)]
    homed = [(home, part) for part in lines if (home := _home_path(part))]
    for home, part in homed:
        here = _inner_section(gpu, home)
        if here.find(part.name) is not None:
            return None  # the lines of several GPUs
        here.parts.append(part)
    enough = len(homed) >= _ENOUGH or any(part.name in _STATES for _, part in homed)
    return Section("", parts=[gpu]) if enough else None


def _inner_section(gpu: Section, home: str) -> Section:
    """The section of a GPU at a path, made where it is not there."""
    here = gpu
    for name in home.split("/"):
        inner = here.find(name)
        if inner is None:
            inner = Section(name)
            here.parts.append(inner)
        here = inner
    return here


def _home_path(part: Section) -> str | None:
    """The section that a line is of, where its name tells."""
    if part.name in _STATES:
        return "clocks_event_reasons" if part.text == "Active" else None
    return _home_paths().get(part.name)


@cache
def _home_paths() -> Mapping[str, str]:
    """The only section that has a line of that name, for names of three words and more."""
    homes_by_name: dict[str, dict[str, None]] = {}
    for row in fields.rows():
        for path in row.paths:
            home, _, name = path.rpartition("/")
            if name.count("_") > 1 and home:
                homes_by_name.setdefault(name, {})[home] = None
    return {name: home for name, homes in homes_by_name.items() for home in _single_home(homes)}


@cache
def _deep_names() -> Mapping[str, set[str]]:
    """The headings that have a line of a name, for names that no line right below a GPU has."""
    paths = [path for row in fields.rows() for path in row.paths]
    paths += [f"{above}/{inner}/{count}" for inner, above in _INNER.items() for count in _COUNTS]
    homes: dict[str, set[str]] = {}
    for home, _, name in (path.rpartition("/") for path in paths):
        if home and name not in paths:
            homes.setdefault(name, set()).add(home)
    return homes


def _single_home(homes: Mapping[str, None]) -> Iterator[str]:
    """The first heading, where all are names of the same section in different drivers."""
    if len({home.partition("/")[0].removeprefix("gpu_") for home in homes}) == 1:
        yield next(iter(homes))
