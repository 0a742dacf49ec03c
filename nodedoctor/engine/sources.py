"""Where observations come from: what every source offers, and the recording of a node, which answers at once.

The live node is `engine/live.py`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Coroutine, Generator, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from nodedoctor.engine.pending import Pending, Ready, run_sync
from nodedoctor.engine.secrets import without_secrets
from nodedoctor.model import Observation, Outcome
from nodedoctor.record import replace

T = TypeVar("T")

_OURS = re.compile(r"nodedoctor/probes/[\w/]+\.py$")


def normalise_observation(observation: Observation) -> Observation:
    """An observation as everything behind this line sees it, live or recorded.

    No secret passes (`engine/secrets.py`). Lines end in LF, whatever an editor or a mail program made of
    them.
    Our own programs end with 0 when they have said everything; what they printed before another end is not an
    answer but a crash.
    """
    if "\r\n" in observation.text:
        observation = replace(observation, text=observation.text.replace("\r\n", "\n"))
    observation = without_secrets(observation)
    if observation.answered and observation.rc and any(_OURS.search(word) for word in observation.argv):
        return replace(
            observation,
            outcome=Outcome.CRASH,
            note=observation.note or f"ended with exit code {observation.rc}",
        )
    return observation


class ObservationSource(Protocol):
    """Answers probes by name."""

    def foresee(self, names: Iterable[str]) -> None:
        """Know what will be asked, before any of it is."""

    def ask(self, name: str) -> Pending[Observation]:
        """The observation of one probe; the same object however often it is asked for."""

    def begin(self, work: Coroutine[Any, Any, T]) -> Pending[T]:
        """Let work that asks this source go on beside other work."""

    def as_completed(self, works: Iterable[Coroutine[Any, Any, T]]) -> Generator[Awaitable[T], None, None]:
        """What each of several works comes to, in the order in which they end."""

    def observations(self) -> tuple[Observation, ...]:
        """All that was seen so far, in the order of asking."""

    def waiting_for(self) -> dict[str, float]:
        """Probes under way, and the seconds each has been running."""

    def close(self) -> None:
        """Let go of whatever is still open."""


class Recorded:
    """A node as it was: the observations of a recording."""

    def __init__(self, observations: Mapping[str, Observation]) -> None:
        self._seen = {name: normalise_observation(observation) for name, observation in observations.items()}

    def foresee(self, names: Iterable[str]) -> None:
        """Nothing takes longer than anything else."""

    def ask(self, name: str) -> Ready[Observation]:
        """What was recorded; what was not is missing, and says so."""
        missing = Outcome.MISSING
        return Ready(self._seen.get(name) or Observation(name, missing, note="not in this recording"))

    def begin(self, work: Coroutine[Any, Any, T]) -> Ready[T]:
        """Do it now: there is nothing to wait for."""
        return Ready(run_sync(work))

    def as_completed(self, works: Iterable[Coroutine[Any, Any, T]]) -> Generator[Awaitable[T], None, None]:
        """The works themselves: each is done when it is waited for."""
        yield from works

    def observations(self) -> tuple[Observation, ...]:
        """Everything the recording holds."""
        return tuple(self._seen.values())

    def waiting_for(self) -> dict[str, float]:
        """Nothing: a recording answers at once."""
        return {}

    def close(self) -> None:
        """Nothing to let go of."""
