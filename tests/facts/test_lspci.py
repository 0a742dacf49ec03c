"""`lspci -vv` as people paste it: whole, with ids, quoted in a mail, cut, or not lspci at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.facts.pci.lspci import Lspci
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
