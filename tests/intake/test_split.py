"""Outputs are recognised however they were pasted, and come apart where one ends and the next begins."""

from __future__ import annotations

import re

import pytest
import smi_texts
from hypothesis import given
from hypothesis import strategies as st
from in_turn import in_turn
from pastes import PASTES, WAYS

from nodedoctor.intake.all_shapes import SHAPES
from nodedoctor.intake.split import Piece, plain_lines, split
from nodedoctor.intake.wrapped_rows import join_rank_lines, join_window


def kinds(text: str) -> list[str]:
    return [piece.shape.probe for piece in split(text).pieces]


def words(piece: Piece) -> list[str]:
    """What a parser goes by: the words, without the blanks that screens and pages change."""
    return re.sub(r"^\S{3} \d\d \S+ \S+ |^\S+Z ", "", piece.text).split()


@pytest.mark.slow
@in_turn("probe", PASTES)
@in_turn("way", WAYS)
def test_an_output_is_recognised_however_it_is_pasted(probe: str, way: str):
    (plain,) = split(PASTES[probe]).pieces
    (pasted,) = split(WAYS[way](PASTES[probe])).pieces
    assert plain.shape.probe == pasted.shape.probe == probe
    assert words(plain) == words(pasted)


def broken(text: str, width: int, *, keeps_blanks: bool) -> str:
    """The text as a mail or a window of this width breaks it."""
    lines: list[str] = []
    for line in text.splitlines():
        cut = [line[start : start + width] for start in range(0, len(line), width)] or [""]
        lines += cut if keeps_blanks else [part.rstrip() for part in cut]
    return "".join(f"{line}\n" for line in lines)


STAMPS = [
    "Jan 20 14:0{0}:11 gpu-09 kernel: ",
    "[Mon Jan 20 14:0{0}:11 2025] ",
    "[  81{0}.300003] ",
    "2025-01-20T14:0{0}:11+0000 gpu-09 kernel: ",
]
BUS_ERRORS = (
    "pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error message received from 0000:43:00.0, as it says",
    "nvidia 0000:43:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver)",
    "nvidia 0000:43:00.0:   device [10de:2330] error status/mask=00004000/00400000",
    "nvidia 0000:43:00.0: [14] CmpltTO",
)


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("width", [70, 80, 96, 100])
@pytest.mark.parametrize("mark", ["", "> "])
@pytest.mark.parametrize("above", ["", "root@gpu-09:~# dmesg -T\n", "our node:\n"])
def test_lines_of_the_kernels_log_that_were_broken_are_joined(stamp: str, width: int, mark: str, above: str):
    log = "".join(f"{stamp.format(second)}{line}\n" for second, line in enumerate(BUS_ERRORS))
    wrapped = broken(log, width, keeps_blanks=False)
    parts = split(above + "".join(f"{mark}{line}\n" for line in wrapped.splitlines()) + "$ uptime\nup\n")
    (piece,) = parts.pieces
    assert piece.shape.probe == "kernel-log" and piece.text == log
    assert [line for _, line in parts.rest if "uptime" not in line][-1] == "up"


@pytest.mark.parametrize("stamp", STAMPS)
def test_what_follows_a_log_that_was_not_broken_is_left_alone(stamp: str):
    lines = [f"{stamp.format(second)}nvidia 0000:43:00.0: [14] CmpltTO" for second in range(3)]
    text = "\n".join([*lines, "NVRM: a message without a time", *lines[:1], "is this a fault?", ""])
    assert "".join(piece.text for piece in split(text).pieces).count("is this") == 0


