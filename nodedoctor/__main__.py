"""`python -m nodedoctor`, and what the installed command calls."""

import atexit
import contextlib
import errno
import os
import sys


def main() -> int:
    """Run nodedoctor; that there is no memory even to load it is no warning, whose exit code 1 is."""
    try:
        from nodedoctor.cli.main import main as run

        _leave(run())
    except SystemExit as ended:  # argparse, after --help and errors of use
        if isinstance(ended.code, int):
            _leave(ended.code)
        raise
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            raise
        os.write(2, b"nodedoctor: no memory left to load it; see `ulimit -v`\n")
    return 70


def _leave(code: int) -> None:
    """End at once: taking the interpreter apart takes a tenth of a run, 0.16 s where a screen was shown."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
