"""What modules tell the debug log: nothing is loaded for it unless one is wanted.

`logging` is a thirtieth of a replay to import. `--debug-log` imports it, as asyncio does.
"""

from __future__ import annotations

import sys
from typing import Any


class Log:
    """The logger of a module, `logging.getLogger(name)`, as far as there is one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, message: str, *values: Any, exc_info: Any = None) -> None:
        """Log what only the debug log tells."""
        logging = sys.modules.get("logging")
        if logging is not None:
            logging.getLogger(self._name).debug(message, *values, exc_info=exc_info, stacklevel=2)
