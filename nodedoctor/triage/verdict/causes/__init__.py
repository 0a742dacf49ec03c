"""The rules that find causes, each a pure function from timeline to candidates, and what each needs.

A rule says what a candidate rests on; `weigh` says which one outweighs the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from nodedoctor.triage.marks import Kind, Mark
from nodedoctor.triage.model import Candidate
from nodedoctor.triage.patterns.cuda import GpuFull
from nodedoctor.triage.patterns.exits import LauncherSignalled, LeftFirst, ProcessExit
from nodedoctor.triage.patterns.frameworks import CollectiveShape
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.machine import DriveError, KernelTaskHung, NodeLost, XidReported
from nodedoctor.triage.patterns.nccl import BusBandwidth, DuplicateGpu, IbFlush, VirtualInterface
from nodedoctor.triage.patterns.progress import LongWork
from nodedoctor.triage.patterns.ras import RasMissing, RasSection
from nodedoctor.triage.patterns.ray import ActorDied
from nodedoctor.triage.patterns.stacks import ThreadStack
from nodedoctor.triage.patterns.store import (
    BarrierMissed,
    ClientsMissing,
    CollectiveMismatch,
    GlooTimeout,
    PeerGone,
    SizeMismatch,
    StoreWait,
)
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.unclassified import UnclassifiedError
from nodedoctor.triage.patterns.watchdog import CollectiveStatus, DesyncMissing, TimedOut, WatchdogStuck
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.timeline.node_reports import NodeFault
from nodedoctor.triage.verdict.causes import (
    collectives,
    corruption,
    deaths,
    exceptions,
    groups,
    infrastructure,
    lost_peers,
    missing,
    ras,
    stopped,
    symptoms,
    unclassified,
    xids,
)

Rule = Callable[[Timeline], Iterator[Candidate]]

RULES: Mapping[Rule, tuple[Kind, ...]] = {
    symptoms.symptom_candidates: (Symptom,),
    xids.xid_candidates: (XidReported,),
    symptoms.host_memory: (HostOom,),
    symptoms.gpu_memory: (GpuFull,),
    symptoms.duplicate_gpu: (DuplicateGpu,),
    symptoms.left_early: (Mark.COMMUNICATOR_DESTROYED,),
    exceptions.first_exception: (ExceptionRaised,),
    corruption.lone_nan: (Mark.NOT_A_NUMBER, ExceptionRaised),
    corruption.replicas_differ: (Mark.REPLICAS_DIFFER,),
    corruption.repeat_differs: (Mark.REPEAT_DIFFERS,),
    corruption.wrong_values: (BusBandwidth,),
    corruption.loss_stays_nan: (Mark.LOSS_STAYS_NAN,),
    deaths.killed_by_signal: (ProcessExit,),
    deaths.ray_deaths: (ActorDied,),
    deaths.launcher_signalled: (LauncherSignalled,),
    lost_peers.nodes_lost: (NodeLost,),
    lost_peers.store_host_gone: (StoreWait,),
    lost_peers.connections_closed: (PeerGone,),
    lost_peers.left_first: (LeftFirst, Mark.ENDED_FIRST),
    lost_peers.node_silent: (TimedOut,),
    collectives.reported_mismatch: (CollectiveMismatch, CollectiveShape),
    collectives.desync_report: (DesyncMissing,),
    collectives.gloo_sizes: (SizeMismatch,),
    collectives.different_collectives: (TimedOut,),
    collectives.ahead_by_status: (CollectiveStatus,),
    collectives.fewer_collectives: (TimedOut, GlooTimeout, PeerGone),
    collectives.different_source_lines: (ExceptionRaised,),
    groups.group_deadlock: (TimedOut,),
    groups.too_short: (TimedOut,),
    groups.frozen_watchdog: (TimedOut,),
    groups.outside_collective: (ThreadStack,),
    groups.outside_timed_out_collective: (ThreadStack,),
    missing.unjoined_ranks: (ClientsMissing,),
    missing.barrier_report: (BarrierMissed,),
    missing.silent_at_barrier: (Mark.BARRIER_VICTIM,),
    missing.lagging_by_status: (CollectiveStatus,),
    missing.late_rank: (TimedOut,),
    missing.silent_ranks: (TimedOut, GlooTimeout),
    missing.frozen_process: (Mark.FORCE_KILLED,),
    missing.gil_held: (Mark.GIL_HELD,),
    missing.unpublished_id: (StoreWait,),
    missing.legitimate_work: (LongWork,),
    missing.waits_in_a_save: (TimedOut, GlooTimeout),
    missing.lagging_rank: (TimedOut,),
    stopped.stopped_ranks: (TimedOut,),
    stopped.stalled_ranks: (TimedOut,),
    stopped.stopped_for_straggler: (Mark.STOPPED_ITSELF,),
    infrastructure.flushed_connection: (IbFlush,),
    infrastructure.cut_connection: (PeerGone,),
    infrastructure.virtual_interface: (VirtualInterface,),
    infrastructure.stuck_watchdog: (WatchdogStuck,),
    infrastructure.hung_storage: (KernelTaskHung,),
    infrastructure.failed_drive: (DriveError,),
    infrastructure.node_faults: (NodeFault,),
    infrastructure.loopback_name: (NodeFault,),
    infrastructure.different_nccl: (ExceptionRaised, Symptom),
    ras.silent_to_ras: (RasMissing, RasSection, Mark.RAS_INCOMPLETE),
    ras.behind_in_counts: (RasSection,),
    ras.fewer_collectives: (Mark.LAUNCHED_FEWER,),
    unclassified.last_words: (Mark.UNREAD_TROUBLE, Mark.NOT_A_NUMBER, UnclassifiedError),
}
"""Each rule with the kinds of events of which it needs at least one."""


def find_candidates(timeline: Timeline) -> list[Candidate]:
    """Every cause that some rule sees."""
    return [
        candidate for rule, kinds in RULES.items() if timeline.has_any(kinds) for candidate in rule(timeline)
    ]
