"""Which real tests may not run at the same time: `--dist loadgroup` gives each group here to one worker.

Those of a group use the same thing of this machine: a port, a daemon, a folder, its memory. The marks of
pytest-xdist are of no use for this with pytest 9.2, which takes no group into the ids of tests.
"""

from __future__ import annotations

from typing import Any

import pytest

GROUPS = {
    "tests/real/test_ray.py": "ray",
    "tests/real/triage/test_triage_ray.py": "ray",
    "tests/real/blackbox/test_attach.py::test_ray": "ray",
    "tests/real/blackbox/test_launchers.py": "ray",
    "tests/real/test_slurm_recipes.py": "slurm",
    "tests/real/blackbox/test_scancel.py": "slurm",
    "tests/real/blackbox/test_live_nodes.py": "slurm",
    "tests/real/fleet/test_fleet_slurmd.py": "slurm",
    "tests/real/fleet/test_job_decisions.py": "slurm",
    "tests/real/fleet/test_fleet_sshd.py": "sshd",
    "tests/real/test_pyz_built.py": "single file",
    "tests/real/test_html_browser.py": "pages",
    "tests/real/test_site_browser.py": "site",
    "tests/real/blackbox/test_trials.py::test_the_rank_that_ran_out_of_memory_is_named": "memory",
    "tests/real/triage/test_triage_torch.py::test_host_memory_runs_out": "memory",
}
"""Groups by the file or the beginning of the name of their tests; all others may run beside anything."""


def group_of(name: str) -> str:
    """The group of a test by its whole name; its own where it has none."""
    return next((group for beginning, group in GROUPS.items() if name.startswith(beginning)), name)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole groups where groups are asked for."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return GroupScheduling(config, log)
