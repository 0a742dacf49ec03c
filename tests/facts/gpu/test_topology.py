"""The matrix of `nvidia-smi topo -m` in the forms that drivers and people give it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from nodedoctor.facts.gpu.links.topology import Topology
from nodedoctor.model import Observation, Outcome, Unseen
from nodedoctor.report.matrix import matrices


def topology(text: str) -> Topology | Unseen:
    return Topology.parse(Observation("nvidia-smi-topo", text=text))


NEW = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tPXB\tNODE\t0-55\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tNODE\tPXB\t56-111\t1\t\tN/A\n"
    "NIC0\tPXB\tNODE\t X \tNODE\t\t\t\t\nNIC1\tNODE\tPXB\tNODE\t X \n\n"
    "Legend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n\n"
    "NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_bond_1\n"
)
PASTED = """\
        GPU0    GPU1    mlx5_0  CPU Affinity    NUMA Affinity
GPU0     X      NV12    PIX     0-23,48-71      0
GPU1    NV12     X      SYS     24-47           1
mlx5_0  PIX     SYS      X
"""
OLD = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSOC\t0-13\nGPU1\tSOC\t X \t14-27\n"
JOINED = (
    "\tGPU0\tGPU1mlx5_0mlx5_1\tCPU Affinity\nGPU0\t X \tPHB\tPIX\tSYS\t0-7\nGPU1\tPHB\t X \tSYS\tPIX\t8-15\n"
)
CONTAINER = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t\tN/A\nGPU1\tNV4\t X \t\tN/A\n"
COHERENT = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-71\t0\t\t4\n"


def test_a_new_driver_underlines_and_has_a_legend_of_adapters():
    found = topology(NEW)
    assert isinstance(found, Topology)
    assert (found.gpus, found.nics) == (("GPU0", "GPU1"), ("mlx5_0", "mlx5_bond_1"))
    assert found.links["GPU0"] == {"GPU1": "NV18", "mlx5_0": "PXB", "mlx5_bond_1": "NODE"}
    assert found.links["mlx5_bond_1"]["GPU1"] == "PXB"
    assert found.affinity == {"GPU0": {"cpus": "0-55", "numa": "0"}, "GPU1": {"cpus": "56-111", "numa": "1"}}
    assert found.nearest_nics("GPU1") == ("PXB", ("mlx5_bond_1",))


@pytest.mark.parametrize(
    ("text", "links", "affinity"),
    [
        (PASTED, {"GPU1": "NV12", "mlx5_0": "PIX"}, {"cpus": "0-23,48-71", "numa": "0"}),
        (OLD, {"GPU1": "SYS"}, {"cpus": "0-13"}),
        (JOINED, {"GPU1": "PHB", "mlx5_0": "PIX", "mlx5_1": "SYS"}, {"cpus": "0-7"}),
        (CONTAINER, {"GPU1": "NV4"}, None),
        (COHERENT, {}, {"cpus": "0-71", "numa": "0", "gpu_numa": "4"}),
    ],
)
def test_variants(text: str, links: dict[str, str], affinity: dict[str, str] | None):
    found = topology(text)
    assert isinstance(found, Topology)
    assert found.links["GPU0"] == links
    assert found.affinity.get("GPU0") == affinity


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n",  # topo -p2p
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X ",
        "Legend:\n  X    = Self\n",
    ],
)
def test_what_is_no_matrix_says_so(text: str):
    assert isinstance(topology(text), Unseen)


def test_no_answer_keeps_its_reason():
    stuck = Topology.parse(Observation("nvidia-smi-topo", Outcome.STUCK, note="no answer"))
    assert isinstance(stuck, Unseen) and stuck.reason == "stuck"


@settings(max_examples=examples(200))
@given(st.text("GPUNIC0123 XVSYPB\t\n-,[m\x1b", max_size=200) | st.text(max_size=60))
def test_any_text_is_a_matrix_or_a_reason(text: str):
    for said in (text, NEW[: len(text)] + text):
        assert isinstance(topology(said), Topology | Unseen)


def test_pairs_that_differ_from_most_are_odd():
    facts = {
        "topology": {
            "gpus": ["GPU0", "GPU1", "GPU2"],
            "links": {
                "GPU0": {"GPU1": "NV18", "GPU2": "NV18"},
                "GPU1": {"GPU0": "NV18", "GPU2": "SYS"},
                "GPU2": {"GPU0": "NV18", "GPU1": "SYS"},
            },
        }
    }
    (links,) = matrices(facts)
    assert links.odd == {("GPU1", "GPU2"), ("GPU2", "GPU1")}
    pcie = {
        "topology": {
            "gpus": ["GPU0", "GPU1", "GPU2"],
            "links": {
                "GPU0": {"GPU1": "PIX", "GPU2": "SYS"},
                "GPU1": {"GPU0": "PIX", "GPU2": "SYS"},
                "GPU2": {"GPU0": "SYS", "GPU1": "SYS"},
            },
        }
    }
    assert matrices(pcie)[0].odd == frozenset()  # without NVLink, paths may well differ


def test_measured_pairs_below_the_rest_are_odd_and_wrong_data_is_named():
    speeds = {(a, b): 390.0 for a in range(4) for b in range(4) if a != b} | {(0, 3): 300.0}
    pairs = [{"source": a, "target": b, "read_gbytes_s": speed} for (a, b), speed in speeds.items()]
    pairs[-1] = {"source": 3, "target": 2, "read_gbytes_s": 391.0, "wrong": {"at": 5}}
    (measured,) = matrices({"bandwidth": {"pairs": pairs}})
    assert measured.odd == {("GPU3", "GPU0"), ("GPU2", "GPU3")}
    assert measured.cells["GPU3", "GPU0"] == "300" and measured.cells["GPU2", "GPU3"] == "WRONG"
    assert matrices({"bandwidth": {"pairs": [{"source": 0}]}}) != []


@pytest.mark.parametrize(
    "damage",
    [
        lambda row: row.replace("PXB\tNODE", "PXBNODE"),  # two cells that grew together
        lambda row: row.replace("PXB\t", ""),  # a cell that was lost
        lambda row: row.replace("PXB", "PX B"),
        lambda row: "",
    ],
)
def test_nothing_is_told_of_a_damaged_row(damage: Callable[[str], str]):
    row = "GPU0\t X \tNV18\tPXB\tNODE\t0-55\t0\t\tN/A\n"
    found = topology(NEW.replace(row, damage(row)))
    assert isinstance(found, Topology)
    assert (found.damaged, found.links.get("GPU0")) == (("GPU0",), None)
    assert found.nearest_nics("GPU0") == ("", ())
    assert found.nearest_nics("GPU1") == ("PXB", ("mlx5_bond_1",))


@given(st.sets(st.sampled_from(range(8)), min_size=1), st.data())
def test_rows_without_their_header_are_those_of_the_matrix(rows: set[int], data: st.DataObject):
    tokens = st.sampled_from(["NV18", "NV12", "SYS", "PIX", "NODE"])
    cells = [["X" if i == j else data.draw(tokens) for j in range(8)] for i in range(8)]
    lines = [f"GPU{i}\t" + "\t".join(cells[i]) + "\t0-55\t0\t\tN/A\n" for i in range(8)]
    whole = topology("\t" + "\t".join(f"GPU{i}" for i in range(8)) + "\n" + "".join(lines))
    part = topology("".join(line for i, line in enumerate(lines) if i in rows))
    assert isinstance(whole, Topology) and isinstance(part, Topology)
    assert part.links == {name: told for name, told in whole.links.items() if int(name[3:]) in rows}
    assert part.damaged == tuple(f"GPU{i}" for i in range(8) if i not in rows)


def test_a_matrix_whose_lines_were_wrapped_is_not_read():
    wrapped = [line[at : at + 24] for line in NEW.expandtabs().splitlines() for at in range(0, len(line), 24)]
    found = topology("\n".join(wrapped))
    assert isinstance(found, Unseen) or set(found.damaged) == set(found.gpus)


def test_a_name_that_was_cut_off_is_no_name():
    found = topology("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-13\nGPU1\tNV1")
    assert isinstance(found, Topology)
    assert found.damaged == ("GPU1",)
