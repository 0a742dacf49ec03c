"""Evidence made good: quotes found in the output they name, readings read from it.

A check says where its proof is; what is shown is taken from the observation here and nowhere else. A quote is
a slice of what a probe printed, as a recording holds it: decoded, its lines ending in LF. Where a probe of
ours relays texts (files, a log) in a JSON document, the slice is of such a text, and `path` says of which. A
reading is the value under a path in the document a probe printed, and its text is made of source, path and
value. What cannot be found is not evidence and is left out.

A path is names joined by dots, and

    [3]                a place in a list, [-1] the last
    [4:8]              characters of a text
    ["/proc/modules"]  a key; with `?` behind it null where there is no such key
    [index=3]          the member of a list that says so, or [index=3&peer=4]; null where there is none
    [^torch]           the text of a list that begins so; null where there is none

as in `gpus[index=3].values.pcie_width`. Null is how absence is shown, which only an answer
in full can show. In the long outputs of nvidia-smi `[0]`
is the first section of a name and `[id=...]` the one whose heading ends so. `@note`, `@rc`, `@seconds` and
`@outcome` are what the engine noted about the answer.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from nodedoctor.debug import Log
from nodedoctor.facts.gpu.nvml.enums import meaning
from nodedoctor.facts.gpu.nvml.reading import document_of
from nodedoctor.facts.gpu.smi.q import read_q
from nodedoctor.facts.gpu.smi.sections import Section, read_xml
from nodedoctor.json_shapes import loaded
from nodedoctor.model import Evidence, Finding, Observation
from nodedoctor.patterns import regex
from nodedoctor.record import replace

_log = Log(__name__)

LONGEST = 600
"""Characters of one line of a quote (chosen by us, no external source); what is longer is cut, not marked."""

_SURE = 24
"""Characters by which a line is known again; a log's parser joins lines that mail has broken."""

_ABSENT = regex(r"[=^][^\]]{0,299}\]$|\?$")
"""The end of a path by which something may be said to be absent."""

_STEP = re.compile(
    r"\.?(?P<name>[A-Za-z_][\w-]*)"
    r"|\[(?P<place>-?\d{1,9})\]"
    r"|\[(?P<from>\d{1,9}):(?P<to>\d{1,9})\]"
    r"|\[(?P<key>\"(?:[^\"\\]|\\.)*\")\](?P<maybe>\?)?"
    r"|\[\^(?P<begins>[^\]]*)\]"
    r"|\[(?P<by>[A-Za-z_]\w*=[^\]]*)\]"
)
_NOTED: Mapping[str, Callable[[Observation], Any]] = {
    "@note": lambda observation: observation.note,
    "@rc": lambda observation: observation.rc,
    "@seconds": lambda observation: observation.seconds,
    "@outcome": lambda observation: observation.outcome.value,
}
_SOURCES = {"nvml": "NVML", "nvml-growth": "NVML", "bandwidth": "CUDA", "bandwidth-deep": "CUDA"}
"""Interfaces that probes read their values through; of the others the name says it, or a file's path."""

_FILE = re.compile(r"^(?:files|links|lists|hex|stats|statvfs|errors)\[(\"(?:[^\"\\]|\\.)*\")\]")


