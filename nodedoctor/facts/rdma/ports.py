"""InfiniBand and RoCE ports of this node, and which of them training uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from nodedoctor.declare.registry import fact
from nodedoctor.facts.host.env import SYSTEM_CONF, USER_CONF, Env
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.pci.pci import GIVEN_AWAY, Pci
from nodedoctor.facts.rdma.ibstat import IbStat, IbStatus, IbvDevinfo, RdmaLink
from nodedoctor.facts.rdma.port import IbPort, differs, filled, of_sysfs
from nodedoctor.facts.rdma.roles import beside_gpus, switch_bridges
from nodedoctor.facts.rdma.sysfs import Rdma
from nodedoctor.grouping import group_by
from nodedoctor.knowledge.infiniband import adapter
from nodedoctor.model import Evidence, Finding, Unseen
from nodedoctor.record import record

_SETS = (8, 16)
"""How many rails boards have; more ports of the kind than these serve something else."""
FEWEST_RAILS = 4
"""GPU boards have a rail per GPU or per two: four and more (knowledge: rdma platforms)."""
NO_ADAPTER = "no InfiniBand or RoCE adapter on this node"


@fact(Rdma, IbStat, IbStatus, IbvDevinfo, RdmaLink, Pci)
@record
class Ib:
    """Every RDMA port, from sysfs where it could be read, completed by the tools.

    `absent` says why there is no port; `disagreements` what sysfs and a tool say differently;
    `silent` are adapters that stopped answering while they were read, `unreadable` those that ibstat lists
    and cannot read, `driverless` the PCI addresses of InfiniBand adapters for which the kernel has no RDMA
    device. `partly` says why there may be more ports: a
    tool's text carries no count of its adapters, so only sysfs shows that these are all.
    """

    ports: tuple[IbPort, ...] = ()
    source: str = ""
    absent: str = ""
    disagreements: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    driverless: tuple[str, ...] = ()
    partly: Unseen | None = None
    unreadable: tuple[str, ...] = ()

    @classmethod
    def parse(
        cls,
        rdma: Rdma | Unseen,
        ibstat: IbStat | Unseen,
        ibstatus: IbStatus | Unseen,
        devinfo: IbvDevinfo | Unseen,
        links: RdmaLink | Unseen,
        pci: Pci | Unseen,
    ) -> Ib | Unseen:
        """Put the sources together. Nothing to see is a fact; nothing that could be looked at is not."""
        readings: list[tuple[str, tuple[IbPort, ...]]] = []
        if isinstance(rdma, Rdma) and rdma.ports:
            readings.append(("rdma", tuple(of_sysfs(hca, port) for hca, port in rdma.ports)))
        tools = {"ibstat": ibstat, "ibstatus": ibstatus, "ibv-devinfo": devinfo, "rdma-link": links}
        readings += [(name, tool.ports) for name, tool in tools.items() if not isinstance(tool, Unseen)]
        silent = (
            tuple(hca.name for hca in rdma.hcas if hca.stopped_answering) if isinstance(rdma, Rdma) else ()
        )
        unreadable = ibstat.unreadable if isinstance(ibstat, IbStat) else ()
        if not any(ports for _, ports in readings) and not unreadable:
            return cls._without_ports(rdma, ibstat, pci, silent)
        source, ports = readings[0]
        disagreements = tuple(_source_disagreements(source, ports, readings[1:]))
        for _, more in readings[1:]:
            ports = _complete_ports(ports, more)
        partly = rdma if isinstance(rdma, Unseen) else None
        return cls(ports, source, "", disagreements, silent, partly=partly, unreadable=unreadable)

    @classmethod
    def _without_ports(
        cls, rdma: Rdma | Unseen, ibstat: IbStat | Unseen, pci: Pci | Unseen, silent: tuple[str, ...]
    ) -> Ib | Unseen:
        if silent:
            return cls(absent="the adapters do not answer", silent=silent)
        if isinstance(pci, Unseen) and pci.reason == "not-visible-here":
            return pci  # without /sys nothing was looked at
        if isinstance(rdma, Rdma) and (driverless := _driverless_devices(pci)):
            return cls(absent="the kernel has no RDMA device", driverless=driverless)
        if isinstance(rdma, Rdma) or (isinstance(ibstat, Unseen) and not ibstat.applies):
            return cls(absent=NO_ADAPTER)
        return rdma

    def devices(self) -> Iterator[tuple[str, ...]]:
        """Each port's names; an adapter with one port is that port, and so is its PCI address."""
        for hca in dict.fromkeys(port.hca for port in self.ports):
            own = [port for port in self.ports if port.hca == hca]
            address = tuple(f"pci:{port.pci_address}" for port in own[:1] if port.pci_address)
            adapter_names = (f"hca:{hca}", *address)
            if len(own) == 1:
                yield own[0].subject, *adapter_names
            else:
                yield adapter_names
                yield from ((port.subject,) for port in own)

    def evidence(self, *ports: IbPort) -> list[Evidence]:
        """What was said of these ports: their files, or the block of a tool's output about each."""
        return [evidence for port in ports for evidence in port.said(self.source)]

    def nothing(self, rails: Rails, otherwise: str) -> Finding:
        """The finding of a check that has no active rail to judge; `otherwise` is what is not reported."""
        if not self.ports:
            return Finding.skip(self.absent)
        if not rails.ports:
            return Finding.skip("NCCL uses no RDMA port here")
        if not any(port.active for port in self.ports):
            return Finding.skip("no port is active: see ib.ports")
        return Finding.unknown("not-visible-here", otherwise)


