"""Do copies with the host and inside a GPU reach what they should, and arrive unharmed?"""

from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.measured.bandwidth import DEEP, Bandwidth, HostCopy
from nodedoctor.knowledge.fixes.bandwidth import HOST, SLOW, SYSTEM, WRONG
from nodedoctor.knowledge.floors import BELOW_PEERS, host_copy_floors, share_of
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.model import Evidence, Finding, reading
from nodedoctor.wording import count_with_noun

from .bandwidth import BROKEN, busy_gpus, start_failures


@check(
    "bandwidth.host",
    "Host-GPU copies: bandwidth and data",
    tags={"gpu", "pcie"},
    explained_by=("driver.answers", "driver.gpus-present", "pcie.width", "pcie.speed"),
)
def host(bandwidth: Bandwidth, gpus: Gpus | None) -> Iterator[Finding]:
    """GB/s to and from pinned memory of the nearest NUMA node for each idle GPU, and the data read back.

    Why: batches, offloaded optimizers and checkpoints use this path; half the PCIe lanes is half the speed.
    Fix disturbs: every job on the node when a card must be reseated.
    Judges: FAIL when copied data differs, or a GPU is below half of the median of its peers or below the
    floor of its PCIe generation. A smaller lag behind the peers is a WARN.
    Fix: Check the link's width and speed (pcie.width, pcie.speed), reseat the card or riser, and measure
    again.
    Threshold: Floors per PCIe generation are rows of the table of floors; 0.9 and 0.5 of the peers' median
    are our thresholds, no external source.
    False positives: Confidential computing encrypts host copies and is much slower by design; a GPU that
    starts work during the measurement looks slow.
    """
    copies = [copy for copy in bandwidth.host if copy.kind == "near"]
    good = [copy for copy in copies if not copy.error]
    encrypted = gpus is not None and gpus.encrypted
    findings = [*start_failures(bandwidth), *_host_errors(bandwidth)]
    if bandwidth.cut_short:
        findings.append(Finding.unknown("timeout", f"measurement incomplete: {bandwidth.cut_short}"))
    for copy in [copy for copy in bandwidth.host if copy.wrong]:
        summary = "data corruption in host-GPU copies"
        evidence = bandwidth.host_said(copy, "wrong")
        findings.append(Finding.fail(summary, subject=f"gpu:{copy.index}", evidence=evidence, fix=WRONG))
    findings += _slow_hosts(bandwidth, good, _by_index(gpus), encrypted)
    yield from findings
    if encrypted and good:
        summary = "confidential computing encrypts these copies: compared with peers only"
        yield Finding.info(summary, subject="mode:confidential-computing")
    if good and not findings:
        low = min(min(_both_ways(copy)) for copy in good)
        yield Finding.ok(
            f"at least {low:.0f} GB/s to and from {count_with_noun(len(good), 'GPU')}",
            evidence=_host_lines(bandwidth, good),
        )
    elif not findings and not bandwidth.left_out:
        yield Finding.unknown("crash", "no host-GPU copy was measured")
    yield from busy_gpus(bandwidth)


