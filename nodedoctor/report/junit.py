"""The report as JUnit XML, which continuous integration shows as tests: a check is a test case.

Jenkins, GitLab and the report actions of GitHub read different halves of a format that has no owner. What
is written here all of them accept: the sentence is an attribute (for Jenkins) and opens the text (for
GitLab), a case has one outcome, no pair of class and name comes twice. A suite is a node, a class is a
subject, as two of the three group by class. The class names the node only where there are several: so a
test keeps its history when a job moves to another node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any
from xml.etree import ElementTree as xml

from nodedoctor.model import Severity
from nodedoctor.report.document import full_summary, marked, severity
from nodedoctor.report.inert import inert, inert_lines
from nodedoctor.report.saved import fix as fix_of
from nodedoctor.report.steps import advice, repair_steps
from nodedoctor.wording import about, and_more

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no way to write, not even as a reference (its production Char)."""

_OUTCOME = {
    Severity.FAIL: "failure",
    Severity.BROKEN: "error",
    Severity.BLIND: "skipped",
    Severity.SKIP: "skipped",
}
_PROPERTIES = ("hostname", "gpus", "gpu", "driver", "cuda", "torch", "container", "kernel", "product")

Data = Mapping[str, Any]


def render(document: Data) -> str:
    """A `nodedoctor.report/1`, or a `nodedoctor.fleet/1` with what sets its nodes apart.

    What failed is a failure, what hung or crashed an error, what does not apply or could not be seen is
    skipped. Warnings, notes and what is waived are in the output of a case that passed.
    """
    fleet = str(document.get("schema", "")).startswith("nodedoctor.fleet/")
    suites = _fleet(document) if fleet else [_node(document)]
    root = xml.Element("testsuites", name="nodedoctor", time=_seconds(document.get("seconds")))
    root.extend(suites)
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, 0)) for suite in suites)))
    xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"


def _node(report: Data) -> xml.Element:
    node = report.get("node") or {}
    properties = {"nodedoctor": report.get("tool"), "source": report.get("source")}
    properties |= {name: node.get(name) for name in _PROPERTIES}
    cases = [_case(f"nodedoctor.{_subject(result)}", result) for result in report.get("results", ())]
    return _suite(str(node.get("hostname") or "unnamed node"), cases, report, properties)


def _fleet(fleet: Data) -> list[xml.Element]:
    """A suite for what sets nodes apart, then one a node: did it answer, and which checks are not well."""
    titles = {check["check"]: check.get("title", "") for check in fleet.get("checks", ())}
    oddities = [_oddity(oddity) for oddity in fleet.get("oddities", ())]
    about = {"nodedoctor": fleet.get("tool"), "source": fleet.get("source"), **fleet.get("counts", {})}
    suites = [_suite("fleet", oddities, fleet, about)]
    for node in fleet.get("nodes", ()):
        problems = sorted(map(_finding, node.get("problems", ())), key=lambda problem: str(problem["check"]))
        cases = [_answered(node)]
        for check, group in groupby(problems, key=lambda problem: str(problem["check"])):
            result = {"check": check, "title": titles.get(check), "findings": list(group)}
            cases.append(_case(f"{node['host']}.{_subject(result)}", result))
        properties = {"nodedoctor": node.get("tool"), "gpus": node.get("gpus"), "report": node.get("report")}
        run = {"started": node.get("started") or fleet.get("started"), "seconds": node.get("seconds")}
        suites.append(_suite(node["host"], cases, run, properties))
    return suites


def _finding(problem: Data) -> Data:
    """A problem of a fleet as reports have it: a fleet keeps of a fix its text and its action."""
    fix = {"text": problem["fix"], "action": problem.get("action")} if problem.get("fix") else None
    return {**problem, "fix": fix}


def _answered(node: Data) -> xml.Element:
    """The case that says whether there is a report of this node at all."""
    case = _element("testcase", classname=f"{node['host']}.nodedoctor", name="answered")
    case.set("time", _seconds(node.get("seconds")))
    if node.get("state") != "answered":
        message = f"{node.get('state')}: {node.get('note') or 'no report'}"
        case.append(_element("error", message, message=message, type=str(node.get("state"))))
    elif node.get("note"):
        case.append(_element("system-out", str(node["note"])))
    return case


def _oddity(oddity: Data) -> xml.Element:
    """The case for one thing in which nodes should not differ."""
    case = _element("testcase", classname="fleet.alike", name=str(oddity["key"]), time="0.000")
    groups = [
        f"  | {group['value']}: {group['nodes']} ({group['count']})" for group in oddity.get("groups", ())
    ]
    lines = [str(oddity["summary"]), *groups]
    lines += [f"{name}: {oddity[name]}" for name in ("fix", "why") if oddity.get(name)]
    if oddity.get("status") == "fail":
        case.append(_element("failure", "\n".join(lines), message=str(oddity["summary"]), type="fail"))
    else:
        case.append(_element("system-out", "\n".join(lines)))
    return case


