"""Laws of reading: a format that loses nothing changes no verdict; what was not understood is counted."""

from __future__ import annotations

import io
import json
import tarfile
import time
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap

import pytest
from formats import ENCODED, LOSSLESS, LOSSY, PACKED, PAYLOADS, json_lines, text, zip_of
from hypothesis import given
from hypothesis import strategies as st
from say import caught, culprits, judged, raised, steps
from test_triage_stories import STORIES

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.lines.envelopes import forms, objects
from nodedoctor.triage.lines.join import broken_width
from nodedoctor.triage.lines.normal import LostLines, RawLine, normalise_lines
from nodedoctor.triage.lines.prefix_pattern import learn_pattern
from nodedoctor.triage.model import Place
from nodedoctor.triage.patterns import event_signature
from nodedoctor.triage.verdict.result import TriageResult

CRASHES = {
    "traceback": 'Traceback (most recent call last):\n  File "/job/train.py", line 41, in <module>\n'
    '    loss = model(batch)\n           ^^^^^\n  File "/job/model.py", line 7, in forward\n'
    '    raise ValueError("boom")\nValueError: boom\n',
    "segfault": steps(1, 3) + "Segmentation fault (core dumped)\n",
    "killed": steps(1, 3) + "run.sh: line 3: 4711 Killed   python train.py\n",
}
LOGS = {name: story[0] for name, story in STORIES.items()} | CRASHES
UNDONE = {
    "fold 80",
    "fold 100",
    "fold 132",
    "rich",
    "less -N",
    "nl",
    "cat -n",
    "grep -C",
    "wandb console",
}
"""Formats that can be undone only in most logs: not every broken line is one of the full width; a number and
blanks in front of a text may be the text."""


BROKEN = ("wrapped at words", "a victim that cannot be stopped is no culprit")
"""The line that makes it a victim is broken in three, which cannot be undone; what is left tells less."""


def verdict(examined: TriageResult) -> tuple[str, list[int | None]]:
    """What must not change."""
    return examined.verdict.cause, sorted(culprits(examined), key=str)


def of_bytes(folder: Path, data: bytes) -> TriageResult:
    """Triage of one file."""
    path = folder / "job.log"
    path.write_bytes(data)
    return examine_job([str(path)])


@cache
def of_plain(content: str) -> tuple[str, list[int | None]]:
    """The verdict of a log without any envelope."""
    with TemporaryDirectory() as folder:
        return verdict(of_bytes(Path(folder), content.encode()))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", sorted(LOSSLESS))
def test_a_format_that_loses_nothing_changes_nothing(name: str, tmp_path: Path) -> None:
    changed = [
        (log, plain, formatted)
        for log, content in LOGS.items()
        if (plain := of_plain(content))
        != (formatted := verdict(of_bytes(tmp_path, LOSSLESS[name](content.splitlines()))))
    ]
    most = len(LOGS) // 4 if name in UNDONE else len(LOGS) // 12
    assert len(changed) <= most, changed
    assert not any(set(new[1]) - {*old[1], None} for _, old, new in changed), (
        "a rank that is not guilty is named"
    )


@pytest.mark.parametrize("name", sorted(LOSSY))
def test_a_format_that_loses_something_names_nobody_else(name: str, tmp_path: Path) -> None:
    for log, content in LOGS.items():
        if (name, log) == BROKEN:
            continue
        plain = set(of_plain(content)[1])
        assert set(culprits(of_bytes(tmp_path, LOSSY[name](content.splitlines())))) <= plain | {None}


@given(
    st.sampled_from(sorted({**PAYLOADS, **ENCODED, **PACKED}.keys() - UNDONE)),
    st.lists(
        st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1, max_size=90), max_size=9
    ),
)
def test_any_text_comes_out_of_any_envelope(name: str, lines: list[str]) -> None:
    """Reading never fails, whatever the text is."""
    data = LOSSLESS[name](lines)
    raws = (RawLine(Place("x", n), row) for n, row in enumerate(data.split(b"\n")))
    assert all(line.place.source == "x" for line in normalise_lines(raws, LostLines(), event_signature))


