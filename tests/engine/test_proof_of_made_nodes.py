"""Evidence of faults that no recorded node has: a healthy node with one thing changed, and pastes."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from recorded import files, replay

from nodedoctor import demo

FOLDER = Path(demo.__file__).parent
CGROUP = "/sys/fs/cgroup"
MOUNTS = "/proc/self/mountinfo"
DEAD = "61 28 0:55 / /data rw,relatime - nfs4 10.20.0.9:/data rw\n"
READ_ONLY = "62 28 259:7 / /scratch ro,relatime - xfs /dev/nvme2n1 ro\n"
SLURM = (
    "NodeName=gpu-a3-016 Arch=x86_64 Gres=gpu:h100:9(S:0-1) NodeAddr=gpu-a3-016 State=IDLE ThreadsPerCore=2 "
    "CfgTRES=cpu=192,mem=2T,gres/gpu=9 AllocTRES= Reason=none [root@2026-11-20T10:00:00]\n"
)
RAY = """\
======== Autoscaler status: 2026-11-21 09:29:10.256954 ========
Node status
---------------------------------------------------------------
Active:
 1 node_01b8
Pending:
 (no pending nodes)
Recent failures:
 10.20.0.18: NodeTerminated (ip: 10.20.0.18)

Resources
---------------------------------------------------------------
Total Usage:
 3.0/8.0 GPU

Pending Demands:
 {'CPU': 1.0, 'GPU': 16.0}: 2+ pending tasks/actors
"""
PEERLESS = {
    "addresses": [],
    "bond": False,
    "carrier": "1",
    "flags": "0x1003",
    "master": None,
    "physical": True,
}


MODULES = "/proc/modules"
RANK = {
    "pid": 4242,
    "ppid": 1,
    "program": "python3",
    "script": "train.py",
    "role": "rank",
    "state": "running",
    "uid": 1000,
    "user": "ubuntu",
    "environment": {"RANK": "0", "WORLD_SIZE": "8", "NCCL_P2P_DISABLE": "1", "NCCL_IB_HCA": "mlx9_9"},
}


def document(name: str, probe: str) -> dict[str, Any]:
    """What a probe printed on one of the nodes that ship with us."""
    found: dict[str, Any] = json.loads((FOLDER / name / "probes" / f"{probe}.txt").read_text())
    return found


@cache
def healthy() -> Mapping[str, str]:
    return {file.stem: file.read_text() for file in (FOLDER / "healthy" / "probes").glob("*.txt")}


def changed(probe: str, change: Callable[[dict[str, Any]], object]) -> dict[str, str]:
    told = document("healthy", probe)
    change(told)
    return {probe: json.dumps(told)}


def written(probe: str, **sections: Mapping[str, Any]) -> dict[str, str]:
    """More in the sections of a document of files."""
    return changed(probe, lambda told: [told[name].update(more) for name, more in sections.items()])


def interfaces(*changes: int) -> dict[str, str]:
    more = {
        f"ens{place}f0": {
            **PEERLESS,
            "carrier_changes": str(count),
            "mtu": "9000",
            "operstate": "up",
            "speed": "1",
        }
        for place, count in enumerate(changes, 2)
    }
    return changed("net", lambda told: told["interfaces"].update(more))


def python(**libraries: Any) -> dict[str, str]:
    return changed("target-python", lambda told: told["libraries"].update(libraries))


COPY: Mapping[str, Any] = document("healthy", "target-python")["libraries"]["copies"][0]


def inside(
    group: str = "0::/", variables: Mapping[str, str] | None = None, **sections: Mapping[str, Any]
) -> dict[str, str]:
    """In a container: the namespaces are not the host's."""
    kinds = [f"/proc/{who}/ns/{kind}" for who in ("self", "1") for kind in ("pid", "mnt", "ipc")]
    links = {path: f"{path.rpartition('/')[2]}:[4026539999]" for path in kinds}
    texts = {"/proc/self/cgroup": f"{group}\n", **sections.pop("files", {})}
    return {
        **written("container", links=links, files=texts, **sections),
        **changed("env", lambda told: told["variables"].update(variables or {})),
    }


def without_libcuda(told: dict[str, Any]) -> None:
    for section in ("links", "stats"):
        told[section] = {path: what for path, what in told[section].items() if "libcuda.so" not in path}


def growing() -> list[str]:
    """The samples, of which the last has more errors of a link, a memory and a bus."""
    samples = [json.loads(line) for line in healthy()["nvml-growth"].splitlines()]
    gpu = samples[-1]["gpus"][0]
    gpu["values"].update(pcie_replays=5000, ecc_volatile_correctable=9000)
    gpu["links"][4]["values"].update(crc_flit=70000, replay=900)
    return [json.dumps(sample) for sample in samples]


UNJUDGED = ("deep.ib-write-bw", "stack.lambda")
"""Checks that here have something to show and nothing to warn of."""


