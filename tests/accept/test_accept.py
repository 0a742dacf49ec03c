"""A node is accepted where every rate meets its floor, its peers and its past; each of them can refuse it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from forked import nodedoctor_forked
from measured_node import HEALTHY, all_reduce, disk_rates, gemm, make_node, steps, written_steps

from nodedoctor import journal
from nodedoctor.accept.measurements import measurements

Node = Callable[..., Path]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A recorded node of eight healthy H100 with these measurements."""
    return partial(make_node, tmp_path / "node")


def accept(folder: Path, *words: str) -> tuple[int, Mapping[str, Any]]:
    done = nodedoctor_forked("accept", "--json", "--replay", str(folder), *words)
    return done.returncode, json.loads(done.stdout)


COPIES = ("p2p", "host-to-gpu", "gpu-to-host")


def schema(name: str) -> Mapping[str, Any]:
    text = (resources.files("nodedoctor.report") / f"schemas/{name}.schema.json").read_text()
    return json.loads(text)


def test_a_healthy_node_is_accepted(node: Node):
    code, document = accept(node(**HEALTHY))
    jsonschema.validate(document, schema("accept"))
    assert (code, document["status"]) == (0, "pass")
    assert {row["operation"] for row in document["rows"]} == {
        "p2p", "host-to-gpu", "gpu-to-host", "memory-copy", "gemm-bf16", "all_reduce",
    }  # fmt: skip
    assert all(row["floor"] and row["floor_source"] for row in document["rows"])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "text", "operation", "code"),
    [
        ("bandwidth_deep", steps(pair=190.0, slow_pair=190.0), "p2p", 2),
        ("bandwidth_deep", steps(slow_pair=120.0), "p2p", 2),
        ("bandwidth_deep", steps(slow_pair=345.0), "p2p", 4),
        ("bandwidth_deep", steps(host=26.0), "host-to-gpu", 2),
        ("bandwidth_deep", steps(host=50.0), "host-to-gpu", 4),
        ("bandwidth_deep", steps(memory=1300.0), "memory-copy", 2),
        ("gemm", gemm(600.0), "gemm-bf16", 4),
        ("all_reduce_perf", all_reduce(244.0), "all_reduce", 2),
    ],
)
def test_a_rate_below_its_floor_or_its_peers_is_not_accepted(
    node: Node, name: str, text: str, operation: str, code: int
):
    got, document = accept(node(**{**HEALTHY, name: text}))
    low = [row["operation"] for row in document["rows"] if row["status"] in ("warn", "fail")]
    assert got == code and operation in low


@pytest.mark.parametrize(("slowest", "code"), [(6.0, 0), (3.5, 0), (1.4, 4)])
def test_disks_and_memory_are_held_against_peers_and_past(
    node: Node, tmp_path: Path, slowest: float, code: int
):
    alike = {"step": "memory", "threads": 32, "gbytes_s": 300.0}
    memory_rates = written_steps(*({**alike, "cpus_of": n, "memory_of": n} for n in (0, 1)))
    rates = {"disk_rates": disk_rates(6.0, 6.0, 6.0, slowest), "memory_rates": memory_rates}
    got, document = accept(node(**HEALTHY, **rates))
    rows = {row["operation"]: row for row in document["rows"]}
    assert got == code and rows["disk-read"]["count"] == 4 and rows["disk-read"]["lowest"] == slowest
    assert (rows["disk-read"]["floor"], rows["disk-read"]["peers"]) == (None, 6.0)
    assert (rows["cpu-memory"]["lowest"], rows["cpu-memory"]["peers"]) == (300.0, 300.0)
    past = tmp_path / "past"
    past.mkdir()
    kept = {row["key"]: row["lowest"] * 1.5 for row in document["rows"] if row["operation"] == "disk-read"}
    (past / "journal").write_text(json.dumps({"schema": journal.SCHEMA, "rates": kept}) + "\n")
    assert accept(node(**HEALTHY, **rates), "--journal", str(past))[0] == code  # 0.67 is no news for a disk


