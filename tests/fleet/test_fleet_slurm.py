"""Slurm as a way to nodes: fake commands that speak as Slurm 22.05 does, and what is made of it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.children.search_path import search_path
from nodedoctor.fleet.model import FleetError, FleetRequest, Node
from nodedoctor.fleet.transports.slurm.nodes import chosen, immediate, option, rows
from nodedoctor.fleet.transports.slurm.step import MARK, NodeAnswer, SlurmStep, task
from nodedoctor.fleet.transports.slurm.transport import Slurm

SINFO = """\
gpu-1|all*|idle|none
gpu-1|few|idle|none
gpu-2|all*|mixed|none
gpu-3|all*|drained*|Xid 79 on gpu 3 | see ticket [ops@2026-11-20T10:00:00]
gpu-4|all*|down*|Not responding
gpu-5|all*|allocated|none
gpu-6|all*|idle~|none
login|few|idle|none
"""
REPORT = {
    "schema": "nodedoctor.report/1",
    "tool": "0.1.0",
    "started": "2026-11-21T10:00:00Z",
    "seconds": 1.0,
    "verdict": "pass",
    "node": {"hostname": "HOST", "gpus": 8},
    "results": [{"check": "a.b", "title": "t", "status": "pass", "findings": []}],
    "facts": {},
}


# What Slurm says of its nodes


def test_each_state_says_whether_slurm_would_start_something():
    found = chosen(rows(SINFO), everywhere=False)
    assert list(found) == ["gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "gpu-6"], "login is not in all*"
    assert not found["gpu-1"].closed() and not found["gpu-2"].closed()
    assert found["gpu-3"].closed() == (
        "Slurm has it as drained, not responding: Xid 79 on gpu 3 | see ticket [ops@2026-11-20T10:00:00]"
    )
    assert found["gpu-4"].closed() == "Slurm has it as down, not responding"
    assert found["gpu-5"].busy and not found["gpu-5"].closed()
    assert [host for host, row in found.items() if row.idle] == ["gpu-1", "gpu-6"]
    assert found["gpu-6"].closed() == "Slurm has it as powered down"


def test_a_partition_that_was_named_means_all_its_nodes():
    assert "login" in chosen(rows(SINFO), everywhere=True)
    no_default = [row for row in rows(SINFO) if not row.default]
    assert "login" in chosen(no_default, everywhere=False)


def test_a_reservation_is_no_obstacle_to_those_who_have_it():
    (row,) = rows("gpu-1|all*|reserved|none")
    assert row.closed() and not row.closed(reservation=True)


@given(st.text(alphabet=st.sampled_from("gpu-1|*~$ \n\tidledown\x00é"), max_size=200))
def test_any_text_of_sinfo_is_read(text):
    for row in rows(text):
        assert row.host and "|" not in row.host
        assert isinstance(row.closed(), str)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("-w", "a[1-2]"), "a[1-2]"),
        (("-wa1",), "a1"),
        (("--nodelist=a1", "-p", "x"), "a1"),
        (("--nodelist", "a1"), "a1"),
        (("-w", "a1", "-w", "a2"), "a2"),
        (("-p", "x"), ""),
        (("-w",), ""),
    ],
)
def test_options_are_read_as_getopt_does(words, value):
    assert option(words, "-w", "--nodelist") == value


@pytest.mark.parametrize(
    ("words", "seconds"),
    [((), 15), (("-I",), 15), (("-I90",), 90), (("--immediate=3",), 3), (("-I", "90"), 15), (("-Ix",), 15)],
)
def test_how_long_to_wait_for_nodes(words, seconds):
    assert immediate(words, 15) == seconds


# One step's output


def framed(number: int, host: str, text: str, rc: int = 0) -> list[str]:
    packed = base64.b64encode(gzip.compress(f"{text}\n{rc}".encode())).decode()
    lines = [packed[at : at + 76] for at in range(0, len(packed), 76)]
    marked = [f"{MARK} at {number} {host}", *(f"{MARK} = {line}" for line in lines), f"{MARK} end"]
    return [f"{number}: {line}" for line in marked]


def heard(step: SlurmStep, lines: list[str], fd: int = 1) -> list[NodeAnswer]:
    return [said for line in lines if (said := step.observe(fd, line)) is not None]


@given(
    st.lists(st.tuples(st.text(max_size=300), st.integers(0, 255)), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
    st.lists(st.text(alphabet=st.characters(exclude_characters="\n"), max_size=30), max_size=10),
)
def test_answers_come_apart_however_they_are_mixed(answers, random, noise):
    streams = [framed(number, f"n{number}", text, rc) for number, (text, rc) in enumerate(answers)]
    streams.append([line for line in noise if MARK not in line])
    mixed = []
    while streams := [stream for stream in streams if stream]:
        mixed.append(random.choice(streams).pop(0))
    said = heard(SlurmStep(), mixed)
    sent = [text.encode("utf-8", "replace").decode() for text, _ in answers]
    assert {(s.host, s.text, s.rc) for s in said} == {
        (f"n{number}", text, rc) for number, (text, (_, rc)) in enumerate(zip(sent, answers, strict=True))
    }


@given(st.lists(st.tuples(st.sampled_from((1, 2)), st.text(max_size=80)), max_size=30))
def test_any_lines_are_heard(lines):
    step = SlurmStep()
    for fd, line in lines:
        for text in (line, f"0: {line}", f"0: {MARK} {line}", f"srun: error: {line}"):
            step.observe(fd, text)


@given(st.data())
def test_a_damaged_answer_is_told_from_a_whole_one(data):
    lines = framed(0, "n0", json.dumps(list(range(300))))
    place = data.draw(st.integers(1, len(lines) - 2))
    if data.draw(st.booleans()):
        del lines[place]
    else:
        lines[place] = f"0: {MARK} = " + data.draw(st.text(alphabet="AZaz09+/=", max_size=76))
    step = SlurmStep()
    said = heard(step, lines)
    assert [one.text for one in said] == [json.dumps(list(range(300)))] or (
        said == [] and step.ended == {"n0": "its answer came only in part"}
    )


def test_an_answer_larger_than_any_report_is_bounded():
    (said,) = heard(SlurmStep(), framed(0, "n0", "x" * 50_000_000))
    assert len(said.text) < 5_000_000 and said.truncated


def test_what_srun_says_of_nodes():
    step = SlurmStep()
    lines = [
        "srun: error: Task launch for StepId=8.0 failed on node gpu-4: Communication connection failure",
        "srun: error: Application launch failed: Communication connection failure",
        "srun: Job step aborted: Waiting up to 4 seconds for job step to finish.",
        "srun: error: gpu-[1-2]: tasks 0-1: Killed",
        "srun: error: Node failure on gpu-3",
        "2: slurmstepd: error: no such user",
    ]
    assert not heard(step, lines, fd=2)
    assert step.lost == {"gpu-4": "Communication connection failure", "gpu-3": "node failure"}
    assert step.ended == {"gpu-1": "Killed", "gpu-2": "Killed"}
    assert step.errors == ["Application launch failed: Communication connection failure"]


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
def test_what_a_node_sends_is_what_is_read(shell):
    script = "echo before >&2; printf 'a\\nb'; printf after >&2; exit 3"
    done = subprocess.run(
        [shell, "-c", task(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "SLURM_PROCID": "7", "SLURMD_NODENAME": "gpu-7"},
    )
    step = SlurmStep()
    (said,) = heard(step, [f"7: {line}" for line in done.stdout.splitlines()])
    assert (said.host, said.text, said.rc, said.errors) == ("gpu-7", "a\nb", 3, "before\nafter")
    assert not done.stderr, "that would come by another way, perhaps later"
    assert max(map(len, done.stdout.splitlines())) < 1000, "srun would cut it"


# The whole way, through commands that speak like Slurm's

SRUN = """#!{python}
import base64, gzip, os, re, subprocess, sys, time
words = sys.argv[1:]
with open({log!r}, "a") as log: log.write("srun " + " ".join(words[:words.index("/bin/sh")]) + "\\n")
nodes = re.search("--nodelist=(\\\\S+)", " ".join(words))[1]
sys.path[:0] = [{root!r}]
from nodedoctor.nodeset import expand
running = []
for number, host in enumerate(expand(nodes)):
    env = dict(os.environ, SLURM_PROCID=str(number), SLURMD_NODENAME=host, HOME="/nonexistent",
               PATH={nodes!r} + "/" + host + ":" + os.environ["PATH"])
    if not os.path.isdir({nodes!r} + "/" + host):
        if host == "dead":
            continue
        env["PATH"] = os.environ["PATH"]
    running.append((number, subprocess.Popen(words[words.index("/bin/sh"):], env=env, stdout=subprocess.PIPE,
                                             stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)))
