"""Whatever a driver says of its GPUs, every check of them says something and none raises."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import Any, get_args, get_type_hints

from asking import checks, judge
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodedoctor import record
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.nvlinks import NvLinks
from nodedoctor.facts.gpu.links.p2p import PeerAccess
from nodedoctor.facts.host.machine import Machine
from nodedoctor.knowledge.gpus import models
from nodedoctor.model import Expect, Observation, Outcome, Unseen

SUBJECTS = ("memory", "thermal", "power", "clock", "pcie", "nvlink", "p2p", "fabric", "topo")
NAMES = st.sampled_from([None, "Quadro X", *(model.product for model in models())])
REASONS = st.sampled_from([None, (), ("gpu_idle",), ("hw_slowdown", "bit_40"), ("sw_thermal_slowdown",)])


def write_out(cls: Any, written: set[Any]) -> None:
    """Give a class and those of its fields the `__init__` of their first value: hypothesis reads it.

    It remembers strategies, and may have been asked for these before: so each gets one of its own.
    """
    for inner in get_args(cls):
        write_out(inner, written)
    if not is_dataclass(cls) or cls in written:
        return
    written.add(cls)
    if vars(cls).get("__init__") is record.__init__:
        type.__setattr__(cls, "__init__", record._initialiser(cls))
    hints = get_type_hints(cls)
    for hint in hints.values():
        write_out(hint, written)
    if cls is not Gpu:
        fields = {name: st.from_type(hint) for name, hint in hints.items()}
        st.register_type_strategy(cls, st.builds(cls, **fields))


write_out(Gpu, set())
GPUS = st.builds(
    lambda gpu, name, reasons: replace(gpu, name=name, clock_event_reasons=reasons),
    st.from_type(Gpu),
    NAMES,
    REASONS,
)
NOTHING = Observation("nothing", Outcome.MISSING)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(GPUS, max_size=4))
def test_no_check_raises(listed: list[Gpu]):
    gpus = Gpus("nvml", gpus=tuple(replace(gpu, index=index) for index, gpu in enumerate(listed)))
    parsed = (
        Board.parse(gpus, Unseen("denied", "no bus"), Machine()),
        NvLinks.parse(gpus, NOTHING, NOTHING),
        PeerAccess.parse(gpus, NOTHING),
    )
    known = {type(fact): fact for fact in (gpus, *parsed) if not isinstance(fact, Unseen)}
    there = {*known, Expect}
    for id, check in checks().items():
        if check.subject in SUBJECTS and all(need.optional or need.cls in there for need in check.needs()):
            assert judge(id, *known.values()), id
