"""The rates in a report: each with its unit, its circumstances, and the floor that holds for these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodedoctor.json_shapes import Json, number, part, parts, text, whole_number
from nodedoctor.knowledge.floors import (
    BELOW_PAST,
    BELOW_PEERS,
    DISK_BELOW_PEERS,
    Floor,
    fitting_floors,
    host_copy_floors,
    share_of,
    steady_share,
)
from nodedoctor.knowledge.gpus import GpuModel, models
from nodedoctor.record import record, replace

GB, TFLOPS, GBIT = "GB/s", "TFLOP/s", "Gb/s"


@record
class Measurement:
    """One rate: what of (`subject`), in which circumstances, and the gates that hold for it.

    `of_peers` and `of_past` are the shares of what its peers reach and it itself has reached that still pass.
    """

    operation: str
    subject: str
    rate: float
    unit: str
    circumstances: str = ""
    floor: float | None = None
    floor_source: str = ""
    level: str = "fail"
    of_peers: float = BELOW_PEERS
    of_past: float = BELOW_PAST


@record
class Context:
    """What of the node decides which floors hold: the model of its GPUs, and the links between them."""

    model: GpuModel | None
    links: Mapping[str, Any]
    pcie: Mapping[int, tuple[int, int]]
    """Generation and width of the PCIe link of each GPU."""
    port_rates: Mapping[str, float]
    encrypted: bool
    """Confidential computing: copies are slower by design."""


def measurements(facts: Json) -> list[Measurement]:
    """All rates of a report, by its `facts`."""
    context = _read_context(facts)
    return [
        *_copy_rates(part(facts, "bandwidth"), context),
        *_gemm_rates(part(facts, "gemm"), context),
        *_collective_rates(part(facts, "collective"), context),
        *_vendor_tests(part(facts, "nccl-tests"), context),
        *_rail_rates(part(facts, "ib-loopback"), context),
        *_disk_rates(part(facts, "disk-rates")),
        *_memory_rates(part(facts, "memory-rates")),
    ]


def _read_context(facts: Json) -> Context:
    model, gpus = text(part(facts, "board"), "model"), part(facts, "gpus")
    ports = {text(port, "name"): number(port.get("rate_gbps")) for port in parts(part(facts, "ib"), "ports")}
    return Context(
        next((row for row in models() if row.name == model), None),
        part(part(facts, "topology"), "links"),
        {
            whole_number(gpu, "index") or 0: (
                whole_number(gpu, "pcie_generation_max") or 0,
                whole_number(gpu, "pcie_width_max") or 0,
            )
            for gpu in parts(gpus, "gpus")
        },
        {name: rate for name, rate in ports.items() if rate},
        any(device.get("confidential_compute") is True for device in (gpus, *parts(gpus, "gpus"))),
    )


def _apply_gate(measured: Measurement, gates: Sequence[Floor]) -> Measurement:
    """The measurement with the lowest of its gates that it does not reach, else with the strictest."""
    if not gates:
        return measured
    gate = next((gate for gate in gates if measured.rate < gate.least), gates[-1])
    return _with_floor(measured, gate.least, f"{gate.source}, read {gate.read}", gate.level)


def _with_floor(measured: Measurement, floor: float, source: str, level: str = "fail") -> Measurement:
    return replace(measured, floor=round(floor, 2), floor_source=source, level=level)


def _copy_rates(bandwidth: Json, context: Context) -> Iterator[Measurement]:
    name = context.model.name if context.model else ""
    for pair in parts(bandwidth, "pairs"):
        writer, reader = whole_number(pair, "source"), whole_number(pair, "target")
        rate = number(pair.get("read_gbytes_s"))
        if rate and writer is not None and reader is not None:
            link = text(part(context.links, f"GPU{writer}"), f"GPU{reader}")
            over_nvlink = link.startswith("NV") and pair.get("access") is True and not context.encrypted
            way = link or ("peer access" if pair.get("access") else "through host memory")
            measured = Measurement("p2p", f"gpu:{writer}->{reader}", rate, GB, way)
            yield _apply_gate(measured, fitting_floors("p2p", name, link=link) if over_nvlink else ())
    for copy in parts(bandwidth, "host"):
        index = whole_number(copy, "index")
        if text(copy, "kind") != "near" or index is None:
            continue
        generation, width = context.pcie.get(index, (0, 0))
        gates = host_copy_floors(generation, width, encrypted=context.encrypted)
        way = f"PCIe {generation}.0 x{width}" if generation and width else ""
        for operation, key in (("host-to-gpu", "h2d_gbytes_s"), ("gpu-to-host", "d2h_gbytes_s")):
            if rate := number(copy.get(key)):
                yield _apply_gate(Measurement(operation, f"gpu:{index}", rate, GB, way), gates)
    row = share_of("memory-copy")
    sheet = context.model.memory_bandwidth_gbps if context.model else None
    speeds = part(bandwidth, "memory_gbytes_s")
    for gpu in speeds:
        if rate := number(speeds.get(gpu)):
            measured = Measurement("memory-copy", f"gpu:{gpu}", rate, GB, "read and written")
            yield _with_floor(measured, row.share * sheet, row.source) if row and sheet else measured


def _gemm_rates(gemm: Json, context: Context) -> Iterator[Measurement]:
    name = context.model.name if context.model else ""
    for gpu in parts(gemm, "gpus"):
        if (rate := number(gpu.get("tflops"))) and not text(gpu, "error"):
            subject = f"gpu:{whole_number(gpu, 'index') or 0}"
            measured = Measurement("gemm-bf16", subject, rate, TFLOPS, "one shape, 8192 cubed")
            yield _apply_gate(measured, fitting_floors("gemm-bf16", name) if name else ())


def _collective_rates(job: Json, context: Context) -> Iterator[Measurement]:
    """The largest message of each collective of our own small job, where it ran on all ranks."""
    run = next(iter(parts(job, "runs")), {})
    largest: dict[str, tuple[int, float]] = {}
    for measured in parts(run, "operations"):
        size, rate = whole_number(measured, "bytes") or 0, number(measured.get("busbw_gbytes_s"))
        if rate and size >= largest.get(text(measured, "name"), (0, 0.0))[0]:
            largest[text(measured, "name")] = (size, rate)
    ranks, backend = whole_number(run, "ranks") or 0, text(run, "backend")
    log = part(run, "log")
    transports = sorted({way for way in part(log, "transports").values() if isinstance(way, str)})
    nccl = f"NCCL {text(log, 'version')} " if text(log, "version") else ""
    over = f" over {' and '.join(transports[:3])}" if transports else ""
    for operation, (size, rate) in largest.items():
        how = f"{nccl or backend}{over}, {ranks} ranks, {size >> 20} MiB, torch {text(job, 'torch')}"
        yield _bus_bandwidth(operation, rate, how, context, ranks if backend == "nccl" else 0, size)


def _vendor_tests(tests: Json, context: Context) -> Iterator[Measurement]:
    rates = {int(size): rate for size, rate in part(tests, "busbw_gbytes_s").items() if size.isdecimal()}
    if rates:
        size, gpus = max(rates), whole_number(tests, "gpus") or 0
        nccl = f", NCCL {text(tests, 'nccl')}" if text(tests, "nccl") else ""
        how = f"nccl-tests, {gpus} GPUs, {size >> 20} MiB{nccl}"
        yield _bus_bandwidth("all_reduce", rates[size], how, context, gpus, size)


def _disk_rates(rates: Json) -> Iterator[Measurement]:
    """No floor: none is published for the disks of a node; disks of one model are peers."""
    for disk in parts(rates, "disks"):
        point, model = text(disk, "point"), text(disk, "model")
        how = f"{model or point}, direct, at most 1 GiB in a second"
        for operation in ("disk-write", "disk-read"):
            if rate := number(disk.get(f"{operation[5:]}_gbytes_s")):
                measured = Measurement(operation, f"mount:{point}", rate, GB, how)
                yield replace(measured, of_peers=DISK_BELOW_PEERS, of_past=steady_share(operation))


def _memory_rates(rates: Json) -> Iterator[Measurement]:
    """No floor: it depends on the modules that are installed."""
    for pair in parts(rates, "pairs"):
        cpus, memory = whole_number(pair, "cpus_of"), whole_number(pair, "memory_of")
        if (rate := number(pair.get("gbytes_s"))) and cpus is not None and memory is not None:
            place = "of its own node" if cpus == memory else "of another socket"
            how = f"{place}, {whole_number(pair, 'threads') or 0} threads, read and written"
            yield Measurement("cpu-memory", f"numa:{cpus}->{memory}", rate, GB, how)


def _bus_bandwidth(
    operation: str, rate: float, how: str, context: Context, gpus: int, size: int
) -> Measurement:
    measured = Measurement(operation, "", rate, GB, how)
    if operation != "all_reduce" or context.model is None:
        return measured
    return _apply_gate(measured, fitting_floors("all_reduce", context.model.name, gpus=gpus, size=size))


def _rail_rates(loopback: Json, context: Context) -> Iterator[Measurement]:
    row = share_of("rdma")
    for loop in parts(loopback, "ports"):
        if rate := number(loop.get("average_gbps")):
            port = text(loop, "port")
            built_for = context.port_rates.get(port)
            how = f"loopback, port rate {built_for:g} Gb/s" if built_for else "loopback"
            measured = Measurement("rdma-loopback", f"port:{port}", rate, GBIT, how)
            yield (
                _with_floor(measured, row.share * built_for, row.source, "warn")
                if row and built_for
                else measured
            )
