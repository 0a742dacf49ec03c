"""What can be asked of `nodedoctor fleet`, in words; `cli.py` does it."""

from __future__ import annotations

import argparse

from nodedoctor.cli import outputs
from nodedoctor.cli.arguments import seconds
from nodedoctor.cli.console import Parser
from nodedoctor.fleet import ending

WIDEST = 4096
"""Nodes that can be asked at once; ours."""

_EPILOG = """\
examples:
  nodedoctor fleet --ssh gpu-[001-128]              every check on every node, and who is different
  nodedoctor fleet --slurm '-p train' nvlink ib     two subjects on the nodes of a partition
  nodedoctor fleet --kube training/app=llama        from inside the pods of a job, one on each node
  nodedoctor fleet --reports reports/               reports that are there already (*.json, *.json.gz)
  nodedoctor fleet --ssh gpu-[001-128] --pairs      measure nodes against each other: which node, which link
  nodedoctor fleet --ssh gpu-[001-128] --accept     rates of every node, and which is slower than the rest
  nodedoctor fleet --slurm '-p train' --gate --need 16 --passing good.txt    nodes on which a job may start
  nodedoctor fleet --slurm --peers --failing bad.txt; [ -s bad.txt ] && x=--exclude=./bad.txt; srun $x ...

exit codes: the worst of all nodes: 0 nothing failed, 1 warnings (only with --fail-on warn), 2 something
failed, 3 a node gave no report or could not be judged; 64 usage, 74 output could not be written, 130
interrupted. A node without a report is in --failing; one that skipped every check is in neither list.
"""


def parser() -> Parser:
    """The parser of `nodedoctor fleet`."""
    parser = Parser(
        prog="nodedoctor fleet",
        usage="nodedoctor fleet (--ssh NODES | --slurm [OPTIONS] | --ray [ADDRESS] | --kube PODS | "
        "--reports PATH ...) [options] [CHECK ...]",
        description="Many nodes: ask each, put the reports side by side, name the one that is different.",
        epilog=_EPILOG,
    )
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="a check or a subject; all by default")
    _add_ways(parser.add_argument_group("which nodes").add_mutually_exclusive_group(required=True))
    _add_selection(parser.add_argument_group("what the nodes look at"))
    _add_asking(parser.add_argument_group("how they are asked"))
    _add_pairs(parser.add_argument_group("between nodes (puts load on idle nodes)"))
    _add_output(parser.add_argument_group("output"))
    return parser


def _add_ways(group: argparse._MutuallyExclusiveGroup) -> None:
    add = group.add_argument
    add("--ssh", metavar="NODES", help="a node set: gpu-[001-128],login; @FILE or - reads one")
    add(
        "--slurm", nargs="?", const="", metavar="OPTIONS", help="Slurm nodes; OPTIONS as for srun: '-p train'"
    )
    add("--ray", nargs="?", const="auto", metavar="ADDRESS", help="the nodes of a Ray cluster")
    add(
        "--kube", metavar="NAMESPACE/SELECTOR", help="one pod on each node: training/app=llama (kubectl exec)"
    )
    add("--reports", nargs="+", metavar="PATH", help="files and folders of reports made with --json")


