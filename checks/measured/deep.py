"""NVIDIA's own tests, where they are installed: their verdicts and their numbers beside ours."""

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.measured.bandwidth import Bandwidth
from nodedoctor.facts.measured.collective import Collective
from nodedoctor.facts.measured.deep_tools import DcgmDiag, NcclTests, NvBandwidth
from nodedoctor.knowledge.fixes.bandwidth import SYSTEM, WRONG
from nodedoctor.knowledge.floors import Floor, fitting_floors
from nodedoctor.knowledge.gpus import GpuModel, gpu_model
from nodedoctor.model import Evidence, Finding, Fix, quoted_like
from nodedoctor.patterns import regex
from nodedoctor.steps import look
from nodedoctor.wording import count_with_noun

_DIAG = Fix(
    "Read DCGM's report; vendors accept its failures as a reason for RMA.",
    (look("dcgmi diag -r 3 -j"),),
    "drain",
    "every job on the node",
    "nodedoctor deep.dcgm",
    "https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html",
)


_DEPLOYED = Fix(
    "Do what DCGM says: this test is of software and settings, and no reason for RMA.",
    (look("dcgmi diag -r 1 -v"),),
    "config",
    "nothing",
    "nodedoctor deep.dcgm",
    "https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html",
)
_LARGE = 2 << 30
"""Bytes from which a message reaches most of the bandwidth; chosen by us, no external source."""
_HALF, _MOST = 0.5, 0.75
"""Of the floor of longer messages, what those from there on must reach, and what most do; ours."""
_ROWS_SHOWN = 3
"""Rows of the longest messages that are shown; ours."""
_TELLING, _ONE_PORT = 256 << 20, 10.0
"""Bytes from which a collective over few nodes nears its rate, and GB/s that a port of EDR exceeds; ours."""
_NO_RDMA = Fix(
    "See which network NCCL chose (NCCL_DEBUG=INFO): where it says NET/Socket, it sees no RDMA device, or no "
    "plug-in of the cloud. In a container pass /dev/infiniband through.",
    (look("rdma link"), look("ibv_devinfo"), look("env | grep NCCL_"), look("nodedoctor ib env")),
    "config",
    "nothing",
    "nodedoctor ib",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)
_OF_HARDWARE = ("Page Retirement/Row Remap", "Inforom", "memory")
"""Tests that are of a GPU, under the heading Deployment too (NVIDIA/DCGM, dcgmi/Diag.cpp)."""

_MEMORY = regex(r"row remap|uncorrectable|double.bit|\bDBE|retired pages?|inforom", re.IGNORECASE)
"""Words of an error in the place of such a test (NVIDIA/DCGM, dcgmlib/dcgm_errors.h)."""


@check("deep.dcgm", "DCGM diagnostic", tags={"gpu", "deep"})
def dcgm(diag: DcgmDiag) -> Iterator[Finding]:
    """The table of `dcgmi diag -r 2`, or its document (`-j`).

    Why: it tests memory and PCIe under load, and finds faults that no counter shows.
    Fix disturbs: every job on the node while it is drained.
    Judges: FAIL for each test of the diagnostic that failed, WARN for one that ended otherwise, or that is of
    software and settings (Deployment).
    Fix: Follow DCGM's own advice for the failed test; drain the node first.
    Threshold: DCGM's own limits (`dcgmi diag -r 2`).
    False positives: A GPU in use while the test runs.
    """
    bad = [test for test in diag.results if test.result in ("Fail", "Warn")]
    for test in bad:
        evidence = [Evidence("dcgmi-diag", test.quote)] if test.quote else []
        of_hardware = test.name in _OF_HARDWARE or _MEMORY.search(test.words)
        deployed = test.category == "Deployment" and not of_hardware
        judge = Finding.fail if test.result == "Fail" and not deployed else Finding.warn
        words = f": {test.words}" if test.words else ""
        summary = f"{test.name}: {test.result} {test.entities}".strip() + words
        fix = _DEPLOYED if deployed else _DIAG
        yield judge(summary, subject=f"test:{test.name}", evidence=evidence, fix=fix)
    if not bad:
        yield Finding.ok(f"{sum(test.result == 'Pass' for test in diag.results)} tests passed")


