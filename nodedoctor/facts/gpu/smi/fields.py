"""Which element of `nvidia-smi -q -x`, and which line of `nvidia-smi -q`, says which field of a Gpu.

Sources: outputs of drivers 450 to 615, and the change log of nvidia-smi(1) for the names between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from nodedoctor.facts.gpu.smi import values
from nodedoctor.facts.gpu.smi.values import Reader

# Names are those of sections (small letters, underscores), so that `<product_name>` and `Product Name` are
# one. Headings are where the rows below them are. A row is a field of Gpu, how it is read (a function of
# smi_values), and its names: first the XML's, then the text's, then those of other drivers. The first that
# can be read counts: a limit that was asked for where the enforced one is not shown. R610 has the power
# limits below a heading of their own, whose XML is not known yet.
_TABLE = """
[]
name                           text      product_name
uuid                           text      uuid|gpu_uuid
serial                         text      serial|serial_number
minor                          whole     minor_number
module_id                      whole     platforminfo/module_id|gpu_module_id|module_id
brand                          text      product_brand
architecture                   arch      product_architecture
board_part_number              text      board_part_number
vbios_version                  text      vbios_version
gsp_firmware_version           text      gsp_firmware_version
persistence_mode               flag      persistence_mode
compute_mode                   word      compute_mode
addressing_mode                word      addressing_mode
recovery_action                recovery  gpu_recovery_action
fan_percent                    whole     fan_speed
pstate                         pstate    performance_state

[inforom_version]
inforom_image_version          text      img_version|image_version
inforom_oem_version            text      oem_object
inforom_ecc_version            text      ecc_object
inforom_power_version          text      pwr_object|power_management_object

[mig_mode]
mig_mode                       flag      current_mig|current
mig_mode_pending               flag      pending_mig|pending

[gpu_virtualization_mode]
virtualization_mode            word      virtualization_mode

[vgpu_software_licensed_product]
vgpu_license                   text      license_status

[gpu_reset_status]
reset_required                 flag      reset_required
drain_and_reset_recommended    flag      drain_and_reset_recommended

[pci]
pci_device_id                  device    pci_device_id|device_id
pci_subsystem_id               subsystem pci_sub_system_id|sub_system_id
pcie_replays                   whole     replay_counter|replays_since_reset
pcie_replay_rollovers          whole     replay_rollover_counter|replay_number_rollovers

[pci/pci_gpu_link_info/pcie_gen|pci/gpu_link_info/pcie_generation]
pcie_generation                whole     current_link_gen|current
pcie_generation_max            whole     max_link_gen|max
pcie_generation_device_max     whole     max_device_link_gen|device_max
pcie_generation_host_max       whole     max_host_link_gen|host_max

[pci/pci_gpu_link_info/link_widths|pci/gpu_link_info/link_width]
pcie_width                     whole     current_link_width|current
pcie_width_max                 whole     max_link_width|max

[fb_memory_usage|shared_fb_memory_usage]
memory_total_mib               whole     total
memory_reserved_mib            whole     reserved
memory_used_mib                whole     used
memory_free_mib                whole     free

[bar1_memory_usage|shared_bar1_usage]
bar1_total_mib                 whole     total
bar1_used_mib                  whole     used

[ecc_mode]
ecc_mode                       flag      current_ecc|current
ecc_mode_pending               flag      pending_ecc|pending

[ecc_errors]
channel_repair_pending         flag      channel_repair_pending
tpc_repair_pending             flag      tpc_repair_pending
unrepairable_memory            flag      unrepairable_memory
sram_threshold_exceeded        flag      aggregate/sram_threshold_exceeded

[remapped_rows]
remapped_correctable           whole     remapped_row_corr|correctable_error
remapped_uncorrectable         whole     remapped_row_unc|uncorrectable_error
remap_pending                  flag      remapped_row_pending|pending
remap_failure                  flag      remapped_row_failure|remapping_failure_occurred

[retired_pages]
retired_pages_single_bit       whole     multiple_single_bit_retirement/retired_count|single_bit_ecc
retired_pages_double_bit       whole     double_bit_retirement/retired_count|double_bit_ecc
retired_pages_pending          flag      pending_retirement|pending_blacklist|pending_page_blacklist|pending

