"""Do the GPUs run as fast as they can, and all equally fast?"""

from collections.abc import Iterator
from statistics import median

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.evidence import identity_evidence, values
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.knowledge.fixes.gpu import look_at
from nodedoctor.model import Finding, Fix
from nodedoctor.record import replace
from nodedoctor.steps import look, repair
from nodedoctor.wording import count_with_noun

from ..unavailable import all_of, none_shown, not_reported

_OWN_LIMITS = {"board_limit": "board limit", "reliability": "reliability limit"}
"""Reasons that drivers from 615 on name (docs.nvidia.com/deploy/nvml-api, nvmlClocksEventReasons); no more is
said of them there."""
_SEE_CLOCKS = look("nvidia-smi -q -d CLOCK,PERFORMANCE,POWER")
LOADED_PERCENT = 80
"""Utilisation from which a GPU counts as under load; below it may be between two kernels."""
LOCKED = 0.9
"""Under load with `applications_clocks_setting` as the reason, clocks below this fraction of the maximum."""
OUTLIER = 0.85
"""Of the median of loaded peers. Boost clocks of healthy peers at like load differ by a few per cent; the
hardware's own slowdown halves them."""


FULL_LOAD_PERCENT = 95
"""Utilisation at which a GPU without a limit runs at its highest clock. Ours."""
RESERVE, COOL_C = 0.7, 70
"""Share of the power limit, and degrees, below which neither power nor heat lowers clocks. Ours."""


