"""Texts of bundles that are too long to look at each line: what is kept, and what they are taken for."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pastes import DMESG, PASTES

from nodedoctor.intake import long_texts
from nodedoctor.intake.inputs import Unit
from nodedoctor.intake.long_texts import LongText, outputs_in
from nodedoctor.intake.sections import LONGEST_LINE, bug_report_sections

RULE = "_" * 44
HEAD = "Start of NVIDIA bug report log file.\n\nuname: Linux gpu-07 5.15.0 #1 SMP x86_64 GNU/Linux\n\n"
FAULT = "[    5.000000] NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.\n"
NOISE = (
    "[{0:12d}.000001] NVRM: nvAssertFailedNoLog: Assertion failed: pBus @ bus.c:{0}\n",
    "[{0:12d}.000001] IPv6: ADDRCONF(NETDEV_CHANGE): veth{0}: link becomes ready\n",
    "Oct 30 08:00:00 gpu-07 kernel: [{0:9d}.000001] nvidia-nvlink: {0}\n",
)
DUMPS = (
    '[{0}]\t"H-{0:012x}"[1]({0:x}) \t\t# "gpu-node mlx5_0" lid {0} 4xNDR\n',
    "0x{0:08x} 0x{0:08x}\n",
    "bm9kZWRvY3RvciBpcyBubyB0b29s{0:048d}\n",
)


PROBES = ("ibstat", "nvidia-smi-q", "lspci")


def sections(text: str) -> list[Unit]:
    file = io.BytesIO(text.encode())
    return list(bug_report_sections("report", file.read(65536), file.read, Unit))


def many(line: str, size: int) -> str:
    return "".join(line.format(number) for number in range(size // len(line.format(0)) + 1))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("before", [0, 20 << 20])
def test_a_flood_does_not_push_out_the_fault_before_it(noise: str, before: int):
    text = f"{HEAD}{RULE}\n\ndmesg:\n\n{many(noise, before)}{FAULT}{many(noise, 24 << 20)}\n{RULE}\n\nEnd\n"
    _, log, _ = sections(text)
    assert len(log.text) <= 17 << 20 and log.is_cut
    (piece,) = outputs_in(log.text, is_cut=log.is_cut).pieces
    assert piece.shape.probe == "kernel-log"
    assert FAULT in piece.text


@pytest.mark.slow
@pytest.mark.parametrize("dump", DUMPS)
@pytest.mark.parametrize(
    ("size", "probe"), [(size, probe) for size in (50 << 10, 20 << 20) for probe in PROBES]
)
def test_an_output_with_a_long_dump_behind_it_is_found(dump: str, size: int, probe: str):
    end = "Oct 30 08:00:00 gpu-07 kernel: NVRM: Xid (PCI:0000:5d:00): 79, fallen off the bus.\n"
    text = f"{HEAD}{RULE}\n\n/usr/sbin/tool\n\n{PASTES[probe]}\n\n{many(dump, size)}{end}{RULE}\n\nEnd\n"
    unit = sections(text)[1]
    found = outputs_in(unit.text, is_cut=unit.is_cut)
    assert [piece.shape.probe for piece in found.pieces] == [probe, "kernel-log"]


@pytest.mark.parametrize("dump", DUMPS)
def test_a_dump_is_nothing_and_costs_no_look_at_each_line(dump: str):
    assert outputs_in(many(dump, 300 << 10)).pieces == ()


def test_the_hex_dump_of_lspci_is_of_one_output():
    rows = "".join(
        f"{at:02x}: " + " ".join(f"{(at + n) % 256:02x}" for n in range(16)) + "\n"
        for at in range(0, 256, 16)
    )
    entries = PASTES["lspci"].rstrip("\n").split("\n\n")
    text = "\n\n".join(f"{entry}\n{rows}".rstrip("\n") for entry in entries) + "\n"
    assert [piece.shape.probe for piece in outputs_in(text).pieces] == ["lspci"]


@given(
    st.lists(st.binary(max_size=40) | st.sampled_from([b"\n", FAULT.encode()]), max_size=60), st.booleans()
)
@settings(max_examples=25)
def test_any_pieces_keep_their_count_of_lines_and_a_bound(pieces: list[bytes], kernel: bool):
    text = LongText(is_kernel=kernel)
    for piece in pieces:
        text.add(piece * 20_000)
    assert text.lines == sum(piece.count(b"\n") for piece in pieces) * 20_000
    assert len(text.data()) <= 2 * long_texts._LONG + 20_000 * 80
    assert text.is_cut or text.data() == b"".join(piece * 20_000 for piece in pieces)


def test_a_line_without_an_end_is_cut_and_the_section_behind_it_found():
    text = f"{HEAD}{RULE}\n\ndump\n{'abcdefgh ' * (5 * LONGEST_LINE)}\n{RULE}\n\ndmesg:\n\n{DMESG}"
    units = sections(text)
    assert max(len(unit.text) for unit in units) <= 20 << 20
    assert [piece.shape.probe for unit in units for piece in outputs_in(unit.text).pieces] == ["kernel-log"]
    assert units[-1].line == text[: text.rindex(RULE)].count("\n") + 2
