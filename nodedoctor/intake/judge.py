"""What was recognised, judged: nodes by the checks, jobs by triage, and both together."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from nodedoctor.declare.registry import probes_of
from nodedoctor.engine.pending import run_sync
from nodedoctor.intake.answers import silent_node
from nodedoctor.intake.convert import CONVERTED
from nodedoctor.intake.inputs import SOS, At, Unit, Unreadable, ignore_path, units
from nodedoctor.intake.job_lines import line_runs, sort_lines
from nodedoctor.intake.long_texts import kernel_log_in, outputs_in
from nodedoctor.intake.outputs import NodeOutput, readable, snapshot_of
from nodedoctor.intake.split import Parts, Piece, split
from nodedoctor.intake.verdict_shapes import NCCL_LINES
from nodedoctor.intake.whose import ELSEWHERE, by_owner
from nodedoctor.json_shapes import Json, loaded
from nodedoctor.model import Observation
from nodedoctor.patterns import regex
from nodedoctor.record import record, replace
from nodedoctor.report import json as report_json
from nodedoctor.report.document import Report
from nodedoctor.report.saved import damage
from nodedoctor.report.saved import read as saved_report

if TYPE_CHECKING:
    from nodedoctor.engine.recording import Snapshot
    from nodedoctor.engine.session import Session

OUTPUTS_AT_MOST = 64 << 20
"""Bytes of outputs that are kept; ours: a bug report's sections have a few megabytes."""
LOOKED_AT = 1 << 20
"""Characters of a text in which there must be an output, for others to be looked for behind them; ours."""
_NO_REASON = "undetermined/other"
"""The verdict of triage on lines about a failure that say no reason."""
_ANY_TEXT = ("undetermined/", "none/", "user_code_exception/", "network_socket_interface/unreachable")
"""Verdicts on numbers that go up, and on errors of any program: of a job only where a line shows one."""
_OF_NETWORK = regex(r"NCCL INFO (?:NET/|[^\n]{0,80}(?:GPU Direct|GDR))")
"""What `grep` leaves of a log for somebody who asks about paths. It has no end. Ours."""
_WORD = regex(r"\w+")
QUOTED = 160
"""Characters of a line that was not recognised; ours."""


@record
class Recognised:
    """One thing that was recognised: where, what it is, the probe that reads it, and the node it is of."""

    name: str
    line: int | None
    what: str
    probe: str = ""
    lines: int = 0
    node: str = ""


@record
class Unrecognised:
    """Lines that are none of an output: where they begin, how many they are, and the first of them."""

    name: str
    line: int
    lines: int
    first: str


@record
class Node:
    """A node that was judged: its report, its recording where one is wanted, and what it was judged by."""

    name: str
    report: Report
    recording: bytes = b""
    observations: tuple[Observation, ...] = ()


class Reading:
    """Everything that came of what was given, as it comes together."""

    def __init__(self) -> None:
        self.recognised: list[Recognised] = []
        self.unrecognised: list[Unrecognised] = []
        self.notes: list[str] = []
        self.nodes: list[Node] = []
        self.silent: list[str] = []
        """Nodes that were asked beside those that answered, and could not be reached."""
        self.triage: Json | None = None
        self.fleet: Json | None = None


class _Pile:
    """What was found, before it is judged. `logs` are texts with lines of no output, and whether they hold
    outputs besides; `shows_job`: whether a line in one of them shows a job by itself."""

    def __init__(self) -> None:
        self.outputs: list[NodeOutput] = []
        self.recordings: list[Unit] = []
        self.reports: list[Unit] = []
        self.jobs: list[Unit] = []
        self.logs: list[tuple[Unit, list[tuple[int, str]], bool]] = []
        self.shows_job = False
        self.groups: set[str] = set()


