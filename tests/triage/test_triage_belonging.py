"""What a folder says of other jobs, nodes and pods decides nothing about the job of its logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, raised

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.lines.join import broken_width
from nodedoctor.triage.verdict.result import TriageResult

START = (
    "{host}:90{rank}:90{rank} [{local}] NCCL INFO ncclCommInitRankConfig comm 0x5 rank {rank} nranks 4"
    " cudaDev {local} nvmlDev {local} busId {local}b000 - Init COMPLETE\n"
)
STEP = "2026-11-21 09:{minute:02d}:00,000 INFO train: rank={rank} step={step} loss=2.{step:03d}\n"
ERROR = "ValueError: negative weight"
DONE = "2026-11-21 09:40:00,000 INFO train: done, total 30 steps\n"
KERNEL = (
    "Nov 21 09:29:50 {host} kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=77123, name=python, GPU has fallen"
    " off the bus.\n",
    "Nov 21 09:29:50 {host} kernel: mlx5_core 0000:5e:00.0 ens2np0: Link down\n",
    "Nov 21 09:29:50 {host} kernel: Kernel panic - not syncing: Fatal exception\n",
    "2m   Normal   NodeNotReady   node/{host}   Node {host} status is now: NodeNotReady\n",
)


def write_logs(folder: Path, hosts: list[str], last: dict[int, str], name: str = "rank{}.log") -> None:
    """The logs of four ranks on these hosts, in turn."""
    for rank in range(4):
        host, local = hosts[rank * len(hosts) // 4], rank % (4 // len(hosts))
        rows = "".join(STEP.format(minute=n, rank=rank, step=n) for n in range(30))
        text = START.format(host=host, rank=rank, local=local) + rows + last.get(rank, "")
        (folder / name.format(rank)).write_text(text)


def judged_with(folder: Path, name: str, text: str) -> TriageResult:
    (folder / name).write_text(text)
    return examine_job([str(folder)])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("hosts", [["gn1"], ["gn1", "gn2"]])
@pytest.mark.parametrize("report", KERNEL)
def test_a_node_on_which_no_rank_is_decides_nothing(hosts: list[str], report: str, tmp_path: Path) -> None:
    write_logs(tmp_path, hosts, {2: raised(2, ERROR)})
    examined = judged_with(tmp_path, "cluster.txt", report.format(host="gn9"))
    assert examined.verdict.cause == "user_code_exception" and culprits(examined) == [2]
    assert all(who.host != "gn9" for who in examined.verdict.culprits)
    assert any(
        "gn9" in error.event.text or error.event.who.host == "gn9" for error in examined.verdict.also_seen
    )


def test_a_node_of_the_job_is_heard(tmp_path: Path) -> None:
    write_logs(tmp_path, ["gn1", "gn2"], {0: caught(0), 1: caught(1)})
    examined = judged_with(tmp_path, "cluster.txt", KERNEL[0].format(host="gn2"))
    assert examined.verdict.cause == "gpu_hardware_xid"
    assert {who.host for who in examined.verdict.culprits} == {"gn2"}


@pytest.mark.parametrize("report", KERNEL)
def test_a_node_is_heard_where_the_host_of_a_rank_is_unknown(report: str, tmp_path: Path) -> None:
    """It may be the node of the rank that left no log."""
    write_logs(tmp_path, ["gn1", "gn2"], {0: caught(0), 1: caught(1)})
    for rank in (2, 3):
        (tmp_path / f"rank{rank}.log").unlink()
    assert judged_with(tmp_path, "cluster.txt", report.format(host="gn9")).verdict.outcome == "failure"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dated", [True, False])
@pytest.mark.parametrize("report", KERNEL)
def test_what_is_beside_a_good_end_is_no_failure(report: str, dated: bool, tmp_path: Path) -> None:
    text = report.format(host="far-pool-3")
    text = text if dated else "[   9.712] " + text.partition("kernel: ")[2] if "kernel: " in text else text
    write_logs(tmp_path, ["gn1"], dict.fromkeys(range(4), DONE))
    assert judged_with(tmp_path, "dmesg.txt", text).verdict.outcome == "clean"
    write_logs(tmp_path, ["gn1"], {**dict.fromkeys(range(4), DONE), 1: raised(1, ERROR)})
    assert examine_job([str(tmp_path)]).verdict.outcome == "failure"


ACCOUNTS = (
    "{job:<12} {name:<8} {state:>10}      1:0      gn1\n",
    "{job}|{name}|{name}|8|{state}|1:0\n",
    "{job}.batch   {name}    {state:>10}      1:0      gn1\n",
    "slurmctld: {name} JobId={job} WEXITSTATUS 1, {state}\n",
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("state", ["FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "OUT_OF_ME+", "CANCELLED"])
@pytest.mark.parametrize("account", ACCOUNTS)
def test_the_account_of_another_job_decides_nothing(account: str, state: str, tmp_path: Path) -> None:
    text = "JobID        JobName  State ExitCode NodeList\n"
    others = {5498: "sft", 5501: "eval", 5507: "rm.long"}
    text += "".join(account.format(job=job, name=name, state=state) for job, name in others.items())
    text += (
        account.format(job=5512, name="grpo", state="COMPLETED")
        .replace("1:0", "0:0")
        .replace("STATUS 1", "STATUS 0")
    )
    rows = "".join(STEP.format(minute=n, rank=0, step=n) for n in range(30))
    (tmp_path / "slurm-5512.out").write_text(rows)
    assert judged_with(tmp_path, "sacct.txt", text).verdict.outcome == "clean"
    (tmp_path / "slurm-5512.out").write_text(rows + raised(0, ERROR))
    assert examine_job([str(tmp_path)]).verdict.cause == "user_code_exception"


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("state", ["OOMKilled", "CrashLoopBackOff", "ImagePullBackOff"])
def test_a_pod_that_is_none_of_the_job_decides_nothing(state: str, wide: bool, tmp_path: Path) -> None:
    pods = [("ml", f"sft-worker-{n}", "Error") for n in (0, 1)]
    pods += [("tools", "loki-2", state), ("tools", "grafana-0", state), ("web", "shop-7", "Running")]
    rows = [f"{space:<12} {pod:<20} 0/1     {mood:<18} 3          9d" for space, pod, mood in pods]
    rows = [f"{row}    gke-{n}" if wide else row for n, row in enumerate(rows)]
    hosts = ["sft-worker-0", "sft-worker-1"]
    write_logs(tmp_path, hosts, {1: raised(1, ERROR)})
    examined = judged_with(tmp_path, "pods.txt", "\n".join(rows) + "\n")
    assert examined.verdict.cause == "user_code_exception" and culprits(examined) == [1]
    write_logs(tmp_path, hosts, {0: caught(0), 1: caught(1)})
    own = "\n".join(rows).replace("Error", state, 2) + "\n"
    assert judged_with(tmp_path, "pods.txt", own).verdict.outcome in ("failure", "undetermined")


def test_rows_of_a_table_are_no_broken_line() -> None:
    rows = [
        f"{name:<12} {name:<20}   0/1     {'Error':<18} 3          9d   gke-{n}"
        for n, name in enumerate("abcde")
    ]
    assert broken_width(["NAMESPACE    NAME", *rows]) == 0


PAGES = ("runbook.txt", "docs/RUNBOOK.md", "gpu_playbook.txt", "troubleshooting.txt", "known-issues.txt")
RULES = (
    "Known problems:\n 1. Xid 79: GPU has fallen off the bus -> drain\n"
    " 2. NCCL WARN Cuda failure -> see wiki\n"
)
CHANGES = ("git-info.log", "exp__git-info.log", "git_diff.txt", "diff.patch", "code_diff.log", "change.diff")
CHANGE = (
    'diff --git a/x b/x\n-    raise RuntimeError("CUDA out of memory")\n+    raise ValueError("bad shape")\n'
)
HELPERS = (
    "dashboard_agent.log",
    "logs__dashboard_agent.log",
    "dashboard.log",
    "log_monitor.err",
    "agent-424238335.out",
)
HELPER = (
    "2026-11-21 09:10:00,001 ERROR reporter_agent.py:901 -- Error publishing node physical stats.\n"
    'Traceback (most recent call last):\n  File "/opt/ray/dashboard/reporter_agent.py", line 884, in _run\n'
    "    use = await self._use()\npynvml.NVMLError_FunctionNotFound: Function Not Found\n"
)
TEXTS = {RULES: PAGES, CHANGE: CHANGES, HELPER: HELPERS}
BESIDE = [(name, text) for text, names in TEXTS.items() for name in names]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("last", [{}, dict.fromkeys(range(4), DONE), {3: raised(3, ERROR)}])
@pytest.mark.parametrize(("name", "text"), BESIDE)
def test_pages_changes_and_helpers_decide_nothing(
    name: str, text: str, last: dict[int, str], tmp_path: Path
) -> None:
    write_logs(tmp_path, ["gn1"], last)
    alone = examine_job([str(tmp_path)]).verdict
    (tmp_path / name).parent.mkdir(exist_ok=True)
    beside = judged_with(tmp_path, name, text).verdict
    assert (beside.outcome, beside.cause) == (alone.outcome, alone.cause)
    assert alone.outcome == ("failure" if 3 in last and "Error" in last[3] else "clean")
