"""Which NCCL do running ranks have mapped, and is anything known against it?"""

from collections.abc import Iterator, Mapping

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.nvlinks import NvLinks
from nodedoctor.facts.host.limits import Limits
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.network.net import several_nodes
from nodedoctor.facts.rdma.sysfs import Rdma
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.libraries import Libraries
from nodedoctor.facts.stack.loaded_nccl import LoadedNccl, Mapped, versions_in_use
from nodedoctor.facts.stack.places import library_said, package_said, resolved_said
from nodedoctor.facts.stack.requirements import same_release
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.grouping import group_by
from nodedoctor.knowledge.versions.nccl import BadVersion, Effect, affecting, known_bad
from nodedoctor.model import Evidence, Finding, Fix, reading
from nodedoctor.steps import look
from nodedoctor.wording import first_few, short_path

RESTART = "the job (it must be restarted)"
PER_JOB = ("abort", "ras-query", "split-groups", "symmetric-memory", "ranks>80", "mixed-cpus", "cuda-graphs")
"""Traits of what a program does; nothing on the node tells them."""


@check("stack.nccl-loaded", "NCCL loaded by running ranks", tags={"fast"}, without=(Libraries,))
def nccl_loaded(loaded: LoadedNccl, libraries: Libraries | None) -> Iterator[Finding]:
    """The libnccl mapped by every running rank, Ray worker and inference engine, and its version.

    Why: ranks of one job with different NCCL versions fail at init or hang; a job may have loaded another
    version than the one installed now.
    Fix disturbs: the job (it must be restarted).
    Judges: FAIL when ranks of one job have different NCCL versions mapped, WARN when it is not the installed
    one.
    Fix: Start the job again with one environment.
    Threshold: No threshold: versions are compared.
    False positives: Two independent jobs on one node.
    """
    for line in loaded.unread:
        fix = Fix("Run as root or as the job's user.", (look("sudo nodedoctor stack.nccl-loaded"),), "none")
        yield Finding.unknown("denied", f"memory map not read: {line}", subject="maps", fix=fix)
    jobs = group_by(loaded.mapped, lambda mapping: mapping.job)
    for job, mapped in jobs.items():
        yield from _one_job(f"job:{job}" if job else "ranks", mapped)
    if not jobs and not loaded.unread:
        yield Finding.skip("no training process has libnccl loaded")
    won = libraries.winner("libnccl.so") if libraries else None
    only = loaded.versions[0] if len(loaded.versions) == 1 else ""
    if only and won and won[1] and won[1].version and not same_release(only, won[1].version):
        yield Finding.info(
            f"running: NCCL {only}; new processes load {won[1].version}",
            subject="library:libnccl",
            evidence=[*_mapped_evidence(loaded.mapped[0]), *resolved_said(won[0])],
        )


def _one_job(subject: str, mapped: list[Mapped]) -> Iterator[Finding]:
    """Versions decide; where one could not be read, different paths do."""
    by_process: dict[int, set[str]] = {}
    for mapping in mapped:
        by_process.setdefault(mapping.pid, set()).add(mapping.version or mapping.path)
    kinds = group_by(mapped, lambda mapping: mapping.version or mapping.path)
    evidence = [quote for mapping in mapped[:16] for quote in _mapped_evidence(mapping)]
    fix = Fix(
        "Start all ranks from one environment with one LD_LIBRARY_PATH; compare the two.",
        tuple(look("grep libnccl /proc/{}/maps", group[0].pid) for group in kinds.values()),
        "restart-job",
        RESTART,
        "nodedoctor stack.nccl-loaded",
    )
    twice = [pid for pid, versions in by_process.items() if len(versions) > 1]
    if len({frozenset(versions) for versions in by_process.values()}) > 1:
        summary = "ranks loaded different NCCL versions: " + "; ".join(
            f"{_library_name(kind)} in {_process_labels(group)}" for kind, group in kinds.items()
        )
        yield Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
    elif twice:
        names = " and ".join(_library_name(kind) for kind in kinds)
        summary = f"{names} loaded in one process ({_process_labels(mapped)}): two libraries bundle NCCL"
        yield Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)
    else:
        count = len(by_process)
        summary = f"{_library_name(next(iter(kinds)))} in {'all ' if count > 1 else ''}{count} process"
        yield Finding.ok(summary + ("es" if count > 1 else ""), subject=subject, evidence=evidence)


def _library_name(kind: str) -> str:
    return short_path(kind) if kind.startswith("/") else f"NCCL {kind}"


def _process_labels(group: list[Mapped]) -> str:
    labels = list(dict.fromkeys(mapping.label for mapping in group))
    return first_few(labels, 3)


def _mapped_evidence(mapping: Mapped) -> list[Evidence]:
    evidence = [reading("processes", f"processes[pid={mapping.pid}].libraries[^{mapping.path}]")]
    versions = (
        [reading("mapped-nccl", f"mapped[pid={mapping.pid}&path={mapping.path}].version")]
        if mapping.asked
        else []
    )
    return [*evidence, *versions]


