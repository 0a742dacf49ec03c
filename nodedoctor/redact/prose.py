"""Names in free text, as logs have it: domain names by their ending, others by the words around them.

Nothing says of a line of a log which of its words is a name. A domain name shows itself by its ending, if
files, modules and units do not end so too; a server, a user, a bucket, a pod or a serial number is known by
the words and signs before or behind it, and is then replaced wherever else it is. Endings and words are
ours: what kernels, file systems, sshd, kubelets and drivers are known to print.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from nodedoctor.record import record
from nodedoctor.redact.names import ACCOUNTS, NOWHERE, ordinary, public

_OPEN = "com edu gov mil"
"""Endings that nothing but domains have: what follows them may be more of a file's name."""
_TWO = """
net org biz xyz corp lan intranet localdomain arpa cluster.local example invalid
de fr uk eu ch nl se fi dk jp cn kr tw au nz sg hk ca us br ru cz io ai co tv ac hpc"""
"""Endings that make a domain of one more label."""
_THREE = """
info dev app cloud tech systems site online priv intra
at be es ie il tr sa ae mx ar za ro hu gr ua lu th vn my ph is it no"""
"""Endings that files have too: it takes two more labels, or a digit or hyphen in one."""
_MODULAR = "internal local test home private cluster lab"
"""Endings of modules' names too (google.protobuf.internal): it takes a digit or a hyphen."""
_OWNERS = """
nodedoctor self cls model module args cfg config opt logger torch torchvision torchaudio tensorflow keras jax
flax numpy scipy pandas skimage sklearn astropy imageio matplotlib ray google nvidia transformers triton apex
deepspeed megatron vllm fsspec pyarrow h5py zarr socket system"""
_MODULES = frozenset(_OWNERS.split())
"""Packages, and names of objects that programs print, which are followed by names like io and net."""
_STANDARD = frozenset(name.lower() for name in sys.stdlib_module_names)
"""Python's own modules; the name of one has a capital letter (cProfile)."""
_REVERSED = ("com.", "org.", "net.", "io.", "edu.", "dev.")
"""How names are begun that are written back to front: of interfaces, labels of containers, packages."""

_LABEL = "[A-Za-z0-9_-]{1,63}"


def _any_case(words: str) -> str:
    forms = {*words.split(), *words.upper().split()}
    return "|".join(re.escape(form) for form in sorted(forms, key=lambda form: (-len(form), form)))


DOMAIN = (
    rf"(?:{_LABEL}[.]){{1,7}}(?:(?:{_any_case(_OPEN)})(?![A-Za-z0-9(])"
    rf"|(?:{_any_case(' '.join((_TWO, _THREE, _MODULAR)))})(?![A-Za-z0-9(]|[.][A-Za-z0-9_]|-[0-9]))"
)
"""What may be a domain's name or that of a host in one; `names_somebody` decides."""
_DOMAIN = re.compile(f"(?<![A-Za-z0-9_.-]){DOMAIN}")
_FEW, _SIGNS = frozenset(_THREE.split()), frozenset(_MODULAR.split())


def names_somebody(text: str) -> bool:
    """Whether what fits DOMAIN is a name of somebody's, and no module, file or vendor's page."""
    name = text.lower()
    before, _, ending = name.rpartition(".")
    first, *others = before.split(".")
    if ending.upper() in text and text != text.upper():
        return False  # System.IO
    if text.startswith(("_SB", "_PR", "_TZ", "_GPE")):
        return False  # the firmware's name of a device (ACPI)
    reversed_ = others and name.startswith(_REVERSED) and f"{ending}." not in _REVERSED
    if before in NOWHERE or name in NOWHERE or reversed_:
        return False
    telling = bool(re.search("[0-9-]", before))
    if ending in _FEW and not (telling or others):
        return False
    if ending in _SIGNS and not telling and others[-1:] != ["cluster"]:
        return False
    if ending not in _OPEN.split() and (first in _MODULES or (not others and first in _STANDARD)):
        return False
    return "_" not in (others or [first])[-1] and not public(name)


@record
class Identities:
    """What was found, each in the order of the text."""

    hosts: tuple[str, ...]
    users: tuple[str, ...]
    labels: tuple[str, ...]
    serials: tuple[str, ...]


