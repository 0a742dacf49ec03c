"""The driver from files, services, packages, and the inventory made of bus, nodes and the driver's list."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from asking import ask, document, said, write
from fakes.tree import gpu_address, nvidia_tree
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.children import child_process
from nodedoctor.declare.registry import Command, Options
from nodedoctor.facts.driver.answers import DriverAnswers
from nodedoctor.facts.driver.driver import DeviceNode, Driver, DriverGpu, DriverLibrary, driver_files
from nodedoctor.facts.driver.packages import DriverPackages, driver_packages
from nodedoctor.facts.driver.services import Services, services
from nodedoctor.facts.gpu.gpu import Gpu, LostGpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.inventory import Inventory
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading
from nodedoctor.facts.gpu.smi.smi import SmiQ, SmiTable, SmiXml
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.pci.pci import Pci, PciDevice
from nodedoctor.model import Observation, Outcome, Unseen

VERSION = "580.95.05"


def device(path: str, access: str = "rw", mode: str = "0666") -> dict[str, object]:
    return {"type": "char", "mode": mode, "uid": 0, "gid": 0, "size": 0, "device": "195:0", "access": access}


# Files


@pytest.fixture
def host(tmp_path: Path) -> Path:
    root = nvidia_tree(tmp_path, gpus=2, driver=VERSION)
    for index in range(2):
        write(
            root / f"proc/driver/nvidia/gpus/{gpu_address(index)}/information",
            f"Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-{index}\nDevice Minor: \t {index}\n"
            f"GPU Excluded:\t {'Yes' if index else 'No'}\n",
        )
    write(root / "proc/driver/nvidia/params", 'EnableGpuFirmware: 18\nExcludedGpus: ""\nRmMsg: ""\n')
    folder = root / "usr/lib/x86_64-linux-gnu"
    for name in ("libnvidia-ml", "libcuda"):
        write(folder / f"{name}.so.{VERSION}")
        (folder / f"{name}.so.1").symlink_to(f"{name}.so.{VERSION}")
    write(root / "etc/apt/apt.conf.d/20auto-upgrades", 'APT::Periodic::Unattended-Upgrade "1";\n')
    return root


def test_driver_files_of_a_host(host: Path):
    driver = Driver.parse(ask(driver_files, root=host))
    assert isinstance(driver, Driver)
    assert (driver.loaded, driver.version, driver.kind) == (True, VERSION, "open")
    assert driver.modules == {"nvidia_uvm": "Live", "nvidia": "Live"}
    assert driver.gpus == (
        DriverGpu("0000:18:00.0", 0, "GPU-0", "NVIDIA H100 80GB HBM3"),
        DriverGpu("0000:2a:00.0", 1, "GPU-1", "NVIDIA H100 80GB HBM3", excluded=True),
    )
    folder = "/usr/lib/x86_64-linux-gnu"
    assert driver.libraries == (
        DriverLibrary("libnvidia-ml.so.1", folder, VERSION),
        DriverLibrary("libcuda.so.1", folder, VERSION),
    )
    assert driver.versions("libcuda.so.1") == (VERSION,)
    assert driver.params == {"EnableGpuFirmware": "18", "ExcludedGpus": ""}
    assert (driver.unattended_upgrades, driver.platform, driver.errors) == (True, None, {})
    json.dumps(asdict(driver))


def test_driver_files_of_a_node_without_nvidia(tmp_path: Path):
    write(tmp_path / "proc/modules", "overlay 151552 0 - Live 0x0\n")
    driver = Driver.parse(ask(driver_files, root=tmp_path))
    assert driver == Driver(loaded=False, modules={})


@pytest.mark.parametrize(
    ("line", "version", "kind"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs@x)",
            "580.95.05",
            "open",
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024",
            "535.183.01",
            "proprietary",
        ),
        ("NVRM version: NVIDIA UNIX aarch64 Kernel Module  610.57  x", "610.57", "proprietary"),
        ("garbage", None, None),
    ],
)
def test_version_lines(line: str, version: str | None, kind: str | None):
    driver = Driver.parse(document(files={"/proc/driver/nvidia/version": line + "\n"}))
    assert isinstance(driver, Driver)
    assert (driver.version, driver.kind) == (version, kind)


def test_node_refused_by_cgroup_or_mode():
    stats = {
        "/dev/nvidia0": device("/dev/nvidia0"),
        "/dev/nvidia1": device("/dev/nvidia1", access=""),
        "/dev/nvidia2": device("/dev/nvidia2", access="", mode="0660"),
        "/dev/nvidiactl": {"type": "char", "mode": "0666"},
    }
    driver = Driver.parse(document(stats=stats))
    assert isinstance(driver, Driver)
    assert [(node.minor, node.usable, node.refused_by) for node in driver.nodes] == [
        (0, True, None),
        (1, False, "cgroup"),
        (2, False, "mode"),
        (None, True, None),
    ]


@pytest.mark.parametrize(("error", "loaded"), [("ENOENT", False), ("EACCES", None), ("TIMEOUT", None)])
def test_loaded_is_not_guessed(error: str, loaded: bool | None):
    driver = Driver.parse(document(errors={"/proc/driver/nvidia/version": error}))
    assert isinstance(driver, Driver) and driver.loaded is loaded


@pytest.mark.parametrize(
    ("path", "platform"), [("/dev/dxg", "wsl2"), ("/etc/nv_tegra_release", "tegra"), ("/dev/null", None)]
)
def test_platforms_with_drivers_of_another_kind(path: str, platform: str | None):
    driver = Driver.parse(document(stats={path: {"type": "char", "mode": "0666"}}))
    assert isinstance(driver, Driver) and driver.platform == platform


# Services and packages

UNITS = (
    "Result=success\nId=nvidia-persistenced.service\nLoadState=loaded\nActiveState=active\nSubState=running\n"
    "UnitFileState=enabled\n\n"
    "Result=success\nId=nvidia-fabricmanager.service\nLoadState=not-found\nActiveState=inactive\n"
    "SubState=dead\nUnitFileState=\n"
)


def test_services_are_read():
    found = Services.parse(said(UNITS))
    assert isinstance(found, Services)
    unit = found.get("nvidia-persistenced")
    assert unit is not None and unit.running
    assert (unit.loaded, unit.active, unit.sub) == ("loaded", "active", "running")
    assert re.search(unit.said.like, UNITS, re.MULTILINE)
    assert found.get("nvidia-fabricmanager") is None


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (
            Observation(
                "services", rc=1, note="System has not been booted with systemd as init system (PID 1)."
            ),
            "not-visible-here",
        ),
        (Observation("services", Outcome.MISSING, note="env: 'systemctl': No such file"), "missing-tool"),
        (said("garbage"), "unparsable"),
    ],
)
def test_services_without_systemd_are_unseen(seen: Observation, reason: str):
    found = Services.parse(seen)
    assert isinstance(found, Unseen) and found.reason == reason


def test_services_of_another_root_are_not_asked():
    asked = services(Options(root="/host"))
    assert isinstance(asked, Observation) and asked.outcome is Outcome.SKIPPED


def test_packages_are_read():
    text = (
        "hi \tnvidia-driver-580-server\t580.95.05-0ubuntu0.24.04.1\n"
        "ii \tnvidia-fabricmanager-580\t1:580.82.07-1\n"
        "ii \tlinux-modules-nvidia-580-6.8.0-64-generic\t6.8.0-64.67+1\n"
        "un \tnvidia-utils\t\nrc \tlibnvidia-compute-535\t535.1-0\n"
    )
    found = DriverPackages.parse(said(text))
    assert isinstance(found, DriverPackages)
    assert [(p.driver, p.held) for p in found.packages] == [
        ("580.95.05", True),
        ("580.82.07", False),
        (None, False),
    ]
    assert found.drivers() == ("580.95.05", "580.82.07")


@pytest.mark.parametrize(
    ("stats", "program"),
    [({"/var/lib/dpkg/status": {}}, "dpkg-query"), ({"/var/lib/rpm": {}}, "rpm"), ({}, None)],
)
def test_packages_are_asked_of_whoever_keeps_them(stats: dict[str, object], program: str | None):
    bus = document(lists={})
    files = document(stats={**stats, "/dev/nvidia0": {}})
    asked = driver_packages(Options(), bus, files)
    below = driver_packages(Options(root="/host"), bus, files)
    assert (asked.argv[0] if isinstance(asked, Command) else None) == program
    if isinstance(asked, Command) and isinstance(below, Command):
        [database] = [word.partition("=")[2] for word in asked.argv if "=/var/lib/" in word]
        at = below.argv.index("/host")
        assert below.argv[at - 1].endswith("package_query.py")
        assert below.argv[at : at + 3] == ("/host", database, program)


def test_packages_below_a_root_are_read_there(tmp_path: Path):
    write(
        tmp_path / "var/lib/dpkg/status",
        "Package: nvidia-driver-570\nStatus: install ok installed\n"
        "Version: 570.86.10-0ubuntu1\nArchitecture: amd64\nMaintainer: x\nDescription: y\n",
    )
    files = document(stats={"/var/lib/dpkg/status": {}, "/dev/nvidia0": {}})
    asked = driver_packages(Options(root=str(tmp_path)), document(lists={}), files)
    assert isinstance(asked, Command)
    if shutil.which("dpkg-query") is None:
        pytest.skip("no dpkg-query here")
    seen = asyncio.run(child_process.run("driver-packages", asked, 30))
    found = DriverPackages.parse(seen)
    assert isinstance(found, DriverPackages), seen
    assert found.drivers() == ("570.86.10",)


# Inventory


def slots(count: int, **more: object) -> Pci:
    base = {"vendor": "10de", "device": "2330", "class_code": "030200", "driver": "nvidia", **more}
    return Pci(tuple(PciDevice(address=gpu_address(index), **base) for index in range(count)))


def driven(count: int, accesses: str = "", **more: object) -> Driver:
    """A driver of GPUs; a letter of `accesses` is a node: y usable, refused by c cgroup or m mode, - none."""
    letters = accesses or "y" * count
    refused = {"y": None, "c": "cgroup", "m": "mode"}
    nodes = [
        DeviceNode(f"/dev/nvidia{index}", "0666", "rw" if letter == "y" else "", refused[letter])
        for index, letter in enumerate(letters)
        if letter != "-"
    ]
    gpus = tuple(DriverGpu(gpu_address(index), index) for index in range(count))
    return Driver(
        loaded=True, version=VERSION, modules={"nvidia": "Live"}, gpus=gpus, nodes=tuple(nodes), **more
    )


def listing(*indexes: int, lost: tuple[LostGpu, ...] = (), **more: object) -> Gpus:
    gpus = tuple(Gpu(number, bus_id=gpu_address(index)) for number, index in enumerate(indexes))
    return Gpus("nvml", gpus=gpus, lost=lost, **more)


NOWHERE = Unseen("missing-tool", "not in this recording")
DOCKER = Container(runtime="docker")


def inventory(*facts: object) -> Inventory:
    given = [
        next((f for f in facts if isinstance(f, cls)), NOWHERE) for cls in (Pci, Driver, Gpus, Container)
    ]
    found = Inventory.parse(*given)
    assert isinstance(found, Inventory)
    json.dumps(asdict(found))
    return found


def addresses(found: Inventory) -> list[str]:
    return [slot.address for slot in found.missing]


def test_all_gpus_of_a_host():
    found = inventory(slots(2), driven(2), listing(0, 1))
    assert ([slot.index for slot in found.slots or ()], found.missing, found.restricted) == (
        [0, 1],
        (),
        False,
    )


def test_one_gpu_is_not_shown():
    found = inventory(slots(2), driven(2), listing(0, lost=(LostGpu(1, gpu_address(1), "GPU_IS_LOST"),)))
    assert addresses(found) == [gpu_address(1)]
    assert found.missing[0].lost == "GPU_IS_LOST"


def test_a_jobs_cgroup_withholds_gpus():
    found = inventory(slots(4), driven(4, "ccyy"), listing(2, 3))
    assert (found.missing, found.restricted, found.shown, found.nodes) == ((), True, 2, 2)


def test_a_job_without_gpus_is_by_design():
    found = inventory(slots(4), driven(4, "cccc"), listing())
    assert found.none_by_design == "this container or job was given none of the 4 GPUs of the host"


def test_a_container_with_some_gpus():
    found = inventory(slots(4), driven(4, "yy--"), listing(0, 1), DOCKER)
    assert (found.missing, found.restricted) == ((), True)


def test_a_container_whose_gpu_is_gone():
    found = inventory(slots(4), driven(4, "yy--"), listing(0), DOCKER)
    assert addresses(found) == [gpu_address(1)]


def test_a_container_without_gpus_is_by_design():
    found = inventory(slots(4), Driver(loaded=True, version=VERSION), NOWHERE, DOCKER)
    assert found.none_by_design is not None and "none of the 4 GPUs" in found.none_by_design


def test_a_container_that_lost_its_devices_is_cut_off():
    driver = Driver(
        loaded=True,
        nodes=(
            DeviceNode("/dev/nvidia0", "0666", "", "cgroup"),
            DeviceNode("/dev/nvidiactl", "0666", "", "cgroup"),
        ),
    )
    found = inventory(slots(1), driver, DOCKER)
    assert found.cut_off and found.none_by_design is None


def test_unreadable_driver_files_do_not_fail_a_job():
    """Without the driver's own list nobody knows which node belongs to which GPU."""
    driver = Driver(loaded=True, nodes=driven(2, "cy").nodes)
    assert inventory(slots(2), driver, listing(1)).missing == ()


