"""What pastes have shown to be wrong, each as its kind, beside the same paste where all is well."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import smi_texts
from pastes import IBSTAT
from recorded import alarms, mesh, replay, topo

from nodedoctor.intake.document import headline
from nodedoctor.intake.judge import read
from nodedoctor.intake.outputs import NodeOutput, snapshot_of
from nodedoctor.intake.split import split

VGPU = {
    "Product Name": "NVIDIA A10-24Q",
    "GPU Virtualization Mode": {"Virtualization Mode": "VGPU"},
    "vGPU Software Licensed Product": {
        "Product Name": "NVIDIA Virtual Compute Server",
        "License Status": "{0}",
    },
}


def vgpu(licence: str) -> str:
    product = {**VGPU["vGPU Software Licensed Product"], "License Status": licence}  # type: ignore[dict-item]
    return smi_texts.q(
        [smi_texts.q_gpu("00000002:00:00.0", {**VGPU, "vGPU Software Licensed Product": product})]
    )


def table(**of_second: str) -> str:
    return smi_texts.table(smi_texts.row(0), smi_texts.row(1, bus="00000000:2A:00.0", **of_second))


def roce(
    *with_address: bool, version: str = "RoCE v2", link: str = "Ethernet", state: str = "PORT_ACTIVE (4)"
) -> str:
    """`ibv_devinfo -v` of one adapter for each of these, whose interface has an address or not."""
    blocks = []
    for number, has in enumerate(with_address):
        rows = [f"fe80::5aa2:e1ff:fec7:{number}, {version}"]
        rows += [f"::ffff:10.56.{number}.23, {version}"] if has else []
        gids = "".join(f"\t\t\tGID[{row:3}]:\t\t{text}\n" for row, text in enumerate(rows))
        blocks.append(
            f"hca_id:\tmlx5_{number}\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t28.43.2026\n"
            f"\tvendor_part_id:\t\t\t4129\n\t\tport:\t1\n\t\t\tstate:\t\t\t{state}\n\t\t\tsm_lid:\t\t\t1\n"
            f"\t\t\tport_lid:\t\t{number + 2}\n\t\t\tlink_layer:\t\t{link}\n\t\t\tactive_width:\t\t4X (2)\n"
            f"\t\t\tactive_speed:\t\t100.0 Gbps (128)\n\t\t\tphys_state:\t\tLINK_UP (5)\n{gids}\n"
        )
    return "".join(blocks)


def recoveries(count: int) -> str:
    """`nvidia-smi nvlink -e` of a GPU with NVLink 5, one of whose links was recovered so many times."""
    counts = {link: count if link == 14 else 0 for link in range(12, 16)}
    return "GPU 0: NVIDIA GB200 (UUID: GPU-240306c2-24b6-d5b9-c1d2-bf5b8d720eaf)\n" + "".join(
        f"\t Link {link}: Tx packets: 132475185835\n"
        f"\t Link {link}: Link recovery successful events: {times}\n"
        f"\t Link {link}: Link recovery failed events: 0\n"
        f"\t Link {link}: Total link recovery events: {times}\n"
        for link, times in counts.items()
    )


def panic(name: str) -> str:
    return f"ibpanic: [24601] main: stat of IB device '{name}' failed: Invalid argument\n"


UNQUERIED = ("mlx5_an0", "efa_0", "rdmap79s0", "rdmap16s27f0", "irdma1", "mana_0")
"""Devices that ibstat does not query."""


def one_socket() -> str:
    """Eight GPUs and the NICs of their first socket; a socket's own are nearer to each other than SYS."""
    lines = topo(mesh(8, "NV18"), nics=4).splitlines(keepends=True)
    near = ("GPU0", "GPU1", "GPU2", "GPU3")
    return "".join(line.replace("SYS", "NODE") if line.startswith(near) else line for line in lines)


