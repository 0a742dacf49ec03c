"""What is known about one GPU, whichever source said it: NVML, `nvidia-smi -q -x`, `-q` or the table.

These are the nouns of the readings in `facts/gpu/nvml/nvml.py` and `facts/gpu/smi/smi.py`; the fact that
checks ask for is `gpus.Gpus`.
A value that is None was not said, and `errors` holds the reason under the name of the field.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodedoctor.knowledge.error_codes import QUIET
from nodedoctor.model import Reason
from nodedoctor.record import field, record

HARMLESS = QUIET | {"NO_VALUE", "NOT_ASKED"}
"""Reasons for a missing value that hide nothing: there is no such thing, or this source does not tell."""


@record
class NvLink:
    """One NVLink of a GPU. Speed is per direction, in GB/s (H100: 26.562), None while the link is down.

    `counters` are errors since the last reset by name: crc_flit crc_data replay recovery ecc (up to NVLink 4,
    CRC saturates at 65535), and symbol_errors, effective_errors, link_recovery_failed ... from NVLink 5 on.
    `ber` are bit error rates by name (NVLink 5: symbol, effective). `errors` explains what is missing.
    """

    link: int
    active: bool | None = None
    version: str | None = None  # "4.0"
    speed_gbytes_s: float | None = None
    remote_type: str | None = None  # gpu switch npu unknown
    remote_bus_id: str | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    ber: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)


@record
class GpuPeer:
    """What P2P this GPU is said to have with another one (by index), and the PCIe path to it.

    A status is one of: ok chipset-not-supported gpu-not-supported topology-not-supported disabled-by-regkey
    not-supported unknown. `path` is a token of `topo -m` that ignores NVLink: PIX PXB PHB NODE SYS.
    """

    index: int
    read: str | None = None
    write: str | None = None
    nvlink: str | None = None
    atomics: str | None = None
    pcie: str | None = None
    path: str | None = None
    errors: Mapping[str, str] = field(default_factory=dict)


@record
class GpuProcess:
    """A process that holds a context on a GPU. `kind` is compute, graphics or mps.

    `used_mib` is None where the driver keeps no account (containers, vGPU, WSL2). `name` is the program,
    never its arguments. The pid is the host's, so in a container it may name nothing.
    """

    pid: int
    kind: str
    used_mib: int | None = None
    name: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


@record
class BankAvailability:
    """How many memory banks have how many spare rows left for remapping; many in `none` is the end."""

    max: int
    high: int
    partial: int
    low: int
    none: int


@record
class Gpu:
    """One GPU. Bits of a name: `_pending` applies after the next reset, volatile counts since driver load.

    Temperatures are absolute, except the `t_limit` family (Hopper, Ada data centre, Blackwell), where
    `t_limit_margin_c` is the distance left and the thresholds are distances too (slowdown at -2).
    """

    index: int  # below 0, from the end of the text, where nothing names it and others are named
    numbered: bool = True  # whether the index is the driver's own, not a place in a text that was cut

    # Identity
    name: str | None = None
    uuid: str | None = None
    serial: str | None = None
    bus_id: str | None = None  # 0000:4b:00.0
    minor: int | None = None  # /dev/nvidia<minor>
    module_id: int | None = None  # position on an HGX board, 1..8
    brand: str | None = None
    architecture: str | None = None  # hopper
    compute_capability: str | None = None  # 9.0
    pci_device_id: str | None = None  # 2330
    pci_subsystem_id: str | None = None  # 16c1:10de as device:vendor
    board_part_number: str | None = None
    vbios_version: str | None = None
    gsp_firmware_version: str | None = None
    inforom_image_version: str | None = None
    inforom_oem_version: str | None = None
    inforom_ecc_version: str | None = None
    inforom_power_version: str | None = None

    # Modes
    persistence_mode: bool | None = None
    compute_mode: str | None = None  # default exclusive-thread prohibited exclusive-process
    mig_mode: bool | None = None
    mig_mode_pending: bool | None = None
    mig_devices: int | None = None
    virtualization_mode: str | None = None  # none pass-through vgpu host-vgpu host-vsga
    vgpu_license: str | None = None  # as nvidia-smi says it: Licensed (Expiry: ...), Unlicensed (Restricted)
    addressing_mode: str | None = None  # none hmm ats
    confidential_compute: bool | None = None
    recovery_action: str | None = None  # none gpu-reset node-reboot drain-p2p drain-and-reset ...
    reset_required: bool | None = None
    drain_and_reset_recommended: bool | None = None

    # Memory; `used` leaves out `reserved` when that is known, else it is part of it
    memory_total_mib: int | None = None
    memory_reserved_mib: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    bar1_total_mib: int | None = None
    bar1_used_mib: int | None = None

    # Memory errors
    ecc_mode: bool | None = None
    ecc_mode_pending: bool | None = None
    ecc_volatile_correctable: int | None = None
    ecc_volatile_uncorrectable: int | None = None
    ecc_aggregate_correctable: int | None = None
    ecc_aggregate_uncorrectable: int | None = None
    ecc_volatile_sram_correctable: int | None = None
    ecc_volatile_sram_uncorrectable: int | None = None
    ecc_volatile_dram_correctable: int | None = None
    ecc_volatile_dram_uncorrectable: int | None = None
    ecc_aggregate_sram_correctable: int | None = None
    ecc_aggregate_sram_uncorrectable: int | None = None
    ecc_aggregate_dram_correctable: int | None = None
    ecc_aggregate_dram_uncorrectable: int | None = None
    sram_threshold_exceeded: bool | None = None
    sram_uncorrectable_by_unit: Mapping[str, int] | None = None  # l2 sm microcontroller pcie other
    channel_repair_pending: bool | None = None
    tpc_repair_pending: bool | None = None
    unrepairable_memory: bool | None = None
    remapped_correctable: int | None = None
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    remap_banks: BankAvailability | None = None
    retired_pages_single_bit: int | None = None
    retired_pages_double_bit: int | None = None
    retired_pages_pending: bool | None = None

    # Heat
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    slowdown_c: int | None = None
    shutdown_c: int | None = None
    max_operating_c: int | None = None
    memory_max_operating_c: int | None = None
    t_limit_margin_c: int | None = None
    slowdown_t_limit_c: int | None = None
    shutdown_t_limit_c: int | None = None
    max_operating_t_limit_c: int | None = None
    memory_max_operating_t_limit_c: int | None = None
    fan_percent: int | None = None

    # Power; `requested` is what an administrator asked for, `limit` what is enforced
    power_draw_w: float | None = None
    power_limit_w: float | None = None
    power_limit_requested_w: float | None = None
    power_limit_default_w: float | None = None
    power_limit_min_w: float | None = None
    power_limit_max_w: float | None = None
    energy_j: float | None = None  # since driver load

    # Clocks; reasons as in the XML: gpu_idle sw_power_cap hw_slowdown hw_thermal_slowdown ...
    pstate: int | None = None
    clock_graphics_mhz: int | None = None
    clock_sm_mhz: int | None = None
    clock_memory_mhz: int | None = None
    clock_max_graphics_mhz: int | None = None
    clock_max_sm_mhz: int | None = None
    clock_max_memory_mhz: int | None = None
    clock_app_graphics_mhz: int | None = None
    clock_app_memory_mhz: int | None = None
    clock_default_app_graphics_mhz: int | None = None
    clock_default_app_memory_mhz: int | None = None
    clock_boost_max_graphics_mhz: int | None = None
    clock_event_reasons: tuple[str, ...] | None = None
    clock_event_seconds: Mapping[str, float] | None = None  # by reason, since driver load
    gpu_utilization_percent: int | None = None
    memory_utilization_percent: int | None = None

    # PCIe; `max` is what GPU and slot have in common
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_generation_device_max: int | None = None
    pcie_generation_host_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    pcie_replay_rollovers: int | None = None
    pcie_errors: Mapping[str, int] | None = None  # correctable naks_received receiver bad_tlp ... fatal

    # Neighbourhood
    cpu_affinity: str | None = None  # 0-47,96-143
    numa_nodes: str | None = None  # of the CPUs next to it, as 0 or 0-1
    gpu_numa_node: int | None = None  # of its own memory, on coherent systems only
    peers: tuple[GpuPeer, ...] | None = None

    # NVLink and fabric
    nvlinks: tuple[NvLink, ...] | None = None  # () when the model has none
    nvlink_switch_links: int | None = None
    c2c_links: int | None = None  # to the Grace CPU
    c2c_active: int | None = None
    fabric_state: str | None = None  # not-supported not-started in-progress completed
    fabric_status: str | None = None  # SUCCESS, INSUFFICIENT_RESOURCES ...; means nothing until completed
    fabric_clique_id: int | None = None
    fabric_cluster_uuid: str | None = None
    fabric_health: Mapping[str, str] | None = None  # by XML tag: bandwidth full|degraded, route_unhealthy ...

    # Load
    processes: tuple[GpuProcess, ...] | None = None

    # Field -> NOT_SUPPORTED, TIMEOUT, NOT_ASKED ...; of links, peers and counters also of a part of them.
    errors: Mapping[str, str] = field(default_factory=dict)
    # Fields that most GPUs of its kind tell and this one does not, whatever the reason.
    untold_here: tuple[str, ...] = ()
    printed: str = ""  # its lines of the table, where it was read from that
    # Field -> the source that said it, where that is not the one that said the others.
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """How findings call this GPU: by its index, or its address where the index is not the driver's."""
        own = self.index if self.numbered or not self.bus_id else self.bus_id
        return f"gpu:{'?' * -self.index or own}"

    @property
    def handle(self) -> int | str | None:
        """What names this very GPU to `nvidia-smi -i`; None where nothing does.

        A text cut out of a longer one does not tell the index: the GPU that comes first may be any.
        """
        return self.index if self.numbered else self.bus_id

    @property
    def selector(self) -> int | str:
        """The same as a word of a command; its place in the text where nothing names it."""
        return self.index if self.handle is None else self.handle


