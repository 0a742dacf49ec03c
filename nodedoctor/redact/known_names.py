"""Which names, serials and addresses a node has, from the places where they are known to be.

Everything is looked for in the raw text of all probes at once, so that a document that was cut off teaches as
much as a whole one.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodedoctor import nodeset
from nodedoctor.json_shapes import loaded
from nodedoctor.model import Observation
from nodedoctor.record import record
from nodedoctor.redact.names import ACCOUNTS, NOWHERE, named_in_paths, public
from nodedoctor.redact.prose import named_in

_HOST_KEYS = """
hostname /proc/sys/kernel/hostname HOSTNAME HOST nodename MASTER_ADDR RAY_ADDRESS RAY_HEAD_IP SLURMD_NODENAME
SLURM_SUBMIT_HOST SLURM_JOB_NODELIST SLURM_NODELIST SLURM_STEP_NODELIST SLURM_LAUNCH_NODE_IPADDR
SLURM_TOPOLOGY_ADDR PET_RDZV_ENDPOINT NodeName NodeHostName NodeAddr"""
_USER_KEYS = "user username USER LOGNAME USERNAME SUDO_USER SLURM_JOB_USER"
_LABEL_KEYS = """
SLURM_CLUSTER_NAME ClusterName SLURM_JOB_PARTITION SLURM_PARTITION Partitions PartitionName SLURM_JOB_ACCOUNT
SLURM_ACCOUNT Account SLURM_JOB_QOS SLURM_QOS QOS SLURM_JOB_NAME JobName SLURM_JOB_RESERVATION
SLURM_RESERVATION ReservationName SLURM_JOB_GROUP SLURM_JOB_COMMENT Comment SLURM_WCKEY WCKey
SLURM_JOB_LICENSES SLURM_JOB_EXTRA CONDA_DEFAULT_ENV NCCL_HOSTID"""
HOST_KEYS, USER_KEYS = tuple(_HOST_KEYS.split()), tuple(_USER_KEYS.split())
LABEL_KEYS = tuple(_LABEL_KEYS.split())
"""Keys of JSON documents, and names before `=`, after which the name of a host comes, of a user, or of what
a site has named: clusters, partitions, accounts, jobs."""

_VERSIONS_ONLY = re.compile(
    "driver-packages|system-packages|pip-list|collect-env|target-|nvml|nvidia-smi|pci$"
)
"""Probes with dotted quads that are versions of libraries, never addresses."""
_ADDRESSES_ONLY = frozenset({"net", "peers", "slurm-node", "ray-status"})
MOST = 4096
"""Hosts that are learned (ours): a job of more is hardly listed by name, and each costs a little."""
QUAD = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}"

_HOST = re.compile("(?=.*[A-Za-z])[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?")
_USER = re.compile("(?=.*[A-Za-z])[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_VALUE = re.compile(r'[^"\\\s;()]{1,16384}')

_HOSTS = (
    re.compile(r" - [\w.]{1,32} ([A-Za-z0-9][\w.-]{0,252}):/"),
    re.compile(r" - (?:nfs4?|ceph|glusterfs|beegfs\w*|wekafs) ([\w.-]{1,253})[:/]"),
    re.compile(r" - cifs //([\w.-]{1,253})/"),
    re.compile(r"\d\d:\d\d:\d\d\S{0,20} ([\w.-]{1,253}) (?:kernel|systemd\[1\]): "),
    re.compile(r"(?<![\w.-])([A-Za-z][\w.-]{0,252}):\d{1,7}:\d{1,7} \[-?\d+\] "),  # NCCL_DEBUG
    re.compile(r"(?:JOB|STEP) \S{1,32} ON ([\w.-]{1,253}) CANCELLED"),  # slurmstepd
    re.compile(r"(?:srun|slurmstepd): error: ([\w.-]{1,253}): tasks? \d"),
    re.compile(r'/node_desc": "([\w.-]{1,64})[ \\]+(?:mlx|HCA|hfi|bnxt|ib)[\w-]*'),
)
_PAGES = re.compile(r"[a-z]://(?:[^/@\s\"]{0,256}@)?([A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8})")
_MAIL = re.compile(
    r"[A-Za-z0-9]@([A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,6}\.[A-Za-z]{2,24})(?![A-Za-z0-9@])"
)
UNITS = (
    "service",
    "socket",
    "slice",
    "scope",
    "mount",
    "target",
    "timer",
    "device",
    "path",
    "swap",
    "automount",
)

_USERS = (
    re.compile(r"\[([\w.-]{1,64})@\d{4}-\d\d-\d\dT"),  # who drained a node, scontrol(1)
    re.compile(r"/home/([A-Za-z0-9_][\w.-]{0,63})"),
    re.compile(r'"HOME": "/(?!home/|usr/|var/|root|opt/|tmp/|run/)[^"\\]{1,128}/([\w.-]{1,64})/?"'),
)
_SYSTEM_USER = re.compile(r'"uid": (?:\d{1,2}|[1-9]\d\d|6553[45]),\s*"user": "([\w.-]{1,64})"')

_SERIALS = (
    re.compile(r'[Ss]erial[\w ]{0,32}":\s*"([^"\\\s]{2,64})"'),
    re.compile(r"[Ss]erial(?:[ _]?[Nn]umber)?(?:\s*:\s*|>)([A-Za-z0-9_.-]{2,64})"),
    re.compile(r'serial(?:_number)?": "([^"\\]{2,64})'),
)
_NO_SERIAL = re.compile(r"(?i)n/?a|0+|unknown.*|none|default.*|not.*|to be filled.*|\D*|.{1,5}")

_GUIDS = re.compile(r"(?:GUID|guid)[^\n\"]{0,24}?(?:: \")?0x([0-9a-fA-F]{16})")
_GROUPED = re.compile(":([0-9a-fA-F]{4}:[0-9a-fA-F]{4}:[0-9a-fA-F]{4})(?![0-9a-fA-F:])")
_UUIDS = re.compile("GPU-([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
_QUAD = re.compile(rf"(?<![0-9A-Za-z.])({QUAD})(?![0-9A-Za-z]|\.[0-9])")

BEFORE_VERSION = re.compile(
    r"(?i)(?:[=><~!]=|\.so\.|version\W{0,12}|release\W{0,4}|firmware\W{0,4}|nccl\W|cu[a-z]{3,8}\W|[a-z0-9][-_]v?|\bv)$"
)
AFTER_VERSION = re.compile("[-+~_][0-9A-Za-z]")
"""What makes four numbers a version."""


@record
class Originals:
    """What was learned. `quads` are texts like 10.0.0.5: those seen as addresses, and as versions."""

    hosts: tuple[str, ...]
    domains: tuple[str, ...]
    users: tuple[str, ...]
    labels: tuple[str, ...]
    serials: tuple[str, ...]
    sets: tuple[str, ...]
    guids: frozenset[int]
    uuids: tuple[str, ...]
    addresses: frozenset[str]
    versions: frozenset[str]


def corpus_of(
    observations: Iterable[Observation], node: Mapping[str, Any], options: Mapping[str, Any]
) -> str:
    """All text there is, the node's own name first."""
    parts = [json.dumps(dict(node), default=str)]
    for observation in observations:
        parts += [observation.text, observation.note, " ".join(observation.argv)]
    return "\n".join([*parts, json.dumps(dict(options), default=str)])


