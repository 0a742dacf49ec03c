"""Every fix there is: of all recorded nodes and demos, of the tables, of the checks' own constants."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from recorded import judged

from nodedoctor import knowledge
from nodedoctor.declare.registry import Check
from nodedoctor.demo import DEMOS
from nodedoctor.demo import folder as demo_folder
from nodedoctor.engine.session import Request, Session
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.knowledge import error_codes, nvml_errors
from nodedoctor.knowledge.fixes import gpu as gpu_fixes
from nodedoctor.knowledge.fixes import limits, rdma, recipes
from nodedoctor.model import Fix, Report
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.verdict.advice import actions, fix_table

REPOSITORY = Path(__file__).parents[2]
NODES = REPOSITORY / "tests" / "nodes"
RUNTIMES = (None, "docker", "podman", "containerd", "kubernetes", "enroot", "apptainer", "lxc", "other")


@functools.cache
def reports() -> dict[str, Report]:
    """All recorded nodes and demos, judged with every check."""
    return {name: judged(folder) for name, folder in sorted(folders().items())}


def folders() -> dict[str, Path]:
    """Where the recorded nodes and demos lie."""
    found = {path.parent.name: path.parent for path in NODES.glob("*/manifest.json")}
    return {**found, **{f"demo {name}": Path(demo_folder(name)) for name in DEMOS}}


def sources() -> Iterator[Path]:
    """Our own code."""
    for folder in ("checks", "nodedoctor"):
        yield from sorted((REPOSITORY / folder).rglob("*.py"))


def of_report(report: Report) -> Iterator[tuple[str, Fix]]:
    """The fixes of one report, by check."""
    for result in report.results:
        for finding in result.findings:
            if finding.fix is not None:
                yield f"{result.check}@{finding.subject}", finding.fix


@functools.cache
def every_fix() -> dict[str, Fix]:
    """All of them, by where they come from."""
    found = {
        f"{name}: {check}": fix for name, report in reports().items() for check, fix in of_report(report)
    }
    return {**found, **dict(of_rows()), **dict(_of_triage())}


def of_rows() -> Iterator[tuple[str, Fix]]:
    """The fixes that are the same on any node: of the tables, and of the checks' own constants."""
    yield from _of_tables()
    yield from _of_modules()


def _of_tables() -> Iterator[tuple[str, Fix]]:
    gpu = Gpu(index=3)
    for row in (*error_codes.NVML, error_codes.nvml_error("NEVER_HEARD_OF")):
        for inside in (False, True, None):
            for index in (None, 3):
                yield f"{row.name} {inside} {index}", row.fix_here(inside, index)
    for runtime in RUNTIMES:
        yield f"shm {runtime}", limits.more_shm(runtime)
        for name in ("memlock", "nofile"):
            for ray in (False, True):
                yield f"{name} {runtime} {ray}", limits.raise_limit(name, runtime, ray)
    yield "replace", gpu_fixes.replace_gpu(gpu, "It is worn out.", "memory.ecc")
    yield "reset", gpu_fixes.reset_gpu(gpu, "It is confused.", "memory.ecc")
    for action in ("gpu-reset", "node-reboot", "drain-p2p", "recover-imex-domain", "bus-reset", "other"):
        yield action, gpu_fixes.recovery_fix(action, 3)
    yield "enable", rdma.enable("mlx5_0", 1, None, True)
    yield "bring up", rdma.enable("mlx5_0", 1, "ens1", False)
    yield "subnet manager", rdma.subnet_manager()
    for place in ({"inside": True, "rented": False}, {"inside": False, "rented": True}):
        yield f"reload {place}", recipes.where_it_stands(nvml_errors.RELOAD, **place)


def _of_triage() -> Iterator[tuple[str, Fix]]:
    """What is said to do about a dead job: of recorded logs, and of every cause and version of torch."""
    for log in sorted((REPOSITORY / "tests" / "triage" / "logs").glob("*.log")):
        verdict = examine_job([str(log)]).verdict
        for number, fix in enumerate((*verdict.fixes, *verdict.next)):
            yield f"{log.name} {number}", fix
    for fixes_by_name in (fix_table.BY_CAUSE, fix_table.BY_FAMILY, fix_table.BY_NAME):
        for name, fixes in fixes_by_name.items():
            for number, fix in enumerate(fixes):
                yield f"{name} {number}", fix
    for version in (None, (2, 5), (2, 9)):
        yield f"recorder {version}", actions._recorder_step(version)


def _of_modules() -> Iterator[tuple[str, Fix]]:
    files = {id(check.function.__globals__): check.function.__globals__ for check in checks().values()}
    spaces = [vars(module) for module in _tables()] + list(files.values())
    for space in spaces:
        for name, value in space.items():
            if isinstance(value, Fix):
                yield f"{space['__name__']}.{name}", value


def checks() -> dict[str, Check]:
    """Every check there is."""
    return dict(Session(Request()).catalogue.checks)


def _tables() -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(knowledge.__path__, "nodedoctor.knowledge."):
        yield importlib.import_module(found.name)
