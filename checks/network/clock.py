"""Is this node's clock kept in step?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.services import Services
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.network.net import Net
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import last_resort, look, repair

_TIME = ("chrony", "chronyd", "systemd-timesyncd", "ntp", "ntpd", "phc2sys")
_UNKEPT_SECONDS = 16.0
"""The kernel's bound on the clock's error when it was not corrected for hours (NTP_PHASE_LIMIT, linux
include/linux/timex.h); a service that does not tell the kernel of its success still lowers it."""
_MOST_SECONDS = 1.0
"""Seconds from which a clock that is kept is wrong all the same; ours."""
_BY_THE_CLOCK = "programs that measure time by the wall clock"
_NEVER_TELL = ("phc2sys",)
"""Services that keep the clock and never say so to the kernel (linuxptp, phc2sys.c)."""


@check("net.clock", "Clock synchronisation", tags={"fast"}, without=(Services, Machine))
def clock(net: Net, services: Services | None, machine: Machine | None) -> Iterator[Finding]:
    """The kernel's clock state (adjtimex), and the running time services.

    Why: logs of several nodes can be ordered, and tokens verified, only with synchronised clocks.
    Fix disturbs: nothing.
    Judges: WARN when no service keeps the clock in step, or a time service says that it is more than a second
    away.
    Fix: Start chrony or systemd-timesyncd.
    Threshold: The kernel's own state (adjtimex); one second, ours: the order of log lines is wrong then.
    False positives: Virtual machines whose host sets their clock; WSL is one, and a note. chrony without
    `rtcsync` and PTP keep the clock and leave the kernel's flag (docs.cloudera.com, Kudu: using chrony): a
    note.
    """
    running = (
        [unit.name for unit in services.units if unit.name in _TIME and unit.running] if services else []
    )
    names = f" ({', '.join(running)})" if running else ""
    offset = net.clock_offset_seconds or 0.0
    away = f", {offset:.1f} s from NTP time" if offset > _MOST_SECONDS else ""
    if net.synchronised and away:
        fix = Fix(
            "Step the clock once, while no job runs.",
            (
                look("chronyc tracking"),
                last_resort("sudo chronyc makestep", when="no job runs on this node", disturbs=_BY_THE_CLOCK),
            ),
            "config",
            _BY_THE_CLOCK,
            "nodedoctor net.clock",
        )
        yield Finding.warn(f"synchronised{away}", fix=fix).led_by(f"the clock is {away.lstrip(', ')}")
    elif net.synchronised is None:
        yield Finding.unknown("not-visible-here", "the kernel does not report it")
    elif net.synchronised:
        bound = net.clock_error_seconds
        yield Finding.ok(
            f"the clock is synchronised{names}" + (f", within {bound:.3g} s" if bound is not None else "")
        )
    elif machine is not None and machine.form == "wsl2":
        yield Finding.info("Windows sets it, which does not report it to the kernel")
    elif _is_kept_by_service(net, running):
        yield Finding.info(f"kept{names}, which does not report it to the kernel")
    else:
        fix = Fix(
            "Enable one time service, and see that it reaches a source: stratum 0 or no chosen source is a "
            "firewall or a wrong server.",
            (
                look("chronyc tracking"),
                look("chronyc sources -v"),
                repair("sudo timedatectl set-ntp true", when="timedatectl shows no active NTP service"),
            ),
            "config",
            "nothing",
            "nodedoctor net.clock",
        )
        yield Finding.warn(f"not synchronised{names}{away}", fix=fix).led_by(
            f"the clock is not synchronised{away}"
        )


def _is_kept_by_service(net: Net, running: Sequence[str]) -> bool:
    """Whether a service keeps the clock although the kernel's flag says that none does."""
    in_step = net.clock_error_seconds is not None and net.clock_error_seconds < _UNKEPT_SECONDS
    return any(unit in _NEVER_TELL or (in_step and unit.startswith("chrony")) for unit in running)
