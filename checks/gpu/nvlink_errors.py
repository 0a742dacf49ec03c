"""Do NVLinks carry data without errors? Totals are old news; what grows is not."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.evidence import growth_evidence, link_evidence
from nodedoctor.facts.gpu.gpu import NvLink
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.error_growth import ErrorGrowth
from nodedoctor.facts.gpu.links.nvlink_smi import GpuLinks
from nodedoctor.facts.gpu.links.nvlinks import NvLinks
from nodedoctor.knowledge.fixes.gpu import look_at
from nodedoctor.knowledge.limits import limit
from nodedoctor.model import Evidence, Finding
from nodedoctor.steps import look
from nodedoctor.wording import count_with_noun

CRC_PER_SECOND = limit("nvlink_crc_per_second")
ERRORS_PER_SECOND = limit("nvlink_errors_per_second")
SATURATED = 65535
"""CRC counters have sixteen bits: at this value they only say "at least" (nvidia-smi nvlink -e)."""
MANY = {
    "crc_flit": 1000,
    "crc_data": 1000,
    "replay": 100,
    "recovery": 2,
    "ecc": 1,
    "link_recovery_failed": 1,
    "link_recovery": 100,
}
"""Totals since driver load from which a link is worth a warning: each recovery is a link that broke down and
was trained again, which sound ones do once (two is ours); CRC
and replays happen on sound links, in ones and twos. NVLink 5 recovers within a step, and sound links have
done so never or a few times: on one with 505 beside links with none Xid 149 followed (hundred is ours)."""
BROKEN = {"crc_flit": SATURATED, "crc_data": SATURATED, "recovery": 10, "link_recovery_failed": 10}
"""Totals from which a link is broken whenever that was: a full counter, or many retrainings."""
EFFECTIVE_BER = 1e-6
"""After error correction: the alarm level of Azure/cyclecloud-healthagent (defaults.yaml)."""

_RATES = {
    "crc_flit": CRC_PER_SECOND,
    "crc_data": CRC_PER_SECOND,
    "replay": ERRORS_PER_SECOND,
    "recovery": ERRORS_PER_SECOND,
    "link_recovery_failed": ERRORS_PER_SECOND,
    "link_recovery": ERRORS_PER_SECOND,
    "effective_errors": CRC_PER_SECOND,
}
"""Raw symbol errors are not among them: links with PAM4 signals (NVLink 4 and 5) have them all the time."""
SEVERE = 10
"""Times DCGM's limit, from which what grows is a fault and no longer a warning."""


@check(
    "nvlink.errors",
    "NVLink errors",
    tags={"gpu", "nvlink"},
    without=(ErrorGrowth,),
    explained_by=("nvlink.links", "driver.answers", "driver.gpus-present"),
)
def errors(links: NvLinks, gpus: Gpus | None, growth: ErrorGrowth | None) -> Iterator[Finding]:
    """CRC, replay and recovery counters of each link: growth within a second, and large totals.

    Why: a link that resends data is slow at random times, and a link recovery stalls all GPUs for seconds.
    Fix disturbs: processes on the GPU, during the reset.
    Judges: FAIL when error counters grow fast or are full, WARN when they grow or totals are high.
    Fix: Reset the GPUs and watch the counters; replace the part whose errors come back.
    Threshold: NVIDIA/DCGM, DcgmGPUHardwareLimits.h for rates; 1e-6 bit errors (Azure/cyclecloud-healthagent).
    False positives: A recovery after driver load and a few replays are normal.
    Error texts:
    - uncorrectable NVLink error detected during the execution
    """
    counting = [gpu for gpu in links.gpus if any(link.counters or link.ber for link in gpu.links)]
    findings = [f for gpu in counting for f in _judge_gpu(gpu, links.source, gpus, growth)]
    yield from findings
    if not counting:
        yield Finding.skip("no NVLink error counters reported here")
    elif not any(finding.severity.is_problem for finding in findings):
        count = sum(len(gpu.links) for gpu in counting)
        note = f": no growth in {growth.seconds} s" if growth else ": totals only, growth not measured"
        yield Finding.ok(f"{count_with_noun(count, 'link')} of {count_with_noun(len(counting), 'GPU')}{note}")


