"""Does Ray have what it believes, and does its work fit?"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from nodedoctor.declare.registry import check
from nodedoctor.facts.cluster.ray_node import Demand, RayCluster, RaySession, Trouble
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.driver.nvidia_presence import nothing_here
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.limits import Limits, shm_said
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.model import Evidence, Finding, Fix, quoted_like
from nodedoctor.patterns import regex
from nodedoctor.steps import look, stop_ray
from nodedoctor.wording import comma_list, count_with_noun

RESTART = "every Ray job on this node"
RECENT = timedelta(hours=1)  # before the last line of that log
_STAMP = regex(r"\[?(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})")
_MEANS = {
    "worker-death": (
        "Ray workers died unexpectedly",
        "Search the kernel log and worker-*.err for their pids.",
    ),
    "node-death": ("Ray declared nodes dead", "Read raylet.out on those nodes."),
    "out-of-memory": (
        "Ray killed workers: out of memory",
        "Reduce the workers' memory use, or use a node with more memory.",
    ),
    "disk-full": ("disk above Ray's limit: no object spilling", "Free space below /tmp/ray."),
    "no-descriptors": ("Ray ran out of open files", "Raise the limit where Ray is started (limits.nofile)."),
}

_ROOTS = {"no-descriptors": tuple(f"limits.nofile@{role}" for role in ("raylet", "gcs-server", "ray-worker"))}
"""Checks that look at the same trouble where it comes from."""


@check("ray.resources", "Ray resources and pending work", tags={"ray"}, without=(Pci, Driver))
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

    Why: a task that needs more than the cluster has waits forever without an error; an actor on a GPU that
    does not exist fails at first use.
    Fix disturbs: restarting Ray ends every job on this node.
    Judges: FAIL when Ray counts other GPUs than the driver or demands can never be met; WARN for a small
    object store and deaths in its logs.
    Fix: Start Ray again on this node with the right resources.
    Threshold: Ray's defaults: 0.3 of memory for the store, at most 200 GB (ray_constants.py).
    False positives: Ray started with --num-gpus for a part of the node on purpose.
    Error texts:
    - No available node types can fulfill resource request
    """
    running = processes is not None and processes.ray
    if not running and cluster is None:
        yield Finding.skip("no Ray runs here")
        return
    findings: list[Finding] = []
    if session is not None and running:
        findings += _judge_gpus(session, _count_gpus(gpus, pci, driver))
        findings += _judge_store(session, limits)
        findings += [_judge_trouble(trouble) for trouble in session.troubles if _is_recent(trouble)]
    if cluster is None or cluster.silent:
        findings.append(_silent_cluster(cluster))
    else:
        findings += _judge_demands(cluster)
        findings += _judge_failures(cluster)
    yield from findings
    if not findings:
        yield Finding.ok(_all_well(session, cluster))


def _count_gpus(gpus: Gpus | None, pci: Pci | None, driver: Driver | None) -> int | None:
    """GPUs here: NVML's, else none where nothing of NVIDIA's is; None when it could not be seen."""
    if gpus is not None:
        return gpus.counted if gpus.interrupted else len(gpus.gpus) or gpus.counted
    return 0 if nothing_here(pci, driver) else None


def _judge_gpus(session: RaySession, count: int | None) -> Iterator[Finding]:
    if session.gpus is None or count is None:
        return
    evidence = [quoted_like("ray-session", "^InitialConfigResources: .*", "state")]
    if session.gpus > count:
        yield Finding.fail(
            f"Ray reports {count_with_noun(session.gpus, 'GPU')}, the driver {count}",
            subject="ray:gpus",
            evidence=evidence,
            fix=Fix(
                f"Find the missing GPUs (driver.gpus-present), or restart Ray with --num-gpus={count} "
                "and its other options unchanged.",
                (stop_ray("its jobs may end"),),
                "restart-service",
                RESTART,
                "nodedoctor ray.resources",
            ),
        ).explained_by("driver.answers@any", "driver.gpus-present@any")
    elif session.gpus < count:
        summary = f"Ray uses {session.gpus:g} of {count_with_noun(count, 'GPU')}"
        yield Finding.info(summary, subject="ray:gpus", evidence=evidence)
    else:
        summary = f"Ray and the driver report {count_with_noun(count, 'GPU')}"
        yield Finding.ok(summary, subject="ray:gpus", evidence=evidence)


def _judge_store(session: RaySession, limits: Limits | None) -> Iterator[Finding]:
    shm, store = limits.shm if limits else None, session.object_store_gib
    if shm is None or store is None:
        return
    evidence = [
        quoted_like("ray-session", r"object_store_memory: [\d.e+]+", "state"),
        *shm_said("size_bytes"),
    ]
    if store > shm.size_gib:
        text = "Increase the size of /dev/shm, or start Ray with a smaller --object-store-memory."
        fix = Fix(
            text, (look("df -h /dev/shm"),), "restart-service", RESTART, "nodedoctor ray.resources limits.shm"
        )
        summary = f"object store {store:.1f} GiB, larger than /dev/shm ({shm.size_gib:.1f} GiB)"
        yield Finding.warn(summary, subject="ray:object-store", evidence=evidence, fix=fix)
    else:
        yield Finding.ok(
            f"object store {store:.1f} GiB fits into /dev/shm", subject="ray:object-store", evidence=evidence
        )