@pytest.mark.parametrize("keeps_blanks", [True, False])
@pytest.mark.parametrize("width", [30, 40, 64, 72, 78, 80])
@pytest.mark.parametrize("above", ["", "$ nvidia-smi\n", "our node, see below:\n\n"])
def test_rows_of_a_table_that_were_broken_are_joined(width: int, keeps_blanks: bool, above: str):
    rows = [smi_texts.row(number, bus=f"00000000:{number + 17:02X}:00.0") for number in range(8)]
    table = smi_texts.table(*rows)
    (plain,) = split(table).pieces
    text = f"{above}{broken(table, width, keeps_blanks=keeps_blanks)}$ uptime\nbehind it\n"
    parts = split(text)
    (pasted,) = parts.pieces
    assert words(pasted) == words(plain)
    lines = text.splitlines()
    assert parts.rest[-1] == (len(lines), "behind it")
    assert lines[pasted.line - 1][:10] == table[:10]


@pytest.mark.parametrize(
    ("prompt", "host"),
    [
        ("\u279c  ~ ", ""),
        ("\u279c  serve git:(main) \u2717 ", ""),
        ("\u279c  serve git:(a/b) ", ""),
        ("gpu-7:~ # ", "gpu-7"),
        ("gpu-7:/var/log # ", "gpu-7"),
        ("gpu-7:/home/me> ", "gpu-7"),
    ],
)
@pytest.mark.parametrize("command", ["ibstat", "dmesg | tail -5", "cat /proc/cmdline"])
def test_prompts_of_themes_and_distributions_are_no_output(prompt: str, host: str, command: str):
    parts = split(f"{prompt}{command}\n{PASTES['ibstat']}{prompt}ls\n")
    assert [(piece.shape.probe, piece.host) for piece in parts.pieces] == [("ibstat", host)]
    assert parts.rest == ()


@pytest.mark.parametrize("line", ["\u279c see the table below", "step:/a # of 10", "disk:/data> 90%"])
def test_arrows_and_paths_alone_are_no_prompt(line: str):
    assert [text for _, text in split(f"{line}\n").rest] == [line]


def test_each_probe_of_the_table_has_a_paste():
    assert {shape.probe for shape in SHAPES} - {""} == set(PASTES)


def test_each_probe_of_the_table_tells_of_something():
    assert [shape.probe for shape in SHAPES if shape.probe and not shape.about] == []


@given(st.lists(st.sampled_from(sorted(PASTES)), min_size=1, max_size=5), st.sampled_from(sorted(WAYS)))
def test_several_outputs_in_one_text_come_apart(probes: list[str], way: str):
    text = "".join(f"root@gpu-7:~# cat {number}\n{PASTES[probe]}\n" for number, probe in enumerate(probes))
    assert kinds(WAYS[way](text)) == probes


@pytest.mark.parametrize("way", ["as it is", "quoted", "behind a logger's prefix", "coloured"])
def test_outputs_without_anything_between_them_come_apart(way: str):
    text = "".join(PASTES.values())
    found = kinds(WAYS[way](text))
    assert set(found) == set(PASTES)


@given(st.text(max_size=400))
def test_any_text_is_taken_apart_and_no_line_is_lost_or_made_up(text: str):
    parts = split(text)
    assert len(parts.rest) <= len(text.split("\n"))
    assert all(1 <= number <= len(text.split("\n")) for number, _ in parts.rest)


@given(st.sampled_from(sorted(PASTES)), st.integers(0, 400), st.integers(0, 400))
def test_a_piece_of_an_output_is_nothing_else(probe: str, first: int, length: int):
    text = PASTES[probe]
    alike = {"collect-env": {"pip-list"}, "ethtool": {"priority-counters"}, "docker-inspect": {"env"}}
    assert set(kinds(text[first : first + length])) <= {probe, "", *alike.get(probe, ())}


@in_turn("probe", PASTES)
@in_turn("fence", ["```", "~~~", "````"])
def test_a_fence_ends_an_output_and_is_nothing_itself(probe: str, fence: str):
    parts = split(f"{fence}\n{PASTES[probe]}{fence}\nthank you all\n")
    assert [piece.shape.probe for piece in parts.pieces] == [probe]
    assert [line for _, line in parts.rest] == ["thank you all"]


