"""The process: which command was asked for, and the number it exits with whatever happens.

What costs time is imported in the functions that need it: `--help` must be instant.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys

from nodedoctor.cli.console import complain, drop, emit, prepare, write_stderr
from nodedoctor.cli.exit_codes import Exit
from nodedoctor.errors import EndedBySignal
from nodedoctor.spelling import suggest_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


ROOM = 128 << 20
"""Bytes of address space below which we may find none; ours: twice what the largest run was seen to take."""

LEAST = 40 << 20
"""Bytes of address space below which nothing is begun: Python 3.11 itself was seen to crash with 32 MiB."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run nodedoctor; returns the exit code. Errors of use are one line on stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    prepare()
    try:
        if words[:1] == ["run"]:
            return _run_job(words[1:])
        return _no_memory() if _room_below(LEAST) else _dispatch(words)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except EndedBySignal as ended:
        return ended.code
    except BrokenPipeError:
        drop(1)  # the reader has gone (`| head`)
        return Exit.OUTPUT
    except MemoryError:
        return _no_memory()
    except OSError as error:
        from nodedoctor.children.exhaustion import CODES, why

        if error.errno not in CODES:
            return _report_bug()
        _say_no_more()
        what = why(error.errno)
        write_stderr(f"cannot run: {error.strerror}; {what.words}")
        # What the caller may not use any more says nothing of the node, which is what a gate answers for.
        return Exit.FAIL if what.known and "--gate" not in words else Exit.UNKNOWN
    except Exception:
        # A module of C, a thread, even a literal of Unicode fails in its own way where it finds no room.
        return _no_memory() if _room_below(ROOM) else _report_bug()


def _no_memory() -> int:
    """Say so without making anything new."""
    _say_no_more()
    os.write(2, b"nodedoctor: no memory left to run in; see `ulimit -v` and the cgroup's memory.max\n")
    return Exit.BUG


def _say_no_more() -> None:
    """Python would now complain of what was begun and cannot go on: coroutines, half of an event loop."""
    sys.unraisablehook = lambda _: None
    warnings = sys.modules.get("warnings")
    if warnings is not None:
        warnings.simplefilter("ignore")


def _room_below(most: int) -> bool:
    """Whether this process may use fewer bytes of address space."""
    try:
        import resource
    except ImportError:  # which is a file to be mapped, too
        return True
    return 0 <= resource.getrlimit(resource.RLIMIT_AS)[0] < most  # -1 is no limit


def _report_bug() -> int:
    """Say what went wrong, inside the handler of an exception."""
    import traceback

    with contextlib.suppress(OSError):
        traceback.print_exc()
    write_stderr("this is a bug in nodedoctor; please report it with the lines above")
    return Exit.BUG


def _run_job(words: list[str]) -> int:
    """`nodedoctor run`, whose command is started in any case: without room for a watch, in our own place."""
    if _room_below(ROOM):
        from nodedoctor.blackbox import exec_fallback

        return exec_fallback.main(words)
    _without_ssl()
    from nodedoctor.blackbox import run

    return run.main(words)


def _without_ssl() -> None:
    """What stays beside a job for days leaves ssl out, which nothing in it uses."""
    from nodedoctor.start_up import import_asyncio

    import_asyncio()


MODULES = {
    "accept": "nodedoctor.cli.accept",
    "arm": "nodedoctor.blackbox.arm_cli",
    "compare": "nodedoctor.cli.compare",
    "completion": "nodedoctor.cli.completion.cli",
    "expect": "nodedoctor.cli.expect",
    "fleet": "nodedoctor.fleet.cli",
    "history": "nodedoctor.cli.history",
    "mcp": "nodedoctor.agent.cli",
    "read": "nodedoctor.intake.cli",
    "triage": "nodedoctor.triage.cli",
    "watch": "nodedoctor.blackbox.attach",
}
"""Subcommands, and the module whose `main` gets the words behind them."""


def _dispatch(words: list[str]) -> int:
    command, rest = (words[0], words[1:]) if words else ("", [])
    if command == "watch":
        _without_ssl()
    if command in MODULES:
        return int(importlib.import_module(MODULES[command]).main(rest))
    if command in ("list", "explain", "schema"):
        from nodedoctor.cli import reference

        return reference.main(words)
    return _show_demo(rest) if command == "demo" else _diagnose_node(words)


def _diagnose_node(words: list[str]) -> int:
    from nodedoctor.cli import diagnose

    return diagnose.main(words)


def _show_demo(words: list[str]) -> int:
    """`nodedoctor demo [NAME [options]]`: list the recorded nodes that ship with us, or diagnose one."""
    from nodedoctor.demo import DEMOS, folder

    if words and words[0] in DEMOS:
        return _diagnose_node(["--replay", str(folder(words[0])), *words[1:]])
    if words and words[0] not in ("-h", "--help"):
        hint = suggest_word(words[0], DEMOS, f"available: {', '.join(DEMOS)}")
        return complain(f"no demo {words[0]!r}; {hint}")
    width = max(map(len, DEMOS))
    lines = (f"nodedoctor demo {name:<{width}}  {about}\n" for name, about in DEMOS.items())
    return Exit.OK if emit("".join(lines)) else Exit.OUTPUT
