"""Replaces originals in text, in one pass: what has been replaced is not looked at again.

Text is taken as a recording has it, where a name may follow an escape (JSON's \\n, the kernel's \\040,
a terminal's colour), and a line is as good as a document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from nodedoctor import nodeset
from nodedoctor.grouping import group_pairs
from nodedoctor.redact.addresses import is_private, names_nobody, octets
from nodedoctor.redact.known_names import HOST_KEYS, LABEL_KEYS, MOST, UNITS, USER_KEYS, Originals, is_version
from nodedoctor.redact.names import ACCOUNTS, ordinary, public, stem
from nodedoctor.redact.prose import BUCKETS, DOMAIN, ESCAPE, NETWORKS, SHARE, names_somebody
from nodedoctor.redact.shapes import DIGITS, HEX4, LETTERS, NEAR_DIGITS
from nodedoctor.redact.standins import StandIns, hyphened

_START = "(?<![0-9A-Za-z])"
_END = "(?![0-9A-Za-z])"
_BOUNDARY = "\0"
"""Put behind escapes, so that a word begins there; escapes in the pattern take four times as long."""

_BEFORE_ADDRESS = re.compile(
    r"(?i)(?://|@|\binet6? |\baddr\w*\W{1,3}|\bip[=: ]+"
    r"|\b(?:from|to|via|src|dst|host|peer|node|server|gateway)[=: ]{1,2})$"
)
_AFTER_ADDRESS = re.compile(rf":[0-9]{{1,5}}(?![0-9.])|/[0-9]{{1,2}}(?![0-9.])|:/|@{NETWORKS}\b")
_LOWEST = 16  # ours: versions of four numbers begin below it (CUDA's libraries: 8 to 13)

_CHECK = re.compile("[a-z0-9]+[.][a-z0-9-]+")
"""A check's name, which comes before @ in the id of a finding as a person does in an address."""
_KEY = r'(?:"(?:{0})": ?"|(?<![A-Za-z0-9_])(?:{0})=)'


def _after_key(keys: Iterable[str], *others: str) -> re.Pattern[str]:
    """What a text ends with in front of a name: one of the keys, or something else."""
    return re.compile(f"(?:{'|'.join((_KEY.format('|'.join(map(re.escape, keys))), *others))})$")


_PLACES = {
    "user": (
        _after_key(USER_KEYS, "UserId=", "/Users/", "/mail/", "for user ", "~"),
        re.compile("@[a-z0-9]"),
    ),
    "host": (
        _after_key(HOST_KEYS, '"[A-Z_]*NODELIST": ?"[^"]*,', "//", r"\broot@"),
        re.compile(rf":/|:[0-9]{{4,5}}(?![0-9])| kernel:|@{NETWORKS}\b"),
    ),
    "label": (_after_key(LABEL_KEYS, "Partitions=[^ ]*,", rf"\b(?:{BUCKETS})://"), re.compile("(?!)")),
}
"""Where a name must be, so that it is one even when it is an ordinary word: behind what, before what."""

_FEW, _DEEP = 16, 6  # ours


