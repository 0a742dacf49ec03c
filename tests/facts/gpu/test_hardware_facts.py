"""What hardware is there, from sysfs trees read by the real child: PCI bus, RDMA ports, NUMA, the machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from asking import ask, document, said, write
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.facts.host.machine import Machine, machine_files, os_release
from nodedoctor.facts.host.numa import Numa, cpu_list, cpu_text, numa_nodes
from nodedoctor.facts.pci.pci import Pci, bdf, pci_devices
from nodedoctor.facts.rdma.sysfs import Rdma, rdma_devices
from nodedoctor.model import Observation, Outcome, Unseen

BRIDGE, SWITCH = "0000:15:01.0", "0000:17:00.0"


def pci_device(
    root: Path, address: str, ids: str, class_code: str, config: bytes, above: str = "", **files: str
):
    """A device the way sysfs shows it: a folder below its bridge, and a link to it in bus/pci/devices."""
    place = root / "sys/devices/pci0000:15" / above / address
    vendor, device = ids.split(":")
    shown = {
        "vendor": f"0x{vendor}",
        "device": f"0x{device}",
        "class": f"0x{class_code}",
        "numa_node": "0",
        **files,
    }
    for name, value in shown.items():
        write(place / name, value + "\n")
    write(place / "config", config)
    link = root / "sys/bus/pci/devices" / address
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(f"../../../devices/pci0000:15/{above + '/' if above else ''}{address}")
    return place


def link_files(speed: str, width: str) -> dict[str, str]:
    return {
        "current_link_speed": speed,
        "current_link_width": width,
        "max_link_speed": "32.0 GT/s PCIe",
        "max_link_width": "16",
    }


@pytest.fixture
def board(tmp_path: Path) -> Path:
    bridge = pci_device(tmp_path, BRIDGE, "8086:352a", "060400", bytes(range(256)) * 16)
    write(bridge / "pci_bus/0000:17/name")
    alive = bytes.fromhex("de103023") + bytes(60)
    gpu = pci_device(
        tmp_path, "0000:18:00.0", "10de:2330", "030200", alive, BRIDGE, **link_files("32.0 GT/s PCIe", "16")
    )
    (gpu / "driver").symlink_to("../../../../bus/pci/drivers/nvidia")
    (gpu / "iommu_group").symlink_to("../../../../kernel/iommu_groups/40")
    gone = link_files("Unknown", "63")
    pci_device(tmp_path, "0000:2a:00.0", "10de:2330", "030200", b"\xff" * 64, BRIDGE, **gone)
    pci_device(tmp_path, "0000:07:00.0", "10de:22a3", "068000", alive)
    nic = pci_device(tmp_path, "0000:19:00.0", "15b3:1021", "020700", alive, BRIDGE, numa_node="-1")
    virtual = pci_device(tmp_path, "0000:19:00.1", "15b3:101e", "020700", alive, BRIDGE)
    (virtual / "physfn").symlink_to("../0000:19:00.0")
    virtual_gpu = pci_device(tmp_path, "0000:18:00.4", "10de:2330", "030200", alive, BRIDGE)
    (virtual_gpu / "physfn").symlink_to("../0000:18:00.0")
    assert nic.exists()
    return tmp_path


def test_the_pci_bus_is_read_without_a_driver(board: Path):
    pci = Pci.parse(ask(pci_devices, root=board))
    assert isinstance(pci, Pci)
    assert [gpu.address for gpu in pci.gpus] == ["0000:18:00.0", "0000:2a:00.0"]
    assert [gpu.off_bus for gpu in pci.gpus] == [False, True]
    assert [switch.address for switch in pci.nvswitches] == ["0000:07:00.0"]
    assert [nic.address for nic in pci.mellanox_nics] == ["0000:19:00.0"]
    gpu = pci.at("00000000:18:00.0")
    assert gpu is not None
    assert (gpu.pci_id, gpu.driver, gpu.iommu_group, gpu.upstream) == ("10de:2330", "nvidia", "40", (BRIDGE,))
    assert gpu.link is not None
    assert (gpu.link.speed_gts, gpu.link.width, gpu.link.max_width) == (32.0, 16, 16)
    gone = pci.gpus[1].link
    assert gone is not None
    assert (gone.speed_gts, gone.width) == (None, None)
    json.dumps(pci.public())


def test_only_bridges_are_read_beyond_64_bytes(board: Path):
    pci = Pci.parse(ask(pci_devices, root=board))
    assert isinstance(pci, Pci)
    sizes = {device.address: len(device.config) // 2 for device in pci.devices}
    assert sizes[BRIDGE] == 4096
    assert {size for address, size in sizes.items() if address != BRIDGE} == {64}


def test_no_bus_is_not_an_empty_bus(tmp_path: Path):
    found = Pci.parse(ask(pci_devices, root=tmp_path))
    assert isinstance(found, Unseen)
    assert "ENOENT" in found.note
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    assert Pci.parse(ask(pci_devices, root=tmp_path)) == Pci(())


def test_this_machine_has_a_readable_bus_or_none():
    assert isinstance(Pci.parse(ask(pci_devices)), (Pci, Unseen))


@pytest.mark.parametrize(
    "text", ["0000:1b:00.0", "00000000:1B:00.0", "0000:1b:00", "1b:00.0", "1B:00", " 0000:1B:00.0\n"]
)
def test_addresses_in_every_spelling(text: str):
    assert bdf(text) == "0000:1b:00.0"


@given(st.text())
def test_any_address_is_some_text(text: str):
    assert isinstance(bdf(text), str)


def hca(root: Path, name: str, **port: str) -> Path:
    place = root / "sys/class/infiniband" / name
    for file, value in (("hca_type", "MT4129"), ("fw_ver", "28.39.2048"), ("board_id", "MT_0000000838")):
        write(place / file, value + "\n")
    values = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "lid": "0x1f"}
    for file, value in {**values, "sm_lid": "0x1", "link_layer": "InfiniBand", **port}.items():
        write(place / "ports/1" / file, value + "\n")
    write(place / "ports/1/counters/symbol_error", "3\n")
    write(place / "ports/1/counters/port_xmit_wait", "N/A (no PMA)\n")
    write(place / "ports/1/hw_counters/out_of_sequence", "18446744073709551615\n")
    write(place / "ports/1/gids/0", "fe80:0000:0000:0000:a088:c203:0000:0001\n")
    write(place / "ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n")
    write(place / "ports/1/gid_attrs/types/0", "RoCE v2\n")
    (place / "device").symlink_to(f"../../../0000:{name[-1]}b:00.0")
    write(root / f"sys/0000:{name[-1]}b:00.0/numa_node", "1\n")
    write(root / f"sys/0000:{name[-1]}b:00.0/net/ib{name[-1]}/mtu", "4092\n")
    write(root / f"sys/0000:{name[-1]}b:00.0/net/ib{name[-1]}/dev_port", "0\n")
    return place


def test_rdma_adapters_are_read_without_a_tool(tmp_path: Path):
    hca(tmp_path, "mlx5_0")
    hca(tmp_path, "mlx5_1", state="2: INIT", rate="100 Gb/sec (4X EDR)", link_layer="Ethernet")
    hca(tmp_path, "mlx5_2", state="1: DOWN", phys_state="3: Disabled", rate="2.5 Gb/sec (1X SDR)")
    rdma = Rdma.parse(ask(rdma_devices, root=tmp_path))
    assert isinstance(rdma, Rdma)
    first, second, third = rdma.hcas
    port = first.ports[0]
    assert (first.name, first.firmware, first.pci_address, first.numa_node) == (
        "mlx5_0",
        "28.39.2048",
        "0000:0b:00.0",
        1,
    )
    assert (port.state, port.phys_state, port.rate_gbps, port.width, port.generation) == (
        "ACTIVE",
        "LinkUp",
        400,
        "4X",
        "NDR",
    )
    assert (port.lid, port.sm_lid, port.active, port.infiniband) == (0x1F, 1, True, True)
    assert port.counters == {"symbol_error": 3}
    assert port.hw_counters == {"out_of_sequence": 2**64 - 1}
    assert [(gid.index, gid.kind) for gid in port.gids] == [(0, "RoCE v2")]
    assert [(net.name, net.mtu, net.port) for net in first.netdevs] == [("ib0", 4092, 1)]
    assert (second.ports[0].state, second.ports[0].infiniband) == ("INIT", False)
    assert (third.ports[0].phys_state, third.ports[0].rate_gbps, third.stopped_answering) == (
        "Disabled",
        2.5,
        None,
    )
    json.dumps(asdict(rdma))


def test_no_rdma_is_a_fact_and_denied_is_not(tmp_path: Path):
    assert Rdma.parse(ask(rdma_devices, root=tmp_path)) == Rdma((), supported=False)
    denied = Rdma.parse(document(errors={"/sys/class/infiniband": "EACCES"}))
    assert isinstance(denied, Unseen)
    assert denied.reason == "denied"


def test_an_adapter_that_stops_answering_is_named():
    here = "/sys/class/infiniband/mlx5_3"
    seen = document(
        files={f"{here}/fw_ver": "28.1\n", f"{here}/ports/1/state": "4: ACTIVE\n"},
        errors={here: "TIMEOUT", f"{here}/ports/1/hw_counters/rnr_nak_retry_err": "TIMEOUT"},
    )
    rdma = Rdma.parse(seen)
    assert isinstance(rdma, Rdma)
    assert rdma.hcas[0].stopped_answering == "ports/1/hw_counters/rnr_nak_retry_err"
    assert rdma.hcas[0].ports[0].errors == {"hw_counters/rnr_nak_retry_err": "TIMEOUT"}


def test_numa_nodes(tmp_path: Path):
    for node, cpus in ((0, "0-3,8-11"), (1, "4-7"), (2, "")):
        here = tmp_path / f"sys/devices/system/node/node{node}"
        write(here / "cpulist", cpus + "\n")
        write(here / "meminfo", f"Node {node} MemTotal:  1048576 kB\nNode {node} MemFree:  524288 kB\n")
        write(here / "distance", "10 21 80\n")
    write(tmp_path / "sys/devices/system/cpu/online", "0-11\n")
    numa = Numa.parse(ask(numa_nodes, root=tmp_path))
    assert isinstance(numa, Numa)
    assert [(node.memory_gib, node.free_gib) for node in numa.nodes] == [(1.0, 0.5)] * 3
    assert (numa.node_of_cpu(9), numa.node_of_cpu(5), numa.node_of_cpu(99)) == (0, 1, None)
    assert numa.nodes[2].cpus == ()
    assert numa.public()["online_cpus"] == "0-11"


@given(st.sets(st.integers(0, 300)))
def test_processor_lists_there_and_back(cpus: set[int]):
    assert cpu_list(cpu_text(tuple(sorted(cpus)))) == tuple(sorted(cpus))


@given(st.text())
def test_any_processor_list_is_some_numbers(text: str):
    assert all(isinstance(cpu, int) for cpu in cpu_list(text))


BARE, GUEST, ARM = (
    "flags\t\t: fpu vme lm sse\n",
    "flags\t\t: fpu vme lm hypervisor\n",
    "CPU architecture: 8\n",
)
AZURE = "7783-7084-3265-9085-8269-3286-77"
MACHINES = [
    (BARE, {"dmi/sys_vendor": "Supermicro"}, ("bare-metal", None, None)),
    (BARE, {"dmi/sys_vendor": "Amazon EC2", "dmi/product_name": "p5.metal"}, ("bare-metal", None, "aws")),
    (GUEST, {"dmi/sys_vendor": "Amazon EC2", "dmi/product_name": "p5.48xlarge"}, ("vm", "kvm", "aws")),
    (GUEST, {"dmi/product_name": "Google Compute Engine"}, ("vm", "kvm", "gcp")),
    (
        GUEST,
        {"dmi/product_name": "Virtual Machine", "dmi/chassis_asset_tag": AZURE},
        ("vm", "hyperv", "azure"),
    ),
    (BARE, {"dmi/chassis_asset_tag": "OracleCloud.com"}, ("bare-metal", None, "oci")),
    (GUEST, {"dmi/sys_vendor": "QEMU", "dmi/product_name": "Standard PC"}, ("vm", "kvm", None)),
    (GUEST, {"clocks/available_clocksource": "kvm-clock tsc"}, ("vm", "kvm", None)),
    (GUEST, {}, ("vm", None, None)),
    (ARM, {"dmi/sys_vendor": "NVIDIA"}, ("bare-metal", None, None)),
    (ARM, {"dmi/sys_vendor": "QEMU"}, ("vm", "kvm", None)),
    (ARM, {"dmi/sys_vendor": "Amazon EC2", "dmi/product_name": "g5g.metal"}, ("bare-metal", None, "aws")),
    (ARM, {}, (None, None, None)),
    (ARM, {"etc/nv_tegra_release": "# R36 (release)"}, ("tegra", None, None)),
    (GUEST, {"proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2"}, ("wsl2", "hyperv", None)),
]
PLACES = {"dmi": "sys/class/dmi/id", "clocks": "sys/devices/system/clocksource/clocksource0"}


@pytest.mark.parametrize(("cpuinfo", "files", "expected"), MACHINES)
def test_what_kind_of_machine(
    tmp_path: Path, cpuinfo: str, files: dict[str, str], expected: tuple[str | None, ...]
):
    for name, text in {"proc/cpuinfo": cpuinfo, **files}.items():
        folder, _, rest = name.partition("/")
        write(tmp_path / PLACES.get(folder, folder) / rest, text + "\n")
    machine = Machine.parse(ask(machine_files, root=tmp_path))
    assert isinstance(machine, Machine)
    assert (machine.form, machine.hypervisor, machine.cloud) == expected
    assert machine.virtual == (expected[0] in ("vm", "wsl2"))


def test_this_machine():
    machine = Machine.parse(ask(machine_files))
    assert isinstance(machine, Machine)
    assert machine.hostname
    assert machine.kernel
    assert machine.memory_gib is not None
    assert machine.memory_gib > 0
    assert machine.uptime_seconds is not None


def test_os_release():
    text = 'NAME="Ubuntu"\nVERSION_ID="22.04"\nPRETTY_NAME=\'Ubuntu 22.04.4 LTS\'\n# a comment\nnonsense\n'
    assert os_release(text)["PRETTY_NAME"] == "Ubuntu 22.04.4 LTS"
    assert os_release(text)["VERSION_ID"] == "22.04"


HERE = st.sampled_from(
    [
        "/sys/bus/pci/devices/0000:18:00.0/vendor",
        "/sys/bus/pci/devices/0000:18:00.0/device",
        "/sys/bus/pci/devices/0000:18:00.0/class",
        "/sys/bus/pci/devices/0000:18:00.0/current_link_width",
        "/sys/bus/pci/devices/0000:18:00.0/current_link_speed",
        "/sys/class/infiniband/mlx5_0/ports/1/rate",
        "/sys/class/infiniband/mlx5_0/ports/1/gids/0",
        "/sys/class/infiniband/mlx5_0/ports/x/state",
        "/sys/class/infiniband/mlx5_0/ports/1/counters/y",
        "/sys/devices/system/node/node0/cpulist",
        "/sys/devices/system/node/node0/meminfo",
        "/sys/devices/system/node/node0/distance",
        "/proc/cpuinfo",
        "/proc/meminfo",
        "/proc/uptime",
        "/etc/os-release",
    ]
)
VALUES = st.text(max_size=30) | st.from_regex(r"0x[0-9a-f]{4,6}|\d{1,3}(\.\d)? G[Tb]/s(ec)?.*|\d+[-,]\d+")


@given(st.dictionaries(HERE, VALUES), st.dictionaries(HERE, st.sampled_from(["EACCES", "TIMEOUT", "EIO"])))
def test_any_content_of_files_is_read_without_raising(files: dict[str, str], errors: dict[str, str]):
    seen = document(files=files, errors=errors)
    for fact in (Pci, Rdma, Numa, Machine):
        found = fact.parse(seen)
        assert isinstance(found, (fact, Unseen))
        if isinstance(found, fact):
            json.dumps(found.public() if hasattr(found, "public") else asdict(found))


@pytest.mark.parametrize("fact", [Pci, Rdma, Numa, Machine])
@pytest.mark.parametrize(
    "seen", [said(""), said("{"), said("[]"), said("{}"), Observation("x", Outcome.STUCK)]
)
def test_no_answer_is_unseen(fact: type, seen: Observation):
    assert isinstance(fact.parse(seen), Unseen)
