"""What healthy jobs print too changes no verdict: warnings, handled errors, printed settings and help texts.

`harmless_known.txt` was looked at while signs were written, `harmless_kept_apart.txt` was not: a failure
there is repaired by a law, never by a sign for that text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from say import caught, culprits, elastic, judged, raised, steps
from test_triage_progress import EXAMPLES
from test_triage_stories import CALM, STORIES

from nodedoctor.triage.lines.prefixes import parse_line
from nodedoctor.triage.model import Place
from nodedoctor.triage.patterns import read_events
from nodedoctor.triage.patterns.cuda import GpuFull
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.signs import ERRORS_LOGGED_AS_WARNING, SUSPICIONS

HERE = Path(__file__).parent
HARMLESS = [
    text.strip("\n") + "\n"
    for name in ("harmless_known.txt", "harmless_kept_apart.txt")
    for text in (HERE / name).read_text().split("%%\n")
]
HEALTHY = steps(1, 40) + "Training completed\n"
DEAD = {
    "a rank that never came": steps(1, 30) + caught(0, seq=90) + caught(1, seq=90) + caught(3, seq=90),
    "a rank that was killed": steps(1, 9) + elastic([(0, -15), (1, -9), (2, -15)], 1),
    "an exception": steps(1, 9) + raised(3, "ValueError: bad shard") + elastic([(0, -15), (3, 1)], 3),
}
WRAPPED = (
    "/job/x.py:7: UserWarning: {}\n  warnings.warn(text)\n",
    "[W1121 10:00:00.000000000 helper.cpp:31] {}\n",
    "{{'patterns': [{!r}], 'limit': 3}}\n",
    "  retry_on: {!r}\n",
    "  --retry-on TEXT       what to retry on, such as {}\n",
)


LOGGERS = (
    "{}:root:",
    "2026-11-21 10:00:00,123 - trainer - {} - ",
    "2026-11-21 10:00:00,123 {} [trainer.py:17] ",
    "[2026-11-21 10:00:00,123][__main__][{}] - ",
    "2026-11-21 10:00:00.123 | {} | __main__:main:17 - ",
    "[{}|trainer.py:17] 2026-11-21 10:00:00,123 >> ",
    "{} 11-21 10:00:00 [core.py:17] ",
)
TROUBLE = "checkpoint mirror is slow: No space left on device"


def told() -> Iterator[str]:
    """Every line of the tests' own logs from which a sign reads what a program may have handled."""
    texts = [row[0] for row in STORIES.values()]
    texts += [json.loads(row)["text"] for row in (HERE.parent / "lines.jsonl").read_text().splitlines()]
    for text in texts:
        for raw in text.splitlines():
            for line in parse_line(raw, Place("x", 0)):
                events = list(read_events([line]))
                own = [e for e in events if e.kind in ERRORS_LOGGED_AS_WARNING or _as_warning(e.what)]
                if not own and any(event.kind in SUSPICIONS for event in events):
                    yield line.text


def _as_warning(what: object) -> bool:
    return isinstance(what, (Symptom, GpuFull)) and bool(what.as_warning)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("harmless", HARMLESS, ids=[text[:50] for text in HARMLESS])
def test_a_harmless_line_changes_nothing(harmless: str, tmp_path: Path) -> None:
    for text in (harmless + HEALTHY, HEALTHY + harmless, steps(1, 9) + harmless + steps(10, 9)):
        assert judged(tmp_path, text).verdict.outcome == "clean", text[:300]
    for name, text in DEAD.items():
        plain = judged(tmp_path, text)
        for changed in (harmless + text, text + harmless):
            examined = judged(tmp_path, changed)
            assert examined.verdict.cause == plain.verdict.cause, name
            assert culprits(examined) == culprits(plain), name


@pytest.mark.slow
@pytest.mark.parametrize("wrapped", WRAPPED, ids=[text[:20] for text in WRAPPED])
def test_the_words_of_an_error_are_no_error(wrapped: str, tmp_path: Path) -> None:
    """The same text in a warning, a printed list, a setting and a help text."""
    alarmed = []
    for text in sorted(set(told())):
        for place in (wrapped.format(text) + HEALTHY, HEALTHY + wrapped.format(text)):
            if judged(tmp_path, place).verdict.outcome != "clean":
                alarmed.append(text)
    assert alarmed == []


def logged(logger: str, text: str) -> str:
    """Lines as a program logs them at the level INFO."""
    return "".join(logger.format("INFO") + line + "\n" for line in text.splitlines())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("share", [0, 20, 32, 40])
@pytest.mark.parametrize("logger", LOGGERS)
def test_a_program_warns_at_the_level_of_a_warning(logger: str, share: int, tmp_path: Path) -> None:
    """Whether it logs none, half, most or all of its other lines."""
    steps_logged = logged(logger, steps(1, share)) + steps(share + 1, 40 - share)
    log = steps_logged + logger.format("WARNING") + TROUBLE + "\nTraining completed\n"
    assert judged(tmp_path, log).verdict.outcome == "clean"


@pytest.mark.parametrize("logger", LOGGERS)
def test_who_calls_all_of_stderr_a_warning_hides_no_error(logger: str, tmp_path: Path) -> None:
    error = raised(3, "torch.OutOfMemoryError: CUDA out of memory").replace("[rank3]: ", "")
    stderr = "".join(logger.format("WARNING") + line + "\n" for line in error.splitlines())
    verdict = judged(tmp_path, logged(logger, steps(1, 40)) + stderr).verdict
    assert (verdict.outcome, verdict.cause) == ("failure", "peer_cuda_oom")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("logger", LOGGERS)
def test_the_level_in_front_of_every_line_is_not_the_programs(logger: str, tmp_path: Path) -> None:
    for text in DEAD.values():
        plain = judged(tmp_path, text)
        for level in ("INFO", "WARNING", "DEBUG"):
            examined = judged(tmp_path, logged(logger, text).replace("INFO", level))
            assert (examined.verdict.cause, culprits(examined)) == (plain.verdict.cause, culprits(plain))


@pytest.mark.slow
def test_harmless_lines_in_other_peoples_logs(tmp_path: Path) -> None:
    """At most one verdict in thirty changes: some logs are a single line that another one outweighs."""
    tried = changed = 0
    paths = [*EXAMPLES.glob("joblogs/*.log"), *EXAMPLES.glob("torch-runs/*/*.log")]
    for number, path in enumerate(sorted(paths)):
        text, harmless = path.read_text(errors="replace"), HARMLESS[number % len(HARMLESS)]
        plain = judged(tmp_path, text)
        for other in (harmless + text, text.rstrip("\n") + "\n" + harmless):
            examined = judged(tmp_path, other)
            tried += 1
            changed += examined.verdict.cause != plain.verdict.cause or culprits(examined) != culprits(plain)
    assert changed <= tried / 30


@pytest.mark.parametrize("name", CALM)
def test_healthy_jobs_stay_healthy(name: str, tmp_path: Path) -> None:
    alarmed = [text[:50] for text in HARMLESS if judged(tmp_path, text + CALM[name]).verdict.cause != "none"]
    assert alarmed == []
