"""Has this rented machine the network devices of its kind?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.host.cloud_plugins import CloudPlugins
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.pci.pci import Pci, device_evidence
from nodedoctor.facts.rdma.sysfs import CLASS, Hca, Rdma
from nodedoctor.knowledge.clouds import WHOLE, CloudShape, shape_of
from nodedoctor.model import Evidence, Finding, Fix, Unseen, reading
from nodedoctor.steps import look


@check(
    "cloud.profile",
    "Network devices of a cloud machine",
    tags={"fast", "ib"},
    stage="preview",
    without=(CloudPlugins, Container),
)
def profile(
    machine: Machine,
    board: Board,
    rdma: Rdma | None,
    pci: Pci | None,
    plugins: CloudPlugins | None,
    container: Container | None,
) -> Iterator[Finding]:
    """RDMA devices or gVNICs against what the cloud attaches to machines of this kind.

    Firmware, GPU model and PCI devices show the kind.

    A machine without any was started so on purpose: jobs on one node need none.
    Why: a machine started with a part of its network interfaces trains at that part of the bandwidth, and
    every collective of the other nodes waits for it.
    Fix disturbs: the machine has to be started again with all interfaces.
    Judges: WARN when a whole machine of a known kind has some of its RDMA devices or gVNICs and not all.
    Fix: Start the machine again with all network interfaces of its type, or request another one.
    Threshold: Devices per kind of machine, knowledge/clouds.py with sources.
    False positives: Machines started without RDMA, or with one gVNIC, on purpose: that is a note.
    """
    on_bus = tuple(device.pci_id for device in pci.devices) if pci else ()
    shape = shape_of(machine.cloud or "", machine.product or "", board.model or "", on_bus)
    if machine.cloud is None:
        yield Finding.skip("this is no machine of a cloud that its firmware names")
    elif shape is None or (board.on_bus or board.shown or 0) < WHOLE:
        yield Finding.skip(f"{machine.cloud}: no whole GPU machine of a kind that is known here")
    elif container and container.inside:
        yield Finding.skip("a container is given the devices that its job asked for")
    elif shape.nic:
        nics = [device for device in pci.devices if device.pci_id == shape.nic] if pci else []
        if pci and isinstance(missing := pci.missing(len(nics), shape.devices), Unseen):
            yield Finding.unseen(missing)
            return
        evidence = [quote for device in nics[:2] for quote in device_evidence(device, "device")]
        yield _judge_shape(shape, len(nics), "gVNICs", evidence, plugins)
    elif rdma is None:
        yield Finding.unknown("not-visible-here", "no RDMA device can be seen here")
    else:
        own = _of_one_kind([hca for hca in rdma.hcas if hca.driver == shape.driver and _of_rails(hca, shape)])
        evidence = [reading("rdma", f'links["{CLASS}/{hca.name}/device/driver"]?') for hca in own[:4]]
        yield _judge_shape(shape, len(own), "RDMA devices", evidence, plugins)


def _of_rails(hca: Hca, shape: CloudShape) -> bool:
    """Not a virtual function made here, and of the link layer of the cloud's rails where that is one."""
    return hca.physfn is None and (not shape.link or any(port.link_layer == shape.link for port in hca.ports))


def _of_one_kind(hcas: list[Hca]) -> list[Hca]:
    """The adapters of the commonest model: a machine's own network may have a few of another."""
    kinds = Counter(hca.hca_type for hca in hcas)
    usual = kinds.most_common(1)[0][0] if kinds else None
    return [hca for hca in hcas if hca.hca_type == usual]


def _judge_shape(
    shape: CloudShape, count: int, what: str, evidence: list[Evidence], plugins: CloudPlugins | None
) -> Finding:
    summary = f"{shape.name}: {count} of {shape.devices} {what}"
    if count <= (1 if shape.nic else 0):  # every machine has one for itself
        return Finding.info(f"{summary}: jobs over several nodes go over TCP", evidence=evidence)
    if count < shape.devices:
        fix = Fix(
            "Start the machine again with all network interfaces of its type, or request another one.",
            (look("rdma link"), look("lspci -nn")),
            "replace",
            "every job on this node",
            "nodedoctor cloud.profile",
            f"https://{shape.source.partition(' ')[0]}",
        )
        return Finding.warn(summary, evidence=evidence, fix=fix)
    missing = bool(shape.places) and plugins is not None and set(shape.places) <= set(plugins.absent)
    if missing:
        where = ", ".join(shape.places)
        return Finding.info(
            f"{summary}; {shape.plugin} is not in {where}: the job's image must have it", evidence=evidence
        )
    return Finding.ok(summary, evidence=evidence)
