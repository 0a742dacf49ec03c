"""Single values out of the facts of a report, which may be of any version and damaged: nothing here raises.

"" and None mean that the report does not tell, which is no difference between nodes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nodedoctor.json_shapes import number, part, parts, text, texts

Facts = Mapping[str, Any]
Item = Mapping[str, Any]

_QUANTITY = re.compile(r"(?:([0-9]{1,9}) x )?([0-9]{1,18}(?:\.[0-9]{1,9})?)")
_OF_PROGRAMS = re.compile(
    r"$|(?:lo|docker|br-|virbr|veth|vnet|tap|tun|cni|cali|cilium|flannel|lxc|lxd|kube|nodelocal|dummy)"
)
"""Interfaces without a device behind them, by the names their programs give."""
IDLE_PERCENT = 5.0
"""Utilisation up to which a GPU counts as idle; ours."""


def plain_value(fact: str, key: str) -> Callable[[Facts], str]:
    """A plain value of a fact."""
    return lambda facts: word(part(facts, fact).get(key))


def of_gpus(key: str) -> Callable[[Facts], str]:
    """A plain value of all GPUs of the node."""
    return lambda facts: common_value(gpu.get(key) for gpu in gpus(facts))


def of_adapters(key: str) -> Callable[[Facts], str]:
    """A plain value of all RDMA adapters of the node."""
    return lambda facts: common_value(hca.get(key) for hca in adapters(facts))


def gpus(facts: Facts) -> tuple[Item, ...]:
    """The GPUs, whatever they were read with."""
    return parts(part(facts, "gpus"), "gpus")


def adapters(facts: Facts) -> tuple[Item, ...]:
    """RDMA adapters that are no virtual functions: of those a node has as many as somebody made."""
    return tuple(hca for hca in parts(part(facts, "rdma"), "hcas") if not hca.get("physfn"))


def ports(facts: Facts) -> tuple[Item, ...]:
    """The ports of all adapters."""
    return tuple(port for hca in adapters(facts) for port in parts(hca, "ports"))


def links(facts: Facts) -> tuple[tuple[Item, ...], ...]:
    """The NVLinks of every GPU that has any; where NVML did not tell them, as nvidia-smi did."""
    by_gpu = [parts(gpu, "nvlinks") for gpu in gpus(facts)]
    by_gpu = (
        by_gpu if any(by_gpu) else [parts(gpu, "links") for gpu in parts(part(facts, "nv-links"), "gpus")]
    )
    return tuple(of_gpu for of_gpu in by_gpu if of_gpu)


def gpu_count(facts: Facts) -> str:
    """How many GPUs answer."""
    return str(len(gpus(facts)) or "")


def listed_count(facts: Facts) -> str:
    """How many GPUs a paste lists or counts, where it shows none."""
    count = part(facts, "listed-names").get("count") or part(facts, "gpus").get("counted")
    return "" if gpus(facts) else word(count)


def mtus(facts: Facts) -> dict[str, str]:
    """The MTU of each interface that is up, by its name; not of those that programs make and count up."""
    links = parts(part(facts, "net"), "interfaces")
    has_devices = any(link.get("physical") for link in links)
    return {
        name: word(link.get("mtu"))
        for link in links
        if link.get("up")
        and (link.get("physical") or not has_devices)
        and not _OF_PROGRAMS.match(name := text(link, "name"))
    }


def adapter_count(facts: Facts) -> str:
    """How many RDMA adapters there are."""
    return str(len(adapters(facts))) if "hcas" in part(facts, "rdma") else ""


def rails(facts: Facts) -> str:
    """How many ports are up at which rate in Gb/s: `8 x 400`."""
    up = Counter(word(port.get("rate_gbps")) for port in ports(facts) if port.get("state") == "ACTIVE")
    rates = ", ".join(f"{count} x {rate or '?'}" for rate, count in sorted(up.items()))
    return rates or ("none" if ports(facts) else "")


def links_up(facts: Facts) -> str:
    """How many NVLinks are up on each GPU."""
    return common_value(sum(link.get("active") is True for link in of_gpu) for of_gpu in links(facts))


def driver(facts: Facts) -> str:
    """The version of the driver, from the loaded module or from NVML."""
    return text(part(facts, "driver"), "version") or text(part(facts, "gpus"), "driver_version")


def nccl(facts: Facts) -> str:
    """The NCCL that torch gets: built in, the file its name leads to, else the wheel."""
    libraries = part(facts, "libraries")
    if built_in := text(libraries, "nccl_built_in"):
        return built_in
    leads_to = {
        text(item, "real")
        for item in parts(libraries, "resolved")
        if text(item, "name").startswith("libnccl.so")
    }
    for copy in parts(libraries, "copies"):
        if text(copy, "family") == "nccl" and text(copy, "real") in leads_to and text(copy, "version"):
            return text(copy, "version")
    packages = part(part(facts, "target-python"), "packages")
    wheels = sorted(name for name in packages if isinstance(name, str) and name.startswith("nvidia-nccl-cu"))
    return text(packages, wheels[-1]) if wheels else ""


def package(name: str) -> Callable[[Facts], str]:
    """The version of a package of the training Python; none where all its packages are known."""

    def read(facts: Facts) -> str:
        python = part(facts, "target-python")
        absent = "none" if python.get("complete") is True and "packages" in python else ""
        return text(part(python, "packages"), name) or absent

    return read


def limit(name: str) -> Callable[[Facts], str]:
    """A soft limit of the shell nodedoctor ran in."""

    def read(facts: Facts) -> str:
        rlimit = part(part(part(facts, "limits"), "rlimits"), name)
        if "soft" not in rlimit:
            return ""
        return "unlimited" if rlimit["soft"] is None else word(rlimit["soft"])

    return read


def nccl_variables(facts: Facts) -> str:
    """NCCL's variables, of the environment and of its files; the environment wins, as in NCCL."""
    env = part(facts, "env")
    if not isinstance(env.get("variables"), dict):
        return ""
    places = [*(part(file, "variables") for file in reversed(parts(env, "files"))), part(env, "variables")]
    merged = {str(name): word(value) for place in places for name, value in place.items()}
    return " ".join(f"{name}={merged[name]}" for name in sorted(merged) if name.startswith("NCCL_")) or "none"


