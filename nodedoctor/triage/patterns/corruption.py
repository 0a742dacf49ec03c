"""Results that differ where they must be equal: a GPU computes wrongly."""

from __future__ import annotations

from nodedoctor.triage.marks import Mark
from nodedoctor.triage.patterns.rows import read_rows

SIGNS = read_rows(
    r"""
# trainers' own lines
PRINTED_NAN
    (?:loss|norm)(?:'?: |=| = | is | )(?:nan|NaN)\b
# Megatron-LM, megatron/training/training.py; all ranks of the group raise it
REPLICAS_DIFFER
    \b[Pp]arameter hashes not matching\b|\b[Hh]ash(?:es)? (?:mismatch|differ|not matching
    |(?:do|did) not match)\b.{0,60}\b(?:DP\b|replica|data[- ]parallel)
# megatron/core/utils.py, check_param_hashes_across_dp_replicas
ODD_HASH
    \[Rank (?P<rank>\d+)\] Hash not matching for[ ]
# torchtitan/observability/sdc_replayer.py: every rank names the first one that differs
REPEAT_DIFFERS
    SDC replay mismatch: .{0,120}?\brank=(?P<rank>\d+)
# megatron/core/rerun_state_machine.py; the second rerun is on another GPU than the suspected one
REPEAT_DIFFERS
    (?:\bRank (?P<rank>\d+), node (?P<host>[\w.-]{1,255}), device (?P<gpu>\d{1,3}), iteration #\d+: )?
    (?:First rerun: unexpected result is not reproducible|Possible transient error)
    |Second rerun: unexpected result is not reproducible on a different GPU
REPEAT_AGREES
    Second rerun: unexpected result is reproducible on a different GPU|possible Application error
# the same, and Megatron-LM before it had it (pretrain_gpt.py, param_and_grad_buffer.py)
NOT_A_NUMBER
    ^(?=.*\b(?:found (?:NaN|Inf) in local|Unexpected result (?:nan|-?inf))\b)
    (?:(?=.*?\b[Rr]ank (?P<rank>\d+)))?(?:(?=.*?\bnode:? (?P<host>[\w.-]{1,255})))?
    (?:(?=.*?\b[Dd]evice:? (?P<gpu>\d{1,3})))?
""",
)  # fmt: skip

ASIDE = (Mark.ODD_HASH, Mark.REPEAT_AGREES, Mark.NOT_A_NUMBER, Mark.PRINTED_NAN)
"""What says nothing of a failure by itself."""
SUSPICIONS = (Mark.REPLICAS_DIFFER, Mark.REPEAT_DIFFERS)
"""What does."""
