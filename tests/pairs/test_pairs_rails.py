"""Which ports are rails, what ib_write_bw's table says, and when RDMA is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_rails import rails as put_rails
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.pairs.crew import CrewMember, can_rdma, with_equal_rails
from nodedoctor.pairs.join import join_rails
from nodedoctor.pairs.model import Measurement
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


def test_a_node_with_other_rails_than_most_is_not_measured_and_says_so():
    members = {
        host: CrewMember(host, rails=("eth1", "eth2")[:count])
        for host, count in zip("abc", (2, 1, 2), strict=True)
    }
    members["d"] = CrewMember("d", why="no answer in 30 s")
    told = {host: member.why for host, member in with_equal_rails(members).items()}
    assert told == {
        "a": "",
        "b": "1 rails that can be measured, others have 2",
        "c": "",
        "d": "no answer in 30 s",
    }


RAILS = st.dictionaries(
    st.sampled_from(["eth1", "eth2", "eth3"]),
    st.one_of(
        st.floats(0.1, 400).map(lambda rate: Measurement(("a", "b"), rate)),
        st.sampled_from(["hang", "filtered", "refused", "corrupt"]).map(
            lambda fault: Measurement(("a", "b"), None, fault, note="why")
        ),
    ),
    min_size=1,
)


@given(RAILS)
def test_a_pair_is_as_slow_as_its_slowest_rail_and_a_dead_one_has_the_rate_0(rails: dict[str, Measurement]):
    joined = join_rails(list(rails.items()))
    alive = {rail: one.gbps for rail, one in rails.items() if not one.fault}
    if not alive:
        assert joined == next(iter(rails.values()))
        return
    assert joined.rails == {rail: alive.get(rail, 0.0) for rail in rails}
    assert joined.gbps == min(joined.rails.values())
    assert joined.fault == ("corrupt" if any(one.fault == "corrupt" for one in rails.values()) else None)
    assert all(f"{rail}: why" in joined.note for rail in rails if rail not in alive)
