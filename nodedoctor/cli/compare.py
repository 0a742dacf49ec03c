"""Two reports of a node, or of two nodes: which results got worse or better, and which facts differ.

Made for "it worked before the upgrade": values that change by themselves (temperatures, counters) are left
out, what somebody decided (versions, counts, settings) is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from nodedoctor.engine import input_files
from nodedoctor.model import Finding, Result
from nodedoctor.record import record
from nodedoctor.report.reading import damage, report

if TYPE_CHECKING:
    from nodedoctor.cli.console import Parser

Direction = Literal["worse", "better", "other"]

_KEYS = ("name", "uuid", "bus_id", "index", "device", "interface", "link", "pid", "path", "id")
"""What tells the elements of a list apart, the first that all of them have."""

_RESTLESS = frozenset(
    """
    age aggregate argv available begins ber bytes c clock clocks counter counters dirty ends energy errors
    evidence fan files free gained inodes line lines load mhz open packets percent pid pids power pressure
    processes pstate replays rx seconds seen started swap temperature text throttle tx uptime used
    utilization volatile w when
    """.split()  # noqa: SIM905
)
"""Words in the keys of facts whose values differ between any two moments of a healthy node."""


class CompareError(Exception):
    """Why something cannot be compared, in one line."""


@record
class Change:
    """One check that ended differently. A status is None where the check was not run."""

    check: str
    before: Result | None
    after: Result | None
    way: Direction

    @property
    def words(self) -> str:
        """`PASS -> FAIL`."""
        return f"{_word(self.before)} -> {_word(self.after)}"


@record
class FactChange:
    """One value of one fact that differs; None on the side where there is none."""

    name: str
    before: str | None
    after: str | None

    @property
    def words(self) -> str:
        """`550.54.15 -> 570.86.10`."""
        return f"{self.before or '(none)'} -> {self.after or '(none)'}"


@record
class Comparison:
    """What differs between two reports, the worst first."""

    changes: tuple[Change, ...]
    facts: tuple[FactChange, ...]

    @property
    def worse(self) -> bool:
        """True when at least one result got worse."""
        return any(change.way == "worse" for change in self.changes)


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> Comparison:
    """Compare two `nodedoctor.report/1` documents."""
    old, new = results(before), results(after)
    pairs = ((check, old.get(check), new.get(check)) for check in sorted({*old, *new}))
    changes = [Change(check, b, a, _way(b, a)) for check, b, a in pairs if _differs(b, a)]
    order = {"worse": 0, "other": 1, "better": 2}
    changes.sort(key=lambda change: (order[change.way], -(change.after.severity if change.after else 0)))
    facts = sorted(_between(before.get("facts"), after.get("facts")), key=lambda change: change.name)
    return Comparison(tuple(changes), tuple(facts))


def results(document: Mapping[str, Any]) -> dict[str, Result]:
    """The results of a report document by check."""
    return {result.check: result for result in report(document).results}


def read_report(data: bytes, name: str) -> dict[str, Any]:
    """A report document from its bytes; CompareError when they hold something else."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise CompareError(f"{name}: neither a recorded node nor a JSON report") from None
    if not isinstance(document, dict) or not str(document.get("schema", "")).startswith(
        "nodedoctor.report/1"
    ):
        raise CompareError(f"{name}: not a report; it does not say nodedoctor.report/1")
    if wrong := damage(document):
        raise CompareError(f"{name}: a damaged report: {wrong}")
    return document


def document_of(path: Path) -> dict[str, Any]:
    """The report in a file, or the diagnosis of a recorded node; CompareError when it is neither."""
    if not path.is_dir() and path.suffix != ".zip":
        try:
            return read_report(input_files.read(path, pipes=True), str(path))
        except OSError as error:
            raise CompareError(f"{path}: {error.strerror}") from None
    import asyncio

    from nodedoctor.engine.session import Request, Session, UsageError
    from nodedoctor.report import json as report_json

    async def diagnosed() -> dict[str, Any]:
        report = await Session(Request(replay=path)).diagnosis().run()
        return cast("dict[str, Any]", json.loads(report_json.render(report)))

    try:
        return asyncio.run(diagnosed())
    except UsageError as error:
        raise CompareError(str(error)) from None


def heading(document: Mapping[str, Any]) -> str:
    """Which node, and when."""
    node = document.get("node")
    host = node.get("hostname") if isinstance(node, dict) else None
    return f"{host or 'unnamed node'} {str(document.get('started', ''))[:16].replace('T', ' ')}".strip()


def render(comparison: Comparison, before: str, after: str) -> str:
    """The comparison as text: worse first, then facts."""
    from nodedoctor.report.inert import inert

    lines = [f"{before}  ->  {after}"]
    for change in comparison.changes:
        lines.append(f"{change.way:<6} {change.words}  {change.check}  {told(change)}")
    lines += [f"fact   {fact.name}  {fact.words}" for fact in comparison.facts]
    if len(lines) == 1:
        lines.append("nothing differs")
    return "\n".join(inert(line) for line in lines) + "\n"


