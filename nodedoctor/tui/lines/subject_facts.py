"""What was read of each subject, in a few short lines: the content of a panel without a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from nodedoctor.json_shapes import Json, number, part, parts, text, texts, whole_number
from nodedoctor.report.document import Report
from nodedoctor.report.inert import inert
from nodedoctor.wording import count_with_noun


def facts_of(name: str, report: Report) -> tuple[str, ...]:
    """The facts of a subject, the most telling first; none where nothing was read."""
    facts, node = report["facts"] or {}, report["node"]
    if name not in _FACTS:
        return ()
    return tuple(inert(values) for values in _FACTS[name](facts, node) if values)


def _driver_facts(facts: Json, node: Json) -> Iterator[str]:
    driver = part(facts, "driver")
    kind = text(driver, "kind")
    yield f"{text(node, 'driver')} {kind}".strip() if text(node, "driver") else ""
    yield f"CUDA {text(node, 'cuda')}" if text(node, "cuda") else ""
    manager = text(part(facts, "fabric-manager"), "version")
    yield f"fabric manager {manager}" if manager else ""


def _gpu_facts(facts: Json, node: Json) -> Iterator[str]:
    gpus = parts(part(facts, "gpus"), "gpus")
    name = text(node, "gpu").removeprefix("NVIDIA ")
    yield f"{len(gpus)}x {name}" if gpus and name else ""
    yield _range_text(_read_numbers(gpus, "temperature_c"), " C")
    yield _range_text(_read_numbers(gpus, "power_draw_w"), " W")
    yield _range_text(_read_numbers(gpus, "clock_max_sm_mhz"), " MHz at most")


def _memory_facts(facts: Json, _: Json) -> Iterator[str]:
    gpus = parts(part(facts, "gpus"), "gpus")
    sizes = _read_numbers(gpus, "memory_total_mib")
    yield _range_text([size / 1024 for size in sizes], " GiB a GPU")
    for keys, noun in (
        (("ecc_volatile_uncorrectable",), "uncorrected error"),
        (("remapped_correctable", "remapped_uncorrectable"), "remapped row"),
        (("ecc_volatile_correctable",), "corrected error"),
    ):
        counts = [count for key in keys for count in _read_numbers(gpus, key)]
        yield count_with_noun(int(sum(counts)), noun) if counts else ""


def _nvlink_facts(facts: Json, _: Json) -> Iterator[str]:
    links = [link for gpu in parts(part(facts, "gpus"), "gpus") for link in parts(gpu, "nvlinks")]
    up = sum(link.get("active") is True for link in links)
    yield f"{up} of {len(links)} links up" if links else ""
    switches = whole_number(part(facts, "board"), "nvswitches")
    yield f"{switches} NVSwitches" if switches and switches > 1 else ""


def _pcie_facts(facts: Json, _: Json) -> Iterator[str]:
    values = [
        f"gen{generation} x{width}"
        for gpu in parts(part(facts, "gpus"), "gpus")
        if (generation := whole_number(gpu, "pcie_generation")) and (width := whole_number(gpu, "pcie_width"))
    ]
    yield _summary_text(values, "GPUs")
    count = whole_number(part(facts, "pci"), "on_bus")
    yield count_with_noun(count, "device") + " on the bus" if count else ""


def _infiniband_facts(facts: Json, _: Json) -> Iterator[str]:
    rails = texts(part(facts, "rails"), "ports")
    ports = [
        port
        for port in parts(part(facts, "ib"), "ports")
        if f"{text(port, 'hca')}/{whole_number(port, 'number')}" in rails
    ]
    yield _summary_text(
        [f"{rate:g} Gb/s" for port in ports if (rate := number(port.get("rate_gbps")))], "rails"
    )
    yield _summary_text([text(port, "state") for port in ports if text(port, "state")], "rails")
    yield _summary_text([f"firmware {values}" for port in ports if (values := text(port, "firmware"))], "")


def _network_facts(facts: Json, _: Json) -> Iterator[str]:
    net = part(facts, "net")
    routes = texts(net, "default_routes")
    for interface in parts(net, "interfaces"):
        if text(interface, "name") in routes:
            speed = whole_number(interface, "speed_mbps")
            yield (
                f"{text(interface, 'name')} {speed / 1000:g} Gb/s"
                if speed and speed > 0
                else text(interface, "name")
            )
            mtu = whole_number(interface, "mtu")
            yield f"MTU {mtu}" if mtu else ""
    yield "clock synchronised" if net.get("synchronised") is True else ""


def _host_facts(facts: Json, _: Json) -> Iterator[str]:
    machine, limits = part(facts, "machine"), part(facts, "limits")
    total = number(part(limits, "memory").get("total_gib"))
    yield f"{total:.0f} GiB memory" if total else ""
    yield text(machine, "distro")
    shm = number(part(limits, "shm").get("size_gib"))
    yield f"/dev/shm {shm:.0f} GiB" if shm else ""
    up = number(machine.get("uptime_seconds"))
    yield f"up {count_with_noun(round(up / 86400), 'day')}" if up and up > 86400 else ""


def _stack_facts(facts: Json, node: Json) -> Iterator[str]:
    yield f"torch {text(node, 'torch')}" if text(node, "torch") else ""
    yield from (
        f"NCCL {text(copy, 'version')}"
        for copy in parts(part(facts, "libraries"), "copies")[:1]
        if text(copy, "family") == "nccl" and text(copy, "version")
    )
    python = text(part(facts, "target-python"), "version")
    yield f"Python {python}" if python else ""


def _container_facts(facts: Json, node: Json) -> Iterator[str]:
    if container := part(facts, "container"):
        yield text(container, "runtime") or text(node, "container") or "no container"


def _kernel_log(facts: Json, _: Json) -> Iterator[str]:
    log = part(facts, "kernel-log")
    if log:
        xids = part(log, "xids")
        yield f"{count_with_noun(len(xids), 'kind')} of Xid" if xids else "no Xid"
        yield count_with_noun(whole_number(log, "lines") or 0, "line") + " read"
        yield f"since {text(log, 'begins')[:16].replace('T', ' ')}" if text(log, "begins") else ""


_FACTS: Mapping[str, Callable[[Json, Json], Iterator[str]]] = {
    "Driver": _driver_facts,
    "GPUs": _gpu_facts,
    "Memory": _memory_facts,
    "NVLink": _nvlink_facts,
    "PCIe": _pcie_facts,
    "InfiniBand": _infiniband_facts,
    "Network": _network_facts,
    "Host": _host_facts,
    "Stack": _stack_facts,
    "Container": _container_facts,
    "Kernel log": _kernel_log,
}


def _read_numbers(things: Sequence[Json], key: str) -> list[float]:
    return [value for thing in things if (value := number(thing.get(key))) is not None]


def _range_text(values: Sequence[float], unit: str) -> str:
    """`34-41 C`, or one number where all are alike."""
    if not values:
        return ""
    least, most = round(min(values)), round(max(values))
    return f"{least}{unit}" if least == most else f"{least}-{most}{unit}"


def _summary_text(values: Sequence[str], noun: str) -> str:
    """`8 GPUs gen5 x16`, with all values where they differ."""
    kinds = list(dict.fromkeys(values))
    if not kinds:
        return ""
    shown = " and ".join(kinds[:2]) + (" ..." if kinds[2:] else "")
    return f"{len(values)} {noun} {shown}" if noun else shown