def learn(observations: Iterable[Observation], corpus: str) -> Originals:
    """Every original in a place where one is known to be, each once, in the order of the text."""
    observed = tuple(observations)
    sets: dict[str, None] = {}
    hosts: dict[str, None] = {}
    for word in dict.fromkeys(
        (*_key_values(HOST_KEYS, corpus), *_find_names(_HOSTS, corpus), *_peer_hosts(observed))
    ):
        hosts |= dict.fromkeys(_host_names(word, sets) if len(hosts) < MOST else ())
    domains = {name.partition(".")[2].lower(): None for name in hosts if "." in name.strip(".")}
    pages = {name.lower(): None for name in _PAGES.findall(corpus) if not _QUAD.fullmatch(name)}
    for name in pages:
        if not public(name):
            hosts[name] = None
            domains[name.partition(".")[2] if name.count(".") > 1 else name] = None
    mails = (name.lower() for name in _MAIL.findall(corpus))
    domains |= {name: None for name in mails if name.rpartition(".")[2] not in UNITS}
    prose = named_in(corpus, MOST)
    for name in prose.hosts:
        hosts[name] = None
        if name.count(".") > 1:
            domains[name.partition(".")[2].lower()] = None
    named_hosts = {name.lower() for name in hosts}
    system = {*ACCOUNTS, *_SYSTEM_USER.findall(corpus)}
    user_names = (*_key_values((*USER_KEYS, "UserId"), corpus), *_find_names(_USERS, corpus), *prose.users)
    users = dict.fromkeys(name.rstrip(".,:") for name in user_names)
    labels = dict.fromkeys(name for word in _key_values(LABEL_KEYS, corpus) for name in word.split(","))
    labels = {name: None for name in labels if _USER.fullmatch(name) and name not in NOWHERE}
    labels |= dict.fromkeys((*prose.labels, *named_in_paths(corpus, MOST)))
    serials = dict.fromkeys(text.strip() for text in (*_find_names(_SERIALS, corpus), *prose.serials))
    addresses, versions = _sort_quads(observed, " ".join(_key_values(HOST_KEYS, corpus)))
    return Originals(
        tuple(hosts),
        tuple(name for name in domains if name and name not in (NOWHERE | named_hosts) and not public(name)),
        tuple(name for name in users if _USER.fullmatch(name) and name not in system),
        tuple(labels),
        tuple(text for text in serials if not _NO_SERIAL.fullmatch(text)),
        tuple(sets),
        frozenset(_find_guids(corpus)),
        tuple(dict.fromkeys(text.lower() for text in _UUIDS.findall(corpus))),
        addresses,
        versions,
    )


