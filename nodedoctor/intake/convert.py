"""Outputs of tools whose probe is a document of our own: the same facts in its layout."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nodedoctor.facts.driver.driver import RIVALS
from nodedoctor.intake.answers import (
    GPU_COUNT,
    HOST_ADDRESSES,
    HOST_NAME,
    governors,
    group_files,
    own_group,
    unit_states,
)
from nodedoctor.intake.split import Piece

_LINK = re.compile(
    r"^\d{1,6}: ([\w.-]{1,40})(?:@[\w.-]{1,40})?: <([A-Z0-9_,-]{0,200})> mtu (\d{1,7})"
    r"(?:.{0,200}? state ([A-Z]{2,20}))?",
    re.M,
)
_SETTINGS = re.compile(r"^Settings for ([\w.-]{1,40}):[ \t]{0,9}\n((?:[ \t][^\n]{0,300}\n){1,120})", re.M)
_LINK_DETECTED = re.compile(r"^[ \t]{1,9}Link detected: (yes|no)\b", re.M)
_SPEED = re.compile(r"^[ \t]{1,9}Speed: (\d{1,7})Mb/s", re.M)
_BRIEF = re.compile(
    r"^(?P<name>[\w.-]{1,40})(?:@[\w.-]{1,40})?[ \t]{1,40}(?P<state>UP|DOWN|UNKNOWN|DORMANT|LOWERLAYERDOWN)\b"
    r"(?P<rest>[ \t]?[^<\n]{0,400})(?:<(?P<flags>[A-Z0-9_,-]{0,200})>[ \t]{0,9})?$",
    re.M,
)
_ADDRESS = re.compile(r"^[ \t]{1,20}inet6? ([\da-fA-F.:]{3,45})(?:/\d{1,3})? ", re.M)
_MASTER = re.compile(r" master ([\w.-]{1,40})")
"""The bond of an interface with the flag SLAVE; those of bridges do not have it."""
_MAC = re.compile(r"^[ \t]{1,20}link/(\w{1,20}) ([\da-f:]{11,64})", re.M)
_RECEIVED = re.compile(
    r"^[ \t]{1,20}RX:[ \t]{1,30}bytes[ \t]{1,30}packets[ \t]{1,30}errors[^\n]{0,80}\n"
    r"[ \t]{1,20}\d{1,20}[ \t]{1,30}(?P<packets>\d{1,20})[ \t]{1,30}(?P<errors>\d{1,20})[ \t]",
    re.M,
)
"""What `ip -s link` counts."""
_CLOCK = re.compile(
    r"^[ \t]{0,40}(?:System clock synchronized|NTP synchronized|Leap status)[ \t]{0,20}: "
    r"([A-Za-z]{2,20}(?: [a-z]{2,20})?)[ \t]{0,20}$",
    re.M,
)
_IN_STEP = ("yes", "Normal", "Insert second", "Delete second")
"""What timedatectl and chronyc say of a clock that is kept; chrony may keep it without the kernel's flag."""
_OFFSET = re.compile(
    r"^[ \t]{0,40}System time {1,12}: (\d{1,12}(?:\.\d{1,12})?) seconds (?:fast|slow) ", re.M
)
"""How far `chronyc tracking` says that the clock is from NTP time."""
_COUNT = re.compile(r"^[ \t]{1,20}([\w.\[\]-][\w.\[\] -]{0,80}): (-?\d{1,20})[ \t]{0,20}$", re.M)
_UNIT = re.compile(r"^\W{0,2}([\w@.-]{1,80}\.service)\b[^\n]{0,300}\n((?:[ \t][^\n]{0,500}\n){0,80})", re.M)
_UNIT_ROW = re.compile(
    r"^[^\w\n]{0,6}(?P<unit>[\w@:.-]{1,80}\.service)[ \t]{1,80}(?P<load>[a-z-]{3,12})[ \t]{1,12}"
    r"(?P<active>[a-z]{6,12})[ \t]{1,12}(?P<sub>[a-z][\w-]{2,20})\b",
    re.M,
)
"""A row of `systemctl list-units`."""
_LOADED = re.compile(r"Loaded: ([\w-]+)(?: \([^;\n)]*(?:; ([\w-]+))?)?")
_ACTIVE = re.compile(r"Active: ([\w-]+)(?: \(([\w-]+)\))?(?: \(Result: ([\w-]+)\))?")
_FLAGS = {"UP": 0x1, "BROADCAST": 0x2, "LOOPBACK": 0x8, "POINTOPOINT": 0x10, "RUNNING": 0x40, "NOARP": 0x80,
          "MULTICAST": 0x1000, "LOWER_UP": 0x10000}  # fmt: skip
