"""Ctrl-C at random moments of a plain run: `python tests/bench/interrupts.py [COUNT] [SEED]`.

Each must end the run within ten seconds, with 130 and without a word, or with its whole document where
that was made by then; what does not is printed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from typing import IO

STARTED = "import os, sys; from nodedoctor.__main__ import main; os.close(int(sys.argv.pop(1))); main()"
"""What the child runs. Until it closes the pipe Python itself starts, whose answer is not ours."""
WORDS = ("--json",)
PATIENCE_S = 10.0
OVER = "it had ended before"


def interrupted(after: float, words: Sequence[str] = WORDS) -> tuple[int | None, str]:
    """The exit code of a run that gets SIGINT after some seconds, None where it hangs; and its last words."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in background jobs of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as document:
        run = _start(words, document, errors)
        try:
            run.wait(after)
            return run.returncode, OVER
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGINT)
        if run.returncode is not None:  # send_signal has seen its end, and sent nothing
            return run.returncode, OVER
        try:
            code: int | None = run.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = None
            run.kill()
            run.wait()
        errors.seek(0)
        if code is not None and code != 130 and _is_whole(document):
            return code, OVER
        return code, errors.read().decode("utf-8", "replace")


def main() -> None:
    """Print what each odd run ended with, and how many ended how."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    longest = min(_seconds() for _ in range(3))
    ends: Counter[str] = Counter()
    while ends.total() < count:
        after = chance.uniform(0, longest)
        code, said = interrupted(after)
        if said == OVER:
            continue
        ends["hangs" if code is None else f"exit code {code}"] += 1
        if code != 130 or said:
            print(f"after {after:.3f} s: {'hangs' if code is None else code} {said}", flush=True)
    print(f"{count} runs interrupted within {longest:.1f} s:", dict(ends))


def _is_whole(document: IO[bytes]) -> bool:
    document.seek(0)
    try:
        json.load(document)
    except ValueError:
        return False
    return True


def _start(words: Sequence[str], document: IO[bytes], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """A run that has just begun."""
    begun, open_in_child = os.pipe()
    run = subprocess.Popen(
        [sys.executable, "-c", STARTED, str(open_in_child), *words],
        stdin=subprocess.DEVNULL,
        stdout=document,
        stderr=errors,
        pass_fds=(open_in_child,),
    )
    os.close(open_in_child)
    os.read(begun, 1)
    os.close(begun)
    return run


def _seconds() -> float:
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as document:
        run = _start(WORDS, document, errors)
        began = time.monotonic()
        run.wait()
    return time.monotonic() - began


if __name__ == "__main__":
    main()
