"""Which ports are rails, what ib_write_bw's table says, and when RDMA is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_rails import rails as put_rails

from nodedoctor.pairs.drive import CrewMember, can_rdma
from nodedoctor.pairs.on_node.rdma import average, rails

TABLE = """\
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 1500.000000 != 3500.000000.
 1048576    23412            0.00               {rate}             0.046614
---------------------------------------------------------------------------------------
"""


@pytest.mark.parametrize("rate", ["391.03", "0.00", "97"])
def test_the_average_is_read_behind_warnings(rate: str):
    assert average(TABLE.format(rate=rate)) == float(rate)


@pytest.mark.parametrize(
    "said", ["", "Unable to init the socket connection", TABLE.replace("Gb/sec", "MiB/sec")]
)
def test_other_units_and_errors_are_no_rate(said: str):
    assert average(said.format(rate="391.03")) is None


def test_rails_are_the_active_ports_of_the_highest_rate(tmp_path: Path):
    put_rails(tmp_path, 12)
    folder = tmp_path / "sys/class/infiniband"
    (folder / "mlx5_3/ports/1/state").write_text("1: DOWN\n")
    port = folder / "mlx5_10/ports/1"
    (port / "link_layer").write_text("Ethernet\n")
    (port / "gid_attrs/types").mkdir(parents=True)
    for row, kind in enumerate(("IB/RoCE v1", "RoCE v2", "IB/RoCE v1", "RoCE v2")):
        (port / f"gid_attrs/types/{row}").write_text(f"{kind}\n")
    found = rails(str(folder))
    assert [one["device"] for one in found] == [f"mlx5_{number}" for number in range(12) if number != 3]
    assert {one["gbps"] for one in found} == {400.0}
    assert [one["gid"] for one in found if one["gid"]] == ["3"]
    assert rails(str(tmp_path / "none")) == []


def test_rdma_is_chosen_where_all_nodes_have_as_many_rails():
    two, one, none = (CrewMember(str(count), rails=("a", "b")[:count]) for count in (2, 1, 0))
    assert can_rdma([two, two])
    assert not can_rdma([two, one]) and not can_rdma([none, none]) and not can_rdma([])