@given(st.binary(max_size=400), st.sampled_from(["{", "[", "__CURSOR=", "", "a,message\n", "PK\x03\x04"]))
def test_any_bytes_are_read(data: bytes, begin: str) -> None:
    whole = begin.encode() + data
    raws = (RawLine(Place("x", n), row) for n, row in enumerate(whole.split(b"\n")))
    assert isinstance(list(normalise_lines(raws, LostLines(), event_signature)), list)
    assert isinstance(list(forms.journal_records(whole)), list)
    assert objects.document_records(whole) is None or objects.document_records(whole)


def test_the_place_of_a_line_in_every_envelope(tmp_path: Path) -> None:
    content = steps(1, 40) + caught(0) + caught(1) + caught(3)
    for name in ("docker json-file", "iso zulu", "journald JSON", "grep -Hn", "CRLF"):
        path = tmp_path / "job.log"
        path.write_bytes((LOSSLESS[name])(content.splitlines()))
        examined = examine_job([str(path)])
        assert examined.lines.line_of(examined.verdict.evidence[0]) == 41, name


def test_an_archive_of_all_ranks_logs(tmp_path: Path) -> None:
    logs = {f"run/rank_{rank}.log": caught(rank).replace(f"[rank{rank}]:", "") for rank in (0, 1, 3)}
    logs["run/rank_2.log"] = steps(1, 5)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, content in logs.items():
            archive.writestr(name, content)
    with tarfile.open(tmp_path / "b.tgz", "w:gz") as packed:
        for name, content in logs.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content.encode()))
    for name in ("a.zip", "b.tgz"):
        assert culprits(examine_job([str(tmp_path / name)])) == [2]


def test_a_name_twice_in_an_archive_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "w") as archive:
        for _ in range(3):
            archive.writestr("log", raised(1, "ValueError: x"))
    examined = examine_job([str(path)])
    assert culprits(examined) == [1]
    assert sum("comes twice" in note for note in examined.verdict.coverage.notes) == 2


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    inner = zip_of("a", raised(1, "ValueError: x").encode())
    nested = tmp_path / "nested.zip"
    nested.write_bytes(zip_of("b.zip", inner))
    broken = tmp_path / "broken.zip"
    broken.write_bytes(inner[:-30])
    for path in (nested, broken):
        examined = examine_job([str(path)])
        assert examined.verdict.outcome == "nothing"
        assert examined.verdict.coverage.notes


def test_a_bomb_in_an_archive_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nodedoctor.triage.read import archives

    monkeypatch.setattr(archives, "LARGEST", 1 << 20)
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.log", raised(1, "ValueError: x"))
        archive.writestr("zeros", b"step 1 loss 2\n" * (1 << 18))
    examined = examine_job([str(path)])
    assert any("GiB" in note for note in examined.verdict.coverage.notes)
    assert culprits(examined) == [1]


MEANS = event_signature
ENDS = ("Killed", "Bus error", "Segmentation fault", "Aborted")


def test_step_lines_alone_teach_no_prefix() -> None:
    assert learn_pattern([f"step {n} loss: {n}.5" for n in range(100)], lambda _: False, MEANS) is None
    assert (
        learn_pattern(["RuntimeError: a", "RuntimeError: b c", "RuntimeError: 1 2 d"], lambda _: False, MEANS)
        is None
    )
    assert (
        learn_pattern(
            [f"srun: error: n{n}: task {n}: {w}" for n, w in enumerate(ENDS)], lambda _: False, MEANS
        )
        is None
    )


def test_a_table_of_ranks_and_buses_is_no_prefix() -> None:
    rows = [f"rank {n} host=gpu-{n // 8:02} local_rank={n % 8} bus=0000:{n % 8:02x}:00.0" for n in range(32)]
    assert learn_pattern(rows * 8, lambda _: False, MEANS) is None
    labelled = [f"rank={n % 4}:{text}" for n in range(32) for text in ("loading shards", "saving", "step 3")]
    assert learn_pattern(labelled, lambda _: False, MEANS) is not None


