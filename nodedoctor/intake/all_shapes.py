"""Outputs that are recognised: how each begins, what its lines look like, and the probe that reads it.

A row's literal is looked for first, as that costs next to nothing; its expression then decides, and begins
where the output's first line does, behind any prefix.
"""

from __future__ import annotations

from nodedoctor.intake.host_shapes import HOST_SHAPES
from nodedoctor.intake.shape import FRONT, KEY_VALUE, Shape, by_head, by_lines
from nodedoctor.intake.verdict_shapes import RDMA_CORE, VERDICT_SHAPES

_GPU_LINE = r"GPU \d{1,3}: [^\n]{1,90}\(UUID: [^\n)]{0,60}\)"
_LINKS = r"\s*(?:GPU \d+: |Link \d+|NVML: |Device does not|Remote )"
_NAMES_GPU = r"^[ \t]{0,40}(?:GPU \d{1,3}: |NVML: |Device does not)"
_MATRIX = (
    r"\s*(?:(?:GPU(?! \d)|NIC|mlx\d_|bnxt_re|rdma|ibp|roce|efa_)\S*\s|Legend|X +=|NIC\d+: "
    r"|(?:SYS|NODE|PHB|PXB|PIX|NV#|NIC)\s|(?:OK|CNS|GNS|TNS|NS|U|DR)\s+=)"
)
_FAMILIES = (
    "NCCL", "RCCL", "TORCH", "PYTORCH", "GLOO", "TP", "UCX", "UCC", "OFI", "FI", "SHARP", "IBV", "MLX5",
    "CUDA", "NVIDIA", "OMP", "OMPI", "PMI", "PMIX", "SLURM", "RAY", "HF", "DEEPSPEED", "VLLM", "SGLANG",
    "TRITON",
)  # fmt: skip
"""As in probes/host/environment.py, without those that a log is full of."""

NVIDIA_SMI = "NVIDIA's nvidia-smi, drivers 390 to 610"

QUERY = by_head(
    ("index, ", "name, ", "pci.bus_id", "uuid, ", "gpu_"),
    r"(?=[^\n]{0,400}?(?:[._]| \[))(?:index|name|timestamp|uuid|gpu_\w{1,40}|pci\.bus_id"
    r"|driver_version|count|serial)"
    r"(?:, [a-z][\w.]{0,100}(?: \[\S{1,12}\])?){1,400}[ \t]{0,20}(?:\n|$)",
    "nvidia-smi --query-gpu",
    "nvidia-smi-q",
    NVIDIA_SMI,
    tool="nvidia-smi --query-gpu=...",
    joins=True,
    body=r"[^,\n]{1,200}, ",
)

