"""Do the environment variables of the libraries do what they were set for?"""

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.nvlinks import NvLinks
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.settings import Setting, Settings
from nodedoctor.facts.network.net import Net
from nodedoctor.facts.rdma.sysfs import Rdma
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.libraries import Libraries
from nodedoctor.facts.stack.loaded_nccl import LoadedNccl
from nodedoctor.facts.stack.requirements import wheels_of
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.knowledge.gpus import gpu_model, is_datacentre
from nodedoctor.lint.devices import judge_devices, unseen_devices
from nodedoctor.lint.habits import judge_forwarding, judge_habit
from nodedoctor.lint.names import judge_name
from nodedoctor.lint.remark import NodeContext, Remark
from nodedoctor.lint.together import judge_together
from nodedoctor.lint.values import judge_value
from nodedoctor.model import Finding, Fix, Reason
from nodedoctor.steps import look
from nodedoctor.wording import comma_list, count_with_noun, sentences

RULES = (judge_name, judge_value, judge_devices, judge_habit, judge_forwarding)

_VALUE = 40
"""Characters of a value in a summary, so that what is wrong with it fits beside it; our choice. Evidence has
longer ones."""
_RACK = re.compile(r"\bG[BH][23]00\b")
"""GPUs of machines whose NVLink may reach beyond the node: GH200 NVL32, GB200 and GB300 NVL72."""
_UNREAD: dict[str, Reason] = {"TIMEOUT": "timeout", "EACCES": "denied", "EPERM": "denied"}


@check(
    "env.lint",
    "Environment variables",
    tags={"fast"},
    without=(TargetPython, Torch, Libraries, LoadedNccl, Gpus, NvLinks, Net, Rdma, Env),
)
def lint(
    settings: Settings,
    target: TargetPython | None,
    torch: Torch | None,
    libraries: Libraries | None,
    loaded: LoadedNccl | None,
    gpus: Gpus | None,
    nvlinks: NvLinks | None,
    net: Net | None,
    rdma: Rdma | None,
    env: Env | None,
) -> Iterator[Finding]:
    """Variables of NCCL, torch, CUDA, Gloo, Ray and UCX: here, in NCCL's files, in --env-file and in ranks.

    Unknown and unused names, names and values of other versions, units, contradictions, devices that do not
    exist, debug settings left on, and variables that are set too late to reach the ranks.
    Why: a wrong variable breaks the job or slows it down, or has no effect although the job relies on it.
    Fix disturbs: nothing; the job reads its environment at start.
    Judges: FAIL for values that break a job, WARN for names that nothing reads, wrong units and
    contradictions, notes for the rest.
    Fix: Correct or remove the variable where the job sets it.
    Threshold: The environment table: each variable with its source and versions.
    False positives: Variables of programs that the table does not know but that look like NCCL's.
    """
    node = _node_context(settings, target, torch, libraries, loaded, gpus, nvlinks, net, rdma, env)
    remarks = _collect_remarks(settings, node)
    values = {name: [setting for setting in settings.all() if setting.name == name] for name in remarks}
    for name in sorted(remarks):
        yield _variable_finding(name, remarks[name], values[name])
    blind = {name: place for name, place in unseen_devices(settings, node) if name not in remarks}
    for name, place in sorted(blind.items()):
        summary = f"{name}={settings.value(name)}: unknown whether it exists here ({place})"
        yield Finding.unknown("not-visible-here", summary, subject=f"env:{name}")
    for path, error in settings.unread.items():
        yield _unread_file(path, error)
    for path, names in settings.misread.items():
        yield _misread_names(path, names)
    if not (remarks or blind or settings.unread or settings.misread):
        count = len({setting.name for setting in settings.all()})
        yield Finding.ok(
            f"{count_with_noun(count, 'library variable')} set{_where_set(settings)}, none wrong"
        )


def _unread_file(path: str, error: str) -> Finding:
    if error == "ENOENT":
        return Finding.warn(f"{path} is set, but no such file", subject=f"file:{path}")
    reason = _UNREAD.get(error, "denied")
    return Finding.unknown(reason, f"{path} could not be read: {error}", subject=f"file:{path}")


def _where_set(settings: Settings) -> str:
    return (
        f" here and in {count_with_noun(len(settings.ranks), 'training process')}"
        if settings.ranks
        else " here"
    )


def _collect_remarks(settings: Settings, node: NodeContext) -> dict[str, list[Remark]]:
    """Everything there is to say, by variable; the same words for several values count once."""
    by_name: dict[str, list[Remark]] = {}
    for setting in settings.all():
        for rule in RULES:
            for remark in rule(setting, node):
                remarks = by_name.setdefault(setting.name, [])
                remarks += [] if remark in remarks else [remark]
    for name, remark in judge_together(node):
        by_name.setdefault(name, []).append(remark)
    return by_name


