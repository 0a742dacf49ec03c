"""What can be asked on the command line, in words; `main.py` does it."""

from __future__ import annotations

import argparse

from nodedoctor import __version__
from nodedoctor.cli import outputs
from nodedoctor.cli.console import Parser

DAY = 86_400
"""Seconds that can be waited for at most; ours."""


def seconds(text: str) -> float:
    """A time somebody types."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= DAY:
        raise argparse.ArgumentTypeError(f"wants seconds, more than 0 and up to {DAY}, not {text[:40]!r}")
    return value


def _hosts(text: str) -> list[str]:
    """Names or addresses of nodes, or a node set; nothing that a command could take for an option."""
    from nodedoctor.nodeset import NodeSetError, named

    try:
        hosts = named(text)
    except NodeSetError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not hosts:
        raise argparse.ArgumentTypeError(f"{text!r} is no name or address of a node")
    return hosts


_EPILOG = """\
examples:
  nodedoctor                       what is wrong with this node, and what to do about it
  nodedoctor driver limits.shm     one subject and one check
  nodedoctor --tag fast -q         problems only, in well under a second
  nodedoctor --json --expect gpus=8 > report.json     in a provisioning script
  nodedoctor --exec 'docker exec trainer' stack       judge the Python inside a container
  nodedoctor --record node.zip     keep what was seen; read it anywhere with --replay node.zip

also:
  nodedoctor triage PATH ...       why a job died: logs, flight-recorder dumps; --live for one that hangs now
  nodedoctor fleet --ssh gpu-[001-128]                many nodes (or --slurm --ray --reports): the odd one
  nodedoctor list checks|facts|probes|knowledge       what there is
  nodedoctor explain WORD          a check, an Xid (79), an environment variable, a cause
  nodedoctor demo [NAME]           recorded nodes that ship with the tool
  nodedoctor watch                 live load of GPUs, ports and host; marks the straggler
  nodedoctor compare BEFORE AFTER  what changed between two reports or recorded nodes; 2 if it got worse
  nodedoctor expect                what this healthy node has, for --expect FILE on the others
  nodedoctor schema report|triage|fleet|pairs|snapshot  JSON Schemas of what is written
  nodedoctor completion bash|zsh|fish                 a script that completes all of this

exit codes: 0 nothing failed, 1 warnings (only with --fail-on warn), 2 something failed,
3 something could not be judged because it hung or crashed, 64 usage, 70 a bug, 74 output
could not be written, 130 interrupted. nodedoctor changes nothing on the node.
"""


def parser() -> Parser:
    """The parser of `nodedoctor [CHECK ...]`."""
    made = Parser(
        prog="nodedoctor",
        usage="nodedoctor [options] [CHECK ...]\n"
        "       nodedoctor triage | fleet | watch | compare | expect | demo | list | explain | ...",
        description="The doctor for GPU training nodes: what is sick, the evidence, the fix.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add(
        "checks",
        nargs="*",
        metavar="CHECK",
        help="a check (limits.shm) or a subject (limits); all by default",
    )
    add("--version", action="version", version=f"nodedoctor {__version__}")
    _add_selection(made.add_argument_group("what to look at"))
    _add_node(made.add_argument_group("where to look"))
    _add_output(made.add_argument_group("output"))
    return made


def _add_selection(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--tag",
        action="append",
        default=[],
        metavar="TAG",
        help="only checks with this tag (fast, nvlink, ...)",
    )
    add("--deep", action="store_true", help="also what takes minutes or imports torch (deadline 900 s)")
    add("--passive", action="store_true", help="put no load on GPUs: no copies, no collectives")
    add(
        "--expect",
        action="append",
        default=[],
        metavar="K=V|FILE",
        help="what this node must have, e.g. gpus=8; absence is then a failure",
    )
    add(
        "--peers",
        action="extend",
        type=_hosts,
        default=[],
        metavar="HOST,...",
        help="also try the way to these nodes (of more than 16 to four): ping, packet size, rendezvous port",
    )
    add("--since", default="", metavar="24h", help="how far back logs count (default: since boot)")
    add("--checks", dest="check_folders", action="append", default=[], metavar="DIR", help="more check files")


def _add_node(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--python", default="", metavar="PATH", help="the Python that trains")
    add("--exec", default="", metavar="'CMD'", help="a prefix that reaches it, e.g. 'docker exec trainer'")
    add(
        "--env-file",
        default="",
        metavar="FILE",
        help="also judge this environment of a job (NAME=VALUE lines)",
    )
    add("--replay", default="", metavar="PATH", help="diagnose a recorded node instead of this machine")
    add("--root", default="/", metavar="DIR", help="this machine's /sys /proc /etc ... are mounted below DIR")
    add(
        "--deadline",
        type=seconds,
        metavar="SECONDS",
        help="for the whole run (default 50, 900 with deep checks)",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    form = group.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document on stdout")
    form.add_argument("--text", action="store_true", help="readable text on stdout: each cause on one screen")
    form.add_argument("--summary", action="store_true", help="one line: the worst cause and what to do")
    form.add_argument(
        "--tui", action="store_true", help="the screen, even with stdout redirected (JSON at exit)"
    )
    add = group.add_argument
    add("-q", dest="quiet", action="store_true", help="text: only what is wrong")
    add("-v", dest="verbose", action="store_true", help="text: every check, with all evidence and all steps")
    add("--record", default="", metavar="FILE", help="keep what was seen, as a zip for --replay")
    add(
        "--redact",
        action="store_true",
        help="in recordings and all other outputs, stand-ins for names, addresses, serials, UUIDs and users",
    )
    outputs.add(group)
    add(
        "--fail-on",
        choices=("fail", "unknown", "warn"),
        default="fail",
        help="what makes the exit code non-zero (default: fail)",
    )
    add("--exit-zero", action="store_true", help="exit 0 whatever was found")
    outputs.add_debug_log(group)
