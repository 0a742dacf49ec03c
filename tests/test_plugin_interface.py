"""What plug-ins may rely on: one module, every name of it documented, every fact among them."""

import inspect
import re
from pathlib import Path

from nodedoctor import plugin
from nodedoctor.engine.plugins import discover

GUIDE = (Path(__file__).parent.parent / "docs" / "writing-checks.md").read_text(encoding="utf-8")

DECLARING = {
    "Command", "Evidence", "Finding", "Fix", "Lane", "Moment", "Observation", "Options", "Outcome", "Unseen",
    "check", "fact", "probe", "record", "skipped",
}  # fmt: skip
"""Names that are promised: one may be added, none taken away."""


def test_every_bundled_fact_can_be_asked_for():
    facts = {fact.cls for fact in discover().facts.values() if fact.cls.__module__.startswith("nodedoctor.")}
    assert {cls for cls in facts if getattr(plugin, cls.__name__, None) is not cls} == set()
    assert set(plugin.__all__) == DECLARING | {cls.__name__ for cls in facts}


def test_every_name_says_what_it_is():
    assert [name for name in plugin.__all__ if not inspect.getdoc(getattr(plugin, name))] == []


def test_the_example_needs_nothing_else():
    example = "\n".join(re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL))
    assert set(re.findall(r"(?:from|import) (nodedoctor[\w.]*)", example)) == {"nodedoctor.plugin"}
