"""What was typed and answered in a shell, judged: each sick answer as its kind, beside the healthy one."""

from __future__ import annotations

import pytest
import smi_texts
from pastes import PASTES

from nodedoctor.intake.document import headline
from nodedoctor.intake.judge import Reading, read
from nodedoctor.intake.outputs import NodeOutput, readable, snapshot_of
from nodedoctor.intake.split import split


def reading(text: str) -> Reading:
    return read(["-"], stdin=text.encode())


def alarms(text: str) -> list[str]:
    """What warns or fails in a paste of one node or none, in words; a verdict on a job, too."""
    result = reading(text)
    job = [f"job: {result.triage['headline']}"] if result.triage else []
    return job + [
        f"{finding['status']} {row['check']}@{finding['subject']}: {finding['summary']}"
        for node in result.nodes
        for row in node.report["results"]
        for finding in row["findings"]
        if finding["status"] in ("warn", "fail") or finding.get("reason") == "unparsable"
    ]


def fabric(state: str, *, count: int = 4, names: bool = False) -> str:
    """What `nvidia-smi -q | grep -A2 Fabric` leaves, with the lines of the GPUs' addresses or without."""
    status = "Success" if state == "Completed" else "N/A"
    return "".join(
        (f"GPU 00000000:{17 + number:02X}:00.0\n" if names else "")
        + f"    Fabric\n        State                             : {state}\n"
        f"        Status                            : {status}\n--\n"
        for number in range(count)
    )


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_the_state_of_the_fabric_is_read_without_its_surroundings(count: int, names: bool):
    typed = "$ nvidia-smi -q | grep -A2 Fabric\n"
    assert alarms(typed + fabric("Completed", count=count, names=names)) == []
    sick = alarms(typed + fabric("In Progress", count=count, names=names))
    assert len(sick) == count
    assert all("fail fabric.state@gpu:" in line for line in sick)


@pytest.mark.parametrize("lines", range(1, 9))
def test_a_heading_of_nvidia_smis_table_alone_is_not_misread(lines: int):
    table = smi_texts.table(smi_texts.row(0)).splitlines(keepends=True)
    heading = [line for line in table if "NVIDIA-SMI" in line or "Driver Version" in line]
    assert heading, table
    text = "".join(table[: table.index(heading[0]) + lines])
    if "NVIDIA H100" not in text:
        read_pieces = readable([NodeOutput(piece, "paste") for piece in split(text).pieces])
        assert [item.piece.shape.probe for item in read_pieces] == [""]
    assert alarms(text) == []


@pytest.mark.parametrize("sign", ["$ ", "+ ", "root@gpu-1:~# "])
@pytest.mark.parametrize("program", ["./all_reduce -g 8", "torchrun train.py --lr=1e-3", "python -c 'a=1'"])
def test_variables_in_front_of_a_program_end_where_it_begins(sign: str, program: str):
    text = f"{sign}NCCL_DEBUG=VERSION NCCL_IB_HCA='mlx5_0, mlx5_1' {program}\n"
    assert alarms(text) == []
    outputs = [NodeOutput(piece, "paste") for piece in split(text).pieces]
    seen = snapshot_of(outputs, "").observations
    expected = "NCCL_DEBUG=VERSION\nNCCL_IB_HCA='mlx5_0, mlx5_1'\n"
    assert [observation.text for observation in seen.values()] in ([], [expected])


UUID = "GPU-31e3ad19-bc6f-7a52-2f41-0b6c1ad1ed27"


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "front", ["", "I0311 03:22:40.918301       1 health.go:186] ", "2024/06/03 11:20:01 "]
)
@pytest.mark.parametrize(("code", "result"), [(48, "fail"), (79, "fail"), (95, "fail"), (31, ""), (13, "")])
def test_the_device_plugin_names_the_gpu_and_its_xid(front: str, code: int, result: str):
    text = (
        f"$ kubectl logs nvidia-device-plugin-x\n{front}XidCriticalError: Xid={code} on Device={UUID}; "
        f"marking device as unhealthy.\n{front}'nvidia.com/gpu' device marked unhealthy: {UUID}\n"
    )
    sick = alarms(text)
    assert [line.partition(" ")[0] for line in sick] == ([result] if result else [])
    assert all(UUID in line and f"Xid {code}" in line for line in sick)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ERROR: could not insert '{}': Key was rejected by service", "Secure Boot"),
        ("ERROR: could not insert '{}': Required key not available", "Secure Boot"),
        (
            "FATAL: Module {} not found in directory /lib/modules/6.8.0-45-generic",
            "for kernel 6.8.0-45-generic",
        ),
    ],
)
@pytest.mark.parametrize("sign", ["$ ", "root@gpu-1:~# ", ""])
def test_why_the_driver_was_not_loaded_leads(line: str, words: str, sign: str):
    smi = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    typed = (f"{sign}nvidia-smi\n", f"{sign}modprobe nvidia\n") if sign else ("", "")
    result = reading(f"{typed[0]}{smi}{typed[1]}modprobe: {line.format('nvidia')}\n")
    (cause,) = result.nodes[0].report["causes"]
    assert (words in cause["headline"], cause["owner"]) == (True, "administrator")
    other = alarms(f"{sign}modprobe zfs\nmodprobe: {line.format('zfs')}\n")
    assert other == []


