"""What the driver checks say of healthy, sick, absent and restricted drivers: facts in, findings out."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest
from asking import brief, judge
from fakes.tree import gpu_address

from nodedoctor.facts.driver.answers import DriverAnswer, DriverAnswers
from nodedoctor.facts.driver.driver import DeviceNode, Driver, DriverGpu, DriverLibrary
from nodedoctor.facts.driver.packages import DriverPackage, DriverPackages
from nodedoctor.facts.driver.services import Service, Services
from nodedoctor.facts.gpu.gpu import Gpu, GpuProcess, InitError, LostGpu, SlowCall
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.inventory import Inventory
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.facts.pci.pci import Pci, PciDevice
from nodedoctor.model import Expect, Finding, Moment, Unseen

VERSION, OLDER = "580.95.05", "580.82.07"
H100, T4, RTX = "NVIDIA H100 80GB HBM3", "Tesla T4", "NVIDIA GeForce RTX 4090"
UNSEEN = Unseen("missing-tool", "not in this recording")
METAL, VM, HOST, DOCKER = (
    Machine(form="bare-metal"),
    Machine(form="vm"),
    Container(),
    Container(runtime="docker"),
)
NOON = Moment(datetime(2026, 10, 2, 12, tzinfo=timezone.utc))


def bus(count: int, off: tuple[int, ...] = (), switches: int = 0, bound: str | None = "nvidia") -> Pci:
    gpus = [
        PciDevice(
            gpu_address(i), "10de", "2330", "030200", driver=bound, config="ff" * 64 if i in off else "de10"
        )
        for i in range(count)
    ]
    places = (f"0000:0{place}:00.0" for place in range(switches))
    return Pci((*gpus, *(PciDevice(place, "10de", "22a3", "068000") for place in places)))


def driven(count: int, withheld: tuple[int, ...] = (), control: bool = True, **more: object) -> Driver:
    nodes = [
        DeviceNode(
            f"/dev/nvidia{i}", "0666", "" if i in withheld else "rw", "cgroup" if i in withheld else None
        )
        for i in range(count)
    ]
    nodes.append(DeviceNode("/dev/nvidiactl", "0666", "rw" if control else "", None if control else "cgroup"))
    told = {
        "loaded": True,
        "version": VERSION,
        "kind": "open",
        "version_text": f"NVRM version: ... {VERSION}",
        "modules": {"nvidia": "Live", "nvidia_uvm": "Live"},
        "gpus": tuple(DriverGpu(gpu_address(i), i) for i in range(count)),
        "nodes": tuple(nodes),
        "libraries": libraries(VERSION),
    }
    return Driver(**{**told, **more})


def libraries(version: str | None, folder: str = "/usr/lib/x86_64-linux-gnu") -> tuple[DriverLibrary, ...]:
    return tuple(DriverLibrary(name, folder, version) for name in ("libnvidia-ml.so.1", "libcuda.so.1"))


def gpus(
    *indexes: int, lost: tuple[LostGpu, ...] = (), name: str = H100, source: str = "nvml", **each: object
) -> Gpus:
    shown = tuple(Gpu(place, name=name, bus_id=gpu_address(i), **each) for place, i in enumerate(indexes))
    return Gpus(source, driver_version=VERSION, gpus=shown, lost=lost)


def failed(name: str, code: int | None, text: str = "it failed") -> Gpus:
    return Gpus("nvml", init_error=InitError(name, code, text))


def stock(*facts: object) -> Inventory:
    given = [next((f for f in facts if isinstance(f, cls)), UNSEEN) for cls in (Pci, Driver, Gpus, Container)]
    found = Inventory.parse(*given)
    assert isinstance(found, Inventory)
    return found


def present(*facts: object) -> list[Finding]:
    return judge("driver.gpus-present", stock(*facts), *facts)


def answered(*facts: object) -> list[Finding]:
    return judge("driver.answers", stock(*facts), *facts)


def texts(findings: list[Finding]) -> str:
    lines = [line for f in findings for line in (f.summary, *(e.text for e in f.evidence))]
    return "\n".join(lines)


# driver.gpus-present

GONE = LostGpu(None, gpu_address(1), "GPU_IS_LOST", "GPU is lost")


def test_all_gpus_are_there():
    (found,) = present(bus(8), driven(8), gpus(*range(8)), METAL, HOST)
    assert (found.status.value, found.summary) == ("pass", "8 GPUs, all on the PCI bus")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ((bus(2, off=(1,)), driven(2), gpus(0)), "fallen off the bus"),
        ((bus(2), driven(2), gpus(0, lost=(GONE,))), "fallen off the bus"),
        ((bus(2), driven(2), gpus(0)), "not in the driver's list"),
        (
            (Pci((*bus(1).devices, PciDevice(gpu_address(1), "10de", "2330", "030200"))), driven(2), gpus(0)),
            "bound to no kernel driver",
        ),
        (
            (
                bus(2),
                driven(
                    2,
                    gpus=(DriverGpu(gpu_address(1), 7),),
                    nodes=(DeviceNode("/dev/nvidia7", "0660", "", "mode"),),
                ),
                gpus(0),
            ),
            "cannot be opened by this user",
        ),
    ],
)
def test_the_gpu_that_is_missing_is_named(facts: tuple[object, ...], why: str):
    findings = present(*facts, METAL, HOST)
    assert brief(findings) == [("fail", f"pci:{gpu_address(1)}")]
    assert why in findings[0].summary and findings[0].fix is not None


def test_a_lost_gpu_without_an_address_does_not_count_twice():
    findings = present(
        bus(2, off=(1,)), driven(2), gpus(0, lost=(LostGpu(1, None, "GPU_IS_LOST"),)), METAL, HOST
    )
    assert brief(findings) == [("fail", f"pci:{gpu_address(1)}")]


def test_a_lost_gpu_in_a_pasted_text_is_named():
    assert brief(present(Gpus("nvidia-smi", lost=(GONE,)))) == [("fail", f"pci:{gpu_address(1)}")]


def test_a_jobs_share_is_no_fault():
    (found,) = present(bus(8), driven(8, withheld=(0, 1, 2, 3)), gpus(4, 5, 6, 7), METAL, HOST)
    assert (found.status.value, found.summary) == (
        "pass",
        "4 GPUs, all assigned to this container or job (8 on the host)",
    )


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ((Pci(()), Driver(loaded=False, modules={})), "no NVIDIA hardware"),
        ((bus(8), driven(8, withheld=tuple(range(8))), gpus()), "was given none of the 8 GPUs"),
        (
            (bus(8), Driver(loaded=True), DOCKER, failed("LIBRARY_NOT_FOUND", 12)),
            "was given none of the 8 GPUs",
        ),
        ((bus(8, bound="vfio-pci"), Driver(loaded=False, modules={})), "belong to virtual machines"),
        ((Driver(loaded=False, platform="tegra"),), "Tegra"),
        ((Pci(()), Driver(loaded=False, platform="wsl2")), "Windows has no NVIDIA driver"),
    ],
)
def test_no_gpus_by_design_is_skipped_unless_expected(facts: tuple[object, ...], why: str):
    (found,) = present(*facts)
    assert found.status.value == "skip" and why in found.summary
    (found,) = present(*facts, Expect({"gpus": "8"}))
    assert (found.status.value, found.summary) == ("fail", "8 GPUs expected, 0 usable")


def test_gpus_through_wsl2_are_named_so():
    (found,) = present(
        Pci(()), Driver(loaded=False, platform="wsl2", libraries=libraries(None)), gpus(0, name=RTX)
    )
    assert (found.status.value, found.summary) == (
        "pass",
        "1 GPU through WSL2 (driver of Windows)",
    )


@pytest.mark.parametrize(
    ("facts", "summary"),
    [
        (
            (bus(8, bound=None), Driver(loaded=False, modules={}), failed("LIBRARY_NOT_FOUND", 12)),
            "8 GPUs on the PCI bus, no driver loaded",
        ),
        (
            (bus(8), driven(8), failed("LIB_RM_VERSION_MISMATCH", 18)),
            "no GPU usable: the driver's libraries and the loaded kernel module differ",
        ),
        (
            (bus(1), driven(1, withheld=(0,), control=False), DOCKER, failed("UNKNOWN", 999)),
            "the device cgroup denies access to every NVIDIA device, also /dev/nvidiactl",
        ),
        ((bus(0, switches=4), driven(0), gpus()), "4 NVSwitches are present, but no GPU"),
        ((Pci(()), driven(0), gpus()), "the driver is present, but no GPU"),
    ],
)
def test_no_usable_gpu_is_one_failure(facts: tuple[object, ...], summary: str):
    (found,) = present(*facts)
    assert (found.status.value, found.summary) == ("fail", summary)


def test_a_hung_driver_leaves_it_unknown():
    hang = DriverAnswers((DriverAnswer("nvml", "stuck", 30.0, "pid 7 state D in nv_lock"),))
    (found,) = present(bus(8), driven(8), hang)
    assert (found.status.value, found.reason) == ("unknown", "stuck")
    assert "pid 7 state D in nv_lock" in found.summary


def test_nobody_to_ask_leaves_it_unknown():
    nobody = DriverAnswers(
        (DriverAnswer("nvml", "ok", unseen="nvml: No module named 'pynvml'", reason="missing-tool"),)
    )
    (found,) = present(bus(8), driven(8), nobody)
    assert (found.status.value, found.reason) == ("unknown", "missing-tool")
    assert "pynvml" in found.summary


def test_a_reading_that_stopped_does_not_fail_the_gpus_behind_it():
    stopped = Gpus(
        "nvml",
        gpus=gpus(0).gpus,
        lost=(LostGpu(2, gpu_address(2), "NOT_ASKED"),),
        interrupted="timeout",
        interrupted_note="nvml: no answer",
    )
    assert brief(present(bus(3), driven(3), stopped, METAL, HOST)) == [("unknown", "")]


def test_a_board_with_all_switches_and_seven_gpus_is_incomplete():
    facts = (bus(7, switches=4), driven(7), gpus(*range(7)))
    (found,) = present(*facts, METAL, HOST)
    assert found.status.value == "fail" and "7 of 8 GPUs" in found.summary
    assert brief(present(*facts, VM, HOST)) == [("pass", "")]


def test_fewer_gpus_than_nodes_in_a_container():
    """Where the driver's own list is not mounted, the nodes are all a container has to count by."""
    (found,) = present(bus(8), driven(4, gpus=()), gpus(0, 1, 2), DOCKER)
    assert (found.status.value, found.summary) == (
        "fail",
        "4 GPU device nodes usable here, the driver reports 3 GPUs",
    )


