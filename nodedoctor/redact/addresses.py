"""Stand-ins for addresses: IPv4, IPv6, MAC, GUID. What depends on an address's shape comes out the same.

Addresses of one /24 (IPv6: /64) come out in one, private ones within the same private range, public ones in
the ranges for benchmarks and documentation (RFC 2544, RFC 3849). Loopback, multicast, netmasks, the clouds'
metadata service and the unspecified address name no host and stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator

STAYS = frozenset({"169.254.169.254", "169.254.169.253", "169.254.169.123", "168.63.129.16"})
"""Services every machine of a cloud reaches under the same address (AWS, Azure, GCP)."""
_MASK_OCTETS = frozenset({0, 128, 192, 224, 240, 248, 252, 254, 255})
_PRIVATE = ("10.", "192.168.", "169.254.", *(f"172.{n}." for n in range(16, 32)),
            *(f"100.{n}." for n in range(64, 128)))  # fmt: skip
_BENCHMARK = 198 << 16 | 18 << 8  # 198.18.0.0/15, as the number of a /24
_RESERVED = 240 << 16
_LOCAL_MAC = 0x02_00_00_00_00_00  # locally administered: it hides the vendor too
_LOCAL_GUID = 0x0200_00FF_FE00_0000  # the same as a modified EUI-64


def octets(text: str) -> list[int] | None:
    """The octets of an IPv4 address; None for what cannot be one (580.95.05, 96.00.89.00)."""
    parts = text.split(".")
    if len(parts) != 4 or any(part != str(int(part)) or int(part) > 255 for part in parts):
        return None
    return [int(part) for part in parts]


def is_private(text: str) -> bool:
    """Whether an IPv4 address is of a range that anybody may use (RFC 1918, 6598, 3927)."""
    return text.startswith(_PRIVATE)


def names_nobody(text: str) -> bool:
    """Whether an IPv4 address means the same everywhere, so that it stays."""
    first, *rest = (int(part) for part in text.split("."))
    mask = {first, *rest} <= _MASK_OCTETS and first >= 128 and sorted((first, *rest))[::-1] == [first, *rest]
    network = not any(rest[1:]) and f"{first}.{rest[0]}." in (
        "10.0.",
        "172.16.",
        "192.168.",
        "169.254.",
        "100.64.",
    )
    return first in (0, 127) or first >= 224 or mask or network or text in STAYS


class Addresses:
    """Hands out stand-ins for addresses; none whose value, or for IP whose network, is taken."""

    def __init__(self, reserved: ReservedWords) -> None:
        self._taken = reserved
        self._octets: dict[str, dict[int, int]] = {}
        self._left: dict[str, Iterator[int]] = {}
        self._values: dict[str, dict[int, int]] = {}
        self._networks: dict[str, dict[int, int]] = {}
        self._counts: Counter[str] = Counter()

    def ipv4(self, text: str) -> str:
        """The stand-in of an IPv4 address."""
        if names_nobody(text):
            return text
        a, b, c, d = (int(part) for part in text.split("."))
        if not is_private(text):
            number = self._stand_in_number("public", a << 16 | b << 8 | c, self._public_free)
            a, b, c = number >> 16, number >> 8 & 255, number & 255
        elif a in (192, 169):
            c = self._replace_octet(f"{a}.{b}", c, range(256))
        else:
            second = {10: range(256), 100: range(64, 128), 172: range(16, 32)}[a]
            was = f"{a}.{b}"
            b = self._replace_octet(f"{a}", b, second)
            c = self._replace_octet(was, c, range(1, 256), fresh=True) if c else 0
        last = (
            self._replace_octet(text.rpartition(".")[0], d, range(1, 255), fresh=True)
            if d not in (0, 255)
            else d
        )
        return f"{a}.{b}.{c}.{last}"

    def ipv6(self, text: str) -> str:
        """The stand-in of an IPv6 address or GID, written in full where it was; what is none stays."""
        try:
            value = int(ipaddress.IPv6Address(text))
        except ValueError:
            return text
        network, host = value >> 64, value & (1 << 64) - 1
        top = value >> 112
        if value >> 32 == 0xFFFF or (network == 0x64_FF9B << 32 and host >> 32 == 0):
            four = self.ipv4(str(ipaddress.IPv4Address(value & 0xFFFFFFFF)))
            if "." in text:
                return text[: text.rindex(":") + 1] + four
            return _format_like(text, value >> 32 << 32 | int(ipaddress.IPv4Address(four)))
        if top & 0xFE00 == 0xFC00:
            network = 0xFD00 << 48 | self._network_number("fd00:0:0:", network)
        elif top & 0xE000 == 0x2000:
            network = 0x2001_0DB8 << 32 | self._network_number("2001:db8:0:", network)
        elif top & 0xFF00 != 0xFE00:
            return text
        return _format_like(text, network << 64 | self.guid(host))

    def mac(self, value: int) -> int:
        """The stand-in of a MAC address; broadcast, protocols' multicast and the empty one stay."""
        if value in (0, (1 << 48) - 1) or value >> 24 in (0x01005E, 0x0180C2):
            return value
        reserved = self._taken.digits("020000", "020000[0-9a-f]{6}")
        return self._stand_in_number("mac", value, lambda n: _unused_value(_LOCAL_MAC + n, 12, reserved))

    def guid(self, value: int) -> int:
        """The stand-in of a GUID or of the host's half of an IPv6 address; an empty one stays."""
        if value in (0, (1 << 64) - 1):
            return value
        reserved = self._taken.digits("020000fffe", "020000fffe[0-9a-f]{6}")
        return self._stand_in_number("guid", value, lambda n: _unused_value(_LOCAL_GUID + n, 16, reserved))

    def _replace_octet(self, parent: str, octet: int, among: range, *, fresh: bool = False) -> int:
        """The octet for this one under the same parent; `fresh` when the parent is made up already."""
        octets = self._octets.setdefault(parent, {})
        if octet not in octets:
            if parent not in self._left:
                used = frozenset() if fresh else self._taken.words(f"{parent}.", rf"{parent}\.[0-9]{{1,3}}\.")
                order = sorted(among, key=lambda n: (f"{parent}.{n}." in used, not n, n))
                self._left[parent] = iter(order)
            octets[octet] = next(self._left[parent])
        return octets[octet]

    def _network_number(self, prefix: str, network: int) -> int:
        """The number of the /64 below the prefix."""
        numbers = self._networks.setdefault(prefix, {})
        if network not in numbers:
            number = len(numbers) + 1
            while number in numbers.values() or f"{prefix}{number:x}:" in self._taken.text:
                number += 1
            numbers[network] = number
        return numbers[network]

    def _stand_in_number(self, kind: str, value: int, free: Callable[[int], int | None]) -> int:
        numbers = self._values.setdefault(kind, {})
        while value not in numbers:
            self._counts[kind] += 1
            number = free(self._counts[kind])
            if number is not None:
                numbers[value] = number
        return numbers[value]

    def _public_free(self, count: int) -> int | None:
        number = (_BENCHMARK if count < 512 else _RESERVED) + count
        network = f"{number >> 16}.{number >> 8 & 255}.{number & 255}."
        return (
            None if network in self._taken.words("", r"(?:198|24[0-9])\.[0-9]{1,3}\.[0-9]{1,3}\.") else number
        )


