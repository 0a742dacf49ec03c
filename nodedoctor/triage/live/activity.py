"""What each process of a running job does, in words: by its state, its stack and its GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from nodedoctor.triage.live.running_job import LiveJob, PythonThread, RankProcess
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event, Identity, Place
from nodedoctor.triage.patterns.progress import LongWork
from nodedoctor.triage.patterns.progress import read_liveness as read_progress
from nodedoctor.triage.patterns.stacks import StackFrame, is_library, is_standard
from nodedoctor.triage.rank_groups import RankGroupActivity, group_by_activity

_LONG = re.compile(
    r"save|serializ|checkpoint|_write|pickle|tokeniz|evaluat|validat|generate|rollout|compile(?!d|_wrapper)"
    r"|download|upload",
    re.IGNORECASE,
)
"""Functions that take minutes and may keep one stack for all of them, by their names in Transformers, TRL,
Lightning, torch and the Hub's client."""
_NOT_LONG = re.compile(r"train", re.IGNORECASE)
"""A function named after a whole program, such as train_and_evaluate, shows no part of it."""
_PIPE = re.compile(r"^(?:(?:anon_|fifo_)?pipe_write|fifo_pipe_read|fifo_open|wait_for_partner)")
"""Wait channels of a process at a pipe whose other end is awaited (linux, fs/pipe.c): it does no work."""
_RECOMPUTES = re.compile(
    r"torch/utils/checkpoint\.py|checkpoint_wrapper\.py|activation_checkpointing/|tensor_parallel/random\.py"
)
"""Files with functions named checkpoint that recompute activations in every step, and save nothing."""
_IDLE = re.compile(r"multiprocessing/(?:connection|queues|synchronize|popen)|selectors\.py|threading\.py")
FROZEN = "frozen"
STATES = {
    "T": "is stopped (SIGSTOP or a debugger)",
    "t": "is held by a debugger",
    "D": "hangs in the kernel (storage?)",
    "Z": "is dead and not yet collected",
    "gone": "has no process any more",
    FROZEN: "is frozen with its control group (cgroup.freeze, freezer.state)",
}
GPU_WAIT = re.compile(r"synchronize|wait")
IDLE_TICKS = 6
"""Hundredths of a second of CPU between two looks that are nothing: 3 % of two seconds, for watchdogs."""
_RAY_IDLE = re.compile(r"ray/_private/worker\.py$")


def waits_in(process: RankProcess) -> str:
    """The collective a process waits in; of one in its backward pass, that pass.

    DDP and FSDP reduce gradients there, in threads that are not Python's.
    """
    if process.collective or process.moved or process.ticks > IDLE_TICKS:
        return process.collective
    frame = innermost_frame(process)
    is_backward = frame is not None and frame.function == "_engine_run_backward"
    return "the backward pass" if is_backward else ""


def called_from(process: RankProcess) -> str:
    """The job's own function that called a library, '' where none is on the stack."""
    main = main_thread(process.threads)
    own = own_frame(main.frames) if main is not None else None
    return f"called from {own.function} ({own.file})" if own is not None else ""


def _busy_loaders(process: RankProcess) -> Iterator[tuple[int, StackFrame]]:
    """Data loaders at work, and where: idle ones wait in a queue of multiprocessing's."""
    for child in process.workers:
        main = next((t for t in child.threads if any(f.function == "_worker_loop" for f in t.frames)), None)
        if main is not None and not _IDLE.search(main.frames[0].file):
            own = next((f for f in main.frames if not is_standard(f)), main.frames[0])
            yield child.pid, own


def holder_text(process: RankProcess) -> str:
    """What else holds a rank: the other end of a pipe or socket, or a busy data loader."""
    for pid, frame in _busy_loaders(process):
        return f"; its data loader {pid} is in {frame.function} ({frame.file}:{frame.line})"
    if process.awaited and not process.collective:
        return f"; it waits for {process.awaited}"
    if _PIPE.match(process.wchan):
        return f"; it waits for the other end of a pipe ({process.wchan})"
    return ""


def innermost_frame(process: RankProcess) -> StackFrame | None:
    """The innermost frame of the main thread."""
    thread = main_thread(process.threads)
    return thread.frames[0] if thread is not None else None


def main_thread(threads: Iterable[PythonThread]) -> PythonThread | None:
    """The thread that holds the lock, else the one that began the program."""

    def order_of(thread: PythonThread) -> tuple[bool, bool, bool, int]:
        began = thread.frames[-1].function == "<module>"
        return not thread.owns_gil, not began, not thread.active, -len(thread.frames)

    return min((thread for thread in threads if thread.frames), key=order_of, default=None)


