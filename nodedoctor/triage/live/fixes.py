"""What to do about a rank that holds a running job up: look, then decide."""

from __future__ import annotations

from collections.abc import Iterable

from nodedoctor.model import Fix
from nodedoctor.steps import keep, look, looks, repair
from nodedoctor.triage.live.running_job import LiveJob, RankProcess
from nodedoctor.triage.model import Identity

SHOWN = 2
"""Processes that get commands of their own; the others are alike."""


def live_fixes(live: LiveJob, culprits: Iterable[Identity]) -> tuple[Fix, ...]:
    """The fixes for the processes that hold the job up; none without culprits."""
    pids = {who.pid for who in culprits}
    guilty = [process for process in live.processes if process.pid in pids][:SHOWN]
    return tuple(fix for process in guilty for fix in _fix_for(process))


def deciding_measurements(live: LiveJob) -> tuple[Fix, ...]:
    """What would decide about a job that runs, by what was not seen of it."""
    if not live.processes:
        text = (
            "Look where its ranks run: on their node, in their container, as their own user or as root; a"
            " process id behind --live takes everything below that process for the job."
        )
        return (Fix(text, looks("sudo nodedoctor triage --live")),)
    if any(process.threads for process in live.processes):
        beside = look("nodedoctor watch --job $(ps -o ppid= {})", live.processes[0].pid)
        text = (
            "Look again while it hangs: a stack that is the same in two looks a minute apart does not go on."
            " A watch beside the job does that when no step comes, and looks at all ranks at once."
        )
        return (Fix(text, (*looks("nodedoctor triage --live"), beside)),)
    text = (
        "Look at the Python stacks of its processes, as root and with py-spy beside their Python; of a job"
        " that `nodedoctor run` starts they can be had without either."
    )
    return (Fix(text, looks("sudo nodedoctor triage --live")),)


def _fix_for(process: RankProcess) -> tuple[Fix, ...]:
    pid, state = process.pid, process.states[1]
    if state in ("T", "t"):
        return (
            Fix("See who stopped it, then let it go on.",
                (look("ps -o pid,ppid,stat,lstart,args -p {}", pid),
                 repair("kill -CONT {}", pid, disturbs="this job"))),
        )  # fmt: skip
    if state in ("Z", "gone"):
        return (
            Fix("Find out who ended it: the kernel log first, for an out-of-memory kill.",
                (look("dmesg -T | grep -iE 'killed process|oom|segfault|Xid' | tail"),)),
            Fix("End the job: without that rank it waits until its own limit.", ()),
        )  # fmt: skip
    steps = (
        keep("py-spy dump --nonblocking --locals --pid {}", pid),
        look("ls -l /proc/{}/fd", pid),
        look("cat /proc/{}/wchan /proc/{}/stack", pid, pid),
    )
    return (
        Fix(
            f"Look at process {pid} while it is there: its stack with its variables, and what it has open.",
            steps,
        ),
    )