class Replacer:
    """The pattern for one run's originals, and what becomes of a match."""

    def __init__(self, originals: Originals, stand_ins: StandIns) -> None:
        self._known = originals
        self._give = stand_ins
        hosts = {name.lower() for name in originals.hosts}
        self.hosts = hosts | {name.partition(".")[0] for name in hosts}
        self.names = {
            "user": frozenset(originals.users),
            "host": self.hosts,
            "label": frozenset(originals.labels),
        }
        self._left = 16 * MOST  # names of sets that are still written out
        self._serials = frozenset(originals.serials)
        self._stems = sorted({stem(name) for name in self.hosts if "." not in name} - {""})
        self._ordinary = {word for names in self.names.values() for word in names if ordinary(word)}
        self._pattern = re.compile(f"{_START}(?:{'|'.join(self._pattern_parts())}){_END}")
        self._become: dict[str, Callable[[re.Match[str], str], str]] = {
            name: getattr(self, f"_{name}")
            for name in (*DIGITS, *LETTERS, "domain", "name", "set", "sibling", "word")
        }

    def text(self, text: str) -> str:
        """The text with its originals replaced."""
        if "\\\\" not in text:
            return self._redact_plain(text)
        parts: list[str] = []
        end = 0
        for share in SHARE.finditer(text):
            parts += self._redact_plain(text[end : share.start()]), self._redact_share(share)
            end = share.end()
        return "".join((*parts, self._redact_plain(text[end:])))

    def _redact_plain(self, text: str) -> str:
        if _BOUNDARY in text or ("\\" not in text and "\x1b" not in text):
            return self._pattern.sub(self._replace_match, text)
        marked = ESCAPE.sub(lambda escape: escape[0] + _BOUNDARY, text)
        return self._pattern.sub(self._replace_match, marked).replace(_BOUNDARY, "")

    def name(self, kind: str, text: str) -> str:
        """A text that can be nothing but a name, as far as it was learned; else as any text."""
        if kind == "job":
            return self._give.number("job_", text) if re.fullmatch("[0-9]{1,12}", text) else self.text(text)
        if text not in self.names[kind] and not (kind == "host" and text.lower() in self.names[kind]):
            return self.text(text)
        return {"host": self._give.host, "user": self._give.user, "label": self._give.label}[kind](text)

    def _pattern_parts(self) -> list[str]:
        digits = "|".join(f"(?P<{name}>{shape})" for name, shape in DIGITS.items())
        parts = [f"{NEAR_DIGITS}(?:{digits})", *(f"(?P<{name}>{shape})" for name, shape in LETTERS.items())]
        if self._known.domains:
            label = "(?:[A-Za-z0-9_-]{1,63}[.]){0,6}"
            parts.append(f"(?P<domain>{label}(?:{_any_word(self._known.domains)})(?![.-][A-Za-z0-9]))")
        parts.append(f"(?P<name>{DOMAIN})")
        if self._known.sets:
            parts.append(
                rf"(?P<set>(?:{_any_word(self._known.sets)})\[[0-9,-]{{1,4096}}\][A-Za-z0-9_.-]{{0,64}})"
            )
        words = {*(name.upper() for name in self.hosts), *self._known.hosts}.union(*self.names.values())
        covered = re.compile(f"(?:{_any_word(self._stems)})[0-9]{{1,9}}") if self._stems else None
        uncovered = {word for word in words if not (covered and covered.fullmatch(word))} | self._serials
        if self._stems:
            stems = {*self._stems, *(stem.upper() for stem in self._stems)}
            parts.append(f"(?P<sibling>(?:{_any_word(stems)})[0-9]{{1,9}})")
        parts.append(f"(?P<word>{_any_word(uncovered)})" if uncovered else "(?P<word>(?!))")
        return parts

    def _redact_share(self, match: re.Match[str]) -> str:
        """A share of Windows' kind, before backslashes are taken for escapes."""
        host, share = (
            (match["host"], match["share"]) if match["host"] else (match["its_host"], match["its_share"])
        )
        slash = "\\" * (1 if match["host"] else 2)
        end = f"{slash}{self._give.label(share)}" if share else ""
        return f"{slash * 2}{self._give.host(host)}{end}"

    def _replace_match(self, match: re.Match[str]) -> str:
        kind = match.lastgroup or ""
        return self._become[kind](match, match[kind])

    def _gpu(self, match: re.Match[str], text: str) -> str:
        """A GPU's or MIG device's UUID, or the beginning of one, which CUDA takes in its place."""
        start = 8 if text.startswith("MIG-GPU-") else 4
        digits = text[start:]
        if len(digits) == 36:
            return text[:start] + hyphened(self._give.uuid(digits.replace("-", "")))
        uuids = [uuid for uuid in self._known.uuids if uuid.startswith(digits.lower())]
        full = [hyphened(self._give.uuid(uuid.replace("-", ""))) for uuid in uuids]
        if len(full) == 1:
            shorter = full[0][: len(digits)]
            every = [hyphened(self._give.uuid(uuid.replace("-", ""))) for uuid in self._known.uuids]
            return text[:start] + (shorter if sum(gpu.startswith(shorter) for gpu in every) == 1 else full[0])
        if not full and not re.search("[0-9]", digits):
            return text  # GPU-based
        return text[:start] + ("f" * len(digits) if not full else "0000")

    def _uuid(self, match: re.Match[str], text: str) -> str:
        digits = text.replace(match["dash"], "")
        if not digits.strip("0") or not digits.lower().strip("f"):
            return text
        return hyphened(self._give.uuid(digits), match["dash"])

    def _hardware(self, match: re.Match[str], text: str) -> str:
        """A MAC address, a GUID in bytes, an address of IPoIB, which ends with one, or a fingerprint."""
        by = match["by"]
        digits = text.replace(by, "")
        if by == "-" and not re.search("[A-Fa-f]", text):
            return text  # 26-11-14-09-11-00
        value = int(digits, 16)
        if len(digits) == 12:
            stand_in = f"{self._give.addresses.mac(value):012x}"
        elif len(digits) in (16, 40):
            low = self._give.addresses.guid(value & (1 << 64) - 1)
            stand_in = f"{value >> 64 << 64 | low:0{len(digits)}x}"
        else:
            stand_in = self._give.hexadecimal(digits.lower())
        return _copy_case(by.join(re.findall("..", stand_in)), text)

    def _colons(self, match: re.Match[str], text: str) -> str:
        """An IPv6 address, a GID, a GUID; mostly a time or a PCI address."""
        if "::" not in text and text.count(":") != 7:
            if not re.fullmatch(f"{HEX4}(?::{HEX4}){{3}}", text):
                return text
            stand_in = f"{self._give.addresses.guid(int(text.replace(':', ''), 16)):016x}"
            return ":".join(re.findall("....", stand_in))
        return self._give.addresses.ipv6(text)

    def _quad(self, match: re.Match[str], text: str) -> str:
        if octets(text) is None or names_nobody(text) or not self._is_address(match, text):
            return text
        return self._give.addresses.ipv4(text)

    def _is_address(self, match: re.Match[str], text: str) -> bool:
        """Four numbers are an address or a version: by what was learned, what is around them, their size."""
        if text in self._known.addresses or text in self._known.versions:
            return text in self._known.addresses
        context, start, end = match.string, match.start("quad"), match.end()
        before = context[max(0, start - 24) : start]
        if _BEFORE_ADDRESS.search(before) or _AFTER_ADDRESS.match(context, end):
            return True
        if is_version(match):
            return False
        return is_private(text) or int(text.partition(".")[0]) >= _LOWEST

    def _guid(self, match: re.Match[str], text: str) -> str:
        """Sixteen hex digits are a GUID where it says so; else a register, a mask, an address of memory."""
        value = int(text, 16)
        return f"0x{self._give.addresses.guid(value):016x}" if value in self._known.guids else text

    def _digest(self, match: re.Match[str], text: str) -> str:
        if not re.search("[a-f]", text) or not re.search("[0-9]", text):
            return text
        return self._give.uuid(text) if len(text) == 32 else self._give.hexadecimal(text)

    def _mail(self, match: re.Match[str], text: str) -> str:
        user, _, domain = text.partition("@")
        if domain.rpartition(".")[2] in UNITS:
            return text  # user@1000.service
        if domain.lower() in self.hosts and _CHECK.fullmatch(user):
            return f"{user}@{self._give.host(domain)}"
        where = self._give.host(domain) if domain.lower() in self.hosts else self._give.domain(domain)
        return f"{user if user in ACCOUNTS else self._give.user(user)}@{where}"

    def _cloud(self, match: re.Match[str], text: str) -> str:
        kind, _, digits = text.partition("-")
        return f"{kind}-{self._give.hexadecimal(digits)}"

    def _account(self, match: re.Match[str], text: str) -> str:
        arn = match.string.rfind("arn:", max(0, match.start() - 64), match.start()) >= 0
        return self._give.account(text) if arn else text

    def _numbered(self, match: re.Match[str], text: str) -> str:
        return self._give.host(text)

    def _home(self, match: re.Match[str], text: str) -> str:
        return text if text in ACCOUNTS else self._give.user(text)

    def _domain(self, match: re.Match[str], text: str) -> str:
        """A domain, or a host in it."""
        return self._give.domain(text) if text.lower() in self._known.domains else self._give.host(text)

    def _name(self, match: re.Match[str], text: str) -> str:
        """A name that only its ending tells of; one more label than its ending makes a domain."""
        if text.lower() in self.hosts or not names_somebody(text):
            return self._give.host(text) if text.lower() in self.hosts else text
        return self._give.host(text) if text.count(".") > 1 else self._give.domain(text)

    def _target(self, match: re.Match[str], text: str) -> str:
        """What a store of blocks calls itself (RFC 3720, NVM Express): a date, a domain, a name."""
        who, colon, name = text.partition(":")
        kind, date, *labels = who.split(".")
        domain = ".".join(reversed(labels))
        if not public(domain):
            labels = self._give.domain(domain).split(".")[::-1]
        uuid = name.startswith("uuid:")
        return (
            ".".join((kind, date, *labels))
            + colon
            + (self._redact_plain(name) if uuid else self._give.label(name))
        )

    def _key(self, match: re.Match[str], text: str) -> str:
        """An access key's id: its first letters say of what kind it is."""
        return text[:4] + self._give.serial(text[4:])

    def _pod(self, match: re.Match[str], text: str) -> str:
        digits = text[3:].replace(match["tie"], "")
        return f"pod{hyphened(self._give.uuid(digits), match['tie'])}"

    def _numeric(self, match: re.Match[str], text: str) -> str:
        """A job's number, or a user's that is no account of the system's (login.defs(5): from 1000)."""
        if match.string[match.start() - 4 : match.start() - 1].lower() == "uid":
            return self._give.number("uid_", text, 10_000) if int(text) >= 1000 else text
        return self._give.number("job_", text)

    def _set(self, match: re.Match[str], text: str) -> str:
        try:
            names = nodeset.expand(text) if self._left > 0 else []
        except nodeset.NodeSetError:
            names = []
        self._left -= len(names)
        if not 0 < len(names) <= MOST:
            return self._give.host(text)
        return nodeset.fold(map(self._give.host, names))

    def _sibling(self, match: re.Match[str], text: str) -> str:
        return self._give.host(text)

    def _word(self, match: re.Match[str], text: str) -> str:
        if text in self._serials:
            return self._give.serial(text)
        for kind, (before, following) in _PLACES.items():
            names = self.names[kind]
            if text in names or (kind == "host" and text.lower() in names):
                if not (text in self._ordinary or text.lower() in self._ordinary):
                    return self.name(kind, text)
                front = match.string[max(0, match.start("word") - 300) : match.start("word")]
                if before.search(front) or following.match(match.string, match.end()):
                    return self.name(kind, text)
        return text


def _any_word(words: Iterable[str], depth: int = 0) -> str:
    """An alternative of words, longer ones first; many of them by their first letters, which is faster."""
    ordered = sorted(set(words), key=lambda word: (-len(word), word))
    if len(ordered) <= _FEW or depth == _DEEP:
        return "|".join(map(re.escape, ordered))
    by_first = group_pairs((word[:1], word[1:]) for word in ordered)
    ends = by_first.pop("", None)
    parts = [f"{re.escape(first)}(?:{_any_word(rest, depth + 1)})" for first, rest in by_first.items()]
    return "|".join([*parts, *([""] if ends else [])])


def _copy_case(text: str, like: str) -> str:
    return text.upper() if like.isupper() else text