def _judge_gpu(
    gpu: GpuLinks, source: str, gpus: Gpus | None, growth: ErrorGrowth | None
) -> Iterator[Finding]:
    """At most one finding per GPU: what grows, else what is high, else what is worth knowing."""
    device = gpus.get(gpu.index) if gpus else None
    growing = list(_growing_links(gpu, growth))
    high = [line for link in gpu.links for line in _high_counters(link)]
    some = [line for link in gpu.links for line in _some_counters(link)]
    text = (
        "Errors on one GPU's links only: that module or its socket; on links to one NVSwitch: that switch. "
        "Reset the GPUs and watch the counters; if they grow again, request a replacement. Limits: "
        f"{CRC_PER_SECOND.source}."
    )
    steps = (look("nvidia-smi nvlink -e -i {}", gpu.index), look("sudo dmesg | grep -iE 'xid|sxid|nvlink'"))
    fix = look_at(
        device, text, "nvlink.errors", steps, "reset-gpu", "all GPUs of the board, during the reset"
    )
    if growing:
        summary = f"error counters grow on {count_with_noun(len(growing), 'NVLink')}"
        lines = [
            quote
            for link, names, _ in growing[:9]
            for name in names
            for quote in growth_evidence(gpu.index, name, link)
        ]
        judge = Finding.fail if any(severe for *_, severe in growing) else Finding.warn
        yield judge(summary, subject=gpu.subject, evidence=lines, fix=fix)
    elif high:
        summary = f"many errors since driver load: {high[0]}" + _and_more(len(high))
        lines = _counter_evidence(gpu, source, MANY, lambda name, count: count >= MANY[name])
        broken = any(
            link.counters.get(name, 0) >= most for link in gpu.links for name, most in BROKEN.items()
        )
        yield (Finding.fail if broken else Finding.warn)(
            summary, subject=gpu.subject, evidence=lines, fix=fix
        )
    elif some:
        lines = _counter_evidence(gpu, source, _RATES, lambda _, count: count > 0)
        summary = f"a few errors since driver load: {some[0]}" + _and_more(len(some))
        yield Finding.info(summary, subject=gpu.subject, evidence=lines)


def _counter_evidence(
    gpu: GpuLinks, source: str, names: Iterable[str], worth: Callable[[str, int], bool]
) -> list[Evidence]:
    """The counters of these names that are worth showing, link by link; above its limit the error rate."""
    evidence = [
        quote
        for link in gpu.links
        for name in names
        if name in link.counters and worth(name, link.counters[name])
        for quote in link_evidence(source, gpu.index, link.link, name)
    ]
    evidence += [
        quote
        for link in gpu.links
        if link.ber.get("effective", 0.0) > EFFECTIVE_BER
        for quote in link_evidence(source, gpu.index, link.link, "effective_ber")
    ]
    return evidence[:18]


def _and_more(count: int) -> str:
    return f" and {count - 1} more" if count > 1 else ""


def _growing_links(gpu: GpuLinks, growth: ErrorGrowth | None) -> Iterator[tuple[int, tuple[str, ...], bool]]:
    """Links with the counters that grow faster than DCGM's health watch allows, and whether much faster."""
    gained = growth.gpu(gpu.index) if growth else None
    if growth is None or gained is None:
        return
    for link in gained.links:
        fast = {
            name: count
            for name, count in link.gained.items()
            if name in _RATES and count > 0 and count >= _RATES[name].number * growth.seconds
        }
        if fast:
            allowed = {name: _RATES[name].number * growth.seconds for name in fast}
            severe = any(count >= SEVERE * allowed[name] for name, count in fast.items())
            yield link.link, tuple(fast), severe


def _high_counters(link: NvLink) -> Iterator[str]:
    many = {name: count for name, count in link.counters.items() if count >= MANY.get(name, SATURATED + 1)}
    many = {name: count for name, count in many.items() if name in MANY}
    if many:
        yield f"Link {link.link}: {_counter_words(many)}"
    rate = link.ber.get("effective")
    if rate is not None and rate > EFFECTIVE_BER:
        yield f"Link {link.link}: effective bit error rate {rate:.0e}"


def _some_counters(link: NvLink) -> Iterator[str]:
    few = {name: count for name, count in link.counters.items() if count and name in _RATES}
    if few:
        yield f"Link {link.link}: {_counter_words(few)}"


def _counter_words(counts: Mapping[str, int]) -> str:
    full = {name: "at least " if count == SATURATED else "" for name, count in counts.items()}
    return ", ".join(f"{name.replace('_', ' ')} {full[name]}{count}" for name, count in counts.items())
