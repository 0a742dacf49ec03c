"""Redacted recordings name nobody, keep the shapes of what they replace, and are judged like originals."""

import asyncio
import ipaddress
import json
import re
import subprocess
import sys
import time
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pytest
from examples import examples
from forked import nodedoctor_forked
from hypothesis import given, settings
from hypothesis import strategies as st
from in_turn import in_turn

from nodedoctor.demo import DEMOS, folder
from nodedoctor.engine import recording as snapshot
from nodedoctor.engine.session import Request, Session
from nodedoctor.model import Observation
from nodedoctor.redact import Redaction
from nodedoctor.redact.names import ordinary, stem
from nodedoctor.report import json as report_json
from nodedoctor.report.saved import read

NODES = Path(__file__).parents[1] / "nodes"
RECORDED = {path.parent.name: path.parent for path in sorted(NODES.glob("*/manifest.json"))}
RECORDED |= {name: folder(name) for name in DEMOS}
WHEN = datetime(2026, 11, 14, 9, 11, tzinfo=timezone.utc)


def documents(**probes):
    """Observations of documents, or of texts as they are."""
    return [
        Observation(name.replace("_", "-"), text=text if isinstance(text, str) else json.dumps(text), rc=0)
        for name, text in probes.items()
    ]


def redaction(host="gpu-a3-017", **probes):
    return Redaction.of(documents(**probes), {"hostname": host, "boot_id": None})


def judged(path):
    return asyncio.run(Session(Request(replay=path)).diagnosis().run())


def said(report, words=lambda text: text):
    """What a report comes to, without its prose."""
    return {
        result.check: [(f.status, f.reason, words(f.subject), f.note) for f in result.findings]
        for result in report.results
    }


def zipped(path):
    """All that is in a recording, as bytes."""
    with zipfile.ZipFile(path) as archive:
        return b"\n".join(name.encode() + b"\n" + archive.read(name) for name in archive.namelist())


def packed(seen, node, options=None):
    """A recording with stand-ins, as `session.recording` makes it."""
    made = Redaction.of(seen, node, options)
    new = [made.observation(one) for one in seen]
    return made, snapshot.pack(new, made.node(node), WHEN, made.document(dict(options or {})))


# A node that names its site wherever a node can: everything in ORIGINALS must be gone, all of KEPT must stay.

