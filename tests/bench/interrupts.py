"""Ctrl-C at random moments of a plain run: `python tests/bench/interrupts.py [COUNT] [SEED]`.

Each must end the run within ten seconds, with 130 and without a word; what does not is printed.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence

NODEDOCTOR = (sys.executable, "-m", "nodedoctor", "--json")
STARTED_S = 0.15
"""Seconds that Python itself may take to start: until then it is not ours to answer."""
PATIENCE_S = 10.0
OVER = "it had ended before"


def interrupted(after: float, argv: Sequence[str] = NODEDOCTOR) -> tuple[int | None, str]:
    """The exit code of a run that gets SIGINT after some seconds, None where it hangs; and its last words."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in background jobs of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryFile() as errors:
        run = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
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
        return code, errors.read().decode("utf-8", "replace")


def main() -> None:
    """Print what each odd run ended with, and how many ended how."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    longest = min(_seconds() for _ in range(3))
    ends: Counter[str] = Counter()
    while ends.total() < count:
        after = chance.uniform(STARTED_S, longest)
        code, said = interrupted(after)
        if said == OVER:
            continue
        ends["hangs" if code is None else f"exit code {code}"] += 1
        if code != 130 or said:
            print(f"after {after:.3f} s: {'hangs' if code is None else code} {said}", flush=True)
    print(f"{count} runs interrupted within {longest:.1f} s:", dict(ends))


def _seconds() -> float:
    began = time.monotonic()
    subprocess.run(NODEDOCTOR, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
