"""`python -m nodedoctor`, and what the installed command calls."""

import contextlib
import errno
import os
import sys


def main() -> int:
    """Run nodedoctor; that there is no memory even to load it is no warning, whose exit code 1 is."""
    try:
        from nodedoctor.cli.main import main as run

        return _left(run())
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            raise
        os.write(2, b"nodedoctor: no memory left to load it; see `ulimit -v`\n")
        return 70


def _left(code: int) -> int:
    """The exit code; after a screen was shown, leave at once: taking Textual apart takes 0.16 s."""
    if "textual" in sys.modules:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
