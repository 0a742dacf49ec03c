"""Does NVIDIA's driver answer those who ask it, without error and in time?"""

from collections.abc import Iterator

from nodedoctor.facts.answers import Answer, DriverAnswers
from nodedoctor.facts.container import Container
from nodedoctor.facts.driver import Driver
from nodedoctor.facts.gpu import Gpu, InitError, LostGpu
from nodedoctor.facts.gpus import Gpus
from nodedoctor.facts.inventory import Inventory
from nodedoctor.facts.signs import NONE_HERE
from nodedoctor.knowledge.nvml_errors import (
    DEVICES_LOST,
    HUNG,
    NO_DRIVER,
    OFF_THE_BUS,
    VERIFY,
    nvml_error,
)
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.registry import check

SLOW_SECONDS = 5.0
"""A driver about to hang is slow first: a vendor tool that takes over 5 s is how Primus (AMD) fails a node,
and how NVSentinel tells a stalling driver (github.com/NVIDIA/NVSentinel/issues/1576)."""

FATAL = ("GPU_IS_LOST", "RESET_REQUIRED")
SENSORS = ("temperature_c", "power_draw_w", "pstate", "memory_used_mib", "gpu_utilization_percent")
"""What every GPU tells; two of them with an unknown error is a GPU that no longer answers."""

_SLOW = Fix(
    "Look for what keeps the driver busy: a GPU about to fail (kernel log), persistence off (every call then "
    "starts all GPUs anew), or a storm of monitoring tools.",
    (
        "sudo dmesg | grep -iE 'xid|nvrm'",
        "nvidia-smi --query-gpu=persistence_mode --format=csv",
        "pgrep -af 'dcgm|nvidia-smi'",
    ),
    verify=VERIFY,
)


@check("driver.answers", "The driver answers, and in time")
def answers(
    inventory: Inventory,
    answers: DriverAnswers | None,
    gpus: Gpus | None,
    driver: Driver | None,
    container: Container | None,
) -> Iterator[Finding]:
    """What became of NVML and nvidia-smi: their errors, their time, and whether they came back at all.

    Why: whatever hangs here hangs every CUDA call of a job, and its watchdog reports it as a network timeout.
    Fix disturbs: every job on the node when the driver has to be reloaded.
    """
    inside = bool(container and container.inside)
    if why := _nothing_to_ask(inventory, answers, driver):
        yield Finding.skip(why)
        return
    if answers is None or not (answers.answers or answers.tripped):
        yield Finding.unknown("missing-tool", "neither NVML nor nvidia-smi was asked", fix=NO_DRIVER)
        return
    troubles = list(_troubles(inventory, answers, gpus, inside))
    yield from troubles
    if not troubles:
        yield _well(answers.answers)


def _nothing_to_ask(
    inventory: Inventory, answers: DriverAnswers | None, driver: Driver | None
) -> str | None:
    """Why there is no driver here that should answer."""
    if any(answer.gpus for answer in answers.answers) if answers else False:
        return None
    if inventory.none_here:
        return NONE_HERE
    slots = inventory.slots or ()
    if slots and inventory.restricted and not inventory.cut_off and not inventory.ours:
        return f"this container or job was given none of the {len(slots)} GPUs of the host"
    if slots and all(slot.given_away for slot in slots):
        return f"the GPUs are bound to {slots[0].bound_to}: they belong to virtual machines"
    if driver and driver.platform == "tegra":
        return "Tegra (Jetson): the driver is part of the system and has no NVML"
    if driver and driver.platform == "wsl2" and not driver.libraries:
        return "WSL2 whose Windows has no NVIDIA driver"
    return None


def _troubles(
    inventory: Inventory, answers: DriverAnswers, gpus: Gpus | None, inside: bool
) -> Iterator[Finding]:
    somebody = any(answer.gpus for answer in answers.answers)
    if answers.tripped and not any(answer.outcome in ("stuck", "timeout") for answer in answers.answers):
        yield Finding.fail(f"the driver hangs: {answers.tripped}", fix=HUNG)
    for answer in answers.answers:
        if answer.outcome in ("stuck", "timeout"):
            yield _hung(answer)
        elif answer.outcome == "crash":
            yield _crashed(answer, somebody)
        elif answer.init_error:
            yield _failed(answer, answer.init_error, inventory, inside, somebody)
        elif answer.reason and not somebody:
            yield Finding.unknown(answer.reason, answer.unseen)
        elif answer.seconds is not None and answer.seconds > SLOW_SECONDS:
            yield _slow(answer)
    yield from _sick(gpus)


