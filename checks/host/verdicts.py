"""What do other health tools say, where their outputs were pasted?"""

import re
from collections.abc import Iterator, Mapping, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.cluster.slurm import SlurmNode
from nodedoctor.facts.gpu.gpu_list import ListedNames
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.verdicts import fabric_log, kubernetes_pods, nccl_lines, node_messages
from nodedoctor.facts.verdicts.verdict import Verdict
from nodedoctor.facts.verdicts.verdicts import OtherTools
from nodedoctor.knowledge.gpus import are_cards
from nodedoctor.model import Evidence, Finding, Fix, Step
from nodedoctor.nodeset import NodeSetError, expand
from nodedoctor.steps import last_resort, look, repair

_OF_SLURM = ("sinfo", "sinfo-reasons")
_LOOKS: Mapping[str, tuple[Step, ...]] = {
    "dcgm-health": (look("dcgmi health -c"), look("nodedoctor gpu")),
    "mlxlink": (look("nodedoctor ib"),),
    "kubernetes-node": (look("nvidia-smi -L"), look("sudo dmesg | grep -iE 'xid|nvrm'"), look("nodedoctor")),
    "kubernetes-nodes": (look("kubectl describe node"), look("nodedoctor")),
    "kubernetes-pod": (look("kubectl describe pod"), look("nodedoctor")),
    "sinfo": (look("sinfo -R -o '%E %u %H %N'"), look("nodedoctor")),
    "gpud-scan": (look("gpud scan"), look("nodedoctor")),
    "ibdiagnet": (look("nodedoctor ib"),),
    "health-validation": (look("nodedoctor"),),
    "ibdiagnet-csv": (look("nodedoctor ib"),),
    "ibqueryerrors": (look("nodedoctor ib"),),
    "perfquery": (look("nodedoctor ib"),),
    "fabric-manager-log": (look("systemctl status nvidia-fabricmanager"), look("nodedoctor fabric kernel")),
    "sinfo-reasons": (look("sinfo -R -o '%E %u %H %N'"), look("nodedoctor")),
    "nvrx-health": (look("nodedoctor"),),
    "nvcre-report": (look("nodedoctor"),),
    "bandwidth-test": (look("nvidia-smi -q -d PERFORMANCE"), look("nodedoctor pcie")),
    "ipmitool": (look("ipmitool sel elist"), look("ipmitool sdr elist")),
    "numactl": (look("sudo dmidecode -t memory"), look("lscpu")),
    "process-list": (look("sudo cat /proc/PID/stack"), look("nodedoctor driver.processes")),
    "priority-counters": (look("sudo mlnx_qos -i INTERFACE"), look("nodedoctor net.roce")),
    "docker-inspect": (look("df -h /dev/shm"), look("nodedoctor limits.shm")),
    "gpu-burn": (
        look("nvidia-smi -q -d ECC,ROW_REMAPPER,TEMPERATURE"),
        look("sudo dmesg | grep -iE 'xid|nvrm'"),
    ),
    "chronyc-sources": (look("chronyc tracking"), look("nodedoctor net.clock")),
    "edac": (look("nodedoctor kernel.memory"), look("sudo dmidecode -t memory")),
    "nvidia-smi-dmon": (look("nvidia-smi -q -d PERFORMANCE,POWER,CLOCK"), look("nodedoctor gpu")),
    "device-plugin": (look("nvidia-smi -q -d ECC,ROW_REMAPPER"), look("nodedoctor gpu kernel")),
    "host-messages": (look("sudo dmesg | grep -iE 'remount|I/O error|EXT4-fs|nvme' | tail -20"),),
}


