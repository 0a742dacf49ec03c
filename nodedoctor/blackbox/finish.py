"""What is left of a job in its folder: the short verdict first, then the page and the node's recording."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Sequence

from nodedoctor import __version__
from nodedoctor.blackbox import artifacts, counters, kernel_log
from nodedoctor.blackbox.folder import Folder
from nodedoctor.blackbox.recorded_node import NODE_DEADLINE
from nodedoctor.blackbox.samples.sample import ProcessEnd, RankSample
from nodedoctor.blackbox.watch import Watch
from nodedoctor.children import child_process
from nodedoctor.declare.registry import Command
from nodedoctor.json_shapes import Json, loaded, parts, text
from nodedoctor.single_file import ourselves
from nodedoctor.wording import count_with_noun

SHORT = 4.0
"""Seconds for a verdict after SIGTERM: it is there within five, whatever the logs are."""
FULL = 60.0
"""Seconds for the verdict on the logs once the job has ended."""

KEPT_SIZE = 2 << 20
"""Bytes of output that are kept as a whole when the job has ended; of more, the last 64 KiB."""
TAIL_SIZE = 64 << 10

KERNEL, ENDS = "logs/kernel.log", "logs/ends.log"
"""What the kernel said of the job's processes, and who left by itself, in the folder."""

Say = Callable[[str], None]
Log = tuple[str, int]
"""A file with output of the job, and where that begins in it."""


async def attached(watch: Watch, folder: Folder, report: Say, *, has_ended: bool) -> bool:
    """Close the folder of a job that was watched; True where it is seen to have failed.

    Of a job that ended by itself the exit code is not known: what its ranks wrote into files is judged.
    """
    folder.settle()
    folder.write("run.json", run_json(watch, folder))
    lasting = bool(watch.hangs) and watch.hangs[-1].resumed_after is None
    if has_ended and not lasting:
        await _keep_end(folder, watch, failed=False)
        document = await triage(folder, (), FULL, names=("logs", "nccl", "fr"))
        if document is not None and _died_unexplained(document):  # no status says so: its parent took them
            await _keep_end(folder, watch, failed=True)
            document = await triage(folder, (), FULL, names=("logs", "nccl", "fr"))
        if document is not None and text(document, "outcome") == "failure":
            artifacts.verdict(folder, document)
            artifacts.page(folder, document)
            report(_verdict_line(document))
            report(f"kept in {folder.path}")
            _say_losses(folder, report)
            return True
    if watch.hangs:
        document = watch.hangs[-1].document
        if watch.hangs[-1].resumed_after is None:
            again = await triage(folder, (), FULL, looks=True)
            if again is not None and text(again, "outcome") == "failure":
                document = again
                artifacts.verdict(folder, document)
        artifacts.page(folder, document)
    _say_losses(folder, report)
    return lasting


def report_end(
    watch: Watch | None, folder: Folder, status: int, files: Sequence[Log], report: Say, began: float
) -> Json | None:
    """Close the folder of a command that was run: one line when it ended well, else why it did not.

    `began` is a moment of time.monotonic(). Returns the verdict, if it did not end well.
    """
    seconds = time.monotonic() - began
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    more = {"exit_code": code, "seconds": round(seconds, 1)}
    folder.settle()
    folder.write("run.json", run_json(watch, folder, **more))
    for late_rank in watch.late.late_ranks if watch is not None else ():
        report(late_rank.words)
    hang = watch.hangs[-1] if watch is not None and watch.hangs else None
    lasting = hang is not None and hang.resumed_after is None
    asyncio.run(_keep_ends(folder, files))
    if code == 0 and not lasting:
        report(f"the job ended well after {_duration_words(seconds)}; kept in {folder.path}")
        _say_losses(folder, report)
        return None
    if watch is not None and not lasting:  # of a hang the look at it has them
        asyncio.run(_keep_end(folder, watch, failed=True))
    document = asyncio.run(triage(folder, files, FULL, looks=lasting))
    if hang is not None and lasting and (document is None or text(document, "outcome") != "failure"):
        document = hang.document
    report(f"the job {_end_words(status)} after {_duration_words(seconds)}")
    if document is None or not _says_why(document):
        report("nothing in its output says why")
    else:
        artifacts.verdict(folder, document)
        artifacts.page(folder, document)
        report(_verdict_line(document))
    for line in counters.note(watch.gained if watch is not None else ()):
        report(line)
    report(f"kept in {folder.path}; `nodedoctor triage {folder.path}` judges it again")
    _say_losses(folder, report)
    return document


async def short(folder: Folder, files: Sequence[Log]) -> None:
    """A verdict while the job is being ended: who ends it may end us in seconds."""
    document = await triage(folder, files, SHORT)
    if document is not None:
        artifacts.verdict(folder, document)


