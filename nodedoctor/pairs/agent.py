"""What runs on a node while pairs are measured: it reads JSON objects on stdin, a line each, and answers so.

The file is sent to the node as it is, so it needs only a Python of 3.8 or newer there, and imports nothing of
ours. It ends when its stdin ends, when it has heard nothing for `quiet` seconds, or when it is told to; with
it end the children that move the data, each of which has an alarm of its own. A port is open on one address
for one round, and serves only who comes from the partner's address with the round's token.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

MARK = "@nodedoctor "
BLOCK = 1 << 18
PATTERN = 1 << 20
GREETING = 64
PINGS = 20
CONNECT_S = 4.0
TCP_INFO = getattr(socket, "TCP_INFO", 11)


def say(**told: object) -> None:
    """One answer, as one line in one write."""
    line = (MARK + json.dumps(told) + "\n").encode()
    while line:
        line = line[os.write(1, line) :]


def pattern(token: str) -> bytes:
    """The bytes of a test, the same on both ends; twice, so that a block never wraps."""
    return 2 * random.Random(token).getrandbits(8 * PATTERN).to_bytes(PATTERN, "little")


def toward(names: Iterable[str]) -> str:
    """Our address on the way to the first of these names that has one, and what carries it."""
    for name in names:
        try:
            family, _, _, _, place = socket.getaddrinfo(name, 9, 0, socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(place)
                address = str(probe.getsockname()[0])
        except OSError:
            continue
        if not address.startswith("127.") and address != "::1":
            return address
    return ""


def interface(address: str) -> str:
    """The interface of an IPv4 address, from the kernel's own tables; empty where it is not found."""
    import fcntl

    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            try:
                found = fcntl.ioctl(asked.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
        if socket.inet_ntoa(found[20:24]) == address:
            return name
    return ""


def link_gbps(name: str) -> float | None:
    """The speed of a physical interface; None for a virtual one, whose driver makes it up."""
    try:
        if not os.path.exists(f"/sys/class/net/{name}/device"):
            return None
        with open(f"/sys/class/net/{name}/speed") as told:
            speed = int(told.read())
    except (OSError, ValueError):
        return None
    return speed / 1000 if speed > 0 else None


def busy() -> list[str]:
    """What keeps this node from being measured; an empty list when it is idle."""
    found: list[str] = []
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load > max(1, cpus / 4):
        found.append(f"load {load:.1f} on {cpus} CPUs")
    ours = os.environ.get("SLURM_JOB_ID", "none")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as told:
                words = told.read(200).decode("utf-8", "replace").replace("\0", " ")
        except OSError:
            continue
        if words.startswith("slurmstepd: [") and not words.startswith(f"slurmstepd: [{ours}."):
            found.append("a Slurm job ({})".format(words[len("slurmstepd: ") :].strip()))
        elif words.startswith("ray::") and not words.startswith("ray::IDLE"):
            found.append(f"a Ray task ({words.strip()[:60]})")
    try:
        asked = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
        with open(os.devnull, "rb") as nothing:
            process = subprocess.Popen(
                asked, stdin=nothing, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        try:
            pids = process.communicate(timeout=8)[0].split()
            if process.returncode == 0 and pids:
                found.append(f"{len(pids)} processes on GPUs")
        except subprocess.TimeoutExpired:
            process.kill()
            found.append("nvidia-smi gave no answer within 8 s")
    except OSError:
        pass
    return found[:4]


def greeting(token: str, stream: int) -> bytes:
    """The first bytes of a stream: they show that it is the partner, and which stream it is."""
    return f"{token} {stream}".encode().ljust(GREETING)


def exactly(link: socket.socket, count: int, until: float) -> bytes:
    """So many bytes, or OSError."""
    data = b""
    while len(data) < count:
        link.settimeout(max(0.01, until - time.monotonic()))
        more = link.recv(count - len(data))
        if not more:
            raise ConnectionError("the other end closed the connection")
        data += more
    return data


def accepted(listener: socket.socket, flow: dict[str, Any], until: float) -> list[socket.socket]:
    """The partner's streams; whoever else comes is sent away. socket.timeout when it does not come."""
    links: dict[int, socket.socket] = {}
    while len(links) < flow["streams"]:
        listener.settimeout(max(0.01, until - time.monotonic()))
        link, place = listener.accept()
        try:
            if place[0] != flow["from"]:
                raise ConnectionError("a stranger")
            words = exactly(link, GREETING, min(until, time.monotonic() + 1)).split()
            if words[0].decode() != flow["token"] or int(words[1]) in links:
                raise ConnectionError("a stranger")
            links[int(words[1])] = link
        except (OSError, ValueError, IndexError):
            link.close()
    return [links[number] for number in sorted(links)]


def dialled(flow: dict[str, Any], until: float, bound: str) -> tuple[list[socket.socket], str, str]:
    """Streams to the partner; the fault and its words where there is no way to it."""
    links: list[socket.socket] = []
    for number in range(flow["streams"]):
        link = socket.socket(socket.AF_INET6 if ":" in flow["to"][0] else socket.AF_INET, socket.SOCK_STREAM)
        link.settimeout(max(0.01, min(CONNECT_S, until - time.monotonic())))
        try:
            link.bind((bound, 0))
            link.connect(tuple(flow["to"]))
            link.sendall(greeting(flow["token"], number))
        except ConnectionRefusedError:
            return [], "refused", "the port answered with a reset"
        except socket.timeout:  # noqa: UP041 (an alias only from 3.10 on)
            return [], "filtered", f"no answer from the port within {CONNECT_S:g} s"
        except OSError as error:
            return [], "filtered", str(error)
        links.append(link)
    return links, "", ""


def pinged(link: socket.socket, dials: bool, until: float) -> float:
    """The median round trip of a small message in microseconds, where we send first."""
    times: list[float] = []
    for _ in range(PINGS):
        began = time.monotonic()
        if dials:
            link.sendall(b"p" * GREETING)
        exactly(link, GREETING, until)
        if not dials:
            link.sendall(b"p" * GREETING)
        times.append(time.monotonic() - began)
    return sorted(times)[PINGS // 2] * 1e6


def moved(
    links: list[socket.socket], token: str, seconds: float, size: int
) -> tuple[int, int, float | None, float | None, float]:
    """Send and receive on all streams at once, for some seconds or so many bytes each way."""
    data = pattern(token)
    sent, received = {link: 0 for link in links}, {link: 0 for link in links}
    wrong = total = 0
    began = time.monotonic()
    first: float | None = None
    last: float | None = None
    open_ends = set(links)
    for link in links:
        link.setblocking(False)
    while open_ends:
        now = time.monotonic()
        if now - began >= seconds + 0.5:
            break
        sending = [
            link for link in open_ends if now - began < seconds and (not size or sum(sent.values()) < size)
        ]
        readable, writable, _ = select.select(list(open_ends), sending, [], 0.1)
        for link in readable:
            try:
                came = link.recv(BLOCK)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError:
                came = b""
            if not came:
                open_ends.discard(link)
                continue
            last = time.monotonic()
            first = first or last
            at = received[link] % PATTERN
            wrong += came != data[at : at + len(came)]
            received[link] += len(came)
            total += len(came)
        for link in writable:
            at = sent[link] % PATTERN
            try:
                sent[link] += link.send(data[at : at + BLOCK])
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                open_ends.discard(link)
        if size and total >= size and sum(sent.values()) >= size:
            break
    return wrong, total, first, last, began


def resent(links: list[socket.socket]) -> tuple[int | None, int | None]:
    """Segments sent again, and all that carried data (struct tcp_info of linux/tcp.h, from 4.6 on)."""
    again = segments = 0
    for link in links:
        try:
            told = link.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 192)
            again += struct.unpack_from("I", told, 100)[0]
            segments += struct.unpack_from("I", told, 156)[0]
        except (OSError, struct.error):
            return None, None
    return again, segments


def measured(
    listener: socket.socket | None, flow: dict[str, Any], bound: str, seconds: float, size: int, limit: float
) -> dict[str, Any]:
    """One end of one pair; runs in a child."""
    until = time.monotonic() + limit
    if listener is not None:
        try:
            links = accepted(listener, flow, until - seconds)
        except OSError:
            return {"fault": "nobody"}
    else:
        links, fault, note = dialled(flow, until, bound)
        if fault:
            return {"fault": fault, "note": note}
    try:
        rtt = pinged(links[0], listener is None, min(until, time.monotonic() + 3))
    except OSError as error:
        return {"fault": "hang", "note": f"no answer to a small message: {error}"}
    wrong, total, first, last, began = moved(links, flow["token"], seconds, size)
    again, segments = resent(links)
    told: dict[str, Any] = {"rtt_us": round(rtt, 1), "bytes": total, "again": again, "segments": segments}
    ended = time.monotonic()
    if wrong:
        told["fault"] = "corrupt"
    elif first is None or last is None or (ended - last > max(1.0, seconds / 2) and not size):
        told["fault"] = "hang"
        told["note"] = f"no data for {ended - (last or began):.1f} s"
    else:
        told["gbps"] = total * 8 / 1e9 / max(last - first, 1e-3)
    for link in links:
        link.close()
    return told


def orphaned(parent: int) -> None:
    """Die with the parent, where the kernel does that (prctl, PR_SET_PDEATHSIG)."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass
    if os.getppid() != parent:
        os._exit(1)


class Agent:
    """The listeners and children of the round, and what came on stdin so far."""

    def __init__(self) -> None:
        self.listeners: dict[str, socket.socket] = {}
        self.children: dict[int, tuple[int, int, str]] = {}
        self.address = ""
        self.quiet = 30.0
        self.heard = time.monotonic()
        self.rest = b""

    def run(self) -> None:
        """Until stdin ends, or is silent for too long."""
        try:
            while time.monotonic() - self.heard < self.quiet:
                ready, _, _ = select.select([0, *self.children], [], [], 1.0)
                for pipe in ready:
                    if pipe:
                        self.ended(pipe)
                    elif not self.hear():
                        return
        finally:
            self.clear()

    def hear(self) -> bool:
        """Do what was said; False when that was to end."""
        data = os.read(0, 1 << 16)
        if not data:
            return False
        self.heard = time.monotonic()
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            told = json.loads(line.decode())
            if told["do"] == "end":
                return False
            if told["do"] != "beat":
                getattr(self, told["do"])(told)
        return True

    def hello(self, told: dict[str, Any]) -> None:
        """Say who we are."""
        self.quiet = told["quiet"]
        self.address = toward(told["toward"])
        name = interface(self.address) if self.address else ""
        version = ".".join(map(str, sys.version_info[:2]))
        gbps = link_gbps(name)
        say(is_="ready", address=self.address, interface=name, link_gbps=gbps, busy=busy(), python=version)

    def ping(self, told: dict[str, Any]) -> None:
        """Say that we are here."""
        say(is_="pong", round=told["round"])

    def open(self, told: dict[str, Any]) -> None:
        """Listen for the partners of a round, each on a port of its own."""
        self.clear()
        ports = {}
        for flow in told["flows"]:
            listener = socket.socket(
                socket.AF_INET6 if ":" in self.address else socket.AF_INET, socket.SOCK_STREAM
            )
            try:
                listener.bind((self.address, 0))
                listener.listen(16)
            except OSError as error:
                say(is_="trouble", round=told["round"], note=str(error))
                continue
            self.listeners[flow] = listener
            ports[flow] = listener.getsockname()[1]
        say(is_="open", round=told["round"], ports=ports)

    def go(self, told: dict[str, Any]) -> None:
        """Start a child for each flow."""
        parent = os.getpid()
        for flow in told["flows"]:
            listener = self.listeners.get(flow["flow"]) if "from" in flow else None
            ours, theirs = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    signal.alarm(int(told["limit"]) + 2)
                    orphaned(parent)
                    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                    found = measured(
                        listener, flow, self.address, told["seconds"], told["size"], told["limit"]
                    )
                except Exception as error:
                    found = {"fault": "error", "note": f"{type(error).__name__}: {error}"}
                found.update(round=told["round"], flow=flow["flow"])
                os.write(theirs, json.dumps(found).encode())
                os._exit(0)
            os.close(theirs)
            self.children[ours] = (pid, told["round"], flow["flow"])
        self.close()

    def ended(self, pipe: int) -> None:
        """Hand on what a child found."""
        data = os.read(pipe, 1 << 16)
        pid, place, flow = self.children.pop(pipe)
        os.close(pipe)
        os.waitpid(pid, 0)
        found = json.loads(data.decode()) if data else {"fault": "hang", "round": place, "flow": flow}
        say(is_="result", **found)

    def close(self) -> None:
        """Listen no longer."""
        for listener in self.listeners.values():
            listener.close()
        self.listeners.clear()

    def clear(self) -> None:
        """End whatever is left of a round."""
        self.close()
        for pipe, (pid, _, _) in self.children.items():
            os.kill(pid, signal.SIGKILL)
            os.close(pipe)
            os.waitpid(pid, 0)
        self.children.clear()


def main() -> None:
    """Serve until the end of stdin; a signal ends the children too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    Agent().run()


if __name__ == "__main__":
    main()
