"""Does a minimal distributed job run in the user's own Python, and if not: at which scale, on which path?"""

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.measured.collective import Collective, CollectiveRun, Isolation
from nodedoctor.model import Evidence, Finding, Fix, quoted_like, reading
from nodedoctor.steps import look
from nodedoctor.wording import count_with_noun

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
DIAGNOSIS_ONLY = (
    "These settings are for diagnosis only: they hide the fault and slow training, so unset them afterwards."
)
_SUSPECTS = {
    "NCCL_P2P_DISABLE": (
        "direct copies between GPUs (NVLink or PCIe P2P)",
        "nodedoctor bandwidth.p2p p2p nvlink",
    ),
    "NCCL_SHM_DISABLE": ("host shared memory", "nodedoctor limits.shm limits"),
    "NCCL_IB_DISABLE": ("InfiniBand or RoCE", "nodedoctor ib net"),
    "NCCL_NVLS_ENABLE": ("NVLink SHARP (multicast in the NVSwitch)", "nodedoctor fabric nvlink"),
    "NCCL_CUMEM_ENABLE": ("memory mapped by the cuMem API", "nodedoctor container stack"),
}
_FIX = Fix(
    "Read NCCL's first warning above, then let nodedoctor disable one transport at a time.",
    (look("nodedoctor collective.isolate"),),
    "investigate",
    "nothing",
    "nodedoctor collective.smoke",
    _ENV,
)
_WRONG = Fix(
    "Drain the node until the GPU or link that corrupts data is found.",
    (look("nodedoctor bandwidth --deep"), look("nodedoctor kernel")),
    "drain",
    "every job on the node",
    "nodedoctor collective.smoke",
)


@check("collective.smoke", "NCCL smoke test", tags={"gpu", "deep"}, stage="preview")
def smoke(job: Collective) -> Iterator[Finding]:
    """All-reduce, all-gather, reduce-scatter and broadcast in the target Python; on fewer ranks if all fail.

    Why: training uses the same collectives; when they fail here, they fail in every job of this Python.
    Fix disturbs: nothing.
    Judges: FAIL when the small distributed job ends with an error, gives wrong numbers or never ends.
    Fix: Read the error of the first rank that failed; collective.isolate tries NCCL's paths one by one.
    Threshold: No threshold: results are compared with what arithmetic says.
    False positives: A training Python without a working torch fails here for reasons of its own (stack.*).
    Error texts:
    - ncclUnhandledCudaError: Call to CUDA function failed.
    - ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
    """
    first = job.runs[0]
    if first.ok:
        yield Finding.ok(_rate_summary(first), evidence=_rate_evidence(first))
        return
    works = [str(run.ranks) for run in job.runs if run.ok]
    fails = min(run.ranks for run in job.runs if not run.ok)
    scale = f"; fails with {fails} or more ranks" if len(job.runs) > 1 else ""
    scale += f", works with {', '.join(sorted(works))}" if works else ""
    subject = f"rank:{next(iter(first.wrong))}" if len(first.wrong) == 1 else ""
    summary = f"{first.ranks} ranks on {first.backend}: {first.trouble}{scale}"
    yield Finding.fail(
        summary, subject=subject, evidence=_collective_evidence(first), fix=_WRONG if first.wrong else _FIX
    )


@check("collective.isolate", "NCCL transport isolation", tags={"gpu", "deep"}, stage="preview")
def isolate(isolation: Isolation) -> Iterator[Finding]:
    """The failing job again with P2P, SHM, InfiniBand, NVLS and cuMem disabled, one at a time.

    Why: if the job runs without one transport, the fault is there: found in minutes instead of days.
    Fix disturbs: nothing.
    Judges: FAIL names the path of NCCL without which the job runs, or says that it fails with each path
    switched off.
    Fix: Repair the named transport; the environment variable that disables it is only a workaround.
    Threshold: No threshold: the job runs or it does not.
    False positives: A job that fails by chance can point at the wrong path; run it twice.
    """
    tried = [run for run in isolation.runs if run.setting]
    evidence = [reading("collective-isolate", f"runs[setting={run.setting}].ok") for run in tried]
    cured = [run for run in tried if run.ok]
    for run in cured:
        path, command = _SUSPECTS.get(run.setting.partition("=")[0], (run.setting, "nodedoctor"))
        fix = Fix(
            f"Repair this transport. {DIAGNOSIS_ONLY}", (look(command),), "investigate", "nothing", docs=_ENV
        )
        summary = f"the fault is in {path}: the job runs with {run.setting}"
        yield Finding.fail(
            summary, subject=f"path:{run.setting.partition('=')[0]}", evidence=evidence, fix=fix
        )
    if not tried:
        yield Finding.ok("the job runs now, nothing was disabled")
    elif not cured:
        fix = Fix(
            f"No single transport is the cause; read the output of the ranks. {DIAGNOSIS_ONLY}",
            (look("nodedoctor collective.smoke -v --deep"),),
            docs=_ENV,
        )
        yield Finding.fail("the job fails with each transport disabled", evidence=evidence, fix=fix)


def _collective_evidence(run: CollectiveRun) -> Iterator[Evidence]:
    for error in list(run.errors.values())[:2]:
        if error:
            yield Evidence("collective", error.splitlines()[0])
    for place in list(run.waiting.values())[:3]:
        yield Evidence("collective", place)
    log = run.log
    if log is None:
        return
    for warning in log.warnings[:3]:
        yield Evidence("collective", warning)
    transports = sorted(set(log.transports.values()))
    if transports or log.network:
        yield quoted_like("collective", r"^.*NCCL INFO .*(?:via|Using network|NET/).*$")


def _rate_evidence(run: CollectiveRun) -> Iterator[Evidence]:
    largest = max((operation.bytes for operation in run.operations), default=0)
    for operation in run.operations:
        if operation.bytes == largest and operation.busbw_gbytes_s is not None:
            where = f"runs[0].operations[operation={operation.name}&bytes={operation.bytes}]"
            yield reading("collective", f"{where}.busbw_gbytes_s")


def _rate_summary(run: CollectiveRun) -> str:
    return (
        f"{count_with_noun(run.ranks, 'rank')} on {run.backend}: "
        f"{count_with_noun(len(run.operations), 'collective')}, all results correct"
    )
