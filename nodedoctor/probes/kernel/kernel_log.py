"""Read the kernel's log from the first source that has it; one JSON document on stdout.

    python -I kernel_log.py [--root DIR] [--since 24h]

Tried in this order: the journal (this boot, or as far back as --since), dmesg, /var/log/kern.log,
/var/log/messages. The document says which one it is (`source`), its `text`, why the earlier ones were no use
(`failed`: a source and one of denied, absent, empty, error, with the words it used), and when the kernel
booted (`boot_epoch`), because dmesg may count from there; without text also our user (`uid`). What
is too long loses lines that name nothing of interest and repetitions, then its beginning, and is `cut`. Lines
of a tool that failed count only where no other source has any: then `unfinished` says how it ended.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import stat
import subprocess
import sys
import time
from typing import Any, NamedTuple

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.host.files_reading import inside, text_below
from nodedoctor.probes.plain_args import options
from nodedoctor.probes.plain_json import with_count

sys.path.pop()

TEXT_BYTES = 2 * 1024 * 1024  # JSON may double it, and an observation keeps 4 MiB
FILE_BYTES = 16 * 1024 * 1024
TOOL_BYTES = 64 * 1024 * 1024  # LINES of some 200 bytes
LATEST_BYTES = 512 * 1024
STAT_BYTES = 4 * 1024 * 1024  # /proc/stat has a number for each interrupt before the time of boot
SAME_SHAPE = 100
LINES = "300000"
SECONDS = 6.0
LINE_FEED = b"\n"
DENIED = re.compile(r"not permitted|[Pp]ermission|not seeing messages|must be root", re.ASCII)
DIGITS = b"0123456789abcdef"  # of times, addresses, counts
OF_INTEREST = re.compile(
    rb"NVRM|Xid|nvidia|NVIDIA|nv_peer_mem|AER|DPC|PCIe|pciehp|retraining|inaccessible"
    rb"|Hardware Error|Machine Check|above threshold, cpu clock"
    rb"|[Oo]ut of memory|Kill(?:ed)? process|oom|page allocation failure"
    rb"|blocked for|lockup|LOCKUP|stall|detected expedited|segfault|protection| trap "
    rb"|BUG|Oops|panic|RIP:|Call Trace"
    rb"|mlx[45]|bnxt_|infiniband|efa 0|transmit timeout: |NETDEV WATCHDOG|table full, |table overflow|tcp_mem"
    rb"|file-max"
    rb"|EDAC|emory failure|memory error|nfs: server|was evicted|Lustre|ceph: "
    rb"|nvme |I/O error|medium error|md/raid|EXT4-fs|Aborting journal|XFS \(|BTRFS"
    rb"|DMAR|AMD-Vi|smmu|Linux version|\[nvidia|\[ib_"
)


class LogAnswer(NamedTuple):
    """What one source gave: its text, or why there is none; with both, a part of it."""

    text: bytes = b""
    why: str = ""
    said: str = ""


def ask(argv: list[str]) -> LogAnswer:
    """Run a tool that prints the log. Of one that prints more than a log holds, the end is kept."""
    pipe = subprocess.PIPE
    try:
        tool = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    except FileNotFoundError:
        return LogAnswer(why="absent", said=f"no {argv[0]} command")
    except OSError as error:
        return LogAnswer(why="error", said=str(error))
    try:
        printed, errors = printed_by(tool, time.monotonic() + SECONDS)
    except subprocess.TimeoutExpired:
        tool.kill()
        return LogAnswer(why="error", said=f"no end of its answer within {SECONDS:.0f} s")
    note = errors.decode("utf-8", "replace").strip()
    why = "denied" if DENIED.search(note) else "error" if tool.returncode else "empty"
    text = b"".join(last_lines(printed))
    if tool.returncode:
        end = f"{argv[0]} {ending(tool.returncode)}"
        return LogAnswer(text, why, f"{end} after {text.count(LINE_FEED)} lines" if text else note or end)
    return LogAnswer(text) if text else LogAnswer(why=why, said=note or "it printed nothing")


def ending(code: int) -> str:
    """How a tool that failed ended, in words."""
    if code > 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def last_lines(printed: bytes) -> list[bytes]:
    """As many lines as are asked of the journal, without empty ones and its own remarks."""
    most = int(LINES)
    parts = printed.rsplit(b"\n", most)
    return [part + b"\n" for part in parts[-most:] if part and not part.startswith(b"-- ")]


def printed_by(tool: subprocess.Popen[bytes], ends: float) -> tuple[bytes, bytes]:
    """The last TOOL_BYTES of stdout and of stderr, once it has ended; TimeoutExpired at `ends`."""
    output: dict[int, bytearray] = {}
    with selectors.DefaultSelector() as selector:
        for pipe in (tool.stdout, tool.stderr):
            assert pipe is not None
            selector.register(pipe, selectors.EVENT_READ)
            output[pipe.fileno()] = bytearray()
        while selector.get_map():
            ready = selector.select(max(0.0, ends - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired(tool.args, SECONDS)
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                output[key.fd] += data
                if len(output[key.fd]) > 2 * TOOL_BYTES:  # not each time: that would move all of it
                    del output[key.fd][:-TOOL_BYTES]
            if time.monotonic() > ends:
                raise subprocess.TimeoutExpired(tool.args, SECONDS)
    tool.wait(max(0.1, ends - time.monotonic()))
    stdout, stderr = output.values()
    return bytes(stdout[-TOOL_BYTES:]), bytes(stderr[-TOOL_BYTES:])


def journal(root: str, since: str) -> LogAnswer:
    """The journal's kernel messages. With --since earlier boots count too, which -k would leave out."""
    reach = ["_TRANSPORT=kernel", f"--since=-{since}"] if since else ["-k"]
    argv = ["journalctl", *reach, "--no-pager", "-n", LINES]
    if root not in ("", "/"):
        folders = [inside(root, path) for path in ("/var/log/journal", "/run/log/journal")]
        there = [folder for folder in folders if os.path.isdir(folder)]
        if not there:
            return LogAnswer(why="absent", said="no journal below the root")
        argv.append(f"--directory={there[0]}")
    answer = ask([*argv, "-o", "short-iso-precise"])
    if "nknown output" in answer.said:  # systemd before 234
        answer = ask([*argv, "-o", "short-iso"])
    return answer


