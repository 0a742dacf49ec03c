"""Where the table of gates answers otherwise than another checkout, for every cause of every recorded node.

    python tests/bench/gates.py OTHER_CHECKOUT [FOLDER ...]

A line for every cause of every recorded node: what the other checkout says of new jobs, what this one says
and why, `*` before what changed. Judged as with --preview, so that every row is seen.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from same_documents import HERE, NODES, documents

sys.path.insert(0, str(HERE))

from nodedoctor.knowledge.gates import gate_row


def main() -> int:
    """Print the table; 0."""
    folders = [Path(folder) for folder in sys.argv[2:]] or NODES
    nodes = sorted(file.parent.resolve() for folder in folders for file in folder.glob("*/manifest.json"))
    other = documents(Path(sys.argv[1]), nodes, "--preview")
    changed = set()
    for node, before, after in zip(nodes, other, documents(HERE, nodes, "--preview"), strict=True):
        told = {cause["id"]: cause for cause in json.loads(before)["causes"]}
        for cause in json.loads(after)["causes"]:
            was, now = told.get(cause["id"], {}).get("schedulable", "-"), cause["schedulable"]
            row = gate_row(cause["id"])
            mark = " " if was == now else "*"
            changed |= {node.name} if mark == "*" else set()
            why = row.reason if row else ""
            print(f"{mark} {node.name:<44} {cause['status']:<7} {was:<16} {now:<16} {cause['id']}: {why}")
    print(f"{len(nodes)} recorded nodes, the answer changes for {len(changed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
