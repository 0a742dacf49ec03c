"""How many examples a property test tries: NODEDOCTOR_EXAMPLES, else 100.

`make test` takes few, so that it ends while somebody waits; `make fuzz` takes many. A test whose examples
cost more or less than others names its own number for a plain run: `examples(25)`.
"""

from __future__ import annotations

import os

from hypothesis import settings

USUAL = 100  # Hypothesis' own default
DEFAULT = int(os.environ.get("NODEDOCTOR_EXAMPLES") or USUAL)


def examples(usual: int) -> int:
    """As many as are wanted of a test that tries `usual` of them in a plain run."""
    return max(5, usual * DEFAULT // USUAL)


def load_profile() -> None:
    """Settings of every property test; how long one example takes is the machine's affair."""
    settings.register_profile("any-machine", deadline=None, max_examples=examples(USUAL))
    settings.load_profile("any-machine")