@check("deep.nvbandwidth", "nvbandwidth", tags={"gpu", "deep"}, without=(Bandwidth,), stage="preview")
def nvbandwidth(told: NvBandwidth, bandwidth: Bandwidth | None) -> Iterator[Finding]:
    """The totals nvbandwidth prints, next to our own measurement.

    Why: two programs that agree confirm the number.
    Fix disturbs: nothing.
    Judges: Never a FAIL: it shows the sums beside what nodedoctor measured.
    Fix: Compare both numbers; bandwidth.host and bandwidth.p2p judge them.
    Threshold: No threshold.
    False positives: None known.
    """
    ours = [pair.read_gbytes_s for pair in bandwidth.pairs if pair.read_gbytes_s] if bandwidth else []
    beside = f"; ours between GPUs: {sum(ours) / len(ours):.0f} GB/s average" if ours else ""
    evidence = [quoted_like("nvbandwidth", rf"^.*SUM {re.escape(test)}\b.*$") for test in told.sums_gbytes_s]
    yield Finding.info(f"{count_with_noun(len(evidence), 'test')} ran{beside}", evidence=evidence)


_CHOSEN = r"^.*NCCL INFO (?:NET/IB|Using network).*$"
"""Where NCCL says which network it uses."""


@check("deep.wrong-results", "Wrong results of nccl-tests", tags={"gpu", "deep"})
def wrong_results(tests: NcclTests) -> Iterator[Finding]:
    """Results that nccl-tests compared and found wrong, in any collective.

    Why: data that changes on the way between GPUs raises no error, and ruins every model.
    Fix disturbs: every job on the node while it is drained.
    Judges: FAIL when a row counts wrong results, out of place or in place, or the last lines say FAILED.
    Fix: Take the node out of service and find the GPU with bandwidth.p2p and compute.gemm.
    Threshold: Any wrong result is a fault.
    False positives: None known: what was not compared (`-c 0`) says N/A.
    """
    if tests.wrong:
        evidence = [Evidence("all-reduce-perf", row) for row in tests.wrong_rows[:4]]
        summary = f"data corruption: {count_with_noun(tests.wrong, 'wrong result')}"
        yield Finding.fail(summary, evidence=evidence, fix=WRONG)
    else:
        yield Finding.ok("no result was wrong")


def _judge_nodes(tests: NcclTests, model: GpuModel | None, summary: str, evidence: list[Evidence]) -> Finding:
    """Several nodes have no floor; boards with NVLink that do not fill one old port are not on RDMA."""
    boards = model is not None and model.datacentre and model.nvlink_links and not model.nvlink_optional
    largest = max(tests.busbw_gbytes_s)
    summary = f"{summary} over {tests.nodes} nodes"
    if boards and largest >= _TELLING and tests.busbw_gbytes_s[largest] < _ONE_PORT:
        why = "a path is broken, or NCCL uses TCP"
        if tests.network == "Socket":
            why = "NCCL uses TCP (Using network Socket)"
            evidence = [
                quoted_like("all-reduce-perf", _CHOSEN),
                *evidence,
            ]
        summary = f"{summary}, less than one port of 100 Gbit/s carries: {why}"
        lead = f"all_reduce over {tests.nodes} nodes: {tests.busbw_gbytes_s[largest]} GB/s, {why}"
        return Finding.warn(summary, evidence=evidence, fix=_NO_RDMA).led_by(lead)
    return Finding.info(f"{summary}; no floor is known for several nodes", evidence=evidence)