def test_excluded_and_lent_gpus_are_notes():
    pci = Pci((*bus(2).devices, PciDevice(gpu_address(2), "10de", "2330", "030200", driver="vfio-pci")))
    driver = driven(2, gpus=(DriverGpu(gpu_address(0), 0), DriverGpu(gpu_address(1), 1, excluded=True)))
    findings = present(pci, driver, gpus(0), METAL, HOST)
    assert brief(findings) == [
        ("note", f"pci:{gpu_address(1)}"),
        ("note", f"pci:{gpu_address(2)}"),
        ("pass", ""),
    ]


def test_slurm_granted_gpus_and_none_is_there():
    granted = Env({"SLURM_GPUS_ON_NODE": "4"})
    facts = (bus(8), driven(8, withheld=tuple(range(8))), gpus())
    assert brief(present(*facts)) == [("skip", "")]
    assert brief(present(*facts, granted)) == [("fail", "")]


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ({"gpus": "8"}, [("pass", "")]),
        ({"gpus": "9"}, [("fail", ""), ("pass", "")]),
        ({"gpus": "many"}, [("unknown", ""), ("pass", "")]),
        ({"gpu": "h100"}, [("pass", "")]),
        ({"gpu": "B200", "gpus": "8"}, [*[("fail", f"gpu:{i}") for i in range(8)], ("pass", "")]),
    ],
)
def test_expectations(expected: dict[str, str], said: list[tuple[str, str]]):
    facts = (bus(8), driven(8), gpus(*range(8)), METAL, HOST)
    assert brief(present(*facts, Expect(expected))) == said


