"""What is fuzzed: each target takes bytes, and returns unless something is wrong.

Most are whole ways in (a log, a dump, a recording, a report of another node); functions that need nothing but
text are also called directly. An error that a function announces, ours or one that its docstring names, is an
answer; anything else that is raised is a fault.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import pickle
import re
import tarfile
import tempfile
import zipfile
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from functions import LINES, Reader, readers
from mutate import LARGEST
from test_triage_flight import behind, dump, entry
from test_views import views

from nodedoctor import json_shapes
from nodedoctor.blackbox.samples import sample
from nodedoctor.cli.compare import read_report
from nodedoctor.cli.expect import expected_of
from nodedoctor.declare.registry import probes_of
from nodedoctor.demo import DEMOS, folder
from nodedoctor.engine import recording
from nodedoctor.engine.run import Diagnosis
from nodedoctor.engine.session import Request, Session
from nodedoctor.engine.sources import Recorded
from nodedoctor.errors import NodeDoctorError
from nodedoctor.expectations import expectations
from nodedoctor.fleet import document as fleet_document
from nodedoctor.fleet import text as fleet_text
from nodedoctor.fleet.compare import outliers
from nodedoctor.fleet.model import Fleet
from nodedoctor.fleet.reports import read_reports
from nodedoctor.fleet.transports import kube
from nodedoctor.model import Expect, Observation
from nodedoctor.pairs import crew, join
from nodedoctor.probes.host.environment import read_file
from nodedoctor.redact import Redaction
from nodedoctor.redact.documents import redacted_nodes, redacted_triage
from nodedoctor.report import job_text, ticket
from nodedoctor.report import json as report_json
from nodedoctor.report.comparison import compare
from nodedoctor.report.comparison_views import render
from nodedoctor.report.html import fleet as fleet_page
from nodedoctor.report.html import triage as triage_page
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.live.examine import judge_live
from nodedoctor.triage.live.saved import read_look as read_capture
from nodedoctor.triage.timeline.node_reports import read_node
from nodedoctor.triage.verdict import document as triage_document

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
"""Small inputs by target, each of which has broken something or leads somewhere that edits rarely do."""
NODES = [*map(folder, DEMOS), *sorted(path.parent for path in HERE.parent.glob("nodes/*/manifest.json"))]
FLEET = ("h100-braked", "h100-slowed-for-a-moment", "l40s-eight-healthy")
LOGS = sorted(path for path in (HERE.parent / "triage" / "logs").rglob("*.log"))
TARGETS_OF_JSON = frozenset(
    ["capture", "flight-recorder", "manifest", "pairs-agent", "pairs-floors", "pods", "report", "sample"]
)
"""Those of `targets` whose input is a document of JSON."""
BETWEEN = b"\x1f"
"""What divides the parts of an input that has several: ASCII's unit separator."""


class Target(NamedTuple):
    """One way in: its name, what takes the bytes, whole inputs to begin with."""

    name: str
    take: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]


@cache
def targets() -> tuple[Target, ...]:
    """All of them."""
    whole = (
        Target("recording", recorded, lambda: [recording_of(NODES[0]), recording_of(NODES[1])]),
        Target("manifest", manifest, lambda: [(node / "manifest.json").read_bytes() for node in NODES[:4]]),
        Target("log", triaged, lambda: [log.read_bytes()[:20_000] for log in LOGS]),
        Target("archive", triaged, archives),
        Target("flight-recorder", dumped, dumps),
        Target("report", reported, lambda: [report_of(node) for node in NODES[:4]]),
        Target(
            "fleet",
            fleeted,
            lambda: [BETWEEN.join(report_of(HERE.parent / "nodes" / name) for name in FLEET)],
        ),
        Target("capture", captured, captures),
        Target("expectations", partial(from_file, expected), lambda: [b"gpus=8\nlinks=18 # all\n"]),
        Target("env-file", partial(from_file, env_file), lambda: [b"export NCCL_DEBUG=WARN\nA='b\n"]),
        Target("pairs-floors", partial(from_file, expected_of), pairs_documents),
        Target("pairs-agent", agent_said, agents),
        Target("sample", lambda data: sample.parse(raw(data)), samples),
        Target("pods", lambda data: pods_listed(raw(data)), pods),
    )
    return (*whole, *of_nodes(), *of_functions())


