"""`nodedoctor triage`: why a job died, from its logs and dumps, as text or as one JSON document."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from typing import TYPE_CHECKING

from nodedoctor.cli.console import Parser, columns, complain, emit, has_colours, write_stderr
from nodedoctor.cli.exit_codes import Exit, outcome_code
from nodedoctor.errors import NodeDoctorError
from nodedoctor.json_shapes import text, texts
from nodedoctor.report.inert import inert
from nodedoctor.triage.read import search
from nodedoctor.triage.verdict.decision.cli_options import (
    add_decision,
    code_of,
    decision_problem,
    read_nodes,
    witness_of,
    write_exclude,
)
from nodedoctor.triage.verdict.decision.resubmit import with_decision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodedoctor.fleet.gather import Transport
    from nodedoctor.json_shapes import Json
    from nodedoctor.triage.timeline.node_reports import NodeFaults
    from nodedoctor.triage.verdict.result import TriageResult

_EPILOG = """\
examples:
  nodedoctor triage train.log                  one log, or - for standard input
  nodedoctor triage logs/ fr_dumps/            all ranks' logs and flight-recorder dumps together
  nodedoctor triage logs/ --node node1.json    with a node's report or recording
  nodedoctor triage verdict.json               a verdict that --json wrote, shown again
  nodedoctor triage logs/ --decide --exclude bad.txt    what to do with the job, for scripts
  nodedoctor triage --live                     a job that hangs on this machine now
  nodedoctor triage --live --slurm 4711        one that hangs on many nodes (or --ray --ssh --kube)

