"""`make packages`: the wheel and the source distribution install in empty environments, and work there.

`tools/release/installs.py DIST` makes a virtual environment for each, with nothing in it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

QUIET = ("--quiet", "--disable-pip-version-check")


def tried(package: Path, home: Path) -> str:
    """Install a package with its dependencies and ask it; what it says of itself."""
    venv.create(home, with_pip=True)
    command = home / "bin" / "nodedoctor"
    subprocess.run([home / "bin" / "python", "-m", "pip", "install", *QUIET, package], check=True)
    asked = {
        words: subprocess.run([command, *words], check=True, capture_output=True, text=True, cwd="/").stdout
        for words in (("--version",), ("demo", "healthy", "--summary"), ("completion", "bash"))
    }
    version, summary, completion = asked.values()
    completes = 'COMP_WORDS=(nodedoctor --js) COMP_CWORD=1; _nodedoctor; [ "${COMPREPLY[*]}" = --json ]'
    subprocess.run(["bash", "-c", f"{completion}\n{completes}"], check=True)
    if not summary.startswith("PASS"):
        raise SystemExit(f"{package.name}: {summary}")
    return version.strip()


def main(dist: Path) -> None:
    """Try each package in an environment of its own."""
    for package in sorted((*dist.glob("*.whl"), *dist.glob("*.tar.gz"))):
        with tempfile.TemporaryDirectory() as folder:
            print(f"{package.name}: installs in an empty environment, {tried(package, Path(folder))}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
