"""Are the adapters, interfaces and GPUs that a value names there?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.facts.host.settings import HERE, Setting, Settings
from nodedoctor.lint.remark import NodeContext, Remark
from nodedoctor.lint.values import NCCL_ENV
from nodedoctor.steps import look, repair
from nodedoctor.wording import count_with_noun

_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_CONSEQUENCE = {
    "NCCL_SOCKET_IFNAME": ("NCCL", "`Bootstrap : no socket interface found`"),
    "GLOO_SOCKET_IFNAME": ("gloo", "`Unable to find address for`"),
    "TP_SOCKET_IFNAME": ("RPC", "that no address was found"),
}
_ADDRESSES = (look("ip -brief address"),)


def judge_devices(setting: Setting, node: NodeContext) -> Iterator[Remark]:
    """Names of adapters against sysfs, of interfaces against this network namespace, numbers of GPUs."""
    if setting.name in _INTERFACES and node.interfaces is not None:
        yield from _interface_remarks(setting, node.interfaces)
    elif setting.name == "NCCL_IB_HCA" and node.hcas is not None:
        yield from _adapter_remarks(setting, node.hcas)
    elif setting.name == "UCX_NET_DEVICES" and node.hcas is not None and node.interfaces is not None:
        yield from _ucx_remarks(setting, node.hcas, node.interfaces)
    elif setting.name == "CUDA_VISIBLE_DEVICES" and HERE in setting.places:
        yield from _gpu_remarks(setting.value, node.gpu_count)


def unseen_devices(settings: Settings, node: NodeContext) -> Iterator[tuple[str, str]]:
    """Variables that name adapters, interfaces or GPUs of a kind that was not seen, and that kind."""
    for setting in settings.all():
        if setting.value.strip().startswith("^"):
            continue
        if setting.name in (*_INTERFACES, "UCX_NET_DEVICES") and node.interfaces is None:
            yield setting.name, "network interfaces"
        elif setting.name in ("NCCL_IB_HCA", "UCX_NET_DEVICES") and node.hcas is None:
            yield setting.name, "RDMA devices"
        elif setting.name == "CUDA_VISIBLE_DEVICES" and HERE in setting.places and node.gpu_count is None:
            yield setting.name, "GPUs"


def _interface_remarks(setting: Setting, there: tuple[str, ...]) -> Iterator[Remark]:
    """Prefixes, `=` for whole names, `^` for all but these (NVIDIA/nccl, docs/env); gloo: whole names."""
    nccl = setting.name == "NCCL_SOCKET_IFNAME"
    value = setting.value.strip()
    if nccl and value.startswith("^"):
        return
    exact, words = not nccl or value.startswith("="), _split_words(value.lstrip("="))
    missing = [word for word in words if not any(_is_match(word, name, exact) for name in there)]
    if not missing:
        return
    rest = [name for name in there if name != "lo"]
    shown = ", ".join(rest[:8]) or "none but lo"
    if len(missing) == len(words):
        library, error = _CONSEQUENCE[setting.name]
        names = f"no interface {' or '.join(missing)}" if words[1:] else "no such interface"
        text = f"{names} here, {library} cannot start. Every rank on this node fails at its first connection"
        advice = f"Set it to an existing interface ({shown}), or unset it. The job reports {error}."
        yield Remark("fail", text, advice, _ADDRESSES, NCCL_ENV)
    else:
        text = f"this node has no interface {', '.join(missing)}; the others are used"
        yield Remark("note", text)


def _adapter_remarks(setting: Setting, there: tuple[str, ...]) -> Iterator[Remark]:
    value = setting.value.strip()
    if value.startswith("^"):
        return
    exact = value.startswith("=")
    words = _split_words(value.lstrip("="))
    missing = [word for word in words if not any(_is_port(word, port, exact) for port in there)]
    if not missing:
        return
    names = list(dict.fromkeys(port.partition("/")[0] for port in there))
    shown = ", ".join(names[:10])
    fix = f"Set it to existing devices ({shown}), or unset it: NCCL finds its NICs itself."
    if not there:
        text = "this node has no RDMA device at all: NCCL uses TCP sockets"
        yield Remark("warn", text, "Unset it, unless devices are missing (see ib.ports).")
    elif len(missing) == len(words):
        text = (
            f"this node has no RDMA device {', '.join(missing)}: NCCL falls back to TCP sockets."
            " Traffic between nodes is 10 to 100 times slower"
        )
        yield Remark("fail", text, fix, (repair("unset NCCL_IB_HCA"),), NCCL_ENV)
    else:
        text = f"this node has no RDMA device {', '.join(missing)}: rails are missing"
        yield Remark("warn", text, fix, (look("ls /sys/class/infiniband"),), NCCL_ENV)


def _ucx_remarks(setting: Setting, ports: tuple[str, ...], interfaces: tuple[str, ...]) -> Iterator[Remark]:
    """UCX_NET_DEVICES names ports (mlx5_0:1) and interfaces (eth0); `all` and `^` need nothing."""
    if setting.value.startswith("^") or setting.value.strip() == "all":
        return
    words = [word for word in _split_words(setting.value) if not re.search(r"[*?\[]", word)]
    missing = [
        word for word in words if word not in interfaces and not any(_is_port(word, p, True) for p in ports)
    ]
    if missing:
        text = f"this node has no device {', '.join(missing)}: UCX ignores it with a warning"
        yield Remark("warn", text, "Set it to an existing device, or unset it.")


def _gpu_remarks(value: str, count: int | None) -> Iterator[Remark]:
    """CUDA stops reading at the first number that names nothing, and sees none when one is given twice.

    CUDA C++ Programming Guide, CUDA Environment Variables.
    """
    words = _split_words(value)
    if any(words.count(word) > 1 for word in words):
        yield Remark(
            "fail", f"{value} contains a GPU twice: CUDA then sees no GPU at all", "List each GPU once."
        )
        return
    beyond = [word for word in words if word.isdecimal() and count is not None and int(word[:9]) >= count]
    if beyond and count:
        visible = words.index(beyond[0])
        text = (
            f"GPU {beyond[0]} does not exist ({count_with_noun(count, 'GPU')} here): CUDA sees only the "
            f"{visible} before it"
        )
        yield Remark("fail", text, f"Use GPUs 0 to {count - 1}.")


def _split_words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]


def _is_match(word: str, name: str, exact: bool) -> bool:
    return name == word if exact else name.startswith(word)


def _is_port(word: str, port: str, exact: bool) -> bool:
    """Whether `mlx5_0:1` means the port `mlx5_0/1`; without `=` a name is a prefix."""
    name, _, number = word.partition(":")
    device, _, own = port.partition("/")
    return _is_match(name, device, exact) and (not number or number == own)
