"""Do Slurm's GPUs and those of the node agree?"""

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.cluster.slurm import NO_SLURM, SlurmNode
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.processes import Processes
from nodedoctor.knowledge.slurm_states import is_trouble, kinds_of
from nodedoctor.model import Finding, Fix, quoted_like, reading
from nodedoctor.patterns import regex
from nodedoctor.steps import look, repair
from nodedoctor.wording import comma_list, count_with_noun, singular_or_plural

_SERVICES = ("persistenced", "fabricmanager", "dcgm")
_FEWER = regex(r"count reported lower than configured")
"""What slurmctld writes when slurmd finds fewer GPUs (Slurm, src/interfaces/gres.c)."""
DOCS = "https://slurm.schedmd.com/gres.html"


@check("slurm.gres", "Slurm GPUs (GRES)", tags={"slurm"}, without=(Processes,), stage="preview")
def gres(
    node: SlurmNode | None, env: Env | None, gpus: Gpus | None, processes: Processes | None
) -> Iterator[Finding]:
    """Slurm's GRES for this node against the driver's GPUs, a job's share against what it sees, leftovers.

    Why: Slurm starts jobs on missing GPUs, or a job sees fewer than it was granted; leftover processes hold
    GPU memory that the next job needs.
    Fix disturbs: the node (it must be drained).
    Judges: FAIL when Slurm's GPUs for the node differ from the driver's or a job sees fewer than granted;
    WARN for leftovers on an idle node, and where Slurm has the node down, or drained for no plan.
    Fix: Correct gres.conf or drain the node; end leftover processes.
    Threshold: No threshold: counts are compared (slurm.schedmd.com/gres.html).
    False positives: Nodes of which Slurm manages a part on purpose.
    Error texts:
    - gres/gpu count reported lower than configured
    """
    job = env.get("SLURM_JOB_ID") if env else None
    if node is None and job is None:
        yield Finding.skip(NO_SLURM)
        return
    count = len(gpus.gpus) if gpus and not gpus.interrupted else None
    if job is not None and env is not None:
        yield from _judge_grant(job, env.get("SLURM_GPUS_ON_NODE"), count)
    elif node is not None:
        yield from _judge_configuration(node, gpus, count)
    if node is not None and node.idle and processes is not None:
        yield from _find_leftovers(node, processes)
    kinds = kinds_of(node.states) if node is not None else set()
    if node is not None and kinds & {"fault", "drain", "maintenance"}:
        state = "+".join(node.states)
        why = f": {node.reason}" if node.reason else ""
        summary = f"Slurm state of {node.name}: {state}{why}"
        if _FEWER.search(node.reason):
            summary = f"{node.name}: {node.reason} (Slurm: {state})"
            evidence = [quoted_like("slurm-node", r"\bReason=.*")]
            finding = Finding.warn(summary, subject="slurm:state", evidence=evidence, fix=_find_gpus(node))
            yield finding.matters_as(
                "Slurm starts no job here until the node has the GPUs of its configuration."
            )
        elif is_trouble(node.states, node.reason):
            evidence = [quoted_like("slurm-node", rf"\b{key}=.*") for key in ("State", "Reason")]
            shown = evidence if node.reason else evidence[:1]
            fix = _find_daemon(node) if "fault" in kinds else _resume(node)
            yield Finding.warn(summary, subject="slurm:state", evidence=shown, fix=fix)
        else:
            yield Finding.info(summary, subject="slurm:state")


def _judge_grant(job: str, gpus_on_node: str | None, count: int | None) -> Iterator[Finding]:
    """Inside a job the driver shows what its control group lets through."""
    if gpus_on_node is None or not gpus_on_node.isdecimal() or count is None:
        yield Finding.skip(f"job {job}: GPUs granted or GPUs visible unknown")
        return
    granted = int(gpus_on_node[:6])
    evidence = [
        reading("env", f"variables.{name}", like=rf"^{name}=.*")
        for name in ("SLURM_JOB_ID", "SLURM_GPUS_ON_NODE")
    ]
    if count < granted:
        fix = Fix(
            "Drain the node; check for GPUs that fell off the bus, and the job's device cgroup.",
            (look("nodedoctor driver kernel"), look("scontrol show job -d {}", job)),
            "drain",
            "the job",
            "nodedoctor slurm.gres",
            DOCS,
        )
        summary = f"job {job} was granted {count_with_noun(granted, 'GPU')} and sees {count}"
        finding = Finding.fail(summary, subject="slurm:granted", evidence=evidence, fix=fix)
        yield finding.explained_by("driver.answers@any", "driver.gpus-present@any")
    elif count > granted:
        summary = (
            f"job {job} was granted {count_with_noun(granted, 'GPU')} and sees {count}: devices are "
            "not constrained"
        )
        fix = Fix(
            "Set ConstrainDevices=yes in cgroup.conf.",
            (look("scontrol show config | grep -i cgroup"),),
            "config",
            "jobs started later",
            docs=DOCS,
        )
        yield Finding.info(summary, subject="slurm:granted", evidence=evidence, fix=fix)
    else:
        summary = f"job {job} sees all {count_with_noun(count, 'GPU')} it was granted"
        yield Finding.ok(summary, subject="slurm:granted", evidence=evidence)