def told(change: Change) -> str:
    """What the later result says about it (the earlier one, where there is no later).

    Where both are called the same, it is what one of them has and the other has not.
    """
    before, after = change.before or _nothing(), change.after or _nothing()
    if change.before and change.after and before.status is after.status:
        for way, one, other in (("also", after, before), ("no longer", before, after)):
            if news := [f for f in one.findings if f.severity > _problems(other).get(f.subject, 1)]:
                return f"{way} {_said(max(news, key=lambda finding: finding.severity))}"
    return _said((change.after or before).worst)


def _said(finding: Finding) -> str:
    return f"{finding.subject}: {finding.summary}" if finding.subject else finding.summary


def main(words: Sequence[str]) -> int:
    """`nodedoctor compare BEFORE AFTER`: 0 nothing got worse, 2 something did."""
    from nodedoctor.cli import outputs
    from nodedoctor.cli.console import Exit, complain, emit

    arguments = parser().parse_args(list(words))
    if problem := outputs.no_folder(arguments):
        return complain(problem)
    try:
        before, after = document_of(arguments.before), document_of(arguments.after)
    except CompareError as error:
        return complain(str(error))
    comparison = compare(before, after)
    names = heading(before), heading(after)
    if not emit(render(comparison, *names)):
        return Exit.OUTPUT
    if arguments.html:
        from nodedoctor.report import html

        page = html.render_comparison(comparison, *names)
        if failed := outputs.write_files({arguments.html: page.encode()}):
            return failed
    return Exit.FAIL if comparison.worse else Exit.OK


def parser() -> Parser:
    """The parser of `nodedoctor compare`."""
    from nodedoctor.cli import outputs
    from nodedoctor.cli.console import Parser

    made = Parser(
        prog="nodedoctor compare", description="What changed between two reports or recorded nodes."
    )
    made.add_argument("before", type=Path, metavar="BEFORE", help="a JSON report (also .gz), a recorded node")
    made.add_argument("after", type=Path, metavar="AFTER", help="the same, from later or from another node")
    outputs.add(made, "html")
    return made


def _differs(before: Result | None, after: Result | None) -> bool:
    if before is None or after is None:
        return before is not after
    return before.status is not after.status or _problems(before) != _problems(after)


def _way(before: Result | None, after: Result | None) -> Direction:
    """Worse when something is known to be sick that was not; not seeing it any more proves nothing."""
    if before is None or after is None or after.worst.blind:
        return "other"
    new = {subject for subject, rank in _problems(after).items() if rank > _problems(before).get(subject, 1)}
    if new:
        return "worse"
    return "better" if _problems(before) and not before.worst.blind else "other"


def _problems(result: Result) -> dict[str, int]:
    """How bad each subject is, for those that are not well."""
    ranks: dict[str, int] = {}
    for finding in result.findings:
        if finding.severity > 1:
            ranks[finding.subject] = max(ranks.get(finding.subject, 0), finding.severity)
    return ranks


def _word(result: Result | None) -> str:
    return result.status.word if result else "none"


def _nothing() -> Result:
    return Result("", "", (Finding.skip("not looked at"),))


def _between(before: Any, after: Any, name: str = "") -> Iterator[FactChange]:
    """Every settled value that differs with its path (`driver.version`, `gpus[3].vbios`).

    What is on one side only is one change, however much there is in it.
    """
    if before in _NOTHING or after in _NOTHING:
        if before not in _NOTHING or after not in _NOTHING:
            yield FactChange(name, _brief(before), _brief(after))
    elif isinstance(before, dict) and isinstance(after, dict):
        for key in {*before, *after}:
            if _RESTLESS.isdisjoint(str(key).split("_")):
                inner = f"{name}.{key}" if name else str(key)
                yield from _between(before.get(key), after.get(key), inner)
    elif isinstance(before, list) and isinstance(after, list) and _has_parts([*before, *after]):
        old, new = _by_name(before, after), _by_name(after, before)
        for key in {*old, *new}:
            yield from _between(old.get(key), new.get(key), f"{name}[{key}]")
    elif before != after:
        yield FactChange(name, _brief(before), _brief(after))


_NOTHING: tuple[Any, ...] = (None, "", [], {})


def _by_name(values: list[Any], others: list[Any]) -> dict[Any, Any]:
    """Elements by what tells them apart on both sides, or by their place."""
    both = [*values, *others]
    for key in _KEYS:
        if all(isinstance(value, dict) and isinstance(value.get(key), str | int) for value in both):
            return {value[key]: value for value in values}
    return dict(enumerate(values))


def _has_parts(values: list[Any]) -> bool:
    return any(isinstance(value, dict | list) for value in values)


def _brief(value: Any) -> str | None:
    """A value in a few words; None for nothing."""
    if value in _NOTHING:
        return None
    if isinstance(value, dict):
        return "(1 value)" if len(value) == 1 else f"({len(value)} values)"
    if isinstance(value, list):
        entries = "(1 entry)" if len(value) == 1 else f"({len(value)} entries)"
        return entries if _has_parts(value) else ", ".join(map(str, value))
    return str(value)
