"""What contradicts each other, differs between ranks, never reached them, or is for other machines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from nodedoctor.facts.host.settings import HERE, Settings
from nodedoctor.facts.stack.packages import numbers
from nodedoctor.knowledge.env_vars import env_var
from nodedoctor.lint.remark import NodeContext, Remark, switched_off, switched_on
from nodedoctor.patterns import regex
from nodedoctor.record import record
from nodedoctor.steps import look, repair
from nodedoctor.whole_numbers import whole_number
from nodedoctor.wording import comma_list, count_with_noun, numbered, short_name


@record
class Machine:
    """A kind of machine, and which variables with which values only it needs."""

    name: str
    variable: str
    value: str
    source: str


_TCPX = "cloud.google.com, GPUDirect-TCPX and TCPXO"
_EFA = "aws/aws-ofi-nccl, doc/efa-env-var.md"
MACHINES: tuple[Machine, ...] = (
    Machine("AWS with EFA", r"FI_PROVIDER", r"efa", _EFA),
    Machine("AWS with EFA", r"FI_EFA_\w+", r".+", _EFA),
    Machine("Azure ND", r"NCCL_TOPO_FILE", r"/opt/microsoft/.+", "Azure/azhpc-images, topology files"),
    Machine("Azure ND", r"NCCL_IB_HCA", r"=?mlx5_ib\d?.*", "Azure/azhpc-images, udev names of the rails"),
    Machine("Google Cloud A3", r"NCCL_(?:FASTRAK|GPUDIRECTTCPX)_\w+", r".+", _TCPX),
    Machine("Google Cloud A3", r"NCCL_NET", r"(?i:FasTrak|GPUDirectTCPX)\w*", _TCPX),
)


def judge_machines(variables: Mapping[str, str], node: NodeContext) -> Iterator[tuple[str, Remark]]:
    """The settings of each further kind of machine; a job runs on one."""
    first: dict[str, str] = {}
    for name, value in sorted(variables.items()):
        for row in MACHINES:
            if regex(row.variable).fullmatch(name) and regex(row.value).fullmatch(value.strip()[:400]):
                first.setdefault(row.name, name)
    kinds = list(first)
    for kind in kinds[1:]:
        text = f"for {kind}, while {first[kinds[0]]} is for {kinds[0]}: copied from another kind of machine"
        fix = "Keep the settings of the machines that this job runs on, and remove the others."
        yield first[kind], Remark("warn", text, fix, (repair("unset {}", first[kind]),))


Pair = tuple[str, Remark]
_RINGS = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""The first one wins where both are set (the table's note)."""
SHORTEST_RING = 100
"""Entries; our choice: a step of a large model has so many collectives, and ranks differ by a step or two."""
_OURS = ("NCCL_", "TORCH_", "GLOO_", "SKYRL_", "DEEPSPEED_")
_NOT_OURS = ("TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCH_CUDA_ARCH_LIST", "NCCL_CONF_FILE")


def judge_together(node: NodeContext) -> Iterator[Pair]:
    """(variable, remark) for everything that takes more than one value to see."""
    remarks: set[tuple[str, str]] = set()
    for _, variables in node.settings.environments():
        for rule in _RULES:
            for name, remark in rule(variables, node):
                if (name, remark.text) not in remarks:
                    remarks.add((name, remark.text))
                    yield name, remark
    yield from _between_ranks(node.settings)
    yield from _never_arrived(node.settings)


def _two_names(variables: Mapping[str, str], node: NodeContext) -> Iterator[Pair]:
    """The old and the new name of one setting with different values: the new one counts."""
    for name, old in variables.items():
        row = env_var(name)
        new = variables.get(row.renamed_to) if row and row.renamed_to else None
        if row and new is not None and old != new:
            text = f"{row.renamed_to}={new} is the same setting by its new name, which wins"
            yield (
                row.name,
                Remark("warn", text, f"Keep one: remove {row.name}.", (repair("unset {}", row.name),)),
            )


def _rdma_off(variables: Mapping[str, str], node: NodeContext) -> Iterator[Pair]:
    hcas, net = variables.get("NCCL_IB_HCA"), variables.get("NCCL_NET", "").lower()
    off = switched_on(variables.get("NCCL_IB_DISABLE", "0"))
    if hcas and (off or net == "socket"):
        by = "NCCL_IB_DISABLE=1" if off else f"NCCL_NET={variables['NCCL_NET']}"
        yield "NCCL_IB_HCA", Remark("warn", f"{by} overrides it: no RDMA is used", "Keep one of them.")
    if off and net == "ib":
        text = "NCCL_NET=IB contradicts NCCL_IB_DISABLE=1: NCCL fails, no network is left"
        yield "NCCL_NET", Remark("fail", text, "Remove one of them.", (repair("unset NCCL_IB_DISABLE"),))


