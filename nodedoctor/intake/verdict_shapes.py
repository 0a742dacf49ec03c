"""Outputs of tools that judge a node, a port or a fabric, and of RDMA bandwidth tests."""

from __future__ import annotations

from nodedoctor.facts.verdicts import nccl_lines
from nodedoctor.facts.verdicts.kubernetes_pods import COMPONENT, STATE
from nodedoctor.facts.verdicts.nccl_lines import NO_GPUDIRECT_LINE
from nodedoctor.intake.shape import FRONT, Shape, by_head, by_lines

JSON_LINE = r"\s*[\"{}\[\]\d-]|\s+(?:true|false|null)\b"
"""Lines of a document with one value a line."""
_OPEN = r"(?:\{\s{0,20})?"
"""The bracket in front of the first key, where both are on one line."""

DCGM = "NVIDIA/DCGM 2.4 to 4.5"
RDMA_CORE = "linux-rdma/rdma-core 17 to 60"
KUBECTL = "kubernetes/kubectl 1.10 to 1.35, pkg/describe/describe.go"
POD_ROWS = "kubernetes/kubernetes 1.10 to 1.35, pkg/printers/internalversion/printers.go (printPod)"
IMEX = "NVIDIA's IMEX guide, R550 to R590"
_DESCRIBED = r"\s+\S|[A-Z][\w -]{1,30}:"
"""Lines of `kubectl describe`: headings and keys at one margin, their values further in."""

NCCL_LINES = by_lines(
    ("GPU Direct RDMA Disabled for HCA",),
    rf"^(?P<front>){NO_GPUDIRECT_LINE.pattern.removeprefix('^')}[^\n]*$",
    "what NCCL says of its paths",
    nccl_lines.PROBE,
    "NVIDIA/nccl 2.8 to 2.29, src/transport/net_ib",
    tool="NCCL_DEBUG=INFO",
)
"""Lines of a job's log: they stay in it, and tell of the node, too."""

