"""Are the GPUs cool enough, and does none of them slow itself down?"""

from collections.abc import Iterator
from statistics import median

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.evidence import growth_evidence, identity_evidence, values
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.error_growth import ErrorGrowth
from nodedoctor.knowledge.fixes.gpu import look_at
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.steps import look

from ..unavailable import all_of, none_shown, not_reported

COOL_C = 75
"""Below the maximum operating temperature of every model whose limits are known (83 C, V100)."""
OUTLIER_C = 20
"""Degrees above the median of peers at like power: front and rear GPUs of one chassis differ by up to 15."""
LIKE_POWER = 0.3
"""Peers count as equally loaded when their power is within this fraction of the GPU's own."""
WARM_C = 60
"""A GPU below is no outlier worth a word, whatever its peers are."""

_EVENTS = {
    "hw_thermal_slowdown": "too hot, the hardware halves the clocks or more",
    "hw_power_brake_slowdown": "the power supply or chassis throttles the GPU",
    "hw_slowdown": "the hardware halves the clocks or more: heat, power brake, or too little power",
}
"""nvml.h: nvmlClocksEventReasonHwSlowdown and its parts; the first one found names the cause."""

BARE = "hw_slowdown"
"""Without one of its parts it "may be also reported during PState or clock change" (DCGM's field reference,
DCGM_FI_DEV_CLOCKS_EVENT_REASONS): one sample of it says nothing, leptonai/gpud wants six in ten minutes."""


