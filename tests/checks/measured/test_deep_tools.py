"""What NVIDIA's tests print is read and judged; a tool that is not installed is a skip."""

import pytest

from checks.measured.deep import dcgm, nccl_tests
from nodedoctor.facts.measured.deep_tools import DcgmDiag, NcclTests, NvBandwidth
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


def test_nvbandwidth_sums():
    told = NvBandwidth.parse(Observation("nvbandwidth", text=NVB))
    assert told.sums_gbytes_s == {"device_to_device_memcpy_read_ce": 772.0}


@pytest.mark.parametrize(("wrong", "status"), [("0", Status.PASS), ("7", Status.FAIL)])
def test_all_reduce_perf(wrong, status):
    told = NcclTests.parse(Observation("all-reduce-perf", text=PERF.format(wrong=wrong)))
    assert told.busbw_gbytes_s == {67108864: 284.97}
    assert [finding.status for finding in nccl_tests(told, None)] == [status]


@pytest.mark.parametrize("fact", [DcgmDiag, NvBandwidth, NcclTests])
def test_not_installed_or_garbage(fact):
    absent = fact.parse(Observation("tool", Outcome.MISSING))
    assert isinstance(absent, Unseen) and not absent.applies
    garbage = fact.parse(Observation("tool", text="| Pass |\nSUM x ..\n 1 1 float sum -1 . . . 0"))
    assert isinstance(garbage, Unseen) and garbage.applies
