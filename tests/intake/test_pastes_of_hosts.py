"""Outputs about clusters, file systems and packages, and parts of outputs that stand alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import smi_texts
from hypothesis import given
from hypothesis import strategies as st
from pastes import DF, IBSTAT, KUBERNETES, LSMOD, NODES, POD, RAY_STATUS, STATES
from recorded import alarms, mesh, replay, topo

from nodedoctor.facts.cluster.ray_node import RayCluster
from nodedoctor.facts.measured.deep_tools import NcclTests
from nodedoctor.facts.stack.pastes import ALWAYS_THERE, PIP_LIST, pip_list
from nodedoctor.facts.verdicts.verdicts import OtherTools
from nodedoctor.intake.convert import file_systems
from nodedoctor.intake.document import document
from nodedoctor.intake.judge import read
from nodedoctor.intake.outputs import NodeOutput, snapshot_of
from nodedoctor.intake.split import split
from nodedoctor.model import Observation, Unseen

WORDS = st.text(alphabet="abcdefghij klmnop,.?", max_size=60).map(str.strip).filter(lambda text: text)


def said(probe: str, text: str) -> list[tuple[str, str]]:
    told = OtherTools.parse(Observation(probe, text=text, rc=0))
    assert isinstance(told, OtherTools)
    return [(verdict.result, verdict.words) for verdict in told.verdicts]


def of_mail(text: str) -> dict[str, object]:
    """What `read -` makes of a mail with this text."""
    return document(read(["-"], stdin=text.encode()))


def judged(tmp_path: Path, text: str, *, deep: bool = False) -> list[str]:
    """The alarms over a paste."""
    pieces = [NodeOutput(piece, "paste") for piece in split(text).pieces]
    observations = snapshot_of(pieces, "").observations
    return alarms(replay(tmp_path, {name: seen.text for name, seen in observations.items()}, deep=deep))


@pytest.mark.parametrize(
    ("status", "result"),
    [
        ("Ready", ""),
        ("NotReady", "fail"),
        ("Unknown", "fail"),
        ("NotReady,SchedulingDisabled", "fail"),
        ("Ready,SchedulingDisabled", "note"),
    ],
)
@given(st.integers(0, 12), st.booleans())
def test_each_node_of_kubernetes_is_judged_by_its_status(status: str, result: str, before: int, wide: bool):
    rows = [f"gpu-{n:02}   Ready    <none>   97d   v1.31.4" for n in range(before)]
    rows.append(f"gpu-99   {status}   <none>   97d   v1.31.4{'   10.4.0.9   Ubuntu 24.04' if wide else ''}")
    (piece,) = split("NAME     STATUS   ROLES   AGE   VERSION\n" + "\n".join(rows) + "\n").pieces
    told = said("kubernetes-nodes", piece.text)
    assert [one for one, words in told if words.startswith("gpu-99 ")] == ([result] if result else [])
    ready = before + status.startswith("Ready")
    assert (f"{ready} of {before + 1} node" in told[-1][1]) is (ready > 0)


@pytest.mark.parametrize(
    ("state", "result"),
    [("down*", "warn"), ("down", "warn"), ("fail*", "warn"), ("idle*", "warn"), ("drain", "note"),
     ("drng@", "note"), ("maint", "note"), ("idle~", ""), ("mix", ""), ("alloc", "")],
)  # fmt: skip
def test_states_of_sinfo_that_nobody_plans_are_a_warning(state: str, result: str):
    text = STATES + f"train*       up 7-00:00:00      2 {state:>6} gpu-[17-18]\n"
    text += f"debug        up 1-00:00:00      2 {state:>6} gpu-[17-18]\n"
    (piece,) = split(text).pieces
    told = [one for one, words in said("sinfo", piece.text) if words.startswith("gpu-[17-18]")]
    assert told == ([result] if result else [])


ENDED = "    Last State:     Terminated\n      Reason:       {0}\n      Exit Code:    {1}\n"
WAITS = "    State:          Waiting\n      Reason:       {0}\n"
EVENT = "  Warning  {0}  40s (x2 over 41s)  default-scheduler  0/9 nodes are available\n"


@pytest.mark.parametrize(
    ("line", "row", "words"),
    [
        ("    Ready:          True\n", ENDED.format("OOMKilled", 137), "OOMKilled, exit code 137"),
        ("    Ready:          True\n", ENDED.format("Error", 1), "Error, exit code 1"),
        ("    Ready:          True\n", ENDED.format("Completed", 0), ""),
        ("    Ready:          True\n", WAITS.format("CrashLoopBackOff"), "CrashLoopBackOff"),
        ("    Ready:          True\n", WAITS.format("ContainerCreating"), ""),
        ("  Normal  Started", EVENT.format("FailedScheduling"), "0/9 nodes are available"),
    ],
)
@pytest.mark.parametrize("indent", [0, 2, 7])
def test_a_pod_is_told_by_what_it_waits_for_and_how_it_ended(line: str, row: str, words: str, indent: int):
    text = POD.replace(line, row + line, 1)
    mailed = "this one is ours\n\n" + "".join(f"{' ' * indent}{one}\n" for one in text.splitlines())
    (piece,) = split(mailed).pieces
    assert piece.shape.probe == "kubernetes-pod"
    ((result, told),) = said("kubernetes-pod", piece.text)
    assert result == ("warn" if words else "pass")
    assert words in told


@pytest.mark.parametrize("indent", [0, 2, 5])
@pytest.mark.parametrize("cut", ["", "......\n"])
@pytest.mark.parametrize(("usable", "result"), [(8, "pass"), (7, "fail")])
def test_a_described_node_is_read_in_parts_and_indented(indent: int, cut: str, usable: int, result: str):
    capacity = KUBERNETES[KUBERNETES.index("Capacity:") : KUBERNETES.index("Events:")]
    head, _, rest = capacity.rpartition("nvidia.com/gpu:     8")
    text = f"Name:               gpu-07\nRoles:              <none>\n{cut}" if cut else ""
    text += f"{head}nvidia.com/gpu:     {usable}{rest}"
    mailed = "the node:\n" + "".join(f"{' ' * indent}{line}\n" for line in text.splitlines())
    (piece,) = split(mailed).pieces
    told = said("kubernetes-node", piece.text)
    assert [one for one, _ in told] == [result]
    assert f"{usable} of 8" in told[0][1]


def test_what_is_allocatable_alone_is_no_proof():
    part = KUBERNETES[KUBERNETES.index("Allocatable:") : KUBERNETES.index("Events:")]
    (piece,) = split(part).pieces
    ((result, words),) = said("kubernetes-node", piece.text)
    assert result == "note" and "8 nvidia.com/gpu" in words


UNIT = "Jan 05 10:{0:02}:00 gpu-07 systemd[1]: "
UPS = (
    "Jan 05 10:{0:02}:00 gpu-07 nv-fabricmanager[7]: Successfully configured all the available NVSwitches.\n"
)
FAILS = UNIT + "nvidia-fabricmanager.service: Failed with result 'exit-code'.\n"
FAILS_TO_START = UNIT + "Failed to start nvidia-fabricmanager.service - NVIDIA fabric manager service.\n"
STARTS = UNIT + "Started nvidia-fabricmanager.service - NVIDIA fabric manager service.\n"


@pytest.mark.parametrize("front", ["[Jun 11 2024 07:14:09] [ERROR] [tid 9] ", "nv-fabricmanager[9]: "])
@pytest.mark.parametrize("unit", ["", FAILS + FAILS_TO_START])
@pytest.mark.parametrize(("own", "driver"), [("550.54.15", "550.90.07"), ("570.86", "570.124.06")])
def test_two_versions_in_the_fabric_managers_log_are_the_cause(front: str, unit: str, own: str, driver: str):
    words = (
        f"fabric manager NVIDIA GPU driver interface version {own} don't match with driver version {driver}"
    )
    texts = [piece.text for piece in split(f"{front}{words}. Please update.\n{unit.format(7)}").pieces]
    ((result, cause),) = said("fabric-manager-log", "".join(texts))
    assert result == "fail" and f"version {own} does not match the driver's {driver}" in cause


@pytest.mark.parametrize(
    ("events", "result"),
    [
        ((UPS, STARTS), "pass"),
        ((STARTS, UPS), "pass"),
        ((UPS, STARTS, FAILS), "fail"),
        ((FAILS, FAILS_TO_START), "fail"),
        ((FAILS, STARTS, UPS), "pass"),
    ],
)
def test_the_unit_of_the_fabric_manager_is_as_it_was_last(events: tuple[str, ...], result: str):
    text = "".join(event.format(minute) for minute, event in enumerate(events))
    (piece,) = split(text).pieces
    assert [one for one, _ in said("fabric-manager-log", piece.text)] == [result]


@pytest.mark.parametrize(
    ("heading", "nodes"), [("Active", 2), ("Healthy", 2), ("Idle", 2), ("Pending", 0), ("Recent failures", 0)]
)
def test_nodes_of_ray_are_counted_under_each_heading_of_the_living(heading: str, nodes: int):
    text = RAY_STATUS.replace("Pending:\n (no pending nodes)\n", "").replace("Active", heading)
    cluster = RayCluster.parse(Observation("ray-status", text=text, rc=0))
    assert isinstance(cluster, RayCluster) and cluster.active == nodes


@pytest.mark.parametrize(
    ("state", "sick"),
    [("DOWN", True), ("DOWN*", True), ("IDLE+NOT_RESPONDING", True), ("DOWN*+DRAIN", True),
     ("IDLE+DRAIN", True), ("IDLE+MAINTENANCE", False), ("MIXED", False), ("IDLE+POWERED_DOWN", False)],
)  # fmt: skip
def test_a_node_that_slurm_has_lost_is_a_warning(tmp_path: Path, state: str, sick: bool):
    text = f"NodeName=gpu-17 Arch=x86_64\n   Gres=gpu:h100:8\n   State={state} ThreadsPerCore=2\n"
    assert bool(alarms(replay(tmp_path, {"slurm-node": text}))) is sick


@pytest.mark.parametrize(
    ("used", "free", "sick"), [("121G", "294G", False), ("437G", "0", True), ("436G", "512M", True)]
)
@pytest.mark.parametrize("name", ["/dev/mapper/vg-root", "overlay", "tmpfs", "/dev/loop7"])
def test_a_full_file_system_is_one_that_holds_data(
    tmp_path: Path, used: str, free: str, sick: bool, name: str
):
    row = "/dev/mapper/vg-root      437G  121G  294G  30% /\n"
    text = DF.replace(row, f"{name:<24} 437G {used:>5} {free:>5} 100% /\n")
    assert bool(judged(tmp_path, text)) is (sick and name in ("/dev/mapper/vg-root", "overlay"))


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.sampled_from(["1K-blocks", "1M-blocks"]))
def test_blocks_of_df_are_counted_in_the_unit_of_its_heading(used: int, free: int, heading: str):
    unit = {"1K-blocks": 1 << 10, "1M-blocks": 1 << 20}[heading]
    text = f"Filesystem {heading} Used Available Use% Mounted on\n"
    text += f"/dev/sda2 {used + free} {used} {free} 50% /data\n"
    (piece,) = split(text).pieces
    space = json.loads(file_systems([piece]))["statvfs"]["/data"]
    assert space == {
        "size_bytes": (used + free) * unit, "used_bytes": used * unit, "free_bytes": free * unit,
        "used_percent": 50,
    }  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("space", ["", DF])
@pytest.mark.parametrize(
    ("source", "point", "inodes", "left", "status"),
    [
        ("/dev/nvme1n1", "/scratch", "468877312", "0", "WARN"),
        ("/dev/nvme1n1", "/scratch", "447M", "0", "WARN"),
        ("/dev/nvme1n1", "/scratch", "468877312", "1", ""),
        ("/dev/sda2", "/tmp", "3276800", "0", "FAIL"),
        ("/dev/sda2", "/tmp", "3276800", "400", "WARN"),
        ("/dev/sda2", "/tmp", "3276800", "2000000", ""),
        ("/dev/sda2", "/tmp", "0", "0", ""),
        ("tmpfs", "/tmp", "3276800", "0", ""),
        ("/dev/loop7", "/snap/lxd/9", "802", "0", ""),
    ],
)
def test_a_file_system_without_inodes_is_full(
    tmp_path: Path, space: str, source: str, point: str, inodes: str, left: str, status: str
):
    share = "  100%" if left == "0" else "   99%"
    text = f"{space}Filesystem        Inodes     IUsed     IFree IUse% Mounted on\n"
    text += f"/dev/sdb1 29270016 4112093 25157923   15% /data\n{source} {inodes} 7 {left} {share} {point}\n"
    found = [alarm for alarm in judged(tmp_path, text) if f"mount:{point}" in alarm]
    assert [alarm.split()[0] for alarm in found] == ([status] if status else [])


@pytest.mark.parametrize("leap", ["Normal", "Not synchronised"])
@pytest.mark.parametrize(
    ("offset", "direction"),
    [("0.000012", "slow"), ("0.9", "fast"), ("1.2", "slow"), ("152.884720325", "fast")],
)
def test_a_clock_that_is_more_than_a_second_away_is_a_warning(
    tmp_path: Path, leap: str, offset: str, direction: str
):
    text = "Reference ID    : C0A80101 (ntp-1)\nStratum         : 3\n"
    text += f"System time     : {offset} seconds {direction} of NTP time\n"
    found = judged(tmp_path, f"{text}Leap status     : {leap}\n")
    assert bool(found) is (float(offset) > 1 or leap != "Normal")
    assert any("s from NTP time" in alarm for alarm in found) is (float(offset) > 1)


LEG = "{0}: ens10f{0}np0: <{1}BROADCAST,MULTICAST,{2}> mtu 9000 qdisc mq master {3} state {4} mode DEFAULT\n"
BOND = "9: bond0: <BROADCAST,MULTICAST,MASTER,UP,LOWER_UP> mtu 9000 qdisc noqueue state UP mode DEFAULT\n"


@pytest.mark.parametrize("flag", ["SLAVE,UP", "UP"])
@pytest.mark.parametrize("down", [0, 1])
def test_a_leg_of_a_bond_that_is_down_is_a_warning(tmp_path: Path, flag: str, down: int):
    up = LEG.format(1, "", f"{flag},LOWER_UP", "bond0" if "SLAVE" in flag else "br0", "UP")
    master = "bond0" if "SLAVE" in flag else "br0"
    leg = LEG.format(2, "NO-CARRIER,", flag, master, "DOWN") if down else up.replace("f1np0", "f2np0")
    found = judged(tmp_path, up + leg + BOND)
    sick = down and "SLAVE" in flag
    assert ["1 of 2 bond members down" in alarm for alarm in found] == ([True] if sick else [])


NO_UVM = LSMOD.replace("nvidia_uvm           1540096  16\n", "")
NOUVEAU = "Module                  Size  Used by\nnouveau 2306048  4\nmxm_wmi 16384  1 nouveau\n"


@pytest.mark.parametrize(
    ("command", "text", "words"),
    [
        ("", LSMOD, ""),
        ("", NO_UVM, "nvidia_uvm not loaded"),
        ("", NOUVEAU, "module nouveau is loaded, nvidia is not"),
        ("lsmod", NO_UVM, "nvidia_uvm not loaded"),
        ("lsmod | grep nvidia", NO_UVM, "nvidia_uvm not loaded"),
        ("lsmod | egrep 'mlx5|nvidia'", NO_UVM, "nvidia_uvm not loaded"),
        ("lsmod | grep -E 'nvidia|nouveau'", NOUVEAU, "module nouveau is loaded, nvidia is not"),
        ("lsmod | grep nvidia_modeset", NO_UVM, ""),
        ("lsmod | grep nvidia | grep -v uvm", NO_UVM, ""),
        ("lsmod | head -3", NO_UVM, ""),
        ("lsmod | grep mlx5", "mlx5_ib 466944  0\n", ""),
    ],
)
def test_loaded_modules_are_judged_where_no_filter_left_any_out(
    tmp_path: Path, command: str, text: str, words: str
):
    rows = text.partition("\n")[2] if "grep" in command and text.startswith("Module") else text
    found = judged(tmp_path, f"$ {command}\n{rows}" if command else rows)
    assert [words in alarm for alarm in found] == ([True] if words else [])


def test_an_output_that_no_probe_can_read_is_no_node():
    assert of_mail("$ lsmod | grep uvm\nnvidia_uvm 1540096  16\nnvidia 56827904  452 x\n")["report"] is None


@given(st.integers(16, 16384), st.sampled_from(["shm", "tmpfs"]), st.booleans())
def test_the_size_of_shared_memory_is_read_from_df(mib: int, source: str, alone: bool):
    root = "" if alone else "overlay     879G  311G  524G  38% /\n"
    text = f"Filesystem  Size  Used Avail Use% Mounted on\n{root}{source} {mib}M 0 {mib}M 0% /dev/shm\n"
    report = of_mail(text)["report"]
    assert isinstance(report, dict)
    (result,) = (result for result in report["results"] if result["check"] == "limits.shm")
    assert result["status"] == ("fail" if mib <= 64 else "warn" if mib < 1024 else "unknown")


@given(
    st.sampled_from(["64", "65536", "unlimited"]), st.sampled_from(["ulimit -a", "ulimit -l"]), st.booleans()
)
def test_a_limit_on_locked_memory_beside_active_rdma_is_said(limit: str, command: str, rdma: bool):
    line = f"max locked memory           (kbytes, -l) {limit}" if command == "ulimit -a" else limit
    text = f"$ {command}\n{line}\n$ ibstat\n{IBSTAT if rdma else ''}"
    report = of_mail(text)["report"]
    assert isinstance(report, dict)
    (result,) = (result for result in report["results"] if result["check"] == "limits.memlock")
    assert (result["status"] == "warn") == (rdma and limit != "unlimited")


@given(st.text(alphabet="Filesystem 1K-blocksUed%/dv:\n0123G.-", max_size=200), st.integers(0, 400))
def test_no_list_of_file_systems_is_too_damaged_to_convert(junk: str, at: int):
    text = DF[:at] + junk + DF[at:]
    for piece in split(text).pieces:
        if piece.shape.probe == "disk":
            space = json.loads(file_systems([piece]) or '{"statvfs": {}}')["statvfs"]
            assert all(size >= 0 for sizes in space.values() for size in sizes.values())


@pytest.mark.parametrize("front", ["", "> ", "    "])
def test_rows_that_were_picked_of_a_list_say_nothing_of_what_is_missing(front: str):
    rows = "torch                    2.8.0+cu128\ntorchvision              0.23.0+cu128\n"
    text = "".join(f"{front}{line}\n" for line in rows.splitlines())
    (piece,) = split(f"pip says:\n\n{text}").pieces
    told = pip_list(Observation(PIP_LIST.name, text=piece.text, rc=0))
    assert told is not None and not told.complete
    assert [package.name for package in told.packages] == ["torch", "torchvision"]


RAY = "Package    Version\n---------- -------\nray        2.48.0\ntorch      2.8.0\n"


@pytest.mark.parametrize(
    ("rows", "words"), [("", []), ("protobuf   6.31.1\n", []), ("protobuf   2.6.1\n", ["2.6.1 is installed"])]
)
def test_a_list_that_was_cut_proves_a_wrong_version_and_no_absence(
    tmp_path: Path, rows: str, words: list[str]
):
    found = alarms(replay(tmp_path, {"pip-list": RAY + rows}))
    assert len(found) == len(words) and all(word in line for word, line in zip(words, found, strict=True))


def test_a_list_that_is_whole_proves_absence(tmp_path: Path):
    rest = "".join(f"{name:<18} 1.0\n" for name in ALWAYS_THERE)
    assert [
        line for line in alarms(replay(tmp_path, {"pip-list": RAY + rest})) if "protobuf is missing" in line
    ]


def test_a_list_of_conda_is_one_list_and_not_what_wheels_ask_for(tmp_path: Path):
    text = (
        "# packages in environment at /opt/conda/envs/train:\n#\n# Name      Version     Build  Channel\n"
        "_libgcc_mutex  0.1  main\nnumpy  2.1.3  py311h1\nnccl  2.26.2.1  ha44e49d_1  conda-forge\n"
        "pytorch  2.4.1  py3.11_cuda12.4_cudnn9.1.0_0  pytorch\ntorchvision  0.19.1  py311_cu124  pytorch\n"
    )
    (piece,) = split(f"(train) me@gpu-07:~$ conda list\n{text}").pieces
    assert piece.text.count("\n") == 8
    assert judged(tmp_path, text) == []
    told = pip_list(Observation(PIP_LIST.name, text=piece.text, rc=0))
    assert told is not None and len(told.packages) == 4


@pytest.mark.parametrize("model", ["WDDM", "TCC", "MCDM"])
@pytest.mark.parametrize("ecc", ["0", "3"])
def test_the_table_of_windows_is_read_as_that_of_linux(tmp_path: Path, model: str, ecc: str):
    linux = smi_texts.table(smi_texts.row(0, ecc=ecc))
    head = next(line for line in linux.splitlines() if "00000000:" in line)
    name, _, rest = head.partition("| 0000")
    windows = linux.replace(head, f"{name.rstrip()[:-2]}{model}  | 0000{rest}")
    assert model in windows
    assert judged(tmp_path, windows) == judged(tmp_path, linux)


@given(st.integers(0, 7), st.sampled_from(["", "0000:", "00000000:"]))
def test_a_corrupt_inforom_below_the_table_is_of_its_gpu(sick: int, domain: str):
    buses = [f"00000000:{0x18 + n:02X}:00.0" for n in range(8)]
    text = smi_texts.table(*(smi_texts.row(n, bus=bus) for n, bus in enumerate(buses)))
    text += f"WARNING: infoROM is corrupted at gpu {domain}{buses[sick][9:]}\n"
    (piece,) = split(text).pieces
    from nodedoctor.facts.gpu.smi.smi import SmiTable

    told = SmiTable.parse(Observation("nvidia-smi", text=piece.text, rc=0))
    assert isinstance(told, SmiTable)
    bad = [gpu.index for gpu in told.gpus.gpus if "CORRUPTED_INFOROM" in gpu.errors.values()]
    assert bad == [sick]


def test_links_below_a_matrix_keep_the_gpu_they_are_of():
    text = topo(mesh(2, "NV18")) + "\nGPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"
    text += "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(18))
    assert [piece.shape.probe for piece in split(text).pieces] == ["nvidia-smi-topo", "nvidia-smi-nvlink"]
    assert split(text).pieces[1].text.startswith("GPU 0: ")


DIAG = (
    "+---------------------------+------------------------------------------------+\n"
    "| Diagnostic                | Result                                         |\n"
    "+===========================+================================================+\n"
    "|-----  Deployment  --------+------------------------------------------------|\n"
    "| {0:<26}| {1:<47}|\n|                           | {2:<47}|\n"
)


@pytest.mark.parametrize(
    ("kind", "words", "status"),
    [
        ("Error", "GPU 2 has uncorrectable memory errors and row", "FAIL"),
        ("Error", "GPU 2 is in use by a process", "WARN"),
        ("Warning", "GPU 2 has uncorrectable memory errors and row", "WARN"),
    ],
)
def test_an_error_of_dcgm_where_no_test_ran_is_told(tmp_path: Path, kind: str, words: str, status: str):
    (alarm,) = judged(tmp_path, DIAG.format(kind, words, " remappings are pending"), deep=True)
    assert words in alarm and status.lower() in alarm.lower()


ROW = "   {0:>10}   {1:>10}   float   {2}   -1   9.9   99.17   {3}   0   9.8   99.2   {3}   0\n"
TABLE = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"


@pytest.mark.parametrize("front", ["", "0: ", "[1,0]<stdout>:", "[rank0]: "])
@pytest.mark.parametrize("elided", ["", "   ...\n", "[...]\n"])
def test_rows_of_nccl_tests_stand_without_their_list_of_devices(front: str, elided: str):
    rows = [TABLE, ROW.format(0, 0, "sum", "0.00"), ROW.format(1 << 30, 1 << 28, "sum", "412.50")]
    lines = [f"{front}{rows[0]}", f"{front}{rows[1]}", elided, f"{front}{rows[2]}"]
    (piece,) = split("".join(lines)).pieces
    told = NcclTests.parse(Observation("all-reduce-perf", text=piece.text, rc=0))
    assert isinstance(told, NcclTests) and told.busbw_gbytes_s == {1 << 30: 412.5}


def test_another_collective_of_nccl_tests_is_none_of_ours():
    (piece,) = split(TABLE + ROW.format(1 << 30, 1 << 28, "none", "190.1")).pieces
    told = NcclTests.parse(Observation("all-reduce-perf", text=piece.text, rc=0))
    assert isinstance(told, Unseen) and "another collective" in told.note


@given(WORDS, WORDS)
def test_words_around_outputs_are_no_jobs_log(before: str, after: str):
    result = of_mail(f"it failed: {before}\n\n{NODES}\n\nwhy the error? {after}\n")
    assert result["triage"] is None
    assert {item["what"] for item in result["recognised"]} == {"kubectl get nodes"}  # type: ignore[union-attr]


def test_what_was_read_and_is_not_decided_stands_first():
    text = "".join(f"    gpuId {gpu}:\n        {'D ' * 18}\n" for gpu in range(2))
    mail = f"|  NvLink Link Status  |\nGPUs:\n{text}\n```\n{DIAG.format('Denylist', 'Pass', '')}```\n"
    assert str(of_mail(mail)["headline"]).startswith("2 GPUs: 0 of 18 NVLinks up")
    env = "PyTorch version: 2.4.1+cu124\nCUDA used to build PyTorch: 12.4\nIs CUDA available: {0}\n"
    assert "is_available() was False" in str(of_mail(env.format("False"))["headline"])
    assert "is_available()" not in str(of_mail(env.format("True"))["headline"])


def test_all_columns_of_a_query_are_one_output():
    names = [f"ecc.errors.uncorrected.aggregate.some_long_name_of_a_counter_{n}" for n in range(150)]
    text = f"{', '.join(['index', *names])}\n{', '.join(['0'] * 151)}\n"
    assert len(text.splitlines()[0]) > 4096
    (piece,) = split(text).pieces
    assert piece.shape.probe == "nvidia-smi-q"


TIMEDATECTL = (
    "               Local time: Thu 2025-09-04 10:17:55 UTC\n"
    "           Universal time: Thu 2025-09-04 10:17:55 UTC\n"
    "System clock synchronized: {0}\n              NTP service: active\n          RTC in local TZ: no\n"
)
CHRONY = "Reference ID    : C0A80001 (ntp1)\nStratum         : 3\nLeap status     : {0}\n"


@pytest.mark.parametrize(
    ("text", "sick"),
    [
        (TIMEDATECTL.format("no"), True),
        (TIMEDATECTL.format("yes"), False),
        (CHRONY.format("Not synchronised"), True),
        (CHRONY.format("Normal"), False),
        (TIMEDATECTL.format("no") + "$ chronyc tracking\n" + CHRONY.format("Normal"), False),
    ],
)
def test_a_clock_that_is_not_kept_is_said(tmp_path: Path, text: str, sick: bool):
    assert [line for line in judged(tmp_path, text) if "not synchronised" in line] == (
        ["WARN net.clock@: not synchronised"] if sick else []
    )


KNOWN_ONLY = {
    "ibdev2netdev": "mlx5_0 port 1 ==> ibp26s0 (Down)\nmlx5_1 port 1 ==> ens3np0 (Up)\n",
    "show_gids": "DEV\tPORT\tINDEX\tGID\nmlx5_0\t1\t3\tfe80::1\tv2\tens1\nn_gids_found=1\n",
    "lsmod": "Module                  Size  Used by\nnvidia_uvm           1540096  2\n",
    "docker info": "Server:\n Containers: 3\n Server Version: 27.3.1\n Runtimes: runc nvidia\n",
    "free": "        total   used   free  shared  buff/cache   available\nMem: 2 1 1 0 0 1\n",
}
"""Outputs that prove nothing that any check judges."""


@pytest.mark.parametrize("what", KNOWN_ONLY)
def test_what_proves_nothing_is_known_and_said_to_prove_nothing(what: str):
    result = of_mail(f"me@gpu-07:~$ {what}\n{KNOWN_ONLY[what]}me@gpu-07:~$ exit\n")
    assert result["headline"] == f"{what}, from which nothing can be judged"
    assert result["triage"] is None and result["report"] is None


def test_the_speed_of_one_port_alone_states_nothing():
    text = (
        "Settings for ens1:\n\tSpeed: 100000Mb/s\nCannot get wake-on-lan settings: Operation not permitted\n"
    )
    result = of_mail(f"me@gpu-07:~$ ethtool ens1\n{text}me@gpu-07:~$ exit\n")
    assert result["headline"] == "nothing in ethtool can be judged by itself"
    assert result["triage"] is None
    assert result["unrecognised"] == []


@given(st.sets(st.integers(0, 17), min_size=1, max_size=18))
def test_links_that_a_mail_leaves_out_are_not_counted_as_there(shown: set[int]):
    text = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"
    text += "".join(f"\t Link {link}: 26.562 GB/s\n" for link in sorted(shown))
    gap = "" if shown == set(range(len(shown))) else " shown"
    assert f"{len(shown)} of {len(shown)}{gap} NVLinks up" in str(of_mail(text)["headline"])


@pytest.mark.parametrize("source", ["10.3.0.9@o2ib:/work", "mgs1@tcp:mgs2@tcp:/work", "nas-2:/work"])
def test_a_row_of_df_is_no_prompt_and_its_share_is_that_of_df(tmp_path: Path, source: str):
    text = f"{DF}{source}             lustre    3.6P  2.2P  1.2P  66% /work\n"
    parts = split(text)
    assert len(parts.pieces) == 1 and not parts.rest
    assert json.loads(file_systems(parts.pieces))["statvfs"]["/work"]["used_percent"] == 66


@pytest.mark.sampled(6)
@pytest.mark.parametrize("status", ["True", "False"])
@pytest.mark.parametrize("cut", range(3, 9))
def test_conditions_are_read_below_whatever_heading_was_cut_off(tmp_path: Path, status: str, cut: int):
    """Rows of `kubectl describe node` are known by their own form: their heading may not have been pasted."""
    row = f"  DiskPressure     {status}   Mon, 05 Jan 2026 10:00:00 +0000   KubeletDisk   its disk\n"
    lines = KUBERNETES.replace("  EtcdIsVoter", row + "  EtcdIsVoter").splitlines(keepends=True)
    found = judged(tmp_path, "".join(lines[cut:]), deep=True)
    assert ["DiskPressure is True" in alarm for alarm in found] == ([True] if status == "True" else [])
    alone = judged(tmp_path, "".join(lines[max(cut, 8) : 11]), deep=True)
    assert ["DiskPressure is True" in alarm for alarm in alone] == [True] * (status == "True")


PODS = [
    ("gpu-feature-discovery-4q8zb", "Init:0/1", "0", "0/1"),
    ("gpu-operator-6b8f8d5b6c-9m5ts", "Running", "1 (32d ago)", "1/1"),
    ("nvidia-cuda-validator-pzx5g", "Completed", "0", "0/1"),
    ("nvidia-device-plugin-daemonset-hx4dc", "Init:0/1", "0", "0/1"),
    ("nvidia-driver-daemonset-l2w9p", "{0}", "14 (2m41s ago)", "{1}"),
]


def pod_table(state: str, age: str, *, wide: bool = True, spaces: bool = False) -> str:
    """`kubectl get pods` of the GPU operator, whose driver pod is in a state."""
    ready = "1/1" if state == "Running" else "0/1"
    head = f"{'NAMESPACE      ' * spaces}NAME{' ' * 40}READY   STATUS{' ' * 12}RESTARTS{' ' * 8}AGE"
    rows = [head + "   IP            NODE   NOMINATED NODE" * wide]
    for name, status, restarts, count in PODS:
        what = "Running" if state == "Running" and "Init" in status else status.format(state)
        number = "1/1" if what == "Running" else count.format("", ready)
        rows.append(
            f"{'gpu-operator   ' * spaces}{name:<44}{number}     {what:<24}{restarts:<16}{age}"
            + "   10.42.3.18    gpu-7    <none>" * wide
        )
    return "\n".join(rows) + "\n"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("prompt", ["", "$ kubectl get pods -n gpu-operator\n"])
@pytest.mark.parametrize("cut", [0, 1, 3])
@pytest.mark.parametrize(("wide", "spaces"), [(True, False), (False, False), (True, True)])
@pytest.mark.parametrize(
    ("state", "age", "sick"),
    [
        ("CrashLoopBackOff", "61m", True),
        ("Init:CrashLoopBackOff", "3d4h", True),
        ("ImagePullBackOff", "2m", True),
        ("Error", "9s", True),
        ("Running", "12d", False),
        ("Init:0/1", "45s", False),
        ("ContainerCreating", "3m10s", False),
    ],
)
def test_pods_of_the_gpu_operator_are_judged_and_are_no_log(
    prompt: str, cut: int, wide: bool, spaces: bool, state: str, age: str, sick: bool
):
    lines = pod_table(state, age, wide=wide, spaces=spaces).splitlines(keepends=True)
    result = of_mail(prompt + "".join(lines[cut:]))
    assert result["triage"] is None
    assert ("nvidia-driver-daemonset-l2w9p" in str(result["headline"])) is sick
    assert (state in str(result["headline"])) is sick


@pytest.mark.parametrize(("age", "sick"), [("4m", False), ("61m", True), ("2d", True)])
def test_a_component_that_waits_for_long_is_a_warning(tmp_path: Path, age: str, sick: bool):
    found = judged(tmp_path, pod_table("Init:0/1", age), deep=True)
    assert bool([alarm for alarm in found if "for a long time: nvidia-driver" in alarm]) is sick


HOSTS = "127.0.0.1 localhost\n{0} trainer-0\n\n# for IPv6\n::1     ip6-localhost ip6-loopback\n"
GETENT = "ubuntu@trainer-0:~$ getent hosts trainer-0\n{0}       trainer-0\n"
MESH = (
    "[rank1]: RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] no error\n"
)
STARTED = "ubuntu@trainer-0:~$ torchrun --nnodes 2 t.py\n"


@pytest.mark.parametrize("text", ["ubuntu@trainer-0:~$ cat /etc/hosts\n" + HOSTS, GETENT])
@pytest.mark.parametrize(("address", "sick"), [("127.0.1.1", True), ("127.0.0.1", True), ("10.4.0.7", False)])
def test_a_name_that_leads_to_itself_explains_ranks_that_do_not_meet(text: str, address: str, sick: bool):
    """On one node it is as Debian installs it, and no problem."""
    shown = text.format(address)
    alone = of_mail(shown)
    assert alone["triage"] is None and not alone["unrecognised"]
    assert str(alone["headline"]).startswith("no problem found")
    assert f"trainer-0 resolves to {address}" in str(alone["shows"])
    beside = of_mail(shown + STARTED + MESH)
    assert (f"trainer-0 resolves to {address}" in str(beside["headline"])) is sick
    elsewhere = of_mail(shown + STARTED + "ValueError: bad row\n")
    assert "resolves to" not in str(elsewhere["headline"])


COUNTED = """6: ens6f0np0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT qlen 1000
    link/ether b8:3f:d2:00:00:10 brd ff:ff:ff:ff:ff:ff
    RX:      bytes     packets  errors dropped  missed   mcast
    31190221441002 {0} {1}       0       0   12003
    TX:      bytes     packets  errors dropped carrier collsns
    33091129300119 90112930011       0       0       2       0
