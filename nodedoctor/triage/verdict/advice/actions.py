"""Fixes of each cause, least effort first, and measurements where the logs do not decide."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from nodedoctor.model import Fix
from nodedoctor.steps import look, looks
from nodedoctor.triage.describe import describe_identities, rank_ranges
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event, Identity, Verdict
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.ras import RasMissing
from nodedoctor.triage.patterns.ray import ActorDied
from nodedoctor.triage.patterns.stacks import ThreadStack
from nodedoctor.triage.patterns.store import BarrierMissed, GlooTimeout, StoreWait
from nodedoctor.triage.patterns.watchdog import TimedOut, WatchdogStuck
from nodedoctor.triage.timeline.model import Timeline, follows_timeout
from nodedoctor.triage.timeline.pace import step_seconds
from nodedoctor.triage.verdict.advice import timeouts
from nodedoctor.triage.verdict.advice.fix_table import BY_CAUSE
from nodedoctor.triage.verdict.advice.remedies import HCA, fixes_for_event
from nodedoctor.triage.verdict.causes import groups
from nodedoctor.triage.verdict.causes.ras import hang_folder_fix
from nodedoctor.wording import decimal

TORCH_BY_LINE = {
    737: (1, 11), 828: (2, 0), 474: (2, 1), 475: (2, 1), 523: (2, 2), 563: (2, 3), 607: (2, 4), 568: (2,
    4), 616: (2, 5),
    629: (2, 6), 632: (2, 7), 685: (2, 8), 683: (2, 9), 688: (2, 10), 689: (2, 11), 757: (2, 12),
    730: (2, 13),
    741: (2, 14), 738: (2, 15),
}  # fmt: skip
"""Line of `Watchdog caught` in ProcessGroupNCCL.cpp, read from the binaries of the official wheels."""

NO_SUCH_VARIABLE = (
    "NCCL_TIMEOUT",
    "no released NCCL or PyTorch reads a variable of this name; the limit is the process group's own timeout",
)


_HANGS = (
    TimedOut, WatchdogStuck, Mark.GIL_HELD, GlooTimeout, BarrierMissed, StoreWait, ThreadStack, RasMissing,
    Mark.LIVE_PROCESS, Mark.HANG_CONFIRMED,
)  # fmt: skip
"""Events of a job in which ranks waited: what shows where they wait is of no use for a crash."""


def torch_version(timeline: Timeline) -> tuple[int, int] | None:
    """The torch release whose watchdog prints from this source line; vendors' builds may differ."""
    for wait in timeline.waits:
        match = re.search(r"ProcessGroupNCCL\.cpp:(\d+)$", wait.event.origin)
        if match and int(match[1]) in TORCH_BY_LINE:
            return TORCH_BY_LINE[int(match[1])]
    return None


def choose_fixes(timeline: Timeline, verdict: Verdict) -> tuple[Fix, ...]:
    """The fixes of the deciding evidence, else of the cause, and the timeout's setting.

    An undetermined verdict has none: nothing is worth changing before it is known what failed.
    """
    if verdict.outcome == "undetermined":
        return ()
    names = timeline.settings
    fixes = list(verdict.fixes)
    transfers = (event for event in timeline.of_kind(Symptom) if event.what.cause == "network_ib")
    adapters = {match[1] for event in transfers if (match := HCA.search(event.text))}
    for event in _deciding_events(verdict):
        fixes = fixes or list(fixes_for_event(event, names, several_adapters=len(adapters) > 1))
    if not fixes:
        fixes = list(BY_CAUSE.get(verdict.cause, ()))
        if verdict.cause in _NODE_FIRST:
            fixes.insert(0, _node_now(verdict.culprits))
    if verdict.cause == "timeout_too_short_legit_work" and timeline.waits:
        fixes += timeouts.timeout_fixes(names)
    return tuple(fixes)


_NODE_FIRST = ("cpu_stuck_or_slow_rank", "peer_died")
"""Causes of which the node knows more than the logs."""
_NODES = 4
"""Nodes that are looked at one by one."""


def _node_now(culprits: Sequence[Identity]) -> Fix:
    """A look at the culprits' nodes, by name where they have one."""
    hosts = sorted({who.host for who in culprits if who.host is not None})
    who = describe_identities(Identity(rank=who.rank) for who in culprits if who.rank is not None)
    text = f"Check the node of {who or 'that process'} now: GPU, kernel log, storage, memory."
    return Fix(text, tuple(look("ssh {} nodedoctor", host) for host in hosts[:_NODES]) or looks("nodedoctor"))


def _deciding_events(verdict: Verdict) -> list[Event[Any]]:
    """The evidence whose own fixes count; a kill is no reason beside a memory limit."""
    events = list(verdict.evidence)
    if verdict.cause != "peer_host_oom":
        return events
    return [event for event in events if not isinstance(event.what, ProcessExit)]


SLOW = 10
"""Steps in the time of a wait, from which on no slow step explains it. Ours: stragglers
are two to five times slower."""


