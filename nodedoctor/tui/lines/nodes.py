"""The rows of the Fleet screen: a line per cause or difference with its nodes below it, the worst first.

Everything a node said passes `inert` on its way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from nodedoctor.fleet.compare.causes import SharedCause, lead, shared_reasons
from nodedoctor.fleet.model import Fleet, Node, NodeCause, Oddity
from nodedoctor.knowledge.ownership import action_words, owner_column, owner_word
from nodedoctor.model import WORST_FIRST, Severity, Status
from nodedoctor.nodeset import fold
from nodedoctor.record import record, replace
from nodedoctor.report.inert import inert
from nodedoctor.tui.theme import LABEL, QUIET, RUN, STYLE, Glyphs, Part, Row
from nodedoctor.wording import and_more, count_with_noun

WELL = "well"
"""Key of the row of all nodes without a problem."""
MARGIN = 15
"""Cells of a row before its name (cursor, status, owner) and between its name and its text."""


@record
class Round:
    """The nodes that have answered so far, and those that have not."""

    fleet: Fleet
    waiting: tuple[str, ...] = ()


Subject = SharedCause | Oddity | Node | None
"""What a row is about; None: all nodes that are well."""


@record
class Entry:
    """A row of the list with what it is about: `summary` and what to do, and the nodes it covers.

    `parent` is the key of the row that it was unfolded from.
    """

    key: str
    status: str
    style: str
    owner: str
    name: str
    summary: str
    subject: Subject
    nodes: tuple[Node, ...]
    todo: str = ""
    parent: str = ""

    @property
    def hosts(self) -> str:
        """The names of its nodes, as a node set."""
        return fold([node.host for node in self.nodes])

    @property
    def unfolds(self) -> bool:
        """Whether enter lists its nodes."""
        return not isinstance(self.subject, Node) and len(self.nodes) > 1


def head(now: Round) -> list[tuple[Part, ...]]:
    """Two lines: how many nodes, and their statuses."""
    fleet = now.fleet
    total = len(fleet.nodes) + len(now.waiting)
    parts: list[Part] = [("RUN ", RUN) if now.waiting else (fleet.verdict.word, STYLE[fleet.verdict])]
    for status in WORST_FIRST:
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
    title = f"fleet   {count_with_noun(total, 'node')} over {fleet.source}"
    waits = f"   waiting for {fold(now.waiting)}" if now.waiting else ""
    return [((title, LABEL), (inert(waits), QUIET)), tuple(parts)]


def entries(
    fleet: Fleet, *, folded: bool = True, glyphs: Glyphs, opened: Collection[str] = (), needle: str = ""
) -> list[Entry]:
    """Causes and differences, the worst first, each with its nodes below it where it is `opened`.

    With a needle, or not folded, a line per node.
    """
    return list(
        _grouped_entries(fleet, opened, glyphs) if folded and not needle else _flat_entries(fleet, needle)
    )


def rows(entries_shown: Sequence[Entry], width: int, glyphs: Glyphs) -> list[Row]:
    """The entries as rows of a list; what to do stays where the words before it are cut."""
    widest = max((len(entry.name) for entry in entries_shown), default=0)
    room = width - MARGIN - min(widest, max(width * 2 // 5, 10))
    return [
        Row(
            entry.key,
            f"{entry.status} {owner_column(entry.owner) if entry.owner else '':<5}",
            entry.style,
            entry.name,
            _fit_entry(entry, room if entry.name else width - MARGIN + 1, glyphs),
        )
        for entry in entries_shown
    ]


def standing(node: Node) -> Status:
    """How a node counts: without a report it is unknown, and what is merely out of sight is no news."""
    if node.state != "answered":
        return Status.UNKNOWN
    return node.verdict or Status.UNKNOWN


def value_of(node: Node, oddity: Oddity) -> str:
    """What a node has that is different, and what most have."""
    usual = f"; most: {oddity.majority.value or '(none)'}" if oddity.majority else ""
    mine = next((group.value for group in oddity.groups if node.host in group.hosts), "")
    return f"{oddity.title}: {mine or '(none)'}{usual}"


def _grouped_entries(fleet: Fleet, opened: Collection[str], glyphs: Glyphs) -> Iterator[Entry]:
    nodes = {node.host: node for node in fleet.nodes}
    groups = [(group.cause.severity, _cause_entry(group)) for group in shared_reasons(fleet.worst_first())]
    groups += [(Severity.of(oddity.status), _oddity_entry(oddity, nodes)) for oddity in fleet.oddities]
    for _, entry in sorted(groups, key=lambda pair: -pair[0]):
        yield from _unfolded_entries(entry, opened, glyphs)
    if healthy := _healthy_nodes(fleet):
        name = count_with_noun(len(healthy), "node")
        hosts = fold([node.host for node in healthy])
        entry = Entry(WELL, Status.PASS.word, STYLE[Status.PASS], "", name, inert(hosts), None, healthy)
        yield from _unfolded_entries(entry, opened, glyphs)


def _unfolded_entries(entry: Entry, opened: Collection[str], glyphs: Glyphs) -> Iterator[Entry]:
    """An entry, and the nodes it covers where it is opened."""
    if not entry.unfolds:
        yield entry
        return
    mark = glyphs.open if entry.key in opened else glyphs.shut
    place = "name" if entry.name else "summary"
    yield replace(entry, **{place: f"{mark} {getattr(entry, place)}"})
    if entry.key in opened:
        yield from (_member_entry(node, entry) for node in entry.nodes)


def _flat_entries(fleet: Fleet, needle: str) -> Iterator[Entry]:
    """A line per node, and what sets nodes apart where it is at least as bad as the next node."""
    oddity_by_host = {host: oddity for oddity in reversed(fleet.oddities) for host in oddity.odd}
    nodes = {node.host: node for node in fleet.nodes}
    oddities = [oddity for oddity in fleet.oddities if _has_words(oddity, needle)]
    oddities.sort(key=lambda oddity: -Severity.of(oddity.status))
    for node in fleet.worst_first():
        if not _matches_needle(node, needle):
            continue
        while oddities and Severity.of(oddities[0].status) > node.severity:
            yield _oddity_entry(oddities.pop(0), nodes)
        yield _node_entry(node, oddity_by_host)
    yield from (_oddity_entry(oddity, nodes) for oddity in oddities)


def _healthy_nodes(fleet: Fleet) -> tuple[Node, ...]:
    odd_hosts = {host for oddity in fleet.oddities for host in oddity.odd}
    return tuple(node for node in fleet.nodes if not node.severity.is_problem and node.host not in odd_hosts)


def _cause_entry(group: SharedCause) -> Entry:
    cause, count = group.cause, len(group.members)
    more = "" if group.same_words else " (others alike)"
    return Entry(
        f"cause {group.key}",
        cause.status.word,
        STYLE[cause.status],
        cause.owner,
        f"{count} nodes" if count > 1 else inert(group.hosts[0]),
        inert(cause.title) + more,
        group,
        group.nodes,
        group.todo,
    )


def _oddity_entry(oddity: Oddity, nodes: Mapping[str, Node]) -> Entry:
    title = oddity.title.partition(" (")[0]  # the kind of its nodes is on its page
    summary = inert(f"{title}: {_differences_first(oddity)}")
    members = tuple(nodes[host] for host in oddity.odd if host in nodes)
    return Entry(f"oddity {oddity.key}", "ODD ", STYLE[oddity.status], "", "", summary, oddity, members)


def _member_entry(node: Node, entry: Entry) -> Entry:
    """A node below the row it was unfolded from: what it says in other words, or what else it has."""
    summary, owner = "", ""
    match entry.subject:
        case SharedCause() as group:
            mine = next(cause for member, cause in group.members if member is node)
            others = [cause.title for cause in node.causes if cause is not mine]
            summary = (
                mine.title if not group.same_words else f"also {'; '.join(others)}" if others else node.note
            )
            owner = mine.owner
        case Oddity() as oddity:
            summary = value_of(node, oddity)
    key = f"node {node.host} of {entry.key}"
    name = f"  {inert(node.host)}"
    return Entry(key, entry.status, entry.style, owner, name, inert(summary), node, (node,), parent=entry.key)


def _node_entry(node: Node, oddity_by_host: Mapping[str, Oddity]) -> Entry:
    key, name = f"node {node.host}", inert(node.host)
    if not node.severity.is_problem and node.host in oddity_by_host:
        oddity = oddity_by_host[node.host]
        summary = inert(value_of(node, oddity))
        return Entry(key, oddity.status.word, STYLE[oddity.status], "", name, summary, node, (node,))
    status, causes = standing(node), [*node.causes, *lead(node)]
    first = causes[0] if causes else NodeCause("", status)
    more = and_more(len(causes) - 1)
    summary, todo = inert(first.title), action_words(first.action, first.owner, first.subjects)
    return Entry(
        key, status.word, STYLE[status], first.owner, name, summary, node, (node,), f"{todo}{more}".strip()
    )


def _fit_entry(entry: Entry, room: int, glyphs: Glyphs) -> str:
    """What an entry says in its room: with its nodes where all fits; of what is cut, what to do stays."""
    todo = f"; {entry.todo}" if entry.todo else ""
    text = entry.summary + todo
    if entry.unfolds and entry.name and entry.key != WELL:
        where = f"   {inert(entry.hosts)}"
        if len(text) + len(where) <= room:
            return text + where
    if len(text) <= room or not todo or room < len(todo) + 20:
        return text
    shortened = entry.summary[: room - len(todo) - 1]
    return f"{shortened.rpartition(' ')[0].rstrip(' :;,(') or shortened}{glyphs.more}{todo}"


def _differences_first(oddity: Oddity) -> str:
    """Who differs by what, before what most have; of a list of devices the odd ones alone."""
    if oddity.majority is None:
        return oddity.summary
    usual = oddity.majority.value
    groups = [group for group in oddity.groups if group.value != usual]
    differences = ", ".join(f"{fold(group.hosts)} {_unusual_items(group.value, usual)}" for group in groups)
    return f"{differences}; most {usual}"


def _unusual_items(value: str, usual: str) -> str:
    """Of `7 x 18, 1 x 16` beside a usual `18`: `1 x 16`."""
    items = [item for item in value.split(", ") if item.partition(" x ")[2] != usual]
    return ", ".join(items) or value


def _matches_needle(node: Node, needle: str) -> bool:
    """Whether every word fits: `!word` must not occur, `is:fail` is about the node's verdict or state."""
    texts = [node.host, node.state, node.note]
    texts += [f"{problem.id} {problem.summary}" for problem in node.problems]
    texts += [f"{owner_word(cause.owner)} {cause.title}" for cause in node.causes]
    return all(_fits_word(node, word, " ".join(texts).lower()) for word in needle.split())


def _fits_word(node: Node, word: str, text: str) -> bool:
    if len(word) > 1 and word.startswith("!"):
        return not _fits_word(node, word[1:], text)
    if word.startswith("is:"):
        here = standing(node)
        kinds = {node.state, here.value, here.word.lower(), *(["problem"] * node.severity.is_problem)}
        return word[3:] in kinds
    return word in text


def _has_words(oddity: Oddity, needle: str) -> bool:
    text = f"{oddity.key} {oddity.title} {oddity.summary}".lower()
    return all(word in text or word in ("is:odd", "is:problem") for word in needle.split())
