"""Which Python trains, and is everything in it installed once?"""

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.packages import Package
from nodedoctor.facts.stack.places import package_said
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.model import Expect, Finding, Fix, reading


@check("stack.python", "Training Python", tags={"fast"}, speaks_for=("target-python",))
def python(target: TargetPython, torch: Torch | None, expect: Expect) -> Iterator[Finding]:
    """The interpreter that the stack checks use and why, other interpreters, packages installed twice.

    Why: a second torch earlier on the search path (~/.local, PYTHONPATH, a partial upgrade) is imported
    instead of the repaired one.
    Fix disturbs: nothing; a running process keeps what it has imported.
    Judges: FAIL when an expected version is not installed, WARN when a package is installed twice.
    Fix: Name the interpreter with --python, and remove the second copy.
    Threshold: No threshold.
    False positives: pip and conda that list one copy twice are recognised in pastes.
    """
    version = f", Python {target.version}" if target.version else ""
    others = [
        reading(target.source, f"found.others[path={python.path}].{'problem' if python.problem else 'why'}")
        for python in target.others
    ]
    yield Finding.info(f"{target.label}{version}: {target.why}", evidence=others)
    for name in dict.fromkeys(package.name for package in target.packages if package.requires):
        copies = target.copies(name)
        if len({copy.version for copy in copies}) > 1:
            yield _installed_twice(target, copies)
    for name in ("torch", "ray"):
        package, wanted = target.package(name), expect.get(name)
        have = torch.version if name == "torch" and torch else package.version if package else ""
        if wanted not in (None, "yes") and have and not re.match(rf"{re.escape(wanted)}(?!\d)", have):
            yield Finding.fail(
                f"{name} {have} is installed, expected {wanted}",
                subject=f"package:{name}",
                fix=Fix("Install the expected version.", (target.install(f"{name}=={wanted}.*"),), "config"),
            )


def _installed_twice(target: TargetPython, copies: tuple[Package, ...]) -> Finding:
    first, second = copies[0], next(copy for copy in copies if copy.version != copies[0].version)
    summary = f"{first} in {first.location} hides {second.version} in {second.location}"
    evidence = package_said(target, *copies)
    if first.location != second.location and "/.local/" not in first.location:
        return Finding.info(summary, subject=f"package:{first.name}", evidence=evidence)
    commands = (target.uninstall(first.name), target.install(f"{first.name}=={second.version}"))
    text = "Remove both and install the version you need."
    return Finding.warn(
        summary, subject=f"package:{first.name}", evidence=evidence, fix=Fix(text, commands, "config")
    )