@check(
    "tools.verdicts",
    "Verdicts of other health tools",
    tags={"deep"},
    without=(SlurmNode, ListedNames, Gpus),
)
def verdicts(
    tools: OtherTools, slurm: SlurmNode | None, gpu_list: ListedNames | None, gpus: Gpus | None
) -> Iterator[Finding]:
    """Pasted outputs of other tools that judge: dcgmi health, mlxlink, kubectl, gpud, ibdiagnet, NVRx ...

    Why: a tool reports a fault that the other outputs here need not show.
    Fix disturbs: nothing.
    Judges: FAIL and WARN as the tool does; gpud's and ibdiagnet's problems are a WARN, as their outputs name
    neither how bad they are nor this node.
    Fix: Run nodedoctor on the node, and compare what both say of the same device.
    Threshold: The tools' own.
    False positives: An output from before a repair.
    """
    names = {
        *(gpu_list.names if gpu_list else ()),
        *((gpu.name or "") for gpu in (gpus.gpus if gpus else ())),
    }
    cards = are_cards(names)
    for verdict in tools.verdicts:
        if cards and verdict.subject == fabric_log.NO_SWITCH and verdict.result == "warn":
            yield Finding.info(
                f"{_verdict_summary(verdict)}; these GPUs have none",
                subject=verdict.subject,
                evidence=_verdict_evidence(verdict),
            )
        elif slurm and verdict.probe in _OF_SLURM and not _has_node(verdict.subject, slurm.name):
            yield Finding.info(
                f"another node, {_verdict_summary(verdict)}", evidence=_verdict_evidence(verdict)
            )
        elif verdict.result in ("fail", "warn"):
            judge = Finding.fail if verdict.result == "fail" else Finding.warn
            finding = judge(
                _verdict_summary(verdict),
                subject=verdict.subject,
                evidence=_verdict_evidence(verdict),
                fix=_verdict_fix(verdict),
            )
            if verdict.subject == nccl_lines.NO_GPUDIRECT:
                finding = finding.explained_by(f"tools.verdicts@{_PEER_MODULE}")
            why = _fitting_text(_MATTERS, verdict)
            yield finding.matters_as(why) if why else finding
        elif verdict.result == "unknown":
            yield Finding.unknown(
                "not-visible-here",
                _verdict_summary(verdict),
                subject=verdict.subject,
                evidence=_verdict_evidence(verdict),
                fix=_verdict_fix(verdict),
            )
        elif verdict.result == "note":
            yield Finding.info(
                _verdict_summary(verdict), subject=verdict.subject, evidence=_verdict_evidence(verdict)
            )
        else:
            yield Finding.ok(
                _verdict_summary(verdict), subject=verdict.subject, evidence=_verdict_evidence(verdict)
            )


def _has_node(subject: str, name: str) -> bool:
    """Whether a statement of Slurm is about this node; what names none may be."""
    kind, _, names = subject.partition(":")
    try:
        return kind != "nodes" or name in expand(names)
    except NodeSetError:
        return True


def _verdict_summary(verdict: Verdict) -> str:
    return f"{verdict.tool}: {verdict.words}"


def _verdict_evidence(verdict: Verdict) -> list[Evidence]:
    return [Evidence(verdict.probe, verdict.quote)] if verdict.quote else []


