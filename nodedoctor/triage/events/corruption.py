"""Results that differ where they must be equal: signs of a GPU that computes wrongly and reports nothing."""

from __future__ import annotations

from nodedoctor.record import record
from nodedoctor.triage.events.log_pattern import LogPattern, log_pattern


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


SIGNS: tuple[LogPattern, ...] = (
    log_pattern(r"(?:loss|norm)(?:'?: |=| = | is | )(?:nan|NaN)\b", lambda _: PrintedNan()),
    log_pattern(  # Megatron-LM, megatron/training/training.py; all ranks of the group raise it
        r"\b[Pp]arameter hashes not matching\b"
        r"|\b[Hh]ash(?:es)? (?:mismatch|differ|not matching|(?:do|did) not match)\b"
        r".{0,60}\b(?:DP\b|replica|data[- ]parallel)",
        lambda _: ReplicasDiffer(),
    ),
    log_pattern(  # megatron/core/utils.py, check_param_hashes_across_dp_replicas
        r"\[Rank (?P<rank>\d+)\] Hash not matching for ",
        lambda _: OddHash(),
    ),
    log_pattern(  # torchtitan/observability/sdc_replayer.py: every rank names the first one that differs
        r"SDC replay mismatch: .{0,120}?\brank=(?P<rank>\d+)",
        lambda _: RepeatDiffers(),
    ),
    log_pattern(
        # megatron/core/rerun_state_machine.py; the second rerun is on another GPU than the suspected one
        r"(?:\bRank (?P<rank>\d+), node (?P<host>[\w.-]{1,255}), device (?P<gpu>\d{1,3}), iteration #\d+: )?"
        r"(?:First rerun: unexpected result is not reproducible|Possible transient error)"
        r"|Second rerun: unexpected result is not reproducible on a different GPU",
        lambda _: RepeatDiffers(),
    ),
    log_pattern(
        r"Second rerun: unexpected result is reproducible on a different GPU|possible Application error",
        lambda _: RepeatAgrees(),
    ),
    log_pattern(  # the same, and Megatron-LM before it had it (pretrain_gpt.py, param_and_grad_buffer.py)
        r"^(?=.*\b(?:found (?:NaN|Inf) in local|Unexpected result (?:nan|-?inf))\b)"
        r"(?:(?=.*?\b[Rr]ank (?P<rank>\d+)))?(?:(?=.*?\bnode:? (?P<host>[\w.-]{1,255})))?"
        r"(?:(?=.*?\b[Dd]evice:? (?P<gpu>\d{1,3})))?",
        lambda _: NotANumber(),
    ),
)

ASIDE = (OddHash, RepeatAgrees, NotANumber, PrintedNan)
"""What says nothing of a failure by itself."""
SUSPICIONS = (ReplicasDiffer, RepeatDiffers)
"""What does."""