def shared_switches(nics: int) -> str:
    """Eight GPUs, and NICs behind the switches of their first socket, two GPUs and as many NICs at each."""
    near = [f"{'PXB' if gpu // 2 == nic * 2 // nics else 'NODE'}" for gpu in range(4) for nic in range(nics)]
    rows = [near[gpu * nics : (gpu + 1) * nics] if gpu < 4 else ["SYS"] * nics for gpu in range(8)]
    names = [f"NIC{nic}" for nic in range(nics)]
    text = "\t".join(["", *(f"GPU{gpu}" for gpu in range(8)), *names, "CPU Affinity", "NUMA Affinity"]) + "\n"
    for gpu, row in enumerate(rows):
        cells = [" X " if gpu == other else "NV12" for other in range(8)]
        text += (
            "\t".join([f"GPU{gpu}", *cells, *row, f"{gpu // 4 * 32}-{gpu // 4 * 32 + 31}", str(gpu // 4)])
            + "\n"
        )
    for nic, name in enumerate(names):
        cells = [rows[gpu][nic] for gpu in range(8)]
        text += (
            "\t".join([name, *cells, *(" X " if nic == other else "NODE" for other in range(nics))]) + "\n"
        )
    return text


SICK = [
    ("nvidia-smi-q", vgpu("Unlicensed (Restricted)"), "no licence"),
    ("nvidia-smi-q", vgpu("Unlicensed (Unrestricted)"), "no licence"),
    ("nvidia-smi", table(draw="ERR!"), "the power draw cannot be read"),
    ("nvidia-smi", table(fan="ERR!"), "the fan speed cannot be read"),
    ("ibstat", IBSTAT + panic("mlx5_7"), "the adapter is lost"),
    ("ibstat", panic("mlx5_7"), "WARN ib.ports@hca:mlx5_7: mlx5_7 is listed"),
    ("ibstat", IBSTAT + panic("rocep1s0"), "WARN ib.ports@hca:rocep1s0: rocep1s0 is listed"),
    ("ibv-devinfo", roce(True, True, False, True), "only link-local rows"),
    ("nvidia-smi-nvlink-errors", recoveries(505), "Link 14: link recovery 505"),
    ("nvidia-smi-topo", one_socket(), "no NIC on the socket of GPUs 4-7"),
    ("nvidia-smi-topo", shared_switches(4), "no NIC on the socket of GPUs 4-7"),
]
WELL = [
    ("nvidia-smi-q", vgpu("Licensed (Expiry: 2027-1-1 0:0:0 GMT)")),
    ("nvidia-smi-q", vgpu("N/A")),
    ("nvidia-smi", table()),
    ("nvidia-smi", table(fan="N/A", draw="N/A")),
    ("ibstat", IBSTAT),
    *(("ibstat", text + panic(name)) for text in ("", IBSTAT) for name in UNQUERIED),
    ("ibv-devinfo", roce(True, True, True, True)),
    ("nvidia-smi-nvlink-errors", recoveries(3)),
    ("nvidia-smi-topo", topo(mesh(8, "NV18"), nics=8)),
    ("nvidia-smi-topo", topo(mesh(8, "NV18"), nics=4, far="NODE")),
    ("nvidia-smi-topo", topo(mesh(8, "NV18"), nics=4, near="NODE")),
    ("nvidia-smi-topo", topo(mesh(8, "NV18"), nics=4)),
    ("nvidia-smi-topo", one_socket().partition("NIC0\tPIX")[0]),
    ("nvidia-smi-topo", topo(mesh(8, "NV18"), nics=2)),
    ("nvidia-smi-topo", shared_switches(2)),
    ("ibv-devinfo", roce(False, False, False, False)),
    ("ibv-devinfo", roce(False, False, False, link="InfiniBand")),
]


@pytest.mark.parametrize(("probe", "text", "words"), SICK)
def test_what_a_paste_shows_to_be_wrong_is_said(tmp_path: Path, probe: str, text: str, words: str):
    assert [one for one in alarms(replay(tmp_path, {probe: text})) if words in one]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("probe", "text"), WELL)
def test_the_same_paste_of_a_healthy_node_gets_no_alarm(tmp_path: Path, probe: str, text: str):
    assert alarms(replay(tmp_path, {probe: text})) == []


@pytest.mark.parametrize(
    ("model", "rack"), [("NVIDIA GB200", True), ("NVIDIA GB300", True), ("NVIDIA H200", False)]
)
def test_the_fabric_manager_of_a_rack_is_not_started_on_its_trays(tmp_path: Path, model: str, rack: bool):
    bus = "00000008:01:00.0"
    about = {
        "Product Name": model,
        "PCI": {"Bus Id": bus},
        "Fabric": {"State": "In Progress", "Status": "N/A"},
    }
    report = replay(tmp_path, {"nvidia-smi-q": smi_texts.q([smi_texts.q_gpu(bus, about)])})
    (fix,) = [
        finding.fix
        for result in report.results
        for finding in result.findings
        if result.check == "fabric.state" and finding.fix
    ]
    assert any("nvidia-fabricmanager" in command for command in fix.commands) is not rack
    assert any("nvidia-imex" in command for command in fix.commands) is rack


LOW_CLOCKS = (
    "        SW Power Cap                                   : Not Active\n"
    "        HW Slowdown                                    : {0}\n"
    "            HW Thermal Slowdown                        : Not Active\n"
    "            HW Power Brake Slowdown                    : {0}\n"
    "    Clocks Event Reasons Counters\n"
    "        HW Power Braking                               : 8812 us\n"
)


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize(("state", "sick"), [("Active", True), ("Not Active", False)])
def test_reasons_for_low_clocks_are_read_without_their_heading(cut: int, state: str, sick: bool):
    """What was cut out of an output is no tool that fails, either."""
    text = "".join(LOW_CLOCKS.format(state).splitlines(keepends=True)[cut:])
    (node,) = read(["-"], stdin=text.encode()).nodes
    headlines = [cause["headline"] for cause in node.report["causes"]]
    assert bool(headlines) is sick
    assert all("power brake" in headline for headline in headlines)


@pytest.mark.parametrize("deeper", [0, 4, 8])
@pytest.mark.parametrize(("failed", "sick"), [("Yes", True), ("No", False)])
def test_rows_below_a_heading_that_a_mail_moved_in_are_read(
    tmp_path: Path, deeper: int, failed: str, sick: bool
):
    rows = {"Correctable Error": "0", "Pending": "No", "Remapping Failure Occurred": failed}
    errors = {"Aggregate": {"DRAM Correctable": "0"}}
    about = {"ECC Errors": errors, "PCI": {"Bus Id": "00000000:1B:00.0"}, "Remapped Rows": rows}
    head, heading, rest = smi_texts.q([smi_texts.q_gpu("00000000:1B:00.0", about)]).partition(
        "    Remapped Rows"
    )
    moved = "".join(f"{' ' * deeper}{line}\n" for line in (heading + rest).splitlines())
    found = alarms(replay(tmp_path, {"nvidia-smi-q": head + moved}))
    assert [alarm.partition(":")[0] for alarm in found] == ["FAIL memory.remap@gpu"] * sick


CALLER = "[  99.5] python3 invoked oom-killer: gfp_mask=0x1100dca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO), order=0\n"
VICTIM = "[  99.6] Out of memory: Killed process 812 (worker) total-vm:9kB, anon-rss:2097152kB\n"


@pytest.mark.parametrize(
    ("log", "words"), [(CALLER, "called by python3"), (CALLER + VICTIM, "OOM kill of worker")]
)
def test_the_oom_killers_first_line_is_a_sign_alone(tmp_path: Path, log: str, words: str):
    (alarm,) = alarms(replay(tmp_path, {"kernel-log": log}))
    assert words in alarm


DIAG = "| NVML Library              | Pass                                           |\n"
DIAG_FAIL = "| GPU Memory                | {0} - GPU: 5                                  |\n"


@pytest.mark.parametrize("front", ["", "> "])
@pytest.mark.parametrize(("result", "sick"), [("Fail", True), ("Pass", False)])
def test_rows_of_the_diagnostic_are_read_without_their_heading(front: str, result: str, sick: bool):
    text = "".join(f"{front}{line}\n" for line in (DIAG * 3 + DIAG_FAIL.format(result)).splitlines())
    (node,) = read(["-"], stdin=text.encode()).nodes
    assert ["GPU Memory: Fail GPU 5" in cause["headline"] for cause in node.report["causes"]] == [True] * sick


@pytest.mark.parametrize("prompt", ["", "$ sudo perfquery -C mlx5_3 | grep -v Rcv\n"])
@pytest.mark.parametrize("downs", [0, 37])
def test_counters_of_perfquery_are_read_without_their_heading(prompt: str, downs: int):
    text = f"{prompt}PortXmitDiscards:................12\nLinkDownedCounter:...............{downs}\n"
    text += "SymbolErrorCounter:..............65535\n"
    (node,) = read(["-"], stdin=text.encode()).nodes
    findings = [finding for result in node.report["results"] for finding in result["findings"]]
    (alarm,) = [finding["summary"] for finding in findings if finding["status"] == "warn"]
    where = "mlx5_3" if prompt else "the port"
    first = "LinkDownedCounter 37 and " if downs else ""
    assert f"perfquery: {where}: {first}SymbolErrorCounter 65535" in alarm


NVLINK = "GPU {0}: NVIDIA A100-SXM4-40GB (UUID: GPU-240306c2-24b6-d5b9-c1d2-bf5b8d72{0:04})\n"


@pytest.mark.parametrize("sick", [0, 1, 2])
@pytest.mark.parametrize("cut", [1, 2, 7])
def test_links_above_the_first_heading_are_of_the_gpu_before_it(tmp_path: Path, sick: int, cut: int):
    """The beginning of `nvidia-smi nvlink -e` was left out: the rest of its first GPU is judged, too."""
    blocks = [
        NVLINK.format(gpu)
        + "".join(
            f"\t Link {link}: Replay Errors: {18000 * (gpu == sick and link == 5)}\n"
            f"\t Link {link}: CRC Errors: 0\n"
            for link in range(6)
        )
        for gpu in range(3)
    ]
    text = "".join(blocks[1].splitlines(keepends=True)[cut:]) + blocks[2]
    pieces = [NodeOutput(piece, "paste") for piece in split(text).pieces]
    (observation,) = snapshot_of(pieces, "").observations.values()
    found = alarms(replay(tmp_path, {observation.probe: observation.text}))
    expected = f"WARN nvlink.errors@gpu:{sick}: many errors since driver load: Link 5: replay 18000"
    assert found == ([expected] if sick else [])


UP, DOWN = "PORT_ACTIVE (4)", "PORT_DOWN (1)"


@pytest.mark.parametrize("ports", [1, 2, 3, 4, 8])
def test_disabled_ports_alone_are_no_alarm_where_no_set_of_rails_is_shown(tmp_path: Path, ports: int):
    """Somebody switched them off, and what the rest of the node has was not pasted."""
    text = devinfo(*[DOWN] * ports)
    off = text.replace("POLLING (2)", "DISABLED (3)")
    assert bool(alarms(replay(tmp_path, {"ibv-devinfo": off}))) is (ports >= 4)
    assert alarms(replay(tmp_path, {"ibv-devinfo": text}))


def devinfo(*ports: str, part: int = 4129, lane: str = "100.0 Gbps (128)", first: int = 0) -> str:
    """`ibv_devinfo` of one InfiniBand adapter for each of these states."""
    return "".join(
        f"hca_id:\tmlx5_{first + number}\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t28.43.2026\n"
        f"\tsys_image_guid:\t\t\ta088:c203:00{first + number:02x}:0001\n\tvendor_part_id:\t\t\t{part}\n"
        f"\t\tport:\t1\n\t\t\tstate:\t\t\t{state}\n\t\t\tsm_lid:\t\t\t1\n\t\t\tport_lid:\t\t{number + 2}\n"
        f"\t\t\tlink_layer:\t\tInfiniBand\n\t\t\tactive_width:\t\t4X (2)\n\t\t\tactive_speed:\t\t{lane}\n"
        f"\t\t\tphys_state:\t\t{'LINK_UP (5)' if state == UP else 'POLLING (2)'}\n\n"
        for number, state in enumerate(ports)
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("layer", ["InfiniBand", "Ethernet"])
@pytest.mark.parametrize("rated", [True, False])
@pytest.mark.parametrize("ports", [2, 3, 4, 8])
@pytest.mark.parametrize("mtu", [1024, 4096])
def test_a_port_with_another_mtu_than_three_or_more_is_a_warning(
    tmp_path: Path, layer: str, rated: bool, ports: int, mtu: int
):
    size = "\t\t\tactive_mtu:\t\t{} (3)\n\t\t\tsm_lid:"
    blocks = devinfo(*[UP] * ports).replace("link_layer:\t\tInfiniBand", f"link_layer:\t\t{layer}")
    blocks = blocks if rated else re.sub(r".*active_(?:width|speed).*\n", "", blocks)
    first, *others = blocks.split("\t\t\tsm_lid:")
    text = first + size.format(mtu) + size.format(4096).join(others)
    found = [alarm for alarm in alarms(replay(tmp_path, {"ibv-devinfo": text})) if "active MTU" in alarm]
    others_have = "its only peer mlx5_1/1 4096" if ports == 2 else f"{ports - 1} others 4096"
    expected = [f"WARN ib.rate@port:mlx5_0/1: active MTU 1024, {others_have}"]
    assert found == (expected if mtu == 1024 and ports != 3 else [])


def test_the_two_ports_of_one_card_may_have_two_mtus(tmp_path: Path):
    first, second, third = devinfo(UP, UP).split("\t\t\tsm_lid:")
    size = "\t\t\tactive_mtu:\t\t{} (3)\n\t\t\tsm_lid:"
    text = f"{first}{size.format(1024)}{second}{size.format(4096)}{third}"
    one_card = text.replace("a088:c203:0001:0001", "a088:c203:0000:0001")
    assert [bool(alarms(replay(tmp_path, {"ibv-devinfo": paste}))) for paste in (text, one_card)] == [
        True,
        False,
    ]


@pytest.mark.parametrize("down", range(8))
def test_one_port_that_is_down_among_active_rails_fails(tmp_path: Path, down: int):
    states = [DOWN if number == down else UP for number in range(8)]
    (alarm,) = alarms(replay(tmp_path, {"ibv-devinfo": devinfo(*states)}))
    assert alarm.startswith("FAIL") and f"mlx5_{down}/1" in alarm


def mixed_layers(
    ports: int, odd: range, *, state: str = UP, firmware: str = "28.43.2026", board: str = ""
) -> str:
    """Adapters of one part, of which some are Ethernet, perhaps with firmware of their own."""
    blocks = devinfo(*(state if number in odd else UP for number in range(ports))).split("hca_id:")[1:]
    for number in odd:
        block = blocks[number].replace("link_layer:\t\tInfiniBand", "link_layer:\t\tEthernet")
        block = block.replace("fw_ver:\t\t\t\t28.43.2026", f"fw_ver:\t\t\t\t{firmware}")
        blocks[number] = (
            block.replace("\t\tport:", f"\tboard_id:\t\t\t{board}\n\t\tport:") if board else block
        )
    return "".join(f"hca_id:{block}" for block in blocks)


@pytest.mark.parametrize("state", [UP, DOWN])
@pytest.mark.parametrize(
    ("ports", "odd", "active_too"),
    [(8, range(6, 7), True), (16, range(3, 4), True), (4, range(2, 3), False)],
)
def test_one_of_identical_adapters_with_another_link_type_is_a_warning(
    tmp_path: Path, state: str, ports: int, odd: range, active_too: bool
):
    shown = alarms(replay(tmp_path, {"ibv-devinfo": mixed_layers(ports, odd, state=state)}))
    expected = [f"WARN ib.ports@port:mlx5_{odd[0]}/1/link-type: link type Ethernet, {ports - 1} identical "]
    assert [alarm.partition("adapters")[0] for alarm in shown] == (
        expected if active_too or state == DOWN else []
    )


@pytest.mark.parametrize("state", [UP, DOWN])
@pytest.mark.parametrize(
    ("ports", "odd", "other"),
    [
        (9, range(8, 9), {}),
        (10, range(8, 10), {}),
        (4, range(2, 4), {}),
        (8, range(7, 8), {"firmware": "28.41.1000"}),
        (8, range(7, 8), {"board": "MT_0000001117"}),
        (3, range(2, 3), {}),
    ],
)
def test_adapters_for_storage_in_ethernet_mode_are_no_alarm(
    tmp_path: Path, state: str, ports: int, odd: range, other: dict[str, str]
):
    shown = alarms(replay(tmp_path, {"ibv-devinfo": mixed_layers(ports, odd, state=state, **other)}))
    assert not any("link type" in alarm for alarm in shown)


@pytest.mark.parametrize("carrying", [range(0, 12, 3), range(4), range(8, 12), (0, 2, 5, 11)])
def test_functions_of_connectx_8_of_which_four_carry_data_are_no_alarm(tmp_path: Path, carrying: range):
    states = [UP if number in carrying else DOWN for number in range(12)]
    text = devinfo(*states, part=4131, lane="200.0 Gbps (256)")
    assert alarms(replay(tmp_path, {"ibv-devinfo": text})) == []


STORAGE = devinfo(UP, UP, part=4123, lane="50.0 Gbps (64)", first=8)
RAILS = ",".join(f"mlx5_{number}" for number in range(8))


@pytest.mark.parametrize(
    ("named", "sick"),
    [
        (f"{RAILS},mlx5_8,mlx5_9", True),
        (f"={RAILS},mlx5_8:1", True),
        (RAILS, False),
        ("mlx5", False),
        ("^mlx5_8,mlx5_9", False),
    ],
)
def test_adapters_for_storage_that_nccl_is_given_by_name_are_said(tmp_path: Path, named: str, sick: bool):
    node = {"env": f"NCCL_IB_HCA={named}\n", "ibv-devinfo": devinfo(*[UP] * 8) + STORAGE}
    found = [alarm for alarm in alarms(replay(tmp_path, node)) if "NCCL_IB_HCA also names mlx5_8" in alarm]
    assert bool(found) is sick


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        ("FI_PROVIDER=efa\nNCCL_IB_HCA=mlx5_ib\n", "NCCL_IB_HCA"),
        ("FI_EFA_USE_DEVICE_RDMA=1\nNCCL_TOPO_FILE=/opt/microsoft/ndv5-topo.xml\n", "NCCL_TOPO_FILE"),
        ("FI_PROVIDER=efa\nNCCL_FASTRAK_IFNAME=eth1\n", "NCCL_FASTRAK_IFNAME"),
        ("FI_PROVIDER=efa\nFI_EFA_FORK_SAFE=1\nNCCL_IB_HCA=mlx5\n", ""),
        ("NCCL_TOPO_FILE=/opt/microsoft/ndv5-topo.xml\nNCCL_IB_HCA=mlx5_ib\n", ""),
        ("FI_PROVIDER=tcp\nNCCL_TOPO_FILE=/opt/site/topo.xml\nNCCL_IB_HCA=mlx5_ib\n", ""),
    ],
)
def test_settings_of_two_kinds_of_machine_are_said(tmp_path: Path, settings: str, variable: str):
    found = [
        alarm for alarm in alarms(replay(tmp_path, {"env": settings})) if "another kind of machine" in alarm
    ]
    assert [variable in alarm for alarm in found] == ([True] if variable else [])


@pytest.mark.parametrize(("severity", "status"), [("Nonfatal", "WARN"), ("Fatal   ", "FAIL")])
@pytest.mark.parametrize("times", [1, 30])
def test_xid_149_is_as_grave_as_its_event(tmp_path: Path, severity: str, status: str, times: int):
    line = "[  1{0:02}.0] NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  {1} XC1 i0 Link 14 (0x0 0x0)\n"
    log = "".join(line.format(number, severity) for number in range(times))
    (alarm,) = alarms(replay(tmp_path, {"kernel-log": log}))
    assert alarm.startswith(status) and "Xid 149" in alarm


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("first", "last"), [(n, m) for n in range(8) for m in range(n, 8)])
def test_rows_of_the_table_are_read_without_its_head(tmp_path: Path, first: int, last: int):
    """Whatever part of the table was pasted: the GPU with errors is named, the others are no alarm."""
    rows = [smi_texts.row(n, bus=f"00000000:{n + 17:02X}:00.0", ecc="9" if n == 3 else "0") for n in range(8)]
    text = smi_texts.table(*rows[first : last + 1])
    pieces = split(text[text.index(f"|{first:>4} ") :]).pieces
    assert {piece.shape.probe for piece in pieces} == {"nvidia-smi"}
    found = alarms(replay(tmp_path, {"nvidia-smi": "".join(piece.text for piece in pieces)}))
    assert bool(found) is (first <= 3 <= last)
    assert all("GPU 3" in alarm or "gpu:3" in alarm for alarm in found)


