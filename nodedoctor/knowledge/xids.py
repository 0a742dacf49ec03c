"""What GPU errors (Xid) and NVSwitch errors (SXid) mean, whose fault they are and what to do about them."""

from __future__ import annotations

from functools import cache
from typing import Any

from nodedoctor.knowledge.table import cached_rows, raw_rows, rows, typed
from nodedoctor.model import Action
from nodedoctor.record import record

RELABELLED_BRANCH = 575
"""From this driver branch on NVLink 5 messages use the second layout of their first word (Xid catalogue)."""


@record
class Advice:
    """What to do, as a word a machine acts on and as a sentence."""

    key: str
    action: Action
    text: str


@record
class XidRow:
    """One GPU error code. `level` is info, warn, fatal, or decode (the message's words decide).

    `fault` names the likely culprits, likeliest first: app, driver, hw, bus, power, thermal, peer, fabric, …
    `bucket` is NVIDIA's word for the first step and `investigate` for the second. `families` are the GPU
    generations that report it, `legacy` marks codes current GPUs no longer use.
    """

    xid: int
    mnemonic: str
    meaning: str
    fault: tuple[str, ...]
    level: str
    advice: str
    source: str
    bucket: str = ""
    investigate: str = ""
    families: tuple[str, ...] = ()
    legacy: bool = False
    note: str = ""
    unverified: bool = False

    @property
    def what_to_do(self) -> Advice:
        """The advice for this code."""
        return advice(self.advice)

    @property
    def action(self) -> Action:
        """The least drastic step that repairs it."""
        return self.what_to_do.action

    @property
    def of_program(self) -> bool:
        """True when the program on the GPU is the likeliest culprit, not the node."""
        return self.fault[0] == "app"

    @property
    def of_hardware(self) -> bool:
        """True when the GPU itself is the likeliest culprit, and something has to be done about it."""
        return self.fault[0] == "hw" and self.bucket != "IGNORE"


@record
class SxidRow:
    """One NVSwitch error code; `kind` is non-fatal, notable, fatal or always-fatal.

    `stalls` marks a non-fatal one that stalls a GPU's NVLink traffic, whose jobs then end with Xid 45.
    """

    sxid: int
    name: str
    kind: str
    source: str
    stalls: bool = False
    unverified: bool = False


@record
class SxidKind:
    """What a kind of NVSwitch error means and what to do."""

    kind: str
    meaning: str
    action: Action
    advice: str


@record
class Workflow:
    """The rule behind one of NVIDIA's buckets that depends on what else was seen."""

    bucket: str
    rule: str


@record
class RecoveryAction:
    """A value of NVML's GPU recovery action; Xid 154 prints the same values. `word` is what facts call it."""

    value: int
    name: str
    word: str
    action: Action


@record
class Xid74Bit:
    """What bits of one of the seven words of an Xid 74 mean; words count from 1, bits from 0 (Hopper)."""

    word: int
    bits: tuple[int, ...]
    meaning: str


@record
class NvLink5:
    """One sub-code of Xid 144 to 150: bit patterns of the first word (- matches any), and what follows.

    `error_statuses` are the values the second word may have, empty for any.
    """

    xid: int
    unit: str
    pattern_v1: str
    pattern_v2: str
    bucket: str
    investigate: str
    error_statuses: tuple[str, ...] = ()


@cache
def _xid_rows() -> dict[int, dict[str, Any]]:
    return {raw["xid"]: raw for raw in raw_rows("xids", "xids")}


@cache
def _advice_rows() -> dict[str, Advice]:
    return {row.key: row for row in rows("xids", "advice", Advice)}


sxids = cached_rows("xids", "sxids", SxidRow)
"""All NVSwitch codes, lowest first."""
sxid_kinds = cached_rows("xids", "sxid_kinds", SxidKind)
"""The kinds of NVSwitch errors."""
workflows = cached_rows("xids", "workflows", Workflow)
"""The rules behind NVIDIA's buckets."""
recovery_actions = cached_rows("xids", "recovery_actions", RecoveryAction)
"""The values of the GPU recovery action."""
xid74_bits = cached_rows("xids", "xid74_bits", Xid74Bit)
"""The register bits of Xid 74."""
nvlink5_codes = cached_rows("xids", "nvlink5", NvLink5)
"""The sub-codes of Xid 144 to 150."""


def xids() -> tuple[XidRow, ...]:
    """All GPU codes, lowest first."""
    return rows("xids", "xids", XidRow)


def advice(key: str) -> Advice:
    """The advice of that key; KeyError for one the table does not have."""
    return _advice_rows()[key]


def xid(code: int) -> XidRow | None:
    """The GPU error of that number; None for one the table does not know."""
    raw = _xid_rows().get(code)
    return typed("xids", raw, XidRow) if raw else None


def sxid(code: int) -> SxidRow | None:
    """The NVSwitch error of that number; None for one the table does not know."""
    return next((row for row in sxids() if row.sxid == code), None)


def sxid_kind(kind: str) -> SxidKind:
    """What a kind of NVSwitch error means; KeyError for an unknown kind."""
    return {row.kind: row for row in sxid_kinds()}[kind]


def workflow(bucket: str) -> Workflow | None:
    """The rule behind a bucket; None for buckets that are plain actions."""
    return next((row for row in workflows() if row.bucket == bucket), None)


def recovery_action(value: int) -> RecoveryAction | None:
    """What a GPU recovery action asks for; None for a value newer than the table."""
    return next((row for row in recovery_actions() if row.value == value), None)


def xid74_meanings(words: tuple[int, ...]) -> tuple[Xid74Bit, ...]:
    """What the words of an Xid 74 message say: the rows of which at least one bit is set."""

    def is_set(row: Xid74Bit) -> bool:
        return row.word <= len(words) and any(words[row.word - 1] >> bit & 1 for bit in row.bits)

    return tuple(row for row in xid74_bits() if is_set(row))


def nvlink5(xid: int, first_word: int, error_status: int, branch: int, unit: str = "") -> NvLink5 | None:
    """Decode the words of Xid 144 to 150 on a driver branch; None when no sub-code matches.

    Logs are pasted without their driver's branch: where the named unit has no row in the branch's layout, the
    other layout counts, and where all its rows of this status ask for the same, the layout does not matter.
    """
    fitting = [row for row in nvlink5_codes() if row.xid == xid and unit in row.unit]
    statuses = ((row, [int(status, 16) for status in row.error_statuses]) for row in fitting)
    fitting = [row for row, codes in statuses if not codes or error_status in codes]
    newer = branch >= RELABELLED_BRANCH
    for second in (newer, not newer) if unit else (newer,):
        for row in fitting:
            if _matches_word(row.pattern_v2 if second else row.pattern_v1, first_word):
                return row
    exact = [row for row in fitting if unit and row.unit == unit and row.error_statuses]
    return exact[0] if len({row.bucket for row in exact}) == 1 else None


def _matches_word(pattern: str, word: int) -> bool:
    return all(want in ("-", bit) for want, bit in zip(pattern, f"{word:032b}", strict=True))
