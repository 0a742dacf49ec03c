"""What to do about one kind of evidence, filled with the ports, addresses and devices that its line names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from nodedoctor.model import Fix
from nodedoctor.steps import look, repair
from nodedoctor.triage.events.nccl import DuplicateGpu
from nodedoctor.triage.events.sign import Symptom
from nodedoctor.triage.events.system.exits import Ended, Exit
from nodedoctor.triage.events.system.kernel import Xid
from nodedoctor.triage.model import Event

Fixes = tuple[Fix, ...]

_PORT = re.compile(r"(?:port:? ?|\]:|\d:|\w:)(\d{2,5})\b")
_ADDRESS = re.compile(r"(?:onnect to |\[|\()([\w.-]+?)\]?(?:[<:]|, )(\d{2,5})")
_HCA = re.compile(r"\b((?:mlx5|bnxt_re|irdma|hfi1|rocep\w*|ibp\w*)_\w+)\b")


def remedies(event: Event[Any]) -> Fixes:
    """The fixes that this event's own kind asks for; none when its cause's general ones are right."""
    what = event.what
    if isinstance(what, Symptom):
        made = _BY_NAME.get(what.name)
        return made(event.text) if made is not None else ()
    if isinstance(what, DuplicateGpu):
        return (
            Fix("Start one rank per GPU: as many ranks as CUDA_VISIBLE_DEVICES shows GPUs.", (), "config"),
        )
    if isinstance(what, Xid):
        return _xid(what)
    if isinstance(what, Ended):
        return _ended(what.signal)
    return _exit(what.signal) if isinstance(what, Exit) else ()


def _xid(what: Xid) -> Fixes:
    if what.switch:
        return ()
    return (
        Fix("See what this Xid means and asks for.", (look("nodedoctor explain {}", what.code),)),
        Fix("Diagnose the node before the next job.", (look("nodedoctor"),), "drain"),
    )


def _ended(signal: int) -> Fixes:
    if signal == 1:
        text = "Start the job where the end of a terminal does not reach it: tmux, nohup or a batch system."
        return (Fix(text, (look("tmux new -s train"),), "config"),)
    return (
        Fix("Ask the scheduler who ended the job, and why: nothing in the job failed.", (), "investigate"),
    )


def _exit(signal: int | None) -> Fixes:
    if signal not in (4, 7, 8, 11):
        return ()
    return (
        Fix(
            "It crashed in native code: let it leave its Python stack, and look for the library it was in.",
            (
                look("export PYTHONFAULTHANDLER=1"),
                look("dmesg -T | grep -iE 'segfault|trap|general protection'"),
            ),
        ),
    )


def _port_in_use(text: str) -> Fixes:
    port = _PORT.search(text)
    steps = (look("ss -ltnp {}", f"sport = :{port[1]}"),) if port else (look("ss -ltnp"),)
    return (
        Fix("See which process has the port: often the rest of the last run.", steps),
        Fix(
            "Or let the job choose a free one: --rdzv-endpoint with port 0, or another master port.",
            (),
            "config",
        ),
    )


def _refused(text: str) -> Fixes:
    where = _ADDRESS.search(text)
    steps = (look("nc -zv {} {}", where[1], where[2]),) if where else ()
    if "refused" in text:
        why = (
            "The host was reached and nobody listens: its process is gone or was never started. Read its log."
        )
    else:
        why = "Check that this address is reached from every node, and that no firewall is between."
    return (
        Fix(why, steps),
        Fix("See which interface has the way to it.", (look("ip -br addr"), look("ip route"))),
    )


def _limit(name: str, ulimit: str) -> Callable[[str], Fixes]:
    def fixes(_: str) -> Fixes:
        return (
            Fix(
                f"Raise the limit of {name} for the process that hit it, before it is started: for Ray before"
                " `ray start`, for a service in its unit, for a container with --ulimit.",
                (repair(ulimit),),
                "config",
            ),
            Fix("See the limits of what runs.", (look("nodedoctor limits"),)),
        )

    return fixes


def _text(*texts: str) -> Callable[[str], Fixes]:
    return lambda _: tuple(Fix(text, (), "config") for text in texts)


def _steps(text: str, *commands: str) -> Callable[[str], Fixes]:
    return lambda _: (Fix(text, tuple(look(command) for command in commands)),)


def _adapter(text: str) -> Fixes:
    found = _HCA.search(text)
    first = Fix("Check the ports and links on both ends.", (look("nodedoctor ib"), look("ibstat")))
    if found is None:
        return (first,)
    without = repair("export NCCL_IB_HCA={}", f"^{found[1]}")
    return (first, Fix("Leave the adapter out until it is repaired.", (without,), "config"))


_BY_NAME: dict[str, Callable[[str], Fixes]] = {
    "port-in-use": _port_in_use,
    "connect-failed": _refused,
    "store-unreachable": _refused,
    "no-route": _refused,
    "open-files": _limit("open files", "ulimit -n 1048576"),
    "threads": _limit("processes and threads", "ulimit -u unlimited"),
    "memlock": _limit("locked memory", "ulimit -l unlimited"),
    "disk-full": _steps("Make room on the file system that the line names.", "df -h", "df -i"),
    "wrong-build": _steps(
        "See which libraries and builds are loaded, and what fits them.", "nodedoctor stack"
    ),
    "rank-given-twice": _text(
        "Give each process its own RANK: two launchers of one job have the same node rank."
    ),
    "rendezvous-failed": _text(
        "Look for the node that did not come: it has no log, or fails before it starts."
    ),
    "declared-mismatch": _text("The line shows what each rank did: make shapes, objects and order equal."),
    "cuda-program-fault": _steps(
        "Find the kernel that went wrong: run once where it is reported at its own line.",
        "export CUDA_LAUNCH_BLOCKING=1",
    ),
    "ib-completion-error": _adapter,
    "ib-event": _adapter,
    "ib-setup": _adapter,
}
"""By the name of a symptom."""