def read(
    paths: Sequence[str],
    *,
    redact: bool = False,
    record: bool = False,
    stdin: bytes = b"",
    at: At = ignore_path,
) -> Reading:
    """Recognise what the paths hold and judge it; Unreadable for a path that leads ignore_path.

    `stdin` is the text of -; `at` is called with each path before it is opened.
    """
    reading, pile = Reading(), _Pile()
    room = OUTPUTS_AT_MOST
    for unit in units(paths, reading.notes, stdin, at):
        room -= _sort_unit(unit, pile, reading, room)
    _close_bundles(pile, reading)
    owners = by_owner(pile.outputs, reading.notes)
    for name, items in owners.items():
        outputs = readable(items)
        _add_recognised(outputs, reading)
        if any(item.piece.shape.probe for item in outputs):
            own = _plain_name(outputs[0].bundle) if name.startswith("bundle ") else ""
            place = name.removeprefix(ELSEWHERE) if name.startswith(ELSEWHERE) and len(owners) > 1 else ""
            snapshot = snapshot_of(outputs, f"node-{place.strip()}" if place else own)
            if snapshot.observations:
                node = _judge_node(snapshot, redact, record)
                if not redact:
                    _place_quotes(node.report, outputs)
                reading.nodes.append(node)
    for unit in pile.recordings:
        reading.recognised.append(Recognised(unit.name, None, "a recorded node"))
        reading.nodes.append(_replay_node(unit.path, redact, record))
    for unit in pile.reports:
        if (report := _load_report(unit)) is not None:
            reading.recognised.append(Recognised(unit.name, None, "a saved report of a node"))
            reading.nodes.append(Node(str(report["node"].get("hostname") or unit.name), report))
        else:
            reading.notes.append(f"{unit.name}: a damaged report")
    _judge_job(pile, reading)
    reading.unrecognised.sort(key=lambda item: (item.name, item.line))
    _judge_fleet(reading)
    return reading


def _plain_name(bundle: str) -> str:
    """What a bundle is called where no prompt names the node."""
    return os.path.basename(bundle.rstrip("/").rpartition("!")[2])


def _sort_unit(unit: Unit, pile: _Pile, reading: Reading, room: int) -> int:
    """Put one text or document where it belongs; returns the bytes that are kept of it."""
    if unit.kind == "recording":
        pile.recordings.append(unit)
    elif unit.kind == "report":
        pile.reports.append(unit)
    elif unit.kind == "job" or unit.kind == "triage":
        pile.jobs.append(unit)
    elif unit.kind != "text":
        reading.recognised.append(
            Recognised(unit.name, None, f"a saved document of nodedoctor ({unit.kind})")
        )
    else:
        return _sort_text(unit, pile, reading, room)
    return 0


def _sort_text(unit: Unit, pile: _Pile, reading: Reading, room: int) -> int:
    parts = _note_silent(_unit_parts(unit), reading)
    size = sum(len(piece.text) for piece in parts.pieces)
    if size > room:
        reading.notes.append(
            f"{unit.name}: left out, {OUTPUTS_AT_MOST >> 20} MiB of outputs were kept before"
        )
        return 0
    for piece in parts.pieces:
        line = piece.line + unit.line - 1
        output = replace(piece, host=piece.host or unit.host, line=line, is_cut=unit.is_cut)
        pile.outputs.append(NodeOutput(output, unit.name, unit.node or unit.group))
    if not unit.quiet:
        _note_refusals(unit, parts.asides, reading)
    if f"/{SOS}/" in unit.name:
        pile.groups.add(unit.group)
    if unit.quiet:
        if not parts.pieces:
            _add_unrecognised(unit, parts.rest, reading)
    elif parts.rest and len(unit.text) > LOOKED_AT and not parts.pieces:
        pile.logs.append((unit, list(parts.rest), False))
        pile.shows_job = True
    elif parts.rest:
        lines = sort_lines(parts.rest, parts.prompts, has_outputs=bool(parts.pieces))
        _add_line_runs(unit, lines.others, reading)
        mine = _take_nccl_lines(unit, lines.mine, pile)
        if mine:
            mixed = bool(parts.pieces or parts.asides or lines.others or parts.is_joined)
            pile.logs.append((unit, mine, mixed))
            pile.shows_job |= lines.shows_job
    return size


