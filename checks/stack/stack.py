"""Which Python trains, and is everything in it installed once?"""

import re
from collections.abc import Iterator

from nodedoctor.engine.registry import check
from nodedoctor.facts.stack.interpreter import OtherPython, TargetPython
from nodedoctor.facts.stack.packages import Package
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.model import Evidence, Expect, Finding, Fix


@check("stack.python", "The Python that trains is known", tags={"fast"}, speaks_for=("target-python",))
def python(target: TargetPython, torch: Torch | None, expect: Expect) -> Iterator[Finding]:
    """Which interpreter the stack checks speak of and why, the others found, packages installed twice.

    Why: a second copy of torch earlier on the search path (~/.local, PYTHONPATH, a half upgrade) is imported
    instead of the one that was just repaired.
    Fix disturbs: nothing that runs; a process keeps what it has imported.
    Judges: FAIL when an expected version is not installed, WARN when a package is installed twice.
    Fix: Name the interpreter with --python, and remove the second copy.
    Threshold: No threshold.
    False positives: pip and conda that list one copy twice are recognised in pastes.
    """
    version = f", Python {target.version}" if target.version else ""
    others = [Evidence(target.source, _other(candidate)) for candidate in target.others]
    yield Finding.info(f"{target.label}{version}: {target.why}", evidence=others)
    for name in dict.fromkeys(package.name for package in target.packages if package.requires):
        copies = target.copies(name)
        if len({copy.version for copy in copies}) > 1:
            yield _twice(target, copies)
    for name in ("torch", "ray"):
        package, wanted = target.package(name), expect.get(name)
        found = torch.version if name == "torch" and torch else package.version if package else ""
        if wanted not in (None, "yes") and found and not re.match(rf"{re.escape(wanted)}(?!\d)", found):
            yield Finding.fail(
                f"{name} {found} is installed, {wanted} is expected",
                subject=f"package:{name}",
                fix=Fix("Install what is expected.", (target.install(f"{name}=={wanted}.*"),), "config"),
            )


def _other(candidate: OtherPython) -> str:
    torch = f"torch {candidate.torch}" if candidate.torch else "no torch"
    return f"also found: {candidate.path} ({candidate.why}; {candidate.problem or torch})"


def _twice(target: TargetPython, copies: tuple[Package, ...]) -> Finding:
    first, second = copies[0], next(copy for copy in copies if copy.version != copies[0].version)
    summary = f"{first} in {first.location} hides {second.version} in {second.location}"
    evidence = [Evidence(target.source, f"{copy} in {copy.location}") for copy in copies]
    if first.location != second.location and "/.local/" not in first.location:
        return Finding.info(summary, subject=f"package:{first.name}", evidence=evidence)
    commands = (target.uninstall(first.name), target.install(f"{first.name}=={second.version}"))
    text = "Remove both and install the version you want, so that one is left."
    return Finding.warn(
        summary, subject=f"package:{first.name}", evidence=evidence, fix=Fix(text, commands, "config")
    )