def _p2p_off(variables: Mapping[str, str], node: NodeContext) -> Iterator[Pair]:
    if switched_on(variables.get("NCCL_P2P_DISABLE", "0")) and "NCCL_P2P_LEVEL" in variables:
        text = "NCCL_P2P_DISABLE=1 overrides it"
        yield "NCCL_P2P_LEVEL", Remark("warn", text, "Keep one of them; NVL allows only NVLink.")


def _algorithm_pairs(variables: Mapping[str, str], node: NodeContext) -> Iterator[Pair]:
    wanted = {word.strip().upper() for word in variables.get("NCCL_ALGO", "").split(",")}
    nvls = {word for word in wanted if word.startswith("NVLS")}
    if nvls and wanted <= nvls and switched_off(variables.get("NCCL_NVLS_ENABLE", "2")):
        text = "only NVLS is allowed, but NCCL_NVLS_ENABLE=0 disables it: no algorithm is left"
        yield "NCCL_ALGO", Remark("fail", text, "Remove one of them.", (repair("unset NCCL_ALGO"),))


def _least_and_most(variables: Mapping[str, str], node: NodeContext) -> Iterator[Pair]:
    for kind in ("NCHANNELS", "CTAS", "P2P_NCHANNELS"):
        least, most = f"NCCL_MIN_{kind}", f"NCCL_MAX_{kind}"
        low, high = variables.get(least, ""), variables.get(most, "")
        if low.isdecimal() and high.isdecimal() and int(low[:9]) > int(high[:9]):
            yield (
                least,
                Remark(
                    "warn", f"{least}={low} is more than {most}={high}", "Set the minimum below the maximum."
                ),
            )


def _silent_details(variables: Mapping[str, str], node: NodeContext) -> Iterator[Pair]:
    """NVIDIA/nccl, docs/env.rst: the part applies to the level INFO (and TRACE)."""
    level = variables.get("NCCL_DEBUG", "").upper()
    if "NCCL_DEBUG_SUBSYS" in variables and level not in ("INFO", "TRACE"):
        text = f"no effect without NCCL_DEBUG=INFO (NCCL_DEBUG is {level or 'not set'})"
        yield "NCCL_DEBUG_SUBSYS", Remark("warn", text, "Set NCCL_DEBUG=INFO too, or remove it.")


def _empty_dumps(variables: Mapping[str, str], node: NodeContext) -> Iterator[Pair]:
    """Up to torch 2.10 the flight recorder keeps nothing unless it is given a size (its table row)."""
    version = numbers(node.version("torch"))
    size = variables.get("TORCH_FR_BUFFER_SIZE") or variables.get("TORCH_NCCL_TRACE_BUFFER_SIZE") or "0"
    for name in ("TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_ON_TIMEOUT"):
        wanted = switched_on(variables.get(name, "0"))
        if wanted and (2, 2) <= version < (2, 11) and size.strip("0") == "":
            text = f"flight recorder dumps of {node.named('torch')} are empty: no size is set"
            new = "TORCH_FR_BUFFER_SIZE" if version >= (2, 8) else "TORCH_NCCL_TRACE_BUFFER_SIZE"
            yield name, Remark("warn", text, f"Set {new}=2000.", (repair("export {}=2000", new),))


def _short_ring(variables: Mapping[str, str], node: NodeContext) -> Iterator[Pair]:
    """A flight recorder of a few entries holds nothing to compare: ranks are many collectives apart."""
    name = next((ring for ring in _RINGS if variables.get(ring, "")), "")
    size = variables.get(name, "").strip()
    if size.isdecimal() and 0 < int(size[:9]) < SHORTEST_RING:
        entries = count_with_noun(int(size[:9]), "entry")
        text = f"the flight recorder keeps {entries}: too few to compare ranks that are further apart"
        yield name, Remark("warn", text, "Set 2000, torch's own default.", (repair("export {}=2000", name),))