def one_gpu(bus: str, attached: int = 8, **remapped: str) -> str:
    """`nvidia-smi -q -i N`: it counts all GPUs and shows one."""
    rows = {"Correctable Error": "0", "Uncorrectable Error": "0", "Pending": "No", **remapped}
    told = {"Product Name": "NVIDIA H100 80GB HBM3", "Remapped Rows": rows}
    text = smi_texts.q([smi_texts.q_gpu(bus, told)])
    return re.sub(r"(Attached GPUs\s+: )\d+", rf"\g<1>{attached}", text)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("bus", ["00000000:1B:00.0", "00000000:9D:00.0", "0000000A:01:00.0"])
@pytest.mark.parametrize("attached", [2, 8, 16])
def test_one_gpu_of_many_is_judged_under_its_address(tmp_path: Path, bus: str, attached: int):
    address = bus.lower()[4:]
    assert alarms(replay(tmp_path, {"nvidia-smi-q": one_gpu(bus, attached)})) == []
    sick = alarms(replay(tmp_path, {"nvidia-smi-q": one_gpu(bus, attached, Pending="Yes")}))
    assert sick and all(address in alarm for alarm in sick)


@pytest.mark.parametrize("bus", ["00000000:1B:00.0", "00000000:9D:00.0"])
@pytest.mark.parametrize("attached", [1, 8])
@pytest.mark.parametrize("code", [64, 95])
def test_a_failed_remap_explains_the_xid_of_its_address(tmp_path: Path, bus: str, attached: int, code: int):
    failed = one_gpu(bus, attached, **{"Remapping Failure Occurred": "Yes"})
    failed = failed.replace("    Remapped Rows", f"    PCI\n        Bus Id : {bus}\n    Remapped Rows")
    log = (
        f"[99.0] NVRM: Xid (PCI:{bus[4:-2].lower()}): {code}, pid='<unknown>', name=<unknown>, Row Remapper\n"
    )
    report = replay(tmp_path, {"nvidia-smi-q": failed, "kernel-log": log})
    (cause,) = report.causes
    assert cause.action == "replace-node" and any("kernel.xid" in name for name in cause.explains)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("heading", ["Remapped Rows", "    Remapped Rows"])
