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
    absent = {gpu.index for gpu in gpus.lost}
    errors = [*gpus.call_errors, *_of_texts(gpus)]
    calls: dict[tuple[str, int | None, tuple[int, int] | None], dict[str, None]] = {}
    for err in errors:
        if err.peer is None and not (err.index is not None and err.index in absent):
            where = "" if err.link is None else f" of link {err.link}"
            calls.setdefault((err.error, err.index, None), {})[f"{err.call}{where}"] = None
    for error in dict.fromkeys(err.error for err in errors if err.peer is not None):
        for key, name in _pair_places(gpus, error, absent):
            calls.setdefault(key, {})[name] = None
    return [Refusal(error, tuple(names), index, pair) for (error, index, pair), names in calls.items()]


def _of_texts(gpus: Gpus) -> Iterator[CallError]:
    """Errors in the place of a value, of no call we know, as in what `nvidia-smi` prints."""
    pairs = {(err.index, err.error) for err in gpus.call_errors}
    for gpu in gpus.gpus:
        for field, error in gpu.errors.items():
            is_covered = (gpu.index, error) in pairs or error in (*HARMLESS, "UNKNOWN", "UNPARSABLE")
            if not is_covered and nvml_error(error).of_value in ("fail", "warn"):
                yield CallError(gpu.index, field, error)


_Place = tuple[tuple[str, "int | None", "tuple[int, int] | None"], str]


def _pair_places(gpus: Gpus, error: str, absent: set[int | None]) -> Iterator[_Place]:
    """Errors about pairs belong to the GPU that all the bad pairs have in common."""
    met = [err for err in gpus.call_errors if err.error == error and err.peer is not None]
    ends = [(err, (err.index, err.peer)) for err in met if err.index is not None and err.peer is not None]
    bad = {(a, b): err.call for err, (a, b) in ends if a not in absent and b not in absent}
    indexes = [gpu.index for gpu in gpus.gpus]
    common = culprits(bad, {(a, b) for a in indexes for b in indexes if a != b})
    for (a, b), call in bad.items():
        guilty = [index for index in common.gpus if index in (a, b)]
        if common.everything:
            yield (error, None, None), call
        elif guilty:
            yield (error, guilty[0], None), call
        else:
            yield (error, None, (min(a, b), max(a, b))), call
