"""What a framework on Ray hands on to its workers, and what it leaves behind in the shell of the driver."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.facts.host.settings import HERE, Setting
from nodedoctor.facts.stack.packages import numbers
from nodedoctor.lint.remark import NodeContext, Remark

# NovaSky-AI/SkyRL, prepare_runtime_environment of the tags skyrl_train-v0.2.0 to skyrl-v0.3.0: NCCL_DEBUG is
# handed on from skyrl-v0.3.0 on; the worker timeout only by the development version of August 2026.
_SINCE = {"NCCL_DEBUG": (0, 3, 0)}
_TIMEOUT = "SKYRL_WORKER_NCCL_TIMEOUT_IN_S"
_NEVER = ("TORCH_NCCL_", "TORCH_FR_", "TORCH_DISTRIBUTED_DEBUG")


def judge_forwarding(setting: Setting, node: NodeContext) -> Iterator[Remark]:
    """A variable of this shell that this SkyRL does not give its workers.

    A note only, because an export before `ray start` reaches them all the same.
    """
    if not node.skyrl or HERE not in setting.places or len(setting.places) > 1:
        return
    version = numbers(node.skyrl)
    since = _SINCE.get(setting.name)
    if setting.name.startswith(_NEVER):
        what = "never forwards it"
    elif since and version < since:
        what = f"forwards it only from version {'.'.join(map(str, since))} on"
    elif setting.name == _TIMEOUT and version <= (0, 3, 0):
        what = "does not forward it in releases up to 0.3.0"
    else:
        return
    text = f"SkyRL {node.skyrl} {what}: workers get it only if set before `ray start`"
    fix = "Pass it with `uv run --env-file`, export it before `ray start`, or add it to the runtime_env."
    yield Remark("note", text, fix)