def test_lines_that_are_as_long_as_others_are_not_broken() -> None:
    box = [
        "╭" + "─" * 78 + "╮",
        *["│" + f" line {n} ".ljust(78) + "│" for n in range(9)],
        "╰" + "─" * 78 + "╯",
    ]
    assert broken_width(box) == 0
    assert (
        broken_width([f"step {n:05d} loss: 2.{n:05d} lr: 1e-4 grad_norm: 1.{n:05d}" for n in range(50)]) == 0
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "unit",
    [
        " ",
        "a-",
        "_",
        "| ",
        "1:",
        "'",
        "a.",
        "=",
        "\t",
        "[",
        "a ",
        "/",
        "0",
        "a",
        "0:",
        ",",
        '"',
        'File "x"',
        "\x1b[0m",
    ],
)
def test_long_lines_of_one_thing_take_no_time(unit: str, tmp_path: Path) -> None:
    """A pattern that is tried at each place of a run, and reads on to its end, takes the square of it."""
    (tmp_path / "log").write_text(
        (unit * 300_000 + "\n") * 6 + "[rank1]: Traceback (most recent call last):\n"
    )
    began = time.process_time()
    examine_job([str(tmp_path / "log")], look_here=False)
    assert time.process_time() - began < 10


def test_of_a_long_log_with_the_newest_line_first_the_oldest_are_left_out_aloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nodedoctor.triage.lines import normal as turned

    monkeypatch.setattr(turned, "MOST_REVERSED", 400)
    lines = (steps(1, 1100) + CRASHES["traceback"]).splitlines()
    path = tmp_path / "log"
    stamped = [f"2026-11-21T10:{n // 60:02d}:{n % 60:02d}.000Z {line}" for n, line in enumerate(lines)]
    for many, said in ((len(lines), True), (700, False)):
        path.write_bytes(text(stamped[-many:][::-1]))
        examined = examine_job([str(path)])
        assert examined.verdict.cause == "user_code_exception"
        notes = " ".join(examined.verdict.coverage.notes)
        left = f"the {len(lines) - 912} oldest lines were not read"
        assert (left in notes) is said, notes
        assert examined.verdict.coverage.unread == (len(lines) - 912 if said else 0)


def test_garbled_lines_are_counted(tmp_path: Path) -> None:
    noise = bytes(range(128, 256)) * 2
    path = tmp_path / "log"
    path.write_bytes(text(["step 1 loss: 2.0"] * 3) + b"\n".join([noise] * 5) + b"\n")
    assert any(
        "5 lines could not be read" in note for note in examine_job([str(path)]).verdict.coverage.notes
    )


def test_fields_of_an_envelope_say_who_speaks(tmp_path: Path) -> None:
    rows = json_lines(lambda n, line: {"message": line, "rank": 3, "hostname": "gpu-7", "pid": 4711})
    (tmp_path / "log").write_bytes(rows(CRASHES["traceback"].splitlines()))
    who = examine_job([str(tmp_path / "log")]).verdict.culprits[0]
    assert (who.rank, who.host, who.pid) == (3, "gpu-7", 4711)


def test_an_exception_in_a_field_of_its_own(tmp_path: Path) -> None:
    row = {"message": "training failed", "levelname": "ERROR", "rank": 2, "exc_info": CRASHES["traceback"]}
    (tmp_path / "log").write_text(json.dumps(row) + "\n")
    assert verdict(examine_job([str(tmp_path / "log")])) == ("user_code_exception", [2])


def test_plain_logs_are_judged_as_before(tmp_path: Path) -> None:
    for content, cause, ranks in STORIES.values():
        examined = judged(tmp_path, content)
        assert verdict(examined) == (cause, sorted(ranks, key=str))


