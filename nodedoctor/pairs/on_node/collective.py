"""The all-reduce that a job does, between two nodes or more: NCCL on all their GPUs, else gloo on CPUs.

torch's store knows no passwords. It listens on the one address of the round and nowhere else, and its keys
begin with the round's token.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from typing import Any

from nodedoctor.pairs.on_node import node, tcp, tied

LEAST, MOST = 1 << 16, 1 << 30
"""Bytes of one all-reduce: what a slow link is tried with first, and what a fast one is given at most."""
PIECES = 8
"""All-reduces that the load should hold, so that one which is held up shows."""
PERIOD = 251
"""A prime: no power of two of elements repeats it, so data that is shifted differs."""


def able() -> dict[str, Any]:
    """What collectives this node can do; imports torch, which the children of later rounds then share."""
    try:
        torch: Any = importlib.import_module("torch")
        dist: Any = importlib.import_module("torch.distributed")
    except Exception as error:
        return {"unable": f"no torch: {type(error).__name__}: {str(error)[:200]}"}
    if not dist.is_available():
        return {"unable": "this torch has no torch.distributed"}
    gpus = _count_gpus() if torch.version.cuda and dist.is_nccl_available() else 0
    return {"torch": str(torch.__version__), "gpus": gpus}


def _count_gpus() -> int:
    """GPUs, counted without CUDA: a process that has used CUDA cannot fork others that use it."""
    if shown := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return len(shown.split(","))
    try:
        return len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return 0


def measured(
    listener: socket.socket | None, flow: dict[str, Any], bound: str, seconds: float, size: int, limit: float
) -> dict[str, Any]:
    """One node of a pair or of many: a rank for each GPU, or one on the CPUs."""
    until = time.monotonic() + limit
    if listener is None:
        link, fault, note = tcp.reached(flow["to"], until, bound)
        if link is None:
            return {"fault": fault, "note": note}
        link.close()
    ranks = flow["gpus"] or 1
    pipes, pids = {}, []
    for local in range(ranks):
        ours, theirs = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            tied.orphaned(parent)
            signal.alarm(0)
            try:
                answer = _run_rank(listener, flow, bound, local, seconds, size, limit)
            except Exception as error:
                answer = {"fault": "error", "note": _error_line(error)}
            os.write(theirs, json.dumps(answer).encode())
            os._exit(0)
        os.close(theirs)
        pipes[ours] = local
        pids.append(pid)
    gathered = _gather_results(pipes, until)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return _join_ranks(gathered, ranks, until <= time.monotonic())


def _gather_results(pipes: dict[int, int], until: float) -> dict[int, dict[str, Any]]:
    answers: dict[int, dict[str, Any]] = {}
    while pipes and (remaining := until - time.monotonic()) > 0:
        for pipe in select.select(list(pipes), [], [], remaining)[0]:
            data = os.read(pipe, 1 << 16)
            os.close(pipe)
            answers[pipes.pop(pipe)] = (
                json.loads(data.decode()) if data else {"fault": "error", "note": "died"}
            )
    return answers


def _join_ranks(answers: dict[int, dict[str, Any]], ranks: int, late: bool) -> dict[str, Any]:
    """All ranks of this node as one: any fault of theirs, else the least rate."""
    if late or len(answers) < ranks:
        return {"fault": "hang", "note": f"{len(answers)} of {ranks} ranks ended in time"}
    for answer in answers.values():
        if answer.get("fault"):
            return answer
    return {"gbps": min(answer["gbps"] for answer in answers.values()), "rtt_us": answers[0]["rtt_us"]}


def _run_rank(
    listener: socket.socket | None,
    flow: dict[str, Any],
    bound: str,
    local: int,
    seconds: float,
    size: int,
    limit: float,
) -> dict[str, Any]:
    """One rank, from the store to the rate."""
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    import datetime

    patience = datetime.timedelta(seconds=limit)
    gpus = flow["gpus"]
    ranks_per_node = gpus or 1
    rank, world = flow["place"] * ranks_per_node + local, flow["of"] * ranks_per_node
    os.environ.update(job_environment(node.interface(bound), os.environ))
    place = flow["to"] if listener is None else listener.getsockname()[:2]
    more: dict[str, Any] = {}
    if listener is not None and local == 0:
        more["master_listen_fd"] = os.dup(listener.fileno())
    store = dist.TCPStore(place[0], place[1], world, rank == 0, patience, wait_for_workers=False, **more)
    store = dist.PrefixStore(flow["token"], store)
    device = "cpu"
    if gpus:
        torch.cuda.set_device(local)
        device = f"cuda:{local}"
    backend = "nccl" if gpus else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=patience)
    return _all_reduces(torch, dist, device, rank, world, seconds, size)


def job_environment(interface: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What is set for the job, beside the `environ` of the agent.

    NCCL's ring is asked for: each byte of it goes over the network. Between two NVSwitch nodes NCCL takes a
    tree or NVLS instead, whose bus bandwidth exceeds the network's (488 against 339 GB/s of an all-gather on
    the same two nodes: NVIDIA's NVCRE validation results), so that half of the rails may be gone unseen.
    """
    chosen = {"NCCL_ALGO": "Ring"}
    if interface:
        chosen["GLOO_SOCKET_IFNAME"] = interface
        chosen["NCCL_SOCKET_IFNAME"] = environ.get("NCCL_SOCKET_IFNAME", interface)
    return chosen


def _all_reduces(
    torch: Any, dist: Any, device: str, rank: int, world: int, seconds: float, size: int
) -> dict[str, Any]:
    """Small ones for the latency, then large ones for some seconds; the first and the last are compared."""

    def ready(size: int) -> tuple[Any, Any]:
        """What this rank gives, and what the sum must be."""
        ones = (torch.arange(max(1, size // 4), device=device) % PERIOD).float()
        return ones + rank, ones * world + world * (world - 1) / 2

    def timed(data: Any) -> float:
        began = time.monotonic()
        dist.all_reduce(data)
        if device != "cpu":
            torch.cuda.synchronize()
        return time.monotonic() - began

    def agreed(value: float) -> float:
        """The largest of all ranks: they must do the same number of collectives."""
        tensor = torch.tensor([value], device=device, dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return float(tensor.item())

    trips = [timed(torch.zeros(1, device=device)) for _ in range(tcp.PINGS)]
    small, wanted = ready(LEAST)
    wrong = timed(small) < 0 or not torch.equal(small, wanted)
    took = agreed(min(timed(torch.zeros(LEAST // 4, device=device)) for _ in range(3)))
    most = size or MOST
    bytes_each = int(min(most, max(LEAST, LEAST * seconds / PIECES / max(took, 1e-6))))
    data, wanted = ready(bytes_each)
    first = agreed(timed(data))
    wrong = wrong or not torch.equal(data, wanted)
    times = []
    for _ in range(max(1, int(seconds / max(first, 1e-6)) - 1)):
        data.zero_()
        times.append(timed(data))
    data, wanted = ready(bytes_each)
    times.append(timed(data))
    wrong = agreed(float(wrong or not torch.equal(data, wanted))) > 0
    dist.destroy_process_group()
    if wrong:
        return {"fault": "corrupt", "note": "the sum of an all-reduce is wrong"}
    factor = 2 * (world - 1) / world  # nccl-tests, doc/PERFORMANCE.md: the bus bandwidth of all-reduce
    gbps = factor * bytes_each * 8 * len(times) / 1e9 / sum(times)
    return {"gbps": gbps, "rtt_us": round(min(trips) * 1e6, 1)}


def _error_line(error: Exception) -> str:
    """The first line of what torch says, which has the place in its source behind it."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
