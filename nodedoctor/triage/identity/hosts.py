"""Which host a file is from, by its lines or by its own name.

`rank_41_gpu-005.log` names the host gpu-005, `rank_41_stage-5.log` a stage and `rank_41_run-005.log` a run.
So a word of a file's name is a host's only when all files of the same form show it: it differs among them,
each of its values has ranks of its own, next to each other or dealt out in turns, as launchers place them,
and no line names another host. A host that is not proven is not named.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from nodedoctor.patterns import mask_digits
from nodedoctor.triage.identity.labels import Sources, is_permutation
from nodedoctor.triage.identity.paths import numbered_names, own_name
from nodedoctor.triage.identity.world import short_host
from nodedoctor.triage.model import Identity

MOST_PER_HOST = 16
"""GPUs of the largest node: more files of one word are not those of the ranks of one host."""
_OTHER_NUMBERS = re.compile(
    r"(?:global|local|node)?[-_]?rank[-_]?\d+|\d{4}-\d\d-\d\d|\d{2}[-_]\d\d[-_]\d\d"
    r"|(?:slurm|job|jobid|sge|pbs|lsf|task|pid|attempt)[-_.]?\d+",
    re.IGNORECASE,
)
"""What else has a number in names of files: ranks, dates, jobs, processes."""
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*")
_LOG_WORDS = re.compile(
    r"^(?:(?:log|logs|out|output|err|error|stdout|stderr|train|training|nccl|debug|trace|dump|fr)-+)+"
    r"|(?<!-)(?:-+(?:log|out|output|err|error|stdout|stderr|train|training|nccl|debug|trace|dump))+$",
    re.IGNORECASE,
)
_NO_HOST = frozenset(
    """
    rank ranks local global gpu cuda device dev pid tid thread proc process worker actor task job step
    stage pipe pipeline pp tp dp cp ep sp vp mp fsdp group pg shard part partition chunk split fold
    run exp experiment trial try attempt restart retry iter iteration epoch ckpt checkpoint seed config cfg
    version ver rev v model layer lr bs batch size seq id idx index num no log out err stdout stderr nccl
    attn test bench date time day utc core cpu numa socket mlx ib eth port
    """.split()  # noqa: SIM905
)
"""Words whose number counts something else than hosts. `gpu-005` is a host: an index is not padded."""
_HOST_WORDS = re.compile(
    r"node|host|machine|server|compute|worker|dgx|hgx|pod|^ip|^vm|^cn|^nid|^n$|gpu|[abhv]\d00|mi\d00"
)
_DIGITS = re.compile(r"\d+")


_REPLICA = re.compile(r"-(master|worker)-(\d{1,6})$")


def ranks_from_hosts(
    sources: Sources, world: int | None, silent: Iterable[str | None] = ()
) -> dict[str, int | None]:
    """Ranks by the number in the hosts' names, where each host has one process.

    `silent` are hosts of which others tell.
    """
    locations = {location for stats in sources.values() for location in stats.locations}
    ranks: dict[str, set[int]] = defaultdict(set, {host: set() for host in silent if host})
    for location in locations:
        if location.host is not None:
            ranks[location.host] |= {location.rank} if location.rank is not None else set()
    if {location.local_rank for location in locations} - {None, 0} or any(
        len(own) > 1 for own in ranks.values()
    ):
        return {}
    known_ranks = {host: next(iter(own)) for host, own in ranks.items() if own}
    for numbers in [*_replica_ranks(sorted(ranks)), *numbered_names(sorted(ranks))]:
        agreed = all(numbers[host] == rank for host, rank in known_ranks.items() if host in numbers)
        if agreed and (known_ranks or world == len(numbers)) and is_permutation(numbers.values(), world):
            return dict(numbers)
    return {}


def _replica_ranks(hosts: Sequence[str]) -> list[dict[str, int]]:
    """Ranks of a PyTorchJob's pods: the master is 0, workers count from 1."""
    pods = {host: name for host in hosts if (name := _REPLICA.search(host))}
    if not any(name[1] == "master" for name in pods.values()):
        return []
    return [{host: int(name[2]) + (name[1] == "worker") for host, name in pods.items()}]


def hosts_of(
    sources: Sources,
    owners: Mapping[str, Identity],
    reported: Iterable[str] = (),
    stated: Mapping[str, Collection[str | None]] = MappingProxyType({}),
) -> dict[str, str]:
    """The host of each source that is known to be of one.

    `reported` are hosts that lines tell of, `stated` those that the lines of a source give its ranks.
    """
    ranks = {source: stats.ranks for source, stats in sources.items()}
    for source, who in owners.items():
        if who.rank is not None:
            ranks.setdefault(source, set()).add(who.rank)
    line_hosts = {source: stats.hosts for source, stats in sources.items()}
    hosts: dict[str, str] = {}
    for words in _differing_words(list(sources)):
        if _are_hosts(words, ranks, line_hosts):
            hosts.update(words)
    spoken_hosts = {short_host(host): host for host in reported}
    spoken_hosts |= {short_host(host): host for names in line_hosts.values() for host in names}
    for source, names in line_hosts.items():
        file_words = {_NODE_LOG.sub("", name.partition(".")[0]) for name in own_name(source).split("/")}
        named_hosts = file_words & (set(map(short_host, names)) if names else set(spoken_hosts))
        own = sources[source].own_hosts
        disputed = set(map(short_host, stated.get(source, ()))) - set(map(short_host, own))
        if len(names) == 1 and named_hosts:
            hosts[source] = next(iter(names))
        elif len(own) == len(ranks[source]) == 1 and not disputed:
            hosts[source] = next(iter(own))
        elif not names and source not in hosts and len(named_hosts) == 1:
            hosts[source] = spoken_hosts[named_hosts.pop()]
        elif not names and source not in hosts and (node := _node_of_report(source)):
            hosts[source] = node
    return hosts


