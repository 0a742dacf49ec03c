"""What --save keeps of a node and --reports reads back: its report, or why there is none.

A node without a report has a file, too: else the nodes that matter most would be missing from the folder.
"""

from __future__ import annotations

import json
import re
from typing import cast, get_args

from nodedoctor.fleet.model import Node, NodeState
from nodedoctor.fleet.reports.reading import ASKED
from nodedoctor.json_shapes import loaded, number, text
from nodedoctor.nodeset import plain
from nodedoctor.report.document import SCHEMA as REPORT

SCHEMA = "nodedoctor.unanswered/1"
"""The schema of a file in place of the report of a node that gave none."""
_REPORT = re.compile(rf'\{{\s*"schema"\s*:\s*"{re.escape(REPORT)}"')


def saved_text(node: Node, started: str) -> str:
    """The text of a node's file; `started` is when it was asked.

    A report is kept as it came, but one that calls itself otherwise also says by which name it was asked for.
    """
    if node.state != "answered":
        entry = {
            "schema": SCHEMA,
            "host": node.host,
            "state": node.state,
            "note": node.note,
            "started": started,
            "seconds": node.seconds,
        }
        return json.dumps(entry) + "\n"
    if node.host == node.hostname:
        return node.raw
    return _REPORT.sub(lambda match: f"{match[0]}, {json.dumps(ASKED)}: {json.dumps(node.host)}", node.raw, 1)


def unanswered(written: str) -> Node | None:
    """The node of a file that `saved_text` wrote because there was no report; None for any other text."""
    if not written.startswith(f'{{"schema": "{SCHEMA}"'):
        return None
    try:
        entry = loaded(written)
    except ValueError:
        return None
    host, state, note = plain(text(entry, "host")), text(entry, "state"), text(entry, "note")
    if not host or state not in get_args(NodeState)[1:] or not note:
        return None
    seconds = number(entry.get("seconds")) or 0.0
    return Node(
        host, cast("NodeState", state), note=note[:1000], started=text(entry, "started")[:40], seconds=seconds
    )
