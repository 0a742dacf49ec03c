"""What perftest's ib_write_bw reaches through each active rail and back, where it is installed (--deep)."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.gpu.idle import idle
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.rdma.port import IbPort, of_sysfs
from nodedoctor.facts.rdma.ports import by_class
from nodedoctor.facts.rdma.sysfs import Rdma
from nodedoctor.json_shapes import Json, document, number, parts, text
from nodedoctor.model import Observation, Outcome, Unseen
from nodedoctor.patterns import regex
from nodedoctor.record import record

LOOPBACK = "ib-write-bw"
NO_PORT = "no InfiniBand or RoCE port is active"
_HEADER = regex(r"#bytes\s+#iterations\s+BW peak\[Gb/sec\]\s+BW average\[Gb/sec\]")
_ROW = regex(r"^[ \t]*(\d{1,12})[ \t]+\d{1,12}[ \t]+[\d.]{1,12}[ \t]+(\d{1,6}(?:\.\d{1,9})?)(?:[ \t]|$)")


@probe(LOOPBACK, timeout=90, lane=Lane.GPU_LOAD, after=("rdma", "nvml", "processes"))
def loopback(
    options: Options, rdma: Observation, nvml: Observation, processes: Observation
) -> Command | Observation:
    """RDMA writes from this host to itself through each active rail, if perftest is installed."""
    if options.passive:
        return skipped(LOOPBACK, "--passive puts no load on adapters")
    if busy := "; ".join(_active_users(nvml, processes)):
        return skipped(LOOPBACK, f"a job may be using the rails: {busy}")
    adapters = Rdma.parse(rdma)
    if isinstance(adapters, Unseen):
        return skipped(LOOPBACK, adapters.note)
    rails = by_class(tuple(of_sysfs(hca, port) for hca, port in adapters.ports))
    words = [_port_argument(port) for port in rails if port.active]
    return Command(child("measured/ib_write_bw", *words)) if words else skipped(LOOPBACK, NO_PORT)


def _active_users(nvml: Observation, processes: Observation) -> Iterator[str]:
    running = Processes.parse(processes)
    if isinstance(running, Processes):
        yield from (f"{rank.label} is running" for rank in running.of("rank", "engine")[:3])
    yield from (f"GPU {index}: {why}" for index, why in idle(nvml, processes).busy)


def _port_argument(port: IbPort) -> str:
    """The port, and for RoCE the row of a GID of version 2: older perftest takes row 0 otherwise."""
    version_2 = [gid.index for gid in port.gids if gid.kind == "RoCE v2"]
    return port.name if port.infiniband or not version_2 else f"{port.name}@{version_2[-1]}"


@record
class Loop:
    """One port: Gbit/s on average of two seconds, or `error` (timeout, late, failed) and what it said."""

    port: str
    average_gbps: float | None = None
    error: str = ""
    said: str = ""


@fact(LOOPBACK)
@record
class IbLoopback:
    """What each active rail reached."""

    ports: tuple[Loop, ...]

    @classmethod
    def parse(cls, observation: Observation) -> IbLoopback | Unseen:
        """Read what probes/measured/ib_write_bw.py prints."""
        if observation.outcome in (Outcome.SKIPPED, Outcome.MISSING):
            return Unseen.skip(f"not run: {observation.note or 'not recorded'}")
        answer = document(observation) or {}
        if text(answer, "error") == "not-installed":
            return Unseen.skip("ib_write_bw (perftest) is not installed")
        ports = tuple(_read_loop(entry) for entry in parts(answer, "ports") if text(entry, "port"))
        return cls(ports) if ports else Unseen.of(observation)


def average_gbps(output: str) -> float | None:
    """The column BW average of ib_write_bw --report_gbits; None when there is none.

    Format: linux-rdma/perftest, src/perftest_parameters.h (RESULT_FMT_G, REPORT_FMT). Warnings may come
    between the heading and the row; other units have another heading.
    """
    heading = _HEADER.search(output)
    rows = (_ROW.match(line) for line in output[heading.end() :].splitlines()) if heading else ()
    return next((float(row[2]) for row in rows if row), None)


def _read_loop(entry: Json) -> Loop:
    error, average = text(entry, "error"), number(entry.get("gbps"))
    average = average if average is not None else average_gbps(text(entry, "text"))
    if not error and average is None:
        return Loop(text(entry, "port"), None, "failed", "its output has no BW average in Gb/sec")
    return Loop(text(entry, "port"), average, error, text(entry, "said"))
