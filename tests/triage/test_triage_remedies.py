"""What to do is told by the evidence, with the names that its line has in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import as_document, elastic, judged
from test_triage_stories import STORIES

ASKED = [
    (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local address. "
        "port: 29517, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n",
        "29517",
    ),
    ("OSError: [Errno 24] Too many open files\n", "ulimit -n"),
    ("NVRM: Xid (PCI:0000:3b:00): 79, pid=4001, name=python, GPU has fallen off the bus.\n", "explain 79"),
    ("h:1:2 [0] NCCL WARN NET/IB : mlx5_4:1 Got async event : port error\n", "mlx5_4"),
    (elastic([(0, -15), (1, -11)], 1), "PYTHONFAULTHANDLER"),
]


@pytest.mark.parametrize(("text", "wanted"), ASKED, ids=[wanted for _, wanted in ASKED])
def test_commands_hold_what_the_line_names(text: str, wanted: str, tmp_path: Path) -> None:
    assert wanted in str(as_document(judged(tmp_path, text))["fixes"])


def test_a_crash_is_not_called_out_of_memory(tmp_path: Path) -> None:
    fixes = as_document(judged(tmp_path, elastic([(0, -15), (1, -11)], 1)))["fixes"]
    assert "out-of-memory" not in str(fixes)


@pytest.mark.parametrize("name", STORIES)
def test_no_placeholder_is_copied(name: str, tmp_path: Path) -> None:
    document = as_document(judged(tmp_path, STORIES[name][0]))
    commands = str([fix["commands"] for fix in (*document["fixes"], *document["next"])])
    for placeholder in ("XID", "PID", "mlx5_BAD", "MASTER_ADDR", "...", "ncclras"):
        assert placeholder not in commands
