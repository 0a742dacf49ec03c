"""`explain` answers in plain text that fits a terminal and ends with its source."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.cli.explain import explain
from nodedoctor.declare.registry import check, fact
from nodedoctor.knowledge import env_vars, xids
from nodedoctor.knowledge.kinds import causes, kinds
from nodedoctor.model import Expect, Finding


@check("rack.painted", "The rack is painted", tags={"fast"})
def rack_painted(expect: Expect):
    """Whether somebody painted it.

    Why: rust.
    Fix disturbs: the nose.
    """
    yield Finding.warn("bare metal")


@check("rack.level", "The rack is level")
def rack_level():
    """Whether a marble stays."""
    yield Finding.ok("it does")


@fact("rack-camera")
class RackColour:
    """The colour of the rack, as the camera sees it."""


CHECKS = [rack_painted.__nodedoctor__, rack_level.__nodedoctor__]


def assert_readable(text):
    lines = text.splitlines()
    assert lines[0].strip()
    assert any(line.startswith("Source: ") for line in lines[-8:])
    # A line may be longer only when it is one word that cannot be broken, such as an address.
    too_long = [line for line in lines if len(line) > 80 and len(line.removeprefix("Source:").split()) > 1]
    assert too_long == []


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("79", ["Xid 79", "fell off the PCIe bus", "reboot"]),
        ("xid 79", ["Xid 79"]),
        ("Xid: 79", ["Xid 79"]),
        ("43", ["GPU itself stays healthy", "Nothing to do"]),
        ("48", ["SRAM", "Rule"]),
        ("149", ["depends on the message"]),
        ("sxid 12028", ["SXid 12028", "non-fatal"]),
        ("12028", ["SXid 12028"]),
        (
            "NCCL_TIMEOUT",
            ["nothing reads it", "ddp_timeout", "SKYRL_WORKER_NCCL_TIMEOUT_IN_S", "minutes", "new_group"],
        ),
        ("NCCL_DEUBG", ["did you mean NCCL_DEBUG?", "WARN"]),
        ("NCCL_P2P_DISABLE", ["not a repair", "ACS"]),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", ["New name", "TORCH_FR_BUFFER_SIZE"]),
        ("TORCH_DISTRIBUTED_DETAIL", ["TORCH_DISTRIBUTED_DEBUG=DETAIL"]),
        ("RAY_memory_usage_threshold", ["newest worker"]),
        ("peer_died", ["victims", "How to confirm", "Fix"]),
        ("peer-died", ["victims"]),
        ("undetermined", ["RAY_DEDUP_LOGS"]),
        ("rack.painted", ["The rack is painted", "Rust.", "interrupts: the nose", "nodedoctor rack.painted"]),
        ("rack", ["2 checks", "rack.level", "rack.painted"]),
        (" xid   79 ", ["Xid 79"]),
    ],
)
def test_words(word, expected):
    text = explain(word, CHECKS)
    assert_readable(text)
    plain = " ".join(text.split())
    assert [phrase for phrase in expected if phrase not in plain] == []


@pytest.mark.parametrize(
    "word", ["", "?", "99999", "xid 12028", "sxid 79", "zebra", "NCCL_ZEBRA_CROSSING", "_", "rack."]
)
def test_unknown_words(word):
    assert explain(word, CHECKS) is None


def test_facts_are_explained_when_given():
    facts = [RackColour.__nodedoctor__]
    text = explain("rack-colour", CHECKS, facts)
    assert_readable(text)
    assert "as the camera sees it" in text
    assert "rack-camera" in text
    assert explain("RackColour", CHECKS, facts) == text
    assert explain("rack-colour", CHECKS) is None


def test_every_row_can_be_explained():
    words = [str(row.xid) for row in xids.xids()] + [f"sxid {row.sxid}" for row in xids.sxids()]
    words += (
        [row.name for row in env_vars.env_vars()]
        + [row.cause for row in causes()]
        + [row.kind for row in kinds()]
    )
    for word in words:
        assert_readable(explain(word))


@given(st.text(max_size=60))
def test_any_word_is_answered_or_not_known(word):
    text = explain(word, CHECKS)
    assert text is None or text.strip()