MOUNTS = (
    "22 28 0:21 / /sys rw - sysfs sysfs rw\n28 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw\n"
    "50 28 0:50 / /mnt/filer rw - nfs4 filer-7.corp.acme-labs.test:/export/home rw,addr=10.20.9.9\n"
    "51 28 0:51 / /home/mallory rw - nfs storage03:/vol rw,addr=10.20.9.10,clientaddr=10.20.3.17\n"
    "52 28 0:52 / /scratch rw - lustre 172.20.7.1@o2ib:172.20.7.2@o2ib:/scratch rw\n"
)
SITE = {
    "machine": {
        "files": {
            "/proc/sys/kernel/hostname": "hgx-r12-041\n",
            "/proc/sys/kernel/random/boot_id": "3f0c9a52-7be1-4c60-9d8e-0a1b2c3d4e5f\n",
            "/etc/os-release": 'ID=ubuntu\nHOME_URL="https://www.ubuntu.com/"\n',
            "/etc/machine-id": "8d2f6c0e1b7a49538e4c7d1f0a9b6e35\n",
            "/proc/uptime": "864000.10 90000000.00\n",
        }
    },
    "net": {
        "hostname": "hgx-r12-041",
        "hosts": ["10.20.3.17", "2001:67c:1234:5::17"],
        "nameservers": ["10.20.0.2", "8.8.4.4"],
        "default_routes": ["ens1f0"],
        "interfaces": {
            "lo": {"addresses": ["127.0.0.1", "::1"], "mtu": "65536", "flags": "0x9"},
            "ens1f0": {"addresses": ["10.20.3.17", "fe80::a288:c2ff:fe3a:51d0"], "flags": "0x1003"},
        },
    },
    "env": {
        "variables": {
            "HOSTNAME": "hgx-r12-041.corp.acme-labs.test",
            "USER": "mallory",
            "LOGNAME": "mallory",
            "HOME": "/home/mallory",
            "MASTER_ADDR": "hgx-r12-040",
            "RAY_ADDRESS": "ray-head-3:6379",
            "SLURM_JOB_NODELIST": "hgx-r12-[040-043],dgx[7-9]",
            "SLURM_JOB_USER": "mallory",
            "SLURM_CLUSTER_NAME": "skyfall",
            "SLURM_JOB_PARTITION": "gpu",
            "SLURM_JOB_ACCOUNT": "proj-nemo",
            "SSH_CONNECTION": "203.0.113.77 51234 10.20.3.17 22",
            "NCCL_SOCKET_IFNAME": "ens1f0",
            "NCCL_IB_HCA": "mlx5_0,mlx5_1",
            "HTTPS_PROXY": "http://proxy.corp.acme-labs.test:3128",
            "CUDA_VISIBLE_DEVICES": "GPU-7c21fd0e,MIG-5f2a1b3c-4d5e-4f60-8a7b-9c0d1e2f3a4b",
            "WANDB_DIR": "/lustre/home/trent/runs",
        }
    },
    "processes": {
        "processes": [
            {"pid": 1, "uid": 0, "user": "root", "name": "systemd"},
            {"pid": 911, "uid": 110, "user": "nvidia-persistenced"},
            {"pid": 4001, "uid": 20417, "user": "mallory", "cwd": "/home/mallory/run", "program": "python3"},
            {"pid": 4002, "uid": 20418, "user": "data", "cwd": "/home/data/run", "program": "data_loader"},
        ]
    },
    "nvml": {
        "gpus": [
            {
                "index": 0,
                "values": {
                    "uuid": "GPU-7c21fd0e-51aa-4d0c-8e17-2b90c3d4e5f6",
                    "serial": "1654923004417",
                    "vbios_version": "96.00.89.00.01",
                    "pci": {"busId": "00000000:5d:00.0"},
                    "fabric": {"clusterUuid": [9, 27, 201, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]},
                },
            }
        ]
    },
    "rdma": {
        "files": {
            "/sys/class/infiniband/mlx5_0/node_guid": "b83f:d203:00ca:7e10\n",
            "/sys/class/infiniband/mlx5_0/node_desc": "hgx-r12-041 mlx5_0\n",
            "/sys/class/infiniband/mlx5_0/ports/1/gids/0": "fe80:0000:0000:0000:b83f:d203:00ca:7e10\n",
            "/sys/class/infiniband/mlx5_1/ports/1/gids/3": "0000:0000:0000:0000:0000:ffff:0a14:0311\n",
            "/sys/class/infiniband/mlx5_0/ports/1/cap_mask": "0x2651e848\n",
        }
    },
    "ibstat": "CA 'mlx5_0'\n\tNode GUID: 0xb83fd20300ca7e10\n\tSystem image GUID: 0xb83fd20300ca7e10\n",
    "slurm-node": "NodeName=hgx-r12-041 NodeAddr=10.20.3.17 NodeHostName=hgx-r12-041 State=MIXED "
    "Partitions=gpu,skyfall-h100 "
    "Version=23.11.4 Gres=gpu:h100:8 Reason=bad riser [oscarina@2026-11-01T10:00:00]\n",
    "kernel-log": {
        "source": "kern.log",
        "text": "2026-11-14T06:00:01,000000+00:00 hgx-r12-041 kernel: Linux version 6.8.0-64-generic\n"
        "2026-11-14T06:00:09 NVRM: Xid (PCI:0000:5d:00): 79, pid=4001, name=python3\n"
        "2026-11-14T06:01:00 mlx5_core 0000:5e:00.0: firmware version: 28.43.2026\n"
        "2026-11-14T06:02:00 nfs: server filer-7 not responding; link 94:6d:ae:5c:11:e2\n"
        "2026-11-14T06:02:01 ib0: 80:00:00:48:fe:80:00:00:00:00:00:00:b8:3f:d2:03:00:ca:7e:10\n"
        "2026-11-14T06:03:00 BUG at 0xffffffffc0a8b000, from 10.20.3.18:29500, user mallory\n",
    },
    "disk": {"files": {"/proc/self/mountinfo": MOUNTS}},
    "services": "Id=user@20417.service\nDescription=for eve.adams+ops@acme-labs.test\n",
    "target-python": {
        "prefix": "/home/mallory/venv",
        "distributions": [
            {"name": "nvidia-cudnn-cu12", "version": "9.10.2.21"},
            {"name": "nvidia-curand-cu12", "version": "10.3.9.90"},
        ],
    },
    "pip-list": "nvidia-cublas-cu12       12.8.4.1\nnvidia-nccl-cu12 2.27.3.1\n",
    "peers": {"peers": {"hgx-r12-044": {"addresses": ["10.20.3.20"]}, "login-2": {"addresses": []}}},
    "container": {
        "files": {"/proc/self/cgroup": "0::/docker/" + "4be19c07" * 8 + "\n"},
        "dmi": "i-0a1b2c3d4e5f60718 arn:aws:iam::123456780012:role/train",
    },
}
_ORIGINALS = """
skyfall proj-nemo Partitions=gpu
hgx-r12 hgx_r12 acme-labs corp. mallory trent oscarina eve.adams filer-7 storage03 ray-head login-2 dgx
10.20.3 10.20.9 10.20.0 172.20.7 203.0.113.77 8.8.4.4 2001:67c a288:c2ff:fe3a 3f0c9a52 8d2f6c0e 7c21fd0e
5f2a1b3c 51aa-4d0c 1654923004417 b83f:d203 b83fd203 b8:3f:d2 94:6d:ae 0a14:0311 4be19c07 0a1b2c3d4e5f60718
123456780012 /home/data"""
ORIGINALS = _ORIGINALS.split()
_KEPT = """
127.0.0.1 ::1 96.00.89.00.01 00000000:5d:00.0 0000:5d:00 0000:5e:00.0 28.43.2026 6.8.0-64-generic
9.10.2.21 10.3.9.90 12.8.4.1 2.27.3.1 mlx5_0 mlx5_1 ens1f0 nvidia-persistenced root data_loader
0xffffffffc0a8b000 0x2651e848 2026-11-14T06:00:09 https://www.ubuntu.com/ 23.11.4 gpu:h100:8
user@20417.service 20417 0x1003 fe80:0000:0000:0000: fe80:: 0000:0000:0000:0000:0000:ffff:
80:00:00:48:fe:80 @o2ib GPU- MIG- /export/home"""
KEPT = _KEPT.split()


def site(tmp_path):
    """The recording of SITE with stand-ins, unpacked; and what made it."""
    seen = documents(**SITE)
    node = {"hostname": "hgx-r12-041", "boot_id": "3f0c9a52-7be1-4c60-9d8e-0a1b2c3d4e5f"}
    made, data = packed(seen, node, {"expect": {"host": "hgx-r12-041.corp.acme-labs.test"}})
    path = tmp_path / "site.zip"
    path.write_bytes(data)
    return made, zipped(path).decode(), snapshot.load(path)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("original", ORIGINALS)
def test_nothing_that_names_the_site_is_left(original, tmp_path):
    _, text, _ = site(tmp_path)
    around = text.lower().find(original.lower())
    assert around < 0, text[max(0, around - 80) : around + 80]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("word", KEPT)
def test_what_names_nobody_stays(word, tmp_path):
    assert word in site(tmp_path)[1]


# Free text

