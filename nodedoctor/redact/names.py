"""Which names may be replaced wherever they are, which only where a name must be, and which never.

A host called `node` or a user called `data` cannot be looked for everywhere: parsers look for these words
too. A word that our own sources contain may be one of them, so it counts as ordinary.

A component of a path (projects, mounts, environments, scripts) is a name when one of its words is none of
ours: parsers and checks look for `cuda-12.4` or `site-packages`; `murmuration` in `/mnt/murmuration-7b` is
somebody's. Below the system's own folders no person is named: what lies below `lib`, `bin` or `site-packages`
belongs to what was installed there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from nodedoctor.nodeset import LONGEST

_ACCOUNTS = """
root nobody daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats adm operator
ftp sshd ntp chrony dbus messagebus syslog systemd polkitd rpc rpcuser statd tss postfix munge slurm ubuntu
debian centos fedora rocky almalinux ec2-user azureuser cloud-user opc core vagrant docker jovyan ray nvidia
nvidia-persistenced nvidia-dcgm dcgm nfsnobody unknown"""
ACCOUNTS = frozenset(_ACCOUNTS.split())
"""Accounts that distributions, clouds' images and packages create: they name no person, and stay."""

_NOWHERE = (
    "localhost localhost.localdomain localdomain ip6-localhost ip6-loopback auto local none null unknown"
)
NOWHERE = frozenset(_NOWHERE.split())
"""What is found in place of a host's name and names no host."""

_PUBLIC = """
nvidia.com github.com githubusercontent.com pytorch.org python.org pypi.org pythonhosted.org
readthedocs.io kernel.org debian.org ubuntu.com canonical.com redhat.com fedoraproject.org centos.org
rockylinux.org almalinux.org suse.com opensuse.org oracle.com amazon.com microsoft.com google.com
docker.com docker.io nvcr.io ghcr.io quay.io anaconda.org anaconda.com conda.io huggingface.co ray.io
schedmd.com gnu.org freedesktop.org k8s.io kubernetes.io nvmexpress.org lustre.org openfabrics.org
mellanox.com amd.com intel.com broadcom.com infradead.org systemd.io wandb.ai"""
PUBLIC = frozenset(_PUBLIC.split())
"""Domains of projects and vendors: in an address of a page they name no private network."""

_NUMBERED = "node gpu cpu core numa nic hca port link lane rank card mlx eth nvme cuda python torch nccl"
_DEVICES = frozenset(_NUMBERED.split())
"""What the kernel, drivers and tools number, so that with a number it is no host's name alone."""


MANY = 100
"""Names that are each looked for in our sources (ours): it takes 1 to 3 ms."""


def ordinary(word: str) -> bool:
    """Whether a name is too much like any other word to be looked for everywhere.

    `gpu-a3-017` is not, nor `node-1` (a digit and a separator make a name), nor `dgx7` or `node001`; `node1`,
    which is also a node of memory, `h100`, `gpu` and `data` are.
    """
    start = word.lower().rstrip("0123456789")
    number = word[len(start) :]
    if len(word) < 3 or not start:
        return True
    if re.search("[0-9]", word) and re.search("[._-]", word):
        return False
    if number:
        return (len(start) < 3 or start in _DEVICES) and (number == "0" or number[0] != "0")
    return _is_ours(start)


def stem(host: str) -> str:
    """What a host's name has before its number, where no other word could have it too: else nothing.

    Hosts of a cluster differ in their number, so that a log may name `gpu-a3-018` though only 017 is known.
    """
    before = host.rstrip("0123456789")
    pieces = [piece for piece in re.split("[._-]", before.lower()) if piece]
    if before == host or len(before) < 3 or not pieces or not re.match("[A-Za-z]", before):
        return ""
    # gpu-a3- and lambda-gpu- are families, though gpu is a word; gpu-, node and h100- may be anything.
    telling = len(pieces) > 1 and not _is_ours(before.lower().rstrip("._-"))
    return before if telling or not (_is_ours(pieces[0]) or re.search("[0-9]", pieces[0])) else ""


def of_ours(name: str) -> bool:
    """Whether all words of a name are words of ours, or too short to say anything."""
    return all(_is_ours(word) for word in re.findall("[a-z]{3,}", name.lower()))


