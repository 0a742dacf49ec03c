"""Does anything read a variable of this name, in the versions that are installed?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.facts.host.settings import Setting
from nodedoctor.facts.stack.packages import numbers
from nodedoctor.knowledge.env_vars import EnvVar, env_var, env_vars, family, suggest, timeout_settings
from nodedoctor.lint.remark import NodeContext, Remark, switched_off
from nodedoctor.patterns import regex
from nodedoctor.steps import repair

NEWEST = {"nccl": (2, 32, 3), "torch": (2, 15, 0)}
"""The newest releases the table of variables was made from (its `about` and `phantom` rows)."""

_OF_BUILDS = regex(r".*_(?:DIR|DIRS|PATH|ROOT|HOME|PREFIX|INCLUDE|LIB|LIBS|LIBRARY|LIBRARIES|VERSION)")
_FORMER_BACKEND = (
    *("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_ENABLE_MONITORING"),
    *("TORCH_NCCL_DESYNC_DEBUG", "NCCL_DESYNC_DEBUG"),
)
_FRAMEWORKS = ("transformers", "accelerate", "DeepSpeed", "Ray Train", "SkyRL", "verl")


def judge_name(setting: Setting, node: NodeContext) -> Iterator[Remark]:
    """Unknown, read by nothing, of another library, not of these versions, renamed."""
    row = env_var(setting.name)
    if row is None:
        yield from _unknown_remarks(setting, node)
    elif row.phantom:
        yield _phantom_remark(setting, row)
    elif row.owner == "rccl" and not node.rocm and node.torch:
        yield Remark("warn", "only AMD's RCCL reads it, but this torch is for NVIDIA", "Remove it.")
    else:
        yield from _version_remarks(setting, row, node)


def _unknown_remarks(setting: Setting, node: NodeContext) -> Iterator[Remark]:
    suggestion, kin = suggest(setting.name), family(setting.name)
    if suggestion:
        yield Remark(
            "warn",
            f"unknown variable, probably {suggestion} was intended. As it is written, nothing reads it",
            f"Set {suggestion}={setting.value}.",
            (repair("unset {}", setting.name), repair("export {}={}", suggestion, setting.value)),
        )
    elif kin is None or not kin.complete or _OF_BUILDS.fullmatch(setting.name):
        return  # a family of which not all names are known, or what build scripts read
    elif numbers(node.version(kin.owner)) > NEWEST.get(kin.owner, ()):
        yield Remark("note", f"unknown; {node.named(kin.owner)} is newer than the table of variables")
    elif kin.owner == "nccl" and _foreign_plugin(node):
        yield Remark("note", f"libnccl does not read it; the plug-in {_foreign_plugin(node)} may")
    else:
        last = ".".join(map(str, NEWEST.get(kin.owner, ())))
        reader = {"nccl": "NCCL", "torch": "torch"}.get(kin.owner, kin.owner)
        yield Remark(
            "warn",
            f"nothing known reads it: no {reader} up to {last}, no known plug-in",
            "Remove it, unless your own program reads it.",
            (repair("unset {}", setting.name),),
        )


def _foreign_plugin(node: NodeContext) -> str:
    """A plug-in that was asked for by name: it may read variables of its own."""
    names = ("NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN")
    values = (node.settings.value(name) or "" for name in names)
    return next((value for value in values if value and value.lower() != "none"), "")


def _phantom_remark(setting: Setting, row: EnvVar) -> Remark:
    """Widespread advice about settings that no program has."""
    fix = f"Remove it; set {row.instead}." if row.instead else "Remove it."
    if "timeout" in row.instead:
        settings = {timeout.framework: timeout.setting for timeout in timeout_settings()}
        fix += " " + "; ".join(f"{name}: {settings[name]}" for name in _FRAMEWORKS if name in settings) + "."
    return Remark("warn", row.effect, fix, (repair("unset {}", setting.name),))


def _version_remarks(setting: Setting, row: EnvVar, node: NodeContext) -> Iterator[Remark]:
    version = node.version(row.owner)
    if unread_by_nccl2(row.name, node):
        text = f"{node.named('torch')}'s default backend (nccl2) does not read it"
        fix = "Remove it, or choose the backend that reads it with TORCH_DIST_USE_NCCL2=0."
        yield Remark("warn", text, fix, (repair("unset {}", row.name),))
    elif version and row.read_by(version) is False:
        if not _beside_its_former_name(setting, row, node):
            yield _not_of_this_version(setting, row, node)
    elif row.renamed_to:
        yield from _renamed_remarks(setting, row, node, version)


def unread_by_nccl2(name: str, node: NodeContext) -> bool:
    """Whether only the former backend, c10d's ProcessGroupNCCL, reads a variable and this torch takes nccl2.

    torch 2.15, distributed_c10d.py: "nccl" is nccl2 unless TORCH_DIST_USE_NCCL2 is 0. c10d/nccl2 has neither
    a heartbeat monitor nor the report of desynchronised ranks.
    """
    chosen = node.settings.value("TORCH_DIST_USE_NCCL2") or "1"
    newest = numbers(node.version("torch")) >= (2, 15) and not node.rocm and not switched_off(chosen)
    return newest and name in _FORMER_BACKEND


def _not_of_this_version(setting: Setting, row: EnvVar, node: NodeContext) -> Remark:
    too_old = bool(row.since) and numbers(node.version(row.owner)) < numbers(row.since)
    alias = _former_name(row, node) if too_old else row.renamed_to
    text = f"{node.named(row.owner)} does not read it: " + (
        f"it came with {row.since}" if too_old else f"{row.until} was the last that did"
    )
    if not alias:
        return Remark("warn", text, "Remove it." if not too_old else "It has no effect here.")
    what = f"{text}; {'before that it was' if too_old else 'it is now'} {alias}"
    command = repair("export {}={}", alias, setting.value)
    return Remark("warn", what, f"Set {alias} instead.", (repair("unset {}", setting.name), command))


def _beside_its_former_name(setting: Setting, row: EnvVar, node: NodeContext) -> bool:
    """Old and new name set alike are for whatever version comes: what this one does not read does no harm."""
    former = _former_name(row, node)
    return bool(former) and node.settings.value(former) == setting.value


def _former_name(row: EnvVar, node: NodeContext) -> str:
    """The name that this older version reads."""
    version = node.version(row.owner)
    old = (entry for entry in env_vars() if entry.renamed_to == row.name and entry.read_by(version))
    return next((entry.name for entry in old), "")


def _renamed_remarks(setting: Setting, row: EnvVar, node: NodeContext, version: str) -> Iterator[Remark]:
    """Old names that are still read: the new one wins where both are set; both alike is for old and new."""
    if node.settings.value(row.renamed_to) == setting.value:
        return
    new = env_var(row.renamed_to)
    since = row.renamed_since or (new.since if new else "")
    if not version:
        when = f" from {row.owner} {since} on" if since else ""
        yield Remark("note", f"{row.renamed_to} is its name{when}; the version here is unknown")
    elif not since or numbers(version) >= numbers(since):
        if _is_needed(row, version):
            return
        # The allocator's old name is in most job scripts and means the same: worth a note only.
        level: str = "note" if setting.name.startswith("PYTORCH_") else "warn"
        text = f"{node.named(row.owner)} calls it {row.renamed_to}" + (f" (since {since})" if since else "")
        command = repair("export {}={}", row.renamed_to, setting.value)
        fix = f"Set {row.renamed_to}. The old name still works, but loses if both are set."
        fix += f" {row.note}" if row.note else ""
        yield Remark("warn" if level == "warn" else "note", text, fix, (command,))


def _is_needed(row: EnvVar, version: str) -> bool:
    """Whether an old name does what the new one does not: torch 2.8 to 2.10 make the dump pipe only by it."""
    return row.name == "TORCH_NCCL_TRACE_BUFFER_SIZE" and numbers(version) < (2, 11)
