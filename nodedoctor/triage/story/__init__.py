"""The story of a job: what its events say when they are put in relation to each other."""

from __future__ import annotations

from nodedoctor.triage.story.model import QUIET, Story, Wait, follows
from nodedoctor.triage.story.tell import tell

__all__ = ["QUIET", "Story", "Wait", "follows", "tell"]