"""linux/if.h."""


def interfaces(pieces: Sequence[Piece]) -> str:
    """`ip -s link`, `ip address` and what says of the clock as probes/network/net.py lays them out."""
    links: dict[str, dict[str, Any]] = {}
    for piece in pieces:
        heads = list(_LINK.finditer(piece.text))
        ends = [*(head.start() for head in heads[1:]), len(piece.text)]
        for head, end in zip(heads, ends, strict=False):
            block = piece.text[head.end() : end]
            links.setdefault(head[1], {}).update(_interface_row(head, block))
        for heading in _SETTINGS.finditer(piece.text):
            links.setdefault(heading[1], {}).update(_settings_row(heading[2]))
        for row in _BRIEF.finditer(piece.text):
            links.setdefault(row["name"], {}).update(_brief_row(row))
    states = [word in _IN_STEP for piece in pieces for word in _CLOCK.findall(piece.text)]
    name = _own_name(pieces)
    clock: dict[str, Any] = {"unsynchronised": not any(states)} if states else {}
    if offsets := [float(number) for piece in pieces for number in _OFFSET.findall(piece.text)]:
        clock["offset_seconds"] = max(offsets)
    if not (links or clock or name):
        return ""
    return json.dumps({"interfaces": links, **({"clock": clock} if clock else {}), **name})


def _own_name(pieces: Sequence[Piece]) -> dict[str, Any]:
    """The name of the node and what /etc/hosts and `getent` give it; nothing where they do not name it."""
    answers = [piece.text.split()[0] for piece in pieces if piece.shape is HOST_NAME.shape]
    names = answers or [piece.host for piece in pieces if piece.host]
    if not names:
        return {}
    rows = [
        line.partition("#")[0].split()
        for piece in pieces
        if piece.shape.what == "/etc/hosts" or piece.shape is HOST_ADDRESSES.shape
        for line in piece.text.splitlines()
    ]
    own = {names[0], names[0].partition(".")[0]}
    addresses = [row[0] for row in rows if own.intersection(row[1:])]
    return {"hostname": names[0], "hosts": [*dict.fromkeys(addresses)]} if addresses else {}


def _interface_row(head: re.Match[str], block: str) -> dict[str, Any]:
    flags = head[2].split(",")
    fields: dict[str, Any] = {
        "flags": hex(sum(_FLAGS.get(flag, 0) for flag in flags)),
        "mtu": head[3],
        "operstate": (head[4] or "unknown").lower(),
        "carrier": "0" if "NO-CARRIER" in flags else "1" if "LOWER_UP" in flags else None,
    }
    if "SLAVE" in flags and (master := _MASTER.search(head[0])):
        fields |= {"master": master[1], "physical": True}
    if "MASTER" in flags:
        fields["bond"] = True
    if addresses := _ADDRESS.findall(block):
        fields["addresses"] = addresses
    if link := _MAC.search(block):
        fields["address"] = link[2]
    if counts := _RECEIVED.search(block):
        fields |= {"rx_packets": counts["packets"], "rx_errors": counts["errors"]}
    return {key: value for key, value in fields.items() if value is not None}


def _settings_row(block: str) -> dict[str, Any]:
    """What `ethtool INTERFACE` says: its speed, and whether it has a link."""
    link, speed = _LINK_DETECTED.search(block), _SPEED.search(block)
    fields: dict[str, Any] = {"speed": speed[1]} if speed else {}
    if link:
        is_up = link[1] == "yes"
        fields |= {"flags": "0x1", "operstate": "up" if is_up else "down", "carrier": "1" if is_up else "0"}
    return fields


