"""Recipes are run, as they are printed, against commands that log and refuse as the real ones do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from fakes.node_commands import install, world_of
from fixes import every_fix

from nodedoctor.knowledge.fixes.recipes import for_distribution, gpu_reset, touches_driver
from nodedoctor.knowledge.nvml_errors import HOLD_PACKAGES, RELOAD
from nodedoctor.model import Fix, Step
from nodedoctor.steps import resets

MODULES = [
    *("gdrdrv", "nvidia_fs", "nvidia_peermem", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia"),
    *("ib_uverbs", "mlx5_core"),
]
MONITORS = ["nvidia-persistenced", "nvidia-dcgm", "dcgm-exporter"]
UNITS = ["sshd", "slurmd", "nvidia-fabricmanager", "nvidia-imex", *MONITORS]
BUILT_FOR = "linux-modules-nvidia-580-open-6.8.0-60-generic"
DRIVER = ["nvidia-driver-580-open", "nvidia-fabricmanager-580", "kmod-nvidia-open-dkms", BUILT_FOR]
KERNELS = {"ubuntu": "linux-image-6.8.0-60-generic", "rocky": "kernel-core", "sles": "kernel-default"}
PACKAGES = [*DRIVER, *KERNELS.values(), "bash", "firefox"]
_NOT_RUN = ("reboot", "ipmitool", "sysrq", "poweroff")


def world(**changed: Any) -> dict[str, Any]:
    """A node at work: every service and module that a repair must bring back, and nothing in the way."""
    return {
        "units": list(UNITS),
        "modules": list(MODULES),
        "persistence": [str(number) for number in range(8)],
        "processes": [],
        "reset": [],
        "packages": list(PACKAGES),
        "held": [],
        **changed,
    }


def run(steps: Iterable[Step], folder: Path, before: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Run what changes something, in order, less what ends the node; the world after it, exit codes."""
    env = install(folder, before)
    codes = [
        subprocess.run(
            ["bash", "-c", step.command], cwd=folder, env=env, capture_output=True, timeout=60
        ).returncode
        for step in steps
        if step.role in ("repair", "last-resort") and not any(word in step.command for word in _NOT_RUN)
    ]
    return world_of(folder), codes


def brought_back(after: dict[str, Any], before: dict[str, Any]) -> bool:
    return all(sorted(after[key]) == sorted(before[key]) for key in ("units", "modules", "persistence"))


def test_a_reset_stops_what_holds_the_gpu_and_starts_exactly_that_again(tmp_path: Path):
    before = world()
    after, codes = run(gpu_reset(3), tmp_path / "bin", before)
    assert codes == [0] * len(codes) and after["reset"] == ["3"]
    assert brought_back(after, before)
    stopped = next(line for line in after["log"] if line[:2] == ["systemctl", "stop"])
    assert sorted(word.removesuffix(".service") for word in stopped[2:]) == sorted(MONITORS)


def test_a_reset_without_its_preparations_is_refused(tmp_path: Path):
    """The stand-in is no yes-man: what the recipe prepares is needed."""
    bare = [step for step in gpu_reset(3) if resets(step.command)]
    after, codes = run(bare, tmp_path / "bin", world())
    assert codes == [15] and after["reset"] == []


def test_a_reset_is_refused_while_a_job_runs_and_services_come_back(tmp_path: Path):
    before = world(processes=["python"])
    after, codes = run(gpu_reset(3), tmp_path / "bin", before)
    assert 15 in codes and after["reset"] == [] and brought_back(after, before)


def test_nothing_is_stopped_or_started_where_no_monitor_runs(tmp_path: Path):
    before = world(units=["sshd"], persistence=["3"])
    after, _ = run(gpu_reset(3), tmp_path / "bin", before)
    assert after["reset"] == ["3"] and brought_back(after, before)
    assert not any(line[:2] in (["systemctl", "stop"], ["systemctl", "start"]) for line in after["log"])


def test_a_reload_puts_back_every_module_and_service_it_took(tmp_path: Path):
    before = world()
    after, codes = run(without_holds(RELOAD), tmp_path / "bin", before)
    assert codes == [0] * len(codes) and brought_back(after, before)
    removed = next(line for line in after["log"] if line[:2] == ["modprobe", "-r"])
    assert {"nvidia", "nvidia_peermem", "gdrdrv", "nvidia_fs"} <= set(removed) and "mlx5_core" not in removed


def test_a_reload_beside_a_job_takes_nothing_away(tmp_path: Path):
    before = world(processes=["python"])
    after, _ = run(without_holds(RELOAD), tmp_path / "bin", before)
    assert brought_back(after, before)


def without_holds(fix: Fix) -> list[Step]:
    return [step for step in fix.steps if step not in HOLD_PACKAGES]


@pytest.mark.parametrize("distribution", KERNELS)
def test_held_packages_are_those_installed_and_the_kernel_with_them(tmp_path: Path, distribution: str):
    (step,) = for_distribution(Fix("", HOLD_PACKAGES), distribution).steps
    after, codes = run([step], tmp_path / "bin", world())
    assert codes == [0] and set(after["held"]) == {*DRIVER, KERNELS[distribution]}


def test_where_the_distribution_is_not_known_each_step_names_its_own():
    steps = for_distribution(Fix("", HOLD_PACKAGES), "").steps
    assert len(steps) == 3 and all(step.when.startswith("this is ") for step in steps)


@pytest.mark.slow
def test_every_recipe_of_every_fix_leaves_services_modules_and_modes_as_they_were(tmp_path: Path):
    """Whatever a fix adds around it, resets one after the other or a reload, nothing is missing."""
    seen: dict[tuple[str, ...], list[Step]] = {}
    for fix in every_fix().values():
        if touches_driver(fix) and any(step.role == "repair" for step in fix.steps):
            steps = [step for step in fix.steps if "nvidia-smi -r bus" not in step.command]
            seen.setdefault(tuple(step.command for step in steps), steps)
    assert len(seen) > 5
    shapes: dict[tuple[str, ...], list[Step]] = {}
    for commands, steps in seen.items():  # GPUs differ in their numbers alone
        shapes.setdefault(tuple(_unnumbered(command) for command in commands), steps)
    for number, steps in enumerate(shapes.values()):
        before = world()
        after, codes = run(steps, tmp_path / str(number), before)
        told = [step.command for step in steps]
        assert brought_back(after, before), told
        assert after["reset"] or not any(resets(command) for command in told), (told, codes)


def _unnumbered(command: str) -> str:
    return " ".join("N" if word.replace(",", "").isdecimal() else word for word in command.split())
