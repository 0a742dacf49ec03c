"""What ipmitool, numactl, chronyc, edac-util and dmon show to be wrong, beside the same where all is well."""

from __future__ import annotations

import pytest
from pastes import CHRONYC, DMON, EDAC, IPMITOOL, NUMACTL

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
    [("ipmitool", IPMITOOL), ("numactl", NUMACTL), ("chronyc-sources", CHRONYC), ("edac", EDAC)],
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
