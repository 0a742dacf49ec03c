"""P2P, NVLink, growth, ACS, IOMMU and the fabric manager: parsers on all forms, and their checks."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import smi_texts
from asking import ask, brief, judge, said
from fakes import nvml_env, write_config
from fakes.tree import write
from hypothesis import given
from hypothesis import strategies as st
from recorded import alarms, driver_files, machine, nvml, pci, processes, replay, services

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Options
from nodedoctor.facts.fabric.fabric_manager import FabricManager
from nodedoctor.facts.gpu.board import Board, GraceGpus
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.error_growth import ErrorGrowth, nvml_growth
from nodedoctor.facts.gpu.links.nvlink_smi import nvlink_status, read_links
from nodedoctor.facts.gpu.links.nvlinks import NvLinks
from nodedoctor.facts.gpu.links.p2p import PeerAccess, matrices, topo_p2p
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.pci.config_space import PcieTree, acs_redirects, port_type
from nodedoctor.facts.pci.iommu import Iommu, iommu_files
from nodedoctor.facts.pci.pci import Pci, PciDevice, PciLink
from nodedoctor.model import Observation, Outcome, Unseen

Fake = Callable[..., dict[str, str]]
NO_GPUS = Unseen("missing-tool", "not asked")
MISSING = Observation("nvidia-smi-nvlink", Outcome.MISSING)

# P2P


def p2p(cells: list[list[str]], header: str = "\x1b[4m{}\x1b[0m") -> str:
    names = [f"GPU{i}" for i in range(len(cells))]
    rows = [" " + "\t".join([names[i], *row]) for i, row in enumerate(cells)]
    legend = "Legend:\n\n  X    = Self\n  OK   = Status Ok\n  NS   = Not supported\n"
    return " \t" + header.format("\t".join(names)) + "\n" + "\n".join(rows) + f"\n\n{legend}"


def access(text: str) -> PeerAccess:
    found = PeerAccess.parse(NO_GPUS, said(text, "nvidia-smi-topo-p2p"))
    assert isinstance(found, PeerAccess)
    return found


def grid(count: int, status: Callable[[int, int], str]) -> list[list[str]]:
    return [["X" if i == j else status(i, j) for j in range(count)] for i in range(count)]


def test_every_code_of_a_p2p_matrix_has_nvmls_word():
    text = p2p(
        [["X", "OK", "CNS", "GNS"], ["TNS", "X", "NS", "DR"], ["U", "OK", "X", "OK"], ["OK"] * 3 + ["X"]]
    )
    told = access(text).told("read")
    assert told[0, 1] == "ok" and told[0, 2] == "chipset-not-supported" and told[0, 3] == "gpu-not-supported"
    assert told[1, 0] == "topology-not-supported" and told[1, 3] == "disabled-by-regkey"
    assert told[2, 0] == "unknown" and (0, 0) not in told and len(told) == 12
    blanks = text.replace("\x1b[4m", "").replace("\x1b[0m", "").expandtabs(8)
    assert access(blanks).told("read") == told


def test_several_matrices_are_told_apart_by_their_command_lines():
    one = p2p(grid(2, lambda i, j: "OK"), "{}")
    other = p2p(grid(2, lambda i, j: "NS"), "{}")
    found = access(f"$ nvidia-smi topo -p2p w\n{one}\n$ nvidia-smi topo -p2p n\n{other}")
    assert set(found.told("write").values()) == {"ok"}
    assert set(found.told("nvlink").values()) == {"not-supported"}
    assert brief(judge("p2p.status", found)) == [("pass", "")]


@pytest.mark.parametrize(
    ("cells", "findings"),
    [
        (grid(8, lambda i, j: "OK"), [("pass", "")]),
        (grid(4, lambda i, j: "NS"), [("note", "")]),
        (grid(8, lambda i, j: "OK" if i // 4 == j // 4 else "CNS"), [("note", "")]),
        (grid(8, lambda i, j: "NS" if 3 in (i, j) else "OK"), [("fail", "gpu:3")]),
        (grid(8, lambda i, j: "U" if {i, j} == {1, 6} else "OK"), [("fail", "pair:1-6")]),
        (grid(1, lambda i, j: "OK"), [("skip", "")]),
    ],
    ids=["all", "none", "sockets", "one GPU", "one pair", "single"],
)
def test_peer_access_is_judged_by_what_stands_out(cells: list[list[str]], findings: list[tuple[str, str]]):
    assert brief(judge("p2p.status", access(p2p(cells)))) == findings


# NVLink as text

UUID = "(UUID: GPU-5d1f3c60-0000-0000-0000-000000000000)"


def status(*gpus: str) -> str:
    return "".join(f"GPU {index}: {text}" for index, text in enumerate(gpus))


def listing(name: str, *links: str) -> str:
    return f"{name} {UUID}\n" + "".join(f"\t Link {i}: {link}\n" for i, link in enumerate(links))


def links_of(text: str, errors: str | None = None) -> NvLinks:
    counted = MISSING if errors is None else said(errors, "nvidia-smi-nvlink-errors")
    found = NvLinks.parse(NO_GPUS, said(text, "nvidia-smi-nvlink"), counted)
    assert isinstance(found, NvLinks)
    return found


H100 = "NVIDIA H100 80GB HBM3"
FULL = listing(H100, *["26.562 GB/s"] * 18)
FEWER = listing(H100, *["26.562 GB/s"] * 16)  # and none is said to be down
DARK = "NVML: Unable to retrieve Nvlink information as all links are inActive\n"
MIG = "Nvlink queries are not supported for Devices in MIG mode\n"


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        (status(FULL, FULL), [("pass", "")]),
        (status(FULL, listing(H100, *["26.562 GB/s"] * 16, "<inactive>", "<inactive>")), [("fail", "gpu:1")]),
        (status(listing("NVIDIA H100 NVL", *["26.562 GB/s"] * 12, *["<inactive>"] * 6)), [("pass", "")]),
        (status(*[FEWER] * 8), [("warn", f"gpu:{i}") for i in range(7)]),  # the last may be cut off
        (status(*[FEWER] * 7, FULL), [("fail", f"gpu:{i}") for i in range(7)]),
        (status("Tesla V100-SXM2-32GB\n" + "\t Link 0: 25.781 GB/s\n" * 1), [("pass", "")]),
        (status(f"{H100} {UUID}\n{DARK}"), [("skip", "")]),
        (status(*[f"{H100} {UUID}\n{DARK}"] * 8), [("fail", f"gpu:{i}") for i in range(8)]),
        (status(f"NVIDIA GeForce RTX 3090 {UUID}\n{DARK}"), [("skip", "")]),
        (status(f"NVIDIA L40S {UUID}\nDevice does not have or support Nvlink\n"), [("skip", "")]),
        (status(f"{H100} {UUID}\n{MIG}", FULL), [("pass", "")]),
        (status(f"{H100} {UUID}\n{MIG}"), [("skip", "")]),
        (status(FULL, listing(H100, *["26.562 GB/s"] * 5)), [("pass", "")]),
        (status(FULL, f"{H100} {UUID}\nUnable to retrieve: GPU is lost\n"), [("unknown", "gpu:1")]),
        (status(listing("NVIDIA A30", *["25 GB/s"] * 3, "<inactive>")), [("fail", "gpu:0")]),
        (status(listing("Some new model", *["25 GB/s"] * 3, "<inactive>")), [("fail", "gpu:0")]),
        (status(*[listing("Some new model", "25 GB/s", "<inactive>")] * 4), [("pass", "")]),
    ],
    ids=[
        "full",
        "two down",
        "nvl",
        "another build",
        "one of the usual build",
        "old driver",
        "one dark",
        "all dark",
        "no bridge",
        "none",
        "mig and not",
        "mig",
        "cut off",
        "lost",
        "loose bridge",
        "unknown and loose",
        "unknown and alike",
    ],
)
def test_links_are_judged_by_model_and_peers(text: str, findings: list[tuple[str, str]]):
    assert brief(judge("nvlink.links", links_of(text))) == findings


@pytest.mark.parametrize(
    ("virtual", "switches", "action"),
    [(False, 4, "restart-service"), (True, 4, "restart-service"), (True, 0, "reset-gpu")],
)
def test_no_link_at_all_is_no_fault_of_one_gpu_where_the_fabric_manager_runs(
    virtual: bool, switches: int, action: str
):
    """Also in a virtual machine that owns its NVSwitches: the fix is that of fabric.guest, not a reset."""
    board = Board("H100 SXM5 80GB", "HGX H100/H200 8-GPU", 8, 8, switches, virtual)
    found = judge("nvlink.links", links_of(status(*[f"{H100} {UUID}\n{DARK}"] * 8)), board)
    assert [finding.fix and finding.fix.action for finding in found] == [action] * 8
    assert all("fabric.guest@node" in finding.explainers for finding in found)


def test_a_link_slower_than_its_model_is_named():
    slow = listing(H100, *["26.562 GB/s"] * 17, "12.5 GB/s")
    (found,) = judge("nvlink.speed", links_of(status(FULL, slow)))
    assert (found.status.value, found.subject) == ("warn", "gpu:1")
    assert "Link 17" in found.evidence[0].like
    b200 = listing("NVIDIA B200", *["50 GB/s"] * 18)  # some drivers print the payload rate
    assert brief(judge("nvlink.speed", links_of(status(b200)))) == [("pass", "")]


def counters(**counts: int) -> str:
    labels = {"replay": "Replay Errors", "recovery": "Recovery Errors", "crc": "CRC Errors"}
    told = {name: counts.get(name, 0) for name in labels}
    lines = [f"\t Link 0: {labels[name]}: {count}\n" for name, count in told.items()]
    return (
        f"GPU 0: {H100} {UUID}\n"
        + "".join(lines)
        + "\n\t Link 1: Replay Errors: 0\n\t Link 1: New thing: 9\n"
    )


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (counters(), "pass"),
        (counters(replay=3), "note"),
        (counters(crc=117), "note"),
        (counters(replay=4711), "warn"),
        (counters(recovery=2), "warn"),
        (counters(crc=4711), "warn"),
        (counters(crc=65535), "fail"),
        (counters(recovery=12), "fail"),
        (f"GPU 0: NVIDIA B200 {UUID}\n\t Link 0: Symbol Errors: 999\n\t Link 0: Symbol BER: 3e-12\n", "pass"),
        (f"GPU 0: NVIDIA B200 {UUID}\n\t Link 0: Effective BER: 2e-5\n\t Link 0: Rx Errors: 0\n", "warn"),
        (f"GPU 0: NVIDIA B200 {UUID}\n\t Link 0: Link recovery failed events: 1\n", "warn"),
    ],
)
def test_totals_of_errors_warn_only_when_they_are_many(text: str, finding: str):
    found = NvLinks.parse(NO_GPUS, MISSING, said(text, "nvidia-smi-nvlink-errors"))
    assert brief(judge("nvlink.errors", found))[0][0] == finding


def test_states_and_counters_of_two_texts_are_joined():
    found = links_of(status(FULL), counters(replay=5))
    assert found.gpus[0].links[0].active and found.gpus[0].links[0].counters["replay"] == 5


# Asked only where NVML did not tell


def test_nvidia_smi_is_not_asked_what_nvml_told(fake_nvml: Fake):
    argv = child("gpu/nvml", packages=True)
    told = subprocess.run(argv, env={**os.environ, **fake_nvml()}, capture_output=True, text=True).stdout
    bus, driver = said(pci(8, "2330"), "pci"), said(driver_files(), "driver-files")
    for plan in (topo_p2p, nvlink_status):
        answered = plan(Options(), bus, driver, said(told, "nvml"))
        assert isinstance(answered, Observation) and answered.note == "NVML answered"
        assert isinstance(plan(Options(), bus, driver, Observation("nvml", Outcome.CRASH)), Command)
        none = plan(Options(), said(pci(0, "")), said('{"files": {"/proc/modules": ""}}'), said(told))
        assert isinstance(none, Observation) and "no NVIDIA" in none.note


# Growth


def test_counters_that_grow_between_two_reads(nvml_folder: Path, tmp_path: Path):
    config = tmp_path / "nvml.conf"
    env = {**os.environ, **nvml_env(nvml_folder, write_config(config, {"gpus": 2, "gpu1.link3.replay": 7}))}
    argv = child("gpu/nvml_growth", "0.2", packages=True)
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        now = {"gpus": 2, "gpu1.link3.replay": 500, "gpu1.link4.crc_flit": 3, "gpu0.pcie_replays": 900}
        write_config(config, now)
        text = first + running.stdout.read()
    growth = ErrorGrowth.parse(said(text, "nvml-growth"))
    assert isinstance(growth, ErrorGrowth) and growth.seconds >= 0.2
    gained = {
        gpu.index: (gpu.gained["pcie_replays"], [link.gained["replay"] for link in gpu.links])
        for gpu in growth.gpus
    }
    assert gained[0] == (900, [0] * 18)
    assert gained[1] == (0, [0, 0, 0, 493] + [0] * 14)
    links = links_of(status(FULL, FULL), counters() + f"GPU 1: {H100}\n\t Link 3: Replay Errors: 500\n")
    found = judge("nvlink.errors", links, growth)
    assert [(f.status.value, f.subject) for f in found] == [("fail", "gpu:1")]
    assert "replay" in found[0].evidence[0].path and "link=3" in found[0].evidence[0].path


@pytest.mark.parametrize(
    ("reasons", "status"),
    [
        ((0x08, 0x08, 0x08), "warn"),  # it lasts
        ((0x08, 0x00, 0x08), "pass"),  # clocks that change
        ((0x08, 0x01, 0x01), "pass"),
        ((0x00, 0x08, 0x08), "pass"),
        ((0x88, 0x88, 0x88), "pass"),  # a power brake: thermal.throttle fails on it
    ],
)
def test_a_hardware_slowdown_without_a_reason_counts_only_if_it_lasts(
    reasons: tuple[int, int, int], status: str, fake_nvml: Fake, nvml_folder: Path, tmp_path: Path
):
    env = fake_nvml({"gpus": 2, "gpu1.reasons": reasons[0]})
    missing = Unseen("missing-tool", "not in this recording")
    reading = Gpus.parse(NvmlReading.parse(said(nvml(env), "nvml")), *[missing] * 5)
    assert isinstance(reading, Gpus)
    throttle = {f.subject: f.status.value for f in judge("thermal.throttle", reading)}
    assert throttle.get("gpu:1", "pass") == ("fail" if reasons[0] & 0x80 else "pass")
    config = tmp_path / "nvml.conf"
    write_config(config, {"gpus": 2, "gpu1.reasons": reasons[1]})
    env = {**os.environ, **nvml_env(nvml_folder, config)}
    argv = child("gpu/nvml_growth", "0.2", packages=True)
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        write_config(config, {"gpus": 2, "gpu1.reasons": reasons[2]})
        text = first + running.stdout.read()
    growth = ErrorGrowth.parse(said(text, "nvml-growth"))
    found = judge("thermal.slowdown", reading, growth)
    assert [(f.status.value, f.subject) for f in found] == [(status, "gpu:1" if status == "warn" else "")]


@pytest.mark.parametrize(
    ("loads", "users", "status"),
    [
        ((100, 100), "", "warn"),
        ((100, 0), "", "pass"),  # the driver that starts
        ((100, 100), "4242:1024", "pass"),
        ((40, 40), "", "pass"),
    ],
)
def test_a_load_without_a_process_counts_only_if_it_lasts(
    loads: tuple[int, int], users: str, status: str, fake_nvml: Fake, nvml_folder: Path, tmp_path: Path
):
    usual: dict[str, object] = {"gpus": 2, **({"gpu1.processes": users} if users else {})}
    missing = Unseen("missing-tool", "not in this recording")
    reading = Gpus.parse(NvmlReading.parse(said(nvml(fake_nvml(usual)), "nvml")), *[missing] * 5)
    config = tmp_path / "nvml.conf"
    write_config(config, {**usual, "gpu1.utilization": loads[0]})
    env = {**os.environ, **nvml_env(nvml_folder, config)}
    argv = child("gpu/nvml_growth", "0.2", packages=True)
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        write_config(config, {**usual, "gpu1.utilization": loads[1]})
        text = first + running.stdout.read()
    growth = ErrorGrowth.parse(said(text, "nvml-growth"))
    assert isinstance(growth, ErrorGrowth) and "users" not in growth.gpus[1].gained
    found = judge("gpu.unowned-load", reading, growth, Container())
    assert [(f.status.value, f.subject) for f in found] == [(status, "gpu:1" if status == "warn" else "")]
    assert brief(judge("gpu.unowned-load", reading, growth, Container(runtime="docker"))) == [("skip", "")]
    untold = replace(growth, gpus=tuple(replace(gpu, busy_without_users=None) for gpu in growth.gpus))
    (once,) = judge("gpu.unowned-load", reading, untold, Container())
    assert (once.status.value, once.summary) == ("skip", "the load of the GPUs was read only once")


def test_growth_is_only_asked_where_nvml_answered_in_full(fake_nvml: Fake):
    bus, driver = said(pci(8, "2330"), "pci"), said(driver_files(), "driver-files")
    hung = nvml_growth(Options(), bus, driver, Observation("nvml", Outcome.STUCK, '{"schema": "x"'))
    assert isinstance(hung, Observation) and hung.outcome is Outcome.SKIPPED
    alone = said(json.dumps({"time_seconds": 1.0, "gpus": []}), "nvml-growth")
    assert isinstance(ErrorGrowth.parse(alone), Unseen)


def test_links_to_a_grace_cpu_are_asked_for_where_one_may_be():
    hung = Unseen("stuck", "nvml hangs", probe="nvml")
    assert GraceGpus.parse(hung, Machine(arch="aarch64")) is hung
    assert GraceGpus.parse(hung, Unseen("denied", "no file may be read")) is hung
    x86 = GraceGpus.parse(hung, Machine(arch="x86_64"))
    assert isinstance(x86, Unseen) and not x86.applies


# ACS: a GPU and an adapter below one switch, on a machine whose IOMMU is known


def bridge(kind: int, acs: int | None = None) -> str:
    """Configuration space of a bridge: its PCIe capability, and with `acs` that control register."""
    space = bytearray(256 if acs is None else 4096)
    space[0x06], space[0x34] = 0x10, 0x40
    space[0x40:0x44] = bytes([0x10, 0x00, kind << 4 | 2, 0x00])
    if acs is not None:
        space[0x100:0x104] = (0x2A010001).to_bytes(4, "little")  # AER, next at 0x2a0
        space[0x2A0:0x2A4] = (0x0001000D).to_bytes(4, "little")
        space[0x2A6:0x2A8] = acs.to_bytes(2, "little")
    return space.hex()


def tree(acs: int | None, root: int | None = 0x1D, nic: str = "mlx5_core") -> PcieTree:
    upstream = ("0000:00:01.0", "0000:01:00.0")
    devices = (
        PciDevice("0000:00:01.0", "8086", "352a", "060400", config=bridge(4, root)),
        PciDevice("0000:01:00.0", "1000", "c030", "060400", upstream=upstream[:1], config=bridge(5, 0)),
        PciDevice("0000:02:00.0", "1000", "c030", "060400", upstream=upstream, config=bridge(6, acs)),
        PciDevice("0000:02:01.0", "1000", "c030", "060400", upstream=upstream, config=bridge(6, 0)),
        PciDevice("0000:03:00.0", "10de", "2330", "030200", upstream=(*upstream, "0000:02:00.0")),
        PciDevice("0000:04:00.0", "15b3", "1021", "020700", driver=nic, upstream=(*upstream, "0000:02:01.0")),
    )
    found = PcieTree.parse(Pci(devices), Unseen.skip("no paste"))
    assert isinstance(found, PcieTree)
    return found


def test_capabilities_are_found_in_configuration_space():
    space = bytes.fromhex(bridge(6, 0x1D))
    assert port_type(space) == "downstream port"
    assert acs_redirects(space) == ("ReqRedir", "CmpltRedir", "UpstreamFwd")
    assert acs_redirects(bytes.fromhex(bridge(6, 0x01))) == ()
    assert acs_redirects(space[:64]) is None and port_type(space[:64]) is None


def test_acs_counts_where_traffic_could_stay_below_a_switch():
    (found,) = judge("pcie.acs", tree(0x1D))
    assert (found.status.value, found.subject) == ("fail", "pci:0000:02:00.0")
    assert "0000:02:00.0/config" in found.evidence[0].path and "0000:03:00.0" in found.summary
    assert brief(judge("pcie.acs", tree(0x01))) == [("note", "")]  # only the root port redirects
    assert brief(judge("pcie.acs", tree(0x01, root=0))) == [("pass", "")]
    assert brief(judge("pcie.acs", tree(0x1D), Machine(form="vm"))) == [("skip", "")]


def test_the_repair_of_several_bridges_names_them_all_and_no_other():
    """NVIDIA: do not write one ACS value to every device that has ACS; only what was found is written."""
    one = judge("pcie.acs", tree(0x1D))
    assert one[0].fix is not None and "sudo setpci -s 0000:02:00.0 " in one[0].fix.commands[1]
    whole = tree(0x1D)
    second = replace(next(b for b in whole.bridges if b.address == "0000:02:00.0"), address="0000:02:08.0")
    both = judge("pcie.acs", replace(whole, bridges=(*whole.bridges, second)))
    assert {found.subject for found in both} == {"pci:0000:02:00.0", "pci:0000:02:08.0"}
    for found in both:
        assert found.fix is not None
        off = "ECAP_ACS+0x6.w=0000"
        assert found.fix.commands[1] == f"sudo setpci -s 0000:02:00.0 {off} -s 0000:02:08.0 {off}"


def test_acs_is_needed_for_virtual_machines_and_harmless_with_ats():
    (found,) = judge("pcie.acs", tree(0x1D, nic="vfio-pci"), Machine(form="bare-metal"))
    assert (found.status.value, "virtual machines" in found.summary) == ("pass", True)
    assert brief(judge("pcie.acs", tree(0x5D), Machine(form="bare-metal"))) == [("note", "")]
    assert brief(judge("pcie.acs", tree(0x1D), Machine(form="bare-metal", arch="aarch64"))) == [("skip", "")]
    assert brief(judge("pcie.acs", tree(0x1D), Machine(form="bare-metal", arch="x86_64")))[0][0] == "fail"


def test_acs_that_only_root_may_read_says_so():
    (found,) = judge("pcie.acs", tree(None, root=None))
    assert (found.status.value, found.reason) == ("unknown", "denied")
    assert found.fix is not None and "sudo nodedoctor pcie.acs" in found.fix.commands


def test_the_iommu_is_read_and_judged(tmp_path: Path):
    write(tmp_path / "sys/class/iommu/dmar0", "")
    write(tmp_path / "sys/kernel/iommu_groups/7/type", "DMA-FQ\n")
    write(tmp_path / "proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1 intel_iommu=on secret=hunter2\n")
    found = Iommu.parse(ask(iommu_files, root=tmp_path, name="iommu"))
    assert isinstance(found, Iommu)
    assert (found.units, found.types, found.parameters) == (("dmar0",), {"7": "DMA-FQ"}, ("intel_iommu=on",))
    gpu = PciDevice("0000:03:00.0", "10de", "2330", "030200", iommu_group="7")
    bus = Pci((gpu, PciDevice("0000:04:00.0", "15b3", "1021", "020700", iommu_group="8")))
    assert brief(judge("pcie.iommu", found, bus)) == [("warn", "")]
    assert brief(judge("pcie.iommu", Iommu(), bus)) == [("pass", "")]
    assert brief(judge("pcie.iommu", Iommu(("dmar0",), {"7": "identity"}), bus)) == [("pass", "")]
    assert brief(judge("pcie.iommu", found, bus, Machine(form="vm"))) == [("skip", "")]
    assert brief(judge("pcie.iommu", found, bus, Machine(arch="aarch64"))) == [("skip", "")]
    assert brief(judge("pcie.iommu", found, Pci((gpu,)))) == [("skip", "")]
    lent = Pci(tuple(replace(device, driver="vfio-pci") for device in bus.devices))
    assert brief(judge("pcie.iommu", found, lent, Machine(form="bare-metal"))) == [("skip", "")]


def test_sysfs_alone_shows_a_narrow_link():
    wide, narrow = PciLink(32.0, 16, 32.0, 16), PciLink(32.0, 8, 32.0, 16)

    def bus(links: list[PciLink], device: str, kind: str) -> Pci:
        vendor = "10de" if kind == "030200" else "15b3"
        numbered = enumerate(links)
        return Pci(
            tuple(PciDevice(f"0000:1{i}:00.0", vendor, device, kind, link=link) for i, link in numbered)
        )

    for device, kind in (("2330", "030200"), ("1021", "020700")):
        found = judge("pcie.width", bus([wide, wide, wide, narrow], device, kind))
        assert brief(found) == [("fail", "pci:0000:13:00.0")]
        assert brief(judge("pcie.width", bus([wide, wide], device, kind))) == [("pass", "")]
    lone = judge("pcie.width", bus([narrow], "1021", "020700"))
    assert brief(lone) == [("note", "pci:0000:10:00.0")]


# The fabric manager, on recorded boards


def board(tmp_path: Path, **probes: str) -> list[str]:
    usual = {
        "nvidia-smi-xml": UNREGISTERED,
        "pci": pci(8, "2330", ("22a3",) * 4),
        "driver-files": driver_files(),
        "machine": machine(),
        "services": services("nvidia-persistenced", "nvidia-fabricmanager"),
    }
    return alarms(
        replay(tmp_path, {**usual, **{name.replace("_", "-"): text for name, text in probes.items()}})
    )


BUSES = ("18", "2A", "3A", "5D", "9A", "AB", "BA", "DB")
UNREGISTERED = smi_texts.xml([smi_texts.xml_gpu(f"00000000:{bus}:00.0") for bus in BUSES], driver="570.86.10")


def test_a_board_with_its_fabric_manager_is_well(tmp_path: Path):
    assert board(tmp_path, fabric_manager="Fabric Manager version is : 570.86.10\n") == []


def test_a_board_without_a_running_fabric_manager(tmp_path: Path):
    failed = services("nvidia-fabricmanager").replace("=active", "=failed").replace("=running", "=failed")
    (alarm,) = [alarm for alarm in board(tmp_path, services=failed) if "fabric" in alarm]
    assert alarm.startswith("FAIL fabric.manager@: nvidia-fabricmanager has failed")
    told = {"services": services("nvidia-imex"), "nvidia_smi_xml": UNREGISTERED}
    (alarm,) = [a for a in board(tmp_path, **told, processes=processes("bash")) if "fabric.manager" in a]
    assert alarm.startswith("FAIL") and "nvidia-fabricmanager is not installed" in alarm
    # A driver container's fabric manager is a process that systemd does not know.
    assert not [a for a in board(tmp_path, **told) if "fabric.manager" in a]
    contained = board(tmp_path, **told, processes=processes("nv-fabricmanage"))
    assert not [a for a in contained if "fabric.manager" in a]


def test_a_fabric_manager_of_another_version(tmp_path: Path):
    (alarm,) = board(tmp_path, fabric_manager="Fabric Manager version is : 570.133.20\n")
    assert alarm == "FAIL fabric.version@: fabric manager 570.133.20, driver 570.86.10"


def test_a_switch_that_is_not_on_the_bus(tmp_path: Path):
    (alarm,) = board(tmp_path, pci=pci(8, "2330", ("22a3",) * 3))
    assert alarm == "FAIL fabric.nvswitch@: 3 of 4 NVSwitches on the bus of a HGX H100/H200 8-GPU"


def test_the_version_comes_from_the_package_where_the_program_is_not():
    none = FabricManager.parse(Observation("fabric-manager", Outcome.MISSING), NO_GPUS)
    assert isinstance(none, Unseen) and none.way_out


# Whatever the text

LINES = st.sampled_from(
    [
        " \tGPU0\tGPU1",
        " GPU0\tX\tOK",
        " GPU1\tNS\tX",
        f"GPU 0: {H100} {UUID}",
        "\t Link 0: 26.562 GB/s",
        "\t Link 1: <inactive>",
        "\t Link 0: Replay Errors: 0",
        "\t Link 99: 1e999 GB/s",
        "$ nvidia-smi topo -p2p n",
        "[...]",
        "",
    ]
)
TEXTS = st.one_of(
    st.text(), st.lists(LINES).map("\n".join), st.lists(st.one_of(LINES, st.text())).map("\n".join)
)


@given(TEXTS)
def test_no_text_makes_a_parser_raise(text: str):
    list(matrices(text))
    read_links(text)
    seen = said(text)
    found = [PeerAccess.parse(NO_GPUS, seen), NvLinks.parse(NO_GPUS, seen, seen), ErrorGrowth.parse(seen)]
    found += [Iommu.parse(seen), FabricManager.parse(seen, NO_GPUS)]
    for fact, check in zip(found, ("p2p.status", "nvlink.links"), strict=False):
        if not isinstance(fact, Unseen):
            assert judge(check, fact)


@given(st.binary(max_size=600))
def test_no_configuration_space_makes_the_walk_raise_or_loop(space: bytes):
    assert port_type(space) in (None, "root port", "upstream port", "downstream port")
    redirects = acs_redirects(space + bytes(300))
    assert redirects is None or set(redirects) <= {"ReqRedir", "CmpltRedir", "UpstreamFwd"}
