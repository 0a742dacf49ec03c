"""Where the timeout that fired is set, by framework; the table is that of `explain`."""

from __future__ import annotations

from collections.abc import Iterable

from nodedoctor.knowledge.env_vars import TimeoutSetting, timeout_settings
from nodedoctor.model import Fix
from nodedoctor.steps import looks

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
