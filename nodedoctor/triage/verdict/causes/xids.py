"""Faults of GPUs that the driver reports: which rank was on the GPU, and which are the program's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nodedoctor.knowledge.xids import sxid, xid
from nodedoctor.triage.describe import blameable_identities, describe_briefly, distinct_ranks, nodes_of
from nodedoctor.triage.model import Candidate, Cause, Event, Ground, Identity
from nodedoctor.triage.patterns.cuda import DEVICE_ERRORS
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.machine import XidReported
from nodedoctor.triage.patterns.nccl import Communicator
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.verdict.causes.absent import ranks_without_timeout, sole_silent_rank
from nodedoctor.wording import sentences

HARMLESS = frozenset((45, 63, 92, 121, 154))
"""Xids that end no job, or only tell of another one's consequences (see `nodedoctor explain`)."""

OF_LINKS = frozenset((74, *range(144, 151)))
"""Xids of NVLink: beside an error of a switch, the fabric is at fault and not one of its GPUs."""


def xid_candidates(timeline: Timeline) -> Iterator[Candidate]:
    """A GPU fault that the driver reports; some Xids are the program's own."""
    reports = [event for event in timeline.of_kind(XidReported) if not _is_harmless_xid(event.what)]
    program_xids = [event for event in reports if of_program(event.what)]
    gpu_xids = [event for event in reports if not of_program(event.what)]
    if gpu_xids:
        of_fabric = any(event.what.switch for event in gpu_xids) and all(
            event.what.switch or event.what.code in OF_LINKS for event in gpu_xids
        )
        yield _judge_xid(timeline, "nvlink_fabric" if of_fabric else "gpu_hardware_xid", "fault", gpu_xids)
    if program_xids:
        yield _judge_xid(timeline, "user_code_exception", "own error", program_xids)


def _judge_xid(
    timeline: Timeline, cause: Cause, ground: Ground, events: list[Event[XidReported]]
) -> Candidate:
    first = events[0].what
    culprits = _ranks_on_gpus(timeline, events)
    if not culprits and cause == "user_code_exception":
        culprits = blameable_identities(*(event.who for event in events))
    elif len(culprits) == 1 and culprits[0].host is None:  # it is where its GPU is
        hosts = {event.who.host for event in events} - {None}
        culprits = (replace(culprits[0], host=next(iter(hosts))),) if len(hosts) == 1 else culprits
    elif not culprits:  # the process that the driver names met the fault of its GPU
        culprits = nodes_of(Identity(host=event.who.host) for event in events)
    headline = f"{'SXid' if first.switch else 'Xid'} {first.code} on the device at {first.pci}"
    headline += f" ({describe_briefly(culprits)})" if culprits else ""
    row = None if first.switch else xid(first.code)
    headline += f": {sentences(row.meaning)[0]}" if row is not None else ""
    return Candidate(cause, ground, "high", headline, tuple(events[:4]), culprits)


def _ranks_on_gpus(timeline: Timeline, events: list[Event[XidReported]]) -> tuple[Identity, ...]:
    """The ranks on the GPUs of reports, by their processes, else by what only one rank did."""
    ranks = tuple(distinct_ranks(event.who for event in events))
    gpus = {(event.who.host, event.what.pci) for event in events if not event.what.switch}
    if len(gpus) != 1:  # a switch is no GPU
        return ranks
    if not ranks and (on_bus := _silent_on_bus(timeline, events)):
        return on_bus
    silent = sole_silent_rank(timeline, events)
    if silent is None or silent.rank not in {event.who.gpu for event in events}:
        return ranks or _only_device_error(timeline)
    contradicted = ranks and silent.rank not in {who.rank for who in ranks}
    return () if contradicted else ranks or (silent,)


def _silent_on_bus(timeline: Timeline, events: list[Event[XidReported]]) -> tuple[Identity, ...]:
    """The only rank that gave up no wait, where its GPU is on the bus of a report that names no host."""
    silent = ranks_without_timeout(timeline)
    buses = {(event.who.rank, event.what.bus) for event in timeline.of_kind(Communicator)}
    fits = all((who.rank, event.what.bus) in buses for who in silent for event in events)
    has_host = any(event.who.host for event in events)
    return silent if len(silent) == 1 and fits and not has_host else ()


def _only_device_error(timeline: Timeline) -> tuple[Identity, ...]:
    """The only rank whose program saw its GPU fail, the one the driver reports."""
    ranks = distinct_ranks(
        e.who for e in timeline.of_kind(Symptom) if e.what.personal and e.what.name in DEVICE_ERRORS
    )
    return tuple(ranks) if len(ranks) == 1 else ()


def _is_harmless_xid(what: XidReported) -> bool:
    if what.switch:
        row = sxid(what.code)
        return row is not None and row.kind == "non-fatal"
    return what.code in HARMLESS


def of_program(what: XidReported) -> bool:
    """True for an Xid that a program's own mistake raises."""
    row = None if what.switch else xid(what.code)
    return row is not None and row.of_program
