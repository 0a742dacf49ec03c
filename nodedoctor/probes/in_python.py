"""Run one of our programs in the Python that trains, as the user whose code that is.

    python -I -S in_python.py PYTHON PROGRAM [ARGUMENT ...] [-- PREFIX ...]

Root never runs what another user can have written: it becomes that user first, or says that it does not. The
program's text is handed over as an argument, because that user may not be able to read our folder, and a
container does not have it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.stack.target_owner import WAY_OUT, become, owner_to_become

sys.path.pop()


def main() -> None:
    """Become the owner and the program; prints {"error": ..., "text": ...} when that cannot be."""
    words = sys.argv[1:]
    prefix: list[str] = []
    if "--" in words:
        place = words.index("--")
        words, prefix = words[:place], words[place + 1 :]
    python, program, *arguments = words
    python = python if prefix else os.path.abspath(python)
    source = (Path(__file__).resolve().parent / f"{program}.py").read_text(encoding="utf-8")
    argv = [*prefix, python, "-I", "-B", "-W", "ignore", "-c", source, *arguments]
    environ = dict(os.environ)
    note = ""
    try:
        owner = None if prefix else owner_to_become(python, imports=True)
        if owner is not None:
            note = f", and root does not run it: {owner.writer}; {WAY_OUT}"
            environ = become(owner.uid, environ)
        os.chdir("/")
        os.execvpe(argv[0], argv, environ)
    except OSError as error:
        print(json.dumps({"error": "denied", "text": f"{argv[0]}: {error.strerror or error}{note}"}))


if __name__ == "__main__":
    main()