@check("thermal.gpu", "GPU temperatures", tags={"fast", "gpu"})
def temperature(gpus: Gpus) -> Iterator[Finding]:
    """Each GPU's temperature against its own thresholds (or the remaining margin), and against its peers.

    Why: a hot GPU throttles, and every rank waits for it in collectives.
    Fix disturbs: nothing for the look-ups; the node while fans or filters are replaced.
    Judges: FAIL at the slowdown threshold or above, WARN above the operating maximum or far above peers at
    like power.
    Fix: Check fans, filters, airflow and room.
    Threshold: The GPU's own thresholds (NVML); 20 C above peers is our threshold.
    False positives: Front and rear GPUs of one chassis differ by up to 15 C.
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    readable = [gpu for gpu in gpus.gpus if gpu.temperature_c is not None or gpu.t_limit_margin_c is not None]
    findings = [finding for gpu in readable if (finding := _judge_heat(gpu, gpus.source))]
    subjects = {finding.subject for finding in findings}
    findings += [
        f
        for gpu in readable
        if gpu.subject not in subjects and (f := _hotter_than_peers(gpu, readable, gpus.source))
    ]
    unlimited = [gpu for gpu in readable if not _heat_limits(gpu) and (gpu.temperature_c or 0) > COOL_C]
    yield from findings
    if not readable:
        yield not_reported("temperature", gpus.gpus, "temperature_c", "t_limit_margin_c")
    elif unlimited:
        yield not_reported(
            f"temperature limit of a GPU at {unlimited[0].temperature_c} C", unlimited, "slowdown_c"
        )
    elif not findings:
        hottest = max((gpu.temperature_c for gpu in readable if gpu.temperature_c is not None), default=None)
        degrees = "" if hottest is None else f" (hottest: {hottest} C)"
        yield Finding.ok(f"{all_of(readable)} below the temperature limits{degrees}")


def _heat_limits(gpu: Gpu) -> tuple[int, int, int] | None:
    """What it has, where it slows down and what it should stay below, all on one scale; higher is hotter."""
    if gpu.t_limit_margin_c is not None:
        # Distances: 0 left is the maximum operating temperature, -2 the slowdown (nvidia-smi(1), T.Limit).
        slowdown = -2 if gpu.slowdown_t_limit_c is None else gpu.slowdown_t_limit_c
        return -gpu.t_limit_margin_c, -slowdown, -(gpu.max_operating_t_limit_c or 0)
    if gpu.temperature_c is None:
        return None
    model = gpu_model(gpu.name or "", gpu.pci_device_id or "")
    slowdown_c = gpu.slowdown_c or (model.slowdown_c if model else None)
    operating = gpu.max_operating_c or (model.max_operating_c if model else None) or slowdown_c
    if not slowdown_c or not operating:
        return None
    return gpu.temperature_c, slowdown_c, min(operating, slowdown_c)


def _judge_heat(gpu: Gpu, source: str) -> Finding | None:
    evidence = _heat_evidence(gpu, source)
    fix = _cooling_fix(gpu)
    memory = gpu.memory_temperature_c
    if limits := _heat_limits(gpu):
        now, slowdown, operating = limits
        at = f"{gpu.temperature_c} C" if gpu.temperature_c is not None else "the GPU"
        if now >= slowdown:
            summary = f"{at}, at or above the slowdown threshold"
            return Finding.fail(summary, subject=gpu.subject, evidence=evidence, fix=fix)
        if now > operating:
            summary = f"{at}, above the maximum operating temperature ({slowdown - now} C below slowdown)"
            return Finding.warn(summary, subject=gpu.subject, evidence=evidence, fix=fix)
    if memory is not None and gpu.memory_max_operating_c and memory > gpu.memory_max_operating_c:
        summary = f"memory at {memory} C, maximum {gpu.memory_max_operating_c} C"
        return Finding.warn(summary, subject=gpu.subject, evidence=evidence, fix=fix)
    return None


def _hotter_than_peers(gpu: Gpu, gpus: list[Gpu], source: str) -> Finding | None:
    """Much hotter than its peers at the same power: a fan, a filter, thermal paste."""
    now, draw = gpu.temperature_c, gpu.power_draw_w
    if now is None or not draw or now < WARM_C:
        return None
    peers = [
        peer.temperature_c
        for peer in gpus
        if peer is not gpu
        and peer.name == gpu.name
        and peer.temperature_c is not None
        and peer.power_draw_w
        and abs(peer.power_draw_w - draw) <= LIKE_POWER * draw
    ]
    if len(peers) < 2 or now - median(peers) < OUTLIER_C:
        return None
    summary = f"{now} C, {now - median(peers):.0f} C above the median of {len(peers)} GPUs at similar power"
    return Finding.warn(
        summary, subject=gpu.subject, evidence=_heat_evidence(gpu, source), fix=_cooling_fix(gpu)
    )


def _heat_evidence(gpu: Gpu, source: str) -> list[Evidence]:
    names = ("temperature_c", "slowdown_c", "t_limit_margin_c", "memory_temperature_c")
    return values(source, gpu, *(name for name in names if getattr(gpu, name) is not None))


def _cooling_fix(gpu: Gpu, verify: str = "thermal.gpu") -> Fix:
    steps = (
        look("nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i {}", gpu.selector),
        look("sudo ipmitool sdr type Fan"),
        look("sudo ipmitool sdr type Temperature"),
    )
    text = "Check fans, filters, inlet temperature and blanking panels, then the card's cooler."
    return look_at(gpu, text, verify, steps)


@check("thermal.throttle", "Thermal and power throttling", tags={"fast", "gpu"})
def throttle(gpus: Gpus) -> Iterator[Finding]:
    """The current clock event reasons of every GPU (before driver 535: throttle reasons).

    A software power cap under load, idle clocks and application clocks are normal; thermal.slowdown judges a
    hardware slowdown without heat or power brake over time.
    Why: one GPU at half its clocks halves the speed of the whole job, and nothing in the job's log shows it.
    Fix disturbs: nothing for the look-ups; the node during repair of cooling or power.
    Judges: FAIL for hardware slowdown by heat or power brake at this moment, WARN for software slowdown by
    heat.
    Fix: Check cooling; for a power brake check power supplies and the chassis.
    Threshold: nvml.h, clock event reasons.
    False positives: A software power cap under load is normal.
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    readable = [gpu for gpu in gpus.gpus if gpu.clock_event_reasons is not None]
    findings = [finding for gpu in readable if (finding := _judge_slowdown(gpu, gpus.source))]
    yield from findings
    if not readable:
        yield not_reported("clock event reasons", gpus.gpus, "clock_event_reasons")
    elif not findings:
        yield Finding.ok(f"no hardware or thermal slowdown on {all_of(readable)}")


