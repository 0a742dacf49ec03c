"""Does NCCL get the topology file that this kind of rented machine needs?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.host.cloud_plugins import CloudPlugins
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.host.settings import Setting, Settings
from nodedoctor.knowledge.clouds import WHOLE, shape_of
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import look

_NAME = "NCCL_TOPO_FILE"
_IMAGES = "https://github.com/Azure/azhpc-images/tree/master/topology"


@check("cloud.topology", "NCCL's topology file", tags={"fast", "ib"}, without=(Container,), stage="preview")
def topology(
    machine: Machine, board: Board, settings: Settings, files: CloudPlugins, container: Container | None
) -> Iterator[Finding]:
    """NCCL_TOPO_FILE against the file that images for this kind of machine have.

    Azure's images for ND machines name theirs in /etc/nccl.conf.
    Why: in these virtual machines the PCI tree does not show which network adapter is near which GPU; without
    the file NCCL crosses the CPUs with every message.
    Fix disturbs: nothing; a job reads it at its start.
    Judges: WARN when NCCL_TOPO_FILE names a file that is not there, or ranks run without it and the image
    has one.
    Fix: Name the file in /etc/nccl.conf or in the job's environment.
    Threshold: Azure/azhpc-images, customizations/ndv5.sh, which writes file and /etc/nccl.conf; NVIDIA/nccl,
    src/graph/topo.cc: a file that cannot be opened is only warned of.
    False positives: A job that sets it later, in its own code: only what ranks were started with is seen.
    """
    shape = shape_of(machine.cloud or "", machine.product or "", board.model or "")
    if shape is None or not shape.topology or (board.on_bus or board.shown) < WHOLE:
        yield Finding.skip("no machine that needs a topology file")
        return
    if container is not None and container.inside:
        yield Finding.skip("a container has files of its own: its image must have the topology file")
        return
    there = [place for place in shape.topology if place in files.there]
    looked = {*files.there, *files.absent}
    topo_vars = [setting for setting in settings.all() if setting.name == _NAME]
    missing = [setting for setting in topo_vars if setting.value in files.absent]
    yield from (_lost_adapters(setting, there) for setting in missing)
    if missing:
        return
    if any(setting.value in there for setting in topo_vars):
        evidence = [setting.said for setting in topo_vars]
        yield Finding.ok(f"NCCL reads {topo_vars[0].value}", evidence=evidence)
    elif topo_vars:
        yield Finding.skip(f"{_NAME}={topo_vars[0].value} is not one of the image's, and is not looked at")
    elif not looked.issuperset(shape.topology):
        yield Finding.unknown("not-visible-here", "the image's topology file was not looked for")
    elif there and settings.ranks:
        yield Finding.warn(f"no rank has {_NAME}, and the image has {there[0]}", fix=_name_it(there))
    elif there:
        yield Finding.info(f"{_NAME} is not set here or in /etc/nccl.conf: jobs must set it to {there[0]}")
    else:
        yield Finding.info(
            f"this image has no topology file for {shape.name}: NCCL guesses what is near what"
        )


def _lost_adapters(setting: Setting, there: Sequence[str]) -> Finding:
    return Finding.warn(
        f"{_NAME}={setting.value}: no such file",
        subject=f"env:{_NAME}",
        evidence=[setting.said],
        fix=_name_it(there),
    )


def _name_it(there: Sequence[str]) -> Fix:
    file = there[0] if there else "the file for this kind of machine, from azhpc-images,"
    return Fix(
        f"Set {_NAME} to {file} in /etc/nccl.conf or in the job's environment.",
        (look("cat /etc/nccl.conf"), look("ls -l /opt/microsoft")),
        "restart-job",
        "the job",
        "nodedoctor cloud.topology",
        _IMAGES,
    )
