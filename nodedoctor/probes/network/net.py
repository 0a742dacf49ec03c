"""What this node's network looks like from inside, without sending anything; one JSON document on stdout.

    python -I net.py [--root DIR] [--seconds 3]

`interfaces` by name with their sysfs files and addresses, `default_routes` (names of interfaces), `hostname`,
`hosts` (its addresses in /etc/hosts), `resolved` (what the resolver says of it, asked only when /etc/hosts
does not know it, in a process of its own), `nameservers`, `firewall` (why something may be dropped), `clock`
(the kernel's word on whether time is synchronised).
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import time
from typing import Any

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.host.files_reading import inside, text_below
from nodedoctor.probes.plain_args import options
from nodedoctor.probes.plain_json import with_count

sys.path.pop()

SIOCGIFADDR = 0x8915  # linux, include/uapi/linux/sockios.h
ATTRIBUTES = ("operstate", "mtu", "type", "carrier", "speed", "ifindex", "flags", "carrier_changes")
TOOL_SECONDS = 2.0
NAMES = 256


def text(root: str, path: str) -> str | None:
    """The first 64 KiB of a small file of the tree, stripped; None when it cannot be read."""
    content = text_below(root, path)
    return None if content is None else content.strip()


def interfaces(root: str, net: str) -> dict[str, dict[str, Any]]:
    """Every network interface of this namespace."""
    try:
        names = sorted(os.listdir(inside(root, "/sys/class/net")))[:NAMES]
    except OSError:
        return {}
    six = ipv6(root, net)
    entries: dict[str, dict[str, Any]] = {}
    for name in names:
        path = f"/sys/class/net/{name}"
        here = inside(root, path)
        if not os.path.isdir(here):
            continue
        entry: dict[str, Any] = {key: text(root, f"{path}/{key}") for key in ATTRIBUTES}
        entry["physical"] = os.path.lexists(f"{here}/device")
        entry["bond"] = os.path.isdir(inside(root, f"{path}/bonding"))
        master = f"{here}/master"
        entry["master"] = os.path.basename(os.readlink(master)) if os.path.islink(master) else None
        entry["addresses"] = [*ipv4(name), *six.get(name, [])] if not root else six.get(name, [])
        entries[name] = entry
    return entries


def ipv4(name: str) -> list[str]:
    """The IPv4 address of an interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        try:
            answer = fcntl.ioctl(asker, SIOCGIFADDR, struct.pack("256s", os.fsencode(name)[:15]))
        except OSError:
            return []
    return [socket.inet_ntoa(answer[20:24])]


def ipv6(root: str, net: str) -> dict[str, list[str]]:
    """IPv6 addresses by interface."""
    addresses: dict[str, list[str]] = {}
    for line in (text(root, f"{net}/if_inet6") or "").splitlines():
        words = line.split()
        if len(words) == 6 and len(words[0]) == 32:
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(words[0]))
            addresses.setdefault(words[5], []).append(address)
    return addresses


def default_routes(root: str, net: str) -> list[str]:
    """Interfaces that lead to everywhere, the preferred first."""
    rows = [line.split() for line in (text(root, f"{net}/route") or "").splitlines()[1:]]
    routes = [(int(row[6]), row[0]) for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"]
    return [name for _, name in sorted(routes)]


def in_hosts(root: str, host: str) -> list[str]:
    """The addresses /etc/hosts gives a name."""
    addresses = []
    for line in (text(root, "/etc/hosts") or "").splitlines():
        words = line.partition("#")[0].split()
        if host in words[1:] or host.partition(".")[0] in words[1:]:
            addresses.append(words[0])
    return addresses


def resolved(host: str, seconds: float) -> dict[str, Any]:
    """What the resolver says of a name; it may wait for servers, so it runs apart."""
    began = time.monotonic()
    argv = [sys.executable, "-I", "-S", os.path.abspath(__file__), "--resolve", host]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL)
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        answer = {"addresses": [], "error": "TIMEOUT"}
    except (OSError, ValueError):
        answer = {"addresses": [], "error": "CRASH"}
    return {**answer, "seconds": round(time.monotonic() - began, 3)}


def resolve(host: str) -> dict[str, Any]:
    """Ask the resolver, here and now."""
    try:
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return {"addresses": [], "error": error.strerror or str(error)}
    return {"addresses": sorted({str(row[4][0]) for row in rows}), "error": None}


def firewall(root: str) -> dict[str, Any]:
    """Signs of a firewall: ufw's own file, and where we may look the rules of the INPUT chain."""
    ufw = text(root, "/etc/ufw/ufw.conf") or ""
    enabled = any(line.replace(" ", "").lower() == "enabled=yes" for line in ufw.splitlines())
    may_look = not root and os.geteuid() == 0
    rules = tool(["iptables", "-S", "INPUT"]) if may_look and filtering() else []
    return {"ufw": enabled, "input": rules, "looked": bool(rules) or (may_look and not filtering())}


def filtering() -> bool:
    """Whether packet filters are in the kernel already: asking for rules would load them."""
    modules = text("", "/proc/modules") or ""
    return "nf_tables " in modules or "filter" in (text("", "/proc/net/ip_tables_names") or "").split()


def tool(argv: list[str]) -> list[str]:
    """The lines a tool prints; none when it is missing, slow or refuses."""
    try:
        done = subprocess.run(argv, capture_output=True, timeout=TOOL_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode("utf-8", "replace").splitlines()[:200] if done.returncode == 0 else []


def clock() -> dict[str, Any] | None:
    """The kernel's estimate of its clock's error: `timedatectl` asks it the same way (adjtimex(2))."""
    if struct.calcsize("l") != 8:
        return None
    buffer = ctypes.create_string_buffer(256)  # struct timex; modes 0 only reads
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except (OSError, AttributeError):
        return None
    if state < 0:
        return None
    maxerror, _, status = struct.unpack_from("qqi", buffer.raw, 24)
    return {"maxerror_seconds": maxerror / 1e6, "unsynchronised": bool(status & 0x40) or state == 5}


def main() -> None:
    """Print the document."""
    arguments, _ = options(__doc__, root="/", seconds="3", resolve="")
    if arguments["resolve"]:
        print(json.dumps(resolve(arguments["resolve"])))
        return
    root = arguments["root"].rstrip("/")
    net = "/proc/1/net" if root else "/proc/net"
    host = text(root, "/proc/sys/kernel/hostname") or socket.gethostname()
    addresses = in_hosts(root, host)
    servers = [line.split()[1] for line in (text(root, "/etc/resolv.conf") or "").splitlines()
               if line.startswith("nameserver ") and len(line.split()) > 1]  # fmt: skip
    document = {
        "interfaces": interfaces(root, net),
        "default_routes": default_routes(root, net),
        "hostname": host,
        "hosts": addresses,
        "resolved": resolved(host, float(arguments["seconds"])) if not addresses and not root else None,
        "nameservers": servers,
        "firewall": firewall(root),
        "clock": clock(),
    }
    print(json.dumps(with_count(document), sort_keys=True))


if __name__ == "__main__":
    main()