LOG = r"""
nfs: server fs07.bigcorp.com not responding, timed out; nfs: server frodo not responding
CIFS: VFS: \\filer7.bigcorp.com\teamsecret BAD_NETWORK_NAME, \\smb3\vault$
LustreError: 11-0: operation ost_connect to node mds01@o2ib failed, 10.11.2.3@tcp, 3.91.4.5@tcp1
weka-be-3.bigcorp.com: connection lost, logs at /mnt/fs07.bigcorp.com-data/x and (wiki.bigcorp.de).
connection3:0: iqn.2004-10.com.bigcorp:storage.vol7 gone
nvme nvme3: nqn.2014-08.org.nvmexpress:uuid:3f0c9a52-7be1-4c60-9d8e-0a1b2c3d4e5f
NVRM: Xid (PCI:0000:5d:00): 13, pid=4711, name=bobs_secret_model, Graphics SM Warp Exception
NVRM: Xid (PCI:0000:5d:00): 13, pid=4712, name=pt_main_thread, Graphics SM Warp Exception
login: failed for user bobsmith on tty1, sudo: trudy : TTY=pts/0 ; uid=1007(peggy)
mount.nfs: mounting store9:/export failed, slurmd: launch task StepId=8812345.0 request from UID:10421
sshd[7]: session opened for carol from 198.51.100.7
oom-kill: task_memcg=/slurm/uid_10421/job_8812345/step_0,task=python3,pid=9,uid=10421
kubelet: pod="team-llm/bobs-trainer-0" in kubepods-besteffort-pod3f0c9a52_7be1_4c60_9d8e_0a1b2c3d4e5f.slice
/var/log/pods/team-llm_eves-trainer-1_3f0c9a52-7be1-4c60-9d8e-0a1b2c3d4e5f/main
mlx5_core 0000:5e:00.0: serial MT2233X00123, board S/N: 1654923004417
botocore: AKIAIOSFODNN7EXAMPLE is denied, s3://bigcorp-models/x, gs://bobs-bucket, tcp://head7:6379
mail bob.smith@bigcorp.com about fs07 (FS07.BIGCORP.COM) and mds01"""
GONE = """
store9 bigcorp fs07 frodo filer7 teamsecret smb3 vault mds01 10.11.2 3.91.4 weka-be wiki.bigcorp 3f0c9a52
storage.vol7 secret_model bobsmith trudy peggy carol 198.51 10421 8812345 team-llm bobs-trainer eves-trainer
MT2233X 1654923004417 IOSFODNN7 bobs-bucket head7 smith"""
STILL = """
not responding|@o2ib|@tcp1|iqn.2004-10.example.|nqn.2014-08.org.nvmexpress:uuid:|name=pt_main_thread|pid=4711
Xid (PCI:0000:5d:00): 13|/step_0,task=python3|-besteffort-pod0000|0000:5e:00.0|s3://|AKIA|/slurm/uid_"""


@pytest.mark.parametrize("form", ["text", "json", "nested"])
def test_names_in_free_text_are_replaced(form):
    forms = {"text": LOG, "json": json.dumps({"text": LOG}), "nested": json.dumps(json.dumps({"text": LOG}))}
    seen = Observation("kernel-log", text=forms[form])
    made = Redaction.of([seen], {})
    left = made.observation(seen).text
    gone = GONE.split() if form != "nested" else set(GONE.split()) - {"teamsecret", "smb3", "vault"}
    assert [name for name in gone if name.lower() in left.lower()] == []
    if form == "text":
        assert [word for word in re.split(r"[|\n]", STILL.strip()) if word not in left] == []
    assert left.count("\n") == seen.text.count("\n")
    assert made.text("fs07").startswith("node-") and made.text("fs07") in made.text("fs07.bigcorp.com")


def test_a_log_with_names_becomes_findings_without_them(tmp_path):
    recorded = snapshot.load(RECORDED["log-oom-hang-and-adapter"])
    xid = "[   99.000000] NVRM: Xid (PCI:0000:5d:00): 79, pid=4711, name=bobs_secret_model, Lost\n"
    log = Observation("kernel-log", text=recorded.observations["kernel-log"].text + xid, rc=0)
    seen = [*(one for one in recorded.observations.values() if one.probe != "kernel-log"), log]
    _, data = packed(seen, recorded.node, recorded.options)
    path = tmp_path / "one.zip"
    path.write_bytes(data)
    findings = next(r for r in judged(path).results if r.check == "kernel.xid").findings
    told = "".join(f.summary + "".join(one.text for one in f.evidence) for f in findings)
    assert "79" in told and "name-1" in told
    assert "secret" not in told and b"secret" not in zipped(path)


ENDINGS = (
    "com net org edu de io ai co.uk corp lan hpc.example com.au svc.cluster.local us-east-1.internal gov"
)
domains = st.builds(
    "{}.{}.{}".format,
    st.from_regex(r"[a-z]{2,8}(-[a-z0-9]{1,4})?[0-9]{0,3}", fullmatch=True),
    st.from_regex(r"q[a-z]{3,9}[0-9]?", fullmatch=True),
    st.sampled_from(ENDINGS.split()),
)
around = st.sampled_from(
    ["{}", "a {}, b", "({})", "{}:/vol", "x={}.", "[{}]", "/mnt/{}/y", '"{}"', "@{}", "\t{}\n", "\\n{}"]
)


@given(domains, around, st.booleans())
def test_domain_names_vanish_from_any_line(domain, form, loud):
    name = domain.upper() if loud else domain
    line = form.format(name)
    seen = Observation("kernel-log", text=line)
    left = Redaction.of([seen], {}).observation(seen).text
    assert domain.split(".")[1] not in left.lower()
    assert left.replace("\\n", "").startswith(form.replace("\\n", "").partition("{}")[0])


modules = st.sampled_from(sorted(name for name in sys.stdlib_module_names if not name.startswith("_")))
parts = st.sampled_from(
    [
        "io",
        "internal",
        "local",
        "test",
        "net",
        "utils",
        "data",
        "distributed",
        "cuda",
        "core",
        "nn",
        "ops",
        "info",
        "home",
        "lab",
    ]
)
versions = st.lists(st.integers(0, 999), min_size=2, max_size=3).map(lambda ns: ".".join(map(str, ns)))
files = st.builds(
    "{}.{}".format,
    st.from_regex("(lib)?[a-z]{2,9}[_-]?[a-z]{0,5}", fullmatch=True),
    st.sampled_from(
        [
            "so",
            "so.2",
            "so.12.8.1",
            "py",
            "ko",
            "conf",
            "log",
            "json",
            "yaml",
            "toml",
            "service",
            "slice",
            "socket",
            "txt",
            "cc",
            "rs",
            "md",
            "sh",
            "pt",
            "in",
        ]
    ),
)
PACKAGES = [
    "torch",
    "numpy",
    "scipy",
    "pandas",
    "google",
    "ray",
    "vllm",
    "nodedoctor",
    "transformers",
    "triton",
]
dotted = st.builds("{}.{}".format, st.one_of(modules, st.sampled_from(PACKAGES)), parts)


