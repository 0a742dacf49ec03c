"""Ends of processes as nouns: an exit, a launcher that ends the others, one that got a signal."""

from __future__ import annotations

import re
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.patterns.log_pattern import SIGNALS, bounded_integer

SIGTERM = SIGNALS["SIGTERM"]
"""How launchers and schedulers end a process."""
SIGABRT = SIGNALS["SIGABRT"]
"""How a watchdog ends its own process."""
FAULT_SIGNALS = (4, 7, 8, 11)
"""Signals of a process's own faults: no launcher sends them, and waiting for others raises none."""
KILLS = (*FAULT_SIGNALS, 9)
"""Signals that end a process without a word of its own, and of no orderly stop; SIGABRT and SIGTERM are how
victims end."""
_ENDS_BY_WINDOWS = {
    0xC0000005: 11, 0xC0000006: 7, 0xC000001D: 4, 0xC0000094: 8, 0xC00000FD: 11, 0xC000013A: 2,
    0xC0000374: 6, 0xC0000409: 6,
}  # fmt: skip
"""Codes with which Windows ends a process, and the signals of the same faults ([MS-ERREF], NTSTATUS Values).

Some programs print them with a sign, others without."""
OF_A_SCRIPT = re.compile(r"^(?:\S*: line \d+: +\d+|\[\d{1,3}\][+-]?) +[A-Za-z]")
"""A shell's line about a killed command of its script, which then runs the next one."""

OF_SRUN = re.compile(r"\berror: [\w.-]+: tasks? \d[\d,-]*: ")
"""srun's line about tasks that ended, in the order in which they did."""


@record
class ProcessExit:
    """The end of a process; its code is negative for a signal.

    `first`: its launcher saw this one first.
    `at` is when, in its launcher's own words: it sorts, and is compared with nothing of another program.
    """

    code: int
    first: bool = False
    at: str = ""
    tasks: tuple[int, ...] = ()
    """Those that a scheduler lists together as ended this way."""
    helper: str = ""
    """What it was, where it was a helper of a process and took part in no collective: it loads data, say."""
    has_code: bool = True
    """False where its launcher says that it failed, and not with which code."""
    of_job: bool = False
    """The whole job's, as its scheduler reports it: also of one that the scheduler ended itself."""
    ends_all: bool = False
    """It ends the job with itself, as MPI_Abort does: processes killed behind it were killed for it."""
    agent: str = ""
    """How torchelastic's agent tells it: `entry` of its list, or `notice`, which names the lowest local rank
    of all that it found ended. So those below were alive, and of those above nothing is known."""

    @classmethod
    def from_groups(cls, code: int | None = None, signal: int | None = None, **values: Any) -> ProcessExit:
        """The exit of a row: with a code, by a signal, or without either."""
        if code is not None:
            by_windows = _ENDS_BY_WINDOWS.get(code & 0xFFFFFFFF)
            return cls(code if by_windows is None else -by_windows, **values)
        return cls(-signal, **values) if signal is not None else cls(1, has_code=False, **values)

    @property
    def signal(self) -> int | None:
        """The signal that ended it, None when it ended by itself."""
        return -self.code if self.code < 0 else self.code - 128 if 128 < self.code < 160 else None


@record
class PeersTerminated:
    """The launcher ends the other processes: one that dies after this is no culprit.

    `by_kill`: it does so with SIGKILL at once. `for_a_task`: because one of its tasks failed, as srun says.
    `one_by_one`: it names each that it ends, as torchelastic does.
    """

    by_kill: bool = False
    for_a_task: bool = False
    one_by_one: bool = False


@record
class LauncherSignalled:
    """A launcher got a signal from outside and ended its workers.

    `what`: who got it, where it was no launcher.
    """

    signal: int
    what: str = "launcher"


@record
class LeftFirst:
    """A rank ended before all others, as our own black box saw; `how` has its exit code, if known."""

    how: str = ""


def mpich_abort(match: re.Match[str]) -> ProcessExit:
    """MPI_Abort takes any number; a code above 127 would be that of a signal."""
    return ProcessExit(min(bounded_integer(match["code"]), 127) or 1, first=True, ends_all=True)
