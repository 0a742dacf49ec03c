"""Do the services run that a GPU node leans on?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.services import Service, Services
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import look, repair

NEEDED_FOR = {
    "slurmd": "Slurm starts no jobs here",
    "munge": "Slurm cannot authenticate",
    "docker": "no containers start",
    "containerd": "no containers start",
    "nvidia-persistenced": "GPUs are initialised for every job",
    "nvidia-dcgm": "GPUs are not monitored",
    "dcgm": "GPUs are not monitored",
}
"""Services around a job. The fabric manager, IMEX and time have checks of their own."""


@check("host.services", "Failed services", tags={"fast", "service"}, stage="preview")
def services(services: Services) -> Iterator[Finding]:
    """Slurm's, container and monitoring services that are installed, as systemd sees them.

    A stopped or disabled service is a choice; one that failed or keeps restarting is a fault.
    Why: a node whose slurmd or containerd is dead runs no jobs, although its hardware is healthy.
    Fix disturbs: what the service runs.
    Judges: WARN when an installed service around jobs (Slurm, containers, DCGM) has failed.
    Fix: Read `systemctl status` of the unit, repair the reason and start it again.
    Threshold: No threshold: systemd's own state.
    False positives: Services that a site starts by hand, or only with a job.
    """
    there = [unit for name in NEEDED_FOR if (unit := services.get(name))]
    sick = [unit for unit in there if unit.active == "failed" or unit.sub == "auto-restart"]
    for unit in sick:
        state = "keeps failing and restarting" if unit.sub == "auto-restart" else "has failed"
        yield Finding.warn(
            f"{unit.name} {state}: {NEEDED_FOR[unit.name]}",
            subject=f"service:{unit.name}",
            evidence=[unit.said],
            fix=_service_fix(unit),
        )
    if sick:
        return
    names = [name for name in NEEDED_FOR if services.reported(name)]
    if not names:
        yield Finding.unknown("not-visible-here", "these services were not queried")
    elif not there:
        yield Finding.skip("none of these services is installed")
    else:
        running = ", ".join(unit.name for unit in there if unit.running)
        yield Finding.ok(f"{running} running" if running else "none has failed")


def _service_fix(unit: Service) -> Fix:
    return Fix(
        "Read the service's log, fix the cause and start it.",
        (
            look("systemctl status {}", unit.name),
            look("sudo journalctl -u {} -b -n 50 --no-pager", unit.name),
            repair("sudo systemctl start {}", unit.name, when="what its log names is repaired"),
        ),
        "restart-service",
        "what the service runs",
        "nodedoctor host.services",
    )
