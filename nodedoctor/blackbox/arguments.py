"""The words of `nodedoctor watch`, `run` and `arm`."""

from __future__ import annotations

import argparse
import re
import warnings

from nodedoctor.cli.arguments import process_id, seconds, slurm_job
from nodedoctor.cli.console import Parser
from nodedoctor.record import record

DIR = "nodedoctor-jobs"
"""Where folders of jobs go without --dir."""

_WATCH = """\
examples:
  nodedoctor watch                         live load of GPUs, ports and host, on the screen
  nodedoctor watch --job 4242              the job below this process (torchrun's, for instance)
  nodedoctor watch --slurm $SLURM_JOB_ID   this node's tasks of a Slurm job: from a second shell, or a prolog
  nodedoctor watch --ray                   the workers of the raylets on this node

The job is not touched: nothing is set, stopped or ended. When it hangs, every rank's stack is kept and the
verdict is printed, here and in DIR, while the job is still there.

exit codes: 0 no hang was seen, 2 the job hung or its output says that it failed, 64 usage, 74 DIR cannot be
made, 130 interrupted.
"""

_RUN = """\
examples:
  nodedoctor run -- torchrun --nproc-per-node 8 train.py
  nodedoctor run --hang-after 120 --kill-after 15m -- srun python train.py

--kill-after ends a job only where the time is not all that speaks for a hang. Two of these are wanted:
  1  no progress: no step came, NCCL counts the same operations, no rank moved bytes
  2  the Python stacks of all ranks are the same in two looks, and none saves, compiles, evaluates, downloads
  3  the kernel calls a rank stopped, frozen, stuck in state D, or gone
Where they are not there by twice the time, the job lives, and a line says which is missing.

The command runs as it would without us: same output, same signals, same exit code (127 not found, 126 cannot
be started), or, with --decide, with 10 restart, 11 restart without the nodes named, 12 stop, 13 look first.
`nodedoctor arm` prints what is set for it; --no-arm sets nothing.
"""


def duration(text: str) -> float:
    """Seconds, or a number with s, m or h behind it."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"wants seconds, or 15m or 2h, not {text[:40]!r}")
    return seconds(str(float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]))


@record
class KillAfter:
    """Seconds after which a job that hangs is ended; with `force` where one sign of a hang is met."""

    seconds: float
    force: bool = False


def kill_after(text: str) -> KillAfter:
    """A time, perhaps with `,force` behind it."""
    time, comma, word = text.partition(",")
    if comma and word != "force":
        raise argparse.ArgumentTypeError(f"wants TIME or TIME,force, not {text[:40]!r}")
    return KillAfter(duration(time), bool(comma))


def pattern(text: str) -> str:
    """A regular expression."""
    try:
        with warnings.catch_warnings():
            # What may change in a later Python, `[[` for one, is no trouble of the person who typed it.
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(text)
    except RecursionError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is nested too deeply") from None
    except (re.error, OverflowError) as error:  # the latter says which number is too large
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no regular expression: {error}") from None
    return text


def watch() -> Parser:
    """The parser of `nodedoctor watch`."""
    parser = Parser(
        prog="nodedoctor watch",
        description="Live load of this node on the screen; or one job, watched until it ends or hangs.",
        epilog=_WATCH,
    )
    which = parser.add_argument_group("a job").add_mutually_exclusive_group()
    which.add_argument(
        "--job", type=process_id, metavar="PID", help="the job of this process and all below it"
    )
    which.add_argument("--slurm", type=slurm_job, metavar="JOB", help="this node's tasks of a Slurm job")
    which.add_argument("--ray", action="store_true", help="the workers of the raylets on this node")
    _add_watching(parser)
    return parser


def run() -> Parser:
    """The parser of `nodedoctor run`."""
    parser = Parser(
        prog="nodedoctor run",
        usage="nodedoctor run [options] -- COMMAND [ARGUMENT ...]",
        description="Runs a training command and keeps what says why it hung or died.",
        epilog=_RUN,
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to run, after --")
    _add_watching(parser)
    add = parser.add_argument
    add(
        "--kill-after",
        type=kill_after,
        metavar="TIME[,force]",
        help="end the job this long after a hang was seen, given two of three: no progress, unchanged Python"
        " stacks, a process stopped or gone (with force: one)",
    )
    add(
        "--decide",
        action="store_true",
        help="end with the code of `triage --decide`, and not with the command's (0 where it ended well)",
    )
    add(
        "--exclude",
        default="",
        metavar="FILE",
        help="with --decide: add the nodes to leave out to FILE, as sbatch --exclude reads it",
    )
    add("--no-arm", action="store_true", help="set no variable for the job")
    add("--no-stack-hook", action="store_true", help="leave PYTHONPATH alone: stacks by py-spy only")
    return parser


def arm() -> Parser:
    """The parser of `nodedoctor arm`."""
    parser = Parser(
        prog="nodedoctor arm",
        description="Prints what `nodedoctor run` would set for a job, and which captures work on this node.",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--export", action="store_true", help="lines for a shell (default)")
    form.add_argument("--env-file", action="store_true", help="NAME=VALUE lines, for docker run --env-file")
    form.add_argument("--ray", action="store_true", help="a runtime_env for ray.init or `ray job submit`")
    form.add_argument("--sbatch", action="store_true", help="lines for an sbatch script, before srun")
    parser.add_argument("--dir", default=DIR, metavar="DIR", help=f"where it writes (default: {DIR})")
    parser.add_argument("--no-stack-hook", action="store_true", help="leave PYTHONPATH alone")
    return parser


def _add_watching(parser: Parser) -> None:
    group = parser.add_argument_group("the watching")
    add = group.add_argument
    add(
        "--dir",
        default=DIR,
        metavar="DIR",
        help=f"keep what was seen in a new folder in DIR (default: {DIR})",
    )
    add(
        "--hang-after",
        type=duration,
        default=0.0,
        metavar="TIME",
        help="silence after which the job is looked at (default: five steps, at least 60 s)",
    )
    add(
        "--start-grace",
        type=duration,
        default=1800.0,
        metavar="TIME",
        help="time a job without known steps may take to start (default: 30m)",
    )
    add(
        "--progress", type=pattern, default="", metavar="REGEX", help="lines of its output that mean progress"
    )
    add("--on-hang", default="", metavar="'CMD'", help="run this when a hang is seen; $NODEDOCTOR_DIR is set")
