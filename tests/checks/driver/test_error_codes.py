"""Every code of NVML at every call of the fake library, behind the real pynvml: nothing is passed over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pynvml
import pytest
from fakes import HERE, build_nvml, nvml_env, write_config
from recorded import driver_files, machine, nvml, pci, replay, services

from nodedoctor.knowledge.error_codes import NVML, QUIET, nvml_error
from nodedoctor.knowledge.ownership import move_of
from nodedoctor.model import Finding, Report, Status

GPUS = 8
HANDLE = "handle"
PARTS = 8
NAMES = {
    number: name.removeprefix("NVML_ERROR_")
    for name, number in vars(pynvml).items()
    if name.startswith("NVML_ERROR_")
}
LOUD = [
    *sorted(number for number, name in NAMES.items() if name not in QUIET),
    31,
    87,
]  # two of later drivers
_WORD = re.compile(r'(?:enter\([^()]*|gpu, |gpu->index, (?:link|NOBODY), |MIB, )"([a-z_0-9]+)"')
TOPICS = sorted(set(_WORD.findall((HERE / "nvml.c").read_text())))
"""The words in quotes that the fake library gives its calls, some of them keys that no call has."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, object]], Report]:
    """A node of eight H100, told otherwise where a test wants it: the real child, every check."""
    folder = tmp_path_factory.mktemp("codes")
    library = build_nvml(folder)
    around = {
        "pci": pci(8, "2330", ("22a3",) * 4),
        "driver-files": driver_files(),
        "machine": machine(),
        "services": services("nvidia-persistenced", "nvidia-fabricmanager"),
    }

    def asked(told: dict[str, object]) -> Report:
        env = nvml_env(library, write_config(folder / "nvml.conf", told))
        return replay(folder / "node", {**around, "nvml": nvml(env)})

    return asked


@pytest.fixture(scope="module")
def healthy(node: Callable[[dict[str, object]], Report]) -> Report:
    """The same node without a fault."""
    return node({})


@pytest.fixture(scope="module")
def topics(node: Callable[[dict[str, object]], Report]) -> tuple[str, ...]:
    """Those words at which a call about one GPU fails when it is told to."""
    met = []
    for start in range(0, len(TOPICS), GPUS - 1):
        asked = dict(enumerate(TOPICS[start : start + GPUS - 1], 1))
        found = list(troubles(node({f"gpu{index}.error.{topic}": 10 for index, topic in asked.items()})))
        met += [t for index, t in asked.items() if any(names(one, "TIMEOUT", index) for one in found)]
    expected = {"temperature", "power", "ecc", "remap", "fields", "field_values", "p2p", "nvlink", "pci"}
    assert expected <= set(met) and len(met) > 30
    return (HANDLE, *met)


def told(report: Report) -> dict[str, tuple[tuple[str, str, str], ...]]:
    """What each check says, however long it took."""
    return {
        result.check: tuple(
            (f.status.value, f.subject, re.sub(r"in [0-9.]+ s", "", f.summary)) for f in result.findings
        )
        for result in report.results
    }


def troubles(report: Report) -> Iterator[Finding]:
    for result in report.results:
        yield from (f for f in result.findings if f.status not in (Status.PASS, Status.SKIP))


def names(finding: Finding, code: str, index: int) -> bool:
    said = " ".join((finding.summary, *(evidence.text for evidence in finding.evidence)))
    return code in said and (finding.subject == f"gpu:{index}" or f"GPU {index}" in said)


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(len(LOUD)))
def test_every_code_at_every_call_is_named_with_its_gpu(
    node: Callable[[dict[str, object]], Report], topics: tuple[str, ...], turn: int
):
    """In each turn a call meets another code, on each of seven GPUs another call."""
    for start in range(turn % 4, len(topics), GPUS * 4 - 4):
        faults = [
            (index, topics[(start + 4 * index) % len(topics)], LOUD[(turn + index) % len(LOUD)])
            for index in range(1, GPUS)
        ]
        report = node({f"gpu{index}.error.{topic}": code for index, topic, code in faults})
        found = list(troubles(report))
        for index, topic, code in faults:
            name = NAMES.get(code, f"ERROR_{code}")
            assert any(names(finding, name, index) for finding in found), (index, topic, name)


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["driver", "count", "excluded", "confidential_compute"])
def test_every_code_of_a_call_about_all_gpus_is_named(
    node: Callable[[dict[str, object]], Report], topic: str
):
    for code in LOUD[TOPICS.index(topic) % 3 :: 3]:
        name = NAMES.get(code, f"ERROR_{code}")
        report = node({f"error.{topic}": code})
        assert any(name in finding.summary for finding in troubles(report)), name


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_check_that_needed_the_value_passes(
    node: Callable[[dict[str, object]], Report], healthy: Report, topics: tuple[str, ...], part: int
):
    """A check needs what it speaks differently without; then it cannot pass when one GPU refuses it."""
    plain = told(healthy)
    for topic in topics[part::PARTS]:
        absent = told(node({f"error.{topic}": 3}))
        needing = {check for check, said in absent.items() if said != plain[check]}
        refused = node({f"gpu3.error.{topic}": 10})
        passed = {result.check for result in refused.results if result.status is Status.PASS}
        assert not passed & needing, (topic, sorted(passed & needing))


@pytest.mark.slow
@pytest.mark.parametrize("code", sorted(code for code, name in NAMES.items() if name in QUIET))
def test_what_no_gpu_has_is_no_trouble(node: Callable[[dict[str, object]], Report], code: int):
    for topic in ("sram", "repair", "margin", "banks", "threshold"):
        report = node({f"error.{topic}": code})
        assert not [finding for finding in troubles(report) if NAMES[code] in finding.summary]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_what_one_gpu_of_eight_does_not_tell_is_no_pass(
    node: Callable[[dict[str, object]], Report], healthy: Report, topics: tuple[str, ...], part: int
):
    plain = told(healthy)
    for topic in topics[1 + part :: PARTS]:
        report = node({f"gpu3.error.{topic}": 3})
        for result in report.results:
            if result.status is Status.PASS and not any(f.note for f in result.findings):
                assert told(report)[result.check] == plain[result.check], topic


def test_the_table_has_every_code_and_says_all_of_each():
    assert {row.number: row.name for row in NVML if row.number is not None} == NAMES
    assert len({row.name for row in NVML}) == len(NVML)
    for row in (*NVML, nvml_error("ERROR_1234")):
        assert row.meaning and row.training.endswith(".") and row.source.startswith("https://")
        owner, action = move_of("driver.answers", Finding.fail("x", fix=row.fix))
        assert owner and (action != "none")


def test_one_cause_for_a_code_on_all_gpus(node: Callable[[dict[str, object]], Report]):
    report = node({"error.temperature": 10})
    (cause,) = [cause for cause in report.causes if cause.id.startswith("driver.answers")]
    assert len(cause.subjects) == GPUS and "TIMEOUT" in cause.headline
    assert len(report.causes) == 1


def test_no_permission_is_blind_and_a_sick_inforom_is_one_cause(node: Callable[[dict[str, object]], Report]):
    report = node({"gpu3.error.power": 4})
    said = [finding for finding in troubles(report) if "NO_PERMISSION" in finding.summary]
    assert said and all(finding.blind for finding in said)
    report = node({"gpu3.inforom_ecc": "!14"})
    assert [cause.id for cause in report.causes] == ["gpu.inforom@gpu:3"]
