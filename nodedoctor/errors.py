"""The base of every error that a command line reports in one line and ends with."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class NodeDoctorError(Exception):
    """What a person can mend: the message says it in one line, `exit_code` is what the process ends with.

    64 is EX_USAGE of sysexits(3): the question could not be understood or what it names could not be read.
    """

    exit_code: ClassVar[int] = 64