JOB_LINES = [
    "step 100: loss 2.31, 1.2 s/it",
    "gpu1:501:501 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB eth0:10.0.3.4<0>",
    "[rank0]:[W1127 09:19:21.123456789 ProcessGroupNCCL.cpp:1427] Warning: destroy_process_group() was not",
    "INFO 04-01 10:00:01 [__init__.py:216] Automatically detected platform cuda.",
    "batch_size: 2",
    "| epoch 1 | lr 0.1 |",
    "Traceback (most recent call last):",
    '  File "train.py", line 10, in <module>',
    "torch.OutOfMemoryError: CUDA out of memory. GPU 0 has a total capacity of 79.15 GiB",
    "name, value, other",
    "gpu 3 is the slowest",
    "device: NVIDIA H100 80GB HBM3",
]


@given(st.lists(st.sampled_from(JOB_LINES), min_size=1, max_size=40))
def test_a_jobs_log_holds_no_output(lines: list[str]):
    assert split("\n".join(lines)).pieces == ()


def test_a_jobs_log_that_prints_an_output_keeps_its_own_lines():
    text = f"starting\n{PASTES['nvidia-smi']}" + "".join(f"{line}\n" for line in JOB_LINES)
    parts = split(text)
    assert [piece.shape.probe for piece in parts.pieces] == ["nvidia-smi"]
    assert [line for _, line in parts.rest] == ["starting", *JOB_LINES]


LOG = (
    "node1:41:42 [0] transport/net_ib.cc:745 NCCL WARN Call to ibv_reg_mr_iova2 failed\n"
    "Traceback (most recent call last):\n"
    '  File "train.py", line 10, in <module>\n'
    "RuntimeError: NCCL error\n"
)
SIGNS = [
    "$ tail -4 train.log",
    "# tail -4 train.log",
    "gpu-7$ tail -4 train.log",
    "[gpu-7] $ tail -4 train.log",
    "",
]


@in_turn("probe", PASTES)
@in_turn("sign", SIGNS)
def test_no_output_swallows_the_log_behind_a_prompt_or_a_blank_line(probe: str, sign: str):
    parts = split(f"{PASTES[probe]}{sign}\n{LOG}")
    assert [piece.shape.probe for piece in parts.pieces] == [probe]
    assert [line for _, line in parts.rest] == LOG.splitlines()


@pytest.mark.parametrize("error", ["No devices were found", "Failed to initialize NVML: Unknown Error"])
@pytest.mark.parametrize("behind", ["$ lspci | grep -c 3D\n8", "8", "\n22:11 up 41 days", ""])
def test_an_error_of_nvidia_smi_is_recognised_whatever_is_behind_it(error: str, behind: str):
    assert kinds(f"$ nvidia-smi\n{error}\n{behind}\n") == ["nvidia-smi"]


@given(st.integers(1, 4), st.integers(2, 5), st.sampled_from(["$ ", "root@gpu-7:~# ", "", "gpu-7$ "]))
def test_rows_without_their_heading_have_the_columns_of_the_command(count: int, columns: int, sign: str):
    names = ["index", "temperature.gpu", "pstate", "pcie.link.width.max", "memory.used"][:columns]
    rows = "".join(f"{', '.join(map(str, range(row, row + columns)))}\n" for row in range(count))
    command = f"nvidia-smi --query-gpu={','.join(names)} --format=csv,noheader,nounits"
    (piece,) = split(f"{sign}{command}\n{rows}\nthank you\n").pieces
    assert piece.text == f"{', '.join(names)}\n{rows}"


def test_what_a_command_says_of_itself_is_no_jobs_line():
    text = "$ ls /sys/kernel/mm\nls: cannot access '/sys/kernel/mm': no such file\n$ foo\nbash: foo: no\n"
    parts = split(text)
    assert (parts.rest, [number for number, _ in parts.asides]) == ((), [2, 4])
    assert [line for _, line in split("$ torchrun train.py\ntorchrun: error: no such option\n").rest]