def mounted(form: str, options: str, *, fstype: str = "ext4", point: str = "/data") -> str:
    """One file system as mount, findmnt and /proc/mounts print it, each with what was typed."""
    source = "/dev/nvme1n1p1"
    return {
        "mount": f"$ mount | grep data\n{source} on {point} type {fstype} ({options})\n",
        "bare": f"{source} on {point} type {fstype} ({options})\n",
        "findmnt": f"$ findmnt\nTARGET SOURCE FSTYPE OPTIONS\n\u251c{point} {source} {fstype} {options}\n",
        "proc": f"$ cat /proc/mounts\n{source} {point} {fstype} {options} 0 0\n",
    }[form]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("form", ["mount", "bare", "findmnt", "proc"])
@pytest.mark.parametrize("point", ["/", "/data", "/mnt/a"])
def test_a_file_system_that_an_error_made_read_only_is_a_warning(form: str, point: str):
    (sick,) = alarms(mounted(form, "ro,relatime,errors=remount-ro", point=point))
    assert sick.startswith(f"warn tools.verdicts@mount:{point}: ")
    for options in ("rw,relatime,errors=remount-ro", "ro,relatime", "rw,relatime"):
        assert alarms(mounted(form, options, point=point)) == []


@pytest.mark.parametrize(
    ("command", "line", "sick"),
    [
        ("touch /scratch/x/y", "touch: cannot touch '/scratch/x/y': Read-only file system", True),
        (
            "mkdir /data/runs",
            "mkdir: cannot create directory \u2018/data/runs\u2019: Read-only file system",
            True,
        ),
        ("echo 1 > /data/runs/a", "bash: /data/runs/a: Read-only file system", True),
        ("touch /usr/lib/x", "touch: cannot touch '/usr/lib/x': Read-only file system", False),
        ("touch /x", "touch: cannot touch '/x': Read-only file system", False),
        ("touch /data/x/y", "touch: cannot touch '/data/x/y': Permission denied", False),
    ],
)
def test_a_write_refused_for_its_file_system_is_a_warning_of_the_node(command: str, line: str, sick: bool):
    entries = alarms(f"$ {command}\n{line}\n")
    assert [entry.partition("@")[0] for entry in entries] == (["warn tools.verdicts"] if sick else [])


def group(folder: str, **files: str) -> str:
    """Files of a control group, each shown by itself; `_` in a name is a dot the first time."""
    typed = ((f"{folder}/{name.replace('_', '.', 1)}", text) for name, text in files.items())
    return "".join(f"root@pod-1:/# cat {path}\n{text}\n" for path, text in typed)


@pytest.mark.parametrize("folder", ["/sys/fs/cgroup", "/sys/fs/cgroup/kubepods.slice/pod1.slice"])
@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"memory_events": "low 0\nhigh 0\nmax 44\noom 6\noom_kill 6"}, "6 OOM kills"),
        ({"memory_events": "low 0\nhigh 0\nmax 44\noom 0\noom_kill 0"}, ""),
        ({"cpu_max": "400000 100000", "cpu_stat": "nr_periods 2000\nnr_throttled 1900"}, "of 4 processors"),
        ({"cpu_stat": "usage_usec 91\nnr_periods 2000\nnr_throttled 1000\nthrottled_usec 9"}, "50% of 2000"),
        ({"cpu_stat": "usage_usec 91\nnr_periods 2000\nnr_throttled 900\nthrottled_usec 9"}, ""),
        ({"cpu_stat": "nr_periods 40\nnr_throttled 40"}, ""),
        ({"cpu_max": "max 100000", "memory_max": "max"}, ""),
        ({"memory_max": "68719476736", "memory_current": "68719470000"}, ""),
    ],
)
def test_a_control_group_that_was_shown_is_judged(folder: str, files: dict[str, str], words: str):
    sick = alarms(group(folder, **files))
    assert len(sick) == bool(words)
    assert all(words in line for line in sick)