NOT_READ = frozenset({"index", "numbered", "errors", "untold_here", "printed", "sources"})
"""Fields of a GPU that are no values of its own."""


@record
class LostGpu:
    """A GPU that is counted but cannot be read: `error` is GPU_IS_LOST, UNKNOWN, NO_PERMISSION ...

    Or one of our own words: NO_ANSWER and CRASH for the one the source was at when it hung or died,
    NOT_ASKED for those after it.
    """

    index: int | None
    bus_id: str | None
    error: str
    text: str = ""

    @property
    def subject(self) -> str:
        """How findings call this GPU: by index, else by address, "" where neither is known."""
        if self.index is not None:
            return f"gpu:{self.index}"
        return f"pci:{self.bus_id}" if self.bus_id else ""


@record
class CallError:
    """One question that the driver answered with an error, which is not that it has nothing of the kind.

    `index` is the GPU, None for a question about all; `link` and `peer` say which of its links, or with which
    other GPU; `call` is the function's name, `error` that of the code.
    """

    index: int | None
    call: str
    error: str
    link: int | None = None
    peer: int | None = None


@record
class InitError:
    """Why the driver's library did not start: name and code as in nvml.h, and the text people search for."""

    name: str
    code: int | None
    text: str


@record
class SlowCall:
    """One library call that took noticeably long; a driver that is about to hang is slow first."""

    index: int | None
    call: str
    seconds: float


@record
class GpuReading:
    """Everything one source said about all GPUs. `source` is nvml nvidia-smi-xml nvidia-smi-q or nvidia-smi.

    With `init_error` nothing else was readable. `counted` is how many GPUs the driver says there are, those
    in `lost` included. `excluded` are the bus ids that an administrator hid from the driver. `interrupted`
    says why the source did not finish (timeout, stuck, crash): what is here is what it said until then.
    """

    source: str
    driver_version: str | None = None
    cuda_version: str | None = None  # 12.8, the newest CUDA this driver serves
    nvml_version: str | None = None
    driver_branch: str | None = None
    library: str | None = None  # path of libnvidia-ml really loaded
    counted: int | None = None
    gpus: tuple[Gpu, ...] = ()
    lost: tuple[LostGpu, ...] = ()
    excluded: tuple[str, ...] = ()
    init_error: InitError | None = None
    interrupted: Reason | None = None
    interrupted_note: str = ""
    confidential_compute: bool | None = None
    seconds: float | None = None
    init_seconds: float | None = None
    slow_calls: tuple[SlowCall, ...] = ()
    call_errors: tuple[CallError, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
