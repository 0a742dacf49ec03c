"""Load is put on idle GPUs alone, and where that cannot be known nothing counts as judged."""

from pathlib import Path

import pytest

from nodedoctor.declare.registry import Options
from nodedoctor.facts.measured.bandwidth import Bandwidth, quick
from nodedoctor.facts.measured.deep_tools import DcgmDiag, dcgm
from nodedoctor.model import Observation, Outcome, Unseen

NODES = Path(__file__).parents[2] / "nodes"
NO_DEVICE = Observation("nvml", Outcome.SKIPPED, note="no NVIDIA device on the PCI bus")
MISMATCH = Observation("nvml", text=(NODES / "h100-upgraded-unasked/probes/nvml.txt").read_text())
HUNG = Observation("nvml", Outcome.STUCK, note="no answer in 30 s")
NOBODY = Observation("processes", text='{"schema": "nodedoctor.processes/1", "processes": []}')


@pytest.mark.parametrize(
    ("nvml", "applies"),
    [(NO_DEVICE, False), (MISMATCH, True), (HUNG, True)],
    ids=["none", "mismatch", "hung"],
)
def test_gpus_that_cannot_be_seen_are_not_skipped(nvml, applies):
    planned = quick(Options(), nvml, NOBODY)
    assert isinstance(planned, Observation) and planned.outcome is Outcome.SKIPPED
    told = Bandwidth.parse(planned, Observation("bandwidth-deep", Outcome.SKIPPED, note="only with --deep"))
    assert isinstance(told, Unseen) and told.applies is applies
    assert told.applies is bool(told.way_out)


@pytest.mark.parametrize(("nvml", "applies"), [(NO_DEVICE, False), (MISMATCH, True)])
def test_tools_that_load_gpus_say_so_too(nvml, applies):
    planned = dcgm(Options(deep=True), nvml, NOBODY)
    told = DcgmDiag.parse(planned)
    assert isinstance(told, Unseen) and told.applies is applies
