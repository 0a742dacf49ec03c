"""Is there one Ray, and one Python, in everything that belongs to the cluster here?"""

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.host.container import Container, image_said
from nodedoctor.facts.stack.interpreter import RunningPython, TargetPython
from nodedoctor.knowledge.versions.containers import promise
from nodedoctor.model import Evidence, Expect, Finding, Fix, reading
from nodedoctor.steps import stop_ray
from nodedoctor.wording import count_with_noun, short_path

ROLES = ("raylet", "gcs-server", "ray-worker")
DOCS = "https://docs.ray.io/en/latest/cluster/faq.html"


@check("ray.version", "Ray and Python versions", tags={"fast"})
def ray_version(target: TargetPython, container: Container | None, expect: Expect) -> Iterator[Finding]:
    """Ray and Python versions of the target, the running head and workers, and the image's name.

    Why: the cluster refuses a Ray driver with another Ray or Python version ("Version mismatch"), or objects
    fail to unpickle later.
    Fix disturbs: jobs that use this Python environment; restarting Ray ends its jobs on this node.
    Judges: FAIL when Ray or Python differ between the target and the running cluster; WARN against the
    image's promise.
    Fix: Install one Ray and one Python minor version everywhere.
    Threshold: Ray refuses other versions (ray/_private/utils.py).
    False positives: Several independent clusters on one machine.
    Error texts:
    - Version mismatch: The cluster was started with
    """
    own = target.package("ray")
    running = [process for process in target.running if process.role in ROLES and process.ray]
    if own is None and not running:
        yield _ray_absent(target, expect)
        return
    if own is not None:
        yield from _promised_versions(target, container, own.version)
    kinds = {(process.ray, process.python): process for process in running}
    if len(kinds) > 1:
        yield _several_clusters(target, list(kinds.values()))
    differing = [
        process for process in kinds.values() if own and not _same_versions(target, own.version, process)
    ]
    for process in differing:
        yield _differing_cluster(target, own.version if own else "", process)
    if not differing and len(kinds) < 2:
        yield Finding.ok(_all_is_one(target, own.version if own else "", running), subject="package:ray")


def _ray_absent(target: TargetPython, expect: Expect) -> Finding:
    if not target.complete:
        untold = f"{target.label} does not show whether Ray is installed"
        is_expected = expect.get("ray") is not None
        return Finding.unknown("not-visible-here", untold) if is_expected else Finding.skip(untold)
    summary = f"Ray is not installed in {target.label}, and no Ray process runs here"
    if expect.get("ray") is None:
        return Finding.skip(summary)
    version = "" if expect.get("ray") == "yes" else f"=={expect.get('ray')}.*"
    fix = Fix("Install Ray.", (target.install(f"ray{version}"),), "config")
    return Finding.fail(summary, subject="package:ray", fix=fix)


def _same_versions(target: TargetPython, version: str, process: RunningPython) -> bool:
    return version == process.ray and process.python in ("", _python_minor(target))


def _python_minor(target: TargetPython) -> str:
    return ".".join(target.version.split(".")[:2])


def _differing_cluster(target: TargetPython, version: str, process: RunningPython) -> Finding:
    """A Python that was only guessed may have nothing to do with that cluster, so there it is a warning."""
    subject = f"pid:{process.pid}"
    own, running = f"Ray {version}", f"Ray {process.ray}"
    if process.python and process.python != _python_minor(target):
        own, running = f"{own} on Python {_python_minor(target)}", f"{running} on Python {process.python}"
    summary = f"{own}, the running {process.role} {running} ({short_path(target.label)})"
    if version == process.ray:
        fix = Fix(
            f"Start the job with Python {process.python}, or Ray with {_python_minor(target)}.",
            (target.listing(),),
            action="config",
            docs=DOCS,
        )
    else:
        command = target.install(f"ray=={process.ray}")
        fix = Fix(
            "Install the cluster's Ray for the job, or restart Ray.",
            (command,),
            "config",
            "jobs that use this Python environment",
            docs=DOCS,
        )
    judge = Finding.fail if target.explicit else Finding.warn
    return judge(summary, subject=subject, evidence=[_ray_evidence(target, process)], fix=fix)


def _several_clusters(target: TargetPython, processes: list[RunningPython]) -> Finding:
    kinds = " and ".join(f"{p.role} {p.pid}: Ray {p.ray}, Python {p.python}" for p in processes)
    fix = Fix(
        "Stop Ray and start it again from one environment.",
        (stop_ray("its jobs may end; start it again from one environment"),),
        "restart-service",
        "every Ray job on this node",
        docs=DOCS,
    )
    evidence = [_ray_evidence(target, process) for process in processes]
    return Finding.fail(
        f"Ray processes with different versions run here: {kinds}", subject="ray", evidence=evidence, fix=fix
    )


def _promised_versions(target: TargetPython, container: Container | None, version: str) -> Iterator[Finding]:
    """What the image's name says of Ray and Python."""
    image = promise(container.image) if container and container.image else None
    if image is None or container is None:
        return
    evidence = image_said(container)
    for name, promised, installed in (
        ("Ray", image.ray, version),
        ("Python", image.python, _python_minor(target)),
    ):
        if promised and installed and promised != installed:
            yield Finding.warn(
                f"the image's name says {name} {promised}, {target.label} has {installed}",
                subject=f"image:{name.lower()}",
                evidence=evidence,
                fix=Fix(
                    "Use the image's own Python, or an image with these versions.",
                    (target.listing(),),
                    action="config",
                ),
            )


def _all_is_one(target: TargetPython, version: str, running: list[RunningPython]) -> str:
    here = f"Ray {version} on Python {_python_minor(target) or '?'} in {target.label}"
    if not running:
        return f"{here}; no Ray process runs here"
    process = running[0]
    if not version:
        return (
            f"Ray {process.ray} on Python {process.python} runs here; it is not installed in {target.label}"
        )
    return f"{here}, same in {count_with_noun(len(running), 'running Ray process')}"


def _ray_evidence(target: TargetPython, process: RunningPython) -> Evidence:
    return reading(target.source, f"found.running[pid={process.pid}].ray")
