"""What holds of any kernel log: harmless lines change nothing, and a program's error never fails a node."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest
from asking import judge, said
from hypothesis import given, settings
from hypothesis import strategies as st

from nodedoctor.facts.kernel.kernel_log import KernelLog
from nodedoctor.knowledge.xids import xids
from nodedoctor.model import Moment, Severity, Unseen

NOW = Moment(datetime(2026, 11, 21, 12, tzinfo=timezone.utc), None)
ON_HOST = Unseen("missing-tool", "not asked")
CHECKS = tuple(f"kernel.{name}" for name in ("xid", "sxid", "driver", "nic", "pcie", "iommu", "memory"))
LOGS = sorted((Path(__file__).parents[2] / "nodes").glob("*/probes/kernel-log.txt"))
OF_PROGRAMS = [row.xid for row in xids() if row.of_program]
PREFIXES = st.sampled_from(
    (
        "",
        "<3>",
        "> ",
        "[  812.301220] ",
        "[  812.301220] [ T1946] ",
        "[Sat Oct 10 09:14:02 2026] ",
        "Oct 10 09:14:02 node kernel: ",
        "2026-10-10T09:14:02+0000 node kernel: ",
        "2026-10-10T09:14:02,250000+02:00 ",
        "kern  :err   : [  812.301220] ",
    )
)
HARMLESS = (
    "NVRM: Xid (PCI:0000:f1:00): 31, pid=771, name=law, Ch 00000008, intr 00000000. MMU Fault",
    "NVRM: Xid (PCI:0000:f1:00): 43, pid=771, name=law, Ch 00000008",
    "NVRM: Xid (PCI:0000:f1:00): 13, pid=771, name=law, Graphics SM Warp Exception on (GPC 2, TPC 5, SM 1)",
    "NVRM: API mismatch: the client 'nvidia-gridd' (pid 9) has the version 1.0, but this kernel module has",
    "mlx5_core 0000:f2:00.0 ens9np0: Link up",
    "mlx5_core 0000:f2:00.0 mlx5_9: Port: 1 Link ACTIVE",
    "NVRM: rpcRmApiControl_GSP: GspRmControl failed: status=0x00000056",
    "nvidia-uvm: Loaded the UVM driver, major device number 508.",
    "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
)


def statuses(text: str) -> dict[str, Severity]:
    """The worst of each check, a note as good as silence."""
    log = KernelLog.parse(said(text), ON_HOST)
    assert isinstance(log, KernelLog)
    found = {check: max(one.severity for one in judge(check, log, NOW)) for check in CHECKS}
    return {check: worst for check, worst in found.items() if worst > Severity.BLIND}


def lengthened(text: str, line: str) -> str:
    """The log with one more line at its end, of the document of our own probe or of a paste."""
    try:
        document = json.loads(text)
    except ValueError:
        return f"{text.rstrip()}\n{line}\n"
    return json.dumps({**document, "text": f"{document.get('text', '').rstrip()}\n{line}\n"})


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parents[1].name)
def test_a_harmless_line_changes_no_status_of_a_recorded_log(path: Path):
    text = path.read_text()
    if not isinstance(KernelLog.parse(said(text), ON_HOST), KernelLog):
        return
    before = statuses(text)
    for line in HARMLESS:
        assert statuses(lengthened(text, f"[99999.000001] {line}")) == before, line


@settings(deadline=None)
@given(
    code=st.sampled_from(OF_PROGRAMS),
    prefix=PREFIXES,
    owner=st.sampled_from(("", "pid=7, name=python3, ", "pid=7, ", "pid='<unknown>', name=<unknown>, ")),
    times=st.integers(1, 40),
    buses=st.lists(st.integers(0, 255), min_size=1, max_size=8, unique=True),
)
def test_an_error_of_one_program_is_never_more_than_a_note(
    code: int, prefix: str, owner: str, times: int, buses: list[int]
):
    lines = [f"{prefix}NVRM: Xid (PCI:0000:{bus:02x}:00): {code}, {owner}Ch 00000008" for bus in buses]
    assert statuses("\n".join(lines * times) + "\n") == {}


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(OF_PROGRAMS), st.integers(1, 9), PREFIXES), min_size=1, max_size=30)
)
def test_errors_of_programs_never_fail_a_node(events: list[tuple[int, int, str]]):
    lines = [
        f"{prefix}NVRM: Xid (PCI:0000:3b:00): {code}, pid={pid}, name=p{pid}, Ch 1"
        for code, pid, prefix in events
    ]
    assert Severity.FAIL not in statuses("\n".join(lines) + "\n").values()


@settings(deadline=None)
@given(prefix=PREFIXES, times=st.integers(3, 30))
def test_a_link_that_flaps_is_seen_in_every_form_of_log(prefix: str, times: int):
    lines = (
        f"{prefix}mlx5_core 0000:5e:00.0 mlx5_2: Port: 1 Link {way}" for way in ("DOWN", "ACTIVE") * times
    )
    assert statuses("\n".join(lines) + "\n") == {"kernel.nic": Severity.WARN}
