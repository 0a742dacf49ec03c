"""What the host and its ports do now, as lines to show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodedoctor.report.inert import inert
from nodedoctor.tui.theme import Para


def host_lines(host: Mapping[str, Any], ports: Sequence[Mapping[str, Any]]) -> Iterator[Para]:
    """The host in a few lines; what was not said is left out."""
    cpu = [
        _reported_value(host, "cpu_percent", "{:.0f}% busy"),
        _reported_value(host, "iowait_percent", "{:.0f}% waiting for disks"),
    ]
    cpu += [
        _reported_value(host, "load_1m", "load {:.1f}"),
        _reported_value(host, "blocked", "{} processes blocked"),
    ]
    total, free = host.get("memory_total_gib"), host.get("memory_available_gib")
    memory = [f"{total - free:.0f} of {total:.0f} GiB used" if total and free is not None else ""]
    memory.append(
        _reported_value(host, "swap_used_gib", "{:.1f} GiB swapped") if host.get("swap_used_gib") else ""
    )
    kinds = ("cpu", "memory", "io")
    pressure = [_reported_value(host, f"pressure_{kind}_percent", kind + " {:.0f}%") for kind in kinds]
    moves = [
        _reported_value(host, "disk_read_mib_s", "read {:.1f}"),
        _reported_value(host, "disk_write_mib_s", "write {:.1f} MiB/s"),
    ]
    net = [
        _reported_value(host, "net_rx_mib_s", "in {:.1f}"),
        _reported_value(host, "net_tx_mib_s", "out {:.1f} MiB/s"),
    ]
    for label, parts in (
        ("cpu", cpu),
        ("memory", memory),
        ("pressure", pressure),
        ("disk", moves),
        ("net", net),
    ):
        if any(parts):
            yield Para("  ".join(filter(None, parts)), f"{label:<9} ")
    if ports:
        moving = (
            f"{p.get('port')} {_format_number(p.get('rx_gbytes_s'))}/{_format_number(p.get('tx_gbytes_s'))}"
            for p in ports
        )
        yield Para(inert("  ".join(moving)) + "  (in/out GB/s)", f"{'ib':<9} ")


def _reported_value(host: Mapping[str, Any], key: str, form: str) -> str:
    value = host.get(key)
    return form.format(value) if isinstance(value, int | float) else ""


def _format_number(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, int | float) else "-"