def test_gpus_of_virtual_machines_are_not_ours():
    found = inventory(slots(2, driver="vfio-pci"), Driver(loaded=False, modules={}))
    assert found.none_by_design == "all 2 GPUs are bound to vfio-pci: they belong to virtual machines"


def test_a_gpu_excluded_by_an_administrator_is_not_missing():
    hidden = listing(0, excluded=(gpu_address(1),))
    assert inventory(slots(2), driven(2), hidden).missing == ()


def test_nothing_of_nvidias():
    found = inventory(Pci(()), Driver(loaded=False, modules={}))
    assert found.none_here and found.none_by_design is not None


def test_nothing_looked_at_is_unseen():
    assert Inventory.parse(NOWHERE, NOWHERE, NOWHERE, NOWHERE) == NOWHERE


# Which source speaks


def gpus_of(
    *seen: Observation, pci: Pci | Unseen = NOWHERE, driver: Driver | Unseen = NOWHERE
) -> Gpus | Unseen:
    known = {observation.probe: observation for observation in seen}
    forms = {"nvml": NvmlReading, "nvidia-smi-xml": SmiXml, "nvidia-smi-q": SmiQ, "nvidia-smi": SmiTable}
    missing = [known.get(name, Observation(name, Outcome.MISSING, note="not recorded")) for name in forms]
    readings = [form.parse(one) for form, one in zip(forms.values(), missing, strict=True)]
    return Gpus.parse(*readings, pci, driver)


