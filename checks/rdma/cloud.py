"""Has this rented machine the RDMA devices of its kind?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.engine.registry import check
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.host.cloud_plugins import CloudPlugins
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.rdma.sysfs import CLASS, Hca, Rdma
from nodedoctor.knowledge.clouds import CloudShape, shape_of
from nodedoctor.model import Finding, Fix, reading
from nodedoctor.steps import look

_WHOLE = 8
"""GPUs of a whole machine: parts of one get no RDMA devices, or their share."""


@check(
    "cloud.profile",
    "RDMA devices of a cloud machine",
    tags={"fast", "ib"},
    stage="preview",
    without=(CloudPlugins, Container),
)
def profile(
    machine: Machine,
    board: Board,
    rdma: Rdma,
    plugins: CloudPlugins | None,
    container: Container | None,
) -> Iterator[Finding]:
    """RDMA devices against what the cloud attaches to machines of this kind, by firmware and GPU model.

    A machine without any was started so on purpose: jobs on one node need none.
    Why: a machine started with a part of its network interfaces trains at that part of the bandwidth, and
    every collective of the other nodes waits for it.
    Fix disturbs: the machine has to be started again with all interfaces.
    Judges: WARN when a whole machine of a known kind has some of its RDMA devices and not all.
    Fix: Start the machine again with all network interfaces of its type, or request another one.
    Threshold: Devices per kind of machine, knowledge/clouds.py with sources.
    False positives: Machines started without RDMA on purpose: that is a note.
    """
    shape = shape_of(machine.cloud or "", machine.product or "", board.model or "")
    if machine.cloud is None:
        yield Finding.skip("this is no machine of a cloud that its firmware names")
    elif shape is None or (board.on_bus or board.shown or 0) < _WHOLE:
        yield Finding.skip(f"{machine.cloud}: no whole GPU machine of a kind that is known here")
    elif container and container.inside:
        yield Finding.skip("a container is given the devices that its job asked for")
    else:
        yield _judge(shape, rdma, plugins)


def _of_rails(hca: Hca, shape: CloudShape) -> bool:
    """Not a virtual function made here, and of the link layer of the cloud's rails where that is one."""
    return hca.physfn is None and (not shape.link or any(port.link_layer == shape.link for port in hca.ports))


def _judge(shape: CloudShape, rdma: Rdma, plugins: CloudPlugins | None) -> Finding:
    found = [hca for hca in rdma.hcas if hca.driver == shape.driver and _of_rails(hca, shape)]
    told = f"{shape.name}: {len(found)} of {shape.devices} RDMA devices"
    said = [reading("rdma", f'links["{CLASS}/{hca.name}/device/driver"]?') for hca in found[:4]]
    if not found:
        return Finding.info(f"{told}: jobs over several nodes go over TCP", evidence=said)
    if len(found) < shape.devices:
        fix = Fix(
            "Start the machine again with all network interfaces of its type, or request another one; see "
            f"{shape.source}.",
            (look("rdma link"), look("lspci -nn")),
            "replace",
            "every job on this node",
            "nodedoctor cloud.profile",
        )
        return Finding.warn(told, evidence=said, fix=fix)
    missing = bool(shape.places) and plugins is not None and set(shape.places) <= set(plugins.absent)
    if missing:
        where = ", ".join(shape.places)
        return Finding.info(
            f"{told}; {shape.plugin} is not in {where}: the job's image must have it", evidence=said
        )
    return Finding.ok(told, evidence=said)
