"""What to say of a timeout: where it is set, by framework, and the causes that fit where nothing decides.

The table of settings is that of `explain`; the causes are the likeliest first, with what would prove each.
"""

from __future__ import annotations

from collections.abc import Iterable

from nodedoctor.knowledge.env_vars import TimeoutSetting, timeout_settings
from nodedoctor.model import Fix
from nodedoctor.steps import looks
from nodedoctor.triage.model import Cause
from nodedoctor.triage.patterns.watchdog import WatchdogStuck
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.verdict.causes import groups
from nodedoctor.wording import decimal

FRAMEWORKS = {
    "skyrl": "SkyRL",
    "ray-train": "Ray Train",
    "verl": "verl",
    "openrlhf": "OpenRLHF",
    "llamafactory": "LLaMA-Factory",
    "swift": "ms-swift",
    "deepspeed": "DeepSpeed",
    "transformers": "transformers",
    "accelerate": "accelerate",
    "lightning": "Lightning",
    "megatron": "Megatron-LM",
    "torchtitan": "torchtitan",
    "hybrid-shard": "FSDP HYBRID_SHARD",
    "vllm": "vLLM",
    "sglang": "SGLang",
}
"""Names in logs and in the table: a framework comes before those that it is built on."""

_COMMANDS = {
    "SkyRL": "export SKYRL_WORKER_NCCL_TIMEOUT_IN_S=3600",
    "DeepSpeed": "export DEEPSPEED_TIMEOUT=60",
}
"""Where an environment variable sets it: an hour, in the variable's own unit."""
GROUPS = "Groups made by new_group() or a DeviceMesh do not inherit that timeout: give it to each of them."
MOST = 2


def settings_in_use(frameworks: Iterable[str]) -> list[TimeoutSetting]:
    """The settings of the first two frameworks in use; else torch's own."""
    names = set(frameworks)
    rows = {row.framework: row for row in timeout_settings()}
    settings = [rows[label] for name, label in FRAMEWORKS.items() if name in names and label in rows]
    return settings[:MOST] or [rows["torch"]]


def describe_setting(row: TimeoutSetting) -> str:
    """One setting in words: its name, its default, and what it does not reach."""
    unit = f", in {row.unit}" if row.unit == "minutes" else ""
    note = f"; {row.note[:1].lower()}{row.note[1:].rstrip('.')}" if row.note else ""
    return f"{row.framework}: {row.setting}{unit} (default {row.default_seconds} s){note}"


def timeout_fixes(frameworks: Iterable[str]) -> list[Fix]:
    """Where the timeout that fired is set, with the warning that raising it repairs little."""
    settings = settings_in_use(frameworks)
    fixes = [
        Fix(
            f"Only if the wait was legitimate: {describe_setting(row)}.",
            looks(*filter(None, (_COMMANDS.get(row.framework, ""),))),
            "config",
        )
        for row in settings
    ]
    return fixes if all(row.reaches_subgroups for row in settings) else [*fixes, Fix(GROUPS, action="config")]


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
    gathers = "ALLGATHER_BASE" in first.work.op or "REDUCE_SCATTER_BASE" in first.work.op
    mismatch = MODALITIES if "multimodal" in timeline.settings else MICRO_BATCHES if gathers else ""
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