@check("clock.limits", "GPU clock limits", tags={"fast", "gpu"})
def limits(gpus: Gpus) -> Iterator[Finding]:
    """Application clocks against the GPU's own defaults, and clocks locked low under load.

    Why: clocks that were lowered stay lowered until a reset, and the slowest GPU sets the pace of the job.
    Fix disturbs: nothing.
    Judges: WARN when application clocks are below the GPU's own defaults, when clocks are locked low under
    load, or when a board limit holds them low.
    Fix: Reset the clocks with `nvidia-smi -rgc` and `-rmc`, and find the service that sets them at boot.
    Threshold: The GPU's own defaults; under load 0.9 of them, our threshold, no external source.
    False positives: Clocks lowered on purpose, for reproducible measurements or to save power.
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    readable = [gpu for gpu in gpus.gpus if gpu.clock_app_graphics_mhz or gpu.clock_event_reasons is not None]
    findings = [finding for gpu in readable if (finding := _judge_lowered(gpu, gpus.source))]
    yield from findings
    if not readable:
        yield not_reported("application clocks", gpus.gpus, "clock_app_graphics_mhz", "clock_event_reasons")
    elif not findings:
        usual = [gpu for gpu in readable if _has_usual_limits(gpu)]
        if usual:
            yield Finding.ok(f"no lowered clock limits on {all_of(usual)}")
        elif slow := [gpu for gpu in readable if _is_slow(gpu)]:
            gpu = min(slow, key=lambda gpu: (gpu.clock_sm_mhz or 0) / (gpu.clock_max_sm_mhz or 1))
            clocks = f"{gpu.clock_sm_mhz} of {gpu.clock_max_sm_mhz} MHz"
            summary = f"GPU {gpu.index} at {clocks} under load; whether a limit was set is not shown"
            yield Finding.info(summary)
        else:
            yield Finding.info("whether clocks were lowered is not shown")


def _has_usual_limits(gpu: Gpu) -> bool:
    """Whether what is shown speaks against lowered clocks: a lock has no field, only its clock under load."""
    app, usual = gpu.clock_app_graphics_mhz, gpu.clock_default_app_graphics_mhz or gpu.clock_max_graphics_mhz
    by_setting = "applications_clocks_setting" in (gpu.clock_event_reasons or ())
    return not (_is_slow(gpu) or by_setting or (app and usual and app < OUTLIER * usual))


def _is_slow(gpu: Gpu) -> bool:
    return _is_loaded(gpu) and (gpu.clock_sm_mhz or 0) < OUTLIER * (gpu.clock_max_sm_mhz or 0)


def _judge_lowered(gpu: Gpu, source: str) -> Finding | None:
    """A finding for clocks below what they could be."""
    fix = _reset_clocks(gpu)
    clocks = (
        ("graphics", gpu.clock_app_graphics_mhz, gpu.clock_default_app_graphics_mhz),
        ("memory", gpu.clock_app_memory_mhz, gpu.clock_default_app_memory_mhz),
    )
    for kind, now, usual in clocks:
        if now and usual and now < usual:
            evidence = values(source, gpu, f"clock_app_{kind}_mhz", f"clock_default_app_{kind}_mhz")
            summary = f"{kind} clock set to {now} MHz, default {usual} MHz"
            return Finding.warn(summary, subject=gpu.subject, evidence=evidence, fix=fix)
    if _is_locked(gpu):
        evidence = values(source, gpu, "clock_event_reasons", "clock_sm_mhz", "clock_max_sm_mhz")
        summary = f"SM clock locked at {gpu.clock_sm_mhz} of {gpu.clock_max_sm_mhz} MHz"
        summary += " under load" if _is_loaded(gpu) else ""
        return Finding.warn(summary, subject=gpu.subject, evidence=evidence, fix=fix)
    if reason := _board_limit(gpu):
        evidence = values(source, gpu, "clock_event_reasons", "clock_sm_mhz", "clock_max_sm_mhz")
        summary = f"SM clock {gpu.clock_sm_mhz} of {gpu.clock_max_sm_mhz} MHz under load ({reason})"
        look_at_it = look_at(
            gpu, "Check its power draw, power cables and temperature.", "clock.limits", (_SEE_CLOCKS,)
        )
        return Finding.warn(
            summary,
            subject=gpu.subject,
            evidence=[*evidence, *identity_evidence(source, gpu)],
            fix=look_at_it,
        )
    return None


def _reset_clocks(gpu: Gpu) -> Fix:
    """Undo what lowered the clocks.

    Each way to lower them has its own way back (nvidia-smi(1)): -lgc and -rgc, -lmc and -rmc, -ac and -rac,
    -lmcd and -rmcd. Application clocks are deprecated since R580 (NVML change log), not removed. On Hopper
    memory is locked with -lmcd alone.
    """
    return Fix(
        "Reset the clocks, unless they were lowered on purpose (for reproducible measurements).",
        (
            repair("sudo nvidia-smi -i {} -rgc", gpu.selector),
            repair("sudo nvidia-smi -i {} -rmc", gpu.selector),
            repair("sudo nvidia-smi -i {} -rac", gpu.selector, when="application clocks were set with -ac"),
            repair(
                "sudo nvidia-smi -i {} -rmcd",
                gpu.index,
                when="memory clocks were locked with -lmcd; takes effect at the next driver load",
            ),
        ),
        "config",
        "nothing",
        "nodedoctor clock.limits",
    )


def _board_limit(gpu: Gpu) -> str:
    """A limit of the board itself that keeps clocks low under load; near their top it is usual."""
    if not (_is_loaded(gpu) and gpu.clock_sm_mhz and gpu.clock_max_sm_mhz):
        return ""
    low = gpu.clock_sm_mhz < OUTLIER * (gpu.clock_default_app_graphics_mhz or gpu.clock_max_sm_mhz)
    reasons = gpu.clock_event_reasons or ()
    return next((word for name, word in _OWN_LIMITS.items() if low and name in reasons), "")


def _is_locked(gpu: Gpu) -> bool:
    """Held by a setting and by nothing else; without its load, in a state of work and far below."""
    works = gpu.gpu_utilization_percent is None and gpu.pstate is not None and gpu.pstate <= 2
    if not ((works or _is_loaded(gpu)) and gpu.clock_sm_mhz and gpu.clock_max_sm_mhz):
        return False
    usual = gpu.clock_default_app_graphics_mhz or gpu.clock_max_sm_mhz
    by_setting = gpu.clock_event_reasons == ("applications_clocks_setting",)
    return by_setting and gpu.clock_sm_mhz < (OUTLIER if works else LOCKED) * usual


def _is_loaded(gpu: Gpu) -> bool:
    return (gpu.gpu_utilization_percent or 0) >= LOADED_PERCENT and (gpu.pstate or 0) <= 2


@check(
    "clock.outlier",
    "SM clocks under load",
    tags={"fast", "gpu"},
    explained_by=("thermal.throttle", "clock.limits", "power.limit"),
    stage="preview",
)
def outlier(gpus: Gpus) -> Iterator[Finding]:
    """The SM clock of each GPU under load against the median of its peers; idle GPUs are not judged.

    Why: the slowest GPU sets the speed of the job; all others wait for it in collectives.
    Fix disturbs: nothing.
    Judges: WARN when the SM clock of a loaded GPU is below 0.85 of the median of at least three loaded GPUs
    of its kind, or of its own maximum though power and temperature are far below their limits.
    Fix: Compare its power limit, temperature and throttle reasons with its neighbours' and watch it under
    load.
    Threshold: 0.85 of the median is our threshold: boost clocks of healthy peers differ by a few per cent, a
    hardware slowdown halves them.
    False positives: GPUs with different work at that moment; the check compares only GPUs at 80 % utilisation
    and more.
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    readable = [gpu for gpu in gpus.gpus if gpu.clock_sm_mhz and gpu.gpu_utilization_percent is not None]
    loaded = [gpu for gpu in readable if _is_loaded(gpu) and not gpu.mig_mode]
    compared, slow = [], []
    for gpu in loaded:
        peers = [peer.clock_sm_mhz for peer in loaded if peer.name == gpu.name and peer.clock_sm_mhz]
        if len(peers) > 2 and gpu.clock_sm_mhz:
            compared.append(gpu)
            if gpu.clock_sm_mhz < OUTLIER * median(peers):
                summary = f"SM clock {gpu.clock_sm_mhz} MHz, median of its peers {median(peers):.0f} MHz"
                slow.append(_slow_clock(gpu, summary, gpus.source))
                continue
        if _is_capped(gpu):
            summary = f"SM clock {gpu.clock_sm_mhz} of {gpu.clock_max_sm_mhz} MHz under load at "
            summary += f"{gpu.power_draw_w:.0f} of {gpu.power_limit_w:.0f} W and {gpu.temperature_c} C"
            slow.append(_slow_clock(gpu, summary, gpus.source))
    yield from slow
    if not readable:
        yield not_reported("clocks and utilisation", gpus.gpus, "clock_sm_mhz", "gpu_utilization_percent")
    elif not compared and not slow:
        yield Finding.skip(f"fewer than 3 GPUs of a kind under load ({len(loaded)} of {len(readable)})")
    elif not slow:
        yield Finding.ok(
            f"{count_with_noun(len(compared), 'GPU')} under load within {1 - OUTLIER:.0%} of their median"
        )


