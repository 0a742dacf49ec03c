"""Healthy outputs as they arrive in tickets, cut, wrapped, quoted or reformatted: no damage is a fault."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import smi_texts
from recorded import alarms, mesh, replay, topo

PORT = """\
CA 'mlx5_{0}'
        CA type: MT4129
        Number of ports: 1
        Firmware version: 28.43.2026
        Node GUID: 0xa088c2030000000{0}
        Port 1:
                State: Active
                Physical state: LinkUp
                Rate: 400
                Base lid: {0}
                SM lid: 1
                Link layer: InfiniBand
"""
LINKS = "\n".join(f"\t Link {link}: 26.562 GB/s" for link in range(18))
LOG = """\
[    9.45] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build
[   10.01] mlx5_core 0000:5e:00.0: firmware version: 28.43.2026
[   10.02] mlx5_core 0000:5e:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)
[  812.30] NVRM: Xid (PCI:0000:18:00): 43, pid=4242, name=python, Ch 00000008
"""
HEALTHY = {
    "nvidia-smi-topo": topo(mesh(8, "NV18"), nics=8),
    "nvidia-smi-q": smi_texts.q([smi_texts.q_gpu(f"00000000:{bus}:00.0", {}) for bus in ("18", "2A", "3A")]),
    "nvidia-smi": smi_texts.table(smi_texts.row(0), smi_texts.row(1, bus="00000000:2A:00.0")),
    "nvidia-smi-nvlink": "".join(f"GPU {i}: NVIDIA H200 (UUID: GPU-{i})\n{LINKS}\n" for i in range(8)),
    "ibstat": "".join(PORT.format(i) for i in range(8)),
    "kernel-log": LOG,
}


def _wrapped(columns: int) -> Callable[[str], str]:
    def wrap(text: str) -> str:
        lines = (line[at : at + columns] for line in text.splitlines() for at in range(0, len(line), columns))
        return "\n".join(lines) + "\n"

    return wrap


DAMAGE: dict[str, Callable[[str], str]] = {
    "line ends of Windows": lambda text: text.replace("\n", "\r\n"),
    "blanks for tabs": lambda text: text.expandtabs(8),
    "one blank for many": lambda text: re.sub(r"[ \t]+", " ", text),
    "no indentation": lambda text: "".join(f"{line.strip()}\n" for line in text.splitlines()),
    "quoted in a mail": lambda text: "".join(f"> {line}\n" for line in text.splitlines()),
    "hard blanks": lambda text: text.replace("  ", "\N{NO-BREAK SPACE}\N{NO-BREAK SPACE}"),
    "decimal commas": lambda text: re.sub(r"(?<=\d)\.(?=\d)", ",", text),
    "double-spaced": lambda text: text.replace("\n", "\n\n"),
    "behind a logger's prefix": lambda text: "".join(
        f"2026-01-01 12:00:00,123 INFO [node7] {line}\n" for line in text.splitlines()
    ),
    "a terminal of 80 columns": _wrapped(80),
    "a terminal of 120 columns": _wrapped(120),
    "the first half": lambda text: text[: len(text) // 2],
    "the second half": lambda text: text[len(text) // 2 :],
    "pasted twice": lambda text: text + text,
}


@pytest.mark.slow
@pytest.mark.parametrize("probe", HEALTHY)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_paste_of_a_healthy_node_gets_no_alarm(probe: str, damage: str, tmp_path: Path):
    assert alarms(replay(tmp_path, {probe: DAMAGE[damage](HEALTHY[probe])})) == []
