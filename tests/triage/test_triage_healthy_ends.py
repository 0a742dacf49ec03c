"""Jobs that came to their end or were stopped in order, with what looks like trouble on their way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from say import judged, steps

from nodedoctor.triage.lines.prefilter import GREP_PREFILTER
from nodedoctor.triage.patterns.completed import OF_ALL_PROCESSES, REPORTS_OF_SUCCESS, says_any

SIGTERM = (
    "WARNING:torch.distributed.elastic.agent.server.api:Received 15 death signal, shutting down workers\n"
)
CANCELLED = "slurmstepd: error: *** {what} 4411.0 ON gpu-16 CANCELLED AT 2026-11-07T10:41:25 ***\n"
ABORTED = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
RAY = "(Worker pid={pid}, ip=10.4.0.17) "
IGNORED = (
    "Exception ignored in: <function Graph.__del__ at 0x7b12>{more}",
    '  File "/opt/env/graph.py", line 582, in __del__{more}',
    "    self.runner.close(){more}",
    "AttributeError: 'Graph' object has no attribute 'runner'{more}",
)


@pytest.mark.parametrize("what", ["STEP", "JOB"])
@pytest.mark.parametrize("launchers", [1, 2])
@pytest.mark.parametrize("first", [True, False])
def test_a_job_that_somebody_cancelled_did_not_fail(
    what: str, launchers: int, first: bool, tmp_path: Path
) -> None:
    said = CANCELLED.format(what=what)
    end = said + SIGTERM * launchers if first else SIGTERM * launchers + said
    verdict = judged(tmp_path, steps(1, 30) + ABORTED + end).verdict
    assert (verdict.outcome, verdict.cause) == ("clean", "none")
    for_a_task = steps(1, 30) + "srun: Terminating StepId=4411.0\n"
    others = "srun: error: a1: tasks 0-3: Terminated\nsrun: Force Terminated StepId=4411.0\n"
    for ends in (end, said + others, said):
        terminated = judged(tmp_path, for_a_task + ends).verdict
        assert terminated.outcome != "clean"  # so srun ends the others when one of its tasks failed


@pytest.mark.parametrize("path", ["/tmp", "/mnt/data"])
def test_a_limit_of_watches_is_no_full_disk(path: str, tmp_path: Path) -> None:
    line = f"[1730001.112] [gpu-3:58364:f] vfs.c:281  UCX  ERROR inotify_add_watch({path}) failed: No space"
    text = f"{line} left on device\n{steps(1, 30)}Training completed\n"
    assert judged(tmp_path, text).verdict.outcome == "clean"
    full = f"torch.save: {path}/x.pt: No space left on device\n"
    assert judged(tmp_path, steps(1, 30) + full).verdict.cause == "shm_or_limits"


@pytest.mark.parametrize("pid", [4100, 4101])
def test_what_ray_repeats_is_told_as_it_was_first(pid: int, tmp_path: Path) -> None:
    whole = [IGNORED[0], "Traceback (most recent call last):{more}", *IGNORED[1:]]
    first = "".join(RAY.format(pid=4100) + line.format(more="") + "\n" for line in whole)
    more = " [repeated 26x across cluster]"
    head = (
        RAY.format(pid=pid)
        + "[rank0]:W1107 10:41:25.565000 77 graph.py:12] Traceback (most recent call last):\n"
    )
    lines = [RAY.format(pid=pid) + line.format(more=more) + "\n" for line in IGNORED]
    text = steps(1, 9) + first + lines[0] + head + "".join(lines[1:]) + steps(10, 30) + "Training completed\n"
    assert judged(tmp_path, text).verdict.outcome == "clean"


@pytest.mark.parametrize("between", ["", "loading the tokenizer\n", "loading\nready\n"])
@pytest.mark.parametrize(
    "announced", ["Exception ignored in: <function Graph.__del__ at 0x7b12>", "Error in atexit:"]
)
def test_what_was_announced_as_ignored_may_lack_the_head_of_its_traceback(
    announced: str, between: str, tmp_path: Path
) -> None:
    """Ray leaves out lines that it has shown, as that head, and puts others between."""
    lines = [announced, *between.splitlines(), *(line.format(more="") for line in IGNORED[1:])]
    text = "".join(RAY.format(pid=4100) + line + "\n" for line in lines)
    assert judged(tmp_path, steps(1, 30) + text).verdict.outcome == "clean"
    alone = "".join(RAY.format(pid=4100) + line + "\n" for line in lines[1:])
    assert judged(tmp_path, steps(1, 30) + alone).verdict.outcome == "failure"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("[rank3]: RuntimeError: CUDA error: no kernel image is available for execution", "version_mismatch"),
        ("[rank3]: ImportError: x.so: undefined symbol: ncclCommRegister", "version_mismatch"),
        ("[rank3]: RuntimeError: No CUDA GPUs are available", "driver_problem"),
    ],
)
def test_who_tells_of_its_own_node_is_named(line: str, cause: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 9) + line + "\n").verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == (cause, [3])


UNHEARD = (
    "W1107 10:41:25.176000 538977 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1331] The node"
    " 'n1_538977_0' has failed to send a keep-alive heartbeat to the rendezvous '1365' due to an error of"
    " type RendezvousTimeoutError.\n"
)


SHUT = UNHEARD.replace("send a keep-alive heartbeat to", "shutdown").replace("Timeout", "Connection")


def test_an_agent_that_outlives_the_one_that_holds_the_rendezvous(tmp_path: Path) -> None:
    assert judged(tmp_path, steps(1, 30) + UNHEARD).verdict.outcome == "clean"
    assert judged(tmp_path, steps(1, 30) + UNHEARD + SHUT + SHUT).verdict.outcome == "clean"
    assert judged(tmp_path, UNHEARD).verdict.cause == "network_socket_interface"  # it got nowhere
    failed = judged(tmp_path, steps(1, 30) + UNHEARD + "RuntimeError: connectFullMesh failed\n").verdict
    assert failed.cause == "network_socket_interface"


@pytest.mark.parametrize(
    "said",
    [
        ':::MLL 1558666280.925 run_stop: {"metadata": {"status": "success", "lineno": 977}, "value": null}\n',
        "Exit code: 0\n",
        "TRAINING COMPLETE!\n",
    ],
)
def test_a_program_says_in_its_own_words_that_it_is_done(said: str, tmp_path: Path) -> None:
    assert judged(tmp_path, "Error: the cache is cold\n" + said).verdict.outcome == "clean"


@pytest.mark.parametrize(
    "said",
    [
        "scanning labels... 8114 images, 8 backgrounds, 0 corrupt: 100%",
        "RELATIVE ERROR over r from 0.0 to the cutoff",
        "Ewald error estimate:   0.7695E-04",
        "mean squared error 0.25 on the test set, 0 invalid",
    ],
)
def test_a_count_of_none_and_a_measure_are_no_words_of_failure(said: str, tmp_path: Path) -> None:
    assert judged(tmp_path, "reading\n" + said + "\n").verdict.outcome == "nothing"


ENDS = (
    "训练完成", "模型训练已完成", "学習が完了しました", "학습 완료", "Entrenamiento finalizado.",
    "Treinamento concluído com sucesso", "Entraînement terminé", "Training abgeschlossen",
    "Addestramento completato", "Обучение завершено",
)  # fmt: skip


@pytest.mark.parametrize("said", ENDS)
def test_people_write_programs_in_their_own_languages(said: str, tmp_path: Path) -> None:
    failed = "2026-11-07 09:11:32,410 - ERROR - /data/train.json: No such file or directory\n"
    done = f"2026-11-07 11:40:05,731 - INFO - {said}\n"
    assert judged(tmp_path, failed + done).verdict.outcome == "clean"
    assert judged(tmp_path, done + failed).verdict.outcome == "failure"
    ended = done.replace(said, "训练结束, 清理临时文件")  # it says so whatever the end was
    assert judged(tmp_path, failed + ended).verdict.outcome == "failure"
    later = done.replace(said, f"{said} (epoch 3)")
    assert judged(tmp_path, failed + later).verdict.outcome == "failure"


@pytest.mark.parametrize(
    "before",
    [
        "W0405 09:49:17.681741 2874715 reducer.cc:633] No parameter is in use, an error may follow:\n",
        "[W socket.cpp:436] [c10d] The client socket cannot be initialized, an error may follow:\n",
    ],
)
def test_what_a_compiled_library_warns_of_does_not_soften_a_traceback_behind_it(
    before: str, tmp_path: Path
) -> None:
    error = 'Traceback (most recent call last):\n  File "/job/train.py", line 7, in <module>\n    main()\n'
    verdict = judged(tmp_path, before + error + "ValueError: bad shard\n").verdict
    assert (verdict.outcome, verdict.cause) == ("failure", "user_code_exception")


WANDB = "2026-11-07 05:47:26,655 {level:<7} MainThread:9620 [{place}] {said}\n"
PROBED = WANDB.format(
    level="INFO",
    place="wandb_run.py:_label_probe_notebook():1352",
    said="Unable to probe notebook: 'NoneType' object has no attribute 'get'",
)
LOST = '  File "/opt/lib/python3.12/site-packages/wandb/sdk/lib/asyncio_manager.py", line 180, in run\n'


def test_the_log_that_weights_and_biases_keeps_of_itself(tmp_path: Path) -> None:
    lost = WANDB.format(
        level="ERROR", place="asyncio_manager.py:run():183", said="Uncaught exception in run callback"
    )
    lost += f"Traceback (most recent call last):\n{LOST}    await drain()\nConnectionResetError: lost\n"
    for text in (PROBED, lost, PROBED + lost):
        assert judged(tmp_path, text).verdict.outcome in ("nothing", "undetermined")
        assert judged(tmp_path, steps(1, 9) + text).verdict.outcome == "clean"
    done = WANDB.format(level="INFO", place="wandb_run.py:_atexit_cleanup():2419", said="got exitcode: 0")
    assert judged(tmp_path, PROBED + done).verdict.outcome == "clean"


def test_a_program_that_fails_in_weights_and_biases_fails(tmp_path: Path) -> None:
    own = '  File "/job/train.py", line 12, in <module>\n    wandb.init()\n'
    text = f"Traceback (most recent call last):\n{own}{LOST}    raise\nwandb.errors.UsageError: no API key\n"
    assert judged(tmp_path, steps(1, 9) + text).verdict.cause == "user_code_exception"


ABSENT = "/usr/bin/bash: line 2: --length: command not found\n"
ENDED = "srun: error: n7: task 0: Exited with exit code 127\n"


@pytest.mark.parametrize(
    ("said", "behind", "outcome"),
    [(ABSENT, ENDED, "failure"), (ABSENT, "", "clean"), ("", ENDED, "undetermined")],
)
def test_what_a_script_says_behind_a_program_that_came_to_its_end(
    said: str, behind: str, outcome: str, tmp_path: Path
) -> None:
    text = steps(1, 9) + "Training completed\n" + said + behind
    assert judged(tmp_path, text).verdict.outcome == outcome


def test_two_clean_ups_that_are_ignored_in_each_others_lines(tmp_path: Path) -> None:
    said = "Exception ignored in atexit callback: <function keep at 0x7f{}>\n"
    head = 'Traceback (most recent call last):\n  File "/job/keep.py", line 480, in keep\n'
    rest = "    table.put()\nFileNotFoundError: [Errno 2] No such file or directory: '/home/ed/table.tmp'\n"
    tail = '    keep()\n  File "/job/keep.py", line 105, in put\n    os.replace(self.path)\n'
    text = said.format(1) + head + said.format(2) + head + rest + tail + rest.partition("\n")[2]
    assert judged(tmp_path, steps(1, 30) + text).verdict.outcome == "clean"
    third = judged(tmp_path, steps(1, 30) + text + head + rest).verdict
    assert third.cause == "user_code_exception"


RETRIED = (
    "Error while fetching the alignment. Retrying... ({0}/5)\n"
    "Error: HTTPSConnectionPool(host='api.example.org', port=443): Read timed out.\n"
)


def test_what_stands_behind_a_retry_is_its_detail(tmp_path: Path) -> None:
    text = RETRIED.format(1) + RETRIED.format(2)
    done = "=====\nPipeline Complete\n=====\n"
    assert judged(tmp_path, text + done).verdict.outcome == "clean"
    assert judged(tmp_path, steps(1, 9) + text + steps(10, 9)).verdict.outcome == "clean"
    assert judged(tmp_path, text).verdict.outcome == "failure"  # its last words


@pytest.mark.parametrize(
    "text",
    [
        "No errors encountered during test.\n",
        "cudaPeekAtLastError         0.00%      53.000us         0.00%      53.000us       0.001us\n",
        "2026-11-07 08:12:41,118 ERROR   StreamThr :374 [internal.py:wandb_internal():145] Internal process"
        " shutdown.\n",
    ],
)
def test_summaries_without_an_error_are_none(text: str, tmp_path: Path) -> None:
    assert judged(tmp_path, text).verdict.outcome == "nothing"


FINALIZER = (
    "from multiprocessing.util import Finalize\nFinalize(None, open, args=('/none',), exitpriority=1)\n"
)
WEAK = "import weakref\nclass Cache: pass\ncache = Cache()\nweakref.finalize(cache, open, '/none')\n"
REQUEST = (
    "import socketserver, socket\n"
    "class Handler(socketserver.BaseRequestHandler):\n"
    "    def handle(self): open('/none')\n"
    "server = socketserver.TCPServer(('127.0.0.1', 0), Handler)\n"
    "client = socket.create_connection(server.server_address)\n"
    "server.handle_request()\nserver.server_close()\n"
)


@pytest.mark.parametrize(("program", "code"), [(FINALIZER, 0), (WEAK, 0), (REQUEST, 0), ("open('/none')", 1)])
def test_what_python_itself_caught_ended_no_program(program: str, code: int, tmp_path: Path) -> None:
    """It shows the traceback; the program's own exit code says that nothing failed."""
    script = tmp_path / "train.py"
    script.write_text(program)
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert ran.returncode == code and "FileNotFoundError" in ran.stderr
    verdict = judged(tmp_path, steps(1, 30) + ran.stderr).verdict
    assert verdict.outcome == ("failure" if code else "clean"), verdict.headline


