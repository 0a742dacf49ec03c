"""What to type for a file that was given to a command of another kind: found in time, or not said."""

from __future__ import annotations

import gzip
import os
import time
import zipfile
from pathlib import Path

import pytest
from pastes import PASTES

from nodedoctor.intake import hint


def folder(tmp_path: Path) -> Path:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "smi.txt").write_text(PASTES["nvidia-smi"])
    return tmp_path / "one"


def test_outputs_are_told_with_the_command_that_reads_them(tmp_path: Path):
    path = tmp_path / "smi"
    path.write_text(PASTES["nvidia-smi"])
    told = f"it holds the table of nvidia-smi; `nodedoctor read {path}` judges it"
    assert hint.read_instead(str(path)) == hint.describe_file(str(path)) == told
    path.write_text(f"hello\n{PASTES['nvidia-smi']}")
    assert (hint.read_instead(str(path)), hint.read_instead(str(path), wholly=True)) == (told, "")


def test_a_folder_is_told_only_where_it_may_be_one(tmp_path: Path):
    path = str(folder(tmp_path))
    assert hint.read_instead(path) == hint.describe_file(path) == ""
    assert "`nodedoctor read" in hint.describe_file(path, folders=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("tell", [hint.read_instead, hint.describe_file])
@pytest.mark.parametrize("kind", ["pipe", "nothing", "bomb", "binary", "loop", "device"])
def test_what_does_not_answer_or_is_nothing_is_not_told_and_ends(tell, kind: str, tmp_path: Path):
    path = tmp_path / "file"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "bomb":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(3):
                with archive.open(f"{number}", "w", force_zip64=True) as member:
                    for _ in range(64):
                        member.write(bytes(1 << 20))
    elif kind == "binary":
        path.write_bytes(bytes(range(256)) * 4096)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "device":
        path = Path("/dev/zero")
    begun = time.monotonic()
    assert tell(str(path)) == ""
    assert time.monotonic() - begun < hint.LONGEST + 10


def test_a_file_that_does_not_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hint, "LONGEST", 1.0)
    path = tmp_path / "big.gz"
    packed = gzip.compress(bytes(32 << 20))
    with open(path, "wb") as file:
        for _ in range(400):
            file.write(packed)  # 12 GiB of what is neither text nor an archive
    begun = time.monotonic()
    assert hint.read_instead(str(path)) == ""
    assert time.monotonic() - begun < 20