async def triage(
    folder: Folder,
    files: Sequence[Log],
    seconds: float,
    *,
    looks: bool = False,
    names: Sequence[str] = ("nccl", "fr", KERNEL, ENDS),
) -> Json | None:
    """The verdict on all that was kept, by a process of its own: logs can be large, and a disk dead.

    `names` are those of files and folders in it; with `looks` also what was seen of the job while it hung.
    """
    whole_files = [path for path, begin in files if not begin]
    paths = [*whole_files, *(str(folder.path / name) for name in names)]
    paths += [str(folder.path / "capture.json")] if looks else []
    listing = await child_process.run("ls", Command(("ls", "-d", "--", *paths)), 1.0)
    there = [line for line in listing.text.splitlines() if line]
    newest = [await _read_added(path, begin, seconds / 4) for path, begin in files if begin]
    argv = (*ourselves(), "triage", "--json", "--no-node", *there, *(("-",) if newest else ()))
    if not there and not newest:
        return None
    observation = await child_process.run("triage", Command(argv, stdin="".join(newest).encode()), seconds)
    try:
        document = loaded(observation.text) if observation.answered else None
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


async def _keep_ends(folder: Folder, files: Sequence[Log]) -> None:
    """Keep what the job printed after the last look at its files: the reason of its end is there."""
    for path, begin in files:
        if path.startswith(str(folder.path)):
            continue  # the job writes it into the folder itself
        newest = await _read_added(path, begin, SHORT)
        if len(newest.encode()) <= KEPT_SIZE:
            artifacts.whole_output(folder, path, newest)
        else:
            artifacts.last_output(folder, path, newest[-TAIL_SIZE:])
    folder.settle()


async def _keep_end(folder: Folder, watch: Watch, *, failed: bool) -> None:
    """Keep how the job's processes ended, as far as no log of theirs tells: killed for memory, or by
    themselves."""
    if ending := first_end_line(watch.ends, watch.met, failed=failed):
        folder.write(ENDS, f"{ending}\n")
        folder.settle()
    if lines := await kernel_log.lines_about(watch.met) or await watch.memory.lines():
        folder.write(KERNEL, "".join(f"{line}\n" for line in lines))
        folder.settle()


async def _read_added(path: str, begin: int, seconds: float) -> str:
    """What the job added to a file, the newest 4 MiB of it (`children.output_bounds.KEPT`)."""
    observation = await child_process.run(
        "tail", Command(("tail", "-c", f"+{begin + 1}", "--", path)), seconds
    )
    return observation.text


def run_json(watch: Watch | None, folder: Folder, **more: object) -> str:
    """The document `run.json`, `nodedoctor.run/1`; `watch` is None for a command that ended before it."""
    document = {
        "schema": "nodedoctor.run/1",
        "tool": __version__,
        **more,
        **(watch.state() if watch is not None else {}),
        "lost_writes": folder.lost,
        "problem": folder.problem,
    }
    return json.dumps(document, indent=1) + "\n"


async def await_recording(
    recording: asyncio.Task[None] | None, report: Say, seconds: float = NODE_DEADLINE
) -> None:
    """Wait for the node's own recording, if one was begun, and say why there is none."""
    if recording is None:
        return
    await asyncio.wait({recording}, timeout=seconds)
    why = recording.exception() if recording.done() else f"it had not ended after {seconds:g} s"
    if why is not None:
        report(f"this node was not recorded: {why}")


def _say_losses(folder: Folder, report: Say) -> None:
    if folder.lost:
        report(f"{count_with_noun(folder.lost, 'write')} to {folder.path} came to nothing: {folder.problem}")


def _verdict_line(document: Json) -> str:
    return f"{text(document, 'cause')} ({text(document, 'confidence')}): {text(document, 'headline')}"


def _says_why(document: Json) -> bool:
    """True when the verdict has something to show: a log without trouble shows nothing."""
    return text(document, "outcome") == "failure" or bool(document.get("evidence"))


def _died_unexplained(document: Json) -> bool:
    """True where the logs show that a process died, and not of what."""
    events = {text(moment, "event") for moment in parts(document, "moments")}
    return text(document, "outcome") == "undetermined" and bool(events & {"raised", "process_exit"})


def _end_words(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"was ended by {signal.Signals(number).name}"
        except ValueError:
            return f"was ended by signal {number}"
    return f"ended with exit code {os.WEXITSTATUS(status)}"


def _duration_words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


FIRST_BY_S = 0.02
"""Seconds by which the first end comes before the next one, at least."""


def first_end_line(ends: Sequence[ProcessEnd], ranks: Sequence[RankSample], *, failed: bool) -> str:
    """Tell of the rank that left a job by itself, which no log does; '' where none did.

    `patterns/exit_signs.py` reads it.

    Ranks of a job that ends well all end with 0, one after another: some other one has to fail, or, of a
    command, the whole (`failed`). A status is not known where the parent collects it at once: then the line
    only says who was the first.
    """
    by_key = {rank.key: rank for rank in ranks}
    in_order = sorted((end for end in ends if end.key in by_key), key=lambda end: end.moment)
    if len(ranks) < 2 or not in_order or in_order[0].status:
        return ""
    first, others = in_order[0], in_order[1:]
    if others and others[0].moment - first.moment < FIRST_BY_S:
        return ""
    successes = [end for end in others if end.status == 0]
    certain = failed or any(end.status for end in others)
    if len(successes) == len(ranks) - 1 or not (certain or any(end.status is None for end in others)):
        return ""
    rank = by_key[first.key].rank
    who = f"rank {rank}, " if rank is not None else ""
    if not certain:
        return f"nodedoctor: {who}pid {first.pid} was the first to end"
    code = "" if first.status is None else " with exit code 0"
    return f"nodedoctor: {who}pid {first.pid} ended{code} before all others"
