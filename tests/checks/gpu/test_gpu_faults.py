"""One fault in one GPU of the fake NVML, asked by the real child: one check turns, the right GPU is named."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import smi_texts
from fakes import build_nvml, nvml_env, write_config
from fakes.tree import nvidia_tree
from recorded import alarms, driver_files, machine, mesh, nvml, pci, replay, services, topo

from nodedoctor.declare.registry import Options
from nodedoctor.engine.session import Request, Session
from nodedoctor.model import Report, Status

Fake = Callable[..., dict[str, str]]
BUSY: dict[str, object] = {"utilization": 100, "clock_sm": 1980, "power_draw": 640, "pstate": 0, "reasons": 4}

FAULTS: dict[str, tuple[dict[str, object], str, str, str]] = {
    # what the fake tells, the check that turns, its status, the action of its fix
    "row remap pending": ({"gpu3.remap_pending": 1}, "memory.remap", "fail", "reset-gpu"),
    "row remap failed": ({"gpu3.remap_failure": 1}, "memory.remap", "fail", "replace"),
    "spare rows nearly exhausted": ({"gpu3.banks": "2500,40,15,4,1"}, "memory.remap", "warn", "investigate"),
    "page retirement pending": ({"gpu3.retired_pages_pending": 1}, "memory.remap", "fail", "reset-gpu"),
    "uncorrected ECC error": ({"gpu3.ecc_volatile_uncorrectable": 1}, "memory.ecc", "fail", "reset-gpu"),
    "ECC off": ({"gpu3.ecc_mode": 0}, "memory.ecc", "warn", "config"),
    "a link at half its rate": ({"gpu3.link4.speed_mbytes_s": 13281}, "nvlink.speed", "warn", "reset-gpu"),
    "many corrected errors": (
        {"gpu3.ecc_aggregate_dram_correctable": 30_000_000},
        "memory.ecc",
        "warn",
        "investigate",
    ),
    "16 of 18 links": ({"gpu3.link4": "down", "gpu3.link11": "down"}, "nvlink.links", "fail", "reset-gpu"),
    "fabric registration failed": (
        {"gpu3.fabric_status": 23},
        "fabric.state",
        "fail",
        "restart-service",
    ),
    "fabric in progress": ({"gpu3.fabric_state": 2}, "fabric.state", "fail", "restart-service"),
    "hardware slowdown": ({"gpu3.reasons": 0x48}, "thermal.throttle", "fail", "investigate"),
    "power brake": ({"gpu3.reasons": 0x88}, "thermal.throttle", "fail", "drain"),
    "software thermal slowdown": ({"gpu3.reasons": 0x20}, "thermal.throttle", "warn", "investigate"),
    "too hot": ({"gpu3.temperature": 91, "gpu3.t_limit_margin": -3}, "thermal.gpu", "fail", "investigate"),
    "power limit lowered": ({"gpu3.power_limit": 500}, "power.limit", "warn", "config"),
    "applications clock lowered": ({"gpu3.clock_app_graphics": 1200}, "clock.limits", "warn", "config"),
    "clock outlier": ({"gpu3.clock_sm": 1200}, "clock.outlier", "warn", "investigate"),
    "PCIe x8": ({"gpu3.pcie_width": 8}, "pcie.width", "fail", "drain"),
    "PCIe generation 1 under load": ({"gpu3.pcie_generation": 1}, "pcie.speed", "fail", "drain"),
    "no peer access": ({f"p2p.{i}-3": 4 for i in range(8)}, "p2p.status", "fail", "investigate"),
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Report]:
    """A node of eight H100 under load, told otherwise where a test wants it: the real child, every check."""
    folder = tmp_path_factory.mktemp("faults")
    library = build_nvml(folder)
    around = {
        "pci": pci(8, "2330", ("22a3",) * 4),
        "driver-files": driver_files(),
        "machine": machine(),
        "services": services("nvidia-persistenced", "nvidia-fabricmanager"),
    }

    def asked(**told: object) -> Report:
        env = nvml_env(library, write_config(folder / "nvml.conf", {**BUSY, **told}))
        return replay(folder / "node", {**around, "nvml": nvml(env)})

    return asked


@pytest.fixture(scope="module")
def healthy(node: Callable[..., Report]) -> Report:
    """The same node without a fault."""
    return node()


def statuses(report: Report) -> dict[str, str]:
    return {result.check: result.status.value for result in report.results}


def test_the_node_without_a_fault_has_none(healthy: Report):
    assert alarms(healthy) == []
    judged = {"memory.ecc", "memory.remap", "thermal.gpu", "thermal.throttle", "power.limit", "clock.limits"}
    judged |= {"clock.outlier", "pcie.width", "pcie.speed", "p2p.status", "nvlink.links", "nvlink.speed"}
    judged |= {"fabric.state", "driver.mode"}
    assert {check for check in judged if statuses(healthy)[check] != "pass"} == set()


@pytest.mark.sampled(7)
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_turns_one_check(node: Callable[..., Report], healthy: Report, fault: str):
    told, check, status, action = FAULTS[fault]
    report = node(**told)
    before, after = statuses(healthy), statuses(report)
    assert {name: now for name, now in after.items() if now != before[name]} == {check: status}, alarms(
        report
    )
    result = next(result for result in report.results if result.check == check)
    (found,) = (finding for finding in result.findings if finding.status.value in ("warn", "fail"))
    assert "gpu:3" in f"{found.subject} {found.summary}"
    assert found.evidence and found.fix is not None
    assert found.fix.action == action
    assert found.fix.commands and found.fix.disturbs and check in found.fix.verify


def test_whoever_cannot_replace_a_gpu_is_told_what_to_write(node: Callable[..., Report]):
    report = node(**{"gpu3.remap_failure": 1})
    result = next(result for result in report.results if result.check == "memory.remap")
    fix = result.worst.fix
    assert fix is not None
    for word in ("1655022005473", "GPU-00000000-0000-0000-0000-000000000003", "0000:5d:00.0", "cloud"):
        assert word in fix.text
    assert any("1655022005473" in evidence.text for evidence in result.worst.evidence)


def test_sram_over_nvidias_own_threshold_is_a_replacement(fake_nvml: Fake, tmp_path: Path):
    worn = {"gpu1.ecc_aggregate_sram_uncorrectable": 7, "driver": "535.183.01"}
    report = replay(tmp_path, {"nvml": nvml(fake_nvml(worn))})
    (alarm,) = alarms(report)
    assert "memory.ecc@gpu:1" in alarm and "SRAM" in alarm


def test_an_exceeded_threshold_is_said_before_what_a_reset_clears(tmp_path: Path):
    """A reset for errors since driver load is too little where the threshold asks for another GPU."""
    errors = {
        "Volatile": {
            "SRAM Uncorrectable Parity": "0",
            "SRAM Uncorrectable SEC-DED": "6",
            "DRAM Uncorrectable": "0",
        }
    }
    for exceeded, action, words in (
        ("Yes", "replace", "exceeded; 6 uncorr"),
        ("No", "reset-gpu", "6 in SRAM"),
    ):
        past = {
            "SRAM Uncorrectable Parity": "0",
            "SRAM Uncorrectable SEC-DED": "2",
            "SRAM Threshold Exceeded": exceeded,
        }
        bus = "00000000:BA:00.0"
        about = {
            "Product Name": "NVIDIA H100 80GB HBM3",
            "PCI": {"Bus Id": bus},
            "ECC Errors": {**errors, "Aggregate": past},
        }
        report = replay(tmp_path, {"nvidia-smi-q": smi_texts.q([smi_texts.q_gpu(bus, about)])})
        (finding,) = [
            finding
            for result in report.results
            for finding in result.findings
            if result.check == "memory.ecc" and finding.status is Status.FAIL
        ]
        assert words in finding.summary and finding.fix and finding.fix.action == action
        assert ("no spare rows" in finding.fix.text) is (exceeded == "No")


ODD = {
    "one GPU without NVLink": (lambda i, j: "SYS" if 5 in (i, j) else "NV18", ["gpu:5"]),
    "one pair with fewer links": (lambda i, j: "NV16" if {i, j} == {2, 6} else "NV18", ["pair:2-6"]),
    "one direction": (lambda i, j: "NV17" if (i, j) == (1, 0) else "NV18", ["pair:0-1"]),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_cell_or_row_of_the_matrix_is_named(name: str, tmp_path: Path):
    token, subjects = ODD[name]
    cells = [[token(i, j) for j in range(8)] for i in range(8)]
    report = replay(tmp_path, {"nvidia-smi-topo": topo(cells)})
    result = next(result for result in report.results if result.check == "topo.matrix")
    assert [(f.status.value, f.subject) for f in result.findings] == [
        ("fail", subject) for subject in subjects
    ]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("links", range(1, 19))
@pytest.mark.parametrize("alone", [True, False])
def test_a_number_of_links_that_no_board_has_is_told_also_of_one_row(links: int, alone: bool, tmp_path: Path):
    """Wired without a switch, GPUs have few links to each other."""
    cells = [[f"NV{links}" for _ in range(4)] for _ in range(4)]
    text = topo(cells)
    if alone:
        text = "".join(line for line in text.splitlines(True) if line.startswith("GPU2\t"))
    report = replay(tmp_path, {"nvidia-smi-topo": text})
    result = next(result for result in report.results if result.check == "topo.matrix")
    known = links <= 6 or links in (8, 12, 18)
    assert [f.subject for f in result.findings if f.status.value in ("warn", "fail")] == (
        [] if known else ["gpu:2"] if alone else [""]
    )
    assert any(f.subject == "topo:rows" for f in result.findings) == alone


def test_a_board_whose_nvlinks_are_all_missing(fake_nvml: Fake, tmp_path: Path):
    report = replay(tmp_path, {"nvml": nvml(fake_nvml()), "nvidia-smi-topo": topo(mesh(8, "SYS"))})
    assert [alarm for alarm in alarms(report) if "topo.matrix" in alarm] == [
        "FAIL topo.matrix@: no pair is NV18 or NV6 on HGX H100/H200 8-GPU: SYS"
    ]


def test_modules_that_report_no_nvlink_fail_alone_and_together(fake_nvml: Fake, tmp_path: Path):
    def failed(told: dict[str, object], virtual: bool) -> list[str]:
        probes = {"nvml": nvml(fake_nvml(told)), "pci": pci(8, "2330", ("22a3",) * 4)}
        report = replay(tmp_path, {**probes, "machine": machine(virtual=virtual)})
        return [alarm.split(":")[1] for alarm in alarms(report) if alarm.startswith("FAIL nvlink.links@gpu:")]

    assert failed({"gpu5.links": 0}, virtual=True) == ["5"]
    assert failed({"links": 0}, virtual=False) == [str(index) for index in range(8)]
    # A hypervisor, or confidential computing, takes NVLink from all.
    assert failed({"links": 0}, virtual=True) == []
    assert failed({"links": 0, "confidential_compute": 1}, virtual=False) == []


@pytest.mark.parametrize(("rc", "status"), [(0, "skip"), (None, "unknown")])
def test_nvidia_smi_that_lists_no_link_and_succeeds_says_that_there_is_none(
    rc: int | None, status: str, tmp_path: Path
):
    """On guests with a virtual GPU `nvidia-smi nvlink -s` prints nothing; nor does a paste of nothing."""
    (tmp_path / "probes").mkdir()
    probes = [{"name": "nvidia-smi-nvlink", "outcome": "ok", "rc": rc}]
    manifest = json.dumps({"schema": "nodedoctor.snapshot/1", "probes": probes})
    (tmp_path / "manifest.json").write_text(manifest)
    (tmp_path / "probes" / "nvidia-smi-nvlink.txt").write_text("")
    report = asyncio.run(Session(Request(replay=tmp_path)).diagnosis().run())
    assert statuses(report)["nvlink.links"] == status


def test_a_gpu_whose_rail_is_gone(tmp_path: Path):
    text = topo(mesh(8, "NV18"), nics=7)  # the eighth GPU has none near it
    (alarm,) = alarms(replay(tmp_path, {"nvidia-smi-topo": text}))
    assert alarm.startswith("WARN topo.nic-affinity@gpu:7")


def test_a_display_adapter_beside_a_board_is_no_odd_gpu(tmp_path: Path):
    cells = [["SYS" if 3 in (i, j) else "NV4" for j in range(5)] for i in range(5)]
    assert alarms(replay(tmp_path, {"nvidia-smi-topo": topo(cells)})) == []


def test_what_is_expected_is_held_against_links(fake_nvml: Fake, tmp_path: Path):
    said = nvml(fake_nvml({"gpus": 1, "pcie_width": 8, "pcie_generation_max": 4, "links": 16}))
    assert alarms(replay(tmp_path, {"nvml": said}, {"nvlinks": "16", "pcie": "4x8"})) == []
    told = alarms(replay(tmp_path, {"nvml": said}, {"nvlinks": "18", "pcie": "5x16"}))
    assert [alarm.split(":")[0] for alarm in told] == [
        "FAIL nvlink.links@gpu",
        "FAIL pcie.speed@gpu",
        "FAIL pcie.width@gpu",
    ]


@pytest.mark.slow
def test_a_live_node_is_asked_once_and_judged_the_same(
    fake_nvml: Fake, tmp_path: Path, healthy: Report, monkeypatch: pytest.MonkeyPatch
):
    for name, value in fake_nvml({**BUSY, "gpu3.remap_pending": 1}).items():
        monkeypatch.setenv(name, value)
    root = str(nvidia_tree(tmp_path / "tree"))
    words = ("memory", "thermal", "clock", "nvlink", "p2p")
    report = asyncio.run(
        Session(Request(words=words, preview=True, options=Options(root=root))).diagnosis().run()
    )
    assert alarms(report) == ["FAIL memory.remap@gpu:3: row remap pending, needs a GPU reset"]
    asked = {seen.probe: seen.outcome.value for seen in report.observations}
    assert asked["nvml"] == asked["nvml-growth"] == "ok"
    assert asked["nvidia-smi-topo-p2p"] == asked["nvidia-smi-nvlink"] == "skipped"
    assert statuses(report)["nvlink.errors"] == statuses(report)["memory.growth"] == "pass"


LIKE = [
    name
    for name, (_, check, _, _) in FAULTS.items()
    if check not in ("clock.outlier", "p2p.status", "power.limit")
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fault", LIKE)
def test_the_same_fault_of_all_gpus_is_one_cause(node: Callable[..., Report], fault: str):
    told, check, status, _ = FAULTS[fault]
    report = node(
        **{key.replace("gpu3", f"gpu{gpu}"): value for key, value in told.items() for gpu in range(8)}
    )
    (cause,) = report.causes
    assert cause.id == f"{check}@gpu:0" and cause.status.value == status
    assert cause.headline.startswith("all 8 GPUs: ") and cause.action != "replace-node"
    assert cause.subjects == tuple(f"gpu:{gpu}" for gpu in range(8))


@pytest.mark.slow
def test_two_faults_of_two_gpus_are_two_causes(node: Callable[..., Report]):
    for one, other in itertools.pairwise(LIKE):
        first, second = FAULTS[one], FAULTS[other]
        elsewhere = {key.replace("gpu3", "gpu5"): value for key, value in second[0].items()}
        report = node(**first[0], **elsewhere)
        assert {cause.id for cause in report.causes} == {f"{first[1]}@gpu:3", f"{second[1]}@gpu:5"}


@pytest.mark.parametrize("code", [15, 4, 16, 21], ids=["lost", "denied", "reset", "power"])
def test_a_gpu_that_cannot_be_opened_is_one_cause(node: Callable[..., Report], code: int):
    report = node(**{"gpu3.handle_error": code})
    (cause,) = (cause for cause in report.causes if cause.status.value == "fail")
    assert cause.id == "driver.answers@gpu:3"
    assert any(id.startswith("driver.gpus-present@pci:") for id in cause.explains)