@pytest.mark.parametrize("state", ["active", "inactive", "unknown", "failed"])
def test_the_state_of_a_service_is_its_answer(state: str):
    sick = alarms(f"$ systemctl is-active nvidia-fabricmanager\n{state}\n")
    assert len(sick) == (state == "failed")


@pytest.mark.parametrize(("active", "sub"), [("active", "running"), ("failed", "failed")])
@pytest.mark.parametrize("mark", ["\u25cf ", "  ", ""])
def test_the_list_of_units_is_read(active: str, sub: str, mark: str):
    row = f"nvidia-fabricmanager.service   loaded {active} {sub}  NVIDIA fabric manager service\n"
    sick = alarms(f"$ systemctl list-units | grep nvidia\n{mark}{row}")
    assert len(sick) == (active == "failed")


@pytest.mark.parametrize("size", [64, 96, 100, 512])
def test_a_small_shared_memory_has_the_size_that_df_says(size: int):
    (sick,) = alarms(
        f"$ df -h /dev/shm\nFilesystem Size Used Avail Use% Mounted on\nshm  {size}M 0 {size}M 0% /dev/shm\n"
    )
    assert f"{size} MiB" in sick


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ["powersave", "performance", "schedutil"])
@pytest.mark.parametrize("driver", ["acpi-cpufreq", "intel_pstate", "amd-pstate-epp", ""])
@pytest.mark.parametrize("form", ["each", "counted", "cpupower"])
def test_the_lowest_frequency_is_a_warning_where_the_driver_does_not_choose(
    name: str, driver: str, form: str
):
    folder = "/sys/devices/system/cpu"
    shown = f"$ cat {folder}/cpu0/cpufreq/scaling_driver\n{driver}\n" if driver else ""
    text = {
        "each": f"{shown}$ cat {folder}/cpu*/cpufreq/scaling_governor\n{name}\n{name}\n",
        "counted": f"{shown}$ cat {folder}/cpu*/cpufreq/scaling_governor | sort | uniq -c\n    128 {name}\n",
        "cpupower": "$ cpupower frequency-info\nanalyzing CPU 0:\n"
        + (f"  driver: {driver}\n" if driver else "")
        + f'  current policy: from 1.50 GHz\n                  The governor "{name}" may decide\n',
    }[form]
    sick = alarms(text)
    assert [line.partition("@")[0] for line in sick] == (
        ["warn host.governor"] if (name, driver) == ("powersave", "acpi-cpufreq") else []
    )


@pytest.mark.parametrize("front", ["$ cat /proc/cmdline\n", ""])
@pytest.mark.parametrize(
    ("parameters", "sick"),
    [
        ("ro intel_iommu=on console=tty0", True),
        ("ro amd_iommu=on", True),
        ("ro intel_iommu=on iommu=pt", False),
        ("ro intel_iommu=off", False),
        ("ro amd_iommu=on iommu.passthrough=1", False),
        ("ro quiet splash", False),
    ],
)
def test_an_iommu_that_was_switched_on_to_translate_is_a_warning(front: str, parameters: str, sick: bool):
    entries = alarms(f"{front}BOOT_IMAGE=/boot/vmlinuz-5.15.0-122-generic root=/dev/md0 {parameters}\n")
    assert len(entries) == sick


@pytest.mark.parametrize(
    ("counts", "sick"),
    [([(7300, 2)], 1), ([(7300, 0)], 0), ([(3, 1)], 0), ([(0, 0), (41000, 9), (2, 0)], 1)],
)
def test_replays_that_grep_left_of_q_are_judged(counts: list[tuple[int, int]], sick: int):
    lines = "".join(
        f"        Replays Since Reset               : {count}\n"
        f"        Replay Number Rollovers           : {rolled}\n"
        for count, rolled in counts
    )
    assert (
        sum("pcie.replays" in line for line in alarms(f"$ nvidia-smi -q | grep -i replay\n{lines}")) == sick
    )


@pytest.mark.parametrize("front", ["", "root@gpu7:~# "])
def test_a_node_is_never_called_by_what_was_asked(front: str):
    (node,) = reading(f"{front or '$ '}nvidia-smi -q | grep -i replay\n  Replays Since Reset : 12\n").nodes
    assert node.name == ("gpu7" if front else "")


LINE = (
    "0000:{0:x}0:00.0 mlx5_{0} (MT4125 - MCX653106A) ConnectX-6 Dx EN card, 100GbE fw {1} port 1 "
    "(ACTIVE) ==> eth{0} (Up)\n"
)