class EvidenceResolver:
    """The observations of one run, in which evidence is looked up; each is read at most once."""

    def __init__(self, observations: Iterable[Observation] = ()) -> None:
        self._seen: dict[str, Observation] = {}
        self._read: dict[str, Any] = {}
        self.add(observations)

    def add(self, observations: Iterable[Observation]) -> EvidenceResolver:
        """The same, with what has been observed since; an answer never changes."""
        for observation in observations:
            self._seen.setdefault(observation.probe, observation)
        return self

    def resolve_finding(self, finding: Finding) -> Finding:
        """The finding with its evidence made good; evidence that is not found is left out."""
        evidence = tuple(good for draft in finding.evidence if (good := self.resolve(draft)) is not None)
        return replace(finding, evidence=evidence)

    def resolve(self, draft: Evidence) -> Evidence | None:
        """One piece of evidence as found in what was observed; None where it is not there."""
        observation = self._seen.get(draft.probe)
        if observation is None:
            _log.debug("evidence names %s, which was not observed", draft.probe)
            return None
        try:
            evidence = (
                self._find_reading(observation, draft)
                if draft.kind == "reading"
                else self._find_quote(observation, draft)
            )
            if evidence is None and draft.kind == "reading" and draft.like:
                evidence = self._find_quote(observation, replace(draft, path=""))  # it was pasted as text
        except (re.error, ValueError):  # a path or pattern that a name or value of the node has broken
            _log.debug("evidence of %s cannot be looked for", draft.probe, exc_info=True)
            evidence = None
        if evidence is None:
            _log.debug(
                "evidence is not in what %s printed: %s", draft.probe, draft.path or draft.like or draft.text
            )
        return evidence

    def document(self, observation: Observation) -> Any:
        """What an observation holds as nested data: JSON, or sections of nvidia-smi; None for other text."""
        if observation.probe not in self._read:
            self._read[observation.probe] = parse_document(observation)
        return self._read[observation.probe]

    def _find_reading(self, observation: Observation, draft: Evidence) -> Evidence | None:
        for path in (draft.path, *draft.otherwise):
            try:
                value = value_at(
                    observation, path, self.document(observation) if path not in _NOTED else None
                )
            except LookupError:
                continue
            source = _SOURCES.get(observation.probe, observation.probe)
            text = text_of_reading(source, path, value)
            return Evidence(observation.probe, text, path=path, kind="reading", source=source, value=value)
        return None

    def _find_quote(self, observation: Observation, draft: Evidence) -> Evidence | None:
        wanted = _cut_quote(draft.text)
        if not (wanted.strip() or draft.like):
            return None
        for path, text in self._document_texts(observation, draft.path):
            if draft.like:
                if match := re.search(draft.like, text, re.MULTILINE):
                    group = 1 if match.re.groups else 0
                    line = text.count("\n", 0, match.start(group)) + 1
                    return Evidence(observation.probe, _cut_quote(match[group]), path=path, line=line)
                continue
            if draft.at is not None and (quote := _line_with(wanted, text, draft.at)):
                return Evidence(observation.probe, quote, path=path, line=text.count("\n", 0, draft.at) + 1)
            if (place := text.find(wanted)) >= 0:
                return Evidence(observation.probe, wanted, path=path, line=text.count("\n", 0, place) + 1)
        return None

    def _document_texts(self, observation: Observation, path: str) -> Iterator[tuple[str, str]]:
        document = self.document(observation)
        if path:
            with contextlib.suppress(LookupError):
                text = value_at(observation, path, document)
                if isinstance(text, str):
                    yield path, text
            return
        if isinstance(document, dict | list):
            yield from _strings_in(document, "")
        yield "", observation.text
        if observation.note:
            yield "@note", observation.note


def _cut_quote(text: str) -> str:
    """Lines of a quote. Only the last one may be cut short, or it would be no slice any more."""
    lines = text.strip("\n").split("\n")
    last = next((place for place, line in enumerate(lines) if len(line) > LONGEST), len(lines) - 1)
    return "\n".join([*lines[:last], lines[last][:LONGEST]])


def parse_document(observation: Observation) -> Any:
    """An observation's text as nested data, also if its end is missing; None when it has no such shape."""
    text = observation.text.lstrip()
    if text.startswith(("{", "[")):
        for read in (loaded, _json_lines):
            try:
                return read(text)
            except ValueError:
                continue
    elif "<nvidia_smi_log" in text:
        return read_xml(observation.text)
    elif observation.probe == "nvidia-smi-q":
        return read_q(observation.text)
    if not text.startswith("{"):
        # What a start-up file of a foreign interpreter printed before the document, on lines of its own.
        text = text.rstrip().rpartition("\n")[2]
        if not text.startswith("{"):
            return None
    return document_of(text)[0] or None


def _json_lines(text: str) -> list[Any]:
    """Documents line by line, or an array written line by line whose end is missing."""
    lines = (line.strip().removesuffix(",") for line in text.splitlines())
    return [loaded(line) for line in lines if line not in ("[", "]", "")]


def value_at(observation: Observation, path: str, document: Any = None) -> Any:
    """The value under a path of an observation; LookupError when there is none.

    `document` is what `structure` made of the observation, if that is at hand.
    """
    if path in _NOTED:
        return _NOTED[path](observation)
    here = parse_document(observation) if document is None else document
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise LookupError(path)
        try:
            here = _take_step(here, step)
        except LookupError:
            if not path.endswith("?"):
                raise
            here = None
            break
        at = step.end()
    value = _step_value(here)
    if value is None and _ABSENT.search(path) and (not observation.answered or observation.truncated):
        raise LookupError(f"{path}: {observation.probe} was not answered in full")
    return value