@fact(Ib, Env, Processes, Pci)
@record
class Rails:
    """The ports that NCCL would use between nodes, and the others. `chosen_by` is who said so.

    It is NCCL_IB_HCA where that is set (`explicit`), else the class of equal ports that carries most; of
    these the ones that share a PCIe switch with a GPU where some do. `sure`: each should have a link,
    being named, beside a GPU and one of a set of which more than half work, or one of as many as boards
    have of which nearly all work: half a set without links may as well be spare. `bridges` manage
    NVSwitches and are no rails. `unknown` are names in NCCL_IB_HCA that no adapter here has; `off`
    says that NCCL uses no RDMA at all.
    `partly` says why a job may name other ports than these.
    """

    ports: tuple[IbPort, ...]
    others: tuple[IbPort, ...] = ()
    chosen_by: str = ""
    explicit: bool = False
    unknown: tuple[str, ...] = ()
    off: bool = False
    partly: Unseen | None = None
    sure: bool = True
    bridges: tuple[IbPort, ...] = ()

    @classmethod
    def parse(
        cls, ib: Ib | Unseen, env: Env | Unseen, processes: Processes | Unseen, pci: Pci | Unseen
    ) -> Rails | Unseen:
        """Choose by what the job or its surroundings say, else by what the ports are and where they sit."""
        if isinstance(ib, Unseen):
            return ib
        setting, off = (
            _nccl_setting("NCCL_IB_HCA", env, processes),
            _nccl_setting("NCCL_IB_DISABLE", env, processes),
        )
        bridging = switch_bridges(ib.ports, pci)
        bridges = tuple(port for port in ib.ports if port.name in bridging)
        free = tuple(port for port in ib.ports if port.name not in bridging)
        ports, unknown, sure = by_class(free), tuple[str, ...](), False
        by = "the class of equal ports that carries most"
        if setting:
            ports, unknown = by_name(setting[0], free)
            by, sure = f"NCCL_IB_HCA={setting[0]} in {setting[1]}", True
        elif near := beside_gpus(ports, pci):
            ports = tuple(port for port in ports if port.name in near)
            by = "the ports that share a PCIe switch with a GPU"
            sure = sum(port.active for port in ports) * 2 > len(ports)
        gpus = len(pci.gpus) if isinstance(pci, Pci) else 0
        working = sum(port.active for port in ports)
        sure = sure or (len(ports) in (*_SETS, gpus) and working * 4 >= len(ports) * 3)
        names = {port.name for port in ports}
        others = tuple(port for port in free if port.name not in names)
        env_unseen = env.partly if isinstance(env, Env) else env
        partly = None if setting else processes if isinstance(processes, Unseen) else env_unseen
        none = bool(off and off[0] == "1")
        return cls(ports, others, by, bool(setting), unknown, none, partly, sure, bridges)

    def public(self) -> dict[str, Any]:
        """The ports by name: all about them is in the fact `ib`."""
        groups = {"ports": self.ports, "others": self.others, "bridges": self.bridges}
        names = {key: [port.name for port in ports] for key, ports in groups.items()}
        shown = ("chosen_by", "explicit", "unknown", "off", "sure")
        return {**names, **{name: getattr(self, name) for name in shown}}

    def expectations(self) -> dict[str, str]:
        """What `--expect` would say of the active rails, with their rate where it is the same."""
        active = [port for port in self.ports if port.active]
        rates = {port.rate_gbps for port in active}
        rate = rates.pop() if len(rates) == 1 else None
        return {"ib": f"{len(active)}x{rate:g}" if rate else str(len(active))} if active else {}