TEARDOWN = (
    "gpu-{n}:70725:70725 [6] NCCL INFO comm 0x1530{n:04} rank {n} nranks 9999 cudaDev 6 - Abort COMPLETE\n"
)
REPORTS = (
    ':::MLLOG {"time_ms": 1, "key": "run_stop", "value": null, "metadata": {"status": "success"}}',
    "{'train_runtime': 81.2, 'train_loss': 0.2}",
    "`Trainer.fit` stopped: `max_steps=100` reached.",
    "[after training is done] datetime: 2024-05-06 09:02:51",
    "Final validation metrics: {'val/reward': 0.4}",
    "Training completed after 12 iterations at 2025-07-01 10:00:00. Total running time: 1h",
    "|  Tasks  |Version|     Filter     |n-shot|  Metric   |",
    "I0506 torch/distributed/elastic/agent/server/api.py:879] [default] worker group successfully finished.",
    "[2026-04-03 10:18:55,009] [INFO] [launch.py:351:main] Process 5120 exits successfully.",
)


@pytest.mark.slow
@pytest.mark.parametrize("report", REPORTS)
def test_success_is_found_far_from_the_end_of_a_long_log(report: str, tmp_path: Path) -> None:
    """Thousands of ranks take down their communicators behind it."""
    assert says_any(REPORTS_OF_SUCCESS, report)
    warning = "gpu-1:70725:70725 [6] sharp_plugin.c:288 NCCL WARN NET/IB : SHARP coll init error\n"
    teardown = "".join(TEARDOWN.format(n=number) for number in range(6000))
    log = f"{warning}{TEARDOWN.format(n=0) * 3000}{report}\n{teardown}"
    verdict = judged(tmp_path, log).verdict
    assert (verdict.outcome, verdict.headline) == ("clean", "no failure: the job came to its end")


