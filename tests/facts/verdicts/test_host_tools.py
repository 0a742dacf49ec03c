"""What ipmitool, numactl, chronyc, edac-util and dmon show to be wrong, beside the same where all is well."""

from __future__ import annotations

import pytest
from pastes import CHRONYC, DMON, DOCKER_INSPECT, EDAC, GPU_BURN, IPMITOOL, NUMACTL

from nodedoctor.facts.verdicts.verdicts import OtherTools
from nodedoctor.intake.outputs import NodeOutput, snapshot_of
from nodedoctor.intake.split import split
from nodedoctor.model import Observation


def statements(probe: str, text: str) -> list[tuple[str, str, str]]:
    """What is repeated of a paste: how bad it is, of what, in which words."""
    (piece,) = split(text).pieces
    assert piece.shape.probe == probe
    tools = OtherTools.parse(Observation(probe, text=piece.text, rc=0))
    assert isinstance(tools, OtherTools)
    assert all(not verdict.quote or verdict.quote in piece.text for verdict in tools.verdicts)
    return [(verdict.result, verdict.subject, verdict.words) for verdict in tools.verdicts]


@pytest.mark.parametrize(
    ("probe", "text"),
    [
        ("gpu-burn", GPU_BURN),
        ("docker-inspect", DOCKER_INSPECT),
        ("ipmitool", IPMITOOL),
        ("numactl", NUMACTL),
        ("chronyc-sources", CHRONYC),
        ("edac", EDAC),
    ],
)
def test_a_healthy_host_has_nothing_worse_than_a_note(probe: str, text: str):
    assert {result for result, _, _ in statements(probe, text)} <= {"pass", "note"}


@pytest.mark.parametrize(
    ("state", "result"),
    [("nr", "fail"), ("cr", "warn"), ("nc", "note"), ("ok", ""), ("ns", ""), ("na", "")],
)
@pytest.mark.parametrize(
    "row",
    [
        "FAN2             | 42h | {0}  | 29.2 | 0 RPM",
        "FAN2             | 0 RPM             | {0}",
        "FAN2             | 0.000      | RPM        | {0}    | 300.000   | 500.000   | 700.0 | na | na | na",
        "FAN2,0,RPM,{0}",
        "FAN2,42h,{0},29.2,0 RPM",
    ],
)
def test_a_sensor_is_as_bad_as_its_state(state: str, result: str, row: str):
    shown = statements("ipmitool", IPMITOOL + row.format(state) + "\n")
    assert [(one, subject) for one, subject, _ in shown if "FAN2" in subject] == (
        [(result, "sensor:FAN2")] if result else []
    )


@pytest.mark.parametrize(
    ("event", "is_fault"),
    [
        ("Power Supply PSU4 Status | Power Supply AC lost", True),
        ("Power Supply PSU4 Status | Failure detected", True),
        ("Memory DIMM_C1 | Uncorrectable ECC", True),
        ("Processor CPU1 | IERR", True),
        ("Temperature Inlet | Upper Critical going high", True),
        ("Temperature Inlet | Upper Non-critical going high", False),
        ("Power Supply PSU4 Status | Presence detected", False),
        ("System Event | Timestamp Clock Sync", False),
        ("Drive Slot HDD1 | Drive Present", False),
    ],
)
@pytest.mark.parametrize("ended", [True, False])
def test_an_event_of_a_fault_that_did_not_end_is_a_warning(event: str, is_fault: bool, ended: bool):
    log = f" 1a1 | 03/09/2025 | 22:10:03 | {event} | Asserted\n"
    log += f" 1a2 | 03/09/2025 | 22:12:00 | {event} | Deasserted\n" if ended else ""
    worst = {result for result, _, _ in statements("ipmitool", log)}
    assert worst == ({"warn"} if is_fault and not ended else {"pass"})


REDUNDANCY = " {0} | 05/06/2024 | 07:0{0}:00 | Power Supply {1} | {2}{3}\n"


