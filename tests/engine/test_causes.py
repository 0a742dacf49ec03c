"""Causes: every problem belongs to exactly one, one fault is one cause, and two faults stay two."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import recorded
from hypothesis import given
from hypothesis import strategies as st
from in_turn import in_turn

from checks.kernel.xid import checks_of_same_fault
from nodedoctor.declare.registry import Check
from nodedoctor.engine.causes.devices import Devices
from nodedoctor.engine.causes.roots import PROBE, diagnose
from nodedoctor.engine.plugins import discover
from nodedoctor.knowledge.ownership import REASON, owner_column, owner_word, reason_of
from nodedoctor.model import Cause, Finding, Fix, Observation, Outcome, Report, Result, Status, identifier
from nodedoctor.report import json as json_report
from nodedoctor.steps import drastic, resets
from nodedoctor.wording import SUMMARY, shortened, subject_label

HERE = Path(__file__).parent.parent
DEMOS = HERE.parent / "nodedoctor" / "demo"
NODES = [path.parent for folder in (DEMOS, HERE / "nodes") for path in sorted(folder.glob("*/manifest.json"))]
NAMES = [path.name for path in NODES]
CHECKS = discover(()).checks
EIGHT = Devices((f"gpu:{index}", f"pci:0000:{index:02x}:00.0") for index in range(8))
FIX = Fix("Repair it.", action="reset-gpu")


def judged(folder: Path) -> tuple[Report, Devices]:
    found = recorded.judgement(folder, preview=True)
    return found.report, found.devices


def sick(report: Report) -> dict[str, Finding]:
    """The findings that have a cause."""
    return {
        identifier(result.check, finding.subject): finding
        for result in report.results
        for finding in result.findings
        if finding.waived is None and (finding.status in (Status.FAIL, Status.WARN) or finding.broken)
    }


def failing_roots(report: Report) -> list[str]:
    return [id for id, f in sick(report).items() if f.status is Status.FAIL and f.because_of is None]


def one_cause(report: Report) -> Cause:
    """The only FAIL cause; nothing else that fails is without a cause."""
    (cause,) = (cause for cause in report.causes if cause.status is Status.FAIL)
    assert failing_roots(report) == [cause.id]
    return cause


def result(check: str, *findings: Finding) -> Result:
    return Result(check, "title", findings)


def check(id: str, *explained_by: str, speaks_for: tuple[str, ...] = ()) -> Check:
    links = {"explained_by": explained_by, "speaks_for": speaks_for}
    return Check(id, "title", frozenset(), lambda: [], "", "", "", "here", **links)


def causes_of(results: Sequence[Result], devices: Devices = EIGHT) -> tuple[Cause, ...]:
    return diagnose(results, CHECKS.values(), (), devices)[1]


# Over every recorded node.


@pytest.mark.slow
@in_turn("node", NODES, ids=NAMES)
def test_every_problem_belongs_to_exactly_one_cause(node: Path) -> None:
    report, _ = judged(node)
    ids = [cause.id for cause in report.causes]
    assert len(ids) == len(set(ids))
    problems = sick(report)
    belonging = [(f.because_of or id) for id, f in problems.items()]
    assert set(belonging) == set(ids)
    for cause in report.causes:
        members = [id for id, root in zip(problems, belonging, strict=True) if root == cause.id]
        assert sorted(cause.explains) == sorted(id for id in members if id != cause.id)
        root = problems.get(cause.id)
        assert root.because_of is None if root else cause.id.startswith(PROBE)
    for report_result in report.results:
        for finding in report_result.findings:
            healthy = identifier(report_result.check, finding.subject) not in problems
            assert not (healthy and finding.because_of)


@in_turn("node", NODES, ids=NAMES)
def test_a_cause_is_as_bad_as_what_it_explains(node: Path) -> None:
    report, _ = judged(node)
    problems = sick(report)
    for finding in problems.values():
        if finding.because_of in problems:
            assert problems[finding.because_of].severity >= finding.severity
    ranks = [
        Finding(c.status, "", reason="crash" if c.status is Status.UNKNOWN else None) for c in report.causes
    ]
    assert [one.severity for one in ranks] == sorted((one.severity for one in ranks), reverse=True)


@pytest.mark.slow
@in_turn("node", NODES, ids=NAMES)
def test_causes_change_neither_verdict_nor_counts(node: Path) -> None:
    report, _ = judged(node)
    free = tuple(
        replace(r, findings=tuple(replace(f, because_of=None) for f in r.findings)) for r in report.results
    )
    before = replace(report, results=free)
    told, known = json_report.document(report), json_report.document(before)
    assert (known["verdict"], known["counts"]) == (told["verdict"], told["counts"])


EXPECTED = [node for node in NODES if (node / "expected.json").exists()]


@in_turn("node", EXPECTED, ids=[node.name for node in EXPECTED])
def test_the_causes_of_a_recorded_node_are_the_expected_ones(node: Path) -> None:
    file = node / "expected.json"
    report, _ = judged(node)
    expected = json.loads(file.read_text()).get("causes", [])
    assert [[c.id, c.headline, c.owner, c.action, c.schedulable] for c in report.causes] == expected


# One fault is one cause.


@pytest.mark.parametrize(
    ("name", "root", "owner"),
    [
        ("nvlinks-down", "nvlink.links@gpu:3", "provider"),
        ("raylet-1024-files", "limits.nofile@raylet", "you"),
        ("driver-mismatch", "driver.module-userspace", "administrator"),
    ],
)
def test_a_sick_demo_has_one_failing_cause(name: str, root: str, owner: str) -> None:
    cause = one_cause(judged(DEMOS / name)[0])
    assert (cause.id, cause.owner) == (root, owner)


def test_a_healthy_demo_has_none() -> None:
    assert judged(DEMOS / "healthy")[0].causes == ()


@pytest.mark.parametrize(
    ("name", "root"),
    [
        ("h100-off-the-bus", "driver.answers@gpu:5"),
        ("h100-no-driver", "driver.modules"),
        ("h100-driver-hangs", "driver.answers"),
        ("h100-upgraded-unasked", "driver.module-userspace"),
        ("container-lost-devices", "container.devices@container:gpus"),
        ("skyrl-container-1024-files", "limits.nofile@raylet"),
    ],
)
def test_one_recorded_fault_is_one_failing_cause(name: str, root: str) -> None:
    assert one_cause(judged(HERE / "nodes" / name)[0]).id == root


def test_what_a_mismatch_left_unjudged_is_counted() -> None:
    report, _ = judged(DEMOS / "driver-mismatch")
    (cause,) = report.causes
    unknown = sum(r.status is Status.UNKNOWN for r in report.results)
    assert unknown - 1 <= cause.unjudged <= unknown  # one of them only may use what could not be seen


def test_a_missing_library_is_one_cause(tmp_path: Path) -> None:
    nodes = {f"/dev/nvidia{index}": "rw" for index in range(8)}
    error = {"error": "LIBRARY_NOT_FOUND", "code": 12, "text": "NVML Shared Library Not Found"}
    said = {"schema": "nodedoctor.nvml/1", "init": error, "system": {"values": {}, "errors": {}}, "gpus": []}
    probes = {
        "nvml": json.dumps({**said, "peers": [], "programs": {}, "slow": [], "seconds": 0.001}),
        "pci": recorded.pci(8, "2330"),
        "driver-files": recorded.driver_files(nodes),
        "machine": recorded.machine(),
        "container": recorded.container(),
    }
    cause = one_cause(recorded.replay(tmp_path, probes))
    assert cause.id == "driver.answers" and cause.owner == "administrator"


def rails(tmp_path: Path, *changes: tuple[str, str, str]) -> Report:
    """Eight healthy rails with files of some changed: port, file, text."""
    probes = HERE / "nodes" / "ib-eight-rails-healthy" / "probes"
    document = json.loads((probes / "rdma.txt").read_text())
    for adapter, file, text in changes:
        path = f"/sys/class/infiniband/{adapter}/ports/1/{file}"
        assert path in document["files"]
        document["files"][path] = f"{text}\n"
    growth = (probes / "rdma-growth.txt").read_text()
    return recorded.replay(tmp_path, {"rdma": json.dumps(document), "rdma-growth": growth})


def test_a_rail_without_subnet_manager_is_one_cause(tmp_path: Path) -> None:
    cause = one_cause(rails(tmp_path, ("mlx5_4", "state", "2: INIT"), ("mlx5_4", "sm_lid", "0x0")))
    assert cause.id == "ib.ports@port:mlx5_4/1" and cause.explains == ("ib.sm@port:mlx5_4/1",)
    assert cause.action == "restart-service"


def test_a_narrow_link_is_one_cause(tmp_path: Path) -> None:
    cause = one_cause(rails(tmp_path, ("mlx5_6", "rate", "200 Gb/sec (2X NDR)")))
    assert cause.id == "ib.width@port:mlx5_6/1" and cause.explains == ("ib.rate@port:mlx5_6/1",)


# Two faults stay two.


def mixed(one: Report, other: Report) -> tuple[Result, ...]:
    """The findings of two nodes as if they were one."""
    findings: dict[str, tuple[Finding, ...]] = {}
    for report in (one, other):
        for r in report.results:
            findings[r.check] = findings.get(r.check, ()) + r.findings
    return tuple(Result(name, "t", found) for name, found in sorted(findings.items()))


@cache
def sick_nodes() -> list[Path]:
    return [node for node in NODES if judged(node)[0].causes]


def related(one: str, other: str) -> bool:
    """True where one of two checks is declared to explain the other: their faults have one subject."""
    first, second = one.partition("@")[0], other.partition("@")[0]
    pairs = ((first, second), (second, first))
    return any(a in {form.partition("@")[0] for form in CHECKS[b].explained_by} for a, b in pairs)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("one", NODES, ids=NAMES)
def test_two_faults_of_different_subjects_stay_two_causes(one: Path) -> None:
    report, devices = judged(one)
    for other in sick_nodes():
        more, _ = judged(other)
        if other == one or sick(report).keys() & sick(more).keys():
            continue  # the same finding of the same subject is one
        together = {cause.id for cause in diagnose(mixed(report, more), CHECKS.values(), (), devices)[1]}
        for cause, second in itertools.product(report.causes, more.causes):
            if set(cause.subjects) != set(second.subjects) and not related(cause.id, second.id):
                assert {cause.id, second.id} <= together, (one.name, other.name)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("every", [3, 1])
def test_what_one_gpu_has_explains_nothing_on_another(every: int) -> None:
    for one, other in itertools.product([*CHECKS][::every], repeat=2):
        results = [
            result(one, Finding.fail("broken here", subject="gpu:2")),
            result(other, Finding.fail("broken there", subject="gpu:5")),
        ]
        found = {cause.id for cause in causes_of(results)}
        assert found == {f"{one}@gpu:2", f"{other}@gpu:5"}


def test_an_xid_on_another_gpu_than_the_dead_links_is_a_cause_of_its_own(tmp_path: Path) -> None:
    demo = DEMOS / "nvlinks-down"
    probes = {path.stem: path.read_text() for path in (demo / "probes").glob("*.txt")}
    (xid,) = (c for c in sick(judged(demo)[0]) if c.startswith("kernel.xid@"))
    assert xid == "kernel.xid@gpu:3"
    addresses = {v: k for k, v in _addresses(judged(demo)[0]).items()}
    assert addresses["gpu:3"] in probes["kernel-log"]
    probes["kernel-log"] = probes["kernel-log"].replace(addresses["gpu:3"], addresses["gpu:2"])
    report = recorded.replay(tmp_path, probes)
    failing = {cause.id: cause.explains for cause in report.causes if cause.status is Status.FAIL}
    assert failing == {"nvlink.links@gpu:3": ("topo.matrix@gpu:3",), "kernel.xid@gpu:2": ()}


def _addresses(report: Report) -> dict[str, str]:
    gpus = json_report.document(report)["facts"]["gpus"]["gpus"]
    return {gpu["bus_id"].removesuffix(".0"): f"gpu:{gpu['index']}" for gpu in gpus}


@pytest.mark.parametrize("code", [48, 63, 64, 74, 79, 94, 95])
def test_an_xid_and_what_it_names_on_its_device_are_one_cause(code: int) -> None:

    for name in checks_of_same_fault([code]):
        log = Finding.fail(f"Xid {code}", subject="gpu:2").explained_by(*checks_of_same_fault([code]))
        state = result(name, Finding.fail("broken", subject="gpu:2"))
        assert [c.id for c in causes_of([result("kernel.xid", log), state])] == [f"{name}@gpu:2"]
        elsewhere = result(name, Finding.fail("broken", subject="gpu:5"))
        assert len(causes_of([result("kernel.xid", log), elsewhere])) == 2
        mild = result(name, Finding.warn("odd", subject="gpu:2"))
        (cause,) = causes_of([result("kernel.xid", log), mild])
        assert cause.id == "kernel.xid@gpu:2" and cause.explains == (f"{name}@gpu:2",)


# Renumbered devices move the cause.


def renamed(text: str, order: Sequence[int]) -> str:
    kind, _, rest = text.partition("gpu:")
    return f"{kind}gpu:{order[int(rest)]}" if rest.isdigit() and int(rest) < len(order) else text


@given(st.permutations(range(8)), st.deferred(lambda: st.sampled_from(sick_nodes())))
def test_renumbering_devices_moves_the_cause(order: list[int], node: Path) -> None:
    report, _ = judged(node)
    groups = [(f"gpu:{index}", f"pci:0000:{index:02x}:00.0") for index in range(8)]
    moved = [(f"gpu:{order[index]}", f"pci:0000:{index:02x}:00.0") for index in range(8)]
    elsewhere = tuple(
        replace(
            r,
            findings=tuple(
                replace(
                    f,
                    subject=renamed(f.subject, order),
                    explainers=tuple(renamed(e, order) for e in f.explainers),
                )
                for f in r.findings
            ),
        )
        for r in report.results
    )
    before = diagnose(report.results, CHECKS.values(), (), Devices(groups))[1]
    after = {cause.id for cause in diagnose(elsewhere, CHECKS.values(), (), Devices(moved))[1]}
    explained = {identifier(r.check, f.subject) for r in report.results for f in r.findings if f.explainers}
    assert after == {lowest(cause, order, explained) for cause in before}


def lowest(cause: Cause, order: Sequence[int], explained: set[str]) -> str:
    """The cause's id where devices have new numbers: of what all devices share, that of the lowest one.

    What a check itself explained by another device is not shared: that other device stays the cause.
    """
    check = cause.id.partition("@")[0]
    same = [id for id in cause.explains if id.partition("@")[0] == check and "gpu:" in id]
    same = [id for id in same if id not in explained]
    return min(renamed(id, order) for id in (cause.id, *same))


# The same on all like devices is one cause.


def brakes(gpus: Sequence[int], **more: Finding) -> Result:
    found = [Finding.fail(f"power brake at {300 + gpu} W", subject=f"gpu:{gpu}", fix=FIX) for gpu in gpus]
    return result("thermal.throttle", *found, *more.values())


def test_the_same_on_all_gpus_is_one_cause_of_the_lowest() -> None:
    results, (cause,) = diagnose([brakes([3, 1, 0, 2, 7, 6, 5, 4])], CHECKS.values(), (), EIGHT)
    assert cause.id == "thermal.throttle@gpu:0" and len(cause.explains) == 7
    assert cause.subjects == tuple(f"gpu:{index}" for index in range(8))
    assert cause.headline == "all 8 GPUs: power brake at 300 W"
    assert [f.subject for f in results[0].findings] == [f"gpu:{i}" for i in (3, 1, 0, 2, 7, 6, 5, 4)]


def test_the_same_on_some_gpus_is_as_many_causes() -> None:
    assert len(causes_of([brakes([0, 1, 2, 3, 4, 5, 6])])) == 7


def test_a_gpu_that_is_gone_need_not_say_what_the_others_say() -> None:
    lost = result("driver.answers", Finding.fail("the GPU has fallen off the bus", subject="gpu:7"))
    found = {cause.id: len(cause.explains) for cause in causes_of([brakes(range(7)), lost])}
    assert found == {"thermal.throttle@gpu:0": 6, "driver.answers@gpu:7": 0}


def test_two_different_outcomes_are_never_one() -> None:
    odd = Finding.fail("memory too hot", subject="gpu:7", fix=FIX)
    assert len(causes_of([brakes(range(7), odd=odd)])) == 8


def test_a_waived_finding_belongs_to_no_cause() -> None:
    waived = replace(Finding.fail("power brake at 307 W", subject="gpu:0", fix=FIX), waived="known")
    results, causes = diagnose([brakes(range(1, 8), waived=waived)], CHECKS.values(), (), EIGHT)
    assert "thermal.throttle@gpu:0" not in {id for c in causes for id in (c.id, *c.explains)}
    assert [f.because_of for f in results[0].findings if f.waived] == [None]
    links = replace(Finding.fail("2 links down", subject="gpu:3"), waived="board on order")
    row = Finding.fail("joined by NV16", subject="gpu:3")
    (cause,) = causes_of([result("nvlink.links", links), result("topo.matrix", row)])
    assert cause.id == "topo.matrix@gpu:3"


# Answers that are missing.


def test_a_probe_of_which_no_finding_tells_is_a_cause() -> None:
    hung = replace(Finding.unknown("stuck", "no answer"), missing="net")
    results, (cause,) = diagnose([result("net.dns", hung), result("net.mtu", hung)], CHECKS.values())
    assert cause.id == "probe:net" and cause.explains == ("net.dns", "net.mtu") and cause.unjudged == 2
    assert {f.because_of for r in results for f in r.findings} == {"probe:net"}


def test_the_failed_probe_is_found_by_what_became_of_it() -> None:
    seen = Observation("net", Outcome.TIMEOUT)
    broken = result("net.dns", Finding.unknown("timeout", "no answer"))
    (cause,) = diagnose([broken], CHECKS.values(), [seen])[1]
    assert cause.id == "probe:net"


def test_a_finding_about_the_probe_explains_what_it_left_open() -> None:
    hang = result("driver.answers", Finding.fail("the driver hangs"))
    open_ = result("driver.mode", replace(Finding.unknown("stuck", "no GPU was read"), missing="nvml"))
    blind = result("thermal.gpu", replace(Finding.unknown("not-visible-here", "no GPU"), missing="nvml"))
    seen = Observation("nvml", Outcome.STUCK)
    results, (cause,) = diagnose([hang, open_, blind], CHECKS.values(), [seen])
    assert cause.id == "driver.answers" and cause.explains == ("driver.mode",) and cause.unjudged == 2
    assert results[2].findings[0].because_of is None


def test_what_was_never_recorded_is_nobodys_fault() -> None:
    hang = result("driver.answers", Finding.fail("the driver hangs"))
    missing = replace(Finding.unknown("missing-tool", "not recorded"), missing="nvidia-smi-topo")
    (cause,) = diagnose([hang, result("topo.matrix", missing)], CHECKS.values())[1]
    assert cause.unjudged == 0


# What checks declare.


def test_declarations_name_checks_that_exist_and_make_no_circle() -> None:
    above = {id: {name.partition("@")[0] for name in one.explained_by} for id, one in CHECKS.items()}
    assert set().union(*above.values()) <= CHECKS.keys()
    assert not [cycle for id in CHECKS for cycle in _circles(id, above, ())]


def _circles(id: str, above: dict[str, set[str]], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if id in path:
        yield path
        return
    for name in above[id]:
        yield from _circles(name, above, (*path, id))


def test_probes_that_checks_speak_for_exist() -> None:
    known = discover(()).probes
    assert all(probe in known for one in CHECKS.values() for probe in one.speaks_for)


def test_a_circle_of_plugins_still_ends_in_one_cause() -> None:
    checks = [check("a.x", "b.y"), check("b.y", "c.z"), check("c.z", "a.x"), check("d.w", "c.z")]
    results = [result(one.id, Finding.fail("bad")) for one in checks]
    (cause,) = diagnose(results, checks)[1]
    assert cause.id == "a.x" and cause.explains == ("b.y", "c.z", "d.w")


def test_a_worse_symptom_becomes_the_cause_of_the_same_device_only() -> None:
    checks = [check("a.root"), check("b.symptom", "a.root")]
    mild, bad = Finding.warn("slow", subject="gpu:1"), Finding.fail("dead", subject="gpu:1")
    (cause,) = diagnose([result("a.root", mild), result("b.symptom", bad)], checks, (), EIGHT)[1]
    assert cause.id == "b.symptom@gpu:1" and cause.explains == ("a.root@gpu:1",)
    node = result("a.root", Finding.warn("slow"))
    checks = [check("a.root"), check("b.symptom", "a.root@node")]
    assert len(diagnose([node, result("b.symptom", bad)], checks, (), EIGHT)[1]) == 2


def test_a_subject_has_many_names() -> None:
    lost = result("driver.answers", Finding.fail("lost", subject="gpu:5"))
    gone = result("driver.gpus-present", Finding.fail("not there", subject="pci:0000:05:00.0"))
    assert [cause.id for cause in causes_of([lost, gone])] == ["driver.answers@gpu:5"]
    narrow = result("ib.width", Finding.fail("2X", subject="port:mlx5_6/1"))
    counter = result("ib.counters", Finding.fail("rose", subject="port:mlx5_6/1/link_downed"))
    other = result("ib.counters", Finding.fail("rose", subject="port:mlx5_7/1/link_downed"))
    assert len(causes_of([narrow, counter])) == 1 and len(causes_of([narrow, other])) == 2
    pair = result("p2p.status", Finding.fail("no access", subject="pair:3-5"))
    links = result("nvlink.links", Finding.fail("down", subject="gpu:5"))
    assert [cause.id for cause in causes_of([pair, links])] == ["nvlink.links@gpu:5"]


# Words.


@given(st.text(), st.sampled_from(["reboot", "investigate", "none", "replace-node"]), st.text())
def test_a_reason_is_one_plain_line(headline: str, action: str, subject: str) -> None:
    reason = reason_of(headline, action, "provider", [subject])  # type: ignore[arg-type]
    assert len(reason) <= REASON and reason.isascii() and not set(reason) & set('"`\\\n\r\x1b')


@given(st.text(min_size=1))
def test_a_headline_fits(text: str) -> None:
    assert len(shortened(text, SUMMARY)) <= SUMMARY


def test_a_long_headline_ends_at_a_clause() -> None:
    text = "NCCL_SOCKET_IFNAME=eth9: this node has no interface eth9: NCCL stops with 'Bootstrap : none'"
    assert shortened(text, SUMMARY) == "NCCL_SOCKET_IFNAME=eth9: this node has no interface eth9"
    assert shortened("One. Two.", SUMMARY) == "One" and shortened("driver 535.129.03 is old", 90).endswith(
        "old"
    )


def test_subjects_are_spoken_as_people_say_them() -> None:
    said = {
        "gpu:3": "GPU 3",
        "pair:0-3": "GPUs 0 and 3",
        "port:mlx5_6/1/link_downed": "mlx5_6 port 1",
        "": "",
    }
    assert {subject: subject_label(subject) for subject in said} == said


@pytest.mark.parametrize(
    ("owner", "word", "column"),
    [
        ("provider", "provider", "PROV"),
        ("job-code", "job code", "CODE"),
        ("CONFIG", "you", "YOU"),
        ("NODE", "administrator", "ADMIN"),
        ("nobody we know", "unknown", "?"),
    ],
)
def test_an_owner_has_one_word(owner: str, word: str, column: str) -> None:
    assert (owner_word(owner), owner_column(owner)) == (word, column)


def test_a_result_of_a_check_that_is_not_known_is_its_own_cause() -> None:
    unknown = result("their.check", Finding.fail("bad"))
    assert [cause.id for cause in diagnose([unknown], [])[1]] == ["their.check"]


@in_turn("node", NODES, ids=NAMES)
def test_every_cause_says_what_to_type_first(node: Path) -> None:
    report, _ = judged(node)
    known = {cause.id: cause.fix for cause in report.causes if cause.status in (Status.FAIL, Status.WARN)}
    assert [id for id, fix in known.items() if fix is None or not fix.steps] == []


@in_turn("node", NODES, ids=NAMES)
def test_the_fixes_of_a_node_do_not_contradict_each_other(node: Path) -> None:
    """For a failing device there is one action, and what is to be typed first ends nobody's work."""
    report, devices = judged(node)
    moves: dict[str, set[str]] = {}
    for cause in report.causes:
        if cause.status is Status.FAIL:
            for subject in cause.subjects:
                moves.setdefault(devices.name(subject), set()).add(cause.action)
        first = cause.fix.steps[0] if cause.fix and cause.fix.steps else None
        assert first is None or not (drastic(first.command) or resets(first.command)), cause.id
    assert {subject: actions for subject, actions in moves.items() if len(actions) > 1} == {}
