"""The public kind of a verdict, by the events that it rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nodedoctor.knowledge.kinds import event_of_check, kind_of_events
from nodedoctor.patterns import regex
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Cause, Event, Outcome, Owner
from nodedoctor.triage.patterns.cuda import GpuFull
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.job_stopped import CancelledByUser
from nodedoctor.triage.patterns.machine import XidReported
from nodedoctor.triage.patterns.progress import LongWork
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.unclassified import UnclassifiedError
from nodedoctor.triage.timeline.node_reports import NodeFault
from nodedoctor.triage.verdict.causes.families import family_of


def kind_of(
    cause: Cause, evidence: Sequence[Event[Any]], owner: Owner | None = None, outcome: Outcome = "failure"
) -> str:
    """The kind of what ended a job; `owner` is whose move it is, where the evidence tells."""
    if outcome == "recovered":
        return "none/recovered"
    if outcome == "nothing":
        return "undetermined/nothing_read"
    return kind_of_events(cause, tuple(tuple(_names(event, owner)) for event in evidence))


def _names(event: Event[Any], owner: Owner | None) -> Iterator[str]:
    """Names of an event in the table, the closest first."""
    name, detail = event.published_name, _detail(event, owner)
    if _OTHER_ACCELERATOR.search(event.text):
        yield "other_accelerator"
    if isinstance(event.what, NodeFault):
        yield event_of_check(event.what.check)
    elif isinstance(event.what, XidReported) and event.what.switch:
        yield "sxid"
    elif event.what is Mark.UNREAD_TROUBLE or isinstance(event.what, UnclassifiedError):
        family = family_of(event.text)
        yield f"raised_{family.name}".replace("-", "_") if family is not None else name
    elif detail:
        yield f"{name}_{detail}".replace(" ", "_").replace("-", "_")
    yield name


def _detail(event: Event[Any], owner: Owner | None) -> str:
    """What tells events of one name apart."""
    what = event.what
    if isinstance(what, ExceptionRaised):
        family = family_of(f"{what.type}: {what.message}")
        return family.name if family is not None else ""
    if isinstance(what, GpuFull):
        return "node" if owner == "NODE" else ""
    read = _DETAILS.get(type(what))
    return read(what) if read is not None else ""


_OTHER_ACCELERATOR = regex(
    r"(?i)\b(?:\w*hccl|torch_npu|acl(?:rt|nn)\w*|oneccl|xccl|torch_xpu|NRT(?:_\w+|:)|neuronx?|libtpu|tpu_driver"
    r"|TensorCoreSequencer|habana|synapse_?ai)"
)
"""Names of libraries and drivers of Ascend, Intel, AWS Neuron, TPU and Gaudi: none of NVIDIA's."""
_DETAILS: dict[type, Callable[[Any], str]] = {
    ProcessExit: lambda what: str(what.signal or ""),
    XidReported: lambda what: str(what.code),
    CancelledByUser: lambda what: what.why,
    LongWork: lambda what: what.kind,
    HostOom: lambda what: what.said_by.lower(),
}