def _brief_row(row: re.Match[str]) -> dict[str, Any]:
    """A row of `ip -br link` or `ip -br address`; the latter has no flags, only whether there is a link."""
    flags = row["flags"].split(",") if row["flags"] else ["UP"]
    is_down = "NO-CARRIER" in flags or (not row["flags"] and row["state"] == "DOWN")
    fields: dict[str, Any] = {
        "flags": hex(sum(_FLAGS.get(flag, 0) for flag in flags)),
        "operstate": row["state"].lower(),
    }
    if addresses := re.findall(r"(?<= )([\d.]{7,15}|[\da-f:]{3,45})/\d", row["rest"]):
        fields["addresses"] = addresses
    return fields | ({"carrier": "0"} if is_down else {})


def statistics(pieces: Sequence[Piece]) -> str:
    """`ethtool -S` as probes/network/ethtool.py lays it out; the interface is named only at the prompt."""
    counts: dict[str, dict[str, int]] = {}
    for number, piece in enumerate(pieces):
        last = (piece.command.split()[1:] or [""])[-1]
        name = last if re.fullmatch(r"[\w.-]{1,15}", last) else f"interface {number + 1}"
        counts[name] = {key.strip(): int(value) for key, value in _COUNT.findall(piece.text)}
    return json.dumps({"interfaces": counts})


def units(pieces: Sequence[Piece]) -> str:
    """`systemctl status` as `systemctl show` says it."""
    blocks = []
    for piece in pieces:
        if (states := unit_states(piece)) is not None:
            blocks += [states] if states else []
        elif rows := [*_UNIT_ROW.finditer(piece.text)]:
            blocks += [
                f"Id={row['unit']}\nLoadState={row['load']}\nActiveState={row['active']}\nSubState={row['sub']}"
                for row in rows
            ]
        elif "Loaded: " not in piece.text:
            blocks.append(piece.text.strip())
        for unit in _UNIT.finditer(piece.text):
            loaded, active = _LOADED.search(unit[2]), _ACTIVE.search(unit[2])
            if loaded and active:
                fields = {
                    "Id": unit[1],
                    "LoadState": loaded[1],
                    "ActiveState": active[1],
                    "SubState": active[2],
                    "UnitFileState": loaded[2],
                    "Result": active[3],
                }
                blocks.append("\n".join(f"{key}={value or ''}" for key, value in fields.items()))
    return "\n\n".join(blocks) + "\n" if blocks else ""


_MODULE = re.compile(r"^(\w{1,60}) {1,60}(\d{1,12}) {1,12}(\d{1,6})(?: ([\w,]{1,2000}))?\s*$", re.M)
_KEEPS = re.compile(
    r"e?grep(?: -[iE]{1,2})? ['\"]?(?:[\w.^-]{1,40}\\?\|){0,8}\^?nvidia(?:\\?\|[\w.|\\-]{1,200})?['\"]?"
    r"|less|more|sort"
)
"""A filter behind `lsmod` that leaves out no module of NVIDIA's driver."""


def loaded_modules(pieces: Sequence[Piece]) -> str:
    """`lsmod` as /proc/modules has it; nothing without a driver of GPUs, or where a filter may hide one."""
    rows = [
        f"{name} {size} {count} {users + ',' if users else '-'} Live 0x0000000000000000\n"
        for piece in pieces
        if all(_KEEPS.fullmatch(part.strip()) for part in piece.command.split(" | ")[1:])
        for name, size, count, users in _MODULE.findall(piece.text)
    ]
    drives = any(row.startswith(("nvidia ", *(f"{rival} " for rival in RIVALS))) for row in rows)
    return json.dumps({"files": {"/proc/modules": "".join(rows)}}) if drives else ""


_GPU_LINKS = re.compile(r"^[ \t]{0,20}gpuId (\d{1,3}):?[ \t]{0,20}\n[ \t]{0,20}((?:[UDX_] ?){1,64})", re.M)


