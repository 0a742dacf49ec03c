"""What pairs of nodes must have, from a run in which they were well: lines for `--expect FILE`."""

from __future__ import annotations

from typing import Any

from nodedoctor import input_files
from nodedoctor.errors import NodeDoctorError
from nodedoctor.expectations import KEYS
from nodedoctor.json_shapes import loaded, mapping, number, words
from nodedoctor.pairs.document import SCHEMA
from nodedoctor.pairs.methods import METHODS
from nodedoctor.report.inert import inert

SHARE = 0.9
"""Of the reference that is expected from then on. Our choice: good pairs of one fabric differ by a few
percent, and so do two runs; what is missing beyond that is worth a look."""


def expected_of(path: str) -> tuple[str, bool]:
    """The file of expectations, and whether the run was well enough to be the reference.

    NodeDoctorError when the file is no document of pairs, or when no pair has a rate in it.
    """
    try:
        told: Any = loaded(input_files.read(path, pipes=True))
    except OSError as error:
        raise NodeDoctorError(f"--pairs {path}: {error.strerror}") from None
    except ValueError:
        told = None
    if mapping(told).get("schema") != SCHEMA:
        raise NodeDoctorError(f"--pairs {path}: not a document of `fleet --pairs --json`")
    what = words(mapping(told.get("plan")).get("what"))
    method = next((row for name, row in METHODS.items() if name == what), None)
    reference = number(told.get("reference_gbps"))
    if method is None or not reference:
        raise NodeDoctorError(f"--pairs {path}: no pair has a rate in it")
    verdict = words(told.get("verdict"))
    nodes, started = words(mapping(told.get("plan")).get("nodes")), words(told.get("started"))
    lines = [
        inert(f"# {nodes} nodes on {started}, verdict {verdict}; {SHARE:.0%} of what a good pair had"),
        f"{method.key}={SHARE * reference / method.gbps_of_key:.3f}  # {KEYS[method.key]}",
    ]
    return "\n".join(lines) + "\n", verdict == "pass"
