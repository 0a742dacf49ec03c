"""What a node must have (`--expect gpus=8`), so that its absence is a failure and not a skip."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from nodedoctor import input_files
from nodedoctor.errors import NodeDoctorError
from nodedoctor.model import Finding, Status
from nodedoctor.record import record

_COUNT, _VERSION = r"\d{1,4}", r"\d[\w.+~-]*"
_RATE = r"\d{1,5}(\.\d{1,4})?"


@record
class Key:
    """What can be expected: what it means, how its value is written, and the checks that judge it.

    The first of the checks is the one that must apply: where it does not, what is expected is not there. What
    is measured between nodes has none.
    """

    about: str
    form: str
    judges: tuple[str, ...]


_KEYS = {
    "gpus": Key("number of GPUs on this node, e.g. 8", _COUNT, ("driver.gpus-present",)),
    "gpu": Key("part of the GPU model name, e.g. H100", r".+", ("driver.gpus-present",)),
    "driver": Key("driver version or its beginning, e.g. 570 or 570.86.10", _VERSION, ("driver.branch",)),
    "nvlinks": Key("number of active NVLinks per GPU, e.g. 18", _COUNT, ("nvlink.links",)),
    "pcie": Key(
        "maximum PCIe generation and lanes of every GPU, e.g. 5x16",
        r"\d{1,2}x\d{1,2}",
        ("pcie.speed", "pcie.width"),
    ),
    "torch": Key(
        "yes, or a version or its beginning in the training Python, e.g. 2.9",
        rf"yes|{_VERSION}",
        ("stack.python", "stack.torch-driver"),
    ),
    "ib": Key(
        "count and rate in Gb/s of active InfiniBand or RoCE rails, e.g. 8x400 or 8",
        r"\d{1,3}(x\d{1,4}(\.\d)?)?",
        ("ib.ports",),
    ),
    "image": Key(
        "container image name; its versions are compared with the installed ones",
        r".+",
        ("container.image",),
    ),
    "ray": Key(
        "yes, or a version or its beginning in the training Python, e.g. 2.51",
        rf"yes|{_VERSION}",
        ("ray.version", "stack.python"),
    ),
    "pair.gbps": Key("Gb/s over TCP between two nodes, for fleet --pairs, e.g. 20", _RATE, ()),
    "pair.rail": Key("Gb/s over TCP of each rail between two nodes, for fleet --pairs, e.g. 20", _RATE, ()),
    "pair.rdma": Key("Gb/s of each RDMA rail between two nodes, for fleet --pairs, e.g. 360", _RATE, ()),
    "pair.busbw": Key(
        "GB/s of bus bandwidth of an all-reduce over two nodes, for fleet --pairs, e.g. 150", _RATE, ()
    ),
}

KEYS = {name: key.about for name, key in _KEYS.items()}
"""Known keys and what they mean; `nodedoctor expect --keys` prints them."""

LARGEST = 1 << 20
"""Bytes of a file of expectations that are read; ours."""


class ExpectError(NodeDoctorError):
    """An expectation that cannot be read, in one line."""


def expectations(words: Iterable[str]) -> dict[str, str]:
    """Read `key=value` words and files of such lines; a later one replaces an earlier one."""
    values: dict[str, str] = {}
    for word in words:
        lines = [word] if "=" in word else _read_lines(word)
        for line in lines:
            key, _, value = (part.strip() for part in line.partition("="))
            values[key] = _check_value(_known_key(key), value)
    return values


def checks_for(expected: Mapping[str, str]) -> frozenset[str]:
    """The checks that judge what is expected: they are asked whatever else was selected."""
    return frozenset(check for name in expected if name in _KEYS for check in _KEYS[name].judges)


def apply_expectations(
    check: str, findings: tuple[Finding, ...], expected: Mapping[str, str]
) -> tuple[Finding, ...]:
    """The findings of a check; it fails where it does not apply to what must be there."""
    if not all(finding.status is Status.SKIP for finding in findings):
        return findings
    missing = [
        f"{name}={value}"
        for name, value in expected.items()
        if name in _KEYS and check in _KEYS[name].judges[:1] and not re.match(r"0+(x|$)", value)
    ]
    if not missing:
        return findings
    return tuple(Finding.fail(f"{' '.join(missing)} expected: {skip.summary}") for skip in findings)


def _read_lines(path: str) -> list[str]:
    try:
        text = input_files.read(path, largest=LARGEST, pipes=True).decode("utf-8")
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or "not text"
        raise ExpectError(f"--expect: expected key=value or a file of such lines; {path}: {why}") from None
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def _check_value(key: str, value: str) -> str:
    if not re.fullmatch(_KEYS[key].form, value, re.ASCII):
        raise ExpectError(f"--expect {key}={value}: not valid; {key}: {KEYS[key]}")
    return value


def _known_key(key: str) -> str:
    if key in KEYS:
        return key
    from nodedoctor.spelling import suggest_word

    hint = suggest_word(key, KEYS, f"known keys: {' '.join(KEYS)}")
    raise ExpectError(f"--expect: unknown key {key!r}; {hint}")
