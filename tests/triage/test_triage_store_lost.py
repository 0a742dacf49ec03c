"""The loss of torch's store is no cause: its server goes at the end of any job, healthy or dead."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits, judged, raised, steps

from nodedoctor.triage.marks import Mark

AT = "1121 10:41:07.130163445"
SOCKET = "SocketImpl(fd=31, addr=[node-2]:51734, remote=[node-1]:29511)"
FRAMES = (
    "Exception raised from recvBytes at /pytorch/torch/csrc/distributed/c10d/Utils.hpp:678:\n"
    "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x98 (0x7f5e8 in libc10.so)\n"
    "frame #4: c10d::TCPStore::check(std::vector<std::string> const&) + 0x2ab (0x7f0b in libtorch_cpu.so)\n"
)
C10D = f"[rank3]:[W{AT} TCPStore.cpp:125] [c10d]"
FLAG = f"[rank3]:[W{AT} ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0(default_pg) Rank 3]"
LOST = {
    "a value": f"{C10D} recvValue failed on {SOCKET}: failed to recv, got 0 bytes\n",
    "a value with frames": f"{C10D} recvValue failed on {SOCKET}: failed to recv, got 0 bytes\n{FRAMES}",
    "a value in time": f"{C10D} recvValueWithTimeout failed on {SOCKET}: Failed to recv, got 0 bytes."
    " Connection was likely closed. Did the remote server shutdown or crash?\n",
    "a reset": f"{C10D} recvValue failed on {SOCKET}: Connection reset by peer\n",
    "a pipe": f"{C10D} sendBytes failed on {SOCKET}: Broken pipe\n{FRAMES}",
    "the flag": f'{FLAG} Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut'
    " down too early), with error: failed to recv, got 0 bytes\n",
    "its end alone": "failed to recv, got 0 bytes\n",
}
STEPS = steps(0, 8)
DONE = {
    "a program's word": STEPS + "Training finished.\n",
    "a result": "{'train_runtime': 812.2, 'train_samples_per_second': 31.2}\n",
    "an agent's word": "I1121 10:41:08.12 771 torch/distributed/elastic/agent/server/api.py:879] [default]"
    " worker group successfully finished. Waiting 300 seconds for other agents to finish.\n",
}
LAST = STEPS + "0: final eval: {'eval_loss': 1.7} ; "
DONE |= {
    "Slurm's record": STEPS + "JobState=COMPLETED Reason=None ExitCode=0:0\n",
    "a whole record": f"{STEPS}JobId=881 JobName=sft\n   JobState=COMPLETED Reason=None Dependency=(null)\n"
    "   Requeue=0 Restarts=0 ExitCode=0:0\n",
    "seff": STEPS + "State: COMPLETED (exit code 0)\n",
    "all done": LAST + "all done\n",
    "the last model": STEPS + "saved final.pth, total time 6:12:20\n",
}
LEFT = (
    "n1:5{r}:19{r} [{r}] NCCL INFO comm 0x5a rank {r} nranks 4 cudaDev {r} busId {r}1000 - {how} COMPLETE\n"
)
AT_EXIT = (
    "[rank{r}]:[W1121 10:41:05.801120034 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group()"
    " was not called before program exit, which can leak resources. For more info, please see"
    " https://pytorch.org/docs/stable/distributed.html#shutdown (function operator())\n"
)
BAR = " 50%|#####     | 4/8 [00:08<00:08, 2.0s/it]\n100%|##########| 8/8 [00:16<00:00, 2.0s/it]\n"
BOOM = raised(2, "ValueError: the shard 41 has no label")


@pytest.mark.parametrize("name", LOST)
def test_alone_and_behind_steps_it_leaves_the_end_open(name: str, tmp_path: Path) -> None:
    for text in (LOST[name], STEPS + LOST[name], STEPS + LOST[name] * 3):
        verdict = judged(tmp_path, text).verdict
        assert (verdict.outcome, verdict.cause) == ("undetermined", "undetermined")
        assert "lost the rendezvous store" in verdict.headline and not verdict.culprits
        assert any(event.what is Mark.STORE_LOST for event in verdict.evidence)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("done", DONE)
def test_a_job_that_was_done_stays_clean(name: str, done: str, tmp_path: Path) -> None:
    for text in (DONE[done] + LOST[name], LOST[name] + DONE[done]):
        assert judged(tmp_path, text).verdict.outcome == "clean", text


@pytest.mark.parametrize("name", LOST)
def test_a_bar_at_its_end_shows_that_the_work_was_done(name: str, tmp_path: Path) -> None:
    assert judged(tmp_path, BAR + LOST[name]).verdict.outcome == "clean"


@pytest.mark.parametrize("name", LOST)
def test_it_hides_no_failure(name: str, tmp_path: Path) -> None:
    for text in (BOOM + LOST[name], STEPS + LOST[name] + BOOM, STEPS + BOOM + LOST[name]):
        examined = judged(tmp_path, text)
        assert examined.verdict.cause == "user_code_exception" and culprits(examined) == [2]


def test_a_frame_of_a_stack_is_no_complaint(tmp_path: Path) -> None:
    assert judged(tmp_path, FRAMES.partition("\n")[2]).verdict.outcome == "nothing"


@pytest.mark.parametrize("name", LOST)
def test_ranks_that_left_in_order_take_the_store_with_them(name: str, tmp_path: Path) -> None:
    left = "".join(LEFT.format(r=rank, how="Destroy") for rank in range(4))
    for end in (left, AT_EXIT.format(r=0)):
        assert judged(tmp_path, STEPS + end + LOST[name]).verdict.outcome == "clean"


@pytest.mark.parametrize(
    "end",
    [
        "".join(LEFT.format(r=rank, how="Destroy") for rank in range(3)),
        "".join(LEFT.format(r=rank, how="Abort") for rank in range(4)),
        LEFT.format(r=0, how="Destroy") + LEFT.format(r=1, how="Abort"),
    ],
)
def test_where_a_rank_has_not_left_the_end_stays_open(end: str, tmp_path: Path) -> None:
    assert judged(tmp_path, STEPS + end + LOST["a value"]).verdict.outcome == "undetermined"


def test_who_left_first_hides_no_failure_and_no_unfinished_work(tmp_path: Path) -> None:
    left = "".join(LEFT.format(r=rank, how="Destroy") for rank in range(4)) + AT_EXIT.format(r=0)
    half = BAR.partition("\n")[0].replace("4/8", "3/8") + "\n" + BAR.partition("\n")[0] + "\n"
    assert judged(tmp_path, half + left + LOST["a value"]).verdict.outcome == "undetermined"
    examined = judged(tmp_path, STEPS + BOOM + left + LOST["a value"])
    assert examined.verdict.cause == "user_code_exception" and culprits(examined) == [2]
    behind = judged(tmp_path, STEPS + LOST["a value"] + AT_EXIT.format(r=3))
    assert behind.verdict.outcome == "undetermined"


@pytest.mark.parametrize("code", ["1:0", "0:9"])
def test_a_record_with_a_code_is_no_end(code: str, tmp_path: Path) -> None:
    record = f"JobState=COMPLETED Reason=None ExitCode={code}\n"
    assert judged(tmp_path, STEPS + LOST["a value"] + record).verdict.outcome == "undetermined"
