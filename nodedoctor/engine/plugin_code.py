"""Run code that somebody else wrote in our own process: from source, in bounded time, with its own words kept
out of the report.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from types import CodeType, FrameType, ModuleType

from nodedoctor.engine.sandbox import run_in_fork
from nodedoctor.errors import NodeDoctorError


class PluginFailed(NodeDoctorError):
    """What a plug-in did wrong, whatever it raised: `error` is that, or a TimeoutError."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error


class _Overdue(BaseException):
    """Not an Exception: code that retries in a loop catches those."""


@contextlib.contextmanager
def contained(seconds: float) -> Iterator[None]:
    """Turn whatever the code inside raises, and taking too long, into PluginFailed; what it prints to stderr.

    `seconds` are for all of it, 0 for no limit. Only the main thread gets signals; elsewhere nothing ends it.
    A Ctrl-C of the person at the terminal goes through.
    """
    with watching() as watch:
        before = watch.pressed
        try:
            with contextlib.redirect_stdout(sys.stderr), watch.limit(seconds):
                yield
        except BaseException as error:
            if watch.pressed > before:
                raise
            if isinstance(error, _Overdue):
                late = TimeoutError(f"took longer than {seconds:.3g} s")
                raise PluginFailed(late.with_traceback(error.__traceback__)) from None
            raise PluginFailed(error) from error


def tried(load: Callable[[], object], seconds: float) -> None:
    """Load a plug-in in a fork first; EndsTheProcess for one that crashes it or makes it end.

    What the plug-in raises there it raises again in our process, where that is dealt with. One that takes too
    long is ended with all that it started; a limit of the caller's comes first.
    """

    def loaded() -> None:
        with contextlib.suppress(BaseException):  # reported when it is loaded in our process
            load()

    run_in_fork(loaded, seconds, "loading it", quiet=True)


@contextlib.contextmanager
def stdout_kept() -> Iterator[None]:
    """What code inside writes to descriptor 1 goes to stderr, as what it prints does."""
    try:
        stdout = os.dup(1)
    except OSError:  # too few descriptors, or none
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


class _Watch:
    """Our handlers of signals; in another thread than the main one, which gets none, there are none."""

    def __init__(self) -> None:
        self.pressed = 0
        """How often Ctrl-C was pressed."""
        self._on_alarm = signal.getsignal(signal.SIGALRM)
        self._on_interrupt = signal.getsignal(signal.SIGINT)
        self._interrupt = self._note_interrupt  # one object, known again when it is taken away
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            signal.signal(signal.SIGALRM, _raise_overdue)
            if callable(self._on_interrupt):
                signal.signal(signal.SIGINT, self._interrupt)

    def _note_interrupt(self, number: int, frame: FrameType | None) -> None:
        self.pressed += 1
        if callable(self._on_interrupt):
            self._on_interrupt(number, frame)

    @contextlib.contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Raise _Overdue when the code inside takes longer."""
        if not (self._main and seconds):
            yield
            return
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def end(self) -> None:
        """Give back the handlers that were there, unless somebody has set others since."""
        if not self._main:
            return
        if signal.getsignal(signal.SIGALRM) is _raise_overdue:
            signal.signal(signal.SIGALRM, self._on_alarm)
        if signal.getsignal(signal.SIGINT) is self._interrupt:
            signal.signal(signal.SIGINT, self._on_interrupt)


def _raise_overdue(number: int, frame: FrameType | None) -> None:
    raise _Overdue


_watches: dict[int, _Watch] = {}
"""The handlers that are set, by thread."""


@contextlib.contextmanager
def watching() -> Iterator[_Watch]:
    """Set the handlers for all that is `contained` inside: to set them for each costs a tenth of a run."""
    thread = threading.get_ident()
    if thread in _watches:
        yield _watches[thread]
        return
    watch = _watches[thread] = _Watch()
    try:
        yield watch
    finally:
        del _watches[thread]
        watch.end()


class FromSource(SourceFileLoader):
    """Compiles the source each time: nothing is read from __pycache__, which may not fit it, nor written."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of a module, compiled now."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class SourceFinder:
    """Finds what lies in a package of check files: .py files and folders of them, nothing compiled.

    Not derived from importlib.abc.MetaPathFinder, which adds nothing here and takes 6 ms to import.
    """

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
