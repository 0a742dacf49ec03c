"""Try the way to other nodes: name, ping, packet sizes, one connection; one JSON document on stdout.

    python -I peers.py [--port 29500] [--seconds 7] HOST...

Every host has an entry under `peers` with `addresses` or `name_error`, the local `interface_mtu`, what `ping`
printed (`ping`, and `sizes` by packet size with fragmentation forbidden), `tcp` (what became of a connection
to the rendezvous port, closed at once), and `finished`. MASTER_PORT in the environment names the port. Hosts
are tried at once; what is not there after `--seconds` is left out, with what is known so far kept.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.plain_args import options
from nodedoctor.probes.plain_json import dumps, with_count

sys.path.pop()

RENDEZVOUS = 29500  # torch.distributed.run's default, pytorch/pytorch:torch/distributed/run.py
CONNECT_SECONDS = 3.0  # two SYNs get lost at most: they are repeated after one and three seconds
COUNT = ("-c", "10", "-i", "0.2", "-W", "1")  # 0.2 s is the shortest interval everybody may use: ping(8)
SLOWER = ("-c", "3", "-W", "1")  # for a busybox that knows no fractions
FEW = ("-c", "3", "-i", "0.2", "-w", "2", "-M", "do")  # -w ends it even where every send is refused
SMALLER = (8896, 8500, 4092, 2044, 1500, 1460, 1450, 1400, 1280, 576)
"""Sizes that networks are known to carry (clouds' jumbo frames, IPoIB, Ethernet, VPC, VXLAN, VPN, IPv6)."""
LARGEST = 65535  # of an IP packet
SIOCGIFADDR, SIOCGIFMTU = 0x8915, 0x8921  # linux, include/uapi/linux/sockios.h
IP_MTU, IPV6_MTU = 14, 24  # linux, include/uapi/linux/in.h and in6.h
KEPT = 4096


class PeerProbe:
    """The way to one host; its answers are filled in while it is tried."""

    def __init__(self, host: str, port: int, until: float) -> None:
        self.host, self.port, self.until = host, port, until
        self.told: dict[str, Any] = {"addresses": [], "finished": False}

    def left(self) -> float:
        """Seconds until the answer is wanted."""
        return max(0.05, self.until - time.monotonic())

    def follow(self) -> None:
        """Everything there is to try, in order; a failure of one step is noted and ends there."""
        try:
            answers = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            self.told.update(name_error=getattr(error, "strerror", None) or str(error), finished=True)
            return
        self.told["addresses"] = list(dict.fromkeys(str(address[0]) for *_, address in answers))
        family, _, _, _, address = answers[0]
        mtu = local_mtu(family, address)
        self.told["interface_mtu"] = mtu
        sizes: dict[str, dict[str, Any]] = {}
        self.told["sizes"] = sizes
        together([partial(self.knock, family, address), self.ping])
        if mtu is None or self.told["ping"].get("rc") != 0:
            self.told["finished"] = True
            return
        # Only now: large answers fill the buffer of a ping that waits for small ones, which looks like loss.
        self.size(sizes, family, mtu)
        if too_large(sizes.get(str(mtu), {})):
            together([partial(self.size, sizes, family, size) for size in SMALLER if size < mtu])
        self.told["finished"] = True

    def knock(self, family: int, address: Any) -> None:
        """Open and close one connection, which a listening rendezvous takes for a peer that went away."""
        with socket.socket(family, socket.SOCK_STREAM) as caller:
            caller.settimeout(min(CONNECT_SECONDS, self.left()))
            try:
                caller.connect(address)
                self.told["tcp"] = "open"
            except TimeoutError:
                self.told["tcp"] = "ETIMEDOUT"
            except OSError as error:
                self.told["tcp"] = errno.errorcode.get(error.errno or 0, "OSError")

    def ping(self) -> None:
        """Loss and latency with small packets."""
        answer = self.run(COUNT)
        if "invalid number" in answer.get("text", ""):
            answer = self.run(SLOWER)
        self.told["ping"] = answer

    def size(self, sizes: dict[str, dict[str, Any]], family: int, packet: int) -> None:
        """Whether packets of this size come through whole; headers are 28 bytes of it, 48 in IPv6."""
        packet = min(packet, LARGEST)
        headers = 48 if family == socket.AF_INET6 else 28
        sizes[str(packet)] = self.run((*FEW, "-s", str(packet - headers)))

    def run(self, words: tuple[str, ...]) -> dict[str, Any]:
        """What ping printed, or why there is nothing."""
        try:
            done = subprocess.run(
                ["ping", "-n", *words, self.told["addresses"][0]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=self.left(),
                env={**os.environ, "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired:
            return {"error": "TIMEOUT"}
        except OSError as error:
            return {"error": errno.errorcode.get(error.errno or 0, "OSError")}
        return {"text": done.stdout[-KEPT:].decode("utf-8", "replace"), "rc": done.returncode}


def too_large(tried: dict[str, Any]) -> bool:
    """Whether ping ran, knows how to forbid fragmentation, and got no answer."""
    return tried.get("rc", 0) != 0 and " option" not in tried.get("text", "")


def together(tries: list[Callable[[], None]]) -> None:
    """Run them all at once and wait for them."""
    threads = [threading.Thread(target=attempt, daemon=True) for attempt in tries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def local_mtu(family: int, address: Any) -> int | None:
    """MTU of the interface that leads there; where no interface owns our address, what the route says."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asker:
            asker.connect(address)
            ours = asker.getsockname()[0]
            six = family == socket.AF_INET6
            route = asker.getsockopt(
                *((socket.IPPROTO_IPV6, IPV6_MTU) if six else (socket.IPPROTO_IP, IP_MTU))
            )
            return min(interface_mtu(asker, ours) or route, LARGEST)
    except OSError:
        return None


def interface_mtu(asker: socket.socket, ours: str) -> int | None:
    """The MTU of the interface that has this IPv4 address; a route may have learned a smaller one."""
    for _, name in socket.if_nameindex():
        request = struct.pack("256s", os.fsencode(name)[:15])
        try:
            if socket.inet_ntoa(fcntl.ioctl(asker, SIOCGIFADDR, request)[20:24]) == ours:
                return int(struct.unpack_from("i", fcntl.ioctl(asker, SIOCGIFMTU, request), 16)[0])
        except OSError:
            continue
    return None


def rendezvous(option: str) -> tuple[int, bool]:
    """The port ranks meet at, and whether somebody named it."""
    for text in (option, os.environ.get("MASTER_PORT", "")):
        if text.isascii() and text.isdecimal() and 0 < int(text[:6]) < 65536:
            return int(text[:6]), True
    return RENDEZVOUS, False


def main() -> None:
    """Print the document."""
    arguments, hosts = options(__doc__, port="", seconds="7")
    port, is_named = rendezvous(arguments["port"])
    until = time.monotonic() + float(arguments["seconds"])
    peers = [PeerProbe(host, port, until) for host in dict.fromkeys(hosts)]
    threads = [threading.Thread(target=peer.follow, daemon=True) for peer in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    document = {"port": port, "port_named": is_named, "peers": {peer.host: dict(peer.told) for peer in peers}}
    sys.stdout.write(dumps(with_count(document)) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a resolver that never answers would keep the process


if __name__ == "__main__":
    main()