# driver.answers

NVML = DriverAnswer("nvml", "ok", 0.4, gpus=2, driver_version=VERSION)
WELL = (bus(2), driven(2), gpus(0, 1), HOST)


def test_the_driver_answers():
    (found,) = answered(*WELL, DriverAnswers((NVML,)))
    assert (found.status.value, found.summary) == (
        "pass",
        f"nvml answered in 0.40 s: 2 GPUs, driver {VERSION}",
    )


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (
            DriverAnswer("nvml", "stuck", 30.5, "pid 7 state D in nv_lock", at="it was in nvmlInit"),
            "fail",
            "state D in nv_lock",
        ),
        (
            DriverAnswer("nvml", "timeout", 30.0, "pid 7 was in state R, and was killed"),
            "fail",
            "the driver hangs",
        ),
        (DriverAnswer("nvml", "timeout", 1.2, "no answer in 1.2 s"), "unknown", "had too little time"),
        (
            DriverAnswer("nvml", "crash", 0.2, "killed by SIGSEGV: nvmlDeviceGetName"),
            "fail",
            "crashed: killed by SIGSEGV",
        ),
        (DriverAnswer("nvml", "ok", 0.1, reason="missing-tool", unseen="no pynvml"), "unknown", "no pynvml"),
        (
            DriverAnswer("nvml", "ok", 6.5, gpus=2, slow_calls=(SlowCall(3, "nvmlInit", 5.0),)),
            "warn",
            "took 6.5 s",
        ),
    ],
)
def test_silence_and_slowness(answer: DriverAnswer, status: str, words: str):
    (found,) = answered(bus(2), driven(2), HOST, DriverAnswers((answer,)))
    assert found.status.value == status and words in texts([found])
    assert found.fix is not None or status == "unknown"


