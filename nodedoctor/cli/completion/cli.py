"""What `nodedoctor completion` is asked, and its answer."""

from __future__ import annotations

import importlib

from nodedoctor.cli.completion.vocabulary import vocabulary
from nodedoctor.cli.console import Parser, complain, emit
from nodedoctor.cli.exit_codes import Exit
from nodedoctor.errors import NodeDoctorError

_EPILOG = """\
where it goes:
  bash   nodedoctor completion bash > ~/.local/share/bash-completion/completions/nodedoctor
  zsh    nodedoctor completion zsh > DIR/_nodedoctor, with DIR in fpath before compinit runs
  fish   nodedoctor completion fish > ~/.config/fish/completions/nodedoctor.fish

The script is a snapshot: print it again after an update, or after adding checks.
"""


def main(words: list[str]) -> int:
    """Print the script for a shell."""
    arguments = parser().parse_args(words)
    writer = importlib.import_module(f"nodedoctor.cli.completion.{arguments.shell}")
    try:
        script = writer.script(vocabulary())
    except NodeDoctorError as error:
        return complain(error)
    return Exit.OK if emit(script) else Exit.OUTPUT


def parser() -> Parser:
    """The parser of `nodedoctor completion`."""
    parser = Parser(
        prog="nodedoctor completion",
        description="Print the script that lets a shell complete the words of nodedoctor.",
        epilog=_EPILOG,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    return parser
