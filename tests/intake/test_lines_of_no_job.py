"""Refusals of programs, and what no reader claims, are no job's: they are listed, and not judged."""

from __future__ import annotations

import pytest
import smi_texts
from in_turn import in_turn
from pastes import OF_LOGS, PASTES

from nodedoctor.intake.cli import worst
from nodedoctor.intake.commands import asks_machine, programs
from nodedoctor.intake.document import headline
from nodedoctor.intake.judge import Reading, read
from nodedoctor.intake.split import split
from nodedoctor.prompts import remote_host

REFUSALS = {
    "dmesg -T": "dmesg: read kernel buffer failed: Operation not permitted",
    "sudo dmesg": "sudo: a password is required",
    "systemctl is-enabled nvidia-dcgm": "Failed to get unit file state for x.service: No such file",
    "systemctl status nvidia-fabricmanager": "Unit nvidia-fabricmanager.service could not be found.",
    "systemctl list-units": "System has not been booted with systemd as init system. Can't operate.",
    "journalctl -k": "Hint: You are currently not seeing messages from other users and the system.",
    "ipmitool sel list": "Could not open device at /dev/ipmi0 or /dev/ipmidev/0: No such file or directory",
    "docker ps": "permission denied while trying to connect to the Docker daemon socket at unix:///run",
    "docker run --rm cuda nvidia-smi": "Cannot connect to the Docker daemon at unix:///run. Is it running?",
    "mlxlink -d mlx5_3": "-E- Permission denied. Please run as root",
    "mst status": "-E- You must be root to use mst tool",
    "ssh gpu-8 nvidia-smi": "ssh: connect to host gpu-8 port 22: Connection refused",
    "kubectl get nodes": 'Error from server (Forbidden): nodes is forbidden: User "eve" cannot',
    "kubectl logs -n gpu plugin": "The connection to the server 10.1.0.1:6443 was refused - did you ...",
    "dcgmi discovery -l": "Error: Unable to connect to host engine. Host engine connection invalid",
    "sinfo -R": "slurm_load_partitions: Unable to contact slurm controller (connect failure)",
    "modinfo nvidia_peermem": "modinfo: ERROR: Module nvidia_peermem not found.",
    "torchrun --version": "bash: torchrun: command not found",
    "grep -r nouveau /etc/modprobe.d | head -3": "grep: /etc/modprobe.d/x.conf: Permission denied",
    "nvme list": "Failed to open /dev/nvme0: Permission denied",
    "ibdiagnet": "-E- Fail to open port to device: mlx5_0",
    "smartctl -a /dev/sda": "Smartctl open device: /dev/sda failed: Permission denied",
}  # fmt: skip
PROMPTS = ["$ ", "eve@gpu-7:~$ ", "[eve@gpu-7 ~]$ ", "root@gpu-7:/# "]

TABLE = smi_texts.table(smi_texts.row(0), smi_texts.row(1, bus="00000000:2A:00.0"))
JOB = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/work/train.py", line 88, in <module>\n'
    '[rank1]:     raise ValueError("no data")\n'
    "[rank1]: ValueError: no data\n"
)
UNREAD = {
    "vmstat 1 3": " r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n"
    " 2  0      0 912312  88121 771821    0    0    11    41   10   20  3  1 96  0  0\n"
    " 3  0      0 912112  88122 771822    0    0     0    10  910  990  3  1 96  0  0\n",
    "iperf3 -c 10.0.0.2": "[  5]   0.00-1.00   sec  11.1 GBytes  95.3 Gbits/sec    0   3.1 MBytes\n"
    "[  5]   1.00-2.00   sec  11.0 GBytes  94.9 Gbits/sec    0   3.1 MBytes\n",
    "./bandwidthMatrix": "   D\\D     0      1      2\n     0 2661.1 379.2  380.1\n"
    "     1  379.7 2662.0 381.3\n     2  379.9 380.8 2660.4\n",
    "cat /sys/bus/pci/devices/0000:1b:00.0/aer_dev_fatal": "RxErr 0\nTimeout 9911\nTOTAL_ERR_FATAL 0\n",
    "bmc-device --status": "Fan 3 failed (0 RPM)\nPower Supply 4 failed\n",
    "ping -c 2 gpu-8": "64 bytes from 10.0.0.8: icmp_seq=1 ttl=64 time=0.2 ms\n"
    "2 packets transmitted, 1 received, 50% packet loss, time 1001ms\n",
    "top -bn1 | head -3": "Tasks: 901 total,   1 running, 900 sleeping,   0 stopped,   9 zombie\n",
}  # fmt: skip