def test_a_crash_shows_where_it_was_and_no_traceback():
    crash = DriverAnswer(
        "nvml",
        "crash",
        0.2,
        "killed by SIGSEGV: Fatal\n\n  File x",
        at="nvml: killed by SIGSEGV: Fatal; at y",
    )
    (found,) = answered(bus(2), driven(2), HOST, DriverAnswers((crash,)))
    assert [(line.text, line.path) for line in found.evidence] == [("killed by SIGSEGV: Fatal", "@note")]


def test_a_tripped_lane_is_a_hang():
    tripped = DriverAnswers((), "nvidia-smi-topo is stuck; not querying the same driver or file system again")
    (found,) = answered(bus(2), driven(2), HOST, tripped)
    assert found.status.value == "fail" and "nvidia-smi-topo is stuck" in found.summary


def test_a_crash_of_nvml_beside_an_answer_is_a_warning():
    both = DriverAnswers(
        (
            DriverAnswer("nvml", "crash", 0.2, "killed by SIGSEGV"),
            DriverAnswer("nvidia-smi-xml", "ok", 0.2, gpus=2),
        )
    )
    assert brief(answered(*WELL, both)) == [("warn", "")]


@pytest.mark.parametrize(
    ("name", "where", "command"),
    [
        ("DRIVER_NOT_LOADED", HOST, "sudo modprobe nvidia"),
        ("LIB_RM_VERSION_MISMATCH", HOST, "apt-mark hold"),
        ("LIB_RM_VERSION_MISMATCH", DOCKER, "Recreate the container"),
        ("UNKNOWN", DOCKER, "nvidia-ctk system create-dev-char-symlinks"),
        ("UNKNOWN", HOST, "nvidia-bug-report.sh"),
        ("NO_PERMISSION", HOST, "ls -l /dev/nvidia*"),
        ("NOT_FOUND", HOST, "dmesg"),
        ("NOT_FOUND", DOCKER, "--gpus all"),
        ("LIBRARY_NOT_FOUND", DOCKER, "--gpus all"),
        ("OPERATING_SYSTEM", HOST, "wsl --update"),
        ("IRQ_ISSUE", HOST, "dmesg"),
    ],
)
def test_errors_by_class_have_their_fix(name: str, where: Container, command: str):
    error = InitError(name, 1, "the text")
    both = DriverAnswers(
        tuple(DriverAnswer(probe, "ok", 0.1, init_error=error) for probe in ("nvml", "nvidia-smi-xml"))
    )
    (found,) = answered(bus(2), driven(2), Gpus("nvml", init_error=error), where, both)
    assert found.status.value == "fail" and found.summary.startswith(f"{name}: ")
    assert [line.probe for line in found.evidence] == ["nvml", "nvidia-smi-xml"]
    assert found.fix is not None and command in "\n".join(
        [found.fix.text, *(step.command for step in found.fix.steps)]
    )


def test_a_container_that_lost_its_devices_is_told_so():
    error = InitError("UNKNOWN", 999, "Unknown Error")
    facts = (bus(1), driven(1, withheld=(0,), control=False), Gpus("nvml", init_error=error), DOCKER)
    (found,) = answered(*facts, DriverAnswers((DriverAnswer("nvml", "ok", 0.1, init_error=error),)))
    assert found.summary == "this container lost access to the NVIDIA devices (device cgroup)"
    assert found.fix is not None and "daemon-reload" in found.fix.text


