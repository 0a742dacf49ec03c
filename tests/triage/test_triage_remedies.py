"""What to do is told by the evidence, with the names that its line has in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from say import as_document, caught, elastic, judged
from say_programs import SAID
from test_triage_stories import STORIES

from nodedoctor.demo import folder
from nodedoctor.knowledge.env_vars import timeout_settings
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.timeline.node_reports import NodeFault, read_node
from nodedoctor.triage.verdict.advice import fix_table, remedies, timeouts

ASKED = [
    ("torch.AcceleratorError: CUDA error: invalid device ordinal\n", "LOCAL_RANK"),
    (
        "ValueError: Invalid CUDAPlace(2), must inside [0, 2), because GPU number on your machine is 2\n",
        "CUDA_VISIBLE_DEVICES",
    ),
    (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local address. "
        "port: 29517, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n",
        "29517",
    ),
    ("OSError: [Errno 24] Too many open files\n", "ulimit -n"),
    ("NVRM: Xid (PCI:0000:3b:00): 79, pid=4001, name=python, GPU has fallen off the bus.\n", "explain 79"),
    (
        "h:1:2 [0] misc/socket.cc:8 NCCL WARN socketStartConnect: Connect to 172.17.0.1<4100> failed :"
        " Connection refused\n",
        "docker0",
    ),
    (
        "h:1:2 [0] misc/socket.cc:8 NCCL WARN socketStartConnect: Connect to 10.4.0.9<4100> failed :"
        " Connection refused\n",
        "nc -zv 10.4.0.9 4100",
    ),
    (
        "h:1:2 [0] transport/net_ib.cc:9 NCCL WARN NET/IB: Got completion from peer 10.4.0.9<4100> with"
        " status=IBV_WC_LOC_PROT_ERR(4) opcode=IBV_WC_RDMA_WRITE(1) vendor_err=81 hca mlx5_4\n",
        "NCCL_NET_GDR_LEVEL",
    ),
    ("h:1:2 [0] NCCL WARN NET/IB : mlx5_4:1 Got async event : port error\n", "mlx5_4"),
    (elastic([(0, -15), (1, -11)], 1), "PYTHONFAULTHANDLER"),
    (
        "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://h/m\n",
        "HF_HUB_OFFLINE",
    ),
    ("AssertionError: Rank 7: found NaN in the gradient\n", "another GPU"),
    ("RuntimeError: PytorchStreamReader failed reading zip archive\n", "checkpoint before it"),
    ("RuntimeError: Error(s) in loading state_dict for Net: size mismatch for w\n", "another split"),
    ("KeyError: 'LOCAL_RANK'\n", "torchrun"),
    ("ValueError: No available memory for the cache blocks.\n", "a larger share"),
    ("ValueError: host not found: Name or service not known\n", "MASTER_ADDR"),
    (
        "RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode\n"
        "OSError: [Errno 24] Too many open files\n",
        "ulimit -n",
    ),
    ("RuntimeError: PytorchStreamWriter failed writing file data/3: file write failed\n", "quota"),
    ("OSError: [Errno 122] Disk quota exceeded: '/home/ed/.cache'\n", "quota -s"),
    ("OSError: [Errno 28] No space left on device\n", "df -h"),
    ("OSError: [Errno 30] Read-only file system: '/data/out'\n", "findmnt"),
    ("['python', '-u', 'train.py', '--local_rank=1'] exits with return code = -7\n", "df -h /dev/shm"),
    ("NVRM: Xid (PCI:0000:3b:00): 31, pid=4001, name=python, Ch 00000013\n", "CUDA_LAUNCH_BLOCKING"),
    (
        "[rank3]: urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='models.example.org',"
        " port=443): Read timed out. (read timeout=10)\n",
        "ranks read it offline",
    ),
    (
        "[E1121 10:00:00.2 socket.cpp:500] [c10d] The server socket has failed to listen on any local network"
        " address. The server socket has failed to bind to 0.0.0.0:80 (errno: 13 - Permission denied).\n",
        "above 1023",
    ),
]


@pytest.mark.parametrize(("text", "wanted"), ASKED, ids=[wanted for _, wanted in ASKED])
def test_commands_hold_what_the_line_names(text: str, wanted: str, tmp_path: Path) -> None:
    assert wanted in str(as_document(judged(tmp_path, text))["fixes"])


def test_a_crash_is_not_called_out_of_memory(tmp_path: Path) -> None:
    fixes = as_document(judged(tmp_path, elastic([(0, -15), (1, -11)], 1)))["fixes"]
    assert "out-of-memory" not in str(fixes)


PLACEHOLDER = re.compile(
    r"<[\w -]+>|\b(?:XID|PID|HOST|PORT|IFACE|RANK|JOBID|MASTER_ADDR)\b|\.\.\.|\beth\d|mlx5_BAD|/path/"
    r"|\byour\b|ncclras"
)
TEXTS = {**{name: row[0] for name, row in STORIES.items()}, **{name: row[0] for name, row in SAID.items()}}
DIED = SAID["JAX ended itself"][0]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", TEXTS)
def test_laws_of_all_advice(name: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, TEXTS[name])
    document = as_document(examined)
    steps = [step["command"] for fix in (*document["fixes"], *document["next"]) for step in fix["steps"]]
    assert [command for command in steps if PLACEHOLDER.search(command)] == []
    if document["outcome"] == "undetermined":
        assert document["fixes"] == []


@pytest.mark.parametrize("text", ["Aborted (core dumped)", "ncclInternalError: Internal check failed.", DIED])
def test_a_crash_gets_no_advice_for_a_hang(text: str, tmp_path: Path) -> None:
    document = as_document(judged(tmp_path, text + "\n"))
    told = str((document["fixes"], document["next"]))
    assert told and "flight recorder" not in told and "--live" not in told


def test_uneven_steps_are_made_even(tmp_path: Path) -> None:
    fixes = judged(tmp_path, STORIES["one rank had fewer steps"][0]).verdict.fixes
    assert "same number of batches" in fixes[0].text and "multimodal" not in str(fixes)


def test_a_hang_is_looked_at_while_it_lasts(tmp_path: Path) -> None:
    document = as_document(judged(tmp_path, caught(0)))
    assert "flight recorder" in str(document["next"]) and "--live" in str(document["next"])


def test_no_command_of_a_table_has_a_placeholder() -> None:
    made = [*fix_table.BY_CAUSE.values(), *fix_table.BY_FAMILY.values(), *fix_table.BY_NAME.values()]
    made += [make("") for make in remedies._BY_LINE.values()]
    made += [fixes for _, fixes in remedies._BY_MESSAGE]
    commands = [step.command for fixes in made for fix in fixes for step in fix.steps]
    assert len(commands) > 50
    assert [command for command in commands if PLACEHOLDER.search(command)] == []


OOM = (
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a capacity"
    " of 79.15 GiB. Of the allocated memory 60.00 GiB is allocated by PyTorch, and {} GiB is"
    " reserved by PyTorch but unallocated.\n"
)


@pytest.mark.parametrize(
    ("before", "unallocated", "advised"),
    [
        ("", "9.50", True),
        ("", "0.31", False),
        ("import vllm.worker\n", "9.50", False),
        ("SkyRL\n", "9.50", False),
    ],
)
def test_the_allocator_is_changed_only_where_it_helps_and_breaks_nothing(
    before: str, unallocated: str, advised: bool, tmp_path: Path
) -> None:
    fixes = as_document(judged(tmp_path, before + OOM.format(unallocated)))["fixes"]
    assert ("expandable_segments" in str(fixes)) == advised and "micro-batch" in str(fixes)


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        ("LLaMA-Factory", "ddp_timeout"),
        ("vllm.worker", "--distributed-timeout-seconds"),
        ("sglang", "--dist-timeout"),
        ("RayTrainWorker", "TorchConfig(timeout_s"),
        ("ShardingStrategy.HYBRID_SHARD", "process_group"),
        ("DeepSpeed", "DEEPSPEED_TIMEOUT"),
        ("accelerate", "InitProcessGroupKwargs"),
        ("lightning", "DDPStrategy"),
        ("", "init_process_group"),
    ],
)
def test_the_timeout_is_set_in_the_framework_in_use(named: str, wanted: str, tmp_path: Path) -> None:
    text = (
        named
        + "\n[rank3]: Saving model checkpoint to /ckpt/200\n"
        + "".join(caught(rank) for rank in range(3))
    )
    document = as_document(judged(tmp_path, text))
    assert document["cause"] == "timeout_too_short_legit_work" and wanted in str(document["fixes"])


def test_every_framework_has_a_row() -> None:
    rows = {row.framework for row in timeout_settings()}
    assert set(timeouts.FRAMEWORKS.values()) | {"torch"} == rows


def test_what_a_node_decides_is_repaired_as_its_check_says() -> None:
    node = read_node(str(folder("raylet-1024-files")))
    log = Path(__file__).parent / "logs" / "skyrl_policy_train.log"
    verdict = examine_job([str(log)], [node]).verdict
    fault = next(event.what for event in verdict.evidence if isinstance(event.what, NodeFault))
    assert verdict.cause == "shm_or_limits" and fault.fixes and verdict.fixes == fault.fixes


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 80.00 MiB.", "--max-num-seqs"),
        (
            "ValueError: To serve at least one request with the model's max seq len (262144), (18.35 GiB KV"
            " cache is needed, which is larger than the available KV cache memory (8.72 GiB).",
            "--max-model-len",
        ),
    ],
)
def test_an_engine_has_no_micro_batches(tmp_path: Path, said: str, asked: str) -> None:
    text = f"(EngineCore pid=44) ERROR 11-07 10:24:34 [core.py:868] {said}\n"
    examined = judged(tmp_path, text)
    told = str(as_document(examined))
    assert examined.verdict.cause == "peer_cuda_oom"
    assert asked in told and "micro-batch" not in told
