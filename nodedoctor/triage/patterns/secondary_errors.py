"""Exceptions that only report the end of another process: they explain nothing."""

from __future__ import annotations

import re

from nodedoctor.triage.patterns.trace import ExceptionRaised

_ECHOES = re.compile(
    r"(?:Dist(?:Backend|Store|Network)Error|ChildFailedError|CheckpointException|Process(?:Raised|Exited)Exception"
    r"|Ray\w{0,40}Error|Actor\w{0,40}Error|OwnerDiedError|Object(?:Lost|ReconstructionFailed\w{0,40}|FetchTimedOut)Error"
    r"|LocalRayletDiedError"
    r"|KeyboardInterrupt|SystemExit|SignalException|BrokenPipeError|Connection\w{0,40}Error|EOFError"
    r"|GetTimeoutError|WorkerCrashedError|CancelledError|TimeoutExpired|BrokenProcessPool"
    r"|TerminatedWorkerError|WorkerLostError|KilledWorker"
    r"|Rendezvous\w{1,40}|NodeDiedError|EngineDeadError|PapermillExecutionError|CellExecutionError"
    r"|SockClientClosedError|MessageRouterClosedError"  # of wandb, when the program that it serves ends
    r"|TaskUnschedulableError|ProcessFailure|EnforceNotMet)$"
)
OF_LAUNCHERS = ("ChildFailedError", "ProcessRaisedException")
"""Exceptions of launchers that end all their processes with them."""
_COLLECTIVE_WORDS = re.compile(
    r"NCCL|[Gg]loo|ProcessGroup|process group|[Ww]atchdog|[Cc]oordination service|WorkerProc|worker process"
    r"|Engine (?:core|process)"
)
"""What fails when a process ends elsewhere, whatever the exception says of it."""
_ECHO_WORDS = re.compile(
    r"Connection (?:closed|reset)|monitoredBarrier|Timed out waiting"
    r"|communicator was aborted|DEADLINE_EXCEEDED|UNAVAILABLE: "
    r"|Horovod has been shut down"
    r"|\b(?:inspect|see|check) the (?:previous|above|first|original) (?:error|exception|traceback|log)"
    r"|\b(?:due to|because of) (?:worker|actor|task)s? (?:errors?|failures?)\b"
    r"|\b[Tt]raining failed after \d{1,6} retries\b"
    r"|collectives on ranks|Socket Timeout"
    r"|has died|died unexpectedly|[Ss]erver (?:failed to start|process exited)"
    r"|processes exited with non-zero|ExecuteUserScriptError|failed with a non-zero exit code"
    r"|\bother (?:ranks?|process(?:es)?|workers?|nodes?)\b.{0,40}"
    r"\b(?:did(?:n't| not)|ha(?:ve|s)(?:n't| not)|failed|died)\b"
    r"|Barrier timed out|heartbeat timeout|RPC call to \w+ timed out"
    r"|\bDeepEP error: (?:CPU recv )?timeout"
    r"|OPS function error: Hccl|NPU (?:function )?error.*error code is (?:107020|507048)"
    r"|ACL stream synchronize failed"
    r"|subprocesses has abruptly died"
    r"|interpreter shutdown|Python is likely shutting down"  # Lib/threading.py, concurrent/futures, importlib
    r"|^CANCELLED: "  # XLA, of what waits for a process that failed
    r"|^cancell?ed$|^Executor failed\.?$|[Ww]orkers? (?:died|failed|exited)|killed by signal|Broken pipe"
)
_MISTAKES = frozenset((
    "AssertionError", "AttributeError", "ImportError", "IndexError", "KeyError", "ModuleNotFoundError",
    "NameError", "NotImplementedError", "TypeError", "UnboundLocalError", "ValueError",
))  # fmt: skip
"""What Python calls a mistake in a program: one about a process group speaks of it and is not its echo."""
_END_WORDS = re.compile(r"\b(?:died|exited|aborted|killed by|[Tt]imed out|shut down|closed by|reset by)\b")
_OWN = re.compile(
    r"HTTPS?ConnectionPool\(host='(?!localhost|127\.|0\.0\.0\.0)"
    r"|Ran out of input|has not been initialized"
    r"|\bserver can(?:'t|not) be reached at http"  # trl/extras/vllm_client.py
    r"|\bCouldn't reach \S+ on the Hub\b"  # datasets/load.py
)
"""No echo of a process that ended: a server outside of the job, a file that is empty, a call too early."""
_SERVICES = re.compile(
    r"[/\\](?:site|dist)-packages[/\\](?:wandb|mlflow|comet_ml|neptune|clearml|swanlab|huggingface_hub|boto3|botocore"
    r"|s3fs|gcsfs|google[/\\]cloud|openai|anthropic|redis|psycopg2?|pymongo|pymysql|kafka|elasticsearch)[/\\]"
)
"""Clients of services outside of a job: a connection that one of them lost is no peer's."""
_CLIENTS = re.compile(r"(?:openai|anthropic|redis|botocore|psycopg2?|pymongo|kafka|elasticsearch)\.")
"""The same by their exceptions, which print the rank's own stack."""
_PACKAGES = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_STARTED = re.compile(
    r"python[\d.]*'|\b(?:torchrun|accelerate|deepspeed|srun|mpirun)\b|\.py\b|--local[_-]rank"
)
"""Commands that start a job."""