@pytest.mark.parametrize("failed", ["Yes", "No"])
@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_lines_from_the_middle_of_nvidia_smi_q_are_a_gpus(
    tmp_path: Path, heading: str, failed: str, before: int
):
    indent = " " * (len(heading) - len(heading.lstrip()) + 4)
    keys = (
        "Correctable Error  : 0",
        "Uncorrectable Error  : 2",
        "Pending  : No",
        f"Remapping Failure Occurred  : {failed}",
    )
    lines = [heading, *(indent + key for key in keys)][before:]
    lines += [f"{indent}Bank Remap Availability Histogram", f"{indent}    Max  : 2560 bank(s)"]
    pieces = split(
        "\n".join([*lines, f"{indent[4:]}Temperature", f"{indent}GPU Current Temp  : 33 C"])
    ).pieces
    assert {piece.shape.probe for piece in pieces} == {"nvidia-smi-q"}
    found = alarms(replay(tmp_path, {"nvidia-smi-q": pieces[0].text}))
    assert any("remapping failed" in alarm for alarm in found) is (failed == "Yes")


@pytest.mark.parametrize("sick", [None, 0, 3, 7])
@pytest.mark.parametrize("indent", ["    ", ""])
def test_lines_about_the_fabric_are_of_the_gpus_above_them(sick: int | None, indent: str):
    text = "".join(
        f"GPU 00000000:{gpu + 17:02X}:00.0\n    Fabric\n"
        f"        State                             : {'In Progress' if gpu == sick else 'Completed'}\n"
        f"        Status                            : {'N/A' if gpu == sick else 'Success'}\n"
        for gpu in range(8)
    )
    pasted = "".join(f"{indent}{line}\n" for line in text.splitlines())
    result = read(["-"], stdin=f"$ nvidia-smi -q | grep -A2 -E '^GPU|Fabric$'\n{pasted}".encode())
    assert not result.unrecognised and result.triage is None
    (fabric,) = (row for row in result.nodes[0].report["results"] if row["check"] == "fabric.state")
    failed = [finding["subject"] for finding in fabric["findings"] if finding["status"] in ("warn", "fail")]
    assert failed == ([] if sick is None else [f"gpu:0000:{sick + 17:02x}:00.0"])


