"""What NVIDIA's tests print is read and judged; a tool that is not installed is a skip."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.measured.deep import dcgm, nccl_tests, wrong_results
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.measured.deep_tools import DcgmDiag, NcclTests, NvBandwidth
from nodedoctor.intake.split import split
from nodedoctor.model import Observation, Outcome, Status, Unseen

DIAG = """\
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
| Software                  | Pass                                           |
| PCIe                      | Fail - GPU 3: bandwidth too low                |
| GPU Memory                | Skip - All                                     |
"""
NVB = """\
Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    386.10
 1    385.90       N/A

SUM device_to_device_memcpy_read_ce 772.00
"""
PERF = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong
    67108864  16777216  float  sum  -1  412.1  162.84  284.97  {wrong}  410.9  163.32  285.81  0
"""


def test_dcgm_fails():
    told = DcgmDiag.parse(Observation("dcgmi-diag", text=DIAG))
    (finding,) = dcgm(told)
    assert finding.status is Status.FAIL and finding.subject == "test:PCIe" and "GPU 3" in finding.summary


def table(category: str, name: str, result: str, words: list[str]) -> str:
    rows = [f"|-----  {category}  -------+--------------------------|", f"| {name:<25} | {result:<46} |"]
    rows += [f"| {'Error' if not at else '':<25} | {line:<46} |" for at, line in enumerate(words)]
    other = [
        "+-----  Stress  ------------+--------------------------+",
        f"| {'Targeted Stress':<25} | {'Pass':<46} |",
    ]
    return "\n".join([*DIAG.splitlines()[:3], *rows, *other]) + "\n"


@pytest.mark.parametrize("as_json", [False, True])
@given(
    st.sampled_from(["Deployment", "Integration", "Hardware", "Stress"]),
    st.sampled_from(
        ["Persistence Mode", "Denylist", "Inforom", "Page Retirement/Row Remap", "pcie", "memory"]
    ),
    st.sampled_from(["Pass", "Fail", "Warn", "Skip"]),
    st.lists(st.sampled_from(["Persistence mode for GPU 0 is off", "run nvidia-smi -pm 1"]), max_size=2),
)
def test_what_dcgm_says_of_software_is_no_reason_to_replace_a_gpu(
    as_json: bool, category: str, name: str, result: str, words: list[str]
):
    """DCGM's own words stand in the finding."""
    text = table(category, name, result, words)
    if as_json:
        told_of = [{"status": result, "gpu_id": "0", "warnings": [{"warning": " ".join(words)}]}]
        test = {"name": name, "results": told_of}
        text = json.dumps(
            {"DCGM GPU Diagnostic": {"test_categories": [{"category": category, "tests": [test]}]}}
        )
    told = DcgmDiag.parse(Observation("dcgmi-diag", text=text))
    assert isinstance(told, DcgmDiag)
    (finding,) = dcgm(told)
    if result == "Pass" and words and not as_json:
        name, result = category, "Fail"  # an Error row below a test that passed is of none that is named
    deployed = category == "Deployment" and name not in ("Inforom", "Page Retirement/Row Remap", "memory")
    hard = result == "Fail" and not deployed
    soft = result == "Warn" or (result == "Fail" and deployed)
    assert finding.status is (Status.FAIL if hard else Status.WARN if soft else Status.PASS)
    if hard or soft:
        assert finding.fix is not None and finding.fix.action == ("config" if deployed else "drain")
        assert " ".join(words) in finding.summary


@pytest.mark.parametrize("version", [3, 4])
@given(
    st.permutations(["Pass", "Fail", "Warn", "Skip"]).flatmap(
        lambda kinds: st.tuples(st.just(kinds), st.integers(1, 4))
    ),
    st.booleans(),
)
def test_the_worst_row_of_a_test_counts(version: int, drawn: tuple[list[str], int], has_message: bool):
    """DCGM 3 lists GPUs by result, DCGM 4 says Pass of the test and then one row for each GPU."""
    kinds = drawn[0][: drawn[1]]
    rows = [f"{kind} - GPU: {gpu}" for gpu, kind in enumerate(kinds)]
    if version == 4:
        rows = ["Pass", *(f"GPU{gpu}: {kind}" for gpu, kind in enumerate(kinds))]
    worst = min(kinds, key=["Fail", "Warn", "Pass", "Skip"].index)
    bad = worst in ("Fail", "Warn")
    lines = [f"| {'GPU Memory' if not at else '':<25} | {row:<46} |" for at, row in enumerate(rows)]
    if has_message and bad:
        of_gpu = f": GPU{kinds.index(worst)}" if version == 4 else ""
        lines.append(f"| {f'Warning{of_gpu}':<25} | it is hot |")
    heading = ["+-----  Hardware  ----------+--------------------------+"]
    text = "\n".join([*DIAG.splitlines()[:3], *heading, *lines])
    told = DcgmDiag.parse(Observation("dcgmi-diag", text=text))
    assert isinstance(told, DcgmDiag)
    (finding,) = dcgm(told)
    assert finding.status is {"Fail": Status.FAIL, "Warn": Status.WARN}.get(worst, Status.PASS)
    if bad:
        gpu = kinds.index(worst)
        assert (f"GPU {gpu}" if version == 3 else f"GPU{gpu}") in finding.summary
        assert ("it is hot" in finding.summary) is has_message


