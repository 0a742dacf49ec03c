"""TCP between two nodes by streams of our own: rate, latency, segments sent again, and the bytes compared.

A port is open on one address for one round, and serves only who comes from the partner's address with the
round's token.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import time
from typing import Any

from nodedoctor.pairs.on_node import node

BLOCK = 1 << 18
PATTERN = 1 << 20
GREETING = 64
PINGS = 20
CONNECT_S = 4.0
TCP_INFO = getattr(socket, "TCP_INFO", 11)


def pattern(token: str) -> bytes:
    """The bytes of a test, the same on both ends; twice, so that a block never wraps."""
    return 2 * random.Random(token).getrandbits(8 * PATTERN).to_bytes(PATTERN, "little")


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
    """The partner's streams; any other client is sent away. socket.timeout when it does not come."""
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
        link, fault, note = reached(flow["to"], until, bound, flow.get("device", ""))
        if link is None:
            return [], fault, note
        try:
            link.sendall(greeting(flow["token"], number))
        except OSError as error:
            return [], "filtered", str(error)
        links.append(link)
    return links, "", ""


def reached(
    place: list[Any], until: float, bound: str, device: str = ""
) -> tuple[socket.socket | None, str, str]:
    """A connection from our address to this address and port; else the fault and its words."""
    link = socket.socket(socket.AF_INET6 if ":" in place[0] else socket.AF_INET, socket.SOCK_STREAM)
    link.settimeout(max(0.01, min(CONNECT_S, until - time.monotonic())))
    try:
        node.bind_to(link, device)
        link.bind((bound, 0))
        link.connect(tuple(place))
    except ConnectionRefusedError:
        return None, "refused", "the port answered with a reset"
    except socket.timeout:  # noqa: UP041 (an alias only from 3.10 on)
        return None, "filtered", f"no answer from the port within {CONNECT_S:g} s"
    except OSError as error:
        return None, "filtered", str(error)
    return link, "", ""


def pinged(link: socket.socket, dials: bool, until: float) -> float:
    """The fastest round trip of a small message in microseconds: slower ones waited for a core."""
    times: list[float] = []
    for _ in range(PINGS):
        began = time.monotonic()
        if dials:
            link.sendall(b"p" * GREETING)
        exactly(link, GREETING, until)
        if not dials:
            link.sendall(b"p" * GREETING)
        times.append(time.monotonic() - began)
    return min(times) * 1e6


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
            tcp_info = link.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 192)
            again += struct.unpack_from("I", tcp_info, 100)[0]
            segments += struct.unpack_from("I", tcp_info, 156)[0]
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
    answer: dict[str, Any] = {"rtt_us": round(rtt, 1), "bytes": total, "again": again, "segments": segments}
    now = time.monotonic()
    if wrong:
        answer["fault"] = "corrupt"
    elif first is None or last is None or (now - last > max(1.0, seconds / 2) and not size):
        answer["fault"] = "hang"
        answer["note"] = f"no data for {now - (last or began):.1f} s"
    else:
        answer["gbps"] = total * 8 / 1e9 / max(last - first, 1e-3)
    for link in links:
        link.close()
    return answer
