"""Does NVIDIA's driver answer those who ask it, without error and in time?"""

import re
from collections.abc import Collection, Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.answers import DriverAnswer, DriverAnswers
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.gpu.evidence import init_evidence, lost_evidence, slow_call, values, values_failed
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.inventory import Inventory
from nodedoctor.facts.gpu.smi.smi import XML, Q
from nodedoctor.facts.host.container import Container
from nodedoctor.knowledge.error_codes import ErrorCode, nvml_error
from nodedoctor.knowledge.nvml_errors import DEVICES_LOST, HUNG, NO_DRIVER, OFF_THE_BUS, VERIFY
from nodedoctor.model import Evidence, Finding, Fix, Reason, quoted_like, reading
from nodedoctor.steps import look
from nodedoctor.wording import about, clause, comma_list, count_with_noun, first_few

from .refusals import Refusal, refusals

SLOW_SECONDS = 5.0
"""A driver about to hang is slow first: 5 s is where github.com/AMD-AGI/Primus fails a node for a slow tool,
and how NVSentinel tells a stalling driver (github.com/NVIDIA/NVSentinel/issues/1576)."""

SHOWN = 3  # calls that a finding names; the rest is counted
SENSORS = ("temperature_c", "power_draw_w", "pstate", "memory_used_mib", "gpu_utilization_percent")
"""What every GPU tells; two of them with an unknown error is a GPU that no longer answers."""

_READABLE = {
    "fan_percent": "the fan speed",
    "temperature_c": "the temperature",
    "power_draw_w": "the power draw",
    "power_limit_w": "the power limit",
    "pstate": "the performance state",
    "memory_used_mib": "the memory in use",
    "gpu_utilization_percent": "the utilisation",
}
"""Columns of the table of nvidia-smi."""
_ASK_AGAIN = Fix(
    "Ask again before you act: one failed reading is usual. If it stays so, drain the node and reset the "
    "GPU; if that does not help, its board goes to the provider.",
    (look("nvidia-smi"), look("sudo dmesg | grep -iE 'xid|nvrm'")),
    verify=VERIFY,
)
_NO_CUDA = "No CUDA program can start on this node until the driver initialises."
_CUT_OFF = (
    "Every new CUDA program in this container fails, elsewhere on the node they run; what already runs here"
    " keeps its open devices."
)
_ONE_GPU = "A rank on this GPU fails; all other ranks wait for it until their watchdog fires."
_SLOW = Fix(
    "Find what slows the driver down: a GPU about to fail (kernel log), persistence mode off (every call "
    "initialises all GPUs again), or too many monitoring tools.",
    (
        look("sudo dmesg | grep -iE 'xid|nvrm'"),
        look("nvidia-smi --query-gpu=persistence_mode --format=csv"),
        look("pgrep -af 'dcgm|nvidia-smi'"),
    ),
    verify=VERIFY,
)


@check(
    "driver.answers",
    "Driver response",
    tags={"fast"},
    without=(Container,),
    explained_by=("driver.module-userspace", "driver.modules", "tools.verdicts@module:nvidia"),
    speaks_for=(
        "nvml",
        "nvml-growth",
        "nvidia-smi-xml",
        "nvidia-smi-topo",
        "nvidia-smi-topo-p2p",
        "nvidia-smi-nvlink",
        "nvidia-smi-nvlink-errors",
        "bandwidth",
        "bandwidth-deep",
        "collective",
        "collective-isolate",
        "gemm",
    ),
)
def answers(
    inventory: Inventory,
    answers: DriverAnswers | None,
    gpus: Gpus | None,
    driver: Driver | None,
    container: Container | None,
) -> Iterator[Finding]:
    """Errors and response times of NVML and nvidia-smi, and whether they returned at all.

    GPUs that come after one that hangs are not asked: a second child would enter the driver that hangs, where
    no signal ends it (NVIDIA/NVSentinel, issue 1576). They are listed as not asked.
    Why: when the driver hangs, every CUDA call of a job hangs, and its watchdog reports a network timeout.
    Fix disturbs: every job on the node when the driver must be reloaded.
    Judges: FAIL when NVML or nvidia-smi returns an error, hangs or crashes; WARN for one sensor of a GPU that
    cannot be read, and when an answer takes more
    than 5 s.
    Fix: Follow the error: reload or reboot after an upgrade, power cycle a lost GPU.
    Threshold: 5 s: AMD-AGI/Primus fails a node for a slow tool, NVIDIA/NVSentinel issue 1576 names a stalling
    driver.
    False positives: The first call without persistence mode initialises all GPUs and is slow.
    Error texts:
    - Failed to initialize NVML: Driver/library version mismatch
    - NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver
    - Failed to initialize NVML: Unknown Error
    - Unable to determine the device handle for GPU
    """
    if why := inventory.none_by_design:
        yield Finding.skip(why)
        return
    if answers is None:
        yield Finding.unknown("missing-tool", "neither NVML nor nvidia-smi was queried")
        return
    inside = True if inventory.restricted else container.inside if container else None
    unloaded = bool(driver and driver.loaded is False)
    troubles = [
        *_judge_silences(answers),
        *_judge_failures(answers, inventory, inside, unloaded),
        *_judge_sick(gpus),
    ]
    yield from troubles
    if not troubles:
        yield _all_answered(answers.answers)