def _add_selection(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--tag", action="append", default=[], metavar="TAG", help="only checks with this tag")
    add("--expect", action="append", default=[], metavar="K=V|FILE", help="what every node must have")
    add(
        "--gate",
        action="store_true",
        help="on which nodes may new jobs start: exit 0 when --need of them pass (all, without), else 2",
    )
    add(
        "--accept",
        action="store_true",
        help="is every node as fast as it must be, and as the others: `nodedoctor accept` on idle nodes",
    )
    add("--passive", action="store_true", help="put no load on GPUs")
    add("--deep", action="store_true", help="also what takes minutes")
    add("--preview", action="store_true", help="checks that were never seen on real hardware may fail, too")
    add("--peers", action="store_true", help="every node also tries the way to others")
    add("--since", default="", metavar="24h", help="how far back logs count (default: since boot)")
    add(
        "--python",
        default="",
        metavar="PATH",
        help="the training Python on the nodes; with --ray also here",
    )
    add("--exec", default="", metavar="'CMD'", help="a prefix that reaches it, on the nodes")


def _add_asking(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--deadline", type=seconds, metavar="SECONDS", help="for each node (default 50, 900 with --deep)")
    add("--width", type=_read_width, default=64, metavar="N", help="nodes asked at once (default 64)")
    add("--pyz", default="", metavar="FILE", help="the single file to bring to nodes without nodedoctor")
    add("--save", default="", metavar="DIR", help="keep every node's report there, as NODE.json")


def _add_pairs(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--pairs",
        nargs="?",
        const="auto",
        choices=("auto", "all", "ring", "sample", "bisect"),
        help="measure nodes in pairs: all up to 32 nodes, above that a sample; at most 15 minutes",
    )
    add(
        "--what",
        choices=("auto", "tcp", "rails", "rdma", "collective"),
        default="auto",
        help="TCP, TCP on each rail (interface of highest speed), ib_write_bw on each rail, or all-reduces "
        "of torch (auto: RDMA where all can, else TCP)",
    )
    add(
        "--size",
        type=size,
        default=0,
        metavar="BYTES",
        help="bytes each way, as 256M, if less than --seconds",
    )
    add("--seconds", type=load_seconds, default=3.0, metavar="N", help="load of each round (default 3)")
    add(
        "--topology",
        default="",
        metavar="FILE",
        help="leaf switches: topology.conf, ibnetdiscover, `node leaf`",
    )
    add("--load-busy", action="store_true", help="measure nodes that are not idle too")
    add("--dry-run", action="store_true", help="say the plan and its duration, run nothing")


def _add_output(group: argparse._ArgumentGroup) -> None:
    form = group.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document on stdout")
    form.add_argument("--text", action="store_true", help="readable text on stdout")
    outputs.add(group, "html", "junit")
    add = group.add_argument
    add("--passing", default="", metavar="FILE", help="also write the nodes a job can use, one a line")
    add("--failing", default="", metavar="FILE", help="also write the others, one a line")
    add(
        "--max-failing",
        type=ending.limit,
        metavar="N|N%",
        help="write no --failing when more nodes fail for one cause (default 10%%, at least 2)",
    )
    add("--need", type=_read_width, metavar="N", help="with --gate: how many nodes must pass")
    add("--report-only", action="store_true", help="write no node lists, and exit 0 whatever was found")
    add(
        "--redact",
        action="store_true",
        help="in all outputs but the node lists, stand-ins for names, users, addresses and serials",
    )
    add("-q", dest="quiet", action="store_true", help="only problems")
    add(
        "--fail-on",
        choices=("fail", "unknown", "warn"),
        help="what makes the exit code non-zero (default: fail)",
    )
    add("--exit-zero", action="store_true", help="exit 0 whatever was found")
    outputs.add_debug_log(group)


def _read_width(text: str) -> int:
    value = int(text) if text.isdecimal() and len(text) < 9 else 0
    if not 0 < value <= WIDEST:
        raise argparse.ArgumentTypeError(f"wants a number of nodes from 1 to {WIDEST}, not {text!r}")
    return value


_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def size(word: str) -> int:
    """`--size`: bytes each way, as 256M; ArgumentTypeError for anything else."""
    unit = _UNITS.get(word[-1:].lower(), 1)
    number = word[:-1] if unit > 1 else word
    if not number.isdecimal() or len(number) > 6 + 6 * (unit == 1) or not int(number):
        raise argparse.ArgumentTypeError(f"wants bytes like 256M, not {word!r}")
    return int(number) * unit


def load_seconds(word: str) -> float:
    """`--seconds`: from 1 to 60; ArgumentTypeError for anything else."""
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 60:
        raise argparse.ArgumentTypeError(f"wants seconds from 1 to 60, not {word!r}")
    return value
