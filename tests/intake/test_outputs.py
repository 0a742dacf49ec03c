"""Whose an output is: a prompt's node, a bundle's, that of the only node, of its folder or file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pastes import PASTES

from nodedoctor.intake.all_shapes import SHAPES
from nodedoctor.intake.file_names import node_name
from nodedoctor.intake.outputs import NodeOutput, snapshot_of
from nodedoctor.intake.split import Piece, split
from nodedoctor.intake.whose import by_folder, by_node, by_owner

SHAPE = {shape.probe: shape for shape in reversed(SHAPES)}
GPUS = ("nvidia-smi", "nvidia-smi-q", "nvidia-smi-topo")
OTHERS = ("kernel-log", "ibstat", "lspci")


def output(path: str, probe: str, host: str = "") -> NodeOutput:
    return NodeOutput(Piece(SHAPE[probe], PASTES[probe], host=host), path)


def sorted_names(outputs: list[NodeOutput]) -> dict[str, list[str]]:
    return {name: sorted(item.name for item in found) for name, found in by_node(by_folder(outputs)).items()}


folders = st.lists(st.sampled_from([f"gpu-{n}" for n in range(6)]), min_size=2, max_size=6, unique=True)


@given(
    folders,
    st.sampled_from(["a.zip!out/", "/tmp/mail/", "", "x.tar!a/b/c/"]),
    st.sampled_from(GPUS),
    st.data(),
)
def test_folders_that_show_the_same_gpus_are_nodes(
    names: list[str], above: str, twice: str, data: st.DataObject
):
    """Also those beside them, and deeper folders are of the node above them."""
    outputs = [output(f"{above}{name}/smi.txt", twice) for name in names[:2]]
    outputs += [output(f"{above}{name}/ib/stat.txt", data.draw(st.sampled_from(OTHERS))) for name in names]
    assert sorted_names(outputs) == {
        f"host {name}": sorted(item.name for item in outputs if f"{name}/" in item.name) for name in names
    }


@given(st.lists(st.sampled_from([*GPUS, *OTHERS]), min_size=1, max_size=6, unique=True), st.booleans())
def test_outputs_that_are_sorted_into_folders_by_their_kind_are_of_one_node(kinds: list[str], twice: bool):
    outputs = [output(f"n/{kind}/out.txt", kind) for kind in kinds]
    outputs += [output("n/again/kernel.log", "kernel-log")] if twice else []
    assert by_folder(outputs) == outputs
    assert len(by_node(outputs)) == 1


def test_a_prompt_in_a_folder_names_its_node_and_what_lies_above_is_of_nobody():
    outputs = [
        output("o/a/smi.txt", "nvidia-smi"),
        output("o/a/ib.txt", "ibstat", "gpu-17"),
        output("o/b/smi.txt", "nvidia-smi"),
        output("o/dmesg.txt", "kernel-log"),
    ]
    assert sorted_names(outputs) == {
        "host gpu-17": ["o/a/ib.txt", "o/a/smi.txt"],
        "host b": ["o/b/smi.txt"],
        "": ["o/dmesg.txt"],
    }


nodes = st.builds(
    "{}{}{}".format, st.sampled_from(["node", "gpu-", "hgx-a3-", "ip-10-0-", "nid00", "dgx-h100-"]),
    st.integers(1, 99), st.sampled_from(["", ".cluster.example.com"]),
)  # fmt: skip
kinds = st.sampled_from(["nvidia-smi", "nvidia-smi-q", "dmesg", "ibstat", "topo-m", "nvlink_s", "lspci-vv"])
dates = st.sampled_from(["", "-20260105", "_2026-01-05T10:00:00Z", ".20260105-1000"])


@given(nodes, kinds, dates, st.sampled_from(["-", "_", "."]), st.booleans())
def test_a_node_is_named_by_a_files_name_before_or_behind_what_it_holds(
    node: str, kind: str, date: str, sign: str, first: bool
):
    file = f"{node}{sign}{kind}{date}.txt" if first else f"{kind}{date}{sign}{node}.log"
    assert node_name(file).partition(".")[0] == node.partition(".")[0]


@given(
    kinds,
    dates,
    st.sampled_from(
        [
            "",
            "1",
            "rank3",
            "run-2",
            "mlx5_0",
            "h100",
            "cuda12",
            "job-1234_0",
            "xid-79",
            "before",
            "v2",
            "7of8",
        ]
    ),
)
def test_a_number_of_something_else_is_no_node(kind: str, date: str, other: str):
    assert node_name(f"{other}_{kind}{date}.txt") == ""


@given(st.lists(nodes, min_size=2, max_size=5, unique_by=lambda name: name.partition(".")[0]), st.data())
def test_files_of_several_nodes_in_one_folder_are_several_nodes(names: list[str], data: st.DataObject):
    """Whichever outputs they are of, and each node's own stay together."""
    outputs = [
        output(f"in/{name}.{probe}.txt", probe)
        for name in names
        for probe in data.draw(
            st.lists(st.sampled_from([*GPUS, *OTHERS]), min_size=1, max_size=3, unique=True)
        )
    ]
    notes: list[str] = []
    found = by_owner(outputs, notes)
    assert set(found) == {f"host {name.partition('.')[0]}" for name in names}
    assert sum(map(len, found.values())) == len(outputs) and not notes


