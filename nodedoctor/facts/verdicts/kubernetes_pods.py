"""Pods of the GPU and network operators that do not run, by `kubectl get pods`.

Format: kubernetes/kubernetes 1.10 to 1.35, pkg/printers/internalversion/printers.go (printPod). Names:
NVIDIA/gpu-operator and Mellanox/network-operator, the daemon sets in assets and manifests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Result, Verdict, make_verdict
from nodedoctor.patterns import regex
from nodedoctor.record import record
from nodedoctor.wording import count_with_noun, singular_or_plural

PODS = "kubernetes-pods"
kubernetes_pods = pasted(PODS, "The output of kubectl get pods, of the GPU or network operator.")
_of_pods = partial(make_verdict, PODS, "kubectl get pods")

COMPONENT = (
    r"(?:nvidia-(?:driver|gpu-driver|container-toolkit|device-plugin|operator-validator|cuda-validator"
    r"|plugin-validator|dcgm|mig-manager|node-status-exporter|cc-manager|vgpu|sandbox|vfio-manager"
    r"|gpu-operator|dra-driver|network-operator|imex|fabricmanager)|gpu-(?:operator|feature-discovery)"
    r"|nvdp-nvidia|dcgm-exporter|mofed-|doca-driver|rdma-shared-dp|network-operator|nic-feature-discovery"
    r"|nic-configuration)[\w.-]{0,200}"
)
STATE = (
    r"\d{1,3}/\d{1,3}[ \t]{1,40}[A-Z][\w:/]{2,60}[ \t]{1,40}\d{1,6}(?: \(\S{2,16} ago\))?[ \t]{1,40}"
    r"(?:\d{1,6}[smhdy]){1,3}"
)
_ROW = regex(
    r"^[ \t]{0,8}(?:[a-z][\w-]{0,62}[ \t]{1,60})?(?P<pod>[a-z\d][\w.-]{2,252})[ \t]{1,200}"
    r"(?P<ready>\d{1,3})/(?P<wanted>\d{1,3})[ \t]{1,40}(?P<status>[A-Z][\w:/]{2,60})[ \t]{1,40}"
    r"(?P<restarts>\d{1,6})(?: \(\S{2,16} ago\))?[ \t]{1,40}(?P<age>(?:\d{1,6}[smhdy]){1,3})"
    r"(?:[ \t]{1,40}[\d.:a-f]{7,45}[ \t]{1,40}(?P<node>[\w.-]{1,253}))?(?:[ \t][^\n]{0,200})?$",
    re.M,
)
_COMPONENT = regex(COMPONENT)
_GIVES_GPUS = regex(r"driver|toolkit|device-plugin")
"""Components without which pods on a node get no GPU."""
_BROKEN = regex(
    r"(?:Init:)?(?:CrashLoopBackOff|ImagePullBackOff|ErrImagePull|InvalidImageName|CreateContainer\w*Error"
    r"|RunContainerError|Error|OOMKilled|ExitCode:\d{1,3}|Signal:\d{1,3}|StartError|ContainerCannotRun)$"
)
_FINAL = ("Completed", "Succeeded", "Terminating", "Evicted")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}
_AGE = regex(r"(\d{1,6})([smhdy])")
SLOW_SECONDS = 1200
"""Until when a component may start: the driver container compiles for minutes, its probe allows 20 (ours)."""


@record
class _Pod:
    """One row; `kind` is what it amounts to."""

    name: str
    node: str
    state: str
    restarts: int
    quote: str
    kind: str
    is_component: bool


def pods(output: str) -> Iterator[Verdict]:
    """Components that end or cannot start, those that wait without such a cause, and how many run."""
    rows = [_read_row(row) for row in _ROW.finditer(output)]
    broken = [pod for pod in rows if pod.kind == "broken"]
    waiting = [pod for pod in rows if pod.kind == "waiting"]
    for pod in broken:
        behind = [item for item in waiting if item.node == pod.node] if pod.is_component else []
        yield _broken_verdict(pod, len(behind))
    nodes = {pod.node for pod in broken if pod.is_component}
    for pod in waiting:
        if pod.node not in nodes:
            yield _of_pods(
                "warn", f"{pod.state} for a long time: {_label(pod)}", f"pod:{pod.name}", pod.quote
            )
    run = [pod for pod in rows if pod.kind == "runs"]
    if run:
        yield _of_pods(
            "pass", f"{len(run)} of {count_with_noun(len(rows), 'pod')} run or completed", "", run[0].quote
        )


def _broken_verdict(pod: _Pod, behind: int) -> Verdict:
    restarts = f", {count_with_noun(pod.restarts, 'restart')}" if pod.restarts else ""
    waits = f"; {count_with_noun(behind, 'pod')} {singular_or_plural(behind, 'waits', 'wait')} for it"
    words = f"{pod.state}: {_label(pod)}{restarts}{waits if behind else ''}"
    is_vital = pod.is_component and _GIVES_GPUS.search(pod.name) is not None
    result: Result = "fail" if is_vital else "warn" if pod.is_component else "note"
    return _of_pods(result, words, f"pod:{pod.name}", pod.quote)


def _label(pod: _Pod) -> str:
    return f"{pod.name} on {pod.node}" if pod.node else pod.name


def _read_row(row: re.Match[str]) -> _Pod:
    state, name = row["status"], row["pod"]
    is_component = _COMPONENT.match(name) is not None
    age = sum(int(number) * _UNITS[unit] for number, unit in _AGE.findall(row["age"]))
    if _BROKEN.match(state):
        kind = "broken"
    elif state in _FINAL or (state == "Running" and row["ready"] == row["wanted"]):
        kind = "runs"
    else:
        kind = "waiting" if is_component and age >= SLOW_SECONDS else "starts"
    state = f"{state}, {row['ready']} of {row['wanted']} ready" if state == "Running" else state
    return _Pod(name, row["node"] or "", state, int(row["restarts"]), row[0], kind, is_component)
