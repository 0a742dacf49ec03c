"""What to do about an RDMA port: fixes that several checks give.

Sources: linux-rdma/rdma-core (ibportstat(8), sminfo(8)), iproute2 (rdma-link(8)), mlxlink of NVIDIA MFT,
NVIDIA/nccl networking troubleshooting.
"""

from __future__ import annotations

from nodedoctor.model import Action, Fix, Step
from nodedoctor.steps import look, repair

NCCL_DOCS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"


def port_fix(text: str, steps: tuple[Step, ...] = (), action: Action = "investigate") -> Fix:
    """Something to do at one port."""
    return Fix(text, steps, action, "traffic on this port", "nodedoctor ib", NCCL_DOCS)


def cable(hca: str, number: int) -> Fix:
    """The usual suspects of a link that is down, slow, narrow or full of errors."""
    text = "Reseat or replace cable and transceiver; check the switch port and its counters."
    cages = (look("sudo mlxlink -d {} -m -c", hca),) if hca.startswith("mlx5_") else ()
    return port_fix(text, (_show_link(hca, number), *cages))


def enable(hca: str, number: int, netdev: str | None, infiniband: bool) -> Fix:
    """A port that somebody or something has switched off."""
    if infiniband:
        text = "Enable the port. Firmware disables a port whose link fails too often: then replace its cable."
        up = repair("sudo ibportstat -C {} -P {} -D 0 enable", hca, number)
        return port_fix(text, (_show_link(hca, number), up))
    text = "Bring its interface up; if it stays down, check the switch port and the cable."
    raised = (repair("sudo ip link set {} up", netdev),) if netdev else ()
    return port_fix(text, (_show_link(hca, number), *raised), "config")


def _show_link(hca: str, number: int) -> Step:
    """State, physical state and network device of the port, in one line."""
    return look("rdma link show {}", f"{hca}/{number}")


def subnet_manager() -> Fix:
    """No subnet manager serves this port."""
    text = (
        "Start the fabric's subnet manager (opensm, the switch's or UFM's), or find out why it "
        "skips this port."
    )
    steps = (look("sudo sminfo"), look("systemctl status opensm"))
    return Fix(text, steps, "restart-service", "nothing", "nodedoctor ib", NCCL_DOCS)