[temperature]
temperature_c                  whole     gpu_temp|gpu_current_temp
memory_temperature_c           whole     memory_temp|memory_current_temp
slowdown_c                     whole     gpu_temp_slow_threshold|gpu_slowdown_temp
shutdown_c                     whole     gpu_temp_max_threshold|gpu_shutdown_temp
max_operating_c                whole     gpu_temp_max_gpu_threshold|gpu_max_operating_temp
memory_max_operating_c         whole     gpu_temp_max_mem_threshold|memory_max_operating_temp
t_limit_margin_c               whole     gpu_temp_tlimit|gpu_t_limit_temp|gpu_current_t_limit_temp
slowdown_t_limit_c             whole     gpu_temp_slow_tlimit_threshold|gpu_slowdown_t_limit_temp
shutdown_t_limit_c             whole     gpu_temp_max_tlimit_threshold|gpu_shutdown_t_limit_temp
max_operating_t_limit_c        whole     gpu_temp_max_gpu_tlimit_threshold|gpu_max_operating_t_limit_temp
memory_max_operating_t_limit_c whole     gpu_temp_max_mem_tlimit_threshold|memory_max_operating_t_limit_temp

[gpu_power_readings|power_readings|gpu_power_readings/gpu_ceiling_power_limit]
power_draw_w                   watts     power_draw|average_power_draw|instant_power_draw
power_limit_w                  watts    current_power_limit|enforced_power_limit|current|requested_power_limit
power_limit_requested_w        watts     requested_power_limit|power_limit|requested
power_limit_default_w          watts     default_power_limit|default
power_limit_min_w              watts     min_power_limit|min
power_limit_max_w              watts     max_power_limit|max

[clocks]
clock_graphics_mhz             whole     graphics_clock|graphics
clock_sm_mhz                   whole     sm_clock|sm
clock_memory_mhz               whole     mem_clock|memory

[max_clocks]
clock_max_graphics_mhz         whole     graphics_clock|graphics
clock_max_sm_mhz               whole     sm_clock|sm
clock_max_memory_mhz           whole     mem_clock|memory

[applications_clocks]
clock_app_graphics_mhz         whole     graphics_clock|graphics
clock_app_memory_mhz           whole     mem_clock|memory

[default_applications_clocks]
clock_default_app_graphics_mhz whole     graphics_clock|graphics
clock_default_app_memory_mhz   whole     mem_clock|memory

[max_customer_boost_clocks]
clock_boost_max_graphics_mhz   whole     graphics_clock|graphics

[utilization]
gpu_utilization_percent        whole     gpu_util|gpu
memory_utilization_percent     whole     memory_util|memory

[fabric]
fabric_state                   fstate    state
fabric_status                  fstatus   status
fabric_clique_id               whole     cliqueid
fabric_cluster_uuid            text      clusteruuid
"""

_READERS: dict[str, Reader] = {
    "text": values.text_of,
    "whole": values.leading_integer,
    "watts": values.number,
    "flag": values.flag,
    "word": values.word,
    "pstate": values.pstate,
    "arch": values.architecture,
    "recovery": values.recovery_action,
    "device": values.device_id,
    "subsystem": values.subsystem_id,
    "fstate": values.fabric_state,
    "fstatus": values.fabric_status,
}


class FieldRow(NamedTuple):
    """A field of Gpu, how its text is read, and the paths below a GPU where it may be."""

    field: str
    read: Reader
    paths: tuple[str, ...]


@cache
def rows() -> tuple[FieldRow, ...]:
    """The table, with its headings put in front of the names."""
    return tuple(_parse_rows())


def _parse_rows() -> Iterator[FieldRow]:
    places = [""]
    for line in filter(None, _TABLE.splitlines()):
        if line.startswith("["):
            places = line.strip("[]").split("|")
            continue
        field, read, names = line.split()
        paths = (f"{place}/{name}".lstrip("/") for place in places for name in names.split("|"))
        yield FieldRow(field, _READERS[read], tuple(paths))
