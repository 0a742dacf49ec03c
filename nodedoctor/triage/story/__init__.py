"""The story of a job: what its events say when they are put in relation to each other."""

from __future__ import annotations

from nodedoctor.triage.story.model import QUIET, Timeline, CollectiveWait, follows_timeout
from nodedoctor.triage.story.build import build_timeline

__all__ = ["QUIET", "Timeline", "CollectiveWait", "follows_timeout", "build_timeline"]
