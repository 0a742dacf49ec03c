"""What a system call that blocks waits for: the other end of a pipe, the peer of a socket, a file.

Only links and tables below /proc are read, never the files themselves: their file system may be dead.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterable, Iterator

BLOCKS = re.compile(
    r"pipe_(?:read|write)|sk_wait|wait_woken|tcp_recvmsg|tcp_sendmsg|unix_stream|skb_wait|accept", re.ASCII
)
"""Wait channels of calls that take a descriptor and wait for who has its other end (linux: fs/pipe.c,
net/core/stream.c, net/ipv4/tcp.c, net/unix/af_unix.c)."""
LINKS = 200_000
"""Descriptors of this machine that are looked at."""
MAX_HOLDERS = 2
"""Holders that are named."""


def file_of(pid: int, syscall: str) -> str:
    """The file that the descriptor of a call leads to; `syscall` is /proc/PID/syscall. '' for none."""
    words = syscall.split()
    if len(words) > 1 and words[1].startswith("0x"):
        with contextlib.suppress(OSError, ValueError):
            return os.readlink(f"/proc/{pid}/fd/{int(words[1], 16)}")
    return ""


def awaited(waiting: dict[int, tuple[str, str]]) -> dict[int, str]:
    """What processes wait for, by their wait channel and system call; those
    that wait for no other process are left out."""
    ends: dict[int, tuple[str, str]] = {}
    for pid, (channel, syscall) in waiting.items():
        file = file_of(pid, syscall) if BLOCKS.search(channel) else ""
        if file.startswith("socket:["):
            ends[pid] = peer_of(pid, file)
        elif file.startswith("pipe:[") or (file.startswith("/") and "pipe" in channel):
            ends[pid] = f"the other end of {'a pipe' if file.startswith('pipe:') else file}", file
    pids_by_file = holders({file for _, file in ends.values() if file}) if ends else {}
    return {
        pid: what + (f", which {describe_holders(pid, pids_by_file.get(file, ()))}" if file else "")
        for pid, (what, file) in ends.items()
    }


def holders(files: set[str]) -> dict[str, list[int]]:
    """The processes that have these open."""
    pids_by_file: dict[str, list[int]] = {}
    for looked, (pid, file) in enumerate(descriptors()):
        if file in files and pid not in pids_by_file.get(file, ()):
            pids_by_file.setdefault(file, []).append(pid)
        if looked > LINKS:
            break
    return pids_by_file


def descriptors() -> Iterator[tuple[int, str]]:
    """Every descriptor that may be seen: its process, and where it leads to."""
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(OSError):
                for number in os.listdir(f"/proc/{entry}/fd"):
                    with contextlib.suppress(OSError):
                        yield int(entry), os.readlink(f"/proc/{entry}/fd/{number}")


def describe_holders(pid: int, having: Iterable[int]) -> str:
    """Who else has a file open, as the end of a sentence."""
    others = sorted(set(having) - {pid})
    if not others:
        return "no other process here has open"
    names = [f"process {holder} ({name(holder)})" for holder in others[:MAX_HOLDERS]]
    more = f" and {len(others) - MAX_HOLDERS} more" if len(others) > MAX_HOLDERS else ""
    return f"{' and '.join(names)}{more} {'has' if len(others) == 1 else 'have'} open"


def peer_of(pid: int, file: str) -> tuple[str, str]:
    """Who is at the other end of a socket, and that end itself where it is on this machine."""
    inode = file[len("socket:[") : -1]
    rows = [row for kind in ("tcp", "tcp6") for row in connections(pid, kind)]
    ours = next((row for row in rows if row[2] == inode), None)
    if ours is None:
        return "a socket", ""
    here, there, _ = ours
    if there.endswith(":0"):
        return f"a connection to {here}", ""
    peer = next((row for row in rows if row[:2] == (there, here)), None)
    return f"data from {there}", f"socket:[{peer[2]}]" if peer is not None else ""


def connections(pid: int, kind: str) -> Iterator[tuple[str, str, str]]:
    """This end, the other end and the inode of each connection that the process's network has (proc(5))."""
    text = ""
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/net/{kind}", encoding="ascii", errors="replace") as file,
    ):
        text = file.read(4 << 20)
    for row in text.splitlines()[1:]:
        columns = row.split()
        if len(columns) > 9:
            try:
                ends = address(columns[1]), address(columns[2])
            except ValueError:
                continue
            yield *ends, columns[9]


def address(text: str) -> str:
    """`0100007F:1F90` as `127.0.0.1:8080`: words of 32 bits as this machine has them; else ValueError."""
    digits, _, port = text.partition(":")
    words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    shown = socket.inet_ntop(family, b"".join(words))
    return f"{shown if family == socket.AF_INET else f'[{shown}]'}:{int(port, 16)}"


def name(pid: int) -> str:
    """The process's short name."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read(64).strip()
    return "?"
