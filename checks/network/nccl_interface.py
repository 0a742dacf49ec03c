"""Do NCCL and gloo find an interface that leads to the other nodes?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.host.env import SYSTEM_CONF, USER_CONF, Env
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.network.net import Interface, Net, several_nodes
from nodedoctor.model import Finding, Fix, reading
from nodedoctor.steps import look

NCCL_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_VIRTUAL = re.compile(
    r"docker|br-|virbr|veth|cni|flannel|cali|lxd?br|podman|tailscale|zt|tun|tap|dummy|ifb|kube"
)


@check("net.interface", "Network interface of NCCL and Gloo", tags={"fast"}, explained_by=("env.lint",))
def interface(net: Net, env: Env | None, processes: Processes | None) -> Iterator[Finding]:
    """NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME against the existing interfaces; if unset, NCCL's choice.

    Why: the other ranks cannot reach a rank on docker0 or on a down interface, and wait until the timeout.
    Fix disturbs: the job.
    Judges: FAIL when NCCL_SOCKET_IFNAME or its like names an interface that is not there; WARN when NCCL
    would take one that leads nowhere.
    Fix: Set the variable to the interface that reaches the other nodes.
    Threshold: NCCL's own rules of choice (NCCL environment documentation).
    False positives: Interfaces that appear only while a job runs.
    Error texts:
    - Bootstrap : no socket interface found
    """
    is_set = False
    for variable, prefixes in (("NCCL_SOCKET_IFNAME", True), ("GLOO_SOCKET_IFNAME", False)):
        for value, where in _variable_settings(variable, env, processes).items():
            is_set = True
            yield _judge_setting(variable, value, where, net, prefixes)
    if not is_set:
        yield _default_choice(net, several_nodes(processes))


def _variable_settings(variable: str, env: Env | None, processes: Processes | None) -> dict[str, str]:
    """Every value of a variable and one place where it is set."""
    places: dict[str, str] = {}
    for process in processes.training if processes else ():
        if value := process.environment.get(variable):
            places.setdefault(value, process.label)
    if env is not None:
        if value := env.get(variable):
            places.setdefault(value, "the environment")
        for path in (USER_CONF, SYSTEM_CONF):
            file = env.file(path.lstrip("~"))
            if file is not None and (value := file.variables.get(variable)):
                places.setdefault(value, path)
    return places


def _judge_setting(variable: str, value: str, where: str, net: Net, prefixes: bool) -> Finding:
    subject = f"env:{variable}"
    evidence = [reading("net", f'interfaces["{interface.name}"].operstate') for interface in net.interfaces]
    chosen = matching(value, net.interfaces, prefixes)
    fix = Fix(
        f"Set it to an interface that is up: {_usable_names(net)}.",
        (look("ip -brief address"),),
        "config",
        "the job",
        "nodedoctor net.interface",
        NCCL_ENV,
    )
    if not chosen:
        summary = f"{variable}={value} in {where}: no such interface"
        return Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
    if not any(interface.up for interface in chosen):
        summary = (
            f"{variable}={value} in {where}: {', '.join(interface.name for interface in chosen)} is down"
        )
        return Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
    up = ", ".join(interface.name for interface in chosen if interface.up)
    return Finding.ok(f"{variable}={value} matches {up}", subject=subject, evidence=evidence)


def matching(value: str, interfaces: tuple[Interface, ...], prefixes: bool = True) -> list[Interface]:
    """The interfaces a value means: prefixes, `=` whole names, `^` all but these (NVIDIA/nccl, docs/env)."""
    without = prefixes and value.startswith("^")
    exact = not prefixes or value.lstrip("^").startswith("=")
    words = [word.strip() for word in value.lstrip("^=").split(",") if word.strip()]

    def named(name: str) -> bool:
        return any(name == word if exact else name.startswith(word) for word in words)

    return [interface for interface in interfaces if named(interface.name) is not without]


def _usable_names(net: Net) -> str:
    names = [
        interface.name
        for interface in net.interfaces
        if interface.up and not interface.loopback and not _VIRTUAL.match(interface.name)
    ]
    return ", ".join(names) or "none here"


def _default_choice(net: Net, several: bool) -> Finding:
    """What NCCL takes when nothing is set: ib* first, then all but docker and lo, then docker, then lo."""
    up = [interface for interface in net.interfaces if interface.up and interface.addresses]
    rest = [
        interface for interface in up if not interface.loopback and not interface.name.startswith("docker")
    ]
    order = [interface for interface in up if interface.name.startswith("ib")] or rest or up
    if not order:
        return Finding.unknown("not-visible-here", "no interface with an address was seen")
    first = order[0]
    address = first.addresses[0]
    summary = f"without NCCL_SOCKET_IFNAME NCCL uses {first.name} ({address})"
    if not (first.loopback or _VIRTUAL.match(first.name)) or not several:
        return Finding.ok(summary)
    fix = Fix(
        f"Set NCCL_SOCKET_IFNAME, e.g. to {_usable_names(net)}.",
        (look("ip -brief address"),),
        "config",
        "the job",
        "nodedoctor net.interface",
        NCCL_ENV,
    )
    return Finding.warn(f"{summary}, which reaches no other node", subject=f"net:{first.name}", fix=fix)