_NAME = r"[A-Za-z0-9_][\w.-]{0,252}"
_WEB = """
http https tcp udp ssh sftp ftp rsync nfs smb cifs redis rediss grpc ws wss ldap ldaps kafka mongodb amqp
postgres postgresql mysql hdfs etcd ray nats"""
_HOST_SCHEMES = frozenset(_WEB.split())
BUCKETS = "s3[an]?|gcs|gs|az|abfss?|wasbs?|r2|oss|swift"
"""Schemes of addresses whose first part names a store."""
NETWORKS = "(?:o2ib|tcp|gni|kfi|ptlf)[0-9]{0,3}"
"""Lustre's networks, which follow @ in the address of a server (lctl(8))."""
ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|[nrtbf]|[0-7]{3})|\x1b?\[[0-9]{1,2}m")

# A pattern that begins with letters is looked for ten times as fast as one that begins with a boundary.
_HOSTS = (
    re.compile(rf": server ({_NAME}) (?:not responding|OK|still|is not)"),
    re.compile(rf"server (?=[\w.-]*[0-9])(?=[\w.-]*[A-Za-z])({_NAME})"),
    re.compile(rf"ount(?:ing)? ({_NAME}):/"),
    re.compile(rf"rhost=({_NAME})"),
    re.compile(rf"from ({_NAME}) port [0-9]"),
)
_NID = re.compile(rf"@{NETWORKS}(?![A-Za-z0-9.])")
_BEFORE_NID = re.compile(r"(?<![\w.-])[A-Za-z][\w.-]*$")
_ADDRESS = re.compile(r"://(?:[^/@\s\"]{0,256}@)?([A-Za-z0-9][\w.-]{0,62})")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,11}$")
SHARE = re.compile(
    r"\\\\(?<![\\\w]\\\\)(?:(?P<host>[A-Za-z0-9_][\w.-]{0,252})(?:\\(?P<share>[\w.$-]{1,80})|(?<=[0-9]))(?!\\)"
    r"|\\\\(?P<its_host>[A-Za-z0-9_][\w.-]{0,252})(?:\\\\(?P<its_share>[\w.$-]{1,80})|(?<=[0-9])(?!\\)))"
)
"""A share of Windows' kind, host and name behind backslashes; in JSON there are two for each."""
_USERS = (
    re.compile(r" user ([A-Za-z0-9_][\w.-]{0,63})"),
    re.compile(r"user=\"?([A-Za-z0-9_][\w.-]{0,63})"),
    re.compile(r"acct=\"?([A-Za-z0-9_][\w.-]{0,63})"),
    re.compile(r"logname=([A-Za-z0-9_][\w.-]{0,63})"),
    re.compile(r"sudo(?:\[[0-9]+\])?: +([A-Za-z0-9_][\w.-]{0,63}) : "),
    re.compile(r"uid=[0-9]+\(([A-Za-z0-9_][\w.-]{0,63})\)"),
)
_USER_FROM = re.compile(r" for ([A-Za-z0-9_][\w.-]{0,63}) from ")
_ENTERS = re.compile(r"Accepted|Failed|[Ss]ession|[Pp]assword|publickey|keyboard|[Ll]ogin|[Aa]uth|sshd")
_POD = "([a-z0-9-]{1,63})_([a-z0-9.-]{1,253})_"
_LABELS = (
    re.compile(rf"/var/log/pods/{_POD}"),
    re.compile(r"k8s_[a-z0-9.-]{1,63}_([a-z0-9.-]{1,253})_([a-z0-9-]{1,63})_[0-9a-f-]{36}"),
    re.compile(r"pod=\W{0,5}([a-z0-9][a-z0-9-]{0,62})/([a-z0-9][a-z0-9.-]{0,252})"),
    re.compile(r"pods=\W{0,5}([a-z0-9][a-z0-9-]{0,62})/([a-z0-9][a-z0-9.-]{0,252})"),
    re.compile(r"pod[\"' :=\\]{1,4}(?=[a-z0-9.]*-)(?=[a-z.-]*[0-9])([a-z0-9][a-z0-9.-]{2,252})()"),
)
_SERIAL = r"[ :=#]{1,3}(?=[A-Z_.-]*[0-9])(?=[0-9]*[A-Z]|[0-9]{8})([A-Z0-9][A-Za-z0-9_.-]{5,64})"
_SERIALS = (
    re.compile(rf"erial(?:[ _-]?(?:[Nn]umber|[Nn]o[.]?))?{_SERIAL}"),
    re.compile(rf"S/N{_SERIAL}"),
    re.compile(rf"SN(?<![A-Za-z]SN){_SERIAL}"),
)
_PROGRAMS = (
    re.compile(r"Xid \([^\n]{0,160}? name=([^,\"\\\n<>']{3,64})"),
    re.compile(r"<process_name>(?:[^<\s]{0,255}/)?([^<\s/]{3,64})"),
)
_PROGRAM_LIST = re.compile(r'"programs": ?\{([^{}]{0,65536})\}')
_PROGRAM = re.compile(r'": ?"([^"\\]{3,64})"')
_KNOWN_PROGRAMS = re.compile(
    r"python[0-9.]*\w?|pt_\w+|ray(?:::.*|let)?|nvidia\W.*|nvidia_.*|nv[-_].*|nv\w*(?:top|bandwidth)|dcgm.*|cuda.*"
    r"|\w+_perf(?:_mpi)?|nccl.*|torch.*|gpu[-_]burn|mpi\w+|orted|prte\w*|slurm\w+|srun|X(?:org|wayland)"
    r"|gnome-.*|kworker.*|swapper.*|migration.*|ksoftirqd.*|irq/.*|systemd.*|(?i:vllm|sglang)(?:::.*)?"
    r"|tritonserver|ollama.*|llama[-_](?:server|cli)|jupyter.*|ipython[0-9]*|ffmpeg|bash|sh|sleep|docker.*"
    r"|containerd.*|kubelet|node|java|gcs_server|unknown|N/A|\[.*|-"
)
"""Programs that everybody runs; any other's name may be a model's or a project's."""