def test_what_nothing_names_beside_several_nodes_is_said_and_given_to_none():
    outputs = [output(f"in/node0{n}.txt", "nvidia-smi") for n in (1, 2)] + [output("in/ib.txt", "ibstat")]
    notes: list[str] = []
    assert [item.name for item in by_owner(outputs, notes)[""]] == ["in/ib.txt"]
    assert notes == ["nothing shows which of the nodes is meant by in/ib.txt"]


@given(st.sampled_from(["nvidia-smi", "nvidia-smi-topo", "ibstat"]), st.permutations(["a", "b", "c"]))
def test_files_that_show_the_same_thing_hide_nothing_from_each_other(probe: str, names: list[str]):
    outputs = [output(f"{name}.txt", probe) for name in names]
    notes: list[str] = []
    found = by_owner(outputs, notes)
    assert sorted(found) == ["host a", "host b", "host c"] and "judged by itself" in notes[0]


def test_files_of_the_same_gpus_are_of_one_node_and_of_others_are_not():
    uuid = "GPU-00000000-0000-0000-0000-00000000000{}"
    one = [output(f"{name}.txt", "nvidia-smi-q") for name in ("before", "after")]
    of = [
        NodeOutput(Piece(item.piece.shape, item.piece.text + uuid.format(n)), item.name)
        for n, item in enumerate(one)
    ]
    same = [NodeOutput(of[0].piece, item.name) for item in one]
    assert len(by_owner(same, [])) == 1
    assert len(by_owner(of, [])) == 2


def test_a_file_that_names_its_node_once_is_of_it_wholly():
    outputs = [
        output("a.txt", "nvidia-smi"),
        output("a.txt", "ibstat", "gpu-1"),
        output("b.txt", "ibstat", "gpu-2"),
    ]
    assert sorted(item.piece.shape.probe for item in by_owner(outputs, [])["host gpu-1"]) == [
        "ibstat",
        "nvidia-smi",
    ]


RULE = "-" * 16
HEADINGS = {
    "dshbak": f"{RULE}\n{{0}}\n{RULE}\n",
    "clush -b": f"{RULE}\n{{0}} (2)\n{RULE}\n",
    "ansible": "{0} | CHANGED | rc=0 >>\n",
    "tail": "==> out/{0}.smi.txt <==\n",
    "more": ":" * 14 + "\nout/{0}.smi.txt\n" + ":" * 14 + "\n",
    "hostname": "$ hostname\n{0}\n$ sudo dmesg\n",
    "uname": "Linux {0} 5.15.0-1067-nvidia #68-Ubuntu SMP x86_64 GNU/Linux\n",
}


