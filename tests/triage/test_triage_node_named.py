"""A fault of a node names the node, or the one rank on it that met the fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged, raised, steps

SYSLOG = "Nov 21 03:1{n}:15 {host} kernel: [8123{n}.678901] {said}\n"
NCCL = "{host}:22{n}1:22{n}9 [{n}] {said}\n"

FAULTS = {
    "fallen off the bus": (
        SYSLOG,
        "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    ),
    "double-bit error": (SYSLOG, "NVRM: Xid (PCI:0000:4e:00): 48, An uncorrectable double bit error (DBE)"),
    "link down": (SYSLOG, "mlx5_core 0000:86:00.0 mlx5_2: Link down"),
    "reset of an AMD GPU": (SYSLOG, "amdgpu 0000:c5:00.0: amdgpu: GPU reset begin!. Source:  3"),
    "port error": (NCCL, "transport/net_ib.cc:92 NCCL WARN NET/IB : mlx5_2:1 Got async event : port error"),
}
LOCAL = {
    "shared memory": "misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-pQ1 to 9637 bytes",
    "memlock": "misc/ibvwrap.cc:262 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory",
    "no interface": "bootstrap.cc:126 (bootstrapNetInit) NCCL WARN Bootstrap : no socket interface found",
    "no plug-in": "NCCL WARN Error: network AWS not found.",
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_node_is_named(name: str, tmp_path: Path) -> None:
    form, said = FAULTS[name]
    one = form.format(n=1, host="gpu-07", said=said)
    verdict = judged(tmp_path, steps(1, 9) + one).verdict
    assert [(who.host, who.rank, who.pid) for who in verdict.culprits] == [("gpu-07", None, None)]
    assert "node gpu-07" in verdict.headline
    two = judged(tmp_path, steps(1, 9) + one + form.format(n=2, host="gpu-03", said=said)).verdict
    assert two.cause == verdict.cause
    assert {who.host for who in two.culprits} == {"gpu-03", "gpu-07"}
    assert "nodes gpu-03 and gpu-07" in two.headline


@pytest.mark.parametrize(
    "pid", ["pid=40417, name=python3, ", "pid='<unknown>', name=<unknown>, ", "pid=0, name=, "]
)
@pytest.mark.parametrize("host", ["", "gpu-07"])
def test_the_process_on_a_broken_gpu_is_its_victim(host: str, pid: str, tmp_path: Path) -> None:
    said = f"NVRM: Xid (PCI:0000:4e:00): 48, {pid}An uncorrectable double bit error (DBE)"
    line = SYSLOG.format(n=1, host=host, said=said) if host else f"[81231.678901] {said}\n"
    verdict = judged(tmp_path, line).verdict
    assert verdict.cause == "gpu_hardware_xid"
    assert [(who.host, who.pid) for who in verdict.culprits] == ([(host, None)] if host else [])


@pytest.mark.parametrize(
    "said",
    [
        "OSError: [Errno 28] No space left on device: '/scratch/ck.pt'",
        "OSError: [Errno 122] Disk quota exceeded",
        "OSError: Not enough disk space. Needed: Unknown size (download: 7.10 MiB, generated: 21.08 MiB)",
        "RuntimeError: Not enough free disk space to download the file. The expected file size is: 4 MB.",
    ],
)
def test_a_full_disk_names_the_ranks_that_met_it(said: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 9) + f"[rank3]: {said}\n").verdict
    assert verdict.cause == "shm_or_limits"
    assert [who.rank for who in verdict.culprits] == [3]


OWN_SIDE = (
    "ibv_create_cq",
    "ibv_create_qp",
    "ibv_alloc_pd",
    "ibv_reg_mr",
    "ibv_reg_mr_iova2",
    "ibv_post_send",
)


@pytest.mark.parametrize("call", OWN_SIDE)
def test_a_rank_that_fails_on_its_own_side_of_infiniband_is_named(call: str, tmp_path: Path) -> None:
    """The others only see that it closed its connections; old versions tell no number of the error."""
    line = "{rank}: gpu-0{rank}:22{rank}1:40 [{rank}] NCCL INFO comm 0x7 rank {rank} nranks 4 - Init START\n"
    failed = "{rank}: gpu-0{rank}:22{rank}1:40 [{rank}] misc/ibvwrap.cc:118 NCCL WARN Call to {call} failed\n"
    closed = failed.replace("misc/ibvwrap.cc:118", "socket.h:42").replace(
        "Call to {call} failed", "Net : Connection closed by remote peer"
    )
    text = "".join(line.format(rank=rank) for rank in range(4)) + failed.format(rank=2, call=call)
    text += "".join(closed.format(rank=rank) for rank in (0, 1, 3))
    verdict = judged(tmp_path, text).verdict
    assert verdict.cause == "network_ib"
    assert [who.rank for who in verdict.culprits] == [2]
    assert call in verdict.headline
    assert any("locked memory" in fix.text for fix in verdict.fixes)


def test_a_switch_is_no_node(tmp_path: Path) -> None:
    said = (
        "[81231.678901] nvidia-nvswitch{n}: SXid (PCI:0000:0{n}:00.0): 20034, Fatal, Link 48 LTSSM Fault Up\n"
    )
    assert not judged(tmp_path, said.format(n=1) + said.format(n=2)).verdict.culprits


@pytest.mark.parametrize("name", FAULTS)
def test_who_is_not_known_is_not_named(name: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 9) + FAULTS[name][1] + "\n").verdict
    assert verdict.culprits == ()
    assert "node" not in verdict.headline


def test_the_one_rank_on_it_is_named_with_its_node(tmp_path: Path) -> None:
    said = "gpu-03:2201:2230 [1] NCCL INFO comm 0x5 rank 3 nranks 8 cudaDev 1 - Init START\n"
    error = "[rank{}]: RuntimeError: CUDA error: system not yet initialized\n"
    one = judged(tmp_path, said + error.format(3)).verdict
    assert [who.rank for who in one.culprits] == [3]
    assert one.headline.startswith("rank 3")


@pytest.mark.parametrize("name", LOCAL)
def test_a_limit_of_a_process_names_the_process(name: str, tmp_path: Path) -> None:
    line = NCCL.format(n=1, host="gpu-07", said=LOCAL[name])
    verdict = judged(tmp_path, steps(1, 9) + line).verdict
    assert [(who.host, who.pid) for who in verdict.culprits] == [("gpu-07", 2211)]
    ranked = judged(tmp_path, steps(1, 9) + f"[rank5]: {LOCAL[name]}\n").verdict
    assert [who.rank for who in ranked.culprits] == [5]


XID = "[Sat Nov 21 10:03:5{n} 2026] NVRM: Xid (PCI:0000:9d:00): 79, GPU has fallen off the bus.\n"
ASKED = (
    "root@gpu-07:~# dmesg -T | tail -5\n",
    "[ops@gpu-07 ~]$ sudo journalctl -k -n 20\n",
    "$ ssh gpu-07 sudo dmesg -T\n",
    "me@login:~$ ssh -p 22 ops@gpu-07 'grep Xid /var/log/kern.log'\n",
)


@pytest.mark.parametrize("asked", ASKED)
def test_the_kernel_is_that_of_the_node_that_was_asked(asked: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 9) + asked + XID.format(n=1)).verdict
    assert [who.host for who in verdict.culprits] == ["gpu-07"]
    error = raised(21, "RuntimeError: CUDA error: unknown error")
    named = judged(tmp_path, steps(1, 9) + error + "```\n" + asked + XID.format(n=1) + "```\n").verdict
    assert [(who.rank, who.host) for who in named.culprits] == [(21, "gpu-07")]


@pytest.mark.parametrize(
    "behind",
    ["me@login:~$ tail -1 job.log\n", "$ cat notes.txt\n", "me@login:~$ ssh gpu-03 nvidia-smi\n", "```\n"],
)
def test_a_node_is_asked_until_the_next_command_or_the_end_of_its_block(behind: str, tmp_path: Path) -> None:
    calm = "[Sat Nov 21 10:03:00 2026] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15\n"
    log = steps(1, 9) + ASKED[0] + calm + behind + XID.format(n=1)
    assert judged(tmp_path, log).verdict.culprits == ()


@pytest.mark.parametrize("plain", ["$ dmesg -T | tail\n", "the dmesg of gpu-07 says:\n", ""])
def test_no_node_is_guessed_where_no_prompt_names_one(plain: str, tmp_path: Path) -> None:
    assert judged(tmp_path, steps(1, 9) + plain + XID.format(n=1)).verdict.culprits == ()
