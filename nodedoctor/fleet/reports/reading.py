"""The answer of one node read: what its report says as far as nodes are compared, or why there is none.

Answers come from other machines and other versions, and nothing in them raises.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from nodedoctor.fleet.compare.traits import FACTS, readings, traits
from nodedoctor.fleet.compare.values import gpus
from nodedoctor.fleet.model import Node, NodeCause, Problem
from nodedoctor.fleet.reports.no_report_reasons import no_report_reason
from nodedoctor.fleet.reports.skim import NoReport, Skimmed, find_document, skim
from nodedoctor.json_shapes import Json, number, part, parts, text, whole_number
from nodedoctor.model import Action, Observation, Outcome, Status
from nodedoctor.nodeset import plain
from nodedoctor.report.document import Cause, Finding, full_summary, severity, status_of
from nodedoctor.report.gate import STRICTEST, gate_of
from nodedoctor.report.page import cause_line, first_command
from nodedoctor.report.saved import causes_of, finding
from nodedoctor.wording import and_more, count_with_noun

LONGEST = 600
"""Characters kept of a summary, twice the longest of ours."""
LONGEST_FIX = 1500
"""Characters kept of a fix; ours."""
MOST = 200
"""Problems kept of one node, the worst; ours."""
MOST_CAUSES = 20
"""Causes kept of one node, the worst; ours."""
ACCEPTANCE = "nodedoctor.accept/1"
"""The schema of what `nodedoctor accept --json` prints."""
ASKED = "asked"
"""The key of a saved report for the name the node was asked by, where it calls itself otherwise."""
_GOOD_STATUSES = {"pass": Status.PASS, "skip": Status.SKIP}
_ADDRESS = re.compile(r"[0-9.]+|[0-9A-Fa-f]*:[0-9A-Fa-f:.%\w]*")


def node(host: str, observation: Observation) -> Node:
    """What became of asking a node by this name; `observation` is of its `nodedoctor --json`, or `accept`.

    Without a name the node has the one a saved report says it was asked by, or none.
    """
    try:
        report = skim(observation.text, FACTS)
    except NoReport as error:
        if acceptance := find_document(observation.text, ACCEPTANCE):
            return _accepted_node(host, acceptance, observation)
        state, note = no_report_reason(observation, str(error))
        return Node(host, state, note=note, seconds=observation.seconds, raw=observation.text)
    host = host or plain(text(report.document, ASKED))
    answered = _answered_node(host, report, observation)
    if not answered.statuses:
        note = "a report that holds no results: nothing was judged there"
        return Node(host, "unreadable", note=note, seconds=observation.seconds, raw=observation.text)
    return answered


def _accepted_node(host: str, acceptance: Json, observation: Observation) -> Node:
    hostname = text(part(acceptance, "node"), "hostname")[:255]
    return Node(
        host,
        note="; ".join(filter(None, (_other_name(host, hostname), _end_note(observation)))),
        seconds=observation.seconds,
        started=text(acceptance, "started")[:40],
        tool=text(acceptance, "tool")[:40],
        hostname=hostname,
        raw=observation.text,
        replayed=acceptance.get("source") == "replay",
        acceptance=acceptance,
    )


def _answered_node(host: str, report: Skimmed, observation: Observation) -> Node:
    document = report.document
    about, facts = part(document, "node"), part(document, "facts")
    results = [(entry, _read_findings(entry)) for entry in parts(document, "results")]
    of_checks = [(entry, findings) for entry, findings in results if text(entry, "check")]
    problems = sorted((p for entry in of_checks for p in _read_problems(*entry)), key=lambda p: -p.severity)
    verdict = Status.SKIP
    statuses = {text(entry, "check"): status_of(entry.get("status")) for entry, _ in of_checks}
    statuses.update((check, _GOOD_STATUSES[status]) for check, status in report.well.items())
    if any(not problem.preview for problem in problems):
        verdict = max(problem.counted for problem in problems).status
    elif any(status is not Status.SKIP for status in statuses.values()):
        verdict = Status.PASS
    hostname, causes = text(about, "hostname"), causes_of(document)
    notes = (
        _banner_note(report),
        _other_name(host, hostname),
        _find_contradiction(document.get("verdict"), verdict),
        f"{len(problems)} problems, of which the worst {MOST} are kept" if len(problems) > MOST else "",
        _end_note(observation),
    )
    return Node(
        host=host,
        note="; ".join(filter(None, notes)),
        seconds=number(document.get("seconds")) or 0.0,
        started=text(document, "started")[:40],
        tool=text(document, "tool")[:40],
        gpus=whole_number(about, "gpus"),
        verdict=verdict,
        counts={status.value: count for status, count in Counter(statuses.values()).items()},
        statuses=statuses,
        problems=tuple(problems[:MOST]),
        cause=truncate_text(cause_line(causes[0]) + and_more(len(causes) - 1)) if causes else "",
        causes=tuple(_read_cause(cause) for cause in causes[:MOST_CAUSES]),
        traits=traits(facts),
        readings=readings(facts),
        hostname=hostname[:255],
        boot_id=text(about, "boot_id")[:64],
        uptime=number(part(facts, "machine").get("uptime_seconds")) or 0.0,
        serials=tuple(sorted({text(gpu, "serial")[:64] for gpu in gpus(facts)} - {""})),
        peers=dict(_peer_answers(facts)),
        raw=observation.text,
        gate=_gate_code(document, about, results),
        replayed=document.get("source") == "replay",
    )


def _read_findings(entry: Json) -> list[Finding]:
    return [finding(text(entry, "check"), item) for item in parts(entry, "findings")]


def _gate_code(document: Json, about: Json, results: Iterable[tuple[Json, list[Finding]]]) -> int:
    """The exit code of a gate for this report: the stricter of what it says and what its causes say."""
    gate_results = [{"check": text(entry, "check"), "findings": findings} for entry, findings in results]
    node = {"container": text(about, "container") or None}
    gate_input: Any = {"causes": causes_of(document), "results": gate_results, "probes": [], "node": node}
    codes = {whole_number(part(document, "gate"), "exit"), gate_of(gate_input)["exit"]}
    return next(code for code in STRICTEST if code in codes)


def _read_cause(cause: Cause) -> NodeCause:
    command = first_command(cause)
    return NodeCause(
        check=truncate_text(cause["id"].partition("@")[0]),
        status=Status(cause["status"]),
        said=truncate_text(cause_line(cause)),
        command=command if len(command) <= LONGEST else "",  # half a command is none
        explains=tuple(truncate_text(id) for id in (cause["id"], *cause["explains"])[:MOST]),
        headline=truncate_text(cause["headline"]),
        owner=truncate_text(cause["owner"], 40),
        action=truncate_text(cause["action"], 40),
        subjects=tuple(truncate_text(subject) for subject in cause["subjects"][:MOST]),
        preview=cause.get("preview", False),
    )


def _read_problems(entry: Json, findings: Iterable[Finding]) -> Iterator[Problem]:
    check, title, is_sick = truncate_text(text(entry, "check")), truncate_text(text(entry, "title")), False
    for check_finding in findings:
        if not severity(check_finding).is_problem:
            continue
        is_sick, fix = True, check_finding["fix"]
        yield Problem(
            check=check,
            subject=truncate_text(check_finding["subject"] or ""),
            status=Status(check_finding["status"]),
            summary=truncate_text(full_summary(check_finding)),
            action=cast("Action", fix["action"] if fix else "investigate"),
            reason=check_finding["reason"] or "",
            title=title,
            fix=truncate_text(fix["text"], LONGEST_FIX) if fix else "",
            preview=check_finding.get("preview", False),
        )
    status = status_of(entry.get("status"))
    if not is_sick and status not in _GOOD_STATUSES.values():
        summary = f"its status is {truncate_text(str(entry.get('status')), 40)}, and no finding says why"
        check_finding = finding(check, {"status": status.value, "summary": summary})
        yield Problem(check, "", status, summary, reason=check_finding["reason"] or "", title=title)


def _peer_answers(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What came of trying the way to each other node: "" where it answered, else how it did not."""
    for peer in parts(part(facts, "peers"), "peers"):
        host, tcp, ping = text(peer, "host"), text(peer, "tcp"), part(peer, "ping")
        if not host or peer.get("finished") is not True:
            continue
        answers = bool(whole_number(ping, "received")) or tcp in ("open", "ECONNREFUSED")
        yield (
            host[:255],
            "" if answers else truncate_text(text(peer, "name_error")) or tcp or "no answer to ping",
        )