NODES: Mapping[str, tuple[Mapping[str, str], str]] = {
    "memory is short": (
        written(
            "limits", files={"/proc/pressure/memory": "full avg10=50.00 avg60=45.00 avg300=9.00 total=9\n"}
        ),
        "host.pressure",
    ),
    "all files are open": (
        written(
            "limits",
            files={"/proc/sys/fs/file-nr": "990000\t0\t1000000\n", "/proc/sys/fs/file-max": "1000000\n"},
        ),
        "limits.nofile",
    ),
    "processors of the other socket": (
        written("limits", files={f"{CGROUP}/cpuset.cpus.effective": "200-203\n"}),
        "topo.numa",
    ),
    "a mount that is dead": (
        written(
            "disk",
            errors={"/data": "TIMEOUT"},
            files={MOUNTS: document("healthy", "disk")["files"][MOUNTS] + DEAD},
        ),
        "limits.disk",
    ),
    "a line that is no waiver": (
        {"waivers": files(files={"/etc/nodedoctor/waivers": "nvlink.links for ever\n"})},
        "doctor.waivers",
    ),
    "a link that comes and goes": (interfaces(2, 4, 4, 900), "net.link"),
    "translated addresses": (
        {
            **changed(
                "pci",
                lambda told: told["links"].update(
                    {
                        f"{one}/iommu_group": "../../../kernel/iommu_groups/7"
                        for one in list(told["links"])
                        if one.count("/") == 5
                    }
                ),
            ),
            **written(
                "iommu",
                files={"/sys/kernel/iommu_groups/7/type": "DMA\n", "/proc/cmdline": "ro intel_iommu=on\n"},
            ),
        },
        "pcie.iommu",
    ),
    "Slurm has one GPU more": ({"slurm-node": SLURM}, "slurm.gres"),
    "work that Ray never places": ({"ray-status": RAY}, "ray.resources"),
    "torch that does not start CUDA": (
        {
            "target-torch": json.dumps(
                {
                    "deep": {
                        "version": "2.9.0",
                        "cuda": "12.8",
                        "archs": ["sm_90"],
                        "nccl": ["2", "20", "5"],
                        "available": False,
                        "devices": 0,
                        "error": "RuntimeError: CUDA error 802",
                    }
                }
            )
        },
        "stack.torch-driver",
    ),
    "a volume whose name has a blank": (
        written(
            "disk",
            errors={"/my data": "EIO"},
            files={
                MOUNTS: document("healthy", "disk")["files"][MOUNTS]
                + DEAD.replace("/data rw", "/my\\040data rw")
            },
        ),
        "limits.disk",
    ),
    "NCCL that does not know the module's name": (
        {
            **python(copies=[{**COPY, "version": "2.10.3"}]),
            **changed(
                "driver-files",
                lambda told: told["files"].update(
                    {MODULES: f"nvidia_peermem 16384 0 - Live 0x0\n{told['files'][MODULES]}"}
                ),
            ),
        },
        "ib.gdr",
    ),
    "no libcuda": (changed("driver-files", without_libcuda), "driver.libcuda"),
    "a rail of another kind": (
        written("rdma", files={"/sys/class/infiniband/mlx5_3/ports/1/link_layer": "Ethernet\n"}),
        "nic.inventory",
    ),
    "counters that grow": ({"nvml-growth": "\n".join(growing())}, "nvlink.errors"),
    "a rail whose test fails": (
        {
            "ib-write-bw": json.dumps(
                {"ports": [{"port": "mlx5_0/1", "error": "failed", "said": "Couldn't allocate MR"}]}
            )
        },
        "deep.ib-write-bw",
    ),
    "Lambda Stack": (
        {
            "system-packages": files(
                files={
                    "/etc/apt/sources.list.d/lambda.list": "deb http://archive.lambdalabs.com/ubuntu noble\n"
                },
                stats={"/var/lib/dpkg/info/lambda-stack-cuda.list": {"type": "file", "mode": "0644"}},
            )
        },
        "stack.lambda",
    ),
    "a job's settings": (
        {
            **changed("processes", lambda told: told["processes"].append(RANK)),
            **changed(
                "env",
                lambda told: told.update(
                    files={"/etc/nccl.conf": {"NCCL_IB_HCA": "mlx9_7", "NCCL_P2P_LEVEL": "XYZ"}}, errors={}
                ),
            ),
        },
        "env.lint",
    ),
    "a fabric manager of another version": (
        {"fabric-manager": "Fabric Manager version is : 570.86.10\n"},
        "fabric.version",
    ),
    "symbols that NCCL lacks": (python(nccl_missing=["ncclCommWindowRegister"]), "stack.undefined-symbol"),
}


