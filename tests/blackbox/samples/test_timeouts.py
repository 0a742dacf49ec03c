"""Which limit of the job's own is in force, and whether a hang is looked at before it."""

from __future__ import annotations

import pytest

from nodedoctor.blackbox.samples.sample import OutputPart, RankSample, Sample
from nodedoctor.blackbox.samples.timeouts import CAPTURE, Timeouts


def told(*texts: str, minutes: int | None = None, gpus: bool = True) -> Timeouts:
    timeouts = Timeouts(gpus=gpus)
    for text in texts:
        rank = RankSample(1, 1, 0, minutes=minutes)
        timeouts.feed(Sample(0.0, 0.0, (1,), (rank,), (OutputPart("/x/train.log", text),)))
    return timeouts


WATCHDOG = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, Timeout(ms)=120000) ran for"


@pytest.mark.parametrize(
    ("texts", "minutes", "seconds", "source"),
    [
        (("step 1",), None, 600.0, "NCCL's default in torch, assumed"),
        ((WATCHDOG,), None, 120.0, "seen in train.log"),
        ((WATCHDOG, WATCHDOG.replace("120000", "90000"), WATCHDOG), None, 90.0, "seen in train.log"),
        (("timeout=datetime.timedelta(seconds=7200)",), None, 7200.0, "seen in train.log"),
        (("'ddp_timeout': 3600,",), None, 3600.0, "seen in train.log"),
        (("",), 30, 1800.0, "DEEPSPEED_TIMEOUT of its ranks"),
        ((WATCHDOG,), 30, 120.0, "seen in train.log"),
    ],
)
def test_the_smallest_that_is_known(
    texts: tuple[str, ...], minutes: int | None, seconds: float, source: str
) -> None:
    limit = told(*texts, minutes=minutes).in_force
    assert (limit.seconds, limit.source) == (seconds, source)


def test_gloo_waits_longer() -> None:
    assert told("", gpus=False).in_force.seconds == 1800.0


def test_before_the_watchdog_or_too_late() -> None:
    """The threshold and the capture have to fit into the limit; else it is said what would."""
    in_time = told().before_watchdog(600.0 - CAPTURE - 1)
    assert "too late" not in in_time and "assumed" in in_time
    late = told().before_watchdog(600.0 - CAPTURE)
    assert "too late" in late
    wanted = float(late.rpartition("--hang-after ")[2].split()[0])
    assert "too late" not in told().before_watchdog(wanted)