exit codes: 0 no failure, 2 a cause was found, 3 a failure whose cause cannot be determined, 64 usage.
With --decide: 0 nothing to do, 10 restart, 11 restart without the nodes named, 12 stop: the same will happen
again, 13 look first.
"""


def main(words: list[str]) -> int:
    """Run triage; returns the exit code."""
    from nodedoctor.cli import outputs

    start_time = time.monotonic()
    arguments = parser().parse_args(words)
    arguments.words = words
    if problem := outputs.no_folder(arguments, "debug_log", "exclude"):
        return complain(problem)
    outputs.start_debug_log(arguments)
    # With a deadline the ends of logs are read first, which needs the cores.
    searches = {} if arguments.deadline else search.start_searches(arguments.paths)
    from nodedoctor.triage.job import examine_job  # the search runs while this is loaded
    from nodedoctor.triage.verdict import document

    if problem := _live_problem(arguments) or decision_problem(arguments):
        return complain(problem)
    if arguments.live is not None:
        return _judge_live(arguments)
    if callable(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what was read by then is judged
    if not arguments.paths:
        return complain("triage: expected logs, dumps or folders of them (see `nodedoctor triage --help`)")
    try:
        if (saved_verdict := document.verdict_of(arguments.paths)) is not None:
            return _show_again(arguments, saved_verdict)
        nodes = read_nodes(arguments)
        examined = examine_job(
            arguments.paths,
            nodes,
            look_here=not arguments.no_node,
            job=arguments.job,
            searches=searches,
            seconds=arguments.deadline,
            start_time=start_time,
        )
    except NodeDoctorError as error:
        return complain(error)
    if examined.verdict.outcome == "nothing" and (problem := _of_nodes(arguments.paths)):
        return complain(problem)
    return _write_outputs(arguments, examined, nodes)


def _of_nodes(paths: list[str]) -> str:
    """What reads files in which there is nothing but outputs of nodes; "" where there is anything else."""
    from nodedoctor.intake.hint import read_instead

    hints = [read_instead(path, wholly=True) for path in paths]
    return f"triage: {paths[0]}: not a job's log: {hints[0]}" if all(hints) else ""


def _judge_live(arguments: argparse.Namespace) -> int:
    """Look at a job that runs, here or on all its nodes, and judge what is seen."""
    from nodedoctor.blackbox import live
    from nodedoctor.cli import endings
    from nodedoctor.triage.live.examine import judge_live

    deadline = arguments.deadline or live.DEADLINE
    where = live.Where(tuple(arguments.live), arguments.slurm or "", arguments.ray is not None)
    if arguments.capture:
        return Exit.OK if emit(live.answer(endings.run(live.look_here(where, deadline)))) else Exit.OUTPUT
    transport = _transport_to_nodes(arguments)
    if transport is None:
        return _write_outputs(arguments, judge_live(endings.run(live.look_here(where, deadline))))
    from nodedoctor.fleet.model import FleetRequest

    words = ["triage", "--live", "--capture"]
    words += [f"--slurm={arguments.slurm}"] if arguments.slurm else []
    words += ["--ray"] if arguments.ray is not None else []
    request = FleetRequest(tuple(words), deadline, pyz=arguments.pyz or None)
    try:
        return _write_outputs(arguments, judge_live(endings.run(live.look_over(transport, request))))
    except NodeDoctorError as error:
        return complain(error)


def _transport_to_nodes(arguments: argparse.Namespace) -> Transport | None:
    """The way to the nodes of the job; None for this machine alone."""
    if arguments.ssh:
        from nodedoctor.fleet.transports.ssh import Ssh

        return Ssh(arguments.ssh)
    if arguments.slurm:
        from nodedoctor.fleet.transports.slurm.transport import Slurm

        return Slurm(job=arguments.slurm)
    if arguments.ray is not None:
        from nodedoctor.fleet.transports.ray import Ray

        return Ray(arguments.ray, arguments.python)
    if arguments.kube:
        from nodedoctor.fleet.transports.kube import Kube

        return Kube(arguments.kube, every=True)
    return None


def _live_problem(arguments: argparse.Namespace) -> str:
    """What is wrong with the words about a running job."""
    routes = [name for name in ("ssh", "slurm", "ray", "kube") if getattr(arguments, name) not in ("", None)]
    options = [*routes, *(name for name in ("capture", "pyz", "python") if getattr(arguments, name))]
    if options and arguments.live is None:
        return f"triage: --{options[0]} is for a job that runs: add --live"
    if arguments.live is not None and arguments.paths:
        return f"triage: {arguments.paths[0]}: process ids come right behind --live, and no logs with it"
    if routes and arguments.live:
        return f"triage: --{routes[0]} looks at all ranks there; leave the process ids out"
    return ""


def _write_outputs(
    arguments: argparse.Namespace, examined: TriageResult, nodes: Sequence[NodeFaults] = ()
) -> int:
    """Show the document, write the page of it if that was asked for, and say the verdict as a number."""
    from nodedoctor.triage.verdict import document

    content = document.make_document(examined.verdict, examined.lines.line_of, witness_of(nodes))
    code = Exit.INTERRUPTED if examined.interrupted else outcome_code(examined.verdict.outcome)
    return _show_document(arguments, content, code)


def _show_again(arguments: argparse.Namespace, content: Json) -> int:
    """Show a verdict that was saved; it ends with the code that it ended with then, or is decided again."""
    if arguments.decide and not arguments.job:
        again = with_decision(content, witness_of(read_nodes(arguments)))
        return _show_document(arguments, again, Exit.OK)
    if arguments.node or arguments.reports or arguments.job:
        option = "--job" if arguments.job else "--node" if arguments.node else "--reports"
        return complain(f"triage: {arguments.paths[0]}: a saved verdict; {option} needs the logs themselves")
    return _show_document(arguments, content, outcome_code(str(content.get("outcome"))))


def _show_document(arguments: argparse.Namespace, content: Json, verdict: int) -> int:
    from nodedoctor.cli import outputs
    from nodedoctor.tui import start

    if arguments.decide and verdict != Exit.INTERRUPTED:
        if problem := write_exclude(arguments.exclude, texts(content, "exclude")):
            write_stderr(problem)
            return Exit.OUTPUT
        verdict = code_of(text(content, "decision"))
    if arguments.redact:
        from nodedoctor.redact.documents import redacted_triage

        content = redacted_triage(content)
    code = None
    if start.possible() and not (arguments.json or arguments.text or arguments.decide):
        again = () if "-" in arguments.paths or arguments.html else arguments.words
        code = start.show_triage(content, again)
    elif not emit(_render_page(arguments, content)):
        return Exit.OUTPUT
    if code := code or outputs.write(arguments, lambda: content):
        return code
    return verdict


def _render_page(arguments: argparse.Namespace, content: Json) -> str:
    if arguments.json:
        from nodedoctor.triage.verdict import document

        return document.render_text(content) + "\n"
    if arguments.decide and not arguments.text:
        return inert(text(content, "decision_line")) + "\n"
    from nodedoctor.report import job_text

    on_terminal = sys.stdout.isatty()
    width = min(columns(), 110) if on_terminal else 100
    colour = on_terminal and has_colours()
    return job_text.render(content, width=width, colour=colour, verbose=arguments.verbose)


def _add_live(group: argparse._ArgumentGroup) -> None:
    from nodedoctor.cli.arguments import seconds, slurm_job

    where = group.add_mutually_exclusive_group().add_argument
    where("--slurm", type=slurm_job, metavar="JOB", help="on all nodes of this Slurm job")
    where("--ray", nargs="?", const="auto", metavar="ADDRESS", help="on all nodes of a Ray cluster")
    where("--ssh", default="", metavar="NODES", help="on a node set: gpu-[001-128]")
    where("--kube", default="", metavar="NAMESPACE/SELECTOR", help="in these pods (kubectl exec)")
    add = group.add_argument
    add(
        "--deadline",
        type=seconds,
        metavar="SECONDS",
        help="end by then; large logs are read from their end first (with --live: for each node, default 60)",
    )
    add("--pyz", default="", metavar="FILE", help="the single file to bring to nodes without nodedoctor")
    add("--python", default="", metavar="PATH", help="the Python that has Ray, for --ray")
    add("--capture", action="store_true", help="only print what this node sees, as JSON that triage reads")


def parser() -> Parser:
    """The parser of `nodedoctor triage`."""
    from nodedoctor.cli import outputs
    from nodedoctor.cli.arguments import process_id

    result = Parser(
        prog="nodedoctor triage",
        description="Diagnose why a job died: the guilty rank, the evidence, the fix, and what is not "
        "the cause.",
        epilog=_EPILOG,
    )
    add = result.add_argument
    add(
        "paths",
        nargs="*",
        metavar="PATH",
        help="logs, flight-recorder dumps, folders, patterns; - is standard input; or one saved verdict",
    )
    add(
        "--node",
        action="append",
        default=[],
        metavar="FILE",
        help="a node's report (--json) or recording (--record): what was wrong there when the job died",
    )
    add(
        "--no-node",
        action="store_true",
        help="do not look at this machine; else its checks are asked when the logs evidently come from it",
    )
    add(
        "--job",
        default="",
        metavar="ID",
        help="of several jobs in the logs, judge this one (default: the newest); the list is in `jobs`",
    )
    add(
        "--live",
        nargs="*",
        type=process_id,
        metavar="PID",
        help="a job that hangs on this machine now; touches nothing",
    )
    add_decision(result)
    _add_live(result.add_argument_group("a job that runs (with --live)"))
    add(
        "--redact",
        action="store_true",
        help="in all outputs, stand-ins for names of hosts, users and jobs, addresses and serials",
    )
    outputs.add(result, "html")
    form = result.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document on stdout")
    form.add_argument("--text", action="store_true", help="readable text on stdout, also on a terminal")
    add("-v", "--verbose", action="store_true", help="list the errors that decided nothing, and why")
    outputs.add_debug_log(result)
    return result