def _key_values(keys: Iterable[str], corpus: str) -> Iterator[str]:
    """What follows a JSON document's key or a NAME=; looking for each is faster than one pattern."""
    for key in (name for name in keys if name in corpus):
        for before in (f'"{key}": "', f'"{key}":"', f"{key}="):
            place = corpus.find(before)
            while place >= 0:
                value = _VALUE.match(corpus, place + len(before))
                if value and not corpus[max(0, place - 1) : place].isalnum():
                    yield value[0]
                place = corpus.find(before, value.end() if value else place + len(before))


def _find_guids(corpus: str) -> Iterator[int]:
    """GUIDs as ibstat writes them and as sysfs does."""
    yield from (int(digits, 16) for digits in _GUIDS.findall(corpus))
    for match in _GROUPED.finditer(corpus):
        first = corpus[max(0, match.start() - 4) : match.start()]
        if re.fullmatch("[0-9a-fA-F]{4}", first):
            yield int(first + match[1].replace(":", ""), 16)


def _find_names(patterns: Iterable[re.Pattern[str]], corpus: str) -> Iterator[str]:
    for pattern in patterns:
        yield from pattern.findall(corpus)


def _host_names(word: str, sets: dict[str, None]) -> Iterator[str]:
    """The hosts a word names: a name, an endpoint, or a set, whose beginning goes into `sets`."""
    if "[" in word:
        sets |= {
            start: None for start in re.findall(r"(?<![\w.-])(?:[^\WA-Za-z]|[.-])*([A-Za-z][\w.-]*)\[", word)
        }
        try:
            names = nodeset.expand(word)[:MOST]
        except nodeset.NodeSetError:
            names = []
    else:
        names = [re.sub(r":[0-9]{1,5}$", "", name) for name in re.sub("^[a-z]+://", "", word).split(",")]
    for name in names:
        if _HOST.fullmatch(name) and name.lower() not in NOWHERE and not _is_address(name):
            yield name


def _peer_hosts(observations: Iterable[Observation]) -> Iterator[str]:
    """Hosts that were named with --peers: arguments of the child, and keys of its answer."""
    for observation in observations:
        if observation.probe == "peers":
            program = [place for place, word in enumerate(observation.argv) if word.endswith("peers.py")]
            yield from observation.argv[program[0] + 1 :] if program else ()
            try:
                yield from map(str, loaded(observation.text)["peers"])
            except (ValueError, TypeError, KeyError):
                continue


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _sort_quads(observations: Iterable[Observation], hosts: str) -> tuple[frozenset[str], frozenset[str]]:
    """Four numbers that are addresses, as in places for a host's name, and those that are versions."""
    addresses = set(_QUAD.findall(hosts))
    versions: set[str] = set()
    for observation in observations:
        if _VERSIONS_ONLY.match(observation.probe):
            versions.update(_QUAD.findall(observation.text))
        elif observation.probe in _ADDRESSES_ONLY:
            addresses.update(_QUAD.findall(" ".join((observation.text, *observation.argv))))
        else:
            versions.update(quad[1] for quad in _QUAD.finditer(observation.text) if is_version(quad))
    return frozenset(addresses), frozenset(versions - addresses)


def is_version(quad: re.Match[str]) -> bool:
    """Whether what surrounds four numbers makes them a version."""
    text, start, end = quad.string, quad.start(quad.lastgroup or 1), quad.end()
    return bool(BEFORE_VERSION.search(text[max(0, start - 24) : start]) or AFTER_VERSION.match(text, end))
