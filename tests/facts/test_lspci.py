"""`lspci -vv` as people paste it: whole, with ids, quoted in a mail, cut, or not lspci at all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import alarms, replay

from nodedoctor.facts.pci.lspci import Lspci
from nodedoctor.intake.outputs import NodeOutput, snapshot_of
from nodedoctor.intake.split import split
from nodedoctor.model import Observation, Unseen

GPU = """18:00.0 3D controller{ids}: NVIDIA Corporation GH100 [H100 SXM5 80GB]{id} (rev a1)
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x8 (downgraded)
\tKernel driver in use: nvidia
"""


def parse(text: str) -> Lspci | Unseen:
    return Lspci.parse(Observation("lspci", text=text))


def test_a_device_is_read_with_and_without_ids_and_in_a_mail():
    plain = GPU.format(ids="", id="")
    for text in (plain, GPU.format(ids=" [0302]", id=" [10de:2330]"), plain.replace("\n", "\n> ")):
        told = parse(text)
        assert isinstance(told, Lspci)
        (device,) = told.devices
        assert device.address == "0000:18:00.0" and device.is_gpu and device.link is not None
        assert (device.link.width, device.link.max_width, device.link.speed_gts) == (8, 16, 2.5)


def test_a_block_without_its_links_state_is_left_out():
    assert isinstance(parse(GPU.format(ids="", id="").partition("\t\tLnkSta")[0]), Unseen)


@given(st.text(max_size=300))
def test_no_text_makes_it_raise(text: str):
    assert isinstance(parse(text), Lspci | Unseen)


def bus(*states: str, kind: str = "3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)") -> str:
    """Lines that `grep -E '^[0-9a-f]|LnkSta:'` leaves of `lspci -vv`."""
    return "".join(
        f"{slot + 16:02x}:00.0 {kind}\n\t\tLnkSta:\tSpeed {state}\n" for slot, state in enumerate(states)
    )


NIC = "Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]"
MODULE = "3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)"
CARD = "3D controller: NVIDIA Corporation AD102GL [L40S] (rev a1)"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("mark", [" (downgraded)", ""])
@pytest.mark.parametrize("others", ["", " (ok)"])
@pytest.mark.parametrize("odd", [0, 3])
@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("kind", [NIC, CARD])
def test_one_of_many_with_fewer_lanes_fails_without_lnkcap(
    tmp_path: Path, mark: str, others: str, odd: int, lanes: int, kind: str
):
    states = [f"32GT/s, Width x{lanes}{mark}" if n == odd else f"32GT/s, Width x16{others}" for n in range(4)]
    (alarm,) = alarms(replay(tmp_path, {"lspci": bus(*states, kind=kind)}))
    assert f"FAIL pcie.width@pci:0000:{odd + 16:02x}:00.0" in alarm and f"x{lanes} of x16" in alarm


@pytest.mark.parametrize(
    ("states", "kind", "words"),
    [
        (("32GT/s, Width x16",) * 8, CARD, "not shown"),
        (("32GT/s (ok), Width x16 (ok)",) * 8, CARD, "8 devices at the expected width"),
        (("2.5GT/s (downgraded), Width x16 (ok)",) * 2, CARD, "2 devices at the expected width"),
        (("32GT/s, Width x8 (downgraded)",) * 2, CARD, "no wider slot known"),
        (("16GT/s, Width x8", "16GT/s, Width x16"), NIC, "no wider slot known"),
    ],
)
def test_what_a_link_can_do_is_not_expected_where_it_is_not_shown(
    tmp_path: Path, states: tuple[str, ...], kind: str, words: str
):
    report = replay(tmp_path, {"lspci": bus(*states, kind=kind)})
    assert alarms(report) == []
    (width,) = [result for result in report.results if result.check == "pcie.width"]
    assert any(words in finding.summary for finding in width.findings)
    assert ("expected" in words) == any("expected" in finding.summary for finding in width.findings)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", [NIC, CARD, MODULE])
@pytest.mark.parametrize("cap", [True, False])
@pytest.mark.parametrize("speed", ["16", "2.5"])
@pytest.mark.parametrize(("slow", "sick"), [(0, False), (1, True), (4, False), (8, False)])
def test_a_device_slower_than_its_kind_is_a_warning_and_an_idle_card_is_none(
    tmp_path: Path, kind: str, cap: bool, speed: str, slow: int, sick: bool
):
    states = [f"{speed}GT/s (downgraded), Width x16" if n < slow else "32GT/s, Width x16" for n in range(8)]
    text = bus(*states, kind=kind)
    text = (
        text.replace("\t\tLnkSta", "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n\t\tLnkSta")
        if cap
        else text
    )
    shown = alarms(replay(tmp_path, {"lspci": text}))
    assert [alarm.partition(": ")[0] for alarm in shown] == (
        ["WARN pcie.adapter-speed@pci:0000:10:00.0"] if sick and (kind, speed) != (CARD, "2.5") else []
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("speed", "sick"), [("2.5", True), ("5", True), ("8", True), ("16", False), ("32", False)]
)
@pytest.mark.parametrize("kind", [NIC, CARD, MODULE])
def test_an_adapter_alone_is_judged_by_its_own_maximum_and_a_gpu_by_its_load(
    tmp_path: Path, kind: str, speed: str, sick: bool
):
    text = bus(f"{speed}GT/s, Width x16", kind=kind)
    text = text.replace("\t\tLnkSta", "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n\t\tLnkSta")
    report = replay(tmp_path, {"lspci": text})
    assert bool(alarms(report)) is (sick and kind == NIC)
    (result,) = [result for result in report.results if result.check == "pcie.adapter-speed"]
    assert any("at full PCIe speed" in finding.summary for finding in result.findings) is (speed == "32")
    if kind == NIC:
        return
    for load, busy in (("P0, 100 %", True), ("P8, 0 %", False)):
        table = f"pci.bus_id, pstate, utilization.gpu [%]\n00000000:10:00.0, {load}\n"
        pieces = [NodeOutput(piece, "paste") for piece in split(f"{text}$ nvidia-smi\n{table}").pieces]
        seen = snapshot_of(pieces, "").observations
        shown = alarms(replay(tmp_path, {name: item.text for name, item in seen.items()}))
        assert bool(shown) is (busy and speed != "32")


UPSTREAM = (
    "0f:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)\n"
    "\tBus: primary=0e, secondary=10, subordinate=10\n"
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", [NIC, CARD])
@pytest.mark.parametrize(
    ("port", "state", "sick"),
    [
        ("32GT/s, Width x16", "16GT/s (downgraded), Width x8 (downgraded)", (True, True)),
        ("32GT/s, Width x16", "32GT/s (ok), Width x8 (downgraded)", (True, True)),
        ("32GT/s, Width x16", "16GT/s (downgraded), Width x16 (ok)", (True, False)),
        ("32GT/s, Width x16", "32GT/s (ok), Width x16 (ok)", (False, False)),
        ("16GT/s, Width x8", "16GT/s (downgraded), Width x8 (downgraded)", (False, False)),
        ("16GT/s, Width x16", "16GT/s (downgraded), Width x16 (ok)", (False, False)),
        ("8GT/s, Width x4", "8GT/s (downgraded), Width x4 (downgraded)", (False, False)),
        ("", "16GT/s (downgraded), Width x8 (downgraded)", (True, False)),
        ("", "32GT/s (ok), Width x4 (downgraded)", (True, False)),
        ("", "32GT/s (ok), Width x8 (downgraded)", (False, False)),
        ("", "16GT/s (downgraded), Width x16 (ok)", (False, False)),
    ],
)
def test_what_a_link_lacks_is_judged_by_the_port_above_it(
    tmp_path: Path, kind: str, port: str, state: str, sick: tuple[bool, bool]
):
    """Below what both ends can do is a fault, what the slot cannot do is none; idle GPUs slow down."""
    text = bus(state, kind=kind).replace(
        "\t\tLnkSta", "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n\t\tLnkSta"
    )
    above = f"{UPSTREAM}\t\tLnkCap:\tPort #1, Speed {port}\n\t\tLnkSta:\tSpeed {state}\n\n" if port else ""
    report = replay(tmp_path, {"lspci": above + text})
    assert bool(alarms(report)) is sick[kind == CARD], alarms(report)
    shown = [finding.summary for result in report.results for finding in result.findings]
    assert not (port and any("may be of that" in line or "no wider slot known" in line for line in shown))


def acs_lines(*states: str) -> str:
    """What `grep -i acsctl` leaves of `lspci -vvv`."""
    rest = "UpstreamFwd{0} EgressCtrl- DirectTrans-"
    return "".join(
        f"\t\tACSCtl:\tSrcValid{state} TransBlk- ReqRedir{state} CmpltRedir{state} {rest.format(state)}\n"
        for state in states
    )


@pytest.mark.parametrize(
    ("states", "words"),
    [("++-", "at 2 of 3 bridges"), ("---", "no ACS redirection at 3"), ("+", "at 1 of 1")],
)
def test_registers_without_their_bridges_are_read_and_accuse_none(tmp_path: Path, states: str, words: str):
    pieces = split(f"$ sudo lspci -vvv | grep -i acsctl\n{acs_lines(*states)}").pieces
    assert [piece.shape.probe for piece in pieces] == ["lspci"]
    report = replay(tmp_path, {"lspci": pieces[0].text})
    assert alarms(report) == []
    (result,) = [result for result in report.results if result.check == "pcie.acs"]
    assert words in result.findings[0].summary
    assert (result.findings[0].status.value == "unknown") is ("+" in states)


PORT = """16:0{0}.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)
\tBus: primary=16, secondary={1}, subordinate={1}, sec-latency=0
\tCapabilities: [68] Express (v2) Downstream Port (Slot+), MSI 00
"""


@pytest.mark.parametrize("ports", [1, 2, 3])
def test_what_is_below_switches_may_be_shown_by_a_short_list(tmp_path: Path, ports: int):
    """The bridges of `lspci -vvv`, and GPUs and adapters as `lspci` alone lists them."""
    text = "".join(PORT.format(n, 18 + n) + acs_lines("+") for n in range(ports))
    text += "".join(f"{18 + n}:00.0 {MODULE if n % 2 else NIC}\n" for n in range(ports))
    found = [alarm for alarm in alarms(replay(tmp_path, {"lspci": text})) if "pcie.acs" in alarm]
    assert len(found) == (ports > 1)
    disks = re.sub(r"(\d\d:00.0) .*", r"\1 Non-Volatile memory controller: Samsung NVMe SSD", text)
    assert alarms(replay(tmp_path, {"lspci": disks})) == []


def gpu_list(count: int, name: str = "NVIDIA H100 80GB HBM3") -> str:
    return "".join(
        f"GPU {n}: {name} (UUID: GPU-240306c2-24b6-d5b9-c1d2-bf5b8d72{n:04})\n" for n in range(count)
    )


DISPLAY = "02:00.0 VGA compatible controller: NVIDIA Corporation GT218 [GeForce 210] (rev a2)\n"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("state", ["32GT/s, Width x16", ""])
@pytest.mark.parametrize("display", ["", DISPLAY])
@pytest.mark.parametrize(
    ("listed", "on_bus", "ends", "sick"),
    [
        (7, 8, True, True),
        (3, 4, True, True),
        (5, 8, True, True),
        (7, 8, False, False),
        (8, 8, True, False),
        (8, 3, True, False),
        (4, 8, True, False),
        (2, 8, True, False),
        (1, 8, True, False),
    ],
)
def test_a_shorter_list_than_the_bus_is_a_lost_gpu(
    tmp_path: Path, state: str, display: str, listed: int, on_bus: int, ends: bool, sick: bool
):
    """A part that a job may have, or a list that may be cut off, is none."""
    seen = bus(*[state] * on_bus, kind=MODULE)
    seen = seen if state else re.sub(r"\t\t.*\n", "", seen)
    text = f"$ lspci\n{display}{seen}$ nvidia-smi -L\n{gpu_list(listed)}" + "$ \n" * ends
    pieces = [NodeOutput(piece, "paste") for piece in split(text).pieces]
    observations = snapshot_of(pieces, "").observations
    assert {"lspci", "nvidia-smi-list"} <= {*observations}
    found = alarms(replay(tmp_path, {name: item.text for name, item in observations.items()}))
    expected = f"FAIL driver.list-complete@: the driver lists {listed} GPUs, {on_bus} are on the PCI bus"
    assert [alarm.partition(": 1 ")[0].partition(": 3 ")[0] for alarm in found] == [expected] * sick


def test_virtual_functions_are_not_counted_as_gpus(tmp_path: Path):
    text = bus(*["32GT/s, Width x16"] * 3, kind=CARD).replace("12:00.0", "11:00.4")
    report = replay(tmp_path, {"lspci": text, "nvidia-smi-list": gpu_list(2)})
    assert alarms(report) == []