def test_a_text_speaks_where_nvml_crashed():
    text = "<nvidia_smi_log><gpu id='00000000:18:00.0'><uuid>u</uuid></gpu></nvidia_smi_log>"
    crashed = Observation("nvml", Outcome.CRASH, note="killed by SIGSEGV")
    lost = Observation(
        "nvidia-smi", text="Unable to determine the device handle for GPU 0000:2A:00.0: GPU is lost."
    )
    found = gpus_of(crashed, Observation("nvidia-smi-xml", text=text), lost)
    assert isinstance(found, Gpus)
    assert (found.source, len(found.gpus)) == ("nvidia-smi-xml", 1)
    assert [gone.bus_id for gone in found.lost] == ["0000:2a:00.0"]


def test_without_hardware_gpus_do_not_apply():
    found = gpus_of(pci=Pci(()), driver=Driver(loaded=False, modules={}))
    assert isinstance(found, Unseen) and not found.applies


def test_of_several_reasons_the_broken_one_is_told():
    hung = Observation("nvidia-smi-xml", Outcome.STUCK, note="pid 7 state D")
    found = gpus_of(hung)
    assert isinstance(found, Unseen) and (found.reason, found.applies) == ("stuck", True)


# Answers


def answers_of(*seen: Observation) -> DriverAnswers | Unseen:
    names = ("nvml", "nvidia-smi-xml", "nvidia-smi-q", "nvidia-smi")
    known = {observation.probe: observation for observation in seen}
    all_seen = [known.get(name, Observation(name, Outcome.MISSING)) for name in names]
    forms = (NvmlReading, SmiXml, SmiQ, SmiTable)
    return DriverAnswers.parse(
        *all_seen, *(form.parse(one) for form, one in zip(forms, all_seen, strict=True))
    )


