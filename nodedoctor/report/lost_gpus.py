"""GPUs that have fallen off the bus: the other sources do not list them any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodedoctor.json_shapes import part, parts, text, whole_number
from nodedoctor.report.inert import inert

MOST = 256
"""GPUs that are looked at in a document that others may have written."""


def off_bus(facts: Mapping[str, Any]) -> dict[str, str]:
    """PCI addresses of the GPUs that have fallen off the bus, by the names the other sources would use.

    One whose number the driver does not tell is left out: nobody knows its row.
    """
    found: dict[str, str] = {}
    for slot in parts(part(facts, "inventory"), "slots")[:MOST]:
        index = next(
            (whole_number(slot, key) for key in ("index", "lost_index") if slot.get(key) is not None), None
        )
        if index is not None and (slot.get("off_bus") is True or slot.get("lost") == "GPU_IS_LOST"):
            found[f"GPU{index}"] = inert(text(slot, "address"))
    return found