def raw(text: bytes) -> str:
    """Text as files are read: what is no UTF-8 becomes U+FFFD."""
    return text.decode("utf-8", "replace")


# A recorded node in which one probe printed something else: facts, checks, causes, stand-ins and every view.


def of_nodes() -> Iterator[Target]:
    """One target for each probe: the first two bytes choose one of the nodes where it answered."""
    by_probe: dict[str, list[Path]] = {}
    for node in NODES:
        for file in sorted((node / "probes").glob("*.txt")):
            by_probe.setdefault(file.stem, []).append(node)
    for probe, where in sorted(by_probe.items()):
        yield Target(f"probe {probe}", partial(printed, probe, where), partial(printings, probe, where))


def printings(probe: str, where: list[Path]) -> list[bytes]:
    texts = [(node / "probes" / f"{probe}.txt").read_bytes() for node in where]
    known = dict.fromkeys(text for text in texts if len(text) <= LARGEST - 2)
    return [place.to_bytes(2, "big") + text for place, text in enumerate(known)]


def printed(probe: str, where: list[Path], data: bytes) -> None:
    """Judge a node of which this probe printed the data, by what needs it, and show it everywhere."""
    node = where[int.from_bytes(data[:2], "big") % len(where)]
    session = session_of(node)
    assert session.snapshot is not None
    seen = dict(session.snapshot.observations)
    seen[probe] = replace(seen[probe], text=raw(data[2:]))
    given = {**session.diagnosis()._given, Expect: Expect()}
    checks = [check for check in session.checks if probe in probes_of(check)] or session.checks[:1]

    async def judge() -> Any:
        about = {"hostname": "h", "boot_id": None}
        diagnosis = Diagnosis(checks, Recorded(seen), given, label="replay", node=about, preview=True)
        return await diagnosis.run()

    report = asyncio.run(judge())
    crashed = [
        f"{result.check}: {found.summary}"
        for result in report.results
        for found in result.findings
        if found.reason == "crash" and "raised" in found.summary
    ]
    assert not crashed, crashed
    document = report_json.document(report)
    shown(document)
    shown(Redaction.of(report.observations, report.node).report(document))


@cache
def session_of(node: Path) -> Session:
    return Session(Request(replay=node, preview=True))


def shown(document: Any) -> None:
    """Every view of a report; the JSON is JSON."""
    for _, _ in views(document):
        pass
    ticket.render(document)
    json.loads(report_json.render(document))


# Files of other machines.