def _note_silent(parts: Parts, reading: Reading) -> Parts:
    """The parts without the lines of nodes that did not answer, where others did: those are noted."""
    if not parts.pieces:
        return parts
    names = {number: name for number, line in parts.rest if (name := silent_node(line))}
    new = [name for name in dict.fromkeys(names.values()) if name not in reading.silent]
    reading.silent += new
    reading.notes += [f"{name} could not be asked: nothing is known of it" for name in new]
    return replace(parts, rest=tuple(entry for entry in parts.rest if entry[0] not in names))


def _take_nccl_lines(unit: Unit, lines: Sequence[tuple[int, str]], pile: _Pile) -> list[tuple[int, str]]:
    """The lines of a log; what NCCL says of its paths tells of the node, and alone it is no log."""
    match = [entry for entry in lines if NCCL_LINES.head.match(entry[1])]
    if match:
        text = "".join(f"{line}\n" for _, line in match)
        piece = Piece(NCCL_LINES, text, match[0][0] + unit.line - 1)
        pile.outputs.append(NodeOutput(piece, unit.name, unit.node or unit.group))
    is_excerpt = bool(match) and all(_OF_NETWORK.search(line) for _, line in lines)
    return [] if is_excerpt else list(lines)


def _unit_parts(unit: Unit) -> Parts:
    """The outputs in a text. In a long one that begins as a job's log none is looked for further on."""
    if unit.quiet:
        return outputs_in(unit.text, is_cut=unit.is_cut)
    if len(unit.text) <= LOOKED_AT:
        return split(unit.text)
    begins = split(unit.text[:LOOKED_AT])
    if len(begins.pieces) == 1 and (kernel_log := kernel_log_in(unit.text, begins)):
        return kernel_log
    return split(unit.text) if begins.pieces else begins


def _add_unrecognised(unit: Unit, rest: Sequence[tuple[int, str]], reading: Reading) -> None:
    """Lines that are no output and no job's."""
    if rest:
        line, first = rest[0]
        room = Unrecognised(unit.name, line + unit.line - 1, len(rest), first[:QUOTED])
        reading.unrecognised.append(room)


def _add_line_runs(unit: Unit, rest: Iterable[tuple[int, str]], reading: Reading) -> None:
    for run in line_runs(rest):
        line, first = run[0]
        reading.unrecognised.append(Unrecognised(unit.name, line, len(run), first.strip()[:QUOTED]))


def _note_refusals(unit: Unit, asides: Iterable[tuple[int, str]], reading: Reading) -> None:
    """What was asked for and is not shown, as the program that was refused says it."""
    for line, text in asides:
        reading.notes.append(f"{unit.name}, line {line + unit.line - 1}: not shown: {text.strip()[:QUOTED]}")


def _close_bundles(pile: _Pile, reading: Reading) -> None:
    """Now that all of an archive is known: what of it is a sosreport is one node, and no job's log."""
    pile.outputs[:] = [
        item if item.bundle in pile.groups or "!" not in item.bundle else replace(item, bundle="")
        for item in pile.outputs
    ]
    quiet = [entry for entry in pile.logs if entry[0].group and entry[0].group in pile.groups]
    for unit, rest, mixed in quiet:
        if not mixed:
            _add_unrecognised(unit, rest, reading)
    pile.logs[:] = [entry for entry in pile.logs if entry not in quiet]


def _add_recognised(outputs: Iterable[NodeOutput], reading: Reading) -> None:
    for item in outputs:
        piece = item.piece
        reading.recognised.append(
            Recognised(
                item.name, piece.line, piece.shape.what, piece.shape.probe, piece.text.count("\n"), piece.host
            )
        )