@given(
    st.lists(st.one_of(versions, files, dotted), min_size=1, max_size=8),
    st.sampled_from([" ", ", ", ": ", "'"]),
)
def test_versions_files_and_modules_stay_in_any_line(words, between):
    line = between.join(["", *words, ""])
    seen = Observation("kernel-log", text=line)
    assert Redaction.of([seen], {}).observation(seen).text == line


RESEMBLING = """
google.protobuf.internal|torch.utils.data|self.net|scipy.io|rc.local|System.IO|eth0.100|com.docker.network.bridge
org.freedesktop.login1|user space and user namespace
the server is down|waiting for data from disk|nvidia.com/gpu
k8s.io|docs.nvidia.com|serial8250: ttyS0|config.h.in|serial number N/A|C:\\\\temp\\\\new|\\\\nTraceback\\\\n
/slurm/uid_0/x|_SB.PCI0.BR|Makefile.am|f(x.info)(y)|logger.info(1)|job_name|http://localhost:80|SN: N/A
name=pt_data_worker|server 2.0|users from disk"""


@in_turn("text", re.split(r"[|\n]", RESEMBLING.strip()))
def test_what_only_resembles_a_name_stays(text):
    seen = Observation("kernel-log", text=f"a {text} b\n")
    assert Redaction.of([seen], {}).observation(seen).text == seen.text


def test_jobs_keep_their_number_in_all_places():
    groups = "0::/system.slice/slurmstepd.scope/job_8812345/step_0"
    environment = {"SLURM_JOB_ID": "8812345"}
    assert redaction().text("job_8812345 jjob_8812345") == "job_1 jjob_8812345"
    made = redaction(processes={"processes": [{"pid": 1, "cgroup": groups, "environment": environment}]})
    assert made.text(groups).endswith("/job_1/step_0")
    assert made.document({"job": "8812345", "environment": environment}) == {
        "job": "1",
        "environment": {"SLURM_JOB_ID": "1"},
    }
    assert (
        made.text("belongs to Slurm job 8812345, SLURM_JOB_ID=8812345")
        == "belongs to Slurm job 1, SLURM_JOB_ID=1"
    )


# Recorded nodes, all of them


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_a_redacted_node_is_judged_like_the_node(name, tmp_path):
    recorded = snapshot.load(RECORDED[name])
    seen = list(recorded.observations.values())
    made, data = packed(seen, recorded.node, recorded.options)
    path = tmp_path / "redacted.zip"
    path.write_bytes(data)
    before, after = judged(RECORDED[name]), judged(path)
    assert said(after) == said(before, made.text)
    left = zipped(path)
    for original in _names_in(recorded):
        assert original.encode() not in left, original
    # Once more: stand-ins are names like any other.
    again, data = packed(list(snapshot.load(path).observations.values()), snapshot.load(path).node)
    path.write_bytes(data)
    assert said(judged(path)) == said(after, again.text)


def _names_in(recorded):
    """What names a recorded node, found here in another way than there."""
    text = "\n".join(seen.text for seen in recorded.observations.values())
    found = set(re.findall(r'"serial": "([0-9]{8,})"', text))
    found |= set(re.findall("(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{27}", text))
    found |= set(re.findall(r'"/home/(?!ubuntu|ray)[a-z]+', text))
    found |= set(re.findall("(?:[0-9a-f]{4}:){3}[0-9a-f]{3}[1-9]", text)) - {"0000:0000:0000:0001"}
    found |= set(re.findall(r"\b10\.[0-9]+\.[0-9]+\.[0-9]+\b", text))
    host = recorded.node.get("hostname")
    return found | ({host} if host and any(c.isdigit() for c in host) else set())


def test_recorded_nodes_do_hold_names():
    names = set().union(*(_names_in(snapshot.load(path)) for path in RECORDED.values()))
    assert {"gpu-a3-016", "1655022005473", "10.20.0.17"} <= names
    assert len(names) > 30


# Paths

PATHS = """
mountinfo 324 287 0:98 / /mnt/flumoxdata rw,relatime - tmpfs snorkelfs:/export/drabvolume rw
{"variables": {"SLURM_JOB_RESERVATION": "resv_whippersnap", "SLURM_JOB_GROUP": "grp_wigglesome",
"CONDA_DEFAULT_ENV": "collywobbles", "NCCL_DEBUG_FILE": "/mnt/flumoxdata/nccl_folderol.%h.%p",
"LD_LIBRARY_PATH": "/scratch/gribble-7b/lib/libx.so:/usr/local/cuda-12.4/lib64", "TMPDIR": "/tmp/bamboozle"}}
{"script": "train_kerfuffle.py", "program": "ray::Shenanigan", "exe": "/home/ann/murmuration/bin/python3.11"}
File "/home/ann/murmuration/train_kerfuffle.py", line 17; File "/data/hootenanny/taradiddle.sbatch"
File "/home/ann/miniconda3/envs/wobble/lib/python3.11/site-packages/acmelib/zoo.py", line 1
"""
NAMED = """flumox snorkel drabvolume whippersnap wigglesome collywobbles folderol gribble bamboozle kerfuffle
murmuration Shenanigan hootenanny taradiddle wobble"""
UNNAMED = """/mnt/ /export/ %h.%p /usr/local/cuda-12.4/lib64 /lib/libx.so /tmp/ .py /bin/python3.11 ray::
/envs/ /lib/python3.11/site-packages/acmelib/zoo.py .sbatch /data/"""


def test_names_in_paths_are_replaced_and_the_systems_own_stay():
    seen = Observation("env", text=PATHS)
    left = Redaction.of([seen], {}).observation(seen).text
    assert [name for name in NAMED.split() if name in left] == []
    assert [word for word in UNNAMED.split() if word not in left] == []


# The command line


def run(*words):
    return nodedoctor_forked(*map(str, words))


