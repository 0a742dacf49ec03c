"""What came out of a run of run.sh, on one screen.

    python summary.py FOLDER

Reads what the steps wrote, as far as they came. Runs on Python 3.8.
"""

import glob
import os
import sys

from agreement import load

MOST_LINES = 60
WIDTH = 118
EXPECTED = {
    # the cause of each job of job.py; alone on a GPU, a full stream does not show whose fault it is
    "hang": ("cpu_stuck_or_slow_rank",),
    "killed": ("peer_died",),
    "oom": ("peer_cuda_oom",),
    "assert": ("user_code_exception",),
}
ALONE = {"hang": ("cpu_stuck_or_slow_rank", "undetermined")}


def main():
    """Print the summary."""
    folder = sys.argv[1]
    parts = (machine, steps, doctor, jobs, agreement, left)
    lines = [line for part in parts for line in part(folder)]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES - 1 :] = [f"[{len(lines) - MOST_LINES + 1} more lines in summary.txt]"]
    for line in lines:
        print(line if len(line) <= WIDTH else line[: WIDTH - 3] + "...")


def text_lines(folder, name, most):
    """The first lines of a text file, none where it is missing."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            return [line.rstrip() for line in file.readlines() if line.strip()][:most]
    except OSError:
        return []


def machine(folder):
    """What it ran on."""
    yield from text_lines(folder, "machine.txt", 6)


def steps(folder):
    """Each step: how it ended and how long it took."""
    yield "steps (seconds of at most)"
    for line in text_lines(folder, "steps.tsv", 30):
        name, result, seconds, limit = (line.split("\t") + [""] * 3)[:4]
        yield f"  {name:12} {seconds:>6} {limit:>4}  {result}"


def doctor(folder):
    """The verdict on the node, and what runs of one node disagree about."""
    whole, replay, deep = (load(folder, name) for name in ("whole.json", "replay.json", "deep.json"))
    if not whole:
        yield "nodedoctor: no report"
        return
    counts = ", ".join(f"{number} {status}" for status, number in whole["counts"].items() if number)
    crashed = [
        one["name"] for one in whole["probes"] if one["outcome"] not in ("ok", "missing", "skipped", "denied")
    ]
    yield f"nodedoctor: {whole['verdict']} after {whole['seconds']:.1f} s ({counts})"
    yield from (f"  {cause['status']}: {cause['headline']}" for cause in whole["causes"][:5])
    if crashed:
        yield f"  probes that did not answer: {', '.join(crashed)}"
    for name, other in (("replay", replay), ("deep", deep)):
        if other:
            unlike = differences(whole, other)
            yield f"  {name}: {other['verdict']} after {other['seconds']:.1f} s; differs: {unlike}"


def differences(one, other):
    """Checks that two reports judge otherwise, of those that both judge."""
    first, second = (
        {result["check"]: result["status"] for result in each["results"]} for each in (one, other)
    )
    found = [
        f"{name} {first[name]}/{second[name]}"
        for name in first
        if second.get(name, first[name]) != first[name]
    ]
    return ", ".join(found) or "nothing"


def jobs(folder):
    """What the black box said of each job, beside the truth, and what triage says of what it kept."""
    alone = "RANKS=1" in text_lines(folder, "ranks.txt", 1)
    for kind, expected in EXPECTED.items():
        again = load(folder, f"jobs/{kind}.triage.json")
        kept = sorted(glob.glob(os.path.join(folder, "jobs", kind, "*", "triage.json")))
        if not again and not kept:
            continue
        verdict = load(folder, os.path.relpath(kept[0], folder)) if kept else {}
        causes = ALONE.get(kind, expected) if alone else expected
        result = "as expected" if verdict.get("cause") in causes else f"EXPECTED {' or '.join(causes)}"
        yield f"job {kind}: {in_words(verdict)}: {result}"
        if in_words(again) != in_words(verdict):
            yield f"  judged again from what was kept: {in_words(again)}"
        yield from (f"  kernel log: {line}" for line in text_lines(folder, f"jobs/{kind}.kernel.txt", 2))


def in_words(verdict):
    """Cause, confidence and ranks of a verdict."""
    if not verdict:
        return "no verdict"
    culprits = ", ".join(f"rank {one.get('rank')}" for one in verdict.get("culprits", ())) or "no rank named"
    return f"{verdict['cause']} ({verdict['confidence']}), {culprits}"


def agreement(folder):
    """How many numbers agree, and those that do not."""
    lines = text_lines(folder, "agreement.txt", 9)
    yield f"agreement: {lines[0] if lines else 'no table'}"
    yield from (f"  {' '.join(line.split())}" for line in lines[1:] if line.startswith("differ"))


def left(folder):
    """Processes, files and settings that a step left behind or changed."""
    found = text_lines(folder, "left.txt", 6)
    yield "left behind or changed: " + ("nothing" if not found else "")
    yield from (f"  {line}" for line in found)


if __name__ == "__main__":
    main()
