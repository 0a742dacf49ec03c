"""Lines that name the node whose outputs follow: what `hostname` and `uname -a` print, and headings of tools.

Formats: dshbak of pdsh 2.18 to 2.35 and clush -b of ClusterShell 1.6 to 1.9 (a name between two rules);
ansible 2.9 to 2.19 (`NODE | CHANGED | rc=0 >>`); head, tail and more (coreutils, util-linux).
"""

from __future__ import annotations

import re

from nodedoctor.intake.file_names import file_of, node_name

_HOST = r"[A-Za-z0-9][\w.-]{0,63}(?:\[[\d,-]{1,80}\][\w.-]{0,40})?"
_ASKS = re.compile(r"\s*(?:sudo )?(?:hostname(?: -[sf]| --short| --fqdn)?|uname -n|cat /etc/hostname)\s*$")
_UNAME = re.compile(rf"Linux (?P<host>{_HOST}) \d{{1,2}}\.\d{{1,3}}[.-]\S{{0,80}} #\d")
_ANSIBLE = re.compile(rf"(?P<host>{_HOST}) \| (?:CHANGED|SUCCESS|FAILED|UNREACHABLE!) (?:\| rc=|=>)")
_FILE = re.compile(r"==> (?P<file>\S{1,300}) <==$")
_RULE = re.compile(r"-{10,}$")
_COLONS = re.compile(r":{14}$")
_NAME = re.compile(rf"(?P<host>{_HOST})(?: \(\d+\))?$")


class Headings:
    """Goes over the lines between outputs, and says which node is named."""

    def __init__(self) -> None:
        self._last = ("", "")

    def node_of(self, line: str, command: str) -> tuple[str, int]:
        """The node that a line names, "" for none, and how many lines name it.

        `command` is what was typed at the last prompt.
        """
        rule, title = self._last
        text = line.strip()
        self._last = (title, text) if text else self._last
        if (
            match := _UNAME.match(text)
            or _ANSIBLE.match(text)
            or (_ASKS.match(command) and _NAME.match(text))
        ):
            return match["host"], 1
        if _RULE.match(text) and _RULE.match(rule) and (match := _NAME.match(title)):
            return match["host"], 3
        if match := _FILE.match(text):
            return node_name(file_of(match["file"])), 1
        if _COLONS.match(text) and _COLONS.match(rule):
            return node_name(file_of(title)), 3
        return "", 0
