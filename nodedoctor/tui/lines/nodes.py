"""What the Fleet screen says: a line per node or oddity, the matrix, and the page about what is selected.

Everything a node said passes `inert` on its way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from nodedoctor.fleet.model import Fleet, Node, Oddity, ValueGroup
from nodedoctor.model import Severity, Status
from nodedoctor.nodeset import fold
from nodedoctor.record import record
from nodedoctor.report.inert import inert
from nodedoctor.tui.lines import node_causes
from nodedoctor.tui.lines.node_causes import sentence
from nodedoctor.tui.theme import LABEL, QUIET, RUN, STYLE, Glyphs, Para, Part, Row
from nodedoctor.wording import capitalised

WELL = "well"
"""Key of the row that stands for all nodes without a problem while they are folded."""


@record
class Round:
    """The nodes that have answered so far, and those that have not."""

    fleet: Fleet
    waiting: tuple[str, ...] = ()


def head(now: Round) -> list[tuple[Part, ...]]:
    """Two lines: how many nodes, and how they stand."""
    fleet = now.fleet
    total = len(fleet.nodes) + len(now.waiting)
    parts: list[Part] = [("RUN ", RUN) if now.waiting else (fleet.verdict.word, STYLE[fleet.verdict])]
    for status in (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS, Status.SKIP):
        count = sum(node.verdict is status and node.state == "answered" for node in fleet.nodes)
        if count:
            parts.append((f"  {count} {status.value}", ""))
    for state in ("silent", "unreachable", "unable", "unreadable"):
        count = sum(node.state == state for node in fleet.nodes)
        if count:
            parts.append((f"  {count} {state}", STYLE[Status.UNKNOWN]))
    if now.waiting:
        parts.append((f"   {len(fleet.nodes)}/{total}", QUIET))
    parts.append((f"   {fleet.seconds:.1f} s", QUIET))
    asked = f"fleet   {total} node{'' if total == 1 else 's'} over {fleet.source}"
    waits = f"   waiting for {fold(now.waiting)}" if now.waiting else ""
    return [((asked, LABEL), (inert(waits), QUIET)), tuple(parts)]


def rows(
    fleet: Fleet, *, folded: bool, glyphs: Glyphs, opened: Collection[str] = (), needle: str = ""
) -> list[Row]:
    """Nodes and what sets nodes apart, the worst first; of the same severity nodes first, with what to do.

    If `folded`, those with the same cause are one line, unless that is `opened`, and those that are well too.
    """
    nodes = [node for node in fleet.worst_first() if _fits(node, needle)]
    odd = _first_difference(fleet)
    well = [node for node in nodes if _is_well(node, odd)]
    bad = [node for node in nodes if not _is_well(node, odd)]
    oddities = sorted(
        (oddity for oddity in fleet.oddities if _tells(oddity, needle)), key=lambda o: -Severity.of(o.status)
    )
    groups = node_causes.shared(bad)
    group_of = {host: group for group in groups for host in group.hosts} if folded and not needle else {}
    made = list[Row]()
    for node in bad:
        while oddities and Severity.of(oddities[0].status) > node.severity:
            made.append(_oddity_row(oddities.pop(0)))
        group = group_of.get(node.host)
        if group is not None and node is group.nodes[0]:
            made.append(node_causes.row(group, group.key in opened, glyphs))
        if group is None or group.key in opened:
            made.append(_node_row(node, odd))
    made += map(_oddity_row, oddities)
    if well and folded:
        count = f"{len(well)} node{'' if len(well) == 1 else 's'}"
        made.append(Row(WELL, "PASS", STYLE[Status.PASS], count, inert(fold([n.host for n in well]))))
    else:
        made += [_node_row(node, odd) for node in well]
    return made


def page(fleet: Fleet, key: str) -> list[Para]:
    """Everything about a row."""
    for oddity in fleet.oddities:
        if key == _key(oddity):
            return list(_oddity(oddity))
    if group := _group_at(fleet, key):
        return list(node_causes.page(group))
    if key == WELL:
        odd = _first_difference(fleet)
        return list(_all_well([node for node in fleet.nodes if _is_well(node, odd)]))
    node = find(fleet, key)
    if node is not None:
        return list(_node(node, fleet.oddities))
    return [Para("nothing fits this filter" if fleet.nodes else "no node has answered yet")]


def names(fleet: Fleet, key: str) -> str:
    """The nodes a row of the list stands for, as a node set."""
    hosts = next((oddity.odd for oddity in fleet.oddities if _key(oddity) == key), ())
    if group := _group_at(fleet, key):
        hosts = group.hosts
    if key == WELL:
        odd = _first_difference(fleet)
        hosts = tuple(node.host for node in fleet.nodes if _is_well(node, odd))
    node = find(fleet, key)
    return fold(hosts or ([node.host] if node else []))


def find(fleet: Fleet, key: str) -> Node | None:
    """The node (the first of those that share a line) that a row stands for."""
    return next((node for node in fleet.nodes if f"node {node.host}" == key), None)


def worst(fleet: Fleet, rows: Sequence[Row]) -> str:
    """The key of the first of the worst rows."""
    bad = {f"node {node.host}": node.severity for node in fleet.nodes}
    bad |= {_key(oddity): Severity.of(oddity.status) for oddity in fleet.oddities}
    bad |= {group.key: group.nodes[0].severity for group in node_causes.shared(fleet.worst_first())}
    return max(rows, key=lambda row: bad.get(row.key, Severity.SKIP)).key


def cause_of(fleet: Fleet, key: str) -> str:
    """The key of the row that stands for a node and others with the same cause; empty where none does."""
    groups = node_causes.shared(fleet.worst_first())
    return next((group.key for group in groups if key.removeprefix("node ") in group.hosts), "")


def _group_at(fleet: Fleet, key: str) -> node_causes.Shared | None:
    """The nodes with the same cause that a row stands for."""
    if not key.startswith(node_causes.CAUSE):
        return None
    return next((group for group in node_causes.shared(fleet.worst_first()) if group.key == key), None)


def _standing(node: Node) -> Status:
    """How a node counts: without a report it is unknown, and what is merely out of sight is no news."""
    if node.state != "answered":
        return Status.UNKNOWN
    return node.verdict or Status.UNKNOWN


def word_of(node: Node) -> str:
    """The word a node has in every list."""
    return _standing(node).word


def style_of(node: Node) -> str:
    """How that word looks."""
    return STYLE[_standing(node)]


def _first_difference(fleet: Fleet) -> dict[str, Oddity]:
    """The first thing that is odd about each node that is."""
    return {host: oddity for oddity in reversed(fleet.oddities) for host in oddity.odd}


def _is_well(node: Node, odd: Mapping[str, Oddity]) -> bool:
    return not node.severity.is_problem and node.host not in odd


def _node_row(node: Node, odd: Mapping[str, Oddity]) -> Row:
    if not node.severity.is_problem and node.host in odd:
        oddity = odd[node.host]
        said = inert(_strange(node, oddity))
        return Row(f"node {node.host}", oddity.status.word, STYLE[oddity.status], inert(node.host), said)
    text = node.note
    if node.state != "answered":
        text = f"{node.state}: {node.note}"
    elif node.cause:
        text = node_causes.short(node.cause)
    elif problems := node_causes.unexplained(node):
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        text = f"{problems[0].check}  {sentence(problems[0])}{more}"
    return Row(f"node {node.host}", word_of(node), style_of(node), inert(node.host), inert(text))


def _oddity_row(oddity: Oddity) -> Row:
    title = oddity.title.partition(" (")[0]  # the kind of its nodes is on its page
    return Row(_key(oddity), "ODD", STYLE[oddity.status], inert(title), inert(_differences_first(oddity)))


def _differences_first(oddity: Oddity) -> str:
    """Who differs by what, before what most have; of a list of devices the odd ones alone."""
    if oddity.majority is None:
        return oddity.summary
    usual = oddity.majority.value
    odd = [group for group in oddity.groups if group.value != usual]
    said = ", ".join(f"{fold(group.hosts)} {_unusual(group.value, usual)}" for group in odd)
    return f"{said}; most {usual}"


def _unusual(value: str, usual: str) -> str:
    """Of `7 x 18, 1 x 16` beside a usual `18`: `1 x 16`."""
    items = [item for item in value.split(", ") if item.partition(" x ")[2] != usual]
    return ", ".join(items) or value


def _oddity(oddity: Oddity) -> Iterator[Para]:
    yield Para(inert(oddity.summary), f"{oddity.status.word}  ", LABEL, STYLE[oddity.status])
    if kind := oddity.title.partition(" (")[2].removesuffix(")"):
        yield Para(inert(kind), "among     ")
    yield Para()
    for group in oddity.groups:
        yield _group(group, oddity)
    yield Para()
    if oddity.odd:
        yield Para(inert(fold(oddity.odd)), "look at   ")
    if oddity.fix:
        yield Para(inert(oddity.fix), "fix       ")
    if oddity.why:
        yield Para(capitalised(inert(oddity.why)), "why       ")


def _group(group: ValueGroup, oddity: Oddity) -> Para:
    usual = oddity.majority is not None and group.value == oddity.majority.value
    count = f"{len(group.hosts):>6}  "
    text = f"{group.value or '(none)'}   {fold(group.hosts)}"
    return Para(inert(text), count, QUIET if usual else LABEL, QUIET, verbatim=True)


def _all_well(nodes: Sequence[Node]) -> Iterator[Para]:
    have = "node has" if len(nodes) == 1 else "nodes have"
    yield Para(f"{len(nodes)} {have} no problem; p lists them one by one")
    yield Para()
    yield Para(inert(fold([node.host for node in nodes])), verbatim=True)


def _node(node: Node, oddities: Sequence[Oddity]) -> Iterator[Para]:
    yield Para(inert(node.host), f"{word_of(node)}  ", LABEL, style_of(node))
    if node.state != "answered":
        yield Para(inert(node.note), f"{node.state}  ")
        return
    yield from node_causes.of_node(node)
    if node.cause and not node.causes:
        yield Para(inert(node.cause), style=LABEL)
    if node.note:
        yield Para(inert(node.note), "note      ")
    for problem in node_causes.unexplained(node):
        yield Para()
        yield Para(inert(problem.check), f"{problem.status.word}  ", LABEL, STYLE[problem.status])
        yield Para(inert(sentence(problem)))
        yield Para(inert(problem.fix) or problem.action, "fix       ", most=3)
    strange = [oddity for oddity in oddities if node.host in oddity.odd]
    if strange:
        yield Para()
    for oddity in strange:
        yield Para(inert(_strange(node, oddity)), "ODD  ")
    yield Para()
    tally = "  ".join(f"{count} {status}" for status, count in node.counts.items() if count)
    yield Para(f"{inert(tally)}   in {node.seconds:.1f} s", style=QUIET)
    if node.report:
        yield Para("enter opens its report", style=QUIET)


def _strange(node: Node, oddity: Oddity) -> str:
    usual = f"; most: {oddity.majority.value or '(none)'}" if oddity.majority else ""
    mine = next((group.value for group in oddity.groups if node.host in group.hosts), "")
    return f"{oddity.title}: {mine or '(none)'}{usual}"


def _key(oddity: Oddity) -> str:
    return f"oddity {oddity.key}"


def _fits(node: Node, needle: str) -> bool:
    """Whether every word fits: `!word` must not occur, `is:fail` is about the node's verdict or state."""
    said = " ".join([node.host, node.state, node.note, *(f"{p.id} {p.summary}" for p in node.problems)])
    return all(_fits_word(node, word, said.lower()) for word in needle.split())


def _fits_word(node: Node, word: str, said: str) -> bool:
    if len(word) > 1 and word.startswith("!"):
        return not _fits_word(node, word[1:], said)
    if word.startswith("is:"):
        standing = _standing(node)
        kinds = {node.state, standing.value, standing.word.lower(), *(["problem"] * node.severity.is_problem)}
        return word[3:] in kinds
    return word in said


def _tells(oddity: Oddity, needle: str) -> bool:
    said = f"{oddity.key} {oddity.title} {oddity.summary}".lower()
    return all(word in said or word in ("is:odd", "is:problem") for word in needle.split())
