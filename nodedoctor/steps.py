"""Commands that people copy: the one place where they are built and quoted.

A template is a literal of ours; what comes from the node is a value, and every value becomes one quoted word
(or a part of one: `--pid={}`). So nothing that a node says can become shell code where it is pasted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from nodedoctor.model import Step
from nodedoctor.patterns import regex

ALL_JOBS = "every job on this node"

# What ends the work of others, or takes the node away from users who are logged in.
_DRASTIC = regex(
    r"""\b(?:reboot|poweroff|halt|shutdown|kexec)\b
    | /proc/sysrq-trigger
    | \bray\ stop\b
    | \brmmod\b | \bmodprobe\ (?:-\S+\ )*-r
    | \b(?:systemctl|service)\ .{0,90}\b(?:stop|restart|kill)\b .*\b
      (?:slurmd|slurmctld|docker|containerd|kubelet|crio|systemd-logind|nvidia-fabricmanager|nvidia-imex|opensm)\b
    | \bdocker\ (?:restart|stop|kill)\b
    | \bwsl\ --shutdown\b
    | \b(?:kill|pkill|killall)\ (?!-0\ |-CONT\ )
    | \bchassis\ power\b
    """,
    re.VERBOSE,
)
# A list without one entry, with and without a slash behind it; ld.so(8) says what separates the entries.
_OTHERS = """export LIST="$(printf %s "$LIST" | tr 'MARKS' '\\n' | grep -vxF -e {} -e {} | paste -sd:)\""""
_FOLDERS = _OTHERS.replace("MARKS", ":")
_LIBRARIES = _OTHERS.replace("MARKS", ": ")
_RESET = re.compile(r"\bnvidia-smi\b.* (?:--gpu-reset\b|-r\b)")
_ONE_GPU = regex(r" (?:-i|--id)[ =]\S")


def line(template: str, *values: object) -> str:
    """A command: each `{}` of the template is filled with one value, quoted; a list becomes several words.

    An empty list leaves no blank behind.

    Raises ValueError when values and places do not match, which is a bug of ours.
    """
    pieces = template.split("{}")
    if len(pieces) != len(values) + 1:
        raise ValueError(f"{template!r} has {len(pieces) - 1} places for {len(values)} values")
    command = pieces[0]
    for value, piece in zip(values, pieces[1:], strict=True):
        words = _value_words(value)
        command += words + (piece if words else piece.removeprefix(" "))
    return command


def look(template: str, *values: object, when: str = "") -> Step:
    """A command that only reads."""
    return Step("look", line(template, *values), when, "nothing", _as_root(template))


def looks(*templates: str) -> tuple[Step, ...]:
    """Several commands that only read and need no value."""
    return tuple(map(look, templates))


def keep(template: str, *values: object, when: str = "") -> Step:
    """A command that keeps what would be lost by a repair: evidence, a list of what ran."""
    return Step("keep", line(template, *values), when, "nothing", _as_root(template))


def repair(template: str, *values: object, when: str = "", disturbs: str = "") -> Step:
    """A command that changes something; what it disturbs is the fix's own answer unless it is given."""
    return Step("repair", line(template, *values), when, disturbs, _as_root(template))


def without_entry(variable: str, entry: str) -> Step:
    """Take one entry out of a list such as LD_LIBRARY_PATH, and leave the others in it."""
    template = (_LIBRARIES if variable == "LD_PRELOAD" else _FOLDERS).replace("LIST", variable)
    return repair(template, entry, f"{entry}/")


def last_resort(template: str, *values: object, when: str, disturbs: str) -> Step:
    """A command that ends the work of others: never copied with anything else, shown behind its condition."""
    return Step("last-resort", line(template, *values), when, disturbs, _as_root(template))


def reboot(when: str = "the steps above failed and the node is drained") -> Step:
    """Restart the node."""
    return last_resort("sudo reboot", when=when, disturbs=ALL_JOBS)


def power_cycle(when: str) -> Step:
    """Take the node's power away and give it back, over its BMC: a rented node has none to speak to."""
    when = f"{when}; on a rented node, stop and start it from the provider's console"
    return last_resort("sudo ipmitool chassis power cycle", when=when, disturbs=ALL_JOBS)


def stop_ray(when: str) -> Step:
    """Stop Ray on this node; how it is started again only its owner knows."""
    return last_resort("ray stop", when=when, disturbs="every Ray job of this node")


def drastic(command: str) -> bool:
    """Whether a command ends the work of others, by what it says; resets that name no GPU count."""
    return bool(_DRASTIC.search(command) or (_RESET.search(command) and not _ONE_GPU.search(command)))


def resets(command: str) -> bool:
    """Whether a command resets a GPU."""
    return bool(_RESET.search(command))


def as_steps(commands: Iterable[str]) -> tuple[Step, ...]:
    """Steps of bare commands, as older documents have them: what is drastic is a last resort."""
    return tuple(
        Step("last-resort", command, "the steps above failed", ALL_JOBS, _as_root(command))
        if drastic(command)
        else Step("repair", command, needs_root=_as_root(command))
        for command in commands
    )


def word(value: object) -> str:
    """One value as one word of a shell, on one line: what cannot be printed is written out."""
    text = str(value)
    if not text.isprintable():
        return "$'" + "".join(map(_escape_character, text)) + "'"
    return shlex.quote(text)


def _value_words(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(word, value))
    return word(value)


def _escape_character(character: str) -> str:
    if character in "'\\":
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no text, as Python's surrogateescape keeps it
        return f"\\x{code - 0xDC00:02x}"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "replace"))


def _as_root(command: str) -> bool:
    return "sudo" in command.split()
