"""What replaces an original: the same for the same one, another for another, and of the same shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from nodedoctor.redact.addresses import Addresses, ReservedWords


class StandIns:
    """Hands out stand-ins in the order of asking. None of them occurs in what they are made for."""

    def __init__(self, corpus: str) -> None:
        self._taken = ReservedWords(corpus)
        self._given: dict[tuple[str, str], str] = {}
        self._counts: Counter[str] = Counter()
        self.addresses = Addresses(self._taken)

    def host(self, name: str) -> str:
        """`node-1`; of a name with a domain both parts, so that the short name stays the short name."""
        short, dot, domain = name.lower().partition(".")
        first = self._get("host", short, lambda n: f"node-{n}", self._taken.words("node-", "node-[0-9]{1,9}"))
        return f"{first}.{self.domain(domain)}" if dot and domain else first + dot

    def domain(self, name: str) -> str:
        """`domain-1.example`, which cannot be registered (RFC 2606)."""
        reserved = self._taken.words("domain-", r"domain-[0-9]{1,9}\.example")
        return self._get("domain", name.lower(), lambda n: f"domain-{n}.example", reserved)

    def user(self, name: str) -> str:
        """`user-1`."""
        return self._get("user", name, lambda n: f"user-{n}", self._taken.words("user-", "user-[0-9]{1,9}"))

    def label(self, name: str) -> str:
        """`name-1`, for a cluster, a partition, an account, a job."""
        return self._get("label", name, lambda n: f"name-{n}", self._taken.words("name-", "name-[0-9]{1,9}"))

    def serial(self, text: str) -> str:
        """As long, digits where there were digits and letters where there were letters."""
        return self._get("serial", text, lambda n: _count_up(text, n), self._taken.text)

    def number(self, kind: str, digits: str, start: int = 0) -> str:
        """Another number, counted from `start`: ids of jobs and users. `kind` is the text before it."""
        reserved = self._taken.words(kind, f"{kind}[0-9]{{1,12}}")
        return self._get(kind, digits, lambda n: f"{kind}{start + n}", reserved).removeprefix(kind)

    def uuid(self, digits: str) -> str:
        """32 hex digits that make a valid UUID of version 4; the number is in front, where one looks."""
        reserved = self._taken.digits("000040008000", "[0-9a-f]{8}000040008000[0-9a-f]{12}")
        return self._get("uuid", digits.lower(), lambda n: f"{n:08x}000040008000{n:012x}", reserved)

    def hexadecimal(self, digits: str) -> str:
        """As many hex digits: ids of containers, images, cloud resources."""
        size = len(digits)
        return self._get(
            f"hex{size}",
            digits,
            lambda n: f"{n:0{size}x}",
            self._taken.digits("0" * (size - 8), _counter_pattern(size)),
        )

    def account(self, digits: str) -> str:
        """As many decimal digits: an account's number."""
        size = len(digits)
        return self._get(
            "account",
            digits,
            lambda n: f"{n:0{size}d}",
            self._taken.digits("0" * (size - 8), _counter_pattern(size)),
        )

    def _get(self, kind: str, original: str, make: Callable[[int], str], reserved: Collection[str]) -> str:
        key = (kind, original)
        while key not in self._given:
            self._counts[kind] += 1
            stand_in = make(self._counts[kind])
            if stand_in.lower() not in reserved:
                self._given[key] = stand_in
        return self._given[key]


def hyphened(digits: str, between: str = "-") -> str:
    """32 hex digits in the five groups of a UUID."""
    cuts = (0, 8, 12, 16, 20, 32)
    return between.join(digits[cuts[i] : cuts[i + 1]] for i in range(5))


def _count_up(shape: str, number: int) -> str:
    """The number written with a serial's own alphabets, from its end; longer only when that is too short."""
    signs = []
    for sign in reversed(shape):
        if sign.isdigit():
            number, digit = divmod(number, 10)
            signs.append(str(digit))
        elif sign.isalpha():
            number, digit = divmod(number, 26)
            signs.append(chr(ord("A" if sign.isupper() else "a") + digit))
        else:
            signs.append(sign)
    return (str(number) if number else "") + "".join(reversed(signs))


def _counter_pattern(size: int) -> str:
    """A pattern of numbers that are counted from 1 in so many hex digits."""
    few = min(size, 8)
    return f"0{{{size - few}}}[0-9a-f]{{{few}}}"