def reading(text: str) -> Reading:
    return read(["-"], stdin=text.encode())


@pytest.mark.slow
@in_turn("command", REFUSALS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_refusal_is_of_no_job(command: str, prompt: str):
    line = REFUSALS[command]
    result = reading(f"{prompt}{command}\n{line}\n{prompt}nvidia-smi\n{TABLE}")
    assert result.triage is None
    assert worst(result) == worst(reading(f"{prompt}nvidia-smi\n{TABLE}"))
    shown = [*result.notes, *(item.first for item in result.unrecognised)]
    assert sum(line[:60] in entry for entry in shown) == 1


@in_turn("command", REFUSALS)
def test_a_refusal_does_not_change_the_verdict_on_a_job(command: str):
    alone = reading(JOB).triage
    beside = reading(f"$ {command}\n{REFUSALS[command]}\n$ tail -4 train.log\n{JOB}").triage
    assert alone is not None
    assert beside is not None
    assert (alone["outcome"], alone["kind"], alone["headline"]) == (
        beside["outcome"],
        beside["kind"],
        beside["headline"],
    )


@pytest.mark.parametrize(
    "line",
    [
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        "python: can't open file '/work/train.py': [Errno 2] No such file or directory",
        "touch: cannot touch '/scratch/x': No space left on device",
    ],
)
def test_why_a_job_cannot_start_is_no_refusal(line: str):
    command = {"docker": "docker run --gpus all cuda nvidia-smi", "python": "python /work/train.py"}
    typed = command.get(line.partition(":")[0], "touch /scratch/x")
    assert reading(f"$ {typed}\n{line}\n").triage is not None


@in_turn("command", UNREAD)
@in_turn("prompt", ["", *PROMPTS])
def test_numbers_and_words_of_no_job_are_listed(command: str, prompt: str):
    typed = f"{prompt}{command}\n" if prompt else ""
    result = reading(f"{typed}{UNREAD[command]}")
    assert result.triage is None
    assert not result.recognised
    assert sum(item.lines for item in result.unrecognised) == len(UNREAD[command].splitlines())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("probe", PASTES)
@in_turn("command", UNREAD)
def test_a_job_below_what_no_reader_claims_is_judged(probe: str, command: str):
    text = f"$ {command}\n{UNREAD[command]}$ show\n{PASTES[probe]}$ tail -4 train.log\n{JOB}"
    result = reading(text)
    assert result.triage is not None
    assert result.triage["kind"] == "user_code_exception/other"


@pytest.mark.parametrize(
    ("command", "asks"),
    [
        ("sudo -n dmesg -T | tail", True),
        ("LANG=C nvidia-smi -q | grep -A3 Fabric", True),
        ("watch -n 1 nvidia-smi", True),
        ("/usr/sbin/ibstat mlx5_0", True),
        ("cat /sys/fs/cgroup/cpu.max", True),
        ("tail -50 /proc/self/mounts", True),
        ("tail -50 slurm-811.out", False),
        ("grep -c ERROR /var/log/job.log", False),
        ("cat /run/jobs/811.log", False),
        ("kubectl -n train get pods -o wide", True),
        ("kubectl logs get-0", False),
        ("docker run image ls", False),
        ("docker inspect trainer", True),
        ("python train.py", False),
        ("./train.sh nvidia-smi", False),
        ("", False),
    ],
)
def test_commands_that_ask_the_machine(command: str, asks: bool):
    assert asks_machine(command) is asks


def test_programs_are_named_without_what_starts_them():
    assert programs("sudo -E LANG=C /usr/bin/dmesg -T | grep -i xid && lspci") == ["dmesg", "grep", "lspci"]


@pytest.mark.parametrize(
    ("command", "host", "owner"),
    [
        ("srun -N1 -w cn042 --gres=gpu:8 bash -c 'ulimit -a'", "cn042", "cn042"),
        ("srun --nodelist=cn042 nvidia-smi", "cn042", "cn042"),
        ("srun -w cn[01-04] nvidia-smi", "", ""),
        ("srun -N1 nvidia-smi", "", ""),
        ("ssh -p 22 -i key root@gpu-7 nvidia-smi -q", "gpu-7", "gpu-7"),
        ("ssh gpu-7", "", "gpu-7"),
        ("sudo nvidia-smi -w x", "", "login1"),
        ("pdsh -w gpu-[1-4] nvidia-smi", "", ""),
        ("clush -bw gpu-[1-4] 'nvidia-smi | head'", "", ""),
        ("for h in `cat nodes`; do ssh $h nvidia-smi; done", "", ""),
        ("cat nodes | xargs -I{} ssh {} nvidia-smi", "", ""),
        ("ansible gpus -m shell -a nvidia-smi", "", ""),
    ],
)
def test_what_was_started_on_another_node_is_of_that(command: str, host: str, owner: str):
    assert remote_host(command) == host
    pieces = split(f"[eve@login1 ~]$ {command}\n{TABLE}[eve@login1 ~]$ nvidia-smi\n{TABLE}").pieces
    assert [piece.host for piece in pieces] == [owner, "login1"]


@pytest.mark.parametrize("probe", ["sinfo-reasons", "sinfo", "kubernetes-node", "kubernetes-nodes"])
def test_what_was_asked_about_nodes_is_not_of_the_one_with_the_prompt(probe: str):
    text = f"[root@login1 ~]# show it\n{PASTES[probe]}[root@login1 ~]# ssh gpu-7 nvidia-smi\n{TABLE}"
    assert {node.name for node in reading(text).nodes} == {"gpu-7"}


FAULTS = [
    "GPU has fallen off the bus",
    "CUDA out of memory",
    "uncorrectable ECC error encountered",
    "Driver/library version mismatch",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "Watchdog caught collective operation timeout",
    "NCCL WARN Cuda failure 'unhandled system error'",
]
TITLES = ["Subject: RE: [TICKET 4411] {0}", "Re: {0} - GPU swapped", "Title: {0}", "## {0} (solved)", "# {0}"]
SENTENCES = [
    "job 4411 -> {0} (my batch size)",
    "result: {0}: no; ECC errors: no",
    "({0} is expected here)",
    "todo: {0} - resolved",
]


@pytest.mark.slow
@in_turn("form", [*TITLES, *SENTENCES])
@in_turn("fault", [fault for fault in FAULTS if "NCCL WARN" not in fault])
@pytest.mark.parametrize("prompt", ["", *PROMPTS])
def test_what_a_person_writes_around_outputs_is_no_log(form: str, fault: str, prompt: str):
    words = form.format(fault)
    result = reading(f"{words}\n\n{prompt}nvidia-smi\n{TABLE}\nthanks in advance\n")
    assert result.triage is None
    assert worst(result) == worst(reading(f"{prompt}nvidia-smi\n{TABLE}"))
    assert next(item.first for item in result.unrecognised) == words


@pytest.mark.slow
@in_turn("form", TITLES)
@in_turn("fault", FAULTS)
def test_a_title_does_not_change_the_verdict_on_the_log_below_it(form: str, fault: str):
    below = f"{JOB}\n$ nvidia-smi\n{TABLE}"
    plain, titled = reading(below).triage, reading(f"{form.format(fault)}\n{below}").triage
    assert plain is not None
    assert titled is not None
    assert (plain["kind"], plain["headline"]) == (titled["kind"], titled["headline"])


@pytest.mark.parametrize(
    "line",
    [
        "2026-03-01 04:05:06 trainer CUDA out of memory",
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "gpu-1:811:902 [3] NCCL WARN Cuda failure 'out of memory'",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=811.0.",
    ],
)
def test_one_line_with_the_marks_of_a_program_is_a_log(line: str):
    assert reading(f"my job ends so:\n{line}\n\n$ nvidia-smi\n{TABLE}").triage is not None


@pytest.mark.parametrize("lines", [1, 2, 3, 8])
def test_few_plain_lines_below_what_was_started_are_its_own(lines: int):
    printed = "CUDA out of memory\n" * lines
    assert reading(f"$ python train.py\nloading\n{printed}\n$ nvidia-smi\n{TABLE}").triage is not None


SETS_UP = (
    "gpu-7:2566:2739 [0] NCCL INFO Bootstrap : Using eth0:10.1.1.1<0>\n"
    "gpu-7:2566:2739 [0] NCCL INFO comm 0x55cc8aa86c70 rank 0 nranks 16 cudaDev 0 busId 1b000 - Init START\n"
)
NO_GPUDIRECT = OF_LOGS["nccl-lines"]
TRAINS = "".join(f"2026-03-01 04:05:{n:02} step {n} loss 2.{n}\n" for n in range(30))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("front", ["", "[1,0]<stdout>:", "2026-03-01T04:05:06Z "])
@pytest.mark.parametrize(("before", "behind"), [("", ""), (SETS_UP, ""), (SETS_UP, TRAINS), ("", JOB)])
def test_gpudirect_that_nccl_does_not_use_is_a_warning_beside_the_log(front: str, before: str, behind: str):
    lines = "".join(f"{front}{line}\n" for line in NO_GPUDIRECT.splitlines())
    result = reading(before + lines + behind)
    (node,) = result.nodes
    findings = [finding for entry in node.report["results"] for finding in entry["findings"]]
    (alarm,) = [finding for finding in findings if finding["status"] in ("warn", "fail")]
    assert alarm["status"] == "warn"
    assert "GPUDirect RDMA is off for mlx5_0 and mlx5_1 on gpu-7" in alarm["summary"]
    plain = reading(before + behind).triage
    assert (result.triage is None) is (not before and not behind)
    if plain and result.triage:
        assert result.triage["kind"] == plain["kind"]


REFUSED = "modprobe: ERROR: could not insert 'nvidia_peermem': {0}\n"


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("Invalid argument", "does not fit the RDMA stack"),
        ("Unknown symbol in module, or unknown parameter (see dmesg)", "does not fit the RDMA stack"),
        ("Key was rejected by service", "Secure Boot"),
    ],
)
def test_why_a_module_is_refused_comes_before_what_it_breaks(why: str, words: str):
    """The module is not to be loaded again, as that was refused: its build has to change."""
    text = f"$ sudo modprobe nvidia_peermem\n{REFUSED.format(why)}$ cat job.log\n{NO_GPUDIRECT}"
    (node,) = reading(text).nodes
    (cause,) = node.report["causes"]
    assert cause["subjects"] == ["module:nvidia_peermem"]
    assert "tools.verdicts@gpudirect-rdma" in cause["explains"]
    (refused,) = [
        finding
        for entry in node.report["results"]
        for finding in entry["findings"]
        if finding["subject"] == "module:nvidia_peermem"
    ]
    assert words in refused["summary"] and refused["fix"]
    assert not any("modprobe" in step["command"] for step in refused["fix"]["steps"])


