"""Limits, shared memory, memory and control groups: from text to findings."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from asking import ask, brief, document, judge, said, write
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.declare.registry import Options
from nodedoctor.facts.host.cgroup import Cgroup, own_cgroup
from nodedoctor.facts.host.container import Container, container_files
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.host import Host
from nodedoctor.facts.host.limits import SHM, Bound, Limits, limits_files, parse_rlimits
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.facts.pci.pci import Pci, PciDevice
from nodedoctor.facts.rdma.port import IbPort
from nodedoctor.facts.rdma.ports import Rails
from nodedoctor.model import Finding, Observation, Outcome, Unseen

GIB, MIB = 1024**3, 1024**2


def rlimits(nofile: str = "1048576 1048576", memlock: str = "unlimited unlimited") -> str:
    rows = [("Max open files", nofile, "files"), ("Max locked memory", memlock, "bytes")]
    head = "Limit                     Soft Limit           Hard Limit           Units     \n"
    return head + "".join(
        f"{name:<26}{bounds.split()[0]:<21}{bounds.split()[1]:<21}{unit}\n" for name, bounds, unit in rows
    )


def meminfo(
    total: float = 2000, available: float = 1900, swap: float = 0, free: float = 0, huge: int = 0
) -> str:
    kib = {"MemTotal": total, "MemAvailable": available, "SwapTotal": swap, "SwapFree": free}
    lines = [f"{name}:{int(gib * MIB):>16} kB\n" for name, gib in kib.items()]
    return "".join(lines) + f"HugePages_Total:{huge:>8}\nHugepagesize:       2048 kB\n"


TMPFS = f"25 24 0:23 / {SHM} rw,nosuid,nodev - tmpfs tmpfs rw,size=64k\n"
ON_DISK = "24 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"


def limits(
    *,
    nofile: str = "1048576 1048576",
    memlock: str = "unlimited unlimited",
    memory: str | None = None,
    shm: tuple[float, float] | None = (1000, 1000),
    mounts: str = TMPFS,
    errors: dict[str, str] | None = None,
    **files: str,
) -> Limits:
    """What the child says of a large host, but for what a test changes; shm is size and free in GiB."""
    text = {"/proc/self/limits": rlimits(nofile, memlock), "/proc/self/mountinfo": mounts}
    text["/proc/meminfo"] = meminfo() if memory is None else memory
    space = {SHM: {"size_bytes": int(shm[0] * GIB), "free_bytes": int(shm[1] * GIB)}} if shm else {}
    found = Limits.parse(document(files={**text, **files}, statvfs=space, errors=errors or {}))
    assert isinstance(found, Limits)
    json.dumps(asdict(found))
    return found


GPU = Pci((PciDevice("0000:18:00.0", "10de", "2330", "030200"),))
NO_GPU = Pci((PciDevice("0000:00:00.0", "8086", "1237", "060000"),))
DOCKER, HOST = Container(runtime="docker"), Container()
RAYLET = Process(
    10, program="raylet", role="raylet", limits=parse_rlimits(rlimits("1024 524288", "65536 65536"))
)


def processes(*rows: Process) -> Processes:
    return Processes(tuple(rows))


def rank(
    pid: int, bounds: str, descriptors: int | None = 100, memlock: str = "unlimited unlimited"
) -> Process:
    found = parse_rlimits(rlimits(bounds, memlock))
    return Process(
        pid, program="python", script="train.py", role="rank", rank=pid, limits=found, descriptors=descriptors
    )


SHM_CASES = [
    ("docker's default", limits(shm=(0.0625, 0.0625)), [("fail", f"mount:{SHM}")]),
    ("short", limits(shm=(0.5, 0.5)), [("warn", f"mount:{SHM}")]),
    ("small", limits(shm=(4, 4)), [("note", f"mount:{SHM}")]),
    ("enough", limits(shm=(16, 12)), [("pass", f"mount:{SHM}")]),
    ("full", limits(shm=(64, 0.1)), [("fail", f"mount:{SHM}")]),
    ("a small one, full to three quarters and more", limits(shm=(0.5, 0.12)), [("fail", f"mount:{SHM}")]),
    ("on disk", limits(shm=(900, 100), mounts=ON_DISK), [("warn", f"mount:{SHM}")]),
    ("absent", limits(shm=None, errors={SHM: "ENOENT"}), [("fail", f"mount:{SHM}")]),
    ("denied", limits(shm=None, errors={SHM: "EACCES"}), [("unknown", f"mount:{SHM}")]),
    ("hanging", limits(shm=None, errors={SHM: "TIMEOUT"}), [("unknown", f"mount:{SHM}")]),
    ("not recorded", limits(shm=None), [("unknown", f"mount:{SHM}")]),
]


@pytest.mark.parametrize(
    ("seen", "expected"), [case[1:] for case in SHM_CASES], ids=[case[0] for case in SHM_CASES]
)
def test_shared_memory(seen: Limits, expected: list[tuple[str, str]]):
    assert brief(judge("limits.shm", seen, DOCKER, GPU)) == expected
    assert brief(judge("limits.shm", seen)) == expected


def test_a_small_machine_without_gpus_is_only_warned():
    assert brief(judge("limits.shm", limits(shm=(0.0625, 0.06)), DOCKER, NO_GPU)) == [
        ("warn", f"mount:{SHM}")
    ]
    trains = processes(rank(1, "1048576 1048576"))
    assert brief(judge("limits.shm", limits(shm=(0.0625, 0.06)), DOCKER, NO_GPU, trains))[0][0] == "fail"


@pytest.mark.parametrize(
    ("runtime", "word"),
    [
        *(
            ("docker", "--shm-size"),
            ("podman", "--ipc=host"),
            ("kubernetes", "emptyDir"),
            ("enroot", "--container-mounts"),
        ),
        *(("apptainer", "--bind"), ("lxc", "lxc.mount.entry"), ("unknown", "8 GiB"), (None, "remount")),
    ],
)
def test_the_way_to_more_shared_memory_depends_on_the_runtime(runtime: str | None, word: str):
    finding = judge("limits.shm", limits(shm=(0.0625, 0.06)), Container(runtime=runtime))[0]
    assert finding.fix is not None
    assert word in " ".join([finding.fix.text, *finding.fix.commands])
    assert "nccl" in finding.summary.lower()


def test_rays_object_store_must_fit():
    ray = processes(RAYLET)
    memory = meminfo(total=1000, available=900)
    assert brief(judge("limits.shm", limits(shm=(500, 500), memory=memory), ray))[1] == ("pass", "ray")
    assert brief(judge("limits.shm", limits(shm=(100, 100), memory=memory), ray))[1] == ("warn", "ray")
    # Its share is 30 % of what the container may have, and 200 GB at most.
    assert brief(judge("limits.shm", limits(shm=(190, 190), memory=meminfo(2000)), ray))[1] == ("pass", "ray")
    assert len(judge("limits.shm", limits(shm=(100, 100), memory=memory), processes())) == 1


ACTIVE = Rails((IbPort("mlx5_0", 1, "ACTIVE"),))
DOWN = Rails((IbPort("mlx5_0", 1, "DOWN"),))
STORAGE = Rails((), others=(IbPort("mlx5_0", 1, "ACTIVE"),))
DOCKER = Container(runtime="docker")
EIGHT_MIB, TWENTY_GIB = f"{8 * MIB} {8 * MIB}", f"{20 * GIB} unlimited"
ROOT = Container(capabilities=("IPC_LOCK",), user_namespace_maps_all=True)
MEMLOCK_CASES = [
    ("unlimited", "unlimited unlimited", ACTIVE, HOST, "pass"),
    ("8 MiB in a container with RDMA", EIGHT_MIB, ACTIVE, DOCKER, "fail"),
    ("8 MiB in a container, RDMA not known", EIGHT_MIB, None, DOCKER, "unknown"),
    ("20 GiB in a container, RDMA not known", TWENTY_GIB, None, DOCKER, "unknown"),
    ("unlimited, RDMA not known", "unlimited unlimited", None, DOCKER, "pass"),
    ("20 GiB in a container with RDMA", TWENTY_GIB, ACTIVE, DOCKER, "warn"),
    ("8 MiB of a login shell", EIGHT_MIB, ACTIVE, HOST, "note"),
    ("8 MiB of a login shell, RDMA not known", EIGHT_MIB, None, HOST, "note"),
    ("8 MiB without RDMA", EIGHT_MIB, Rails(()), DOCKER, "note"),
    ("8 MiB, RDMA for storage alone", EIGHT_MIB, STORAGE, DOCKER, "note"),
    ("8 MiB, NCCL uses no RDMA", EIGHT_MIB, Rails(ACTIVE.ports, off=True), DOCKER, "note"),
    ("8 MiB, every port down", EIGHT_MIB, DOWN, DOCKER, "note"),
    ("root", EIGHT_MIB, ACTIVE, ROOT, "note"),
    (
        "root of a user namespace",
        EIGHT_MIB,
        ACTIVE,
        Container(runtime="podman", capabilities=("IPC_LOCK",)),
        "fail",
    ),
]


@pytest.mark.parametrize(
    ("memlock", "rails", "container", "status"),
    [c[1:] for c in MEMLOCK_CASES],
    ids=[c[0] for c in MEMLOCK_CASES],
)
def test_locked_memory_of_the_shell(memlock: str, rails: Rails | None, container: Container, status: str):
    facts = [fact for fact in (limits(memlock=memlock), rails, container, processes()) if fact is not None]
    assert brief(judge("limits.memlock", *facts)) == [(status, "shell")]


def test_a_container_without_rdma_devices_locks_no_memory_for_them():
    facts = (limits(memlock=EIGHT_MIB), ACTIVE, DOCKER, processes())
    assert brief(judge("limits.memlock", *facts, Host())) == [("note", "shell")]
    assert brief(judge("limits.memlock", *facts, Host(uverbs={"uverbs0": "rw"}))) == [("fail", "shell")]


def test_a_step_of_a_slurm_job_hands_its_limit_to_the_ranks_and_a_prolog_does_not():
    for variables, status in (
        ({"SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7"}, "fail"),
        ({"SLURM_JOB_ID": "7"}, "note"),
    ):
        found = judge("limits.memlock", limits(memlock=EIGHT_MIB), ACTIVE, HOST, processes(), Env(variables))
        assert brief(found) == [(status, "shell")]


def test_locked_memory_of_those_who_train_counts_instead():
    trains = processes(rank(0, "1048576 1048576"), rank(1, "1048576 1048576", memlock=EIGHT_MIB), RAYLET)
    found = judge("limits.memlock", limits(memlock=EIGHT_MIB), ACTIVE, HOST, trains)
    assert brief(found) == [("fail", "rank"), ("fail", "raylet")]
    assert found[0].evidence[0].path == "processes[pid=1].limits"
    assert "64 KiB" in found[1].summary
    good = processes(rank(0, "1048576 1048576"))
    assert brief(judge("limits.memlock", limits(memlock=EIGHT_MIB), ACTIVE, HOST, good)) == [("pass", "rank")]


def test_a_low_limit_of_locked_memory_names_its_process_and_workers_follow_from_their_raylet():
    small = parse_rlimits(rlimits(memlock=EIGHT_MIB))
    family = [
        Process(pid, program=role, role=role, limits=small)
        for pid, role in enumerate(("raylet", "ray-worker"), 40)
    ]
    raylet, worker = judge("limits.memlock", limits(), ACTIVE, HOST, processes(*family))
    assert raylet.summary.startswith("raylet (pid 40) has a locked-memory limit of 8 MiB, RDMA needs")
    assert (raylet.explainers, worker.explainers) == ((), ("limits.memlock@raylet",))
    shell, *_ = judge("limits.memlock", limits(memlock=EIGHT_MIB), ACTIVE, DOCKER, HOST, processes())
    assert shell.summary.startswith("shell has a locked-memory limit of 8 MiB")


def test_locked_memory_of_ranks_is_no_fault_where_rdma_was_not_looked_at():
    trains = processes(rank(0, "1048576 1048576", memlock=EIGHT_MIB), RAYLET)
    found = judge("limits.memlock", limits(), HOST, trains)
    assert brief(found) == [("unknown", "rank"), ("unknown", "raylet")]


def test_locked_memory_that_cannot_be_read_is_unknown():
    hidden = Process(3, role="rank", rank=3)
    assert brief(judge("limits.memlock", limits(), ACTIVE, HOST, processes(hidden))) == [("unknown", "rank")]


SHELL_CASES = [
    ("1024 524288", "note"),
    ("1024 4096", "warn"),
    ("65536 65536", "pass"),
    ("unlimited unlimited", "pass"),
]


@pytest.mark.parametrize(("nofile", "status"), SHELL_CASES)
def test_open_files_of_a_shell(nofile: str, status: str):
    assert brief(judge("limits.nofile", limits(nofile=nofile), processes(), HOST)) == [(status, "shell")]
    quiet = {"warn": "note"}.get(status, status)
    assert brief(judge("limits.nofile", limits(nofile=nofile), processes(), NO_GPU)) == [(quiet, "shell")]


RANK_CASES = [
    ("1024 524288", 100, "fail"),
    ("1024 1024", None, "fail"),
    ("65536 65536", 60000, "fail"),
    ("20000 524288", 300, "warn"),
    ("65536 65536", 300, "pass"),
    ("unlimited unlimited", 300, "pass"),
]


@pytest.mark.parametrize(("nofile", "opened", "status"), RANK_CASES)
def test_open_files_of_ranks(nofile: str, opened: int | None, status: str):
    trains = processes(rank(0, "1048576 1048576"), rank(1, nofile, opened))
    found = judge("limits.nofile", limits(nofile="1024 1048576"), trains)
    assert brief(found) == [(status, "rank")]
    if status == "fail":
        assert "rank 1" in found[0].summary


def test_a_raylet_at_1024_fails_with_the_way_out():
    found = judge("limits.nofile", limits(nofile="1048576 1048576"), processes(RAYLET), HOST)
    assert brief(found) == [("fail", "raylet")]
    fix = found[0].fix
    assert fix is not None
    assert fix.commands[0] == "prlimit --pid 10 --nofile=524288"
    assert not any("ray" in command for command in fix.commands)
    assert [step.command for step in fix.steps if step.role == "last-resort"] == ["ray stop"]
    assert "not visible" in found[0].summary


def test_open_files_of_the_whole_node():
    files = {"/proc/sys/fs/file-max": "100000\n", "/proc/sys/fs/file-nr": "90000\t0\t100000\n"}
    assert brief(judge("limits.nofile", limits(**files), processes())) == [
        ("pass", "shell"),
        ("fail", "node"),
    ]


V2 = {"/proc/self/cgroup": "0::/job/step\n", "/sys/fs/cgroup/job/step/memory.current": str(10 * GIB)}
PSI = "/proc/pressure/memory"


def waited(share: float) -> str:
    return f"some avg10=0.00 avg60=0.00 avg300={share:.2f} total=9\n"


FINE = [("pass", "host"), ("pass", "swap")]
MEMORY_CASES = [
    ("plenty", limits(), FINE),
    ("91 %", limits(memory=meminfo(1000, 90)), [("warn", "host"), ("pass", "swap")]),
    ("97 %", limits(memory=meminfo(1000, 30)), [("fail", "host"), ("pass", "swap")]),
    ("swap unused", limits(memory=meminfo(swap=8, free=8)), [("pass", "host"), ("note", "swap")]),
    ("swap used", limits(memory=meminfo(swap=8, free=2)), [("pass", "host"), ("warn", "swap")]),
    (
        "swap used, waited for",
        limits(memory=meminfo(swap=8, free=2), **{PSI: waited(1.5)}),
        [("pass", "host"), ("warn", "swap")],
    ),
    (
        "cold pages in swap",
        limits(memory=meminfo(swap=8, free=2), **{PSI: waited(0)}),
        [("pass", "host"), ("note", "swap")],
    ),
    ("huge pages", limits(memory=meminfo(huge=400_000)), [*FINE, ("note", "hugepages")]),
    ("unreadable", limits(memory=""), [("unknown", "host")]),
    ("old kernel", limits(memory="MemTotal: 1048576 kB\n"), [("unknown", "host"), ("pass", "swap")]),
    (
        "group nearly full",
        limits(
            **V2,
            **{
                "/sys/fs/cgroup/job/memory.max": str(11 * GIB),
                "/sys/fs/cgroup/job/memory.current": str(11 * GIB - 300 * MIB),
            },
        ),
        [("pass", "host"), ("fail", "cgroup"), ("pass", "swap")],
    ),
    (
        "group full of page cache",
        limits(
            **V2,
            **{
                "/sys/fs/cgroup/job/step/memory.max": str(10 * GIB),
                "/sys/fs/cgroup/job/step/memory.stat": f"inactive_file {7 * GIB}\nactive_file {GIB}\n",
            },
        ),
        [("pass", "host"), ("pass", "cgroup"), ("pass", "swap")],
    ),
    (
        "killed before",
        limits(**V2, **{"/sys/fs/cgroup/job/step/memory.events": "low 0\noom 3\noom_kill 2\n"}),
        [("pass", "host"), ("warn", "cgroup:oom"), ("pass", "swap")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "expected"), [c[1:] for c in MEMORY_CASES], ids=[c[0] for c in MEMORY_CASES]
)
def test_memory(seen: Limits, expected: list[tuple[str, str]]):
    found = judge("limits.memory", seen)
    assert brief(found) == expected
    assert all(finding.fix is not None for finding in found if finding.status.value in ("fail", "warn"))


def test_real_limits_of_this_process(tmp_path: Path):
    container = ask(container_files, name="container")
    found = Limits.parse(ask(limits_files, container, name="limits"))
    assert isinstance(found, Limits)
    assert found.rlimits["nofile"].soft is None or found.rlimits["nofile"].soft > 0
    assert found.memory is not None
    assert found.memory.total_gib > 0
    assert found.local_ports is not None
    findings = [
        f
        for id in ("limits.shm", "limits.memlock", "limits.nofile", "limits.memory")
        for f in judge(id, found)
    ]
    assert all(isinstance(finding, Finding) for finding in findings)


def group_tree(root: Path, cgroup: str, **files: str) -> Cgroup:
    write(root / "proc/self/cgroup", cgroup)
    for name, text in files.items():
        write(root / "sys/fs/cgroup" / name, text)
    container = ask(container_files, root=root, name="container")
    found = Limits.parse(ask(limits_files, container, root=root, name="limits"))
    assert isinstance(found, Limits)
    return found.cgroup


def test_control_group_v2_takes_the_tightest_level(tmp_path: Path):
    group = group_tree(
        tmp_path,
        "0::/system.slice/job_7/step_0\n",
        **{
            "system.slice/memory.max": "max\n",
            "system.slice/job_7/memory.max": f"{64 * GIB}\n",
            "system.slice/job_7/memory.current": f"{40 * GIB}\n",
            "system.slice/job_7/memory.stat": f"anon 5\nactive_file {4 * GIB}\ninactive_file {16 * GIB}\n",
            "system.slice/job_7/memory.events": "oom 1\noom_kill 1\n",
            "system.slice/job_7/step_0/memory.max": f"{100 * GIB}\n",
            "system.slice/job_7/step_0/cpu.max": "1600000 100000\n",
            "system.slice/job_7/cpu.max": "max 100000\n",
            "system.slice/job_7/step_0/cpuset.cpus.effective": "0-7,64-71\n",
            "system.slice/job_7/pids.max": "4096\n",
            "system.slice/job_7/step_0/pids.current": "212\n",
        },
    )
    assert (group.version, group.path) == (2, "/system.slice/job_7/step_0")
    assert (group.memory_max_gib, group.memory_used_gib, group.oom_kills) == (64, 20, 1)
    assert (group.cpu_cores, group.cpus) == (16, "0-7,64-71")
    assert (group.pids_max, group.pids_current) == (4096, 212)


def test_control_group_of_a_container_is_the_mounts_top(tmp_path: Path):
    """Version 1 shows the host's path in /proc/self/cgroup, and the container's files at the top."""
    group = group_tree(
        tmp_path,
        "5:memory:/docker/0123456789ab\n4:cpu,cpuacct:/docker/0123456789ab\n3:pids:/docker/0123456789ab\n",
        **{
            "memory/memory.limit_in_bytes": f"{8 * GIB}\n",
            "memory/memory.usage_in_bytes": f"{6 * GIB}\n",
            "memory/memory.stat": f"total_active_file {GIB}\ntotal_inactive_file {GIB}\n",
            "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
            "cpu/cpu.cfs_quota_us": "-1\n",
            "cpu/cpu.cfs_period_us": "100000\n",
            "pids/pids.max": "max\n",
        },
    )
    assert (group.version, group.memory_max_gib, group.memory_used_gib, group.oom_kills) == (1, 8, 4, 0)
    assert (group.cpu_cores, group.pids_max) == (None, None)
    assert group.controllers == ("memory", "cpu", "pids")


def test_a_control_group_of_version_1_without_a_limit(tmp_path: Path):
    group = group_tree(tmp_path, "5:memory:/\n", **{"memory/memory.limit_in_bytes": "9223372036854771712\n"})
    assert group.memory_max_gib is None


@pytest.mark.parametrize(
    ("text", "version", "path"),
    [("0::/\n", 2, "/"), ("4:memory:/a\n0::/b\n", 1, "/a"), ("", None, None), ("nonsense", None, None)],
)
def test_where_we_stand_in_the_tree(text: str, version: int | None, path: str | None):
    groups = own_cgroup(text)
    assert (groups.version, groups.path("memory")) == (version, path)


def test_resource_limits():
    text = rlimits("1024 unlimited", "8388608 8388608") + "Max nonsense   1 2 x\nMax open files broken\n"
    assert parse_rlimits(text) == {"nofile": Bound(1024, None), "memlock_bytes": Bound(8388608, 8388608)}


def test_remove_ipc_of_drop_ins_wins():
    files = {"/etc/systemd/logind.conf": "[Login]\n#RemoveIPC=yes\nRemoveIPC=no\n"}
    assert limits(**files).remove_ipc is False
    assert limits(**files, **{"/etc/systemd/logind.conf.d/x.conf": "RemoveIPC=yes\n"}).remove_ipc is True
    assert limits().remove_ipc is None


PATHS = st.sampled_from(
    [
        *("/proc/self/limits", "/proc/self/cgroup", "/proc/self/mountinfo", "/proc/meminfo", "/proc/loadavg"),
        *(
            "/proc/vmstat",
            "/proc/pressure/memory",
            "/proc/sys/fs/file-max",
            "/proc/sys/net/ipv4/ip_local_port_range",
        ),
        *(
            "/sys/fs/cgroup/memory.max",
            "/sys/fs/cgroup/memory.current",
            "/sys/fs/cgroup/cpu.max",
            "/sys/fs/cgroup/pids.max",
        ),
    ]
)
TEXTS = st.text() | st.from_regex(
    r"Max open files\s+\d+\s+\w+|MemTotal: +\d+ kB|0::/\S*|\d+ \d+|some avg10=\d+\.\d+"
)


@given(
    st.dictionaries(PATHS, TEXTS),
    st.dictionaries(st.just(SHM), st.dictionaries(st.text(max_size=5), st.integers())),
)
def test_any_content_of_files_is_judged_without_raising(
    files: dict[str, str], space: dict[str, dict[str, int]]
):
    found = Limits.parse(document(files=files, statvfs=space))
    assert isinstance(found, Limits)
    for id in ("limits.shm", "limits.memlock", "limits.nofile", "limits.memory"):
        assert judge(id, found)


@given(st.text())
def test_the_plan_bears_any_control_group(text: str):
    planned = limits_files(Options(), document(files={"/proc/self/cgroup": text}))
    assert not any("\0" in word for word in planned.argv)  # no program can be started with that


@pytest.mark.parametrize("seen", [said("no"), Observation("limits", Outcome.STUCK)])
def test_no_answer_is_unseen(seen: Observation):
    assert isinstance(Limits.parse(seen), Unseen)
