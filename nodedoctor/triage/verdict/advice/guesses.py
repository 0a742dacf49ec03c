"""Where nothing decides: the causes that fit, likeliest first, and what would prove each."""

from __future__ import annotations

from nodedoctor.triage.model import Cause
from nodedoctor.triage.patterns.progress import SettingMentioned
from nodedoctor.triage.patterns.watchdog import WatchdogStuck
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.verdict.causes import groups
from nodedoctor.wording import decimal

MODALITIES = (
    "batches without images skip the vision tower, so that ranks make different collectives;"
    " the other ranks' lines would show it"
)
MICRO_BATCHES = (
    "ranks with different numbers of micro-batches make different numbers of gathers;"
    " the other ranks' lines would show it"
)


def unseen_explanations(timeline: Timeline) -> tuple[tuple[Cause, str], ...]:
    """What may be behind a wait whose other side is not in the logs."""
    first = timeline.first_wait
    if first is None:
        return ()
    if groups.ranks_in_collective(timeline) is not None:
        return (
            (
                "p2p_pcie_acs_iommu",
                "all ranks entered and none finished: no data moves between the GPUs of a node",
            ),
            ("network_ib", "or no data moves between nodes, though no adapter or port reported a fault"),
        )
    settings = {event.what.name for event in timeline.of_kind(SettingMentioned)}
    gathers = "ALLGATHER_BASE" in first.work.op or "REDUCE_SCATTER_BASE" in first.work.op
    mismatch = MODALITIES if "multimodal" in settings else MICRO_BATCHES if gathers else ""
    causes: list[tuple[Cause, str]] = []
    if mismatch:
        causes.append(("collective_mismatch", mismatch))
    causes.append(
        ("cpu_stuck_or_slow_rank", "a rank was alive and did not come: its log or stack shows where it was")
    )
    causes.append(("peer_died", "another rank exited: its log shows the exit, or its launcher's does"))
    if not mismatch:
        causes.append(
            ("collective_mismatch", "another rank called another collective: its own timeout line names it")
        )
    if timeline.of_kind(WatchdogStuck):
        causes.sort(key=lambda pair: pair[0] != "cpu_stuck_or_slow_rank")
    return tuple(causes)


def other_group(timeline: Timeline) -> tuple[str, str] | None:
    """A note that another group's timeout does not follow the job's setting."""
    first = timeline.first_wait
    if first is None or first.work.timeout_ms is None:
        return None
    group = first.work.group
    if not group.name or group.desc == "default_pg" or group.name == "0":
        return None
    limit = f"{decimal(first.work.timeout_ms / 1000)} s"
    return (
        "a timeout set for the job (ddp_timeout, init_process_group)",
        f"group {group.name} timed out after {limit}, and it is not the default group: groups made by"
        " new_group(), like DeepSpeed's clone of the world, keep their backend's own default",
    )
