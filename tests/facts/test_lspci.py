"""`lspci -vv` as people paste it: whole, with ids, quoted in a mail, cut, or not lspci at all."""

from __future__ import annotations

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
