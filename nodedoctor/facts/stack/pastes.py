"""What people paste about a Python: `python -m torch.utils.collect_env`, `pip list`, `conda list` ...

Pastes come through chats and issue trackers: quoted, indented, lines lost. What is not there is not known.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from nodedoctor.declare.registry import pasted
from nodedoctor.facts import shapes
from nodedoctor.facts.stack.packages import Package
from nodedoctor.json_shapes import loaded
from nodedoctor.knowledge.versions.stack import canonical
from nodedoctor.model import Observation
from nodedoctor.patterns import regex
from nodedoctor.record import field, record, replace

COLLECT_ENV = pasted("collect-env", "What `python -m torch.utils.collect_env` prints (vLLM's is longer)")
PIP_LIST = pasted("pip-list", "What `pip list`, `uv pip list`, `pip freeze` or `conda list` prints")

_QUOTED = regex(r"^[>|\s`]*")
_NAME = r"([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)(?:\[[^\]]*\])?"
_VERSION = r"(\d[\w.+!-]*)"
_FREEZE = regex(rf"{_NAME}\s*={{2,3}}\s*{_VERSION}")
_COLUMNS = regex(rf"{_NAME}\s+{_VERSION}(?:\s|$)")
_DIRECT = regex(rf"{_NAME} @ (\S+)")
ALWAYS_THERE = frozenset(("filelock", "jinja2", "networkx", "sympy", "typing-extensions"))
"""What every torch since 2.0 requires (its metadata), and no cut list has."""
_NOTHING = ("None", "N/A", "Could not collect", "False", "")
_VARIABLE = regex(r"(LD_LIBRARY_PATH|LD_PRELOAD|CUDA_HOME|CUDA_PATH)=(.+)")


@record
class Pasted:
    """What a paste says; `torch` has the keys version, cuda, hip as in probes/stack/target_python.py.

    `complete` says that `packages` are all there are: the environment collector lists only some.
    """

    source: str
    packages: tuple[Package, ...] = ()
    complete: bool = False
    torch: Mapping[str, Any] | None = None
    python: str = ""
    machine: str = ""
    toolkit: str = ""
    driver: str = ""
    gpus: tuple[str, ...] = ()
    cuda_available: bool | None = None
    environ: Mapping[str, str] = field(default_factory=dict)


def collect_env(observation: Observation) -> Pasted | None:
    """Read the report of torch's (or vLLM's) environment collector; None when it holds nothing of one."""
    lines = _paste_lines(observation)
    values = {key: value for key, value in (_split_colon(line) for line in lines) if key}
    if "PyTorch version" not in values and values.keys() & {"sglang", "sgl_kernel"}:
        return _parse_sglang(observation.probe, values)
    paste = Pasted(
        source=observation.probe,
        packages=tuple(_distinct_packages(_listed_packages(lines))),
        torch=_torch_values(values) or _cpu_build(lines),
        python=_first_number(values.get("Python version", "")),
        machine="aarch64" if "aarch64" in values.get("Python platform", "") else "x86_64",
        toolkit=_first_number(values.get("CUDA runtime version", "")),
        driver=_first_number(values.get("Nvidia driver version", "")),
        gpus=tuple(value for key, value in map(_split_colon, lines) if re.fullmatch(r"GPU \d+", key)),
        cuda_available={"True": True, "False": False}.get(values.get("Is CUDA available", "")),
        environ={m.group(1): m.group(2).strip() for m in map(_VARIABLE.match, lines) if m},
    )
    return paste if paste.packages or paste.torch or paste.driver else None


def _parse_sglang(source: str, values: Mapping[str, str]) -> Pasted:
    """What `python -m sglang.check_env` prints: versions as modules tell them, and the driver's."""
    version = values.get("PyTorch", "")
    cuda = re.search(r"\+cu(\d{2,3})(\d)$", version)
    torch = {"version": version} if version else None
    if torch and cuda:
        torch["cuda"] = f"{cuda[1]}.{cuda[2]}"
    packages = [
        Package(canonical(name), value)
        for name, value in {**values, "torch": version}.items()
        if re.fullmatch(_NAME, name) and re.fullmatch(_VERSION, value)
    ]
    gpus = [
        (number, name)
        for key, name in values.items()
        if re.fullmatch(r"GPU \d+(?:,\d+)*", key)
        for number in key[4:].split(",")
    ]
    return Pasted(
        source=source,
        packages=tuple(_distinct_packages(packages)),
        torch=torch,
        python=_first_number(values.get("Python", "")),
        machine="x86_64",
        toolkit=_first_number(values.get("NVCC", "").rpartition(" V")[2]),
        driver=_first_number(values.get("CUDA Driver Version", "")),
        gpus=tuple(name for _, name in sorted(gpus, key=lambda entry: int(entry[0]))),
        cuda_available={"True": True, "False": False}.get(values.get("CUDA available", "")),
        environ={"CUDA_HOME": values["CUDA_HOME"]} if values.get("CUDA_HOME", "None") not in _NOTHING else {},
    )


