"""A JSON document with a list of steps, a line each, that can be read as far as a child came."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from nodedoctor.probes.plain_json import members


class StepDocument:
    """Steps are written at once, and announced before they begin: one that never ends is the last line."""

    def __init__(self, about: dict[str, Any]) -> None:
        self._separator = "\n"
        self._begun = time.perf_counter()
        head = json.dumps(about)
        self._members = members({**about, "steps": []})
        sys.stdout.write(f'{head[:-1]}, "steps": [')

    def step(self, name: str, **values: Any) -> None:
        """Write one step at once, with the seconds since we began."""
        step = {"step": name, **values, "at": round(self.seconds, 3)}
        self._members += 1 + members(step)
        sys.stdout.write(self._separator + json.dumps(step))
        sys.stdout.flush()
        self._separator = ",\n"

    @property
    def seconds(self) -> float:
        """How long it has been written."""
        return time.perf_counter() - self._begun

    def close(self) -> None:
        """Write the last step and end the document."""
        self.step("end", seconds=round(self.seconds, 3))
        sys.stdout.write(f'\n], "members": {self._members}}}\n')
        sys.stdout.flush()