_CABLE = (
    "Reseat, clean or replace the cable or transceiver, then try another switch port. Clear the counters "
    "(perfquery -R) and read them again under load."
)
_ADVICE = (
    (
        "bandwidth-test",
        "",
        "See whether its PCIe link has all lanes at full speed and the test ran on near CPUs; else reseat "
        "the card or riser.",
    ),
    ("perfquery", "", _CABLE),
    ("ibqueryerrors", "", _CABLE),
    (
        "ipmitool",
        r"Power Supply|Power Unit|\bPSU?\d|AC lost|[Rr]edundancy",
        "Check the cord, the PDU and the circuit of that power supply; replace the supply if it stays.",
    ),
    ("ipmitool", r"(?i:fan|temp|thermal)", "Check fans, filters and airflow."),
    ("ipmitool", r"(?i:memory|dimm|ecc)", "Replace the DIMM that the event log names."),
    (
        "process-list",
        "",
        "No signal ends it, and its memory stays in use: drain the node and reboot it.",
    ),
    (
        "priority-counters",
        r"checksum|physical coding|link went down",
        "Reseat, clean or replace the cable or transceiver, then try another switch port; count again under "
        "load.",
    ),
    (
        "docker-inspect",
        "",
        "Start the container again with --ipc=host or a larger --shm-size (NVIDIA's images name 1 GiB).",
    ),
    (
        "gpu-burn",
        "",
        "Drain the node, and run it again on that GPU alone; return the GPU if it computes wrongly again.",
    ),
    (
        "priority-counters",
        "",
        "Use the same lossless priority (PFC, ECN) and trust mode on all adapters and on the switch.",
    ),
    (
        "numactl",
        "",
        "Reseat or replace the DIMMs that dmidecode does not list, and see the BIOS's memory errors.",
    ),
    (
        "kubernetes-node",
        r"^DiskPressure ",
        "Free the file system of images or pods: old images, logs, emptyDir volumes; the events say which.",
    ),
    (
        "kubernetes-node",
        r"^(?:Memory|PID)Pressure ",
        "Find what uses it up: processes outside of pods, and pods without a limit.",
    ),
    (
        "kubernetes-pods",
        r"Image|Pull",
        "Correct the image's name, tag or pull secret, or the way to the registry: see the pod's events.",
    ),
    (
        "kubernetes-pods",
        r"CrashLoop|Error",
        "Read the last log of that pod's containers: it says why it ends. Of the driver: a kernel without "
        "headers, a driver on the host, a module in use, Secure Boot.",
    ),
    ("kubernetes-pods", "", "See the pod's events and its init container: it says what it waits for."),
    (
        "kubernetes-node",
        r"nvidia\.com/gpu",
        "Find the GPU that the device plugin counts as unhealthy: by its log, nvidia-smi -L and the kernel's "
        "log on that node.",
    ),
)
"""What to do by the tool and its words, the first row that fits."""


_SENT_AGAIN = "What a link loses or damages is sent again, and every rank of the collective waits for it."
_MATTERS = (
    ("kubernetes-node", r"nvidia\.com/gpu", "A pod that needs all GPUs of a node never starts on this one."),
    ("kubernetes-node", r"^\w+Pressure ", "The kubelet evicts pods, and no new one starts here until then."),
    (
        "host-messages",
        "does not fit the RDMA stack",
        "Without nvidia_peermem or DMA-BUF adapters do not reach GPU memory.",
    ),
    ("kubernetes-node", r"^Ready ", "Kubernetes starts no pod on a node that is not ready, and evicts pods."),
    ("kubernetes-nodes", "", "Kubernetes starts no pod on a node that is not ready, and evicts pods."),
    (
        "kubernetes-pods",
        "driver|toolkit|device-plugin",
        "Without it no pod on that node gets a GPU; the components behind it wait.",
    ),
    (
        "fabric-manager-log",
        "",
        "Without the fabric manager every CUDA program on NVSwitches fails (error 802).",
    ),
    ("numactl", "", "Processes of that socket use the other's memory, at about half the bandwidth."),
    ("perfquery", "", _SENT_AGAIN),
    ("ibqueryerrors", "", _SENT_AGAIN),
    ("priority-counters", "", _SENT_AGAIN),
    ("docker-inspect", "", "NCCL and data loaders exchange data there; when it is full, they fail."),
    ("gpu-burn", "", "Wrong numbers raise no error, and ruin every model that is trained with this GPU."),
    ("process-list", "", "It keeps its GPU's memory, and the next job on this GPU runs out of it."),
    ("nccl-lines", "", "Without GPUDirect RDMA each byte between nodes is copied through host memory."),
)
"""Why it matters, by the tool and its words, the first row that fits."""


def _fitting_text(rows: Sequence[tuple[str, str, str]], verdict: Verdict) -> str:
    texts = (
        text for probe, pattern, text in rows if probe == verdict.probe and re.search(pattern, verdict.words)
    )
    return next(texts, "")


