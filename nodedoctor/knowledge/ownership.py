"""Whose move it is: from what was found and its fix to an owner and an action.

The rows are our choice, after who can do what on a training node: the user of a job sets its environment,
packages and limits; an administrator has root on the node; broken hardware is for the owner of the hardware.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from nodedoctor.model import Action, Finding, Move, Owner, Status
from nodedoctor.patterns import regex
from nodedoctor.wording import shortened

REASON = 80
"""Characters of a reason: what `sinfo -R` and a node condition's column show of it; our choice."""

_HARDWARE = frozenset({"nvlink", "memory", "pcie", "ib", "thermal", "power", "clock", "bandwidth", "compute"})
_HARDWARE |= {"p2p", "topo", "deep"}
_YOURS = frozenset({"env", "stack", "ray", "limits", "container", "collective", "kernel.oom"})
"""Subjects, and single checks of others, whose findings are about a job's settings."""

_BY_ACTION: Mapping[Action, tuple[Owner, Move]] = {
    "none": ("undetermined", "investigate"),
    "restart-job": ("you", "fix-job"),
    "config": ("administrator", "fix-config"),
    "restart-service": ("administrator", "restart-service"),
    "reset-gpu": ("administrator", "reset-gpu"),
    "reboot": ("administrator", "reboot"),
    "drain": ("provider", "replace-node"),
    "replace": ("provider", "replace-node"),
    "investigate": ("undetermined", "investigate"),
}

# A link of one GPU that is down is hardware until a reset proves otherwise, and on a rented node a reset is
# not the first step: who rents asks for another node. Heat and a power brake are of fans and supplies first.
_BY_CHECK: Mapping[str, tuple[Owner, Move]] = {
    "nvlink.links": ("provider", "replace-node"),
    "fabric.nvswitch": ("provider", "replace-node"),
    "kernel.memory": ("provider", "replace-node"),
    "thermal.throttle": ("provider", "investigate"),
    "pairs.node": ("administrator", "investigate"),
    "pairs.path": ("administrator", "investigate"),
    "pairs.group": ("administrator", "investigate"),
}

_OWNERS: Mapping[str, tuple[str, str]] = {
    "provider": ("provider", "PROV"),
    "administrator": ("administrator", "ADMIN"),
    "you": ("you", "YOU"),
    "job-code": ("job code", "CODE"),
    "undetermined": ("unknown", "?"),
    "NODE": ("administrator", "ADMIN"),
    "CONFIG": ("you", "YOU"),
    "CODE": ("job code", "CODE"),
}
"""The word for each owner, and its word in a list. NODE, CONFIG and CODE are what triage's document says."""

_HARMLESS = str.maketrans('"`\\', "''/")
_MOVE_WORDS: Mapping[Move, str] = {
    "none": "",
    "fix-config": "fix the configuration",
    "restart-service": "restart the service",
    "reset-gpu": "reset the GPU",
    "reboot": "reboot the node",
    "replace-node": "request a replacement",
    "fix-job": "fix the job",
    "investigate": "investigate",
}


_COMMANDS: Mapping[str, re.Pattern[str]] = {
    "reboot": regex(r"\breboot\b"),
    "reset-gpu": regex(r"--gpu-reset\b"),
    "restart-service": regex(r"\bsystemctl (?:restart|start)\b"),
}


def move_of(check: str, finding: Finding, *, shared: bool = False) -> tuple[Owner, Move]:
    """Who has to act on a cause, and how; `shared` when all like devices say the same.

    What all devices share is a service, a setting or the chassis rather than a broken device.
    """
    subject, action = check.partition(".")[0], finding.fix.action if finding.fix else "investigate"
    owner, move = _BY_ACTION[action]
    if finding.status is Status.UNKNOWN and action == "none":
        return owner, "investigate"
    if shared and move == "replace-node":
        return "administrator", "investigate"
    if check in _BY_CHECK and finding.status is Status.FAIL and not shared:
        return _BY_CHECK[check]
    if check == "kernel.xid" and action == "restart-job":
        # One that fails the node is of its memory; those of programs warn.
        return ("administrator", "reset-gpu") if finding.status is Status.FAIL else ("job-code", "fix-job")
    if not _YOURS.isdisjoint((subject, check)) and move in ("fix-config", "fix-job", "restart-service"):
        return "you", "fix-config" if subject == "env" else move
    if subject in _HARDWARE and action == "investigate":
        # The other end of a link is a cable and a switch's port: to replace the node would not repair these.
        open_question = shared or finding.status is not Status.FAIL or _is_port(finding.subject)
        return "provider", "investigate" if open_question else "replace-node"
    return owner, move


def action_words(action: str, owner: str = "", subjects: Sequence[str] = ()) -> str:
    """An action as words that follow a semicolon; empty for none and for an unknown one.

    What to do depends on whose move it is, and on the one device that a cause is about.
    """
    if action == "fix-job" and owner == "you":
        return "restart the job"
    if action == "investigate" and owner == "provider" and len(subjects) == 1 and _is_port(subjects[0]):
        return "check cable and switch port"
    return next((words for move, words in _MOVE_WORDS.items() if move == action), "")


def carries_out(action: str, command: str) -> bool:
    """Whether a command does what an action says: reboots the node, resets a GPU, restarts a service."""
    pattern = _COMMANDS.get(action)
    return pattern is not None and pattern.search(command) is not None


def _is_port(subject: str) -> bool:
    """Whether a subject is a port of a NIC: `port:mlx5_3/1`, without a counter's name behind it or with."""
    return subject.startswith("port:")


def owner_word(owner: str) -> str:
    """Whose move it is, in the word that every view uses; triage's own values are mapped to the same."""
    return _OWNERS.get(owner, _OWNERS["undetermined"])[0]


def owner_column(owner: str) -> str:
    """Whose move it is in a list, in at most five letters."""
    return _OWNERS.get(owner, _OWNERS["undetermined"])[1]


def reason_of(headline: str, action: Move, owner: Owner, subjects: Sequence[str]) -> str:
    """A drain reason: whole clauses and the whole action, without what a shell would trip over."""
    words = action_words(action, owner, subjects)
    tail = f"; {words}" if words else ""
    plain = re.sub(r"[^ -~]", "?", headline).translate(_HARMLESS)
    return shortened(plain, REASON - len(tail)) + tail
