"""Disks and memory of the machine itself: what the programs measure, leave alone and leave behind."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from checks.measured.host_rates import disks, sockets
from nodedoctor.children.programs import child
from nodedoctor.facts.measured.host_rates import DISKS, MEMORY, DiskRates, MemoryRates
from nodedoctor.model import Observation, Outcome, Status


def printed(program, *words):
    done = subprocess.run(
        list(child(f"measured/{program}", *words)), capture_output=True, text=True, timeout=60, check=True
    )
    return [step for step in json.loads(done.stdout)["steps"] if step["step"] not in ("begin", "end")]


def document(*steps, whole=True):
    text = ",\n".join(map(json.dumps, steps))
    return f'{{"steps": [\n{text}\n]}}' if whole else f'{{"steps": [\n{text},\n'


def disk(point, model="PM9A3", write=4.0, read=6.0, **more):
    rates = {} if "left" in more else {"write_gbytes_s": write, "read_gbytes_s": read}
    return {"step": "disk", "point": point, "model": model, **rates, **more}


def memory(cpus, place, rate, threads=32):
    return {"step": "memory", "cpus_of": cpus, "memory_of": place, "threads": threads, "gbytes_s": rate}


def judged(check, fact, probe, *steps):
    return [
        (f.status, f.subject, f.summary) for f in check(fact.parse(Observation(probe, text=document(*steps))))
    ]


def test_a_file_system_is_measured_within_its_bounds_and_nothing_is_left(tmp_path: Path):
    (step,) = printed("disk_rates", "--mib", "16", str(tmp_path))
    assert step["point"] == str(tmp_path)
    if "left" not in step:  # a file system without O_TMPFILE or O_DIRECT, or without room
        assert 0 < step["bytes"] <= 16 << 20 and min(step["write_gbytes_s"], step["read_gbytes_s"]) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_measurement_that_is_killed_leaves_nothing(tmp_path: Path):
    before = os.statvfs(tmp_path).f_bfree
    argv = list(child("measured/disk_rates", "--seconds", "20", str(tmp_path)))
    running = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert running.stdout is not None and running.stdout.readline() and running.stdout.readline()
    time.sleep(0.3)
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=30)
    assert list(tmp_path.iterdir()) == []
    assert before - os.statvfs(tmp_path).f_bfree < (1 << 30) // os.statvfs(tmp_path).f_frsize


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts small file systems")
@pytest.mark.parametrize(
    ("options", "why"), [("size=1g,ro", "it is read-only"), ("size=64m", "only 0.1 of 0 GB are free")]
)
def test_a_file_system_that_is_read_only_or_small_is_left_alone(tmp_path: Path, options: str, why: str):
    program = " ".join(child("measured/disk_rates", str(tmp_path)))
    script = f"mount -t tmpfs -o {options} none {tmp_path} && {program} && find {tmp_path} -type f"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    (step,) = [one for one in json.loads(done.stdout)["steps"] if one["step"] == "disk"]
    assert step["left"] == why and "write_gbytes_s" not in step


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts small file systems")
def test_a_file_system_that_is_nearly_full_is_left_alone(tmp_path: Path):
    program = " ".join(child("measured/disk_rates", "--mib", "4", str(tmp_path)))
    fill = f"head -c 950M /dev/zero > {tmp_path}/data"
    script = f"mount -t tmpfs -o size=1g none {tmp_path} && {fill} && {program}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert '"left": "only 0.1 of 1 GB are free"' in done.stdout


def test_a_path_that_is_not_there_costs_itself_alone(tmp_path: Path):
    gone, there = printed("disk_rates", "--mib", "4", str(tmp_path / "gone"), str(tmp_path))
    assert gone["left"].startswith("No such file") and there["point"] == str(tmp_path)


@pytest.mark.slow
def test_memory_is_copied_where_it_lies(tmp_path: Path):
    """Two processors as two sockets: the tree says so."""
    cpus = sorted(os.sched_getaffinity(0))
    nodes = dict(enumerate(cpus[:2]))
    folder = tmp_path / "sys/devices/system"
    for node, cpu in nodes.items():
        (folder / f"node/node{node}").mkdir(parents=True)
        (folder / f"node/node{node}/cpulist").write_text(f"{cpu}\n")
        (folder / f"cpu/cpu{cpu}/topology").mkdir(parents=True)
        (folder / f"cpu/cpu{cpu}/topology/physical_package_id").write_text(f"{node}\n")
    (folder / "node/has_cpu").write_text(",".join(map(str, nodes)) + "\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemAvailable:   4194304 kB\n")
    steps = printed("memory_rates", "--root", str(tmp_path), "--mib", "256", "--load", "1000")
    ways = {(step["cpus_of"], step["memory_of"]): step["gbytes_s"] for step in steps}
    assert set(ways) == {(a, b) for a in nodes for b in nodes} and min(ways.values()) > 0.05


def test_processors_in_use_and_a_small_memory_are_left_alone(tmp_path: Path):
    (busy,) = printed("memory_rates", "--load", "-1")
    assert busy["why"].startswith("processors are in use")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemAvailable:   1000000 kB\n")
    (small,) = printed("memory_rates", "--root", str(tmp_path), "--load", "1000")
    assert small["why"] == "too little memory is free: 976 MiB"


def test_the_odd_disk_of_a_model_is_named():
    fast = [disk(f"/d{n}") for n in range(3)]
    assert judged(disks, DiskRates, DISKS, *fast) == [(Status.PASS, "", "at least 4 GB/s on 3 file systems")]
    slow = (Status.WARN, "mount:/d3", "reads 2.9 GB/s, other disks of its model 6")
    assert judged(disks, DiskRates, DISKS, *fast, disk("/d3", read=2.9)) == [slow]
    for others in ([disk("/d3", model="HDD", read=0.2)], [disk("/d3", model="", read=0.2)]):
        assert [status for status, *_ in judged(disks, DiskRates, DISKS, *fast, *others)] == [Status.PASS]
    two = judged(disks, DiskRates, DISKS, fast[0], disk("/d3", read=0.2))
    assert [status for status, *_ in two] == [Status.PASS]


def test_a_disk_that_never_ends_is_named_and_the_others_are_kept():
    steps = (disk("/d0"), {"step": "begin", "what": "disk", "point": "/d1", "at": 2.0})
    seen = Observation(DISKS, Outcome.TIMEOUT, text=document(*steps, whole=False), note="no answer in 30 s")
    rates = DiskRates.parse(seen)
    assert [one.point for one in rates.disks] == ["/d0"] and rates.hung == "/d1"
    assert [(f.status, f.subject) for f in disks(rates)] == [(Status.UNKNOWN, "mount:/d1")]


def test_what_was_left_out_is_no_pass():
    found = judged(disks, DiskRates, DISKS, disk("/d0", left="it is read-only"))
    assert found == [(Status.SKIP, "mount:/d0", "not measured: it is read-only")]
    left = {"step": "left-out", "why": "processors are in use: load 90.0 on 96"}
    assert [status for status, *_ in judged(sockets, MemoryRates, MEMORY, left)] == [Status.SKIP]


def test_a_socket_with_slower_memory_is_named():
    near = [memory(n, n, 300.0) for n in range(4)]
    far = [memory(0, 2, 120.0), memory(2, 0, 121.0)]
    assert [status for status, *_ in judged(sockets, MemoryRates, MEMORY, *near, *far)] == [Status.PASS]
    near[2] = memory(2, 2, 225.0)
    summary = "copies in the memory of node 2: 225 GB/s, others 300"
    assert judged(sockets, MemoryRates, MEMORY, *near, *far) == [(Status.WARN, "numa:2", summary)]
