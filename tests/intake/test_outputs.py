"""Whose an output is: a prompt's node, a bundle's, that of the only node, or that of its folder."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pastes import PASTES

from nodedoctor.intake.outputs import NodeOutput, by_folder, by_node
from nodedoctor.intake.shapes import SHAPES
from nodedoctor.intake.split import Piece

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
