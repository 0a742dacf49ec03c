"""What a log of NCCL_DEBUG=INFO says about the way data took: transports, rings, interfaces, warnings.

Line formats: NVIDIA/nccl src/transport/*.cc, src/init.cc, src/transport/net_ib.cc, stable since 2.14.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from nodedoctor.patterns import regex
from nodedoctor.record import field, record

_VIA = regex(r"Channel \d+(?:/\d+)? : (\d+)\[[^\]]*\] -> (\d+)\[[^\]]*\].* via (\S+)")
_NETWORK = regex(r"Using network (\S+)")
_PLUGIN = regex(r"NET/Plugin:? (.+)")
_INTERFACE = regex(r"Bootstrap\s*: Using (\S+?):|NET/(?:IB|Socket) : Using (.+)")
_VERSION = regex(r"NCCL version (\d[\w.+]*)")
_WARN = regex(r"NCCL WARN (.+)")
_MOST = 20


@record
class NcclLog:
    """`transports` by ordered pair `0-1`, as NCCL calls them: P2P/CUMEM, SHM/direct, NET/IB/0/GDRDMA ..."""

    version: str = ""
    network: str = ""
    interfaces: tuple[str, ...] = ()
    plugin: str = ""
    transports: Mapping[str, str] = field(default_factory=dict)
    rings: int = 0
    warnings: tuple[str, ...] = ()


def read_log(text: str) -> NcclLog:
    """Read the lines of all ranks together."""
    lines = text.splitlines()
    pairs = {f"{m[1]}-{m[2]}": m[3] for line in lines if (m := _VIA.search(line))}
    interfaces = [m[1] or m[2].strip() for line in lines if (m := _INTERFACE.search(line))]
    warnings = [m[1].strip() for line in lines if (m := _WARN.search(line))]
    return NcclLog(
        _first(_VERSION, lines),
        _first(_NETWORK, lines),
        tuple(dict.fromkeys(interfaces))[:_MOST],
        _first(_PLUGIN, lines),
        pairs,
        sum("Connected all rings" in line for line in lines),
        tuple(dict.fromkeys(warnings))[:_MOST],
    )


def _first(pattern: re.Pattern[str], lines: list[str]) -> str:
    return next((match[1].strip() for line in lines if (match := pattern.search(line))), "")
