"""What checks say when a source reports no GPU, or not a certain value: the same words everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.knowledge.error_codes import QUIET
from nodedoctor.model import Finding, Fix, Reason
from nodedoctor.steps import look
from nodedoctor.wording import singular_or_plural

NOT_KNOWN = QUIET

_ASK_MORE = Fix(
    "Use a more complete source: NVML (install nvidia-ml-py beside nodedoctor), or `nvidia-smi -q -x`.",
    (look("nvidia-smi -q -x"),),
    action="none",
)


def none_shown(gpus: Gpus) -> Finding:
    """The finding where the driver shows no GPU at all."""
    if gpus.init_error:
        return Finding.unknown("not-visible-here", f"the driver reports no GPU: {gpus.init_error.text}")
    if gpus.lost or gpus.interrupted:
        return Finding.unknown(
            "not-visible-here", "no GPU responds (see driver.answers, driver.gpus-present)"
        )
    return Finding.skip("the driver reports no GPU")


def not_reported(what: str, gpus: Sequence[Gpu], *names: str) -> Finding:
    """The finding when no GPU reported any of the fields: it has no such thing, or we could not see it."""
    errors = {gpu.errors.get(name) for gpu in gpus for name in names} - {None}
    if errors and errors <= NOT_KNOWN:
        return Finding.skip(
            f"{singular_or_plural(len(gpus), 'this GPU does', 'these GPUs do')} not report {what}"
        )
    codes = ", ".join(sorted(error for error in errors - NOT_KNOWN if error and error != "NOT_ASKED"))
    reason: Reason = "denied" if "NO_PERMISSION" in errors else "not-visible-here"
    return Finding.unknown(
        reason, f"{what} not reported{f' ({codes})' if codes else ' by this source'}", fix=_ASK_MORE
    )


def all_of(gpus: Sequence[Gpu]) -> str:
    """`all 8 GPUs`, or `the GPU`."""
    return f"all {len(gpus)} GPUs" if len(gpus) > 1 else "the GPU"
