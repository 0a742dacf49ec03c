"""RDMA between two nodes, rail i with rail i, by perftest's ib_write_bw; it compares no bytes.

Both ends talk over one TCP connection, made as for TCP: over it they say which ports their servers have, and
whose turn it is. First one end writes on all rails at once, then the other.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from typing import Any

from nodedoctor.pairs.on_node import tcp, tied
from nodedoctor.pairs.on_node.node import by_number

TOOL = "ib_write_bw"
SIZE = 1 << 20
STARTING_S = 5.0
"""Seconds that a server may take to listen."""
LINE = 1 << 16
SYS = "/sys/class/infiniband"
_ROW = re.compile(r"^[ \t]*\d{1,12}[ \t]+\d{1,12}[ \t]+[\d.]{1,12}[ \t]+(\d{1,6}(?:\.\d{1,9})?)(?:[ \t]|$)")
_HEADER = re.compile(r"#bytes\s+#iterations\s+BW peak\[Gb/sec\]\s+BW average\[Gb/sec\]")


def able() -> dict[str, Any]:
    """The rails of this node: the active ports of the highest rate, in order."""
    if shutil.which(TOOL) is None:
        return {"unable": f"{TOOL} (perftest) is not installed"}
    active_ports = rails()
    return {"rails": active_ports} if active_ports else {"unable": "no InfiniBand or RoCE port is active"}


def rails(folder: str = SYS) -> list[dict[str, Any]]:
    """Active ports of the highest rate; ports that are slower are for other things than collectives."""
    active_ports: list[dict[str, Any]] = []
    try:
        adapters = sorted(os.listdir(folder), key=by_number)
    except OSError:
        return []
    for adapter in adapters:
        ports = f"{folder}/{adapter}/ports"
        for port in sorted(os.listdir(ports), key=by_number) if os.path.isdir(ports) else ():
            if "ACTIVE" in _read_file(f"{ports}/{port}/state"):
                rate = re.match(r"[\d.]+", _read_file(f"{ports}/{port}/rate"))
                active_ports.append(
                    {
                        "device": adapter,
                        "port": port,
                        "gbps": float(rate[0]) if rate else 0.0,
                        "gid": _gid_index(f"{ports}/{port}"),
                    }
                )
    most = max((rail["gbps"] for rail in active_ports), default=0.0)
    return [rail for rail in active_ports if rail["gbps"] == most]


def _gid_index(port: str) -> str:
    """For RoCE the last row of a GID of version 2: older perftest takes row 0 otherwise."""
    if "Ethernet" not in _read_file(f"{port}/link_layer"):
        return ""
    types = f"{port}/gid_attrs/types"
    try:
        rows = sorted(os.listdir(types), key=by_number)
    except OSError:
        return ""
    return next((row for row in reversed(rows) if "v2" in _read_file(f"{types}/{row}")), "")


def _read_file(path: str) -> str:
    try:
        with open(path) as file:
            return file.read(200)
    except OSError:
        return ""


def measured(
    listener: socket.socket | None, flow: dict[str, Any], bound: str, seconds: float, size: int, limit: float
) -> dict[str, Any]:
    """One end of one pair; the rates are those of the half in which this end writes."""
    until = time.monotonic() + limit
    flow = {**flow, "streams": 1}
    if listener is not None:
        try:
            (link,) = tcp.accepted(listener, flow, until - seconds)
        except OSError:
            return {"fault": "nobody"}
    else:
        links, fault, note = tcp.dialled(flow, until, bound)
        if fault:
            return {"fault": fault, "note": note}
        (link,) = links
    ours = rails()
    try:
        theirs: list[dict[str, Any]] = _exchange_words(link, ours, until)
        if len(ours) != len(theirs) or not ours:
            return {"fault": "error", "note": f"{len(ours)} rails here, {len(theirs)} on the partner"}
        half = max(1, int(seconds / 2))
        answer: dict[str, Any] = {}
        for writes in (listener is None, listener is not None):
            if writes:
                answer = _run_clients(link, ours, bound, half, until)
            else:
                _run_servers(link, ours, bound, half, until)
        return answer
    except OSError as error:
        return {"fault": "hang", "note": f"the partner said nothing more: {error}"}
    finally:
        link.close()


def _run_servers(
    link: socket.socket, ours: list[dict[str, Any]], bound: str, seconds: int, until: float
) -> None:
    """Be the end that is written to: servers first, then their ports are named, then wait."""
    ports = [_free_port(bound) for _ in ours]
    servers = [_start_tool(rail, port, seconds, bound) for rail, port in zip(ours, ports)]  # noqa: B905
    try:
        for port in ports:
            _await_listener(port, min(until, time.monotonic() + STARTING_S))
        _exchange_words(link, ports, until)
        _exchange_words(link, "over", until)
    finally:
        for server in servers:
            _end_process(server)


def _run_clients(
    link: socket.socket, ours: list[dict[str, Any]], bound: str, seconds: int, until: float
) -> dict[str, Any]:
    """Be the end that writes, on all rails at once."""
    ports = _exchange_words(link, None, until)
    partner = link.getpeername()[0]
    clients = [
        _start_tool(rail, port, seconds, bound, partner)
        for rail, port in zip(ours, ports)  # noqa: B905
    ]
    rates: dict[str, float] = {}
    notes = []
    for rail, client in zip(ours, clients):  # noqa: B905
        name = f"{rail['device']}/{rail['port']}"
        try:
            output = client.communicate(timeout=max(0.1, until - time.monotonic()))[0]
            late = False
        except subprocess.TimeoutExpired:
            output, late = _end_process(client), True
        rate = average(output)
        if rate is None:
            last = [line.strip() for line in output.splitlines() if line.strip()][-1:]
            notes.append(f"{name}: {'no end' if late else last[0][:120] if last else 'no output'}")
            if late:
                return {"fault": "hang", "note": "; ".join(notes)}
        else:
            rates[name] = rate
    _exchange_words(link, "over", until)
    if notes:
        return {"fault": "error", "note": "; ".join(notes[:3]), "rails": rates}
    slowest = min(rates, key=lambda name: rates[name])
    return {"gbps": rates[slowest], "rails": rates}


def average(output: str) -> float | None:
    """The column BW average of ib_write_bw --report_gbits (perftest, src/perftest_parameters.h)."""
    heading = _HEADER.search(output)
    rows = (_ROW.match(line) for line in output[heading.end() :].splitlines()) if heading else ()
    return next((float(row[1]) for row in rows if row), None)


def _start_tool(
    rail: dict[str, Any], port: int, seconds: int, bound: str, partner: str = ""
) -> subprocess.Popen[str]:
    argv = [TOOL, "-d", rail["device"], "-i", rail["port"], "-p", str(port), "-s", str(SIZE)]
    argv += ["-D", str(seconds), "-F", "--report_gbits", *(["-x", rail["gid"]] if rail["gid"] else [])]
    parent = os.getpid()
    return subprocess.Popen(
        [*argv, *([partner] if partner else [])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        errors="replace",
        preexec_fn=lambda: tied.orphaned(parent),
    )


def _end_process(process: subprocess.Popen[str]) -> str:
    """End it; what it said, as far as it can be had."""
    process.kill()
    try:
        return process.communicate(timeout=1)[0] or ""
    except (subprocess.TimeoutExpired, ValueError):
        return ""


def _exchange_words(link: socket.socket, message: Any, until: float) -> Any:
    """Say something and hear what the partner says at this point."""
    link.settimeout(max(0.01, until - time.monotonic()))
    link.sendall(json.dumps(message).encode() + b"\n")
    line = b""
    while not line.endswith(b"\n") and len(line) < LINE:
        line += tcp.exactly(link, 1, until)
    return json.loads(line.decode())


def _free_port(bound: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in bound else socket.AF_INET) as link:
        link.bind((bound, 0))
        return int(link.getsockname()[1])


def _await_listener(port: int, until: float) -> None:
    """Wait until somebody listens there; connecting to see would be taken for the client."""
    while time.monotonic() < until:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            try:
                with open(table) as lines:
                    for line in lines:
                        words = line.split()
                        if words[3] == "0A" and words[1].endswith(f":{port:04X}"):
                            return
            except OSError:
                continue
        time.sleep(0.02)