def _unused_value(value: int, digits: int, reserved: Collection[str]) -> int | None:
    return None if f"{value:0{digits}x}" in reserved else value


def _format_like(text: str, value: int) -> str:
    """An IPv6 address, in full where the original was."""
    address = ipaddress.IPv6Address(value)
    return address.exploded if len(text) == 39 else address.compressed


class ReservedWords:
    """What a text has already cannot be given out: its words of a shape, found once for each shape."""

    def __init__(self, text: str) -> None:
        self.text = text.lower()
        self._digits: str | None = None
        self._found: dict[str, frozenset[str]] = {}

    def words(self, near: str, shape: str) -> frozenset[str]:
        """What fits the pattern `shape`; it holds the letters `near`, for which to look is much faster."""
        return self._find(self.text, near, shape)

    def digits(self, near: str, shape: str) -> frozenset[str]:
        """The same in the text without what is put between digits: 02:00:00 counts as 020000."""
        if self._digits is None:
            self._digits = self.text.replace(":", "").replace("-", "").replace("_", "")
        return self._find(self._digits, near, shape)

    def _find(self, text: str, near: str, shape: str) -> frozenset[str]:
        if shape not in self._found:
            words = re.findall(f"(?=({shape}))", text) if near in text else ()
            self._found[shape] = frozenset(words)
        return self._found[shape]