@given(st.sampled_from(sorted(HEADINGS)), st.permutations([*GPUS, *OTHERS]))
def test_a_heading_names_the_node_of_what_follows(way: str, probes: list[str]):
    text = "".join(HEADINGS[way].format(f"gpu-{n // 2}") + PASTES[probe] for n, probe in enumerate(probes))
    parts = split(text)
    assert [(piece.shape.probe, piece.host) for piece in parts.pieces] == [
        (probe, f"gpu-{n // 2}") for n, probe in enumerate(probes)
    ]
    assert parts.rest == ()


XID = "[Wed Apr  2 17:20:1{0} 2025] NVRM: Xid (PCI:0000:3a:00): 79, GPU has fallen off the bus.\n"
FANS = [
    "[ops@bastion ~]$ pdsh -w {0} 'dmesg -T | grep -i xid'\n",
    "ops@bastion:~$ clush -w {0} dmesg -T\n",
    "root@bastion:~# parallel-ssh -h nodes -i dmesg\n",
    "",
]
NAMES = [("gpu-1", "gpu-7"), ("n05", "n06"), ("rack3-h200-11.cluster", "rack3-h200-12.cluster")]


def hosts_of(text: str) -> list[tuple[str, int]]:
    """The node of each output and the lines that are booked to it, without those that have none."""
    outputs = [NodeOutput(piece, "-") for piece in split(text).pieces]
    return [
        (name.rpartition(" ")[2], sum(item.piece.text.count("\n") for item in items))
        for name, items in by_owner(outputs, []).items()
    ]