@pytest.mark.slow
def test_report_and_recording_of_a_run_speak_of_the_same_stand_ins(tmp_path):
    zip_file, page = tmp_path / "new.zip", tmp_path / "page.html"
    words = ("demo", "nvlinks-down", "--redact", "--record", zip_file, "--html", page)
    done = run(*words, "--json")
    assert (done.returncode, done.stderr) == (2, "")
    document = json.loads(done.stdout)
    assert document["node"]["hostname"] == "node-1"
    replayed = json.loads(run("--replay", zip_file, "--json").stdout)

    def findings(document):
        keys = ("id", "status", "summary", "evidence")
        return [[f[key] for key in keys] for r in document["results"] for f in r["findings"]]

    assert findings(document) == findings(replayed)
    assert document["facts"]["gpus"] == replayed["facts"]["gpus"]
    text = run("demo", "nvlinks-down", "--redact", "--text").stdout
    assert text.splitlines()[1].startswith("node-1 ")
    everything = (done.stdout + text + page.read_text()).encode() + zipped(zip_file)
    for original in ("gpu-a3-017", "1655022005473", "GPU-00000000-0000-0000-0000-000000000003", "10.20.0."):
        assert original.encode() not in everything
    assert "gpu-a3-017" in run("demo", "nvlinks-down", "--text").stdout


@pytest.mark.slow
def test_an_older_recording_can_be_redacted_later(tmp_path):
    old, new = tmp_path / "old.zip", tmp_path / "new.zip"
    run("demo", "raylet-1024-files", "--record", old, "--text")
    done = run("--replay", old, "--redact", "--record", new, "--text", "-q")
    assert (done.returncode, done.stderr) == (2, "")
    assert b"lambda-gpu-08" in zipped(old)
    assert b"lambda-gpu-08" not in zipped(new)


@pytest.mark.slow
def test_a_person_is_told_to_read_a_recording_before_sending_it(tmp_path):
    file = tmp_path / "it.zip"
    told = run("demo", "healthy", "--redact", "--record", file, "--text").stderr
    assert re.fullmatch(r"nodedoctor: read \S+it.zip before you send it: .*\n", told)
    assert run("demo", "healthy", "--record", file, "--text").stderr == ""
    assert run("demo", "healthy", "--redact", "--text").stderr == ""


@pytest.mark.slow
def test_this_machine_is_not_named(tmp_path):
    file = tmp_path / "here.zip"
    done = run("host", "net", "driver", "--redact", "--record", file, "--json")
    here = json.loads(run("net", "--json").stdout)["facts"]["net"]
    text = zipped(file).decode() + done.stdout
    for interface in here["interfaces"]:
        for address in interface["addresses"]:
            alone = re.compile(rf"(?<![0-9a-f:.]){re.escape(address)}(?![0-9a-f:.])")
            if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
                assert not alone.search(text), address
    assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() not in text


def test_nobody_pays_for_it_who_did_not_ask():
    code = "import sys; from nodedoctor.cli.main import main; main(['demo', 'healthy', '-q', '--text']); "
    code += "sys.exit('nodedoctor.redact' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


# Words


def test_a_name_is_replaced_wherever_it_stands_as_a_word():
    made = redaction(env={"variables": {"HOSTNAME": "gpu-a3-017", "USER": "mallory"}})
    assert made.text("gpu-a3-017") == "node-1"
    for text, wanted in {
        "root@gpu-a3-017:/tmp": "root@node-1:/tmp",
        "GPU-A3-017.site.example": "node-1.domain-1.example",
        "/logs/gpu-a3-017_rank0.log": "/logs/node-1_rank0.log",
        '"a\\ngpu-a3-017\\tb"': '"a\\nnode-1\\tb"',
        "\x1b[36mgpu-a3-017\x1b[0m": "\x1b[36mnode-1\x1b[0m",
        "/home/mallory. Or /home/mallory/x": "/home/user-1. Or /home/user-1/x",
        "a.b@redhat.com": "user-2@domain-2.example",
        "ray_mallory, mallory2": "ray_user-1, mallory2",
        "xgpu-a3-017 gpu-a3-0171x": "xgpu-a3-017 gpu-a3-0171x",
    }.items():
        assert made.text(text) == wanted


def test_hosts_of_the_same_family_are_replaced_too():
    made = redaction()
    first, second = made.text("gpu-a3-018 then gpu-a3-019.").split(" then ")
    assert {first, second} == {"node-2", "node-3."}
    assert made.text("gpu-a3-018") == first


@pytest.mark.parametrize(
    "word", ["node", "gpu", "data", "login", "nvidia", "train", "root", "node0", "gpu7", "vm"]
)
def test_ordinary_words_are_replaced_only_where_a_name_must_stand(word):
    made = redaction(word, env={"variables": {"USER": word, "HOSTNAME": word}})
    prose = (
        f"{word} {word}_x /sys/{word}/ {word}: {word}=1 {word}:3 nvlink.links@{word}:3 /dev/{word}0 [{word}]"
    )
    assert ordinary(word)
    assert made.text(prose) == prose
    assert made.node({"hostname": word})["hostname"] == "node-1"
    assert made.text(f'"hostname": "{word}"') == '"hostname": "node-1"'
    if word not in ("root", "nvidia"):  # accounts that stay
        assert made.text(f"/home/{word}/x") == "/home/user-1/x"
        assert made.text(f"USER={word} {word}@x") == "USER=user-1 user-1@x"


@pytest.mark.parametrize(
    "word", ["gpu-a3-017", "node-1", "node001", "alice-ws", "mallory", "dgx-h100-3", "r12n07", "dgx7"]
)
def test_names_that_no_parser_looks_for(word):
    assert not ordinary(word)


def test_families_are_only_those_whose_name_nothing_else_has():
    assert stem("gpu-a3-017") == "gpu-a3-"
    assert stem("lambda-gpu-08") == "lambda-gpu-"
    for host in ("node-1", "gpu7", "node001", "h100-2", "frodo"):
        assert stem(host) == ""