@pytest.mark.parametrize("way", [" | Asserted", ""])
@pytest.mark.parametrize("name", ["PS Redundancy", "#0x77"])
@pytest.mark.parametrize(
    ("later", "row", "result"),
    [
        ("Fully Redundant", "", "pass"),
        ("Transition to OK", "", "pass"),
        ("Presence detected", "", "warn"),
        ("", "PS Redundancy    | 77h | ok  |  7.1 | Fully Redundant\n", "pass"),
        ("", "PS Redundancy    | 77h | ok  |  7.1 | Redundancy Lost\n", "warn"),
        ("", "PS Redundancy    | 77h | ns  |  7.1 | Disabled\n", "warn"),
        ("", "FAN Redundancy   | 78h | ok  |  7.1 | Fully Redundant\n", "warn"),
    ],
)
def test_the_good_state_of_a_sensor_ends_its_fault(way: str, name: str, later: str, row: str, result: str):
    log = REDUNDANCY.format(1, name, "Redundancy Lost", way)
    log += REDUNDANCY.format(2, name, later, way) if later else ""
    log += REDUNDANCY.format(3, "OTHER", "Fully Redundant", way)
    assert {one for one, _, _ in statements("ipmitool", row + log)} == {result}


def test_a_sensor_that_reads_well_ends_no_fault_that_happens_once():
    log = " 5 | 05/06/2024 | 07:05:00 | Memory DIMM_B2 | Uncorrectable ECC | Asserted\n"
    live = "DIMM_B2          | 31h | ok  | 32.4 | Presence Detected\n"
    assert [one for one, _, _ in statements("ipmitool", live + log)] == ["warn"]


@pytest.mark.parametrize("name", ["Main Power Fault", "Power Overload", "Cooling/Fan Fault", "Drive Fault"])
@pytest.mark.parametrize("state", ["true", "false"])
def test_a_fault_of_the_chassis_is_a_warning(name: str, state: str):
    shown = statements("ipmitool", f"Power Control Fault  : false\n{name:<21}: {state}\n")
    assert [(one, subject) for one, subject, _ in shown] == (
        [("warn", f"sensor:{name}")] if state == "true" else [("pass", "")]
    )


@pytest.mark.parametrize(
    ("cpus", "mib", "short"),
    [
        ("4 5 6 7", 0, True),
        ("4 5 6 7", 515911, True),
        ("4 5 6 7", 1001000, False),
        ("", 97280, False),
        ("", 0, False),
    ],
)
def test_a_numa_node_with_cpus_needs_its_share_of_memory(cpus: str, mib: int, short: bool):
    text = NUMACTL.replace("node 1 cpus: 4 5 6 7", f"node 1 cpus: {cpus}".rstrip())
    shown = statements("numactl", text.replace("node 1 size: 1032190", f"node 1 size: {mib}"))
    assert [subject for result, subject, _ in shown if result == "warn"] == (["numa:1"] if short else [])


@pytest.mark.parametrize(
    ("states", "reach", "result"),
    [("*-", 377, "pass"), ("??", 0, "warn"), ("xx", 377, "warn"), ("??", 1, "note"), ("-+", 377, "note")],
)
def test_a_clock_without_a_source_is_a_warning(states: str, reach: int, result: str):
    text = CHRONYC.replace("^* ", f"^{states[0]} ").replace("^- ", f"^{states[1]} ")
    assert [one for one, _, _ in statements("chronyc-sources", text.replace("377", str(reach)))] == [result]


