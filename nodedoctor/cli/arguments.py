"""What can be asked on the command line, in words; `main.py` does it."""

from __future__ import annotations

import argparse

from nodedoctor import __version__
from nodedoctor.cli import outputs
from nodedoctor.cli.console import Parser
from nodedoctor.whole_numbers import whole_number

DAY = 86_400
"""Seconds that can be waited for at most; ours."""


def seconds(text: str) -> float:
    """A time somebody types."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= DAY:
        raise argparse.ArgumentTypeError(f"expected seconds, more than 0 and up to {DAY}, not {text[:40]!r}")
    return value


def process_id(text: str) -> int:
    """The id of a process that somebody types."""
    from nodedoctor.triage.model import LARGEST_PID

    pid = whole_number(text, LARGEST_PID, 1)
    if pid is None:
        raise argparse.ArgumentTypeError(f"expected a process id, not {text[:40]!r}")
    return pid


def slurm_job(text: str) -> str:
    """The number of a Slurm job that somebody types."""
    if not text.isdecimal() or len(text) > 10:
        raise argparse.ArgumentTypeError(f"expected the number of a Slurm job, not {text[:40]!r}")
    return text


def _host_names(text: str) -> list[str]:
    """Names or addresses of nodes, or a node set; nothing that a command could take for an option."""
    from nodedoctor.nodeset import NodeSetError, expand_nodes

    try:
        hosts = expand_nodes(text)
    except NodeSetError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not hosts:
        raise argparse.ArgumentTypeError(f"{text!r} is not a name or address of a node")
    return hosts


def command_words(prefix: str) -> tuple[str, ...]:
    """The words of a command prefix, as a shell splits them; UsageError where it is no command."""
    import shlex

    from nodedoctor.engine.session import UsageError

    try:
        return tuple(shlex.split(prefix))
    except ValueError as error:
        raise UsageError(f"--exec {prefix}: {error}") from None


_EPILOG = """\
examples:
  nodedoctor                       what is wrong with this node, and how to fix it
  nodedoctor driver limits.shm     all driver checks, and one check of limits
  nodedoctor --tag fast -q         problems only, in well under a second
  nodedoctor --gate                in a prolog: may new jobs start on this node
  nodedoctor --json --expect gpus=8 > report.json     in a provisioning script
  nodedoctor --exec 'docker exec trainer' stack       check the Python inside a container
  nodedoctor --record node.zip     record this node; read it anywhere with --replay node.zip

also:
  nodedoctor triage PATH ...       why a job died: logs, flight-recorder dumps; --live for one that hangs now
  nodedoctor read PATH ...         judge pasted outputs, a bug report, a sosreport, a mail, logs
  nodedoctor mcp                   read-only tools for a coding agent, over stdio
  nodedoctor accept                is this node as fast as it must be: rates against floors, peers, its past
  nodedoctor history --journal DIR                    what earlier runs with --journal DIR found on this node
  nodedoctor fleet --ssh gpu-[001-128]                many nodes (or --slurm --ray --kube ...): the odd one
  nodedoctor list checks|facts|probes|knowledge       all checks, facts, probes, knowledge
  nodedoctor explain WORD          a check, an Xid (79), an environment variable, a cause
  nodedoctor demo [NAME]           recorded nodes that ship with the tool
  nodedoctor run -- torchrun ...   run a job; when it hangs, keep every rank's stack and say who holds it up
  nodedoctor watch [--job PID]     live load of this node; or a job that runs already, watched until it hangs
  nodedoctor arm                   what to set for a job, so that its next hang leaves evidence
  nodedoctor compare BEFORE AFTER  changes between two reports or recorded nodes; exit code 2 if worse
  nodedoctor expect                write an --expect file for other nodes from this healthy node
  nodedoctor schema report|triage|fleet|pairs|run|...  JSON Schemas of the documents
  nodedoctor completion bash|zsh|fish                 shell completion script

