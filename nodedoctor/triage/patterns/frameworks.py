"""Missing peers in the words of frameworks: JAX, Horovod, inference engines, accelerate, Ascend."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

from nodedoctor.record import record
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import (
    LARGEST_WORLD,
    RANK_LABEL,
    TASK_LABEL,
    CollectiveCall,
    Event,
    Identity,
    Line,
)
from nodedoctor.triage.patterns.log_pattern import ranks_in
from nodedoctor.triage.patterns.rows import read_rows
from nodedoctor.triage.patterns.store import (
    BarrierMissed,
    CollectiveFingerprint,
    CollectiveMismatch,
    StoreWait,
)
from nodedoctor.triage.patterns.watchdog import CollectiveFailed, ProcessAborting, TimedOut, WatchdogStuck

DIFFER = "DistributedOperationException"
"""What accelerate raises where processes pass different shapes; a line for each process follows."""

_OF_HOROVOD = "a collective of Horovod's"


@record
class CollectiveShape:
    """The shape of what one process passed: behind the exception, one of those that differ."""

    shape: str


def _missing_below(match: re.Match[str]) -> BarrierMissed | None:
    """The missing ranks below the highest one that came; the list ends there."""
    ready = ranks_in(match["ready"])
    missing = sorted(set(range(max(ready, default=0))) - set(ready))
    return BarrierMissed(tuple(missing), _OF_HOROVOD, passing=True) if missing else None


def _tokens_awaited(_: re.Match[str]) -> TimedOut:
    return TimedOut(CollectiveCall(op="DeepEP's exchange of tokens"), fresh=True)


SIGNS = read_rows(
    r"""
[peer_died]
# openxla/xla (xla/tsl/distributed_runtime/coordination/coordination_service{,_agent}.cc,
# xla/pjrt/distributed/client.h, xla/service/rendezvous.cc)
task-lost  personal  of_another
  no heartbeat reaches the coordination service: the process ended or its node is lost
    Task /job:\w{1,64}/replica:\d+/task:(?P<rank>\d{1,7}) heartbeat timeout
[network_socket_interface]
rendezvous-failed  ground=path
  not all tasks registered with the coordination service: some never started, died or cannot reach it
    cluster registration failed|Barrier timed out\. (?:Id: \[Init\]|Barrier_id: PjRT_Client_Connect)
coordinator-unreachable  ground=path
  the coordinator's address does not answer: it never started, it ended, or the way to it is blocked
    UNAVAILABLE: ?failed to connect to all addresses|Failed to connect to remote host:
    |DEADLINE_EXCEEDED.{0,400}CoordinationService/RegisterTask
    |calling /tensorflow\.CoordinationService/RegisterTask
StoreWait
    DEADLINE_EXCEEDED: GetKeyValue\(\) timed out
ProcessAborting  reason=another task died, or the coordination service went away
    Terminating process because the (?:JAX )?\w+ service detected fatal errors
TimedOut  fresh
    (?:\[rank=(?P<rank>\d{1,7})\].{0,90})?Termination timeout .{0,2000}exceeded
# horovod/common/operations.cc until 0.17, stall_inspector.cc since; until 0.13 it listed who had come
BarrierMissed  where=a collective of Horovod's  passing
    \[missing ranks: ?(?P<ranks>[\d, ]+)\]
_missing_below
    \[ready ranks: ?(?P<ready>[\d, ]+)\]
ProcessAborting  reason=Horovod shut down, as after the end of any rank
    Horovod has been shut down
[peer_died]
# vllm/v1/executor/multiproc_executor.py, vllm/v1/engine/{exceptions,utils}.py
engine-died  personal  of_another
  an inference worker's process ended, the log does not say how
    Worker proc (?:\w+-(?P<rank>\d{1,6})|\S+) died unexpectedly|Engine core proc \S+ died unexpectedly
[peer_cuda_oom]
# vLLM
engine-crowded  personal
  less GPU memory was free than an inference engine is set to take
    Free memory on device .{0,60} is less than desired GPU memory utilization
# vLLM, SGLang
engine-no-cache  personal
  the model left an inference engine no GPU memory for its cache
    No available memory for the cache blocks|Not enough memory\. Please try to increase --mem-fraction-static
# vllm/v1/core/kv_cache_utils.py; before, vllm/worker/worker.py
engine-too-long  personal
  the longest sequence that an inference engine is set to take does not fit into its cache
    KV cache is needed, which is larger than the available KV cache memory
    |The model's max seq len \(\d+\) is larger than the maximum number of tokens that can be stored
[cpu_stuck_or_slow_rank]
# vllm/distributed/device_communicators/shm_broadcast.py
engine-waits  hint  as_warning
  an inference worker does not answer its engine: it hangs, or compiles or loads for long
    No available shared memory broadcast block found in \d+ ?s|RPC call to \w+ timed out