def is_secondary(raised: ExceptionRaised) -> bool:
    """True for exceptions that only report that something elsewhere ended."""
    name = raised.type.rpartition(".")[2]
    if (
        name == "TimeoutError"
        and not raised.message
        and raised.frames
        and _PACKAGES.search(raised.frames[-1].file)
    ):
        return True  # who waited for another process raises what came of it behind that
    if name in _CUT_OFF and raised.frames and _SPAWN.search(raised.frames[-1].file):
        return True
    own = _OWN.search(raised.message) or _CLIENTS.match(raised.type)
    if own or any(_SERVICES.search(frame.file) for frame in raised.frames):
        return False
    # of a launcher about the program it started, or of a program about a tool
    if name == "CalledProcessError":
        return _STARTED.search(raised.message) is not None or "Command " not in raised.message
    if _ECHOES.search(name) or _ECHO_WORDS.search(raised.message):
        return True
    may_echo = name not in _MISTAKES or _END_WORDS.search(raised.message) is not None
    return may_echo and _COLLECTIVE_WORDS.search(raised.message) is not None


def is_about_connection(raised: ExceptionRaised) -> bool:
    """True for an exception of a process that did not reach another one, or lost it."""
    return _OF_CONNECTIONS.search(raised.type) is not None


_OF_CONNECTIONS = re.compile(
    r"(?:Connect(?:ion|or)?(?:Reset|Refused|Aborted)?|URL|(?:Remote)?Protocol|Read|MaxRetry)Error$"
    r"|(?:Server|Remote)Disconnected(?:Error)?$|ClientOSError$"
)
"""Names of Python, requests, httpx, aiohttp and urllib."""
_LOST_WORDS = re.compile(
    r"\b[Aa]ll connection attempts failed\b|\b[Cc]onnection (?:refused|reset|closed|aborted|error)\b"
    r"|\bServer disconnected\b|\bRemote end closed connection\b|\b[Cc]annot connect to host\b"
)
"""The same in their messages, with which programs raise exceptions of their own."""


def is_lost_connection(raised: ExceptionRaised) -> bool:
    """True for an exception about a connection, unless it is one to a service outside of the job."""
    outside = _OWN.search(raised.message) or any(_SERVICES.search(frame.file) for frame in raised.frames)
    return not outside and (is_about_connection(raised) or _LOST_WORDS.search(raised.message) is not None)


def is_forwarded(text: str) -> bool:
    """True for an exception that repeats in its own words what another process raised."""
    return bool(_REPEATED_ERROR.search(text) or _QUOTING.search(text))


_REPEATED_ERROR = re.compile(
    r"\b(?:[Ww]orker|[Aa]ctor|[Tt]ask|[Cc]hild|[Pp]rocess|[Ee]ngine|[Ee]xecutor|[Ss]cheduler|[Rr]ank)(?:s|es|ren)?\b"
    r".{0,40}\b(?:failed|raised|died|exited|crashed)\b.{0,80}(?:Error|Exception)\b"
)
_QUOTING = re.compile(r"\b[Ww]orker failed with error '")
"""vLLM's engine, in front of what a worker raised (`vllm/v1/executor/multiproc_executor.py`)."""


def quoted_message(raised: ExceptionRaised) -> str:
    """What another process raised, where an engine repeats no more of it than its message."""
    begin = _QUOTING.search(raised.message)
    match = _QUOTED_ERROR.match(raised.message, begin.end()) if begin is not None else None
    return match[1] if match is not None else ""


_QUOTED_ERROR = re.compile(r"(.{8,1000}?)'(?:, please|$)")


_CUT_OFF = ("UnpicklingError", "EOFError")
_SPAWN = re.compile(r"[/\\]multiprocessing[/\\]spawn\.py$")
"""Where a new process reads what it is to do from the one that starts it, which may have ended meanwhile."""
_HELPERS = re.compile(r"[/\\]multiprocessing[/\\]")


def from_helper_process(raised: ExceptionRaised) -> bool:
    """True for a closed connection to a helper process, which is no peer."""
    return is_secondary(raised) and any(_HELPERS.search(frame.file) for frame in raised.frames)