def with_list_indices(document: Any, path: str) -> str:
    """A path with the place of every member in place of the words that find it: `gpus[3].links[4]`.

    Where there is no such member, the path as far as there is one.
    """
    here, at, indexed_path = document, 0, ""
    while at < len(path) and (step := _STEP.match(path, at)):
        at = step.end()
        try:
            there = _take_step(here, step)
        except LookupError:
            return indexed_path
        if isinstance(here, list) and (step["by"] or step["begins"] is not None):
            place = next((place for place, member in enumerate(here) if member is there), None)
            if place is None:
                return indexed_path
            indexed_path += f"[{place}]"
        elif step["place"] is not None and isinstance(here, list):
            indexed_path += f"[{int(step['place']) % len(here)}]"
        elif step["from"] is None:
            indexed_path = step_to(indexed_path, step["name"] or loaded(step["key"]))
        here = there
    return indexed_path


def text_of_reading(source: str, path: str, value: Any) -> str:
    """`NVML gpus[index=3].values.pcie_width = 8`, with the word for a number that is none.

    The value of a file is named by the file.
    """
    file = _FILE.match(path)
    where = loaded(file[1]) + path[file.end() :] if file else f"{source} {path}"
    if value is None and _ABSENT.search(path):
        return f"{where.removesuffix('?')} is absent"
    shown = value.strip() if isinstance(value, str) else json.dumps(value)
    word = meaning(path, value) if source == _SOURCES["nvml"] else ""
    return f"{where} = {shown[:LONGEST]}{f' ({word})' if word else ''}"


def _line_with(wanted: str, text: str, at: int) -> str:
    """The line that begins there, if it is the one that says the beginning of what is wanted."""
    end = text.find("\n", at)
    line = text[at : end if end >= 0 else len(text)]
    begins = at == 0 or text[at - 1 : at] == "\n"
    return line[:LONGEST].rstrip() if begins and wanted[:_SURE] in line else ""


def _take_step(here: Any, step: re.Match[str]) -> Any:
    if isinstance(here, Section):
        here = [here]
    if (name := step["name"]) is not None or step["key"] is not None:
        name = loaded(step["key"]) if name is None else name
        if _is_sections(here):
            parts = [part for section in here[:1] for part in section.all(name)]
            if not parts:
                raise LookupError(name)
            return parts
        if not isinstance(here, dict) or (name not in here and not step["maybe"]):
            raise LookupError(name)
        return here.get(name)
    if step["from"] is not None and isinstance(here, str):
        return here[int(step["from"]) : int(step["to"])]
    if not isinstance(here, list):
        raise LookupError(step[0])
    if step["place"] is not None:
        place = int(step["place"])
        if not -len(here) <= place < len(here):
            raise LookupError(step[0])
        member = here[place]
        return [member] if isinstance(member, Section) else member
    if step["begins"] is not None:
        return next((m for m in here if isinstance(m, str) and m.startswith(step["begins"])), None)
    wanted = dict(pair.partition("=")[::2] for pair in step["by"].split("&"))
    if _is_sections(here):
        matches = [part for part in here if part.text.lower().endswith(wanted.get("id", "?").lower())]
        if not matches:
            raise LookupError(step[0])
        return matches
    members = (member for member in here if isinstance(member, dict))
    return next(
        (m for m in members if all(_plain_text(m.get(by)) == value for by, value in wanted.items())), None
    )


def _is_sections(here: Any) -> bool:
    return isinstance(here, list) and bool(here) and isinstance(here[0], Section)


def _plain_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _step_value(here: Any) -> Any:
    """A section is its text; of several of a name, the first."""
    return here[0].text if _is_sections(here) else here.text if isinstance(here, Section) else here


def _strings_in(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text in a document, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings_in(item, step_to(path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _strings_in(item, f"{path}[{place}]")


def step_to(path: str, key: str) -> str:
    """A path with one more key."""
    if re.fullmatch(r"[A-Za-z_][\w-]*", key):
        return f"{path}.{key}" if path else key
    return f"{path}[{json.dumps(key)}]"
