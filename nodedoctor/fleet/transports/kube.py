"""Ask the nodes of a Kubernetes cluster from inside pods that run on them, by `kubectl exec`.

The user's own kubectl asks: its context, its rights (`get pods`, `create pods/exec`). Nothing is
installed in the cluster: pods of the job itself, or of a DaemonSet that is there, are entered. The single
file goes over stdin to a container that has Python and no nodedoctor.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import replace

from nodedoctor.children.child_stream import ChildStream
from nodedoctor.declare.registry import Command
from nodedoctor.fleet.model import FleetError, FleetRequest, Node
from nodedoctor.fleet.reports import reading
from nodedoctor.fleet.transports import control, one_by_one
from nodedoctor.json_shapes import Json, loaded, objects, part, parts, text
from nodedoctor.model import Observation, Outcome
from nodedoctor.nodeset import natural_key
from nodedoctor.record import record

LISTING = 20.0
"""Ours: seconds in which `kubectl get pods` answers; kubectl's own limit is none."""
LONGEST = 200
"""Characters kept of what kubectl said; ours."""
CONTAINER = "kubectl.kubernetes.io/default-container"
"""https://kubernetes.io/docs/reference/labels-annotations-taints/: the container kubectl exec enters."""

# kubernetes/kubectl: pkg/cmd/util/helpers.go ("error: ", "Error from server"), pkg/cmd/exec (the others).
_ADDED = re.compile(r"command terminated with exit code \d+|Defaulted container .*|")
_OF_KUBECTL = re.compile(
    r"[Ee]rror(?: from server.*)?: |Unable to connect|The connection to the server|OCI runtime"
)
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@record
class Pod:
    """A pod as the cluster lists it; `why` says why it cannot be entered."""

    name: str
    node: str
    container: str = ""
    why: str = ""


class Kube:
    """The way to the nodes on which pods run; `pods` is NAMESPACE/SELECTOR.

    One running pod of each node is entered, the first by name, and the host is the node; with `every` each
    pod is a host of its own, because processes of one are not seen from another.
    """

    name = "kube"

    def __init__(self, pods: str, *, every: bool = False) -> None:
        self._namespace, _, self._selector = pods.partition("/")
        self._every = every
        self._pods: dict[str, Pod] = {}
        if not _NAME.fullmatch(self._namespace) or not self._selector or self._selector.startswith("-"):
            raise FleetError(f"--kube {pods}: expected NAMESPACE/SELECTOR, as in training/app=llama")

    async def hosts(self) -> tuple[str, ...]:
        """All nodes with a pod that was meant; FleetError when kubectl does not say, or there is none."""
        words = ("--namespace", self._namespace, "get", "pods", "--selector", self._selector, "--output=json")
        answer = await control.ask("kubectl", *words, timeout=LISTING)
        if answer.rc != 0:
            raise FleetError(f"kubectl does not list the pods: {answer.complaint[:LONGEST]}")
        try:
            pod_list = loaded(answer.text)
        except ValueError:
            raise FleetError("kubectl does not list the pods: its answer is no JSON") from None
        pods = tuple(pod(item) for item in parts(pod_list, "items")) if isinstance(pod_list, dict) else ()
        if not pods:
            raise FleetError(f"no pod in namespace {self._namespace} has {self._selector}")
        self._pods = {target.name: target for target in pods} if self._every else one_a_node(pods)
        return tuple(sorted(self._pods, key=natural_key))

    async def ask(self, request: FleetRequest) -> AsyncIterator[Node]:
        """Every node as its answer comes, `width` at once; FleetError when the single file is none."""
        for host, target in self._pods.items():
            if target.why:
                yield Node(host, "unreachable", note=target.why)
        open_hosts = tuple(host for host, target in self._pods.items() if not target.why)
        asking = one_by_one.ask(self.name, open_hosts, request, self.argv, self._read)
        async with contextlib.aclosing(asking) as nodes:
            async for node in nodes:
                yield node

    async def talk(self, host: str, script: str, first: bytes) -> ChildStream:
        """A line to a script in the pod of a host; FleetError where the pod cannot be entered."""
        if why := self._pods[host].why:
            raise FleetError(why)
        return await ChildStream.start(Command(self.argv(host, script), stdin=first, tied=True))

    async def close(self) -> None:
        """Nothing is held for all nodes."""

    def argv(self, host: str, script: str, deadline: float = 0.0) -> tuple[str, ...]:
        """The command line that has the pod of a host run a script of sh; only after `hosts`."""
        into = self._pods[host]
        container = ("--container", into.container) if into.container else ()
        words = ("--namespace", self._namespace, "exec", "--stdin", into.name, *container)
        return ("kubectl", *words, "--", "/bin/sh", "-c", script)

    def _read(self, host: str, observation: Observation) -> Node:
        """What the answer says, without what kubectl itself adds to it."""
        lines = [line for line in observation.note.splitlines() if not _ADDED.fullmatch(line.strip())]
        of_kubectl = [line for line in lines if _OF_KUBECTL.match(line)]
        if of_kubectl and not observation.text.strip() and observation.outcome is Outcome.OK:
            note = f"pod {self._pods[host].name}: {of_kubectl[-1].strip()[:LONGEST]}"
            return Node(host, "unreachable", note=note, seconds=observation.seconds)
        node = reading.node(host, replace(observation, note="\n".join(lines)))
        return replace(node, note=node.note.replace("calls itself", "pod")) if node.hostname else node


def one_a_node(pods: tuple[Pod, ...]) -> dict[str, Pod]:
    """The first pod of each node that can be entered, by node; a pod without a node has its own name."""
    chosen: dict[str, Pod] = {}
    for target in sorted(pods, key=lambda target: (bool(target.why), natural_key(target.name))):
        chosen.setdefault(target.node or target.name, target)
    return chosen


def pod(item: Json) -> Pod:
    """A pod of `kubectl get pods --output=json`."""
    about, spec, status = part(item, "metadata"), part(item, "spec"), part(item, "status")
    name, phase = text(about, "name"), text(status, "phase")
    why = "" if phase == "Running" else f"pod {name} is {phase.lower() or 'in no known phase'}"
    if not why and text(about, "deletionTimestamp"):
        why = f"pod {name} is being deleted"
    return Pod(name, text(spec, "nodeName"), container(item), why)


def container(item: Json) -> str:
    """The container that trains: the one the pod itself names, else the first with GPUs, else the first."""
    default_name = text(part(part(item, "metadata"), "annotations"), CONTAINER)
    inside = objects(part(item, "spec").get("containers"))
    with_gpus = (text(entry, "name") for entry in inside if _has_gpus(entry))
    return default_name or next(with_gpus, "") or next((text(entry, "name") for entry in inside), "")


def _has_gpus(entry: Json) -> bool:
    limits = part(part(entry, "resources"), "limits")
    return any("gpu" in name.partition("/")[2] for name in limits)
