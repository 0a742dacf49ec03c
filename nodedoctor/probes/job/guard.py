"""Ends a job with its watcher, where both are to be ended: `python -I -S guard.py GROUP`.

Started when the watcher got SIGTERM or SIGHUP and has passed it on. Slurm, for one, follows
with SIGKILL; where it knows a job by its process group that reaches the watcher alone, as the job has a group
of its own. A byte on stdin says that the job has ended by itself; the end of stdin without one that the
watcher was killed, and with it goes the job.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def main() -> None:
    """Wait for either."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if not os.read(0, 1):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(sys.argv[1]), signal.SIGKILL)


if __name__ == "__main__":
    main()
