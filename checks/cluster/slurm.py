"""Do Slurm's GPUs and those of the node agree?"""

from collections.abc import Iterator

from nodedoctor.engine.registry import check
from nodedoctor.facts.cluster.slurm import NO_SLURM, SlurmNode
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.steps import look, repair

_SERVICES = ("persistenced", "fabricmanager", "dcgm")
DOCS = "https://slurm.schedmd.com/gres.html"


@check(
    "slurm.gres",
    "Slurm and the driver agree on the GPUs",
    tags={"slurm"},
    without=(Processes,),
    stage="preview",
)
def gres(
    node: SlurmNode | None, env: Env | None, gpus: Gpus | None, processes: Processes | None
) -> Iterator[Finding]:
    """Slurm's GRES for this node against the driver's GPUs, a job's share against what it sees, leftovers.

    Why: Slurm starts jobs on GPUs that are gone, or gives a job fewer than it was granted; what a job left
    behind holds memory that the next one was promised.
    Fix disturbs: the node, which has to be drained.
    Judges: FAIL when Slurm's GPUs for the node differ from the driver's or a job sees fewer than granted;
    WARN for leftovers on an idle node.
    Fix: Correct gres.conf or drain the node; end leftover processes.
    Threshold: No threshold: counts are compared (slurm.schedmd.com/gres.html).
    False positives: Nodes of which Slurm manages a part on purpose.
    """
    job = env.get("SLURM_JOB_ID") if env else None
    if node is None and job is None:
        yield Finding.skip(NO_SLURM)
        return
    count = len(gpus.gpus) if gpus and not gpus.interrupted else None
    if job is not None and env is not None:
        yield from _granted(job, env.get("SLURM_GPUS_ON_NODE"), count)
    elif node is not None:
        yield from _configured(node, gpus, count)
    if node is not None and node.idle and processes is not None:
        yield from _leftovers(node, processes)
    if node is not None and {"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL"} & set(node.states):
        state = "+".join(node.states)
        why = f": {node.reason}" if node.reason else ""
        yield Finding.info(f"Slurm has {node.name} as {state}{why}", subject="slurm:state")


def _granted(job: str, told: str | None, count: int | None) -> Iterator[Finding]:
    """Inside a job the driver shows what its control group lets through."""
    if told is None or not told.isdigit() or count is None:
        yield Finding.skip(f"job {job}: how many GPUs it was granted, or how many it sees, is not known")
        return
    granted = int(told[:6])
    evidence = [Evidence("env", f"SLURM_JOB_ID={job} SLURM_GPUS_ON_NODE={told}")]
    if count < granted:
        fix = Fix(
            "Drain the node; look for GPUs that fell off the bus and for the job's device control group.",
            (look("nodedoctor driver kernel"), look("scontrol show job -d {}", job)),
            "drain",
            "the job",
            "nodedoctor slurm.gres",
            DOCS,
        )
        summary = f"job {job} was granted {granted} GPUs and sees {count}"
        finding = Finding.fail(summary, subject="slurm:granted", evidence=evidence, fix=fix)
        yield finding.explained_by("driver.answers@any", "driver.gpus-present@any")
    elif count > granted:
        summary = f"job {job} was granted {granted} GPUs and sees {count}: devices are not constrained"
        fix = Fix("Set ConstrainDevices=yes in cgroup.conf.", (), "config", "jobs started later", docs=DOCS)
        yield Finding.info(summary, subject="slurm:granted", evidence=evidence, fix=fix)
    else:
        summary = f"job {job} sees the {count} GPUs it was granted"
        yield Finding.ok(summary, subject="slurm:granted", evidence=evidence)


def _configured(node: SlurmNode, gpus: Gpus | None, count: int | None) -> Iterator[Finding]:
    if node.gpus is None or count is None or gpus is None:
        missing = "Slurm's GRES" if node.gpus is None else "the driver's GPUs"
        yield Finding.unknown("not-visible-here", f"{missing} could not be seen", subject="slurm:gres")
        return
    evidence = [
        Evidence("slurm-node", f"NodeName={node.name} Gres={node.gres} State={'+'.join(node.states)}")
    ]
    what = f"Slurm has {node.gpus} GPUs for {node.name}, the driver shows {count}"
    fix = Fix(
        "Drain the node and find the GPUs; if the number is meant, correct slurm.conf and gres.conf.",
        (
            repair(
                "scontrol update NodeName={} State=DRAIN Reason=gres",
                node.name,
                disturbs="jobs that wait for this node; those that run go on",
            ),
            look("slurmd -C"),
            look("nodedoctor driver"),
        ),
        "drain",
        "the node, once its jobs have ended",
        "nodedoctor slurm.gres",
        DOCS,
    )
    if any(gpu.mig_mode for gpu in gpus.gpus):
        yield Finding.info(
            f"{what}; with MIG, Slurm counts instances", subject="slurm:gres", evidence=evidence
        )
    elif node.gpus > count:
        finding = Finding.fail(what, subject="slurm:gres", evidence=evidence, fix=fix)
        yield finding.explained_by("driver.answers@any", "driver.gpus-present@any")
    elif node.gpus < count:
        yield Finding.info(f"{what}: it gives fewer away", subject="slurm:gres", evidence=evidence)
    else:
        yield Finding.ok(f"{count} GPUs for both", subject="slurm:gres", evidence=evidence)


def _leftovers(node: SlurmNode, processes: Processes) -> Iterator[Finding]:
    """Slurm gave nothing to anybody, so whoever holds a GPU was left behind, or came another way."""
    left = [
        process for process in processes.holding_gpus if process.role not in _SERVICES and process.uid != 0
    ]
    if left:
        yield Finding.warn(
            f"Slurm has {node.name} as idle, and {len(left)} processes hold GPUs: {_names(left)}",
            subject="slurm:leftovers",
            evidence=[
                Evidence("processes", f"{p.label} of {p.user}: {', '.join(p.nvidia)}") for p in left[:8]
            ],
            fix=Fix(
                "See whose they are; an epilog should end what a job leaves behind.",
                tuple(look("ps -o pid,user,lstart,cmd -p {}", process.pid) for process in left[:3]),
                "investigate",
                "these processes, if you end them",
                "nodedoctor slurm.gres",
                "https://slurm.schedmd.com/prolog_epilog.html",
            ),
        )


def _names(processes: list[Process]) -> str:
    return ", ".join(process.label for process in processes[:3])
