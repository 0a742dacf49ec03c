"""What pastes have shown to be wrong, each as its kind, beside the same paste where all is well."""

from __future__ import annotations

from pathlib import Path

import pytest
import smi_texts
from pastes import IBSTAT
from recorded import alarms, mesh, replay, topo

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


PANIC = "ibpanic: [24601] main: stat of IB device 'mlx5_7' failed: Invalid argument\n"


def one_socket() -> str:
    """Eight GPUs and the NICs of their first socket; a socket's own are nearer to each other than SYS."""
    lines = topo(mesh(8, "NV18"), nics=4).splitlines(keepends=True)
    near = ("GPU0", "GPU1", "GPU2", "GPU3")
    return "".join(line.replace("SYS", "NODE") if line.startswith(near) else line for line in lines)


SICK = [
    ("nvidia-smi-q", vgpu("Unlicensed (Restricted)"), "no licence"),
    ("nvidia-smi-q", vgpu("Unlicensed (Unrestricted)"), "no licence"),
    ("nvidia-smi", table(draw="ERR!"), "the power draw cannot be read"),
    ("nvidia-smi", table(fan="ERR!"), "the fan speed cannot be read"),
    ("ibstat", IBSTAT + PANIC, "mlx5_7 is listed and cannot be read"),
    ("ibstat", PANIC, "mlx5_7 is listed and cannot be read"),
    ("ibv-devinfo", roce(True, True, False, True), "only link-local rows"),
    ("nvidia-smi-nvlink-errors", recoveries(505), "Link 14: link recovery 505"),
    ("nvidia-smi-topo", one_socket(), "no NIC on the socket of GPUs 4-7"),
]
WELL = [
    ("nvidia-smi-q", vgpu("Licensed (Expiry: 2027-1-1 0:0:0 GMT)")),
    ("nvidia-smi-q", vgpu("N/A")),
    ("nvidia-smi", table()),
    ("nvidia-smi", table(fan="N/A", draw="N/A")),
    ("ibstat", IBSTAT),
    ("ibv-devinfo", roce(True, True, True, True)),
    ("nvidia-smi-nvlink-errors", recoveries(3)),
    ("nvidia-smi-topo", topo(mesh(8, "NV18"), nics=8)),
    ("nvidia-smi-topo", topo(mesh(8, "NV18"), nics=4, far="NODE")),
    ("nvidia-smi-topo", topo(mesh(8, "NV18"), nics=4, near="NODE")),
    ("nvidia-smi-topo", topo(mesh(8, "NV18"), nics=4)),
    ("nvidia-smi-topo", one_socket().partition("NIC0\tPIX")[0]),
    ("nvidia-smi-topo", topo(mesh(8, "NV18"), nics=2)),
    ("ibv-devinfo", roce(False, False, False, False)),
    ("ibv-devinfo", roce(False, False, False, link="InfiniBand")),
]


@pytest.mark.parametrize(("probe", "text", "words"), SICK)
def test_what_a_paste_shows_to_be_wrong_is_said(tmp_path: Path, probe: str, text: str, words: str):
    assert [one for one in alarms(replay(tmp_path, {probe: text})) if words in one]


@pytest.mark.parametrize(("probe", "text"), WELL)
def test_the_same_paste_of_a_healthy_node_gets_no_alarm(tmp_path: Path, probe: str, text: str):
    assert alarms(replay(tmp_path, {probe: text})) == []