def links(*states: str) -> str:
    gpus = "".join(f"    gpuId {gpu}:\n        {' '.join(row)}\n" for gpu, row in enumerate(states))
    rule = "+----------------------+\n"
    return f"{rule}|  NvLink Link Status  |\n{rule}GPUs:\n{gpus}NvSwitches:\n"


@pytest.mark.parametrize("down", range(6))
def test_the_link_states_of_dcgm_are_judged_as_nvidia_smis(tmp_path: Path, down: int):
    row = "".join("D" if link == down else "U" for link in range(18))
    for text, sick in ((links("U" * 18, "U" * 18, "U" * 18, row), True), (links(*["U" * 18] * 4), False)):
        (piece,) = split(text).pieces
        told = snapshot_of([NodeOutput(piece, "paste")], "").observations["nvidia-smi-nvlink"].text
        found = alarms(replay(tmp_path, {"nvidia-smi-nvlink": told}))
        assert bool(found) is sick
        assert all("gpu:3" in alarm or "GPU 3" in alarm for alarm in found)


GPU_LINE = (
    "{0}:00.0 3D controller: NVIDIA Corporation GH100 [{1}] (rev {2})\n{3}\tKernel driver in use: nvidia\n"
)
TRAINED = "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n\t\tLnkSta:\tSpeed 32GT/s, Width x{0}\n"