def _node_of_report(source: str) -> str:
    """The node in the name of a file with a node's own report, `dmesg-gpu07.txt`, or ''."""
    match = _REPORT_OF_NODE.match(own_name(source).rpartition("/")[2])
    word = (match["behind"] or match["before"]) if match is not None else ""
    return word if word and _looks_like_host(word) else ""


_KERNEL_LOGS = "dmesg|kern|syslog|journalctl|messages"
_REPORT = rf"(?:{_KERNEL_LOGS}|journal|nvidia-smi|nvsmi|ibstat)"
_NODE = r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*\d"
_REPORT_OF_NODE = re.compile(
    rf"{_REPORT}[-_.](?P<behind>{_NODE})(?:\.(?:txt|log|out))?$|(?P<before>{_NODE})[-_.]{_REPORT}(?:\.(?:txt|log|out))?$"
)
"""Reports that only one node makes; a number alone is that of a rotated file."""


_NODE_LOG = re.compile(rf"^(?:{_KERNEL_LOGS})[-_]|[-_](?:{_KERNEL_LOGS})$")
"""What the name of a file has beside the node that it is from."""


def _differing_words(names: Sequence[str]) -> Iterator[dict[str, str]]:
    """For each word in which similar file names differ: the files and their words."""
    forms: dict[tuple[str, ...], list[tuple[str, list[str]]]] = defaultdict(list)
    for name in names:
        words = list(_host_words(name))
        forms[tuple(mask_digits(word) for word in words)].append((name, words))
    for form, group in forms.items():
        for column in range(len(form)):
            column_words = {name: words[column] for name, words in group}
            if len(set(column_words.values())) > 1:
                yield column_words


def _host_words(path: str) -> Iterator[str]:
    """Words with a number in a file's name and its folder's: possible hosts."""
    for word in _WORD.findall(_OTHER_NUMBERS.sub("_", own_name(path))):
        word = _LOG_WORDS.sub("", word)
        if _DIGITS.search(word) and len(word) <= 63:
            yield word


def _are_hosts(
    words: Mapping[str, str], ranks: Mapping[str, set[int]], hosts: Mapping[str, set[str]]
) -> bool:
    """Whether the words are hosts, by their form, their ranks and the lines."""
    first = next(iter(words.values()))
    if not all(ranks[source] for source in words) or not _looks_like_host(first):
        return False
    if not all(_lines_agree(word, hosts[source]) for source, word in words.items()):
        return False
    if all(
        not hosts[source] and _is_rank_number(source, word, ranks[source]) for source, word in words.items()
    ):
        return False
    host_ranks: dict[str, set[int]] = defaultdict(set)
    for source, word in words.items():
        if host_ranks[word] & ranks[source]:
            return False  # the same rank twice: two runs, not two hosts
        host_ranks[word] |= ranks[source]
    blocks = list(host_ranks.values())
    if sum(map(len, blocks)) != len(set().union(*blocks)) or max(map(len, blocks)) > MOST_PER_HOST:
        return False  # a rank on two hosts, or more ranks than a node has GPUs
    if max(map(len, blocks)) == 1 and not _HOST_WORDS.search(first.lower()):
        return False  # one rank each: any number would do
    return _are_contiguous(blocks) or _are_round_robin(blocks)


def _looks_like_host(word: str) -> bool:
    """Whether a word of this form can be a host's name."""
    padded = any(len(digits) > 1 and digits[0] == "0" for digits in _DIGITS.findall(word))
    letters = [part for part in re.split(r"[-\d]+", word.lower()) if part]
    if letters in (["gpu"], ["worker"]):
        return padded or (letters == ["worker"] and "-" in word)
    return not set(letters) <= _NO_HOST and (len("".join(letters)) > 1 or letters == ["n"])


def _is_rank_number(source: str, word: str, ranks: set[int]) -> bool:
    """Whether a word's number is the rank, which nothing else in the name is."""
    return ranks == {int(_DIGITS.findall(word)[-1])} and "rank" not in own_name(source).lower()


def _lines_agree(word: str, hosts: set[str]) -> bool:
    """Whether the lines name no host, or this one."""
    return not hosts or any(short_host(host) == word.lower() for host in hosts)


def _are_contiguous(blocks: Sequence[set[int]]) -> bool:
    """Ranks next to each other: no block reaches into another."""
    ends = sorted((min(block), max(block)) for block in blocks)
    return all(before[1] < behind[0] for before, behind in itertools.pairwise(ends))


def _are_round_robin(blocks: Sequence[set[int]]) -> bool:
    """Ranks dealt out to the hosts one by one."""
    return all(len({rank % len(blocks) for rank in block}) == 1 for block in blocks)