def test_the_severity_of_each_line_counts(tmp_path: Path) -> None:
    """What a program tells as information has not ended it; what a collector marks so may have."""
    path = tmp_path / "log"

    def as_json(level: str, said: str) -> str:
        return json.dumps({"level": level, "msg": said, "rank": 2})

    def as_glog(level: str, said: str) -> str:
        return f"{level[0]}1121 10:20:30.000000 812 client.cc:88] {said}"

    for row in (as_json, as_glog):
        before, after = (
            [row("INFO", f"step {n} loss: 2.0") for n in steps_] for steps_ in (range(20), range(20, 40))
        )
        for error in ("CUDA out of memory. Tried to allocate 2.00 GiB", "RuntimeError: boom"):
            path.write_bytes(text([*before, row("INFO", error), *(after if row is as_json else [])]))
            assert examine_job([str(path)]).verdict.outcome != "failure"
            for level in ("ERROR", "FATAL"):
                path.write_bytes(text([*before, row(level, error)]))
                assert examine_job([str(path)]).verdict.outcome == "failure", level
            path.write_bytes(text([*before, row("FATAL", f"no use in retrying after {error}")]))
            assert examine_job([str(path)]).verdict.outcome in ("failure", "undetermined")


def mailed(text: str, width: int, mark: str) -> str:
    """A text as a program for mail breaks and cites it, at blanks alone."""
    rows = (
        wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
        for line in text.splitlines()
    )
    return "".join((mark + row).rstrip() + "\n" for line in rows for row in line)


@pytest.mark.parametrize("width", [68, 72, 76, 78])
@pytest.mark.parametrize("mark", ["", "> ", "> > "])
def test_lines_that_a_mail_broke_at_blanks_are_whole(width: int, mark: str, tmp_path: Path) -> None:
    text = "Hello,\n\nhere is what it says:\n\n" + "".join(caught(rank) for rank in range(8) if rank != 5)
    text += raised(5, "ValueError: no row of that name is in the table of all samples that were read today")
    examined = judged(tmp_path, mailed(text, width, mark))
    assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", [5])
    assert "read today" in examined.verdict.headline
    short = steps(1, 30) + raised(5, "ValueError: 1")
    assert culprits(judged(tmp_path, mailed(short, width, mark))) == [5]


@pytest.mark.parametrize("form", ["[{rank}] {text}", "{rank}: {text}", "worker {rank} | {text}"])
def test_labels_count_whatever_ends_a_line(form: str, tmp_path: Path) -> None:
    texts = [(rank, f"step {n} loss 2.{n}") for n in range(1, 12) for rank in range(4)]
    texts += [
        (2, text)
        for text in ("Traceback (most recent call last):", '  File "t.py", line 4, in f', "KeyError: 1")
    ]
    lines = [form.format(rank=rank, text=text) for rank, text in texts]
    for end in ("\n", "\r\n"):
        log = tmp_path / f"job{len(end)}.log"
        log.write_bytes((end.join(lines) + end).encode())
        assert [who.rank for who in examine_job([str(log)]).verdict.culprits] == [2]


@pytest.mark.parametrize("number", ["{n}:", "{n:6d}\t"])
def test_the_numbers_of_lines_are_no_part_of_them(number: str, tmp_path: Path) -> None:
    lines = [
        f"[2026-11-21 10:00:{n:02d},101] [INFO] [loop.py:146:main] step {n} loss 2.{n}" for n in range(30)
    ]
    lines += ["Traceback (most recent call last):", '  File "t.py", line 4, in f', "KeyError: 'a'"]
    lines = [f"worker-{1 + n % 2 if n < 30 else 2}: {line}" for n, line in enumerate(lines)]
    log = "".join(number.format(n=n) + line + "\n" for n, line in enumerate(lines, 1))
    plain, numbered = judged(tmp_path, "\n".join(lines) + "\n").verdict, judged(tmp_path, log).verdict
    assert numbered.culprits == plain.culprits and numbered.headline == plain.headline