def _sorted_texts(fact: str, key: str) -> Callable[[Facts], str]:
    def read(facts: Facts) -> str:
        here = part(facts, fact)
        return (" ".join(sorted(texts(here, key))) or "none") if isinstance(here.get(key), list) else ""

    return read


peer_memory = _sorted_texts("driver", "peer_memory")
"""The modules that let adapters reach GPU memory."""
iommu = _sorted_texts("iommu", "parameters")
"""The parameters for the IOMMU that the kernel was booted with."""


def container(facts: Facts) -> str:
    """The runtime of the container nodedoctor ran in."""
    fact = part(facts, "container")
    return text(fact, "runtime") or ("none" if "runtime" in fact else "")


def governor(facts: Facts) -> str:
    """The frequency governors in use."""
    return ", ".join(sorted(map(str, part(part(facts, "host"), "governors"))))


def _least_of(fact: str, items: str, key: str) -> Callable[[Facts], float | None]:
    return lambda facts: least(item.get(key) for item in parts(part(facts, fact), items))


least_pair = _least_of("bandwidth", "pairs", "read_gbytes_s")
"""GB/s of the slowest pair of GPUs."""
least_gemm = _least_of("gemm", "gpus", "tflops")
"""TFLOP/s of the slowest GPU."""
least_rail = _least_of("ib-loopback", "ports", "average_gbps")
"""Gb/s of the slowest rail, looped back."""
least_gpu_memory = _least_of("gpus", "gpus", "memory_total_mib")
"""MiB of the smallest GPU."""