@pytest.mark.parametrize("odd", [None, 0, 3])
def test_rows_of_ibdev2netdev_tell_the_firmware(odd: int | None):
    rows = [LINE.format(card, "22.39.2048" if card - 1 == odd else "22.41.1000") for card in range(1, 5)]
    warned = alarms("$ ibdev2netdev -v\n" + "".join(rows))
    assert ["firmware 22.39.2048, 3 others" in line for line in warned] == ([] if odd is None else [True])


TRAYS = """Connectivity Table Legend:
I - Invalid - Node wasn't reachable, no connection status available
C - Connected - Ready for operation

03/02/2026 08:14:55.071
"""


@pytest.mark.parametrize("legend", [TRAYS, ""])
@pytest.mark.parametrize("state", ["UP", "DEGRADED", "DOWN"])
def test_the_state_of_an_imex_domain_is_judged(legend: str, state: str):
    text = legend + PASTES["imex-domain"].replace("State: UP", f"State: {state}")
    if state != "UP":
        text = text.replace("READY  ", "UNAVAILABLE", 1)
    result = reading(f"$ nvidia-imex-ctl -N\n{text}")
    assert result.unrecognised == []
    warned = [line for line in alarms(f"$ nvidia-imex-ctl -N\n{text}") if "fabric.imex-domain" in line]
    assert bool(warned) is (state != "UP")


CONDITIONS = """Conditions:
  Type             Status  LastHeartbeatTime                 LastTransitionTime                Reason          Message
  ----             ------  -----------------                 ------------------                ------          -------
  MemoryPressure   False   Mon, 02 Mar 2026 07:10:00 +0000   Sun, 01 Mar 2026 07:10:00 +0000   KubeletHasSuff  enough
  Ready            {0}   Mon, 02 Mar 2026 07:10:00 +0000   Mon, 02 Mar 2026 06:59:00 +0000   Kubelet         {1}
"""  # noqa: E501


@pytest.mark.parametrize("ready", [True, False])
def test_the_conditions_of_a_node_are_read_without_its_name(ready: bool):
    (piece,) = split(CONDITIONS.format(str(ready), "ok" if ready else "container runtime is down")).pieces
    assert piece.shape.probe == "kubernetes-node"
    found = alarms(f"$ kubectl describe node a7 | sed -n '/Conditions/,$p'\n{piece.text}")
    assert ["container runtime is down" in line for line in found] == ([] if ready else [True])


@pytest.mark.parametrize("front", ["", "> "])
@pytest.mark.parametrize(
    ("heading", "host"),
    [
        ("Every 2.0s: nvidia-smi          gpu-07: Fri Dec  6 15:20:11 2024", "gpu-07"),
        ("Every 0,5s: nvidia-smi; date    gpu-07.example: 2024-12-06 15:20:11", "gpu-07.example"),
        ("Every 2.0s: nvidia-smi          Fri Dec  6 15:20:11 2024", ""),
    ],
)
def test_the_heading_of_watch_names_the_node(front: str, heading: str, host: str):
    text = f"{heading}\n\n{smi_texts.table(smi_texts.row(0))}"
    parts = split("".join(f"{front}{line}\n" for line in text.splitlines()))
    assert [piece.host for piece in parts.pieces] == [host]
    assert not parts.rest
    assert parts.pieces[0].command.startswith("nvidia-smi")


@pytest.mark.parametrize("gpus", [1, 2, 8])
@pytest.mark.parametrize(("action", "sick"), [("Reboot", True), ("GPU Reset", True), ("None", False)])
def test_the_drivers_recovery_action_is_read_alone(gpus: int, action: str, sick: bool):
    line = "    GPU Recovery Action                                : {0}\n"
    typed = "$ nvidia-smi -q | grep 'GPU Recovery Action'\n"
    found = alarms(typed + line.format("None") * (gpus - 1) + line.format(action))
    assert bool(found) is sick
    assert all(f"@gpu:{gpus - 1}" in alarm for alarm in found)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("systemd-detect-virt", "none\n"),
        (
            "cat /proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.171.04  Tue\n",
        ),
        (
            "sudo fuser -v /dev/nvidia*",
            "             USER   PID ACCESS COMMAND\n/dev/nvidia3: kim 71233 F...m py\n",
        ),
    ],
)
def test_what_our_own_advice_prints_is_known(command: str, answer: str):
    result = reading(f"$ {command}\n{answer}")
    assert result.recognised and not result.unrecognised
    assert result.triage is None and not result.nodes