@pytest.mark.parametrize(
    ("kind", "count", "result"),
    [
        ("Uncorrected", 2, "fail"),
        ("Corrected", 48213, "warn"),
        ("Corrected", 7, "note"),
        ("Uncorrected", 0, ""),
    ],
)
@pytest.mark.parametrize(
    "row",
    [
        "mc2: csrow0: CPU_SrcID#1_MC#2_Chan#0_DIMM#0: {1} {0} Errors\n",
        "\t{0} on DIMM Label(s): 'CPU_SrcID#1_MC#2_Chan#0_DIMM#0' location: 1:2:0:-1 errors: {1}\n",
    ],
)
def test_errors_of_a_memory_module_are_named(kind: str, count: int, result: str, row: str):
    shown = statements("edac", row.format(kind, count))
    assert [one for one, subject, _ in shown if "MC#2" in subject] == ([result] if result else [])


@pytest.mark.parametrize(("clock", "sick"), [(345, True), (1200, True), (1300, False), (1755, False)])
@pytest.mark.parametrize(("load", "loaded"), [(99, True), (0, False)])
def test_a_loaded_gpu_far_below_the_clock_of_the_others_is_a_warning(
    clock: int, sick: bool, load: int, loaded: bool
):
    row = f"    7    202     61     74     {load}     60      0      0   2619    {clock}    100      0\n"
    shown = statements("nvidia-smi-dmon", DMON + row)
    assert [subject for result, subject, _ in shown if result == "warn"] == (
        ["gpu:7"] if sick and loaded else []
    )


@pytest.mark.parametrize(
    ("parent", "state", "program", "sick"),
    [
        (1, "D", "torchrun train.py", True),
        (1, "Dsl", "python3 -m pretrain", True),
        (1, "Sl", "python3 -m pretrain", False),
        (977, "Dl", "python3 -m pretrain", False),
        (1, "Ds", "/usr/sbin/smartd -n", False),
    ],
)
@pytest.mark.parametrize("head", ["USER PID PPID STAT ELAPSED CMD", "PID PPID USER S %CPU COMMAND"])
def test_a_jobs_process_that_hangs_without_its_launcher(
    head: str, parent: int, state: str, program: str, sick: bool
):
    cells = {"USER": "lena", "PID": 5120, "PPID": parent, "STAT": state, "S": state[0], "%CPU": 0.3}
    row = " ".join(str(cells.get(name, "4-02:00:00")) for name in head.split()[:-1])
    shown = statements("process-list", f"{head}\n{row} {program}\n")
    assert [(result, subject) for result, subject, _ in shown] == [
        ("warn", "pid:5120") if sick else ("note", "")
    ]


@pytest.mark.parametrize(("lost", "sick"), [(0, False), (900, False), (800_000, True)])
@pytest.mark.parametrize("pauses", [0, 31_000])
def test_a_priority_that_loses_packets(lost: int, sick: bool, pauses: int):
    text = (
        f"     rx_prio5_packets: 70000000\n     rx_prio5_discards: {lost}\n"
        f"     rx_prio5_pause: {pauses}\n     tx_prio5_pause: 0\n"
    )
    for probe, paste in (("priority-counters", text), ("ethtool", f"NIC statistics:\n{text}")):
        (piece,) = split(paste).pieces
        observations = snapshot_of([NodeOutput(piece, "paste")], "").observations
        assert piece.shape.probe == probe
        tools = OtherTools.parse(observations["priority-counters"])
        assert isinstance(tools, OtherTools)
        (verdict,) = tools.verdicts
        assert (verdict.result, verdict.subject) == (("warn", "priority:5") if sick else ("note", ""))
        assert ("PFC" in verdict.words) is (sick and pauses == 0)


ETHTOOL = (
    "     rx_packets_phy: 90000000000\n     rx_crc_errors_phy: {crc}\n     rx_symbol_err_phy: {symbol}\n"
    "     rx_discards_phy: {lost}\n     tx_errors_phy: 0\n     link_down_events_phy: {downs}\n"
)
WELL = {"crc": 0, "symbol": 0, "lost": 0, "downs": 2}


