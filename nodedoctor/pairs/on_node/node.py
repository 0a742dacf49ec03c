"""What a node reports before it is measured: its address, its link, and whether it is idle."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import struct
import subprocess
from collections.abc import Iterable
from typing import Any

from nodedoctor.pairs.on_node import tied

NAMES_S = 6.0
"""Seconds in which the names of other nodes must have an address: a resolver waits five for each server."""
ANYWHERE = "198.18.0.1"
"""An address of no machine (RFC 2544): no packet goes there, the route to it is only looked up."""


def toward(names: Iterable[str]) -> str:
    """Our address on the way to the first of these names that has one, else on the way out.

    A resolver that does not answer is given up: it is asked in a child.
    """
    ours, theirs = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        tied.orphaned(parent)
        os.write(theirs, next(filter(None, map(_on_the_way, names)), "").encode())
        os._exit(0)
    os.close(theirs)
    answered = select.select([ours], [], [], NAMES_S)[0]
    address = os.read(ours, 256).decode() if answered else ""
    os.close(ours)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return address or _on_the_way(ANYWHERE)


def _on_the_way(name: str) -> str:
    """Our address on the way to this name; empty where there is none, or only a loop back."""
    try:
        family, _, _, _, place = socket.getaddrinfo(name, 9, 0, socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)
            address = str(probe.getsockname()[0])
    except OSError:
        return ""
    return "" if address.startswith("127.") or address == "::1" else address


def interface(address: str) -> str:
    """The interface of an IPv4 address, from the kernel's own tables; empty where it is not found."""
    names = (name for _, name in socket.if_nameindex())
    return next((name for name in names if ipv4_of(name) == address), "")


def ipv4_of(name: str) -> str:
    """The IPv4 address of an interface; empty where it has none."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        try:
            ifreq = fcntl.ioctl(link.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(ifreq[20:24])


def by_number(name: str) -> list[Any]:
    """A key that sorts names by the numbers in them."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def rails() -> list[dict[str, Any]]:
    """The physical interfaces of the highest speed that have an address; slower ones are for other things.

    None where a socket may not be bound to one: the route would choose the interface, whatever the address.
    """
    interfaces: list[dict[str, Any]] = []
    for name in sorted((name for _, name in socket.if_nameindex()), key=by_number):
        gbps, address = link_gbps(name), ipv4_of(name)
        if gbps and address:
            interfaces.append({"device": name, "address": address, "gbps": gbps})
    most = max((rail["gbps"] for rail in interfaces), default=0.0)
    fastest = [rail for rail in interfaces if rail["gbps"] == most]
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
            bind_to(tried, fastest[0]["device"] if fastest else "")
    except OSError:
        return []
    return fastest


def bind_to(link: socket.socket, device: str) -> None:
    """Let a socket use one interface alone; OSError where this user may not."""
    if device:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())


def able() -> dict[str, Any]:
    """The rails of this node for TCP."""
    fastest = rails()
    if len(fastest) > 1:
        return {"rails": fastest}
    return {"unable": "fewer than two interfaces of the highest speed have an address and may be used alone"}


def link_gbps(name: str) -> float | None:
    """The speed of a physical interface; None for a virtual one, whose driver makes it up."""
    try:
        if not os.path.exists(f"/sys/class/net/{name}/device"):
            return None
        with open(f"/sys/class/net/{name}/speed") as file:
            speed = int(file.read())
    except (OSError, ValueError):
        return None
    return speed / 1000 if speed > 0 else None


def busy() -> list[str]:
    """What keeps this node from being measured; an empty list when it is idle."""
    reasons: list[str] = []
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load > max(1, cpus / 4):
        reasons.append(f"load {load:.1f} on {cpus} CPUs")
    ours = os.environ.get("SLURM_JOB_ID", "none")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read(200).decode("utf-8", "replace").replace("\0", " ")
        except OSError:
            continue
        if words.startswith("slurmstepd: [") and not words.startswith(f"slurmstepd: [{ours}."):
            reasons.append("a Slurm job ({})".format(words[len("slurmstepd: ") :].strip()))
        elif words.startswith("ray::") and not words.startswith("ray::IDLE"):
            reasons.append(f"a Ray task ({words.strip()[:60]})")
    try:
        argv = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
        with open(os.devnull, "rb") as nothing:
            process = subprocess.Popen(argv, stdin=nothing, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            pids = process.communicate(timeout=8)[0].split()
            if process.returncode == 0 and pids:
                reasons.append(f"{len(pids)} processes on GPUs")
        except subprocess.TimeoutExpired:
            process.kill()
            reasons.append("nvidia-smi gave no answer within 8 s")
    except OSError:
        pass
    return reasons[:4]