def _judge_demands(cluster: RayCluster) -> Iterator[Finding]:
    """Work that waits although it never can be placed, and work that only waits."""
    largest = max(cluster.nodes.values(), default=cluster.gpus or 0.0)
    total = cluster.gpus if cluster.gpus is not None else sum(cluster.nodes.values())
    for number, demand in enumerate(work for work in cluster.demands if work.gpus):
        subject = f"ray:demand-{number}"
        evidence = [Evidence("ray-status", demand.text)]
        why = _why_impossible(demand, largest, total)
        before = total + largest * len(cluster.failures)
        if why and not _why_impossible(demand, largest, before):
            fix = Fix("Bring back the nodes that failed: with them there is room.", (look("ray status -v"),))
            summary = f"{demand.text}: {why} without the nodes that failed"
            yield Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
        elif why:
            fix = Fix(
                "Request fewer GPUs, or add nodes with GPUs to the cluster.",
                (look("ray status -v"),),
                "config",
            )
            yield Finding.fail(f"{demand.text}: {why}", subject=subject, evidence=evidence, fix=fix)
        else:
            summary = f"{demand.text}: waits for GPUs in use by others ({cluster.gpus_used or 0:g}/{total:g})"
            yield Finding.info(summary, subject=subject, evidence=evidence)


def _why_impossible(demand: Demand, largest: float, total: float) -> str:
    if demand.gpus > largest:
        return f"waits forever, no node has {count_with_noun(demand.gpus, 'GPU')} (largest: {largest:g})"
    if demand.gpus * demand.pieces > total:
        return f"waits forever, needs {demand.gpus * demand.pieces:g} GPUs, the cluster has {total:g}"
    if demand.kind == "STRICT_PACK" and demand.gpus * demand.pieces > largest:
        return f"waits forever, all on one node, the largest has {largest:g}"
    return ""


def _judge_failures(cluster: RayCluster) -> Iterator[Finding]:
    if cluster.failures:
        evidence = [Evidence("ray-status", line) for line in cluster.failures[:8]]
        fix = Fix("Check whether these nodes are alive.", (look("ray status -v"),), "investigate")
        names = comma_list(cluster.failures, 2)
        summary = f"Ray reports {count_with_noun(len(cluster.failures), 'recent node failure')}: {names}"
        yield Finding.warn(summary, subject="ray:nodes", evidence=evidence, fix=fix)


def _is_recent(trouble: Trouble) -> bool:
    """Whether the last such line is of the last hour of its log."""
    times = [_STAMP.match(line) for line in trouble.lines[-1:]]
    stamps = [match.group(1) for match in times if match] + [trouble.last]
    try:
        then, last = (datetime.fromisoformat(stamp) for stamp in stamps[:2])
    except ValueError:
        return True  # a time that cannot be read is no reason to keep silent
    return last - then <= RECENT


def _judge_trouble(trouble: Trouble) -> Finding:
    meaning, advice = _MEANS.get(trouble.kind, (trouble.kind, ""))
    evidence = [Evidence("ray-session", line) for line in trouble.lines[-3:]]
    judge = Finding.fail if trouble.kind in ("disk-full", "no-descriptors") else Finding.warn
    fix = Fix(advice, (look("less /tmp/ray/session_latest/logs/{}", trouble.log),), "investigate")
    summary = f"{meaning} ({count_with_noun(trouble.count, 'line')} in {trouble.log})"
    return judge(summary, subject=f"ray:{trouble.kind}", evidence=evidence, fix=fix).explained_by(
        *_ROOTS.get(trouble.kind, ())
    )


def _silent_cluster(cluster: RayCluster | None) -> Finding:
    """Silence of an address that was asked is news; not having asked is not."""
    fix = Fix("Check as Ray's user whether its head node is alive.", (look("ray status -v"),), "investigate")
    if cluster is None:
        summary = "the cluster cannot be queried from here: no Python with its Ray was found"
        return Finding.unknown("not-visible-here", summary, subject="ray:status", fix=fix)
    summary = f"the cluster does not answer: {cluster.silent}"
    return Finding.unknown("timeout", summary, subject="ray:status", fix=fix)


def _all_well(session: RaySession | None, cluster: RayCluster | None) -> str:
    nodes = (
        f"{count_with_noun(cluster.active, 'node')}, {count_with_noun(cluster.gpus or 0, 'GPU')}"
        if cluster
        else "no errors in its logs"
    )
    return f"Ray: {nodes}"
