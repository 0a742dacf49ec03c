"""Ray on this node: what its session's files say, and what the cluster answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.declare.unread import Unread, unread
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.json_shapes import document, part, text, texts, whole_number
from nodedoctor.model import Observation, Outcome, Unseen
from nodedoctor.patterns import regex
from nodedoctor.record import field, record

STATUS_SECONDS = 8.0  # a cluster that lives answers in less than two
NO_RAY = "no Ray process runs here, and RAY_ADDRESS names none"
_AMOUNT = regex(r"(\d{1,9}(?:\.\d{1,9})?)/(\d{1,9}(?:\.\d{1,9})?) GPU\b")
_DEMAND = regex(r"\s*(\{[^}]*\})(?: \* (\d{1,9}))?(?: \((\w+)\))?: (\d{1,9})\+? pending \S")
_GPU = regex(r"'GPU': (\d{1,9}(?:\.\d{1,9})?)\b")


@probe("ray-session", timeout=6, lane=Lane.FS, after=("env",))
def ray_session(options: Options, env: Observation) -> Command:
    """Resources of this Ray node and trouble in its logs, from the files of its session."""
    environment = Env.parse(env)
    folder = (environment.get("RAY_TMPDIR") if isinstance(environment, Env) else None) or "/tmp"
    where = folder if folder.rstrip("/").endswith("/ray") else f"{folder.rstrip('/')}/ray"
    return Command(child("cluster/ray_session", "--root", options.root, "--folder", where))


@probe("ray-status", timeout=STATUS_SECONDS, after=("processes", "env", "target-python", "ray-session"))
def ray_status(
    options: Options, processes: Observation, env: Observation, target: Observation, session: Observation
) -> Command | Observation:
    """What the running Ray cluster says of its nodes, resources and pending work."""
    running, environment = Processes.parse(processes), Env.parse(env)
    runs = isinstance(running, Processes) and running.ray and options.root == "/"
    setting = (environment.get("RAY_ADDRESS") or "") if isinstance(environment, Env) else ""
    address = setting if setting not in ("", "auto", "local") else ""
    if not address and runs:
        address = text(document(session) or {}, "address")
    if not address or "://" in address:
        return skipped("ray-status", NO_RAY if not setting else f"{setting} is not asked")
    python = _ray_interpreter(target)
    if not python:
        return skipped("ray-status", "no Python with Ray was found")
    return Command(child("cluster/ray_status", python, address))


def _ray_interpreter(target: Observation) -> str:
    """The interpreter of the running Ray, else the target if Ray is installed in it."""
    python = TargetPython.parse(target, Observation("", note="-"), Observation("", note="-"))
    if not isinstance(python, TargetPython):
        return ""
    running = [process for process in python.running if process.ray and not process.problem]
    if running:
        return f"{running[0].prefix}/bin/python3"
    return python.path if python.package("ray") else ""


@record
class Trouble:
    """Lines of one kind in a log: worker-death node-death out-of-memory disk-full no-descriptors."""

    kind: str
    log: str
    count: int
    lines: tuple[str, ...]
    last: str


@fact("ray-session")
@record
class RaySession:
    """The latest session: what this node was started with, and its troubles. `gpus` None: not known."""

    session: str
    node_id: str = ""
    gpus: float | None = None
    object_store_gib: float | None = None
    troubles: tuple[Trouble, ...] = ()

    @classmethod
    def parse(cls, observation: Observation) -> RaySession | Unseen:
        """Read the child's document; without a session there is nothing to see."""
        reply = document(observation)
        if reply is None or "session" not in reply:
            return Unseen.of(observation)
        if not text(reply, "session"):
            why = next((note for note in part(reply, "errors").values() if isinstance(note, str)), "ENOENT")
            if why == "ENOENT":
                return Unseen.skip("no Ray session on this node")
            return Unseen("denied", f"ray-session: {text(reply, 'folder')}: {why}", "Run as the user of Ray.")
        logs = part(reply, "logs")
        whole_logs = [name for name in logs if _is_whole(part(logs, name))]
        if (not logs or len(whole_logs) < len(logs)) and not part(reply, "errors"):
            unread(Unread("Ray's logs", "the answer has only a part of them", "ray.resources"))
        state = text(reply, "state")
        node = re.search(r"^Node ID: (\w{1,80})", state, re.MULTILINE)
        resources = re.search(r"^InitialConfigResources: \{(.*)\}", state, re.MULTILINE)
        amounts = resources.group(1) if resources else ""
        store = _resource_amount("object_store_memory", amounts)
        return cls(
            text(reply, "session"),
            node.group(1) if node else "",
            (_resource_amount("GPU", amounts) or 0.0) if resources else None,
            round(store / 1024**3, 3) if store is not None else None,
            tuple(_log_troubles(logs)),
        )


