"""The odd one out: what most nodes of a kind have, and which nodes have something else.

Only nodes of one kind are compared, by GPU model and count: what follows from the kind is no oddity. A node
in doubt is not blamed: without a majority there are groups and no odd ones. Most nodes may be the broken
ones, so where more is better, as with links that are up, nodes that have less are odd, however many they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from nodedoctor.declare.peers import DEVIATION, Attribute, decides, odd_ones, quantile
from nodedoctor.fleet.compare import clocks, traits
from nodedoctor.fleet.compare.reachability import unreached
from nodedoctor.fleet.compare.traits import Measure, Trait
from nodedoctor.fleet.model import Node, Oddity, ValueGroup
from nodedoctor.grouping import group_pairs
from nodedoctor.model import Status
from nodedoctor.nodeset import fold, natural_key
from nodedoctor.record import replace

MAJORITY = 3
"""Nodes that must agree, beside being more than half: two against one may be two mistakes. Ours."""
SHAPES = frozenset({1, 2, 4, 8, 10, 16, 32, 64, 72})
"""GPUs that machines are built with; any other number is one of these with GPUs missing. Ours."""
DEVIATIONS = 6.0
"""Standard deviations that a node has to be away: of a million healthy nodes with normal noise none is. Our
threshold, no external source."""
NINE_OF_TEN, MANY_TIMES = 0.9, 10
"""A counter has to be so many times what nine nodes of ten stay below: our threshold."""
SHOWN = 3
"""Groups named in a summary."""


def judge(nodes: Iterable[Node]) -> tuple[Oddity, ...]:
    """What sets nodes apart, failures first, then in the order of the tables."""
    answered = sorted((node for node in nodes if node.state == "answered"), key=lambda n: natural_key(n.host))
    nodes_by_kind = kinds(answered)
    oddities = [*twins(answered), *unreached(answered), *clocks.differing_clocks(answered)]
    for kind, members in nodes_by_kind.items():
        label = f" ({kind})" if len(nodes_by_kind) > 1 else ""
        oddities += _judge_kind(members, label)
    return tuple(sorted(oddities, key=lambda oddity: oddity.status is not Status.FAIL))


def kinds(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """Nodes by what they are, the most frequent first: `8 x NVIDIA H100`; without GPUs only by themselves.

    A node with fewer GPUs than the others of its model belongs to them, and is odd; unless several have as
    few, in a number machines are built with.
    """
    models: dict[str, dict[int, list[Node]]] = {}
    without: list[Node] = []
    for node in nodes:
        model, gpu_count = node.traits.get("gpu", ""), node.traits.get("gpus", "")
        if model and gpu_count.isdecimal():
            models.setdefault(model, {}).setdefault(int(gpu_count), []).append(node)
        else:
            without.append(node)
    by_kind: dict[str, list[Node]] = {}
    for model, by_count in models.items():
        usual = max(by_count, key=lambda count: (len(by_count[count]), count))
        if usual not in SHAPES:
            usual = min((count for count in by_count if count in SHAPES and count > usual), default=usual)
        for count in sorted(by_count, key=lambda count: count != usual):
            own = count == usual or (count in SHAPES and len(by_count[count]) >= MAJORITY)
            by_kind.setdefault(f"{count if own else usual} x {model}", []).extend(by_count[count])
    by_kind = dict(sorted(by_kind.items(), key=lambda item: (-len(item[1]), item[0])))
    if not by_kind:
        return {"no GPU": without} if without else {}
    largest = next(iter(by_kind.values()))
    on_bus = {node.traits.get("on-bus") for node in largest} - {None, "0"}
    largest += [node for node in without if node.traits.get("on-bus") in on_bus]
    return by_kind


def twins(nodes: Sequence[Node]) -> Iterator[Oddity]:
    """Nodes that are one machine, counted several times, and machines that share a name."""
    booted = _group_values((node.host, node.boot_id) for node in nodes)
    once = [group for group in booted if len(group.hosts) > 1]
    same = {host for group in once for host in group.hosts}
    if once:
        yield _twin_oddity("same-machine", "Machines counted once", once, "are one machine (same boot id)")
    by_name = _group_values((node.host, node.hostname) for node in nodes if node.host not in same)
    shared = [group for group in by_name if len(group.hosts) > 1 and group.value != "localhost"]
    if shared:
        yield _twin_oddity("same-name", "Node names", shared, "have the same host name")


def _twin_oddity(key: str, title: str, groups: list[ValueGroup], what: str) -> Oddity:
    return Oddity(
        key,
        title,
        Status.WARN,
        "; ".join(f"{fold(group.hosts)} {what}: {group.value}" for group in groups[:SHOWN]),
        "schedulers, Ray and logs identify nodes by name; a job gets fewer GPUs than it counts.",
        tuple(groups),
        None,
        tuple(host for group in groups for host in group.hosts),
        "Look at the list of nodes, at DNS, and at the host names of the machines.",
    )


def _judge_kind(nodes: Sequence[Node], label: str) -> Iterator[Oddity]:
    """The oddities of one kind; what only follows from another one is part of it."""
    oddities: dict[str, Oddity] = {}
    with_it: dict[str, list[str]] = {}
    for trait in traits.rows_of(key for node in nodes for key in node.traits):
        oddity = _of_trait(trait, nodes, label)
        if oddity is None:
            continue
        first = oddities.get(trait.after)
        if (
            first is not None
            and first.odd
            and (set(oddity.odd) <= set(first.odd) or _split_hosts(oddity) == _split_hosts(first))
        ):
            with_it.setdefault(trait.after, []).append(trait.title)
        else:
            oddities[trait.key] = oddity
    for key, oddity in oddities.items():
        more = f" (and with it: {', '.join(with_it[key])})" if key in with_it else ""
        yield replace(oddity, summary=oddity.summary + more)
    for reading in traits.READINGS:
        if oddity := _of_reading(reading, nodes, label):
            yield oddity


def _of_trait(trait: Trait, nodes: Sequence[Node], label: str) -> Oddity | None:
    groups = _group_values((node.host, node.traits.get(trait.key, "")) for node in nodes)
    if trait.optional:
        return _of_optional(trait, groups, label)
    return _by_rank(trait, groups, label) or _by_majority(trait, groups, label)


def _by_majority(trait: Trait, groups: list[ValueGroup], label: str) -> Oddity | None:
    """What most have is taken as right."""
    total = sum(len(group.hosts) for group in groups)
    if len(groups) < 2:
        return None
    first, *others = groups
    if _is_majority(first, total):
        return _build_oddity(
            trait, label, trait.status, _odd_summary(others, first), tuple(groups), first, _all_hosts(others)
        )
    if total > MAJORITY and 2 * len(groups) > total:
        return None  # nearly every node has its own: that is its nature
    doubt = "too few nodes to know which is right" if total <= MAJORITY else "no majority"
    summary = f"{doubt}: {_list_values(groups)}"
    return _build_oddity(trait, label, Status.WARN, summary, tuple(groups), None, ())


def _by_rank(trait: Trait, groups: list[ValueGroup], label: str) -> Oddity | None:
    """Who has less than the best; only a warning where those who have as much are not the majority."""
    ranks = {group.value: trait.rank(group.value) if trait.rank else None for group in groups}
    rank_of = {value: rank for value, rank in ranks.items() if rank is not None}
    if len(groups) < 2 or len(rank_of) < len(groups):
        return None
    best = max(groups, key=lambda group: rank_of[group.value])
    others = [group for group in groups if rank_of[group.value] < rank_of[best.value]]
    if not others:
        return None
    decided = _is_majority(best, sum(len(group.hosts) for group in groups))
    status = trait.status if decided else Status.WARN
    summary = _odd_summary(others, best)
    return _build_oddity(
        trait, label, status, summary, tuple(groups), best if decided else None, _all_hosts(others)
    )


def _of_optional(trait: Trait, groups: list[ValueGroup], label: str) -> Oddity | None:
    """Versions where it is; else who lacks what most have."""
    there = [group for group in groups if group.value != "none"]
    if len(there) != 1:
        return _by_majority(trait, there, label)
    total = sum(len(group.hosts) for group in groups)
    return (
        _by_majority(replace(trait, status=Status.WARN), groups, label)
        if _is_majority(there[0], total)
        else None
    )


def _is_majority(group: ValueGroup, total: int) -> bool:
    """Whether these nodes are enough and most, so that they can be taken as right."""
    return decides(len(group.hosts), total, MAJORITY)


def _split_hosts(oddity: Oddity) -> set[frozenset[str]]:
    return {frozenset(group.hosts) for group in oddity.groups}


def _all_hosts(groups: Iterable[ValueGroup]) -> tuple[str, ...]:
    return tuple(sorted((host for group in groups for host in group.hosts), key=natural_key))


def _of_reading(reading: Measure, nodes: Sequence[Node], label: str) -> Oddity | None:
    by_host = {node.host: node.readings[reading.key] for node in nodes if reading.key in node.readings}
    if len(by_host) <= MAJORITY:
        return None
    attribute = _compared_attribute(reading, by_host.__getitem__)
    odd_hosts = tuple(sorted((row.device for row in odd_ones(list(by_host), [attribute])), key=natural_key))
    if not odd_hosts:
        return None
    usual = quantile(list(by_host.values()), attribute.quantile)
    most = "most at the median" if reading.bad != "counter" else "9 of 10 at most"
    rest = ValueGroup(
        f"{_with_unit(usual, reading)} ({most})", tuple(h for h in by_host if h not in set(odd_hosts))
    )
    others = _group_values((host, _with_unit(by_host[host], reading)) for host in odd_hosts)
    return _build_oddity(
        reading, label, Status.WARN, _odd_summary(others, rest), (rest, *others), rest, odd_hosts
    )


def _compared_attribute(reading: Measure, read: Callable[[str], float]) -> Attribute[str]:
    """How hosts are compared in a reading."""
    if reading.bad == "counter":
        return Attribute(
            reading.key,
            "growth",
            read,
            share=MANY_TIMES - 1,
            least=reading.absolute,
            spreads=0,
            quantile=NINE_OF_TEN,
        )
    spreads = DEVIATIONS * DEVIATION
    return Attribute(reading.key, "level", read, reading.bad, reading.relative, reading.absolute, spreads)


def _build_oddity(
    row: Trait | Measure,
    label: str,
    status: Status,
    summary: str,
    groups: tuple[ValueGroup, ...],
    majority: ValueGroup | None,
    odd_hosts: tuple[str, ...],
) -> Oddity:
    return Oddity(row.key, row.title + label, status, summary, row.why, groups, majority, odd_hosts, row.fix)


def _group_values(values: Iterable[tuple[str, str]]) -> list[ValueGroup]:
    """Hosts by value in their order, the largest group first; "" is no value."""
    by_value = group_pairs((value, host) for host, value in values if value)
    groups = [ValueGroup(value, tuple(hosts)) for value, hosts in by_value.items()]
    return sorted(groups, key=lambda group: (-len(group.hosts), natural_key(group.value)))


def _odd_summary(odd_groups: Sequence[ValueGroup], majority: ValueGroup) -> str:
    if len(majority.hosts) == 1:
        return f"{_list_values(odd_groups)}; {_list_values([majority])}"
    return f"{_list_values(odd_groups)}; {len(majority.hosts)} others {majority.value}"


def _list_values(groups: Sequence[ValueGroup]) -> str:
    phrases = [
        f"{fold(group.hosts)} {'has' if len(group.hosts) == 1 else 'have'} {group.value}" for group in groups
    ]
    more = f", and {len(groups) - SHOWN} more values" if len(groups) > SHOWN else ""
    return ", ".join(phrases[:SHOWN]) + more


def _with_unit(value: float, reading: Measure) -> str:
    return f"{value:.4g} {reading.unit}".rstrip() if reading.bad != "counter" else f"{value:.0f}"
