"""The environment child: it keeps what matters to training and never prints a secret."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from asking import ask, said, write
from hypothesis import assume, given
from hypothesis import strategies as st

from nodedoctor.children.programs import child
from nodedoctor.facts.host.env import Env, environment
from nodedoctor.model import Observation, Outcome, Unseen
from nodedoctor.probes.host.environment import LONGEST, assignments, is_kept, kept_variables, scrubbed

SECRET = "s3kr1t-Value"

LEAKS = {
    "WANDB_API_KEY": SECRET,
    "RAY_AUTH_TOKEN": SECRET,
    "HF_TOKEN": SECRET,
    "NVIDIA_API_KEY": SECRET,
    "SLURM_JWT": SECRET,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "RAY_REDIS_PASSWORD": SECRET,
    "VLLM_API_KEY": SECRET,
    "MY_OWN": SECRET,
    "http_proxy": f"http://me:{SECRET}@proxy:3128",
    "RAY_ADDRESS": f"ray://me:{SECRET}@head:10001",
    "RAY_REDIS_ADDRESS": f"redis://:a/b@{SECRET}@head:6379",
    "RAY_JOB_HEADERS": json.dumps({"Authorization": f"Bearer {SECRET}"}),
    "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": {"env_vars": {"A": SECRET}}}),
    "RAY_SOMETHING": json.dumps({"my_password": f'with " quote {SECRET}', "other": 1}),
    "HF_ENDPOINT": f"https://hub.local/?token={SECRET}&x=1",
    "TORCH_LOGS_OUT": f"--api-key {SECRET} --secret={SECRET}",
    "NCCL_TOPO_FILE": f"/tmp/x?password='{SECRET}'",
    "DS_EXTRA": f"Bearer {SECRET}",
    "SLURM_COMMENT": f"hf_{SECRET}abcdefgh".replace("-", ""),
}


def test_no_secret_is_printed(tmp_path: Path):
    write(tmp_path / "job.env", "".join(f"export {name}={value}\n" for name, value in LEAKS.items()))
    env = {"PATH": os.environ["PATH"], "NCCL_DEBUG": "INFO", **LEAKS}
    argv = child("host/environment", "--file", str(tmp_path / "job.env"))
    done = subprocess.run(argv, env=env, capture_output=True, timeout=60, check=True)
    for hidden in (SECRET, SECRET.replace("-", "")):
        assert hidden.encode() not in done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["variables"]["NCCL_DEBUG"] == "INFO"
    assert document["variables"]["RAY_ADDRESS"] == "ray://***@head:10001"
    assert document["variables"]["HF_ENDPOINT"] == "https://hub.local/?token=***&x=1"
    assert set(document["files"][str(tmp_path / "job.env")]) <= set(document["variables"])
    assert document["left_out"] >= 10


@pytest.mark.parametrize(
    "name",
    [
        *("NCCL_IB_HCA", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME"),
        *(
            "RAY_ADDRESS",
            "UCX_TLS",
            "OMPI_COMM_WORLD_RANK",
            "SLURM_JOB_ID",
            "MASTER_ADDR",
            "RANK",
            "LD_PRELOAD",
        ),
        *("OMP_NUM_THREADS", "PYTHONFAULTHANDLER", "NVIDIA_PYTORCH_VERSION", "VIRTUAL_ENV", "FI_PROVIDER"),
        "NCCL_IB_PKEY",  # the number of a partition, no secret
    ],
)
def test_families_that_are_kept(name: str):
    assert is_kept(name)


@pytest.mark.parametrize(
    "name", ["LS_COLORS", "USER", "SSH_CLIENT", "RANKING", "NCCL", "GITHUB_TOKEN", "ncclx_A"]
)
def test_what_is_not_kept(name: str):
    assert not is_kept(name)


@given(
    st.text(max_size=20),
    st.sampled_from(["KEY", "token", "Secret", "PASSWORD", "PASSWD"]),
    st.text(max_size=8),
)
def test_a_name_that_speaks_of_a_secret_is_never_kept(before: str, word: str, after: str):
    """Tokens in the plural, and what makes them, are those of a language model."""
    assume(not (word == "token" and after.upper().startswith(("S", "IZ"))))
    assert not is_kept(f"NCCL_{before}{word}{after}")


AROUND = st.lists(
    st.sampled_from(["--verbose ", "a=", "x=1 ", "'", '"', "\\\\", "/opt/keys:", "{", ", ", "--", "&", "é"])
    | st.text(max_size=3),
    max_size=5,
).map("".join)
PLAIN = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789", min_size=12, max_size=30)
FORMS = [
    "http://user:{}@host/path",
    '{{"url": "redis://:{}@host"}}',
    "http://user:a\"b'{}@host/path",
    "x=1 API_KEY={} y=2",
    "--hf-token {} --epochs 3",
    '{{"password": "{}"}}',
    "{{'client_secret': '{}'}}",
    "?a=1&access_token={}&b=2",
    '{{\\"api_key\\": \\"{}\\"}}',
    "Authorization: Basic {}",
    "-token {}",
    "args=--api-key={}",
    "Bearer {}",
]


@given(st.sampled_from(FORMS), PLAIN, AROUND, AROUND)
def test_credentials_in_values_are_hidden(form: str, secret: str, before: str, after: str):
    assert secret not in scrubbed(f"{before} {form.format(secret)} {after}")


@pytest.mark.parametrize(
    "value", ["mlx5_0,mlx5_1", "/opt/keys/bin:/usr/bin", "eth0", "a=b", "^docker0,lo", "1"]
)
def test_ordinary_values_stay(value: str):
    assert scrubbed(value) == value


@given(st.dictionaries(st.text(), st.text()))
def test_any_environment_is_kept_or_not(variables: dict[str, str]):
    assert set(kept_variables(variables)) <= set(variables)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("piece", ["a", "a:", "://", "x=", '"a":', "--a ", "bearer "])
def test_long_values_take_no_time(piece: str):
    value = (piece * LONGEST)[:LONGEST]
    began = time.process_time()
    scrubbed(value)
    assert time.process_time() - began < 5  # quadratic backtracking took minutes
    assert scrubbed("a" * (LONGEST + 1)) == f"({LONGEST + 1} characters)"


def test_assignments_in_every_dialect():
    text = "# NCCL\nNCCL_DEBUG=INFO\nexport A='b c'\n  B=\"d\"\nC=\nnot an assignment\n1X=2\nD=e=f\n"
    assert dict(assignments(text)) == {"NCCL_DEBUG": "INFO", "A": "b c", "B": "d", "C": "", "D": "e=f"}


def test_conf_files_are_read_below_the_root(tmp_path: Path):
    write(tmp_path / "etc/nccl.conf", "NCCL_IB_HCA=mlx5\nMY_TOKEN=x\n")
    write(tmp_path / "home/.nccl.conf", "NCCL_DEBUG=WARN\n")
    env = Env.parse(ask(environment, root=tmp_path, env={"HOME": str(tmp_path / "home"), "RANK": "3"}))
    assert isinstance(env, Env)
    assert env.get("RANK") == "3"
    system, user = env.file("/etc/nccl.conf"), env.file("/.nccl.conf")
    assert system is not None
    assert system.variables == {"NCCL_IB_HCA": "mlx5"}
    assert user is not None
    assert user.variables == {"NCCL_DEBUG": "WARN"}


def test_a_missing_conf_file_is_no_empty_one(tmp_path: Path):
    env = Env.parse(ask(environment, root=tmp_path, env={"HOME": str(tmp_path)}))
    assert isinstance(env, Env)
    assert {file.error for file in env.files} == {"ENOENT"}


@pytest.mark.slow
def test_a_home_that_hangs_does_not_hide_the_environment(tmp_path: Path):
    """Opening a file under somebody's write lease waits for as long as the lease is held, up to 45 s."""
    path = write(tmp_path / ".nccl.conf", "NCCL_DEBUG=WARN\n")
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    fd = os.open(path, os.O_WRONLY)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        pytest.skip("this file system has no leases")
    try:
        env = Env.parse(ask(environment, root=tmp_path, env={"HOME": str(tmp_path), "NCCL_DEBUG": "INFO"}))
    finally:
        os.close(fd)
        signal.signal(signal.SIGIO, before)
    assert isinstance(env, Env)
    assert env.get("NCCL_DEBUG") == "INFO"
    hung = env.file("/.nccl.conf")
    assert hung is not None
    assert hung.error == "TIMEOUT"