def _judge_silences(answers: DriverAnswers) -> Iterator[Finding]:
    """Questions that got no answer, or a late one."""
    hung = [answer for answer in answers.answers if answer.outcome in ("stuck", "timeout")]
    if answers.tripped and not hung:
        yield Finding.fail(f"the driver hangs: {answers.tripped}", fix=HUNG)
    somebody = _has_answer(answers)
    for answer in answers.answers:
        if answer in hung:
            yield _judge_hang(answer)
        elif answer.outcome == "crash":
            yield _judge_crash(answer, somebody)
        elif answer.reason and not somebody:
            yield Finding.unknown(answer.reason, answer.unseen)
        elif answer.seconds is not None and answer.seconds > SLOW_SECONDS:
            yield _judge_slow(answer)


def _has_answer(answers: DriverAnswers) -> bool:
    """Whether any source came back with GPUs."""
    return any(answer.gpus and answer.outcome == "ok" for answer in answers.answers)


def _judge_hang(answer: DriverAnswer) -> Finding:
    """No answer in time. Less time than the driver must have says nothing about it."""
    if answer.outcome == "timeout" and (answer.seconds or 0.0) < SLOW_SECONDS:
        summary = f"{answer.probe} had too little time to answer: {answer.note}"
        return Finding.unknown("timeout", summary)
    summary = f"the driver hangs: {answer.probe}: {clause(answer.note)}"
    return Finding.fail(summary, evidence=_crash_evidence(answer), fix=HUNG)


def _judge_crash(answer: DriverAnswer, somebody: bool) -> Finding:
    """NVML crashes on a lost GPU (github.com/XuehaiPan/nvitop/issues/139)."""
    summary = f"{answer.probe} crashed: {_first_note(answer) or 'unknown reason'}"
    if somebody:
        return Finding.warn(
            f"{summary}; nvidia-smi answers", evidence=_crash_evidence(answer), fix=OFF_THE_BUS
        )
    return Finding.fail(summary, evidence=_crash_evidence(answer), fix=OFF_THE_BUS)


def _crash_evidence(answer: DriverAnswer) -> list[Evidence]:
    """The first line the engine noted, and which call it was in where that is known (it then repeats it)."""
    quotes = (
        [Evidence(answer.probe, _first_note(answer), "@note")]
        if _first_note(answer)
        else [_outcome_evidence(answer)]
    )
    return [*quotes, quoted_like(answer.probe, r'"waiting": "nvml\w+"')] if _IN_CALL in answer.at else quotes


_IN_CALL = "; it was in nvml"


def _outcome_evidence(answer: DriverAnswer) -> Evidence:
    return reading(answer.probe, "@outcome")


def _first_note(answer: DriverAnswer) -> str:
    return answer.note.partition("\n")[0]


def _judge_failures(
    answers: DriverAnswers, inventory: Inventory, inside: bool | None, unloaded: bool
) -> Iterator[Finding]:
    """Errors that kept the library from starting; one finding for all who met the same one."""
    failed = [(answer.probe, answer.init_error) for answer in answers.answers if answer.init_error]
    for name in dict.fromkeys(error.name for _, error in failed):
        evidence = [init_evidence(probe, error) for probe, error in failed if error.name == name]
        error = nvml_error(name)
        if _has_answer(answers):
            summary = f"{evidence[0].probe}: {error.meaning}; another source works"
            yield Finding.warn(summary, evidence=evidence, fix=error.fix)
        elif inventory.cut_off:
            summary = "this container lost access to the NVIDIA devices (device cgroup)"
            finding = Finding.fail(summary, evidence=evidence, fix=DEVICES_LOST)
            yield finding.matters_as(_CUT_OFF).explained_by("container.devices@container:gpus")
        else:
            without = unloaded and not inside
            fix = NO_DRIVER if without else error.fix_here(inside)
            lead = f"{'NVIDIA driver not loaded: ' if without else ''}{error.meaning}"
            finding = Finding.fail(f"{name}: {error.meaning}", evidence=evidence, fix=fix)
            yield finding.led_by(lead).matters_as(_NO_CUDA)


def _judge_slow(answer: DriverAnswer) -> Finding:
    limit = f"a healthy driver needs less than {SLOW_SECONDS:.0f} s"
    calls = sorted(answer.slow_calls, key=lambda call: -call.seconds)[:3]
    about = {call.index for call in answer.slow_calls}
    index = next(iter(about)) if len(about) == 1 else None
    on = f" on GPU {index}" if index is not None else ""
    summary = f"{answer.probe} took {answer.seconds:.1f} s{on} ({limit})"
    evidence = [slow_call(answer.probe, call) for call in calls] or [reading(answer.probe, "@seconds")]
    return Finding.warn(summary, evidence=evidence, fix=_SLOW)


