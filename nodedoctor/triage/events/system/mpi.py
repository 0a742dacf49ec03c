"""How MPI tells of a process that ended: Open MPI, PRRTE, MPICH, Intel MPI, MVAPICH2, HPE's PALS."""

from __future__ import annotations

import re

from nodedoctor.triage.events.sign import Sign, numeral, sign
from nodedoctor.triage.events.system.exits import ProcessExit, Stopped


def _hydra(found: re.Match[str]) -> ProcessExit:
    """MPICH's and Intel MPI's `EXIT CODE`: what wait(2) told, where it ended by a signal.

    Then it is the signal, with 128 beside it for a core dump; 1 and 2 are codes that programs end with.
    """
    code = numeral(found["code"])
    return ProcessExit(-code if code in _BY_SIGNAL else code)


_BY_SIGNAL = (4, 6, 7, 8, 9, 11, 15)


SIGNS: tuple[Sign, ...] = (
    sign(  # HPE's PALS
        r"^(?P<host>[\w.-]+): rank (?P<rank>\d+) (?:died from signal (?P<signal>\d{1,2})"
        r"|exited with code (?P<code>[1-9]\d{0,2}))\b",
        lambda found: ProcessExit(numeral(found["code"]) if found["code"] else -numeral(found["signal"], 64)),
    ),
    sign(  # MPICH's mpd, until 1.4
        r"\bexit status of rank (?P<rank>\d+): (?:killed by signal (?P<signal>\d{1,2})"
        r"|return code (?P<code>[1-9]\d{0,2}))",
        lambda found: ProcessExit(numeral(found["code"]) if found["code"] else -numeral(found["signal"], 64)),
    ),
    sign(  # the name of a node can push the signal to the next line: Open MPI breaks its messages at 80
        r"process rank (?P<rank>\d+) with PID (?:(?P<pid>\d+)|\S+) on node (?P<host>\S+) exited on"
        r"(?: signal (?P<signal>\d+)|(?: signal)?\s*$)",
        lambda found: ProcessExit(
            -numeral(found["signal"]) if found["signal"] else 1, first=True, told=bool(found["signal"])
        ),
    ),
    sign(  # MVAPICH2 (src/util/debugger/error_handling.c)
        r"^\[(?P<host>[\w.-]+):mpi_rank_(?P<rank>\d+)\]\[error_sighandler\] Caught error: .{1,40}"
        r"\(signal (?P<signal>\d{1,2})\)",
        lambda found: ProcessExit(-numeral(found["signal"], 64)),
    ),
    sign(
        # what Open MPI's error handler prints before it aborts the job (ompi/errhandler)
        r"(?:MPI_ABORT was invoked on rank "
        r"|(?:\[(?P<host>[\w.-]{1,255}):(?P<pid>\d+)\] )?\*\*\* reported by process \[\d{1,20},)"
        r"(?P<rank>\d+)",
        lambda _: ProcessExit(1, first=True, told=False, ends_all=True),
    ),
    sign(  # MPICH's word for a program that called MPI_Abort (src/mpi/init/abort.c)
        r"^Abort\((?P<code>\d{1,9})\) on node \d+ \(rank (?P<rank>\d+) in comm \S+\): application called",
        lambda found: ProcessExit(min(numeral(found["code"]), 127) or 1, first=True, ends_all=True),
    ),
    sign(  # Cray's MPICH
        r"\bMPICH ERROR \[Rank (?P<rank>\d+)\] \[job id \S+\] \[[^\]]{8,40}\] \[(?P<host>[\w.-]+)\]"
        r" - Abort\(",
        lambda _: ProcessExit(1, first=True, told=False, ends_all=True),
    ),
    sign(  # MPICH's and Intel MPI's; only the latter tells the rank
        r"^=\s+(?:RANK (?P<rank>\d+) )?PID (?P<pid>\d+) RUNNING AT (?P<host>\S+)",
        lambda _: ProcessExit(1, first=True, told=False),
    ),
    sign(r"^=\s+EXIT CODE: (?P<code>[1-9]\d{0,4})$", _hydra),
    sign(
        r"(?:EXIT STRING: .{1,40}\(signal |KILLED BY SIGNAL: )(?P<signal>\d+)\b",
        lambda found: ProcessExit(-numeral(found["signal"])),
    ),
    sign(
        r"detected that one or more processes exited with non-zero"
        r"|Per user-direction, the job has been aborted",
        lambda _: Stopped(),
    ),
    sign(
        r"^\s*Process name: \[(?:\[\d+,\d+\]|[\w.-]{1,255}@\d+),(?P<rank>\d+)\]",
        lambda _: ProcessExit(1, first=True, told=False),
    ),
)