@pytest.mark.parametrize("lost", [0, 1, 3])
@pytest.mark.parametrize("verbose", [True, False])
def test_a_device_of_which_lspci_reads_ff_everywhere_is_lost(tmp_path: Path, lost: int, verbose: bool):
    text = "".join(
        GPU_LINE.format(
            f"1{n}", "H100 SXM5 80GB", "ff" if n == lost else "a1", "" if n == lost else TRAINED.format(16)
        )
        for n in range(4)
    )
    text = text.replace("(rev ff)\n", "(rev ff)\n\t!!! Unknown header type 7f\n") if verbose else text
    (alarm,) = alarms(replay(tmp_path, {"lspci": text}))
    assert alarm.startswith("FAIL") and f"0000:1{lost}:00.0 has fallen off the bus" in alarm


@pytest.mark.parametrize(("model", "width", "sick"), [
    ("H100 SXM5 80GB", 8, True), ("H100 SXM5 80GB", 16, False), ("H100 PCIe", 8, False),
    ("GeForce RTX 4090", 4, False),
])  # fmt: skip
def test_a_module_has_all_lanes_and_a_card_its_slots(tmp_path: Path, model: str, width: int, sick: bool):
    text = GPU_LINE.format("1b", model, "a1", TRAINED.format(width))
    assert bool(alarms(replay(tmp_path, {"lspci": text}))) is sick


@pytest.mark.parametrize(("name", "hosts", "share", "sick"), [
    ("NVIDIA H100 80GB HBM3", 1, 0.1, True), ("NVIDIA H100 80GB HBM3", 1, 0.9, False),
    ("NVIDIA H100 80GB HBM3", 2, 0.1, False), ("NVIDIA GeForce RTX 4090", 1, 0.1, False),
])  # fmt: skip
@pytest.mark.parametrize("size", [2 << 30, 8 << 30])
def test_a_bandwidth_far_below_the_boards_is_said_by_the_list_of_devices(
    tmp_path: Path, name: str, hosts: int, share: float, sick: bool, size: int
):
    ranks = "".join(
        f"#  Rank  {n} Group  0 Pid 1001 on     gpu-{n % hosts} device  {n} [0x1b] {name}\n" for n in range(8)
    )
    speed = 480 * share
    text = (
        f"# nThread 1 nGpus 8 minBytes 1 maxBytes {size} step: 2(factor)\n#\n# Using devices\n{ranks}#\n"
        f"  {size}   {size // 4}     float     sum      -1   9999.1  99.17  {speed:.2f}      0\n"
    )
    found = [
        alarm for alarm in alarms(replay(tmp_path, {"all-reduce-perf": text}, deep=True)) if "busbw" in alarm
    ]
    assert bool(found) is sick


@pytest.mark.parametrize(
    ("state", "sick"),
    [("failed (Result: timeout)", True), ("active (running)", False), ("inactive (dead)", False)],
)
def test_a_fabric_manager_that_failed_is_said_without_its_board(tmp_path: Path, state: str, sick: bool):
    text = "\N{BLACK CIRCLE} nvidia-fabricmanager.service - NVIDIA fabric manager service\n"
    text += f"     Loaded: loaded (/lib/x; enabled)\n     Active: {state} since Mon\n"
    (piece,) = split(text).pieces
    told = snapshot_of([NodeOutput(piece, "paste")], "").observations["services"].text
    found = [alarm for alarm in alarms(replay(tmp_path, {"services": told})) if "fabricmanager" in alarm]
    assert bool(found) is sick


@pytest.mark.parametrize(
    "reason", ["gres/gpu count reported lower than configured (7 < 8)", "planned update"]
)
@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DOWN*+DRAIN"])
def test_what_slurm_itself_counts_is_no_plan(tmp_path: Path, reason: str, state: str):
    text = f"NodeName=gpu-17 Arch=x86_64\n   Gres=gpu:h100:8\n   State={state}\n"
    text += f"   Reason={reason} [slurm@2026]\n"
    found = alarms(replay(tmp_path, {"slurm-node": text}))
    assert [reason in alarm for alarm in found] == ([] if reason == "planned update" else [True])


MESSAGES = (
    "VFS: file-max limit 1000000 reached",
    "usb 1-1: new high-speed USB device",
    "NVRM: loading the module",
)
FRONTS = {
    "dmesg -x --time-format iso": "kern  :warn  : 2026-01-05T10:00:{0:02},285060+00:00 ",
    "dmesg --time-format iso": "2026-01-05T10:00:{0:02},285060+01:00 ",
    "/dev/kmsg": "6,39{0:02},2067643{0:02},-;",
    "dmesg": "[  206.7643{0:02}] ",
    "dmesg -x": "kern  :info  : [  206.7643{0:02}] ",
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0), (0,), (2, 1)])
def test_a_kernels_log_is_known_by_its_front_whatever_it_says(
    tmp_path: Path, front: str, order: tuple[int, ...]
):
    xid = "NVRM: Xid (PCI:0000:18:00): 79, pid=4242, name=python, GPU has fallen off the bus."
    lines = [*(MESSAGES[n] for n in order), xid]
    text = "".join(f"{FRONTS[front].format(n)}{line}\n" for n, line in enumerate(lines))
    parts = split(text)
    (piece,) = parts.pieces
    assert piece.shape.probe == "kernel-log" and parts.rest == ()
    log = snapshot_of([NodeOutput(piece, "paste")], "").observations["kernel-log"]
    found = alarms(replay(tmp_path, {"kernel-log": log.text}))
    assert any("Xid 79" in alarm and "0000:18:00" in alarm for alarm in found)


@pytest.mark.parametrize("down", range(4))
def test_ports_are_read_though_grep_left_out_the_line_that_numbers_them(tmp_path: Path, down: int):
    text = "".join(
        f"CA 'mlx5_{n}'\n\t\tState: {'Down' if n == down else 'Active'}\n"
        f"\t\tPhysical state: {'Polling' if n == down else 'LinkUp'}\n\t\tRate: {10 if n == down else 400}\n"
        for n in range(8)
    )
    (alarm,) = alarms(replay(tmp_path, {"ibstat": text}))
    assert alarm.startswith("FAIL") and f"mlx5_{down}/1" in alarm


@pytest.mark.parametrize("gpu", range(3))
@pytest.mark.parametrize(("action", "sick"), [("Reset", True), ("Reboot", True), ("None", False)])
def test_the_recovery_action_of_a_query_is_a_gpus(tmp_path: Path, gpu: int, action: str, sick: bool):
    rows = "".join(
        f"{n}, NVIDIA H100 80GB HBM3, 00000000:1{n}:00.0, {action if n == gpu else 'None'}\n"
        for n in range(4)
    )
    text = f"index, name, pci.bus_id, gpu_recovery_action\n{rows}"
    found = alarms(replay(tmp_path, {"nvidia-smi-q": text}))
    assert bool(found) is sick and all(f"gpu:{gpu}" in alarm or f"0000:1{gpu}" in alarm for alarm in found)


