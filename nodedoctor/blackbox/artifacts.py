"""What goes into the folder, and under which names."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

from nodedoctor.blackbox.capture import Capture
from nodedoctor.blackbox.folder import Folder
from nodedoctor.blackbox.samples.sample import RankSample, Sample
from nodedoctor.json_shapes import Json
from nodedoctor.probes.host.environment import scrubbed
from nodedoctor.triage.live import saved
from nodedoctor.triage.live.running_job import LiveJob


def sample_line(sample: Sample) -> str:
    """A sample as a line of samples.jsonl: numbers only, as its outputs have files of their own."""
    ranks = [_rank_entry(rank) for rank in sample.ranks]
    return json.dumps({"time": round(sample.time, 3), "ranks": ranks}) + "\n"


def outputs(folder: Folder, sample: Sample) -> None:
    """Keep what the job's files got since the last look; of a flood only what was read of it."""
    for part in sample.output:
        if not part.path.startswith(str(folder.path)):
            gap = f"\n[nodedoctor: {part.skipped} bytes are left out]\n" if part.skipped else ""
            folder.append(f"logs/{_plain_name(part.path)}", gap + part.text)


def whole_output(folder: Folder, path: str, text: str) -> None:
    """Keep a file of the job as a whole, in place of the parts from the looks at it."""
    folder.write(f"logs/{_plain_name(path)}", text)


def last_output(folder: Folder, path: str, text: str) -> None:
    """Append the last lines of a large file to the looks at it; some are then in it twice."""
    folder.append(f"logs/{_plain_name(path)}", f"\n[nodedoctor: the end of the file]\n{text}")


def _plain_name(path: str) -> str:
    """A name for a kept log: the last two parts of its path, in harmless characters."""
    return re.sub(r"[^\w.-]", "_", "_".join(path.split("/")[-2:]))[-120:]


def capture(folder: Folder, captured: Capture, document: Json) -> None:
    """Keep what was seen of every process, and the verdict on it."""
    look(folder, captured)
    verdict(folder, document)


def look(folder: Folder, captured: Capture) -> None:
    """Keep the stacks of every process and the kernel's view of it, to be judged with other nodes' looks."""
    names = {rank.pid: f"rank-{rank.rank}" for rank in captured.ranks if rank.rank is not None}
    for stack in captured.stacks:
        name = names.get(stack.pid, "process")
        folder.write(f"stacks/{name}-{stack.pid}.txt", scrubbed(stack.text))
    for pid, threads in captured.kernel:
        rows = [asdict(thread) for thread in threads]
        folder.write(f"stacks/{names.get(pid, 'process')}-{pid}.kernel.json", json.dumps(rows, indent=1))
    if captured.live.ras[1]:
        folder.write("nccl/ras.txt", captured.live.ras[1])
    folder.write("capture.json", json.dumps(saved.look_document(captured.live)))


def resumed(folder: Folder, live: LiveJob) -> None:
    """Keep that the job went on: what was captured explains nothing that comes later."""
    folder.write("capture.json", json.dumps(saved.look_document(live, resumed=True)))


def verdict(folder: Folder, document: Json) -> None:
    """Keep the verdict as text and as its document."""
    from nodedoctor.report import job_text

    folder.write("verdict.txt", job_text.render(document, width=100))
    folder.write("triage.json", json.dumps(document, indent=1) + "\n")


def page(folder: Folder, document: Json) -> None:
    """Keep the page; it takes longer than the rest, and comes last."""
    from nodedoctor.report import html

    folder.write("report.html", html.render(document))


def _rank_entry(rank: RankSample) -> dict[str, Any]:
    if rank.gone:
        return {"pid": rank.pid, "rank": rank.rank, "gone": True}
    return {
        "pid": rank.pid,
        "rank": rank.rank,
        "state": rank.state,
        "cpu_seconds": rank.ticks / 100,
        "children_cpu_seconds": rank.child_ticks / 100,
        "bytes": rank.bytes,
        "memory": rank.memory,
        "wchan": rank.wchan,
        "syscall": rank.syscall,
    }