def from_file(read: Callable[[str], object], data: bytes) -> None:
    """Give a reader of files a file; it may refuse it."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "given"
        path.write_bytes(data)
        try:
            read(str(path))
        except NodeDoctorError as refused:
            assert "\n" not in str(refused).strip(), f"an error of several lines: {refused}"


def recorded(data: bytes) -> None:
    """A recording, zip."""
    from_file(lambda path: recording.load(Path(path)), data)


def manifest(data: bytes) -> None:
    """The manifest of a recording that is a folder."""
    with tempfile.TemporaryDirectory() as place:
        Path(place, "manifest.json").write_bytes(data)
        Path(place, "probes").mkdir()
        for file in (NODES[0] / "probes").glob("*.txt"):
            Path(place, "probes", file.name).write_bytes(b"")
        try:
            recording.load(Path(place))
        except recording.SnapshotError as refused:
            assert "\n" not in str(refused)


def recording_of(node: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:  # stored: what is changed inside is what is read
        archive.write(node / "manifest.json", "manifest.json")
        for file in sorted((node / "probes").glob("*.txt")):
            archive.writestr(f"probes/{file.name}", file.read_bytes()[:300])
    return buffer.getvalue()


def triaged(data: bytes, name: str = "given") -> None:
    """Logs, archives and dumps: the story, its document, and what is shown of it."""
    with tempfile.TemporaryDirectory() as place:
        Path(place, name).write_bytes(data)
        try:
            examined = examine_job([str(Path(place, name))], look_here=False)
        except NodeDoctorError:
            return
        odd = [note for note in examined.verdict.coverage.notes if "a fault of nodedoctor" in note]
        assert not odd, odd
        triage_shown(examined)


def triage_shown(examined: Any) -> None:
    document = triage_document.make_document(examined.verdict, examined.lines.line_of)
    for told in (document, redacted_triage(document)):
        json.loads(triage_document.render_text(told))
        job_text.render(told, width=100, colour=True)
        triage_page.render(told)


def dumped(data: bytes) -> None:
    """A dump of the flight recorder."""
    triaged(data, "trace_rank_0")


def dumps() -> list[bytes]:
    found = [pickle.dumps(document, protocol=2) for document in behind(2, 1).values()]
    groups = dump([entry(1), entry(2, op="send", is_p2p=True, state="started")], [0, 1], tp=[0])
    return [*found, pickle.dumps(groups), json.dumps(groups).encode(), json.dumps(behind(4, 2)[0]).encode()]


def archives() -> list[bytes]:
    """A log and a dump in every kind of archive, some in one another."""
    log, recorder = LOGS[0].read_bytes()[:2000], dumps()[0]
    tar, packed = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name, data in (("logs/rank0.log", log), ("trace_rank_0", recorder)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("../../etc/passwd")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with zipfile.ZipFile(packed, "w") as archive2:
        archive2.writestr("a/job.log", log)
        archive2.writestr("inner.tar", tar.getvalue())
    lines = [
        {"log": line, "stream": "stderr", "time": "2026-11-21T10:30:00Z"} for line in raw(log).split("\n")
    ]
    rows = "\n".join(map(json.dumps, lines)).encode()
    return [tar.getvalue(), packed.getvalue(), gzip.compress(tar.getvalue(), 1), gzip.compress(log, 1), rows]


@cache
def report_of(node: Path) -> bytes:
    """A small one: edits keep LARGEST bytes, and what is cut at its end is no JSON."""
    report = asyncio.run(Session(Request(replay=node, preview=True)).diagnosis().run())
    document = report_json.document(report)
    found = [result for result in document["results"] if result["status"] not in ("pass", "skip")]
    some = {**shortened(document, 2), "results": shortened(found, 6) + document["results"][:2]}
    return json.dumps(some, separators=(",", ":")).encode()


def shortened(value: Any, most: int) -> Any:
    """A document of which each list keeps its first entries."""
    if isinstance(value, Mapping):
        return {key: shortened(inner, most) for key, inner in value.items()}
    return [shortened(inner, most) for inner in value[:most]] if isinstance(value, list | tuple) else value


def reported(data: bytes) -> None:
    """A report of another version or machine: read, shown, compared, taken as a node of a job or fleet."""
    try:
        document = read_report(data, "given")
    except NodeDoctorError:
        pass
    else:
        shown(document)
        render(compare(document, document), "a", "b")
    from_file(read_node, data)
    from_file(read_reports.read, data)


def fleeted(data: bytes) -> None:
    """Reports of several nodes: read, compared with each other, shown."""
    with tempfile.TemporaryDirectory() as place:
        nodes = []
        for number, part in enumerate(data.split(BETWEEN)[:4]):
            path = Path(place, f"node{number}.json")
            path.write_bytes(part)
            nodes.append(read_reports.read(str(path)))
    fleet = Fleet("0", "reports", "2026-11-21T10:30:00Z", 0.0, tuple(nodes), outliers.judge(nodes))
    document: Mapping[str, Any] = fleet_document.document(fleet)
    for told in (document, redacted_nodes(document)):
        again = json.loads(fleet_document.render(told))
        fleet_document.fleet_of(again)
        fleet_text.render(again)
        fleet_page.render(again)


def captures() -> list[bytes]:
    """What one node saw of a job that hangs."""
    frames = [{"name": "step", "file": "/job/train.py", "line": 41}]
    thread = {"id": 1, "name": "MainThread", "frames": frames}
    row = {"pid": 7, "rank": 1, "host": "n1", "state": "S", "wchan": "ep_poll", "threads": [thread]}
    return [json.dumps({"schema": "nodedoctor.capture/1", "host": "n1", "processes": [row]}).encode()]


def captured(data: bytes) -> None:
    """What another node saw of a job that hangs."""
    live = read_capture(data)
    if live is not None:
        triage_shown(judge_live(live))


def expected(path: str) -> None:
    """A file for --expect."""
    expectations([f"@{path}", path])


def env_file(path: str) -> None:
    """A file for --env-file."""
    with suppress(OSError):
        read_file(path, "/")


def pairs_documents() -> list[bytes]:
    plan = {"what": "tcp", "nodes": "n[1-2]"}
    told = {"schema": "nodedoctor.pairs/1", "plan": plan, "reference_gbps": 93.5, "verdict": "pass"}
    return [json.dumps(told).encode()]


def agent_said(data: bytes) -> None:
    """What the agent of another node says of itself, and of a pair."""
    try:
        said = json_shapes.mapping(json_shapes.loaded(raw(data)))
    except ValueError:
        return
    crew._member("a", said)
    for beside in ({"a": said}, {"a": said, "b": said}, {"a": said, "b": json.loads(agents()[1])}):
        join.join_ends(("a", "b"), beside, 1)


def agents() -> list[bytes]:
    rail = {"device": "mlx5_0", "port": "1", "gbps": 400.0, "gid": "3"}
    ready = {"is_": "ready", "address": "10.0.0.1", "interface": "eth0", "link_gbps": 100.0, "gpus": 8}
    flow = {"is_": "result", "round": 1, "flow": "a b", "gbps": 92.5, "rtt_us": 31.0, "again": 3}
    more = {"segments": 900, "rails": {"mlx5_0/1": 92.5}, "fault": None, "note": ""}
    return [
        json.dumps(said).encode() for said in ({**ready, "busy": ["7"], "rails": [rail]}, {**flow, **more})
    ]


def samples() -> list[bytes]:
    """What the child beside a job says every second."""
    words = ("title", "state", "wchan", "syscall", "ras", "pipe", "stacks", "prefix", "job", "minutes")
    counts = (
        "pid",
        "start",
        "rank",
        "world",
        "local",
        "ticks",
        "child_ticks",
        "child_bytes",
        "bytes",
        "memory",
    )
    row = {**dict.fromkeys(words, "7"), **dict.fromkeys(counts, 7), "gone": False, "children": [8]}
    output = [{"path": "/a", "text": "b", "skipped": 0}]
    told = {"time": 1.0, "monotonic": 2.0, "roots": [7], "ranks": [row], "output": output, "heartbeat": 3}
    return [json.dumps({**told, "walked": 0.1}).encode()]


def pods_listed(data: str) -> None:
    """What `kubectl get pods --output=json` prints."""
    try:
        listed = json_shapes.mapping(json_shapes.loaded(data))
    except ValueError:
        return
    kube.one_a_node(tuple(map(kube.pod, json_shapes.parts(listed, "items"))))


def pods() -> list[bytes]:
    about = {"name": "p", "annotations": {"kubectl.kubernetes.io/default-container": "c"}}
    trains = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    spec = {"nodeName": "n1", "containers": [trains]}
    return [
        json.dumps({"items": [{"metadata": about, "spec": spec, "status": {"phase": "Running"}}]}).encode()
    ]


# Functions that need nothing but text.

BARRED = {
    "nodedoctor.declare.registry.probe": "declares",
    "nodedoctor.declare.registry.pasted": "declares",
    "nodedoctor.declare.registry.check": "declares",
    "nodedoctor.declare.registry.skipped": "answers with its own two arguments",
    "nodedoctor.facts.stack.requirements.is_wheel_of": "takes names of libraries, which are ours",
    "nodedoctor.fleet.asking.split": "its first argument is an option's name",
    "nodedoctor.pairs.on_node.tcp.pattern": "makes what is sent",
    "nodedoctor.probes.cluster.ray_pythons.on_path": "looks for a program of ours",
    "nodedoctor.probes.plain_args.options": "prints its argument and ends the process",
    "nodedoctor.probes.network.ethtool.statistics": "asks the kernel",
    "nodedoctor.probes.network.net.ipv4": "asks the kernel",
    "nodedoctor.probes.network.net.resolve": "asks a name server",
    "nodedoctor.pairs.on_node.node.interface": "asks the kernel",
    "nodedoctor.pairs.on_node.node.link_gbps": "reads below /sys",
    "nodedoctor.pairs.on_node.node.toward": "asks a name server",
    "nodedoctor.report.html.markup.element": "takes names of elements, which are ours",
    "nodedoctor.report.html.blocks.mark": "takes kinds, which are ours",
    "nodedoctor.redact.addresses.names_nobody": "takes what `octets` has read",
    "nodedoctor.redact.addresses.octets": "takes four groups of up to three digits",
    "nodedoctor.triage.verdict.advice.fix_table.steps_of": "takes commands of our table",
    "nodedoctor.triage.verdict.advice.timeouts.settings_in_use": "takes names of our table",
    "nodedoctor.triage.verdict.advice.timeouts.timeout_fixes": "takes names of our table",
    "nodedoctor.triage.lines.required_literals.required_literals": "takes patterns, which are ours",
    "nodedoctor.triage.patterns.rows.read_rows": "takes a table of patterns, which is ours",
    "nodedoctor.triage.live.this_machine.look_at_machine": "looks at this machine",
}
"""Functions that are not called with any text, and why: what they are given is ours, or leads out."""


def pure() -> list[Reader]:
    """The functions that are called directly."""
    return [reader for reader in readers() if reader.is_pure and str(reader) not in BARRED]


def of_functions() -> Iterator[Target]:
    """One target for each room: the first byte chooses the function."""
    by_room: dict[str, list[Reader]] = {}
    for reader in pure():
        by_room.setdefault(".".join(reader.module.split(".")[1:3]), []).append(reader)
    for room, found in sorted(by_room.items()):
        yield Target(f"functions {room}", partial(called, found), partial(words, len(found)))


def called(found: list[Reader], data: bytes) -> None:
    """Call one of the functions with text."""
    reader = found[(data[0] if data else 0) % len(found)]
    parts = data[1:].split(BETWEEN)
    given = [argument(kind, parts[place : place + 1]) for place, (_, kind) in enumerate(reader.parameters)]
    announced = {ArgumentTypeError.__name__, *re.findall(r"\b[A-Z]\w+", reader.function.__doc__ or "")}
    try:
        answer = reader.function(*given)
        if isinstance(answer, Iterator):
            for _ in answer:
                pass
    except NodeDoctorError:
        pass
    except Exception as error:
        if not {cls.__name__ for cls in type(error).__mro__} & announced:
            raise


def argument(kind: str, part: list[bytes]) -> object:
    data = part[0] if part else b""
    if kind in LINES:
        return raw(data).split("\n")
    if kind.startswith("Observation"):
        return Observation("given", text=raw(data))
    return data if kind.startswith("bytes") else raw(data)


WORDS = (
    "0", "-1", "9" * 30, "1e999", "nan", "²", "\u0661", "0x1b", "\ud800", "é", "\x00", "[1-3]", "[", 
    "n[001-128,3]",
    "0000:1b:00.0", "12.8$(touch X)", "2.7.0+cu126", "gpu:3", "{}", "[]", "null", '"', "[[1]]", "{\"a\": 1}",
    "a=b", "export A=b", "10.0.0.1", "::1", "Bearer abc", "rank 3", "(1/8)", "100%|####| 5/5 [00:01<00:00]",
    "2026-11-21T10:30:00Z", "\x1b[31m", "a\tb\tc", "a,b\n1,2", "<a b='c'>", "/proc/1/environ", "::", "80 C",
)  # fmt: skip


def words(functions: int) -> list[bytes]:
    """For each function the same odd words."""
    texts = [word.encode("utf-8", "surrogatepass") for word in WORDS]
    lines = b"\n".join(texts)
    every = [b"", lines, *texts]
    return [bytes([place]) + BETWEEN.join([text, text]) for place in range(functions) for text in every]
