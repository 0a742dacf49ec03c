"""May this job use the processors next to its GPUs?"""

from collections.abc import Iterator

from nodedoctor.engine.registry import check
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.topology import TOPO, Topology
from nodedoctor.facts.host.limits import Limits
from nodedoctor.facts.host.numa import Numa, cpu_list, cpu_text
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.steps import look, repair

from ..unavailable import numbers

_BALANCING = Fix(
    "Switch it off while training: it moves pages about that were placed well, and stalls who uses them.",
    (repair("sudo sysctl -w kernel.numa_balancing=0"),),
    "config",
    "nothing",
    "nodedoctor topo.numa",
    "https://docs.kernel.org/admin-guide/sysctl/kernel.html#numa-balancing",
)
_CPUSET = Fix(
    "Give the job processors of the socket its GPUs are on: in Slurm --gpus-per-node with --gpu-bind=closest "
    "and "
    "enough --cpus-per-gpu, in Docker --cpuset-cpus, in Kubernetes the topology manager.",
    (
        look("nvidia-smi topo -m"),
        look("cat /sys/fs/cgroup/cpuset.cpus.effective"),
        look("lscpu -e=cpu,node,socket"),
    ),
    "restart-job",
    "this job: it has to be started anew",
    "nodedoctor topo.numa",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ignore-cpu-affinity",
)


@check("topo.numa", "This job may use the processors next to its GPUs", tags={"gpu"}, stage="preview")
def numa(
    gpus: Gpus, topology: Topology | None, limits: Limits | None, numa: Numa | None
) -> Iterator[Finding]:
    """CPU affinity of each GPU against the processors our control group gives us; NUMA balancing.

    Why: a loader on the other socket copies every batch across it, and launches kernels late.
    Fix disturbs: the job, which has to be started anew.
    Judges: WARN when none of the job's processors is next to a GPU; a note when NUMA balancing is on.
    Fix: Bind the job to the processors of its GPUs' socket.
    Threshold: NCCL documentation and set-up guides of GPU nodes.
    False positives: Jobs that share the node and were given processors on purpose.
    """
    near = _affinity(gpus, topology)
    source = gpus.source if any(gpu.cpu_affinity for gpu in gpus.gpus) else TOPO
    if numa is not None and len([node for node in numa.nodes if node.cpus]) == 1:
        yield Finding.skip("all processors are in one NUMA node")
        return
    if not near:
        yield Finding.skip("no GPU tells which processors are next to it (usual in virtual machines)")
        return
    allowed = set(cpu_list(limits.cgroup.cpus)) if limits and limits.cgroup.cpus else set()
    far = {index: cpus for index, cpus in near.items() if allowed and not allowed & set(cpus)}
    if far:
        said = [Evidence("limits", f"processors of this control group: {cpu_text(tuple(sorted(allowed)))}")]
        said += [
            Evidence(source, f"GPU {index}: CPU affinity {cpu_text(cpus)}") for index, cpus in far.items()
        ]
        summary = f"none of this job's processors is next to GPU {numbers(far)}"
        yield Finding.warn(summary, evidence=said, fix=_CPUSET)
    groups = len(set(near.values()))
    if limits and limits.sysctl.get("kernel.numa_balancing") == 1 and (numa is None or len(numa.nodes) > 1):
        summary = (
            f"NUMA balancing is on; {len(near)} GPUs on {groups} set{'s' if groups > 1 else ''} of processors"
        )
        yield Finding.info(summary, fix=_BALANCING)
    elif not far:
        seen = "" if allowed else "; which of them this job may use was not told"
        yield Finding.ok(
            f"{len(near)} GPUs next to {groups} set{'s' if groups > 1 else ''} of processors{seen}"
        )


def _affinity(gpus: Gpus, topology: Topology | None) -> dict[int, tuple[int, ...]]:
    """The processors next to each GPU, from the driver, else from the matrix."""
    told = {gpu.index: cpu_list(gpu.cpu_affinity) for gpu in gpus.gpus if gpu.cpu_affinity}
    if not told and topology:
        rows = topology.affinity.items()
        told = {int(name.removeprefix("GPU")): cpu_list(row.get("cpus", "")) for name, row in rows}
    return {index: cpus for index, cpus in told.items() if cpus}