if "dead" in expand(nodes):
    time.sleep(1)
    for number, process in running:
        if process.poll() is None:
            process.kill()
        else:
            for line in process.stdout: print(f"{{number}}: {{line.decode()}}", end="", flush=True)
    print("srun: error: Task launch for StepId=8.0 failed on node dead: Communication connection failure",
          file=sys.stderr)
    print("srun: error: Application launch failed: Communication connection failure", file=sys.stderr)
    sys.exit(1)
import threading
def tell(number, pipe, out):
    for line in pipe: print(f"{{number}}: {{line.decode()}}", end="", file=out, flush=True)
threads = [threading.Thread(target=tell, args=(number, pipe, out), daemon=True) for number, process in running
           for pipe, out in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
SALLOC = """#!/bin/sh
echo "salloc $*" >>{log}
for word; do case $word in --nodelist=*) nodes=${{word#*=}};; esac; done
export SLURM_JOB_ID=12 SLURM_JOB_NODELIST="${{nodes:-gpu-[1-2]}}"
while [ "$1" != /bin/sh ]; do shift; done
"$@"
echo "released" >>{log}
"""
NODEDOCTOR = """#!/bin/sh
{deed}
echo '{report}'
"""


class Cluster:
    """Fake commands of Slurm in a folder on PATH, and what each node's nodedoctor does."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.bin = folder / "bin"
        self.nodes = folder / "nodes"
        self.bin.mkdir()
        self.sinfo(SINFO)
        self.command("salloc", SALLOC.format(log=self.log))
        srun = SRUN.format(python=sys.executable, log=str(self.log), root=os.getcwd(), nodes=str(self.nodes))
        self.command("srun", srun)

    def command(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def sinfo(self, text: str) -> None:
        self.command("sinfo", f"#!/bin/sh\necho sinfo $* >>{self.log}\ncat <<'END'\n{text}END\n")

    def node(self, name: str, deed: str = "") -> None:
        report = json.dumps(REPORT).replace("HOST", name)
        (self.nodes / name).mkdir(parents=True)
        (self.nodes / name / "nodedoctor").write_text(NODEDOCTOR.format(deed=deed, report=report))
        (self.nodes / name / "nodedoctor").chmod(0o755)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    made = Cluster(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}:/usr/bin:/bin")
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    return made


def asked(*words: str, deadline: float = 20.0) -> tuple[tuple[str, ...], dict[str, Node]]:
    async def ask() -> tuple[tuple[str, ...], dict[str, Node]]:
        slurm = Slurm(words)
        hosts = await slurm.hosts()
        return hosts, {node.host: node async for node in slurm.ask(FleetRequest(deadline=deadline))}

    return asyncio.run(ask())


def test_those_slurm_would_start_something_on_are_asked_and_the_others_named(cluster):
    for name in ("gpu-1", "gpu-2"):
        cluster.node(name)
    hosts, nodes = asked()
    assert hosts == ("gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "gpu-6")
    states = {host: node.state for host, node in nodes.items()}
    assert states == {
        "gpu-1": "answered",
        "gpu-2": "answered",
        **dict.fromkeys(("gpu-3", "gpu-4", "gpu-5", "gpu-6"), "unreachable"),
    }
    assert "Xid 79" in nodes["gpu-3"].note
    assert "given all its processors" in nodes["gpu-5"].note
    assert nodes["gpu-1"].gpus == 8
    salloc = next(line for line in cluster.log.read_text().splitlines() if line.startswith("salloc"))
    assert "--nodelist=gpu-[1-2] --nodes=2" in salloc and "--gres" not in salloc
    assert cluster.log.read_text().endswith("released\n")


def test_who_stops_listening_leaves_nothing_running(cluster):
    for name in ("gpu-1", "gpu-2"):
        cluster.node(name, "sleep 60" if name == "gpu-1" else "")

    async def ask() -> Node:
        slurm = Slurm()
        await slurm.hosts()
        async with contextlib.aclosing(slurm.ask(FleetRequest(deadline=60))) as nodes:
            async for node in nodes:
                if node.state == "answered":
                    return node
        raise AssertionError("nobody answered")

    began = time.monotonic()
    assert asyncio.run(ask()).host == "gpu-2"
    assert time.monotonic() - began < 30
    assert cluster.log.read_text().endswith("released\n")


@pytest.mark.slow
def test_a_hanging_node_hides_nobody(cluster):
    cluster.node("gpu-1", "echo half >&2; sleep 60")
    cluster.node("gpu-2")
    began = time.monotonic()
    _, nodes = asked("-w", "gpu-[1-2]", deadline=4)
    assert time.monotonic() - began < 30
    assert (nodes["gpu-1"].state, nodes["gpu-2"].state) == ("silent", "answered")
    assert "nodedoctor runs there" in nodes["gpu-1"].note


@pytest.mark.slow
def test_when_srun_aborts_the_step_the_others_are_asked_again(cluster):
    cluster.sinfo("gpu-1|all*|idle|none\ndead|all*|idle|none\ngpu-2|all*|idle|none\n")
    cluster.node("gpu-1")
    cluster.node("gpu-2", "sleep 2")
    _, nodes = asked()
    assert nodes["dead"].state == "unreachable" and "Communication connection failure" in nodes["dead"].note
    assert (nodes["gpu-1"].state, nodes["gpu-2"].state) == ("answered", "answered")
    steps = [line for line in cluster.log.read_text().splitlines() if line.startswith("srun")]
    assert len(steps) == 2 and "--nodelist=gpu-2 " in steps[1]


def test_inside_an_allocation_its_nodes_are_asked_beside_the_job(cluster, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu-[1-3]")
    for name in ("gpu-1", "gpu-2"):
        cluster.node(name)
    hosts, nodes = asked("-x", "gpu-3", "--qos=low")
    assert hosts == ("gpu-1", "gpu-2")
    assert all(node.state == "answered" for node in nodes.values())
    (srun,) = cluster.log.read_text().splitlines()
    assert "--jobid=77" in srun and "--overlap" in srun and "--qos=low" in srun
    with pytest.raises(FleetError, match="gpu-9: not in this allocation"):
        asked("-w", "gpu-9")


def test_a_number_of_nodes_leaves_the_choice_to_slurm(cluster):
    for name in ("gpu-1", "gpu-2"):
        cluster.node(name)
    hosts, nodes = asked("-N", "2")
    assert hosts == ("gpu-1", "gpu-2") and len(nodes) == 2
    assert "sinfo" not in cluster.log.read_text()


@pytest.mark.slow
def test_nodes_that_are_not_given_in_time_are_told_with_the_reason(cluster):
    cluster.command("salloc", "#!/bin/sh\necho salloc: Pending job allocation 13 >&2\nexec sleep 60\n")
    cluster.command("squeue", "#!/bin/sh\necho '13|PENDING|Resources'\n")
    with pytest.raises(FleetError, match="not given 2 nodes within 1 s: job 13 is pending for Resources"):
        asked("-I1")


def test_a_check_is_not_taken_for_an_option(cluster):
    """`--slurm nvlink` would have salloc run a command called nvlink."""
    with pytest.raises(FleetError, match="--slurm nvlink: no option of srun"):
        asked("nvlink")
    assert not cluster.log.exists()


@pytest.mark.slow
def test_one_busy_node_does_not_hide_the_idle_ones(cluster):
    """A job over all nodes would wait for the one that has no room."""
    cluster.node("gpu-1")
    salloc = (cluster.bin / "salloc").read_text()
    waits = "case $* in *--nodes=2*) exec sleep 60;; esac\n"
    cluster.command("salloc", salloc.replace("for word", waits + "for word"))
    cluster.command("squeue", "#!/bin/sh\necho '13|PENDING|Resources'\n")
    cluster.sinfo("gpu-1|all*|idle|none\ngpu-2|all*|mixed|none\n")
    hosts, nodes = asked("-I1")
    assert hosts == ("gpu-1", "gpu-2")
    assert nodes["gpu-1"].state == "answered"
    assert nodes["gpu-2"].state == "unreachable"
    assert nodes["gpu-2"].note == "Slurm has not given it within 1 s: job 13 is pending for Resources"


def test_the_partition_of_the_environment_is_that_of_srun(cluster, monkeypatch):
    monkeypatch.setenv("SLURM_PARTITION", "few")
    for name in ("gpu-1", "gpu-2"):
        cluster.node(name)
    asked()
    sinfo, salloc = cluster.log.read_text().splitlines()[:2]
    assert "--partition=few" in sinfo and "--partition=few" in salloc


def test_what_slurm_refuses_is_told(cluster):
    cluster.command(
        "salloc",
        "#!/bin/sh\necho 'salloc: error: Job submit/allocate failed: Invalid account' >&2\nexit 1\n",
    )
    with pytest.raises(FleetError, match=r"Job submit/allocate failed: Invalid account \(options: -A x\)"):
        asked("-A", "x")
    cluster.sinfo("")
    with pytest.raises(FleetError, match="no nodes for these options: none"):
        asked()
    with pytest.raises(FleetError, match="no node other"):
        asked("-w", "other")
    cluster.command(
        "sinfo", "#!/bin/sh\necho slurm_load_partitions: Unable to contact slurm controller >&2\nexit 1\n"
    )
    with pytest.raises(FleetError, match="Unable to contact slurm controller"):
        asked()


def test_without_slurm_there_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(FleetError, match="sinfo is not on PATH"):
        asked()


def test_an_srun_that_cannot_make_its_step_says_so_of_every_node(cluster):
    cluster.command(
        "srun", "#!/bin/sh\necho 'srun: error: Unable to create step for job 12: Access denied' >&2\nexit 1\n"
    )
    _, nodes = asked("-w", "gpu-[1-2]")
    assert {node.state for node in nodes.values()} == {"unreachable"}
    assert "Unable to create step for job 12: Access denied" in nodes["gpu-1"].note


@pytest.mark.slow
def test_a_node_without_nodedoctor_is_brought_the_single_file(cluster, tmp_path, monkeypatch):
    brought = tmp_path / "nodedoctor.pyz"
    brought.write_text(f"print({json.dumps(REPORT)!r})\n")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    step = cluster.bin / "srun"
    step.write_text(step.read_text().replace("stdin=subprocess.DEVNULL", "stdin=0"))
    search_path()  # looked at by this interpreter, and remembered
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")  # beside it no nodedoctor is found
    cluster.sinfo("gpu-1|all*|idle|none\n")

    async def ask() -> list[Node]:
        slurm = Slurm(("-w", "gpu-1"))
        await slurm.hosts()
        return [node async for node in slurm.ask(FleetRequest(deadline=20, pyz=str(brought)))]

    (node,) = asyncio.run(ask())
    assert node.state == "answered", node.note
    steps = [line for line in cluster.log.read_text().splitlines() if line.startswith("srun")]
    assert len(steps) == 2 and "--input=none" in steps[0] and "--input=all" in steps[1]


@pytest.mark.slow
def test_the_first_step_may_end_while_the_file_is_brought(cluster, tmp_path, monkeypatch):
    brought = tmp_path / "nodedoctor.pyz"
    brought.write_text(f"import time; time.sleep(3); print({json.dumps(REPORT)!r})\n")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    step = cluster.bin / "srun"
    step.write_text(step.read_text().replace("stdin=subprocess.DEVNULL", "stdin=0"))
    search_path()  # looked at by this interpreter, and remembered
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    cluster.sinfo("gpu-1|all*|idle|none\ngpu-2|all*|idle|none\n")
    cluster.node("gpu-2", "sleep 2.5")

    async def ask() -> list[Node]:
        slurm = Slurm()
        await slurm.hosts()
        return [node async for node in slurm.ask(FleetRequest(deadline=20, pyz=str(brought)))]

    nodes = {node.host: node for node in asyncio.run(ask())}
    assert [nodes[host].state for host in ("gpu-1", "gpu-2")] == ["answered", "answered"], nodes
