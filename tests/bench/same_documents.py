"""Do two checkouts print the same `--json` for every recorded node? For changes that must change nothing.

    python tests/bench/same_documents.py OTHER_CHECKOUT [FOLDER ...]

Each checkout needs its .venv. FOLDERs hold recorded nodes; by default those of the tests and the demos.
`tool`, `started` and `seconds` may differ. Prints what differs; the exit code is 1 if anything does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[2]
NODES = (HERE / "tests" / "nodes", HERE / "nodedoctor" / "demo")

# One process for all nodes of a checkout: an interpreter for each would take ten times as long.
SCRIPT = """
import io, os, sys
from contextlib import redirect_stdout
from nodedoctor.cli.main import main
options, nodes = sys.argv[1].split(), sys.argv[2:]
for node in nodes:
    said = open("/dev/shm/" + str(os.getpid()), "w+")
    with redirect_stdout(said):
        main(["--json", "--exit-zero", *options, "--replay", node])
    said.seek(0)
    print(said.read().replace("\\n", ""), flush=True)
    os.unlink(said.name)
"""


def documents(checkout: Path, nodes: list[Path], options: str = "") -> list[str]:
    """What a checkout prints for each node, a line each."""
    argv = [checkout / ".venv" / "bin" / "python", "-c", SCRIPT, options, *nodes]
    told = subprocess.run(argv, cwd=checkout, stdout=subprocess.PIPE, text=True, check=True)
    return told.stdout.splitlines()


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """The places where two documents differ."""
    if where in (".tool", ".started", ".seconds"):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            yield from differences(before.get(name), after.get(name), f"{where}.{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{where}[{at}]")
    elif before != after:
        yield f"{where}: {str(before)[:100]} -> {str(after)[:100]}"


def main() -> int:
    """Compare; 0 when nothing differs."""
    folders = [Path(folder) for folder in sys.argv[2:]] or NODES
    nodes = sorted(file.parent.resolve() for folder in folders for file in folder.glob("*/manifest.json"))
    pairs = zip(nodes, documents(Path(sys.argv[1]), nodes), documents(HERE, nodes), strict=True)
    differ = 0
    for node, before, after in pairs:
        found = list(differences(json.loads(before), json.loads(after)))
        differ += bool(found)
        for line in found[:10]:
            print(f"{node.name}{line}")
    print(f"{len(nodes)} recorded nodes, {differ} differ")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
