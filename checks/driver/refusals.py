"""Questions that the driver answered with an error, put together by the GPU they are about and the code."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.facts.gpu.gpu import HARMLESS, CallError
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.knowledge.error_codes import nvml_error
from nodedoctor.record import record

from ..measured.culprits import culprits


@record
class Refusal:
    """One error of one GPU (`index`), of two (`pair`), or of all, and the calls that met it."""

    error: str
    calls: tuple[str, ...]
    index: int | None = None
    pair: tuple[int, int] | None = None

    @property
    def subject(self) -> str:
        """How findings call what this is about."""
        if self.pair:
            return f"pair:{self.pair[0]}-{self.pair[1]}"
        return "" if self.index is None else f"gpu:{self.index}"


def refusals(gpus: Gpus) -> list[Refusal]:
    """All of them; a GPU that is lost has its own finding, which explains every other error of it."""
    lost = {gone.index for gone in gpus.lost}
    errors = [*gpus.call_errors, *_of_texts(gpus)]
    calls: dict[tuple[str, int | None, tuple[int, int] | None], dict[str, None]] = {}
    for one in errors:
        if one.peer is None and not (one.index is not None and one.index in lost):
            where = "" if one.link is None else f" of link {one.link}"
            calls.setdefault((one.error, one.index, None), {})[f"{one.call}{where}"] = None
    for error in dict.fromkeys(one.error for one in errors if one.peer is not None):
        for key, name in _between(gpus, error, lost):
            calls.setdefault(key, {})[name] = None
    return [Refusal(error, tuple(names), index, pair) for (error, index, pair), names in calls.items()]


def _of_texts(gpus: Gpus) -> Iterator[CallError]:
    """What stands in the place of a value and is of no call we know, as in what `nvidia-smi` prints."""
    known = {(one.index, one.error) for one in gpus.call_errors}
    for gpu in gpus.gpus:
        for field, error in gpu.errors.items():
            told = (gpu.index, error) in known or error in (*HARMLESS, "UNKNOWN", "UNPARSABLE")
            if not told and nvml_error(error).of_value in ("fail", "warn"):
                yield CallError(gpu.index, field, error)


_Place = tuple[tuple[str, "int | None", "tuple[int, int] | None"], str]


def _between(gpus: Gpus, error: str, lost: set[int | None]) -> Iterator[_Place]:
    """Errors about pairs belong to the GPU that all the bad pairs have in common."""
    met = [one for one in gpus.call_errors if one.error == error and one.peer is not None]
    ends = [(one, (one.index, one.peer)) for one in met if one.index is not None and one.peer is not None]
    bad = {(a, b): one.call for one, (a, b) in ends if a not in lost and b not in lost}
    indexes = [gpu.index for gpu in gpus.gpus]
    found = culprits(bad, {(a, b) for a in indexes for b in indexes if a != b})
    for (a, b), call in bad.items():
        guilty = [index for index in found.gpus if index in (a, b)]
        if found.everything:
            yield (error, None, None), call
        elif guilty:
            yield (error, guilty[0], None), call
        else:
            yield (error, None, (min(a, b), max(a, b))), call