def _judge_shorter(rate: float, floor: Floor, summary: str, evidence: list[Evidence]) -> Finding:
    """Shorter messages than the floor is for: they reach most of it."""
    limit = f"{floor.least:g} of {floor.fabric} from {floor.least_bytes >> 30} GiB on"
    if rate >= floor.least * _MOST:
        return Finding.info(f"{summary}; the floor is {limit}", evidence=evidence)
    judge = Finding.fail if rate < floor.least * _HALF else Finding.warn
    lead = f"all_reduce reaches {rate:g} GB/s, {floor.fabric} {floor.least:g}"
    return judge(f"{summary}, the floor is {limit}", evidence=evidence, fix=SYSTEM).led_by(lead)


@check(
    "deep.nccl-tests",
    "all_reduce_perf (nccl-tests)",
    tags={"gpu", "deep"},
    without=(Collective, Board),
    stage="preview",
)
def nccl_tests(told: NcclTests, job: Collective | None, board: Board | None) -> Iterator[Finding]:
    """Bus bandwidth of nccl-tests, against the floor of this board, next to our own job's.

    Why: no all-reduce of a job between these GPUs is faster than this.
    Fix disturbs: every job on the node while it is drained.
    Judges: FAIL when all_reduce_perf reports less than the floor of this board, WARN for less than three
    quarters of it with shorter messages, and when boards with NVLink do not even fill one port of 100 Gbit/s
    between nodes.
    Fix: Take the node out of service and find the GPU with bandwidth.p2p and compute.gemm.
    Threshold: Floors by model, number of GPUs and message size are rows of the table of floors
    (Azure/azurehpc-health-checks, oracle-quickstart/oci-hpc); other boards have none. Of shorter messages
    from 2 GiB on, half of it fails and three quarters warn (ours).
    False positives: NCCL variables of the shell that switch a path off.
    """
    if not told.busbw_gbytes_s:
        yield Finding.skip("no rate of an all-reduce is in it")
        return
    largest = max(told.busbw_gbytes_s)
    sizes = sorted(told.busbw_gbytes_s, reverse=True)[:_ROWS_SHOWN]
    evidence = [quoted_like("all-reduce-perf", rf"^\s*{size}\s.*$") for size in sizes]
    speeds = [
        operation.busbw_gbytes_s
        for operation in (job.runs[0].operations if job else ())
        if operation.name == "all_reduce" and operation.busbw_gbytes_s is not None
    ]
    beside = f"; ours at most {max(speeds):.0f}" if speeds else ""
    nccl = f", NCCL {told.nccl}" if told.nccl else ""
    summary = f"busbw {told.busbw_gbytes_s[largest]} GB/s at {largest >> 20} MiB{nccl}{beside}"
    devices = gpu_model(told.model)
    model = devices.name if devices else board.model or "" if board else ""
    if told.nodes > 1:
        yield _judge_nodes(told, devices, summary, evidence)
        return
    gates = fitting_floors("all_reduce", model, gpus=told.gpus, size=largest)
    of_larger = fitting_floors("all_reduce", model, gpus=told.gpus) if largest >= _LARGE else []
    if not gates and of_larger:
        yield _judge_shorter(told.busbw_gbytes_s[largest], of_larger[-1], summary, evidence)
    elif not gates and told.network == "Socket" and not told.model:
        evidence = [quoted_like("all-reduce-perf", _CHOSEN), *evidence]
        words = "NCCL uses TCP between nodes; how many these are is not shown"
        yield Finding.unknown("not-visible-here", f"{summary}; {words}", evidence=evidence, fix=_NO_RDMA)
    elif not gates:
        yield Finding.info(f"{summary}; no floor is known for these GPUs and this size", evidence=evidence)
    elif told.busbw_gbytes_s[largest] < gates[-1].least:
        expected = f"{gates[-1].least:g} expected of {gates[-1].fabric}"
        yield Finding.fail(f"{summary}, {expected}", evidence=evidence, fix=SYSTEM)
    else:
        yield Finding.ok(f"{summary}, at least {gates[-1].least:g} expected", evidence=evidence)