def test_encrypted_copies_have_no_floor(node: Node):
    """As in bandwidth.host and bandwidth.p2p: they are slower by design."""
    low = node(**{**HEALTHY, "bandwidth_deep": steps(host=11.0, pair=30.0, slow_pair=30.0)})
    facts = json.loads(nodedoctor_forked("--json", "--deep", "--replay", str(low)).stdout)["facts"]
    assert {one.floor for one in measurements(facts) if one.operation in COPIES} == {335.0, 48.0}
    facts["gpus"]["gpus"][3]["confidential_compute"] = True
    assert {one.floor for one in measurements(facts) if one.operation in COPIES} == {None}


def test_a_short_message_has_no_floor_and_is_not_called_good(node: Node):
    _, document = accept(node(**{**HEALTHY, "all_reduce_perf": all_reduce(120.0, 1 << 30)}))
    row = next(row for row in document["rows"] if row["operation"] == "all_reduce")
    assert (row["status"], row["floor"], row["why"]) == ("unknown", None, "no reference is known")


def test_what_was_not_measured_is_not_accepted(node: Node):
    code, document = accept(node())
    assert (code, document["rows"]) == (3, []) and document["not_measured"]
    assert accept(node(gemm=gemm(700.0), all_reduce_perf=all_reduce(470.0)))[0] == 3
    left = json.dumps({"steps": [{"step": "init", "gpus": 8}]})[:-9]
    assert accept(node(bandwidth_deep=left, gemm=gemm(700.0)))[0] == 3


def test_a_saved_report_is_judged_without_measuring_again(node: Node, tmp_path: Path):
    folder, saved = node(**HEALTHY), tmp_path / "report.json"
    saved.write_text(nodedoctor_forked("--json", "--deep", "--replay", str(folder)).stdout)
    done = nodedoctor_forked("accept", "--json", "--report", str(saved))
    assert done.returncode == 0 and json.loads(done.stdout)["rows"] == accept(folder)[1]["rows"]
    assert nodedoctor_forked("accept", "--report", str(tmp_path / "none")).returncode == 64


def test_less_than_in_the_past_is_not_accepted(node: Node, tmp_path: Path):
    folder, past = node(**HEALTHY), tmp_path / "past"
    past.mkdir()
    _, document = accept(folder)
    entry = {"schema": journal.SCHEMA, "rates": {row["key"]: row["lowest"] for row in document["rows"]}}
    for factor, code in ((1.0, 0), (1.1, 0), (1.3, 4)):
        rates = {key: rate * factor for key, rate in entry["rates"].items()}
        (past / "journal").write_text(json.dumps({**entry, "rates": rates}) + "\n")
        assert accept(folder, "--journal", str(past))[0] == code, factor


def test_the_day_is_named_since_which_a_rate_is_lower(node: Node, tmp_path: Path):
    folder, past = node(**HEALTHY), tmp_path / "past"
    past.mkdir()
    key = "gemm-bf16 (one shape, 8192 cubed)"
    days = {"2026-10-02": 830.0, "2026-11-02": 840.0, "2026-11-10": 690.0, "2027-01-01": 840.0, "soon": 840.0}
    lines = [
        {"schema": journal.SCHEMA, "time": f"{day}T10:00:00Z", "rates": {key: rate}}
        for day, rate in days.items()
    ]
    (past / "journal").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    code, document = accept(folder, "--journal", str(past))
    row = next(row for row in document["rows"] if row["key"] == key)
    assert (code, row["before"], row["before_on"]) == (4, 840.0, "2026-11-02")
    assert row["why"] == "17% slower than on 2026-11-02"


def test_the_table_is_for_people(node: Node):
    done = nodedoctor_forked(
        "accept", "--replay", str(node(**{**HEALTHY, "bandwidth_deep": steps(slow_pair=300.0)}))
    )
    assert done.stdout.startswith("FAIL not to be accepted")
    assert "lowest GPU 2->5" in done.stdout and "azurehpc-health-checks" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 110
