"""Which real tests may not run at the same time: `--dist loadgroup` gives each group here to one worker.

Those of a group use the same thing of this machine: a port, a daemon, a folder, its memory, its processors.
The marks of pytest-xdist are of no use for this with pytest 9.2, which takes no group into the ids of tests.
"""

from __future__ import annotations

from typing import Any

import pytest

GROUPS = {
    "tests/real/test_ray.py": "ray",
    "tests/real/triage/test_triage_ray.py": "ray",
    "tests/real/blackbox/test_attach.py::test_ray": "ray",
    "tests/real/blackbox/test_launchers.py [ray]": "ray",
    "tests/real/blackbox/test_launchers.py [accelerate]": "accelerate",
    "tests/real/test_slurm_recipes.py": "slurm",
    "tests/real/blackbox/test_scancel.py": "slurm",
    "tests/real/blackbox/test_live_nodes.py": "slurm",
    "tests/real/fleet/test_fleet_slurmd.py::test_pairs_": "rates",
    "tests/real/fleet/test_fleet_slurmd.py": "slurm",
    "tests/real/fleet/test_job_decisions.py": "slurm",
    "tests/real/fleet/test_fleet_sshd.py": "sshd",
    "tests/real/test_pyz_built.py": "single file",
    "tests/real/test_html_browser.py": "pages",
    "tests/real/test_site_browser.py": "site",
    "tests/real/blackbox/test_trials.py::test_the_rank_that_ran_out_of_memory_is_named": "memory",
    "tests/real/triage/test_triage_torch.py::test_host_memory_runs_out": "memory",
    "tests/real/fleet/test_fleet_pairs.py::test_halving_the_all_reduce_of_gloo": "time limits",
    "tests/real/fleet/test_fleet_pairs.py": "rates",
    "tests/real/fleet/test_fleet_pairs_rails.py": "rates",
    "tests/real/test_unkillable.py": "time limits",
    "tests/real/fleet/test_fleet_raylets.py": "time limits",
    "tests/real/blackbox/test_late_ranks.py": "time limits",
}
"""Groups by the file or the beginning of the name of their tests, and its end after a space.

All others may run beside anything. What is marked `alone` makes up two groups, which run side by side:
shapers, not processors, bound the rates of the first; the second starts what needs processors, torch and Ray.
"""


def group_of(name: str) -> str:
    """The group of a test by its whole name; its own where it has none."""
    for which, group in GROUPS.items():
        beginning, _, end = which.partition(" ")
        if name.startswith(beginning) and name.endswith(end):
            return group
    return name


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole groups where groups are asked for."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return GroupScheduling(config, log)