_OTHER_VERSION = Fix(
    "Install the fabric manager of the driver's exact version, then start it.",
    (
        look("cat /proc/driver/nvidia/version"),
        look("nodedoctor fabric.version"),
        last_resort(
            "sudo systemctl restart nvidia-fabricmanager",
            when="the matching version is installed and no job runs on this node",
            disturbs="every job on the board's GPUs",
        ),
    ),
    "config",
    "every job on the board's GPUs",
    "nodedoctor fabric",
)


_MODULE = Fix(
    "Build the module for the kernel that runs, or boot the one that it was built for; where Secure Boot "
    "is on, sign it with a key that mokutil has enrolled.",
    (
        look("dkms status"),
        look("uname -r"),
        look("mokutil --sb-state"),
        repair("sudo dkms autoinstall", when="dkms has no module for this kernel"),
    ),
    "config",
    "nothing: no program can use the GPUs until then",
    "nodedoctor driver",
)


_PASS_THROUGH = Fix(
    "On bare metal boot with iommu=pt added to the kernel's command line.",
    (look("nodedoctor pcie.iommu"), look("systemd-detect-virt")),
    "config",
    "every job on this node (reboot)",
    "nodedoctor pcie.iommu",
)


_PEER_MODULE = f"module:{node_messages.PEER_MEMORY}"
_PEER_BUILD = Fix(
    "Install MLNX_OFED or DOCA first and the driver after it, so that the module is built for that stack; or "
    "use the open kernel module with DMA-BUF, which needs no nvidia_peermem.",
    (
        look("sudo dmesg | grep -iE 'peermem|symbol'"),
        look("ofed_info -s"),
        look("modinfo nvidia_peermem"),
    ),
    "config",
    "nothing",
    "nodedoctor ib.gdr",
    "https://docs.nvidia.com/cuda/gpudirect-rdma/",
)
_PEER_MEMORY = Fix(
    "Load nvidia_peermem, or use the open kernel module with DMA-BUF, and restart the job; see also whether "
    "NCCL_NET_GDR_LEVEL or NCCL_NET_GDR_READ is set.",
    (
        look("lsmod | grep peermem"),
        look("env | grep NCCL"),
        repair("sudo modprobe nvidia_peermem", when="it is not loaded"),
    ),
    "config",
    "nothing",
    "nodedoctor ib.gdr",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)


_PRESSURE: Mapping[str, tuple[Step, ...]] = {
    "Disk": (look("df -h"), look("df -i"), look("sudo crictl images"), look("sudo du -xh -d 2 /var/lib")),
    "Memory": (look("free -h"), look("kubectl top pods -A --sort-by=memory")),
    "PID": (look("ps -eo user= | sort | uniq -c | sort -n | tail"),),
}
"""Where to look by what a node lacks."""


def _verdict_fix(verdict: Verdict) -> Fix:
    if verdict.subject == nccl_lines.NO_GPUDIRECT:
        return _PEER_MEMORY
    if verdict.subject == fabric_log.OTHER_VERSION:
        return _OTHER_VERSION
    if verdict.subject == _PEER_MODULE and "RDMA stack" in verdict.words:
        return _PEER_BUILD
    if verdict.subject.startswith("module:"):
        return _MODULE
    if verdict.subject == "parameter:iommu":
        return _PASS_THROUGH
    steps = _LOOKS.get(verdict.probe, ())
    if verdict.probe == "kubernetes-node" and "Pressure is" in verdict.words:
        steps = _PRESSURE.get(verdict.words.partition("Pressure")[0], steps)
    if verdict.probe == kubernetes_pods.PODS:
        pod = verdict.subject.partition(":")[2]
        steps = (
            look("kubectl logs --previous --all-containers -n gpu-operator {}", pod),
            look("kubectl describe pod -n gpu-operator {}", pod),
        )
    advice = f"Run nodedoctor on the node, and compare what it and {verdict.tool} say of the same device."
    text = _fitting_text(_ADVICE, verdict) or advice
    return Fix(text, steps, "investigate", "nothing", "nodedoctor")