@pytest.mark.parametrize("words", ["Requires Reset", "GPU requires reset"])
def test_a_gpu_whose_column_of_errors_has_words_is_not_left_out(tmp_path: Path, words: str):
    rows = (smi_texts.row(0), smi_texts.row(1, bus="00000000:2A:00.0", ecc=words), smi_texts.row(2))
    found = alarms(replay(tmp_path, {"nvidia-smi": smi_texts.table(*rows)}))
    assert found and all("gpu:1" in alarm or "0000:2a" in alarm or "GPU 1" in alarm for alarm in found)


@pytest.mark.parametrize(
    "first", ["00:00.0 System peripheral: Intel Corporation Device 09a2 (rev 20)\n\tNUMA node: 0\n", ""]
)
@pytest.mark.parametrize(
    "name", ["NVIDIA ConnectX-7 HHHL Adapter card", "Broadcom NetXtreme Gigabit Ethernet"]
)
def test_the_names_that_devices_tell_of_themselves_end_no_lspci(first: str, name: str):
    data = f"\tCapabilities: [48] Vital Product Data\n\t\tProduct Name: {name}\n\t\tRead-only fields:\n"
    text = first + GPU_LINE.format("1b", "H100 SXM5 80GB", "a1", TRAINED.format(16)) + data
    text += GPU_LINE.format("1c", "H100 SXM5 80GB", "a1", TRAINED.format(16))
    parts = split(text)
    assert [piece.shape.probe for piece in parts.pieces] == ["lspci"] and parts.rest == ()


def test_what_no_output_showed_of_the_network_is_not_said(tmp_path: Path):
    report = replay(tmp_path, {"net": '{"interfaces": {"ens1": {"operstate": "up", "mtu": "9000"}}}'})
    told = [
        finding for result in report.results for finding in result.findings if result.check.startswith("net.")
    ]
    assert not [
        one
        for one in told
        if one.status.value == "pass" and ("hosts" in one.summary or "unknown" in one.summary)
    ]


BOX = "| Processes:                                                          |\n"
SLICE = "|  {0}    3   0   0  |      6MiB /  9856MiB  | 14      0 |  1   0    0    0    0 |\n"


def whole_table(count: int, used: dict[int, str], mig: dict[int, bool], *, processes: str = "") -> str:
    """A table to its end: memory in use by GPU, and GPUs in MIG mode with an instance or without."""
    rows = [
        smi_texts.row(
            gpu,
            bus=f"00000000:{gpu + 24:02X}:00.0",
            memory=used.get(gpu, "4MiB"),
            mig="Enabled" if gpu in mig else "Disabled",
        )
        for gpu in range(count)
    ]
    slices = "".join(SLICE.format(gpu) for gpu, has_instance in mig.items() if has_instance)
    return smi_texts.table(*rows) + slices + BOX + processes


@pytest.mark.parametrize(
    ("mig", "sick"),
    [
        ({2: False}, ["gpu:2"]),
        ({1: True, 2: False}, ["gpu:2"]),
        ({2: True}, []),
        ({}, []),
        ({0: False, 1: False, 2: False, 3: False}, []),
    ],
)
def test_mig_without_an_instance_is_said_where_others_have_no_mig(
    tmp_path: Path, mig: dict[int, bool], sick: list[str]
):
    found = alarms(replay(tmp_path, {"nvidia-smi": whole_table(4, {}, mig)}))
    assert [line.split("@")[1].split(": ")[0] for line in found] == sick
    cut = whole_table(4, {}, mig).partition(BOX)[0]
    assert alarms(replay(tmp_path, {"nvidia-smi": cut})) == []


PROCESS = "|    2   N/A  N/A     41231      C   python        70000MiB |\n"


@pytest.mark.parametrize(
    ("used", "processes", "open_question"),
    [
        ({2: "70000MiB"}, "", True),
        ({2: "70000MiB"}, PROCESS, False),
        ({}, "", False),
        ({gpu: "70000MiB" for gpu in range(4)}, "", False),
    ],
)
def test_memory_that_no_process_holds_is_an_open_question(
    tmp_path: Path, used: dict[int, str], processes: str, open_question: bool
):
    report = replay(tmp_path, {"nvidia-smi": whole_table(4, used, {}, processes=processes)})
    notes = [
        f.summary for result in report.results for f in result.findings if "no process is listed" in f.summary
    ]
    assert (bool(notes), alarms(report)) == (open_question, [])


@pytest.mark.parametrize(("holders", "warns"), [((5,), True), ((1, 6), True), ((0, 1, 2, 3), False)])
def test_memory_of_few_idle_gpus_of_a_board_is_a_leftover(
    tmp_path: Path, holders: tuple[int, ...], warns: bool
):
    text = whole_table(8, {gpu: "61000MiB" for gpu in holders}, {})
    assert bool(alarms(replay(tmp_path, {"nvidia-smi": text}))) is warns


NO_SLICES = "| MIG devices:                          |\n|  No MIG devices found                 |\n"


@pytest.mark.parametrize(("below", "warns"), [(NO_SLICES, True), ("", False)])
def test_a_list_of_instances_that_is_empty_tells_without_the_processes(
    tmp_path: Path, below: str, warns: bool
):
    text = whole_table(4, {}, {3: False}).partition(BOX)[0] + below
    assert bool(alarms(replay(tmp_path, {"nvidia-smi": text}))) is warns


