"""The GPUs of a machine that may have a Grace CPU."""

from __future__ import annotations

from nodedoctor.declare.registry import fact
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.machine import Machine
from nodedoctor.model import Unseen
from nodedoctor.record import record

_X86 = ("x86_64", "i686")


@fact(Gpus, Machine, shown=False)
@record
class GraceGpus:
    """The node's GPUs where the CPU may be Grace; on x86 there is none, whatever the driver shows."""

    gpus: Gpus

    @classmethod
    def parse(cls, gpus: Gpus | Unseen, machine: Machine | Unseen) -> GraceGpus | Unseen:
        """The GPUs as they were read, or why there are none to speak of."""
        if isinstance(machine, Machine) and machine.arch in _X86:
            return Unseen.skip("no Grace CPU: this is an x86 host")
        return gpus if isinstance(gpus, Unseen) else cls(gpus)