def test_nvbandwidth_sums():
    told = NvBandwidth.parse(Observation("nvbandwidth", text=NVB))
    assert told.sums_gbytes_s == {"device_to_device_memcpy_read_ce": 772.0}


OUT_OF_BOUNDS = "# Out of bounds values : {0}\n# Avg bus bandwidth    : 284.9\n"


@pytest.mark.parametrize("rows", [PERF, PERF.replace("float  sum  -1", "bfloat16  none  0")])
@pytest.mark.parametrize(
    ("outside", "inside", "end", "wrong"),
    [
        ("0", "0", "0 OK", 0),
        ("0", "N/A", "0 OK", 0),
        ("N/A", "N/A", "0 OK", 0),
        ("3e-07", "2e-07", "0 OK", 0),
        ("7", "0", "0 OK", 7),
        ("0", "1288", "0 OK", 1288),
        ("1", "1.288e+06", "2 FAILED", 1288001),
        ("0", "0", "2 FAILED", 2),
    ],
)
def test_a_wrong_result_of_any_collective_fails(rows, outside, inside, end, wrong):
    text = rows.replace("{wrong}", outside).replace("285.81  0", f"285.81  {inside}")
    text += OUT_OF_BOUNDS.format(end)
    told = NcclTests.parse(Observation("all-reduce-perf", text=text))
    if isinstance(told, Unseen):
        assert not wrong and "another collective" in told.note
        return
    assert told.wrong == wrong
    (finding,) = wrong_results(told)
    assert finding.status is (Status.FAIL if wrong else Status.PASS)
    assert all(row in text for row in told.wrong_rows)


def test_rates_of_all_reduce_perf_are_read_beside_wrong_results():
    told = NcclTests.parse(Observation("all-reduce-perf", text=PERF.format(wrong="7")))
    assert told.busbw_gbytes_s == {67108864: 284.97}
    assert [finding.status for finding in nccl_tests(told, None, None)] == [Status.PASS]


@pytest.mark.parametrize("end", ["2 FAILED", "0 OK"])
def test_the_last_lines_of_nccl_tests_are_enough_for_a_fault(end):
    text = "the run:\n\n" + OUT_OF_BOUNDS.format(end)
    assert [piece.shape.probe for piece in split(text).pieces] == (
        ["all-reduce-perf"] if "FAILED" in end else []
    )


def run_of(gpus: int, size: int, busbw: float) -> NcclTests:
    ranks = "".join(
        f"#  Rank {n:2} Group  0 Pid 77 on gpu-01 device {n:2} [0x1b] NVIDIA\n" for n in range(gpus)
    )
    row = f"{size:12} {size // 4} float  sum  -1  412.1  162.84  {busbw}  0  410.9  163.32  {busbw}  0\n"
    told = NcclTests.parse(Observation("all-reduce-perf", text=f"NCCL version 2.27.7+cuda12.9\n{ranks}{row}"))
    assert isinstance(told, NcclTests) and (told.gpus, told.nccl) == (gpus, "2.27.7+cuda12.9")
    return told