@given(st.integers(1, 60), st.integers(3, 30))
def test_numbers_that_are_of_the_lines_only_where_they_go_up_by_one(first: int, count: int):
    lines = [f"CPU {number}" for number in range(count)]
    numbered = "".join(f"{number:6}\t{line}\n" for number, line in enumerate(lines, first))
    assert plain_lines(numbered) == [*lines, ""]
    twice = "".join(f"{first}\t{line}\n" for line in lines)
    assert plain_lines(twice) == twice.split("\n")


def test_a_list_of_gpus_is_recognised_though_no_probe_reads_it():
    gpus = "".join(f"GPU {n}: NVIDIA H100 80GB HBM3 (UUID: GPU-{n}aaaa-bb)\n" for n in range(8))
    (piece,) = split(gpus).pieces
    assert (piece.shape.what, piece.text) == ("nvidia-smi -L", gpus)


def test_a_sentence_about_an_output_is_none():
    said = "Our node says GPU 0: NVIDIA H100 (UUID: GPU-1) and nothing more, see NVIDIA-SMI 550.90 for it\n"
    assert split(said).pieces == ()


def test_the_node_is_named_by_the_prompt_that_stands_before_an_output():
    text = f"root@gpu-1:~# nvidia-smi\n{PASTES['nvidia-smi']}root@gpu-2:~# ibstat\n{PASTES['ibstat']}"
    assert [(piece.shape.probe, piece.host) for piece in split(text).pieces] == [
        ("nvidia-smi", "gpu-1"),
        ("ibstat", "gpu-2"),
    ]


def test_lines_of_two_nodes_are_put_together_by_the_names_in_front():
    both = zip(PASTES["ibstat"].splitlines(), PASTES["ibstat"].splitlines(), strict=True)
    text = "".join(f"gpu-1: {one}\ngpu-2: {two}\n" for one, two in both)
    assert [(piece.host, piece.text) for piece in split(text).pieces] == [
        ("gpu-1", PASTES["ibstat"]),
        ("gpu-2", PASTES["ibstat"]),
    ]


def test_the_line_at_which_an_output_begins_is_told():
    parts = split(f"hello\n\n```\n{PASTES['ibstat']}```\nand\n{PASTES['env']}")
    assert [piece.line for piece in parts.pieces] == [4, 34]


FILLED = st.lists(st.integers(100, 999), min_size=16, max_size=30)


@given(FILLED, st.integers(2, 6), st.sampled_from(["", "root@gpu-09:~# ./matrix\n"]))
def test_lines_that_a_window_broke_are_joined(numbers: list[int], count: int, above: str):
    rows = [" " + "  ".join(map(str, [*numbers[n:], *numbers[:n]])) for n in range(count)]
    lines = [part for row in rows for part in ([row[:80], row[80:]] if len(row) > 80 else [row])]
    joined = [line for _, line in join_window([*above.splitlines(), *lines, "", "SUM 1"])]
    expected = [*above.splitlines(), *rows, "", "SUM 1"]
    is_certain = len(rows[0]) > 80 and rows[0][80] != " "  # else it begins as a row does
    assert joined == expected if is_certain else joined in (expected, [])


@pytest.mark.parametrize(
    "lines",
    [
        ["+" + "-" * 78 + "+", "| row" + " " * 74 + "|", "+" + "-" * 78 + "+", "text"],
        ["x" * 80, "y" * 81, "x" * 80, "end"],
        ["x" * 80, "Device name: mlx5_0", "x" * 80, "end"],
        ["x" * 80, "$ nvidia-smi", "x" * 80, "end"],
        ["x" * 80, "end"],
        ["x" * 80, "", "x" * 80, ""],
        ["=" * 80, "title", "=" * 80, "text"],
        ["    Fabric", "        State: Up", f"        ClusterUUID: {'5' * 59}", "        Health"] * 3,
        [f"0{n}:00.0 bridge: {'x' * (64 if n % 2 else 40)}" for n in range(8)] + ["0f:00.0 other"],
    ],
)
def test_lines_that_are_as_wide_as_a_window_by_chance_are_left_alone(lines: list[str]):
    assert join_window(lines) == []