def _judge_sick(gpus: Gpus | None) -> Iterator[Finding]:
    """GPUs that are listed and do not answer, or answer with an error."""
    if gpus is None:
        return
    for dead in gpus.lost:
        if dead.error not in ("NOT_ASKED", "NO_ANSWER", "CRASH"):  # the last two: a hang and a crash
            yield _silent_gpu(dead.error, dead.index, dead.subject, lost_evidence(gpus.source, dead))
    silent = {gpu.index for gpu in gpus.gpus if _silent_sensors(gpu)}
    refused = refusals(gpus)
    for refusal in refused:
        yield _judge_refusal(refusal, gpus, silent)
    subjects = {refusal.subject for refusal in refused}
    for gpu in gpus.gpus:
        if gpu.index in silent and gpu.subject not in subjects:
            evidence = values_failed(gpus.source, gpu, "UNKNOWN")
            yield _silent_gpu("UNKNOWN", gpu.index, gpu.subject, evidence)
        elif gpu.subject not in subjects:
            yield from _one_sensor(gpus.source, gpu)


def _one_sensor(source: str, gpu: Gpu) -> Iterator[Finding]:
    """A value that cannot be read on a GPU that answers: often gone at the next look."""
    failed = [name for name, error in gpu.errors.items() if error == "UNKNOWN"]
    sensors = [name for name in _READABLE if name in failed]
    is_text = source in (Q, XML)
    others = len(failed) - len(sensors) if is_text else 0
    reads = any(getattr(gpu, name) is not None for name in _READABLE)
    if not (sensors or others) or not (reads or is_text):
        return
    rest = count_with_noun(others, "other value" if sensors else "value") if others else ""
    names = comma_list([*(_READABLE[name] for name in sensors), *([rest] if rest else [])])
    printed = "Unknown Error" if is_text else "ERR!"
    but = ", the GPU's other values can" if reads else ""
    summary = f"{names} cannot be read ({printed}){but}"
    evidence = values(source, gpu, *(sensors or failed[:SHOWN]))
    yield Finding.warn(summary, subject=gpu.subject, evidence=evidence, fix=_ASK_AGAIN)


def _silent_gpu(name: str, index: int | None, subject: str, evidence: list[Evidence]) -> Finding:
    error = nvml_error(name)
    summary = f"{name}: {error.meaning}"
    finding = Finding.fail(summary, subject=subject, evidence=evidence, fix=error.fix_here(False, index))
    if name == "UNKNOWN":
        finding = finding.explained_by(f"kernel.xid@{subject}")
    return finding.led_by(_error_lead(error, index) or about(subject, error.meaning)).matters_as(_ONE_GPU)


def _error_lead(error: ErrorCode, index: int | None) -> str:
    is_about_gpu = index is not None and error.meaning.startswith("the GPU ")
    return f"GPU {index}{error.meaning.removeprefix('the GPU')}" if is_about_gpu else ""


def _judge_refusal(refusal: Refusal, gpus: Gpus, silent: Collection[int]) -> Finding:
    """A GPU that works and answers a question with an error: the table of codes has how bad that is."""
    error, index = nvml_error(refusal.error), refusal.index
    summary = f"{error.name} from {first_few(refusal.calls, SHOWN)}: {error.meaning}"
    gpu = gpus.get(index)
    evidence = values_failed(gpus.source, gpu, error.name) if gpu else []
    evidence = evidence or [quoted_like(gpus.source, rf'"\w+": "{re.escape(error.name)}"')]
    fix = error.fix_here(False, index)
    if error.of_value == "unseen":
        reason: Reason = "denied" if error.name == "NO_PERMISSION" else "not-visible-here"
        return Finding.unknown(reason, summary, subject=refusal.subject, evidence=evidence, fix=fix)
    dead = error.of_value == "fail" or (error.name == "UNKNOWN" and index in silent)
    make = Finding.fail if dead else Finding.warn
    finding = make(summary, subject=refusal.subject, evidence=evidence, fix=fix)
    if error.name == "CORRUPTED_INFOROM":
        finding = finding.explained_by("gpu.inforom")
    return finding.led_by(_error_lead(error, index)).matters_as(error.training)


def _silent_sensors(gpu: Gpu) -> bool:
    """Whether a GPU that is listed tells too little to be alive."""
    return sum(gpu.errors.get(field) == "UNKNOWN" for field in SENSORS) > 1


def _all_answered(answers: tuple[DriverAnswer, ...]) -> Finding:
    best = max(answers, key=lambda answer: answer.gpus)
    took = f" in {best.seconds:.2f} s" if best.seconds is not None else ""
    version = f", driver {best.driver_version}" if best.driver_version else ""
    gpus = count_with_noun(best.gpus, "GPU")
    return Finding.ok(f"{best.probe} answered{took}: {gpus}{version}")