def least_to_gpu(facts: Facts) -> float | None:
    """GB/s from the near memory of the host to the slowest GPU."""
    copies = parts(part(facts, "bandwidth"), "host")
    return least(copy.get("h2d_gbytes_s") for copy in copies if copy.get("kind") != "far")


def all_reduce(facts: Facts) -> float | None:
    """Bus bandwidth in GB/s of the message size that reached most."""
    return most(part(part(facts, "nccl-tests"), "busbw_gbytes_s").values())


def gpu_total(key: str) -> Callable[[Facts], float | None]:
    """A counter summed over the GPUs of the node."""
    return lambda facts: total(gpu.get(key) for gpu in gpus(facts))


def port_total(key: str) -> Callable[[Facts], float | None]:
    """A counter summed over the ports of the node."""
    return lambda facts: total(part(port, "counters").get(key) for port in ports(facts))


def link_errors(facts: Facts) -> float | None:
    """The error counters of all NVLinks of the node together."""
    per_link = [part(link, "counters") for of_gpu in links(facts) for link in of_gpu]
    errors = total(count for counters in per_link for count in counters.values() if count)
    return (errors or 0.0) if any(per_link) else None


def idle_temperature(facts: Facts) -> float | None:
    """The hottest GPU of a node on which none works: a busy node is warmer than an idle one."""
    for gpu in gpus(facts):
        if gpu.get("processes") or (number(gpu.get("gpu_utilization_percent")) or 0.0) > IDLE_PERCENT:
            return None
    return most(gpu.get("temperature_c") for gpu in gpus(facts))


def size(fact: str, *keys: str) -> Callable[[Facts], float | None]:
    """A number of a fact."""

    def read(facts: Facts) -> float | None:
        place = part(facts, fact)
        for key in keys[:-1]:
            place = part(place, key)
        return number(place.get(keys[-1]))

    return read


def word(value: Any) -> str:
    """A value as people would write it; "" for None and for what is no plain value."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        plain = number(value)
        return "" if plain is None else f"{plain:.15g}"
    return value if isinstance(value, str) else ""


def common_value(values: Iterable[Any]) -> str:
    """One value when all have it, `7 x a, 1 x b` otherwise; values that are not known do not count."""
    words = [text for value in values if (text := word(value))]
    if len(set(words)) < 2:
        return words[0] if words else ""
    most_first = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} x {text}" for text, count in most_first)


def amount(text: str) -> float | None:
    """All of a value of `alike` or `rails` together: 8 of `8`, 2800 of `7 x 400`, 0 of `none`."""
    quantities = _count_in(text)
    return None if quantities is None else sum(count * number for count, number in quantities)


def average(text: str) -> float | None:
    """What one has on average: 18 of `18`, 17.75 of `7 x 18, 1 x 16`."""
    quantities = _count_in(text)
    if not quantities:
        return None
    return sum(count * number for count, number in quantities) / sum(count for count, _ in quantities)


def _count_in(text: str) -> list[tuple[int, float]] | None:
    """How many of what a value holds; None where that is no number."""
    if text == "none":
        return []
    quantities = []
    for item in text.split(", "):
        match = _QUANTITY.fullmatch(item)
        if match is None or int(match[1] or 1) == 0:
            return None
        quantities.append((int(match[1] or 1), float(match[2])))
    return quantities


def least(values: Iterable[Any]) -> float | None:
    """The smallest of the numbers among these values."""
    return min(_only_numbers(values), default=None)


def most(values: Iterable[Any]) -> float | None:
    """The largest of the numbers among these values."""
    return max(_only_numbers(values), default=None)


def total(values: Iterable[Any]) -> float | None:
    """The sum of the numbers among these values, None where there are none."""
    numbers = _only_numbers(values)
    return sum(numbers) if numbers else None


def _only_numbers(values: Iterable[Any]) -> list[float]:
    return [plain for value in values if (plain := number(value)) is not None]
