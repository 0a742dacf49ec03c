"""Results that differ where they must be equal: signs of a GPU that computes wrongly and reports nothing."""

from __future__ import annotations

from nodedoctor.record import record
from nodedoctor.triage.events.rows import read_rows


@record
class ReplicasDiffer:
    """The parameters of a model differ between its data-parallel copies."""


@record
class OddHash:
    """A rank's parameters are not those of the first replica of its group."""


@record
class RepeatDiffers:
    """The same step, computed again from the same state, gave another result."""


@record
class RepeatAgrees:
    """Another GPU got the same unexpected result: it is the program's."""


@record
class NotANumber:
    """A process found a NaN in what it had computed itself, before it met the other ranks' numbers."""


@record
class PrintedNan:
    """A NaN among the numbers that a training loop prints: of the process's own, or of all."""


SIGNS = read_rows(
    r"""
# trainers' own lines
PrintedNan
    (?:loss|norm)(?:'?: |=| = | is | )(?:nan|NaN)\b
# Megatron-LM, megatron/training/training.py; all ranks of the group raise it
ReplicasDiffer
    \b[Pp]arameter hashes not matching\b|\b[Hh]ash(?:es)? (?:mismatch|differ|not matching
    |(?:do|did) not match)\b.{0,60}\b(?:DP\b|replica|data[- ]parallel)
# megatron/core/utils.py, check_param_hashes_across_dp_replicas
OddHash
    \[Rank (?P<rank>\d+)\] Hash not matching for[ ]
# torchtitan/observability/sdc_replayer.py: every rank names the first one that differs
RepeatDiffers
    SDC replay mismatch: .{0,120}?\brank=(?P<rank>\d+)
# megatron/core/rerun_state_machine.py; the second rerun is on another GPU than the suspected one
RepeatDiffers
    (?:\bRank (?P<rank>\d+), node (?P<host>[\w.-]{1,255}), device (?P<gpu>\d{1,3}), iteration #\d+: )?
    (?:First rerun: unexpected result is not reproducible|Possible transient error)
    |Second rerun: unexpected result is not reproducible on a different GPU
RepeatAgrees
    Second rerun: unexpected result is reproducible on a different GPU|possible Application error
# the same, and Megatron-LM before it had it (pretrain_gpt.py, param_and_grad_buffer.py)
NotANumber
    ^(?=.*\b(?:found (?:NaN|Inf) in local|Unexpected result (?:nan|-?inf))\b)
    (?:(?=.*?\b[Rr]ank (?P<rank>\d+)))?(?:(?=.*?\bnode:? (?P<host>[\w.-]{1,255})))?
    (?:(?=.*?\b[Dd]evice:? (?P<gpu>\d{1,3})))?
""",
    PrintedNan, ReplicasDiffer, OddHash, RepeatDiffers, RepeatAgrees, NotANumber,
)  # fmt: skip

ASIDE = (OddHash, RepeatAgrees, NotANumber, PrintedNan)
"""What says nothing of a failure by itself."""
SUSPICIONS = (ReplicasDiffer, RepeatDiffers)
"""What does."""