def link_states(pieces: Sequence[Piece]) -> str:
    """`dcgmi nvlink --link-status` as `nvidia-smi nvlink -s` says it; it has no speeds."""
    blocks = []
    for piece in pieces:
        match = list(_GPU_LINKS.finditer(piece.text))
        blocks += [_link_lines(gpu[1], gpu[2].split()) for gpu in match]
        blocks += [] if match else [_with_heading(piece.text)]
    return "".join(blocks)


_HEADING = re.compile(r"^[ \t]{0,20}GPU (\d{1,3}): ", re.M)


def _with_heading(text: str) -> str:
    """The links of `nvidia-smi nvlink`; rows above the first heading are of the GPU before that."""
    first = _HEADING.search(text)
    number = int(first[1]) if first else 0
    is_cut = first is not None and number > 0 and "Link " in text[: first.start()]
    return f"GPU {number - 1}: NVIDIA GPU\n{text}" if is_cut else text


def link_errors(pieces: Sequence[Piece]) -> str:
    """`nvidia-smi nvlink -e`, the rows above its first heading included."""
    return "".join(_with_heading(piece.text) for piece in pieces)


def gpu_list(pieces: Sequence[Piece]) -> str:
    """The longest `nvidia-smi -L`; where a text ends with it, it may go on, and that is marked."""
    piece = max(pieces, key=lambda piece: (piece.shape is not GPU_COUNT.shape, piece.text.count("\n")))
    if piece.shape is GPU_COUNT.shape:
        return f"{piece.text.split()[0]}\n"
    return f"{piece.text}{'...' if piece.is_last or piece.is_cut else ''}\n"


def _link_lines(gpu: str, states: Sequence[str]) -> str:
    present = [(link, state) for link, state in enumerate(states) if state != "_"]
    lines = "".join(
        f"\t Link {link}: {'<active>' if state == 'U' else '<inactive>'}\n" for link, state in present
    )
    return f"GPU {gpu}: NVIDIA GPU\n{lines}"


_DEVICE = re.compile(r"(?:-d|--device)[ =]?([\w.:/-]{1,80})")


def named_ports(pieces: Sequence[Piece]) -> str:
    """`mlxlink` of several ports, each below the device that only the command at the prompt names."""
    blocks = []
    for number, piece in enumerate(pieces):
        device = _DEVICE.search(piece.command)
        name = device[1].rpartition("/")[2] if device else f"{number + 1}"
        blocks.append(f"# port {name}\n{piece.text}" if device or pieces[1:] else piece.text)
    return "".join(blocks)


_COUNTER_FILE = re.compile(
    r"/sys/class/infiniband/([\w.-]{1,40})/ports/(\d{1,3})/counters/(\w{3,60})[:=] ?(\d{1,20})[ \t]*$", re.M
)


_CLASS = "/sys/class/infiniband/"
_QUERIED_DEVICE = re.compile(r"(?:-C|--Ca)[ =]?([\w.-]{1,40})")


def port_counters(pieces: Sequence[Piece]) -> str:
    """`perfquery` with the device that its command names, and files of sysfs in the same layout."""
    text = "".join(_named_counters(piece) for piece in pieces if _CLASS not in piece.text)
    ports: dict[str, str] = {}
    for piece in pieces:
        for device, port, name, value in _COUNTER_FILE.findall(piece.text):
            camel = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
            where = f"# Port counters: {device} port {port}\n"
            ports[where] = f"{ports.get(where, '')}{camel}:....{value}\n"
    return text + "".join(where + lines for where, lines in ports.items())


def _named_counters(piece: Piece) -> str:
    device = _QUERIED_DEVICE.search(piece.command)
    if piece.shape.each_line:
        return f"# Port counters: {device[1] if device else 'the port'}\n{piece.text}"
    return piece.text.replace("counters: Lid", f"counters: {device[1]} Lid") if device else piece.text