# NVIDIA's resiliency extension (fault_tolerance/rank_monitor_server.py), which then ends that rank
heartbeat-missed  personal  as_warning  ground=own error
  a rank sent no heartbeat to its monitor for as long as it may, and was ended for it
    Did not get (?:subsequent|initial) heartbeat\. Waited \d
# sglang/srt/managers/scheduler.py
WatchdogStuck  of_server
    [Ww]atchdog timeout \(self\.watchdog_timeout=(?P<seconds_stuck>\d+)
# accelerate, where it compares what is passed to a collective (utils/operations.py)
CollectiveShape
    ^\s*(?:- )?Process (?P<rank>\d{1,6}): (?P<shape>\[[\d, ]{0,120}\])$
# deepseek-ai/DeepEP (csrc): tokens of another rank did not come; the rank is one within its group
_tokens_awaited
    \bDeepEP\b.{0,60}?\b(?:recv )?timeout\b(?:.{0,60}?\brank(?: =|:)? (?P<grank>\d{1,6}))?
# CANN's list of error codes: a notification of a peer did not come in time
TimedOut  fresh
    \bEI0002\b|wait execution of the Notify register times out|hccl fftsplus task timeout
# a peer was not there when the connection was made
TimedOut  fresh
    \bEI0006\b|Getting socket times out
# what was queued on the device did not end in time, as when a peer does not come
TimedOut  fresh
    NPU (?:function )?error.{0,80}error code is (?:107020|507048)|reason=\[task timeout\]
    |runtime result = (?:107020|507048)
CollectiveFailed
    \bEI0009\b.*?Transport init error.{0,200}
""",
    StoreWait, BarrierMissed, ProcessAborting, TimedOut, CollectiveFailed, WatchdogStuck, CollectiveShape,
    _missing_below, _tokens_awaited,
)  # fmt: skip


_OLDER_ROW = re.compile(r"(?P<tensors>\S[^\[]{0,300}) \[missing ranks: ?(?P<ranks>\d[\d, ]{0,9999})\]")
_NAMES_SHOWN = 40
"""Letters of a tensor's name that tell it from others to a reader. Ours."""


class StallReports:
    """Horovod's lists of missing ranks: the newer has a line for each, with its number as a label.

    A rank that is late has submitted less than all others. Where each of two has submitted what the other
    has not, they wait for each other.
    """

    def __init__(self) -> None:
        self._open = False
        self._missing: set[int] = set()
        self._tensors: dict[int, set[str]] = {}
        """What each rank of the open list has not submitted."""
        self._is_cut = False
        """A rank's tensors are more than Horovod shows: then it may lack any."""
        self._last: Line | None = None

    def read(self, line: Line) -> Iterator[Event[BarrierMissed | CollectiveMismatch | Mark]]:
        """The rank that a line of the list names, and where one of these prints something again."""
        older = _OLDER_ROW.match(line.text) if "[missing ranks:" in line.text else None
        if older is not None:
            for rank in ranks_in(older["ranks"]):
                self._tensors.setdefault(rank, set()).add(older["tensors"])
            self._last = line
            return
        if line.text.startswith("Missing ranks:"):
            yield from self.flush()
            self._open = True
            return
        label = dict(line.who.labels).get(TASK_LABEL)
        self._open = self._open and label is not None and line.text.startswith("[")
        if self._open and label is not None and label < LARGEST_WORLD:
            self._missing.add(label)
            self._tensors.setdefault(label, set()).update(line.text.strip("[] ").split(", "))
            self._is_cut = self._is_cut or line.text.rstrip("] ").endswith("...")
            self._last = line
            missed = BarrierMissed((label,), _OF_HOROVOD, passing=True)
            yield Event.at(line, missed, who=Identity())
            return
        yield from self.flush()
        if self._missing and line.level in ("", "I") and _speaker_number(line.who) in self._missing:
            self._missing.clear()
            yield Event.at(line, Mark.MISSING_RANK_CAME)

    def flush(self) -> Iterator[Event[CollectiveMismatch]]:
        """The mismatch that the list shows which ends here."""
        missing, line, is_cut = self._tensors, self._last, self._is_cut
        self._tensors, self._last, self._is_cut = {}, None, False
        crossed = any(not (a <= b or b <= a) for a, b in combinations(missing.values(), 2))
        if line is None or is_cut or not crossed:
            return
        tensors = sorted(set().union(*missing.values()))
        shown = tuple(
            CollectiveFingerprint(rank, _shorten_list([name for name in tensors if name not in names]))
            for rank, names in sorted(missing.items())
        )
        what = CollectiveMismatch(shown, "gave Horovod different tensors", passing=True)
        yield Event.at(line, what, who=Identity())


def _shorten_list(names: list[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - 1} more" if names[1:] else ""
    return names[0][:_NAMES_SHOWN] + more if names else "nothing of these"


def _speaker_number(who: Identity) -> int | None:
    """The rank that the front of a line states."""
    return who.rank if who.rank is not None else dict(who.labels).get(RANK_LABEL)
