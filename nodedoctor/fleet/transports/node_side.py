"""What runs on a node that is asked: a POSIX sh script that finds nodedoctor there, or is brought it.

It is the same for every way to a node, and written for the poorest shell (dash, busybox). A node without
nodedoctor gets the single file on stdin and keeps it for the next time, in a folder only the user can enter.
What cannot be done there is one line on stderr that begins with one of REFUSALS, and exit code 127.

sshd leaves the command of a cut connection running. So stdin may be `held`: a first line says that it stays
open for as long as somebody wants the answer, and its end ends nodedoctor. Where stdin is not held, whatever
started the script ends it, as Slurm does, or else its own time.
"""

from __future__ import annotations

import hashlib
import shlex
import string
import sys
from pathlib import Path

from nodedoctor.fleet.model import FleetError, FleetRequest
from nodedoctor.record import record

NO_NODEDOCTOR = "no nodedoctor here"
NO_PYTHON = "no Python 3.10 here"
NO_ROOM = "no room for nodedoctor here"
NOT_WHOLE = "nodedoctor arrived here only in part"
REFUSALS = (NO_NODEDOCTOR, NO_PYTHON, NO_ROOM, NOT_WHOLE)
"""How the one line on stderr begins when nodedoctor could not run on a node that was reached."""

MARGIN = 0.1
"""Ours: the share of a node's time that is for the way there and back, at least LEAST_MARGIN seconds."""
LEAST_MARGIN = 2.0

# The watcher is a subshell: of a function dash would keep the old stdout, and sshd wait for it to be closed.
_SCRIPT = """\
umask 077
exec 3<&0 </dev/null
held=@HELD@
if [ "$held" ]; then read -r held <&3 || held=; fi
cannot() { echo "$*" >&2; exit 127; }
go() {
  if [ "$held" ]; then
    (while read -r _; do :; done; kill $$ && sleep 3 && kill -9 $$) <&3 >/dev/null 2>&1 &
  fi
  if timeout -k 2 9 true 2>/dev/null; then set -- timeout -k 2 @SECONDS@ "$@"; fi
  exec "$@" @ARGUMENTS@ 3<&-
}
found=$(command -v nodedoctor) && go "$found"
for found in @HERE@ "$HOME/.local/bin" /usr/local/bin /opt/nodedoctor/bin; do
  if [ -f "$found/nodedoctor" ] && [ -x "$found/nodedoctor" ]; then go "$found/nodedoctor"; fi
done
@BRING@
cannot "@NO_NODEDOCTOR@: not on PATH ($PATH), not in ~/.local/bin, /usr/local/bin or /opt/nodedoctor/bin"
"""

_BRING = """\
old=
for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
  version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || version=
  case $version in
    3.?.*) old="$old${old:+, }$python is $version" version= ;;
    3.*) break ;;
  esac
done
[ "$version" ] || cannot "@NO_PYTHON@, and no nodedoctor: ${old:-no python3 on PATH ($PATH)}"
ours() { [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]; }
for folder in "${TMPDIR:-/tmp}" /dev/shm; do
  box=$folder/nodedoctor-$(id -u)
  if ours "$box" && [ -f "$box/@NAME@" ]; then go "$python" -I -S "$box/@NAME@"; fi
done
"""

# Zeros first: when a disk is full, that must show before the only copy of the file is read from stdin.
_STORE = """\
for folder in "${TMPDIR:-/tmp}" /dev/shm; do
  box=$folder/nodedoctor-$(id -u) new=$folder/nodedoctor-$(id -u)/new.$$
  mkdir "$box" 2>/dev/null
  ours "$box" && chmod 700 "$box" || continue
  if { head -c @SIZE@ /dev/zero >"$new"; } 2>/dev/null; then
    head -c @SIZE@ <&3 >"$new"
    if [ "$(wc -c <"$new")" -ne @SIZE@ ]; then rm -f "$new"; cannot "@NOT_WHOLE@"; fi
    mv -f "$new" "$box/@NAME@"
    go "$python" -I -S "$box/@NAME@"
  fi
  rm -f "$new"
done
cannot "@NO_ROOM@: neither in ${TMPDIR:-/tmp} nor in /dev/shm"
"""


_HARMLESS = frozenset(string.ascii_letters + string.digits + " _./=:,;-+@%(){}|<>&#*?[]")


@record
class Parcel:
    """The single file to bring along: what is in it, and the name it is kept by on a node."""

    data: bytes
    name: str


def parcel(request: FleetRequest) -> Parcel | None:
    """The single file of an request: the one it names, else the one that came with us; None without any.

    FleetError when the request names one that cannot be read.
    """
    path = Path(request.pyz) if request.pyz else _single_file()
    if path is None:
        return None
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FleetError(f"{path}: {error.strerror}") from None
    return Parcel(data, f"{hashlib.sha256(data).hexdigest()[:32]}.pyz")


def script(
    request: FleetRequest, brought: Parcel | None = None, *, arrives: bool = False, stays_open: bool = False
) -> str:
    """The script, with everything it needs to know in it; for `("/bin/sh", "-c", script)`.

    With `brought` it also runs the copy of that file an earlier run left; with `arrives` the file comes on
    stdin and is run when there is nothing else.
    """
    bring = "" if brought is None else _BRING + (_STORE if arrives else "")
    replacements = {
        "BRING": bring,
        "HELD": "yes" if stays_open else "",
        "NO_NODEDOCTOR": NO_NODEDOCTOR,
        "NO_PYTHON": NO_PYTHON,
        "NO_ROOM": NO_ROOM,
        "NOT_WHOLE": NOT_WHOLE,
        "SIZE": str(len(brought.data)) if brought else "",
        "NAME": brought.name if brought else "",
        "SECONDS": str(int(request.deadline) + 1),
        "HERE": shlex.quote(_our_folder()),
        "ARGUMENTS": shlex.join(
            _node_arguments(request)
        ),  # last: what people type may look like one of these
    }
    text = _SCRIPT
    for name, value in replacements.items():
        text = text.replace(f"@{name}@", value)
    return text


def stdin(brought: Parcel | None = None, *, arrives: bool = False, stays_open: bool = False) -> bytes:
    """What the script reads, for the same arguments."""
    return (b"held\n" if stays_open else b"") + (brought.data if brought and arrives else b"")


def line(text: str) -> str:
    """A script as one command line that every login shell takes alike: sh, csh, fish.

    Inside single quotes csh still minds `!` and ends of line, and fish minds backslashes before quotes. So
    the quotes hold harmless characters only, all others as octal numbers, which printf(1) turns back.
    """
    coded = "".join(
        chr(byte) if chr(byte) in _HARMLESS else f"\\0{byte:03o}"
        for byte in text.encode("utf-8", "surrogateescape")
    )
    return f"""exec /bin/sh -c 'eval "$(printf %b "{coded}")"'"""


def _node_arguments(request: FleetRequest) -> tuple[str, ...]:
    """What nodedoctor gets: also its own deadline, so that it reports what it has before it is given up."""
    if any(word.split("=")[0] == "--deadline" for word in request.arguments):
        return request.arguments
    seconds = max(1.0, request.deadline - max(LEAST_MARGIN, MARGIN * request.deadline))
    return (*request.arguments, "--deadline", f"{seconds:.3g}")


def _our_folder() -> str:
    """The folder of the Python that runs us: on a shared file system the nodes have nodedoctor there too."""
    return str(Path(sys.executable).parent)


def _single_file() -> Path | None:
    """The one we run from."""
    from nodedoctor import single_file

    return single_file.path()
