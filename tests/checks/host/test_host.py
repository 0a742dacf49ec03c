"""Tasks, stacks, processors, pressure, and what containers are given: from facts to findings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from asking import ask, brief, document, judge, said, write
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.declare.registry import Command, Options
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.inventory import Inventory
from nodedoctor.facts.host.cgroup import Cgroup
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.host import Host, container_toolkit, host_files
from nodedoctor.facts.host.limits import Bound, Limits
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.facts.rdma.port import IbPort
from nodedoctor.facts.rdma.ports import Rails
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.libraries import Libraries, LibraryCopy, Resolved
from nodedoctor.facts.stack.packages import Package
from nodedoctor.model import Observation, Outcome, Unseen

NOT_ASKED = Observation("container-toolkit", Outcome.SKIPPED, note="nvidia-ctk is not installed")
RANK = Process(9, program="python3", role="rank", uid=1000, user="ada")
DOCKER = Container(runtime="docker", capabilities=("IPC_LOCK", "SYS_NICE", "SYS_PTRACE"))


def group(most: int | None, used: int | None = 100) -> Limits:
    return Limits(cgroup=Cgroup(controllers=("pids",), pids_max=most, pids_current=used))


@pytest.mark.parametrize(
    ("limits", "facts", "expected"),
    [
        (group(None), (), [("pass", "")]),
        (group(100_000), (), [("pass", "cgroup:pids")]),
        (group(2048), (), [("note", "cgroup:pids")]),
        (group(2048), (Processes((RANK,)),), [("warn", "cgroup:pids")]),
        (group(100_000, 99_000), (), [("fail", "cgroup:pids")]),
        (Limits(sysctl={"kernel.pid_max": 32768}), (Machine(cpus=384),), [("note", "kernel.pid_max")]),
        (Limits(sysctl={"kernel.pid_max": 32768}), (Machine(cpus=16),), [("pass", "")]),
        (
            group(None),
            (Processes((Process(9, role="rank", uid=1000, limits={"nproc": Bound(1024, 1024)}),)),),
            [("warn", "rlimit:nproc")],
        ),
        (
            group(None),
            (Processes((Process(9, role="rank", uid=0, limits={"nproc": Bound(1024, 1024)}),)),),
            [("pass", "")],
        ),
    ],
)
def test_tasks(limits, facts, expected):
    assert brief(judge("limits.processes", limits, *facts)) == expected


def nccl(version: str) -> TargetPython:
    return TargetPython("target-python", packages=(Package("nvidia-nccl-cu12", version),))


UNLIMITED, USUAL = (
    Limits(rlimits={"stack_bytes": Bound(None, None)}),
    Limits(rlimits={"stack_bytes": Bound(8 << 20, None)}),
)


@pytest.mark.parametrize(
    ("limits", "facts", "status"),
    [
        (USUAL, (), "pass"),
        (UNLIMITED, (), "note"),
        (UNLIMITED, (nccl("2.27.5"),), "warn"),
        (UNLIMITED, (nccl("2.28.3"),), "pass"),
        (Limits(), (), "unknown"),
        (
            USUAL,
            (
                Processes((Process(9, role="rank", limits={"stack_bytes": Bound(None, None)}),)),
                nccl("2.27.5"),
            ),
            "warn",
        ),
        (
            UNLIMITED,
            (Processes((Process(9, role="rank", limits={"stack_bytes": Bound(8 << 20, None)}),)),),
            "pass",
        ),
    ],
)
def test_stack(limits, facts, status):
    assert [word for word, _ in brief(judge("limits.stack", limits, *facts))] == [status]


EIGHT = Gpus("nvml", gpus=tuple(Gpu(n) for n in range(8)))


@pytest.mark.parametrize(
    ("cgroup", "machine", "gpus", "status"),
    [
        (Cgroup(), Machine(cpus=192), EIGHT, "pass"),
        (Cgroup(cpu_cores=4.0), Machine(cpus=192), EIGHT, "warn"),
        (Cgroup(cpus="0-3"), Machine(cpus=192), EIGHT, "warn"),
        (Cgroup(cpus="0-31"), Machine(cpus=192), EIGHT, "pass"),
        (Cgroup(), Machine(cpus=4), EIGHT, "pass"),
        (Cgroup(cpu_cores=1.0), Machine(cpus=4), None, "pass"),
        (Cgroup(), Machine(), EIGHT, "unknown"),
    ],
)
def test_processors(cgroup, machine, gpus, status):
    facts = [fact for fact in (machine, gpus) if fact is not None]
    assert [word for word, _ in brief(judge("limits.cpu", Limits(cgroup=cgroup), *facts))] == [status]


LOOSE = Process(9, role="rank", uid=1000, cgroup="/user.slice/user-1000.slice/session-3.scope")
SERVICE = Process(9, role="rank", uid=1000, cgroup="/system.slice/slurmstepd.scope/job_9")


@pytest.mark.parametrize(
    ("remove", "facts", "status"),
    [
        (None, (), "note"),
        (True, (), "note"),
        (False, (Processes((LOOSE,)),), "pass"),
        (None, (Processes((LOOSE,)),), "warn"),
        (None, (Processes((SERVICE,)),), "note"),
        (None, (Processes((LOOSE,)), DOCKER), "skip"),
    ],
)
def test_removeipc(remove, facts, status):
    assert [word for word, _ in brief(judge("limits.removeipc", Limits(remove_ipc=remove), *facts))] == [
        status
    ]


def blocked(count: int, **fields: object) -> Processes:
    return Processes(tuple(Process(n, program="python3", state="disk-sleep", **fields) for n in range(count)))  # type: ignore[arg-type]


QUIET = {name: {"some_avg60": 0.0, "full_avg60": 0.0} for name in ("cpu", "memory", "io")}


@pytest.mark.parametrize(
    ("limits", "facts", "expected"),
    [
        (Limits(pressure=QUIET, load=(1.0, 1.0, 1.0)), (), [("pass", "")]),
        (Limits(pressure={**QUIET, "memory": {"full_avg60": 22.5}}), (), [("warn", "pressure:memory")]),
        (Limits(pressure={**QUIET, "io": {"full_avg60": 22.5}}, load=(1.0, 1.0, 1.0)), (), [("pass", "")]),
        (Limits(pressure={**QUIET, "io": {"full_avg60": 72.5}}), (), [("warn", "pressure:io")]),
        (Limits(pressure={**QUIET, "cpu": {"some_avg60": 85.0}}), (), [("warn", "pressure:cpu")]),
        (Limits(load=(99.0, 99.0, 99.0)), (Machine(cpus=16),), [("warn", "pressure:load")]),
        (Limits(load=(99.0, 99.0, 99.0)), (Machine(cpus=192),), [("pass", "")]),
        (
            Limits(load=(1.0, 1.0, 1.0)),
            (blocked(6, wchan="nfs_wait_on_request"),),
            [("warn", "pressure:blocked")],
        ),
        (Limits(load=(1.0, 1.0, 1.0)), (blocked(6, wchan="uvm_gpu_retain"),), [("pass", "")]),
        (Limits(load=(1.0, 1.0, 1.0)), (blocked(2),), [("pass", "")]),
        (Limits(), (), [("unknown", "")]),
    ],
)
def test_pressure(limits, facts, expected):
    assert brief(judge("host.pressure", limits, *facts)) == expected


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (Host(governors={"performance": 8}), "pass"),
        (Host(governors={"powersave": 8}, frequency_driver="intel_pstate"), "note"),
        (Host(), "skip"),
        (Host(processors_hidden=True), "unknown"),
    ],
)
def test_governor(host, status):
    assert [word for word, _ in brief(judge("host.governor", host, Machine(form="vm")))] == [status]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (Host(hugepages=0, thp="madvise"), "pass"),
        (Host(hugepages=0, thp="never"), "note"),
        (Host(hugepages=51200, hugepage_kib=2048, thp="always"), "note"),
        (Host(), "unknown"),
    ],
)
def test_huge_pages(host, status):
    assert [word for word, _ in brief(judge("host.hugepages", host))] == [status]


RAILS = Rails((IbPort("mlx5_0", 1, "ACTIVE"), IbPort("mlx5_1", 1, "ACTIVE")))
BARE = Container(runtime="docker", capabilities=(), seccomp=2)
OF_SEVERAL_NODES = Processes((replace(RANK, rank=0, world_size=16),))
BOTH = Host(uverbs={"uverbs0": "rw", "uverbs1": "rw"})


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ((DOCKER,), [("pass", "")]),
        ((BARE,), [("note", "container:rights")]),
        ((DOCKER, Inventory((), 0, cut_off=True)), [("fail", "container:gpus")]),
        ((DOCKER, RAILS, BOTH), [("pass", "")]),
        ((DOCKER, RAILS, Host()), [("note", "container:rdma")]),
        ((DOCKER, replace(RAILS, explicit=True), Host()), [("fail", "container:rdma")]),
        ((DOCKER, RAILS, Host(), OF_SEVERAL_NODES), [("fail", "container:rdma")]),
        ((DOCKER, RAILS, Host(uverbs={"uverbs0": "", "uverbs1": "rw"})), [("fail", "container:rdma")]),
        ((DOCKER, RAILS, Host(uverbs={"uverbs0": "rw"})), [("warn", "container:rdma")]),
        ((Container(),), [("skip", "")]),
        (
            (Container(), Host(docker_installed=True, toolkit_installed=True, char_links=False)),
            [("note", "")],
        ),
        ((Container(), Host(docker_installed=True, toolkit_installed=True, char_links=True)), [("pass", "")]),
        ((Container(), Host(docker_installed=True, toolkit_installed=True)), [("skip", "")]),
        ((Container(), Host(docker_installed=True, char_links=False)), [("skip", "")]),
    ],
)
def test_devices_and_rights(facts, expected):
    assert brief(judge("container.devices", *facts)) == expected


def libcuda(path: str, version: str) -> Libraries:
    return Libraries(
        (LibraryCopy("cuda", path, path, version=version),),
        (Resolved("libcuda.so.1", path, path, "LD_LIBRARY_PATH"),),
    )


COMPAT = "/usr/local/cuda/compat/libcuda.so.1"


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        ((libcuda("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "570.86.10"),), "pass"),
        ((libcuda(COMPAT, "550.54.15"),), "fail"),
        ((libcuda(COMPAT, "580.65.06"), Gpus("nvml", gpus=(Gpu(0, name="NVIDIA H100 80GB HBM3"),))), "note"),
        (
            (libcuda(COMPAT, "580.65.06"), Gpus("nvml", gpus=(Gpu(0, name="NVIDIA GeForce RTX 4090"),))),
            "fail",
        ),
        ((Env({"LD_LIBRARY_PATH": "/usr/local/cuda/compat:/x"}),), "unknown"),
        ((Env({}),), "skip"),
    ],
)
def test_forward_compatibility(facts, status):
    driver = Driver(loaded=True, version="570.86.10")
    assert [word for word, _ in brief(judge("container.compat", driver, *facts))] == [status]


@pytest.mark.parametrize(
    ("container", "host", "status"),
    [
        (DOCKER, Host(), "skip"),
        (Container(), Host(), "skip"),
        (Container(), Host(docker_installed=True), "note"),
        (
            Container(),
            Host(
                docker_installed=True,
                toolkit_installed=True,
                toolkit="1.17.9",
                docker='{"runtimes": {"nvidia": {}}}',
            ),
            "pass",
        ),
        (
            Container(),
            Host(
                docker_installed=True,
                toolkit_installed=True,
                toolkit="1.14.6",
                docker='{"runtimes": {"nvidia": {}}}',
            ),
            "note",
        ),
        (Container(), Host(docker_installed=True, toolkit_installed=True, toolkit="1.17.9"), "note"),
    ],
)
def test_toolkit(container, host, status):
    assert [word for word, _ in brief(judge("container.toolkit", container, host))] == [status]


def test_the_host_below_a_root(tmp_path: Path):
    for n in range(4):
        write(tmp_path / f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor", "powersave\n")
    write(tmp_path / "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    write(tmp_path / "proc/sys/vm/nr_hugepages", "12\n")
    write(tmp_path / "etc/docker/daemon.json", '{"default-runtime": "nvidia"}')
    write(tmp_path / "dev/char/1:3")
    seen = ask(host_files, root=tmp_path)
    told = Host.parse(seen, NOT_ASKED)
    assert isinstance(told, Host)
    assert (told.governors, told.thp, told.hugepages) == ({"powersave": 4}, "madvise", 12)
    assert told.docker is not None and told.char_links is False and told.toolkit is None
    assert isinstance(container_toolkit(Options(root=str(tmp_path)), seen), Observation)


def test_the_toolkit_s_version_is_asked_where_it_is_installed():
    there = document(stats={"/usr/bin/nvidia-ctk": {"type": "file"}})
    assert container_toolkit(Options(), there) == Command(("nvidia-ctk", "--version"))
    told = Host.parse(
        there,
        said(
            "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b9d0db00d9b1d73c0128c8962c55f4d\n"
        ),
    )
    assert isinstance(told, Host) and told.toolkit == "1.17.8" and told.toolkit_installed


paths = st.sampled_from(
    ["/dev/char", "/proc/meminfo", "/proc/sys/vm/nr_hugepages", "/dev/infiniband/uverbs0", "/etc/cdi"]
)
values = st.none() | st.integers() | st.text(max_size=8) | st.lists(st.text(max_size=4), max_size=2)


@given(
    st.dictionaries(st.sampled_from(["files", "stats", "lists", "errors"]), st.dictionaries(paths, values)),
    st.text(max_size=30),
)
def test_no_document_raises(sections, version):
    told = Host.parse(said(json.dumps(sections)), said(version))
    assert isinstance(told, (Host, Unseen))
    if isinstance(told, Host):
        for check in ("host.governor", "host.hugepages"):
            assert judge(check, told)
        assert judge("container.devices", DOCKER, told) and judge("container.toolkit", Container(), told)