def _judge_configuration(node: SlurmNode, gpus: Gpus | None, count: int | None) -> Iterator[Finding]:
    if node.gpus is None or count is None or gpus is None:
        missing = "Slurm's GRES" if node.gpus is None else "the driver's GPUs"
        yield Finding.unknown("not-visible-here", f"{missing} could not be seen", subject="slurm:gres")
        return
    evidence = [*(quoted_like("slurm-node", rf"\b{key}=\S+") for key in ("NodeName", "Gres", "State"))]
    what = f"Slurm configures {count_with_noun(node.gpus, 'GPU')} for {node.name}, the driver reports {count}"
    fix = _find_gpus(node)
    if any(gpu.mig_mode for gpu in gpus.gpus):
        yield Finding.info(
            f"{what} (with MIG, Slurm counts instances)", subject="slurm:gres", evidence=evidence
        )
    elif node.gpus > count:
        finding = Finding.fail(what, subject="slurm:gres", evidence=evidence, fix=fix)
        yield finding.explained_by("driver.answers@any", "driver.gpus-present@any")
    elif node.gpus < count:
        yield Finding.info(f"{what}: some are never allocated", subject="slurm:gres", evidence=evidence)
    else:
        yield Finding.ok(
            f"{count_with_noun(count, 'GPU')} in Slurm and in the driver",
            subject="slurm:gres",
            evidence=evidence,
        )


def _find_gpus(node: SlurmNode) -> Fix:
    is_out = bool(kinds_of(node.states) & {"drain", "fault"})
    drain = repair(
        "scontrol update NodeName={} State=DRAIN Reason=gres",
        node.name,
        disturbs="pending jobs for this node; running jobs continue",
    )
    return Fix(
        f"{'Find' if is_out else 'Drain the node and find'} the GPUs; if the number is intended, correct "
        "slurm.conf and gres.conf.",
        (*(() if is_out else (drain,)), look("slurmd -C"), look("nodedoctor driver")),
        "drain",
        "the node, once its jobs have ended",
        "nodedoctor slurm.gres",
        DOCS,
    )


def _resume(node: SlurmNode) -> Fix:
    return Fix(
        "Repair what the reason names, and return the node to Slurm when it is healthy.",
        (
            look("scontrol show node {}", node.name),
            look("nodedoctor"),
            repair("scontrol update NodeName={} State=RESUME", node.name, when="the reason is repaired"),
        ),
        "investigate",
        "nothing",
        "nodedoctor slurm.gres",
        "https://slurm.schedmd.com/scontrol.html",
    )


def _find_daemon(node: SlurmNode) -> Fix:
    return Fix(
        "Find out why Slurm lost it: whether slurmd runs and reaches the controller, and its log.",
        (
            look("systemctl status slurmd"),
            look("scontrol show node {}", node.name),
            look("scontrol ping"),
        ),
        "investigate",
        "nothing",
        "nodedoctor slurm.gres",
        "https://slurm.schedmd.com/troubleshoot.html",
    )


def _find_leftovers(node: SlurmNode, processes: Processes) -> Iterator[Finding]:
    """Slurm runs no job here, so a process that holds a GPU was left behind, or was started without Slurm."""
    leftovers = [
        process for process in processes.holding_gpus if process.role not in _SERVICES and process.uid != 0
    ]
    if leftovers:
        names = comma_list((process.label for process in leftovers), 3)
        yield Finding.warn(
            f"{node.name} is idle in Slurm, but {count_with_noun(len(leftovers), 'process')} "
            f"{singular_or_plural(len(leftovers), 'holds', 'hold')} GPUs: {names}",
            subject="slurm:leftovers",
            evidence=[quote for p in leftovers[:8] for quote in p.said("program", "user", "nvidia")],
            fix=Fix(
                "Find the owner; have the Slurm epilog kill leftover processes.",
                tuple(look("ps -o pid,user,lstart,cmd -p {}", process.pid) for process in leftovers[:3]),
                "investigate",
                "these processes, if killed",
                "nodedoctor slurm.gres",
                "https://slurm.schedmd.com/prolog_epilog.html",
            ),
        )