@given(
    st.sampled_from(FANS), st.sampled_from(NAMES), st.integers(1, 3), st.integers(1, 3), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_lines_behind_the_names_of_nodes_are_of_these(
    fan: str, names: tuple[str, str], first: int, second: int, quoted: bool, mixed: bool
):
    """However few each of them has, and never of the node with the prompt."""
    counts = {names[0]: first, names[1]: second}
    lines = [f"{name}: {XID.format(n)}" for name, count in counts.items() for n in range(count)]
    text = fan.format(",".join(names)) + "".join(sorted(lines, key=lambda line: line[20:] * mixed))
    pasted = "".join(f"> {line}\n" for line in text.splitlines()) if quoted else text
    assert dict(hosts_of(pasted)) == {name.partition(".")[0]: count for name, count in counts.items()}


@given(st.sampled_from(FANS[:3]), st.integers(1, 3))
def test_the_only_line_below_a_command_for_several_nodes_is_of_the_one_that_it_names(fan: str, number: int):
    text = fan.format("gpu-[1-8]") + f"gpu-{number}: {XID.format(1)}"
    assert hosts_of(text) == [(f"gpu-{number}", 1)]


@given(st.sampled_from([fan for fan in FANS if fan]), st.booleans())
def test_what_several_nodes_were_asked_for_is_never_of_the_node_with_the_prompt(fan: str, before: bool):
    own = f"[ops@bastion ~]$ nvidia-smi\n{PASTES['nvidia-smi']}"
    text = fan.format("gpu-[1-8]") + XID.format(1)
    nodes = by_owner([NodeOutput(piece, "-") for piece in split(own * before + text).pieces], [])
    (log,) = [items for items in nodes.values() if any(i.piece.shape.probe == "kernel-log" for i in items)]
    assert [item.piece.host for item in log] == [""] and len(nodes) == 1 + before


@given(st.sampled_from(["{0}\n", "== {0} ==\n", "--- {0}\n", "# {0}:\n"]), st.integers(1, 4))
def test_a_loop_over_nodes_names_them_in_front_of_what_each_prints(heading: str, sick: int):
    names = [f"n{number}" for number in range(1, 5)]
    lines = "".join(heading.format(name) + XID.format(1) * (name == f"n{sick}") for name in names)
    text = f"[me@login1 ~]$ for h in {' '.join(names)}; do echo $h; ssh $h dmesg; done\n{lines}"
    assert hosts_of(text) == [(f"n{sick}", 1)]


def test_tables_of_nodes_without_a_name_are_judged_one_by_one():
    text = "me@login1:~$ for h in $(cat nodes); do ssh $h nvidia-smi; done\n" + PASTES["nvidia-smi"] * 3
    nodes = by_owner([NodeOutput(piece, "-") for piece in split(text).pieces], [])
    assert [len(items) for items in nodes.values()] == [1, 1, 1]


@given(st.sampled_from(["", "(base) "]), st.booleans())
def test_what_is_typed_behind_a_login_is_typed_there(front: str, by_name: bool):
    text = f"me@login1:~$ ssh root@gpu-3\n{front}$ sudo dmesg\n{XID.format(2)}"
    after = f"root@gpu-4:~# dmesg\n{XID.format(3)}" if by_name else ""
    assert hosts_of(text + after) == [("gpu-3", 1), *([("gpu-4", 1)] if by_name else [])]


@given(st.integers(1, 170), st.booleans(), st.sampled_from(["", "\n", "\n\n"]))
def test_a_code_at_the_end_of_the_text_counts_where_no_digit_can_follow(code: int, comma: bool, end: str):
    line = f"[ 2214.003112] NVRM: Xid (PCI:0008:01:00): {code}{', pid=7' if comma else ''}{end}"
    items = [NodeOutput(piece, "-") for piece in split(f"[ 2213.003112] NVRM: loaded\n{line}").pieces]
    log = snapshot_of(items, "").observations["kernel-log"]
    assert (f"): {code}" in log.text) is (comma or code > 17)


HEADS = "index, ecc.errors.uncorrected.volatile.total, temperature.gpu"
ROWS = st.lists(st.integers(0, 9), min_size=1, max_size=4)
ASK = "nvidia-smi --query-gpu=index,ecc.errors.uncorrected.volatile.total,temperature.gpu --format=csv"


def rows_of(counts: list[int]) -> list[str]:
    return [f"{gpu}, {count}, 41" for gpu, count in enumerate(counts)]


def tables_of(text: str) -> list[tuple[str, str]]:
    """The node of each table, and its rows."""
    nodes = by_owner([NodeOutput(piece, "-") for piece in split(text).pieces], [])
    return [
        (name, "".join(item.piece.text.partition("\n")[2] for item in items)) for name, items in nodes.items()
    ]


@given(st.sampled_from(FANS[:2]), st.sampled_from(NAMES), ROWS, ROWS, st.booleans(), st.booleans())
def test_rows_without_a_heading_are_of_the_node_in_front_of_them(
    fan: str, names: tuple[str, str], first: list[int], second: list[int], quoted: bool, mixed: bool
):
    asked = f"{fan.split('{0}')[0]}{','.join(names)} '{ASK},noheader'\n"
    labelled = [
        f"{name}: {row}\n"
        for name, counts in zip(names, (first, second), strict=True)
        for row in rows_of(counts)
    ]
    lines = sorted(labelled, key=lambda line: line[20:] * mixed)
    mark = "> " * quoted
    text = "".join(f"{mark}{line}" for line in [asked, *lines])
    assert dict(tables_of(text)) == {
        f"host {name.partition('.')[0]}": "".join(f"{row}\n" for row in rows_of(counts))
        for name, counts in zip(names, (first, second), strict=True)
    }


@given(st.lists(ROWS, min_size=2, max_size=4), st.booleans())
def test_an_index_that_comes_again_is_of_the_next_node(nodes: list[list[int]], has_heads: bool):
    asked = f"me@jump:~$ for h in $(cat nodes); do ssh $h {ASK}{'' if has_heads else ',noheader'}; done\n"
    printed = [[HEADS] * has_heads + rows_of(counts) for counts in nodes]
    text = asked + "".join(f"{line}\n" for lines in printed for line in lines)
    assert [rows for _, rows in tables_of(text)] == [
        "".join(f"{row}\n" for row in rows_of(counts)) for counts in nodes
    ]
