"""Every way in takes anything, and every reader lies behind one of them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from examples import examples
from functions import readers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutate import HOW, LARGEST, Edit, apply
from targets import BARRED, CORPUS, HERE, targets
from tiers import first

TARGETS = {target.name: target for target in targets()}
EDITS = st.lists(
    st.builds(Edit, st.sampled_from(HOW), st.integers(0, LARGEST), st.integers(0, 300), st.integers(0, 9999)),
    max_size=5,
)
CALLED_ELSEWHERE = {
    "nodedoctor.blackbox.live.together": "what transports brought; tests/triage/live",
    "nodedoctor.engine.session.since_when": "a word of the command line; tests/engine/test_run.py",
    "nodedoctor.fleet.transports.slurm.step.argv": "builds a command of words that were checked",
    "nodedoctor.fleet.transports.slurm.step.held_argv": "builds a command of words that were checked",
    "nodedoctor.fleet.transports.ssh.argv": "builds a command of words that were checked",
    "nodedoctor.pairs.on_node.tcp.greeting": "builds what is sent",
    "nodedoctor.pairs.schedule.plan": "names of nodes that were checked; tests/pairs",
    "nodedoctor.probes.cluster.nccl_ras.ask": "asks a socket",
    "nodedoctor.probes.measured.collective.ends": "what torch printed on this node",
    "nodedoctor.probes.measured.ib_write_bw.loopback": "starts programs",
    "nodedoctor.probes.network.ethtool.ask": "asks the kernel",
    "nodedoctor.probes.network.net.resolved": "asks a name server",
    "nodedoctor.probes.stack.mapped_nccl.describe": "reads a file of this node",
    "nodedoctor.triage.events.sign.sign": "declares; its patterns are ours",
    "nodedoctor.engine.registry.skipped": "answers with its own two arguments",
}
"""Readers that no target reaches, and why."""
NAMES_A_PLACE = "nodedoctor.facts.gpu.places."
"""Where in an observation a value stands: built of numbers, only where a finding quotes it."""


@pytest.mark.parametrize("name", first(2, TARGETS))
@settings(max_examples=examples(20), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_anything_is_an_answer_or_an_announced_error(name: str, data: st.DataObject) -> None:
    seeds = TARGETS[name].seeds()
    TARGETS[name].take(apply(data.draw(st.sampled_from(seeds)), data.draw(EDITS), seeds))


@pytest.mark.parametrize(
    "file", sorted(CORPUS.glob("*/*")), ids=lambda file: f"{file.parent.name}-{file.name}"
)
def test_what_once_broke_a_target_is_taken(file: Path) -> None:
    (target,) = [target for name, target in TARGETS.items() if name.replace(" ", "-") == file.parent.name]
    target.take(file.read_bytes())


@pytest.mark.slow
def test_every_reader_is_reached() -> None:
    """Readers are listed by their signatures; a new one is called by a target, or says here why not."""
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_name))

    for target in TARGETS.values():
        seeds = target.seeds()
        chosen = seeds if target.name.startswith("functions") else seeds[:12]
        for seed in chosen:
            before = sys.getprofile()
            sys.setprofile(note)
            try:
                target.take(seed)
            finally:
                sys.setprofile(before)
    root = HERE.parents[1]
    names = {(str(Path(file).relative_to(root)), name) for file, name in called if file.startswith(str(root))}
    modules = {
        (file.removesuffix(".py").removesuffix("/__init__").replace("/", "."), name) for file, name in names
    }
    missed = {str(reader) for reader in readers() if (reader.module, reader.name) not in modules}
    missed = {name for name in missed if not name.startswith(NAMES_A_PLACE)}
    assert missed - BARRED.keys() - CALLED_ELSEWHERE.keys() == set()
    known = {str(reader) for reader in readers()}
    assert {*BARRED, *CALLED_ELSEWHERE} <= known, "a name that is gone"
