"""What `docker inspect` shows of containers with GPUs: their shared memory.

Format: docker 17 to 29 and podman 3 to 5, the JSON of `docker inspect CONTAINER`, whole, cut or in one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Verdict, make_verdict
from nodedoctor.knowledge.limits import limit
from nodedoctor.patterns import regex

PROBE = "docker-inspect"
docker_inspect = pasted(PROBE, "The output of docker inspect of a container.")
_verdict = partial(make_verdict, PROBE, "docker inspect")

_BEGIN = regex(r"\"Id\"\s{0,4}:\s{0,4}\"[\da-f]{64}\"")
_NAME = regex(r"\"Name\"\s{0,4}:\s{0,4}\"/?(?P<name>[\w.-]{1,80})\",?\s{0,40}\"RestartCount\"")
_SIZE = regex(r"\"ShmSize\"\s{0,4}:\s{0,4}(?P<bytes>\d{1,18})\b(?=\s{0,40}[,}])")
_IPC = regex(r"\"IpcMode\"\s{0,4}:\s{0,4}\"(?P<mode>[\w:.-]{0,80})\"")
_GPU = regex(r"\"Capabilities\"\s{0,4}:\s{0,4}\[\s{0,80}\[[^\]]{0,200}\"gpu\"")
_COUNT = regex(
    r"\"Count\"\s{0,4}:\s{0,4}(?P<count>-?\d{1,4}),\s{0,80}\"DeviceIDs\"\s{0,4}:\s{0,4}(?P<ids>null|\[[^\]]{0,4000}\])"
)
_REQUESTS = '"DeviceRequests"'
_BY_RUNTIME = regex(r"\"Runtime\"\s{0,4}:\s{0,4}\"nvidia\"")
"""NVIDIA's runtime gives GPUs by a variable, without a request."""
_GIB = 1 << 30


def verdicts(output: str) -> Iterator[Verdict]:
    """Each container: with several GPUs its processes need shared memory."""
    starts = [match.start() for match in _BEGIN.finditer(output)] or [0]
    for start, end in zip(starts, [*starts[1:], len(output)], strict=True):
        block = output[start:end]
        name = _NAME.search(block)
        yield _container(block, name["name"] if name else "the container")


def _container(block: str, name: str) -> Verdict:
    size, ipc, subject = _SIZE.search(block), _IPC.search(block), f"container:{name}"
    asks = _GPU.search(block) is not None
    if not asks and _REQUESTS in block and not _BY_RUNTIME.search(block):
        return _verdict("note", f"{name}: no GPU is asked for in it", subject)
    if not asks:
        return _verdict("unknown", f"{name}: how many GPUs it has is not shown", subject)
    if ipc is None or size is None:
        return _verdict("unknown", f"{name}: the size of its shared memory is not shown", subject)
    if ipc["mode"] not in ("", "private", "shareable"):
        return _verdict(
            "pass", f"{name}: shared memory of the {ipc['mode'].partition(':')[0]}", subject, ipc[0]
        )
    least = limit("shm_nccl_min")
    gib = int(size["bytes"]) / _GIB
    shown = f"{gib:g} GiB" if gib >= 1 else f"{gib * 1024:g} MiB"
    if gib >= least.number:
        return _verdict("pass", f"{name}: {shown} of shared memory", subject, size[0])
    words = f"{name}: {shown} of shared memory (ShmSize); NCCL needs {least.number:g} GiB ({least.source})"
    return _verdict("warn" if _has_several_gpus(block) else "note", words, subject, size[0])


def _has_several_gpus(block: str) -> bool:
    """Whether it was started with all GPUs of the node, or more than one."""
    count = _COUNT.search(block)
    return count is not None and (int(count["count"]) not in (0, 1) or count["ids"].count('"') > 2)
