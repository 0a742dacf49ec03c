"""What a diagnosis was asked for: what is wrong with the options, and the request that the engine gets."""

from __future__ import annotations

import argparse
import os

from nodedoctor.errors import NodeDoctorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodedoctor.engine.session import Request


def find_problem(arguments: argparse.Namespace) -> str:
    """What is wrong with the options, before any work is done; empty where nothing is."""
    from nodedoctor.cli import outputs

    return (
        outputs.no_folder(arguments, "record", "debug_log")
        or _input_problem(arguments)
        or _gate_problem(arguments)
    )


def add_hint(error: NodeDoctorError, arguments: argparse.Namespace) -> str | NodeDoctorError:
    """The error; for another file in place of a recording, or a file in place of a check, what reads it."""
    from nodedoctor.intake.hint import describe_file

    path = next(
        (word for word in arguments.checks if f" {word!r}" in str(error) and os.path.exists(word)), ""
    )
    if path and (hint := describe_file(path, folders=True)):
        return f"{path}: not a check: {hint}"
    if not path and arguments.replay:
        hint = describe_file(arguments.replay)
        if hint and "--replay" not in hint:  # a recording that is refused is one
            return f"{arguments.replay}: not a recorded node: {hint}"
    return error


def _input_problem(arguments: argparse.Namespace) -> str:
    """What is wrong with the places asked to be read, before any work is done."""
    live_only = ("env_file", "python", "exec", "peers")
    if arguments.replay and (used := [name for name in live_only if getattr(arguments, name)]):
        option = f"--{used[0].replace('_', '-')}"
        return f"{option} is for a node that is asked now; a recording holds what was asked then"
    if not os.path.isdir(arguments.root):
        return f"--root: no folder {arguments.root}"
    if arguments.env_file:
        from nodedoctor import input_files

        try:
            input_files.opened(arguments.env_file).close()
        except OSError as error:
            return f"--env-file {arguments.env_file}: {error.strerror}"
    return ""


def _gate_problem(arguments: argparse.Namespace) -> str:
    """What is wrong with options beside --gate: it has its own exit codes, and prints one line or --json."""
    if not arguments.gate:
        return ""
    options = ("fail_on", "exit_zero", "deep", "text", "summary", "tui", "quiet", "verbose")
    used = [name for name in options if getattr(arguments, name)]
    short_names = {"quiet": "-q", "verbose": "-v"}
    return (
        f"{short_names.get(used[0], '--' + used[0].replace('_', '-'))} has no meaning with --gate"
        if used
        else ""
    )


def _peer_names(hosts: Sequence[str]) -> tuple[str, ...]:
    if not hosts:
        return ()
    from nodedoctor.fleet.compare.reachability import neighbours

    return neighbours(hosts, os.uname().nodename)


def make_request(arguments: argparse.Namespace) -> Request:
    """What the engine is asked; expectations and peers that cannot be read are a NodeDoctorError."""
    from pathlib import Path

    from nodedoctor.cli.arguments import command_words
    from nodedoctor.declare.registry import Options
    from nodedoctor.engine.session import Request
    from nodedoctor.expectations import expectations

    options = Options(
        root=str(Path(arguments.root).absolute()),
        since=arguments.since,
        passive=arguments.passive or arguments.gate,
        deep=arguments.deep,
        python=arguments.python,
        exec_prefix=command_words(arguments.exec),
        env_file=os.path.abspath(arguments.env_file) if arguments.env_file else "",
        peers=_peer_names(arguments.peers),
        expect=expectations(arguments.expect),
    )
    return Request(
        words=tuple(arguments.checks),
        tags=tuple(arguments.tag),
        options=options,
        deadline=arguments.deadline,
        replay=Path(arguments.replay) if arguments.replay else None,
        folders=tuple(Path(folder) for folder in arguments.check_folders),
        redact=arguments.redact,
        preview=arguments.preview,
        gate=arguments.gate,
    )
