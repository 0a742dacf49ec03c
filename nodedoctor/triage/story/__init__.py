"""The story of a job: what its events say when they are put in relation to each other."""

from __future__ import annotations

from nodedoctor.triage.story.build import build_timeline
from nodedoctor.triage.story.model import QUIET, CollectiveWait, Timeline, follows_timeout

__all__ = ["QUIET", "CollectiveWait", "Timeline", "build_timeline", "follows_timeout"]
