"""A sysfs tree of RDMA adapters, as the kernel would show it, for our own reader and for the real ibstat."""

from __future__ import annotations

from pathlib import Path

from asking import write

STATES = {"ACTIVE": "4: ACTIVE", "INIT": "2: INIT", "DOWN": "1: DOWN", "ARMED": "3: ARMED"}
PHYSICAL = {"LinkUp": "5: LinkUp", "Polling": "2: Polling", "Disabled": "3: Disabled"}


def add_hca(
    root: Path,
    name: str,
    *,
    state: str = "ACTIVE",
    physical: str = "LinkUp",
    rate: str = "400 Gb/sec (4X NDR)",
    layer: str = "InfiniBand",
    model: str = "MT4129",
    firmware: str = "28.43.2026",
    sm_lid: int = 1,
    counters: dict[str, int] | None = None,
    gids: dict[int, tuple[str, str]] | None = None,
) -> None:
    """One adapter with one port; gids by row: address and kind."""
    number = int("".join(c for c in name.partition("_")[2] if c.isdigit()) or 0)
    here = root / "sys/class/infiniband" / name
    guid = f"a088:c203:0000:{number:04x}"
    about = {"node_type": "1: CA", "hca_type": model, "fw_ver": firmware, "hw_rev": "0x0"}
    for file, text in {**about, "node_guid": guid, "sys_image_guid": guid}.items():
        write(here / file, text + "\n")
    ethernet = layer == "Ethernet"
    port = {
        "state": STATES[state],
        "phys_state": PHYSICAL[physical],
        "rate": rate,
        "link_layer": layer,
        "lid": "0x0" if ethernet else f"0x{number + 10:x}",
        "sm_lid": f"0x{0 if ethernet else sm_lid:x}",
        "lid_mask_count": "0",
        "sm_sl": "0",
        "cap_mask": "0x2651e848",
        "pkeys/0": "0xffff",
        "gids/0": f"fe80:0000:0000:0000:{guid}",
    }
    for file, text in port.items():
        write(here / "ports/1" / file, text + "\n")
    for counter, value in (counters or {}).items():
        write(here / "ports/1/counters" / counter, f"{value}\n")
    for row, (address, kind) in (gids or {}).items():
        write(here / "ports/1/gids" / str(row), address + "\n")
        write(here / "ports/1/gid_attrs/types" / str(row), kind + "\n")
    write(root / "sys/class/infiniband_mad/abi_version", "5\n")
