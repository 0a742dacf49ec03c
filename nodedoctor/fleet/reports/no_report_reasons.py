"""Why a node gave no report, judged by what ssh, a shell or Python said in its place.

Sources: openssh/openssh-portable:sshconnect.c and ssh.c (exit code 255 and its texts), the shells' "not
found" (127) and "cannot execute" (126), CPython's own messages.
"""

from __future__ import annotations

import re

from nodedoctor.children.output_bounds import KEPT
from nodedoctor.fleet.model import NodeState
from nodedoctor.fleet.transports.node_side import NO_NODEDOCTOR, REFUSALS
from nodedoctor.model import Observation, Outcome

BRING_IT = "bring it along with --pyz FILE, or install it there"
TIMED_OUT = 124
"""Exit code of timeout(1), which fleet/transports/node_side.py puts before nodedoctor."""
LONGEST = 200
"""Characters kept of what somebody else said; ours."""

_SSH = re.compile(
    r"""
    Could\ not\ resolve\ hostname | connect\ to\ host | [Cc]onnection\ (?:refused|closed|reset|timed\ out)
    | Connection\ to\ .*\ (?:closed|timed\ out) | No\ route\ to\ host | Network\ is\ unreachable
    | [Hh]ost\ key | HOST\ IDENTIFICATION\ HAS\ CHANGED | Permission\ denied | Too\ many\ authentication
    | kex_exchange | banner\ exchange | no\ matching | send\ disconnect | Broken\ pipe | not\ responding
    | Bad\ configuration | percent_expand | hostname\ contains\ invalid
    """,
    re.X,
)
_PLAIN_SSH: tuple[tuple[str, str], ...] = (
    (r"HOST IDENTIFICATION HAS CHANGED", "its host key has changed; check why, then ssh-keygen -R"),
    (
        r"No .*host key is known|Host key verification failed",
        "its host key is not known; connect once by hand",
    ),
)
_UNABLE: tuple[tuple[str, str], ...] = (
    (r"python[0-9.]*['\"]?: .*(?:not found|No such file)|no Python", "no Python 3 there"),
    (
        r"needs Python 3\.|requires Python|Python .*too old|SyntaxError|dataclass\(\) got an unexpected"
        r"|cannot import name 'UnionType'",
        "its Python is too old: nodedoctor needs 3.10",
    ),
    (
        r"nodedoctor['\"]?: .*(?:not found|No such file)|No module named '?nodedoctor",
        f"nodedoctor is not installed there; {BRING_IT}",
    ),
    (r"No module named '?(\S+?)'?$", "its Python lacks a module that nodedoctor needs"),
    (r"No space left on device|Disk quota exceeded", "no space left there"),
    (r"Read-only file system", "a read-only file system there"),
)


def no_report_reason(observation: Observation, why: str) -> tuple[NodeState, str]:
    """State and note for an answer without a report; `why` is what is wrong with its text."""
    output = f"{observation.note}\n{observation.text[-4096:]}"
    if observation.truncated:
        size = f"more than {KEPT >> 20} MiB came in {observation.seconds:.0f} s"
        return "unreadable", f"a flood and no report: {size}, at last {_last_line(observation.text)[-40:]!r}"
    if observation.outcome in (Outcome.TIMEOUT, Outcome.STUCK):
        return "silent", f"no answer in {observation.seconds:.0f} s; {_how_far(observation, why)}"
    if observation.rc == TIMED_OUT:
        return (
            "silent",
            f"nodedoctor had not ended there after {observation.seconds:.0f} s; {_how_far(observation, why)}",
        )
    if observation.outcome is Outcome.CRASH:
        return "unable", f"was ended: {_last_line(observation.note) or 'by a signal'}"
    if observation.outcome is not Outcome.OK:
        return "unreachable", _last_line(observation.note) or observation.outcome.value
    if observation.rc == 255 or (
        not observation.text.strip() and _SSH.search(observation.note) and observation.rc != 126
    ):
        return "unreachable", _ssh_reason(observation.note or observation.text)
    if refusal := next((line for line in output.splitlines() if line.startswith(REFUSALS)), ""):
        way_out = f"; {BRING_IT}" if refusal.startswith(NO_NODEDOCTOR) else ""
        return "unable", f"{_short_line(refusal)}{way_out}"
    for pattern, reason in _UNABLE:
        if match := re.search(pattern, output, re.M):
            return "unable", f"{reason} ({_matching_line(output, match)})"
    if observation.rc in (126, 127):
        return "unable", _last_line(output) or "the command could not be started"
    if observation.rc in (64, 70):
        reason = "does not understand what was asked" if observation.rc == 64 else "stopped with a bug"
        return "unable", f"nodedoctor there {reason}: {_last_line(output)}"
    if observation.rc is not None and 128 < observation.rc < 193:
        return "unable", f"was ended there by signal {observation.rc - 128}"
    more = f" (it said: {_last_line(observation.note)})" if _last_line(observation.note) else ""
    return "unreadable", f"{why}{more}"


def _ssh_reason(output: str) -> str:
    """ssh's own reason; a banner that sshd shows to everybody comes on stderr too and is none."""
    for pattern, reason in _PLAIN_SSH:
        if re.search(pattern, output):
            return reason
    lines = [line for line in output.splitlines() if _SSH.search(line)]
    return _short_line(lines[-1]) if lines else _last_line(output) or "ssh gave no reason"


def _how_far(observation: Observation, why: str) -> str:
    if not observation.text.strip():
        return (
            f"not a byte came (it said: {_last_line(observation.note)})"
            if _is_foreign(observation.note)
            else "not a byte came"
        )
    return why


def _is_foreign(note: str) -> bool:
    """Whether a note is somebody's words and not our own about the child."""
    return bool(note) and not note.startswith("no answer in")


def _matching_line(output: str, match: re.Match[str]) -> str:
    begin, end = output.rfind("\n", 0, match.start()) + 1, output.find("\n", match.start())
    return _short_line(output[begin : end if end >= 0 else len(output)])


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return _short_line(lines[-1]) if lines else ""


def _short_line(line: str) -> str:
    line = line.strip()
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