def ring() -> LogAnswer:
    """The kernel's own buffer, with dates where this dmesg can print them."""
    dated = ask(["dmesg", "--time-format=iso"])
    if dated.why != "error":
        return dated
    plain = ask(["dmesg"])
    return dated if plain.why and len(plain.text) < len(dated.text) else plain


def log_file(root: str, path: str) -> LogAnswer:
    """The end of a log that syslog writes; only the kernel's lines."""
    try:
        real = inside(root, path)
        if not stat.S_ISREG(os.stat(real).st_mode):
            return LogAnswer(why="error", said="not a regular file")
        with open(real, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - FILE_BYTES))
            lines = file.read(FILE_BYTES).splitlines(True)
    except FileNotFoundError:
        return LogAnswer(why="absent", said="no such file")
    except OSError as error:
        return LogAnswer(why="denied" if isinstance(error, PermissionError) else "error", said=str(error))
    ours = [line for line in lines if b" kernel:" in line]
    return LogAnswer(b"".join(ours), "" if ours else "empty", "" if ours else "no line of the kernel's")


def shorten(text: bytes) -> tuple[bytes, bool]:
    """Make it fit: keep lines of interest, few of each kind, and all of the latest.

    A storm of 100 000 lines that differ in numbers must not push out the one line that explains it.
    """
    if len(text) <= TEXT_BYTES:
        return text, False
    lines = text.splitlines(True)
    counts: dict[bytes, int | None] = {}  # None: of no interest
    selected: list[bytes] = []
    remaining = len(text)
    for line in lines:
        shape = line.translate(None, DIGITS)
        if shape not in counts:  # a storm is searched once, and not line by line
            counts[shape] = 0 if OF_INTEREST.search(line) else None
        if (count := counts[shape]) is not None:
            counts[shape] = count + 1
            if count < SAME_SHAPE or remaining <= LATEST_BYTES:
                selected.append(line)
        remaining -= len(line)
    return b"".join(selected)[-TEXT_BYTES:], True


def boot_epoch(root: str) -> int | None:
    """When this kernel started, in seconds since 1970."""
    text = text_below(root.rstrip("/"), "/proc/stat", STAT_BYTES) or ""
    match = re.search(r"^btime (\d{1,12})$", text, re.MULTILINE)
    return int(match[1]) if match else None


def read(root: str, since: str) -> dict[str, Any]:
    """The first source that has lines and did not fail, and what became of those before it."""
    base = root.rstrip("/")
    failed: list[dict[str, str]] = []
    unfinished: list[tuple[str, LogAnswer]] = []
    for name in ("journalctl -k", "dmesg", "/var/log/kern.log", "/var/log/messages"):
        if name.startswith("/"):
            answer = log_file(base, name)
        else:
            answer = ring() if name == "dmesg" else journal(base, since)
        if answer.text.strip():
            if not answer.why:
                return document(name, answer, failed, root)
            unfinished.append((name, answer))
        failed.append({"source": name, "why": answer.why or "empty", "said": answer.said[:300]})
    if unfinished:
        name, longest = max(unfinished, key=lambda row: len(row[1].text))
        return {**document(name, longest, failed, root), "unfinished": longest.said[:300]}
    return {**document(None, LogAnswer(), failed, root), "uid": os.geteuid()}


def document(name: str | None, answer: LogAnswer, failed: list[dict[str, str]], root: str) -> dict[str, Any]:
    """What is printed of the source that was taken."""
    text, is_cut = shorten(answer.text)
    return {
        "source": name,
        "text": text.decode("utf-8", "replace"),
        "cut": is_cut,
        "failed": failed,
        "boot_epoch": boot_epoch(root),
    }


def main() -> None:
    """Print the document."""
    arguments, _ = options(__doc__, root="/", since="")
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    print(json.dumps(with_count(read(arguments["root"], arguments["since"])), ensure_ascii=False))


if __name__ == "__main__":
    main()