def test_sets_of_nodes_become_sets_of_nodes():
    made = redaction("gpu-001", env={"variables": {"SLURM_NODELIST": "gpu-[001-004],big1"}})
    assert made.text("SLURM_NODELIST=gpu-[001-004]") == "SLURM_NODELIST=node-[1-4]"
    assert made.text("gpu-003 in gpu-[003-004]") == "node-3 in node-[3-4]"
    assert "gpu" not in made.text("gpu-[5-2]")
    assert "gpu-" not in made.text("gpu-[900-902]")


def test_accounts_everybody_has_stay():
    made = redaction(
        processes={"processes": [{"uid": 997, "user": "sssd-agent"}, {"uid": 1000, "user": "ubuntu"}]},
        env={"variables": {"HOME": "/home/ubuntu", "USER": "ubuntu"}},
    )
    text = "root nobody ubuntu sssd-agent /home/ubuntu/x /home /home/ www-data"
    assert made.text(text) == text


def test_the_id_of_a_waived_finding_keeps_its_check():
    waivers = "net.peers@far-7.site.example 2026-12-24 moved\nnvlink.links@gpu:3 2026-12-24 ordered\n"
    made = redaction(
        peers={"peers": {"far-7.site.example": {}}}, waivers={"files": {"/etc/nodedoctor/waivers": waivers}}
    )
    text = made.text(waivers)
    assert "site" not in text and "far" not in text
    subject = made.text("far-7.site.example")
    assert text == f"net.peers@{subject} 2026-12-24 moved\nnvlink.links@gpu:3 2026-12-24 ordered\n"


def test_serials_keep_length_and_alphabet():
    serials = ["1655022005473", "MT2231X01234", "ab-99-zZ7", "1655022005474"]
    made = redaction(nvml={"gpus": [{"serial": serial} for serial in serials]})
    new = [made.text(serial) for serial in serials]
    assert len(set(new)) == len(new) and not set(new) & set(serials)
    for before, after in zip(serials, new, strict=True):
        shape = [(c.isdigit(), c.islower(), c.isupper()) for c in before]
        assert shape == [(c.isdigit(), c.islower(), c.isupper()) for c in after]
    assert made.text("serial N/A, 165502200547399") == "serial N/A, 165502200547399"


def test_a_document_cut_off_in_the_middle_is_redacted_like_a_whole_one():
    text = '{"hostname": "hgx-r12-041", "user": "mallory", "log": "a\\nhgx-r12-041\\u001b[1mmallory /home/mal'
    made = Redaction.of([Observation("net", text=text, truncated=True)], {})
    left = made.observation(Observation("net", text=text, truncated=True)).text
    assert "hgx" not in left and "mallory" not in left
    assert left.endswith("a\\nnode-1\\u001b[1muser-1 /home/user-2")


def test_ids_that_are_no_text_are_replaced():
    space = bytearray(4096)
    space[0x100:0x104] = (0x00010001 | 0x148 << 20).to_bytes(4, "little")
    space[0x148:0x14C] = (0x00010003).to_bytes(4, "little")
    space[0x14C:0x154] = bytes.fromhex("d0513a0003c288a0")
    pci = json.dumps({"hex": {"/sys/bus/pci/devices/0000:17:00.0/config": space.hex()}})
    made = redaction(pci=pci)
    new = made.observation(Observation("pci", text=pci)).text
    assert "d0513a0003c288a0" in pci and "d0513a0003c288a0" not in new
    assert len(new) == len(pci) and "/0000:17:00.0/config" in new
    cluster = {"clusterUuid": list(range(16)), "cliqueId": 3}
    none = {"clusterUuid": [0] * 16}
    made = redaction(nvml={"gpus": [cluster, cluster, none]})
    new = json.loads(made.observation(documents(nvml={"gpus": [cluster, cluster, none]})[0]).text)["gpus"]
    assert new[0] == new[1] != cluster and new[2] == none and new[0]["cliqueId"] == 3
    assert bytes(new[0]["clusterUuid"]).hex() == made.text(bytes(range(16)).hex())


def test_beginnings_of_uuids_name_the_same_gpu():
    uuids = [f"GPU-{n:08x}-51aa-4d0c-8e17-2b90c3d4e5f6" for n in (0x7C21FD0E, 0x8D32FE1F)]
    made = redaction(nvml={"gpus": [{"uuid": uuid} for uuid in uuids]})
    short = made.text("CUDA_VISIBLE_DEVICES=GPU-7c21fd0e,GPU-8d32").partition("=")[2].split(",")
    whole = [made.text(uuid) for uuid in uuids]
    assert [[one for one in whole if one.startswith(begin)] for begin in short] == [whole[:1], whole[1:]]
    others = "GPU-based, GPU-Util, MIG-disabled, GPU-0000:5d:00.0"
    assert made.text(others) == others


# Shapes

VERSIONS = """
580.95.05|2.27.3.1|NCCL version 2.27.3.1+cuda12.8|570.86.10.01|96.00.89.00.01|9.10.2.21|13.580.95.05
nvidia-curand-cu12==10.3.9.90|libcudnn.so.9.10.2.21|MLNX_OFED_LINUX-24.10-0.7.0.0
6.6.87.2-microsoft-standard-WSL2|firmware 20.35.10.12|version: 172.16.3.4|28.43.2026|10.2.1.9-1ubuntu1
V12.8.93|1.2.3|99.88"""
STAYS = """
0000:5d:00.0|00000000:5D:00.0|0000:5d:00.0/config|2026-11-14T09:11:00.123456+00:00|09:11:00
26-11-14-09-11-00|127.0.0.1|127.0.1.1|::1|::|0.0.0.0|0.0.0.0/0|255.255.255.0|255.255.240.0|224.0.0.1
239.1.2.3|255.255.255.255|169.254.169.254|10.0.0.0/8|172.16.0.0/12|ff02::1|mlx5_0:1|ens1f0np0|eth0
localhost:29500|/home|/home/|00:00:00:00:00:00|ff:ff:ff:ff:ff:ff|01:00:5e:00:00:fb
00000000-0000-0000-0000-000000000000|pid 4711|0xffffffffc0a8b000|0x0000000000140204|0::/user.slice
std::vector<int>|c10::Error|user@1000.service|torch.cuda|GPU-Util
https://docs.nvidia.com/deploy/xid-errors|symbol@@GLIBC_2.17|numpy@1.2.3|a88f09fa7c|MT4129|0x2651e848
53e4e5e8ed5c5b0d9ac8fd8d27e6a6b0a2b1c3d4|NV18 PIX SYS|0-55,112-167|7783-7084-3265-9085-8269-3286-77"""


