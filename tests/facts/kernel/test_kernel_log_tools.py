"""A tool that prints part of the kernel's log and dies hides nothing: another is asked, or nothing passes."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from asking import ask, judge
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from nodedoctor.engine.run import downgrade_pass
from nodedoctor.facts.kernel.kernel_log import KernelLog, kernel_log
from nodedoctor.model import Moment, Status, Unseen

LOG = [
    "2026-11-21T11:00:00+00:00 gpu-1 kernel: Linux version 6.8.0-64-generic",
    "2026-11-21T11:00:01+00:00 gpu-1 kernel: pci 0000:4b:00.0: [10de:2330] type 00 class 0x030200",
    "2026-11-21T11:40:00+00:00 gpu-1 kernel: Out of memory: Killed process 4242 (python3) total-vm:9kB,"
    " anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0",
    "2026-11-21T11:41:00+00:00 gpu-1 kernel: eth0: link up",
]
KILL = 3
"""So many lines show the kill."""
NOW = Moment(datetime(2026, 11, 21, 12, tzinfo=timezone.utc))
DEATHS = ("exit 1", "exit 3", "exit 255", "kill -9 $$", "kill -11 $$", "kill -6 $$", "kill -13 $$")
LINES = st.integers(0, len(LOG))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("node")
    (folder / "root/var/log/journal").mkdir(parents=True)
    return folder


def command(folder: Path, name: str, lines: int, end: str) -> None:
    """A command that prints the first lines of the log, and how it ends."""
    (folder / name).write_text("\n".join(("#!/bin/sh", "cat <<'END'", *LOG[:lines], "END", end, "")))
    (folder / name).chmod(0o755)


def status(folder: Path) -> tuple[str, Status]:
    """Which source was read, and what kernel.oom then is."""
    seen = ask(kernel_log, root=folder / "root", env={"PATH": f"{folder}:/usr/bin:/bin"})
    log = KernelLog.parse(seen, Unseen("missing-tool", "not asked"))
    if isinstance(log, Unseen):
        return "", Status.UNKNOWN
    found = judge("kernel.oom", log, NOW)
    if log.partly is not None:
        found = [downgrade_pass(finding, log.partly) for finding in found]
    return log.source, max((finding.status for finding in found), key=lambda one: one is not Status.PASS)


@settings(max_examples=examples(30))
@given(printed=LINES, death=st.sampled_from(DEATHS))
def test_a_journalctl_that_dies_hides_no_kill_from_dmesg(node: Path, printed: int, death: str) -> None:
    command(node, "journalctl", printed, death)
    command(node, "dmesg", len(LOG), "exit 0")
    assert status(node) == ("dmesg", Status.FAIL)


@settings(max_examples=examples(30))
@given(journal=LINES, ring=LINES, death=st.sampled_from(DEATHS), other=st.sampled_from(DEATHS))
def test_when_all_tools_die_what_they_printed_fails_and_never_passes(
    node: Path, journal: int, ring: int, death: str, other: str
) -> None:
    command(node, "journalctl", journal, death)
    command(node, "dmesg", ring, other)
    source, found = status(node)
    assert found is (Status.FAIL if max(journal, ring) >= KILL else Status.UNKNOWN)
    assert source == ("" if journal == ring == 0 else "dmesg" if ring > journal else "journalctl -k")


def test_a_log_that_came_to_its_end_is_not_doubted(node: Path) -> None:
    command(node, "journalctl", KILL - 1, "echo 'Hint: You are not seeing messages' >&2; exit 0")
    command(node, "dmesg", len(LOG), "exit 0")
    assert status(node) == ("journalctl -k", Status.PASS)