SHAPES: tuple[Shape, ...] = (
    by_head(
        "NVIDIA-SMI ",
        r"(?:\|\s{0,8})?NVIDIA-SMI \d{1,4}\.\d",
        "the table of nvidia-smi",
        "nvidia-smi",
        NVIDIA_SMI,
        tool="nvidia-smi",
        body=r"\s*[|+]|\w{3} \w{3} +\d+ [\d:]{8} \d{4}|Unable to determine|Processes:|GPU +GI|\s{4}"
        r"|WARNING: infoROM is corrupted",
        first=True,
        needs=r"^[^|\n]{0,40}\|[ \t]{1,6}\d{1,3}[ \t]{1,6}\S|Unable to determine|No devices",
    ),
    by_head(
        (
            "Failed to initialize NVML",
            "NVIDIA-SMI has failed",
            "NVIDIA-SMI couldn't",
            "Unable to determine the device handle",
            "No devices were found",
        ),
        r"(?:Failed to initialize NVML: |NVIDIA-SMI has failed because|NVIDIA-SMI couldn't "
        r"|Unable to determine the device handle for |No devices were found[ \t]{0,20}(?:\n|$))",
        "an error of nvidia-smi",
        "nvidia-smi",
        NVIDIA_SMI,
        tool="nvidia-smi",
        body=r"NVML library version|Failed to properly"
        r"|\s*[|+]|\w{3} \w{3} +\d+ [\d:]{8} \d{4}|Unable to determine|Make sure",
    ),
    by_head(
        ("Off |", "On |", "On  |"),
        r"\|[ \t]{1,5}\d{1,3}[ \t]{1,4}\S[^|\n]{4,60}\|[ \t]{1,4}(?:[\da-fA-F]{4,8}:)?"
        r"[\da-fA-F]{2}:[\da-fA-F]{2}\.[0-7][ \t]{1,8}(?:On|Off|N/A)[ \t]{1,4}\|"
        r"[^|\n]{1,40}\|[ \t]{0,20}\n"
        r"[^|\n]{0,160}?\|[^|\n]{1,60}/[^|\n]{1,40}\|",
        "GPUs of the table of nvidia-smi",
        "nvidia-smi",
        NVIDIA_SMI,
        tool="nvidia-smi",
        body=r"\s*[|+]",
    ),
    by_head(
        "NVSMI LOG",
        r"={3,40}\s{0,4}NVSMI LOG\s{0,4}=",
        "nvidia-smi -q",
        "nvidia-smi-q",
        NVIDIA_SMI,
        first=True,
        joins=True,
    ),
    by_head(
        (
            "Product Name",
            "Performance State",
            "Attached GPUs",
            "HW Slowdown",
            "Remapping Failure Occurred",
            "Replays Since Reset",
            "Replay Number Rollovers",
            "GPU Recovery Action",
            "ecc.errors.",
        ),
        r"(?:Product Name|Performance State|Attached GPUs|HW Slowdown|Remapping Failure Occurred"
        r"|Replays Since Reset|Replay Number Rollovers|GPU Recovery Action)\s{1,60}:"
        r"|ecc\.errors\.[\w.]{1,60}\s{0,60}:",
        "a part of nvidia-smi -q",
        "nvidia-smi-q",
        NVIDIA_SMI,
        tool="nvidia-smi -q",
        joins=True,
    ),
    by_head(
        (
            *("Remapped Rows", "ECC Errors", "ECC Mode", "Event Reasons", "Throttle Reasons"),
            *("Retired Pages", "Fabric"),
        ),
        r"(?:Remapped Rows|ECC Errors|ECC Mode|Clocks (?:Event|Throttle) Reasons|Retired Pages|Fabric)"
        r"[ \t]{0,60}\n"
        r"[^\n]{0,160}?(?:[A-Z][\w ()-]{1,50}[ \t]{1,60}: |Volatile|Aggregate|Single Bit)",
        "a part of nvidia-smi -q",
        "nvidia-smi-q",
        NVIDIA_SMI,
        tool="nvidia-smi -q",
        body=rf"{KEY_VALUE}|--$",
        joins=True,
    ),
    by_head(
        ("GPU 0000",),
        r"GPU [\da-fA-F]{8}:[\da-fA-F]{2}:[\da-fA-F]{2}\.[0-7][ \t]{0,20}\n"
        r"[^\n]{0,160}?[ \t](?:[A-Z][\w ()-]{1,50}[ \t]{1,60}: |Volatile|Aggregate)",
        "a part of nvidia-smi -q",
        "nvidia-smi-q",
        NVIDIA_SMI,
        tool="nvidia-smi -q",
        body=rf"{KEY_VALUE}|--$",
        joins=True,
    ),
    by_head(
        "<nvidia_smi_log",
        r"<nvidia_smi_log",
        "nvidia-smi -q -x",
        "nvidia-smi-xml",
        NVIDIA_SMI,
        body=r"\s*<",
        first=True,
    ),
    by_head(
        "GPU0",
        r"GPU0(?:[ \t]{1,20}GPU\d{1,3}){0,80}[ \t]{0,20}\n[^\n]{0,200}?GPU0[ \t]{1,20}X[ \t]{1,20}"
        r"(?:OK|CNS|GNS|TNS|NS|DR|U)\b",
        "nvidia-smi topo -p2p",
        "nvidia-smi-topo-p2p",
        NVIDIA_SMI,
        tool="nvidia-smi topo -p2p r",
        body=_MATRIX,
        first=True,
    ),
    by_head(
        "GPU0",
        r"GPU0[ \t]{1,20}(?:GPU\d|mlx|NIC|CPU Affinity|bnxt|ib)[^\n]{0,1000}\n"
        r"(?:[^\n]{0,400}\n){0,2}?[^\n]{0,200}?GPU0[ \t]{1,20}X\b",
        "nvidia-smi topo -m",
        "nvidia-smi-topo",
        NVIDIA_SMI,
        body=_MATRIX,
        first=True,
    ),
    by_lines(
        ("GPU",),
        FRONT
        + r"[ \t]{0,20}GPU\d{1,3}(?:[ \t]{1,20}(?:X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS)\b){2,80}[^\n]{0,400}$",
        "a row of nvidia-smi topo -m",
        "nvidia-smi-topo",
        NVIDIA_SMI,
        tool="nvidia-smi topo -m",
        body=_MATRIX,
    ),
    by_head(
        "Link ",
        r"Link \d+(?:: (?:Tx|Rx|Replay|Recovery|CRC|Data|ECC|Malformed|Buffer"
        r"|Local|Remote|External|General|Link|Symbol|Effective|FEC|Raw|PLR|Number|Successful|Estimated)\b|"
        r": [^\n:]{3,60}(?:[Ee]rrors?|recover\w*|BER|packets|bytes|discards)[^\n:]{0,30}:)",
        "nvidia-smi nvlink -e",
        "nvidia-smi-nvlink-errors",
        NVIDIA_SMI,
        body=_LINKS,
        joins=True,
        needs=_NAMES_GPU,
    ),
    by_head(
        ("Link ", "Nvlink"),
        r"Link \d+: (?:<inactive>|[\d.,]+ GB/s)|NVML: Unable to retrieve Nvlink"
        r"|Device does not have or support Nvlink",
        "nvidia-smi nvlink -s",
        "nvidia-smi-nvlink",
        NVIDIA_SMI,
        body=_LINKS,
        joins=True,
        needs=_NAMES_GPU,
    ),
    by_head(
        "NvLink Link Status",
        r"(?:\||[ \t])\s{0,4}NvLink Link Status\s{0,40}\|?",
        "dcgmi nvlink --link-status",
        "nvidia-smi-nvlink",
        "NVIDIA/DCGM 2.4 to 4.5, dcgmi/Nvlink.cpp",
        body=r"\s*(?:[|+]|(?:gpuId|nvSwitchId) \d|[UDX_](?: [UDX_])*$|GPUs:|NvSwitches:|No NvSwitches|Key: )",
        joins=True,
        needs=r"gpuId \d",
    ),
    by_head(
        "Link ",
        r"Link \d+, (?:P2P|Access|SLI|Link is|System|Bridge)",
        "nvidia-smi nvlink -c",
        "",
        NVIDIA_SMI,
        body=_LINKS,
    ),
    by_head(
        "(UUID: GPU-",
        rf"{_GPU_LINE}[ \t]{{0,20}}(?:\n|$)(?!\s{{1,20}}Link|NVML|Device does not)",
        "nvidia-smi -L",
        "nvidia-smi-list",
        NVIDIA_SMI,
        body=r"GPU \d+: |\s+MIG ",
    ),
    QUERY,
    by_head(
        "gpu ",
        r"# gpu\s{1,20}(?:pwr|sm|pid|fb|pclk|mclk|rxpci|sbecc|gtemp|mtemp|pviol|idx)\b",
        "nvidia-smi dmon or pmon",
        "nvidia-smi-dmon",
        NVIDIA_SMI,
        tool="nvidia-smi dmon",
        body=r"\s*[#\d]",
        joins=True,
        needs=r"#[^\n]{1,200}\bsm\b[^\n]{1,200}\bpclk\b",
    ),
    by_head(
        "CA '",
        r"CA:? '[\w.-]{1,64}'",
        "ibstat",
        "ibstat",
        f"{RDMA_CORE}, infiniband-diags/ibstat.c",
        body=rf"{KEY_VALUE}|ibpanic: ",
        joins=True,
    ),
    by_head(
        "ibpanic:",
        r"ibpanic: \[\d+\] \w+: ",
        "an error of ibstat",
        "ibstat",
        f"{RDMA_CORE}, libibumad/umad.h",
        tool="ibstat",
        joins=True,
    ),
    by_head(
        "Infiniband device '",
        r"Infiniband device '[\w.-]{1,64}' port \d+ status:",
        "ibstatus",
        "ibstatus",
        f"{RDMA_CORE}, infiniband-diags/scripts/ibstatus",
        joins=True,
    ),
    by_head(
        "hca_id:",
        r"hca_id:\s{0,20}[\w.-]{1,64}",
        "ibv_devinfo",
        "ibv-devinfo",
        f"{RDMA_CORE}, libibverbs/examples/devinfo.c",
        tool="ibv_devinfo -v",
        joins=True,
    ),
    by_lines(
        (" state ",),
        FRONT
        + r"(?:link |\d{1,4}/\d{1,4}: )[\w.-]{1,64}/\d{1,3}:? (?:\w{1,20} \S{1,60} ){0,8}?state [A-Z]{2,12} "
        r"[^\n]{0,400}$",
        "rdma link",
        "rdma-link",
        "iproute2 4.17 to 6.17, rdma/link.c",
        body=r"\s+(?:lid|netdev|caps)\b",
    ),
    by_head(
        ("controller: ", "controller [", "bridge: ", "bridge [", "peripheral: ", "peripheral ["),
        r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7] [A-Z0-9][^:\n]{2,60}"
        r"(?:controller|bridge|peripheral)(?: \[[0-9a-f]{4}\])?: ",
        "lspci",
        "lspci",
        "pciutils 3.5 to 3.14, lspci.c",
        tool="sudo lspci -vv",
        body=r"\s+\S|(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7] |[A-Z][\w ]{1,30}[:<]"
        r"|[0-9a-f]{2,3}:(?: [0-9a-f]{2}){1,16}$",
        joins=True,
    ),
    by_lines(
        ("ACSCtl:",),
        FRONT + r"[ \t]{0,20}ACSCtl:[ \t]{1,20}SrcValid[+-] [^\n]{0,120}$",
        "ACS registers of lspci",
        "lspci",
        "pciutils 3.5 to 3.14, ls-ecaps.c",
        tool="sudo lspci -vv",
    ),
    by_lines(
        (),
        r"^(?P<front>[^\n]{0,40}?\d\d:\d\d:\d\d\S{0,20} std(?:out|err) [FP] |(?:[>|#] ?){0,12}"
        r"(?:(?!mlx|nvme|bnxt|nvidia|usb|e[nt][a-z]?\d)(?=[\w.-]{0,63}?\d)[\w.-]{1,64}: "
        r"|\[(?!\d+\.)\w[\w.-]{0,63}\]:? |[\w.-]{1,64} {1,20}\| )?"
        r"|(?![^\n]{0,80}kernel: )[^\n]{1,60}?[\]:|Z] "
        r"|[^\n]{0,40}?\d\d:\d\d:\d\d[^\n]{0,60}?[\]:|Z] )"
        r"[ \t]{0,40}(?:> {0,4}){0,8}(?:"
        r"(?:(?:kern|user|daemon) *:\w+ *: |<\d{1,3}>)?"
        r"(?:\d{4}-\d\d-\d\dT[\d:]{8},\d{6}[+-]\d\d:\d\d |\d{1,3},\d{1,12},\d{1,15},[^;\n]{1,40};"
        r"|\[ *\d{1,9}\.\d{6}\]|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] "
        r"|(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d[T ][\d:]{8}[\d.,]*(?:Z|[+-]\d\d:?\d\d)?)"
        r" (?:[\w.-]+ )?(?:kernel(?:\[\d+\])?:|(?:NVRM: )?Xid |NVRM:|nvidia[-_\w]*[ :]|mlx5_core |pcieport )"
        r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d  ?Xid \d"
        r"|kernel: |NVRM: |Xid \(PCI:|(?:mlx5_core|pcieport|nvidia|nvme|bnxt_en|DMAR) [\da-f]{4}:[\da-f]{2}:"
        r"|nvidia-(?:nvswitch|modeset|uvm|peermem)[ :]|EDAC MC\d|Out of memory: Killed process \d))[^\n]*$",
        "the kernel's log",
        "kernel-log",
        "Linux, kernel/printk; util-linux, dmesg; systemd, journalctl; rsyslog",
        tool="sudo dmesg -T",
        foreign=2,
    ),
    by_head(
        "NodeName=",
        r"NodeName=(?P<host>[\w.-]{1,64}) [^\n]{0,400}?(?:\n[^\n]{0,400}?){0,3}?"
        r"(?:Arch|CPUAlloc|CPUTot|State|CoresPerSocket)=",
        "scontrol show node",
        "slurm-node",
        "Slurm 18.08 to 25.11, src/api/node_info.c",
        tool="scontrol show node NODE",
        body=r"\s*\w+=",
        first=True,
    ),
    by_head(
        ("NodeHostName=", " ThreadsPerCore="),
        r"(?:NodeAddr=\S{1,255} NodeHostName=(?P<host>[\w.-]{1,64})"
        r"|State=[A-Z]{2,24}[*~#!%$@^-]?(?:\+[A-Z_]{2,24}[*~#!%$@^-]?){0,6} ThreadsPerCore=\d)",
        "a part of scontrol show node",
        "slurm-node",
        "Slurm 18.08 to 25.11, src/api/node_info.c",
        tool="scontrol show node NODE",
        body=r"\s*\w+=",
    ),
    by_head(
        "Id=",
        r"Id=[\w@.-]{1,80}\.service[ \t]{0,20}(?:\n|$)",
        "systemctl show",
        "services",
        "systemd 237 to 258",
        tool="systemctl show nvidia-fabricmanager nvidia-persistenced",
        body=r"[A-Z]\w+=",
        joins=True,
    ),
    by_head(
        ".service",
        r"[^\w\s]? ?[\w@.-]{1,80}\.service(?: - [^\n]{0,200})?\n[^\n]{0,200}?Loaded: ",
        "systemctl status",
        "services",
        "systemd 237 to 258, src/systemctl/systemctl-show.c",
        tool="systemctl status nvidia-fabricmanager",
        joins=True,
    ),
    by_lines(
        (".service",),
        FRONT
        + r"[^\w\s]?[ \t]{0,4}[\w@:.-]{1,80}\.service[ \t]{1,80}(?:loaded|not-found|masked|error)[ \t]{1,12}"
        r"(?:active|inactive|failed|activating|deactivating)[ \t]{1,12}[a-z][\w-]{2,20}"
        r"(?:[ \t][^\n]{0,200})?$",
        "systemctl list-units",
        "services",
        "systemd 237 to 258, src/systemctl/systemctl-list-units.c",
        tool="systemctl list-units --all",
    ),
    by_head(
        "mtu ",
        r"\d{1,6}: [\w.@-]{1,40}: <[A-Z,_0-9-]{0,200}> mtu \d{1,7} ",
        "ip link or ip address",
        "net",
        "iproute2 3.12 to 6.17, ip/ipaddress.c",
        tool="ip -s link",
        body=r"\s+\S|\d+: [\w.@-]+: <",
        joins=True,
    ),
    by_head(
        ("UNKNOWN", "UP  ", "DOWN  "),
        r"[\w.@-]{1,80}[ \t]{1,40}(?:UP|DOWN|UNKNOWN|DORMANT|LOWERLAYERDOWN)[ \t]{1,40}"
        r"(?:(?:[\da-f]{2}:){5,19}[\da-f]{2}[ \t]{1,9}<[A-Z]|\d{1,3}(?:\.\d{1,3}){3}/\d|[\da-f:]{2,40}/\d)",
        "ip -br link or ip -br address",
        "net",
        "iproute2 4.14 to 6.17, ip/ipaddress.c (print_linkinfo_brief)",
        tool="ip -br link",
        body=r"[\w.@-]{1,80}[ \t]{1,40}(?:UP|DOWN|UNKNOWN|DORMANT|LOWERLAYERDOWN)(?:[ \t]|$)",
        joins=True,
    ),
    by_head(
        "NIC statistics:",
        r"NIC statistics:[ \t]{0,20}\n",
        "ethtool -S",
        "ethtool",
        "ethtool 3.4 to 6.15",
        tool="ethtool -S INTERFACE",
        body=r"\s{0,40}[\w.\[\]-][\w.\[\] -]{0,80}: -?\d{1,20}[ \t]{0,20}$",
        first=True,
        joins=True,
    ),
    by_head(
        (
            "Collecting environment",
            "PyTorch version",
            "  System Info",
            "Versions of relevant libraries",
            "[pip3] ",
            "[conda] ",
            "CUDA used to build PyTorch",
            "Is CUDA available",
        ),
        r"(?:Collecting environment information|PyTorch version {0,20}: |CUDA used to build PyTorch {0,20}: "
        r"|Is CUDA available {0,20}: "
        r"|System Info[ \t]{0,20}\n[^\n]{0,160}?={10,40}"
        r"|Versions of relevant libraries|\[(?:pip3?|conda)\] )",
        "torch's report of its environment",
        "collect-env",
        "pytorch/pytorch 1.5 to 2.15, torch/utils/collect_env.py; vllm-project/vllm 0.9 to 0.20",
        tool="python -m torch.utils.collect_env",
        body=rf"{KEY_VALUE}|\[(?:pip|conda)|GPU \d+: ",
    ),
    by_head(
        ("sgl_kernel: ", "CUDA Driver Version", "NVCC: ", "CUDA_HOME: ", "sglang: "),
        r"(?:Python: 3\.[^\n]{1,200}\n(?:[^\n]{0,200}\n){0,3}?)?(?:CUDA available: |CUDA_HOME: |NVCC: "
        r"|CUDA Driver Version: \d{3}\.\d|PyTorch: |sglang: |sgl_kernel: )",
        "SGLang's report of its environment",
        "collect-env",
        "sgl-project/sglang 0.3 to 0.5, check_env.py",
        tool="python -m sglang.check_env",
        body=r"(?:[\w.-]{2,40}|GPU [\d,]{1,200}(?: Compute Capability)?|[A-Z]\w{2,12} [\w ]{2,30}"
        r"|ulimit soft): ?",
    ),
    by_head(
        "Package",
        r"Package {1,80}Version[^\n]{0,200}\n[^\n]{0,160}?-{3,80} {1,4}-{3}",
        "pip list",
        "pip-list",
        "pypa/pip 9 to 26",
        body=r"[A-Za-z0-9][\w.-]* +\d\S*|-{3,}",
        first=True,
    ),
    by_lines(
        ("==",),
        FRONT + r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}(?:\[[\w,]{1,80}\])?==\d[\w.+!-]{0,60}[ \t]{0,20}$",
        "pip freeze",
        "pip-list",
        "pypa/pip 9 to 26",
    ),
    by_lines(
        (
            *(f"{family}_" for family in _FAMILIES),
            "RANK=",
            "WORLD_SIZE=",
            "MASTER_",
            "LD_PRELOAD",
            "LD_LIBRARY_",
        ),
        FRONT
        + r"[ \t]{0,40}(?:\$ |\+ )?(?:export |declare -x |-x |-e |--env[ =]|- )?['\"]?"
        + rf"(?:(?:{'|'.join(_FAMILIES)})_\w+"
        r"|RANK|WORLD_SIZE|(?:LOCAL|GROUP|NODE)_RANK|LOCAL_WORLD_SIZE|MASTER_(?:ADDR|PORT)|LD_PRELOAD"
        r"|LD_LIBRARY_PATH)=[^\n]*$",
        "environment variables",
        "env",
        "env(1), export of sh, scripts",
        tool="env | grep -E 'NCCL|TORCH|CUDA|GLOO|SLURM|RANK|MASTER|WORLD'",
    ),
    by_head(
        ("Diagnostic ", "Deployment"),
        r"\|\s{0,40}Diagnostic\s{0,40}\|\s{0,80}Result\s{0,80}\|",
        "dcgmi diag",
        "dcgmi-diag",
        "NVIDIA/DCGM 2.4 to 4.5, dcgmi/Diag.cpp",
        tool="dcgmi diag -r 2",
        body=r"\s*[|+]|Successfully ran diagnostic",
    ),
    by_head(
        ("| Pass", "| Fail", "| Warn", "| Skip"),
        r"\|[ \t]{1,4}(?:NVML Library|CUDA Main Library|Permissions and OS Blocks|Persistence Mode"
        r"|Environment Variables|Page Retirement|Graphics Processes|Inforom|Denylist|PCIe|GPU Memory|Memory"
        r"|Diagnostic|Targeted (?:Stress|Power)|Memory Bandwidth|Pulse Test|NVBandwidth|software)"
        r"[\w /]{0,24}\|[ \t]{1,4}(?:Pass|Fail|Warn|Skip)\b",
        "rows of dcgmi diag",
        "dcgmi-diag",
        "NVIDIA/DCGM 2.4 to 4.5, dcgmi/Diag.cpp",
        tool="dcgmi diag -r 2",
        body=r"\s*[|+]|Successfully ran diagnostic",
    ),
    by_head(
        ("nvbandwidth", "memcpy"),
        r"(?:nvbandwidth Version: v|Running \w{1,60}_(?:memcpy_\w{1,40}|latency_\w{1,40})\."
        r"[ \t]{0,20}(?:\n|$)|memcpy (?:CE|SM) (?:CPU|GPU)\(row\))",
        "nvbandwidth",
        "nvbandwidth",
        "NVIDIA/nvbandwidth 0.4 to 0.9",
        body=r"\s*[\d|]|SUM |Running |memcpy |Device \d|CUDA |Driver |Built|NOTE|This |\w+_\w+",
    ),
    by_head(
        ("P2P (Peer-to-Peer)", "directional P2P="),
        r"(?:\[P2P \(Peer-to-Peer\) GPU Bandwidth|(?:Uni|Bi)directional P2P=\w{6,10} Bandwidth)",
        "p2pBandwidthLatencyTest",
        "p2p-bandwidth",
        "NVIDIA/cuda-samples 9 to 13, p2pBandwidthLatencyTest.cu",
        tool="p2pBandwidthLatencyTest",
        body=r"\s*(?:\d|D\\D|GPU |CPU )|\[P2P|Device[:=]|\*{3}NOTE|NOTE: |So you can see|P2P Connectivity"
        r"|(?:(?:Uni|Bi)directional )?P2P=",
        joins=True,
    ),
    by_head(
        ("nccl-tests version", "# nThread ", "busbw", "Out of bounds values"),
        r"#\s{0,4}(?:nccl-tests version|nThread \d|\s{0,40}size\s{1,20}count\s{1,20}type\s{1,20}redop\s"
        r"|Out of bounds values\s{0,4}: \d{1,15} FAILED)",
        "nccl-tests",
        "all-reduce-perf",
        "NVIDIA/nccl-tests 2.10 to 2.17, src/common.cu",
        tool="all_reduce_perf -b 64M -e 1G -f 4 -g 8",
        body=r"\s*[#\d]|NCCL version \d"
        r"|[\w.-]{1,64}:\d{1,9}:\d{1,9} \[\d{1,3}\] NCCL INFO (?:Bootstrap|NET/|Using network)",
    ),
    *VERDICT_SHAPES,
    *HOST_SHAPES,
)
