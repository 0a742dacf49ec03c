"""What every fleet command does with its document: show it, write the files, and the lists of nodes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodedoctor.cli import outputs
from nodedoctor.cli.console import emit, write_stderr
from nodedoctor.cli.exit_codes import Exit
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
