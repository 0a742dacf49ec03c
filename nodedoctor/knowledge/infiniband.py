"""InfiniBand and RoCE: rates, port states, error counters, adapters and what platforms carry.

Rates are Gbit/s as `ibstat` and sysfs print them (not GB/s).
"""

from __future__ import annotations

import re
from functools import cache

from nodedoctor.knowledge.table import cached_rows
from nodedoctor.record import record


@record
class Rate:
    """A link generation: Gbit/s of one lane and of four. PAM4 lanes show raw symbol errors when healthy."""

    gen: str
    lane_gbps: float
    x4_gbps: int
    pam4: bool = False


@record
class PortState:
    """A logical or physical port state: its number and the words of sysfs and ibstat."""

    value: int
    sysfs: str
    healthy: bool
    meaning: str
    ibstat: str = ""


@record
class Counter:
    """A counter file below ports/N/`folder`.

    `limit` in `limit_unit` is the rate above which something is wrong (`growth`: any), None for never.
    `ibqueryerrors` is the absolute value from which that tool prints it.
    """

    counter: str
    folder: str
    meaning: str
    suspect: str
    ibqueryerrors: int | None = None
    limit: float | None = None
    limit_unit: str = ""

    def is_reported(self, count: int) -> bool:
        """Whether ibqueryerrors prints a port for this count."""
        return bool(self.ibqueryerrors) and count >= (self.ibqueryerrors or 0)


def counter_key(name: str) -> str:
    """A counter's name as sysfs, perfquery and ibdiagnet have it: LinkDownedCounterExt is linkdowned."""
    return re.sub(r"_|counter|ext$|extended$", "", name.lower())


@record
class Adapter:
    """A host channel adapter; `pci_id` below vendor 15b3, `hca_type` as ibstat prints it."""

    name: str
    pci_id: str
    hca_type: str
    source: str
    max_port_gbps: int | None = None


@record
class RdmaPlatform:
    """How many compute ports of which rate a board has, by names of `knowledge.gpus`; clouds differ."""

    platform: str
    models: tuple[str, ...]
    compute_ports: int
    rate_gbps: int
    gen: str


rates = cached_rows("ib", "rates", Rate)
"""All generations, slowest first."""
port_states = cached_rows("ib", "port_states", PortState)
"""All logical states, by number."""
phys_states = cached_rows("ib", "phys_states", PortState)
"""All physical states, by number."""
counters = cached_rows("ib", "counters", Counter)
"""All counters, those of the standard before those of the adapter."""
adapters = cached_rows("ib", "adapters", Adapter)
platforms = cached_rows("ib", "platforms", RdmaPlatform)


@cache
def rails_of(model: str) -> tuple[RdmaPlatform, ...]:
    """What platforms with GPUs of this model carry, by its name in `knowledge.gpus`."""
    return tuple(row for row in platforms() if model in row.models)


def rate(gen: str) -> Rate | None:
    """The generation of that name, `NDR`."""
    return next((row for row in rates() if row.gen == gen.upper()), None)


def port_state(word: str) -> PortState | None:
    """A logical state by the word sysfs or ibstat uses for it (`ACTIVE`, `Initializing`)."""
    return _port_state(port_states(), word)


def phys_state(word: str) -> PortState | None:
    """A physical state by the word sysfs or ibstat uses for it (`LinkUp`, `Polling`)."""
    return _port_state(phys_states(), word)


def counter(name: str) -> Counter | None:
    """The counter of that name."""
    return next((row for row in counters() if row.counter == name), None)


def adapter(name: str) -> Adapter | None:
    """An adapter by PCI device id (`1021`, `0x1021`, `15b3:1021`) or by HCA type (`MT4129`)."""
    plain = name.strip().lower().removeprefix("15b3:").removeprefix("0x")
    return next((row for row in adapters() if plain in (row.pci_id, row.hca_type.lower())), None)


def _port_state(states: tuple[PortState, ...], word: str) -> PortState | None:
    plain = word.strip().lower().replace(" ", "")
    words = ((row, (row.sysfs.lower().replace(" ", ""), row.ibstat.lower())) for row in states)
    return next((row for row, spellings in words if plain and plain in spellings), None)
