"""All that plug-ins import: how to declare a check, a probe and a fact, and every fact there is to ask for.

    from nodedoctor.plugin import Finding, Machine, check

A check is a function under `@check` that yields `Finding`s, with a `Fix` and `Evidence` where it has them.
Its parameters name the facts it needs by their type; `X | None` makes one optional. A new kind of evidence is
a function under `@probe`, which plans a `Command` (or `skipped(name, why)`), and a class under `@fact` and
`@record` whose `parse` makes it of an `Observation`, or says by an `Unseen` why it cannot.

The names here keep their meaning; everything else of nodedoctor may change with any version. Importing this
imports every fact, which costs a run nothing: it has them all before it loads the first plug-in.
"""

from nodedoctor.declare.registry import Command, Lane, Options, check, fact, probe, skipped
from nodedoctor.facts.cluster.ray_node import RayCluster, RaySession
from nodedoctor.facts.cluster.slurm import SlurmNode
from nodedoctor.facts.driver.answers import DriverAnswers
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.driver.packages import DriverPackages
from nodedoctor.facts.driver.services import Services
from nodedoctor.facts.fabric.fabric_manager import FabricManager
from nodedoctor.facts.fabric.fabric_nodes import FabricNodes
from nodedoctor.facts.fabric.imex_domain import ImexDomain
from nodedoctor.facts.gpu.board import Board, GraceGpus
from nodedoctor.facts.gpu.gpu_list import ListedGpus, ListedNames
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.inventory import Inventory
from nodedoctor.facts.gpu.links.error_growth import ErrorGrowth
from nodedoctor.facts.gpu.links.nvlinks import NvLinks
from nodedoctor.facts.gpu.links.p2p import PeerAccess
from nodedoctor.facts.gpu.links.topology import Topology
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading
from nodedoctor.facts.gpu.smi.smi import SmiQ, SmiTable, SmiXml
from nodedoctor.facts.host.cloud_plugins import CloudPlugins
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.disk import Disk
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.host import Host
from nodedoctor.facts.host.limits import Limits
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.host.mounts import Fstab
from nodedoctor.facts.host.numa import Numa
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.host.settings import Settings
from nodedoctor.facts.host.system_packages import SystemPackages
from nodedoctor.facts.host.waivers import Waivers
from nodedoctor.facts.kernel.kernel_log import KernelLog
from nodedoctor.facts.measured.bandwidth import Bandwidth
from nodedoctor.facts.measured.collective import Collective, Isolation
from nodedoctor.facts.measured.deep_tools import DcgmDiag, NcclTests, NvBandwidth
from nodedoctor.facts.measured.gemm import Gemm
from nodedoctor.facts.measured.host_rates import DiskRates, MemoryRates
from nodedoctor.facts.measured.matrices import RateMatrices
from nodedoctor.facts.network.net import Ethtool, Net
from nodedoctor.facts.network.peers import Peers
from nodedoctor.facts.pci.config_space import PcieTree
from nodedoctor.facts.pci.iommu import Iommu
from nodedoctor.facts.pci.lspci import Lspci, LspciAcs
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.facts.rdma.error_growth import RdmaGrowth
from nodedoctor.facts.rdma.ibstat import IbStat, IbStatus, IbvDevinfo, RdmaLink
from nodedoctor.facts.rdma.loopback import IbLoopback
from nodedoctor.facts.rdma.ports import Ib, Rails
from nodedoctor.facts.rdma.sysfs import Rdma
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.libraries import Libraries
from nodedoctor.facts.stack.loaded_nccl import LoadedNccl
from nodedoctor.facts.stack.probe import ImportedTorch
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.facts.verdicts.verdicts import OtherTools
from nodedoctor.model import Evidence, Finding, Fix, Moment, Observation, Outcome, Unseen
from nodedoctor.record import record

__all__ = [
    "Bandwidth",
    "Board",
    "CloudPlugins",
    "Collective",
    "Command",
    "Container",
    "DcgmDiag",
    "Disk",
    "DiskRates",
    "Driver",
    "DriverAnswers",
    "DriverPackages",
    "Env",
    "ErrorGrowth",
    "Ethtool",
    "Evidence",
    "FabricManager",
    "FabricNodes",
    "Finding",
    "Fix",
    "Fstab",
    "Gemm",
    "Gpus",
    "GraceGpus",
    "Host",
    "Ib",
    "IbLoopback",
    "IbStat",
    "IbStatus",
    "IbvDevinfo",
    "ImexDomain",
    "ImportedTorch",
    "Inventory",
    "Iommu",
    "Isolation",
    "KernelLog",
    "Lane",
    "Libraries",
    "Limits",
    "ListedGpus",
    "ListedNames",
    "LoadedNccl",
    "Lspci",
    "LspciAcs",
    "Machine",
    "MemoryRates",
    "Moment",
    "NcclTests",
    "Net",
    "Numa",
    "NvBandwidth",
    "NvLinks",
    "NvmlReading",
    "Observation",
    "Options",
    "OtherTools",
    "Outcome",
    "Pci",
    "PcieTree",
    "PeerAccess",
    "Peers",
    "Processes",
    "Rails",
    "RateMatrices",
    "RayCluster",
    "RaySession",
    "Rdma",
    "RdmaGrowth",
    "RdmaLink",
    "Services",
    "Settings",
    "SlurmNode",
    "SmiQ",
    "SmiTable",
    "SmiXml",
    "SystemPackages",
    "TargetPython",
    "Topology",
    "Torch",
    "Unseen",
    "Waivers",
    "check",
    "fact",
    "probe",
    "record",
    "skipped",
]
