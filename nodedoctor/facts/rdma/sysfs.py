"""RDMA adapters (InfiniBand and RoCE) as sysfs shows them: ports, rates, counters, with no tool needed.

Counters of mlx5 are asked from firmware, which may stop answering: each adapter is read by its own process,
so one that hangs is named and the others are still known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe
from nodedoctor.declare.unread import Unread, unread
from nodedoctor.facts.files import Files, whole_number
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import field, record

CLASS = "/sys/class/infiniband"
EACH_SECONDS = "4"
_IDENTITY = ("hca_type", "fw_ver", "board_id", "hw_rev", "node_desc", "node_guid", "node_type")
# `gdr` is of Amazon's adapters alone: amzn/amzn-drivers, kernel/linux/efa/src/efa_sysfs.c.
_CARD = ("sys_image_guid", "gdr")
_PORT = ("state", "phys_state", "rate", "link_layer", "lid", "sm_lid", "sm_sl", "lid_mask_count", "cap_mask")
_GIDS = ("[0-9]", "1[0-5]")  # the table has 256 rows; RoCE fills a handful per address
RATE = re.compile(r"(\d{1,5}(?:\.\d)?) Gb/sec(?: \((\d{1,2}X)(?: (\w+))?\))?")


@probe("rdma", timeout=8, lane=Lane.FS)
def rdma_devices(options: Options) -> Command:
    """Every RDMA adapter from sysfs: identity, port states, rates, GIDs and error counters."""
    device, port = f"{CLASS}/*", f"{CLASS}/*/ports/*"
    words = [f"read:{device}/{name}" for name in (*_IDENTITY, *_CARD)]
    words += [f"link:{device}/device{link}" for link in ("", "/physfn", "/driver")]
    words += [f"read:{device}/device/numa_node"]
    words += [f"read:{device}/device/net/*/{name}" for name in ("operstate", "mtu", "dev_port")]
    words += [f"read:{port}/{name}" for name in _PORT]
    words += [f"read:{port}/{table}/{row}" for table in ("gids", "gid_attrs/types") for row in _GIDS]
    words += [f"read:{port}/gid_attrs/ndevs/{row}" for row in _GIDS]
    words += [f"read:{port}/counters/*", f"read:{port}/hw_counters/*"]
    return Command(child("host/files", "--root", options.root, "--each", EACH_SECONDS, *words))


_PORT_FILES = ("state", "phys_state", "link_layer")


@record
class Gid:
    """One row of a port's GID table: `kind` is `IB/RoCE v1` or `RoCE v2`, `netdev` the interface it is of."""

    index: int
    gid: str
    kind: str | None = None
    netdev: str | None = None


@record
class NetDevice:
    """A network interface on the same PCI function as an adapter; `port` is the port it belongs to."""

    name: str
    operstate: str | None = None
    mtu: int | None = None
    port: int | None = None