@check(
    "bandwidth.memory",
    "GPU memory bandwidth",
    tags={"gpu", "deep"},
    explained_by=("memory.remap", "memory.ecc", "thermal.throttle", "clock.limits"),
)
def memory(bandwidth: Bandwidth, gpus: Gpus | None) -> Iterator[Finding]:
    """GB/s (read plus written) of copies inside each idle GPU, against the data sheet and the other GPUs.

    Why: most kernels are limited by memory bandwidth; one GPU with slow memory makes all ranks wait.
    Fix disturbs: every job on the GPU while it is reset.
    Judges: FAIL when a copy inside the GPU is far below the data sheet and the peers; WARN when only one of
    them says so.
    Fix: Check ECC and clocks of that GPU, reset it, and replace it if it stays slow.
    Threshold: 0.45 of the data sheet lies just below the lowest of DCGM's limits (NVIDIA/DCGM,
    nvvs/diag-skus.yaml.in); the peers' median times 0.9 is our threshold.
    False positives: A GPU with lowered memory clocks, or one that another program uses meanwhile.
    """
    speeds, by_index = bandwidth.memory_gbytes_s, _by_index(gpus)
    if bandwidth.deep and bandwidth.cut_short:
        yield Finding.unknown("timeout", f"measurement incomplete: {bandwidth.cut_short}")
    elif not speeds:
        yield Finding.skip(
            "measured only with --deep" if not bandwidth.deep else "no GPU memory was measured"
        )
    if not speeds:
        return
    usual = median(speeds.values())
    row = share_of("memory-copy")
    share = row.share if row else 0.0
    low = False
    for index, speed in speeds.items():
        model = gpu_model(by_index[index].name or "") if index in by_index else None
        sheet = (model.memory_bandwidth_gbps if model else None) or 0.0
        evidence = [reading(DEEP, f"steps[step=memory&index={index}].gbytes_s")]
        if speed < share * sheet:
            summary = f"{speed:.0f} GB/s, below {share:.0%} of the data sheet's {sheet:.0f}"
            yield Finding.fail(summary, subject=f"gpu:{index}", evidence=evidence, fix=SLOW)
        elif speed < BELOW_PEERS * usual:
            summary = f"{speed:.0f} GB/s , other GPUs {usual:.0f}"
            yield Finding.warn(summary, subject=f"gpu:{index}", evidence=evidence, fix=SLOW)
        low |= speed < max(share * sheet, BELOW_PEERS * usual)
    if not low:
        yield Finding.ok(
            f"{min(speeds.values()):.0f} to {max(speeds.values()):.0f} GB/s on {len(speeds)} GPUs"
        )


def _host_errors(bandwidth: Bandwidth) -> Iterator[Finding]:
    for copy in bandwidth.host:
        if copy.error and copy.kind == "near":
            yield Finding.unknown(
                "crash", f"could not be measured: {copy.error}", subject=f"gpu:{copy.index}"
            )


def _slow_hosts(
    bandwidth: Bandwidth, copies: list[HostCopy], by_index: Mapping[int, Gpu], encrypted: bool
) -> Iterator[Finding]:
    if not copies:
        return
    usual = median(min(_both_ways(copy)) for copy in copies)
    low = []
    for copy in copies:
        floor, wanted = _host_floors(by_index.get(copy.index), encrypted)
        speed = min(_both_ways(copy))
        if speed < max(floor, wanted, BELOW_PEERS * usual):
            low.append((copy, speed, max(floor, BROKEN * usual), max(wanted, BELOW_PEERS * usual)))
    if len(low) == len(copies) > 2:
        evidence = _host_lines(bandwidth, [copy for copy, *_ in low[:4]])
        broken = any(speed < floor for _, speed, floor, _ in low)
        judge = Finding.fail if broken else Finding.warn
        summary = f"host-GPU copies slow on every GPU: {usual:.0f} GB/s, expected {low[0][3]:.0f}"
        yield judge(summary, evidence=evidence, fix=SYSTEM)
        return
    for copy, speed, floor, wanted in low:
        judge = Finding.fail if speed < floor else Finding.warn
        summary = f"host-GPU copies slow: {speed:.0f} GB/s, expected at least {wanted:.0f}"
        yield judge(summary, subject=f"gpu:{copy.index}", evidence=_host_lines(bandwidth, [copy]), fix=HOST)


def _host_floors(gpu: Gpu | None, encrypted: bool) -> tuple[float, float]:
    """Below which the PCIe link of a GPU is broken, and below which it is worth a look; 0 where not known."""
    if gpu is None:
        return 0.0, 0.0
    gates = host_copy_floors(gpu.pcie_generation_max, gpu.pcie_width_max, encrypted=encrypted)
    least = {gate.level: gate.least for gate in gates}
    return least.get("fail", 0.0), least.get("warn", 0.0)


def _by_index(gpus: Gpus | None) -> dict[int, Gpu]:
    return {gpu.index: gpu for gpu in gpus.gpus} if gpus else {}


def _both_ways(copy: HostCopy) -> tuple[float, float]:
    return copy.h2d_gbytes_s or 0.0, copy.d2h_gbytes_s or 0.0


def _host_lines(bandwidth: Bandwidth, copies: Iterable[HostCopy]) -> list[Evidence]:
    return [quote for copy in copies for quote in bandwidth.host_said(copy, "h2d_gbytes_s", "d2h_gbytes_s")]
