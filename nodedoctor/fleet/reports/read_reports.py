"""Read report files, or list them: a program of its own, as files may lie on a file system that hangs.

python -I -S read_reports.py --list PATH...     one JSON line [folder, [name, ...]] per folder
python -I -S read_reports.py FILE...            one line per file: a node, a tab, its statuses
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from nodedoctor import input_files
from nodedoctor.fleet.document import entry
from nodedoctor.fleet.model import Node
from nodedoctor.fleet.reports.reading import node
from nodedoctor.fleet.reports.saved import unanswered
from nodedoctor.model import Observation
from nodedoctor.nodeset import is_name, of_file
from nodedoctor.record import replace

NOT_THERE = 66
"""Exit code for a path that leads nowhere (EX_NOINPUT, sysexits(3))."""
ENDINGS = (".json", ".json.gz")


def files(path: str) -> Iterator[tuple[str, list[str]]]:
    """The reports at a path by folder: the file itself, or what a folder and its folders hold."""
    if not os.path.isdir(path):
        yield os.path.dirname(path), [os.path.basename(path)]
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        chosen = sorted(name for name in names if name.endswith(ENDINGS) and not name.startswith("."))
        if chosen:
            yield folder, chosen


def read(path: str) -> Node:
    """The node a file tells of, named as it names itself, else as the file is named."""
    name, stem = os.path.basename(path), of_file(path)
    try:
        text = input_files.read(path).decode("utf-8", "replace")
    except OSError as error:
        return Node(stem, "unreadable", note=f"{name}: {error.strerror}", report=path)
    if mute := unanswered(text):
        return replace(mute, report=path)
    reported = node("", Observation("report", text=text))
    if reported.state != "answered":
        return replace(reported, host=stem, note=f"{name}: {reported.note}", report=path)
    if is_name(reported.host or reported.hostname):
        return replace(reported, host=reported.host or reported.hostname, report=path)
    strange = f"calls itself {reported.hostname!r}, which is no name of a node" if reported.hostname else ""
    return replace(reported, host=stem, note="; ".join(filter(None, (reported.note, strange))), report=path)


def main(words: list[str]) -> None:
    """Print the lines as they come, so that the caller sees how far we are."""
    gc.disable()  # nothing here lives long enough to be worth looking through
    if words[:1] == ["--list"]:
        for path in words[1:]:
            if not os.path.lexists(path):
                sys.exit(NOT_THERE)
            for portion in files(path):
                print(json.dumps(portion), flush=True)
        return
    for path in words:
        reported = read(path)
        print(f"{json.dumps(entry(reported))}\t{json.dumps(reported.statuses)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
