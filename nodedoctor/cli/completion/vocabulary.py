"""Everything of nodedoctor that can be completed, from the parsers and from all that can be looked up."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping

from nodedoctor.cli.main import MODULES
from nodedoctor.record import record

FILES, FOLDERS = "(files)", "(folders)"
"""What a value can be besides one of a list of words."""

_OWN_PARSERS = ("triage", "read", "mcp", "fleet", "accept", "history", "compare", "expect", "completion")
"""Subcommands whose modules have a `parser()` that reads their arguments."""

_ABOUT = {
    "triage": "why a job died",
    "read": "judge pastes, bug reports, mails",
    "mcp": "read-only tools for a coding agent",
    "fleet": "many nodes, one report",
    "watch": "live load of this node, or a job until it hangs",
    "run": "run a training command, and keep why it hung",
    "arm": "what to set for a job, so that a hang leaves evidence",
    "accept": "whether this node is as fast as it must be",
    "history": "what earlier runs on this node found",
    "compare": "what changed between two reports",
    "expect": "what this healthy node has",
    "completion": "this script",
    "demo": "recorded nodes that ship with the tool",
    "list": "what there is",
    "explain": "what a word means",
    "schema": "the JSON Schema of a document",
}

KINDS: Mapping[str, tuple[str, ...]] = {
    "CHECK": ("checks",),
    "TAG": ("tags",),
    "K=V|FILE": ("expectations", FILES),
    "FILE": (FILES,),
    "PATH": (FILES,),
    "BEFORE": (FILES,),
    "AFTER": (FILES,),
    "DIR": (FOLDERS,),
    "NAME": ("demos",),
    "word": ("words",),
}
"""What can replace a metavar: lists of words by name, files, folders. Every other value is free text."""

HEAD = """\
# Completes nodedoctor in {shell}. Made by `nodedoctor completion {shell}`;
# print it again after an update, or after adding checks.
"""
"""The first lines of every script."""

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/=+-]*")
"""Words that no shell takes apart; a plug-in may have named a check as it likes."""

Words = Mapping[str, str]
"""What can be written, and what it means ("" where the word says it)."""


@record
class Argument:
    """An option, or a positional argument (without flags). `kinds` says what its value can be, () for none.

    A switch has no value: `takes` is False.
    """

    flags: tuple[str, ...]
    help: str
    takes: bool
    kinds: tuple[str, ...] = ()


@record
class Subcommand:
    """A subcommand, or the diagnosis (named ""). Of `places` the last is for all that follow."""

    name: str
    help: str
    options: tuple[Argument, ...]
    places: tuple[Argument, ...] = ()


@record
class Vocabulary:
    """Everything that can be completed: commands, the diagnosis first, and lists of words by name."""

    commands: tuple[Subcommand, ...]
    lists: Mapping[str, Words]


def vocabulary() -> Vocabulary:
    """What there is now, plug-ins included."""
    lists = {name: _writable_words(words) for name, words in _word_lists().items()}
    commands = tuple(_all_commands(lists))
    lists["commands"] = {command.name: command.help for command in commands if command.name}
    return Vocabulary(commands, lists)


def _all_commands(lists: dict[str, Words]) -> Iterator[Subcommand]:
    from nodedoctor.blackbox import arguments as blackbox
    from nodedoctor.cli import arguments, reference

    diagnosis = _read_command("", "", arguments.parser(), lists)
    yield diagnosis
    for name in _OWN_PARSERS:
        yield _read_command(name, _ABOUT[name], importlib.import_module(MODULES[name]).parser(), lists)
    for parser in (blackbox.watch(), blackbox.run(), blackbox.arm()):
        name = parser.prog.rpartition(" ")[2]
        yield _read_command(name, _ABOUT[name], parser, lists)
    nested = next(action for action in reference.parser()._actions if isinstance(action.choices, dict))
    assert isinstance(nested.choices, dict)
    for name, parser in nested.choices.items():
        yield _read_command(name, _ABOUT[name], parser, lists)
    demo = Argument((), "a recorded node", True, ("demos",))
    yield Subcommand("demo", _ABOUT["demo"], diagnosis.options, (demo, *diagnosis.places))


def _read_command(
    name: str, help: str, parser: argparse.ArgumentParser, lists: dict[str, Words]
) -> Subcommand:
    arguments = [
        _read_argument(name, action, lists) for action in parser._actions if action.help != argparse.SUPPRESS
    ]
    options = tuple(argument for argument in arguments if argument.flags)
    return Subcommand(name, help, options, tuple(argument for argument in arguments if not argument.flags))


def _read_argument(command: str, action: argparse.Action, lists: dict[str, Words]) -> Argument:
    """An argument as its parser knows it; its choices become a list of words of its own."""
    help = " ".join((action.help or "").split())
    kinds = KINDS.get(str(action.metavar or action.dest), ())
    if action.choices is not None:
        kinds = (f"{command or 'nodedoctor'}_{action.dest}",)
        lists[kinds[0]] = dict.fromkeys(map(str, action.choices), "")
    # Free text that may be left out is as good as a switch: what follows is more often the next argument.
    takes = action.nargs != 0 and (action.nargs != "?" or bool(kinds))
    return Argument(tuple(action.option_strings), help, takes, kinds)


def _word_lists() -> dict[str, Words]:
    from nodedoctor.demo import DEMOS
    from nodedoctor.engine.plugins import discover
    from nodedoctor.expectations import KEYS
    from nodedoctor.knowledge import env_vars, kinds, xids

    catalogue = discover()
    checks = [catalogue.checks[id] for id in sorted(catalogue.checks)]
    subjects = {check.subject: f"all checks of {check.subject}" for check in checks}
    titles = {check.id: check.title for check in checks}
    words: list[Iterable[object]] = [
        [*subjects, *titles],
        sorted(row.cause for row in kinds.causes()),
        sorted(row.xid for row in xids.xids()),
        sorted(row.sxid for row in xids.sxids()),
        sorted(row.name for row in env_vars.env_vars()),
        sorted(catalogue.facts),
    ]
    return {
        "checks": {**subjects, **titles},
        "tags": dict.fromkeys(sorted({tag for check in checks for tag in check.tags}), ""),
        "expectations": {f"{key}=": about for key, about in KEYS.items()},
        "demos": DEMOS,
        "words": {str(word): "" for group in words for word in group},
    }


def _writable_words(words: Words) -> Words:
    """Words that mean themselves in every shell, and what they mean in one line of printable characters."""
    from nodedoctor.report.inert import inert

    return {word: inert(" ".join(about.split())) for word, about in words.items() if _PLAIN.fullmatch(word)}


def places(commands: Iterable[Subcommand]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What can be where no option is: first, and anywhere after."""
    for command in commands:
        first, last = (command.places[0].kinds, command.places[-1].kinds) if command.places else ((), ())
        yield f"{command.name}:yes", first if command.name else ("commands", *first)
        yield f"{command.name}:no", last


def quoted(text: str) -> str:
    """One word of bash or zsh."""
    return "'" + text.replace("'", "'\\''") + "'"
