"""What a command line ends with: errors that it reports in one line, and signals."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class EndedBySignal(Exception):
    """We were ended from outside by a signal; `code` is what a shell shows for it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.code = 128 + number


class NodeDoctorError(Exception):
    """What a person can mend: the message says it in one line, `exit_code` is what the process ends with.

    64 is EX_USAGE of sysexits(3): the question could not be understood or what it names could not be read.
    """

    exit_code: ClassVar[int] = 64