def pip_list(observation: Observation) -> Pasted | None:
    """Read a list of packages in any of the usual forms; None when there is none in the text."""
    packages = tuple(
        _distinct_packages(_from_json(observation.text) or _from_lines(_paste_lines(observation)))
    )
    if not packages or not observation.answered:
        return None
    names = {package.name for package in packages}
    return Pasted(observation.probe, packages, complete=_is_whole_list(names), machine="x86_64")


def _is_whole_list(names: Collection[str]) -> bool:
    """Whether a list can prove that something is absent: it has what is of no interest, too.

    People cut lists by hand. What torch needs on every machine only whole lists have.
    """
    return ALWAYS_THERE.issubset(names) if "torch" in names else "pip" in names


def _paste_lines(observation: Observation) -> list[str]:
    return (
        [_QUOTED.sub("", line).rstrip() for line in observation.text.splitlines()]
        if observation.answered
        else []
    )


def _split_colon(line: str) -> tuple[str, str]:
    key, colon, value = line.partition(":")
    return (key.strip(), value.strip()) if colon else ("", "")


def _first_number(value: str) -> str:
    match = re.match(r"\d+(?:\.\d+)*", value)
    return match.group(0) if match else ""


def _torch_values(values: Mapping[str, str]) -> dict[str, str] | None:
    version = values.get("PyTorch version", "")
    if version in _NOTHING:
        return None
    torch = {"version": version}
    for key, label in (("cuda", "CUDA used to build PyTorch"), ("hip", "ROCM used to build PyTorch")):
        if label in values:
            torch[key] = "" if values[label] in _NOTHING else values[label]
    return torch


def _cpu_build(lines: list[str]) -> dict[str, str] | None:
    """The torch whose wheel was built for CPUs alone, as its local version says; None for any other."""
    packages = _listed_packages(lines)
    builds = [package.version for package in packages if package.name == "torch"]
    return {"version": builds[0], "cuda": ""} if builds and builds[0].endswith("+cpu") else None


def _listed_packages(lines: list[str]) -> Iterator[Package]:
    """The `[pip3] name==version` and `[conda] name version build` lines."""
    for line in lines:
        manager, _, rest = line.partition("]")
        rest = rest.strip()
        match = (_FREEZE if manager.startswith("[pip") else _COLUMNS).match(rest)
        if match and manager in ("[pip", "[pip2", "[pip3", "[conda"):
            yield Package(canonical(match.group(1)), match.group(2))


def _from_json(text: str) -> list[Package]:
    try:
        document = loaded(text)
    except ValueError:
        return []
    items = [item for item in document if isinstance(item, dict)] if isinstance(document, list) else []
    pairs = [(item.get("name"), item.get("version")) for item in items]
    return [Package(canonical(n), v) for n, v in pairs if isinstance(n, str) and isinstance(v, str)]


def _from_lines(lines: list[str]) -> Iterator[Package]:
    for line in lines:
        direct = _DIRECT.match(line)
        match = _FREEZE.match(line) or _COLUMNS.match(line)
        if direct:
            version = re.search(r"[/-](\d+\.\d[\w.+]*)-", direct.group(2))
            yield Package(
                canonical(direct.group(1)), version.group(1) if version else "", url=direct.group(2)
            )
        elif match:
            yield Package(canonical(match.group(1)), match.group(2))


def _distinct_packages(packages: Iterator[Package] | list[Package]) -> Iterator[Package]:
    """Each name once: pip's and conda's lists are two views of the same environment."""
    names = set()
    for package in packages:
        if package.name not in names and shapes.package_name(package.name):
            names.add(package.name)
            yield replace(package, version=shapes.version(package.version))