def test_a_gpu_too_far_from_an_adapter_is_no_fault():
    line = "gpu-7:2566:2739 [0] NCCL INFO GPU Direct RDMA Disabled for GPU 1b000 / HCA 3 (distance 7 >= 4)"
    assert reading(f"{SETS_UP}{line}\n").nodes == []


@in_turn("prompt", PROMPTS)
def test_a_headline_with_a_fault_does_not_speak_of_no_problem_found(prompt: str):
    result = reading(f"{prompt}nvidia-smi\n{TABLE}\n{prompt}python train.py\n{JOB}")
    text = headline(result)
    assert "no problem found" not in text
    assert text.endswith("; the rest shows no problem")


@pytest.mark.parametrize("fence", ["", "```\n"])
@pytest.mark.parametrize("host", ["gpu-7", "a100-node-03"])
@pytest.mark.parametrize("library", ["libnccl-net.so", "libnccl-tuner.so", "libnccl-net-aws-ofi.so"])
def test_the_rest_of_a_line_of_nccl_is_no_error_by_itself(host: str, fence: str, library: str):
    words = [f"Plugin load returned 2 : {library}: cannot open shared object file: No such file or directory"]
    words += [
        f"comm 0x5{n}c3a1a0 rank {n} nranks 4 cudaDev {n} nvmlDev {n} busId 7000 - Init COMPLETE"
        for n in range(4)
    ]
    rows = [f"{host}:2201:22{n}0 [{n % 4}] NCCL INFO {text}" for n, text in enumerate(words)]
    lines = "".join(f"{row[at : at + 80]}\n" for row in rows for at in range(0, len(row), 80))
    result = reading(f"runs well, but what is this:\n{fence}{lines}{fence}")
    assert result.triage is None or result.triage["outcome"] != "failure"