@given(st.sampled_from(STAMPS), st.sampled_from([137, 154, 140, 119]), st.integers(1, 2), st.booleans())
def test_a_code_that_goes_on_in_the_next_line_is_one_number(stamp: str, code: int, digits: int, quoted: bool):
    line = f"{stamp.format(1)}NVRM: Xid (PCI:0008:01:00): {code}, something of NVLink"
    cut = line.index(f" {code},") + 1 + digits
    mark = "> " if quoted else ""
    (piece,) = split(f"{mark}{line[:cut]}\n{mark}{line[cut:]}\n").pieces
    assert f"): {code}, something" in piece.text


PROCESS = st.tuples(st.sampled_from(["n1", "gpu-node-07", "10.0.0.7"]), st.integers(10, 99999))
WORDS = st.lists(
    st.sampled_from(["Channel", "via", "P2P/CUMEM", "comm", "0x5d3c", "rank", "so"]), max_size=36
)


def pieces_of(line: str, width: int = 80) -> list[str]:
    return [line[at : at + width] for at in range(0, len(line), width)] or [line]


@given(PROCESS, st.lists(WORDS, min_size=2, max_size=8), st.sampled_from(["", "$ mpirun ./train\n"]))
def test_lines_of_nccl_that_a_window_broke_are_joined(
    process: tuple[str, int], words: list[list[str]], above: str
):
    host, pid = process
    rows = [f"{host}:{pid}:{pid + n} [{n}] NCCL INFO {' '.join(text)}" for n, text in enumerate(words)]
    text = above + "".join(f"{part}\n" for row in rows for part in pieces_of(row))
    joined = [line for _, line in join_rank_lines(text.split("\n"))]
    is_certain = sum(len(row) > 80 for row in rows) > 1
    is_plain = not any(part[:1].isspace() or part[-1:].isspace() for row in rows for part in pieces_of(row))
    if is_certain and is_plain and not any(len(row) % 80 == 0 for row in rows):
        assert joined == [*above.splitlines(), *rows, ""]
    else:
        assert joined in ([], [*above.splitlines(), *rows, ""])


NCCL = "n1:7:{0} [0] NCCL INFO {1}"


@pytest.mark.parametrize(
    "lines",
    [
        [f"{NCCL.format(1, ''):x<80}", "step 1 loss 2.1", f"{NCCL.format(2, ''):x<81}", "step 2 loss 2.0"],
        [f"{NCCL.format(1, ''):x<80}", f"{NCCL.format(2, ''):x<80}", "step 1 loss 2.1"],
        [f"{NCCL.format(1, ''):x<80}", "step 1 loss 2.1", NCCL.format(2, "ready")],
        [f"{NCCL.format(1, ''):x<80}", "RuntimeError: x", f"{NCCL.format(2, ''):x<80}", "Killed: 9"],
        [f"{NCCL.format(1, ''):x<80}", "", f"{NCCL.format(2, ''):x<80}", "$ ls"],
    ],
)
def test_lines_behind_those_of_nccl_are_their_own(lines: list[str]):
    assert join_rank_lines(lines) == []


@pytest.mark.parametrize("above", ["$ ls\n", "$ cat notes\nted and others\n"])
def test_rows_below_one_prompt_are_joined_whatever_is_below_another(above: str):
    rows = [
        f" {n}f1 | 05/11/2025 | 17:44:08 | Power Supply PSU{n}_Status | {'x' * 16} | Asserted"
        for n in range(3)
    ]
    text = above + "$ ipmitool sel elist\n" + "".join(f"{part}\n" for row in rows for part in pieces_of(row))
    assert [line for _, line in join_window(text.split("\n")) if line.startswith(" ")] == rows