def test_a_pasted_environment_is_filtered_too():
    env = Env.parse(said(f"SHELL=/bin/bash\nNCCL_DEBUG=INFO\nWANDB_API_KEY={SECRET}\nRAY_ADDRESS=a:1\n"))
    assert isinstance(env, Env) and env.variables == {"NCCL_DEBUG": "INFO", "RAY_ADDRESS": "a:1"}
    assert env.partly is not None, "a paste may have had more lines"


LEAVES = st.text(max_size=5) | st.integers() | st.dictionaries(st.text(max_size=3), st.integers())
SECTIONS = st.none() | st.dictionaries(st.text(max_size=5), LEAVES)
NAMES = st.sampled_from(["variables", "files", "errors", "left_out"])


@given(st.text() | st.dictionaries(NAMES, SECTIONS).map(json.dumps))
def test_any_text_is_an_environment_or_unseen(text: str):
    assert isinstance(Env.parse(said(text)), (Env, Unseen))


def test_no_answer_is_unseen():
    assert isinstance(Env.parse(Observation("env", Outcome.MISSING)), Unseen)


def test_an_exception_is_no_key():
    assert scrubbed("KeyError: 'image'") == "KeyError: 'image'"
    assert scrubbed("AuthError: token=abc") == "AuthError: token=***"
    assert scrubbed("X-Api-Key: abc") == "X-Api-Key:  ***"
