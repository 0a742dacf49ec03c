"""Sets aside what a folder says of other jobs, nodes and pods than those of its logs.

People collect more than a job printed: a week of accounting, the kernel's lines of a whole cluster, all
pods. A job that is numbered, or whose ranks are all on known hosts, tells which of them are about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from nodedoctor.patterns import mask_digits
from nodedoctor.record import record
from nodedoctor.triage.identity.rank_hosts import locate_ranks
from nodedoctor.triage.identity.world import is_address, short_host, world_size
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event, SideError
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.kubernetes import is_state_of_pod
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.machine import DriveError, NodeLost, is_of_node
from nodedoctor.triage.timeline.jobs import OF_A_JOB, job_number
from nodedoctor.triage.timeline.model import is_trouble

_OF_NODES = (NodeLost, DriveError)
_ACCOUNT = re.compile(
    r"^[ |]{0,9}(?P<job>\d{3,12})(?:[_.+]\S{0,40})?[ |].{0,200}\b(?:COMPLETED|FAILED|CANCELLED|TIMEOUT"
    r"|NODE_FAIL|OUT_OF_ME\w*\+?|PREEMPTED|BOOT_FAIL|DEADLINE|RUNNING|PENDING)"
    r"|\bJob_?[iI][dD][=:] ?(?P<other>\d{3,12})\b"
)
"""Of which job a line of Slurm's tells: a row of sacct or squeue, a record of scontrol, a daemon's log."""


@record
class JobMembers:
    """The numbers and the hosts of a job, as far as its own logs name all of them."""

    sources: frozenset[str]
    numbers: frozenset[str]
    hosts: frozenset[str]
    host_forms: frozenset[str]
    """The names of its hosts without their digits: of the same cluster all are alike."""
    pods: frozenset[str]
    """The pods that are listed, where the job's hosts are among them."""

    def is_foreign(self, event: Event[Any]) -> bool:
        """True for what a line says of another job, or of a node or pod on which no rank is."""
        row = _ACCOUNT.search(event.text) if self.numbers else None
        if row is not None and (row["job"] or row["other"]) not in self.numbers:
            return True
        host = short_host(event.who.host)
        if not self.hosts or not host or event.who.rank is not None or event.place.source in self.sources:
            return False
        is_of_cluster = mask_digits(host) in self.host_forms or host in self.pods
        return host not in self.hosts and not is_address(host) and is_of_cluster


def find_members(events: Sequence[Event[Any]]) -> JobMembers:
    """What is known of a job by its own logs: those in which ranks speak, or somebody counts or fails."""
    sources = frozenset(event.place.source for event in events if _is_of_job(event))
    with_others = any(event.place.source not in sources for event in events)
    located, world = (locate_ranks(events), world_size(events)) if with_others else ({}, None)
    is_whole = world is not None and set(range(world)) <= located.keys()
    hosts = frozenset(map(short_host, located.values())) if is_whole else frozenset()
    pods = frozenset(short_host(event.who.host) for event in events if event.what is Mark.POD_LISTED)
    numbers = frozenset(number for source in sources if (number := job_number(source)))
    pods = frozenset() if pods.isdisjoint(hosts) else pods
    return JobMembers(sources, numbers, hosts, frozenset(map(mask_digits, hosts)), pods)


def drop_foreign(events: Iterable[Event[Any]]) -> tuple[list[Event[Any]], list[SideError]]:
    """The events of a job without those of others, and the errors among these."""
    events = list(events)
    members = find_members(events)
    own: list[Event[Any]] = []
    foreign: list[SideError] = []
    for event in events:
        if not members.is_foreign(event):
            own.append(event)
        elif is_trouble(event):
            foreign.append(SideError(event, "survived", "it is of another job, or of a node of no rank"))
    return own, foreign


def without_nodes(events: Sequence[Event[Any]]) -> tuple[Event[Any], ...]:
    """The events of all logs but those in which nodes and pods speak, and neither a rank nor a launcher."""
    own = {event.place.source for event in events if event.kind in OF_A_JOB or event.who.rank is not None}
    of_nodes = {event.place.source for event in events if _is_of_node(event)} - own
    return tuple(event for event in events if event.place.source not in of_nodes)


def _is_of_node(event: Event[Any]) -> bool:
    """True for what the kernel, a scheduler or Kubernetes says of a node or a pod."""
    what = event.what
    of_node = isinstance(what, Symptom) and what.of_node
    return of_node or isinstance(what, _OF_NODES) or is_of_node(what, event.text) or is_state_of_pod(what)


def _is_of_job(event: Event[Any]) -> bool:
    """True for what only the job's own processes print."""
    of_others = event.what is Mark.JOB_FINISHED or isinstance(event.what, ProcessExit)
    return event.kind in OF_A_JOB and not of_others