@pytest.mark.parametrize(
    ("counts", "results"),
    [
        ({}, {}),
        ({"downs": 19}, {}),
        ({"crc": 4}, {"unknown": "whether they still grow"}),
        ({"lost": 70_000}, {"unknown": "no buffers"}),
        ({"crc": 900_000}, {"warn": "wrong checksum"}),
        ({"symbol": 120_000_000}, {"warn": "physical coding"}),
        ({"downs": 300}, {"warn": "went down 300 times"}),
        ({"lost": 900_000_000}, {"warn": "0.99%"}),
        ({"lost": 900_000_000, "crc": 2}, {"warn": "0.99%", "unknown": "2 packets dropped"}),
    ],
)
@pytest.mark.parametrize("heading", ["", "NIC statistics:\n"])
def test_errors_of_a_port_are_judged_by_their_share(
    counts: dict[str, int], results: dict[str, str], heading: str
):
    """What is not 0 may be old: only a share that no sound link has is certain from one look."""
    (piece,) = split(heading + ETHTOOL.format(**WELL | counts)).pieces
    tools = OtherTools.parse(Observation("priority-counters", text=piece.text, rc=0))
    assert isinstance(tools, OtherTools)
    shown = {item.result: item for item in tools.verdicts if "by priority" not in item.words}
    assert shown.keys() == results.keys()
    for result, words in results.items():
        assert words in shown[result].words and shown[result].quote in piece.text


def test_ports_are_judged_one_by_one():
    text = "".join(f"NIC statistics:\n{ETHTOOL.format(**WELL | {'crc': crc})}" for crc in (0, 900_000, 0))
    tools = OtherTools.parse(Observation("priority-counters", text=text, rc=0))
    assert isinstance(tools, OtherTools)
    assert [item.words[:12] for item in tools.verdicts if item.result == "warn"] == ["interface 2,"]


@pytest.mark.parametrize("sick", [None, 0, 1])
@pytest.mark.parametrize("part", ["whole", "end", "progress"])
def test_a_gpu_that_computes_wrongly_in_gpu_burn_fails(sick: int | None, part: str):
    text = GPU_BURN
    if sick is not None:
        errors = " - ".join("77 (WARNING!)" if gpu == sick else "0" for gpu in range(2))
        text = text.replace("errors: 0 - 0   temps: 66", f"errors: {errors}   temps: 66")
        text = text.replace(f"GPU {sick}: OK", f"GPU {sick}: FAULTY")
    end = text.index("Tested")
    shown = statements("gpu-burn", {"whole": text, "end": text[end:], "progress": text[:end]}[part])
    well = ("unknown", "") if part == "progress" else ("pass", "")
    assert [row[:2] for row in shown] == [well if sick is None else ("fail", f"gpu:{sick}")]


@pytest.mark.parametrize(
    ("ipc", "mib", "count", "ids", "result"),
    [
        ("private", 64, -1, "null", "warn"),
        ("", 64, 0, '["0", "1"]', "warn"),
        ("shareable", 512, 8, "null", "warn"),
        ("private", 64, 1, "null", "note"),
        ("private", 64, 0, '["GPU-1"]', "note"),
        ("host", 64, -1, "null", "pass"),
        ("container:other", 64, -1, "null", "pass"),
        ("private", 1024, -1, "null", "pass"),
    ],
)
@pytest.mark.parametrize("compact", [False, True])
def test_a_container_with_several_gpus_needs_shared_memory(
    ipc: str, mib: int, count: int, ids: str, result: str, compact: bool
):
    text = DOCKER_INSPECT.replace('"private"', f'"{ipc}"').replace("17179869184", str(mib << 20))
    text = text.replace('"Count": -1', f'"Count": {count}').replace(
        '"DeviceIDs": null', f'"DeviceIDs": {ids}'
    )
    text = "".join(line.strip() for line in text.splitlines()) + "\n" if compact else text
    assert [row[:2] for row in statements("docker-inspect", text)] == [(result, "container:trainer")]
    cut = text[: text.index('"ShmSize"')] + "\n"
    assert [row[0] for row in statements("docker-inspect", cut)] == ["unknown"]
