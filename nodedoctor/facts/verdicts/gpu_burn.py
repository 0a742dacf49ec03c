"""What gpu-burn found: GPUs that computed wrongly or died under load.

Format: wilicc/gpu-burn 0.4 to 1.1, gpu_burn-drv.cpp: a line of progress with the errors of each GPU since the
last, and at the end `OK` or `FAULTY` for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Verdict, make_verdict
from nodedoctor.patterns import regex
from nodedoctor.wording import count_with_noun

PROBE = "gpu-burn"
gpu_burn = pasted(PROBE, "The output of gpu-burn.")
_verdict = partial(make_verdict, PROBE, PROBE)

_STATE = regex(r"(?m)^[> \t]{0,20}GPU (?P<gpu>\d{1,3}): (?P<state>OK|FAULTY)[ \t]{0,9}$")
_NUMBER = regex(r"-?\d{1,12}")
_DEAD = "DIED"


def verdicts(output: str) -> Iterator[Verdict]:
    """Each GPU with errors or the word FAULTY; that all were well only where the end says so."""
    errors: Counter[int] = Counter()
    quotes: dict[int, str] = {}
    dead: set[int] = set()
    for line in output.splitlines():
        counts = line.partition("errors: ")[2].partition("temps:")[0]
        for gpu, words in enumerate(counts.split(" - ") if counts else ()):
            shown = _NUMBER.search(words)
            wrong = max(int(shown[0]), 0) if shown else 0
            errors[gpu] += wrong
            dead |= {gpu} if _DEAD in words else set()
            if wrong or _DEAD in words:
                quotes[gpu] = line
    states = {int(row["gpu"]): row for row in _STATE.finditer(output)}
    faulty = {gpu for gpu, row in states.items() if row["state"] == "FAULTY"}
    for gpu in sorted(faulty | quotes.keys()):
        count = f", {count_with_noun(errors[gpu], 'error')}" if errors[gpu] else ""
        what = "died under load" if gpu in dead else "computes wrongly"
        state = " (FAULTY)" if gpu in faulty else ""
        quote = states[gpu][0] if gpu in faulty else quotes[gpu]
        yield _verdict("fail", f"GPU {gpu} {what}{state}{count}", f"gpu:{gpu}", quote)
    if faulty or quotes:
        return
    if states:
        tested = count_with_noun(len(states), "GPU")
        yield _verdict("pass", f"{tested} tested, none faulty", quote=next(iter(states.values()))[0])
    elif errors:
        running = count_with_noun(len(errors), "GPU")
        yield _verdict("unknown", f"{running} without an error so far; its end is not shown")
    else:
        yield _verdict("unknown", "it did not run to its end")
