"""A strip of tiles, one per GPU and one per rail: which device it is, seen at a glance."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nodedoctor.json_shapes import mapping, objects, texts
from nodedoctor.model import Severity, Status
from nodedoctor.report.document import severity
from nodedoctor.report.inert import inert
from nodedoctor.tui.state import State
from nodedoctor.tui.theme import LABEL, QUIET, STYLE, Glyphs, Part

_MARK = {Status.FAIL: "X", Status.UNKNOWN: "?", Status.WARN: "!"}
MOST = 16
"""Tiles of one kind; beyond, only those that are not well are drawn."""


def strip(state: State, width: int, glyphs: Glyphs) -> tuple[Part, ...]:
    """GPUs and rails with a mark each; nothing where neither is known."""
    worst = _worst_statuses(state)
    gpus = [(str(index), worst.get(f"gpu:{index}"), is_read) for index, is_read in _gpu_tiles(state)]
    rails = [(name, worst.get(port), True) for name, port in _rail_ports(state)]
    parts = [*_group_parts("GPU", gpus, glyphs), *(((("   "), ""),) if gpus and rails else ())]
    return tuple([*parts, *_group_parts(_rail_kind(state), rails, glyphs)])


def _group_parts(label: str, tiles: list[tuple[str, Status | None, bool]], glyphs: Glyphs) -> Iterator[Part]:
    if not tiles:
        return
    yield f"{label} ", LABEL
    shown = tiles if len(tiles) <= MOST else [tile for tile in tiles if tile[1] or not tile[2]]
    for name, status, is_read in shown:
        style = STYLE[status] if status else ("green" if is_read else STYLE[Status.UNKNOWN])
        mark = _MARK[status] if status else (glyphs.tile if is_read else "?")
        yield f" {name}", "bold" if status else ""
        yield mark, style
    if len(shown) < len(tiles):
        yield f" {len(tiles) - len(shown)} others ", QUIET
        yield glyphs.tile, "green"


def _gpu_tiles(state: State) -> Iterator[tuple[int, bool]]:
    """Indices of the GPUs, and whether anything was read of each; those on the bus where none answers."""
    gpus = mapping(state.report["facts"].get("gpus"))
    read_gpus, lost_gpus = (
        {gpu["index"] for gpu in objects(gpus.get(key)) if isinstance(gpu.get("index"), int)}
        for key in ("gpus", "lost")
    )
    if read_gpus:
        yield from ((index, index not in lost_gpus) for index in sorted(read_gpus | lost_gpus))
        return
    count = state.report["node"].get("gpus_on_bus")
    if isinstance(count, int) and not isinstance(count, bool):
        yield from ((index, False) for index in range(min(count, 64)))


def _rail_ports(state: State) -> Iterator[tuple[str, str]]:
    """The short name of every rail, and its port."""
    ports = [inert(port) for port in texts(mapping(state.report["facts"].get("rails")), "ports")][:64]
    adapters = [port.partition("/")[0] for port in ports]
    for port, adapter in zip(ports, adapters, strict=True):
        number = re.search(r"(?<!\d)(\d+)$", adapter)
        short = number[1] if number else adapter
        yield short if adapters.count(adapter) == 1 else f"{short}/{port.partition('/')[2]}", port


def _rail_kind(state: State) -> str:
    ports = objects(mapping(state.report["facts"].get("ib")).get("ports"))
    rails = {port for _, port in _rail_ports(state)}
    layers = {port.get("link_layer") for port in ports if f"{port.get('hca')}/{port.get('number')}" in rails}
    return "RoCE" if layers == {"Ethernet"} else "IB"


def _worst_statuses(state: State) -> Mapping[str, Status]:
    """The worst status of what each device's findings say, by `gpu:3` and `mlx5_4/1`."""
    severities: dict[str, Severity] = {}
    statuses: dict[str, Status] = {}
    for result in state.report["results"]:
        if result["check"] in state.running:
            continue
        for finding in result["findings"]:
            how = severity(finding)
            if not how.is_problem:
                continue
            for device in devices(finding["subject"] or ""):
                if how > severities.get(device, Severity.SKIP):
                    severities[device], statuses[device] = how, Status(finding["status"])
    return statuses


def devices(subject: str) -> list[str]:
    """`gpu:3` and `mlx5_4/1` of a finding's subject: a device, a pair, an adapter, a part (`gpu:3/vbios`)."""
    kind, _, rest = subject.partition(":")
    if kind in ("gpu", "pair"):
        return [f"gpu:{number}" for number in rest.partition("/")[0].split("-") if number.isdecimal()]
    port = "/".join(rest.split("/")[:2])
    return [port, f"{port}/1"] if kind in ("hca", "port") else []