@in_turn("text", re.split(r"[|\n]", VERSIONS.strip() + STAYS))
def test_what_looks_like_an_address_and_is_none_stays(text):
    made = redaction()
    for around in ("{}", "({}), x", "a {}\nb", '"{}"'):
        assert made.text(around.format(text)) == around.format(text)


def test_a_quad_is_what_the_rest_of_the_node_says_it_is():
    made = redaction(
        net={"hosts": ["9.8.7.6"], "nameservers": ["10.3.9.90"]},
        target_python={"distributions": [{"name": "a", "version": "10.4.1.2"}]},
    )
    assert made.text("9.8.7.6 and 10.3.9.90") == "198.18.1.1 and 10.1.1.1"
    assert made.text("it is 10.4.1.2 here") == "it is 10.4.1.2 here"
    assert "3.91.4.5" not in made.text("connection from 3.91.4.5, tcp://3.91.4.5:29500, 3.91.4.5:/vol")
    asked = Observation(
        "peers", argv=("python3", "-I", "/x/peers.py", "3.91.4.5", "far-7"), note="no answer in 8 s"
    )
    env = documents(env={"variables": {"MASTER_ADDR": "5.6.7.8"}})
    made = Redaction.of([asked, *env], {})
    assert made.observation(asked).argv == ("python3", "-I", "/x/peers.py", "198.18.1.1", "node-1")
    assert made.text("5.6.7.8") == "198.18.2.1"


four = st.ip_addresses(v=4).map(str)
private = st.one_of(
    *(st.ip_addresses(network=net).map(str) for net in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")),
    *(st.ip_addresses(network=net).map(str) for net in ("100.64.0.0/10", "169.254.0.0/16", "10.1.0.0/22")),
)
hexes = st.text("0123456789abcdef", min_size=32, max_size=32)
hostnames = st.from_regex(r"[a-z]{2,8}(-[a-z0-9]{1,6}){1,2}-?[0-9]{2,4}", fullmatch=True)


def net(*addresses):
    return documents(net={"hosts": list(addresses)})


@given(st.lists(st.one_of(four, private), min_size=1, max_size=40, unique=True))
def test_ipv4(addresses):
    made = Redaction.of(net(*addresses), {})
    new = dict(zip(addresses, map(made.text, addresses), strict=True))
    assert len(set(new.values())) == len(new)
    moved = {one: other for one, other in new.items() if one != other}
    assert not set(moved.values()) & set(addresses)
    for one, other in new.items():
        a, b = ipaddress.ip_address(one), ipaddress.ip_address(other)
        ranges = [
            ipaddress.ip_network(n)
            for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
        ]
        assert [a in net for net in ranges] == [b in net for net in ranges]
        assert (a.is_loopback, a.is_link_local, a.is_multicast) == (
            b.is_loopback,
            b.is_link_local,
            b.is_multicast,
        )
        for two, third in moved.items():
            if one in moved:
                same = one.rpartition(".")[0] == two.rpartition(".")[0]
                assert same == (other.rpartition(".")[0] == third.rpartition(".")[0])


@given(st.lists(st.ip_addresses(v=6), min_size=1, max_size=20, unique=True), st.booleans())
def test_ipv6(values, full):
    addresses = [value.exploded if full else value.compressed for value in values]
    made = Redaction.of(net(*addresses), {})
    new = dict(zip(addresses, map(made.text, addresses), strict=True))
    assert len(set(new.values())) == len(new)
    for one, other in new.items():
        a, b = ipaddress.ip_address(one), ipaddress.ip_address(other)
        assert (a.is_loopback, a.is_link_local, a.is_multicast) == (
            b.is_loopback,
            b.is_link_local,
            b.is_multicast,
        )
        assert not full or len(other) == len(one)
        if a in ipaddress.ip_network("2000::/3"):
            assert b in ipaddress.ip_network("2001:db8::/32") and one != other


@given(st.lists(st.integers(1, 2**64 - 2), min_size=1, max_size=20, unique=True))
def test_guids_are_the_same_in_all_their_ways_to_be_written(values):
    plain = [f"{value:016x}" for value in values]
    grouped = [":".join(re.findall("....", digits)) for digits in plain]
    made = redaction(rdma={"files": {f"/{n}/node_guid": f"{text}\n" for n, text in enumerate(grouped)}})
    new = [made.text(text) for text in grouped]
    assert len(set(new)) == len(new) and not set(new) & set(grouped)
    for digits, text, stand_in in zip(plain, grouped, new, strict=True):
        assert re.fullmatch("[0-9a-f]{4}(:[0-9a-f]{4}){3}", stand_in)
        assert made.text(f"Node GUID: 0x{digits}") == f"Node GUID: 0x{stand_in.replace(':', '')}"
        assert made.text(f"fe80:0000:0000:0000:{text}") == f"fe80:0000:0000:0000:{stand_in}"
        by_byte = ":".join(re.findall("..", "80000048fe80000000000000" + digits))
        assert made.text(by_byte).replace(":", "") == "80000048fe80000000000000" + stand_in.replace(":", "")


@given(st.lists(hexes.filter(lambda digits: digits.strip("0")), min_size=1, max_size=20, unique=True))
def test_uuids_and_macs(values):
    uuids = ["-".join((v[:8], v[8:12], v[12:16], v[16:20], v[20:])) for v in values]
    made = redaction(nvml={"uuids": uuids})
    new = [made.text(f"GPU-{uuid}") for uuid in uuids]
    assert len(set(new)) == len(set(values))
    for uuid, stand_in in zip(uuids, new, strict=True):
        assert re.fullmatch("GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", stand_in)
        assert uuid not in stand_in
    macs = {":".join(re.findall("..", v[:12])) for v in values} - {"00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"}
    macs -= {mac for mac in macs if mac.startswith(("01:00:5e", "01:80:c2"))}
    stand_ins = {made.text(mac) for mac in macs}
    assert len(stand_ins) == len(macs)
    assert all(re.fullmatch("02(:[0-9a-f]{2}){5}", mac) for mac in stand_ins)


@given(st.lists(hostnames, min_size=1, max_size=20, unique=True))
def test_hosts(names):
    seen = documents(peers={"peers": {name: {} for name in names}})
    made = Redaction.of(seen, {"hostname": names[0]})
    new = {name: made.text(name) for name in names}
    assert len(set(new.values())) == len(new)
    assert not set(new.values()) & set(names)
    assert all(re.fullmatch("node-[0-9]+", name) for name in new.values())
    other = Redaction.of(seen, {"hostname": names[0]})
    assert {name: other.text(name) for name in reversed(names)} == new


@given(st.text())
def test_any_text_can_be_redacted_and_text_without_originals_stays(text):
    made = redaction(env={"variables": {"USER": "mallory"}})
    new = made.text(text)
    if not re.search(r"[0-9]|::|@|/home/|[A-Fa-f:-]{8}|\w\.[A-Za-z]{2}", text):
        assert new == text
    assert made.document({text: [text, 1, None, (text,)]}) == {new: [new, 1, None, (new,)]}


@given(
    st.lists(
        st.sampled_from([*KEPT, "\n", '"', ": ", "gpu-a3-017", "10.20.3.17", "/home/x", "a"]), max_size=30
    )
)
def test_json_stays_json(pieces):
    document = {"text": " ".join(pieces), "list": pieces}
    made = redaction(net=document)
    new = json.loads(made.observation(documents(net=document)[0]).text)
    assert new.keys() == document.keys() and len(new["list"]) == len(pieces)


HOSTILE = ["a." * 200_000, "0:" * 200_000, "user=" * 80_000, "-" * 400_000, "f" * 400_000, "a@" * 200_000]
HOSTILE += ["a.com " * 60_000, "com.com." * 60_000, "user a1 " * 50_000, "s3://" * 80_000, "x@o2ib" * 60_000]
HOSTILE += [
    "\\\\\\\\a" * 50_000,
    "pod=a/" * 60_000,
    " ".join(f"user q{n:x}z server h{n}" for n in range(20_000)),
]
HOSTILE += [" ".join(f"x{n}.q{n:x}.com serial AB{n:0{4 + n % 50}d}" for n in range(9_000))]
HOSTILE += [
    "SLURM_NODELIST=a[0-65535] " * 50,
    "10.0.0.1 " * 40_000,
    '"serial": "' * 40_000,
    "\\n" * 200_000,
    "[" * 400_000,
]
HOSTILE += [" ".join(f"10.{n >> 8 & 255}.{n & 255}.7" for n in range(30_000))]
HOSTILE += [" ".join(f"02:00:00:{n >> 8 & 255:02x}:{n & 255:02x}:01" for n in range(20_000))]


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:12].strip())
def test_text_made_to_take_long_does_not(text):
    began = time.process_time()
    Redaction.of([Observation("kernel-log", text=text)], {"hostname": "gpu-a3-017.site.example"})
    assert time.process_time() - began < 20


