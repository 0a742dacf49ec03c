"""Raw answers of NVML in the child's document: reading one never raises, whatever stands there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nodedoctor.record import record

ReadError = (TypeError, ValueError, IndexError, OverflowError, AttributeError)
"""What readers raise when an answer is not what it must be. A KeyError says: an older, shorter structure."""


@record
class Raw:
    """One entry of the document: what was answered, what failed, and the rest of the entry."""

    values: Mapping[str, Any]
    errors: Mapping[str, Any]
    entry: Mapping[str, Any]

    @classmethod
    def of(cls, entry: Any) -> Raw:
        """Take an entry apart; what has a wrong shape counts as empty."""
        kept = mapping(entry)
        return cls(mapping(kept.get("values")), mapping(kept.get("errors")), kept)

    def read(self, key: str, read: Callable[[Any], Any]) -> tuple[Any, str | None]:
        """A value, or None and the name of the reason."""
        if key not in self.values:
            return None, self.error(key) or "NOT_ASKED"
        try:
            value = read(self.values[key])
        except KeyError:
            return None, "FUNCTION_NOT_FOUND"
        except ReadError:
            return None, "UNPARSABLE"
        return value, "NO_DATA" if value is None else None

    def asked(self, key: str) -> bool:
        """True when the document has a value or an error under this name."""
        return key in self.values or key in self.errors

    def error(self, key: str) -> str | None:
        """The name of the error in the place of an answer."""
        name = self.errors.get(key)
        return name if isinstance(name, str) else None


def mapping(value: Any) -> Mapping[str, Any]:
    """A JSON object, empty for anything else."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """A JSON list, empty for anything else."""
    return value if isinstance(value, list) else []


def whole(value: Any) -> int:
    """A whole number of at most 64 bits; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**64:
        raise ValueError(value)
    return value


def mib(value: Any) -> int:
    """Bytes as MiB."""
    return whole(value) // 2**20


def text(value: Any) -> str | None:
    """A text without blanks around it, None when it is empty; ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(value)
    return value.strip() or None


def index_of(entry: Any, key: str = "index") -> int | None:
    """The number of the GPU an entry is about; None when it has none."""
    number = mapping(entry).get(key)
    sound = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1024
    return number if sound else None