def _suite(name: str, cases: Sequence[xml.Element], run: Data, properties: Data) -> xml.Element:
    suite = _element("testsuite", name=name, tests=str(len(cases)))
    for total, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(total, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", _seconds(run.get("seconds")))
    # UTC without saying so: the schema of Ant, where the format comes from, has no time zone.
    suite.set("timestamp", _plain(str(run.get("started") or "").removesuffix("Z")))
    suite.set("hostname", _plain(name))
    parent = xml.SubElement(suite, "properties")
    for key, value in properties.items():
        if value is not None:
            parent.append(_element("property", name=key, value=str(value)))
    suite.extend(cases)
    return suite


def _case(classname: str, result: Data) -> xml.Element:
    """A check: its worst findings are the outcome, everything else worth knowing is its output."""
    seconds = _seconds(result.get("seconds"))
    case = _element("testcase", classname=classname, name=result["check"], time=seconds)
    findings = sorted(result["findings"], key=severity, reverse=True)
    worst = severity(findings[0]) if findings else Severity.SKIP
    decisive = [finding for finding in findings if severity(finding) == worst and worst in _OUTCOME]
    others = [finding for finding in findings if finding not in decisive and _worth_knowing(finding)]
    if decisive:
        case.append(_outcome(_OUTCOME[worst], decisive, result))
    if others:
        case.append(_element("system-out", _findings_text(others, result)))
    return case


def _worth_knowing(finding: Data) -> bool:
    return severity(finding).is_problem or bool(finding.get("note") or finding.get("waived"))


def _outcome(tag: str, findings: Sequence[Data], result: Data) -> xml.Element:
    """A failure is of the type of the step that repairs it, an error of its reason; a skip has no type."""
    message = _sentence(findings[0]) + and_more(len(findings) - 1)
    outcome = _element(tag, _findings_text(findings, result), message=message)
    if tag != "skipped":
        first = findings[0]
        kind = first.get("reason") or _remedy(first).get("action") or first.get("action") or "fail"
        outcome.set("type", _plain(str(kind)))
    return outcome


def _findings_text(findings: Sequence[Data], result: Data) -> str:
    """Findings as text, each with its evidence and its fix; then what should hold, and why it matters."""
    lines: list[str] = []
    for finding in findings:
        lines.append(_sentence(finding))
        for evidence in finding.get("evidence") or ():
            shown = inert_lines(str(evidence["text"]).strip("\n"))
            lines += [f"  {line}" for line in marked(evidence, shown)]
        lines += _fix(_remedy(finding))
    if severity(findings[0]).is_problem:
        about = (("expected", result.get("title")), ("why", result.get("why")))
        lines += [f"{label}: {text}" for label, text in about if text]
    return "\n".join(lines)


def _remedy(finding: Data) -> Data:
    """What to do; the document of a fleet has only its words."""
    fix = finding.get("fix") or {}
    return {"text": fix} if isinstance(fix, str) else fix


def _fix(fix: Data) -> list[str]:
    plan = fix_of(fix) if fix else None
    if plan is None:
        return []
    # Each command is below what it is for.
    steps = [line for step in repair_steps(plan) for line in (f"  {step.heading}", f"  $ {step.command}")]
    labelled = [f"{name}: {fix[name]}" for name in ("verify", "docs") if fix.get(name)]
    return [f"fix: {advice(plan)}", *steps, *labelled]


def _sentence(finding: Data) -> str:
    """Subject and summary, opened by what the outcome of the case does not say by itself."""
    bad, waived = severity(finding), finding.get("waived")
    words = {Severity.WARN: "warning: ", Severity.BLIND: f"not seen ({finding.get('reason')}): "}
    word = f"waived ({waived}): " if waived else words.get(bad, "")
    word = f"preview, {word}" if finding.get("preview") and bad.is_problem else word
    return f"{word}{about(finding.get('subject') or '', full_summary(finding))}"


def _subject(result: Data) -> str:
    return str(result["check"]).partition(".")[0]


def _seconds(value: Any) -> str:
    return f"{value or 0:.3f}"


def _element(tag: str, text: str = "", /, **attributes: str) -> xml.Element:
    """An element whose text and attributes can be written as XML and do nothing to a terminal."""
    element = xml.Element(tag, {key: _plain(value) for key, value in attributes.items()})
    if text:
        element.text = "\n".join(map(_plain, text.split("\n")))
    return element


def _plain(text: str) -> str:
    return _ILLEGAL.sub("", inert(text))
