"""What `kubectl describe pod` and `kubectl get pods` show: whose a state is, and the pod's rank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import LARGEST_WORLD, Event, Identity, Line
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.whole_numbers import whole_number

_DESCRIBES = re.compile(r"\bkubectl\b.{0,200}?\bdescribe\s+(?:pods?|po)[ /]+(?P<pod>[a-z0-9][\w.-]{1,252})")
_NAME = re.compile(r"Name:\s+(?P<pod>[a-z0-9][\w.-]{1,252})$")
_COMMAND = re.compile(r"(?:\S{0,80}[$#%] |\+ )\S")
_BELONGS = re.compile(
    r"\s|$|(?:[A-Z][A-Za-z-]*(?: [A-Z(][A-Za-z()-]*){0,3}|[a-z0-9./-]{1,63}):(?:\s{2}|$)"
    r"|(?:Type|Normal|Warning|-{4})\s"
)
"""A line of a description: deeper than its first ones, a name with its value, or a row of events."""
_ROW = re.compile(
    r"(?:[a-z0-9][\w-]{0,62} +)?(?P<pod>[a-z0-9][\w.-]{1,252})\s+\d{1,3}/\d{1,3}\s+(?P<state>\S+)\s+\d"
)
"""A row of `kubectl get pods`: with -A its namespace, name, ready containers, status, restarts."""
NEVER_STARTED = "container-never-started"
"""The symptom of a pod whose program did not begin."""
_STATES = (NEVER_STARTED, "crash-loop")
"""Symptoms of pods that a row or a description shows."""
_STATE = re.compile(r"\s*(?P<last>Last )?State:\s+(?P<state>\w+)$")
"""A container's state, and the one before the restart behind which it is what it is now."""
_COMPLETED = re.compile(r"\s*Reason:\s+Completed$")
_GPUS = re.compile(r"\s+nvidia\.com/gpu:\s+(?P<count>\d{1,3})$")
_RANK = re.compile(r"\s*RANK:\s+(?P<rank>\d{1,7})$")
"""Kubeflow's operators set it for each pod: the rank of a process only where a pod has one GPU."""


_ADDRESS = re.compile(r"\s*IP:\s+(?P<address>[\da-fA-F.:]{3,45})$")


@record
class PodAddress:
    """The address of a pod, by which others know its processes."""

    pod: str
    address: str


@dataclass(slots=True)
class _Pod:
    """A pod, as far as its description was read; `name` is '' where none is described."""

    name: str = ""
    has_one_gpu: bool = False
    state: str = ""
    is_last_state: bool = False
    is_completed: bool = False


class PodDescriptions:
    """Follows which pod is described."""

    def __init__(self) -> None:
        self._pod = _Pod()

    def read(self, line: Line) -> Iterator[Event[Any]]:
        """The address of a pod, and its rank at the line of its environment, where it has one GPU."""
        text, pod = line.text, self._pod
        if (row := _ROW.match(text)) is not None:
            yield Event.at(line, Mark.POD_LISTED, who=Identity(host=row["pod"]))
        begins = _NAME.match(text) or _DESCRIBES.search(text)
        if begins or _COMMAND.match(text) or (pod.name and not _BELONGS.match(text)):
            pod = self._pod = _Pod(begins["pod"] if begins else "")
        if not pod.name:
            return
        if (state := _STATE.match(text)) is not None:
            pod.is_last_state = state["last"] is not None
            pod.state = pod.state if pod.is_last_state else state["state"]
        elif _COMPLETED.match(text) and not pod.is_last_state and not pod.is_completed:
            pod.is_completed = True
            yield Event.at(line, Mark.JOB_FINISHED, who=Identity(host=pod.name))
        elif (address := _ADDRESS.match(text)) is not None:
            yield Event.at(line, PodAddress(pod.name, address["address"]))
        elif (gpus := _GPUS.match(text)) is not None:
            pod.has_one_gpu, pod.is_last_state = gpus["count"] == "1", False
        elif pod.has_one_gpu and (match := _RANK.match(text)) is not None:
            rank = whole_number(match["rank"], LARGEST_WORLD - 1)
            yield Event.at(line, Mark.RANK_OF_POD, who=Identity(rank=rank, host=pod.name))

    def complete(self, event: Event[Any]) -> Event[Any]:
        """The event with the pod that its row names, or that is described.

        What ended a container that runs again, or came to another end, decides nothing, nor does what one met
        that came to its end.
        """
        pod = self._pod
        if pod.is_completed or (pod.is_last_state and pod.state in ("Running", "Terminated")):
            event = replace(event, manner="handled")
        has_host = event.who.host not in (None, event.who.recorder)
        if has_host or not is_state_of_pod(event.what):
            return event
        row = _ROW.match(event.text)
        host = row["pod"] if row else pod.name
        return replace(event, who=replace(event.who, host=host)) if host else event


def is_state_of_pod(what: object) -> bool:
    """True for what Kubernetes says of a pod."""
    of_memory = isinstance(what, HostOom) and what.said_by == "Kubernetes"
    return of_memory or (isinstance(what, Symptom) and what.name in _STATES)