_BANDWIDTH = re.compile(
    r"^ ?\d{1,12}[ \t]{1,20}\d{1,12}[ \t]{1,20}[\d.]{1,12}[ \t]{1,30}(\d{1,9}(?:\.\d{1,9})?)"
    r"[ \t]{1,30}[\d.]{1,12}",
    re.M,
)
_RDMA_DEVICE = re.compile(r"\bDevice\s{1,20}: ([\w.-]{1,64})")
_RDMA_PORT = re.compile(r"(?:-i|--ib-port)[ =]?(\d{1,3})\b")
_MIB_IN_GBIT = 8 * 2**20 / 1e9


def bandwidths(pieces: Sequence[Piece]) -> str:
    """`ib_write_bw` and its like as probes/measured/ib_write_bw.py lays them out: the largest average.

    A test in both directions counts what both carry, of which a port's rate is half.
    """
    ports = []
    for piece in pieces:
        averages = [float(row[1]) for row in _BANDWIDTH.finditer(piece.text)]
        device, number = _RDMA_DEVICE.search(piece.text), _RDMA_PORT.search(piece.command)
        unit = _MIB_IN_GBIT if "average[M" in piece.text else 1.0
        directions = 2 if "Bidirectional" in piece.text else 1
        port = f"{device[1] if device else 'port'}/{number[1] if number else 1}"
        entry: dict[str, Any] = {"port": port, "text": piece.text}
        if averages:
            entry["gbps"] = max(averages) * unit / directions
        ports.append(entry)
    return json.dumps({"ports": ports})


_DF_HEAD = re.compile(r"^Filesystem {1,200}(?:Type {1,20})?(Size|1K-blocks|1M-blocks|Inodes) ", re.M)
_COLUMNS = {"Inodes": ("inodes", "inodes_used", "inodes_free")}
"""What the three numbers of a line are where they are no bytes: `df -i`."""
_TYPED = re.compile(r"^[ \t]{0,40}(?:\$ |\+ )(?=\w{1,60}=)", re.M)
_WORD = re.compile(r"(?:[^\s'\"]|'[^'\n]{0,2000}'|\"[^\"\n]{0,2000}\"){1,4000}")
_ASSIGNED = re.compile(r"\w{1,60}=[^\n]*")


def variables(pieces: Sequence[Piece]) -> str:
    """Variables as env(1) prints them: what was typed in front of a program ends at a blank."""
    return "".join(_split_line(line) for piece in pieces for line in piece.text.splitlines(keepends=True))


def _split_line(line: str) -> str:
    """A line of env(1), or one for each assignment in front of a program."""
    typed = _TYPED.match(line)
    if typed is None:
        return line
    rows = []
    for word in _WORD.findall(line[typed.end() :]):
        if not _ASSIGNED.fullmatch(word):
            break
        rows.append(f"{word}\n")
    return "".join(rows)


_DF_ROW = re.compile(
    r"^(\S{1,400}) {1,200}(?:[a-z][\w.]{1,20} {1,20})?(\S{1,20}) {1,20}(\S{1,20}) {1,20}(\S{1,20}) {1,20}"
    r"(\d{1,3})% {1,20}(/\S{0,400})$",
    re.M,
)
_BYTES = re.compile(r"(\d{1,18}(?:\.\d{1,3})?)([KMGTPE]?)(?:i?B)?")
_HOLDS_DATA = re.compile(r"/dev/(?!loop|sr\d)|overlay$|[\w.,@\[\]-]{1,200}:")
"""Sources of file systems that jobs write to: not those in memory, and no image, which is always full."""


_ULIMIT = re.compile(
    r"^max locked memory[ \t]{1,60}\(kbytes, -l\)[ \t]{1,20}(\d{1,15}|unlimited)[ \t]{0,20}$", re.M
)
"""The limit of a shell that is judged without the hard one, which `ulimit -a` does not print."""
SHM = "/dev/shm"


def own_limits(pieces: Sequence[Piece]) -> str:
    """`ulimit -a`, the line of `df` about /dev/shm and files of a control group as the probe has them."""
    lines = []
    space: dict[str, dict[str, int]] = {}
    files: dict[str, str] = {}
    for piece in pieces:
        files |= group_files(piece)
        for value in _ULIMIT.findall(piece.text):
            number = value if value == "unlimited" else str(int(value) * 1024)
            lines.append(f"{'Max locked memory':<25} {number:<20} {number:<20} bytes\n")
        shared = (sizes for path, _, sizes in _mounted(piece) if path == SHM and "size_bytes" in sizes)
        space.update((SHM, sizes) for sizes in shared)
    if not (lines or space or files):
        return ""
    files |= {"/proc/self/limits": "".join(lines)} if lines else {}
    files |= own_group(files)
    return json.dumps({"files": files, "statvfs": space})


