"""Every form in which nvidia-smi prints GPUs or fails to: what is read of it, and that nothing breaks it."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smi_texts import H100, q, q_gpu, row, table, xml, xml_gpu

from nodedoctor.declare.registry import Command, Options
from nodedoctor.facts.gpu.gpu import BankAvailability, Gpu, GpuProcess, GpuReading, LostGpu
from nodedoctor.facts.gpu.smi import fields
from nodedoctor.facts.gpu.smi.errors import error_name, init_error, lost_gpus
from nodedoctor.facts.gpu.smi.sections import read_xml
from nodedoctor.facts.gpu.smi.smi import SmiQ, SmiTable, SmiXml, merged, smi_xml
from nodedoctor.model import Observation, Outcome, Unseen

FORMS = {"nvidia-smi-xml": SmiXml, "nvidia-smi-q": SmiQ, "nvidia-smi": SmiTable}
LOST = "Unable to determine the device handle for "


def read(probe: str, text: str, **more: object) -> GpuReading:
    found = FORMS[probe].parse(Observation(probe, text=text, **more))
    assert not isinstance(found, Unseen), found
    json.dumps(asdict(found), allow_nan=False)
    return found.gpus


def one(probe: str, text: str) -> Gpu:
    (gpu,) = read(probe, text).gpus
    return gpu


def test_every_row_of_the_table_is_a_field_of_gpu():
    rows = fields.rows()
    assert {row.field for row in rows} <= set(Gpu.__dataclass_fields__)
    assert len({row.field for row in rows}) == len(rows)


# The XML


def test_xml_tells_a_gpu():
    inside = (
        "<pci><pci_device_id>233010DE</pci_device_id><pci_sub_system_id>16C110DE</pci_sub_system_id>"
        "<pci_gpu_link_info><pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>1</current_link_gen>"
        "<max_host_link_gen>N/A</max_host_link_gen></pcie_gen>"
        "<link_widths><current_link_width>16x</current_link_width></link_widths></pci_gpu_link_info></pci>"
        "<ecc_errors><volatile><sram_correctable>1</sram_correctable>"
        "<sram_uncorrectable_parity>2</sram_uncorrectable_parity>"
        "<sram_uncorrectable_secded>3</sram_uncorrectable_secded>"
        "<dram_correctable>4</dram_correctable><dram_uncorrectable>5</dram_uncorrectable></volatile></ecc_errors>"
        "<remapped_rows><row_remapper_histogram>"
        "<row_remapper_histogram_max>2560 bank(s)</row_remapper_histogram_max>"
        "<row_remapper_histogram_high>1 bank(s)</row_remapper_histogram_high>"
        "<row_remapper_histogram_partial>0 bank(s)</row_remapper_histogram_partial>"
        "<row_remapper_histogram_low>0 bank(s)</row_remapper_histogram_low>"
        "<row_remapper_histogram_none>0 bank(s)</row_remapper_histogram_none>"
        "</row_remapper_histogram></remapped_rows>"
        "<clocks_event_reasons><clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown>"
        "<clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle></clocks_event_reasons>"
        "<clocks_event_reasons_counters><clocks_event_reasons_counters_hw_power_brake>2000000 us"
        "</clocks_event_reasons_counters_hw_power_brake></clocks_event_reasons_counters>"
        "<fabric><state>In Progress</state><status>Insufficient Resources</status>"
        "<health><bandwidth>Full</bandwidth><route_unhealthy>N/A</route_unhealthy></health></fabric>"
        "<processes><process_info><gpu_instance_id>7</gpu_instance_id><pid>4242</pid><type>C</type>"
        "<process_name>/opt/venv/bin/python3 train.py --key s3cret</process_name>"
        "<used_memory>9000 MiB</used_memory></process_info></processes>"
    )
    gpu = one("nvidia-smi-xml", xml([xml_gpu(inside=inside, gpu_recovery_action="Drain and Reset")]))
    assert (gpu.index, gpu.name, gpu.bus_id) == (0, H100, "0000:18:00.0")
    assert (gpu.pci_device_id, gpu.pci_subsystem_id) == ("2330", "16c1:10de")
    assert (gpu.pcie_generation, gpu.pcie_generation_max, gpu.pcie_width) == (1, 5, 16)
    assert gpu.errors["pcie_generation_host_max"] == "NOT_SUPPORTED"
    assert (gpu.ecc_volatile_sram_uncorrectable, gpu.ecc_volatile_uncorrectable) == (5, 10)
    assert (gpu.ecc_volatile_correctable, gpu.ecc_aggregate_correctable) == (5, None)
    assert gpu.remap_banks == BankAvailability(2560, 1, 0, 0, 0)
    assert gpu.clock_event_reasons == ("hw_slowdown",)
    assert gpu.clock_event_seconds == {"hw_power_brake_slowdown": 2.0}
    assert (gpu.fabric_state, gpu.fabric_status) == ("in-progress", "INSUFFICIENT_RESOURCES")
    assert gpu.fabric_health == {"bandwidth": "full"}
    assert gpu.recovery_action == "drain-and-reset"
    assert gpu.processes == (GpuProcess(4242, "compute", 9000, "python3", 7),)


def test_xml_of_r515_has_other_names():
    inside = (
        "<clocks_throttle_reasons><clocks_throttle_reason_sw_power_cap>Active"
        "</clocks_throttle_reason_sw_power_cap></clocks_throttle_reasons>"
        "<power_readings><power_draw>25.58 W</power_draw><power_limit>250.00 W</power_limit>"
        "<enforced_power_limit>300.00 W</enforced_power_limit></power_readings>"
        "<ecc_errors><volatile><single_bit><total>7</total></single_bit></volatile></ecc_errors>"
    )
    gpu = one("nvidia-smi-xml", xml([xml_gpu(inside=inside)], driver="515.105.01"))
    assert gpu.clock_event_reasons == ("sw_power_cap",)
    assert (gpu.power_draw_w, gpu.power_limit_w, gpu.power_limit_requested_w) == (25.58, 300.0, 250.0)
    assert gpu.ecc_volatile_correctable == 7


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("N/A", "NOT_SUPPORTED"),
        ("[Not Supported]", "NOT_SUPPORTED"),
        ("[Unknown Error]", "UNKNOWN"),
        ("ERR!", "UNKNOWN"),
        ("[GPU is lost]", "GPU_IS_LOST"),
        ("[GPU requires reset]", "RESET_REQUIRED"),
        ("[Insufficient Permissions]", "NO_PERMISSION"),
        ("Requested functionality has been deprecated", "DEPRECATED"),
        ("warm", "UNPARSABLE"),
    ],
)
def test_what_stands_in_the_place_of_a_value_is_an_error(text: str, error: str):
    inside = f"<temperature><gpu_temp>{text}</gpu_temp></temperature>"
    gpu = one("nvidia-smi-xml", xml([xml_gpu(inside=inside)]))
    assert (gpu.temperature_c, gpu.errors["temperature_c"]) == (None, error)


def test_xml_cut_off_keeps_whole_gpus_and_says_so():
    text = xml([xml_gpu("00000000:18:00.0"), xml_gpu("00000000:2A:00.0")])
    reading = read("nvidia-smi-xml", text[: text.index("2A:00.0") + 40])
    assert [gpu.bus_id for gpu in reading.gpus] == ["0000:18:00.0"]
    assert (reading.counted, reading.interrupted) == (2, "unparsable")
    assert "counts 2 GPUs and shows 1" in reading.interrupted_note


def test_xml_expands_no_entities():
    bomb = (
        '<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">'
        '<!ENTITY f SYSTEM "file:///etc/passwd">]>'
        "<nvidia_smi_log><driver_version>1</driver_version>"
        '<gpu id="00000000:18:00.0"><uuid>u</uuid></gpu><gpu id="00000000:2A:00.0"><uuid>&b;&f;</uuid></gpu>'
        "</nvidia_smi_log>"
    )
    reading = read("nvidia-smi-xml", bomb)
    assert [gpu.uuid for gpu in reading.gpus] == ["u"]


def test_xml_nested_without_end_is_left():
    root = read_xml("<nvidia_smi_log>" + "<a>" * 100_000)
    assert root is not None and root.parts == []


def test_a_gpu_that_cannot_say_its_uuid_is_lost():
    sick = xml_gpu("00000000:2A:00.0", uuid="[Unknown Error]", product_name="[Unknown Error]")
    reading = read("nvidia-smi-xml", xml([xml_gpu("00000000:18:00.0"), sick, xml_gpu("00000000:3A:00.0")]))
    assert [gpu.index for gpu in reading.gpus] == [0, 2]
    (gone,) = reading.lost
    assert (gone.index, gone.bus_id, gone.error) == (1, "0000:2a:00.0", "UNKNOWN")


def test_gpus_keep_their_index_when_one_before_them_is_lost():
    text = (
        LOST
        + "GPU0000:2A:00.0: Unknown Error\n"
        + xml([xml_gpu("00000000:18:00.0"), xml_gpu("00000000:3A:00.0")], attached=3)
    )
    reading = read("nvidia-smi-xml", text)
    assert [(gpu.index, gpu.bus_id) for gpu in reading.gpus] == [(0, "0000:18:00.0"), (2, "0000:3a:00.0")]
    assert [gone.bus_id for gone in reading.lost] == ["0000:2a:00.0"]
    assert reading.interrupted is None


# The text


TREE = {
    "Product Name": H100,
    "GPU UUID": "GPU-1",
    "Persistence Mode": "Enabled",
    "MIG Mode": {"Current": "Disabled", "Pending": "Enabled"},
    "GPU Reset Status": {"Reset Required": "No", "Drain and Reset Recommended": "Yes"},
    "PCI": {"Bus Id": "00000000:18:00.0", "GPU Link Info": {"PCIe Generation": {"Max": "5", "Current": "5"}}},
    "Clocks Event Reasons": {"Idle": "Not Active", "HW Slowdown": "Active"},
    "FB Memory Usage": {"Total": "81559 MiB", "Used": "12 MiB"},
    "Utilization": {"Gpu": "3 %", "Memory": "4 %"},
    "Temperature": {
        "GPU Current Temp": "36 C",
        "GPU T.Limit Temp": "50 C",
        "GPU Slowdown T.Limit Temp": "-2 C",
    },
    "Fabric": {"State": "Completed", "Status": "Success", "CliqueId": "0"},
    "Processes": "None",
}


@pytest.mark.parametrize("width", [34, 51])
@pytest.mark.parametrize("before", ["", "$ nvidia-smi -q\n"])
def test_q_tells_a_gpu_whatever_the_width(width: int, before: str):
    gpu = one("nvidia-smi-q", before + q([q_gpu("00000000:18:00.0", TREE, width)], width))
    assert (gpu.name, gpu.uuid, gpu.bus_id) == (H100, "GPU-1", "0000:18:00.0")
    assert (gpu.persistence_mode, gpu.mig_mode, gpu.mig_mode_pending) == (True, False, True)
    assert (gpu.reset_required, gpu.drain_and_reset_recommended) == (False, True)
    assert (gpu.pcie_generation, gpu.memory_total_mib, gpu.memory_used_mib) == (5, 81559, 12)
    assert (gpu.gpu_utilization_percent, gpu.memory_utilization_percent) == (3, 4)
    assert (gpu.temperature_c, gpu.t_limit_margin_c, gpu.slowdown_t_limit_c) == (36, 50, -2)
    assert (gpu.fabric_state, gpu.fabric_status, gpu.fabric_clique_id) == ("completed", "SUCCESS", 0)
    assert gpu.clock_event_reasons == ("hw_slowdown",)
    assert gpu.processes == ()


def test_q_indented_in_a_ticket_is_read_too():
    text = q([q_gpu("00000000:18:00.0", TREE), q_gpu("00000000:2A:00.0", TREE)])
    quoted = "".join(f"    {line}" for line in text.splitlines(keepends=True))
    assert [gpu.bus_id for gpu in read("nvidia-smi-q", quoted).gpus] == ["0000:18:00.0", "0000:2a:00.0"]


def test_q_of_r610_renames():
    tree = {
        "Product Name": H100,
        "GPU UUID": "GPU-1",
        "GPU Recovery Action": "Reboot",
        "Temperature": {
            "GPU Current T.Limit Temp": "47 C",
            "GPU Shutdown T.Limit Temp Specification": "-12 C",
        },
        "GPU Power Readings": {
            "Average Power Draw": "70.10 W",
            "GPU Ceiling Power Limit": {"Current Power Limit": "700.00 W", "Max Power Limit": "700.00 W"},
        },
    }
    deprecated = "610.57.04 [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]"
    reading = read("nvidia-smi-q", q([q_gpu("00000000:18:00.0", tree, 51)], 51, driver=deprecated))
    assert reading.driver_version == "610.57.04"
    (gpu,) = reading.gpus
    assert (gpu.t_limit_margin_c, gpu.shutdown_t_limit_c, gpu.recovery_action) == (47, -12, "node-reboot")
    assert (gpu.power_draw_w, gpu.power_limit_w, gpu.power_limit_max_w) == (70.1, 700.0, 700.0)


def test_q_lists_processes_and_mig_devices():
    text = q([q_gpu("00000000:18:00.0", {"Product Name": H100, "GPU UUID": "GPU-1"})])
    text += (
        "    MIG Mode\n        Current                           : Enabled\n"
        "    MIG Device\n        Index                             : 0\n"
        "    MIG Device\n        Index                             : 1\n"
        "    Processes\n"
        "        GPU instance ID                   : 7\n        Compute instance ID               : 0\n"
        "        Process ID                        : 4242\n            Type                          : C\n"
        "            Name                          : /usr/bin/python3\n"
        "            Used GPU Memory               : 9000 MiB\n"
        "        GPU instance ID                   : N/A\n        Compute instance ID               : N/A\n"
        "        Process ID                        : 99\n            Type                          : G\n"
        "            Name                          : [Not Found]\n"
        "            Used GPU Memory               : N/A\n"
    )
    gpu = one("nvidia-smi-q", text)
    assert (gpu.mig_mode, gpu.mig_devices) == (True, 2)
    assert gpu.processes == (
        GpuProcess(4242, "compute", 9000, "python3", 7, 0),
        GpuProcess(99, "graphics", None, None),
    )


def test_q_about_one_of_eight_gpus_is_not_seven_lost_ones():
    reading = read("nvidia-smi-q", q([q_gpu("00000000:18:00.0", TREE)], attached=8))
    assert (len(reading.gpus), reading.lost, reading.interrupted) == (1, (), "not-visible-here")


# The table


def test_table_tells_gpus():
    reading = read("nvidia-smi", table(row(0), row(1, bus="00000000:3B:00.0", persistence="Off", ecc="Off")))
    assert (reading.driver_version, reading.cuda_version) == ("550.90.07", "12.4")
    first, second = reading.gpus
    assert (first.name, first.bus_id, first.persistence_mode) == (H100, "0000:19:00.0", True)
    assert (first.temperature_c, first.power_draw_w, first.power_limit_w, first.pstate) == (
        27,
        72.0,
        700.0,
        0,
    )
    assert (first.memory_used_mib, first.memory_total_mib, first.compute_mode) == (1, 81559, "default")
    assert (first.ecc_mode, first.ecc_volatile_uncorrectable, first.mig_mode) == (True, 0, False)
    assert (second.index, second.persistence_mode, second.ecc_mode) == (1, False, False)


def test_table_of_r610_names_versions_anew():
    reading = read("nvidia-smi", table(row(0), head="KMD Version: 610.57.04     CUDA UMD Version: 13.3"))
    assert (reading.driver_version, reading.cuda_version) == ("610.57.04", "13.3")


def test_table_cuts_names_which_are_then_no_names():
    gpu = one("nvidia-smi", table(row(0, name="NVIDIA GeForce RTX 2080 ...", compute="E. Process")))
    assert (gpu.name, gpu.compute_mode) == (None, "exclusive-process")


def test_table_row_of_errors_is_a_lost_gpu():
    broken = {"fan": "ERR!", "temp": "ERR!", "perf": "ERR!", "draw": "ERR!", "cap": "ERR!", "load": "ERR!"}
    reading = read("nvidia-smi", table(row(0), row(1, bus="00000000:3B:00.0", **broken)))
    assert [gpu.index for gpu in reading.gpus] == [0]
    (gone,) = reading.lost
    assert (gone.index, gone.bus_id, gone.error) == (1, "0000:3b:00.0", "UNKNOWN")


def test_table_lists_processes_with_and_without_instances():
    text = table(row(0)) + (
        "|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |\n"
        "|    0    2    1      12249      C   /root/tools/memhog                           2194MiB |\n"
        "|    0   N/A  N/A      1696    C+G   python                                       N/A     |\n"
        "|    0      4711      M   nvidia-cuda-mps-server                                     27MiB |\n"
    )
    assert one("nvidia-smi", text).processes == (
        GpuProcess(12249, "compute", 2194, "memhog", 2, 1),
        GpuProcess(1696, "compute", None, "python"),
        GpuProcess(4711, "mps", 27, "nvidia-cuda-mps-server"),
    )


# Failures


@pytest.mark.parametrize("probe", FORMS)
@pytest.mark.parametrize(
    ("text", "name", "code"),
    [
        ("No devices were found\n", "NOT_FOUND", 6),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make ...\n",
            "DRIVER_NOT_LOADED",
            9,
        ),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "LIB_RM_VERSION_MISMATCH", 18),
        ("$ nvidia-smi\nFailed to initialize NVML: Unknown Error\n", "UNKNOWN", 999),
        ("Failed to initialize NVML: Insufficient Permissions\n", "NO_PERMISSION", 4),
        ("Failed to initialize NVML: GPU access blocked by the operating system\n", "OPERATING_SYSTEM", 17),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", "LIBRARY_NOT_FOUND", 12),
    ],
)
def test_failure_texts_are_nvmls_errors(probe: str, text: str, name: str, code: int):
    failed = read(probe, text, rc=code).init_error
    assert failed is not None and (failed.name, failed.code) == (name, code)


def test_the_library_version_of_a_mismatch_is_kept():
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"
    assert read("nvidia-smi", text).nvml_version == "580.95"


@pytest.mark.parametrize(
    ("text", "index", "bus_id", "error"),
    [
        ("GPU 0000:01:00.0: Not Found", None, "0000:01:00.0", "NOT_FOUND"),
        ("GPU0000:25:00.0: Unknown Error", None, "0000:25:00.0", "UNKNOWN"),
        ("GPU3: 0000:5F:00.0: Unknown Error", 3, "0000:5f:00.0", "UNKNOWN"),
        ("GPU2: Unknown Error", 2, None, "UNKNOWN"),
        ("GPU 00000000:05:00.0: GPU is lost.  Reboot the system ...", None, "0000:05:00.0", "GPU_IS_LOST"),
        ("gpu 0000:01:00.0: GPU requires reset", None, "0000:01:00.0", "RESET_REQUIRED"),
    ],
)
def test_device_handle_texts_name_the_lost_gpu(text: str, index: int | None, bus_id: str | None, error: str):
    (gone,) = lost_gpus(LOST + text)
    assert (gone.index, gone.bus_id, gone.error) == (index, bus_id, error)


def test_errors_on_stderr_count_as_well():
    reading = read("nvidia-smi-xml", xml([xml_gpu()]), note=LOST + "GPU1: 0000:44:00.0: Unknown Error")
    assert [gone.bus_id for gone in reading.lost] == ["0000:44:00.0"]


def test_nvidia_smi_that_is_not_there_is_a_missing_tool():
    found = SmiTable.parse(Observation("nvidia-smi", text="bash: nvidia-smi: command not found\n"))
    assert isinstance(found, Unseen) and found.reason == "missing-tool"


def test_lost_gpus_of_several_sources_are_one():
    by_index = LostGpu(3, None, "UNKNOWN")
    by_both = LostGpu(3, "0000:5d:00.0", "GPU_IS_LOST")
    assert merged((by_index,), (by_both,)) == (LostGpu(3, "0000:5d:00.0", "GPU_IS_LOST"),)
    assert len(merged((by_both,), (LostGpu(None, "0000:18:00.0", "UNKNOWN"),))) == 2


@pytest.mark.parametrize("outcome", [Outcome.MISSING, Outcome.TIMEOUT, Outcome.STUCK, Outcome.DENIED])
def test_no_answer_is_unseen_with_its_reason(outcome: Outcome):
    seen = Observation("nvidia-smi-xml", outcome, note="no answer")
    assert SmiXml.parse(seen) == Unseen.of(seen)


# The probe


NOTHING = json.dumps({"errors": {"/proc/driver/nvidia/version": "ENOENT"}})
LOADED = json.dumps({"files": {"/sys/module/nvidia/version": "580.95.05\n"}})
NO_BUS = Observation("pci", text=json.dumps({"lists": {}}))


def plan(files: str, nvml: Observation) -> Command | Observation:
    return smi_xml(Options(), NO_BUS, Observation("driver-files", text=files), nvml)


def test_nvidia_smi_is_asked_only_where_nvml_gave_nothing():
    crashed = Observation("nvml", Outcome.CRASH, note="killed by SIGSEGV")
    assert plan(LOADED, crashed) == Command(("nvidia-smi", "-q", "-x"))
    none_here = plan(NOTHING, Observation("nvml", Outcome.SKIPPED))
    assert isinstance(none_here, Observation) and none_here.outcome is Outcome.SKIPPED


# Anything at all


TEXTS = (
    xml([xml_gpu("00000000:18:00.0"), xml_gpu("00000000:2A:00.0")]),
    q([q_gpu("00000000:18:00.0", TREE), q_gpu("00000000:2A:00.0", TREE)]),
    table(row(0), row(1)),
    LOST + "GPU3: 0000:5F:00.0: Unknown Error\n",
)


def read_all(text: str) -> None:
    for probe, form in FORMS.items():
        found = form.parse(Observation(probe, text=text))
        if not isinstance(found, Unseen):
            shown = json.dumps(asdict(found), allow_nan=False, ensure_ascii=False)
            assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)


@given(st.text())
def test_any_text_is_read_or_unseen(text: str):
    read_all(text)
    assert error_name(text) is None or error_name(text).isupper()
    assert init_error(text) is None or init_error(text).text


@given(st.sampled_from(TEXTS), st.data())
def test_any_cut_and_any_damage_is_read_or_unseen(text: str, data: st.DataObject):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    noise = data.draw(st.text(st.characters(max_codepoint=0x9F), max_size=8))
    read_all(text[:start] + noise + text[start:end])


@given(st.text(st.characters(max_codepoint=0x9F)))
def test_control_characters_in_names_are_inert(name: str):
    escaped = name.replace("&", "").replace("<", "").replace(">", "")
    read_all(xml([xml_gpu(product_name=escaped)]))
    read_all(q([q_gpu("00000000:18:00.0", {"Product Name": escaped, "GPU UUID": "GPU-1"})]))
    read_all(table(row(0, name=escaped)))


POWER = """\
        SW Power Cap                                   : Active
        Current Power Limit                            : 200.00 W
        Requested Power Limit                          : 200.00 W
        Default Power Limit                            : 700.00 W
        Graphics                                       : 345 MHz