exit codes: 0 nothing failed, 1 warnings (only with --fail-on warn), 2 something failed,
3 something could not be judged because it hung or crashed, 64 usage, 70 a bug, 74 output
could not be written, 130 interrupted; with --gate: 0 new jobs may start, 2 no new jobs, 3 not judged, 4
drain when idle. nodedoctor changes nothing on the node but the journal of --journal.
"""


def parser() -> Parser:
    """The parser of `nodedoctor [CHECK ...]`."""
    parser = Parser(
        prog="nodedoctor",
        usage="nodedoctor [options] [CHECK ...]\n"
        "       nodedoctor triage | read | accept | fleet | run | watch | arm | compare | explain | ...",
        description="Diagnose a GPU training node: what is broken, the evidence, the fix.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add(
        "checks",
        nargs="*",
        metavar="CHECK",
        help="check id (limits.shm) or subject (limits); default: all checks",
    )
    add("--version", action="version", version=f"nodedoctor {__version__}")
    _add_selection(parser.add_argument_group("which checks run"))
    _add_node(parser.add_argument_group("which node, container or recording"))
    _add_output(parser.add_argument_group("output"))
    return parser


def _add_selection(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--tag",
        action="append",
        default=[],
        metavar="TAG",
        help="run only checks with this tag (fast, nvlink, ib, ...)",
    )
    add(
        "--deep",
        action="store_true",
        help="also run active tests: minutes of load on GPUs and disks, some import torch (deadline 900 s)",
    )
    add(
        "--gate",
        action="store_true",
        help="answer whether new jobs may start: one line, exit 0 yes, 2 no, 3 not judged, 4 drain when "
        "idle (implies --passive, deadline 8 s)",
    )
    add("--passive", action="store_true", help="put no load on GPUs: no copies, no collectives")
    add(
        "--expect",
        action="append",
        default=[],
        metavar="K=V|FILE",
        help="expected property of this node, e.g. gpus=8, or a file of such lines; FAIL if it differs",
    )
    add(
        "--peers",
        action="extend",
        type=_host_names,
        default=[],
        metavar="HOST,...",
        help="also test connections to these hosts: ping, path MTU, rendezvous port (more than "
        "16: to four of them)",
    )
    add(
        "--since", default="", metavar="24h", help="how far back to read logs, e.g. 24h (default: since boot)"
    )
    add(
        "--checks",
        dest="check_folders",
        action="append",
        default=[],
        metavar="DIR",
        help="directory with additional check files",
    )
    add("--preview", action="store_true", help="let checks never seen on real hardware fail too")


def add_training_python(group: argparse._ActionsContainer) -> None:
    """Offer `--python` and `--exec`; `command_words` splits the second."""
    add = group.add_argument
    add("--python", default="", metavar="PATH", help="path of the training Python interpreter")
    add("--exec", default="", metavar="'CMD'", help="command prefix to run it, e.g. 'docker exec trainer'")


def _add_node(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add_training_python(group)
    add(
        "--env-file",
        default="",
        metavar="FILE",
        help="also check this job environment (lines NAME=VALUE)",
    )
    add(
        "--replay",
        default="",
        metavar="PATH",
        help="diagnose a recorded node (zip or directory) instead of this machine",
    )
    add(
        "--root",
        default="/",
        metavar="DIR",
        help="directory where this machine's /sys /proc /etc ... are mounted",
    )
    add(
        "--deadline",
        type=seconds,
        metavar="SECONDS",
        help="time limit of the whole run in seconds (default 50, with --deep 900, with --gate 8)",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    form = group.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    form.add_argument(
        "--text", action="store_true", help="print readable text on stdout: each cause on one screen"
    )
    form.add_argument("--summary", action="store_true", help="print one line: the worst cause and its action")
    form.add_argument(
        "--tui",
        action="store_true",
        help="open the terminal screen, even with stdout redirected (JSON at exit)",
    )
    add = group.add_argument
    add("--mouse", action="store_true", help="let the screen take clicks and the wheel (key there: m)")
    add("-q", dest="quiet", action="store_true", help="with --text: print only problems")
    add(
        "-v",
        dest="verbose",
        action="store_true",
        help="with --text: print every check, all evidence and all steps",
    )
    add(
        "--journal",
        default="",
        metavar="DIR",
        help="append a line about this run to the journal there",
    )
    add("--record", default="", metavar="FILE", help="record all observations in a zip file for --replay")
    add(
        "--redact",
        action="store_true",
        help="replace names, addresses, serials, UUIDs and users in recordings and all other outputs",
    )
    outputs.add(group)
    add(
        "--fail-on",
        choices=("fail", "unknown", "warn"),
        help="lowest status that makes the exit code non-zero (default: fail)",
    )
    add("--exit-zero", action="store_true", help="exit 0 whatever the result")
    outputs.add_debug_log(group)
