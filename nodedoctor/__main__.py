"""`python -m nodedoctor`, and what the installed command calls."""

import os
import sys


def main() -> int:
    """Run nodedoctor; that there is no memory even to load it is no warning, whose exit code 1 is."""
    try:
        from nodedoctor.cli.main import main as run

        return run()
    except MemoryError:
        os.write(2, b"nodedoctor: no memory left to load it; see `ulimit -v`\n")
        return 70


if __name__ == "__main__":
    sys.exit(main())
