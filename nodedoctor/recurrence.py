"""How often earlier runs on this node found a cause, and what follows: counted from the journal, here alone.

Everything is counted by what an entry shows itself, so that a journal of which lines are missing or damaged
makes no cause look worse. An entry from the future of this run, by a clock that was wrong, does not count.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any

from nodedoctor.json_shapes import Json, moment_of, part, parts, text, whole_number
from nodedoctor.knowledge.ownership import reason_of
from nodedoctor.knowledge.xids import xid
from nodedoctor.report.document import Cause, Finding, Recurrence, Report, Result

DAYS = 7
"""The time in which a cause that comes back is the same fault; ours."""
BOOTS = 3
"""Boots with the same cause of the same GPU from which it is replaced; ours. By NVIDIA's Xid catalogue a GPU
that is lost again after a reboot is inspected and replaced (docs.nvidia.com/deploy/xid-errors); we wait for
one more."""
UNCURED = "Request a replacement: it came back after every reboot. Until then:"
_ERROR = re.compile(r"\bXid \d{1,6}\b")


def with_recurrences(report: Report, entries: Sequence[Json], *, with_serials: bool = True) -> Report:
    """The report, whose causes say how often earlier runs found them, and which GPU no reboot has cured.

    `with_serials` is False for a report whose serial numbers are redacted.
    """
    now = moment_of(report["started"])
    journal_entries = [
        entry for entry in entries if now and (when := moment_of(text(entry, "time"))) and when <= now
    ]
    this: dict[str, Any] = {
        "time": report["started"],
        "boot": report["node"].get("boot_id"),
        "causes": report["causes"],
        "serials": serials_of(report["facts"]) if with_serials else {},
    }
    causes = [_add_recurrence(cause, this, journal_entries) for cause in report["causes"]]
    before = {cause["id"]: cause["action"] for cause in report["causes"]}
    uncured = {cause["id"] for cause in causes if cause["action"] != before[cause["id"]]}
    results = [_with_fixes(result, uncured) for result in report["results"]] if uncured else report["results"]
    return {**report, "causes": causes, "results": results}


def serials_of(facts: Json) -> dict[str, str]:
    """The serial number of each GPU, under both names by which a cause may call it."""
    serials: dict[str, str] = {}
    for gpu in parts(part(facts, "gpus"), "gpus"):
        if serial := text(gpu, "serial") or text(gpu, "uuid"):
            serials[f"gpu:{whole_number(gpu, 'index')}"] = serials[f"pci:{text(gpu, 'bus_id')}"] = serial
    return serials


def _add_recurrence(cause: Cause, this: Json, journal_entries: Sequence[Json]) -> Cause:
    with_it = [entry for entry in journal_entries if _has_cause(entry, cause)]
    if not with_it:
        return cause
    boots = set(_same_boots(cause, this, [*journal_entries, this]))
    recurs: Recurrence = {"times": len(with_it), "first": text(with_it[0], "time")}
    if len(boots) > 1:
        recurs = {**recurs, "boots": len(boots), "days": DAYS}
    cause = {**cause, "recurs": recurs}
    return _replacement_cause(cause) if len(boots) >= BOOTS and _is_of_one_gpu(cause) else cause


def _same_boots(cause: Cause, this: Json, entries: Sequence[Json]) -> Iterator[str]:
    """The boots of the last days with the same cause, of the same part where it is about a GPU."""
    subject, now = cause["id"].partition("@")[2], moment_of(text(this, "time"))
    of_gpu = subject.startswith(("gpu:", "pci:"))
    serials: dict[str, set[str]] = {}
    for entry in entries:
        if serial := text(part(entry, "serials"), subject):
            serials.setdefault(text(entry, "boot"), set()).add(serial)
    own = serials.get(text(this, "boot"), set())
    for entry in entries:
        boot, when = text(entry, "boot"), moment_of(text(entry, "time"))
        recent = now and when and when > now - timedelta(days=DAYS)
        same_part = not of_gpu or own & serials.get(boot, set())
        if boot and recent and same_part and _has_cause(entry, cause):
            yield boot


def _has_cause(entry: Json, cause: Cause) -> bool:
    """Whether a run found the cause: the same finding, and of errors with a number the same number."""
    errors = set(_ERROR.findall(cause["headline"]))
    return any(
        text(listed_cause, "id") == cause["id"]
        and text(listed_cause, "status") in ("fail", "warn")
        and set(_ERROR.findall(text(listed_cause, "headline"))) == errors
        for listed_cause in parts(entry, "causes")
    )


def _is_of_one_gpu(cause: Cause) -> bool:
    """Whether it is an error of one GPU whose likeliest culprit is, by the table of Xids, the hardware."""
    rows = [xid(int(error.split()[1])) for error in _ERROR.findall(cause["headline"])]
    of_hardware = bool(rows) and all(row is not None and row.of_hardware for row in rows)
    counts = cause["status"] in ("fail", "warn") and not cause.get("preview")
    return cause["id"].startswith("kernel.xid@") and len(cause["subjects"]) == 1 and of_hardware and counts


def _replacement_cause(cause: Cause) -> Cause:
    """The cause as one that the provider has to act on, and that keeps new jobs away."""
    reason = reason_of(cause["headline"], "replace-node", "provider", cause["subjects"])
    schedulable = "drain-when-idle" if cause["schedulable"] == "yes" else "no"
    return {
        **cause, "owner": "provider", "action": "replace-node", "schedulable": schedulable, "reason": reason
    }  # fmt: skip


def _with_fixes(result: Result, uncured: Collection[str]) -> Result:
    """The result, with what to do first about a finding that no reboot has cured."""
    findings: list[Finding] = [
        {**finding, "fix": {**fix, "text": f"{UNCURED} {fix['text']}", "action": "replace"}}
        if finding["id"] in uncured and (fix := finding["fix"])
        else finding
        for finding in result["findings"]
    ]
    return {**result, "findings": findings}
