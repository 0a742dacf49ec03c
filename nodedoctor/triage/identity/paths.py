"""What the names of files say about the processes that wrote them."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nodedoctor.patterns import mask_digits
from nodedoctor.triage.identity.labels import Sources, SourceStats, is_permutation
from nodedoctor.triage.model import Identity

_RANK = re.compile(r"(?<![a-z])(?:global[_-]?)?rank[._-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_NODE = re.compile(
    r"(?<![a-z])(?:node|host|machine|server|gpu(?=[._-]?0\d))[._-]?(\d{1,6})(?!\d)", re.IGNORECASE
)
_OUTPUT = re.compile(rf"/{_RANK.pattern}/(?:std)?(?:out|err)(?:put|or)?(?:\.\w{{1,5}})?$", re.IGNORECASE)
"""The output of a process in a folder of its own."""
_GPU = re.compile(r"(?<![a-z])gpu[_-]?(0|[1-9]\d?)(?!\d)", re.IGNORECASE)
"""A GPU's index is not padded: `gpu-005` is a host."""
_LOCAL_RANK = re.compile(
    r"/attempt_\d+/(\d{1,3})/(?:stdout\.log|stderr\.log|error\.json)$|(?:^|/)workerlog\.(\d{1,3})$"
)
"""Of torchrun's --log-dir, and of Paddle's containers (`paddle/distributed/launch/job/pod.py`)."""
_PID = re.compile(r"/worker-[0-9a-f]{4,}-[0-9a-f]{2,}-(\d{1,7})\.(?:out|err)$")
"""Of Ray's sessions."""
_DUMP = re.compile(r"rank[_-]?(\d{1,6})(?!.*rank[_-]?\d)|(\d{1,6})(?:\.json|\.pkl|\.pickle)?$")
_DIGITS = re.compile(r"\d+")


def own_name(path: str) -> str:
    """A file's name with its folder's: `rank_3/stdout.log`.

    A folder further up is one of a whole run.
    """
    return "/".join(path.split("/")[-2:])


def identities_from_paths(sources: Sources, world: int | None) -> dict[str, Identity]:
    """The identity of each file, by a named number or by the one that differs."""
    several = len({os.path.dirname(source) for source in sources}) > 1
    owners = {
        source: _with_class(_identity_from_path(source, own_folder=several), stats.actor)
        for source, stats in sources.items()
    }
    for numbers in numbered_names(list(sources)):
        contradicted = any(sources[source].ranks - {number} for source, number in numbers.items())
        agreed = any(sources[source].ranks == {number} for source, number in numbers.items())
        together = _written_together([sources[name] for name in numbers])
        likely = world == len(numbers) or agreed or (world is None and together and not _of_nodes(numbers))
        if not contradicted and likely and is_permutation(numbers.values(), world):
            for source, number in numbers.items():
                if owners[source].rank is None and owners[source].local_rank is None:
                    owners[source] = replace(owners[source], rank=number)
    for source, who in owners.items():
        if who.rank is not None and sources[source].ranks - {who.rank}:
            owners[source] = replace(who, rank=None)
    return owners


def _of_nodes(numbers: Mapping[str, int]) -> bool:
    """True where numbers are those of nodes, by their names: each may have several ranks."""
    return all(number in map(int, _NODE.findall(own_name(name))) for name, number in numbers.items())


def _identity_from_path(path: str, *, own_folder: bool) -> Identity:
    """What a path says about the process that wrote it; a folder of all files is no process's own."""
    own_folder = own_folder or _OUTPUT.search(path) is not None
    ranks, gpus = _RANK.findall(own_name(path) if own_folder else os.path.basename(path)), _GPU.findall(path)
    local, pid = _LOCAL_RANK.search(path), _PID.search(path)
    return Identity(
        rank=int(ranks[-1]) if ranks else None,
        gpu=int(gpus[-1]) if gpus and ranks else None,
        local_rank=int(local[1] or local[2]) if local else None,
        pid=int(pid[1]) if pid else None,
    )


def _with_class(who: Identity, actor: str) -> Identity:
    """The identity with the class of its actor, where the file's name has the process of one."""
    return replace(who, world=actor) if actor and who.pid is not None else who


def has_one_file_tree(paths: Iterable[str]) -> bool:
    """True where each local rank has files in one tree: a second node has one of its own.

    Output and errors of a rank are two files of one tree, and so are the attempts of one run.
    """
    places = {
        (match[1] or match[2], path[: match.start()]) for path in paths if (match := _LOCAL_RANK.search(path))
    }
    return len({local_rank for local_rank, _ in places}) == len(places)


def folder_of_node(path: str) -> str:
    """The folder in front of that of a launcher's run: two runs of one node have the same."""
    match = _LOCAL_RANK.search(path)
    return os.path.dirname(path[: match.start()]) if match is not None else ""


def rank_of_dump(path: str) -> int | None:
    """The rank in a flight recorder's file name."""
    match = _DUMP.search(os.path.basename(path))
    return int(match[1] or match[2]) if match else None


def _written_together(logs: Sequence[SourceStats]) -> bool:
    """True for logs of one time; those of attempts follow each other."""
    spans = [span for log in logs if (span := log.span)]
    return all(begin <= stop and start <= end for begin, end in spans for start, stop in spans)


def numbered_names(names: Sequence[str]) -> list[dict[str, int]]:
    """For each number in which similar names differ: the names and their numbers."""
    forms: dict[str, list[tuple[str, list[int]]]] = defaultdict(list)
    for name in names:
        numbers = [int(digits) for digits in _DIGITS.findall(name) if len(digits) < 12]
        forms[mask_digits(name)].append((name, numbers))
    columns = (
        {name: numbers[column] for name, numbers in group}
        for group in forms.values()
        for column in reversed(range(min(len(numbers) for _, numbers in group)))
    )
    return [column for column in columns if len(set(column.values())) == len(column) > 1]