def by_name(spec: str, ports: tuple[IbPort, ...]) -> tuple[tuple[IbPort, ...], tuple[str, ...]]:
    """The ports that NCCL_IB_HCA means, and the names in it that mean nothing.

    `^` in front leaves them out, `=` wants whole names, `:1` one port (NVIDIA/nccl, docs/env.rst).
    """
    without, exact = spec.startswith("^"), spec.lstrip("^").startswith("=")
    words = [word.strip() for word in spec.lstrip("^=").split(",") if word.strip()]
    hits = {word: {port.name for port in ports if _matches_port(word, port, exact)} for word in words}
    matching = set().union(*hits.values())
    chosen = tuple(port for port in ports if (port.name in matching) is not without)
    return chosen, tuple(word for word, port_names in hits.items() if not port_names and not without)


def by_class(ports: tuple[IbPort, ...]) -> tuple[IbPort, ...]:
    """The ports alike (adapter, link layer, ports per card) whose active ones carry most together.

    So a front-end or storage adapter of another kind is not taken for a rail that is slow or down. A set of
    rails of which none works is not overlooked; with no port active at all InfiniBand has no other use.
    """
    real = [port for port in ports if not port.virtual] or list(ports)
    classes = group_by(real, lambda port: (port.model, port.link_layer, _on_card(port, real)))
    groups = list(classes.values())
    if not any(port.active for port in real) and any(port.infiniband for port in real):
        return tuple(port for port in real if port.infiniband)
    best = max(groups, key=_carried_load, default=[])
    idle = [group for group in groups if _are_idle(group) and _could_carry(group) > _carried_load(best)[0]]
    if not idle and not any(port.active for port in best):
        return ()
    return tuple(max(idle, key=_could_carry) if idle else best)


def _are_idle(ports: list[IbPort]) -> bool:
    """A set of rails of which not one works: fewer than four ports may just be spare."""
    return len(ports) >= FEWEST_RAILS and not any(port.active for port in ports)


def _could_carry(ports: Iterable[IbPort]) -> float:
    """Gbit/s of ports that work, by what their adapter can do; of an unknown Ethernet adapter nothing."""
    rows = [(adapter(port.model or ""), port.infiniband) for port in ports]
    return sum(float(row.max_port_gbps or 0) if row else 100.0 * ib for row, ib in rows)


def _carried_load(ports: Iterable[IbPort]) -> tuple[float, int, bool]:
    """Gbit/s of the active ones; where no rate is known their number; InfiniBand before Ethernet."""
    active = [port for port in ports if port.active]
    return sum(port.rate_gbps or 0.0 for port in active), len(active), any(p.infiniband for p in active)


def _on_card(port: IbPort, ports: list[IbPort]) -> int:
    """How many ports the card of this one has."""
    return sum(sibling.card == port.card for sibling in ports) if port.card else 1


def _matches_port(word: str, port: IbPort, exact: bool) -> bool:
    name, _, number = word.partition(":")
    same = port.hca == name if exact else port.hca.startswith(name)
    return same and (not number or number == str(port.number))


def _nccl_setting(name: str, env: Env | Unseen, processes: Processes | Unseen) -> tuple[str, str] | None:
    """A variable and where it is set: in a running rank first, then here, then in NCCL's files."""
    for process in processes.training if isinstance(processes, Processes) else ():
        if value := process.environment.get(name):
            return value, f"process {process.pid}"
    if isinstance(env, Unseen):
        return None
    if value := env.get(name):
        return value, "the environment"
    for path in (USER_CONF, SYSTEM_CONF):
        file = env.file(path.lstrip("~"))
        if file is not None and (value := file.variables.get(name)):
            return value, path
    return None


def _driverless_devices(pci: Pci | Unseen) -> tuple[str, ...]:
    """InfiniBand controllers (class 0207) on the bus that are not kept for a virtual machine."""
    devices = pci.devices if isinstance(pci, Pci) else ()
    ours = (hca for hca in devices if hca.class_code.startswith("0207") and hca.driver not in GIVEN_AWAY)
    return tuple(hca.address for hca in ours if hca.physfn is None)


def _complete_ports(ports: tuple[IbPort, ...], more: tuple[IbPort, ...]) -> tuple[IbPort, ...]:
    """The ports with gaps filled from another source, and those only the other one has."""
    by_name = {port.name: port for port in more}
    both = [filled(port, by_name[port.name]) if port.name in by_name else port for port in ports]
    names = {port.name for port in ports}
    return (*both, *(port for port in more if port.name not in names))


def _source_disagreements(
    source: str, ports: tuple[IbPort, ...], readings: list[tuple[str, tuple[IbPort, ...]]]
) -> list[str]:
    by_name = {port.name: port for port in ports}
    return [
        f"{source} and {name} of {difference}"
        for name, more in readings
        for port in more
        if port.name in by_name and (difference := differs(by_name[port.name], port))
    ]
