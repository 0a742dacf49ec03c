"""What a word means: a check, a cause, an Xid, an environment variable. `nodedoctor explain WORD` prints it.

Plain text of 80 columns that ends with where it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from nodedoctor.cli.check_page import SampleFinding, error_texts, samples, sections
from nodedoctor.cli.explain_fact import fact_lines
from nodedoctor.cli.explain_lines import label_lines, source_lines, step_lines, text_lines, wrapped
from nodedoctor.declare.registry import Check, Fact
from nodedoctor.demo import DEMOS, folder
from nodedoctor.knowledge import env_vars, kinds, xids
from nodedoctor.knowledge.ownership import owner_word
from nodedoctor.model import Status
from nodedoctor.report.inert import inert_lines
from nodedoctor.report.page import sentence

CULPRITS = {
    "app": "the program",
    "driver": "the driver",
    "hw": "the GPU's hardware",
    "bus": "PCIe",
    "power": "power supply",
    "thermal": "heat",
    "peer": "the GPU or switch at the other end",
    "fabric": "the NVLink fabric",
    "fw": "firmware",
    "sw": "software",
    "follow": "another Xid",
    "other": "nobody",
    "unknown": "not known",
}
OWNERS = {
    "nccl": "NCCL",
    "torch": "torch",
    "cuda": "CUDA or the container toolkit",
    "ray": "Ray",
    "framework": "a framework or library",
    "packaging": "builds and images only",
    "rccl": "AMD's RCCL",
    "nccl-tests": "nccl-tests",
}
DECISIONS = {
    "none": "none: there is nothing to do",
    "restart": "restart: on the same nodes",
    "restart-without": "restart-without: leave the node out, where that is sure enough; else look",
    "stop": "stop: the same will happen again",
    "look": "look: find out more first",
}
RECURRENCE = {
    ("no", "no"): "not expected",
    ("yes", "no"): "expected on the same nodes, not on others",
    ("yes", "yes"): "expected on all nodes",
    ("yes", "unknown"): "expected on the same nodes; unknown on others",
    ("unknown", "unknown"): "unknown",
}
SAFETY = {
    "yes": "may stay set",
    "workaround": "only as a workaround",
    "no": "no: only for diagnosis or a known reason",
    "no-effect": "has no effect",
}


def explain(word: str, checks: Iterable[Check] = (), facts: Iterable[Fact] = ()) -> str | None:
    """The answer for a word, None when nothing is known about it.

    Misspelled variables are answered with the one that was probably meant.
    """
    plain = " ".join(word.split())
    known_checks, known_facts = tuple(checks), tuple(facts)
    readers: tuple[Callable[[], Iterator[str] | None], ...] = (
        lambda: _explain_code(plain),
        lambda: _explain_cause(plain),
        lambda: _explain_kind(plain),
        lambda: _explain_check(plain, known_checks),
        lambda: _explain_subject(plain, known_checks),
        lambda: _explain_variable(plain),
        lambda: _explain_fact(plain, known_facts),
        lambda: _explain_misspelled(plain),
    )
    answers = (read() for read in readers)
    lines = next((answer for answer in answers if answer is not None), None)
    return None if lines is None else "\n".join(lines)


def _explain_code(word: str) -> Iterator[str] | None:
    match = re.fullmatch(r"(s?xid)?\s*(?:[:#-]\s*)?(\d{1,6})", word, re.IGNORECASE)
    if match is None:
        return None
    kind, number = (match.group(1) or "").lower(), int(match.group(2))
    gpu_error = xids.xid(number) if kind != "sxid" else None
    if gpu_error is not None:
        return _xid_lines(gpu_error)
    switch_error = xids.sxid(number) if kind != "xid" else None
    return _sxid_lines(switch_error) if switch_error is not None else None


def _xid_lines(row: xids.XidRow) -> Iterator[str]:
    yield f"Xid {row.xid}: {row.mnemonic}"
    yield from text_lines(row.meaning)
    yield ""
    yield from label_lines("Severity", "depends on the message" if row.level == "decode" else row.level)
    yield from label_lines("Culprit", ", then ".join(CULPRITS.get(name, name) for name in row.fault))
    yield from label_lines("Do", row.what_to_do.text)
    yield from label_lines("Action", row.action)
    buckets = dict.fromkeys(part for part in (row.bucket, row.investigate) if part)
    yield from label_lines("NVIDIA", ", then ".join(buckets))
    rule = xids.workflow(row.bucket) or xids.workflow(row.investigate)
    yield from label_lines("Rule", rule.rule if rule else "")
    yield from label_lines("Seen on", ", ".join(row.families))
    yield from label_lines("Note", row.note)
    yield from source_lines(row.source, row.unverified)


def _sxid_lines(row: xids.SxidRow) -> Iterator[str]:
    kind = xids.sxid_kind(row.kind)
    yield f"SXid {row.sxid} (NVSwitch): {row.name}"
    yield from text_lines(kind.meaning)
    yield ""
    yield from label_lines("Severity", row.kind)
    yield from label_lines("Do", kind.advice)
    yield from label_lines("Action", kind.action)
    yield from source_lines(row.source, row.unverified)


def _explain_cause(word: str) -> Iterator[str] | None:
    row = kinds.cause(word.lower().replace("-", "_"))
    return None if row is None else _cause_lines(row)


def _cause_lines(row: kinds.KnownCause) -> Iterator[str]:
    yield f"{row.cause}: {row.title}"
    yield from text_lines(row.means)
    yield from step_lines("How to confirm", row.confirm)
    yield from step_lines("Fix", row.fix)
    yield ""
    yield from label_lines("See also", ", ".join(row.see))
    yield from source_lines(row.source, row.unverified)


def _explain_kind(word: str) -> Iterator[str] | None:
    row = kinds.kind(word.lower().replace("-", "_"))
    return None if row is None else _kind_lines(row)


def _kind_lines(row: kinds.Kind) -> Iterator[str]:
    yield f"{row.kind}: {row.title}"
    yield from text_lines(row.reason)
    yield ""
    yield from label_lines("Decision", DECISIONS[row.decision])
    yield from label_lines("Again", RECURRENCE[row.same_nodes, row.other_nodes])
    yield from label_lines("Owner", owner_word(row.owner))
    yield from label_lines("Differs", row.differs)
    cause = kinds.cause(row.cause)
    yield from label_lines("Seen by", ", ".join(name.replace("_", " ") for name in row.events))
    if cause is not None:
        yield from step_lines("Fix", cause.fix)
        yield ""
        yield from label_lines("See also", row.cause)
    yield from source_lines(row.source, False)


def _explain_variable(word: str) -> Iterator[str] | None:
    row = env_vars.env_var(word)
    return None if row is None else _variable_lines(row)


def _variable_lines(row: env_vars.EnvVar) -> Iterator[str]:
    yield f"{row.name}: nothing reads it" if row.phantom else row.name
    yield from text_lines(row.effect)
    yield from text_lines(row.note)
    yield ""
    yield from label_lines("Read by", "" if row.phantom else OWNERS.get(row.owner, row.owner))
    yield from label_lines("Versions", _version_range(row))
    yield from label_lines("Unit", row.unit)
    yield from label_lines("Default", row.default)
    renamed = f" since {row.renamed_since}" if row.renamed_since else ""
    yield from label_lines("New name", f"{row.renamed_to}{renamed}" if row.renamed_to else "")
    yield from label_lines("Production", SAFETY[row.production_safe])
    yield from label_lines("Instead", row.instead)
    if row.phantom and "timeout=" in row.instead:
        yield from _timeout_lines()
    yield from source_lines(row.source, row.unverified)


def _version_range(row: env_vars.EnvVar) -> str:
    since = f"since {row.since}" if row.since else ""
    until = f"until {row.until}" if row.until else ""
    return " ".join(part for part in (since, until) if part)


def _timeout_lines() -> Iterator[str]:
    settings = env_vars.timeout_settings()
    width = max(len(row.framework) for row in settings) + 4
    yield ""
    yield "What sets the timeout of collectives, and its default"
    for row in settings:
        unit = f" (given in {row.unit})" if row.unit == "minutes" else ""
        setting = f"{row.setting}: {row.default_seconds} s{unit}"
        yield from wrapped(f"  {row.framework:<{width - 2}}{setting}", " " * (width + 2))
        yield from text_lines(row.note, indent=width)
    thorough = " and ".join(row.framework for row in settings if row.reaches_subgroups)
    yield ""
    yield from text_lines(
        f"{thorough} pass it on to sub-groups; elsewhere these keep torch's default. The log "
        "shows the one that applies as Timeout(ms)=. A timeout means that some rank did not "
        "arrive: find that rank before raising it.",
        indent=0,
    )


def _explain_misspelled(word: str) -> Iterator[str] | None:
    if not re.fullmatch(r"[A-Za-z][^\W_]*_\w+", word):
        return None
    suggestion = env_vars.suggest(word)
    row = env_vars.env_var(suggestion) if suggestion else None
    return None if row is None else _explain_word(word, row)


def _explain_word(word: str, row: env_vars.EnvVar) -> Iterator[str]:
    yield from text_lines(f"{word} is not a known variable; did you mean {row.name}?", indent=0)
    yield ""
    yield from _variable_lines(row)


def _explain_check(word: str, checks: tuple[Check, ...]) -> Iterator[str] | None:
    chosen = next((check for check in checks if check.id == word.lower()), None)
    return None if chosen is None else _check_lines(chosen)


def _check_lines(check: Check) -> Iterator[str]:
    stage = " (preview)" if check.stage == "preview" else ""
    yield f"{check.id}: {check.title}{stage}"
    for text in error_texts(check):
        yield from text_lines(f'"{text}"', hang=1)
    for section in sections(check):
        yield ""
        yield section.heading
        for paragraph in section.paragraphs:
            yield from text_lines(paragraph)
        for item in section.items:
            yield from text_lines(f"- {item}", hang=2)
    yield from _sample_lines(samples(map(folder, DEMOS), (check,)).get(check.id))
    yield ""
    yield from label_lines("Needs", ", ".join(need.cls.__name__ for need in check.needs()))
    yield from label_lines("Tags", ", ".join(sorted(check.tags)))
    yield from label_lines("Run", f"nodedoctor {check.id}")
    yield from source_lines(check.where)


def _sample_lines(sample: SampleFinding | None) -> Iterator[str]:
    """A finding from one of the nodes that ship, where one of them has it."""
    if sample is None:
        return
    yield ""
    yield f"Example, from `nodedoctor demo {sample.node}`"
    yield from text_lines(f"{Status(sample.finding['status']).word} {sentence(sample.finding)}", hang=5)
    for evidence in sample.finding["evidence"][:2]:
        for line in inert_lines(evidence["text"].strip("\n"))[:2]:
            yield f"  | {line}"


def _explain_subject(word: str, checks: tuple[Check, ...]) -> Iterator[str] | None:
    chosen = sorted((check for check in checks if check.subject == word.lower()), key=lambda check: check.id)
    return _subject_lines(word.lower(), chosen) if chosen else None


def _subject_lines(subject: str, checks: list[Check]) -> Iterator[str]:
    yield f"{subject}: {len(checks)} checks, run them with `nodedoctor {subject}`"
    width = max(len(check.id) for check in checks) + 2
    for check in checks:
        yield from wrapped(f"  {check.id:<{width}}{check.title}", " " * (width + 2))
    yield from source_lines("; ".join(sorted({check.where for check in checks})))


def _explain_fact(word: str, facts: tuple[Fact, ...]) -> Iterator[str] | None:
    chosen = next((fact for fact in facts if word.lower() in (fact.name, fact.cls.__name__.lower())), None)
    return None if chosen is None else fact_lines(chosen)
