"""Settings that serve to find a fault, or around one, and were left on, or that do not reach the workers."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.facts.host.settings import HERE, Setting
from nodedoctor.facts.stack.packages import numbers
from nodedoctor.knowledge.env_vars import EnvVar, env_var
from nodedoctor.lint.names import unread_by_nccl2
from nodedoctor.lint.remark import NodeContext, Remark, switched_off, switched_on
from nodedoctor.model import Step
from nodedoctor.steps import look, repair

_SWITCHES = (
    "CUDA_LAUNCH_BLOCKING",
    "NCCL_SHM_DISABLE",
    "NCCL_IGNORE_DISABLED_P2P",
    "NCCL_CHECK_POINTERS",
    "NCCL_P2P_DIRECT_DISABLE",
    "TORCH_NCCL_BLOCKING_WAIT",
    "NCCL_BLOCKING_WAIT",
    "TORCH_NCCL_DESYNC_DEBUG",
    "NCCL_DESYNC_DEBUG",
    "TORCH_NCCL_NAN_CHECK",
    "TORCH_NCCL_ENABLE_TIMING",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)
"""On is for diagnosis; what each costs is in the table."""

_DESYNC = ("TORCH_NCCL_DESYNC_DEBUG", "NCCL_DESYNC_DEBUG")
_DUMPS = ("TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_ON_TIMEOUT")
"""Who lets the recorder dump waits for a hang to come again, and means the other one to be on."""
_OTHER_WORDS = {
    "TORCH_DISTRIBUTED_DEBUG": ("DETAIL",),
    "NCCL_DEBUG": ("TRACE",),
    "NCCL_P2P_LEVEL": ("LOC", "0"),
    "NCCL_NET_GDR_LEVEL": ("LOC", "0"),
}
_WEIGHTY = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_COMM_ID", "NCCL_HOSTID")
"""Fine for a moment or for those who measured; frozen in a job script they outlive their reason."""


def judge_habit(setting: Setting, node: NodeContext) -> Iterator[Remark]:
    """What is switched on and costs speed, or hides a fault; depends on what the node has."""
    row = env_var(setting.name)
    if row is None or unread_by_nccl2(setting.name, node):
        return
    value = setting.value.strip()
    if setting.name == "NCCL_P2P_DISABLE" and switched_on(value):
        yield _p2p_remark(row, node)
    elif (setting.name == "NCCL_IB_DISABLE" and switched_on(value)) or _by_sockets(setting):
        yield _ib_remark(row, node)
    elif setting.name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING") and value == "0":
        yield Remark(
            "warn", "with 0 a hung collective is never aborted: the job hangs forever", *_removal_fix(row)
        )
    elif setting.name == "TORCH_NCCL_ENABLE_MONITORING" and switched_off(value):
        yield Remark("note", "a stuck watchdog is not aborted; the collective timeout still works")
    elif setting.name == "NCCL_DEBUG_SUBSYS":
        yield from _chatty_remarks(value, node)
    elif setting.name in _DESYNC and any(switched_on(node.shell.get(name, "0")) for name in _DUMPS):
        yield Remark("note", f"for the next hang: {_make_remark(row)}")
    elif (setting.name in _SWITCHES and switched_on(value)) or value.upper() in _OTHER_WORDS.get(
        setting.name, ()
    ):
        yield Remark("warn", f"debug setting left on: {_make_remark(row)}", *_removal_fix(row))
    elif setting.name in _WEIGHTY:
        yield Remark("note", _make_remark(row))


def _by_sockets(setting: Setting) -> bool:
    return setting.name == "NCCL_NET" and setting.value.strip().lower() == "socket"


def _p2p_remark(row: EnvVar, node: NodeContext) -> Remark:
    if node.nvlink is False or (node.consumer and not node.nvlink):
        return Remark("note", "1 disables direct GPU-GPU traffic; without NVLink here that costs less")
    where = "NVLink" if node.nvlink else "NVLink, if there is any,"
    text = (
        f"debug setting left on: traffic bypasses {where} (10-40x slower). "
        "It goes through host memory. If a hang disappears with it, "
        "ACS, IOMMU or the NVLink fabric is the cause"
    )
    fix = "Remove it, and look at p2p.*, nvlink.* and pcie.* for the fault it hid."
    return Remark(
        "warn", text, fix, (repair("unset {}", row.name), look("nodedoctor p2p nvlink fabric pcie"))
    )


def _ib_remark(row: EnvVar, node: NodeContext) -> Remark:
    if node.active_rdma is False:
        return Remark("note", "traffic between nodes uses TCP sockets (no active RDMA port here)")
    if node.active_rdma is None and node.consumer:
        return Remark("note", "traffic between nodes uses TCP sockets, as mostly between workstations")
    here = "despite active RDMA ports" if node.active_rdma else "also if it has RDMA"
    text = f"debug setting left on: node uses TCP {here} (10-100x slower)"
    return Remark(
        "warn", text, "Remove it; if it helped, the RDMA path is broken.", (repair("unset {}", row.name),)
    )


def _chatty_remarks(value: str, node: NodeContext) -> Iterator[Remark]:
    level = (node.settings.value("NCCL_DEBUG") or "").upper()
    parts = {part.strip().upper() for part in value.split(",")}
    if level in ("INFO", "TRACE") and parts & {"ALL", "COLL", "CALL"}:
        text = "logs every collective: large files, slower steps; only for debugging"
        yield Remark("warn", text, "Set NCCL_DEBUG_SUBSYS=INIT,ENV,NET, or unset it.")


def _removal_fix(row: EnvVar) -> tuple[str, tuple[Step, ...]]:
    return "Remove it from the job's environment.", (repair("unset {}", row.name),)


def _make_remark(row: EnvVar) -> str:
    text = f"{row.effect} {row.note}".strip().rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


# NovaSky-AI/SkyRL, prepare_runtime_environment of the tags skyrl_train-v0.2.0 to skyrl-v0.3.0: NCCL_DEBUG is
# handed on from skyrl-v0.3.0 on; the worker timeout only by the development version of August 2026.
_SINCE = {"NCCL_DEBUG": (0, 3, 0)}
_TIMEOUT = "SKYRL_WORKER_NCCL_TIMEOUT_IN_S"
_NEVER = ("TORCH_NCCL_", "TORCH_FR_", "TORCH_DISTRIBUTED_DEBUG")


def judge_forwarding(setting: Setting, node: NodeContext) -> Iterator[Remark]:
    """A variable of this shell that this SkyRL, on Ray, does not give its workers.

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