def _mounted(piece: Piece) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Each line of `df`: where it is mounted, what, and its sizes."""
    heads = list(_DF_HEAD.finditer(piece.text))
    ends = [*(head.start() for head in heads[1:]), len(piece.text)]
    for head, end in zip(heads, ends, strict=False):
        unit = {"1K-blocks": 1 << 10, "1M-blocks": 1 << 20}.get(head[1], 1)
        names = _COLUMNS.get(head[1], ("size_bytes", "used_bytes", "free_bytes"))
        for row in _DF_ROW.finditer(piece.text, head.end(), end):
            sizes = [_number_of_bytes(text, unit) for text in row.groups()[1:4]]
            if None not in sizes:
                share = {} if "inodes" in names else {"used_percent": int(row[5])}
                yield (
                    row[6],
                    row[1],
                    {name: size or 0 for name, size in zip(names, sizes, strict=True)} | share,
                )


def file_systems(pieces: Sequence[Piece]) -> str:
    """`df` and `df -i` as the probe lays them out; of what is mounted twice the first line."""
    space: dict[str, dict[str, int]] = {}
    paths: dict[str, str] = {}
    for piece in pieces:
        for path, source, sizes in _mounted(piece):
            if _HOLDS_DATA.match(source) and paths.setdefault(source, path) == path:
                space[path] = {**sizes, **space.get(path, {})}
    return json.dumps({"statvfs": space}) if space else ""


def _number_of_bytes(text: str, unit: int) -> int | None:
    """Of `916G` the bytes; a number without a letter counts what the heading says."""
    match = _BYTES.fullmatch(text)
    if match is None:
        return None
    return int(float(match[1]) * (1024 ** " KMGTPE".index(match[2]) if match[2] else unit))


def processors(pieces: Sequence[Piece]) -> str:
    """Governors and driver of the processors' frequency as the probe of the host reads their files."""
    files = {path: text for piece in pieces for path, text in governors(piece).items()}
    return json.dumps({"files": files}) if files else ""


_ADAPTER = re.compile(
    r"^.{0,160}?\b(?P<hca>[\w.-]{1,64}) \(MT(?P<part>\d{3,6}) - (?P<board>[\w.-]{1,40})\s{0,9}\)"
    r".{0,200}? fw (?P<fw>\d[\d.]{3,20}) port (?P<port>\d{1,3}) \((?P<state>[A-Z]{2,12}) {0,2}\) {1,6}==>.*$",
    re.M,
)
"""A row of `ibdev2netdev -v`."""


def adapters(pieces: Sequence[Piece]) -> str:
    """`ibv_devinfo`, and the rows of `ibdev2netdev -v` as it prints the same."""
    return "".join(
        _ADAPTER.sub(
            r"hca_id:\t\g<hca>\n\tfw_ver:\t\g<fw>\n\tvendor_part_id:\t\g<part>\n\tboard_id:\t\g<board>\n"
            r"\t\tport:\t\g<port>\n\t\t\tstate:\tPORT_\g<state>\n",
            piece.text,
        )
        for piece in pieces
    )


CONVERTED: Mapping[str, Callable[[Sequence[Piece]], str]] = {
    "env": variables,
    "host": processors,
    "driver-files": loaded_modules,
    "ibv-devinfo": adapters,
    "net": interfaces,
    "nvidia-smi-list": gpu_list,
    "nvidia-smi-nvlink": link_states,
    "nvidia-smi-nvlink-errors": link_errors,
    "ethtool": statistics,
    "services": units,
    "disk": file_systems,
    "limits": own_limits,
    "mlxlink": named_ports,
    "perfquery": port_counters,
    "ib-write-bw": bandwidths,
}