@pytest.mark.parametrize(
    ("model", "gpus", "size", "busbw", "status"),
    [
        ("H100 SXM5 80GB", 8, 16 << 30, 476.0, Status.PASS),
        ("H100 SXM5 80GB", 8, 16 << 30, 244.0, Status.FAIL),
        ("H200 SXM5 141GB", 8, 16 << 30, 425.0, Status.FAIL),
        ("H100 SXM5 80GB", 8, 8 << 30, 476.0, Status.PASS),
        ("H100 SXM5 80GB", 8, 8 << 30, 370.0, Status.PASS),
        ("H100 SXM5 80GB", 8, 8 << 30, 296.0, Status.WARN),
        ("H100 SXM5 80GB", 8, 2 << 30, 296.0, Status.WARN),
        ("H100 SXM5 80GB", 8, 8 << 30, 38.0, Status.FAIL),
        ("H100 SXM5 80GB", 8, 1 << 30, 38.0, Status.PASS),
        ("H100 SXM5 80GB", 4, 8 << 30, 38.0, Status.PASS),
    ],
)
def test_all_reduce_perf_against_the_floor_of_its_board(model, gpus, size, busbw, status):
    (finding,) = nccl_tests(run_of(gpus, size, busbw), None, Board(model, None, gpus))
    assert finding.status is status and "NCCL 2.27.7+cuda12.9" in finding.summary
    shorter = gpus == 8 and 2 << 30 <= size < 16 << 30
    assert ("the floor is 460 of eight H100 on NVSwitch from 16 GiB on" in finding.summary) is shorter


def pasted_run(nodes: int, busbw: float, network: str = "", model: str = "NVIDIA H200") -> NcclTests:
    """Four GPUs of each node, and what NCCL prints between the heading and the rows."""
    ranks = "".join(
        f"#  Rank {n:2} Group  0 Pid 77 on hgx{n // 4} device {n % 4} [0x1b] {model}\n"
        for n in range(4 * nodes)
    )
    lines = f"hgx0:77:91 [0] NCCL INFO Using network {network}\n" if network else ""
    row = f"{1 << 32:12} {1 << 30} float  sum  -1  412.1  62.84  {busbw}  0  410.9  63.32  {busbw}  0\n"
    (piece,) = split(f"# nThread 1 nGpus 1\n{ranks}{lines}{row}").pieces
    tests = NcclTests.parse(Observation("all-reduce-perf", text=piece.text))
    assert isinstance(tests, NcclTests)
    return tests


@pytest.mark.parametrize(
    ("tests", "status", "words"),
    [
        (pasted_run(3, 4.1, "Socket"), Status.WARN, "Using network Socket"),
        (pasted_run(3, 4.1, "IB"), Status.WARN, "a path is broken"),
        (pasted_run(2, 4.1), Status.WARN, "a path is broken"),
        (pasted_run(2, 176.0, "IB"), Status.PASS, "no floor"),
        (pasted_run(2, 4.1, "Socket", "NVIDIA L40S"), Status.PASS, "no floor"),
        (pasted_run(2, 190.0, "IB", "NVIDIA GH200 480GB"), Status.PASS, "no floor"),
    ],
)
def test_boards_that_do_not_fill_one_port_between_nodes_are_not_on_rdma(
    tests: NcclTests, status: Status, words: str
):
    (finding,) = nccl_tests(tests, None, None)
    assert finding.status is status and words in finding.summary


@pytest.mark.parametrize(
    ("model", "gpus", "size"),
    [
        ("H100 SXM5 80GB", 4, 16 << 30),
        ("H100 SXM5 80GB", 8, 1 << 30),
        ("H100 NVL 94GB", 8, 16 << 30),
        ("GH200 144GB HBM3e", 8, 16 << 30),
    ],
)
def test_no_board_borrows_the_floor_of_another(model, gpus, size):
    (finding,) = nccl_tests(run_of(gpus, size, 12.0), None, Board(model, None, gpus))
    assert finding.status is Status.PASS and "no floor is known" in finding.summary


@pytest.mark.parametrize("fact", [DcgmDiag, NvBandwidth, NcclTests])
def test_not_installed_or_garbage(fact):
    absent = fact.parse(Observation("tool", Outcome.MISSING))
    assert isinstance(absent, Unseen) and not absent.applies
    garbage = fact.parse(Observation("tool", text="| Pass |\nSUM x ..\n 1 1 float sum -1 . . . 0"))
    assert isinstance(garbage, Unseen) and garbage.applies


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("The memory test of this card found mismatch", "es in 3 of 8 runs", "found mismatches in 3"),
        ("The memory test found mismatches", "in 3 of 8 runs", "mismatches in 3"),
        ("The memory test of this card has mismatches", " in 3 of 8 runs", "mismatches in 3"),
    ],
)
def test_a_word_that_the_table_of_dcgmi_breaks_is_joined(first: str, second: str, words: str):
    first = first.rjust(46, "-") if "card" in first else first
    rows = "| Memory                    | Fail - GPU: 2                                  |\n"
    rows += f"| Warning: GPU 2            | {first:46} |\n|                           | {second:46} |\n"
    diag = DcgmDiag.parse(Observation("dcgmi-diag", text=rows))
    assert isinstance(diag, DcgmDiag) and words in diag.results[0].words