def _judge_node(snapshot: Snapshot, redact: bool, record: bool) -> Node:
    """A node by those checks that something which was read could tell something to."""
    from nodedoctor.engine.plugins import discover
    from nodedoctor.engine.session import Request, Session

    present = set(snapshot.observations)
    chosen = tuple(sorted(check.id for check in discover().checks.values() if probes_of(check) & present))
    session = Session(Request(words=chosen, snapshot=snapshot, redact=redact))
    node = _run_session(session, redact, record)
    # An output that was cut out of another is no tool that fails: what could not be read of it is unknown.
    node.report["causes"] = [cause for cause in node.report["causes"] if not cause["id"].startswith("probe:")]
    return node


def _place_quotes(report: Report, outputs: Sequence[NodeOutput]) -> None:
    """Give each quote the number of its line in the paste; what only our layout has becomes a line of it."""
    findings = (finding for result in report["results"] for finding in result["findings"])
    for evidence in (evidence for finding in findings for evidence in finding["evidence"]):
        words = evidence["text"].strip()
        if evidence["kind"] != "quote" or not words:
            continue
        pieces = [item.piece for item in outputs if item.piece.shape.probe == evidence["probe"]]
        pieces += [item.piece for item in outputs if item.piece not in pieces]
        piece = next((piece for piece in pieces if words in piece.text), None)
        if piece is not None:
            evidence["line"] = piece.line + piece.text[: piece.text.index(words)].count("\n")
        elif evidence["probe"] in CONVERTED and pieces:
            wanted = set(_WORD.findall(words.lower()))
            lines = pieces[0].text.splitlines()
            number = max(
                range(len(lines)), key=lambda n: len(wanted.intersection(_WORD.findall(lines[n].lower())))
            )
            evidence["text"], evidence["line"] = lines[number].strip(), pieces[0].line + number


def _replay_node(path: str, redact: bool, record: bool) -> Node:
    from nodedoctor.engine.session import Request, Session, UsageError

    try:
        session = Session(Request(replay=Path(path), redact=redact))
    except UsageError as error:
        raise Unreadable(str(error)) from None
    return _run_session(session, redact, record)


def _run_session(session: Session, redact: bool, record: bool) -> Node:
    diagnosis = session.diagnosis()
    report = run_sync(diagnosis.run())
    recording = session.recording(diagnosis) if record else b""
    document = report_json.document(report)
    return Node(str(document["node"].get("hostname") or ""), document, recording, report.observations)


def _load_report(unit: Unit) -> Report | None:
    try:
        document = loaded(unit.data)
    except ValueError:
        return None
    return saved_report(document) if isinstance(document, dict) and not damage(document) else None


def _judge_job(pile: _Pile, reading: Reading) -> None:
    """Let triage judge what is of a job; what is none stays unrecognised."""
    if not (pile.jobs or pile.logs):
        return
    if saved := _saved_verdict(pile):
        reading.triage = saved
        reading.recognised.append(Recognised(pile.jobs[0].name, None, "a saved verdict of triage"))
        return
    with tempfile.TemporaryDirectory(prefix="nodedoctor-read-") as folder:
        names: dict[str, str] = {}
        paths = [_path_of(unit, None, folder, names) for unit in pile.jobs]
        paths += [_path_of(unit, rest if mixed else None, folder, names) for unit, rest, mixed in pile.logs]
        verdict = _triage_document(paths, reading.nodes)
        document = {os.path.join(folder, place): name for place, name in names.items()}
        verdict = _rename_paths(verdict, document)
    is_job = bool(pile.jobs) or not _says_nothing(verdict, pile)
    if is_job:
        reading.triage = verdict
    for unit in pile.jobs:
        reading.recognised.append(Recognised(unit.name, None, "what a job left"))
    for unit, rest, mixed in pile.logs:
        if is_job and (not mixed or _has_name(verdict, unit.name)):
            reading.recognised.append(Recognised(unit.name, rest[0][0], "a job's log", "", len(rest)))
        else:
            _add_line_runs(unit, rest, reading)


