"""Stand-ins for addresses: IPv4, IPv6, MAC, GUID. What depends on an address's shape comes out the same.

Addresses of one /24 (IPv6: /64) come out in one, private ones within the same private range, public ones in
the ranges for benchmarks and documentation (RFC 2544, RFC 3849). Loopback, multicast, netmasks, the clouds'
metadata service and the unspecified address name nobody and stay.
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
_LOCAL_MAC = 0x02_00_00_00_00_00  # locally administered: the vendor is not told either
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

    def __init__(self, taken: ReservedWords) -> None:
        self._taken = taken
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
            number = self._number("public", a << 16 | b << 8 | c, self._public_free)
            a, b, c = number >> 16, number >> 8 & 255, number & 255
        elif a in (192, 169):
            c = self._octet(f"{a}.{b}", c, range(256))
        else:
            second = {10: range(256), 100: range(64, 128), 172: range(16, 32)}[a]
            was = f"{a}.{b}"
            b = self._octet(f"{a}", b, second)
            c = self._octet(was, c, range(1, 256), clear=True) if c else 0
        last = self._octet(text.rpartition(".")[0], d, range(1, 255), clear=True) if d not in (0, 255) else d
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
            return _like(text, value >> 32 << 32 | int(ipaddress.IPv4Address(four)))
        if top & 0xFE00 == 0xFC00:
            network = 0xFD00 << 48 | self._network("fd00:0:0:", network)
        elif top & 0xE000 == 0x2000:
            network = 0x2001_0DB8 << 32 | self._network("2001:db8:0:", network)
        elif top & 0xFF00 != 0xFE00:
            return text
        return _like(text, network << 64 | self.guid(host))

    def mac(self, value: int) -> int:
        """The stand-in of a MAC address; broadcast, protocols' multicast and the empty one stay."""
        if value in (0, (1 << 48) - 1) or value >> 24 in (0x01005E, 0x0180C2):
            return value
        taken = self._taken.digits("020000", "020000[0-9a-f]{6}")
        return self._number("mac", value, lambda n: _free(_LOCAL_MAC + n, 12, taken))

    def guid(self, value: int) -> int:
        """The stand-in of a GUID or of the host's half of an IPv6 address; an empty one stays."""
        if value in (0, (1 << 64) - 1):
            return value
        taken = self._taken.digits("020000fffe", "020000fffe[0-9a-f]{6}")
        return self._number("guid", value, lambda n: _free(_LOCAL_GUID + n, 16, taken))

    def _octet(self, parent: str, octet: int, among: range, *, clear: bool = False) -> int:
        """The octet for this one under the same parent; `clear` when the parent is a stand-in already."""
        given = self._octets.setdefault(parent, {})
        if octet not in given:
            if parent not in self._left:
                seen = frozenset() if clear else self._taken.words(f"{parent}.", rf"{parent}\.[0-9]{{1,3}}\.")
                order = sorted(among, key=lambda n: (f"{parent}.{n}." in seen, not n, n))
                self._left[parent] = iter(order)
            given[octet] = next(self._left[parent])
        return given[octet]

    def _network(self, prefix: str, network: int) -> int:
        """The number of the /64 below the prefix."""
        given = self._networks.setdefault(prefix, {})
        if network not in given:
            number = len(given) + 1
            while number in given.values() or f"{prefix}{number:x}:" in self._taken.text:
                number += 1
            given[network] = number
        return given[network]

    def _number(self, kind: str, value: int, free: Callable[[int], int | None]) -> int:
        given = self._values.setdefault(kind, {})
        while value not in given:
            self._counts[kind] += 1
            made = free(self._counts[kind])
            if made is not None:
                given[value] = made
        return given[value]

    def _public_free(self, count: int) -> int | None:
        number = (_BENCHMARK if count < 512 else _RESERVED) + count
        network = f"{number >> 16}.{number >> 8 & 255}.{number & 255}."
        return (
            None if network in self._taken.words("", r"(?:198|24[0-9])\.[0-9]{1,3}\.[0-9]{1,3}\.") else number
        )


def _free(value: int, digits: int, taken: Collection[str]) -> int | None:
    return None if f"{value:0{digits}x}" in taken else value


def _like(text: str, value: int) -> str:
    """An IPv6 address, in full where the original was."""
    made = ipaddress.IPv6Address(value)
    return made.exploded if len(text) == 39 else made.compressed


class ReservedWords:
    """What a text has already can stand for nothing: its words of a shape, found once for each shape."""

    def __init__(self, text: str) -> None:
        self.text = text.lower()
        self._digits: str | None = None
        self._found: dict[str, frozenset[str]] = {}

    def words(self, near: str, shape: str) -> frozenset[str]:
        """What fits the pattern `shape`; it holds the letters `near`, for which to look is much faster."""
        return self._of(self.text, near, shape)

    def digits(self, near: str, shape: str) -> frozenset[str]:
        """The same in the text without what is put between digits: 02:00:00 counts as 020000."""
        if self._digits is None:
            self._digits = self.text.replace(":", "").replace("-", "").replace("_", "")
        return self._of(self._digits, near, shape)

    def _of(self, text: str, near: str, shape: str) -> frozenset[str]:
        if shape not in self._found:
            found = re.findall(f"(?=({shape}))", text) if near in text else ()
            self._found[shape] = frozenset(found)
        return self._found[shape]
