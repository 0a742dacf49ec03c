"""How much of what children write is kept: apart from `pipes`, as readers of reports need no asyncio."""

from __future__ import annotations

KEPT = 4 * 1024 * 1024  # bytes of output kept per observation, the tail of it
KEPT_STDERR = 4096
BACKLOG = 1000  # lines of a followed child that wait for their reader
