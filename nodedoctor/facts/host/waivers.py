"""Findings this site has accepted for now: `/etc/nodedoctor/waivers`, one `id until reason` a line."""

from __future__ import annotations

from datetime import date

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe
from nodedoctor.json_shapes import answer
from nodedoctor.model import Finding, Moment, Observation, Status, Unseen
from nodedoctor.record import record, replace

PATH = "/etc/nodedoctor/waivers"


@probe("waivers", lane=Lane.FS, timeout=5)
def waivers(options: Options) -> Command:
    """The site's waivers file."""
    return Command(child("host/files", "--root", options.root, f"read:{PATH}"))


@record
class Waiver:
    """One accepted finding: `id` is a finding's or a check's, `until` the last day it counts."""

    id: str
    until: date
    reason: str


@fact("waivers")
@record
class Waivers:
    """Accepted findings, and the lines that could not be read."""

    waivers: tuple[Waiver, ...] = ()
    unreadable: tuple[str, ...] = ()

    @classmethod
    def parse(cls, observation: Observation) -> Waivers | Unseen:
        """Read the file; a bad line is kept as such and waives nothing."""
        if not observation.answered:
            return Unseen.of(observation)
        try:
            text = answer(observation.text)["files"].get(PATH, "")
            lines = [line.partition("#")[0].strip() for line in text.splitlines()]
        except (ValueError, TypeError, KeyError, AttributeError):
            return Unseen.of(observation)
        waiver_lines = [(line, _parse_waiver(line)) for line in lines if line]
        good = tuple(waiver for _, waiver in waiver_lines if waiver is not None)
        return cls(good, tuple(line for line, waiver in waiver_lines if waiver is None))

    def apply(self, check: str, finding: Finding, moment: Moment) -> Finding:
        """The finding, marked as waived where a waiver for it is still in force."""
        if finding.status in (Status.PASS, Status.SKIP):
            return finding
        names = {check, f"{check}@{finding.subject}"}
        for waiver in self.waivers:
            if waiver.id in names and moment.started.date() <= waiver.until:
                return replace(finding, waived=f"{waiver.reason} (until {waiver.until})")
        return finding

    def public(self) -> dict[str, object]:
        """The waivers as plain data."""
        return {"waivers": [{"id": w.id, "until": str(w.until), "reason": w.reason} for w in self.waivers]}


def _parse_waiver(line: str) -> Waiver | None:
    words = line.split(None, 2)
    try:
        return Waiver(words[0], date.fromisoformat(words[1]), words[2])
    except (IndexError, ValueError):
        return None