"""


@pytest.mark.parametrize(
    ("packets", "errors", "sick"),
    [(88_000_000_000, 0, False), (88_000_000_000, 40, False), (88_000_000_000, 2_000_000, True),
     (5000, 1200, False), (3_000_000, 1200, True)],
)  # fmt: skip
def test_an_interface_that_receives_damaged_packets_is_a_warning(
    tmp_path: Path, packets: int, errors: int, sick: bool
):
    found = judged(tmp_path, COUNTED.format(packets, errors))
    assert ["packets arrived with errors" in alarm for alarm in found] == ([True] if sick else [])


NO_SWITCH = (
    "Aug 07 07:40:12 gpu-2 nv-fabricmanager[33]: request to query NVSwitch device information from NVSwitch "
    "driver failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\n"
    "Aug 07 07:40:12 gpu-2 systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.\n"
    "Aug 07 07:40:12 gpu-2 systemd[1]: Failed to start NVIDIA fabric manager service.\n"
)
UNIT = (
    "x nvidia-fabricmanager.service - NVIDIA fabric manager service\n"
    "     Loaded: loaded (/lib/systemd/system/nvidia-fabricmanager.service; enabled; preset: enabled)\n"
    "     Active: failed (Result: exit-code) since Thu 2025-08-07 07:40:12 UTC; 2min 11s ago\n\n"
)


@pytest.mark.parametrize(
    ("model", "sick"),
    [("NVIDIA L40S", False), ("NVIDIA H100 PCIe", False), ("NVIDIA H100 80GB HBM3", True), ("", True)],
)
@pytest.mark.parametrize("unit", ["", UNIT])
def test_a_fabric_manager_that_cards_do_not_need_is_no_fault(
    tmp_path: Path, model: str, sick: bool, unit: str
):
    uuid = "240306c2-24b6-d5b9-c1d2-bf5b8d720ea"
    gpus = "".join(f"GPU {n}: {model} (UUID: GPU-{uuid}{n})\n" for n in range(4)) if model else ""
    text = f"$ nvidia-smi -L\n{gpus}$ systemctl status nvidia-fabricmanager\n{unit}{NO_SWITCH}"
    found = judged(tmp_path, text, deep=True)
    assert bool(found) is sick
    assert not any(alarm.startswith("FAIL") and not model for alarm in found)


PARTS_OF_OUTPUTS = {
    "   NodeAddr=gn-4 NodeHostName=gn-4 Version=24.05.4\n   State=DOWN*+DRAIN ThreadsPerCore=2 TmpDisk=0\n"
    "   Reason=Not responding [slurm@2025-09-03T01:15:30]\n": "Slurm state of gn-4: DOWN+DRAIN",
    "   State=DOWN* ThreadsPerCore=2 TmpDisk=0\n   Reason=Not responding\n": "Slurm state of this node: DOWN",
    "   State=IDLE ThreadsPerCore=2 TmpDisk=0\n   Partitions=train\n": "",
    "Domain State: DEGRADED\n": "domain DEGRADED",
    "Domain State: UP\n": "",
    "Node #3   - 10.12.7.22       - UNAVAILABLE          - Version: N/A\n": "1 tray not ready",
    "Node #3   - 10.12.7.22       - READY                - Version: 570.158.01\n": "",
    "Troubleshooting Info\n--------------------\nStatus Opcode       : 15\nGroup Opcode         : N/A\n"
    "Recommendation       : Bad signal integrity\n": "Bad signal integrity",
    "Troubleshooting Info\n--------------------\nStatus Opcode       : 0\nGroup Opcode         : N/A\n"
    "Recommendation       : No issue was observed\n": "",
    "[  12.000001] pcieport 0000:60:03.1: AER: device recovery failed\n": "another device: 1 fatal",
    "[  12.000001] pcieport 0000:60:03.1: AER: device recovery successful\n": "",
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("text", sorted(PARTS_OF_OUTPUTS))
@pytest.mark.parametrize("front", ["", "> "])
def test_a_row_that_is_unmistakable_stands_without_its_heading(tmp_path: Path, text: str, front: str):
    pasted = "".join(f"{front}{line}\n" for line in text.splitlines())
    words = PARTS_OF_OUTPUTS[text]
    found = judged(tmp_path, pasted, deep=True)
    assert [words in alarm for alarm in found] == ([True] if words else [])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("rails", range(2, 10))
@pytest.mark.parametrize("name", ["ib{0}", "rdma{0}", "roce{0}", "eth{0}", "port{0}"])
@pytest.mark.parametrize("down", [0, 1, 2])
def test_one_of_several_rails_without_a_link_is_a_warning(tmp_path: Path, rails: int, name: str, down: int):
    flags = [("NO-CARRIER,", "", "DOWN") if n < down else ("", ",LOWER_UP", "UP") for n in range(rails)]
    text = "".join(
        f"{n + 4}: {name.format(n)}: <{off}BROADCAST,MULTICAST,UP{on}> mtu 4092 qdisc mq state {state} mode\n"
        for n, (off, on, state) in enumerate(flags)
    )
    certain = rails >= 4 if name.startswith(("ib", "r")) else rails in (4, 8) and name.startswith("port")
    assert bool(judged(tmp_path, text)) is (down == 1 and certain)
