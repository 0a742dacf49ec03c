"""Makes NvLinks and Peers of NVML's raw answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nodedoctor.facts.gpu.gpu import GpuPeer, NvLink
from nodedoctor.facts.gpu.nvml import enums as words
from nodedoctor.facts.gpu.nvml.raw import Raw, index_of
from nodedoctor.facts.gpu.smi.errors import normal_bus_id
from nodedoctor.json_shapes import as_list, int_of, text_of

# What NVML says about the links of a GPU that has none.
_NONE_SUCH = frozenset({"NOT_SUPPORTED", "INVALID_ARGUMENT", "FUNCTION_NOT_FOUND"})

_COUNTERS = (
    "crc_flit",
    "crc_data",
    "replay",
    "recovery",
    "ecc",
    "malformed_packets",
    "buffer_overruns",
    "receive_errors",
    "receive_remote_errors",
    "receive_general_errors",
    "local_link_integrity",
    "transmit_discards",
    "link_recovery_successful",
    "link_recovery_failed",
    "link_recovery",
    "effective_errors",
    "symbol_errors",
)
_BER = {"effective": "effective_ber", "symbol": "symbol_ber"}


def links_of(raw: Raw) -> tuple[tuple[NvLink, ...] | None, str | None]:
    """The links of a GPU, none for a model without; None and a reason when they could not be looked at."""
    entries = [
        Raw.of(entry) for entry in as_list(raw.entry.get("links")) if index_of(entry, "link") is not None
    ]
    if entries:
        return tuple(_read_link(entry) for entry in entries), None
    count, error = raw.read("nvlink_count", int_of)
    hidden = raw.values.get("mig_mode") not in (None, [0, 0]) or raw.values.get("virtualization_mode") == 2
    if count == 0 or (error in _NONE_SUCH and not hidden):
        return (), None
    return None, error or "NO_VALUE"


def peers_of(pairs: Sequence[Raw]) -> tuple[GpuPeer, ...]:
    """What a GPU has to each of the others."""
    return tuple(_read_peer(pair) for pair in pairs if index_of(pair.entry, "peer") is not None)


def _read_link(raw: Raw) -> NvLink:
    active, no_state = raw.read("active", lambda value: int_of(value) != 0)
    version, no_version = raw.read("version", lambda value: words.word(words.NVLINK_VERSION, int_of(value)))
    remote, no_remote = raw.read("remote_type", lambda value: words.word(words.NVLINK_REMOTE, int_of(value)))
    address, no_address = raw.read("remote_pci", lambda value: normal_bus_id(text_of(value["busId"]) or ""))
    speed, no_speed = raw.read("speed_mbytes_s", _link_speed)
    counters = {name: raw.read(name, int_of) for name in _COUNTERS if raw.asked(name)}
    ber = {name: raw.read(key, _bit_error_rate) for name, key in _BER.items() if raw.asked(key)}
    errors = {
        "active": no_state,
        "version": no_version,
        "remote_type": no_remote,
        "remote_bus_id": no_address,
        "speed_gbytes_s": None if active is False else no_speed,
        **{name: error for name, (_, error) in (counters | ber).items()},
    }
    return NvLink(
        link=raw.entry["link"],
        active=active,
        version=version,
        speed_gbytes_s=speed,
        remote_type=remote,
        remote_bus_id=address,
        counters={name: count for name, (count, _) in counters.items() if count is not None},
        ber={name: rate for name, (rate, _) in ber.items() if rate is not None},
        errors={name: error for name, error in errors.items() if error},
    )


def _link_speed(value: Any) -> float | None:
    """MB/s as GB/s; a link that is down has 0."""
    return int_of(value) / 1000 or None


def _bit_error_rate(value: Any) -> float:
    """A bit error rate, given as mantissa and negative exponent: 0xffe is 15e-254, which means none."""
    number = int_of(value)
    return float(f"{number >> 8 & 0xF}e-{number & 0xFF}")


def _read_peer(raw: Raw) -> GpuPeer:
    status = {
        kind: raw.read(kind, lambda value: words.word(words.P2P_STATUS, int_of(value)))
        for kind in ("read", "write", "nvlink", "atomics", "pcie")
    }
    status["path"] = raw.read("path", lambda value: words.TOPOLOGY[int_of(value)])
    return GpuPeer(
        index=raw.entry["peer"],
        **{kind: word for kind, (word, _) in status.items()},
        errors={kind: error for kind, (_, error) in status.items() if error},
    )