VERDICT_SHAPES: tuple[Shape, ...] = (
    by_head(
        '"Id"',
        r"(?:\[\s{0,40})?(?:\{\s{0,40})?\"Id\"\s{0,4}:\s{0,4}\"[\da-f]{64}\",\s{0,40}\"Created\"",
        "docker inspect",
        "docker-inspect",
        "docker 17 to 29, podman 3 to 5",
        tool="docker inspect CONTAINER",
        body=JSON_LINE,
        first=True,
        joins=True,
    ),
    by_head(
        ("Burning for ", "proc'd: ", "GPUs:", "GPU:", ": FAULTY"),
        r"(?:Burning for \d{1,9} seconds\.|\d{1,3}\.\d%[ \t]{1,9}proc'd: \d|Tested \d{1,3} GPUs?:[ \t]{0,9}\n"
        r"|GPU \d{1,3}: FAULTY[ \t]{0,9}(?:\n|$))",
        "gpu-burn",
        "gpu-burn",
        "wilicc/gpu-burn 0.4 to 1.1, gpu_burn-drv.cpp",
        tool="gpu_burn -tc 300",
        body=r"\s*(?:Burning for|Initialized device|Results are|Using compare|\d{1,3}\.\d%|Summary at"
        r"|Killing processes|Freed memory|Uninitted|Tested \d|done$|(?:\d{1,3}:)?No clients|GPU \d{1,3}: )",
        joins=True,
    ),
    by_head(
        "[CUDA Bandwidth Test]",
        r"\[CUDA Bandwidth Test\] - Starting",
        "bandwidthTest",
        "bandwidth-test",
        "NVIDIA/cuda-samples 9 to 12.8, Samples/1_Utilities/bandwidthTest",
        tool="bandwidthTest --memory=pinned --device=N",
        body=r"\s*(?:Running on|Device \d|(?:Quick|Range|Shmoo) Mode|(?:Host|Device) to (?:Host|Device) Bandw"
        r"|(?:PINNED|PAGEABLE) Memory|Transfer Size|\d{4,12}\s+\d|Result = |NOTE: )",
        joins=True,
    ),
    by_head(
        ('"DCGM GPU Diagnostic"', '"DCGM Diagnostic"'),
        _OPEN + r'"DCGM (?:GPU )?Diagnostic"\s{0,4}:',
        "dcgmi diag as JSON",
        "dcgmi-diag",
        f"{DCGM}, dcgmi/Diag.cpp (HelperJsonBuildOutput)",
        tool="dcgmi diag -r 2 -j",
        body=JSON_LINE,
        first=True,
    ),
    by_head(
        "Health Monitor Report",
        r"\|\s{0,4}Health Monitor Report\s{0,80}\|",
        "dcgmi health",
        "dcgm-health",
        f"{DCGM}, dcgmi/Health.cpp",
        tool="dcgmi health -c",
        body=r"\s*[|+]",
        first=True,
    ),
    by_head(
        "Overall Health ",
        r"\|\s{0,4}Overall Health\s{0,60}[:|]",
        "a part of dcgmi health",
        "dcgm-health",
        f"{DCGM}, dcgmi/Health.cpp",
        tool="dcgmi health -c",
        body=r"\s*[|+]",
    ),
    by_head(
        '"body"',
        _OPEN
        + r'"body"\s{0,4}:\s{0,40}\{\s{0,40}"(?:Overall Health|GPU\w{0,4}|Nv?[sS]witch|CPU(?: Core)?|Link'
        r"|ConnectX|VGPU)\"",
        "dcgmi health as JSON",
        "dcgm-health",
        f"{DCGM}, dcgmi/Health.cpp and DcgmiOutput.cpp",
        tool="dcgmi health -c -j",
        body=JSON_LINE,
        first=True,
    ),
    by_head(
        "Operational Info",
        r"Operational Info\s{0,20}\n[^\n]{0,40}?-{10,30}",
        "mlxlink",
        "mlxlink",
        "Mellanox/mstflint 4.15 to 4.34, mlxlink/modules/mlxlink_commander.cpp",
        tool="sudo mlxlink -d DEVICE",
        body=r"\s*[-A-Z][\w ()./\[\]-]{0,60}\s*(?::|$)|-{5,}|\s*Supported |\s*Errors|\s*Warnings",
        first=True,
        joins=True,
    ),
    by_head(
        '"Operational Info"',
        r'"Operational Info"\s{0,4}:',
        "mlxlink as JSON",
        "mlxlink",
        "Mellanox/mstflint 4.15 to 4.34, mlxlink/modules/printutil/mlxlink_cmd_print.cpp",
        tool="sudo mlxlink -d DEVICE --json",
        body=JSON_LINE,
        first=True,
        joins=True,
    ),
    by_head(
        "BW Test",
        r"(?:Send|RDMA_Read|RDMA_Write\w{0,8})(?: Bidirectional)?(?: Post List)? BW Test\b",
        "ib_write_bw and its like",
        "ib-write-bw",
        "linux-rdma/perftest 4.4 to 25.10, src/perftest_parameters.c and .h",
        tool="ib_write_bw -d DEVICE --report_gbits",
        body=r"\s*(?:-{5,}|#bytes|\d{1,12}\s+\d|(?:local|remote) address|\w[\w ,.\[\]]{0,40} ?: |\* )",
        first=True,
        joins=True,
    ),
    by_head(
        ("kubernetes.io/hostname=", "Roles:"),
        r"(?:Name:[ \t]{1,40}(?P<host>[\w.-]{1,64})[ \t]{0,20}\n[^\n]{0,80}?)?Roles:[ \t]{1,40}\S",
        "kubectl describe node",
        "kubernetes-node",
        KUBECTL,
        tool="kubectl describe node NODE",
        body=rf"{_DESCRIBED}|\.{{3,8}}$",
        first=True,
    ),
    by_head(
        ("Capacity:", "Allocatable:", "Conditions:"),
        r"(?:Conditions:[ \t]{0,20}\n[^\n]{0,80}?Type[ \t]{1,40}Status[ \t]{1,40}LastHeartbeatTime"
        r"|(?:Capacity|Allocatable):[ \t]{0,20}\n[^\n]{0,80}?\b(?:cpu|nvidia\.com/[\w.-]{1,40}):[ \t])",
        "a part of kubectl describe node",
        "kubernetes-node",
        KUBECTL,
        tool="kubectl describe node NODE",
        body=_DESCRIBED,
    ),
    by_lines(
        ("Pressure ", "Ready ", "Unavailable ", "Problem ", "Deadlock ", "Filesystem ", "Unhealthy "),
        FRONT + r"[ \t]{0,12}[A-Z]\w{2,60}[ \t]{1,60}(?:True|False|Unknown)[ \t]{1,40}"
        r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} [+-]\d{4}[ \t][^\n]{1,800}$",
        "conditions of kubectl describe node",
        "kubernetes-node",
        KUBECTL,
        tool="kubectl describe node NODE",
        body=r"(?:Capacity|Allocatable):$|\s+\S",
    ),
    by_head(
        ("Name: ", "Name:\t"),
        r"Name:[ \t]{1,40}[\w.-]{1,253}[ \t]{0,20}\n[^\n]{0,80}?Namespace:[ \t]{1,40}\S",
        "kubectl describe pod",
        "kubernetes-pod",
        KUBECTL,
        tool="kubectl describe pod POD",
        body=_DESCRIBED,
        first=True,
    ),
    by_head(
        ("RESTARTS",),
        r"(?:NAMESPACE[ \t]{1,60})?NAME[ \t]{1,300}READY[ \t]{1,60}STATUS[ \t]{1,60}RESTARTS[^\n]{0,200}\n"
        rf"(?:[^\n]{{0,500}}\n){{0,3}}?[^\n]{{0,160}}?\b{COMPONENT}[ \t]{{1,200}}{STATE}",
        "kubectl get pods",
        "kubernetes-pods",
        POD_ROWS,
        tool="kubectl get pods -n gpu-operator -o wide",
        body=rf"(?:[a-z][\w-]{{0,62}}[ \t]{{1,60}})?[a-z\d][\w.-]{{2,252}}[ \t]{{1,200}}{STATE}",
        first=True,
    ),
    by_lines(
        ("nvidia-", "gpu-", "dcgm-", "mofed-", "network-operator"),
        rf"{FRONT}[ \t]{{0,8}}(?:[a-z][\w-]{{0,62}}[ \t]{{1,60}})?{COMPONENT}[ \t]{{1,200}}{STATE}"
        r"(?:[ \t][^\n]{0,300})?$",
        "rows of kubectl get pods",
        "kubernetes-pods",
        POD_ROWS,
        tool="kubectl get pods -n gpu-operator -o wide",
    ),
    by_head(
        ("STATUS",),
        r"NAME[ \t]{1,300}STATUS[ \t]{1,60}ROLES[ \t]{1,60}AGE[ \t]{1,30}VERSION\b",
        "kubectl get nodes",
        "kubernetes-nodes",
        "kubernetes/kubernetes 1.16 to 1.35, pkg/printers/internalversion/printers.go (printNode)",
        body=r"[a-z\d][\w.-]{0,252}[ \t]{1,300}(?:Not)?(?:Ready|Unknown)\b",
        first=True,
    ),
    by_head(
        ("NODELIST",),
        r"PARTITION[ \t]{1,40}AVAIL[ \t]{1,40}TIMELIMIT[ \t]{1,40}NODES[ \t]{1,40}STATE[ \t]{1,40}NODELIST",
        "sinfo",
        "sinfo",
        "Slurm 18.08 to 25.11, src/sinfo/sinfo.c",
        body=r"[\w.*+-]{1,64}[ \t]{1,40}(?:up|down|drain|inact)[ \t]",
        first=True,
    ),
    by_head(
        ("NODELIST",),
        r"NODELIST[ \t]{1,60}(?:NODES[ \t]{1,40}PARTITION[ \t]{1,40})?STATE\b",
        "sinfo -N",
        "sinfo",
        "Slurm 18.08 to 25.11, src/sinfo/sinfo.c",
        body=r"[A-Za-z][\w.,[\]-]{0,200}[ \t]{1,60}(?:\d{1,6}[ \t]{1,40}[\w.*+-]{1,64}[ \t]{1,40})?"
        r"[a-z_]{2,20}[*~#!%$@^+-]{0,3}(?:[ \t]|$)",
        first=True,
    ),
    by_head(
        ("machine info", "scanning the host"),
        "(?:[\u2714\u2718] machine info|\u231b scanning the host)",
        "gpud scan",
        "gpud-scan",
        "leptonai/gpud 0.1 to 0.9, pkg/scan/scan.go",
        body="\\s*[\u2714\u2718\u231b|+{\\[]|\\s+\\S",
    ),
    by_head(
        ("-I- Stage", "Stage  "),
        r"(?:-I- )?Stage[ \t]{2,60}Warnings[ \t]{1,40}Errors\b",
        "ibdiagnet",
        "ibdiagnet",
        "ibdiagnet2.log of MLNX_OFED and UFM: the table at its end",
        tool="sudo ibdiagnet",
        body=r"(?:-[IWE]- )|[A-Z][\w /()&-]{1,40}\s{2,}\d",
        first=True,
    ),
    by_head(
        '"affected_components"',
        _OPEN + r'"affected_components"\s{0,4}:\s{0,40}\[',
        "NVIDIA Health Validation",
        "health-validation",
        "docs.nvidia.com/health-validation/reference/verdict-schema",
        tool="health-validation",
        body=JSON_LINE,
        first=True,
    ),
    by_head(
        "START_",
        r"START_(?:NODES|PORTS|LINKS|NODES_INFO|PM_INFO|CABLE_INFO|PM_DELTA|GENERAL_INFO_\w{1,20}"
        r"|(?:ERRORS|WARNINGS)_[A-Z0-9_()]{2,60})"
        r"[ \t]{0,20}\n[^\n]{0,160}?[A-Za-z]\w{1,40},",
        "the tables of ibdiagnet",
        "ibdiagnet-csv",
        "ibdiagnet2.db_csv of MLNX_OFED 4 to 24 and UFM: sections between START_ and END_",
        tool="sudo ibdiagnet (ibdiagnet2.db_csv)",
        body=r"(?:START|END)_[A-Z0-9_()]{2,60}\s*$|[^,\n]{1,200},",
        joins=True,
    ),
    by_head(
        '"categories"',
        r'"categories"\s{0,4}:\s{0,4}\[[ \t]{0,9}(?:\n[^\n]{0,160}?)?\{[ \t]{0,9}'
        r'(?:\n[^\n]{0,160}?)?"domain"',
        "a report of NVIDIA Cluster Readiness Engine",
        "nvcre-report",
        "NVIDIA/cluster-readiness-engine 0.7 to 0.13, pkg/report (CertReport)",
        tool="nvcrectl certification report NAME",
        body=JSON_LINE,
        first=True,
    ),
    by_lines(
        (
            "to recover.",
            "to be drained.",
            "Operating at reduced",
            "NVL link ",
            "link down counter",
            "recovery action status",
            "Health checks disabled: GPU",
        ),
        r"^(?P<front>[^\n]{0,160}?)"
        r"(?:GPU \d{1,3}(?:: (?:Requires (?:a reset|a node reboot|peer-to-peer traffic) to "
        r"|Operating at reduced capacity\. |NVL link \d{1,2} is in DISABLED|Unknown recovery action status: )"
        r"| NIC/IB \S{1,40} link down counter has been incremented: )|Health checks disabled: GPU driver )"
        r"[^\n]*$",
        "the health checks of NVRx",
        "nvrx-health",
        "NVIDIA/nvidia-resiliency-ext 0.4 to 0.7, shared_utils/health_check.py",
        tool="the log of ft_launcher, or of the in-process wrapper",
    ),
    by_lines(
        ("] [tid ", "fabricmanager[", "nvidia-fabricmanager-start.sh[", "systemd["),
        r"^(?P<front>[^\n]{0,160}?)"
        r"(?:\[[A-Z][a-z]{2} \d\d \d{4} [\d:]{8}\] \[[A-Z]{4,8}\] \[tid \d{1,10}\] "
        r"|(?:nv-fabricmanager|nvidia-fabricmanager-start\.sh)\[\d{1,10}\]: "
        r"|systemd\[\d{1,10}\]: (?:[A-Z][a-z]{2,12} (?:to start )?)?"
        r"(?:nvidia-fabricmanager|NVIDIA [Ff]abric [Mm]anager))[^\n]*$",
        "the fabric manager's log",
        "fabric-manager-log",
        "NVIDIA fabric manager user guide, R450 to R590",
        tool="sudo tail -50 /var/log/fabricmanager.log",
        body=r"Message payload details:|[^\n]{0,60}nvidia-fabricmanager\.service: ",
    ),
    by_head(
        "Connectivity Table Legend:",
        r"Connectivity Table Legend:",
        "the legend of nvidia-imex-ctl -N",
        "",
        IMEX,
        body=r"\d\d?/\d\d?/\d{4} [\d:]|(?:[INRDAC]|![VM]!) - ",
    ),
    by_head(
        "Nodes:",
        r"Nodes:[ \t]{0,9}\n[^\n]{0,80}?Node #\d{1,4}[ \t]{1,9}[-*] \S",
        "nvidia-imex-ctl -N",
        "imex-domain",
        IMEX,
        body=r"\s+(?:Nodes|\d)|Node #|Domain State:",
        first=True,
    ),
    by_head(
        ("Node #", "Domain State: "),
        r"(?:Node #\d{1,4}\s{1,9}[-*] \S{1,255}(?: \*)?\s{1,40}- [A-Z_]{2,40}\s{1,40}- Version: "
        r"|Domain State: [A-Z_]{2,40}[ \t]{0,9}(?:\n|$))",
        "a part of nvidia-imex-ctl -N",
        "imex-domain",
        IMEX,
        tool="nvidia-imex-ctl -N",
        body=r"\s+(?:Nodes|\d)|Node #|Domain State:",
    ),
    by_head(
        ("Troubleshooting Info", "Physical Counters and BER Info"),
        r"(?:Troubleshooting Info|Physical Counters and BER Info)\s{0,20}\n[^\n]{0,40}?-{10,40}",
        "a part of mlxlink",
        "mlxlink",
        "Mellanox/mstflint 4.15 to 4.34, mlxlink/modules/mlxlink_commander.cpp",
        tool="sudo mlxlink -d DEVICE",
        body=r"\s*[-A-Z][\w ()./\[\]-]{0,60}\s*(?::|$)|-{5,}|\s*Supported |\s*Errors|\s*Warnings",
        joins=True,
    ),
    by_head(
        ("Errors for ", "## Summary: "),
        r"(?:Errors for (?:0x[\da-f]{1,16} )?\"|## Summary: \d{1,9} nodes? checked)",
        "ibqueryerrors",
        "ibqueryerrors",
        f"{RDMA_CORE}, infiniband-diags/ibqueryerrors.c",
        tool="sudo ibqueryerrors",
        body=r"\s+(?:GUID|Link info)|Errors for |##",
        joins=True,
    ),
    by_head(
        "# Port ",
        r"# Port (?:extended )?counters: Lid ",
        "perfquery",
        "perfquery",
        f"{RDMA_CORE}, infiniband-diags/perfquery.c",
        body=r"[A-Z]\w{3,60}:\.{2,60}",
        joins=True,
    ),
    by_lines(
        (":....",),
        FRONT + r"(?:SymbolErrorCounter|Link(?:ErrorRecovery|Downed)Counter"
        r"|Port(?:Rcv|Xmit|Unicast|Multicast)\w{3,40}|LocalLinkIntegrityErrors|ExcessiveBufferOverrunErrors|VL15Dropped|QP1Dropped|CounterSelect2?)"
        r":\.{2,60}\d{1,20}[ \t]{0,20}$",
        "rows of perfquery",
        "perfquery",
        f"{RDMA_CORE}, infiniband-diags/perfquery.c",
        tool="perfquery",
        body=r"[A-Z]\w{3,60}:\.{2,60}",
    ),
    by_lines(
        ("/counters/",),
        FRONT + r"/sys/class/infiniband/[\w.-]{1,40}/ports/\d{1,3}/counters/\w{3,60}[:=] ?"
        r"\d{1,20}[ \t]{0,20}$",
        "counters of RDMA ports",
        "perfquery",
        "Linux, drivers/infiniband/core/sysfs.c; grep",
        tool="grep . /sys/class/infiniband/*/ports/*/counters/*",
    ),
    by_head(
        "NODELIST",
        r"REASON[ \t]{1,60}USER[ \t]{1,40}TIMESTAMP[ \t]{1,40}NODELIST",
        "sinfo -R",
        "sinfo-reasons",
        "Slurm 20.11 to 25.11, src/sinfo/sinfo.c",
        body=r"[^\n]{1,120}\d{4}-\d\d-\d\dT[\d:]{8}[ \t]|[^\n]{1,120}[ \t]Unknown[ \t]",
        first=True,
    ),
    by_head(
        ("Autoscaler status: ", "Node status"),
        r"(?:={3,20} Autoscaler status: |Node status[ \t]{0,9}\n[^\n]{0,120}?-{20})",
        "ray status",
        "ray-status",
        "ray-project/ray 2.0 to 2.60, autoscaler/_private/util.py (format_info_string)",
        body=r"[-=]{3}|\s+\S|(?:Active|Idle|Pending|Recent failures|(?:Total )?Usage|(?:\w{4,8} )?Demands"
        r"|From \w[\w .]{0,40}|Constraints):|Resources$|Node(?: status$|: )",
    ),
    by_lines(
        ('"coll_perf"',),
        FRONT + r'\{"header": ?\{[^\n]{0,4000}"coll_perf": ?\{[^\n]{0,4000}\}[ \t]{0,20}$',
        "NCCL Inspector",
        "nccl-inspector",
        "NVIDIA/nccl 2.27 to 2.29, ext-profiler/inspector/inspector.cc",
        tool="NCCL_INSPECTOR_ENABLE=1 with the profiler plug-in",
    ),
    by_lines(
        ("XidCriticalError: Xid=", "device marked unhealthy: "),
        r"^(?P<front>[^\n]{0,160}?)(?:XidCriticalError: Xid=\d|'[\w./-]{3,60}' device marked unhealthy: )"
        r"[^\n]*$",
        "the log of NVIDIA's device plugin",
        "device-plugin",
        "NVIDIA/k8s-device-plugin 0.9 to 0.17, internal/rm/health.go",
        tool="kubectl logs -n gpu-operator -l app=nvidia-device-plugin-daemonset",
    ),
    by_lines(
        ("modprobe: ",),
        FRONT + r"modprobe: (?:ERROR|FATAL): (?:could not insert 'nvidia[\w-]{0,30}': [A-Z]"
        r"|Module nvidia[\w/-]{0,30} not found in directory )[^\n]*$",
        "why modprobe loads no module",
        "host-messages",
        "kmod 9 to 34, tools/modprobe.c",
        tool="sudo modprobe nvidia",
    ),
    by_lines(
        (" type ",),
        FRONT + r"/dev/\S{1,200} on /\S{0,400} type \w{2,20} \(r[ow][,)][^\n]*$",
        "the list of mounts",
        "host-messages",
        "util-linux 2.20 to 2.41, sys-utils/mount.c",
        tool="mount",
        body=r"[\w.-]{1,200} on /\S{0,400} type ",
    ),
    by_lines(
        ("BOOT_IMAGE=",),
        FRONT + r"BOOT_IMAGE=[^\n]{1,4000}$",
        "the kernel's command line",
        "host-messages",
        "proc(5), /proc/cmdline; GRUB",
        tool="cat /proc/cmdline",
    ),
)