@pytest.mark.parametrize(
    ("read", "subject", "command"),
    [
        (gpus(0, lost=(LostGpu(1, None, "GPU_IS_LOST"),)), "gpu:1", "nvidia-bug-report.sh"),
        (gpus(0, lost=(GONE,)), f"pci:{gpu_address(1)}", "dmesg"),
        (gpus(0, errors={"temperature_c": "RESET_REQUIRED"}), "gpu:0", "nvidia-smi --gpu-reset -i 0"),
        (gpus(0, errors={"temperature_c": "UNKNOWN", "pstate": "UNKNOWN"}), "gpu:0", "reboot"),
    ],
)
def test_a_sick_gpu_is_named(read: Gpus, subject: str, command: str):
    findings = answered(bus(2), driven(2), read, HOST, DriverAnswers((NVML,)))
    assert brief(findings) == [("fail", subject)]
    fix = findings[0].fix
    assert fix is not None and command in "\n".join(step.command for step in fix.steps)


@pytest.mark.parametrize(
    "errors", [{"temperature_c": "UNKNOWN"}, {"fabric_state": "UNKNOWN", "pstate": "NOT_SUPPORTED"}]
)
def test_single_values_that_fail_are_no_sick_gpu(errors: dict[str, str]):
    assert brief(answered(bus(2), driven(2), gpus(0, 1, errors=errors), HOST, DriverAnswers((NVML,)))) == [
        ("pass", "")
    ]


def test_where_there_is_nothing_to_ask_it_is_skipped():
    assert brief(answered(Pci(()), Driver(loaded=False, modules={}))) == [("skip", "")]
    assert brief(answered(bus(2), driven(2))) == [("unknown", "")]


# driver.module-userspace


def versions(*facts: object) -> list[Finding]:
    return judge("driver.module-userspace", *facts)


def test_one_version():
    (found,) = versions(driven(8), HOST)
    assert (found.status.value, found.note, found.summary) == (
        "pass",
        False,
        f"module and libraries {VERSION}",
    )


@pytest.mark.parametrize(("where", "action"), [(HOST, "reboot"), (DOCKER, "restart-job")])
def test_libraries_of_another_version_fail(where: Container, action: str):
    driver = driven(8, version=OLDER, version_text=f"NVRM version: {OLDER}", unattended_upgrades=True)
    packages = DriverPackages(
        (DriverPackage("libnvidia-compute-580", f"{VERSION}-0ubuntu1", VERSION, False),)
    )
    (found,) = versions(driver, packages, where)
    assert found.status.value == "fail"
    assert OLDER in found.summary and f"the libraries are {VERSION}" in found.summary
    quoted = [(line.probe, line.like) for line in found.evidence]
    assert any(probe == "driver-files" and "Unattended-Upgrade" in like for probe, like in quoted)
    assert any(probe == "driver-packages" and r"libnvidia\-compute\-580" in like for probe, like in quoted)
    assert found.fix is not None and found.fix.action == action


def test_nvmls_own_word_fails_whatever_the_files_say():
    mismatch = failed("LIB_RM_VERSION_MISMATCH", 18, "Driver/library version mismatch")
    assert brief(versions(driven(8), mismatch, HOST)) == [("fail", "")]
    (found,) = versions(mismatch)
    assert found.status.value == "fail" and "different versions" in found.summary


def test_nvmls_version_serves_where_no_file_has_one():
    nameless = driven(8, libraries=())
    agreeing, other = (Gpus("nvml", nvml_version=f"13.{version}") for version in (VERSION, OLDER))
    assert brief(versions(nameless, agreeing, HOST)) == [("pass", "")]
    assert brief(versions(nameless, other, HOST)) == [("fail", "")]
    assert brief(versions(nameless, HOST)) == [("unknown", "")]


def test_worth_a_note_beside_one_version():
    copy = driven(8, libraries=(*libraries(VERSION), *libraries(OLDER, "/usr/local/nvidia/lib64")))
    assert brief(versions(copy, HOST)) == [("note", "")]
    staged = DriverPackages((DriverPackage("nvidia-dkms-580", f"{OLDER}-1", OLDER, False),))
    assert brief(versions(driven(8), staged, HOST)) == [("note", "")]
    free = DriverPackages((DriverPackage("nvidia-dkms-580", f"{VERSION}-1", VERSION, False),))
    assert brief(versions(driven(8, unattended_upgrades=True), free, HOST)) == [("note", "")]
    held = DriverPackages((DriverPackage("nvidia-dkms-580", f"{VERSION}-1", VERSION, True),))
    assert brief(versions(driven(8, unattended_upgrades=True), held, HOST)) == [("pass", "")]


@pytest.mark.parametrize(
    ("driver", "status"),
    [
        (Driver(loaded=False, platform="wsl2"), "skip"),
        (Driver(loaded=False), "skip"),
        (Driver(errors={"/proc/driver/nvidia/version": "TIMEOUT"}), "unknown"),
        (Driver(errors={"/proc/driver/nvidia/version": "EACCES"}), "unknown"),
    ],
)
def test_no_module_to_compare(driver: Driver, status: str):
    assert brief(versions(driver)) == [(status, "")]


