"""Ask a running Ray cluster for its status, with the Ray that runs it; prints what `ray status -v` prints.

    python -I ray_status.py PYTHON ADDRESS

Root never runs code of another user: it becomes that user first. The caller sets the deadline: for
an address where nothing answers, `ray status` waits for minutes.
"""

from __future__ import annotations

import os
import sys

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.stack.target_owner import WAY_OUT, become, owner_to_become

sys.path.pop()

# A cluster of Ray 2.60 wants a token wherever its user has one; `ray.init` then sends it, `ray status` only
# where RAY_AUTH_MODE says so. Older versions know no such function.
ASK = """
import sys
try:
    from ray._private.authentication import authentication_token_setup
    authentication_token_setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
except (ImportError, AttributeError, TypeError):
    pass
sys.argv = ['ray', 'status', '-v', '--address', sys.argv[1]]
from ray.scripts.scripts import main
main()
"""


def main() -> None:
    """Replace this process by the question."""
    if len(sys.argv) != 3:
        sys.exit("usage: ray_status.py PYTHON ADDRESS")
    python, address = os.path.abspath(sys.argv[1]), sys.argv[2]
    environ = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "NO_COLOR": "1"}
    note = ""
    try:
        owner = owner_to_become(python, imports=True)
        if owner is not None:
            note = f", and root does not run it: {owner.writer}; {WAY_OUT}"
            environ = become(owner.uid, environ)
        os.chdir("/")
        os.execve(python, [python, "-I", "-B", "-c", ASK, address], environ)
    except OSError as error:
        sys.exit(f"{python}: {error.strerror}{note}")


if __name__ == "__main__":
    main()
