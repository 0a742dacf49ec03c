"""What other tools said of this node, where their outputs were pasted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from nodedoctor.declare.registry import fact
from nodedoctor.facts.verdicts import (
    bandwidth_test,
    bmc,
    cluster_lists,
    dcgm_health,
    docker_inspect,
    fabric_log,
    fabric_tables,
    gpu_burn,
    host_tools,
    inspector,
    kubernetes,
    kubernetes_pods,
    mlxlink,
    nccl_lines,
    node_messages,
    port_counters,
    priorities,
    process_list,
    scans,
)
from nodedoctor.facts.verdicts.verdict import Verdict
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import record

READERS: Mapping[str, Callable[[str], Iterator[Verdict]]] = {
    dcgm_health.PROBE: dcgm_health.verdicts,
    mlxlink.PROBE: mlxlink.verdicts,
    kubernetes.NODE: kubernetes.node,
    kubernetes.POD: kubernetes.pod,
    kubernetes_pods.PODS: kubernetes_pods.pods,
    cluster_lists.NODES: cluster_lists.nodes,
    cluster_lists.SINFO: cluster_lists.states,
    scans.GPUD: scans.gpud,
    scans.IBDIAGNET: scans.ibdiagnet,
    scans.VALIDATION: scans.validation,
    inspector.PROBE: inspector.verdicts,
    scans.NVRX: scans.nvrx,
    scans.NVCRE: scans.nvcre,
    fabric_tables.PROBE: fabric_tables.verdicts,
    fabric_log.PROBE: fabric_log.verdicts,
    port_counters.ERRORS: port_counters.fabric,
    port_counters.COUNTERS: port_counters.port,
    cluster_lists.REASONS: cluster_lists.reasons,
    priorities.COUNTERS: priorities.losses,
    process_list.PROBE: process_list.orphans,
    priorities.SETTINGS: priorities.lossless,
    bandwidth_test.PROBE: bandwidth_test.verdicts,
    bmc.PROBE: bmc.verdicts,
    docker_inspect.PROBE: docker_inspect.verdicts,
    gpu_burn.PROBE: gpu_burn.verdicts,
    host_tools.NUMA: host_tools.memory_by_node,
    host_tools.TIME: host_tools.time_sources,
    host_tools.ECC: host_tools.memory_errors,
    host_tools.DMON: host_tools.gpu_samples,
    node_messages.DEVICE_PLUGIN: node_messages.device_plugin,
    nccl_lines.PROBE: nccl_lines.verdicts,
    node_messages.HOST: node_messages.host,
}
MOST = 200
"""Statements that are kept of one output; ours."""


@fact(*READERS)
@record
class OtherTools:
    """What each of them says, in the order of its output."""

    verdicts: tuple[Verdict, ...]

    @classmethod
    def parse(cls, *observations: Observation) -> OtherTools | Unseen:
        """Read the outputs that were given; nothing applies where none was."""
        texts = [item for item in observations if item.answered and item.text.strip()]
        verdicts = tuple(verdict for item in texts for verdict in _read_verdicts(item))
        if verdicts:
            return cls(verdicts)
        return Unseen.of(texts[0]) if texts else Unseen.skip("no output of another health tool was given")


def _read_verdicts(observation: Observation) -> Iterator[Verdict]:
    for number, verdict in enumerate(READERS[observation.probe](observation.text)):
        if number < MOST:
            yield verdict