def _sleep_mode(variables: Mapping[str, str], node: NodeContext) -> Iterator[Pair]:
    """vLLM's sleep mode and expandable segments: vllm-project/vllm pull requests 14189 and 40812."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if "expandable_segments:true" in variables.get(name, "").replace(" ", "").lower() and node.vllm:
            text = (
                "vLLM's sleep mode, as reinforcement learning on shared GPUs uses it, cannot have it: vLLM "
                "up to April 2026 stops with an AssertionError, later ones turn it off there (here it is "
                f"{node.vllm})"
            )
            yield name, Remark("note", text)


def _loopback_pairs(variables: Mapping[str, str], node: NodeContext) -> Iterator[Pair]:
    """No process on another node can connect to a listener on lo."""
    why = several_nodes({**node.shell, **variables})
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        words = [word.strip() for word in variables.get(name, "").strip().lstrip("=").split(",")]
        if why and words and set(words) == {"lo"}:
            text = (
                f"only loopback, but the job has several nodes ({why}): ranks of other nodes cannot connect"
            )
            fix = "Set it to the interface that leads to the other nodes, or to ^lo,docker, or unset it."
            yield name, Remark("fail", text, fix, (look("ip -brief address"), repair("unset {}", name)))


def _rack_links_off(variables: Mapping[str, str], node: NodeContext) -> Iterator[Pair]:
    """NVIDIA/nccl, src/mnnvl.cc: without it, and without cuMem, NVLink ends at the node."""
    why = several_nodes({**node.shell, **variables})
    if not (why and switched_off(variables.get("NCCL_MNNVL_ENABLE", "2"))) or node.mnnvl is False:
        return
    where = "" if node.mnnvl else "on GB200 and GB300 "
    text = (
        f"NVLink between nodes is switched off: {where}the traffic between trays of a rack goes through the "
        f"NICs ({why})"
    )
    also = " NCCL_CUMEM_ENABLE=0 switches it off, too." if variables.get("NCCL_CUMEM_ENABLE") == "0" else ""
    fix = f"Unset it, unless IMEX is known to be broken here.{also}"
    steps = (look("nvidia-imex-ctl -N"), repair("unset NCCL_MNNVL_ENABLE NCCL_CUMEM_ENABLE"))
    yield "NCCL_MNNVL_ENABLE", Remark("warn", text, fix, steps)


def several_nodes(variables: Mapping[str, str]) -> str:
    """What says that the job has ranks on several nodes; "" where nothing does."""

    def number(name: str) -> int:
        return whole_number(variables.get(name, "").strip()) or 0

    for name in ("NODE_RANK", "GROUP_RANK", "SLURM_NODEID"):
        if number(name) > 0:
            return f"{name}={number(name)}"
    for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "NNODES"):
        if number(name) > 1:
            return f"{name}={number(name)}"
    pairs = (
        ("WORLD_SIZE", "LOCAL_WORLD_SIZE"),
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("RANK", "LOCAL_RANK"),
    )
    for name, local in pairs:
        if name in variables and local in variables and number(name) > number(local):
            return f"{name}={number(name)}, {local}={number(local)}"
    return ""


_RULES: tuple[Callable[[Mapping[str, str], NodeContext], Iterator[Pair]], ...] = (
    _two_names,
    _rdma_off,
    _p2p_off,
    _algorithm_pairs,
    _least_and_most,
    _silent_details,
    _empty_dumps,
    _short_ring,
    _sleep_mode,
    _loopback_pairs,
    _rack_links_off,
    judge_machines,
)


def _between_ranks(settings: Settings) -> Iterator[Pair]:
    for name, values in settings.differing():
        groups = (
            f"{short_name(value) or 'not set'} in {_rank_names(labels)}" for value, labels in values.items()
        )
        text = f"not the same in all ranks of one job: {comma_list(groups, most=2)}"
        yield name, Remark("warn", text, "Give all ranks of a job the same environment.")


def _never_arrived(settings: Settings) -> Iterator[Pair]:
    """What is set here or in an env file, and in no running rank: it was exported after they were started."""
    if not settings.ranks:
        return
    by_nccl = settings.nccl_files()
    applied = {name for path in by_nccl for name in settings.files[path]}
    places = [(HERE, settings.here)]
    places += [(path, variables) for path, variables in settings.files.items() if path not in by_nccl]
    for place, variables in places:
        for name, value in variables.items():
            if not _is_for_ranks(name) or name in applied:
                continue
            if place == HERE and settings.foreign:
                continue  # a shell beside somebody else's job
            got = [label for label, environment in settings.ranks.items() if environment.get(name) == value]
            if not got:
                yield name, _not_there(name, value, place, settings)


def _is_for_ranks(name: str) -> bool:
    row = env_var(name)
    read = row is not None and not row.phantom and row.owner not in ("packaging", "nccl-tests")
    return read and name.startswith(_OURS) and name not in _NOT_OURS


def _not_there(name: str, value: str, place: str, settings: Settings) -> Remark:
    others = {environment.get(name) for environment in settings.ranks.values()} - {None}
    actual = f"They have {', '.join(sorted(map(str, others)))}. " if others else ""
    text = (
        f"reached 0 of {count_with_noun(len(settings.ranks), 'rank')}, only {place} has it. "
        f"{actual}Exports after `ray start` or after the launch never reach workers"
    )
    fix = "Set it before `ray start`, in the runtime_env or the job's env file, and restart the job."
    return Remark("warn", text, fix)


def _rank_names(labels: tuple[str, ...]) -> str:
    """The numbers of ranks, or how many processes where one has no number."""
    matches = [re.match(r"rank (\d+)", label) for label in labels]
    numbers = [int(match[1]) for match in matches if match]
    return (
        numbered("rank", numbers) if len(numbers) == len(labels) else count_with_noun(len(labels), "process")
    )
