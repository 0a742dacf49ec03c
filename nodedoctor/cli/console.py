"""How nodedoctor speaks to shells: errors of use, standard output and standard error."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys

from nodedoctor.cli.exit_codes import Exit

TYPE_CHECKING = False  # typing takes 3 ms of the 40 that --help may take
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from nodedoctor.errors import NodeDoctorError


def columns(without: int = 80) -> int:
    """How wide the terminal is that stdout leads to, or a page `without` one; COLUMNS says otherwise.

    As `shutil.get_terminal_size`, whose module reads every kind of archive and takes 4 ms to import.
    """
    setting = os.environ.get("COLUMNS", "")
    if setting.isdecimal() and int(setting[:9]):
        return int(setting[:9])
    try:
        return os.get_terminal_size(1).columns or without
    except OSError:
        return without


def has_colours() -> bool:
    """Whether a terminal may get colours: NO_COLOR is not set, and its entry in terminfo has some.

    A terminal without an entry gets them, as before there were entries for all.
    """
    term = os.environ.get("TERM", "")
    if "NO_COLOR" in os.environ or term == "dumb":
        return False
    if not term or "color" in term or os.environ.get("COLORTERM"):
        return True  # it says so itself; importing curses takes 5 ms
    try:
        import curses

        curses.setupterm(term, 2)
        return curses.tigetnum("colors") > 1
    except (ImportError, OSError, ValueError, curses.error):
        return True


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """argparse's, which leaves our paragraphs as they are."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns() - 2)


_PHRASES = (
    ("unrecognized arguments:", "unknown option"),
    ("one of the arguments ", "one of "),
    ("not allowed with argument ", "not allowed with "),
    ("ignored explicit argument ", "takes no value, not "),
    ("expected one argument", "needs a value"),
    ("expected at least one argument", "needs a value"),
    ("the following arguments are required:", "missing:"),
)
"""What argparse says, and our words for it."""


class Parser(argparse.ArgumentParser):
    """argparse, exiting with our usage code: its own 2 would read as a failed node."""

    _words: Sequence[str] = ()

    def __init__(self, *, epilog: str = "", allow_abbrev: bool = False, **options: Any) -> None:
        if "\n" in epilog:
            options["formatter_class"] = HelpFormatter
        super().__init__(epilog=epilog or None, allow_abbrev=allow_abbrev, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's; an unknown option is named before what is missing beside it."""
        self._words = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and how to get help; exit 64."""
        if option := self._unknown_option():
            from nodedoctor.spelling import suggest_word

            options = [word for word in self._option_string_actions if word.startswith("--")]
            hint = suggest_word(option, options, f"see `{self.prog} --help`", prefix="--")
            self.exit(Exit.USAGE, f"{self.prog}: unknown option {option}; {hint}\n")
        message = message.removeprefix("argument ")
        for theirs, ours in _PHRASES:
            message = message.replace(theirs, ours)
        self.exit(Exit.USAGE, f"{self.prog}: {message} (see `{self.prog} --help`)\n")

    def _unknown_option(self) -> str:
        """The first word that can only be an option and is none of ours; "" without one."""
        for word in self._words:
            option = word.partition("=")[0]
            if word == "--":
                break
            if option.startswith("--") and option not in self._option_string_actions:
                return option
        return ""

    def _print_message(self, message: str, file: Any = None) -> None:
        """What `--help` and `--version` print; 74 when it cannot be written, as for any other output."""
        if file is not sys.stdout:
            mutter(message)
        elif not emit(message):
            raise SystemExit(Exit.OUTPUT)


def prepare() -> None:
    """Make sure of what Python leaves out in bare surroundings, before anything relies on it.

    A standard stream that the caller closed is None, and its number goes to the next file that is opened, be
    it somebody's pipe. Without PATH, Python does not know its own interpreter, which our children need.
    """
    try:
        os.getcwd()
    except OSError:  # it was deleted; our children need some folder
        with contextlib.suppress(OSError):
            os.chdir("/")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, _stand_in(number))
    if not sys.executable:
        with contextlib.suppress(OSError):
            sys.executable = os.readlink("/proc/self/exe")


def _stand_in(number: int) -> io.TextIOWrapper:
    """/dev/null in place of a closed stream; writing to stdout stays the error that it is."""
    opened = os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    return open(number, "w" if number else "r", encoding="utf-8", closefd=False)


def complain(problem: str | NodeDoctorError) -> int:
    """One line on stderr for something that was asked for and cannot be; returns the exit code for it."""
    write_stderr(str(problem))
    return Exit.USAGE if isinstance(problem, str) else problem.exit_code


def write_stderr(message: str) -> None:
    """One line on stderr for a person. Where it cannot be written nothing else changes."""
    from nodedoctor.report.inert import inert

    mutter(f"nodedoctor: {inert(message)}\n")


def mutter(text: str) -> None:
    """Text for a person on stderr; where it cannot be written nothing changes."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        drop(2)


def page_shape(widest: int, piped: int = 100) -> tuple[int, bool]:
    """Columns of a page on stdout, and whether it has colours: a terminal's, up to `widest`, or a pipe's."""
    return (min(columns(), widest), has_colours()) if sys.stdout.isatty() else (piped, False)


def may_narrate(arguments: argparse.Namespace) -> bool:
    """Whether a person may read on stderr what is being waited for."""
    return not arguments.json and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class StatusLine:
    """One line on a terminal's stderr that is written over again and again."""

    def __init__(self) -> None:
        self._is_shown = False

    def show(self, text: str) -> None:
        """Show this instead of what was there."""
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        self._is_shown = True

    def erase(self) -> None:
        """Take the line away, if there is one."""
        if self._is_shown:
            self.show("")


def drop(number: int) -> None:
    """Let a stream lead nowhere: Python would complain once more while flushing it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def emit(text: str) -> bool:
    """Write to stdout; False, with a line on stderr, when it does not take it (a full disk)."""
    try:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop(1)
        write_stderr(f"cannot write the report: {error.strerror}")
        return False
    return True