_COMMON = """
space mode namespace namespaces id ids process processes program programs data session sessions limit limits
is was has had the and or not name names account accounts group groups code level land memory page pages time
defined specified provided supplied requested request input interface interrupt config configuration settings
slice manager service services login logins logged on in to at by for from with that who can cannot may must
should will did does aborted initiated triggered api app application error action agent access address buffer
copy event events exec file files fault helper home instance job jobs list mapping mapped message mount none
must only option options password permission ptr pointer quota read write root runtime stack state string
system table task tasks thread threads token unknown value visible ioctl callback daemon instead"""
_NO_USER = frozenset(_COMMON.split())
"""Words that follow `user` in what kernels and daemons print."""
_NO_LABEL = frozenset({"default", "kube-system", "kube-public", "monitoring", "gpu-operator", "my-bucket"})


def named_in(corpus: str, most: int) -> Identities:
    """The names in free text where one must be; at most so many of each."""
    lines = ESCAPE.sub("\n", corpus)
    stores: dict[str, None] = {}
    host_words = (*_each_match(_HOSTS, lines), *_lustre_servers(lines), *_address_hosts(lines, stores))
    names = dict.fromkeys(word.rstrip(".-") for word in host_words)
    hosts = dict.fromkeys(islice(filter(_is_host, names), most))
    for share in SHARE.finditer(corpus):
        hosts[share["host"] or share["its_host"]] = None
    for name in dict.fromkeys(name[0] for name in _DOMAIN.finditer(lines)):
        short, _, rest = name.partition(".")
        if (
            len(hosts) < most
            and "." in rest
            and re.search("[0-9]", short)
            and not ordinary(short)
            and names_somebody(name)
        ):
            hosts[name] = None
    programs = [*_each_match(_PROGRAMS, lines), *_listed_programs(corpus)]
    labels = [name for pair in _each_match(_LABELS, lines) for name in pair if name and name not in _NO_LABEL]
    labels += [name.rstrip() for name in programs if not _KNOWN_PROGRAMS.fullmatch(name.rstrip())]
    users = (name.rstrip(".-") for name in (*_each_match(_USERS, lines), *_login_users(lines)))
    return Identities(
        tuple(hosts)[:most],
        tuple(islice((name for name in dict.fromkeys(users) if _is_user(name)), most)),
        tuple(dict.fromkeys((*stores, *labels)))[:most],
        tuple(dict.fromkeys(name.rstrip(".-") for name in _each_match(_SERIALS, lines)))[:most],
    )


def _each_match(patterns: Iterable[re.Pattern[str]], text: str) -> Iterator[Any]:
    for pattern in patterns:
        yield from pattern.findall(text)


def _lustre_servers(lines: str) -> Iterator[str]:
    """Lustre's servers."""
    for network in _NID.finditer(lines):
        if name := _BEFORE_NID.search(lines[max(0, network.start() - 64) : network.start()]):
            yield name[0]


def _login_users(lines: str) -> Iterator[str]:
    """Users in `for USER from HOST`, where the line is of a login."""
    for user in _USER_FROM.finditer(lines):
        before = lines[max(0, user.start() - 120) : user.start()]
        if _ENTERS.search(before.rpartition("\n")[2]):
            yield user[1]


def _address_hosts(lines: str, stores: dict[str, None]) -> Iterator[str]:
    """Hosts of one word in addresses of services; the names of stores go into `stores`."""
    for address in _ADDRESS.finditer(lines):
        scheme = _SCHEME.search(lines[max(0, address.start() - 12) : address.start()])
        name = address[1].rstrip(".-")
        if scheme and re.fullmatch(BUCKETS, scheme[0]):
            stores[name] = None
        elif scheme and scheme[0] in _HOST_SCHEMES and "." not in name:
            yield name


def _listed_programs(corpus: str) -> Iterator[str]:
    """Programs as NVML names them."""
    for programs in _PROGRAM_LIST.findall(corpus):
        yield from _PROGRAM.findall(programs)


def _is_host(name: str) -> bool:
    quad = re.fullmatch("[0-9.]+", name)
    return not (quad or name.lower() in NOWHERE or name.lower() in _NO_USER or public(name))


def _is_user(name: str) -> bool:
    return not (name.isdigit() or name.lower() in _NO_USER or name in ACCOUNTS or ordinary(name))
