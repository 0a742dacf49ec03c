"""What RDMA tools print: `ibstat`, and `ibstatus`, `ibv_devinfo` and `rdma link` where people paste them.

Formats: linux-rdma/rdma-core, infiniband-diags/ibstat.c, infiniband-diags/scripts/ibstatus,
libibverbs/examples/devinfo.c; iproute2, rdma/link.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import Command, Lane, Options, fact, pasted, probe, skipped
from nodedoctor.facts.files import Files, whole_number
from nodedoctor.facts.rdma.port import IbPort, guid, layer_word, phys_word, state_word
from nodedoctor.facts.rdma.sysfs import CLASS, RATE, Gid, NetDevice
from nodedoctor.model import Observation, Unseen
from nodedoctor.patterns import regex
from nodedoctor.record import record

NONE_HERE = "no RDMA device in /sys/class/infiniband"
WAY_OUT = "Install infiniband-diags, or read /sys/class/infiniband."

ibstatus = pasted("ibstatus", "The output of ibstatus.")
rdma_link = pasted("rdma-link", "The output of rdma link.")
ibv_devinfo = pasted("ibv-devinfo", "The output of ibv_devinfo, with or without -v.")

_RATE = regex(r"(\d{1,5}(?:\.\d)?)")
_SPEED = regex(r"(\d{1,4}(?:\.\d)?) Gbps")


@probe("ibstat", timeout=6, lane=Lane.FS, after=("rdma",))
def ibstat(options: Options, rdma: Observation) -> Command | Observation:
    """State, rate and identity of every port as ibstat prints them, where there is any RDMA device."""
    files = Files.parse_json(rdma)
    if options.root not in ("", "/"):
        return skipped("ibstat", "ibstat reads this root's /sys, not that of another one")
    if isinstance(files, Files):
        if not files.children(CLASS):
            return skipped("ibstat", NONE_HERE)
        if "TIMEOUT" in files.errors.values():
            return skipped("ibstat", "an adapter does not answer; ibstat would hang at it")
    return Command(("ibstat",))


@fact("ibstat", shown=False)
@record
class IbStat:
    """The ports that ibstat shows; `unreadable` are adapters that it lists and cannot read."""

    ports: tuple[IbPort, ...]
    unreadable: tuple[str, ...] = ()

    @classmethod
    def parse(cls, observation: Observation) -> IbStat | Unseen:
        """Read the blocks of every adapter and port; a cut-off one keeps what it has."""
        ports, unreadable = (
            tuple(_ibstat_ports(observation.text)),
            tuple(dict.fromkeys(_PANIC.findall(observation.text))),
        )
        return cls(ports, unreadable) if ports or unreadable else _why_no_ports(observation)


@fact("ibstatus", shown=False)
@record
class IbStatus:
    """The ports that ibstatus shows."""

    ports: tuple[IbPort, ...]

    @classmethod
    def parse(cls, observation: Observation) -> IbStatus | Unseen:
        """Read one block per port."""
        ports = tuple(_ibstatus_ports(observation.text))
        return cls(ports) if ports else _why_no_ports(observation)


@fact("ibv-devinfo", shown=False)
@record
class IbvDevinfo:
    """The ports that ibv_devinfo shows."""

    ports: tuple[IbPort, ...]

    @classmethod
    def parse(cls, observation: Observation) -> IbvDevinfo | Unseen:
        """Read the blocks of every adapter and port."""
        ports = tuple(_devinfo_ports(observation.text))
        return cls(ports) if ports else _why_no_ports(observation)


@fact("rdma-link", shown=False)
@record
class RdmaLink:
    """The ports that `rdma link` shows: their states, without rates."""

    ports: tuple[IbPort, ...]

    @classmethod
    def parse(cls, observation: Observation) -> RdmaLink | Unseen:
        """Read one line per port."""
        ports = tuple(_rdma_link(observation.text))
        return cls(ports) if ports else _why_no_ports(observation)


def _why_no_ports(observation: Observation) -> Unseen:
    message = f"{observation.text} {observation.note}"
    if observation.outcome.value == "skipped" and NONE_HERE in observation.note:
        return Unseen.skip(NONE_HERE)
    nothing = not observation.text.strip() and not observation.rc
    if observation.answered and ("No IB devices found" in message or "No devices" in message or nothing):
        return Unseen.skip("the InfiniBand tools found no device")
    return Unseen.of(observation, WAY_OUT)


def _split_blocks(text: str, first: re.Pattern[str]) -> Iterator[tuple[re.Match[str], str]]:
    """The text from each line that matches to the next such line."""
    starts = list(first.finditer(text))
    ends = [*(match.start() for match in starts[1:]), len(text)][: len(starts)]
    for start, end in zip(starts, ends, strict=True):
        yield start, text[start.end() : end]


def _parse_pairs(block: str) -> dict[str, str]:
    """The `key: value` lines of a block, keys in lower case; the first of a key counts."""
    pairs: dict[str, str] = {}
    for line in block.splitlines():
        key, colon, value = line.partition(":")
        if colon and value.strip():
            pairs.setdefault(" ".join(key.split()).lower(), value.strip())
    return pairs


_CA = re.compile(r"^[> \t]*CA:? '([\w.-]{1,64})'", re.MULTILINE)
_PANIC = regex(r"ibpanic: \[\d{1,8}\] \w{1,20}: [^\n']{0,80}?'([\w.-]{1,64})'")
"""How ibstat ends at an adapter whose files have gone: infiniband-diags, ibstat.c and ibdiag_common.c."""
_PORT = regex(r"^[> \t]*Port (\d{1,3}):", re.MULTILINE)
_STATE = regex(r"^[> \t]*State:", re.MULTILINE)


def _ibstat_ports(text: str) -> Iterator[IbPort]:
    for adapter, block in _split_blocks(text, _CA):
        about = _parse_pairs(_PORT.split(block, maxsplit=1)[0])
        numbered = [(int(port.group(1)), _parse_pairs(lines)) for port, lines in _split_blocks(block, _PORT)]
        # `ibstat | grep State` leaves the line out that names the port.
        for number, pairs in numbered or ([(1, about)] if _STATE.search(block) else []):
            yield IbPort(
                adapter.group(1),
                number,
                state_word(pairs.get("state")),
                phys_word(pairs.get("physical state")),
                _leading_number(_RATE, pairs.get("rate")),
                layer_word(pairs.get("link layer")),
                whole_number(pairs.get("base lid")),
                whole_number(pairs.get("sm lid")),
                model=about.get("ca type"),
                firmware=about.get("firmware version"),
                card=guid(about.get("system image guid")),
            )


_STATUS = re.compile(r"^[> \t]*Infiniband device '([\w.-]{1,64})' port (\d{1,3}) status:", re.MULTILINE)


def _ibstatus_ports(text: str) -> Iterator[IbPort]:
    for head, lines in _split_blocks(text, _STATUS):
        fields = _parse_pairs(lines)
        rate = RATE.search(fields.get("rate", ""))
        yield IbPort(
            head.group(1),
            int(head.group(2)),
            state_word(_after_number(fields.get("state"))),
            phys_word(_after_number(fields.get("phys state"))),
            float(rate.group(1)) if rate else None,
            layer_word(fields.get("link_layer")),
            whole_number(fields.get("base lid")),
            whole_number(fields.get("sm lid")),
            rate.group(2) if rate else None,
            rate.group(3) if rate else None,
        )


_HCA = re.compile(r"^[> \t]*hca_id:[ \t]*([\w.-]{1,64})", re.MULTILINE)
_GID = regex(r"GID\[ {0,4}(\d{1,4})\]:[ \t]{0,8}([\da-fA-F:.]{2,64})(?:, {0,4}(RoCE v[12]|IB/RoCE v1))?")
"""With -v; rdma-core prints the type of an entry from version 33 on."""
_DEV_PORT = regex(r"^[> \t]*port:[ \t]*(\d{1,3})\b", re.MULTILINE)
_DEV_STATE = regex(r"^[> \t]*state:[ \t]*PORT_", re.MULTILINE)


def _devinfo_ports(text: str) -> Iterator[IbPort]:
    for adapter, block in _split_blocks(text, _HCA):
        about = _parse_pairs(_DEV_PORT.split(block, maxsplit=1)[0])
        part = whole_number(about.get("vendor_part_id"))
        numbered = [(int(port.group(1)), lines) for port, lines in _split_blocks(block, _DEV_PORT)]
        # `ibv_devinfo | grep` leaves the line out that numbers the port.
        for number, lines in numbered or ([(1, block)] if _DEV_STATE.search(block) else []):
            fields = _parse_pairs(lines)
            width = re.match(r"\d{1,2}X", fields.get("active_width", ""))
            lane = _leading_number(_SPEED, fields.get("active_speed"))
            yield IbPort(
                adapter.group(1),
                number,
                state_word(_before_number(fields.get("state"))),
                phys_word(_before_number(fields.get("phys_state"))),
                lane * int(width.group().rstrip("X")) if lane and width else None,
                layer_word(fields.get("link_layer")),
                whole_number(fields.get("port_lid")),
                whole_number(fields.get("sm_lid")),
                width.group() if width else None,
                model=f"MT{part}" if part else None,
                firmware=about.get("fw_ver"),
                board_id=about.get("board_id"),
                card=guid(about.get("sys_image_guid")),
                active_mtu=whole_number(_before_number(fields.get("active_mtu"))),
                gids=tuple(Gid(int(row[1]), row[2], row[3]) for row in _GID.finditer(lines)),
            )


_RDMA_LINK = re.compile(
    r"^[> \t]*(?:link|\d{1,4}/\d{1,4}:) (?P<hca>[\w.-]{1,64})/(?P<port>\d{1,3}):? (?P<rest>.*)$", re.MULTILINE
)


def _rdma_link(text: str) -> Iterator[IbPort]:
    """`link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1`; lid and sm_lid only of InfiniBand."""
    for match in _RDMA_LINK.finditer(text):
        words = match.group("rest").split()
        fields = dict(zip(words[::2], words[1::2], strict=False))
        netdev = fields.get("netdev")
        yield IbPort(
            match.group("hca"),
            int(match.group("port")),
            state_word(fields.get("state")),
            phys_word(fields.get("physical_state")),
            link_layer="InfiniBand" if "lid" in fields else "Ethernet" if netdev else None,
            lid=whole_number(fields.get("lid")),
            sm_lid=whole_number(fields.get("sm_lid")),
            netdevs=(NetDevice(netdev),) if netdev else (),
        )


def _leading_number(pattern: re.Pattern[str], text: str | None) -> float | None:
    match = pattern.match(text or "")
    return float(match.group(1)) if match else None


def _after_number(text: str | None) -> str | None:
    """`4: ACTIVE` is ACTIVE."""
    return text.partition(":")[2].strip() or text if text else None


def _before_number(text: str | None) -> str | None:
    """`PORT_ACTIVE (4)` is PORT_ACTIVE."""
    return text.partition("(")[0].strip() or None if text else None
