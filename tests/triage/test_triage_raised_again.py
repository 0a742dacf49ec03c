"""What is shown of an error: of one that torch raises again, and of one without a message."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged, raised, steps

AGAIN = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/job/train.py", line 41, in <module>\n[rank{rank}]:     for batch in loader:\n'
    '[rank{rank}]:   File "/env/lib/python3.12/site-packages/torch/_utils.py", line 733, in reraise\n'
    "[rank{rank}]:     raise exception\n"
    "[rank{rank}]: ValueError: Caught ValueError in {where}.\n"
)
ORIGINAL = (
    "[rank{rank}]: Original Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/env/lib/python3.12/site-packages/torch/utils/data/_utils/worker.py", line 349,'
    " in _worker_loop\n[rank{rank}]:     data = fetcher.fetch(index)\n"
    '[rank{rank}]:   File "/job/shards.py", line 127, in __getitem__\n'
    '[rank{rank}]:     raise ValueError("no such shard")\n'
    "[rank{rank}]: ValueError: no such shard\n\n"
)
WHERE = ("DataLoader worker process 0", "replica 1 on device 1", "pin memory thread for device 0")


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("where", WHERE)
def test_the_error_of_the_worker_is_named_and_not_that_it_was_caught(
    where: str, ranks: int, tmp_path: Path
) -> None:
    both = "".join((AGAIN + ORIGINAL).format(rank=rank, where=where) for rank in range(ranks))
    verdict = judged(tmp_path, steps(1, 9) + both).verdict
    assert "ValueError: no such shard (shards.py, line 127)" in verdict.headline
    assert {who.rank for who in verdict.culprits} == set(range(ranks))


@pytest.mark.parametrize("where", WHERE)
def test_where_the_log_ends_before_it_what_was_raised_again_is_named(where: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 9) + AGAIN.format(rank=2, where=where)).verdict
    assert f"Caught ValueError in {where}" in verdict.headline
    assert [who.rank for who in verdict.culprits] == [2]


def test_what_was_asserted_is_shown_where_the_error_has_no_message(tmp_path: Path) -> None:
    text = raised(6, "AssertionError", "assert not arguments.frozen")
    assert "AssertionError: assert not arguments.frozen (train.py" in judged(tmp_path, text).verdict.headline
    text = raised(6, "AssertionError: frozen", "assert not arguments.frozen, 'frozen'")
    assert "AssertionError: frozen (train.py" in judged(tmp_path, text).verdict.headline