@check("stack.nccl-known-bad", "Known NCCL bugs", tags={"fast"})
def nccl_known_bad(
    loaded: LoadedNccl | None,
    libraries: Libraries | None,
    target: TargetPython | None,
    torch: Torch | None,
    gpus: Gpus | None,
    nvlinks: NvLinks | None,
    rdma: Rdma | None,
    processes: Processes | None,
    limits: Limits | None,
    driver: Driver | None,
) -> Iterator[Finding]:
    """The NCCL that ranks have loaded, else the one torch would load, against versions with known bugs.

    Why: images that pin an old NCCL still have its hangs and data errors, fixed long ago.
    Fix disturbs: jobs that use this Python environment, and the job.
    Judges: WARN for an NCCL version with a known fault on this kind of node; a note where the fault is mild
    or not certain.
    Fix: Upgrade NCCL to the version that the row names.
    Threshold: The nccl_bad table: release notes and issues of NVIDIA/nccl.
    False positives: Faults that need a feature the job does not use are notes.
    """
    versions = dict(versions_in_use(loaded, libraries, target))
    if torch is not None and torch.cuda == "" and not (loaded and loaded.mapped):
        yield Finding.skip("this torch has no CUDA, so it uses no NCCL")
        return
    if not versions:
        yield Finding.skip("no NCCL with a known version found")
        return
    holds = set(_conditions_held(target, gpus, nvlinks, rdma, processes, limits, driver))
    if torch is not None and torch.version.partition("+")[0] == "2.7.0":
        holds.add("torch-2.7.0")
    for version in versions:
        bad = known_bad(version, holds)
        for row in bad:
            yield _known_path(row, version, _in_use(version, loaded, libraries, target))
        if not bad:
            yield _no_defect(version, holds, _in_use(version, loaded, libraries, target))


_EFFECTS: Mapping[Effect, str] = {
    "hang": "can hang",
    "crash": "can crash",
    "wrong-data": "can deliver wrong data",
    "slow": "is slow",
    "init-failure": "can fail at start-up",
}


def _known_path(row: BadVersion, version: str, evidence: list[Evidence]) -> Finding:
    until = f", fixed in {row.fixed}" if row.fixed else ""
    summary = f"NCCL {version} {_EFFECTS[row.effect]} on nodes like this one (known bug{until})"
    fix = Fix(
        row.remedy,
        (look("nodedoctor stack.nccl-loaded"),),
        "config",
        RESTART,
        "nodedoctor stack.nccl-known-bad",
        row.source,
    )
    # What only costs speed, or only some start-ups that fail at once with a message, is worth a note.
    mild = row.effect in ("slow", "init-failure") and row.id != "blackwell-missing"
    judge = Finding.info if mild or row.unverified else Finding.warn
    return judge(summary, subject=f"nccl:{row.id}", evidence=evidence, fix=fix).matters_as(row.what)


def _no_defect(version: str, holds: set[str], evidence: list[Evidence]) -> Finding:
    """Say under which other conditions something is known, because those cannot be seen here."""
    rows = [row for row in affecting(version) if set(row.needs) - holds <= set(PER_JOB)]
    problems = "known problem needs" if len(rows) == 1 else "known problems need"
    note = f"; {len(rows)} {problems} conditions that were not seen here" if rows else ""
    return Finding.ok(f"NCCL {version}{note}", subject=f"nccl:{version}", evidence=evidence)


def _in_use(
    version: str, loaded: LoadedNccl | None, libraries: Libraries | None, target: TargetPython | None
) -> list[Evidence]:
    """Where this version of NCCL was seen: mapped by a rank, in the library torch gets, in its package."""
    for mapping in loaded.mapped if loaded else ():
        if mapping.version == version:
            return _mapped_evidence(mapping)
    won = libraries.winner("libnccl.so") if libraries else None
    if won and won[1] and won[1].version == version:
        return library_said(won[1])
    packages = [package for package in target.packages if package.version == version] if target else []
    return package_said(target, *[p for p in packages if "nccl" in p.name]) if target else []


def _conditions_held(
    target: TargetPython | None,
    gpus: Gpus | None,
    nvlinks: NvLinks | None,
    rdma: Rdma | None,
    processes: Processes | None,
    limits: Limits | None,
    driver: Driver | None,
) -> Iterator[str]:
    """The traits that were seen to hold; see the vocabulary in knowledge/versions/nccl.py."""
    if target is not None and target.machine == "aarch64":
        yield "aarch64"
    if several_nodes(processes):
        yield "multi-node"
    if nvlinks is not None and any(link.active for gpu in nvlinks.gpus for link in gpu.links):
        yield "nvlink"
    yield from _of_gpus(gpus)
    active = [port for _, port in rdma.ports if port.active] if rdma else []
    if active:
        yield "rdma"
    if any(not port.infiniband for port in active):
        yield "roce"
    stack = limits.rlimits.get("stack_bytes") if limits else None
    if stack is not None and stack.soft is None:
        yield "stack-unlimited"


def _of_gpus(gpus: Gpus | None) -> Iterator[str]:
    shown = gpus.gpus if gpus else ()
    majors = {(gpu.compute_capability or "").partition(".")[0] for gpu in shown} - {""}
    yield from (f"compute-{major}.0" for major in majors)
    if majors and all(int(major[:9]) < 10 for major in majors if major.isdecimal()):
        yield "before-blackwell"
    if majors and all(int(major[:9]) < 9 for major in majors if major.isdecimal()):
        yield "before-hopper"
    names = {gpu.name for gpu in shown if gpu.name}
    if len(names) > 1:
        yield "mixed-gpus"
    if any("GB200" in name or "GB300" in name for name in names):
        yield "grace-blackwell"
