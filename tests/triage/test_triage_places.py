"""Files named after nodes, addresses and interfaces lead to the ranks that are there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.model import Verdict

INIT = (
    "{host}:{pid}:{pid} [0] NCCL INFO Bootstrap: Using {interface}:{address}<0>\n"
    "{host}:{pid}:{pid} [0] NCCL INFO ncclCommInitRank comm 0x5{pid} rank {rank} nranks 4 cudaDev 0"
    " nvmlDev 0 busId"
    " 17000 commId 0x9af1 - Init COMPLETE\n"
)
COMPLETION = (
    "{host}:{pid}:{pid} [0] transport/net_ib/p2p.cc:412 NCCL WARN NET/IB: Got completion from peer"
    " {peer}<4791> with"
    " status=12 opcode=0 len=0 vendor err 129 (Send)\n"
    "[rank{rank}]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting"
    " prematurely.\n"
)
HOSTS = ("ibn01", "ibn02", "ibn03", "ibn04")


def judged_files(folder: Path, files: Mapping[str, str]) -> Verdict:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return examine_job([str(folder)]).verdict


def ranks(verdict: Verdict) -> list[int | None]:
    return [who.rank for who in verdict.culprits]


def test_more_evidence_of_a_node_does_not_take_its_rank_away(tmp_path: Path) -> None:
    logs = {
        f"{host}.log": INIT.format(
            host=host, pid=1200 + n, rank=n, interface="ens1", address=f"10.30.0.1{n + 1}"
        )
        + COMPLETION.format(host=host, pid=1200 + n, rank=n, peer="10.30.0.13" if n != 2 else "10.30.0.12")
        for n, host in enumerate(HOSTS)
    }
    logs["ibn03.log"] += (
        "ibn03:1202:1302 [0] transport/net_ib/init.cc:98 NCCL WARN NET/IB : mlx5_0:1 Got async error"
        " event: port"
        " error\n"
    )
    down = "[Thu Oct  2 20:30:22 2025] mlx5_core 0000:17:00.0 mlx5_0: Port: 1 Link DOWN\n"
    for kernel_log in ("ibn03.dmesg", "ibn03/dmesg.txt", "dmesg-ibn03.txt", "ibn03_kern.log"):
        verdict = judged_files(tmp_path / kernel_log.replace("/", "_"), {**logs, kernel_log: down})
        assert (verdict.cause, ranks(verdict)) == ("network_ib", [2]), kernel_log


def test_the_address_of_a_lost_peer_leads_to_its_ranks(tmp_path: Path) -> None:
    table = "".join(
        f"rank={n} local_rank={n % 2} host=node-{n // 2} addr=10.77.0.{n // 2 + 1} pid={150 + n % 2}\n"
        for n in range(8)
    )
    lost = "".join(
        f"node-{n // 2}:{150 + n % 2}:{170 + n} [{n % 2}] misc/socket.cc:58 NCCL WARN socketProgress:"
        f" Connection closed by remote peer 10.77.0.3<4{n}211>\n[rank{n}]: ncclRemoteError: A call failed"
        " possibly due to a network error or a remote process exiting prematurely.\n"
        for n in (0, 1, 2, 3, 6, 7)
    )
    steps = "".join(f"[rank{n}] step {step} loss 1.{step}\n" for step in range(20) for n in range(8))
    verdict = judged_files(tmp_path / "run", {"all.log": table + steps + lost})
    assert (verdict.cause, ranks(verdict)) == ("peer_died", [4, 5])
    unknown = judged_files(
        tmp_path / "other", {"all.log": table.replace("10.77.0.3", "10.77.0.9") + steps + lost}
    )
    assert ranks(unknown) == []


def test_who_alone_uses_a_bridge_of_containers_is_named(tmp_path: Path) -> None:
    logs = {
        f"node{n}.log": INIT.format(
            host=f"rtx{n}",
            pid=3000 + n,
            rank=n,
            interface="docker0" if n == 3 else "eno1",
            address="172.17.0.1" if n == 3 else f"192.168.40.2{n}",
        )
        + (
            f"rtx{n}:{3000 + n}:{3100 + n} [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to"
            " 172.17.0.1<50121> failed : Connection refused\n"
            if n != 3
            else ""
        )
        for n in range(4)
    }
    verdict = judged_files(tmp_path / "run", logs)
    assert (verdict.cause, ranks(verdict)) == ("network_socket_interface", [3])
    assert "docker0 (172.17.0.1) on rank 3" in verdict.headline


def test_who_alone_does_not_reach_the_store_never_joined(tmp_path: Path) -> None:
    log = (
        "[rank0]: torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 3/4"
        " clients"
        " joined.\n"
        "[rank3]: torch.distributed.DistNetworkError: The client socket has timed out after 900000ms"
        " while trying to"
        " connect to (trainer-0, 23456).\n"
    )
    alive = "".join(f"[rank{n}] connected to trainer-0:23456\n" for n in (1, 2))
    verdict = judged_files(tmp_path / "run", {"job.log": alive + log})
    assert (verdict.cause, ranks(verdict)) == ("network_socket_interface", [3])


def test_versions_of_nccl_that_meet_in_one_communicator(tmp_path: Path) -> None:
    log = "".join(
        f"node{name}:{pid}:{pid} [0] NCCL INFO NCCL version {version}\n"
        for name, pid, version in (("A", 311, "2.21.5+cuda12.4"), ("B", 288, "2.25.1+cuda12.8"))
    )
    log += (
        "nodeA:311:402 [0] bootstrap.cc:78 NCCL WARN Message truncated : received 1016 bytes instead of 256\n"
    )
    verdict = judged_files(tmp_path / "two", {"job.log": log})
    assert verdict.cause == "version_mismatch" and "2.21.5 and 2.25.1" in verdict.headline
    same = judged_files(tmp_path / "one", {"job.log": log.replace("2.25.1+cuda12.8", "2.21.5+cuda12.4")})
    assert same.cause != "version_mismatch"


def test_a_node_that_goes_when_the_job_has_succeeded_was_not_lost(tmp_path: Path) -> None:
    steps = "".join(
        f"(RayTrainWorker pid=70{n}, ip=10.3.0.{n + 2}) [rank {n}] epoch {epoch} loss 1.{epoch}\n"
        for epoch in range(20)
        for n in range(2)
    )
    success = "Job 'raysubmit_aa1' succeeded\n"
    lost = (
        "2025-11-19 03:07:06,100 WARNING worker.py:2107 -- The node with node id: 77aa and address:"
        " 10.3.0.3 and node"
        " name: 10.3.0.3 has been marked dead because the detector has missed too many heartbeats from it.\n"
    )
    assert judged_files(tmp_path / "behind", {"job.log": steps + success + lost}).cause == "none"
    before = judged_files(tmp_path / "before", {"job.log": steps + lost})
    assert (before.cause, ranks(before)) == ("peer_died", [1])


def test_an_error_in_the_source_of_a_call_is_not_raised(tmp_path: Path) -> None:
    trace = (
        'Traceback (most recent call last):\n  File "/app/dl.py", line 40, in fetch\n'
        '    raise ConnectionResetError(104, "Connection reset by peer")\n'
        "ConnectionResetError: [Errno 104] Connection reset by peer\n[dl] will retry 1/6\n[dl] ok after"
        " retry\n"
    )
    steps = "".join(f"epoch {epoch} loss 1.{epoch}\n" for epoch in range(20))
    logs = {
        "worker.out": steps + "finished\n",
        "worker.err": trace,
        "driver.log": "Job 'raysubmit_7' succeeded\n",
    }
    assert judged_files(tmp_path / "run", logs).cause == "none"


def test_chained_tracebacks_are_announced_together(tmp_path: Path) -> None:
    trace = (
        "WARNING:botocore.retry: retry 1/5 for s3://ft/batch-44\nTraceback (most recent call last):\n"
        '  File "/opt/urllib3/connectionpool.py", line 534, in _make_request\n    response ='
        " conn.getresponse()\n"
        "TimeoutError: The read operation timed out\n\nDuring handling of the above exception, another"
        " exception"
        ' occurred:\n\nTraceback (most recent call last):\n  File "/opt/botocore/httpsession.py", line'
        " 464, in send\n"
        "    urllib_response = conn.urlopen(\nbotocore.exceptions.ReadTimeoutError: Read timeout on"
        " endpoint URL\n"
    )
    steps = "".join(f"[rank0] epoch {epoch} loss 1.{epoch}\n" for epoch in range(9))
    assert judged_files(tmp_path / "warned", {"job.log": steps + trace}).cause in ("none", "undetermined")
    bare = trace.partition("\n")[2]
    assert judged_files(tmp_path / "bare", {"job.log": steps + bare}).cause == "user_code_exception"
