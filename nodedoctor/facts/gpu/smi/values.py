"""How nvidia-smi writes values, and what they are: `81559 MiB`, `16x`, `P0`, `Enabled`, `0x233010DE`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from nodedoctor.facts.gpu.smi.errors import error_name
from nodedoctor.patterns import regex

Reader = Callable[[str], Any]
"""Takes the text of a value; None when it is no such value."""

_NUMBER = regex(r"[+-]?\d{1,18}(?:\.\d{1,9})?")
_PCI_ID = regex(r"(?:0x)?([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})")
_ARCHITECTURES = {"ada lovelace": "ada"}
_RECOVERY = {"reset": "gpu-reset", "reboot": "node-reboot"}


def value_of(text: str | None, read: Reader) -> tuple[Any, str | None]:
    """A text as its value, or None and the name of the error in its place.

    An absent or empty text is neither: that driver does not print it.
    """
    if not text:
        return None, None
    value = read(text)
    if value is not None:
        return value, None
    return None, error_name(text) or "UNPARSABLE"


def text_of(text: str) -> str | None:
    """Any text that is no placeholder and no error."""
    return None if not text or text == "None" or error_name(text) else text


def number(text: str) -> float | None:
    """The number a value begins with, whatever its unit."""
    match = _NUMBER.match(text)
    return float(match[0]) if match else None


def leading_integer(text: str) -> int | None:
    """The whole number a value begins with: `81559 MiB`, `8 %`, `16x`, `2560 bank(s)`."""
    leading = number(text)
    return None if leading is None else round(leading)


def flag(text: str) -> bool | None:
    """Yes or no, on or off, in all their spellings; some queries print 1 and 0."""
    word = text.lower()
    if word in ("enabled", "yes", "on", "active", "true", "1"):
        return True
    return False if word in ("disabled", "no", "off", "not active", "false", "0") else None


def pstate(text: str) -> int | None:
    """A performance state, `P0` to `P15`."""
    return int(text[1:]) if re.fullmatch(r"P\d{1,2}", text) else None


def word(text: str) -> str | None:
    """A mode as one word in small letters: `Exclusive_Process` and `In Progress` get hyphens."""
    plain = re.sub(r"[\s_]+", "-", text.strip().lower())
    return None if error_name(text) or not re.fullmatch(r"[a-z][a-z-]*", plain) else plain


def architecture(text: str) -> str | None:
    """`Hopper` as hopper, `Ada Lovelace` as ada."""
    name = text.lower()
    return _ARCHITECTURES.get(name) or word(text)


def recovery_action(text: str) -> str | None:
    """What the driver wants to be done: none gpu-reset node-reboot drain-p2p drain-and-reset."""
    plain = word(text)
    return None if plain is None else _RECOVERY.get(plain, plain)


def fabric_state(text: str) -> str | None:
    """State of the fabric registration; `N/A` is how it says that this GPU has none."""
    return "not-supported" if text == "N/A" else word(text)


def fabric_status(text: str) -> str | None:
    """The registration's result as an NVML return name: SUCCESS, INSUFFICIENT_RESOURCES."""
    if text.lower() == "success":
        return "SUCCESS"
    return None if text == "N/A" else error_name(text)


def device_id(text: str) -> str | None:
    """The device half of a PCI id: `0x233010DE` is 2330."""
    match = _PCI_ID.fullmatch(text)
    return match[1].lower() if match else None


def subsystem_id(text: str) -> str | None:
    """A subsystem as device:vendor: `0x16C110DE` is 16c1:10de."""
    match = _PCI_ID.fullmatch(text)
    return f"{match[1]}:{match[2]}".lower() if match else None


def program(text: str) -> str | None:
    """The name of the program a process runs, without path and arguments; None for `[Not Found]`, `N/A`."""
    if error_name(text) or not text.split():
        return None
    return text.split()[0].rpartition("/")[2] or None
