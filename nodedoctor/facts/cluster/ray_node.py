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
    known = Env.parse(env)
    folder = (known.get("RAY_TMPDIR") if isinstance(known, Env) else None) or "/tmp"
    where = folder if folder.rstrip("/").endswith("/ray") else f"{folder.rstrip('/')}/ray"
    return Command(child("cluster/ray_session", "--root", options.root, "--folder", where))


@probe("ray-status", timeout=STATUS_SECONDS, after=("processes", "env", "target-python", "ray-session"))
def ray_status(
    options: Options, processes: Observation, env: Observation, target: Observation, session: Observation
) -> Command | Observation:
    """What the running Ray cluster says of its nodes, resources and pending work."""
    seen, known = Processes.parse(processes), Env.parse(env)
    runs = isinstance(seen, Processes) and seen.ray and options.root == "/"
    named = (known.get("RAY_ADDRESS") or "") if isinstance(known, Env) else ""
    address = named if named not in ("", "auto", "local") else ""
    if not address and runs:
        address = text(document(session) or {}, "address")
    if not address or "://" in address:
        return skipped("ray-status", NO_RAY if not named else f"{named} is not asked")
    python = _python(target)
    if not python:
        return skipped("ray-status", "no Python with Ray was found")
    return Command(child("cluster/ray_status", python, address))


def _python(target: Observation) -> str:
    """The interpreter of the running Ray, else the target if Ray is installed in it."""
    found = TargetPython.parse(target, Observation("", note="-"), Observation("", note="-"))
    if not isinstance(found, TargetPython):
        return ""
    running = [one for one in found.running if one.ray and not one.problem]
    if running:
        return f"{running[0].prefix}/bin/python3"
    return found.path if found.package("ray") else ""


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
    """The latest session: what this node was started with, and its troubles. `gpus` None: not told."""

    session: str
    node_id: str = ""
    gpus: float | None = None
    object_store_gib: float | None = None
    troubles: tuple[Trouble, ...] = ()

    @classmethod
    def parse(cls, seen: Observation) -> RaySession | Unseen:
        """Read the child's document; without a session there is nothing to see."""
        told = document(seen)
        if told is None or "session" not in told:
            return Unseen.of(seen)
        if not text(told, "session"):
            why = next((one for one in part(told, "errors").values() if isinstance(one, str)), "ENOENT")
            if why == "ENOENT":
                return Unseen.skip("no Ray session on this node")
            return Unseen("denied", f"ray-session: {text(told, 'folder')}: {why}", "Run as the user of Ray.")
        logs = part(told, "logs")
        whole_logs = [name for name in logs if _is_whole(part(logs, name))]
        if (not logs or len(whole_logs) < len(logs)) and not part(told, "errors"):
            unread(Unread("Ray's logs", "the answer has only a part of them", "ray.resources"))
        state = text(told, "state")
        node = re.search(r"^Node ID: (\w{1,80})", state, re.MULTILINE)
        resources = re.search(r"^InitialConfigResources: \{(.*)\}", state, re.MULTILINE)
        listed = resources.group(1) if resources else ""
        store = _amount("object_store_memory", listed)
        return cls(
            text(told, "session"),
            node.group(1) if node else "",
            (_amount("GPU", listed) or 0.0) if resources else None,
            round(store / 1024**3, 3) if store is not None else None,
            tuple(_troubles(logs)),
        )


def _amount(name: str, listed: str) -> float | None:
    found = re.search(rf"(?:^|, ){name}: (\d{{1,20}}(?:\.\d{{1,20}})?(?:e\+?\d{{1,2}})?)", listed)
    return float(found.group(1)) if found else None


def _is_whole(log: Mapping[str, object]) -> bool:
    """Whether each kind of trouble that was looked for has a number and a list of lines."""
    return part(log, "counts").keys() == part(log, "lines").keys() != set()


def _troubles(logs: Mapping[str, object]) -> Iterator[Trouble]:
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
    def parse(cls, seen: Observation) -> RayCluster | Unseen:
        """Read the text; sections that are missing stay empty."""
        if seen.outcome in (Outcome.SKIPPED, Outcome.MISSING, Outcome.DENIED):
            return Unseen.of(seen)
        if "Node status" not in seen.text:
            said = seen.note.strip() or seen.text.strip() or seen.outcome.value
            return cls(silent=said.splitlines()[-1][-300:])
        sections = dict(_sections(seen.text))
        used = sections.get("Total Usage") or sections.get("Usage", ())  # with -v, and without
        total = _AMOUNT.search("\n".join(used))
        nodes = {
            name.removeprefix("Node: ").partition(" ")[0]: float(found.group(2)) if found else 0.0
            for name, lines in sections.items()
            if name.startswith("Node: ")
            for found in [_AMOUNT.search("\n".join(lines))]
        }
        waiting = sum((sections.get(f"{kind}Demands", ()) for kind in ("Pending ", "Total ", "")), ())
        failed = (line.strip() for line in sections.get("Recent failures", ()))
        return cls(
            sum(_leading(line) for name in _ALIVE for line in sections.get(name, ())) or len(nodes),
            float(total.group(2)) if total else 0.0 if used else None,
            float(total.group(1)) if total else None,
            nodes,
            tuple(_demand(line) for line in waiting if _DEMAND.match(line)),
            tuple(line for line in failed if line and not line.startswith("(no")),
        )


def _sections(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
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


def _leading(line: str) -> int:
    found = re.match(r"\s*(\d{1,6}) ", line)
    return int(found.group(1)) if found else 0


def _demand(line: str) -> Demand:
    found = _DEMAND.match(line)
    if found is None:
        return Demand(line.strip())
    gpus = _GPU.search(found.group(1))
    return Demand(
        line.strip(), float(gpus.group(1)) if gpus else 0.0, int(found.group(2) or 1), found.group(3) or ""
    )