def bridge(
    number: int, *, kind: str = "Downstream", control: str = "ReqRedir+ CmpltRedir+", picked: bool
) -> str:
    """A port of a switch with a GPU below it, as `lspci -vv` or as grep leaves it."""
    bus = f"{0x82 + number:02x}"
    head = f"81:{number:02x}.0 PCI bridge: PLX Technology, Inc. PEX 8796 96-Lane, 24-Port Switch (rev ab)\n"
    acs = f"\t\tACSCtl:\tSrcValid+ TransBlk- {control} UpstreamFwd- EgressCtrl- DirectTrans-\n"
    if picked:
        return head + acs
    return (
        f"{head}\tBus: primary=81, secondary={bus}, subordinate={bus}, sec-latency=0\n"
        f"\tCapabilities: [68] Express (v2) {kind} Port, MSI 00\n{acs}\n"
        f"{bus}:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 40GB] (rev a1)\n"
        "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16\n\t\tLnkSta:\tSpeed 16GT/s, Width x16\n\n"
    )


@pytest.mark.parametrize("picked", [True, False])
@pytest.mark.parametrize(
    ("count", "control", "sick"),
    [
        (2, "ReqRedir+ CmpltRedir+", True),
        (4, "ReqRedir+ CmpltRedir-", True),
        (1, "ReqRedir+ CmpltRedir+", False),
        (4, "ReqRedir- CmpltRedir-", False),
    ],
)
def test_ports_of_switches_that_redirect_are_said(
    tmp_path: Path, count: int, control: str, sick: bool, picked: bool
):
    text = "".join(bridge(number, control=control, picked=picked) for number in range(count))
    found = [line for line in alarms(replay(tmp_path, {"lspci": text})) if "pcie.acs" in line]
    assert len(found) == sick and all(f"at {count} ports" in line for line in found)


NEW = "Broadcom / LSI PEX890xx PCIe Gen 5 Switch"
PORTS = [bridge(number, picked=False) for number in range(4)]
BELOW = re.compile(r"(.{7} )3D controller: NVIDIA .*\n(?:\t.*\n)+")
DISK = r"\g<1>Non-Volatile memory controller: Samsung NVMe SSD PM9A3\n"


@pytest.mark.parametrize("switch", [NEW, "PMC-Sierra Inc. Switchtec PFX", "Intel Corporation PCIe Switch"])
@pytest.mark.parametrize(("below", "sick"), [("gpus", True), ("left out", True), ("disks", False)])
def test_ports_of_switches_are_judged_without_what_is_below_them(
    tmp_path: Path, switch: str, below: str, sick: bool
):
    text = "".join(PORTS).replace("PLX Technology, Inc. PEX 8796 96-Lane, 24-Port Switch", switch)
    text = text if below == "gpus" else BELOW.sub(DISK if below == "disks" else "", text)
    found = [line for line in alarms(replay(tmp_path, {"lspci": text})) if "pcie.acs" in line]
    assert len(found) == (sick and not (below == "left out" and "Intel" in switch))


def test_redirection_at_root_ports_is_no_alarm(tmp_path: Path):
    text = "".join(bridge(number, kind="Root", picked=False) for number in range(4))
    assert alarms(replay(tmp_path, {"lspci": text})) == []


def headline_of(tmp_path: Path, text: str) -> str:
    (tmp_path / "paste.txt").write_text(text)
    return headline(read([str(tmp_path / "paste.txt")]))


PORT = "CA 'mlx5_{0}'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: {1}\n\t\tPhysical state: {2}\n\t\tRate: {3}\n"
PORT += "\t\tBase lid: {4}\n\t\tSM lid: 1\n\t\tLink layer: InfiniBand\n"


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("count", [3, 5, 9])
@pytest.mark.parametrize("physical", ["Polling", "Disabled"])
def test_a_port_without_a_signal_is_named_though_others_are_enough(
    tmp_path: Path, first: int, count: int, physical: str
):
    text = "".join(
        PORT.format(first + n, *(("Down", physical, 10, 0) if n == 1 else ("Active", "LinkUp", 400, 20 + n)))
        for n in range(count)
    )
    line = headline_of(tmp_path, text)
    assert line.startswith(f"mlx5_{first + 1} port 1: DOWN, Polling: no signal") is (physical == "Polling")
    assert "no problem found" in line


@pytest.mark.parametrize(("listed", "ends"), [(7, False), (4, True), (2, True)])
def test_fewer_gpus_than_on_the_bus_is_no_all_clear(tmp_path: Path, listed: int, ends: bool):
    bus = "".join(
        f"{n}0:1c.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 80GB]\n" for n in range(1, 9)
    )
    gpus = "".join(f"GPU {n}: NVIDIA A100-SXM4-80GB (UUID: GPU-{n:08x}-1-2-3-4)\n" for n in range(listed))
    line = headline_of(tmp_path, f"$ lspci\n{bus}$ nvidia-smi -L\n{gpus}" + "$ \n" * ends)
    assert line.startswith(f"the driver lists {listed} GPUs, 8 are on the PCI bus")
    assert "no problem found" not in line


@pytest.mark.parametrize(
    "text",
    [
        "$ nvidia-smi -q | egrep '^GPU|Pending'\nGPU 00000000:18:00.0\n        Pending       : Yes\n",
        "index, temperature.gpu\n0, 40\nn1 / 1, 41\n2, 40\n",
        "        DRAM Uncorrectable   : 4\n"
        + smi_texts.q_gpu("00000000:18:00.0", {"ECC Mode": {"Current": "N/A"}}),
    ],
)
def test_a_line_of_an_output_that_is_of_nothing_is_no_all_clear(tmp_path: Path, text: str):
    line = headline_of(tmp_path, text)
    assert line.startswith("not every line was read: nvidia-smi-q: nothing shows what ")
    assert "no problem found" not in line and " all " not in line


@pytest.mark.parametrize("shown", [10, 11, 12])
@pytest.mark.parametrize("down", [(3,), (8, 9), (0, 5, 7)])
def test_links_that_a_cut_took_away_are_not_lost(tmp_path: Path, shown: int, down: tuple[int, ...]):
    blocks = [
        f"GPU {gpu}: NVIDIA A100-SXM4-40GB (UUID: GPU-{gpu:08x}-1-2-3-4)\n"
        + "".join(
            f"\t Link {n}: {'<inactive>' if gpu and n in down else '25 GB/s'}\n"
            for n in range(shown if gpu else 12)
        )
        for gpu in range(2)
    ]
    line = headline_of(tmp_path, f"$ nvidia-smi nvlink -s\n{''.join(blocks)}")
    noun = "1 NVLink;" if len(down) == 1 else f"{len(down)} NVLinks;"
    assert f"GPU 1 lost {noun}" in line
