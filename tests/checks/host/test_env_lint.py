"""Environment lint: a variable and what is installed in, one finding with the right reason out."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from asking import ask, judge, said, write
from hypothesis import given
from hypothesis import strategies as st
from in_turn import in_turn
from test_stack_checks import H100, gpus, target

from nodedoctor.blackbox import job_environment
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.env import Env, EnvFile, environment
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.facts.host.settings import Settings
from nodedoctor.facts.network.net import Interface, Net
from nodedoctor.facts.rdma.sysfs import Hca, Rdma, RdmaPort
from nodedoctor.facts.stack.libraries import Libraries, LibraryCopy, Resolved
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.knowledge.env_vars import env_vars
from nodedoctor.lint.devices import judge_devices
from nodedoctor.lint.habits import judge_habit
from nodedoctor.lint.names import judge_name
from nodedoctor.lint.remark import NodeContext
from nodedoctor.lint.together import judge_together
from nodedoctor.lint.values import judge_value
from nodedoctor.model import Finding, Status, Unseen
from nodedoctor.probes.host.environment import misread

NET = Net((Interface("lo", up=True), Interface("eth0", up=True), Interface("ib0", up=True)))
PORT = RdmaPort(1, "ACTIVE", "LinkUp", "InfiniBand", "400 Gb/sec", 400.0)
RDMA = Rdma(tuple(Hca(f"mlx5_{i}", ports=(PORT,)) for i in range(8)))
SXM = gpus(*[H100] * 8)
NONE = (NET, RDMA, SXM)


def nccl(version: str) -> Libraries:
    copy = LibraryCopy("nccl", "/v/libnccl.so.2", "/v/libnccl.so.2", "libnccl.so.2", version)
    return Libraries((copy,), (Resolved("libnccl.so.2", copy.path, copy.real, "RPATH"),))


def lint(*facts: object, nccl_version: str = "2.27.5", torch: str = "2.9.0+cu128", **here: str):
    settings = next((fact for fact in facts if isinstance(fact, Settings)), Settings(here=here))
    given = facts or NONE
    return judge("env.lint", settings, nccl(nccl_version), Torch(torch, "12.8"), *given)


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


CLEAN = {
    "NCCL_DEBUG": "WARN",
    "NCCL_IB_HCA": "mlx5",
    "NCCL_SOCKET_IFNAME": "^docker,lo",
    "GLOO_SOCKET_IFNAME": "eth0",
    "NCCL_NVLS_ENABLE": "2",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_IB_TIMEOUT": "22",
    "NCCL_VERSION": "2.27.5",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "600",
    "TORCH_FR_BUFFER_SIZE": "20000",
    "TORCH_CUDA_ARCH_LIST": "9.0",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3",
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "CUDA_HOME": "/usr/local/cuda",
    "NCCL_ROOT": "/usr",
    "RAY_memory_usage_threshold": "0.98",
    "OMPI_MCA_btl": "^openib",
    "UCX_NET_DEVICES": "mlx5_0:1",
    "NCCL_FASTRAK_CTRL_DEV": "eth0",  # of a plug-in
    "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth1",
    "OFI_NCCL_PROTOCOL": "RDMA",
    "FI_PROVIDER": "efa",
    "DEEPSPEED_TIMEOUT": "60",
    "PYTORCH_ALLOC_CONF": "expandable_segments:True",
}


def test_a_clean_environment_has_no_finding():
    assert [f.status.value for f in lint()] == ["pass"]
    one_cloud = {name: value for name, value in CLEAN.items() if name != "FI_PROVIDER"}
    found = only(lint(**one_cloud))
    assert (found.status.value, found.note) == ("pass", False), found


@pytest.mark.parametrize("name", sorted(CLEAN))
def test_each_of_them_alone_is_fine(name):
    assert only(lint(**{name: CLEAN[name]})).status.value == "pass"


SIX = {
    "NCCL_TIMEOUT": ("1200", "warn", "no library reads it"),
    "NCCL_ASYNC_ERROR_HANDLING": ("1", "warn", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    "NCCL_IB_HCA": ("mlx5_9", "fail", "no RDMA device mlx5_9"),
    "NCCL_SOCKET_IFNAME": ("eth9", "fail", "no such interface"),
    "NCCL_P2P_DISABLE": ("1", "warn", "traffic bypasses NVLink"),
    "NCCL_DEUBG": ("INFO", "warn", "probably NCCL_DEBUG was intended"),
}


def test_six_variables_six_findings():
    findings = lint(**{name: value for name, (value, _, _) in SIX.items()})
    told = {finding.subject.removeprefix("env:"): finding for finding in findings}
    assert set(told) == set(SIX)
    for name, (_, status, words) in SIX.items():
        assert told[name].status.value == status
        assert words in told[name].summary
        assert told[name].fix is not None
        assert told[name].evidence[0].path == f"variables.{name}"
    fix = told["NCCL_TIMEOUT"].fix
    assert fix is not None and "SKYRL_WORKER_NCCL_TIMEOUT_IN_S" in fix.text and "ddp_timeout" in fix.text


@in_turn(
    ("name", "value", "torch", "nccl_version", "status", "words"),
    [
        # names by version
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000", "2.6.0", "2.27.5", "pass", ""),
        ("TORCH_FR_BUFFER_SIZE", "2000", "2.6.0", "2.27.5", "warn", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("TORCH_FR_BUFFER_SIZE", "2000", "2.9.0", "2.27.5", "pass", ""),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", "2.1.0", "2.18.1", "warn", "NCCL_ASYNC_ERROR_HANDLING"),
        ("NCCL_ASYNC_ERROR_HANDLING", "1", "2.9.0", "2.27.5", "warn", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
        ("NCCL_ASYNC_ERROR_HANDLING", "1", "2.0.1", "2.14.3", "pass", ""),
        ("NCCL_NVLS_ENABLE", "0", "2.0.1", "2.14.3", "warn", "it came with 2.17.1"),
        ("NCCL_TREE_THRESHOLD", "0", "2.9.0", "2.27.5", "warn", "it is now NCCL_ALGO"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "2.9.0", "2.27.5", "pass", "PYTORCH_ALLOC"),
        ("NCCL_SOMETHING_NEW", "1", "2.9.0", "2.27.5", "warn", "nothing known reads it"),
        ("NCCL_SOMETHING_NEW", "1", "2.9.0", "2.99.1", "pass", "newer than the table"),
        ("CUDA_VISBLE_DEVICES", "0", "2.9.0", "2.27.5", "warn", "CUDA_VISIBLE_DEVICES"),
        ("TORCH_DISTRIBUTED_DETAIL", "1", "2.9.0", "2.27.5", "warn", "no library reads it"),
        # values and units
        ("NCCL_IB_TIMEOUT", "1200", "2.9.0", "2.27.5", "warn", "exponent from 1 to 22"),
        ("NCCL_IB_TIMEOUT", "0", "2.9.0", "2.27.5", "warn", "forever"),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "600000", "2.9.0", "2.27.5", "warn", "6.9 days"),
        ("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "30", "2.9.0", "2.27.5", "warn", "milliseconds"),
        ("DEEPSPEED_TIMEOUT", "7200", "2.9.0", "2.27.5", "warn", "minutes"),
        (
            "SKYRL_WORKER_NCCL_TIMEOUT_IN_S",
            "1800000",
            "2.9.0",
            "2.27.5",
            "warn",
            "1800 s probably intended",
        ),
        ("SKYRL_WORKER_NCCL_TIMEOUT_IN_S", "10m", "2.9.0", "2.27.5", "warn", "plain number"),
        ("RAY_memory_usage_threshold", "95", "2.9.0", "2.27.5", "warn", "fraction"),
        ("NCCL_P2P_DISABLE", "true", "2.9.0", "2.27.5", "warn", "is not a number"),
        ("TORCH_NCCL_BLOCKING_WAIT", "maybe", "2.9.0", "2.27.5", "fail", "Invalid value"),
        ("TORCH_DISTRIBUTED_DEBUG", "VERBOSE", "2.9.0", "2.27.5", "fail", "refuses to start"),
        ("NCCL_DEBUG", "DEBUG", "2.9.0", "2.27.5", "warn", "not one of VERSION"),
        ("NCCL_DEBUG", "info", "2.9.0", "2.27.5", "pass", ""),
        # left on
        ("CUDA_LAUNCH_BLOCKING", "1", "2.9.0", "2.27.5", "warn", "left on"),
        ("CUDA_LAUNCH_BLOCKING", "0", "2.9.0", "2.27.5", "pass", ""),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "2.9.0", "2.27.5", "warn", "left on"),
        ("NCCL_IB_DISABLE", "1", "2.9.0", "2.27.5", "warn", "active RDMA ports"),
        ("NCCL_NET", "Socket", "2.9.0", "2.27.5", "warn", "uses TCP"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "2.9.0", "2.27.5", "warn", "forever"),
        # devices
        ("NCCL_IB_HCA", "mlx5_1,mlx5_9", "2.9.0", "2.27.5", "warn", "no RDMA device mlx5_9"),
        ("NCCL_IB_HCA", "=mlx5_1:1", "2.9.0", "2.27.5", "pass", ""),
        ("NCCL_IB_HCA", "=mlx5_1:2", "2.9.0", "2.27.5", "fail", "mlx5_1:2"),
        ("NCCL_IB_HCA", "^mlx5_9", "2.9.0", "2.27.5", "pass", ""),
        ("NCCL_SOCKET_IFNAME", "eth", "2.9.0", "2.27.5", "pass", ""),
        ("NCCL_SOCKET_IFNAME", "=eth", "2.9.0", "2.27.5", "fail", "no such interface"),
        ("GLOO_SOCKET_IFNAME", "eth", "2.9.0", "2.27.5", "fail", "gloo"),
        ("CUDA_VISIBLE_DEVICES", "0,1,8", "2.9.0", "2.27.5", "fail", "GPU 8 does not exist"),
        ("CUDA_VISIBLE_DEVICES", "0,0", "2.9.0", "2.27.5", "fail", "twice"),
        ("CUDA_VISIBLE_DEVICES", "GPU-1f0c0a11", "2.9.0", "2.27.5", "pass", ""),
    ],
)
def test_one_variable(name, value, torch, nccl_version, status, words):
    found = only(lint(torch=torch, nccl_version=nccl_version, **{name: value}))
    assert found.status.value == status, found.summary
    assert words in found.summary


@pytest.mark.parametrize(
    ("here", "name", "words"),
    [
        ({"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": "mlx5_0"}, "NCCL_IB_HCA", "overrides it"),
        ({"NCCL_IB_DISABLE": "1", "NCCL_NET": "IB"}, "NCCL_NET", "contradicts"),
        ({"NCCL_DEBUG_SUBSYS": "ALL"}, "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG is not set"),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "ALL"}, "NCCL_DEBUG_SUBSYS", "every collective"),
        ({"NCCL_MIN_NCHANNELS": "32", "NCCL_MAX_NCHANNELS": "8"}, "NCCL_MIN_NCHANNELS", "more than"),
        ({"NCCL_ALGO": "NVLS", "NCCL_NVLS_ENABLE": "0"}, "NCCL_ALGO", "no algorithm is left"),
        ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}, "TORCH_NCCL_DUMP_ON_TIMEOUT", "empty"),
        (
            {"TORCH_FR_BUFFER_SIZE": "1", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2"},
            "TORCH_NCCL_TRACE_BUFFER_SIZE",
            "which wins",
        ),
    ],
)
def test_contradictions(here, name, words):
    told = {finding.subject: finding for finding in lint(**here)}
    one = told[f"env:{name}"]
    assert words in f"{one.summary} {one.fix.text if one.fix else ''}"
    assert told[f"env:{name}"].status.value in ("warn", "fail")


def test_without_nvlink_or_rdma_the_switches_cost_little():
    l4 = Gpus("nvml", gpus=tuple(Gpu(i, name="NVIDIA L4") for i in range(4)))
    for name in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"):
        found = only(lint(l4, Rdma(()), NET, **{name: "1"}))
        assert (found.status.value, found.note) == ("pass", True)


def test_a_plugin_may_read_what_libnccl_does_not():
    here = {"NCCL_NET_PLUGIN": "acme", "NCCL_ACME_DEPTH": "3"}
    told = {finding.subject: finding for finding in lint(**here)}
    assert told["env:NCCL_ACME_DEPTH"].note
    assert "plug-in acme" in told["env:NCCL_ACME_DEPTH"].summary


def rank(number: int, **environment: str) -> Process:
    return Process(
        100 + number, program="python3", script="train.py", role="rank", rank=number, environment=environment
    )


def settings(here: dict[str, str], *processes: Process, files: tuple[EnvFile, ...] = ()) -> Settings:
    made = Settings.parse(Env(here, files), Processes(processes))
    assert isinstance(made, Settings)
    return made


def test_what_was_exported_too_late_is_named():
    ranks = [rank(i, RANK=str(i), NCCL_DEBUG="WARN") for i in range(2)]
    files = (EnvFile("/job.env", {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}),)
    told = {f.subject: f for f in lint(settings({"NCCL_DEBUG": "INFO"}, *ranks, files=files), NET)}
    assert set(told) == {"env:NCCL_DEBUG", "env:TORCH_NCCL_ASYNC_ERROR_HANDLING"}
    assert "They have WARN" in told["env:NCCL_DEBUG"].why
    assert "/job.env" in told["env:TORCH_NCCL_ASYNC_ERROR_HANDLING"].summary
    assert "ray start" in told["env:NCCL_DEBUG"].why


def test_a_shell_beside_somebody_elses_job_was_never_meant_for_it():
    others = [rank(i, RANK=str(i), HOME="/home/trainer") for i in range(2)]
    here = {"HOME": "/root", "NCCL_DEBUG": "INFO"}
    assert only(lint(settings(here, *others), NET)).status.value == "pass"
    told = lint(settings({**here, "HOME": "/home/trainer"}, *others), NET)
    assert only(told).subject == "env:NCCL_DEBUG"


def test_what_reached_them_is_fine():
    ranks = [rank(i, RANK=str(i), NCCL_DEBUG="INFO") for i in range(2)]
    assert only(lint(settings({"NCCL_DEBUG": "INFO"}, *ranks), NET)).status.value == "pass"
    conf = (EnvFile("/etc/nccl.conf", {"NCCL_IB_TC": "106"}),)  # NCCL reads it itself
    assert only(lint(settings({}, *ranks, files=conf), NET)).status.value == "pass"


def test_ranks_that_differ_are_told_apart():
    ranks = (rank(0, NCCL_ALGO="Ring"), rank(1, RANK="1"))
    told = {f.subject: f for f in lint(settings({}, *ranks), NET)}
    assert told["env:NCCL_ALGO"].summary == (
        "NCCL_ALGO=Ring: not the same in all ranks of one job: Ring in rank 0 and not set in rank 1"
    )


def launched(launcher: int, ranks: int, *, port: int, **environment: str) -> list[Process]:
    """A job of one launcher on this node, as torchrun starts it."""
    above = Process(launcher, ppid=1, program="torchrun", role="launcher")
    return [above] + [
        replace(
            rank(number, **environment),
            pid=launcher + 1 + number,
            ppid=launcher,
            master=f"127.0.0.1:{port}",
        )
        for number in range(ranks)
    ]


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["NCCL_ALGO", "NCCL_PROTO", "TORCH_FR_BUFFER_SIZE", "GLOO_SOCKET_IFNAME"]),
            st.sampled_from(["Ring", "2000", "lo"]),
        ),
        min_size=2,
        max_size=4,
    ),
    st.booleans(),
)
def test_ranks_of_different_jobs_are_not_compared(environments: list[dict[str, str]], one_port: bool):
    """Each job sets what it likes; of the launcher or the rendezvous one is enough to tell them apart."""
    jobs = [
        launched(1000 * (number + 1), 2, port=29500 if one_port else 29500 + number, **environment)
        for number, environment in enumerate(environments)
    ]
    assert list(settings({}, *(one for job in jobs for one in job)).differing()) == []


def test_a_job_with_the_recorder_beside_one_without_it_is_fine():
    folder = "/home/me/nodedoctor-jobs/2026-11-26T13.20.11-train.py"
    recorder = {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/recorder/rank_"}
    with_it, without = launched(1000, 4, port=29500, **recorder), launched(2000, 4, port=29501)
    assert only(lint(settings({}, *with_it, *without), NET)).status.value == "pass"


def test_a_long_value_leaves_room_for_what_is_wrong_with_it():
    path = f"/home/{'me/' * 30}rank_"
    ranks = (rank(0, TORCH_FR_DUMP_TEMP_FILE=path), rank(1, RANK="1"))
    (told,) = lint(settings({}, *ranks), NET)
    assert told.summary.startswith("TORCH_FR_DUMP_TEMP_FILE: not the same in all ranks of one job: ")
    assert told.summary.count("(") == told.summary.count(")") and len(told.summary) < 140


def test_what_skyrl_does_not_hand_on():
    here = {"TORCH_FR_BUFFER_SIZE": "2000", "NCCL_DEBUG": "INFO", "SKYRL_WORKER_NCCL_TIMEOUT_IN_S": "1800"}
    told = {f.subject for f in lint(NET, target("skyrl-train 0.2.0"), Settings(here=here))}
    assert told == {f"env:{name}" for name in here}
    newer = lint(NET, target("skyrl 0.3.0"), Settings(here={"NCCL_DEBUG": "INFO"}))
    assert only(newer).subject == ""


def test_secrets_and_others_are_not_judged():
    assert (
        Settings.parse(Env({"PATH": "/bin", "HF_HOME": "/x", "SLURM_JOB_ID": "1"}), Unseen.skip(""))
        == Settings()
    )


def test_files_are_read_by_the_child(tmp_path):
    write(tmp_path / "etc/nccl.conf", "export NCCL_DEBUG=INFO\nNCCL_IB_TC=106\nNCCL_NET='IB'\n")
    own = write(tmp_path / "my.conf", "NCCL_P2P_DISABLE=1\n")
    env = Env.parse(ask(environment, root=tmp_path, env={"HOME": "/none", "NCCL_CONF_FILE": str(own)}))
    assert isinstance(env, Env)
    made = Settings.parse(env, Unseen.skip(""))
    assert isinstance(made, Settings)
    told = {finding.subject: finding for finding in lint(made, NET)}
    conf = str(tmp_path / "etc/nccl.conf")
    assert "NCCL_DEBUG and NCCL_NET" in told[f"file:{conf}"].summary
    assert str(own) in told["env:NCCL_P2P_DISABLE"].evidence[0].path


def test_a_named_file_that_is_missing_is_named():
    env = Env({}, (EnvFile("/job.env", error="ENOENT"), EnvFile("~/.nccl.conf", error="ENOENT")))
    made = Settings.parse(env, Unseen.skip(""))
    assert isinstance(made, Settings)
    told = lint(made, NET)
    assert [f.subject for f in told if f.status.value == "warn"] == ["file:/job.env"]


VALUES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["1", "0", "true", "^mlx5", "=eth0", "mlx5_0:x", "9" * 30, "0x14", "1.5", "ALL,COLL", ""]
    ),
)
NAMES = st.one_of(
    st.sampled_from([row.name for row in env_vars()]), st.from_regex(r"NCCL_[A-Z_]{1,9}", fullmatch=True)
)


@given(st.dictionaries(NAMES, VALUES, max_size=4), st.sampled_from(["", "2.9.0+cu128", "1.13.1", "9.9"]))
def test_any_environment_is_judged(here, torch):
    made = settings(here, rank(0, **here), rank(1))
    node = NodeContext(made, "2.27.5", torch, interfaces=("eth0",), hcas=("mlx5_0/1",), gpu_count=8)
    for setting in made.all():
        for rule in (judge_name, judge_value, judge_devices, judge_habit):
            assert all(remark.text for remark in rule(setting, node))
    assert all(remark.text for _, remark in judge_together(replace(node, settings=made)))


@given(st.text())
def test_any_text_may_stand_in_nccl_conf(text):
    assert all(isinstance(name, str) for name in misread(text))


@given(
    st.dictionaries(
        st.sampled_from(["variables", "files", "errors", "misread"]),
        st.none() | st.text() | st.dictionaries(st.text(max_size=3), st.lists(st.integers(), max_size=2)),
    )
)
def test_any_document_gives_settings_or_unseen(sections):
    env = Env.parse(said(json.dumps(sections)))
    assert isinstance(Settings.parse(env, Unseen.skip("")), (Settings, Unseen))


def test_the_recorder_set_by_its_old_and_new_name_is_no_remark():
    """Up to torch 2.10 both are needed: the ring is sized by the new name, the dump pipe made by the old."""
    both = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TORCH_FR_BUFFER_SIZE": "2000"}
    assert only(lint(**both)).status.value == "pass"
    (alone,) = lint(TORCH_NCCL_TRACE_BUFFER_SIZE="2000")
    assert (alone.status.value, alone.note) == ("pass", False)
    assert only(lint(torch="2.11.0", TORCH_NCCL_TRACE_BUFFER_SIZE="2000")).status.value == "warn"
    assert "warn" in {f.status.value for f in lint(**{**both, "TORCH_NCCL_TRACE_BUFFER_SIZE": "500"})}


@pytest.mark.parametrize("size", ["1", "20"])
def test_a_ring_of_a_few_entries_is_told_and_never_proposed_again(size: str):
    found = lint(TORCH_NCCL_TRACE_BUFFER_SIZE=size, TORCH_FR_BUFFER_SIZE=size)
    (short,) = [f for f in found if f.status.value == "warn"]
    assert f"keeps {size} entr" in short.summary and short.fix is not None
    assert short.fix.commands == ("export TORCH_FR_BUFFER_SIZE=2000",)
    assert not [f for f in lint(TORCH_FR_BUFFER_SIZE="2000") if f.status.value == "warn"]


@pytest.mark.parametrize(
    "name",
    ["TORCH_NCCL_DESYNC_DEBUG", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_ENABLE_MONITORING"],
)
def test_what_the_default_backend_of_torch_2_15_does_not_read(name: str):
    told = only(lint(torch="2.15.0+cu130", **{name: "1"}))
    assert told.status.value == "warn" and "does not read it" in told.summary
    former = lint(torch="2.15.0+cu130", **{name: "1", "TORCH_DIST_USE_NCCL2": "0"})
    assert not any("does not read it" in f.summary for f in former)
    assert not any("does not read it" in f.summary for f in lint(torch="2.14.0+cu130", **{name: "1"}))


def test_expandable_segments_beside_vllm_are_a_note_about_its_sleep_mode():
    settings = Settings(here={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:True"})
    alone, beside = (
        [remark for _, remark in judge_together(NodeContext(settings, vllm=version))]
        for version in ("", "0.11.0")
    )
    assert alone == [] and [remark.level for remark in beside] == ["note"]
    assert "sleep mode" in beside[0].text


@pytest.mark.parametrize(
    "torch", ["2.4.0+cu121", "2.6.0+cu124", "2.8.0+cu128", "2.9.0+cu128", "2.13.0+cu130"]
)
@pytest.mark.parametrize("nccl_version", ["2.24.3", "2.27.5"])
def test_what_arm_sets_is_what_lint_asks_for(torch: str, nccl_version: str) -> None:
    """The block fits every torch, old and new names alike: none of its lines is anything to complain of."""
    block = job_environment.arm({}, "/jobs/a", stamp="s", hook="/opt/hook", port=4000).variables
    told = lint(torch=torch, nccl_version=nccl_version, **block)
    assert [finding.summary for finding in told if finding.status is not Status.PASS] == []


JOB_OF_MANY = [
    {"NODE_RANK": "2"},
    {"SLURM_JOB_NUM_NODES": "16"},
    {"WORLD_SIZE": "32", "LOCAL_WORLD_SIZE": "8"},
    {"RANK": "19", "LOCAL_RANK": "3"},
    {"OMPI_COMM_WORLD_SIZE": "16", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"},
]
JOB_OF_ONE = [
    {},
    {"NODE_RANK": "0"},
    {"SLURM_JOB_NUM_NODES": "1"},
    {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"},
    {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8"},
    {"WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1"},
]


def together(*, mnnvl: bool | None = None, **here: str) -> list[tuple[str, str]]:
    node = NodeContext(Settings(here=here), shell=here, mnnvl=mnnvl)
    return [(name, remark.level) for name, remark in judge_together(node)]


@pytest.mark.parametrize("value", ["lo", "=lo", "lo,lo"])
@pytest.mark.parametrize("name", ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"])
def test_loopback_as_the_interface_of_a_job_of_several_nodes_fails(name: str, value: str):
    for job in JOB_OF_MANY:
        assert together(**job, **{name: value}) == [(name, "fail")]
    for job in JOB_OF_ONE:
        assert together(**job, **{name: value}) == []
    for other in ("^lo", "lo,eth0", "eth0", ""):
        assert together(NODE_RANK="1", **{name: other}) == []


def test_nvlink_between_nodes_switched_off_is_told_where_it_may_be_there():
    off = {"NCCL_MNNVL_ENABLE": "0"}
    for job in JOB_OF_MANY:
        assert together(**job, **off) == together(mnnvl=True, **job, **off) == [("NCCL_MNNVL_ENABLE", "warn")]
        assert together(mnnvl=False, **job, **off) == []
        assert together(**job, NCCL_MNNVL_ENABLE="2") == together(**job) == []
    for job in JOB_OF_ONE:
        assert together(**job, **off) == []


@pytest.mark.parametrize(
    ("value", "warns"), [("1", True), ("2", True), ("13", True), ("14", False), ("22", False)]
)
def test_a_timeout_of_infiniband_below_every_default_is_told(value: str, warns: bool):
    found = [f for f in lint(NCCL_IB_TIMEOUT=value) if f.status.value == "warn"]
    assert bool(found) == warns
    assert all("for an acknowledgement" in f.summary for f in found)


@pytest.mark.parametrize("name", ["NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"])
def test_what_a_script_found_no_value_for_is_told(name: str):
    assert "empty" in only(lint(**{name: ""})).summary


def test_the_desync_report_beside_the_recorders_dumps_is_no_setting_left_on():
    shell = {"TORCH_NCCL_DESYNC_DEBUG": "1", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    settings = Settings(here=shell)
    (setting,) = [one for one in settings.all() if one.name == "TORCH_NCCL_DESYNC_DEBUG"]
    assert [r.level for r in judge_habit(setting, NodeContext(settings, shell=shell))] == ["note"]
    assert [r.level for r in judge_habit(setting, NodeContext(settings))] == ["warn"]
