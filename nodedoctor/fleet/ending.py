"""What every fleet command does with its document: show it, write the files, and the lists of nodes.

A circuit breaker keeps back --failing: one cause on many nodes is a common cause or a bad rule.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nodedoctor.cli import outputs
from nodedoctor.cli.console import emit, write_stderr
from nodedoctor.cli.exit_codes import Exit
from nodedoctor.fleet.model import Fleet
from nodedoctor.model import Severity
from nodedoctor.record import record


@record
class Lists:
    """The nodes for --passing and --failing; `too_many` says why --failing is not written, if it is not."""

    passing: Sequence[str]
    failing: Sequence[str]
    too_many: str


def conclude(
    arguments: argparse.Namespace,
    document: Mapping[str, Any],
    lists: Lists,
    render: Callable[[Mapping[str, Any], argparse.Namespace], str] | None,
    ended_by: int,
) -> int | None:
    """Show the document, write all that was asked for; an exit code where it outranks what was found.

    `render` is None where the document was on the screen already; `ended_by` is the signal that ended the
    run, 0 for none.
    """
    if arguments.redact:
        from nodedoctor.redact.documents import redacted_nodes

        document = redacted_nodes(document)
    if render and not emit(render(document, arguments)):
        return Exit.OUTPUT
    written = max(outputs.write(arguments, lambda: document), _write_lists(arguments, lists))
    if written != Exit.OK:
        return written
    if ended_by:
        return 128 + ended_by
    return Exit.OK if arguments.exit_zero or arguments.report_only else None


def _write_lists(arguments: argparse.Namespace, lists: Lists) -> int:
    if arguments.report_only:
        return Exit.OK
    wanted = {arguments.passing: lists.passing}
    if lists.too_many:
        write_stderr(lists.too_many)
    else:
        wanted[arguments.failing] = lists.failing
    return outputs.write_lists(wanted)


SHARE, LEAST = 0.1, 2
"""Of the nodes may fail for one cause, at least two. Our choice: hardware does not fail on every tenth node
at once, and a rule that takes a tenth of a cluster away does more harm than the fault it found."""


def limit(text: str) -> float:
    """`--max-failing`: a share (`10%`) as below one, or a number of nodes."""
    number = text[:-1] if text.endswith("%") else text
    value = int(number) if number.isdecimal() and len(number) < 6 else -1
    if value < 0 or (text.endswith("%") and value > 100):
        raise argparse.ArgumentTypeError(f"wants a number of nodes or a share like 10%, not {text!r}")
    return (
        value / 100 if text.endswith("%") and value < 100 else float("inf") if text.endswith("%") else value
    )


def tripped(causes: Mapping[str, Iterable[str]], nodes: int, allowed: float | None) -> str:
    """What to say instead of writing the list; empty when no cause is on too many nodes."""
    if allowed is None:
        most = max(LEAST, SHARE * nodes)
    else:
        most = max(LEAST, allowed * nodes) if allowed < 1 and allowed else allowed
    cause, hosts = max(((c, len(set(h))) for c, h in causes.items()), key=lambda row: row[1], default=("", 0))
    if hosts <= most:
        return ""
    return (
        f"{hosts} of {nodes} nodes fail for the same cause ({cause}): a common cause or a bad rule; "
        f"--failing is not written (--max-failing raises the limit)"
    )


def causes_of(fleet: Fleet) -> dict[str, set[str]]:
    """The nodes that fail, by what fails: a check, a missing report, or a difference."""
    by_cause: dict[str, set[str]] = {}
    for node in fleet.nodes:
        if node.state != "answered":
            by_cause.setdefault(node.state, set()).add(node.host)
        for problem in node.problems:
            if problem.severity >= Severity.BROKEN:
                by_cause.setdefault(problem.check, set()).add(node.host)
    for oddity in fleet.oddities:
        if oddity.status.value == "fail":
            by_cause.setdefault(oddity.key, set()).update(oddity.odd)
    return by_cause
