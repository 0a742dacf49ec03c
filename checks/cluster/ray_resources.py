"""Does Ray have what it believes, and does its work fit?"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from nodedoctor.engine.registry import check
from nodedoctor.facts.cluster.ray_node import Demand, RayCluster, RaySession, Trouble
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.driver.nvidia_presence import nothing_here
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.limits import Limits
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.steps import look, stop_ray

RESTART = "every Ray job on this node"
RECENT = timedelta(hours=1)  # before the last line of that log
_STAMP = re.compile(r"\[?(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})")
_MEANS = {
    "worker-death": (
        "workers died without saying why",
        "Look for their pids in the kernel log and in worker-*.err.",
    ),
    "node-death": ("nodes of the cluster were declared dead", "Look at the raylet.out of those nodes."),
    "out-of-memory": ("Ray killed workers because memory ran out", "Give workers less, or the node more."),
    "disk-full": ("the disk is fuller than Ray allows: it spills no objects", "Make room below /tmp/ray."),
    "no-descriptors": ("Ray ran out of open files", "Raise the limit where Ray is started: limits.nofile."),
}

_ROOTS = {"no-descriptors": tuple(f"limits.nofile@{role}" for role in ("raylet", "gcs-server", "ray-worker"))}
"""Checks that look at the same trouble where it comes from."""


@check(
    "ray.resources",
    "Ray has what it believes, and its work fits",
    tags={"ray"},
    without=(
        Pci,
        Driver,
    ),
)
def ray_resources(
    session: RaySession | None,
    cluster: RayCluster | None,
    processes: Processes | None,
    gpus: Gpus | None,
    pci: Pci | None,
    driver: Driver | None,
    limits: Limits | None,
) -> Iterator[Finding]:
    """Ray's GPUs against the driver's, its object store against /dev/shm, pending work, deaths in its logs.

    Why: work that needs more than there is waits for ever without an error; an actor on a GPU that does not
    exist fails only when it touches it.
    Fix disturbs: a Ray that is restarted ends every job on this node.
    Judges: FAIL when Ray counts other GPUs than the driver or demands can never be met; WARN for a small
    object store and deaths in its logs.
    Fix: Start Ray again on this node with the right resources.
    Threshold: Ray's defaults: 0.3 of memory for the store, at most 200 GB (ray_constants.py).
    False positives: Ray started with --num-gpus for a part of the node on purpose.
    """
    running = processes is not None and processes.ray
    if not running and cluster is None:
        yield Finding.skip("no Ray runs here")
        return
    found: list[Finding] = []
    if session is not None and running:
        found += _gpus(session, _count(gpus, pci, driver))
        found += _store(session, limits)
        found += [_trouble(one) for one in session.troubles if _recent(one)]
    if cluster is None or cluster.silent:
        found.append(_silent(cluster))
    else:
        found += _demands(cluster)
        found += _failures(cluster)
    yield from found
    if not found:
        yield Finding.ok(_all_well(session, cluster))


def _count(gpus: Gpus | None, pci: Pci | None, driver: Driver | None) -> int | None:
    """GPUs here: NVML's, else none where nothing of NVIDIA's is; None when it could not be seen."""
    if gpus is not None:
        return gpus.counted if gpus.interrupted else len(gpus.gpus) or gpus.counted
    return 0 if nothing_here(pci, driver) else None


def _gpus(session: RaySession, count: int | None) -> Iterator[Finding]:
    if session.gpus is None or count is None:
        return
    evidence = [Evidence("ray-session", f"InitialConfigResources: GPU: {session.gpus:g}")]
    if session.gpus > count:
        yield Finding.fail(
            f"Ray believes in {session.gpus:g} GPUs on this node, the driver shows {count}",
            subject="ray:gpus",
            evidence=evidence,
            fix=Fix(
                "Find the GPUs that are missing (driver.gpus-present), or restart Ray with the "
                f"number there is (ray start's --num-gpus={count}, beside the options it was started with).",
                (stop_ray("its jobs may end"),),
                "restart-service",
                RESTART,
                "nodedoctor ray.resources",
            ),
        ).explained_by("driver.answers@any", "driver.gpus-present@any")
    elif session.gpus < count:
        summary = f"Ray uses {session.gpus:g} of {count} GPUs of this node"
        yield Finding.info(summary, subject="ray:gpus", evidence=evidence)
    else:
        summary = f"Ray and the driver agree on {count} GPUs"
        yield Finding.ok(summary, subject="ray:gpus", evidence=evidence)


def _store(session: RaySession, limits: Limits | None) -> Iterator[Finding]:
    shm, store = limits.shm if limits else None, session.object_store_gib
    if shm is None or store is None:
        return
    evidence = [
        Evidence("ray-session", f"object_store_memory: {store:.2f} GiB"),
        Evidence("limits", f"/dev/shm: {shm.size_gib:g} GiB"),
    ]
    if store > shm.size_gib:
        text = "Give /dev/shm more, or start Ray with a smaller --object-store-memory."
        fix = Fix(text, (), "restart-service", RESTART, "nodedoctor ray.resources limits.shm")
        summary = f"the object store ({store:.1f} GiB) is larger than /dev/shm ({shm.size_gib:.1f} GiB)"
        yield Finding.warn(summary, subject="ray:object-store", evidence=evidence, fix=fix)
    else:
        yield Finding.ok(
            f"the object store of {store:.1f} GiB fits", subject="ray:object-store", evidence=evidence
        )


def _demands(cluster: RayCluster) -> Iterator[Finding]:
    """Work that waits although it never can be placed, and work that only waits."""
    largest = max(cluster.nodes.values(), default=cluster.gpus or 0.0)
    total = cluster.gpus if cluster.gpus is not None else sum(cluster.nodes.values())
    for number, demand in enumerate(one for one in cluster.demands if one.gpus):
        subject = f"ray:demand-{number}"
        evidence = [Evidence("ray-status", demand.text)]
        why = _impossible(demand, largest, total)
        if why:
            fix = Fix(
                "Ask for less, or add nodes with GPUs to the cluster.", (look("ray status -v"),), "config"
            )
            yield Finding.fail(f"{demand.text}: {why}", subject=subject, evidence=evidence, fix=fix)
        else:
            summary = (
                f"{demand.text}: it waits for GPUs that others use ({cluster.gpus_used or 0:g}/{total:g})"
            )
            yield Finding.info(summary, subject=subject, evidence=evidence)


def _impossible(demand: Demand, largest: float, total: float) -> str:
    if demand.gpus > largest:
        return f"no node has {demand.gpus:g} GPUs (the largest {largest:g}), so it waits for ever"
    if demand.gpus * demand.pieces > total:
        return (
            f"together {demand.gpus * demand.pieces:g} GPUs, and the cluster has {total:g}: it waits for ever"
        )
    if demand.kind == "STRICT_PACK" and demand.gpus * demand.pieces > largest:
        return f"on one node, and the largest has {largest:g}: it waits for ever"
    return ""


def _failures(cluster: RayCluster) -> Iterator[Finding]:
    if cluster.failures:
        evidence = [Evidence("ray-status", line) for line in cluster.failures[:8]]
        fix = Fix("See whether these nodes live.", (look("ray status -v"),), "investigate")
        summary = f"Ray reports {len(cluster.failures)} nodes that failed lately"
        yield Finding.warn(summary, subject="ray:nodes", evidence=evidence, fix=fix)


def _recent(trouble: Trouble) -> bool:
    """Whether the last such line is of the last hour of its log."""
    times = [_STAMP.match(line) for line in trouble.lines[-1:]]
    stamps = [found.group(1) for found in times if found] + [trouble.last]
    try:
        then, last = (datetime.fromisoformat(stamp) for stamp in stamps[:2])
    except ValueError:
        return True  # a time that cannot be read is no reason to keep silent
    return last - then <= RECENT


def _trouble(trouble: Trouble) -> Finding:
    meaning, advice = _MEANS.get(trouble.kind, (trouble.kind, ""))
    evidence = [Evidence("ray-session", line) for line in trouble.lines[-3:]]
    judge = Finding.fail if trouble.kind in ("disk-full", "no-descriptors") else Finding.warn
    fix = Fix(advice, (look("less /tmp/ray/session_latest/logs/{}", trouble.log),), "investigate")
    summary = f"{meaning} ({trouble.count} lines in {trouble.log})"
    return judge(summary, subject=f"ray:{trouble.kind}", evidence=evidence, fix=fix).explained_by(
        *_ROOTS.get(trouble.kind, ())
    )


def _silent(cluster: RayCluster | None) -> Finding:
    """Silence of an address that was asked is news; not having asked is not."""
    fix = Fix("See whether its head node lives, as the user of Ray.", (look("ray status -v"),), "investigate")
    if cluster is None:
        summary = "the cluster could not be asked from here: no Python with its Ray, or another container"
        return Finding.unknown("not-visible-here", summary, subject="ray:status", fix=fix)
    summary = f"the cluster does not answer: {cluster.silent}"
    return Finding.unknown("timeout", summary, subject="ray:status", fix=fix)


def _all_well(session: RaySession | None, cluster: RayCluster | None) -> str:
    nodes = (
        f"{cluster.active} nodes, {cluster.gpus or 0:g} GPUs" if cluster else "its files tell of no trouble"
    )
    return f"Ray: {nodes}"
