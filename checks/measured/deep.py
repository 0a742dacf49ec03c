"""NVIDIA's own tests, where they are installed: their verdicts and their numbers beside ours."""

from collections.abc import Iterator
from statistics import mean

from nodedoctor.engine.registry import check
from nodedoctor.facts.measured.bandwidth import Bandwidth
from nodedoctor.facts.measured.collective import Collective
from nodedoctor.facts.measured.deep_tools import DcgmDiag, NcclTests, NvBandwidth
from nodedoctor.knowledge.fixes.bandwidth import WRONG
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.steps import look

_DIAG = Fix(
    "Read DCGM's own report; what it fails is what the vendor accepts as a reason to replace a part.",
    (look("dcgmi diag -r 3 -j"),),
    "drain",
    "every job on the node",
    "nodedoctor deep.dcgm",
    "https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html",
)


@check("deep.dcgm", "DCGM's diagnostic passes", tags={"gpu", "deep"}, stage="preview")
def dcgm(diag: DcgmDiag) -> Iterator[Finding]:
    """The table of `dcgmi diag -r 2`.

    Why: it loads memory and PCIe, and finds what no counter shows.
    Fix disturbs: every job on the node while it is out of service.
    Judges: FAIL for each test of the diagnostic that failed, WARN for one that ended otherwise.
    Fix: Follow DCGM's own advice for the failed test; drain the node first.
    Threshold: DCGM's own limits (`dcgmi diag -r 2`).
    False positives: A GPU in use while the test runs.
    """
    bad = [row for row in diag.results if row[1] in ("Fail", "Warn")]
    for name, result, more in bad:
        said = [Evidence("dcgmi-diag", f"{name}: {result} {more}".strip())]
        judge = Finding.fail if result == "Fail" else Finding.warn
        yield judge(f"{name}: {result} {more}".strip(), subject=f"test:{name}", evidence=said, fix=_DIAG)
    if not bad:
        yield Finding.ok(f"{sum(row[1] == 'Pass' for row in diag.results)} tests pass")


@check("deep.nvbandwidth", "nvbandwidth was run", tags={"gpu", "deep"}, without=(Bandwidth,), stage="preview")
def nvbandwidth(told: NvBandwidth, bandwidth: Bandwidth | None) -> Iterator[Finding]:
    """The sums nvbandwidth prints, beside what we measured.

    Why: two programs that agree leave little doubt about a number.
    Fix disturbs: nothing.
    Judges: Never a FAIL: it shows the sums beside what nodedoctor measured.
    Fix: Compare both numbers; bandwidth.host and bandwidth.p2p judge them.
    Threshold: No threshold.
    False positives: None known.
    """
    ours = [pair.read_gbytes_s for pair in bandwidth.pairs if pair.read_gbytes_s] if bandwidth else []
    beside = f"; ours between GPUs: {mean(ours):.0f} GB/s on average" if ours else ""
    said = [Evidence("nvbandwidth", f"SUM {test} {value}") for test, value in told.sums_gbytes_s.items()]
    yield Finding.info(f"{len(said)} tests ran{beside}", evidence=said)


@check(
    "deep.nccl-tests",
    "all_reduce_perf computes rightly",
    tags={"gpu", "deep"},
    without=(Collective,),
    stage="preview",
)
def nccl_tests(told: NcclTests, job: Collective | None) -> Iterator[Finding]:
    """Bus bandwidth and wrong results of nccl-tests, beside those of our own job.

    Why: it is what vendors and clouds compare with; a wrong result ruins every model.
    Fix disturbs: every job on the node while it is out of service.
    Judges: FAIL when all_reduce_perf reports wrong results or an error.
    Fix: Take the node out of service and find the GPU with bandwidth.p2p and compute.gemm.
    Threshold: No threshold: any wrong result is a fault.
    False positives: None known.
    """
    largest = max(told.busbw_gbytes_s)
    said = [Evidence("all-reduce-perf", f"{size} bytes: {v} GB/s") for size, v in told.busbw_gbytes_s.items()]
    if told.wrong:
        yield Finding.fail(f"{told.wrong} results were wrong", evidence=said, fix=WRONG)
        return
    speeds = [
        one.busbw_gbytes_s for one in (job.runs[0].operations if job else ()) if one.name == "all_reduce"
    ]
    beside = f"; ours at most {max(speeds):.0f}" if speeds else ""
    yield Finding.info(
        f"busbw {told.busbw_gbytes_s[largest]} GB/s at {largest >> 20} MiB{beside}", evidence=said
    )
