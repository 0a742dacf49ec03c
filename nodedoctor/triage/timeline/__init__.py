"""The timeline of a job: its events, put in relation to each other."""

from __future__ import annotations

from nodedoctor.triage.timeline.build import build_timeline
from nodedoctor.triage.timeline.model import QUIET, CollectiveWait, Timeline, follows_timeout

__all__ = ["QUIET", "CollectiveWait", "Timeline", "build_timeline", "follows_timeout"]
