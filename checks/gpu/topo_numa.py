"""May this job use the processors next to its GPUs?"""

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.evidence import values
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.topology import TOPO, Topology
from nodedoctor.facts.host.limits import Limits
from nodedoctor.facts.host.numa import Numa, cpu_list
from nodedoctor.model import Evidence, Finding, Fix, quoted_like
from nodedoctor.steps import look, repair
from nodedoctor.wording import count_with_noun, numbered

_BALANCING = Fix(
    "Disable NUMA balancing for training: it moves pages that were placed well, and stalls their users.",
    (repair("sudo sysctl -w kernel.numa_balancing=0"),),
    "config",
    "nothing",
    "nodedoctor topo.numa",
    "https://docs.kernel.org/admin-guide/sysctl/kernel.html#numa-balancing",
)
_CPUSET = Fix(
    "Give the job CPUs on the socket of its GPUs: in Slurm --gpus-per-node with --gpu-bind=closest and "
    "enough --cpus-per-gpu, in Docker --cpuset-cpus, in Kubernetes the topology manager.",
    (
        look("nvidia-smi topo -m"),
        look("cat /sys/fs/cgroup/cpuset.cpus.effective"),
        look("lscpu -e=cpu,node,socket"),
    ),
    "restart-job",
    "this job (it must be restarted)",
    "nodedoctor topo.numa",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ignore-cpu-affinity",
)


@check("topo.numa", "CPU affinity (NUMA)", tags={"gpu"}, stage="preview")
def numa(
    gpus: Gpus, topology: Topology | None, limits: Limits | None, numa: Numa | None
) -> Iterator[Finding]:
    """CPU affinity of each GPU against the CPUs of our cgroup; NUMA balancing.

    Why: a data loader on the other socket copies every batch across sockets, and kernel launches are late.
    Fix disturbs: the job (it must be restarted).
    Judges: WARN when none of the job's processors is next to a GPU; a note when NUMA balancing is on.
    Fix: Bind the job to the processors of its GPUs' socket.
    Threshold: NCCL documentation and set-up guides of GPU nodes.
    False positives: Jobs that share the node and were given processors on purpose.
    """
    near = _gpu_affinity(gpus, topology)
    source = gpus.source if any(gpu.cpu_affinity for gpu in gpus.gpus) else TOPO
    if numa is not None and len([node for node in numa.nodes if node.cpus]) == 1:
        yield Finding.skip("all CPUs are in one NUMA node")
        return
    if not near:
        yield Finding.skip("no GPU reports its nearest CPUs (usual in virtual machines)")
        return
    allowed = set(cpu_list(limits.cgroup.cpus)) if limits and limits.cgroup.cpus else set()
    far = {index: cpus for index, cpus in near.items() if allowed and not allowed & set(cpus)}
    if far:
        evidence = limits.cgroup.said("cpus") if limits else []
        evidence += [quote for index in far for quote in _near_said(gpus, source, index)]
        summary = f"none of this job's CPUs is near {numbered('GPU', far)}"
        yield Finding.warn(summary, evidence=evidence, fix=_CPUSET)
    groups = len(set(near.values()))
    if limits and limits.sysctl.get("kernel.numa_balancing") == 1 and (numa is None or len(numa.nodes) > 1):
        summary = (
            f"NUMA balancing is on; {count_with_noun(len(near), 'GPU')} on "
            f"{count_with_noun(groups, 'set')} of CPUs"
        )
        yield Finding.info(summary, fix=_BALANCING)
    elif not far:
        note = "" if allowed else "; this job's CPUs were not reported"
        yield Finding.ok(
            f"{count_with_noun(len(near), 'GPU')} near {count_with_noun(groups, 'set')} of CPUs{note}"
        )


def _near_said(gpus: Gpus, source: str, index: int) -> list[Evidence]:
    """What was said of the processors next to a GPU."""
    if source == TOPO:
        return [quoted_like(TOPO, rf"^[ \t]*(GPU{index}[ \t]+(?!GPU|NIC|mlx|CPU).*\S)")]
    return [quote for gpu in gpus.gpus if gpu.index == index for quote in values(source, gpu, "cpu_affinity")]


def _gpu_affinity(gpus: Gpus, topology: Topology | None) -> dict[int, tuple[int, ...]]:
    """The processors next to each GPU, from the driver, else from the matrix."""
    affinity = {gpu.index: cpu_list(gpu.cpu_affinity) for gpu in gpus.gpus if gpu.cpu_affinity}
    if not affinity and topology:
        rows = topology.affinity.items()
        affinity = {int(name.removeprefix("GPU")): cpu_list(row.get("cpus", "")) for name, row in rows}
    return {index: cpus for index, cpus in affinity.items() if cpus}
