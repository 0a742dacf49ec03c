"""No credential passes the door by which observations enter, and nothing that checks need is lost there."""

import asyncio
import json
import logging
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from in_turn import in_turn

from nodedoctor import demo
from nodedoctor.declare.registry import Options
from nodedoctor.engine import recording
from nodedoctor.engine.secrets import HIDDEN, is_harmless, variable, without_secrets
from nodedoctor.engine.session import Request, Session
from nodedoctor.model import Observation
from nodedoctor.probes.host.environment import scrubbed
from nodedoctor.report import brief, html, junit, text, ticket
from nodedoctor.report import json as report_json

NODES = Path(__file__).parent.parent / "nodes"
DEMOS = Path(demo.__file__).parent
RECORDED = sorted(path.parent for folder in (NODES, DEMOS) for path in folder.glob("*/manifest.json"))

WORD = "Zq7Rk2Vw9Xs4Tn1Yb8"  # what must not be found again, in every secret below
VARIABLES = [
    *("RAY_PASS", "DB_PWD", "GIT_PAT", "RAY_CREDS", "WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY"),
    *("NCCL_AUTH", "PGPASSWORD", "MYSQL_PWD", "AZURE_CLIENT_SECRET", "SLURM_JWT", "RAY_REDIS_PASSWORD"),
    *(
        "VLLM_API_KEY",
        "SSH_KEY",
        "SENTRY_DSN",
        "NGC_CLI_API_KEY",
        "HF_SOMETHING",
        "RAY_UNHEARD_OF",
        "MY_VALUE",
    ),
]
SHAPES = [
    f"hf_{WORD}", f"sk-proj-{WORD}", f"ghp_{WORD}", f"github_pat_{WORD}", f"glpat-{WORD}", f"xoxb-1-{WORD}",
    f"AKIA{WORD.upper()}", f"eyJhbGciOi.{WORD}.{WORD}", f"nvapi-{WORD}", f"AIza{WORD}", f"ya29.{WORD}",
    f"hvs.{WORD}", f"dckr_pat_{WORD}", f"pypi-AgEI{WORD}", f"npm_{WORD}", f"r8_{WORD}", f"gsk_{WORD}",
    f"dapi{'0a' * 16}", f"https://hooks.slack.com/services/T0/B0/{WORD}",
    f"https://discord.com/api/webhooks/1/{WORD}", f"https://x.blob.core.windows.net/c?sv=1&sig={WORD}%3D",
    f"AccountName=a;AccountKey={WORD}==;x=1", f"Authorization: Basic {WORD}=",
    f"authorization: Bearer {WORD}",
    f"https://user:{WORD}@host/x.git", f"redis://:{WORD}@10.0.0.1:6379", f"postgres://me:{WORD}@db/x",
    f"password = {WORD}", f"secret = {WORD}", f'{{"pwd": "{WORD}"}}', f"curl -u me:{WORD} https://x",
    f"--redis-password={WORD}", f"--hf-token {WORD}", f"wandb login {WORD}", f"sshpass -p {WORD} ssh x",
    f"machine x login me password {WORD}", f"mysql -h db -p{WORD} x", f"X-Api-Key: {WORD}",
    f"Cookie: s={WORD}",
    f"-----BEGIN RSA PRIVATE KEY-----\nMII{WORD}\n{WORD}\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{WORD}\n", f"cifs //fs/x username=me,password={WORD}",
    f"docker login -u me -p {WORD} reg", f"client_secret: {WORD}", f"tskey-auth-{WORD}", f"sk_live_{WORD}",
]  # fmt: skip


def entrances(secret):
    """What a node may print, with one secret in each place it may stand."""
    escaped = json.dumps(secret)[1:-1]
    named = {name: WORD for name in VARIABLES} | {
        "NCCL_DEBUG": "INFO",
        "FREE_TEXT": secret,
        "NCCL_TOPO_FILE": secret,
    }
    files = {"/etc/docker/daemon.json": f'{{"x": "{secret}"}}', "/proc/cmdline": f"ro {secret} quiet\n"}
    return {
        "env": json.dumps({"variables": named, "files": {"/job.env": named}, "errors": {}, "left_out": 0}),
        "processes": json.dumps({"left_out": 0, "unread": 0, "processes": [
            {"pid": 1, "program": "raylet", "script": "x", "environment": named, "limits": secret}]}),
        "host": json.dumps({"files": files}),
        "iommu": json.dumps({"files": files, "lists": {"/sys/class/iommu": []}}),
        "kernel-log": json.dumps(
            {"source": "dmesg", "text": f"[ 1.0] NVRM: Xid (PCI:0000:18:00): 79, {secret}\n", "cut": False}),
        "container": json.dumps({"files": {"/run/.containerenv": f'engine="podman"\nimage="{escaped}"\n'}}),
        "slurm-node": f"NodeName=a Gres=gpu:8 State=IDLE Comment={secret} Reason={secret}",
        "ray-session": json.dumps({"session": "s", "folder": "/tmp/ray", "errors": {}, "state": secret,
            "logs": {"raylet.out": {
                "counts": {"node-death": 1}, "lines": {"node-death": [f"x {secret}"]}, "last": ""}}}),
        "ray-status": f"Node status\nRecent failures:\n x {secret}\n",
        "target-python": json.dumps({"executable": "/usr/bin/python3", "environ": named, "distributions": [
            {"name": "torch", "version": "2.9.0", "location": "/x", "url": secret, "requires": [secret]}]}),
        "collect-env": f"PyTorch version: 2.8.0\n{secret}\n",
        "nvidia-smi": f"Failed to initialize NVML: {secret}",
        "waivers": json.dumps({"files": {"/etc/nodedoctor/waivers": f"bad {secret}\n"}}),
        "nvml": '{"init": {"text": "' + escaped + '", "error": "X"},',
    }  # fmt: skip


