"""Are the disks and the memory of this machine as fast as their peers?"""

from collections.abc import Iterator
from statistics import median

from nodedoctor.declare.registry import check
from nodedoctor.facts.measured.host_rates import DISKS, MEMORY, DiskRate, DiskRates, MemoryRate, MemoryRates
from nodedoctor.knowledge.fixes.bandwidth import DISK_SLOW, SOCKET_SLOW
from nodedoctor.knowledge.floors import BELOW_PEERS, DISK_BELOW_PEERS
from nodedoctor.model import Evidence, Finding, reading
from nodedoctor.wording import count_with_noun

FEWEST = 3
"""Disks of one model that have a usual rate; ours: of two either may be the odd one."""


@check(
    "bandwidth.disks",
    "Disk bandwidth",
    tags={"host", "deep"},
    explained_by=("kernel.storage", "limits.disk"),
    stage="preview",
)
def disks(rates: DiskRates) -> Iterator[Finding]:
    """GB/s written to and read from a nameless file on each local file system, against disks of one model.

    Why: checkpoints and local datasets wait for the slowest disk of all nodes.
    Fix disturbs: every job on the node when the disk is replaced.
    Judges: WARN when one of three or more disks of one model is below half of their median.
    Fix: Look at the kernel log and the disk's own health (SMART); replace it if it stays slow.
    Threshold: 0.5 of the median is ours: drives slow down as they fill and while they collect garbage, so
    that a smaller difference says nothing.
    False positives: A disk that others use meanwhile; one that is about to be full.
    """
    measured = [disk for disk in rates.disks if not disk.left_out]
    slow = False
    for disk in measured:
        peers = [peer for peer in measured if peer.model == disk.model]
        for word, key in (("writes", "write_gbytes_s"), ("reads", "read_gbytes_s")):
            rate, usual = getattr(disk, key), median(getattr(peer, key) for peer in peers)
            if disk.model and len(peers) >= FEWEST and rate < DISK_BELOW_PEERS * usual:
                slow = True
                summary = f"{word} {rate:.2g} GB/s, other disks of its model {usual:.2g}"
                yield Finding.warn(
                    summary,
                    subject=f"mount:{disk.point}",
                    evidence=_disk_evidence([disk], key),
                    fix=DISK_SLOW,
                )
                break
    if rates.hung:
        summary = "the measurement never finished: a disk or its driver hangs"
        yield Finding.unknown("timeout", summary, subject=f"mount:{rates.hung}", fix=DISK_SLOW)
    elif rates.cut_short:
        yield Finding.unknown("timeout", f"measurement incomplete: {rates.cut_short}")
    elif measured and not slow:
        low = min(min(disk.write_gbytes_s or 0, disk.read_gbytes_s or 0) for disk in measured)
        summary = f"at least {low:.2g} GB/s on {count_with_noun(len(measured), 'file system')}"
        yield Finding.ok(summary, evidence=_disk_evidence(measured, "write_gbytes_s", "read_gbytes_s"))
    for disk in rates.disks:
        if disk.left_out:
            yield Finding.skip(f"not measured: {disk.left_out}", subject=f"mount:{disk.point}")


@check(
    "bandwidth.sockets",
    "CPU memory bandwidth",
    tags={"host", "deep"},
    explained_by=("kernel.cpu",),
    stage="preview",
)
def sockets(rates: MemoryRates) -> Iterator[Finding]:
    """GB/s of copies by the processors of each NUMA node, in its own memory and in that of other sockets.

    Why: data loaders, host copies and offloaded optimizers share this memory.
    Fix disturbs: every job on the node when memory is reseated or firmware settings change.
    Judges: WARN when one node, or one way between sockets, is below 0.9 of the median of those alike.
    Fix: Compare the memory that each node has, look for corrected errors, and at the firmware's settings.
    Threshold: 0.9 of the median is our threshold, as for other rates; a node without one of two modules a
    channel or one of few channels is below it.
    False positives: Processors that something else uses; above a quarter of them nothing is measured.
    """
    measured = [pair for pair in rates.pairs if pair.gbytes_s]
    slow = False
    for pair in measured:
        peers = [peer.gbytes_s or 0.0 for peer in measured if _copy_kind(peer) == _copy_kind(pair)]
        usual = median(peers)
        if (pair.gbytes_s or 0.0) < BELOW_PEERS * usual:
            slow = True
            summary = f"{_copy_path(pair)}: {pair.gbytes_s:.0f} GB/s, others {usual:.0f}"
            yield Finding.warn(
                summary, subject=f"numa:{pair.memory_of}", evidence=[_memory_evidence(pair)], fix=SOCKET_SLOW
            )
    if rates.cut_short:
        yield Finding.unknown("timeout", f"measurement incomplete: {rates.cut_short}")
    elif measured and not slow:
        low = min(pair.gbytes_s or 0.0 for pair in measured)
        nodes = count_with_noun(len({pair.cpus_of for pair in measured}), "NUMA node")
        yield Finding.ok(
            f"at least {low:.0f} GB/s on {nodes}", evidence=list(map(_memory_evidence, measured))
        )
    if rates.left_out:
        yield Finding.skip(f"not measured: {rates.left_out}")
    for pair in rates.pairs:
        if pair.left_out:
            yield Finding.skip(
                f"{_copy_path(pair)} not measured: {pair.left_out}", subject=f"numa:{pair.memory_of}"
            )


def _copy_kind(pair: MemoryRate) -> tuple[bool, int]:
    return pair.cpus_of == pair.memory_of, pair.threads


def _copy_path(pair: MemoryRate) -> str:
    if pair.cpus_of == pair.memory_of:
        return f"copies in the memory of node {pair.memory_of}"
    return f"copies by node {pair.cpus_of} in the memory of node {pair.memory_of}"


def _disk_evidence(disks: list[DiskRate], *keys: str) -> list[Evidence]:
    return [reading(DISKS, f"steps[step=disk&point={disk.point}].{key}") for disk in disks for key in keys]


def _memory_evidence(pair: MemoryRate) -> Evidence:
    step = f"steps[step=memory&cpus_of={pair.cpus_of}&memory_of={pair.memory_of}]"
    return reading(MEMORY, f"{step}.gbytes_s")