def not_the_cause(
    timeline: Timeline, suspects: Sequence[int | None], sentence: str, explains: bool | None
) -> tuple[tuple[str, str], ...]:
    """What people would try first and need not."""
    claims: list[tuple[str, str]] = []
    if sentence and explains is False:
        claims.append(("network bandwidth or the amount of data", sentence))
    echoes = [event for event in timeline.of_kind(ActorDied) if follows_timeout(timeline, event)]
    if echoes:
        claims.append(
            (
                "an out-of-memory kill, as Ray's list of possible causes says",
                "that list is the same for every lost worker; this one gave up waiting and ended itself, and"
                " Ray saw the end",
            )
        )
    if timeline.waits:
        names = timeline.settings
        variable, why = NO_SUCH_VARIABLE
        if variable in names:
            rows = timeouts.settings_in_use(names)
            where = "; ".join(f"{row.framework}: {row.setting}" for row in rows)
            claims.append((variable, f"{why}, which is set elsewhere ({where})"))
        group_claim = timeouts.other_group(timeline)
        if group_claim:
            claims.append(group_claim)
        first = timeline.first_wait
        step = step_seconds(timeline.events)
        limit = first.work.timeout_ms if first is not None else None
        if step is not None and limit is not None and limit / 1000 > SLOW * step:
            claims.append(
                (
                    "a step that was merely slow",
                    f"a step took {decimal(step, 2)} s, and the limit is {decimal(limit / 1000)} s:"
                    f" {limit / 1000 / step:.0f} steps",
                )
            )
        all_came = groups.ranks_in_collective(timeline) is not None
        if first is not None and first.who.rank not in (None, *suspects) and not all_came:
            claims.append(
                (f"rank {first.who.rank}", "the rank that prints the timeout waited for another one")
            )
    return tuple(claims)


def next_measurements(timeline: Timeline, verdict: Verdict) -> tuple[Fix, ...]:
    """What would decide, ready to paste, in the names the torch in use reads."""
    if verdict.cause == "none":
        return ()
    fixes = list(hang_folder_fix(timeline))
    if verdict.outcome in ("undetermined", "nothing") and not timeline.trouble:
        return (Fix("Give the logs of all ranks, up to the moment the job ended.", action="investigate"),)
    if verdict.outcome != "undetermined" and verdict.confidence != "low":
        return ()
    coverage = verdict.coverage
    group_size = groups.ranks_in_collective(timeline)
    world = coverage.ranks_expected or groups.world_of(timeline) or group_size
    if not (world and set(range(world)) <= set(coverage.ranks_seen)):
        fixes.append(_all_logs(timeline))
    if timeline.folded:
        fixes.append(
            Fix("Ray folded lines of several ranks into one.", looks("export RAY_DEDUP_LOGS=0"), "config")
        )
    if verdict.cause == "gpu_hardware_xid":
        return tuple(fixes)
    if not timeline.has_any(_HANGS):
        text = "Let a crash leave its stack and the last lines of every process, and run it again."
        fixes.append(Fix(text, looks("export PYTHONFAULTHANDLER=1", "export PYTHONUNBUFFERED=1"), "config"))
        return tuple(fixes)
    if group_size is not None:
        fixes.append(_WITHOUT_P2P)
    if not timeline.marked(Mark.RECORDED_CALL):
        fixes.append(_recorder_step(torch_version(timeline)))
    if verdict.cause != "cpu_stuck_or_slow_rank":  # whose fixes have it
        fixes.append(Fix("If it hangs again, look before it is killed.", looks("nodedoctor triage --live")))
    return tuple(fixes)


_WITHOUT_P2P = Fix(
    "Test the way between the GPUs: run once without P2P, and ask the node.",
    looks("export NCCL_P2P_DISABLE=1", "nodedoctor p2p pcie"),
)


def _all_logs(timeline: Timeline) -> Fix:
    ranks = sorted(timeline.ranks_seen)
    have = (
        f"only {'rank' if len(ranks) == 1 else 'ranks'} {rank_ranges(ranks)} in these"
        if ranks
        else "these name none"
    )
    return Fix(f"Read the logs of all ranks together, as one folder given to `nodedoctor triage`: {have}.")


def _recorder_step(version: tuple[int, int] | None) -> Fix:
    old = ("export TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "export TORCH_NCCL_DUMP_ON_TIMEOUT=1",
           'export TORCH_NCCL_DEBUG_INFO_TEMP_FILE="$HOME/nodedoctor-fr/rank_"')  # fmt: skip
    new = ("export TORCH_FR_BUFFER_SIZE=2000", 'export TORCH_FR_DUMP_TEMP_FILE="$HOME/nodedoctor-fr/rank_"')
    commands: tuple[str, ...]
    if version is None:
        text, commands = (
            "Switch the flight recorder on (old and new names, whichever torch it is)",
            (*old, *new),
        )
    elif version < (2, 8):
        text, commands = (
            f"Switch the flight recorder on (torch {version[0]}.{version[1]} reads these names)",
            old,
        )
    else:
        text, commands = f"Switch the flight recorder on (torch {version[0]}.{version[1]})", (*old[:2], *new)
    text += (
        ", run again until it hangs, and give nodedoctor the folder. It must exist on every node; the "
        "home directory, which nodes often share, is taken here."
    )
    return Fix(text, looks(*('mkdir -p "$HOME/nodedoctor-fr"', *commands)), "config")
