"""Inference engines inside of RL jobs: vLLM's and SGLang's words for a worker that died or does not answer.

From vllm/v1/executor/multiproc_executor.py, vllm/v1/engine/{exceptions,utils}.py,
vllm/distributed/device_communicators/shm_broadcast.py and sglang/srt/managers/scheduler.py.
"""

from __future__ import annotations

from nodedoctor.record import record
from nodedoctor.triage.events.log_pattern import (
    LogPattern,
    bounded_integer,
    log_pattern,
    optional_integer,
    symptom_pattern,
)
from nodedoctor.triage.events.system.exits import PeersTerminated, ProcessExit
from nodedoctor.triage.events.watchdog import WatchdogStuck


@record
class ShutDown:
    """A server takes itself down: it was asked to, or something in it failed before."""


SIGNS: tuple[LogPattern, ...] = (
    symptom_pattern(
        "peer_died",
        "engine-died",
        r"Worker proc (?:\w+-(?P<rank>\d{1,6})|\S+) died unexpectedly"
        r"|Engine core proc \S+ died unexpectedly",
        "an inference worker's process ended, the log does not say how",
        personal=True,
        of_another=True,
    ),
    symptom_pattern(
        "peer_cuda_oom",
        "engine-crowded",
        r"Free memory on device .{0,60} is less than desired GPU memory utilization",
        "less of the GPU was free than an inference engine is set to take",
        personal=True,
    ),
    symptom_pattern(
        "peer_cuda_oom",
        "engine-no-cache",
        r"No available memory for the cache blocks"
        r"|Not enough memory\. Please try to increase --mem-fraction-static",
        "the model left an inference engine no GPU memory for its cache",
        personal=True,
    ),
    symptom_pattern(  # vllm/v1/core/kv_cache_utils.py; before, vllm/worker/worker.py
        "peer_cuda_oom",
        "engine-too-long",
        r"KV cache is needed, which is larger than the available KV cache memory"
        r"|The model's max seq len \(\d+\) is larger than the maximum number of tokens that can be stored",
        "the longest sequence that an inference engine is set to take does not fit into its cache",
        personal=True,
    ),
    symptom_pattern(
        "cpu_stuck_or_slow_rank",
        "engine-waits",
        r"No available shared memory broadcast block found in \d+ ?s|RPC call to \w+ timed out",
        "an inference worker does not answer its engine: it hangs, or compiles or loads for long",
        decisive=False,
        as_warning=True,
    ),
    log_pattern(
        r"[Ww]atchdog timeout \(self\.watchdog_timeout=(?P<limit>\d+)",
        lambda found: WatchdogStuck(optional_integer(found["limit"]), of_server=True),
    ),
    log_pattern(
        r"\[shutdown\] (?:API server: shutdown triggered|\w+: trigger received signal)"
        r"|SIG(?:TERM|INT) received\b.{0,60}(?:[Dd]raining|[Ss]hutting down)"
        r"|Shutting down FastAPI HTTP server|[Ss]ignal received, starting graceful shutdown"
        r"|^Application shutdown complete\.$",
        lambda _: ShutDown(),
    ),
    log_pattern(  # text-generation-inference (launcher/src/main.rs)
        r"\bShard process was signaled to shutdown with signal (?P<signal>\d{1,2})(?: rank=(?P<rank>\d+))?",
        lambda found: ProcessExit(-bounded_integer(found["signal"], 64)),
    ),
    log_pattern(
        r"\bShard (?P<rank>\d+) (?:failed to start|crashed)\b|\bShardCannotStart\b",
        lambda found: ProcessExit(1, told=False) if found["rank"] else None,
    ),
    log_pattern(  # its code stands in the next line
        r"\b[Rr]ank (?P<local>\d+) scheduler (?:is dead|died)\b",
        lambda _: ProcessExit(1, first=True, told=False),
    ),
    log_pattern(
        r"Received sigquit from a child proces",  # SGLang then kills its whole tree
        lambda _: PeersTerminated(by_kill=True),
    ),
)