def test_every_report_of_success_is_tried_and_has_a_word_that_is_searched_for() -> None:
    """The last line of pytest is the last of its log."""
    untried = [report for report in REPORTS_OF_SUCCESS if not any(map(report.search, REPORTS))]
    assert [report.pattern.partition("(")[0] for report in untried] == ["^=+ "]
    for text in REPORTS:
        assert any(stem in text for stem in GREP_PREFILTER), text


IN_MESSAGE = (
    "[rank3]: Import of gelu from fused.activations failed with: Traceback (most recent call last):\n"
    '[rank3]:   File "/opt/tool/imports.py", line 319, in load\n[rank3]:     return getattr(one, name)\n'
    "[rank3]: AttributeError: module 'fused.activations' has no attribute 'gelu'\n"
)


@pytest.mark.parametrize("report", REPORTS)
def test_a_traceback_in_a_message_was_caught_where_the_run_reports_success(
    report: str, tmp_path: Path
) -> None:
    """Python itself begins a line with it, and one rank alone speaks for the run."""
    assert judged(tmp_path, IN_MESSAGE + f"[rank0]: {report}\n").verdict.outcome == "clean"
    assert judged(tmp_path, IN_MESSAGE).verdict.outcome == "failure"
    plain = IN_MESSAGE.replace("failed with: Traceback", "failed with:\n[rank3]: Traceback")
    alone = "clean" if says_any(OF_ALL_PROCESSES, report) else "failure"
    assert judged(tmp_path, plain + f"[rank0]: {report}\n").verdict.outcome == alone