def _resource_amount(name: str, amounts: str) -> float | None:
    match = re.search(rf"(?:^|, ){name}: (\d{{1,20}}(?:\.\d{{1,20}})?(?:e\+?\d{{1,2}})?)", amounts)
    return float(match.group(1)) if match else None


def _is_whole(log: Mapping[str, object]) -> bool:
    """Whether each kind of trouble that was looked for has a number and a list of lines."""
    return part(log, "counts").keys() == part(log, "lines").keys() != set()


def _log_troubles(logs: Mapping[str, object]) -> Iterator[Trouble]:
    for name in logs:
        log = part(logs, name)
        for kind in part(log, "counts"):
            count = whole_number(part(log, "counts"), kind) or 0
            if count:
                lines = texts(part(log, "lines"), kind)
                yield Trouble(kind, name, count, lines, text(log, "last"))


_ALIVE = ("Active", "Idle", "Healthy")
"""Headings of the nodes that are there: up to Ray 2.7 all are Healthy, later Active or Idle."""


@record
class Demand:
    """Work that waits: GPUs of one piece, how many pieces belong together (`kind` PACK, SPREAD ...)."""

    text: str
    gpus: float = 0.0
    pieces: int = 1
    kind: str = ""


@fact("ray-status")
@record
class RayCluster:
    """What `ray status -v` says.

    `active` counts the nodes that are there, idle ones too; `nodes` maps a node's id to its GPUs, `silent` is
    why there is no answer.
    """

    active: int = 0
    gpus: float | None = None
    gpus_used: float | None = None
    nodes: Mapping[str, float] = field(default_factory=dict)
    demands: tuple[Demand, ...] = ()
    failures: tuple[str, ...] = ()
    silent: str = ""

    @classmethod
    def parse(cls, observation: Observation) -> RayCluster | Unseen:
        """Read the text; sections that are missing stay empty."""
        if observation.outcome in (Outcome.SKIPPED, Outcome.MISSING, Outcome.DENIED):
            return Unseen.of(observation)
        if "Node status" not in observation.text:
            message = observation.note.strip() or observation.text.strip() or observation.outcome.value
            return cls(silent=message.splitlines()[-1][-300:])
        sections = dict(_split_sections(observation.text))
        used = sections.get("Total Usage") or sections.get("Usage", ())  # with -v, and without
        total = _AMOUNT.search("\n".join(used))
        nodes = {
            name.removeprefix("Node: ").partition(" ")[0]: float(match.group(2)) if match else 0.0
            for name, lines in sections.items()
            if name.startswith("Node: ")
            for match in [_AMOUNT.search("\n".join(lines))]
        }
        waiting = sum((sections.get(f"{kind}Demands", ()) for kind in ("Pending ", "Total ", "")), ())
        failed = (line.strip() for line in sections.get("Recent failures", ()))
        return cls(
            sum(_leading_number(line) for name in _ALIVE for line in sections.get(name, ())) or len(nodes),
            float(total.group(2)) if total else 0.0 if used else None,
            float(total.group(1)) if total else None,
            nodes,
            tuple(_parse_demand(line) for line in waiting if _DEMAND.match(line)),
            tuple(line for line in failed if line and not line.startswith("(no")),
        )


def _split_sections(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Headings end with a colon or begin with Node; the lines below them are indented."""
    heading, lines = "", list[str]()
    for line in text.splitlines():
        title = re.fullmatch(r"([A-Z][\w ]{2,30}):(?: \(.*)?|(Node: \S.*)", line)
        if title or not line.strip():
            if heading and lines:
                yield heading, tuple(lines)
            heading, lines = (line.rstrip(":") if title else heading), []
        elif line.startswith(" "):
            lines.append(line)
    if heading and lines:
        yield heading, tuple(lines)


def _leading_number(line: str) -> int:
    match = re.match(r"\s*(\d{1,6}) ", line)
    return int(match.group(1)) if match else 0


def _parse_demand(line: str) -> Demand:
    match = _DEMAND.match(line)
    if match is None:
        return Demand(line.strip())
    gpus = _GPU.search(match.group(1))
    return Demand(
        line.strip(), float(gpus.group(1)) if gpus else 0.0, int(match.group(2) or 1), match.group(3) or ""
    )
