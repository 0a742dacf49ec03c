"""Does every rail carry what its port promises? Measured with perftest, on this host alone."""

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.rdma.loopback import IbLoopback, Loop
from nodedoctor.facts.rdma.ports import Ib
from nodedoctor.knowledge.limits import limit
from nodedoctor.model import Evidence, Finding, Fix, quoted_like
from nodedoctor.steps import look
from nodedoctor.wording import count_with_noun

BROKEN = 0.5
"""Of the port's rate; ours: a PCIe slot with half its lanes, or of the generation before, gives half."""
_SLOW = Fix(
    "Check whether its PCIe link has full width and speed, and whether ACS or an IOMMU slows "
    "it; then compare "
    "firmware and settings with those of a rail that is fast.",
    (look("nodedoctor pcie ib topo"), look("sudo lspci -vv -d 15b3:")),
    "investigate",
    "every job on the node when a card is reseated",
    "nodedoctor deep.ib-write-bw",
    "https://github.com/linux-rdma/perftest",
)


@check(
    "deep.ib-write-bw",
    "RDMA loopback bandwidth",
    tags={"ib", "deep"},
    without=(Ib,),
    explained_by=("ib.ports", "ib.width", "ib.rate"),
    stage="preview",
)
def ib_write_bw(told: IbLoopback, ib: Ib | None) -> Iterator[Finding]:
    """Gbit/s of ib_write_bw from this host through each active rail and back, against the port's rate.

    The NIC reads from and writes to host memory: this tests card and slot, not cable and switch.
    Why: between nodes every collective is as slow as its slowest rail.
    Fix disturbs: every job on the node when a card must be reseated.
    Judges: FAIL below half of the port's rate, WARN below what a healthy slot gives.
    Fix: Check the adapter's PCIe link (nic.inventory, pcie.width) and reseat the card.
    Threshold: Half of the rate is our threshold (half the lanes); Azure/azurehpc-health-checks names 180 of
    200 and 380 of 400 Gbit/s.
    False positives: Traffic of a running job on the same port.
    """
    share, rates = _rate_share(), {port.name: port.rate_gbps for port in ib.ports} if ib else {}
    good = 0
    for loop in told.ports:
        finding = _judge_unmeasured(loop) or _judge_slow(loop, rates.get(loop.port) or 0.0, share)
        if finding:
            yield finding
        good += not finding
    if good:
        evidence = [
            _rate_evidence(loop, rates.get(loop.port)) for loop in told.ports if loop.average_gbps is not None
        ]
        yield Finding.ok(
            f"{good} of {count_with_noun(len(told.ports), 'rail')} at the rated bandwidth", evidence=evidence
        )


def _rate_share() -> float:
    """Of the port's rate: 180 of 200 Gb/s, as 360 of 400 (Azure/azurehpc-health-checks, conf).

    Those fail a node, but with GPUDirect and between adapters; through host memory we warn.
    """
    return limit("ib_bus_share_200").number / 200


def _judge_unmeasured(loop: Loop) -> Finding | None:
    if not loop.error:
        return None
    subject, lines = f"port:{loop.port}", [line for line in loop.said.splitlines() if line.strip()]
    evidence = [Evidence("ib-write-bw", line.strip()) for line in lines[-2:]]
    if loop.error == "failed":
        why = f"ib_write_bw failed: {evidence[-1].text if evidence else 'no output'}"
        return Finding.unknown("crash", why, subject=subject, evidence=evidence, fix=_by_hand(loop))
    why = "no time left for this test" if loop.error == "late" else "ib_write_bw did not finish in 8 s"
    return Finding.unknown("timeout", why, subject=subject, evidence=evidence, fix=_by_hand(loop))


def _by_hand(loop: Loop) -> Fix:
    device, _, number = loop.port.partition("/")
    return Fix(
        "Run the test by hand, the server in one shell, the client in another; check limits.memlock if "
        "memory cannot be registered.",
        (
            look("ib_write_bw -d {} -i {} -F --report_gbits", device, number or "1"),
            look("ib_write_bw -d {} -i {} -F --report_gbits 127.0.0.1", device, number or "1"),
        ),
        "investigate",
        "nothing",
        "nodedoctor deep.ib-write-bw",
        "https://github.com/linux-rdma/perftest",
    )


def _judge_slow(loop: Loop, rate: float, share: float) -> Finding | None:
    average, subject = loop.average_gbps or 0.0, f"port:{loop.port}"
    if not rate:
        summary = f"{average:.0f} Gb/s measured, the port's rate is unknown (see ib.rate)"
        return Finding.unknown(
            "not-visible-here", summary, subject=subject, evidence=[_rate_evidence(loop, rate)]
        )
    if average >= share * rate:
        return None
    judge = Finding.fail if average < BROKEN * rate else Finding.warn
    summary = f"{average:.0f} Gb/s, port rate {rate:.0f}, expected at least {share * rate:.0f}"
    return judge(summary, subject=subject, evidence=[_rate_evidence(loop, rate)], fix=_SLOW)


def _rate_evidence(loop: Loop, rate: float | None) -> Evidence:
    number = (
        rf"^.*\b{re.escape(f'{loop.average_gbps:g}')}\d*\b.*$" if loop.average_gbps is not None else r"\S.*"
    )
    row = rf"{number}|^ ?\d+[ \t]+\d+[ \t]+[\d.]+[ \t]+[\d.]+.*$"  # in another unit where it was pasted
    return quoted_like("ib-write-bw", row, f"ports[port={loop.port}].text")
