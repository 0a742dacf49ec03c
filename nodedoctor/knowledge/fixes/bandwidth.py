"""What to do about copies that are slow, wrong or never end.

Sources: docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting (ACS, IOMMU, P2P),
docs.nvidia.com/deploy/gpu-debug-guidelines (field diagnostics, RMA), github.com/NVIDIA/nvbandwidth.
"""

from __future__ import annotations

from nodedoctor.model import Fix
from nodedoctor.steps import ALL_JOBS, last_resort, look, looks

_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_DEBUG = "https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html"
_AGAIN = "nodedoctor bandwidth --deep"

WRONG = Fix(
    "Take the node out of service: what arrives is not what was sent, and no error is raised. With an IOMMU "
    "or ACS that redirects peer traffic, turn that off first and measure again; else have the part replaced.",
    (look("nodedoctor pcie kernel"), look("sudo dcgmi diag -r 3")),
    "drain",
    "every job on the node",
    _AGAIN,
    _NCCL,
)
HUNG = Fix(
    "Look for an Xid of that moment in the kernel log; reset the GPU, and the node if that does not help.",
    looks("nodedoctor kernel", "nvidia-smi -q"),
    "reset-gpu",
    "every job on that GPU; on a board with NVSwitch all GPUs are reset together",
    _AGAIN,
    _DEBUG,
)
DENIED = Fix(
    "See whether the fabric is up, MIG is on, or NVLinks are down; then restart the fabric manager or reset "
    "the GPUs. Until then everything goes through host memory.",
    (look("nodedoctor fabric nvlink p2p"), look("nvidia-smi topo -p2p r")),
    "investigate",
    "nothing to look; every job on the node while GPUs are reset",
    _AGAIN,
    _NCCL,
)
SLOW = Fix(
    "Compare its links, clocks and temperature with those of the others; measure again on an idle node, and "
    "if it stays slow reset the GPU, then have it replaced.",
    looks("nodedoctor nvlink pcie power thermal", _AGAIN),
    "investigate",
    "nothing to look; every job on the GPU while it is reset",
    _AGAIN,
    _DEBUG,
)
HOST = Fix(
    "See whether its PCIe link runs at full width and speed under load; reseat the card or try another slot.",
    (look("nodedoctor pcie topo.numa"), look("sudo lspci -vv -d 10de:")),
    "investigate",
    "nothing to look; every job on the node when the card is reseated",
    _AGAIN,
    _DEBUG,
)
SYSTEM = Fix(
    "What slows all of them is common to all: ACS that redirects peer traffic, an IOMMU that translates, a "
    "CPU in power saving, memory of the wrong NUMA node, or a fabric that is degraded.",
    (look("nodedoctor pcie topo fabric host"), look("sudo lspci -vvv | grep -i acsctl")),
    "config",
    "every job on the node when the firmware's settings change",
    _AGAIN,
    _NCCL,
)
UNSTARTED = Fix(
    "Restart what CUDA waits for: the fabric manager for SYSTEM_NOT_READY, the driver for anything else.",
    (
        look("nodedoctor driver fabric"),
        last_resort(
            "sudo systemctl restart nvidia-fabricmanager",
            when="CUDA says SYSTEM_NOT_READY and no job runs on this node",
            disturbs=ALL_JOBS,
        ),
    ),
    "restart-service",
    "every job on the node",
    "nodedoctor bandwidth",
    _DEBUG,
)
