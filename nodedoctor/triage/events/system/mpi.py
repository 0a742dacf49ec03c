"""How MPI tells of a process that ended: Open MPI, PRRTE, MPICH, Intel MPI, MVAPICH2, HPE's PALS."""

from __future__ import annotations

import re

from nodedoctor.triage.events.log_pattern import LogPattern, bounded_integer, log_pattern
from nodedoctor.triage.events.system.exits import PeersTerminated, ProcessExit


def _hydra_exit(found: re.Match[str]) -> ProcessExit:
    """MPICH's and Intel MPI's `EXIT CODE`: what wait(2) told, where it ended by a signal.

    Then it is the signal, with 128 beside it for a core dump; 1 and 2 are codes that programs end with.
    """
    code = bounded_integer(found["code"])
    return ProcessExit(-code if code in _BY_SIGNAL else code)


_BY_SIGNAL = (4, 6, 7, 8, 9, 11, 15)


SIGNS: tuple[LogPattern, ...] = (
    log_pattern(  # HPE's PALS
        r"^(?P<host>[\w.-]+): rank (?P<rank>\d+) (?:died from signal (?P<signal>\d{1,2})"
        r"|exited with code (?P<code>[1-9]\d{0,2}))\b",
        lambda found: ProcessExit(
            bounded_integer(found["code"]) if found["code"] else -bounded_integer(found["signal"], 64)
        ),
    ),
    log_pattern(  # MPICH's mpd, until 1.4
        r"\bexit status of rank (?P<rank>\d+): (?:killed by signal (?P<signal>\d{1,2})"
        r"|return code (?P<code>[1-9]\d{0,2}))",
        lambda found: ProcessExit(
            bounded_integer(found["code"]) if found["code"] else -bounded_integer(found["signal"], 64)
        ),
    ),
    log_pattern(
        # the name of a node can push the signal to the next line: Open MPI breaks its messages at 80
        r"process rank (?P<rank>\d+) with PID (?:(?P<pid>\d+)|\S+) on node (?P<host>\S+) exited on"
        r"(?: signal (?P<signal>\d+)|(?: signal)?\s*$)",
        lambda found: ProcessExit(
            -bounded_integer(found["signal"]) if found["signal"] else 1,
            first=True,
            told=bool(found["signal"]),
        ),
    ),
    log_pattern(  # MVAPICH2 (src/util/debugger/error_handling.c)
        r"^\[(?P<host>[\w.-]+):mpi_rank_(?P<rank>\d+)\]\[error_sighandler\] Caught error: .{1,40}"
        r"\(signal (?P<signal>\d{1,2})\)",
        lambda found: ProcessExit(-bounded_integer(found["signal"], 64)),
    ),
    log_pattern(
        # what Open MPI's error handler prints before it aborts the job (ompi/errhandler)
        r"(?:MPI_ABORT was invoked on rank "
        r"|(?:\[(?P<host>[\w.-]{1,255}):(?P<pid>\d+)\] )?\*\*\* reported by process \[\d{1,20},)"
        r"(?P<rank>\d+)",
        lambda _: ProcessExit(1, first=True, told=False, ends_all=True),
    ),
    log_pattern(  # MPICH's word for a program that called MPI_Abort (src/mpi/init/abort.c)
        r"^Abort\((?P<code>\d{1,9})\) on node \d+ \(rank (?P<rank>\d+) in comm \S+\): application called",
        lambda found: ProcessExit(min(bounded_integer(found["code"]), 127) or 1, first=True, ends_all=True),
    ),
    log_pattern(  # Cray's MPICH
        r"\bMPICH ERROR \[Rank (?P<rank>\d+)\] \[job id \S+\] \[[^\]]{8,40}\] \[(?P<host>[\w.-]+)\]"
        r" - Abort\(",
        lambda _: ProcessExit(1, first=True, told=False, ends_all=True),
    ),
    log_pattern(  # MPICH's and Intel MPI's; only the latter tells the rank
        r"^=\s+(?:RANK (?P<rank>\d+) )?PID (?P<pid>\d+) RUNNING AT (?P<host>\S+)",
        lambda _: ProcessExit(1, first=True, told=False),
    ),
    log_pattern(r"^=\s+EXIT CODE: (?P<code>[1-9]\d{0,4})$", _hydra_exit),
    log_pattern(
        r"(?:EXIT STRING: .{1,40}\(signal |KILLED BY SIGNAL: )(?P<signal>\d+)\b",
        lambda found: ProcessExit(-bounded_integer(found["signal"])),
    ),
    log_pattern(
        r"detected that one or more processes exited with non-zero"
        r"|Per user-direction, the job has been aborted",
        lambda _: PeersTerminated(),
    ),
    log_pattern(
        r"^\s*Process name: \[(?:\[\d+,\d+\]|[\w.-]{1,255}@\d+),(?P<rank>\d+)\]",
        lambda _: ProcessExit(1, first=True, told=False),
    ),
)
