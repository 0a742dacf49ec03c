"""What Slurm says of its nodes, and what people's options mean by them."""

from __future__ import annotations

from collections.abc import Iterable

from nodedoctor.knowledge.slurm_states import STATES
from nodedoctor.record import record

FORMAT = "%N|%P|%T|%E"
"""For `sinfo --Node --noheader --format`: the reason comes last, because it may hold anything."""

_CLOSED = {word: state.why for state in STATES for word in state.words}
_BUSY = {
    "allocated": "Slurm has given all its processors to jobs: ask inside such a job, or over --ssh",
    "completing": "a job is still ending there: Slurm waits for its last process",
}
_RESERVATION = ("maint", "reserved")
# sinfo(1), NODE STATE CODES: what the character behind a state says.
_FLAGS = {
    "*": "not responding",
    "~": "powered down",
    "#": "being powered up",
    "!": "about to be powered down",
    "%": "being powered down",
    "@": "about to reboot",
    "^": "rebooting",
}
_OPEN_FLAGS = "$+-"  # in a maintenance reservation, a cloud node, planned for a job: jobs may still start


@record
class SinfoRow:
    """One node in one partition; `reason` is what somebody or slurmctld wrote beside its state."""

    host: str
    partition: str
    state: str
    flags: str = ""
    reason: str = ""
    default: bool = False

    @property
    def busy(self) -> str:
        """Why Slurm has no room there for now; empty when it may have."""
        return _BUSY.get(self.state, "")

    @property
    def idle(self) -> bool:
        """Whether nothing runs there, so that Slurm gives it at once."""
        return self.state == "idle"

    def closed(self, *, reservation: bool = False) -> str:
        """Why Slurm would start nothing there, in words for people; empty when it would."""
        reasons = [_FLAGS[flag] for flag in self.flags if flag in _FLAGS]
        if self.state in _CLOSED and not (reservation and self.state in _RESERVATION):
            reasons.insert(0, _CLOSED[self.state])
        if not reasons:
            return ""
        because = f": {self.reason}" if self.reason and self.reason.casefold() != reasons[-1] else ""
        return f"Slurm has it as {', '.join(reasons)}{because}"


def rows(text: str) -> tuple[SinfoRow, ...]:
    """The lines of `sinfo` in FORMAT; what is not one of them is passed over."""
    sinfo_rows = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|", 3)]
        if len(parts) != 4 or not parts[0]:
            continue
        host, partition, state, reason = parts
        name = state.rstrip("".join(_FLAGS) + _OPEN_FLAGS)
        sinfo_rows.append(
            SinfoRow(
                host,
                partition.rstrip("*"),
                name.casefold(),
                flags=state[len(name) :],
                reason="" if reason == "none" else reason,
                default=partition.endswith("*"),
            )
        )
    return tuple(sinfo_rows)


def chosen(sinfo_rows: Iterable[SinfoRow], *, everywhere: bool) -> dict[str, SinfoRow]:
    """One row per node, in order: of the default partition alone, where no other was named and there is one.

    A job runs in one partition, so nodes outside the default one are not meant by an option-less `srun`.
    """
    candidates = list(sinfo_rows)
    if not everywhere and any(row.default for row in candidates):
        candidates = [row for row in candidates if row.default]
    return {row.host: row for row in candidates}


def option(words: tuple[str, ...], short: str, long: str) -> str:
    """The value of an option that takes one, as getopt_long(3) reads it; the last counts, "" without any."""
    value = ""
    for place, word in enumerate(words):
        if word in (short, long):
            value = words[place + 1] if place + 1 < len(words) else ""
        elif word.startswith(f"{long}="):
            value = word.partition("=")[2]
        elif word.startswith(short) and not word.startswith("--"):
            value = word[len(short) :]
    return value


def immediate(words: tuple[str, ...], otherwise: float) -> float:
    """Seconds to wait for an allocation: those of `-I30` or `--immediate=30`, whose value is never apart."""
    for word in words:
        value = word.partition("=")[2] if word.startswith("--immediate=") else word[2:]
        if word.startswith(("-I", "--immediate=")) and value.isascii() and value.isdigit():
            otherwise = max(1.0, float(value))
    return otherwise