@pytest.mark.parametrize("report", REPORTS)
def test_libraries_complain_while_they_are_taken_down(report: str, tmp_path: Path) -> None:
    complaint = "n:48:49 [1] proxy.cc:1458 NCCL WARN [Service thread] Accept failed Resource unavailable\n"
    killed = "srun: error: gpu-16: task 3: Segmentation fault (core dumped)\n"
    log = steps(1, 30) + f"{report}\n{complaint}"
    assert judged(tmp_path, log).verdict.outcome == "clean"
    assert judged(tmp_path, log + killed).verdict.outcome == "failure"


@pytest.mark.parametrize("last", ["Init COMPLETE", "Init START"])
@pytest.mark.parametrize("ranks", [1, 4])
def test_a_communicator_that_works_is_the_end_of_the_set_up(last: str, ranks: int, tmp_path: Path) -> None:
    line = "n5:{pid}:{pid} [{rank}] NCCL INFO {text}\n"
    of_comm = "comm 0x77 rank {rank} nranks {ranks} cudaDev {rank} busId 4{rank}000 commId 0x3 - {step}"
    log = ""
    for rank in range(ranks):
        steps_of = ["Init START", *(["Init COMPLETE"] if rank or last == "Init COMPLETE" else [])]
        texts = [of_comm.format(rank=rank, ranks=ranks, step=step) for step in steps_of]
        texts = ["Bootstrap : Using eno1:10.9.0.5<0>", "cudaDriverVersion 12080", *texts]
        log += "".join(line.format(pid=700 + rank, rank=rank, text=text) for text in texts)
    verdict = judged(tmp_path, log).verdict
    assert ("is set up on every rank" in verdict.headline) is (last == "Init COMPLETE")
    assert verdict.outcome == "undetermined"
