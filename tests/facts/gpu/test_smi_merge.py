"""Several outputs of nvidia-smi in one paste: each value is found, whichever of them has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import smi_texts
from hypothesis import given
from hypothesis import strategies as st
from recorded import alarms, replay

from nodedoctor.facts.gpu.smi.merge import merge_readings
from nodedoctor.facts.gpu.smi.q import read_q
from nodedoctor.facts.gpu.smi.sections import Section
from nodedoctor.facts.gpu.smi.smi import TABLE, Q, SmiQ, SmiTable
from nodedoctor.model import Observation, Outcome

BUSES = [f"00000000:{number:02X}:00.0" for number in (0x18, 0x2A, 0x3A, 0x9D)]
WIDTH = {True: {"Link Width": {"Current": "8x"}}, False: {"Link Width": {"Current": "16x"}}}
READINGS: dict[str, tuple[str, Any, str, Any]] = {
    # the field, its section in -q, its column in a query, and its values there
    "remap": (
        "remap_pending",
        {sick: {"Remapped Rows": {"Pending": "Yes" if sick else "No"}} for sick in (True, False)},
        "remapped_rows.pending",
        {True: "Yes", False: "No"},
    ),
    "heat": (
        "temperature_c",
        {sick: {"Temperature": {"GPU Current Temp": "97 C" if sick else "40 C"}} for sick in (True, False)},
        "temperature.gpu",
        {True: 97, False: 40},
    ),
    "width": (
        "pcie_width",
        {sick: {"PCI": {"GPU Link Info": WIDTH[sick]}} for sick in (True, False)},
        "pcie.link.width.current",
        {True: 8, False: 16},
    ),
}


def read(text: str) -> Any:
    return SmiQ.parse(Observation(Q, Outcome.OK, text=text, rc=0)).gpus  # type: ignore[union-attr]


def long(reading: str, sick: int, only: int | None = None) -> str:
    shown = [at for at in range(4) if only is None or at == only]
    gpus = [smi_texts.q_gpu(BUSES[at], READINGS[reading][1][at == sick]) for at in shown]
    return smi_texts.q(gpus, attached=4)


def queried(reading: str, sick: int, name: str) -> str:
    head = {"index": "index", "bus": "pci.bus_id", "": "pstate"}[name]
    rows = ({"index": at, "bus": BUSES[at], "": "P0"}[name] for at in range(4))
    values = (f"{row}, {READINGS[reading][3][at == sick]}\n" for at, row in enumerate(rows))
    return f"{head}, {READINGS[reading][2]}\n{''.join(values)}"


@given(st.permutations(sorted(READINGS)), st.data())
def test_every_value_of_several_outputs_is_one_of_its_gpu(names: list[str], data: Any):
    sick = {name: data.draw(st.integers(0, 3)) for name in names}
    forms = st.sampled_from(["-q", "-q -i each", "index", "bus", ""])
    texts = []
    for name in names:
        form = "-q" if not texts else data.draw(forms)  # the first names the GPUs
        if form == "-q -i each":
            texts += [long(name, sick[name], at) for at in range(4)]
        else:
            texts.append(long(name, sick[name]) if form == "-q" else queried(name, sick[name], form))
    gpus = read("".join(texts)).gpus
    assert [gpu.index for gpu in gpus] == [0, 1, 2, 3]
    for name in names:
        values = [getattr(gpu, READINGS[name][0]) for gpu in gpus]
        assert [at for at, value in enumerate(values) if value != values[sick[name] - 1]] == [sick[name]]


def test_the_newest_value_counts_and_one_that_is_missing_hides_none():
    older, newer, missing = (f"index, temperature.gpu\n0, {value}\n" for value in (40, 50, "[N/A]"))
    assert read(older + newer + missing).gpus[0].temperature_c == 50


def test_no_more_gpus_than_there_are_names():
    both = queried("heat", 1, "index") + "index, pstate\n1, P0\n"
    assert len(read(both).gpus) == 4
    assert read(both).counted is None


def test_parts_of_one_gpu_keep_its_number():
    gpus = read(long("remap", 2, 2) + queried("heat", 2, "index")).gpus
    assert sorted((gpu.index, gpu.temperature_c) for gpu in gpus if gpu.temperature_c is not None) == [
        (0, 40), (1, 40), (2, 97), (3, 40),
    ]  # fmt: skip


@pytest.mark.parametrize("sick", ["ecc", "remap", "both"])
def test_the_table_and_q_say_together_what_each_alone_has(tmp_path: Path, sick: str):
    rows = (
        smi_texts.row(at, bus=bus, ecc="3" if at == 1 and sick != "remap" else "0")
        for at, bus in enumerate(BUSES)
    )
    remap = long("remap", 2 if sick != "ecc" else 9)
    report = replay(tmp_path, {TABLE: smi_texts.table(*rows), Q: remap})
    text = "\n".join(alarms(report))
    assert ("3 uncorrected memory errors" in text, "remap pending" in text) == (
        sick != "remap",
        sick != "ecc",
    )
    findings = [
        finding for result in report.results for finding in result.findings if finding.status == "fail"
    ]
    assert all(finding.evidence for finding in findings)


def test_a_value_that_is_said_twice_is_the_first_sources():
    q = read(long("heat", 0))
    rows = [smi_texts.row(at, bus=bus, temp="41C") for at, bus in enumerate(BUSES)]
    table = SmiTable.parse(Observation(TABLE, Outcome.OK, text=smi_texts.table(*rows), rc=0))
    gpus = merge_readings([q, table.gpus])  # type: ignore[union-attr]
    assert [gpu.temperature_c for gpu in gpus] == [97, 40, 40, 40]
    assert {gpu.sources["power_limit_w"] for gpu in gpus} == {TABLE}


def leaves(section: Section, path: str = "") -> dict[str, str]:
    here = f"{path}/{section.name}"
    return {here: section.text} | {
        key: text for part in section.parts for key, text in leaves(part, here).items()
    }


TREE: dict[str, object] = {
    "Product Name": "NVIDIA H100 80GB HBM3",
    "MIG Mode": {"Current": "Disabled", "Pending": "Disabled"},
    "PCI": {
        "Bus": "0x18",
        "GPU Link Info": {
            "PCIe Generation": {"Max": "5", "Current": "5"},
            "Link Width": {"Max": "16x", "Current": "16x"},
        },
        "Bridge Chip": {"Type": "N/A"},
        "Replays Since Reset": "0",
    },
    "Fan Speed": "N/A",
    "Performance State": "P0",
    "Clocks Event Reasons": {"Idle": "Active", "HW Slowdown": "Not Active"},
    "ECC Errors": {
        "Volatile": {"SRAM Correctable": "0", "DRAM Uncorrectable": "2"},
        "Aggregate": {"SRAM Correctable": "0", "DRAM Uncorrectable": "3"},
    },
    "Remapped Rows": {"Correctable Error": "0", "Pending": "Yes"},
    "Temperature": {"GPU Current Temp": "40 C", "GPU Slowdown Temp": "89 C"},
    "Fabric": {"State": "In Progress", "Status": "N/A"},
}


@given(
    st.sets(st.sampled_from(sorted(TREE)), min_size=1), st.integers(1, 3), st.sampled_from(["strip", "words"])
)
def test_lines_without_indentation_are_below_the_heading_of_their_name(names: set[str], count: int, way: str):
    tree = {name: part for name, part in TREE.items() if name in names}
    text = smi_texts.q([smi_texts.q_gpu(bus, tree) for bus in BUSES[:count]])
    flat = "".join(
        f"{line.strip() if way == 'strip' else ' '.join(line.split())}\n" for line in text.splitlines()
    )
    nested, from_flat = read_q(text), read_q(flat)
    assert nested is not None and from_flat is not None
    assert [leaves(gpu) for gpu in from_flat.all("gpu")] == [leaves(gpu) for gpu in nested.all("gpu")]
    assert from_flat.value("attached_gpus") == str(count)


@pytest.mark.parametrize("count", [1, 2])
def test_an_unknown_error_in_place_of_a_value_is_said(tmp_path: Path, count: int):
    healthy = {"GPU Current Temp": "40 C", "GPU Slowdown Temp": "89 C"}
    broken = healthy | dict.fromkeys(list(healthy)[:count], "Unknown Error")
    gpus = [
        smi_texts.q_gpu(bus, {"Temperature": values})
        for bus, values in zip(BUSES, (broken, healthy), strict=False)
    ]
    (alarm,) = alarms(replay(tmp_path, {Q: smi_texts.q(gpus)}))
    assert "gpu:0" in alarm and "cannot be read (Unknown Error)" in alarm


def fabric(states: list[str]) -> str:
    """What grep leaves of `-q` of each GPU: a section, and nothing that names the GPU."""
    return "--\n".join(
        f"    Fabric\n        State                             : {state}\n" for state in states
    )


@given(st.integers(1, 8), st.data(), st.booleans(), st.sampled_from(["index", "pci.bus_id", "table"]))
def test_as_many_sections_as_gpus_are_these_in_their_order(count: int, data: Any, after: bool, name: str):
    sick = data.draw(st.integers(0, count - 1))
    parts = fabric(["In Progress" if at == sick else "Completed" for at in range(count)])
    buses = [f"00000000:{16 + at:02X}:00.0" for at in range(count)]
    if name == "table":
        rows = (smi_texts.row(at, bus=bus) for at, bus in enumerate(buses))
        table = SmiTable.parse(Observation(TABLE, Outcome.OK, text=smi_texts.table(*rows), rc=0))
        gpus = merge_readings([read(parts), table.gpus])  # type: ignore[union-attr]
    else:
        rows = (f"{at if name == 'index' else bus}, 4{at}\n" for at, bus in enumerate(buses))
        query = f"{name}, temperature.gpu\n{''.join(rows)}"
        gpus = read(query + parts if after else f"{parts}{query}").gpus
    assert [gpu.index for gpu in gpus if gpu.fabric_state != "completed"] == [sick]
    assert len(gpus) == count


@pytest.mark.parametrize("count", [1, 3, 5])
def test_sections_of_some_gpus_are_of_none_by_its_number(tmp_path: Path, count: int):
    parts = fabric(["In Progress", *["Completed"] * (count - 1)])
    query = "index, temperature.gpu\n" + "".join(f"{at}, 4{at}\n" for at in range(4))
    report = replay(tmp_path, {Q: parts + query})
    (alarm,) = alarms(report)
    assert f"@gpu:{'?' * count}:" in alarm
    lines = [finding.summary for result in report.results for finding in result.findings]
    noun = "1 GPU" if count == 1 else f"{count} GPUs"
    assert f"not every line was read: {Q}: nothing names {noun} of {count + 4}" in lines


LOST = {
    "Remapping Failure Occurred": ("Yes", "row remapping failed"),
    "HW Power Brake Slowdown": ("Active", "power brake"),
    "Pending Page Blacklist": ("Yes", "page retirement pending"),
    "HW Thermal Slowdown": ("Active", "thermal slowdown"),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("key", LOST)
@pytest.mark.parametrize("indent", [4, 8, 12])
@pytest.mark.parametrize("count", [1, 2])
def test_a_line_that_one_section_has_is_read_right_below_its_gpu(
    tmp_path: Path, key: str, indent: int, count: int
):
    value, words = LOST[key]
    other = "No" if value == "Yes" else "Not Active"
    text = "".join(
        f"GPU {bus}\n{' ' * indent}{key:<34}: {value if at == count - 1 else other}\n"
        for at, bus in enumerate(BUSES[:count])
    )
    (alarm,) = alarms(replay(tmp_path, {Q: text}))
    assert f"@gpu:0000:{BUSES[count - 1][9:].lower()}: " in alarm and words in alarm.replace("hardware ", "")


@pytest.mark.parametrize("outer", ["Active", "Not Active"])
def test_a_line_below_another_that_lost_its_heading_is_read(tmp_path: Path, outer: str):
    lines = f"        HW Slowdown : {outer}\n            HW Power Brake Slowdown : Active\n"
    report = replay(tmp_path, {Q: f"GPU {BUSES[0]}\n{lines}    Clocks\n        SM : 495 MHz\n"})
    assert any("power brake" in alarm for alarm in alarms(report))


@pytest.mark.parametrize("heading", ["Volatile", "Aggregate"])
def test_counts_below_an_inner_heading_are_counts_of_errors(heading: str):
    (gpu,) = read(f"GPU {BUSES[0]}\n        {heading}\n            DRAM Uncorrectable : 12\n").gpus
    counts = (gpu.ecc_volatile_dram_uncorrectable, gpu.ecc_aggregate_dram_uncorrectable)
    assert counts == ((12, None) if heading == "Volatile" else (None, 12))


@pytest.mark.parametrize("failure", ["Yes", "No"])
def test_a_name_of_several_sections_is_of_the_one_beside_it(failure: str):
    lines = f"        Pending : Yes\n        Remapping Failure Occurred : {failure}\n"
    reading = read(f"GPU {BUSES[0]}\n{lines}")
    assert (reading.gpus[0].remap_pending, reading.interrupted) == (True, None)


@pytest.mark.parametrize("above", ["", "        Pending : No\n"])
def test_a_line_of_which_nothing_shows_the_section_is_not_read_as_well(tmp_path: Path, above: str):
    lines = f"{above}        Pending : Yes\n"
    report = replay(tmp_path, {Q: f"GPU {BUSES[0]}\n{lines}GPU {BUSES[1]}\n    Fan Speed : 30 %\n"})
    summaries = [finding.summary for result in report.results for finding in result.findings]
    assert f"not every line was read: {Q}: nothing shows what 'pending: Yes' is of" in summaries
    assert alarms(report) == []


@pytest.mark.parametrize("cut", [0, 1])
def test_sections_above_the_first_name_are_of_one_more_gpu(tmp_path: Path, cut: int):
    above = "        Current : 12\n"[: 30 * cut] + "    Remapped Rows\n        Pending : Yes\n"
    healthy = "".join(f"GPU {bus}\n    Remapped Rows\n        Pending : No\n" for bus in BUSES[1:])
    report = replay(tmp_path, {Q: above + healthy})
    (alarm,) = alarms(report)
    assert "@gpu:?: " in alarm and "remap pending" in alarm
    said = {
        finding.summary: finding.status
        for result in report.results
        for finding in result.findings
        if "GPUs" in finding.summary
    }
    assert "pass" not in {status.value for status in said.values()} and said


@pytest.mark.parametrize("front", ["n1 ", "[n1] ", "#"])
def test_a_row_whose_index_is_no_number_is_no_gpu(front: str):
    reading = read("index, temperature.gpu\n0, 40\n" + f"{front}1, 41\n")
    assert [gpu.index for gpu in reading.gpus] == [0]
    assert reading.interrupted == "unparsable" and f"{front}1, 41" in reading.interrupted_note