# driver.modules


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ((driven(8), bus(8)), [("pass", "")]),
        ((driven(8, modules={"nvidia": "Live"}), bus(8)), [("warn", "")]),
        ((driven(8, modules={"nvidia": "Loading", "nvidia_uvm": "Live"}), bus(8)), [("warn", "")]),
        ((driven(8, modules=None), bus(8)), [("unknown", "")]),
        ((Driver(loaded=None), bus(8)), [("unknown", "")]),
        ((Driver(loaded=False, modules={}), bus(8, bound=None)), [("fail", "")]),
        ((Driver(loaded=False, modules={}), bus(8, bound="vfio-pci")), [("skip", "")]),
        (
            (Driver(loaded=False, modules={"nouveau": "Live"}), bus(1, bound="nouveau")),
            [("fail", f"pci:{gpu_address(0)}")],
        ),
        (
            (driven(8, modules={"nvidia": "Live", "nvidia_uvm": "Live", "nouveau": "Live"}), bus(8)),
            [("pass", "")],
        ),
        ((Driver(loaded=False, modules={}), Pci(())), [("skip", "")]),
        ((Driver(loaded=False, platform="wsl2"), Pci(())), [("skip", "")]),
    ],
)
def test_modules(facts: tuple[object, ...], said: list[tuple[str, str]]):
    assert brief(judge("driver.modules", stock(*facts), *facts)) == said


# driver.branch


@pytest.mark.parametrize(
    ("version", "when", "said"),
    [
        ("580.95.05", "2026-11", "pass"),
        ("580.95.05", "2028-07", "note"),
        ("570.86.10", "2026-02", "pass"),
        ("570.86.10", "2026-03", "note"),
        ("550.54.15", "2026-11", "note"),
        ("999.1.1", "2026-11", "note"),
        ("", "2026-11", "skip"),
    ],
)
def test_branches(version: str, when: str, said: str):
    year, month = map(int, when.split("-"))
    moment = Moment(datetime(year, month, 5, tzinfo=timezone.utc))
    assert brief(judge("driver.branch", Driver(version=version or None), moment)) == [(said, "")]


def test_an_expected_driver():
    driver = Driver(version=VERSION)
    assert brief(judge("driver.branch", driver, NOON, Expect({"driver": "580"}))) == [("pass", "")]
    assert brief(judge("driver.branch", driver, NOON, Expect({"driver": "570.86"}))) == [
        ("fail", ""),
        ("pass", ""),
    ]
    assert brief(judge("driver.branch", Driver(), NOON, Expect({"driver": "570"}))) == [("fail", "")]


# driver.persistence

RUNNING = Services((Service("nvidia-persistenced", "loaded", "active", "running"),))
DEAD = Services((Service("nvidia-persistenced", "loaded", "inactive", "dead"),))


def one_off() -> Gpus:
    modes = (replace(gpu, persistence_mode=gpu.index != 3) for gpu in gpus(*range(8)).gpus)
    return replace(gpus(), gpus=tuple(modes))


@pytest.mark.parametrize(
    ("read", "facts", "said"),
    [
        (gpus(*range(8), persistence_mode=True), (METAL, HOST), "pass"),
        (gpus(*range(8), persistence_mode=False), (METAL, HOST), "warn"),
        (gpus(*range(8), persistence_mode=False), (METAL, HOST, RUNNING), "note"),
        (gpus(*range(8), persistence_mode=False), (VM, HOST), "note"),
        (gpus(*range(8), persistence_mode=False), (METAL, DOCKER), "note"),
        (gpus(*range(8), persistence_mode=False), (), "note"),
        (gpus(*range(8), persistence_mode=False), (DEAD,), "warn"),
        (gpus(*range(8), persistence_mode=False), (VM, HOST, DEAD), "note"),
        (gpus(*range(8), persistence_mode=False), (RUNNING,), "note"),
        (one_off(), (), "warn"),
        (one_off(), (VM, DOCKER), "warn"),
        (gpus(0, persistence_mode=False), (METAL, HOST), "note"),
        (gpus(0, 1, name=RTX, persistence_mode=False), (METAL, HOST), "note"),
        (gpus(0, 1, errors={"persistence_mode": "NOT_SUPPORTED"}), (METAL, HOST), "skip"),
        (gpus(0, 1, errors={"persistence_mode": "NO_PERMISSION"}), (METAL, HOST), "unknown"),
        (gpus(), (), "skip"),
        (failed("UNKNOWN", 999), (), "unknown"),
        (Gpus("nvml", interrupted="stuck"), (), "unknown"),
    ],
)
def test_persistence(read: Gpus, facts: tuple[object, ...], said: str):
    assert brief(judge("driver.persistence", read, *facts)) == [(said, "")]