@record
class RdmaPort:
    """One port. States are the words of sysfs (ACTIVE, INIT, DOWN; LinkUp, Polling, Disabled).

    `rate_gbps` is what `rate` says, all lanes together; `width` is like 4X and `generation` like NDR (on
    Ethernet the generation means nothing). A counter that is not in `counters` could not be read.
    """

    number: int
    state: str | None = None
    phys_state: str | None = None
    link_layer: str | None = None
    rate: str | None = None
    rate_gbps: float | None = None
    width: str | None = None
    generation: str | None = None
    lid: int | None = None
    sm_lid: int | None = None
    gids: tuple[Gid, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    hw_counters: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        """True when it carries traffic."""
        return self.state == "ACTIVE"

    @property
    def infiniband(self) -> bool:
        """True for InfiniBand, False for Ethernet (RoCE) and where it is not said."""
        return self.link_layer == "InfiniBand"


@record
class Hca:
    """One RDMA device such as mlx5_0. `pci_address` is where it sits, `physfn` is set on virtual functions.

    `system_guid` is the same for all functions of one card. `gdr` is whether its driver reaches GPU memory,
    where the driver says so itself (EFA), else None.
    `stopped_answering` names the file whose read did not return; what was not read after it is unknown.
    """

    name: str
    hca_type: str | None = None
    firmware: str | None = None
    board_id: str | None = None
    node_desc: str | None = None
    node_guid: str | None = None
    system_guid: str | None = None
    driver: str | None = None
    gdr: bool | None = None
    pci_address: str | None = None
    physfn: str | None = None
    numa_node: int | None = None
    netdevs: tuple[NetDevice, ...] = ()
    ports: tuple[RdmaPort, ...] = ()
    stopped_answering: str | None = None
    errors: Mapping[str, str] = field(default_factory=dict)


@fact("rdma")
@record
class Rdma:
    """RDMA adapters and their ports. `supported` is False when the kernel has no RDMA subsystem loaded."""

    hcas: tuple[Hca, ...]
    supported: bool = True

    @classmethod
    def parse(cls, observation: Observation) -> Rdma | Unseen:
        """Read the sysfs files; no adapters is a fact, a directory that may not be read is not."""
        files = Files.parse_json(observation)
        if isinstance(files, Unseen):
            return files
        error = files.error(CLASS)
        if error == "ENOENT":
            return cls((), supported=False)
        if error is not None:
            return Unseen(
                "denied", f"{CLASS}: {error}", "Mount the host's /sys, or run on the host.", observation.probe
            )
        names = files.children(CLASS)
        if names and not files.files and not any(path.startswith(CLASS) for path in files.errors):
            return Unseen.of(observation)
        for name in names:
            _notice_lost_files(files, f"{CLASS}/{name}/ports")
        return cls(tuple(_read_hca(files, name) for name in names))

    def hca(self, name: str) -> Hca | None:
        """The adapter of that name."""
        return next((hca for hca in self.hcas if hca.name == name), None)

    @property
    def ports(self) -> tuple[tuple[Hca, RdmaPort], ...]:
        """Every port with its adapter."""
        return tuple((hca, port) for hca in self.hcas for port in hca.ports)


def _notice_lost_files(files: Files, folder: str) -> None:
    """Every port has a state and a link layer: where only one of them is there, the other was lost."""
    for number in files.children(folder):
        present = [name for name in _PORT_FILES if files.text(f"{folder}/{number}/{name}") is not None]
        failed = any(path.startswith(f"{folder}/{number}/") for path in files.errors)
        if present and len(present) < len(_PORT_FILES) and not failed:
            unread(Unread(f"{folder}/{number}", "not all of its files are there", "ib.ports"))


def _read_hca(files: Files, name: str) -> Hca:
    here = f"{CLASS}/{name}"
    numbers = sorted({int(n) for n in files.children(f"{here}/ports") if re.fullmatch(r"\d{1,3}", n)})
    errors = {p[len(here) + 1 :]: e for p, e in files.errors.items() if p.startswith(f"{here}/")}
    node = files.number(f"{here}/device/numa_node")
    stuck = sorted((path for path, error in errors.items() if error == "TIMEOUT"), key=len)
    return Hca(
        name=name,
        hca_type=files.text(f"{here}/hca_type"),
        firmware=files.text(f"{here}/fw_ver"),
        board_id=files.text(f"{here}/board_id"),
        node_desc=files.text(f"{here}/node_desc"),
        node_guid=files.text(f"{here}/node_guid"),
        system_guid=files.text(f"{here}/sys_image_guid"),
        driver=files.leaf(f"{here}/device/driver"),
        gdr={"0": False, "1": True}.get(files.text(f"{here}/gdr") or ""),
        pci_address=files.leaf(f"{here}/device"),
        physfn=files.leaf(f"{here}/device/physfn"),
        numa_node=node if node is not None and node >= 0 else None,
        netdevs=tuple(
            _read_netdev(files, f"{here}/device/net/{n}", n) for n in files.children(f"{here}/device/net")
        ),
        ports=tuple(_read_port(files, f"{here}/ports/{number}", number) for number in numbers),
        stopped_answering=stuck[-1] if stuck else (name if files.error(here) == "TIMEOUT" else None),
        errors={path: error for path, error in errors.items() if not path.startswith("ports/")},
    )


def _read_netdev(files: Files, here: str, name: str) -> NetDevice:
    port = files.number(f"{here}/dev_port")  # counts from 0, ports of the adapter from 1
    number = port + 1 if port is not None else None
    return NetDevice(name, files.text(f"{here}/operstate"), files.number(f"{here}/mtu"), number)


def _read_port(files: Files, here: str, number: int) -> RdmaPort:
    rate = files.text(f"{here}/rate")
    match = RATE.match(rate or "")
    return RdmaPort(
        number=number,
        state=_state_word(files.text(f"{here}/state")),
        phys_state=_state_word(files.text(f"{here}/phys_state")),
        link_layer=files.text(f"{here}/link_layer"),
        rate=rate,
        rate_gbps=float(match.group(1)) if match else None,
        width=match.group(2) if match else None,
        generation=match.group(3) if match else None,
        lid=files.number(f"{here}/lid"),
        sm_lid=files.number(f"{here}/sm_lid"),
        gids=_read_gids(files, here),
        counters=_read_counters(files, f"{here}/counters"),
        hw_counters=_read_counters(files, f"{here}/hw_counters"),
        errors=_read_errors(files, here),
    )


def _state_word(state: str | None) -> str | None:
    """`4: ACTIVE` is ACTIVE."""
    return None if state is None else state.partition(":")[2].strip() or state


def _read_gids(files: Files, here: str) -> tuple[Gid, ...]:
    """The rows that are in use: an empty one reads as zeros."""
    rows = []
    for index, gid in files.under(f"{here}/gids").items():
        number = whole_number(index)
        if number is not None and gid.strip("0:"):
            kind = files.text(f"{here}/gid_attrs/types/{index}")
            rows.append(Gid(number, gid, kind, files.text(f"{here}/gid_attrs/ndevs/{index}")))
    return tuple(sorted(rows, key=lambda row: row.index))


def _read_counters(files: Files, here: str) -> dict[str, int]:
    """Counters by name; some read `N/A (no PMA)`, some fail on virtual functions: those are left out."""
    numbers = {name: whole_number(text) for name, text in files.under(here).items()}
    return {name: number for name, number in sorted(numbers.items()) if number is not None}


def _read_errors(files: Files, here: str) -> dict[str, str]:
    """What could not be read, less the attributes of empty GID rows, which always fail with EINVAL."""
    start = f"{here}/"
    errors = {path[len(start) :]: error for path, error in files.errors.items() if path.startswith(start)}
    return {path: e for path, e in errors.items() if not (path.startswith("gid_attrs/") and e == "EINVAL")}
