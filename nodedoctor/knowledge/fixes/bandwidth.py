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
    "Drain the node: copies corrupt data without raising an error. With an IOMMU "
    "or ACS that redirects peer traffic, turn that off first and measure again; else request a replacement.",
    (look("nodedoctor pcie kernel"), look("sudo dcgmi diag -r 3")),
    "drain",
    "every job on the node",
    _AGAIN,
    _NCCL,
)
HUNG = Fix(
    "Check the kernel log for an Xid at that time; reset the GPU, then reboot the node if "
    "that does not help.",
    looks("nodedoctor kernel", "nvidia-smi -q"),
    "reset-gpu",
    "every job on that GPU",
    _AGAIN,
    _DEBUG,
)
DENIED = Fix(
    "Check fabric state, MIG mode and NVLinks; then restart the fabric manager or reset "
    "the GPUs. Until then all copies go through host memory.",
    (look("nodedoctor fabric nvlink p2p"), look("nvidia-smi topo -p2p r")),
    "investigate",
    "every job on the node during the reset",
    _AGAIN,
    _NCCL,
)
SLOW = Fix(
    "Compare its links, clocks and temperature with those of the others; measure again on an idle node, and "
    "if it stays slow reset the GPU, then request a replacement.",
    looks("nodedoctor nvlink pcie power thermal", _AGAIN),
    "investigate",
    "every job on the GPU during the reset",
    _AGAIN,
    _DEBUG,
)
HOST = Fix(
    "Check whether its PCIe link has full width and speed under load; reseat the card or try another slot.",
    (look("nodedoctor pcie topo.numa"), look("sudo lspci -vv -d 10de:")),
    "investigate",
    "every job on the node when the card is reseated",
    _AGAIN,
    _DEBUG,
)
SYSTEM = Fix(
    "All are slow for a common reason: ACS that redirects peer traffic, an IOMMU that "
    "translates, CPU power saving, memory on the wrong NUMA node, or a degraded fabric.",
    (look("nodedoctor pcie topo fabric host"), look("sudo lspci -vvv | grep -i acsctl")),
    "config",
    "every job on the node when the firmware's settings change",
    _AGAIN,
    _NCCL,
)
UNSTARTED = Fix(
    "Restart the fabric manager for SYSTEM_NOT_READY, the driver for any other error.",
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
DISK_SLOW = Fix(
    "Look at what else uses the disk, at the kernel log and at the disk's own health; measure again, and "
    "replace the disk if it stays slow.",
    looks("nodedoctor kernel.storage limits.disk", "iostat -x 1 3", "sudo smartctl --scan"),
    "investigate",
    "every job on the node when the disk is replaced",
    _AGAIN,
)
SOCKET_SLOW = Fix(
    "Compare the memory of the nodes and look for corrected errors; a module that is missing or switched off "
    "takes its channel's bandwidth away.",
    looks("nodedoctor kernel.cpu topo.numa", "lscpu", "sudo dmidecode -t memory"),
    "investigate",
    "every job on the node when memory is reseated",
    _AGAIN,
)