@pytest.mark.parametrize("id", ["driver.persistence", "driver.recovery-action", "driver.mode"])
def test_what_was_not_reached_does_not_pass(id: str):
    read = gpus(0, 1, persistence_mode=True, recovery_action="none", compute_mode="default")
    assert brief(judge(id, read)) == [("pass", "")]
    stopped = Gpus("nvml", gpus=read.gpus, counted=8, interrupted="timeout", interrupted_note="no answer")
    assert brief(judge(id, stopped)) == [("unknown", "")]


# driver.recovery-action


@pytest.mark.parametrize(
    ("each", "said", "action"),
    [
        ({"recovery_action": "none"}, "pass", None),
        ({"recovery_action": "gpu-reset"}, "fail", "reset-gpu"),
        ({"recovery_action": "node-reboot"}, "fail", "reboot"),
        ({"recovery_action": "drain-p2p"}, "fail", "drain"),
        ({"recovery_action": "drain-and-reset"}, "fail", "reset-gpu"),
        ({"recovery_action": "recover-imex-domain"}, "fail", "restart-service"),
        ({"recovery_action": "bus-reset"}, "fail", "reset-gpu"),
        ({"recovery_action": "system-reboot"}, "fail", "reboot"),
        ({"recovery_action": "unknown-9"}, "fail", "investigate"),
        ({"reset_required": False, "drain_and_reset_recommended": False}, "pass", None),
        ({"reset_required": True}, "fail", "reset-gpu"),
        ({"reset_required": False, "drain_and_reset_recommended": True}, "fail", "reset-gpu"),
        ({"errors": {"recovery_action": "NOT_SUPPORTED"}}, "skip", None),
        ({"errors": {"recovery_action": "GPU_IS_LOST"}}, "unknown", None),
    ],
)
def test_recovery_actions(each: dict[str, object], said: str, action: str | None):
    (found,) = judge("driver.recovery-action", gpus(3, **each))
    assert brief([found]) == [(said, "gpu:0" if said == "fail" else "")]
    assert (found.fix.action if found.fix else None) == action


# driver.mode


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (gpus(0, 1, mig_mode=False, compute_mode="default"), [("pass", "")]),
        (gpus(0, mig_mode=True, mig_devices=7), [("note", "")]),
        (gpus(0, 1, mig_mode=True, mig_devices=7), [("note", "")]),
        (gpus(0, 1, compute_mode="exclusive-process"), [("warn", "gpu:0"), ("warn", "gpu:1")]),
        (gpus(0, compute_mode="prohibited"), [("fail", "gpu:0")]),
        (gpus(0, compute_mode="exclusive-process", processes=(GpuProcess(7, "mps"),)), [("note", "gpu:0")]),
        (gpus(0, mig_mode=False, mig_mode_pending=True), [("note", "gpu:0")]),
        (gpus(0, virtualization_mode="vgpu"), [("note", "")]),
        (gpus(0, confidential_compute=True), [("note", "")]),
        (gpus(), [("skip", "")]),
    ],
)
def test_modes(read: Gpus, said: list[tuple[str, str]]):
    assert brief(judge("driver.mode", read)) == said


def test_mig_on_some_gpus_only():
    some = Gpus("nvml", gpus=(Gpu(0, mig_mode=True), Gpu(1, mig_mode=False), Gpu(2)))
    (found,) = judge("driver.mode", some)
    assert found.note and "GPU 0 only: no P2P or NVLink" in found.summary


# driver.processes

INIT = Process(1, program="systemd", state="sleeping")


def held(
    *processes: Process, read: Gpus | None = None, where: Container = HOST, driver: Driver | None = None
) -> list[Finding]:
    facts = [bus(2), driver or driven(2), read or gpus(0, 1, processes=()), where]
    return judge("driver.processes", stock(*facts), *facts, Processes((INIT, *processes)), NOON)


def rank(**more: object) -> Process:
    told = {"ppid": 40, "program": "python3", "script": "train.py", "role": "rank", "rank": 3}
    return Process(42, **{**told, "state": "sleeping", "nvidia": ("nvidia3",), **more})