def public(host: str) -> bool:
    """Whether a host of a page's address belongs to a project or vendor."""
    if len(host) > LONGEST:
        return False
    labels = host.lower().split(".")
    return any(".".join(labels[start:]) in PUBLIC for start in range(len(labels))) or _is_ours(host.lower())


@lru_cache(maxsize=4096)
def _is_ours(word: str) -> bool:
    if _is_ours.cache_info().misses > MANY and not _source_words().issuperset(re.findall("[0-9a-z]+", word)):
        return False
    sources = _source_text()
    matches = re.finditer(f"{re.escape(word)}(?![0-9a-z])", sources) if word in sources else ()
    return any(not sources[match.start() - 1].isalnum() for match in matches)


@lru_cache(maxsize=1)
def _source_words() -> frozenset[str]:
    """The words of our own sources: 0.2 s to make, so that it is only made where there are many names."""
    return frozenset(re.findall("[0-9a-z]+", _source_text()))


@lru_cache(maxsize=1)
def _source_text() -> str:
    """Our own sources and the bundled checks, in lower case."""
    from nodedoctor.engine.plugins import bundled_checks

    package = Path(__file__).parent.parent
    files = {*package.rglob("*.py"), *bundled_checks().rglob("*.py")} - set(Path(__file__).parent.rglob("*"))
    return "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in sorted(files)).lower()


_SYSTEM = """
bin boot dev etc lib lib32 lib64 libx32 nix opt proc run sbin snap srv sys usr
docker kubepods kubepods.slice slurm system.slice user.slice machine.slice init.scope lxc libpod_parent"""
_SYSTEMS = frozenset(_SYSTEM.split())
"""First components below which a distribution, the kernel or a container's runtime gives the names."""
_USUAL = """
envs venv conda miniconda anaconda miniforge mambaforge micromamba pyenv poetry workspace workspaces project
projects dataset datasets checkpoint checkpoints ckpt ckpts output outputs experiment experiments result
results scratch lustre gpfs weka fsx work shared team teams group groups users train training eval script
scripts src"""
_NOBODYS = frozenset(_USUAL.split())
"""What people everywhere call their folders."""
_INSTALLED = re.compile(
    r"lib(?:32|64)?|s?bin|include|libexec|share|conda-meta|pkgs|node_modules|(?:site|dist)-packages|python[0-9.]+"
)
_PATH = re.compile(r"(?<![\w./])/(?![/*])(?:[\w.+@%=~-]{1,255}/){0,32}[\w.+@%=~-]{1,255}")
_WORD = re.compile("[a-z]+")
_UNIT = re.compile(r"\.(?:slice|scope|service|mount|socket|so(?:\.[0-9.]+)?)$")
_FILE = re.compile(r"[.%](?:[A-Za-z0-9%]{1,12}[.%-]?){1,3}$")
"""The end of a file's name: `.py`, `.tar.gz`, `.%h.%p`."""
_SCRIPT = re.compile(r'"script": ?"([^"\\/]{1,255})"')
_ACTOR = re.compile(r"ray::([A-Za-z_]\w{2,63})")


def named_in_paths(corpus: str, most: int) -> tuple[str, ...]:
    """The names in all paths, of scripts and of Ray's actors, each once; at most so many."""
    names: dict[str, None] = {}
    paths: dict[str, None] = {}
    for path in (*_PATH.findall(corpus), *(f"/x/{script}" for script in _SCRIPT.findall(corpus))):
        if path not in paths and len(names) < most:
            paths[path] = None
            names |= dict.fromkeys(_names_of(path))
    names |= dict.fromkeys(name for name in _ACTOR.findall(corpus) if not of_ours(name))
    return tuple(names)[:most]


def _names_of(path: str) -> Iterator[str]:
    first, *rest = path[1:].split("/")
    if first in _SYSTEMS:
        return
    # The user's name is one of its own kind.
    parts = rest[1:] if first == "home" else [first, *rest]
    for place, part in enumerate(parts):
        if _INSTALLED.fullmatch(part) or _UNIT.search(part):
            return
        name = part.lstrip(".~")
        if place == len(parts) - 1:
            name = _FILE.sub("", name)
        telling = " ".join(word for word in _WORD.findall(name.lower()) if word not in _NOBODYS)
        if len(name) > 2 and not of_ours(telling):
            yield name
