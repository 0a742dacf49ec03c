"""`dcgmi health -c` as a table and as JSON (`-j`).

Formats: NVIDIA/DCGM 2.4 to 4.5, dcgmi/Health.cpp (GenerateOutputFromResponse) and dcgmi/DcgmiOutput.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import WORDS, Result, Verdict, in_json, make_verdict
from nodedoctor.grouping import group_pairs
from nodedoctor.json_shapes import Json, loaded, mapping, part, text, texts
from nodedoctor.patterns import regex
from nodedoctor.record import replace

PROBE = "dcgm-health"
dcgm_health = pasted(PROBE, "The output of dcgmi health -c, as a table or as JSON.")
_verdict = partial(make_verdict, PROBE, "dcgmi health")

_ROW = regex(
    r"^[ \t]{0,40}\|(?P<indent>[ \t]{0,40})(?:-> )?(?P<key>[^|\n]{0,80})\|(?P<value>[^|\n]{0,200})\|", re.M
)
_OVERALL = regex(r"\|\s{0,4}Overall Health\s{0,40}[:|]\s{0,40}(\w[\w ]{0,20})")
_RESULTS: Mapping[str, Result] = {
    "Healthy": "pass", "Warning": "warn", "Failure": "fail", "Internal error": "unknown",
}  # fmt: skip
_BY_WEIGHT: tuple[Result, ...] = ("fail", "warn", "unknown", "note", "pass")
_GROUPS = ("GPU", "GPU_I", "GPU_CI", "NvSwitch", "Switch", "CPU", "CPU Core", "Link", "ConnectX", "VGPU")
"""Names of entity groups: dcgmlib/src/dcgm_fields.cpp, DcgmFieldsGetEntityGroupString."""


def verdicts(output: str) -> Iterator[Verdict]:
    """The incidents of each entity; where there is none, how all of it is."""
    verdicts_read = [
        *(_json_verdicts(output) if output.lstrip().startswith("{") else _table_verdicts(output))
    ]
    by_entity = group_pairs((verdict.subject, verdict) for verdict in verdicts_read if verdict.subject)
    yield from map(_of_entity, by_entity.values()) if by_entity else verdicts_read


def _of_entity(incidents: list[Verdict]) -> Verdict:
    """All incidents of one entity as one, the worst first."""
    ordered = sorted(incidents, key=lambda verdict: _BY_WEIGHT.index(verdict.result))
    words = "; ".join(verdict.words for verdict in ordered)[:WORDS]
    return replace(ordered[0], words=words)


def _table_verdicts(output: str) -> Iterator[Verdict]:
    if overall := _OVERALL.search(output):
        yield _overall_verdict(overall[1].strip(), overall[0])
    group = entity = system = ""
    result: Result | None = None
    words: list[str] = []
    quote = ""
    for row in _ROW.finditer(output):
        key, value = row["key"].strip(), row["value"].strip()
        if key and words and result:
            yield _incident_verdict(group, entity, system, result, words, quote)
            words, result = [], None
        if key in _GROUPS:
            group, entity = key, ""
        elif re.fullmatch(r"\d{1,9}", key):
            entity = key
        elif key.endswith("system") or (group and value in _RESULTS):
            system, result, quote = key, _RESULTS.get(value), row[0].strip()
        elif not key and value and result:
            words.append(value)
    if words and result:
        yield _incident_verdict(group, entity, system, result, words, quote)


def _json_verdicts(output: str) -> Iterator[Verdict]:
    try:
        body = part(mapping(loaded(output)), "body")
    except ValueError:
        return
    if health := text(part(body, "Overall Health"), "value"):
        yield _overall_verdict(health, in_json(health, output))
    for group in body:
        for entity, document in part(part(body, group), "children").items():
            yield from _entity_verdicts(group, entity, mapping(document), output)


def _entity_verdicts(group: str, entity: str, document: Json, output: str) -> Iterator[Verdict]:
    systems = part(part(part(document, "children"), "Errors"), "children")
    for system in systems:
        incident = part(systems, system)
        words = list(texts(incident, "overflow"))
        if result := _RESULTS.get(text(incident, "value")):
            quote = in_json(words[0], output) if words else ""
            yield _incident_verdict(group, entity, system, result, words, quote)


def _overall_verdict(health: str, quote: str) -> Verdict:
    return _verdict(_RESULTS.get(health, "unknown"), f"overall health: {health}", quote=quote)


def _incident_verdict(
    group: str, entity: str, system: str, result: Result, words: list[str], quote: str
) -> Verdict:
    name = re.sub(r"[^\w-]", "-", group.lower()) or "entity"
    return _verdict(result, f"{system}: {' '.join(words)}", f"{name}:{entity}", quote)
