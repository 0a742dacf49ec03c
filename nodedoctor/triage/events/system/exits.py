"""How processes ended: torchelastic, mp.spawn, mpirun, srun, DeepSpeed, shells, Kubernetes: each its way."""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.events.log_pattern import (
    LogPattern,
    bounded_integer,
    log_pattern,
    optional_integer,
    symptom_pattern,
)
from nodedoctor.triage.events.not_a_log import UnreadTrouble
from nodedoctor.triage.events.system.lifecycle import CancelledByUser
from nodedoctor.triage.model import LARGEST_WORLD

SIGNALS = {"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8,
           "SIGKILL": 9,
           "SIGSEGV": 11, "SIGPIPE": 13, "SIGTERM": 15}  # fmt: skip
SIGTERM = SIGNALS["SIGTERM"]
"""How launchers and schedulers end a process."""
_WORDS = {"Killed": 9, "Segmentation fault": 11, "Bus error": 7, "Aborted": 6, "Terminated": 15, "Hangup": 1,
          "Floating point exception": 8, "Illegal instruction": 4, "Interrupt": 2}  # fmt: skip
OF_A_SCRIPT = re.compile(r"^\S*: line \d+: +\d+ \w")
"""A shell tells so that a command of its script was killed, and runs the next one."""

TASKS = 4096
"""Tasks of one of Slurm's lists that are told apart."""


@record
class ProcessExit:
    """A process ended with this code: negative for a signal. `first`: its launcher saw this one first.

    `at` is when, in its launcher's own words: it sorts, and is compared with nothing of another program.
    """

    code: int
    first: bool = False
    at: str = ""
    tasks: tuple[int, ...] = ()
    """Those that a scheduler lists together as ended this way."""
    helper: str = ""
    """What it was, where it was a helper of a process and took part in no collective: it loads data, say."""
    told: bool = True
    """False where its launcher says that it failed, and not with which code."""
    of_job: bool = False
    """The whole job's, as its scheduler reports it: also of one that the scheduler ended itself."""
    ends_all: bool = False
    """It ends the job with itself, as MPI_Abort does: whoever is killed behind it was killed for it."""

    @property
    def signal(self) -> int | None:
        """The signal that ended it, None when it ended by itself."""
        return -self.code if self.code < 0 else self.code - 128 if 128 < self.code < 160 else None


@record
class ForceKilled:
    """A process ignored SIGTERM for 30 s and had to be killed: it was frozen, or stuck in a call."""


@record
class PeersTerminated:
    """The launcher sends the others home: whoever dies after this is no culprit.

    `by_kill`: it does so with SIGKILL at once. `for_a_task`: because one of its tasks failed, as srun says.
    """

    by_kill: bool = False
    for_a_task: bool = False


@record
class LauncherSignalled:
    """A launcher got a signal and took its workers down: the terminal closed, or somebody ended it.

    `what`: who got it, where it was no launcher.
    """

    signal: int
    what: str = "launcher"


def signal_of(word: str) -> int:
    """The code of a process that the signal of a name, a shell's word or a number ended: it is negative."""
    return -(SIGNALS.get(word) or _WORDS.get(word) or optional_integer(word) or 9)


def tasks_of(text: str) -> tuple[int, ...]:
    """The numbers in Slurm's `0-3,7`; BeyondBounds, a ValueError, for one that no job has."""
    told: list[int] = []
    for piece in text.strip(",-").split(","):
        first, _, last = piece.partition("-")
        begin = bounded_integer(first, LARGEST_WORLD - 1)
        end = bounded_integer(last, LARGEST_WORLD - 1) if last else begin
        told += range(begin, min(end, begin + TASKS) + 1)
    return tuple(told[:TASKS])


def _is_prose(found: re.Match[str]) -> ProcessExit | None:
    code = (
        optional_integer(found["code"])
        if found["code"]
        else signal_of(found["signal"])
        if found["signal"]
        else None
    )
    return ProcessExit(code, first=True) if code else None