@pytest.mark.parametrize(
    ("process", "said"),
    [
        (rank(), [("pass", "")]),
        (rank(state="disk-sleep", wchan="nvidia_ioctl"), [("fail", "pid:42")]),
        (rank(state="disk-sleep", wchan="os_acquire_rwlock_write", started=1.0), [("fail", "pid:42")]),
        (
            rank(state="disk-sleep", wchan="os_acquire_mutex", started=NOON.started.timestamp() - 9),
            [("note", "pid:42")],
        ),
        (rank(state="disk-sleep", wchan="folio_wait_bit_common"), [("pass", "")]),
        (rank(state="disk-sleep", wchan="0"), [("unknown", "pid:42")]),
        (rank(state="disk-sleep", wchan="nvidia_ioctl", ppid=2), [("pass", "")]),
        (rank(ppid=1), [("warn", "pid:42")]),
        (rank(ppid=1, nvidia=()), [("pass", "")]),
        (rank(ppid=1, role="", program="sh"), [("pass", "")]),
        (rank(ppid=1, role="", program="sh", job="4711"), [("warn", "pid:42")]),
        (rank(ppid=1, role="engine", program="VLLM::EngineCore"), [("warn", "pid:42")]),
    ],
)
def test_holders_of_gpus(process: Process, said: list[tuple[str, str]]):
    assert brief(held(process)) == said


def test_a_slurm_job_that_still_runs_is_not_left_over():
    step = Process(41, ppid=1, program="slurmstepd", job="4711")
    other = Process(41, ppid=1, program="slurmstepd", job="4712")
    process = rank(ppid=1, role="", program="sh", job="4711")
    assert brief(held(process, step)) == [("pass", "")]
    assert brief(held(process, other)) == [("warn", "pid:42")]


def test_process_1_of_a_container_may_be_the_launcher():
    assert brief(held(rank(ppid=1), where=DOCKER)) == [("pass", "")]


def test_a_zombie_that_holds_memory():
    read = gpus(0, processes=(GpuProcess(42, "compute", 9000),))
    assert brief(held(rank(state="zombie", nvidia=()), read=read)) == [("warn", "pid:42")]
    assert brief(held(rank(state="zombie", nvidia=()))) == [("pass", "")]


@pytest.mark.parametrize(
    ("each", "said"),
    [
        ({"memory_used_mib": 500, "processes": ()}, [("pass", "")]),
        ({"memory_used_mib": 70000, "processes": ()}, [("warn", "gpu:0")]),
        ({"memory_used_mib": 70000, "processes": None}, [("pass", "")]),
        ({"memory_used_mib": 70000, "processes": (), "mig_mode": True}, [("pass", "")]),
        ({"memory_used_mib": 70000, "processes": (), "addressing_mode": "ats"}, [("pass", "")]),
        ({"memory_used_mib": 70000, "processes": (GpuProcess(42, "compute", 69000),)}, [("pass", "")]),
        ({"memory_used_mib": 70000, "processes": (GpuProcess(77, "compute", 69000),)}, [("warn", "gpu:0")]),
    ],
)
def test_memory_that_nobody_owns(each: dict[str, object], said: list[tuple[str, str]]):
    assert brief(held(rank(), read=gpus(0, **each))) == said


def test_memory_is_only_judged_where_all_processes_are_seen():
    read = gpus(0, memory_used_mib=70000, processes=())
    assert brief(held(rank(), read=read, where=DOCKER)) == [("pass", "")]
    windows = Driver(loaded=False, platform="wsl2", libraries=libraries(None))
    assert brief(held(rank(), read=read, driver=windows)) == [("pass", "")]
    hidden = gpus(0, processes=(GpuProcess(77, "compute", 69000),))
    facts = [bus(2), driven(2), hidden, HOST]
    only_ours = Processes((rank(),))  # mounted with hidepid=2, /proc shows only our own
    assert brief(judge("driver.processes", stock(*facts), *facts, only_ours, NOON)) == [("pass", "")]


def test_processes_that_could_not_be_seen_are_unknown():
    facts = [bus(2), driven(2), gpus(0, 1, processes=()), HOST]
    assert brief(judge("driver.processes", stock(*facts), *facts, NOON)) == [("unknown", "")]
    nothing = [Pci(()), Driver(loaded=False, modules={})]
    assert brief(judge("driver.processes", stock(*nothing), *nothing, NOON)) == [("skip", "")]