def _judge_slowdown(gpu: Gpu, source: str) -> Finding | None:
    reasons = gpu.clock_event_reasons or ()
    evidence = [
        *values(source, gpu, "clock_event_reasons", "clock_sm_mhz", "clock_max_sm_mhz"),
        *identity_evidence(source, gpu),
    ]
    active = _first_event(gpu)
    if active == BARE:
        summary = "hardware slowdown at this moment, without heat or power brake (normal while clocks change)"
        return Finding.info(summary, subject=gpu.subject, evidence=evidence)
    if active:
        summary = f"{active.replace('_', ' ').replace('hw ', 'hardware ')}: {_EVENTS[active]}"
        return Finding.fail(summary, subject=gpu.subject, evidence=evidence, fix=_slowdown_fix(gpu, active))
    if "sw_thermal_slowdown" in reasons:
        summary = "software thermal slowdown: the driver lowers the clocks to cool the GPU or its memory"
        return Finding.warn(
            summary, subject=gpu.subject, evidence=evidence, fix=_cooling_fix(gpu, "thermal.throttle")
        )
    return None


@check("thermal.slowdown", "Sustained hardware slowdown", tags={"gpu"})
def slowdown(gpus: Gpus, growth: ErrorGrowth) -> Iterator[Finding]:
    """A hardware slowdown in all of three samples over more than one second.

    Why: one GPU at half its clocks halves the speed of the whole job, and nothing in the job's log shows it.
    Fix disturbs: nothing for the look-ups; the node during repair of the power supply.
    Judges: WARN when a hardware slowdown without heat or power brake stays over three samples.
    Fix: Check power cables and supply, then reset the GPU.
    Threshold: DCGM's field reference: one sample may be a clock change; leptonai/gpud wants 0.6 a minute.
    False positives: Changes of the performance state.
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    watched = [(gpu, lasting) for gpu in gpus.gpus if (lasting := _lasting_reasons(gpu, growth)) is not None]
    stays = [gpu for gpu, lasting in watched if BARE in lasting and _first_event(gpu) == BARE]
    for gpu in stays:
        evidence = growth_evidence(gpu.index, "clock_event_reasons")
        fix = _slowdown_fix(gpu, BARE, "thermal.slowdown")
        yield Finding.warn(
            "sustained hardware slowdown without heat or power brake",
            subject=gpu.subject,
            evidence=[*evidence, *identity_evidence(gpus.source, gpu)],
            fix=fix,
        )
    if not watched and any(gpu.clock_event_reasons is not None for gpu in gpus.gpus):
        yield Finding.skip("clock event reasons were read only once")
    elif not watched:
        yield not_reported("clock event reasons", gpus.gpus, "clock_event_reasons")
    elif not stays:
        yield Finding.ok(f"no sustained hardware slowdown on {all_of([gpu for gpu, _ in watched])}")


def _lasting_reasons(gpu: Gpu, growth: ErrorGrowth) -> tuple[str, ...] | None:
    """The reasons that both later samples have; None where they were not read."""
    gained = growth.gpu(gpu.index)
    return gained.lasting_reasons if gained and gpu.clock_event_reasons is not None else None


def _first_event(gpu: Gpu) -> str | None:
    """The first of the hardware's reasons, which names the cause."""
    return next((name for name in _EVENTS if name in (gpu.clock_event_reasons or ())), None)


def _slowdown_fix(gpu: Gpu, reason: str, verify: str = "thermal.throttle") -> Fix:
    if reason == "hw_thermal_slowdown":
        return _cooling_fix(gpu, "thermal.throttle")
    text = (
        "Check power supplies, their cables and the chassis' power cap (BMC). If only one GPU is affected, "
        "its power connection or board is bad: reseat or replace it."
    )
    steps = (
        look("nvidia-smi -q -d PERFORMANCE,POWER -i {}", gpu.selector),
        look("sudo ipmitool sdr type 'Power Supply'"),
        look("sudo ipmitool sel list | tail -20"),
    )
    return look_at(gpu, text, verify, steps, "drain", "every job on this node")