def node(folder, secret):
    (folder / "probes").mkdir(parents=True)
    printed = entrances(secret)
    note = {"note": f"stderr said {secret}", "argv": ["x", secret], "outcome": "ok", "rc": 0}
    manifest = {"schema": recording.SCHEMA, "probes": [{"name": name, **note} for name in printed]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for name, said in printed.items():
        (folder / "probes" / f"{name}.txt").write_text(said)
    return folder


@pytest.mark.sampled(6)
@pytest.mark.parametrize("secret", SHAPES)
def test_no_planted_secret_is_in_any_output(secret, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    session = Session(Request(replay=node(tmp_path / "node", secret), options=Options()))
    diagnosis = session.diagnosis()
    report = asyncio.run(diagnosis.run())
    document = report_json.document(report)
    kept = tmp_path / "kept.zip"
    kept.write_bytes(session.recording(diagnosis, report))
    outputs = {
        "json": report_json.render(document),
        "text": text.render(document, width=200),
        "brief": brief.render(document, width=200),
        "html": html.render(document),
        "junit": junit.render(document),
        "ticket": ticket.render(document),
        "log": caplog.text,
        "recording": "".join(
            f"{seen.text}{seen.note}{seen.argv}" for seen in recording.load(kept).observations.values()
        ),
    }
    secrets = {WORD, WORD.upper(), "0a" * 16}
    assert [name for name, said in outputs.items() if any(one in said for one in secrets)] == []


HEX, MIXED = "0a1b2c3d" * 8, "Ab1Cd2Ef3" * 16
ISSUED = [
    f"SK{HEX[:32]}", f"AC{HEX[:32]}", f"key-{HEX[:32]}", f"{HEX[:32]}-us12", f"xkeysib-{HEX}-{MIXED[:16]}",
    f"EAAA{MIXED[:60]}", f"sq0atp-{MIXED[:22]}", f"EAAC{MIXED[:110]}", f"EZAK{MIXED[:54]}",
    f"figd_{MIXED[:40]}", f"shippo_live_{HEX[:40]}", f"A3-ABCDEF-{'ABCDE12345F'}-ABCDE-ABCDE-ABCDE",
    f"ops_eyJ{MIXED}", f"pat{MIXED[:14]}.{HEX}", f"pat.{MIXED[:22]}.{MIXED[:24]}.{MIXED[:20]}",
    f"LTAI{MIXED[:20]}", f"AKID{MIXED[:32]}", f"AQVN{MIXED[:36]}", f"GOCSPX-{MIXED[:28]}",
    f"AKCp{MIXED[:69]}", f"cmVmd{MIXED[:59]}", f"abc8Q~{MIXED[:32]}", f"v1.0-{HEX[:24]}-{HEX * 2}",
    f"HRKU-AA{MIXED[:58]}", "API-" + "ABCDE12345" * 2 + "ABCDEF", f"NRAK-{MIXED[:27]}",
    f"dp.pt.{MIXED[:43]}", f"dt0c01.{MIXED[:24]}.{MIXED[:64]}", f"{MIXED[:14]}.atlasv1.{MIXED[:60]}",
    f"sha256~{MIXED[:43]}", f"fo1_{MIXED[:43]}", f"fm2_{MIXED[:100]}", f"glc_{MIXED[:40]}",
    f"ico-{MIXED[:32]}", f"ntn_{MIXED[:46]}", f"pnu_{MIXED[:36]}", f"pul-{HEX[:40]}",
    f"pscale_tkn_{MIXED[:40]}", f"rdme_{MIXED[:70]}", f"rubygems_{HEX[:48]}", f"sgp_{HEX[:40]}",
    f"sm_aat_{MIXED[:16]}", f"tfp_{MIXED[:59]}", f"tk-us-{MIXED[:48]}", f"CLOJARS_{MIXED[:60]}",
    f"duffel_live_{MIXED[:43]}", f"{MIXED[:6]}_{MIXED[:29]}_mmk", f"sbp_{HEX[:40]}",
    f"FLWSECK_TEST-{HEX[:32]}-X", f"pcsk_{MIXED[:50]}", f"lsv2_pt_{HEX[:32]}_{HEX[:10]}",
    f"csk-{MIXED[:48]}", f"tgp_v1_{MIXED[:43]}", f"wandb_v1_{MIXED[:40]}", f"nfp_{MIXED[:36]}",
    f"ATBB{MIXED[:28]}",
]  # fmt: skip


@in_turn("issued", ISSUED, ids=lambda key: key[:12])
def test_keys_of_well_known_makers_go_wherever_they_stand(issued: str):
    for said in (issued, f"step 3: calls with {issued} ended", f'{{"x": "{issued}"}}', f"x\n({issued})\ny"):
        clean = without_secrets(Observation("kernel-log", text=said)).text
        assert "***" in clean and not any(issued[at : at + 12] in clean for at in range(6, len(issued) - 12))


@pytest.mark.parametrize(
    "plain", [HEX, HEX[:32], f"acme{HEX[:32]}", "en-us12", "key-value", "API-SERVER", "sha256:" + HEX]
)
def test_what_only_looks_alike_stays(plain: str):
    said = f"digest {plain} of an image"
    assert without_secrets(Observation("kernel-log", text=said)).text == said


def test_there_are_many():
    assert len(SHAPES) + len(VARIABLES) >= 54


@pytest.mark.slow
@in_turn("recorded", RECORDED, ids=lambda path: path.name)
def test_recorded_nodes_are_let_in_as_they_are(recorded):
    for seen in recording.load(recorded).observations.values():
        assert without_secrets(seen) == seen


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_IB_HCA", "=mlx5_0,mlx5_1:1"), ("CUDA_VISIBLE_DEVICES", "GPU-1f2e,GPU-77aa"),
        ("PATH", "/usr/bin:/bin"),
        ("NCCL_SOCKET_IFNAME", "^docker0,lo"), ("NCCL_TOPO_FILE", "/etc/topo.xml"),
        ("SLURM_JOB_NODELIST", "gpu-[1-8]"),
        ("MASTER_ADDR", "gpu-1.cluster"), ("PWD", "/home/me/job"), ("NCCL_IB_PKEY", "3"),
        ("HF_HUB_OFFLINE", "1"),
        ("HF_HOME", "/data/hf"), ("RAY_memory_monitor_refresh_ms", "0"), ("VLLM_LOGGING_LEVEL", "INFO"),
        ("SOMETHING_ELSE", "12.8"), ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        ("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX"), ("NCCL_DEUBG", "INFO"), ("UNKNOWN_RANGE", "0-3,8-11"),
    ],
)  # fmt: skip
def test_what_checks_need_stays(name, value):
    assert variable(name, value) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_SOMETHING", "some words"),
        ("FOO", "hunter2"),
        ("RAY_PASS", "1234"),
        ("A_PWD", "/x"),
        ("B", WORD),
        ("C", f"/x/{WORD}9"),
    ],
)
def test_what_is_not_known_to_be_harmless_goes(name, value):
    assert variable(name, value) == HIDDEN


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_variable_is_shown_or_hidden(name, value):
    assert variable(name, value) in (value, HIDDEN, scrubbed(value))