@settings(max_examples=examples(30))
@given(st.binary(max_size=600))
def test_any_configuration_space_keeps_its_length(data):
    text = json.dumps({"hex": {"/x/config": (bytes(256) + data).hex()}})
    made = redaction(pci=text)
    assert len(made.observation(Observation("pci", text=text)).text) == len(text)


def test_the_screen_saves_what_it_may_and_shows_the_truth(tmp_path):
    from nodedoctor.tui.run_history import RunHistory

    async def sit():
        rounds = RunHistory(Session(Request(replay=folder("nvlinks-down"), redact=True)))
        rounds.start()
        async for state in rounds.states():
            if not state.running:
                return state.report, await rounds.recording(), rounds.about

    report, recording, about = asyncio.run(sit())
    (tmp_path / "saved.zip").write_bytes(recording)
    assert b"gpu-a3-017" not in zipped(tmp_path / "saved.zip")
    assert report["node"]["hostname"] == "gpu-a3-017" and about.redact


def test_the_name_a_recording_is_saved_under_names_nobody():
    from nodedoctor.tui.state import file_name

    report = report_json.document(judged(folder("healthy")))
    assert "gpu-a3-016" in file_name(report)
    assert file_name(report, redact=True) == "nodedoctor-node-20261114T091100.zip"


def test_the_report_keeps_what_is_ours():
    report = judged(folder("nvlinks-down"))
    before = report_json.document(report)
    after = Redaction.of(report.observations, report.node).report(before)
    for key in ("schema", "tool", "source", "started", "seconds", "verdict", "counts"):
        assert before[key] == after[key]
    for one, other in zip(before["results"], after["results"], strict=True):
        assert {**one, "findings": 0} == {**other, "findings": 0}
        for finding, redacted in zip(one["findings"], other["findings"], strict=True):
            assert finding["id"] == redacted["id"] and finding["reason"] == redacted["reason"]
            assert (finding["fix"] or {}).get("docs") == (redacted["fix"] or {}).get("docs")


@pytest.mark.parametrize("name", ["cProfile.io", "socket.io", "json.dev"])
def test_a_standard_module_is_no_domain_however_it_is_written(name):
    seen = Observation("kernel-log", text=f"in {name} it stood still")
    assert Redaction.of([seen], {}).observation(seen).text == seen.text


def test_all_texts_of_a_first_step_are_redacted_as_those_of_its_fix_are() -> None:
    step = {
        "role": "repair",
        "command": "ssh gpu-a3-017 w",
        "when": "gpu-a3-017 answers",
        "disturbs": "gpu-a3-017",
    }
    cause = {"id": "driver.answers", "headline": "gpu-a3-017 hangs", "first_step": step}
    report = read({"node": {"hostname": "gpu-a3-017"}, "results": [], "causes": [cause]})
    redaction = Redaction.of([Observation("host", text='"hostname": "gpu-a3-017"')], report["node"])
    told = redaction.report(report)["causes"][0]
    assert "gpu-a3-017" not in json.dumps(told) and json.dumps(told).count("node-1") == 4
