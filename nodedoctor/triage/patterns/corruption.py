"""Results that differ where they must be equal: a GPU computes wrongly."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from statistics import median

from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Line
from nodedoctor.triage.patterns.rows import read_rows

SIGNS = read_rows(
    r"""
# trainers' own lines
PRINTED_NAN
    (?:loss|norm)(?:'?: |=| = | is | )(?:nan|NaN)\b
# facebookresearch's engines of MAE, DeiT and DETR, and trainers in their own words
[user_code_exception]
loss-not-finite  personal
  the loss was no finite number any more, and the program stopped itself
    ^(?!\S{1,80}(?:Error|Exception): ).{0,80}?
    (?:\b[Ll]oss is -?(?:nan|inf)\b.{0,20}\b[Ss]topping\b
    |\b(?:NaN|[Nn]on-?finite|[Ii]nfinite) (?:in )?(?:the )?loss\b.{0,40}
    \b(?:[Ss]topp|[Aa]bort|[Tt]erminat|[Ee]xit)(?:ed|ing)\b
    |\b(?:ABORT(?:ED|ING)?|[Aa]borting|[Ss]topping|[Tt]erminating)\b.{0,24}
    \b(?:NaN|[Nn]on-?finite|[Ii]nfinite) (?:in )?loss\b)
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
    First rerun: unexpected result is reproducible within the tolerance
    |Second rerun: unexpected result is reproducible on a different GPU|possible Application error
# the same, and Megatron-LM before it had it (pretrain_gpt.py, param_and_grad_buffer.py)
NOT_A_NUMBER
    ^(?=.*\b(?:found (?:NaN|Inf) in local|Unexpected result (?:nan|-?inf))\b)
    (?:(?=.*?\b[Rr]ank (?P<rank>\d+)))?(?:(?=.*?\bnode:? (?P<host>[\w.-]{1,255})))?
    (?:(?=.*?\b[Dd]evice:? (?P<gpu>\d{1,3})))?
""",
)  # fmt: skip

ASIDE = (
    Mark.ODD_HASH, Mark.REPEAT_AGREES, Mark.NOT_A_NUMBER, Mark.PRINTED_NAN, Mark.LOSS_STAYS_NAN,
    Mark.LOSS_IS_FINITE, Mark.CURVE_CALM, Mark.CURVE_ROSE,
)  # fmt: skip
"""What says nothing of a failure by itself."""
SUSPICIONS = (Mark.REPLICAS_DIFFER, Mark.REPEAT_DIFFERS)
"""What does."""

NANS_IN_A_ROW = 10
"""Lines with a loss, of which each is NaN, from which it is no step that a loss scaler skips. Ours."""
_LOSS = re.compile(
    r"(?<![A-Za-z_])(?!(?:eval|val|valid|validation|test)_)(?:[A-Za-z]{1,20}[_ ]){0,3}[Ll](?:oss|OSS)['\"]?"
    r"\s{0,4}[:=(]?\s{0,4}['\"]?(?:(?P<nan>[Nn]a[Nn]|NAN)\b|-?\d[\d.]*)"
)


class NanLossDetector:
    """Whether the losses that a log prints are NaN, and stay so: the job goes on, and computes nothing.

    A line with another loss that is a number is none: the average of some bars stays NaN then.
    """

    def __init__(self) -> None:
        self._row = 0

    def read(self, line: Line) -> Mark | None:
        """The mark at the line with enough NaNs in a row, and at the first number behind them."""
        text = line.text
        if "oss" not in text and "OSS" not in text:
            return None
        if not self._row and not any(word in text for word in ("nan", "NaN", "NAN")):
            return None
        losses = [match["nan"] is not None for match in _LOSS.finditer(text)]
        if not losses:
            return None
        before, self._row = self._row, self._row + 1 if all(losses) else 0
        if self._row == NANS_IN_A_ROW:
            return Mark.LOSS_STAYS_NAN
        return Mark.LOSS_IS_FINITE if before >= NANS_IN_A_ROW and not self._row else None


FEWEST_VALUES = 5
"""Values of a loss or a norm from which on its curve is known. Ours."""
_CURVE_LENGTH = 32
"""Values that are kept of a curve. The last three are its end: one outlier is no rise. Ours."""
_VALUE = r"['\"]?\s{0,4}[:=(]?\s{0,4}['\"]?(?P<value>-?\d{1,9}(?:\.\d{1,9})?(?:e[-+]\d{1,3})?)(?![\w.])"
FINITE = re.compile(r"(?i)(?:loss|norm)" + _VALUE)
"""A loss or a norm that is a number."""
_CURVES = (
    (re.compile(r"loss(?<![a-z]loss)(?<!val[_ ]loss)(?<!test[_ ]loss)" + _VALUE), 1.5),
    (
        re.compile(r"norm(?:(?<=grad[_ ]norm)|(?<=gradient[_ ]norm)|(?<=total[_ ]norm)|(?<=gnorm))" + _VALUE),
        3.0,
    ),
)
"""A loss and a gradient norm in small letters, and by how much each has to rise: norms jump. Ours. Each
begins with its word, which is searched for faster than what may be in front."""


class CurveDetector:
    """Whether the loss and the gradient norm that a log prints rose, as they do where a run diverges."""

    def __init__(self) -> None:
        self._values: tuple[deque[float], ...] = tuple(deque(maxlen=_CURVE_LENGTH) for _ in _CURVES)
        self._rose = [False for _ in _CURVES]
        self._last: Mark | None = None

    def read(self, line: Line) -> Mark | None:
        """The mark at the line from which on a curve is known, and at each turn of it."""
        text = line.text.lower()
        if "loss" not in text and "norm" not in text:
            return None
        mark = self._last
        for number, (pattern, factor) in enumerate(_CURVES):
            if (match := pattern.search(text)) is None:
                continue
            values = self._values[number]
            values.append(float(match["value"]))
            if len(values) >= FEWEST_VALUES:
                self._rose[number] = _has_risen(values, factor)
                mark = Mark.CURVE_ROSE if any(self._rose) else Mark.CURVE_CALM
        if mark is self._last:
            return None
        self._last = mark
        return mark


def _has_risen(values: Sequence[float], factor: float) -> bool:
    """True where the latest values are by a factor above the median of those before."""
    latest = sorted((values[-1], values[-2], values[-3]))[1]
    if latest <= factor * min(values):  # which the median is not below
        return False
    usual = median(list(values)[:-3])
    return usual > 0 and latest > factor * usual