def _is_capped(gpu: Gpu) -> bool:
    """Slow at full load, though neither power nor heat holds it back: somebody locked its clocks."""
    usual = gpu.clock_default_app_graphics_mhz or gpu.clock_max_sm_mhz
    return bool(
        (gpu.gpu_utilization_percent or 0) >= FULL_LOAD_PERCENT
        and gpu.clock_sm_mhz
        and usual
        and gpu.clock_sm_mhz < OUTLIER * usual
        and _has_reserve(gpu)
    )


def _has_reserve(gpu: Gpu) -> bool:
    """Whether power and temperature are far below what lowers clocks, and no such reason is shown."""
    is_cool = gpu.temperature_c is not None and gpu.temperature_c <= COOL_C
    draw, limit = gpu.power_draw_w, gpu.power_limit_w
    reasons = set(gpu.clock_event_reasons or ()) - {"applications_clocks_setting"}
    return is_cool and draw is not None and limit is not None and draw < RESERVE * limit and not reasons


def _slow_clock(gpu: Gpu, summary: str, source: str) -> Finding:
    readings = values(source, gpu, "clock_sm_mhz", "clock_event_reasons", "power_draw_w", "temperature_c")
    text = "Check its power limit, temperature and processes; watch it next to the others under load."
    steps = (look("nvidia-smi -q -d CLOCK,PERFORMANCE,POWER -i {}", gpu.selector), look("nodedoctor watch"))
    fix = look_at(gpu, text, "clock.outlier", steps)
    if _has_reserve(gpu):
        fix = replace(_reset_clocks(gpu), verify="nodedoctor clock.outlier")
    evidence = [*readings, *identity_evidence(source, gpu)]
    return Finding.warn(summary, subject=gpu.subject, evidence=evidence, fix=fix)
