"""The devices of a node, each under all the names that findings use for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Devices:
    """The devices of the node, each under all the names findings use for it."""

    def __init__(self, groups: Iterable[Sequence[str]] = ()) -> None:
        self._name: dict[str, str] = {}
        for group in groups:
            first = next((self._name[name] for name in group if name in self._name), group[0])
            self._name.update(dict.fromkeys(group, first))

    def name(self, subject: str) -> str:
        """The one name of what a subject means."""
        return self._name.get(subject, subject)

    def above(self, subject: str) -> frozenset[str]:
        """A subject and all it is a part of: a counter's port and adapter, both GPUs of a pair."""
        kind, _, rest = subject.partition(":")
        names = {subject}
        if kind in ("port", "pci"):
            parts = rest.split("/")
            names |= {f"{kind}:{'/'.join(parts[:count])}" for count in range(1, len(parts))}
            names |= {f"hca:{parts[0]}"} if kind == "port" else set()
        elif kind == "pair":
            names |= {f"gpu:{end}" for end in rest.split("-")}
        return frozenset(self.name(name) for name in names)

    def like(self, subject: str) -> frozenset[str]:
        """All devices of the kind of this one, itself among them; empty for what is not a device."""
        kind, name = subject.partition(":")[0], self.name(subject)
        if kind not in ("gpu", "port") or name not in self._name.values():
            return frozenset()
        return frozenset(device for device in self._name.values() if device.startswith(f"{kind}:"))
