"""NVML behind pynvml, one guarded call at a time: the part of nvml.py that knows how calls fail."""

from __future__ import annotations

import ctypes
import time

from nodedoctor.probes.gpu import nvml_calls as calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    NvmlAnswer = tuple[Any, str | None]
    """What was answered and None, or None and the name of the error."""

SLOW = 0.1  # seconds from which a call is listed; a healthy one takes well below a millisecond
SONAME = "libnvidia-ml.so"
UNION = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t


class NvmlLibrary:
    """NVML: every call guarded, timed, and known while it lasts."""

    def __init__(self, pynvml: Any) -> None:
        self.pynvml = pynvml
        self.asking: tuple[int | None, str, float] | None = None
        self.slow: list[dict[str, Any]] = []
        unknown = (pynvml.NVMLLibraryMismatchError, AttributeError, TypeError)  # older pynvml or driver
        self._failures = (pynvml.NVMLError, ValueError, *unknown)
        self._names: dict[int, str] = {
            number: name.removeprefix("NVML_ERROR_")
            for name, number in vars(pynvml).items()
            if name.startswith("NVML_ERROR_") and isinstance(number, int)
        }

    def call(self, index: int | None, name: str, *args: Any) -> NvmlAnswer:
        """Call a function of pynvml; `index` is the GPU it is about."""
        began = time.perf_counter()
        self.asking = (index, name, began)
        try:
            return plain(getattr(self.pynvml, name)(*args)), None
        except self._failures as error:
            return None, self.error_name(error)
        finally:
            self.asking = None
            took = time.perf_counter() - began
            if took >= SLOW:
                self.slow.append({"index": index, "call": name, "seconds": round(took, 3)})

    def error_name(self, error: Exception) -> str:
        """The name of a failure as in nvml.h."""
        if isinstance(error, self.pynvml.NVMLError):
            return self.code_name(error.value)
        # A ValueError is text that is none; what is left is a function this pynvml or driver does not have.
        return "UNPARSABLE" if isinstance(error, ValueError) else "FUNCTION_NOT_FOUND"

    def code_name(self, code: int) -> str:
        """The name of a return code; ERROR_ and the number for one that this pynvml does not know."""
        return self._names.get(code, f"ERROR_{code}")

    def code(self, name: str) -> int | None:
        """The number behind the name of a failure."""
        known = {known: code for code, known in self._names.items()}
        number = name.rpartition("_")[2]
        return known.get(name, int(number) if number.isdecimal() else None)

    def ask(self, index: int, question: str, *about: Any) -> NvmlAnswer:
        """Ask a question of the tables, and where the driver is too old for it, what it knew before."""
        reason: str | None = None
        for alternative in question.split(" | "):
            name, *args = alternative.split()
            answer, error = self._ask_alternative(index, f"nvmlDeviceGet{name}", about, args)
            if error not in calls.OLDER:
                return answer, error
            reason = error if reason in (None, "FUNCTION_NOT_FOUND") else reason
        return None, reason

    def _ask_alternative(self, index: int, name: str, about: tuple[Any, ...], args: list[str]) -> NvmlAnswer:
        if not (args and args[0].startswith("c_")):
            return self.call(index, name, *about, *(int(arg, 0) for arg in args))
        structure = getattr(self.pynvml, args[0], None)
        if structure is None:
            return None, "FUNCTION_NOT_FOUND"
        space = structure()
        # byref, because pynvml passes it on as it is: the structure itself would end the process.
        _, error = self.call(index, name, *about, ctypes.byref(space))
        return plain(space), error

    def values(self, index: int, questions: Mapping[str, str], *about: Any) -> dict[str, dict[str, Any]]:
        """Answers and errors to a table of questions."""
        readings: dict[str, dict[str, Any]] = {"values": {}, "errors": {}}
        for key, question in questions.items():
            keep(readings, key, self.ask(index, question, *about))
        return readings

    def fields(self, index: int, handle: Any, wanted: Mapping[str, Any], readings: dict[str, Any]) -> None:
        """Ask for field values in one call; each has an error of its own, and so has the call."""
        answers, failed = self.call(index, "nvmlDeviceGetFieldValues", handle, list(wanted.values()))
        if failed:
            readings["errors"] |= dict.fromkeys(wanted, failed)
            return
        for key, answer in zip(wanted, answers, strict=True):
            keep(readings, key, self._field_answer(**answer))

    def _field_answer(self, nvmlReturn: int, valueType: int, value: Any, **_: Any) -> NvmlAnswer:
        if nvmlReturn:
            return None, self.code_name(nvmlReturn)
        if valueType >= len(UNION):
            return None, "UNPARSABLE"
        if UNION[valueType] == "dVal":
            # No field of ours is a double: driver 580 left this entry as it came, and called that success.
            return None, "NOT_SUPPORTED"
        return getattr(value, UNION[valueType]), None


def keep(readings: dict[str, dict[str, Any]], key: str, answer: NvmlAnswer) -> None:
    """Put an answer among the values or its error among the errors."""
    value, error = answer
    if error:
        readings["errors"][key] = error
    else:
        readings["values"][key] = value


def plain(value: Any) -> Any:
    """A value of ctypes as JSON can hold it; handles and unions stay as they are."""
    if value is None or isinstance(value, int | float | str | ctypes.Union | ctypes._Pointer):
        return value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, list | tuple | ctypes.Array):
        return [plain(member) for member in value]
    return {name: plain(member) for name, member in vars(value).items()}


def init(library: NvmlLibrary) -> dict[str, Any]:
    """Start the library and say how that went, which file it was, and what it calls its failure."""
    began = time.perf_counter()
    _, error = library.call(None, "nvmlInit")
    outcome: dict[str, Any] = {"seconds": round(time.perf_counter() - began, 4), "library": loaded()}
    if error is None:
        return outcome
    code = library.code(error)
    return {"error": error, "code": code, "text": explain(library, code), **outcome}


def explain(library: NvmlLibrary, code: int | None) -> str:
    """The text of a failure: the library's own, which people search for; without one, why it did not load."""
    text, error = library.call(None, "nvmlErrorString", code)
    if error is None and code:
        return str(text)
    try:
        ctypes.CDLL(f"{SONAME}.1")
    except OSError as reason:
        return str(reason)
    return str(library.pynvml.NVMLError(code))


def loaded() -> str | None:
    """The file that is really mapped, symbolic links resolved."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return next((line.split(None, 5)[5].strip() for line in maps if SONAME in line), None)
