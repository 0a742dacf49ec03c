"""`nodedoctor mcp`: diagnose, explain, triage, read and fleet reports as tools of an agent."""

from __future__ import annotations

import os

from nodedoctor.cli.console import Parser, complain
from nodedoctor.cli.exit_codes import Exit

_EPILOG = """\
An agent starts it and speaks the Model Context Protocol with it over stdin and stdout; it listens nowhere.
All tools only read: diagnose puts no load on GPUs, and files outside of the folders of --allow are refused.

examples:
  pip install 'nodedoctor[mcp]'
  {"mcpServers": {"nodedoctor": {"command": "nodedoctor", "args": ["mcp", "--allow", "/shared/logs"]}}}
"""


def main(words: list[str]) -> int:
    """Serve until standard input ends; returns the exit code."""
    arguments = parser().parse_args(words)
    if wrong := next((folder for folder in arguments.allow if not os.path.isdir(folder)), ""):
        return complain(f"--allow: no folder {wrong}")
    try:
        import mcp.server.lowlevel  # noqa: F401
        import mcp_types  # noqa: F401
    except ImportError as error:
        return complain(f"mcp needs the package of that name: pip install 'nodedoctor[mcp]' ({error})")
    from nodedoctor.agent.server import serve
    from nodedoctor.agent.tools import Limits

    serve(Limits(tuple(map(os.path.realpath, arguments.allow)), redact=not arguments.no_redact))
    return Exit.OK


def parser() -> Parser:
    """The parser of `nodedoctor mcp`."""
    command = Parser(
        prog="nodedoctor mcp",
        description="Offer read-only tools to a coding agent (Model Context Protocol, stdio only).",
        epilog=_EPILOG,
    )
    add = command.add_argument
    add("--allow", action="append", default=[], metavar="DIR", help="a folder whose files may be read")
    add("--no-redact", action="store_true", help="give real names, addresses and serials to the agent")
    return command
