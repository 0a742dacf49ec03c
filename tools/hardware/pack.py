"""Make a folder fit to be given away: no names of this machine, no large files; then one archive.

    python pack.py FOLDER ARCHIVE

nodedoctor's own outputs are written with --redact. Here the rest is gone through: names of the host and of
users, addresses of networks, serials, UUIDs. A binary file with such a name, a recording that was not made
with --redact and a page are left out. What was done is in pack.txt. Runs on Python 3.8.
"""

import contextlib
import getpass
import os
import re
import socket
import sys
import tarfile

from machine import smi

ARCHIVE_BYTES = 15 * 1024 * 1024  # below the 16 MiB that a mail or an issue takes
FILE_BYTES = 1024 * 1024
SHORTEST_NAME = 4  # a shorter one ("vm", "gpu") is part of other words, and names nobody
COMMON_NAMES = {"root", "user", "localhost", "ubuntu", "debian", "admin"}
OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
PATTERNS = (
    ("uuid", r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    ("uuid", r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    ("mac", r"\b[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5,19}\b"),
    ("ip", r"\bfe80::[0-9a-f:]+\b|\b(?:[0-9a-f]{1,4}:){5,7}[0-9a-f]{1,4}\b"),
    ("ip", rf"(?<![\d.])(?!127\.|0\.0\.0\.0)(?:{OCTET}\.){{3}}{OCTET}(?![\d.])"),
    ("guid", r"\b[0-9a-f]{4}(?::[0-9a-f]{4}){3}\b"),
)
REDACTED = (
    "recording.zip",
    "whole.json",
    "whole.txt",
    "replay.json",
    "deep.json",
    "sides-doctor.json",
    "xid.json",
)
"""Written with --redact: what looks like an address there is a stand-in already."""


def main():
    """Clean the folder, then archive it."""
    folder, archive = sys.argv[1:]
    notes = []
    names = names_here()
    for path in list(files(folder)):
        note = clean(folder, path, names)
        if note:
            notes.append(f"{os.path.relpath(path, folder)}: {note}")
    while archived(folder, archive, notes) > ARCHIVE_BYTES:
        largest = max(files(folder), key=os.path.getsize)
        notes.append(
            f"{os.path.relpath(largest, folder)}: left out, {os.path.getsize(largest)} bytes too many"
        )
        os.unlink(largest)


def archived(folder, archive, notes):
    """Write the archive; its size."""
    with open(os.path.join(folder, "pack.txt"), "w", encoding="utf-8") as file:
        file.write("".join(note + "\n" for note in notes) or "nothing was changed or left out\n")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=os.path.basename(folder.rstrip("/")), filter=anonymous)
    return os.path.getsize(archive)


def anonymous(member):
    """A member of the archive without its owner's name."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def files(folder):
    """Regular files below a folder; links and sockets are removed."""
    for here, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(here, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield path
            else:
                os.unlink(path)


def names_here():
    """What names this machine and its user, each with its stand-in."""
    host = socket.gethostname()
    found = [
        (host, "host"),
        (host.split(".")[0], "host"),
        (os.path.basename(os.path.expanduser("~")), "user"),
    ]
    with contextlib.suppress(KeyError, OSError):  # an account without a name
        found.append((getpass.getuser(), "user"))
    found += [(os.environ[name], "user") for name in ("SUDO_USER", "LOGNAME") if os.environ.get(name)]
    found += [(row[0], "serial") for row in smi(["serial"]) or ()]
    return [
        (name, word)
        for name, word in sorted(set(found), key=lambda row: -len(row[0]))
        if len(name) >= SHORTEST_NAME and name not in COMMON_NAMES and not name.startswith("[")
    ]


def clean(folder, path, names):
    """Replace names in a text, cut it, or remove the file; a note of what was done, empty for nothing."""
    redacted = os.path.relpath(path, folder) in REDACTED
    if path.endswith((".zip", ".html")):
        if redacted:
            return ""
        os.unlink(path)
        return "left out: it was not made with --redact"
    with open(path, "rb") as file:
        data = file.read(4 * FILE_BYTES)
    if b"\0" in data[:65536]:
        if len(data) > FILE_BYTES or any(name.encode() in data for name, _ in names):
            os.unlink(path)
            return "left out: binary, and large or with a name of this machine"
        return ""
    text = data.decode("utf-8", "replace")
    if len(data) > FILE_BYTES:
        text = text[: FILE_BYTES // 2] + "\n[the middle is left out]\n" + text[-FILE_BYTES // 2 :]
    cleaned, count = replaced(text, names, () if redacted else PATTERNS)
    if cleaned != data.decode("utf-8", "replace") or os.path.getsize(path) > len(data):
        with open(path, "w", encoding="utf-8") as file:
            file.write(cleaned)
    notes = [f"{count} names replaced"] * bool(count) + ["cut in the middle"] * (len(data) > FILE_BYTES)
    return ", ".join(notes)


def replaced(text, names, patterns):
    """The text with stand-ins, and how many."""
    total = 0
    for name, word in names:
        text, count = re.subn(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", f"[{word}]", text)
        total += count
    for word, pattern in patterns:
        text, count = re.subn(pattern, f"[{word}]", text)
        total += count
    return text, total


if __name__ == "__main__":
    main()
