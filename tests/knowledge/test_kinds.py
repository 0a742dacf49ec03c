"""The table of kinds: what follows from recurrence, and that every symptom belongs to one."""

from __future__ import annotations

import importlib
import pkgutil
import typing
from collections import Counter
from collections.abc import Iterator

import pytest
from in_turn import in_turn

from nodedoctor.engine.plugins import discover
from nodedoctor.knowledge.kinds import Kind, event_of_check, kind, kind_of_events, kinds, of_cause
from nodedoctor.knowledge.xids import xids
from nodedoctor.triage import patterns
from nodedoctor.triage.model import Cause
from nodedoctor.triage.patterns.log_pattern import LogPattern, Symptom
from nodedoctor.triage.verdict.causes.families import FAMILIES

ALL = typing.get_args(Cause)
SUSPICIONS = {
    "ib-left-out",
    "ib-setup",
    "network-plugin-failed",
    "nvshmem-no-transport",
    "cuda-not-started",
    "p2p-off-on-nvlink",
    "acs-hint",
    "p2p-broken",
    "works-without-p2p",
    "wrong-values",
    "engine-waits",
    "heartbeat-missed",
    "wrong-build",
    "torch-without-part",
    "mpi-without-launcher",
    "declared-mismatch",
    "cuda-after-fork",
    "ddp-unused-parameters",
    "dask-memory",
    "memory-limit-touched",
    "ray-versions",
}
"""Symptoms of which nothing more is to be said than of their cause."""


def symptoms() -> Iterator[Symptom]:
    """Every symptom that some reader knows."""
    for module in pkgutil.walk_packages(patterns.__path__, f"{patterns.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, tuple):
                for sign in value:
                    yield from _symptoms_of(sign)


def _symptoms_of(sign: object) -> Iterator[Symptom]:
    if isinstance(sign, LogPattern):
        for cell in getattr(sign.make, "__closure__", None) or ():
            if isinstance(cell.cell_contents, Symptom):
                yield cell.cell_contents


@in_turn("row", kinds(), ids=lambda row: row.kind)
def test_a_decision_follows_from_where_the_same_is_expected_again(row: Kind) -> None:
    again = (row.same_nodes, row.other_nodes)
    expected = {
        ("no", "no"): ("restart", "none"),
        ("yes", "no"): ("restart-without",),
        ("yes", "yes"): ("stop",),
    }
    assert row.decision in expected.get(again, ("look",))
    assert (row.decision == "none") <= (row.cause == "none")
    assert row.title and row.why and not row.why.endswith(".")


@pytest.mark.parametrize("cause", ALL)
def test_every_cause_has_a_kind_for_the_rest_and_no_event_has_two(cause: Cause) -> None:
    rest = kind_of_events(cause, ())
    assert kind(rest) is not None and rest == f"{cause}/other"
    counts = Counter(name for row in of_cause(cause) for name in row.events)
    assert [name for name, count in counts.items() if count > 1] == []
    assert [row.kind for row in of_cause(cause) if not row.events] in ([rest], [])


def test_every_row_is_of_a_cause_and_can_be_asked_for_by_its_name() -> None:
    assert {row.cause for row in kinds()} == set(ALL)
    assert all(kind(row.kind) is row for row in kinds())
    short = kind("port_in_use")
    assert short is not None and short.kind == "network_socket_interface/port_in_use"
    assert kind("other") is None and kind("never_heard_of") is None


def test_every_symptom_has_a_kind_of_its_cause_or_is_listed_as_having_none() -> None:
    known = list(symptoms())
    assert len(known) > 60
    rest = {
        symptom.name
        for symptom in known
        if kind_of_events(symptom.cause, ((symptom.name.replace("-", "_"),),)).endswith("/other")
    }
    assert rest == SUSPICIONS


def test_a_table_names_no_event_that_nothing_raises() -> None:
    """Names of symptoms, families, checks and Xids in the table are those of what they stand for."""
    families = {f"raised_{family.name}".replace("-", "_") for family in FAMILIES}
    codes = {f"xid_{row.xid}" for row in xids()}
    checks = set(map(event_of_check, discover().checks))
    named = {name for row in kinds() for name in row.events}
    assert {name for name in named if name.startswith("raised_")} <= families
    assert {name for name in named if name.startswith("xid_")} <= codes
    prefixes = ("limits_", "fabric_", "nvlink_", "ib_", "kernel_", "net_", "p2p_", "memory_", "driver_")
    symptom_names = {"ib_flush"} | {symptom.name.replace("-", "_") for symptom in symptoms()}
    assert {name for name in named if name.startswith(prefixes)} <= checks | symptom_names


def test_no_kind_of_a_waiting_rank_takes_a_node_away() -> None:
    waiting = (
        "cpu_stuck_or_slow_rank",
        "timeout_too_short_legit_work",
        "collective_mismatch",
        "undetermined",
    )
    for cause in waiting:
        assert "restart-without" not in {row.decision for row in of_cause(cause)}
