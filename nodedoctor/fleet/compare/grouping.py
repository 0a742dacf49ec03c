"""Problems of many nodes that are one problem: shown once, with the nodes and subjects, and one fix for all.

Two problems are one when only identities set them apart: times, process ids, serials, addresses of devices.
Other numbers are measurements, and stay. Problems that differ in those make one family, as their fix is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from nodedoctor.fleet.model import Node, Problem
from nodedoctor.nodeset import fold
from nodedoctor.record import record
from nodedoctor.report.steps import common
from nodedoctor.wording import first_few, subject_label

SUBJECTS = 8
"""Subjects of one group of nodes that are named; ours."""
PLACES = 4
"""Groups of nodes that are named where subjects differ; ours."""

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_IDENTITY = re.compile(
    r"""
    [0-9]{4}-[0-9]{2}-[0-9]{2}[T\ ][0-9:]{5,8}(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?
    | (?:GPU-|MIG-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}
    | (?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b
    | \b0x[0-9a-f]+
    | (?<=\bpid\ )[0-9]+
    | (?<=\bserial\ )[\w-]+
    """,
    re.X | re.I,
)

Found = tuple[Node, Problem]


@record
class GroupedProblem:
    """One problem: `words` without the identities that differ, and every node and subject that has it."""

    words: str
    found: tuple[Found, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The nodes, each once."""
        return tuple(dict.fromkeys(node.host for node, _ in self.found))

    @property
    def subject(self) -> str:
        """The subject all of them have, if it is one."""
        subjects = {problem.subject for _, problem in self.found}
        return subjects.pop() if len(subjects) == 1 else ""

    @property
    def where(self) -> str:
        """The nodes; where subjects differ each with its nodes: `GPU 3 on s1; GPU 5 on 2 nodes s[2-3]`."""
        if self.subject or not any(problem.subject for _, problem in self.found):
            return nodes(self.hosts)
        on: dict[str, dict[str, None]] = {}
        for node, problem in self.found:
            on.setdefault(subject_label(problem.subject) or problem.subject or "the node", {})[node.host] = (
                None
            )
        subjects: dict[tuple[str, ...], list[str]] = {}
        for subject, hosts in on.items():
            subjects.setdefault(tuple(hosts), []).append(subject)
        places = sorted(subjects.items(), key=lambda item: -len(item[0]))
        phrases = [f"{first_few(names, SUBJECTS)} on {nodes(hosts)}" for hosts, names in places[:PLACES]]
        other_hosts = {host for hosts, _ in places[PLACES:] for host in hosts}
        return "; ".join([*phrases, *([f"others on {nodes(other_hosts)}"] if other_hosts else [])])


def families(node_problems: Iterable[Found]) -> Iterator[list[GroupedProblem]]:
    """Problems that differ in numbers at most, the worst first, then those on most nodes."""
    by_words: dict[tuple[str, ...], dict[str, list[Found]]] = {}
    for node, problem in node_problems:
        family = problem.check, problem.status.value, blank(problem.subject), blank(problem.said)
        by_words.setdefault(family, {}).setdefault(_IDENTITY.sub("#", problem.said), []).append(
            (node, problem)
        )
    family_lists = [
        sorted(
            (
                GroupedProblem(_shared_text([p.said for _, p in group]), tuple(group))
                for group in ones.values()
            ),
            key=lambda grouped: -len(grouped.found),
        )
        for ones in by_words.values()
    ]
    yield from sorted(
        family_lists, key=lambda ones: (-ones[0].found[0][1].severity, -sum(len(o.found) for o in ones))
    )


def fix(ones: Sequence[GroupedProblem]) -> str:
    """What to do about a family."""
    return fix_of(problem for grouped in ones for _, problem in grouped.found)


def fix_of(problems: Iterable[Problem]) -> str:
    """What to do about problems, as far as all of them say the same."""
    return common(problem.fix for problem in problems)


def blank(text: str) -> str:
    """A text without its numbers."""
    return _NUMBER.sub("#", text)


def nodes(hosts: Iterable[str]) -> str:
    """`gpu-1`, or `3 nodes gpu-[1-3]`."""
    names = list(hosts)
    return f"{len(names)} nodes {fold(names)}" if len(names) > 1 else fold(names)


def _shared_text(texts: Sequence[str]) -> str:
    """Texts that differ in identities only as one, with dots for those that differ."""
    columns = [set(column) for column in zip(*map(_IDENTITY.findall, texts), strict=True)]
    words = (column.pop() if len(column) == 1 else "..." for column in columns)
    return _IDENTITY.sub(lambda _: next(words), texts[0])
