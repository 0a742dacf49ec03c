"""Read files that may hang or be denied, and say for each what came of it; one JSON document on stdout.

    python -I files.py [--root DIR] [--each SECONDS] WORD...

A WORD is what to read and a path, whose components may be globs (no `**`):

    read:PATH     text, the first 64 KiB        list:PATH      names in a directory
    link:PATH     where a symbolic link points  stat:PATH      type, mode, owner, size, device number
    hex:PATH      the first 4096 bytes          statvfs:PATH   space and inodes of the file system
    hex64:PATH    the first 64 bytes

Paths in the document are as in the words, without DIR, so that recordings look alike. What cannot be read
is under `errors` with its error name (EFBIG beside a text: it was cut); what a glob offers and is not
there is no error. A `..` after a glob selects: `*/pci_bus/../config` are the configs of what has a pci_bus.

With --each, forked processes read, and none waits for a path (with globs: a match of the first one) on which
another hangs; what has not answered after SECONDS is `TIMEOUT`, and the rest is reported. SIGKILL does not
end a process in an uninterruptible read, so it is left behind, without any of our pipes.
"""

from __future__ import annotations

import os
import sys

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.host.files_reading import READERS, parse_word, read_item
from nodedoctor.probes.plain_args import options
from nodedoctor.probes.plain_json import dumps, with_count

sys.path.pop()

TYPE_CHECKING = False  # importing typing would take as long as a typical read
if TYPE_CHECKING:
    from typing import Any, NoReturn

TOTAL_BYTES = 3 * 1024 * 1024  # below the 4 MiB an observation keeps, with room for error names
ERROR_BYTES = 512 * 1024


class FilesDocument:
    """What was found so far, and how large it has become."""

    def __init__(self) -> None:
        kinds = ("files", "links", "hex", "lists", "stats", "statvfs", "errors")
        self.sections: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
        self.size = 0

    def add(self, kind: str, path: str, value: Any) -> None:
        """Keep one value; once the document is large enough, only say what does not fit."""
        if self.size > TOTAL_BYTES:
            kind, value = "errors", "EFBIG"
        if kind in self.sections and self.size <= TOTAL_BYTES + ERROR_BYTES:
            self.size += len(dumps([path, value]))
            self.sections[kind][path] = value


def usage() -> NoReturn:
    """Say how to call this program; exit 2."""
    sys.stderr.write(f"{__doc__}\na word is VERB:/PATH, the verb one of {' '.join(READERS)}\n")
    sys.exit(2)


def main() -> None:
    """Read what the words ask for and print the document."""
    arguments, words = options(__doc__, root="/", each="0")
    root, seconds = arguments["root"], float(arguments["each"])
    items = [item for item in map(parse_word, words) if item]
    if len(items) < len(words):
        usage()
    document = FilesDocument()
    if seconds > 0:
        # With what it imports, only where it is asked for.
        from nodedoctor.probes.host.files_each import read_each

        read_each(items, root, seconds, document.add)
    else:
        for item in items:
            read_item(item, root, document.add)
    sys.stdout.write(dumps(with_count(document.sections)) + "\n")
    sys.stdout.flush()
    os._exit(0)  # nothing that was left behind may delay the end


if __name__ == "__main__":
    main()