def truncate_text(text: str, longest: int = LONGEST) -> str:
    """A text that is not longer than this, and says so where it was."""
    return text if len(text) <= longest else f"{text[: longest - 4].rstrip()} ..."


def _find_contradiction(verdict: Any, status: Status) -> str:
    """The verdict of a report against what its findings say, which counts."""
    shown = truncate_text(str(verdict), 40)
    return "" if verdict == status.value else f"its verdict is {shown}, by its findings it is {status.value}"


def _banner_note(report: Skimmed) -> str:
    notes = []
    if report.before:
        notes.append(
            f"a banner of {count_with_noun(report.before, 'line')} before the report: it breaks "
            "scp and Slurm too"
        )
    if report.after:
        notes.append(f"{count_with_noun(report.after, 'line')} after the report")
    return "; ".join(notes)


def _other_name(host: str, hostname: str) -> str:
    """The machine's own name, where it is not the one it was asked by; addresses have none."""
    name = host.rpartition("@")[2]
    if not name or not hostname or _ADDRESS.fullmatch(name):
        return ""
    same = name.split(".")[0].casefold() == hostname.split(".")[0].casefold()
    return "" if same else f"calls itself {hostname[:255]}"


def _end_note(observation: Observation) -> str:
    """What went wrong once the report was out."""
    return "" if observation.outcome is Outcome.OK else "the report came, but the connection did not end"