def _variable_finding(name: str, remarks: list[Remark], settings: list[Setting]) -> Finding:
    """One finding per variable: the gravest remark first, the others after it."""
    ordered = sorted(remarks, key=lambda remark: -remark.rank)
    worst = ordered[0]
    values = sorted({setting.value for setting in settings})
    head = f"{name}={values[0]}" if len(values) == 1 and len(values[0]) <= _VALUE else name
    first, *more = (sentence for remark in ordered for sentence in sentences(remark.text))
    fix = _variable_fix(name, ordered)
    evidence = [setting.said for setting in settings]
    judge = {"fail": Finding.fail, "warn": Finding.warn, "note": Finding.info}[worst.level]
    finding = judge(f"{head}: {first}", subject=f"env:{name}", evidence=evidence, fix=fix)
    return finding.matters_as(" ".join(f"{sentence}." for sentence in more)) if more else finding


def _variable_fix(name: str, remarks: list[Remark]) -> Fix | None:
    first = next((remark for remark in remarks if remark.fix), None)
    if first is None:
        return None
    steps = first.steps or (look("env | grep -F {}", f"{name}="),)
    return Fix(first.fix, steps, "restart-job", "the job", "nodedoctor env.lint", first.docs)


def _misread_names(path: str, names: tuple[str, ...]) -> Finding:
    """NVIDIA/nccl, src/misc/param.cc: what is before = is the name, what is after it the value."""
    return Finding.warn(
        f"{path}: NCCL takes lines literally; {comma_list(names)} with `export`, quotes or blanks "
        "has no effect",
        subject=f"file:{path}",
        fix=Fix(
            "Write NAME=VALUE and nothing else.",
            (look("cat {}", path),),
            "config",
            verify="nodedoctor env.lint",
        ),
    )


def _node_context(
    settings: Settings,
    target: TargetPython | None,
    torch: Torch | None,
    libraries: Libraries | None,
    loaded: LoadedNccl | None,
    gpus: Gpus | None,
    nvlinks: NvLinks | None,
    net: Net | None,
    rdma: Rdma | None,
    env: Env | None,
) -> NodeContext:
    ports = [(hca, port) for hca in rdma.hcas for port in hca.ports] if rdma else []
    silent = [hca.name for hca in rdma.hcas if not hca.ports] if rdma else []
    names = (*(f"{hca.name}/{port.number}" for hca, port in ports), *silent)
    return NodeContext(
        settings,
        nccl=_nccl_version(target, libraries, loaded),
        torch=torch.version if torch else "",
        rocm=bool(torch and torch.hip),
        interfaces=tuple(interface.name for interface in net.interfaces) if net and net.interfaces else None,
        hcas=names if rdma else None,
        active_rdma=any(port.active for _, port in ports) if rdma else None,
        nvlink=_has_nvlink(gpus, nvlinks),
        consumer=_are_consumer(gpus, env),
        gpu_count=len(gpus.gpus) + len(gpus.lost) if gpus and gpus.gpus else None,
        skyrl=_package_version(target, "skyrl", "skyrl-train"),
        vllm=_package_version(target, "vllm"),
        shell=env.variables if env else {},
        mnnvl=any(_RACK.search(gpu.name or "") for gpu in gpus.gpus) if gpus and gpus.gpus else None,
    )


def _are_consumer(gpus: Gpus | None, env: Env | None) -> bool:
    """Whether all GPUs are cards of workstations, by the driver's names, else by those in a pasted text."""
    cards = gpus.gpus if gpus else ()
    if not cards:
        return bool(env and env.cards and not any(is_datacentre(name) for name in env.cards))
    return not any(is_datacentre(gpu.name or "", gpu.pci_device_id or "") for gpu in cards)


def _package_version(target: TargetPython | None, *names: str) -> str:
    """The version of a package, by any of its names."""
    packages = (target.package(name) for name in names) if target else ()
    return next((package.version for package in packages if package), "")


def _nccl_version(target: TargetPython | None, libraries: Libraries | None, loaded: LoadedNccl | None) -> str:
    """The version that ranks have mapped, else the one torch would load, else what is installed."""
    if loaded is not None and len(loaded.versions) == 1:
        return loaded.versions[0]
    won = libraries.winner("libnccl.so") if libraries else None
    if won is not None and won[1] is not None and won[1].version:
        return won[1].version
    if libraries is not None and libraries.nccl_built_in:
        return libraries.nccl_built_in
    wheels = wheels_of(target, "nccl") if target else ()
    return wheels[0].version if len(wheels) == 1 else ""


def _has_nvlink(gpus: Gpus | None, nvlinks: NvLinks | None) -> bool | None:
    """Whether GPUs here are joined by NVLink: by their links, else by their model."""
    if nvlinks is not None and any(link.active for gpu in nvlinks.gpus for link in gpu.links):
        return True
    models = [gpu_model(gpu.name or "", gpu.pci_device_id or "") for gpu in gpus.gpus] if gpus else []
    rows = [model for model in models if model]
    if not rows or len(rows) < len(models):
        return None
    if len(rows) > 1 and any(model.nvlink_links and not model.nvlink_optional for model in rows):
        return True
    bridged = len(rows) > 1 and any(model.nvlink_links for model in rows)  # or not: it was not seen
    return None if bridged else False