def _deepspeed_exit(found: re.Match[str]) -> ProcessExit | None:
    code = bounded_integer(found[1])
    return ProcessExit(code) if code else None


def _launcher_signalled(signal: int) -> LauncherSignalled | CancelledByUser:
    return CancelledByUser("interrupted from the keyboard") if signal == 2 else LauncherSignalled(signal)


_NODE = r"error: (?P<host>[\w.-]+): task(?:s)? (?P<rank>\d+)(?![\d,-])(?:[\d,-]*): "

SIGNS: tuple[LogPattern, ...] = (
    log_pattern(
        r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)",
        lambda found: ProcessExit(bounded_integer(found["code"]), first=True),
    ),
    log_pattern(
        r"Received (?:Signals\.)?(?P<name>SIG[A-Z]+|\d+) death signal"
        r"|SignalException: Process \d+ got signal: (?:Signals\.)?(?P<signal>\d+|SIG[A-Z]+)",
        lambda found: _launcher_signalled(-signal_of(found["name"] or found["signal"])),
    ),
    log_pattern(
        r"Unable to shutdown process (?P<pid>\d+) via (?:\d+|\S*SIG[A-Z]+), forcefully exit",
        lambda _: ForceKilled(),
    ),
    log_pattern(r"Sending process (?P<pid>\d+) closing signal", lambda _: PeersTerminated()),
    log_pattern(
        r"Job step aborted|(?P<task>Terminating (?:StepId|job step))\b"
        r"|sigkill_handler\] Killing subprocess (?P<pid>\d+)",
        lambda found: PeersTerminated(for_a_task=found["task"] is not None),
    ),
    log_pattern(
        r"[Rr]oot (?:[Cc]ause|failure)(?: on"
        r"|:)? (?P<who>rank):? ?(?P<rank>\d+)\b(?:.{0,20}exit ?code:? ?(?P<code>-?\d+))?"
        r"(?:.{0,20}(?P<signal>SIG[A-Z]+))?",
        _is_prose,
    ),
    log_pattern(
        r"rank ?:? *(?P<rank>\d+) \(local[_ ]rank: ?(?P<local>\d+)\)\s*exitcode *: *(?P<code>-?\d+) "
        r"\(pid: (?P<pid>\d+)\)",
        lambda found: ProcessExit(bounded_integer(found["code"]), first=True),
    ),
    log_pattern(
        r"process (?P<rank>\d+) terminated with (?:signal (?P<signal>\w+)|exit code (?P<code>\d+))",
        _is_prose,
    ),
    log_pattern(  # torch.multiprocessing's, of the first that ended: how may be cut off
        r"Exception: process (?P<rank>\d+) terminated with(?: signal| exit(?: code)?)?[ .]*$",
        lambda _: ProcessExit(1, first=True, told=False),
    ),
    log_pattern(
        r"^(?:-- )?Process (?P<rank>\d+) terminated with the following error",
        lambda _: ProcessExit(1, first=True, told=False),
    ),
    log_pattern(  # Abseil's handler of signals, which Ray installs
        r"\b(?P<name>SIG(?:TERM|SEGV|ABRT|BUS|FPE|ILL)) received at time=\d",
        lambda found: (
            LauncherSignalled(15, "process")
            if found["name"] == "SIGTERM"
            else ProcessExit(signal_of(found["name"]))
        ),
    ),
    log_pattern(  # launchers that count ranks
        r"\b[Rr]ank (?P<rank>\d+)\b(?: \((?:PID|pid) (?P<pid>\d+)\))?"
        r" (?:crashed|exited|died|failed|terminated|ended) with (?:exit |return )?(?:code|status):?"
        r" (?P<code>-?[1-9]\d{0,4})\b",
        lambda found: ProcessExit(bounded_integer(found["code"])),
    ),
    log_pattern(  # handlers that programs and compiled frameworks install themselves
        r"\bsignal\W{1,4}(?P<signal>SIG[A-Z]+|Aborted|Segmentation fault|Bus error|Floating point exception"
        r"|Illegal instruction)\b.{0,24}\b(?:from|on|in|of) (?:[a-zA-Z_]{3,14} )?rank (?P<rank>\d+)",
        lambda found: ProcessExit(signal_of(found["signal"])),
    ),
    log_pattern(  # of a TPU pod: gcloud's
        r"^#* ?Command execution on worker (?P<rank>\d+) failed with exit status (?P<code>[1-9]\d{0,2})\b",
        lambda found: ProcessExit(bounded_integer(found["code"])),
    ),
    log_pattern(  # DeepSpeed's launcher
        r"\bMain process received (?P<name>SIG[A-Z]{3,4}), exiting",
        lambda found: _launcher_signalled(-signal_of(found["name"])),
    ),
    log_pattern(
        _NODE + r"(?P<signal>Killed|Segmentation fault|Bus error|Aborted|Floating point exception"
        r"|Illegal instruction)",
        lambda found: ProcessExit(signal_of(found["signal"])),
    ),
    log_pattern(
        _NODE + r"Exited with exit code (?P<code>\d+)",
        lambda found: ProcessExit(bounded_integer(found["code"])),
    ),
    log_pattern(
        r"error: (?P<host>[\w.-]+): tasks (?P<tasks>\d+[-,][\d,-]*): (?:(?P<signal>Killed|Segmentation fault"
        r"|Bus error|Aborted)|Exited with exit code (?P<code>\d+))",
        lambda found: ProcessExit(
            bounded_integer(found["code"]) if found["code"] else signal_of(found["signal"]),
            tasks=tasks_of(found["tasks"]),
        ),
    ),
    log_pattern(r"exits with return code = (-?\d+)", _deepspeed_exit),
    log_pattern(
        # pip tells so of a command that it tried, behind a line of its box
        r"(?:Exit [Cc]ode:\s+|\"?exitCode\"?: |(?<!│ )exit code:? )(?P<code>13[479]|143|-(?:4|6|7|8|9|11))\b",
        lambda found: ProcessExit(bounded_integer(found["code"])),
    ),
    log_pattern(
        # the training operator and kubectl; a message about a pod does not say which container ended first
        r"pod (?P<host>[\w.-]+) container \S+ exitCode: (?P<code>[1-9]\d*)"
        r"|Pod: (?:[\w-]+\.)?(?P<pod>[\w-]+) exited with code (?P<pods>[1-9]\d*)",
        lambda found: ProcessExit(bounded_integer(found["code"] or found["pods"])),
    ),
    log_pattern(  # of Kubernetes about a pod that has not begun
        r"\b(?:ImagePullBackOff|ErrImagePull|CreateContainer(?:Config)?Error|FailedScheduling)\b",
        lambda _: UnreadTrouble(),
    ),
    symptom_pattern(
        "peer_died",
        "crash-loop",
        r"\bCrashLoopBackOff\b|Back-off restarting failed container",
        "a container ends each time that it is started (CrashLoopBackOff)",
        decisive=False,
    ),
    log_pattern(
        r"^(?:\S*: line \d+: +(?P<pid>\d+) +)?(?P<signal>Killed|Segmentation fault|Bus error|Aborted)"
        r"(?: +\(core dumped\)(?: +\S.*)?|(?(pid) +\S.*| {2,}\S.*))?$",
        lambda found: ProcessExit(signal_of(found["signal"])),
    ),
    log_pattern(
        r"^\S*: line \d+: +(?P<pid>\d+) +(?P<signal>Floating point exception|Illegal instruction)"
        r"(?: +\(core dumped\))?(?: +\S.*)?$",
        lambda found: ProcessExit(signal_of(found["signal"])),
    ),
    log_pattern(
        r"^\S*: line \d+: +(?P<pid>\d+) +Hangup(?: +\S.*)?$",
        lambda _: LauncherSignalled(SIGNALS["SIGHUP"]),
    ),
    log_pattern(
        r"(?:(?:\[(?P<host>[\w.-]+):(?P<pid>\d+)(?::\d+){1,2}\] )?Caught signal (?P<n>11|7) "
        r"|Fatal Python error: (?P<fatal>Segmentation fault|Bus error|Aborted"
        r"|Floating point exception|Illegal instruction)"
        r"|died with <Signals\.(?P<signal>SIG(?:KILL|SEGV|BUS))|Signal (?P<n2>11|7) \(SIG)",
        lambda found: ProcessExit(
            -int(found["n"] or found["n2"] or -signal_of(found["fatal"] or found["signal"]))
        ),
    ),
    log_pattern(  # gdb, of a process that runs under it and of a core dump
        r"^(?:Program|Thread \d{1,6} \"[^\"]{0,40}\") (?:received|terminated with) signal"
        r" (?P<signal>SIG(?:SEGV|ABRT|BUS|FPE|ILL|KILL))\b",
        lambda found: ProcessExit(signal_of(found["signal"])),
    ),
    log_pattern(  # glog's and Ray's handlers of signals
        r"(?P<received>SIG(?:SEGV|ABRT|BUS|FPE|ILL|TERM(?= \(@)))(?: \(@.{1,80}?)? received"
        r"(?: by PID (?P<pid>\d+))?",
        lambda found: ProcessExit(signal_of(found["received"])),
    ),
    log_pattern(  # Open MPI's handler of signals, MPICH's and Intel MPI's hydra
        r"(?:^|\[(?P<host>[\w.-]+):(?P<pid>\d+)\] )Signal: [A-Z][A-Za-z -]{2,30} \((?P<signal>4|6|7|8|11)\)"
        r"|EXIT STRING: [A-Z][A-Za-z ]{2,30} \(signal (?P<exit>\d{1,2})\)"
        r"|KILLED BY SIGNAL: (?P<killed>\d{1,2})",
        lambda found: ProcessExit(-bounded_integer(found["signal"] or found["exit"] or found["killed"], 64)),
    ),
    symptom_pattern(
        "user_code_exception",
        "not-begun",
        r"^\S{1,80}: error: (?:unrecognized arguments|the following arguments are required|argument \S+: )"
        r"|^\S*python[\d.]*: (?:can't open file '|No module named |Error while finding module)"
        r"|\"[^\"]{1,80}\": executable file not found in \$PATH",  # runc, Podman, Apptainer
        "the program could not begin with what it was started with",
        quoted=True,
        personal=True,
        owner="CONFIG",
    ),
    symptom_pattern(
        "user_code_exception",
        "panic",
        r"^thread '[^']{0,60}' (?:\(\d+\) )?panicked at ",
        "a library written in Rust gave up",
        quoted=True,
        personal=True,
    ),
    symptom_pattern(  # glibc's assert(3) and abseil's and glog's CHECK, which then end the process
        "user_code_exception",
        "assertion",
        r": Assertion [`'].{1,300}' failed\.|\bCheck failed: |^Assertion failed: ",
        "a check in compiled code failed",
        quoted=True,
        personal=True,
    ),
    log_pattern(  # of a unit: the job's or any other one's, so that a mere code says little
        r"\.(?:service|scope): Main process exited, code=(?P<how>exited|killed|dumped),"
        r" status=(?P<code>[1-9]\d*)",
        lambda found: (
            UnreadTrouble() if found["how"] == "exited" else ProcessExit(-bounded_integer(found["code"], 64))
        ),
    ),
    log_pattern(
        r"(?<!\.service: Main )[Pp]rocess\b.{0,60}(?:failed|exited|ended|terminated|died|crashed)\b.{0,24}"
        r"(?:exit|return|status|with) ?(?:code|status)? ?[:=]? ?(?P<code>-?[1-9]\d{0,4})\b(?!.*\bsignal\b)"
        r"(?:.{0,12}\bpid ?[:=] ?(?P<pid>\d+))?",
        lambda found: ProcessExit(bounded_integer(found["code"])),
    ),
)
