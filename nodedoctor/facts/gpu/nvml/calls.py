"""Which of NVML's functions an answer of the document came from."""

from __future__ import annotations

from nodedoctor.probes.gpu import nvml_calls as asked

_GET = "nvmlDeviceGet"
_FIELDS = frozenset({*asked.FIELDS, *asked.FIELDS_590, *asked.LINK_SPEED, *asked.LINK_FIELDS})
_ALONE = {
    "mig_devices": "nvmlDeviceGetMaxMigDeviceCount",
    "excluded": "nvmlGetExcludedDeviceCount",
    "path": "nvmlDeviceGetTopologyCommonAncestor",
}


def call_name(key: str) -> str:
    """The name of the function whose answer has this key, with the field where one serves many."""
    if key in asked.SYSTEM:
        return asked.SYSTEM[key]
    if key in _ALONE:
        return _ALONE[key]
    if key in _FIELDS:
        return f"nvmlDeviceGetFieldValues {key}"
    if key in asked.LINK_COUNTERS:
        return f"nvmlDeviceGetNvLinkErrorCounter {key}"
    if key in asked.P2P:
        return f"nvmlDeviceGetP2PStatus {key}"
    question = asked.VALUES.get(key) or asked.LINK_VALUES.get(key)
    return f"{_GET}{question.split()[0]}" if question else key
