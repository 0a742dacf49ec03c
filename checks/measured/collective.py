"""Does a minimal distributed job run in the user's own Python, and if not: at which scale, on which path?"""

from collections.abc import Iterator

from nodedoctor.engine.registry import check
from nodedoctor.facts.measured.collective import Collective, Isolation, Run
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.steps import look

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
DIAGNOSIS_ONLY = (
    "These settings are for diagnosis only: they hide a fault and slow training, so unset them afterwards."
)
_SUSPECTS = {
    "NCCL_P2P_DISABLE": (
        "direct copies between GPUs (NVLink or PCIe P2P)",
        "nodedoctor bandwidth.p2p p2p nvlink",
    ),
    "NCCL_SHM_DISABLE": ("shared memory of the host", "nodedoctor limits.shm limits"),
    "NCCL_IB_DISABLE": ("InfiniBand or RoCE", "nodedoctor ib net"),
    "NCCL_NVLS_ENABLE": ("NVLink SHARP (multicast in the NVSwitch)", "nodedoctor fabric nvlink"),
    "NCCL_CUMEM_ENABLE": ("memory mapped by the cuMem interface", "nodedoctor container stack"),
}
_FIX = Fix(
    "Read the first warning of NCCL above, then let nodedoctor switch off one path at a time.",
    (look("nodedoctor collective.isolate"),),
    "investigate",
    "nothing",
    "nodedoctor collective.smoke",
    _ENV,
)
_WRONG = Fix(
    "Take the node out of service until the GPU or link that alters data is found.",
    (look("nodedoctor bandwidth --deep"), look("nodedoctor kernel")),
    "drain",
    "every job on the node",
    "nodedoctor collective.smoke",
)


@check(
    "collective.smoke",
    "A minimal distributed job runs and computes rightly",
    tags={"gpu", "deep"},
    stage="preview",
)
def smoke(job: Collective) -> Iterator[Finding]:
    """All-reduce, all-gather, reduce-scatter, broadcast in the target Python; on fewer ranks if all fail.

    Why: this is what training does; when it fails here, it fails in every job of this Python.
    Fix disturbs: nothing.
    Judges: FAIL when the small distributed job ends with an error, gives wrong numbers or never ends.
    Fix: Read the error of the first rank that failed; collective.isolate tries NCCL's paths one by one.
    Threshold: No threshold: results are compared with what arithmetic says.
    False positives: A training Python without a working torch fails here for reasons of its own (stack.*).
    """
    first = job.runs[0]
    if first.ok:
        yield Finding.ok(_speeds(first), evidence=_numbers(first))
        return
    works = [str(run.ranks) for run in job.runs if run.ok]
    fails = min(run.ranks for run in job.runs if not run.ok)
    scale = f"; fails from {fails} ranks on" if len(job.runs) > 1 else ""
    scale += f", works on {', '.join(sorted(works))}" if works else ""
    subject = f"rank:{next(iter(first.wrong))}" if len(first.wrong) == 1 else ""
    summary = f"{first.ranks} ranks on {first.backend}: {first.trouble}{scale}"
    yield Finding.fail(summary, subject=subject, evidence=_said(first), fix=_WRONG if first.wrong else _FIX)


@check("collective.isolate", "No single path of NCCL carries a fault", tags={"gpu", "deep"}, stage="preview")
def isolate(isolation: Isolation) -> Iterator[Finding]:
    """The failing job again with P2P, SHM, InfiniBand, NVLS and cuMem switched off, one at a time.

    Why: a job that runs without one path tells where to look, in minutes instead of days.
    Fix disturbs: nothing.
    Judges: FAIL names the path of NCCL without which the job runs, or says that it fails with each path
    switched off.
    Fix: Repair what stands behind the named path; the environment variable that switches it off is only a
    stopgap.
    Threshold: No threshold: the job runs or it does not.
    False positives: A job that fails by chance can point at the wrong path; run it twice.
    """
    tried = [run for run in isolation.runs if run.setting]
    said = [Evidence("collective-isolate", f"{run.setting}: {run.trouble or 'runs'}") for run in tried]
    cured = [run for run in tried if run.ok]
    for run in cured:
        path, command = _SUSPECTS.get(run.setting.partition("=")[0], (run.setting, "nodedoctor"))
        fix = Fix(
            f"Look at that path. {DIAGNOSIS_ONLY}", (look(command),), "investigate", "nothing", docs=_ENV
        )
        summary = f"the fault is in {path}: with {run.setting} the job runs"
        yield Finding.fail(summary, subject=f"path:{run.setting.partition('=')[0]}", evidence=said, fix=fix)
    if not tried:
        yield Finding.ok("the job runs now: nothing was switched off")
    elif not cured:
        fix = Fix(f"It is none of these paths alone; see what the ranks said. {DIAGNOSIS_ONLY}", docs=_ENV)
        yield Finding.fail("the job fails with each path switched off", evidence=said, fix=fix)


def _said(run: Run) -> Iterator[Evidence]:
    for rank, error in list(run.errors.items())[:2]:
        yield Evidence("collective", f"rank {rank}: {error.splitlines()[0][:200] if error else ''}")
    for rank, place in list(run.waiting.items())[:3]:
        yield Evidence("collective", f"rank {rank} waits at {place}")
    log = run.log
    if log is None:
        return
    for warning in log.warnings[:3]:
        yield Evidence("collective", f"NCCL WARN {warning}")
    ways = sorted(set(log.transports.values()))
    if ways or log.network:
        net = f"network {log.network or '?'} on {', '.join(log.interfaces) or '?'}"
        yield Evidence("collective", f"NCCL {log.version}: via {', '.join(ways) or '?'}; {net}")


def _numbers(run: Run) -> Iterator[Evidence]:
    largest = max((one.bytes for one in run.operations), default=0)
    for one in run.operations:
        if one.bytes == largest:
            yield Evidence(
                "collective", f"{one.name} of {one.bytes >> 20} MiB: busbw {one.busbw_gbytes_s} GB/s"
            )


def _speeds(run: Run) -> str:
    return f"{run.ranks} ranks on {run.backend}: {len(run.operations)} collectives, all results right"