@given(st.text(max_size=300))
def test_what_has_passed_passes_again(said):
    once = without_secrets(Observation("kernel-log", text=said))
    assert without_secrets(once) == once


@pytest.mark.parametrize("piece", ["a", "/a", "key=", "/:", "1,", "mlx5_0,", "-u a:", "token "])
def test_long_values_end(piece):
    is_harmless(piece * 20000)
    without_secrets(Observation("x", text=piece * 20000))


UNITS = (
    "\n", " ", "a", "0", "-", "_", ".", "/", ":", "=", "@", '"', "\\", "{", "A_", "a=", "a ", "--a ",
    "password", "password ", "password=", "http://", "x://a:", "bearer ", "basic ", "curl -u ", "mysql ",
    "login ", "wandb login ", "-----BEGIN PRIVATE KEY", "sig=", "hf_", "eyJ", "export ", "export A",
    "KeyError: ", "sshpass -p", "token: ",
)  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unit", UNITS)
def test_no_text_is_searched_for_long(unit: str):
    """Everything a node says passes here, in our own process: what it costs grows with its length alone."""
    text = (unit * 200_000)[:200_000]
    for probe in ("env", "kernel-log"):
        for whole in (text, f"password {text}", f"{text}\npassword", json.dumps({"environ": {"X": text}})):
            began = time.process_time()
            without_secrets(Observation(probe, text=whole))
            assert time.process_time() - began < 3, (probe, whole[:40])
