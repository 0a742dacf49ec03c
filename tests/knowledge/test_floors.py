"""A floor holds where all of its row fits, and nowhere else."""

from datetime import date

import pytest

from nodedoctor.knowledge.floors import Floor, fitting_floors, floors
from nodedoctor.knowledge.gpus import gpu_model, models
from nodedoctor.knowledge.limits import limit


def found(row: Floor, **other: object) -> list[Floor]:
    circumstances = {
        "model": row.models[0] if row.models else "",
        "link": row.link,
        "gpus": row.gpus,
        "pcie_gen": row.pcie_gen,
        "size": row.least_bytes,
        **other,
    }
    return fitting_floors(row.operation, **circumstances)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", floors(), ids=lambda row: f"{row.operation} {row.fabric} {row.level}")
def test_a_floor_is_found_in_its_own_circumstances_alone(row):
    assert row in found(row) and found(row, size=row.least_bytes * 2 + 1)
    others = [model.name for model in models() if model.name not in row.models]
    assert not row.models or not any(row in found(row, model=name) for name in others)
    assert not row.link or row not in found(row, link="NV6")
    assert not row.gpus or row not in found(row, gpus=row.gpus - 1)
    assert not row.pcie_gen or row not in found(row, pcie_gen=row.pcie_gen + 1)
    assert not row.least_bytes or row not in found(row, size=row.least_bytes - 1)


@pytest.mark.parametrize("row", floors(), ids=lambda row: f"{row.operation} {row.fabric} {row.level}")
def test_a_floor_is_below_what_healthy_ones_give(row):
    known = {model.name: model for model in models()}
    assert row.models or row.pcie_gen
    assert 0 < row.tolerance <= 1 and row.source and date.fromisoformat(row.read)
    assert row.healthy is None or row.least < row.healthy
    for name in row.models:
        if row.operation == "p2p":  # a floor at the sum of the links would fail healthy cards
            links = known[name].nvlink_total_gbps or 0
            assert row.least < limit("p2p_floor_share_max").number * links
            assert row.link == known[name].topo_token
        elif row.operation == "gemm-bf16":
            assert row.gate < (known[name].bf16_tflops or 0)


def test_a_grace_hopper_is_no_h200():
    grace = gpu_model("NVIDIA GH200 480GB")
    assert grace is not None
    assert not fitting_floors("p2p", grace.name) and not fitting_floors("all_reduce", grace.name, gpus=8)
