"""A fix is for the node it is said of: its owner, container, distribution, and what was installed on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import smi_texts
from fixes import folders, judged
from recorded import driver_files, machine, pci, replay, services

from nodedoctor.model import Finding, Fix, Report, Status, Step
from nodedoctor.steps import resets


def found(report: Report, check: str) -> Finding:
    return next(result.worst for result in report.results if result.check == check)


def fix_of(report: Report, check: str) -> Fix:
    fix = found(report, check).fix
    assert fix is not None
    return fix


def roles(fix: Fix, part: str) -> set[str]:
    return {step.role for step in fix.steps if part in step.command}


def elsewhere(tmp_path: Path, probe: str, document: dict[str, str]) -> Report:
    """The demo with two dead links, with other files in one of its probes."""
    node = tmp_path / "node"
    shutil.copytree(folders()["demo nvlinks-down"], node)
    place = node / "probes" / f"{probe}.txt"
    told = json.loads(place.read_text())
    told["files"] |= document
    place.write_text(json.dumps(told))
    return judged(node)


def test_on_ones_own_machine_the_reset_is_a_repair_between_what_it_needs():
    fix = fix_of(judged(folders()["demo nvlinks-down"]), "nvlink.links")
    commands = [step.command for step in fix.steps]
    (reset,) = [step for step in fix.steps if resets(step.command)]
    assert reset.command == "sudo nvidia-smi --gpu-reset -i 3" and reset.role == "repair" and reset.when
    at = commands.index(reset.command)
    assert "systemctl stop" in commands[at - 2] and commands[at - 1].endswith("-pm 0")
    assert commands[at + 1].endswith("-pm 1") and "systemctl start" in commands[at + 2]
    assert fix.steps[-1].role == "last-resort" and fix.steps[-1].command == "sudo reboot"


@pytest.mark.parametrize(
    "document",
    [
        {"/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu vme lm hypervisor\n"},
        {"/sys/class/dmi/id/sys_vendor": "Amazon EC2\n"},
    ],
)
def test_on_a_virtual_or_rented_machine_nobody_resets_a_gpu_first(tmp_path: Path, document: dict[str, str]):
    report = elsewhere(tmp_path, "machine", document)
    fix = fix_of(report, "nvlink.links")
    assert roles(fix, "--gpu-reset") == roles(fix, "reboot") == {"last-resort"}
    assert "provider's console" in fix.text and fix.action == "reboot"
    assert not any("nodedoctor-stopped" in step.command or "-pm" in step.command for step in fix.steps)
    assert all("nvidia-smi nvlink" in command or "dmesg" in command for command in fix.commands)


def board(tmp_path: Path, packages: str, distribution: str, manager: str = "570.133.20") -> Report:
    """Eight H100 with driver 570.86.10 and a fabric manager of another version."""
    buses = ("18", "2A", "3A", "5D", "9A", "AB", "BA", "DB")
    here = json.loads(machine())
    here["files"]["/etc/os-release"] = f"ID={distribution}\n"
    probes = {
        "nvidia-smi-xml": smi_texts.xml(
            [smi_texts.xml_gpu(f"00000000:{bus}:00.0") for bus in buses], driver="570.86.10"
        ),
        "pci": pci(8, "2330", ("22a3",) * 4),
        "driver-files": driver_files(),
        "machine": json.dumps(here),
        "services": services("nvidia-persistenced", "nvidia-fabricmanager"),
        "fabric-manager": f"Fabric Manager version is : {manager}\n",
        "driver-packages": packages,
    }
    return replay(tmp_path, probes)


START = "sudo systemctl start nvidia-fabricmanager"
UTILS = "ii \tnvidia-utils-570-server\t570.86.10-0ubuntu0.24.04.1\n"


@pytest.mark.parametrize(
    ("packages", "distribution", "commands"),
    [
        (
            UTILS,
            "ubuntu",
            (
                "apt-cache madison nvidia-fabricmanager-570",
                "sudo apt-get install 'nvidia-fabricmanager-570=570.86.10*'",
                "sudo apt-mark hold nvidia-fabricmanager-570",
                START,
            ),
        ),
        (
            "ii \tnvidia-fabricmanager\t570.133.20-1\n",
            "ubuntu",
            (
                "apt-cache madison nvidia-fabricmanager",
                "sudo apt-get install 'nvidia-fabricmanager=570.86.10*'",
                "sudo apt-mark hold nvidia-fabricmanager",
                START,
            ),
        ),
        ("", "rocky", ("sudo dnf install nvidia-fabricmanager-570.86.10", START)),
        (
            "ii \tnvidia-fabric-manager\t570.133.20\n",
            "rhel",
            ("sudo dnf install nvidia-fabric-manager-570.86.10", START),
        ),
        ("", "sles", ("sudo zypper install nvidia-fabricmanager-570.86.10", START)),
        ("", "arch", ()),
    ],
)
def test_the_fabric_manager_is_installed_as_this_distribution_does(
    tmp_path: Path, packages: str, distribution: str, commands: tuple[str, ...]
):
    report = board(tmp_path, packages, distribution)
    assert found(report, "fabric.version").status is Status.FAIL
    assert fix_of(report, "fabric.version").commands == commands


def test_an_upgraded_fabric_manager_waits_for_the_reboot_with_its_driver(tmp_path: Path):
    """Downgrading it would break the one part that is right after the reboot."""
    upgraded = UTILS.replace("570.86.10", "570.133.20")
    finding = found(board(tmp_path, upgraded, "ubuntu"), "fabric.version")
    assert finding.status is Status.SKIP and "reboot" in finding.summary


def test_a_fix_of_an_older_model_cannot_be_made():
    """Commands derive from steps: nobody hands in a bare string that was not quoted."""
    fix = Fix("x", (Step("look", "id"), Step("last-resort", "sudo reboot", "the node is drained", "all")))
    assert fix.commands == ("id",)
    with pytest.raises(TypeError):
        Fix("x", commands=("id",))  # type: ignore[call-arg]