def _hung(answer: Answer) -> Finding:
    """No answer in time. Less time than the driver must have says nothing about it."""
    if answer.outcome == "timeout" and (answer.seconds or 0.0) < SLOW_SECONDS:
        summary = f"{answer.probe} was not given the time to answer: {answer.note}"
        return Finding.unknown("timeout", summary)
    summary = f"the driver hangs: {answer.probe}: {answer.note}"
    return Finding.fail(summary, evidence=_where(answer), fix=HUNG)


def _crashed(answer: Answer, somebody: bool) -> Finding:
    """NVML crashes on a lost GPU (github.com/XuehaiPan/nvitop/issues/139)."""
    why = answer.note.splitlines()[0] if answer.note else "no reason known"
    summary = f"{answer.probe} crashed: {why}"
    if somebody:
        return Finding.warn(f"{summary}; nvidia-smi answers", evidence=_where(answer), fix=OFF_THE_BUS)
    return Finding.fail(summary, evidence=_where(answer), fix=OFF_THE_BUS)


def _where(answer: Answer) -> list[Evidence]:
    told = dict.fromkeys(text for text in (answer.note, answer.at) if text)
    return [Evidence(answer.probe, text) for text in told]


def _failed(
    answer: Answer, failed: InitError, inventory: Inventory, inside: bool, somebody: bool
) -> Finding:
    """The library did not start."""
    error = nvml_error(failed.name)
    said = [Evidence(answer.probe, failed.text)]
    if somebody:
        summary = f"{answer.probe}: {error.meaning}; nvidia-smi answers"
        return Finding.warn(summary, evidence=said, fix=error.fix)
    if inventory.cut_off:
        summary = "the device cgroup has taken the NVIDIA devices away"
        return Finding.fail(summary, evidence=said, fix=DEVICES_LOST)
    code = f" ({failed.code})" if failed.code is not None else ""
    fix = error.fix_here(inside or inventory.restricted)
    return Finding.fail(f"{error.name}{code}: {error.meaning}", evidence=said, fix=fix)


def _slow(answer: Answer) -> Finding:
    limit = f"over {SLOW_SECONDS:.0f} s the driver is sick or starved"
    summary = f"{answer.probe} took {answer.seconds:.1f} s; {limit}"
    calls = sorted(answer.slow_calls, key=lambda call: -call.seconds)[:3]
    slowest = [f"{call.call} took {call.seconds:.1f} s{_at(call.index)}" for call in calls]
    return Finding.warn(summary, evidence=[Evidence(answer.probe, text) for text in slowest], fix=_SLOW)


def _sick(gpus: Gpus | None) -> Iterator[Finding]:
    """GPUs that are listed and do not answer."""
    if gpus is None:
        return
    for gone in gpus.lost:
        if gone.error != "NOT_ASKED":
            yield _silent(gone.error, gone.index, _subject(gone), Evidence(gpus.source, gone.text))
    for gpu in gpus.gpus:
        if name := _broken(gpu):
            fields = [field for field, error in gpu.errors.items() if error == name]
            said = Evidence(gpus.source, f"{', '.join(fields[:6])}: {name}")
            yield _silent(name, gpu.index, gpu.subject, said)


def _subject(gone: LostGpu) -> str:
    if gone.index is not None:
        return f"gpu:{gone.index}"
    return f"pci:{gone.bus_id}" if gone.bus_id else ""


def _silent(name: str, index: int | None, subject: str, said: Evidence) -> Finding:
    error = nvml_error(name)
    evidence = [said] if said.text else []
    summary = f"{name}: {error.meaning}"
    return Finding.fail(summary, subject=subject, evidence=evidence, fix=error.fix_here(False, index))


def _broken(gpu: Gpu) -> str | None:
    """The error of a GPU that is listed and yet does not answer."""
    told = set(gpu.errors.values())
    fatal = next((name for name in FATAL if name in told), None)
    silent = [field for field in SENSORS if gpu.errors.get(field) == "UNKNOWN"]
    return fatal or ("UNKNOWN" if len(silent) > 1 else None)


def _well(answers: tuple[Answer, ...]) -> Finding:
    best = max(answers, key=lambda answer: answer.gpus)
    took = f" in {best.seconds:.2f} s" if best.seconds is not None else ""
    version = f", driver {best.driver_version}" if best.driver_version else ""
    return Finding.ok(f"{best.probe} answered{took}: {best.gpus} GPUs{version}")


def _at(index: int | None) -> str:
    return "" if index is None else f" at GPU {index}"