def test_a_hang_is_an_answer():
    found = answers_of(Observation("nvml", Outcome.STUCK, seconds=30.5, note="pid 7 state D in x"))
    assert isinstance(found, DriverAnswers)
    (answer,) = found.answers
    assert (answer.outcome, answer.seconds, answer.note) == ("stuck", 30.5, "pid 7 state D in x")


def test_a_tripped_lane_is_an_answer():
    why = "nvidia-smi-topo is stuck; not querying the same driver or file system again"
    found = answers_of(Observation("nvml", Outcome.SKIPPED, note=why))
    assert isinstance(found, DriverAnswers) and (found.answers, found.tripped) == ((), why)


def test_nobody_asked_is_unseen():
    found = answers_of(Observation("nvml", Outcome.SKIPPED, note="no NVIDIA here"))
    assert isinstance(found, Unseen)


# Anything at all

FACTS = (Driver, Services, DriverPackages)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(st.text())
def test_any_text_is_a_fact_or_unseen(text: str):
    for cls in FACTS:
        cls.parse(said(text))


@given(
    st.dictionaries(
        st.sampled_from(["files", "links", "lists", "stats", "errors"]),
        st.dictionaries(
            st.sampled_from(
                [
                    "/proc/driver/nvidia/version",
                    "/proc/driver/nvidia/gpus/0000:18:00.0/information",
                    "/proc/modules",
                    "/dev/nvidia0",
                    "/usr/lib64/libcuda.so.1",
                    "/etc/apt/apt.conf.d/20auto-upgrades",
                ]
            ),
            ANY_JSON,
        ),
    )
)
def test_any_document_is_a_driver_or_unseen(sections: dict[str, object]):
    found = Driver.parse(said(json.dumps(sections)))
    assert isinstance(found, (Driver, Unseen))
    if isinstance(found, Driver):
        json.dumps(asdict(found))
