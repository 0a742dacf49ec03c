"""The methods that measure a pair, a row each: words for people, seconds, the expectation, reserves."""

from __future__ import annotations

from collections.abc import Mapping

from nodedoctor.pairs.model import What
from nodedoctor.record import record


@record
class Method:
    """One method. `plan` and `rate` are words for people, `key` is that of `--expect`.

    `setup_s` are seconds of a round beside the load, `beyond_s` those after which its pairs are hung, and
    `starting_s` those within which an agent must be ready. `gbps_of_key` is one unit of the key in Gb/s.
    `untried` is what such a document says nothing about, and what it says with reserve.
    """

    plan: str
    rate: str
    key: str
    setup_s: float
    beyond_s: float
    untried: tuple[str, ...]
    starting_s: float = 30.0
    gbps_of_key: float = 1.0


# Setup: measured below one second for TCP and three for gloo on a slow core; ours for perftest and NCCL.
# Beyond the load: connecting may take four seconds, servers of perftest five in each of two halves, and eight
# ranks of NCCL twenty to find each other (ours). Starting: ssh may take ten to connect, nvidia-smi eight;
# importing torch from a network file system takes most of a minute when all nodes do so at once (ours).
METHODS: Mapping[What, Method] = {
    "tcp": Method(
        plan="TCP",
        rate="over TCP",
        key="pair.gbps",
        setup_s=2.0,
        beyond_s=8.0,
        untried=("RDMA and collectives between nodes: not measured, see --what",),
    ),
    "rails": Method(
        plan="TCP rail by rail",
        rate="over TCP on its slowest rail",
        key="pair.rail",
        setup_s=2.0,
        beyond_s=8.0,
        untried=(
            "TCP on each rail was tried on interfaces of namespaces only: WARN at most without --preview",
            "RDMA and collectives between nodes: not measured, see --what",
        ),
    ),
    "rdma": Method(
        plan="RDMA rail by rail (ib_write_bw)",
        rate="on its slowest RDMA rail",
        key="pair.rdma",
        setup_s=4.0,
        beyond_s=16.0,
        untried=(
            "RDMA pairs were tried with made-up outputs of ib_write_bw only: WARN at most without --preview",
            "ib_write_bw compares no bytes, and its own port knows no passwords",
        ),
    ),
    "collective": Method(
        plan="all-reduce in a ring (NCCL on GPUs, else gloo)",
        rate="in an all-reduce",
        key="pair.busbw",
        setup_s=6.0,
        beyond_s=30.0,
        untried=(
            "NCCL between nodes was never tried on GPUs: WARN at most without --preview",
            "torch's store knows no passwords: it listens on one address for one round",
        ),
        starting_s=75.0,
        gbps_of_key=8.0,  # nccl-tests print gigabytes per second
    ),
}
