"""On which node somebody asked for the kernel's lines, by the prompt above them or the command at it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from nodedoctor.prompts import match_prompt, remote_host
from nodedoctor.triage.model import Event, Line
from nodedoctor.triage.patterns.machine import is_of_node

_LOGS = ("dmesg", "journalctl", "kern.log", "syslog", "/messages")
"""What a command has in it that shows the kernel's lines."""
_MARKS = ("$ ", "# ", "> ", "% ", "`", "~")
"""How prompts end, by which the next one is seen, and what ends a block in Markdown."""
_FENCE = re.compile(r"[`~]{1,9}$")


class KernelPrompts:
    """Follows whose kernel's lines are shown: from a command to the next one, or to the end of its block."""

    def __init__(self) -> None:
        self._host = ""

    def read(self, line: Line) -> None:
        """Note the node of a command that shows the kernel's lines."""
        text = line.text
        asks = any(map(text.__contains__, _LOGS))
        may_end = bool(self._host) and any(map(text.__contains__, _MARKS))
        prompt = match_prompt(text) if asks or may_end else None
        if prompt is not None:
            self._host = (remote_host(prompt.command) or prompt.host) if asks else ""
        elif may_end and _FENCE.match(text):
            self._host = ""

    def complete(self, event: Event[Any]) -> Event[Any]:
        """The event, what the kernel says with the node that was asked where it names none."""
        who = event.who
        if not self._host or who.host not in (None, who.recorder) or not is_of_node(event.what, event.text):
            return event
        return replace(event, who=replace(who, host=self._host))