"""


def test_lines_without_their_headings_are_read_where_their_names_tell():
    gpu = one("nvidia-smi-q", POWER)
    assert (gpu.power_limit_w, gpu.power_limit_default_w, gpu.clock_graphics_mhz) == (200, 700, None)
    assert gpu.clock_event_reasons is None  # nobody knows whether the list is whole
    hot = one("nvidia-smi-q", POWER + "    HW Slowdown : Active\n        HW Thermal Slowdown : Active\n")
    assert set(hot.clock_event_reasons or ()) == {"hw_slowdown", "hw_thermal_slowdown"}


COUNTS = st.fixed_dictionaries(
    {
        (kind, counter): st.integers(0, 10**6)
        for kind in ("corrected", "uncorrected")
        for counter in ("volatile", "aggregate")
    }
)


@given(COUNTS, st.sampled_from(["total", "dram"]), st.sampled_from([": ", "  : ", ":        "]))
def test_counts_under_their_names_of_query_gpu_are_those_of_q(
    counts: dict[tuple[str, str], int], memory: str, colon: str
):
    told = "".join(f"ecc.errors.{k}.{c}.{memory}{colon}{n}\n" for (k, c), n in counts.items())
    gpu = one("nvidia-smi-q", f"{told}\nRemapped Rows\n    Pending : No\n")
    part = "" if memory == "total" else "dram_"
    for (kind, counter), count in counts.items():
        assert getattr(gpu, f"ecc_{counter}_{part}{kind.removesuffix('ed')}able") == count
    assert gpu.remap_pending is False


@pytest.mark.parametrize("text", [POWER * 2, "Current Power Limit : 200 W\n", "a : b\nc : d\ne : f\n"])
def test_too_few_lines_and_those_of_several_gpus_are_no_gpu(text: str):
    assert isinstance(SmiQ.parse(Observation("nvidia-smi-q", text=text)), Unseen)
