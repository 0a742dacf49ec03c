"""What nvml.py asks of NVIDIA's management library: functions and fields by the name of the answer.

Numbers are the enumerations of nvml.h, which do not change, so a table serves every pynvml and every driver.
"""

from __future__ import annotations

SYSTEM = {
    "driver_version": "nvmlSystemGetDriverVersion",
    "nvml_version": "nvmlSystemGetNVMLVersion",
    "cuda_version": "nvmlSystemGetCudaDriverVersion_v2",
    "driver_branch": "nvmlSystemGetDriverBranch",
    "count": "nvmlDeviceGetCount",
    "confidential_compute": "nvmlSystemGetConfComputeState",
}

# nvmlDeviceGet..., its arguments (a structure to fill starts with c_), `|` before what older drivers know.
VALUES = {
    "name": "Name",
    "uuid": "UUID",
    "serial": "Serial",
    "pci": "PciInfo_v3",
    "minor": "MinorNumber",
    "module_id": "ModuleId",
    "brand": "Brand",
    "architecture": "Architecture",
    "compute_capability": "CudaComputeCapability",
    "board_part_number": "BoardPartNumber",
    "vbios_version": "VbiosVersion",
    "gsp_firmware_version": "GspFirmwareVersion",
    "inforom_image_version": "InforomImageVersion",
    "inforom_oem_version": "InforomVersion 0",
    "inforom_ecc_version": "InforomVersion 1",
    "inforom_power_version": "InforomVersion 2",
    "persistence_mode": "PersistenceMode",
    "compute_mode": "ComputeMode",
    "mig_mode": "MigMode",
    "virtualization_mode": "VirtualizationMode",
    "addressing_mode": "AddressingMode",
    "memory_bytes": "MemoryInfo 0x02000028 | MemoryInfo",
    "bar1_bytes": "BAR1MemoryInfo",
    "ecc_mode": "EccMode",
    "ecc_volatile_correctable": "TotalEccErrors 0 0",
    "ecc_volatile_uncorrectable": "TotalEccErrors 1 0",
    "ecc_aggregate_correctable": "TotalEccErrors 0 1",
    "ecc_aggregate_uncorrectable": "TotalEccErrors 1 1",
    "ecc_volatile_sram_correctable": "MemoryErrorCounter 0 0 7",
    "ecc_volatile_sram_uncorrectable": "MemoryErrorCounter 1 0 7",
    "ecc_volatile_dram_correctable": "MemoryErrorCounter 0 0 2",
    "ecc_volatile_dram_uncorrectable": "MemoryErrorCounter 1 0 2",
    "ecc_aggregate_sram_correctable": "MemoryErrorCounter 0 1 7",
    "ecc_aggregate_sram_uncorrectable": "MemoryErrorCounter 1 1 7",
    "ecc_aggregate_dram_correctable": "MemoryErrorCounter 0 1 2",
    "ecc_aggregate_dram_uncorrectable": "MemoryErrorCounter 1 1 2",
    "sram_errors": "SramEccErrorStatus c_nvmlEccSramErrorStatus_v1_t",
    "repairs_pending": "RepairStatus",
    "unrepairable_memory": "UnrepairableMemoryFlag_v1",
    "remapped_rows": "RemappedRows",
    "remap_banks": "RowRemapperHistogram",
    "temperature_c": "Temperature 0 | TemperatureV 0",
    "shutdown_c": "TemperatureThreshold 0",
    "slowdown_c": "TemperatureThreshold 1",
    "memory_max_operating_c": "TemperatureThreshold 2",
    "max_operating_c": "TemperatureThreshold 3",
    "t_limit_margin_c": "MarginTemperature",
    "fan_percent": "FanSpeed",
    "power_draw_mw": "PowerUsage",
    "power_limit_mw": "EnforcedPowerLimit",
    "power_limit_requested_mw": "PowerManagementLimit",
    "power_limit_default_mw": "PowerManagementDefaultLimit",
    "power_limits_mw": "PowerManagementLimitConstraints",
    "energy_mj": "TotalEnergyConsumption",
    "pstate": "PerformanceState",
    "clock_graphics_mhz": "ClockInfo 0",
    "clock_sm_mhz": "ClockInfo 1",
    "clock_memory_mhz": "ClockInfo 2",
    "clock_max_graphics_mhz": "MaxClockInfo 0",
    "clock_max_sm_mhz": "MaxClockInfo 1",
    "clock_max_memory_mhz": "MaxClockInfo 2",
    "clock_app_graphics_mhz": "ApplicationsClock 0 | Clock 0 1",
    "clock_app_memory_mhz": "ApplicationsClock 2 | Clock 2 1",
    "clock_default_app_graphics_mhz": "DefaultApplicationsClock 0 | Clock 0 2",
    "clock_default_app_memory_mhz": "DefaultApplicationsClock 2 | Clock 2 2",
    "clock_boost_max_graphics_mhz": "MaxCustomerBoostClock 0",
    "clock_event_reasons": "CurrentClocksEventReasons | CurrentClocksThrottleReasons",
    "utilization": "UtilizationRates",
    "pcie_generation": "CurrPcieLinkGeneration",
    "pcie_generation_max": "MaxPcieLinkGeneration",
    "pcie_generation_device_max": "GpuMaxPcieLinkGeneration",
    "pcie_width": "CurrPcieLinkWidth",
    "pcie_width_max": "MaxPcieLinkWidth",
    "pcie_replays": "PcieReplayCounter",
    "cpu_affinity": "CpuAffinity 32",  # words of 64 CPUs each
    "numa_nodes": "MemoryAffinity 16 0",
    "gpu_numa_node": "NumaNodeId",
    "fabric": "GpuFabricInfoV c_nvmlGpuFabricInfo_v3_t | GpuFabricInfoV c_nvmlGpuFabricInfo_v2_t"
    " | GpuFabricInfo c_nvmlGpuFabricInfo_t",
    "compute_processes": "ComputeRunningProcesses_v3 | ComputeRunningProcesses_v2",
    "graphics_processes": "GraphicsRunningProcesses_v3 | GraphicsRunningProcesses_v2",
    "mps_processes": "MPSComputeRunningProcesses_v3 | MPSComputeRunningProcesses_v2",
}
PROCESSES = ("compute_processes", "graphics_processes", "mps_processes")
OLDER = frozenset({"FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "INVALID_ARGUMENT"})

# Field identifiers of nvml.h. 269 to 271 meant something else in drivers 575 and 580, so they need 590:
# compare the nvml.h of CUDA 12.9, 13.0 and 13.1 in https://github.com/NVIDIA/go-nvml.
FIELDS = {
    "retired_pages_single_bit": 29,
    "retired_pages_double_bit": 30,
    "retired_pages_pending": 31,
    "sw_power_cap_ns": 74,
    "sw_thermal_slowdown_ns": 75,
    "sync_boost_ns": 76,
    "memory_temperature_c": 82,
    "nvlink_count": 91,
    "pcie_replay_rollovers": 95,
    "nvlink_switch_links": 147,
    "c2c_links": 170,
    "pcie_correctable": 173,
    "pcie_naks_received": 174,
    "pcie_receiver": 175,
    "pcie_bad_tlp": 176,
    "pcie_naks_sent": 177,
    "pcie_bad_dllp": 178,
    "pcie_non_fatal": 179,
    "pcie_fatal": 180,
    "pcie_unsupported_request": 181,
    "pcie_lcrc": 182,
    "pcie_lane": 183,
    "reset_required": 226,
    "drain_and_reset_recommended": 227,
    "recovery_action": 230,
}
FIELDS_ALONE = {
    "shutdown_t_limit_c": 193,
    "slowdown_t_limit_c": 194,
    "memory_max_operating_t_limit_c": 195,
    "max_operating_t_limit_c": 196,
}
"""Each takes a call of its own: driver 580.159 on an H200 leaves them empty in a call with other fields."""
FIELDS_590_FROM = 590
FIELDS_590 = {"hw_thermal_slowdown_ns": 270, "hw_power_brake_slowdown_ns": 271}

LINK_VALUES = {
    "active": "NvLinkState",
    "version": "NvLinkVersion",
    "remote_type": "NvLinkRemoteDeviceType",
    "remote_pci": "NvLinkRemotePciInfo",
}
LINK_COUNTERS = {"replay": 0, "recovery": 1, "crc_flit": 2, "crc_data": 3, "ecc": 4}  # up to NVLink 4
LINK_SPEED = {"speed_mbytes_s": 164}
LINK_FIELDS = {  # from NVLink 5 on
    "malformed_packets": 206,
    "buffer_overruns": 207,
    "receive_errors": 208,
    "receive_remote_errors": 209,
    "receive_general_errors": 210,
    "local_link_integrity": 211,
    "transmit_discards": 212,
    "link_recovery_successful": 213,
    "link_recovery_failed": 214,
    "link_recovery": 215,
    "effective_errors": 219,
    "effective_ber": 220,
    "symbol_errors": 221,
    "symbol_ber": 222,
}
C2C_STATUS = 171  # 0 inactive, 1 active; the scope is the link
MAX_C2C = 36
NVLINK_5 = 7  # nvmlNvlinkVersion_t
MAX_LINKS = 36

P2P = {"read": 0, "write": 1, "nvlink": 2, "atomics": 3, "pcie": 4}  # pynvml has the tuple (0,) for read

LIVE = (
    "utilization",
    "memory_bytes",
    "temperature_c",
    "power_draw_mw",
    "power_limit_mw",
    "pstate",
    "clock_graphics_mhz",
    "clock_sm_mhz",
    "clock_memory_mhz",
    "clock_event_reasons",
    *PROCESSES,
)
ALL_LINKS = 0xFFFFFFFF
LIVE_FIELDS = {
    "nvlink_tx_kib": (138, ALL_LINKS),
    "nvlink_rx_kib": (139, ALL_LINKS),
    "pcie_tx_bytes": (197, 0),
    "pcie_rx_bytes": (198, 0),
}
PCIE_RATES = {"pcie_tx_kb_s": "PcieThroughput 0", "pcie_rx_kb_s": "PcieThroughput 1"}  # 20 ms each
