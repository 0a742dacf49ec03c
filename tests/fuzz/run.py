"""`make fuzz MINUTES=30`: every target for its share of that CPU time, with figures for each.

With atheris (libFuzzer for Python) inputs are chosen by what they reach; without it they are random edits
of the seeds. What breaks a target is written below build/fuzz, and belongs into tests/fuzz/corpus once small.
Shares are CPU time of the targets alone: a busy machine takes longer and tries as much. Instrumenting the
sources takes half of a share, so it is done once, and each target is a fork of what was instrumented.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, NoReturn

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PATHS = ("", "support", "triage", "triage/flight", "report", "fuzz")
SLOW = 5.0
"""Seconds of CPU that an input of 64 KiB may take; ours: ten times what the slowest recorded node takes."""
MEMORY = 4 << 30
"""Bytes of address space."""
FAULTS_AT_MOST = 5
"""Places of one target; more of them is one fault more often than not."""


class Run:
    """One target's inputs: how many, the slowest, and what broke it, one input for each place in the code."""

    def __init__(self, name: str) -> None:
        import targets

        self.target = next(target for target in targets.targets() if target.name == name)
        self.inputs = 0
        self.slowest = 0.0
        self.faults: dict[str, str] = {}

    def take(self, data: bytes) -> None:
        """Try one input."""
        began = time.process_time()
        try:
            self.target.take(data)
        except Exception as error:
            frame = next(
                (
                    one
                    for one in reversed(traceback.extract_tb(error.__traceback__))
                    if "nodedoctor" in one.filename
                ),
                traceback.extract_tb(error.__traceback__)[-1],
            )
            self.fault(
                f"{type(error).__name__} in {frame.name}, {Path(frame.filename).name}:{frame.lineno}", data
            )
        seconds = time.process_time() - began
        self.inputs += 1
        self.slowest = max(self.slowest, seconds)
        if seconds > SLOW:
            self.fault("slow", data)

    def fault(self, where: str, data: bytes) -> None:
        if where in self.faults or len(self.faults) >= FAULTS_AT_MOST:
            return
        folder = ROOT / "build" / "fuzz" / self.target.name.replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / hashlib.sha256(data).hexdigest()[:12]
        path.write_bytes(data)
        self.faults[where] = str(path)

    def seeds(self) -> list[bytes]:
        """Those of the target and of the corpus."""
        kept = HERE / "corpus" / self.target.name.replace(" ", "-")
        return [*self.target.seeds(), *(path.read_bytes() for path in sorted(kept.glob("*")))]

    def told(self, began: float, engine: str) -> str:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        told = {
            "target": self.target.name,
            "engine": engine,
            "seconds": round(time.process_time() - began, 1),
            "inputs": self.inputs,
            "slowest": round(self.slowest, 2),
            "mib": usage.ru_maxrss >> 10,
            "faults": self.faults,
        }
        return json.dumps(told)


def random_edits(run: Run, seconds: float, seed: int) -> None:
    """Random edits of the seeds, until the time is up."""
    from mutate import drawn

    began, seeds, source = time.process_time(), run.seeds(), random.Random(seed)
    for data in seeds:
        run.take(data)
        if time.process_time() - began > seconds:
            break
    while time.process_time() - began < seconds:
        run.take(drawn(seeds, source))


def guided(run: Run, seconds: float, seed: int, began: float) -> None:
    """By atheris, which never returns: libFuzzer's clock is the wall's, so the budget is kept here."""
    import atheris
    from mutate import LARGEST

    with tempfile.TemporaryDirectory() as place:
        for number, data in enumerate(run.seeds()):
            Path(place, str(number)).write_bytes(data[:LARGEST])

        def take(data: bytes) -> None:
            run.take(data)
            if time.process_time() - began > seconds:
                print(run.told(began, "atheris"), flush=True)
                shutil.rmtree(place, ignore_errors=True)
                os._exit(0)

        quiet = ["-verbosity=0", "-rss_limit_mb=0", "-timeout=600", "-len_control=0"]
        atheris.Setup([sys.argv[0], place, f"-max_len={LARGEST}", f"-seed={seed + 1}", *quiet], take)
        atheris.Fuzz()


def load(plain: bool) -> bool:
    """Import all that is fuzzed; says whether atheris sees what inputs reach in it."""
    sys.path[:0] = [str(HERE.parent / path) for path in PATHS]
    if plain or find_spec("atheris") is None:
        import targets

        targets.targets()
        return False
    import atheris

    with redirect_stderr(io.StringIO()), atheris.instrument_imports(include=["nodedoctor"]):
        import targets  # names each module on stderr

        targets.targets()
    return True


class Ended(NamedTuple):
    """A target's name, the exit code of its process (or minus its signal), and what it printed."""

    name: str
    code: int
    printed: str


def one(name: str, seconds: float, seed: int, instrumented: bool, output: Path) -> NoReturn:
    """The process of one target: the last line it prints holds its figures."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    code = 1
    try:
        began = time.process_time()
        run = Run(name)
        if instrumented:
            guided(run, seconds, seed, began)
        random_edits(run, seconds, seed)
        print(run.told(began, "random"), flush=True)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(names: list[str], jobs: int, seconds: float, seed: int, instrumented: bool) -> Iterator[Ended]:
    """Each target once its process has ended."""
    waiting, running = list(names), dict[int, str]()
    with tempfile.TemporaryDirectory() as place:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    name = waiting.pop(0)
                    if not (pid := os.fork()):
                        one(name, seconds, seed, instrumented, Path(place, name))
                    running[pid] = name
                pid, status = os.wait()
                name = running.pop(pid)
                printed = Path(place, name).read_text(errors="replace")
                yield Ended(name, os.waitstatus_to_exitcode(status), printed)
        finally:
            for pid in running:
                os.kill(pid, signal.SIGKILL)


def main() -> int:
    """Every target in a process of its own, one for each core at once; exit code 1 when one was broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30, help="CPU minutes of all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="targets at once")
    parser.add_argument("--plain", action="store_true", help="no atheris, even where it is installed")
    parser.add_argument("--only", default="", help="targets whose name begins so")
    asked = parser.parse_args()
    os.environ["NODEDOCTOR_EXAMPLES"] = "10"
    instrumented = load(asked.plain)
    import targets

    chosen = [target.name for target in targets.targets() if target.name.startswith(asked.only)]
    share = asked.minutes * 60 / len(chosen)
    wrong, inputs, seconds = [], 0, 0.0
    for name, code, printed in ended(chosen, asked.jobs, share, asked.seed, instrumented):
        line = next((line for line in reversed(printed.splitlines()) if line.startswith("{")), "")
        if not line:
            wrong.append(f"{name}: the process ended with {code}: {printed[-600:]}")
            continue
        told = json.loads(line)
        inputs, seconds = inputs + told["inputs"], seconds + told["seconds"]
        print(
            f"{name:32} {told['engine']:8} {told['seconds']:7.1f} s {told['inputs']:9} inputs"
            f" {told['inputs'] / max(told['seconds'], 0.1):9.0f}/s   slowest {told['slowest']:.2f} s"
            f" {told['mib']:5} MiB   {len(told['faults'])} faults",
            flush=True,
        )
        wrong += [f"{name}: {where}: {path}" for where, path in told["faults"].items()]
    print(f"{len(chosen)} targets, {seconds / 60:.1f} CPU minutes, {inputs} inputs, {len(wrong)} faults")
    for line in wrong:
        print(f"WRONG {line}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
