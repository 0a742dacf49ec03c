"""What was measured and then recorded has its proof there: each quote and reading is in the recording."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from recorded import replay

from nodedoctor.engine import evidence
from nodedoctor.model import Observation, Report

JOB = {"ranks": 4, "backend": "nccl", "ok": True, "setting": "", "errors": {}, "waiting": {}, "wrong": []}
WORKS = {
    **JOB,
    "operations": [
        {"operation": "all_reduce", "bytes": 1048576, "busbw_gbytes_s": 96.5},
        {"operation": "all_reduce", "bytes": 268435456, "busbw_gbytes_s": 410.2},
    ],
}
LOG = """\
node:7:9 [0] NCCL INFO Bootstrap : Using ens1f0:10.0.0.4<0>
node:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct
node:7:9 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-x to 9637892 bytes
"""
FAILS = {
    **JOB,
    "ok": False,
    "errors": {"0": "RuntimeError: NCCL error: unhandled system error\nlast error: x"},
    "waiting": {"1": "all_reduce of 8 bytes"},
    "log": LOG,
}
WITHOUT_SHM = [
    {**JOB, "setting": "NCCL_SHM_DISABLE=1"},
    {**JOB, "ok": False, "setting": "NCCL_P2P_DISABLE=1"},
]
GEMM = [{"index": index, "name": "NVIDIA H100", "tflops": 700.0, "sums": [42, 42]} for index in range(4)]
STEPS = [
    {"step": "begin", "what": "init", "at": 0.0},
    {"step": "init", "gpus": 2},
    {"step": "gpu", "index": 0},
    {"step": "gpu", "index": 1},
    {"step": "memory", "index": 0, "gbytes_s": 2900.0},
    {"step": "memory", "index": 1, "gbytes_s": 1450.0},
    {"step": "host", "index": 0, "kind": "near", "node": 0, "h2d_gbytes_s": 54.0, "d2h_gbytes_s": 52.0},
    {"step": "host", "index": 1, "kind": "near", "node": 0, "h2d_gbytes_s": 5.0, "d2h_gbytes_s": 5.2},
    {
        "step": "pair",
        "source": 0,
        "target": 1,
        "access": True,
        "read_gbytes_s": 10.0,
        "wrong": {"offset": 4096},
    },
    {"step": "pair", "source": 1, "target": 0, "access": True, "read_gbytes_s": 10.0},
    {"step": "end", "seconds": 4.0},
]
LOOP = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    93012            0.00               190.40 \t\t     0.046506
"""
DIAG = (
    "| Software                  | Pass |\n| PCIe                      | Fail - GPU 3: bandwidth too low |\n"
)
BETWEEN = """\
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    386.10
 1    385.90       N/A

SUM device_to_device_memcpy_read_ce 772.00
"""
PERF = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong
    67108864  16777216  float  sum  -1  412.1  162.84  284.97  7  410.9  163.32  285.81  0
"""
PING = "4 packets transmitted, 0 received, 100% packet loss, time 3062ms\n"
PEERS = {
    "port": 29500,
    "port_named": True,
    "peers": {
        "node-2": {"addresses": ["10.0.0.2"], "tcp": "ETIMEDOUT", "finished": True, "ping": {"text": PING}},
        "node-3": {"addresses": ["10.0.0.3"], "tcp": "open", "finished": True},
    },
}


def job(*runs: Mapping[str, object]) -> str:
    return json.dumps({"torch": "2.9.0", "runs": runs, "seconds": 9.5})


NODES: Mapping[str, tuple[Mapping[str, str], Mapping[str, int]]] = {
    "a job that works": ({"collective": job(WORKS)}, {"collective.smoke": 1}),
    "a job that fails": (
        {"collective": job(FAILS), "collective-isolate": job(*WITHOUT_SHM)},
        {"collective.smoke": 3, "collective.isolate": 2},
    ),
    "a slow GPU": (
        {"gemm": json.dumps({"gpus": [*GEMM[:3], {**GEMM[3], "tflops": 350.0}]})},
        {"compute.gemm": 1},
    ),
    "slow memory and a slow pair": (
        {"bandwidth-deep": json.dumps({"steps": STEPS}).replace("}, {", "},\n{").replace("[{", "[\n{")},
        {"bandwidth.memory": 1, "bandwidth.host": 2, "bandwidth.p2p": 1},
    ),
    "a slow rail": ({"ib-write-bw": json.dumps({"ports": [{"port": "mlx5_0/1", "text": LOOP}]})}, {}),
    "tools of the vendor": (
        {"dcgmi-diag": DIAG, "nvbandwidth": BETWEEN, "all-reduce-perf": PERF},
        {"deep.dcgm": 1, "deep.nvbandwidth": 1, "deep.wrong-results": 1},
    ),
    "a peer that is silent": ({"peers": json.dumps(PEERS)}, {"net.peers": 3}),
}
"""Recordings, and how many pieces of evidence the findings of a check have at least."""


@pytest.mark.parametrize("name", NODES)
def test_each_measurement_is_proven_by_the_recording(tmp_path: Path, name: str) -> None:
    probes, wanted = NODES[name]
    report = replay(tmp_path / "node", probes, deep=True)
    for check, least in wanted.items():
        assert _pieces(report, check) >= least, (check, _said(report, check))
    for result in report.results:
        for one in (piece for finding in result.findings for piece in finding.evidence):
            seen = Observation(one.probe, text=probes[one.probe])
            held = evidence.value_at(seen, one.path) if one.path else seen.text
            assert one.text in held if one.kind == "quote" else held == one.value, (result.check, one)


def _pieces(report: Report, check: str) -> int:
    return sum(len(f.evidence) for result in report.results if result.check == check for f in result.findings)


def _said(report: Report, check: str) -> list[str]:
    return [f.summary for result in report.results if result.check == check for f in result.findings]
