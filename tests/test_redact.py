"""Redacted recordings name nobody, keep the shapes of what they replace, and are judged like the originals."""

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
from hypothesis import given, settings
from hypothesis import strategies as st

from nodedoctor import snapshot
from nodedoctor.demo import DEMOS, folder
from nodedoctor.model import Observation
from nodedoctor.redact import Redaction
from nodedoctor.redact.words import ordinary, stem
from nodedoctor.report import json as report_json
from nodedoctor.session import Request, Session

NODES = Path(__file__).parent / "nodes"
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
ORIGINALS = """hgx-r12 hgx_r12 acme-labs corp. mallory trent oscarina eve.adams filer-7 storage03 ray-head login-2 dgx
10.20.3 10.20.9 10.20.0 172.20.7 203.0.113.77 8.8.4.4 2001:67c a288:c2ff:fe3a 3f0c9a52 8d2f6c0e 7c21fd0e 5f2a1b3c
51aa-4d0c 1654923004417 b83f:d203 b83fd203 b8:3f:d2 94:6d:ae 0a14:0311 4be19c07 0a1b2c3d4e5f60718 123456780012
/home/data""".split()
KEPT = """127.0.0.1 ::1 96.00.89.00.01 00000000:5d:00.0 0000:5d:00 0000:5e:00.0 28.43.2026 6.8.0-64-generic 9.10.2.21
10.3.9.90 12.8.4.1 2.27.3.1 mlx5_0 mlx5_1 ens1f0 nvidia-persistenced root data_loader 0xffffffffc0a8b000
0x2651e848 2026-11-14T06:00:09 https://www.ubuntu.com/ 23.11.4 gpu:h100:8 user@20417.service 20417 0x1003
fe80:0000:0000:0000: fe80:: 0000:0000:0000:0000:0000:ffff: 80:00:00:48:fe:80 @o2ib GPU- MIG- /export/home""".split()


def site(tmp_path):
    """The recording of SITE with stand-ins, unpacked; and what made it."""
    seen = documents(**SITE)
    node = {"hostname": "hgx-r12-041", "boot_id": "3f0c9a52-7be1-4c60-9d8e-0a1b2c3d4e5f"}
    made, data = packed(seen, node, {"expect": {"host": "hgx-r12-041.corp.acme-labs.test"}})
    path = tmp_path / "site.zip"
    path.write_bytes(data)
    return made, zipped(path).decode(), snapshot.load(path)


@pytest.mark.parametrize("original", ORIGINALS)
def test_nothing_that_names_the_site_is_left(original, tmp_path):
    _, text, _ = site(tmp_path)
    around = text.lower().find(original.lower())
    assert around < 0, text[max(0, around - 80) : around + 80]


@pytest.mark.parametrize("word", KEPT)
def test_what_names_nobody_stays(word, tmp_path):
    assert word in site(tmp_path)[1]
