"""What other tools say of a node is read from tables and documents, and repeated as it was said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from in_turn import in_turn
from pastes import (
    BANDWIDTH_TEST,
    DB_CSV,
    DCGM_HEALTH,
    GPUD,
    IBDIAGNET,
    INSPECTOR,
    KUBERNETES,
    MLXLINK,
    NVCRE,
    OF_LOGS,
    PASTES,
    VALIDATION,
)
from recorded import alarms, replay

from nodedoctor.facts.measured.deep_tools import DcgmDiag
from nodedoctor.facts.verdicts.verdicts import READERS, OtherTools
from nodedoctor.intake.outputs import NodeOutput, snapshot_of
from nodedoctor.intake.split import split
from nodedoctor.knowledge.infiniband import Counter, counters
from nodedoctor.model import Observation, Unseen


def said(probe: str, text: str) -> list[tuple[str, str, str]]:
    told = OtherTools.parse(Observation(probe, text=text, rc=0))
    assert isinstance(told, OtherTools)
    for verdict in told.verdicts:
        assert not verdict.quote or verdict.quote in text
    return [(verdict.result, verdict.subject, verdict.words) for verdict in told.verdicts]


def health_rows(*rows: tuple[str, str]) -> str:
    head, foot = DCGM_HEALTH.split("| Overall", 1)[0], "+------+------+\n"
    return head + "".join(f"| {key:<25} | {value:<56} |\n" for key, value in rows) + foot


def health_json(**systems: tuple[str, str]) -> str:
    errors = {
        f"{name} system": {"value": value, "overflow": [text]} for name, (value, text) in systems.items()
    }
    entity = {"value": "Failure", "children": {"Errors": {"children": errors}}}
    body = {"GPU": {"children": {"3": entity}}, "Overall Health": {"value": "Failure"}}
    return json.dumps({"body": body, "header": ["Health Monitor Report"]}, indent=3)


@pytest.mark.parametrize(("word", "result"), [("Warning", "warn"), ("Failure", "fail")])
def test_dcgm_health_names_the_gpu_and_what_is_wrong(word: str, result: str):
    table = health_rows(
        ("Overall Health", word), ("GPU", ""), ("-> 3", word), ("   -> Errors", ""),
        ("      -> Memory system", word), ("", "A DBE occurred in GPU 3."), ("", "Drain it."),
    )  # fmt: skip
    assert said("dcgm-health", table) == [
        (result, "gpu:3", "Memory system: A DBE occurred in GPU 3. Drain it.")
    ]
    document = health_json(Memory=(word, "A DBE occurred in GPU 3."))
    assert said("dcgm-health", document) == [(result, "gpu:3", "Memory system: A DBE occurred in GPU 3.")]


def test_the_worst_incident_of_an_entity_decides():
    text = health_json(PCIe=("Warning", "replays"), Memory=("Failure", "a DBE"))
    assert said("dcgm-health", text) == [("fail", "gpu:3", "Memory system: a DBE; PCIe system: replays")]


def mlx(state: str, advice: str, *, as_json: bool) -> str:
    if not as_json:
        return MLXLINK.replace(": Active", f": {state}").replace("No issue was observed", advice)
    sections = {"Operational Info": {"State": state}, "Troubleshooting Info": {"Recommendation": advice}}
    return json.dumps({"result": {"output": sections}, "status": {"code": 0}}, indent=4)


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    ("state", "advice", "result"),
    [
        ("Active", "No issue was observed", "pass"),
        ("Active", "Bad signal integrity", "warn"),
        ("Polling", "Bad signal integrity", "fail"),
        ("Polling", "Cable is unplugged", "warn"),
        ("Disable", "The port is closed by command. Check that the interface is enabled", "note"),
    ],
)
def test_mlxlink_is_taken_at_its_word(state: str, advice: str, result: str, as_json: bool):
    ((told, _, words),) = said("mlxlink", mlx(state, advice, as_json=as_json))
    assert told == result and state in words and advice in words


def test_several_ports_of_mlxlink_keep_their_names():
    text = f"# port mlx5_0\n{MLXLINK}# port mlx5_1\n{mlx('Polling', 'Bad signal integrity', as_json=True)}"
    assert [entry[:2] for entry in said("mlxlink", text)] == [
        ("pass", "port:mlx5_0"),
        ("fail", "port:mlx5_1"),
    ]


def node(*, gpus: int = 8, usable: int = 8, **conditions: str) -> str:
    capacity, allocatable = KUBERNETES.split("Allocatable:")
    text = capacity.replace("nvidia.com/gpu:     8", f"nvidia.com/gpu:     {gpus}")
    text += "Allocatable:" + allocatable.replace("nvidia.com/gpu:     8", f"nvidia.com/gpu:     {usable}")
    for name, status in conditions.items():
        text = text.replace("  MemoryPressure", f"  {name:<16} {status:<7} Mon, x\n  MemoryPressure", 1)
    return text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (node(usable=7), ("fail", "resource:nvidia.com/gpu")),
        (node(gpus=0, usable=0), ("warn", "resource:nvidia.com/gpu")),
        (node(GpuXidError="True"), ("warn", "condition:GpuXidError")),
        (node(KernelDeadlock="True"), ("warn", "condition:KernelDeadlock")),
        (node(AcceleratedHardwareReady="False"), ("warn", "condition:AcceleratedHardwareReady")),
        (KUBERNETES.replace("Ready            True ", "Ready            False"), ("fail", "condition:Ready")),
        (
            KUBERNETES.replace("Ready            True ", "Ready            Unknown"),
            ("fail", "condition:Ready"),
        ),
        (
            KUBERNETES.replace("  <none>\n", "\n  Warning  SystemOOM  5m  kubelet  x\n"),
            ("warn", "event:SystemOOM"),
        ),
    ],
)
def test_kubernetes_says_which_condition_or_resource_is_wrong(text: str, expected: tuple[str, str]):
    assert expected in [entry[:2] for entry in said("kubernetes-node", text)]


@pytest.mark.parametrize(
    ("name", "columns", "result"),
    [
        ("GpuInforomWatch", "GpuInforomWatchIsNotHealthy GPU:2 inforom is corrupt", "warn"),
        ("GpuPowerWatch", "Watch ErrorCode:DCGM_FR_POWER GPU:0 Recommended Action=RESTART_VM;", "warn"),
        ("SwitchWatch", "SwitchLinkFailure a link is down", "warn"),
        ("GpuPowerWatch", "KernelHasNoDeadlock kernel has no deadlock", "note"),
        ("NodeUnderRepair", "Operator taken out for a firmware update", "note"),
        ("GpuDriverEnabled", "DriverLoaded", ""),
        ("RdmaHealthy", "AllUp", ""),
    ],
)
def test_a_true_condition_of_any_name_is_a_fault_well_or_not_judged(name: str, columns: str, result: str):
    row = f"  {name:<16} True    Mon, 05 Jan 2026 10:00:00 +0000   {columns}\n  MemoryPressure"
    text = KUBERNETES.replace("  MemoryPressure", row, 1)
    shown = said("kubernetes-node", text)
    assert [entry[0] for entry in shown if entry[1] == f"condition:{name}"] == ([result] if result else [])
    assert any("conditions judged" in words for _, _, words in shown) is (result == "note")
    well = said("kubernetes-node", text.replace("True    Mon, 05", "False   Mon, 05"))
    assert (f"condition:{name}" in [entry[1] for entry in well]) is (name == "RdmaHealthy")


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_cordoned_node_is_noted(value: str):
    shown = said("kubernetes-node", f"Unschedulable:      {value}\n{KUBERNETES}")
    assert [words for result, _, words in shown if result == "note" and "cordoned" in words] == (
        ["the node is cordoned (Unschedulable: true)"] if value == "true" else []
    )


WELL: list[tuple[str, str]] = [
    *((probe, PASTES[probe]) for probe in READERS if probe in PASTES),
    ("kubernetes-node", node(GpuHealthy="True", VMEventScheduled="False", KernelDeadlock="False")),
    ("kubernetes-node", KUBERNETES.replace("nvidia.com/gpu:     8", "ephemeral-storage:  8")),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("probe", "text"), WELL)
def test_what_is_well_is_no_alarm(tmp_path: Path, probe: str, text: str):
    assert {result for result, _, _ in said(probe, text)} <= {"pass", "note"}
    assert alarms(replay(tmp_path, {probe: text}, deep=True)) == []


def test_gpud_ibdiagnet_and_health_validation_warn_or_fail(tmp_path: Path):
    assert said("gpud-scan", GPUD.replace("\u2714 no temp", "\u2718 temp"))[0][0] == "warn"
    sick = IBDIAGNET.replace(
        "Links Check               0          0", "Links Check               0          2"
    )
    assert said("ibdiagnet", sick) == [
        ("warn", "stage:Links-Check", "stage Links Check: 2 errors in the fabric")
    ]
    grave = VALIDATION.replace("INFO", "CRITICAL")
    assert said("health-validation", grave)[0][:2] == ("fail", "category:GPU")
    assert len(alarms(replay(tmp_path, {"ibdiagnet": sick, "health-validation": grave}, deep=True))) == 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("GPU 3: Requires a reset to recover. Terminate GPU processes and reset the GPU.", ("fail", "gpu:3")),
        ("GPU 0: Requires a node reboot to recover. Reboot the system.", ("fail", "gpu:0")),
        (
            "GPU 12: Requires peer-to-peer traffic to be drained. Terminate related processes.",
            ("fail", "gpu:12"),
        ),
        ("GPU 1: Operating at reduced capacity. Drain existing work and reset the GPU.", ("warn", "gpu:1")),
        ("GPU 5: NVL link 17 is in DISABLED state", ("warn", "gpu:5")),
        ("GPU 2 NIC/IB mlx5_2 link down counter has been incremented: 3 -> 4 ", ("warn", "gpu:2")),
        ("GPU 7: Unknown recovery action status: 9", ("unknown", "gpu:7")),
    ],
)
@pytest.mark.parametrize("front", ["", "[2026-01-05 10:00:00,123] [WARNING] [ft_launcher0@gpu-07] ", "0: "])
def test_nvrx_tells_each_gpu_once_though_it_looks_each_minute(
    line: str, expected: tuple[str, str], front: str
):
    ((result, subject, _),) = said("nvrx-health", f"{front}{line}\n" * 3)
    assert (result, subject) == expected
    ((piece),) = split(f"{front}{line}\n" * 3).pieces
    assert piece.shape.probe == "nvrx-health"


@given(st.sets(st.sampled_from(["a1", "b2", "c3"])), st.sampled_from(["PASSED", "FAILED", "INCOMPLETE", "X"]))
def test_nvcre_names_the_nodes_that_failed_and_its_result(failed: set[str], result: str):
    document = {**json.loads(NVCRE), "failedNodes": sorted(failed), "result": result}
    document["categories"] = [
        {
            "domain": "training",
            "variant": "n5",
            "status": "Failed" if failed else "Succeeded",
            "failureReason": "slow",
        }
    ]
    told = said("nvcre-report", json.dumps(document))
    worst = {"PASSED": "pass", "FAILED": "fail", "INCOMPLETE": "warn", "X": "unknown"}[result]
    assert told[0][:2] == (worst, "certification")
    assert all(name in told[0][2] for name in failed)
    assert [row[:2] for row in told[1:]] == ([("fail", "category:training/n5")] if failed else [])


@given(st.lists(st.integers(0, 300), min_size=1, max_size=12), st.booleans())
def test_ibdiagnets_tables_name_the_ports_that_went_down_most_and_alarm_nobody(
    downs: list[int], extended: bool
):
    column = "LinkDownedCounterExt" if extended else "LinkDownedCounter"
    rows = "".join(f"0xa088c20300d4e5f0,0x1,{port},{count}\n" for port, count in enumerate(downs, 1))
    nodes = DB_CSV.partition("START_PM_INFO")[0]
    told = said(
        "ibdiagnet-csv", f"{nodes}START_PM_INFO\nNodeGUID,PortGUID,PortNumber,{column}\n{rows}END_PM_INFO\n"
    )
    assert {result for result, _, _ in told} == {"note"}
    most = max(downs)
    assert (most == 0) == (len(told) == 1)
    if most:
        assert "gpu-07 mlx5_0 port " in told[0][2] and f" {most} time" in told[0][2]
    assert told[-1][2].startswith(f"2 nodes, {len(downs)} port")


PORT = "0xa088c20300d4e5f0,0xa088c20300d4e5f0,1"


def table(name: str, header: str, *rows: str) -> str:
    return "\n".join([f"START_{name}", header, *rows, f"END_{name}", "", ""])


@given(
    st.sampled_from([row for row in counters() if row.folder == "counters"]),
    st.sampled_from(["{}", "{}Ext", "{}Counter", "{}CounterExt"]),
    st.integers(0, 5000),
)
def test_a_counter_that_grew_while_ibdiagnet_ran_is_judged_as_on_a_node(row: Counter, form: str, count: int):
    name = form.format("".join(part.capitalize() for part in row.counter.split("_")))
    told = said(
        "ibdiagnet-csv", DB_CSV + table("PM_DELTA", f"NodeGUID,PortGUID,PortNumber,{name}", f"{PORT},{count}")
    )
    judged = row.limit is not None and row.counter != "symbol_error"
    may = 0 if row.limit_unit == "growth" else (row.ibqueryerrors or 0) - 1
    warned = [words for result, _, words in told if result == "warn"]
    assert warned == (
        [f"{row.counter} rose by {count} at gpu-07 mlx5_0 port 1 while it ran"]
        if judged and count > may
        else []
    )


GREW = "WARNINGS_PORTS_COUNTERS_DIFFERENCE_CHECK_(DURING_RUN)"
EVENT = "Scope,NodeGUID,PortGUID,PortNumber,EventName,Summary"


@pytest.mark.parametrize(
    ("name", "event", "summary", "result"),
    [
        ("ERRORS_LINKS_CHECK", "LINK_WRONG_SPEED", "unexpected speed", "warn"),
        ("ERRORS_DUPLICATED_GUIDS_DETECTION", "NODE_DUPLICATED_GUID", "twice", "warn"),
        ("WARNINGS_SYMBOL_BER_CHECK", "BER_THRESHOLD_EXCEEDED", "1e-9 is above 1e-14", "warn"),
        ("WARNINGS_SYMBOL_BER_CHECK", "BER_RS_FEC_EXCESSIVE_ERRORS", "many", "warn"),
        ("WARNINGS_SYMBOL_BER_CHECK", "BER_NO_THRESHOLD_IS_SUPPORTED", "none", "note"),
        ("WARNINGS_PCI_DEGRADATION_CHECK", "PCI_WIDTH_DOWNGRADE", "x8 of x16", "warn"),
        (GREW, "PM_COUNTER_INCREASED", "link_downed_counter", "warn"),
        (GREW, "PM_COUNTER_INCREASED", "port_xmit_wait", "note"),
        ("WARNINGS_FW_CHECK", "NODE_WRONG_FW_VERSION", "28.1, the latest is 28.2", "note"),
        ("WARNINGS_PHY_DB4_RETRIEVING", "TIMEOUT", "no answer", "note"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ports", [1, 3, 40])
def test_what_ibdiagnet_says_of_ports_is_one_statement_that_names_them(
    name: str, event: str, summary: str, result: str, ports: int
):
    rows = [f'PORT,0xa088c20300d4e5f0,0x0,{n},{event},"{summary}"' for n in range(1, ports + 1)]
    (alone,) = split(table(name, EVENT, *rows)).pieces
    assert alone.shape.probe == "ibdiagnet-csv"
    ((found, _, words),) = [
        one for one in said("ibdiagnet-csv", DB_CSV + table(name, EVENT, *rows)) if event in one[2]
    ]
    assert found == result
    assert words.startswith(f"{event} at gpu-07 mlx5_0 port 1") and words.endswith(summary)


LEVEL = "[Jan 05 2026 11:15:13] [{0}] [tid 2245] "
JOURNAL = "Jan 05 11:15:13 gpu-7 nv-fabricmanager[2245]: "
SWITCH = "on fid 0 on NVSwitch pci bus id 00000000:87:00.0 physical id 10 port 33"
NOTHING = "request to query NVSwitch device information failed with error:WARNING [NV_WARN_NOTHING_TO_DO]"


@in_turn("front", [LEVEL, JOURNAL, f"gpu-7: {LEVEL}"])
@in_turn(
    ("level", "words", "result"),
    [
        ("ERROR", f"detected NVSwitch fatal error 20034 {SWITCH}", "fail"),
        ("ERROR", f"detected NVSwitch non-fatal error 20009 {SWITCH}", "note"),
        ("ERROR", "failed to find the GPU handle 1234 in the multicast team request setup", "warn"),
        ("INFO", "multicast group 0 is freed.", "note"),
        ("INFO", "Successfully configured all the available NVSwitches to route traffic.", "pass"),
        ("ERROR", NOTHING, "note"),
    ],
)
@in_turn("times", [1, 5])
def test_the_fabric_managers_log_tells_each_error_once(
    front: str, level: str, words: str, result: str, times: int
):
    text = f"{front.format(level)}{words}\n" * times
    (piece,) = split(text).pieces
    assert piece.shape.probe == "fabric-manager-log"
    ((found, _, told),) = said("fabric-manager-log", text)
    assert found == result
    assert ("0000:87:00.0, port 33" in told) is (SWITCH in words)
    assert ("5 times" in told) is (times == 5 and level == "ERROR")


@given(
    st.lists(
        st.tuples(st.integers(1, 64), st.integers(1, 255)),
        min_size=1,
        max_size=5,
        unique_by=lambda one: one[0],
    )
)
def test_ibqueryerrors_names_each_port_beyond_its_thresholds(ports: list[tuple[int, int]]):
    rows = "".join(
        f"   GUID 0x900a840300a1b2c0 port {port}: [LinkDownedCounter == {count}] [PortXmitWait == 9]\n"
        for port, count in ports
    )
    text = 'Errors for 0x900a840300a1b2c0 "leaf-01"\n'
    text += f"   GUID 0x900a840300a1b2c0 port ALL: [LinkDownedCounter == 9]\n{rows}"
    assert [(result, words) for result, _, words in said("ibqueryerrors", text)] == [
        ("warn", f"leaf-01 port {port}: LinkDownedCounter {count} since the counters were cleared")
        for port, count in ports
    ]


LINK_COUNTERS = ("SymbolErrorCounter", "LinkErrorRecoveryCounter", "LinkDownedCounter", "PortRcvErrors")
HCA = "# Port counters: Lid 7 port 1 (CapMask: 0x5A00)\n"


@pytest.mark.parametrize("name", LINK_COUNTERS)
@pytest.mark.parametrize(("count", "many"), [(0, False), (9, False), (10, True), (48211, True)])
def test_one_threshold_holds_for_a_link_whichever_tool_counts_its_errors(name: str, count: int, many: bool):
    ((result, _, words),) = said("perfquery", f"{HCA}{name}:.......{count}\nPortXmitWait:......99999\n")
    assert result == ("warn" if many else "note")
    assert words.startswith(f"Lid 7 port 1: {f'{name} {count}' if many else 'no counter of errors'}")


@pytest.mark.parametrize(
    "name", ["PortXmitDiscards", "PortRcvSwitchRelayErrors", "PortXmitWait", "VL15Dropped"]
)
def test_counters_of_congestion_and_of_other_links_are_notes(name: str):
    ((result, _, _),) = said("perfquery", f"{HCA}{name}:.......60000\nSymbolErrorCounter:...0\n")
    assert result == "note"


@given(
    st.dictionaries(
        st.sampled_from(["PortXmitData", "PortRcvData", "PortXmitWait"]), st.integers(0, 9), min_size=1
    ),
    st.dictionaries(st.sampled_from(LINK_COUNTERS), st.integers(0, 60000)),
    st.booleans(),
)
def test_a_port_is_judged_once_by_all_its_blocks_and_only_by_counters_of_errors(
    data: dict[str, int], errors: dict[str, int], is_extended_first: bool
):
    rows = {
        kind: "".join(f"{name}:......{count}\n" for name, count in values.items())
        for kind, values in (("extended ", data), ("", errors))
    }
    blocks = [f"# Port {kind}counters: Lid 7 port 1 (CapMask: 0x5A00)\n{text}" for kind, text in rows.items()]
    ((result, _, words),) = said("perfquery", "".join(blocks if is_extended_first else blocks[::-1]))
    is_bad = any(count >= 10 for count in errors.values())
    assert result == ("warn" if is_bad else "note" if errors else "unknown")
    assert ("is beyond" in words) is (bool(errors) and not is_bad)


@pytest.mark.parametrize(
    ("name", "most"), [("SymbolErrorCounter", 65535), ("PortRcvErrors", 65535), ("LinkDownedCounter", 255)]
)
@pytest.mark.parametrize("below", [0, 1, 200])
def test_a_counter_of_errors_at_its_maximum_is_named(name: str, most: int, below: int):
    ((result, _, words),) = said(
        "perfquery", f"{HCA}{name}:.......{most - below}\nPortXmitWait:......65535\n"
    )
    assert result == "warn" and (f"{name} {most} is as high" in words) is (below == 0)


@pytest.mark.parametrize(("errors", "result"), [(0, "note"), (9, "note"), (48211, "warn")])
@pytest.mark.parametrize("device", ["mlx5_3", "rocep1s0"])
def test_files_of_counters_are_read_as_perfquery(errors: int, result: str, device: str):
    path = f"/sys/class/infiniband/{device}/ports/1/counters"
    text = f"{path}/symbol_error:{errors}\n{path}/link_downed:2\n{path}/port_xmit_data:918273\n"
    pieces = [NodeOutput(piece, "paste") for piece in split(f"root@gpu-6:~# grep . {path}/*\n{text}").pieces]
    converted = snapshot_of(pieces, "").observations["perfquery"].text
    ((worst, _, words),) = said("perfquery", converted)
    assert worst == result and words.startswith(f"{device} port 1: ")


def test_the_device_of_perfquery_is_the_one_that_its_command_names():
    pieces = [
        NodeOutput(piece, "paste")
        for piece in split(f"$ perfquery -x -C mlx5_3\n{HCA}LinkDownedCounter:..37\n").pieces
    ]
    ((_, subject, _),) = said("perfquery", snapshot_of(pieces, "").observations["perfquery"].text)
    assert subject == "counters:mlx5_3 Lid 7 port 1"


QUALITY = (
    "\nPhysical Counters and BER Info\n------------------------------\n"
    "Time Since Last Clear [Min]        : {minutes}\nSymbol BER                         : {ber}\n"
    "Effective Physical BER             : {ber}\nRaw Physical BER                   : 2E-6\n"
    "Link Down Counter                  : {downs}\n"
)


@pytest.mark.parametrize("ber", ["15E-255", "1E-15", "4E-9"])
@pytest.mark.parametrize(
    ("minutes", "downs", "flaps"),
    [
        ("412.3", 0, False),
        ("412.3", 37, True),
        ("30.1", 2, False),
        ("288000.0", 37, False),
        ("N/A", 37, True),
    ],
)
def test_mlxlink_is_judged_by_its_counters_and_their_time(ber: str, minutes: str, downs: int, flaps: bool):
    ((result, _, words),) = said("mlxlink", MLXLINK + QUALITY.format(ber=ber, minutes=minutes, downs=downs))
    assert result == ("warn" if flaps or ber == "4E-9" else "pass")
    assert ("went down" in words) is flaps and ("BER 4E-9" in words) is (ber == "4E-9")


@pytest.mark.parametrize(
    ("reason", "result"),
    [
        ("Not responding", "warn"),
        ("Kill task failed", "warn"),
        ("gpu_xid_79", "warn"),
        ("NHC: check_hca", "warn"),
        ("bad DIMM", "warn"),
        ("Node unexpectedly re", "warn"),
        ("gpu5 RMA", "warn"),
        ("planned update", "note"),
        ("maintenance", "note"),
        ("moving to rack 12", "note"),
    ],
)
@pytest.mark.parametrize("nodes", ["gpu-12", "gpu-[17-18,31]"])
def test_the_reasons_of_sinfo_are_told_with_their_nodes(reason: str, result: str, nodes: str):
    text = "REASON               USER      TIMESTAMP           NODELIST\n"
    text += f"{reason:<20} root      2026-01-05T09:30:00 {nodes}\n"
    (piece,) = split(f"$ sinfo -R\n{text}").pieces
    assert piece.shape.probe == "sinfo-reasons"
    assert said("sinfo-reasons", text) == [(result, f"nodes:{nodes}", f"{nodes}: {reason} (by root)")]


BY_NODE = {
    "NODELIST STATE REASON": "{node} {state} {reason}",
    "NODELIST   NODES PARTITION       STATE": "{node}       1      gpu*  {state}",
    "NODELIST NODES PARTITION STATE CPUS S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON": "{node} 1 gpu* "
    "{state} 96 2:48:1 1000000 0 1 h100,ib {reason}",
}


@pytest.mark.parametrize("heading", BY_NODE)
@pytest.mark.parametrize(
    ("state", "reason", "result"),
    [
        ("drained", "xid 79 on gpu 3", "warn"),
        ("drained*", "none", "warn"),
        ("draining", "memory swap of a DIMM", "warn"),
        ("down*", "Not responding", "warn"),
        ("idle*", "none", "warn"),
        ("maint", "none", "note"),
        ("mixed", "none", ""),
        ("idle", "none", ""),
    ],
)
@given(st.integers(0, 5))
def test_sinfo_by_node_names_those_that_are_out(
    heading: str, state: str, reason: str, result: str, before: int
):
    rows = [("gpu-01", "allocated", "none")] * before + [("gpu-21", state, reason)]
    lines = [BY_NODE[heading].format(node=node, state=state, reason=reason) for node, state, reason in rows]
    (piece,) = split("\n".join(["$ sinfo -N", heading, *lines]) + "\n").pieces
    assert piece.shape.probe == "sinfo"
    told = [(kind, words) for kind, subject, words in said("sinfo", piece.text) if subject]
    assert [kind for kind, _ in told] == ([result] if result else [])
    if told and reason != "none" and "REASON" in heading:
        assert reason in told[0][1]


@pytest.mark.parametrize(("nodes", "alarm"), [("gpu-17", 1), ("gpu-[16-18]", 1), ("gpu-33", 0)])
def test_a_reason_of_another_node_is_no_alarm_for_the_node_that_is_shown(
    tmp_path: Path, nodes: str, alarm: int
):
    shown = "NodeName=gpu-17 Arch=x86_64\n   Gres=gpu:h100:8\n   State=MIXED ThreadsPerCore=2\n"
    reasons = f"REASON  USER  TIMESTAMP  NODELIST\nbad DIMM  root  2026-01-05T09:30:00 {nodes}\n"
    assert len(alarms(replay(tmp_path, {"slurm-node": shown, "sinfo-reasons": reasons}, deep=True))) == alarm
    assert len(alarms(replay(tmp_path, {"sinfo-reasons": reasons}, deep=True))) == 1


@pytest.mark.parametrize("above", ["$ sinfo -R\n", ""])
def test_the_heading_of_sinfo_alone_says_that_no_node_is_down(above: str):
    (piece,) = split(f"{above}REASON               USER      TIMESTAMP           NODELIST\n").pieces
    assert said("sinfo-reasons", piece.text) == [("pass", "", "no node is down or drained")]


def test_inspector_tells_the_bandwidth_and_the_rank_that_is_behind():
    ((result, _, words),) = said("nccl-inspector", INSPECTOR)
    assert result == "note" and words == "AllReduce at 16384 MiB: busbw 536.7 GB/s, median of 4 on 2 ranks"
    ahead = INSPECTOR.replace('"rank":1,', '"rank":2,').replace('"coll_sn":140', '"coll_sn":150')
    both = INSPECTOR.replace('"rank":0,', '"rank":3,') + ahead + ahead.replace('"rank":2,', '"rank":4,')
    late = [words for result, _, words in said("nccl-inspector", both) if result == "warn"]
    assert late == ["ranks 1 and 3 at most at number 1408, others at 1508"]


def diag(version: int, status: str) -> str:
    bad: dict[str, Any] = {"status": status, "warnings": [{"warning": "GPU 3 is slow", "error_id": 22}]}
    bad |= {"entity_group": "GPU", "entity_id": 3} if version == 4 else {"gpu_id": "3"}
    test = {"name": "PCIe", "results": [{"status": "Pass", "gpu_id": "0"}, bad]}
    key = "DCGM Diagnostic" if version == 4 else "DCGM GPU Diagnostic"
    return json.dumps({key: {"test_categories": [{"category": "Integration", "tests": [test]}]}}, indent=2)


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(("status", "alarm"), [("Fail", 1), ("Pass", 0), ("Skip", 0)])
def test_the_document_of_dcgmi_diag_is_judged_as_its_table(
    tmp_path: Path, version: int, status: str, alarm: int
):
    report = replay(tmp_path, {"dcgmi-diag": diag(version, status)}, deep=True)
    assert len(alarms(report)) == alarm
    assert not alarm or "GPU 3" in alarms(report)[0]


HOSTILE = st.one_of(
    st.text(max_size=300),
    st.sampled_from([(PASTES | OF_LOGS)[probe] for probe in READERS]).flatmap(
        lambda text: st.tuples(st.integers(0, len(text)), st.text(max_size=20), st.integers(0, 60)).map(
            lambda cut: text[: cut[0]] + cut[1] + text[cut[0] + cut[2] :]
        )
    ),
    st.recursive(
        st.one_of(st.none(), st.text(max_size=8), st.integers(), st.booleans()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(
                    ["body", "GPU", "children", "Errors", "value", "overflow", "result", "output", "State",
                     "DCGM Diagnostic", "test_categories", "tests", "results", "status", "max_severity",
                     "check_ids", "entities", "affected_components"]
                ),
                inner, max_size=4,
            ),
        ),
        max_leaves=12,
    ).map(json.dumps),
)  # fmt: skip


@given(st.sampled_from(sorted(READERS)), HOSTILE)
def test_any_text_is_read_or_unseen_and_stays_bounded(probe: str, text: str):
    told = OtherTools.parse(Observation(probe, text=text, rc=0))
    assert isinstance(told, Unseen) or all(
        len(v.words) <= 500 and len(v.quote) <= 2000 for v in told.verdicts
    )
    assert isinstance(DcgmDiag.parse(Observation("dcgmi-diag", text=text, rc=0)), DcgmDiag | Unseen)


@pytest.mark.parametrize(
    ("probe", "text", "word"),
    [
        ("perfquery", f"{HCA}SymbolErrorCounter:.......65535\n", "cable"),
        (
            "ipmitool",
            " 52 | 07/22/2024 | 04:41:17 | Power Supply #0xc4 | Power Supply AC lost | Asserted\n",
            "cord",
        ),
        ("ipmitool", "PS4 Status | C4h | ok | 10.4 | Presence detected, Power Supply AC lost\n", "PDU"),
        ("ipmitool", "FAN3 | 0.000 | RPM | cr | 300 | 500 | 700 | 25300 | 25400 | 25500\n", "airflow"),
    ],
)
def test_the_advice_is_of_what_the_tool_names(tmp_path: Path, probe: str, text: str, word: str):
    report = replay(tmp_path, {probe: text}, deep=True)
    (result,) = [result for result in report.results if result.check == "tools.verdicts"]
    fixes = [finding.fix.text for finding in result.findings if finding.fix]
    assert fixes
    assert all(word in fix for fix in fixes)


@given(st.integers(1, 8), st.floats(20, 60), st.integers(0, 7), st.booleans(), st.booleans())
def test_a_gpu_that_copies_at_half_the_rate_of_its_peers_is_a_warning(
    count: int, rate: float, place: int, is_slow: bool, in_mbytes: bool
):
    """Alone it is compared with what its generation gives at least."""
    runs = []
    for device in range(count):
        own = 6.1 if is_slow and device == place else rate
        shown = own * 1000 if in_mbytes else own
        run = BANDWIDTH_TEST.replace("Device 0", f"Device {device}").replace("55.2", f"{shown:.1f}")
        run = run.replace("54.8", f"{shown * 1.01:.1f}")
        runs.append(run.replace("(GB/s)", "(MB/s)") if in_mbytes else run)
    pieces = split("".join(f"$ ./bandwidthTest --device={n}\n{run}" for n, run in enumerate(runs))).pieces
    told = said("bandwidth-test", "".join(piece.text for piece in pieces))
    alarms = [subject for result, subject, _ in told if result == "warn"]
    assert len(told) == count
    if rate >= 24.1:
        assert alarms == ([f"copies:{place}"] if is_slow and place < count else [])
