"""Raw answers of NVML in the child's document: reading one never raises, whatever is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nodedoctor.json_shapes import int_of, mapping, part, whole_number
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
        fields = mapping(entry)
        return cls(part(fields, "values"), part(fields, "errors"), fields)

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
        return value, "NO_VALUE" if value is None else None

    def asked(self, key: str) -> bool:
        """True when the document has a value or an error under this name."""
        return key in self.values or key in self.errors

    def error(self, key: str) -> str | None:
        """The name of the error in the place of an answer."""
        name = self.errors.get(key)
        return name if isinstance(name, str) else None


def mib(value: Any) -> int:
    """Bytes as MiB."""
    return int_of(value) // 2**20


def index_of(entry: Any, key: str = "index") -> int | None:
    """The number of the GPU an entry is about; None when it has none."""
    number = whole_number(mapping(entry), key)
    return number if number is not None and number < 1024 else None
