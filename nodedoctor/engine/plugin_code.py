"""Run code that somebody else wrote in our own process: from source, in bounded time, with its own words kept
out of the report.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from types import CodeType, FrameType, ModuleType


class PluginFailed(Exception):
    """What a plug-in did wrong, whatever it raised: `error` is that, or a TimeoutError."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error


class _Overdue(BaseException):
    """Not an Exception: code that tries for ever catches those."""


@contextlib.contextmanager
def contained(seconds: float) -> Iterator[None]:
    """Turn whatever the code inside raises, and taking too long, into PluginFailed; what it prints to stderr.

    `seconds` are for all of it, 0 for no limit. Only the main thread gets signals; elsewhere nothing ends it.
    A Ctrl-C of the person at the terminal goes through.
    """
    pressed: list[int] = []
    try:
        with contextlib.redirect_stdout(sys.stderr), _signals(seconds, pressed):
            yield
    except BaseException as error:
        if pressed:
            raise
        if isinstance(error, _Overdue):
            late = TimeoutError(f"took longer than {seconds:.3g} s")
            raise PluginFailed(late.with_traceback(error.__traceback__)) from None
        raise PluginFailed(error) from error


@contextlib.contextmanager
def _signals(seconds: float, pressed: list[int]) -> Iterator[None]:
    """Raise _Overdue in time, and note every Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    on_alarm, on_interrupt = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT)

    def overdue(number: int, frame: FrameType | None) -> None:
        raise _Overdue

    def interrupt(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        if callable(on_interrupt):
            on_interrupt(number, frame)

    signal.signal(signal.SIGALRM, overdue)
    if callable(on_interrupt):
        signal.signal(signal.SIGINT, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, on_alarm)
        if callable(on_interrupt):
            signal.signal(signal.SIGINT, on_interrupt)


class FromSource(SourceFileLoader):
    """Compiles the source each time: nothing is read from __pycache__, which may not fit it, nor written."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of a module, compiled now."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class SourceFinder(MetaPathFinder):
    """Finds what lies in a package of check files: .py files and folders of them, nothing compiled."""

    def __init__(self, package: str) -> None:
        self._prefix = f"{package}."

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of the package is; ModuleNotFoundError when only others could load it."""
        if not fullname.startswith(self._prefix):
            return None
        for folder in path or ():
            spec = FileFinder(folder, (FromSource, [".py"])).find_spec(fullname)
            if spec is not None:
                return spec
        name = fullname.removeprefix(self._prefix)
        raise ModuleNotFoundError(f"no {name}.py: only source files are checks", name=fullname)
