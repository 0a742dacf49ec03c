"""Whether this node has anything to do with NVIDIA: decides between "broken" and "not applicable".

Only files are read, so a node without NVIDIA hardware never loads NVIDIA's library.
"""

from __future__ import annotations

from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.model import Observation, Unseen

NONE_HERE = "no NVIDIA hardware on the PCI bus, no NVIDIA device node, no NVIDIA driver"


def signs(pci: Pci | Unseen | None, driver: Driver | Unseen | None) -> tuple[str, ...]:
    """What speaks for NVIDIA hardware here, the strongest first; empty when nothing does."""
    texts: list[str] = []
    if isinstance(pci, Pci):
        texts += [f"GPU {gpu.address} on the PCI bus" for gpu in pci.gpus]
        texts += [f"NVSwitch {switch.address} on the PCI bus" for switch in pci.nvswitches]
    if isinstance(driver, Driver):
        texts += [f"{driver.platform} platform"] if driver.platform else []
        texts += ["kernel module nvidia loaded"] if driver.loaded else []
        texts += [node.path for node in driver.nodes]
    return tuple(texts)


def looked(pci: Pci | Unseen | None, driver: Driver | Unseen | None) -> bool:
    """True when at least one of the two places could be looked at."""
    return isinstance(pci, Pci) or isinstance(driver, Driver)


def nothing_here(pci: Pci | Unseen | None, driver: Driver | Unseen | None) -> bool:
    """True when both places were looked at and held nothing.

    One is not enough: a GPU without a driver is on the bus only, those of WSL2 and Tegra in files only.
    """
    return isinstance(pci, Pci) and isinstance(driver, Driver) and not signs(pci, driver)


def reason_not_to_ask(pci: Observation, driver: Observation) -> str | None:
    """For probes that go through NVIDIA's driver: why asking makes no sense here, None when it does.

    Takes the observations `pci` and `driver-files`. Where one could not be read, asking is
    the only way left.
    """
    bus, files = Pci.parse(pci), Driver.parse(driver)
    return NONE_HERE if nothing_here(bus, files) else None