def own_frame(frames: Iterable[StackFrame]) -> StackFrame | None:
    """The innermost frame of the job's own code, outside the standard library and packages."""
    return next((frame for frame in frames if not is_library(frame)), None)


def _calling_line(process: RankProcess) -> str:
    """The job's own line that called a library, to end a sentence, or ''."""
    for thread in (main_thread(process.threads), *process.threads):
        frames = thread.frames if thread is not None else ()
        own = own_frame(frames)
        if own is not None and own != frames[0]:
            return f", called from {own.function} ({own.file}:{own.line})"
        if own is not None:
            return ""
    return ""


def has_no_task(process: RankProcess) -> bool:
    """True for a worker of Ray's that waits for its next method."""
    thread = main_thread(process.threads)
    return thread is not None and bool(_RAY_IDLE.search(thread.frames[0].file))


def is_idle_worker(process: RankProcess) -> bool:
    """True for a process without a known rank that has nothing to do."""
    return process.rank is None and has_no_task(process)


def long_work(process: RankProcess) -> str:
    """The name of the long-work function that the main thread is in, or ''.

    A process that saves into a pipe waits for its reader, and does no work.
    """
    thread = main_thread(process.threads) if not _PIPE.match(process.wchan) else None
    for frame in thread.frames if thread is not None else ():
        if _RECOMPUTES.search(frame.file) or _NOT_LONG.search(frame.function):
            continue
        progress = read_progress(frame.function.replace("_", " "))
        if _LONG.search(frame.function) or isinstance(progress, LongWork):
            return frame.function
    return ""


def describe_activity(process: RankProcess) -> str:
    """What a process does, as the end of a sentence about it."""
    state = FROZEN if process.frozen else process.states[1] or "?"
    waits = waits_in(process)
    if state in STATES and state != "D":
        return STATES[state]
    if process.lock:
        return f"waits for the {process.lock}{_calling_line(process)}"
    if waits:
        return f"waits in {waits}{_calling_line(process)}"
    if has_no_task(process):
        return "has nothing to do: no method of its actor runs"
    frame = innermost_frame(process)
    if process.polls and (frame is None or GPU_WAIT.search(frame.function)):
        return f"waits in a collective's kernel on its GPU{_calling_line(process)}"
    if frame is not None and process.computing:
        own = own_frame((main_thread(process.threads) or PythonThread(())).frames) or frame
        where = f"{own.function} ({own.file}:{own.line})"
        seconds = f"{process.computing:.0f} s"
        return f"has been in {where} for {seconds}, moving no data: an endless loop, or long work"
    if frame is not None:
        return f"is in {frame.function} ({frame.file}:{frame.line}){_calling_line(process)}"
    return STATES.get(state, f"is in state {state}" + (f", {process.wchan}" if process.wchan else ""))


def group_activities(live: LiveJob) -> list[RankGroupActivity]:
    """What the ranks do, in groups, the smallest first."""
    return group_by_activity(
        (process.rank, process.host, _as_list_item(describe_activity(process) + holder_text(process)))
        for process in live.processes
    )


def _as_list_item(doing: str) -> str:
    """The end of a sentence, made to follow a colon, of one or many ranks."""
    for verb, participle in (("is ", ""), ("waits ", "waiting "), ("hangs ", "hanging "), ("has been ", ""),
                             ("has ", "")):  # fmt: skip
        if doing.startswith(verb):
            return participle + doing.removeprefix(verb)
    return doing


def identity_of(live: LiveJob, process: RankProcess) -> Identity:
    """Who a process is, with its node."""
    return Identity(rank=process.rank, pid=process.pid, host=process.host or live.host or None)


def activity_events(live: LiveJob, processes: Iterable[RankProcess]) -> tuple[Event[Any], ...]:
    """What each of some processes does, as evidence."""
    return tuple(activity_event(live, process, describe_activity(process)) for process in processes)


def activity_event(live: LiveJob, process: RankProcess, text: str) -> Event[Any]:
    """What a process does as evidence, with its processor time and its GPU's load."""
    who = identity_of(live, process)
    name = f"rank {process.rank}" if process.rank is not None else f"process {process.pid}"
    busy = f", {process.ticks} ticks of CPU" if process.ticks else ", no CPU used"
    busy += f", {process.gpu.words}" if process.gpu is not None else ""
    place = Place(f"process {process.pid}", 0)
    return Event(Mark.LIVE_PROCESS, place, who, None, f"{name} {text}{busy}{holder_text(process)}")
