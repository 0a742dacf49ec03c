"""Which container are we in, and does it hold what its image promises?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from asking import ask, brief, document, judge, said, write
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.facts.host.container import Container, container_files
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.packages import Package
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.model import Expect, Observation, Outcome, Unseen

INITIAL = {"ipc": 4026531839, "uts": 4026531838, "user": 4026531837, "pid": 4026531836, "cgroup": 4026531835}
HOST = {**INITIAL, "net": 4026531840, "mnt": 4026531841}  # an older kernel: these two have no fixed numbers
DOCKER = {
    **HOST,
    "ipc": 4026532300,
    "uts": 4026532299,
    "pid": 4026532301,
    "net": 4026532303,
    "mnt": 4026532298,
}
HEX = "0123456789abcdef" * 4


def place(root: Path, mine: dict[str, int], inits: dict[str, int] | None = None, **files: str) -> Path:
    for pid, numbers in (("self", mine), ("1", inits or {})):
        folder = root / "proc" / pid / "ns"
        folder.mkdir(parents=True)
        for kind, number in numbers.items():
            (folder / kind).symlink_to(f"{kind}:[{number}]")
    for name, text in files.items():
        write(root / name.lstrip("/"), text)
    return root


def container(root: Path, env: dict[str, str] | None = None) -> Container:
    found = Container.parse(ask(container_files, root=root), Env(env or {}))
    assert isinstance(found, Container)
    json.dumps(asdict(found))
    return found


KUBEPODS = f"0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-{HEX}.scope\n"
HOSTS = "630 620 8:1 /var/lib/docker/containers/0123456789ab/hosts /etc/hosts rw - ext4 /dev/sda1 rw\n"
ENROOT = "36 35 0:50 /raid/enroot/data/user-1000/pyxis_7 / rw,relatime - xfs /dev/md0 rw\n"
OTHERS_SHM = "36 35 0:50 / /var/lib/docker/containers/0123456789ab/mounts/shm rw - tmpfs shm rw\n"
INSIDE = [
    ({"/.dockerenv": "", "/proc/self/cgroup": "0::/\n"}, {}, "docker"),
    ({"/proc/self/cgroup": f"4:memory:/docker/{HEX}\n"}, {}, "docker"),
    ({"/proc/self/mountinfo": HOSTS}, {}, "docker"),
    ({"/run/.containerenv": 'engine="podman-4.9"\nimage="docker.io/library/x:1"\n'}, {}, "podman"),
    ({}, {"container": "podman"}, "podman"),
    ({"/proc/self/cgroup": KUBEPODS}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
    ({"/proc/self/cgroup": KUBEPODS}, {}, "kubernetes"),
    ({"/proc/self/cgroup": f"0::/system.slice/cri-containerd-{HEX}.scope\n"}, {}, "containerd"),
    ({"/.singularity.d/env": ""}, {"SLURM_JOB_ID": "7"}, "apptainer"),
    ({}, {"APPTAINER_CONTAINER": "/images/train.sif"}, "apptainer"),
    ({"/proc/self/mountinfo": ENROOT}, {"SLURM_JOB_ID": "7"}, "enroot"),
    ({"/proc/1/cgroup": "0::/lxc.payload.train\n"}, {}, "lxc"),
    ({"/run/systemd/container": "systemd-nspawn\n"}, {}, "systemd-nspawn"),
    ({"/run/systemd/container": "something-new\n"}, {}, "unknown"),
    ({}, {}, "unknown"),
]


@pytest.mark.parametrize(("files", "env", "runtime"), INSIDE)
def test_runtimes_by_their_marks(tmp_path: Path, files: dict[str, str], env: dict[str, str], runtime: str):
    found = container(place(tmp_path, DOCKER, DOCKER, **files), env)
    assert (found.runtime, found.inside) == (runtime, True)
    assert found.marks
    assert found.headline() == {"container": runtime}


@pytest.mark.parametrize(
    "files", [{}, {"/proc/self/mountinfo": OTHERS_SHM}, {"/proc/1/cgroup": "0::/init.scope\n"}]
)
def test_a_host_is_no_container(tmp_path: Path, files: dict[str, str]):
    found = container(place(tmp_path, HOST, HOST, **files))
    assert (found.runtime, found.marks) == (None, ())
    assert set(found.namespaces.values()) == {"host"}
    assert brief(judge("container.runtime", found)) == [("pass", "")]


def test_a_system_made_of_an_image_is_no_container(tmp_path: Path):
    found = container(place(tmp_path, HOST, HOST, **{"/.dockerenv": ""}))
    assert (found.runtime, found.marks) == (None, ("/.dockerenv",))
    assert brief(judge("container.runtime", found)) == [("note", "")]


def test_namespaces_are_told_apart(tmp_path: Path):
    found = container(place(tmp_path, {**DOCKER, "ipc": INITIAL["ipc"]}, DOCKER, **{"/.dockerenv": ""}))
    assert (found.shares("ipc"), found.shares("pid"), found.shares("user")) == (True, False, True)
    # Process 1 is the container's own here, so whether net and mnt are the host's cannot be told.
    assert (found.shares("net"), found.shares("mnt")) == (None, None)


def test_on_the_hosts_pid_namespace_init_tells_the_rest(tmp_path: Path):
    found = container(place(tmp_path, {**HOST, "net": 4026539999}, HOST))
    assert (found.shares("net"), found.shares("mnt")) == (False, True)


def test_capabilities_and_control_group(tmp_path: Path):
    status = "Name:\tx\nCapEff:\t00000000a80425fb\nSeccomp:\t2\n"
    files = {
        "/proc/self/status": status,
        "/proc/self/cgroup": "0::/a/b\n",
        "/proc/self/uid_map": "0 100000 65536\n",
    }
    found = container(place(tmp_path, DOCKER, DOCKER, **files))
    assert (found.capabilities, found.seccomp, found.may_lock_memory) == ((), 2, False)
    assert (found.cgroup_version, found.cgroup_path, found.user_namespace_maps_all) == (2, "/a/b", False)


PODMANS_FILE = {"/run/.containerenv": 'image="docker.io/rayproject/ray:2.51.1"\n'}
IMAGES = [
    ({}, {"PYXIS_CONTAINER_IMAGE": "nvcr.io#nvidia/pytorch:25.10-py3"}, "nvcr.io#nvidia/pytorch:25.10-py3"),
    ({}, {"APPTAINER_CONTAINER": "/images/train.sif"}, "/images/train.sif"),
    ({}, {"NVIDIA_PYTORCH_VERSION": "25.10"}, "nvcr.io/nvidia/pytorch:25.10-py3"),
    (PODMANS_FILE, {}, "docker.io/rayproject/ray:2.51.1"),
    ({}, {"NVIDIA_PYTORCH_VERSION": "$(rm)"}, None),
    ({}, {}, None),
]  # fmt: skip


@pytest.mark.parametrize(("files", "env", "image"), IMAGES)
def test_who_names_the_image(tmp_path: Path, files: dict[str, str], env: dict[str, str], image: str | None):
    assert container(place(tmp_path, DOCKER, DOCKER, **files), env).image == image


def target(version: str = "3.12.4", complete: bool = True, **packages: str) -> TargetPython:
    installed = tuple(Package(name, version) for name, version in packages.items())
    return TargetPython(
        "target-python", path="/opt/bin/python", version=version, packages=installed, complete=complete
    )


SKYRL = "novaskyai/skyrl-train-ray-2.51.1-py3.12-cu12.8"
HUB = "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-devel"
NGC = "nvcr.io/nvidia/pytorch:25.10-py3"
CU128 = Torch("2.9.0+cu128", "12.8")
PROMISES = [
    (SKYRL, target(ray="2.51.1"), CU128, [("pass", "python"), ("pass", "ray"), ("pass", "cuda")]),
    (SKYRL, target(ray="2.48.0"), CU128, [("pass", "python"), ("warn", "ray"), ("pass", "cuda")]),
    (SKYRL, target("3.10.1", ray="2.51.1"), CU128, [("warn", "python"), ("pass", "ray"), ("pass", "cuda")]),
    (SKYRL, target(ray="2.51.10"), None, [("pass", "python"), ("warn", "ray")]),
    (SKYRL, target(), Torch("2.9.0+cu130", "13.0"), [("pass", "python"), ("warn", "ray"), ("warn", "cuda")]),
    (SKYRL, target(complete=False), None, [("pass", "python")]),
    (HUB, target(), Torch("2.9.1+cu128", "12.8"), [("pass", "torch"), ("pass", "cuda")]),
    (HUB, target(), Torch("2.11.0+cu130", "13.0"), [("warn", "torch"), ("warn", "cuda")]),
    (NGC, target(), Torch("2.9.0a0+145a3a7bda.nv25.10", "13.0"), [("pass", "torch"), ("pass", "cuda")]),
    (NGC, target(), Torch("2.9.0a0+145a3a7", "13.0"), [("pass", "torch"), ("pass", "cuda")]),
    (NGC, target(), Torch("2.9.0+cu130", "13.0"), [("warn", "torch"), ("pass", "cuda")]),
    # An image's CUDA toolkit and that of torch's wheel may differ.
    ("nvidia/cuda:12.4.1-devel-ubuntu22.04", target(), Torch("2.9.0+cu130", "13.0"), [("note", "image")]),
    ("registry.local/team/train:v7", target(), CU128, [("note", "image")]),
    (SKYRL, None, None, [("unknown", "image")]),
]  # fmt: skip


@pytest.mark.parametrize(("image", "python", "torch", "expected"), PROMISES)
def test_promises(
    image: str, python: TargetPython | None, torch: Torch | None, expected: list[tuple[str, str]]
):
    facts = [fact for fact in (python, torch) if fact is not None]
    found = judge("container.image", Container(runtime="docker", image=image, image_said_by="test"), *facts)
    assert brief(found) == expected
    assert all(finding.fix is not None for finding in found if finding.status.value == "warn")


def test_the_person_may_name_the_image():
    facts = (Container(runtime="docker"), target(ray="2.51.1"), Expect({"image": SKYRL}))
    assert brief(judge("container.image", *facts)) == [("pass", "python"), ("pass", "ray")]


def test_a_container_without_a_name_is_unknown_and_a_host_skipped():
    unnamed = judge("container.image", Container(runtime="docker"), target())[0]
    assert (unnamed.status.value, unnamed.reason, unnamed.blind) == ("unknown", "not-visible-here", True)
    assert brief(judge("container.image", Container(), target())) == [("skip", "")]


SELF = st.sampled_from(["cgroup", "mountinfo", "status", "uid_map"]).map("/proc/self/{}".format)
PATHS = SELF | st.sampled_from(["/proc/1/cgroup", "/run/.containerenv", "/run/systemd/container"])


@given(st.dictionaries(PATHS, st.text()), st.dictionaries(st.text(), st.text()), st.text())
def test_anything_is_a_container_or_not(files: dict[str, str], env: dict[str, str], link: str):
    found = Container.parse(document(files=files, links={"/proc/self/ns/ipc": link}), Env(env))
    assert isinstance(found, Container)


@pytest.mark.parametrize("seen", [said("no"), Observation("container", Outcome.TIMEOUT)])
def test_no_answer_is_unseen(seen: Observation):
    assert isinstance(Container.parse(seen, Env({})), Unseen)