CONTAINERS: Mapping[str, Mapping[str, str]] = {
    "of Kubernetes by its variables": inside(variables={"KUBERNETES_SERVICE_HOST": "10.96.0.1"}),
    "of Kubernetes by its account": inside(
        stats={"/var/run/secrets/kubernetes.io/serviceaccount": {"type": "dir", "mode": "0755"}}
    ),
    "of Kubernetes by its control group": inside(
        "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope"
    ),
    "by the control group of its first process": inside(
        files={"/proc/1/cgroup": "0::/docker/0123456789abcdef\n"}
    ),
    "of Apptainer": inside(variables={"APPTAINER_CONTAINER": "/images/train.sif"}),
    "of Singularity": inside(variables={"SINGULARITY_CONTAINER": "/images/train.sif"}),
    "by a variable": inside(variables={"container": "podman"}),
    "by its manager's file": inside(files={"/run/systemd/container": "lxc\n"}),
    "by where its hosts file is": inside(
        files={
            MOUNTS: "91 88 259:2 /var/lib/docker/containers/01/hosts /etc/hosts rw - ext4 /dev/nvme0n1p2 rw\n"
        }
    ),
    "by its namespaces alone": inside(),
    "of an image that names itself": inside("0::/lxc/train", {"NVIDIA_PYTORCH_VERSION": "25.08"}),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CONTAINERS)
def test_what_says_that_this_is_a_container_is_in_what_was_observed(name: str, tmp_path: Path) -> None:
    report = replay(tmp_path / "node", {**healthy(), **CONTAINERS[name]})
    [found] = [f for result in report.results if result.check == "container.runtime" for f in result.findings]
    assert found.evidence, found.summary


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", NODES)
def test_what_a_fault_rests_on_is_in_what_was_observed(name: str, tmp_path: Path) -> None:
    changes, check = NODES[name]
    report = replay(tmp_path / "node", {**healthy(), **changes}, deep=check.startswith("deep."))
    found = [f for result in report.results if result.check == check for f in result.findings]
    bad = [finding for finding in found if finding.status.value in ("warn", "fail")]
    assert bad or check in UNJUDGED, [(f.status, f.summary) for f in found]
    assert found and all(f.evidence for f in found if f in bad or check in UNJUDGED), found


GPUS = "".join(
    f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n"
    + "".join(
        f"\t Link {link}: {'<inactive>' if (gpu, link) == (1, 3) else '26.562 GB/s'}\n" for link in range(18)
    )
    for gpu in range(2)
)
ERRORS = "".join(
    f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n"
    + "".join(
        f"\t Link {link}: Replay Errors: {900 * gpu}\n\t Link {link}: CRC Errors: 0\n" for link in range(2)
    )
    for gpu in range(2)
)
ACCESS = """\
 \tGPU0\tGPU1\t
 GPU0\tX\tGNS\t
 GPU1\tGNS\tX\t

Legend:
"""
COLLECTED = """\
Collecting environment information...
PyTorch version: 2.9.0+cu128
Is debug build: False
CUDA used to build PyTorch: 12.8

Python version: 3.12.3 (main, Aug 14 2025, 17:47:21) [GCC 13.3.0] (64-bit runtime)
Is CUDA available: False
CUDA runtime version: 12.8.93
Nvidia driver version: 580.95.05

Versions of relevant libraries:
[pip3] numpy==2.3.4
[pip3] torch==2.9.0+cu128
"""
TRAYS = "/dev/nvidia-caps-imex-channels"


def tray() -> dict[str, str]:
    """A tray of several, one of which does not answer."""
    folder = Path(__file__).parents[1] / "nodes" / "gb200-imex-healthy" / "probes"
    seen = {file.stem: file.read_text() for file in folder.glob("*.txt")}
    machine = json.loads(seen["machine"])
    machine.setdefault("errors", {})[TRAYS] = "ENOENT"
    unready = re.sub(r"READY", "UNAVAILABLE", seen["imex-domain"], count=1)
    return {**seen, "machine": json.dumps(machine), "imex-domain": unready}


PASTED: Mapping[str, tuple[Mapping[str, str], str]] = {
    "a link that is down": ({"nvidia-smi-nvlink": GPUS}, "nvlink.links"),
    "no link at all": ({"nvidia-smi-nvlink": GPUS.replace("26.562 GB/s", "<inactive>")}, "nvlink.links"),
    "errors of links": ({"nvidia-smi-nvlink": GPUS, "nvidia-smi-nvlink-errors": ERRORS}, "nvlink.errors"),
    "torch that sees no GPU": ({"collect-env": COLLECTED}, "stack.torch-driver"),
    "a tray that does not answer": (tray(), "fabric.imex-domain"),
    "a tray without channel": (tray(), "fabric.imex"),
    "no access between GPUs": ({"nvidia-smi-topo-p2p": ACCESS}, "p2p.status"),
}


@pytest.mark.parametrize("name", PASTED)
def test_what_a_paste_shows_is_in_it(name: str, tmp_path: Path) -> None:
    probes, check = PASTED[name]
    report = replay(tmp_path / "node", probes)
    found = [f for result in report.results if result.check == check for f in result.findings]
    assert any(finding.evidence for finding in found), [(f.status, f.summary) for f in found]
