"""What a capture means: the verdict as a `nodedoctor.triage/1` document, and as the few lines for a
terminal."""

from __future__ import annotations

from nodedoctor.blackbox.capture import Capture
from nodedoctor.json_shapes import Json, parts, text
from nodedoctor.triage.live.activity import group_activities
from nodedoctor.triage.live.examine import judge_live
from nodedoctor.triage.verdict import document

FIXES = 2
"""Fixes shown on the terminal; verdict.txt has all of them."""


def judge(look: Capture) -> Json:
    """The verdict on what was captured."""
    examined = judge_live(look.live)
    return document.make_document(examined.verdict, examined.lines.line_of)


def short(verdict: Json, look: Capture) -> list[str]:
    """Who holds the job up, what every rank does, and what to do first."""
    headline = text(verdict, "headline")
    lines = [f"  {headline[:1].upper()}{headline[1:]}."]
    lines += [f"    {activity.who}: {activity.doing}" for activity in group_activities(look.live)]
    for fix in parts(verdict, "fixes")[:FIXES]:
        lines.append(f"  fix: {text(fix, 'text')}")
        lines += [f"    $ {command}" for command in list(fix.get("commands", ()))[:2]]
    return lines