def _says_nothing(verdict: Json, pile: _Pile) -> bool:
    """Whether nothing is of a job: words around outputs may speak of a failure without being a log."""
    if verdict.get("outcome") == "nothing":
        return True
    if not (pile.shows_job or pile.jobs) and str(verdict.get("kind")).startswith(_ANY_TEXT):
        return True
    only_words = all(mixed for _, _, mixed in pile.logs)
    knows = any(verdict.get(key) for key in ("timeline", "ranks", "incidents", "alternatives"))
    return only_words and verdict.get("kind") == _NO_REASON and not knows


def _saved_verdict(pile: _Pile) -> Json | None:
    """The verdict, where one that was saved is all there is of a job."""
    saved = [unit for unit in pile.jobs if unit.kind == "triage"]
    if not saved or len(pile.jobs) + len(pile.logs) > 1:
        pile.jobs[:] = [unit for unit in pile.jobs if unit.kind != "triage"]
        return None
    try:
        document = loaded(saved[0].data)
    except ValueError:
        return None
    return (
        document if isinstance(document, dict) and document.get("schema") == "nodedoctor.triage/1" else None
    )


def _path_of(unit: Unit, rest: list[tuple[int, str]] | None, folder: str, names: dict[str, str]) -> str:
    """Where triage finds a text: where it lies, or in our folder what is left of it, its lines in place."""
    if rest is None and unit.path:
        return unit.path
    place = f"{len(names)}/{os.path.basename(unit.name.rpartition('!')[2]) or 'log'}"
    names[place] = unit.name
    path = os.path.join(folder, place)
    os.mkdir(os.path.dirname(path))
    data = unit.data
    if not data:
        lines = dict(rest) if rest is not None else {}
        data = (
            "".join(f"{lines.get(number, '')}\n" for number in range(1, max(lines, default=0) + 1))
            if rest is not None
            else unit.text
        ).encode()
    with open(path, "wb") as file:
        file.write(data)
    return path


def _triage_document(paths: Sequence[str], nodes: Iterable[Node]) -> Json:
    from nodedoctor.triage.job import examine_job
    from nodedoctor.triage.timeline.node_reports import faults_of_report
    from nodedoctor.triage.verdict import document

    faults = [faults_of_report(node.name or "the node", node.report) for node in nodes]
    examined = examine_job(paths, faults)
    return document.make_document(examined.verdict, examined.lines.line_of)


def _rename_paths(value: Any, names: dict[str, str]) -> Any:
    """The document with the names that were given in place of those in our folder."""
    if isinstance(value, str):
        for path, name in names.items():
            if path in value:
                value = value.replace(path, name)
        return value
    if isinstance(value, list):
        return [_rename_paths(item, names) for item in value]
    if isinstance(value, dict):
        return {key: _rename_paths(item, names) for key, item in value.items()}
    return value


def _has_name(value: Any, name: str) -> bool:
    """Whether the document quotes something of that name."""
    if isinstance(value, str):
        return name in value
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_has_name(item, name) for item in items)


def _judge_fleet(reading: Reading) -> None:
    """Several nodes as a fleet, by the way that fleets of saved reports go."""
    if len(reading.nodes) < 2:
        return
    import asyncio

    from nodedoctor.fleet.document import document
    from nodedoctor.fleet.gather import gather
    from nodedoctor.fleet.model import FleetRequest
    from nodedoctor.fleet.reports.files import Reports

    with tempfile.TemporaryDirectory(prefix="nodedoctor-read-") as folder:
        names = [f"{_safe_name(node.name)}.json" for node in reading.nodes]
        paths = [os.path.join(folder, str(number), name) for number, name in enumerate(names)]
        for path, node in zip(paths, reading.nodes, strict=True):
            os.mkdir(os.path.dirname(path))
            with open(path, "w", encoding="utf-8") as file:
                file.write(report_json.render(node.report))
        gathered = asyncio.run(gather(Reports(paths), FleetRequest()))
        reading.fleet = _rename_paths(cast("Json", document(gathered.fleet)), {f"{folder}/": ""})


def _safe_name(name: str) -> str:
    letters = (letter if letter.isalnum() or letter in "-." else "-" for letter in name if letter not in "[]")
    return "".join(letters)[:64] or "unnamed"