COUNTED = {
    "pdsh": ('$ pdsh -w d[1-4] "{0}"\n', "{1}: {2}\n"),
    "clush -b": ("$ clush -bw d[1-4] '{0}'\n", f"{'-' * 15}\n{{1}}\n{'-' * 15}\n{{2}}\n"),
    "ansible": ('$ ansible all -m shell -a "{0}"\n', "{1} | CHANGED | rc=0 >>\n{2}\n"),
}
"""How programs show what several nodes answered: what was typed, and each answer."""


def fan_out(program: str, command: str, answers: list[str]) -> str:
    typed, shown = COUNTED[program]
    rows = (shown.format("", f"d{number}", answer) for number, answer in enumerate(answers, 1))
    return typed.format(command) + "".join(rows)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("program", COUNTED)
@pytest.mark.parametrize(
    "command",
    [
        "nvidia-smi -L | wc -l",
        "nvidia-smi --list-gpus 2>/dev/null | grep -c GPU",
        "nvidia-smi --query-gpu=count --format=csv,noheader | head -1",
    ],
)
@pytest.mark.parametrize("last", ["8", "6"])
def test_a_number_has_its_meaning_from_its_command(program: str, command: str, last: str):
    result = reading(fan_out(program, command, ["8", "8", "8", last]))
    found = headline(result)
    assert len(result.nodes) == 4
    if last == "8":
        assert found.startswith("no problem found on 4 nodes")
    else:
        assert "d4 has 6" in found and "no problem" not in found


@pytest.mark.parametrize("command", ["ls | wc -l", "cat /proc/loadavg", "nvidia-smi -L | sort"])
def test_a_number_below_another_command_is_no_number_of_gpus(command: str):
    assert not reading(fan_out("pdsh", command, ["8", "8", "6"])).nodes


LINK = "4: {}: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {} qdisc mq state UP mode DEFAULT qlen 1000"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("program", ["pdsh", "ansible"])
@pytest.mark.parametrize(
    ("names", "sizes", "said"),
    [
        (["eth2"] * 4, [4200, 4200, 4200, 1500], "MTU of eth2: d4 has 1500"),
        (["ens3np0"] * 4, [1500, 9000, 1500, 1500], "MTU of ens3np0: d2 has 9000"),
        (["ens3np0"] * 2, [1500, 9000], "MTU of ens3np0: too few nodes"),
        (["eth2"] * 4, [9000] * 4, ""),
        (["docker0"] * 4, [1500, 1500, 1500, 9000], ""),
        (["eth2", "eth2", "eth2", "eth3"], [9000, 9000, 9000, 1500], ""),
    ],
)
def test_nodes_of_a_fan_out_differ_in_the_mtu_of_one_interface(
    program: str, names: list[str], sizes: list[int], said: str
):
    answers = [LINK.format(name, size) for name, size in zip(names, sizes, strict=True)]
    found = headline(reading(fan_out(program, "ip link show", answers)))
    assert (said in found) if said else "no problem found" in found


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (["2, 560.35.03"] * 3 + ["2, 550.90.07"], "NVIDIA driver: d4 has 550.90.07"),
        (["4, 560.35.03"] * 3 + ["2, 560.35.03"], "d4 has 2"),
        (["4, 560.35.03"] * 4, ""),
    ],
)
def test_nodes_of_a_fan_out_differ_in_what_was_asked_of_the_driver(answers: list[str], said: str):
    command = "nvidia-smi --query-gpu=count,driver_version --format=csv,noheader | head -1"
    found = headline(reading(fan_out("ansible", command, answers)))
    assert (said in found) if said else found.startswith("no problem found on 4 nodes")


SILENT = (
    'd4 | UNREACHABLE! => {\n    "changed": false,\n    "unreachable": true\n}\n',
    "d4: ssh: connect to host d4 port 22: Connection timed out\n"
    "pdsh@adm: d4: ssh exited with exit code 255\n",
    "clush: d4: exited with exit code 255\n",
    "ssh: Could not resolve hostname d4: Name or service not known\n",
    "[4] 09:10:11 [FAILURE] d4 Exited with error code 255\n",
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("silent", SILENT)
@pytest.mark.parametrize("place", ["last", "between"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_node_that_did_not_answer_is_said_by_name(silent: str, place: str, count: int):
    answers = [LINK.format("eth2", 9000)] * count
    text = fan_out("ansible", "ip link show", answers)
    first = text.index("\n", text.index("rc=0") + 12) + 1
    text = text + silent if place == "last" else text[:first] + silent + text[first:]
    result = reading(text)
    assert result.silent == ["d4"] and len(result.nodes) == count and result.triage is None
    assert headline(result).startswith("d4 did not answer; ")
    assert f"no problem found on {count}" not in headline(result)
