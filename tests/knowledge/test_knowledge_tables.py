"""Every row of every table parses into its type, has a source, and stands on a line of its own."""

import json
import subprocess
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from datetime import date
from pathlib import Path

import pytest
from forked import nodedoctor_forked
from in_turn import in_turn

from nodedoctor.knowledge import (
    env_vars,
    floors,
    gates,
    gpus,
    infiniband,
    kinds,
    limits,
    tested_hardware,
    xids,
)
from nodedoctor.knowledge.table import FOLDER, load, rows
from nodedoctor.knowledge.versions import containers, cuda, nccl, stack, torch_pins

REPOSITORY = Path(__file__).parents[2]

ROW_TYPES = {
    ("causes", "causes"): kinds.KnownCause,
    ("containers", "grammars"): containers.Grammar,
    ("containers", "ngc_pytorch"): containers.NgcRelease,
    ("cuda_driver", "branches"): cuda.Branch,
    ("cuda_driver", "images"): cuda.ImageRequirement,
    ("cuda_driver", "minor_compat"): cuda.MinorCompat,
    ("cuda_driver", "toolkits"): cuda.ToolkitRelease,
    ("seen_on", "without_hardware"): tested_hardware.WithoutHardware,
    ("env_vars", "prefixes"): env_vars.Prefix,
    ("env_vars", "timeouts"): env_vars.TimeoutSetting,
    ("env_vars", "variables"): env_vars.EnvVar,
    ("gates", "gates"): gates.GateRow,
    ("gpus", "layouts"): gpus.Layout,
    ("gpus", "models"): gpus.GpuModel,
    ("gpus", "nvswitches"): gpus.NvSwitch,
    ("floors", "floors"): floors.Floor,
    ("floors", "shares"): floors.Share,
    ("gpus", "platforms"): gpus.Platform,
    ("ib", "adapters"): infiniband.Adapter,
    ("ib", "counters"): infiniband.Counter,
    ("ib", "phys_states"): infiniband.PortState,
    ("ib", "platforms"): infiniband.RdmaPlatform,
    ("ib", "port_states"): infiniband.PortState,
    ("ib", "rates"): infiniband.Rate,
    ("kinds", "kinds"): kinds.Kind,
    ("limits", "limits"): limits.Limit,
    ("nccl_bad", "traits"): nccl.NcclTrait,
    ("nccl_bad", "versions"): nccl.BadVersion,
    ("seen_on", "preview"): tested_hardware.Awaited,
    ("seen_on", "outputs"): tested_hardware.SeenOutput,
    ("stack_pins", "build_tags"): stack.BuildTag,
    ("stack_pins", "packages"): stack.PackageRelease,
    ("stack_pins", "ray"): stack.RayRange,
    ("torch_pins", "releases"): torch_pins.TorchRelease,
    ("torch_pins", "variants"): torch_pins.TorchVariant,
    ("torch_pins", "wheels"): torch_pins.TorchWheel,
    ("xids", "advice"): xids.Advice,
    ("xids", "nvlink5"): xids.NvLink5,
    ("xids", "recovery_actions"): xids.RecoveryAction,
    ("xids", "sxid_kinds"): xids.SxidKind,
    ("xids", "sxids"): xids.SxidRow,
    ("xids", "workflows"): xids.Workflow,
    ("xids", "xid74_bits"): xids.Xid74Bit,
    ("xids", "xids"): xids.XidRow,
}
TABLES = sorted(path.stem for path in FOLDER.glob("*.json"))


def is_a(value, hint):
    """Whether a value is what an annotation says, looking into tuples and mappings."""
    origin, arms = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(is_a(value, arm) for arm in arms)
    if origin is typing.Literal:
        return value in arms
    if origin is tuple and len(arms) == 2 and arms[1] is Ellipsis:
        return isinstance(value, tuple) and all(is_a(item, arms[0]) for item in value)
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(arms) and all(map(is_a, value, arms))
    if origin is not None and issubclass(origin, Mapping):
        return all(is_a(key, arms[0]) and is_a(item, arms[1]) for key, item in value.items())
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def test_every_section_has_a_type():
    sections = {
        (table, key) for table in TABLES for key, value in load(table).items() if isinstance(value, list)
    }
    assert sections == set(ROW_TYPES)


@in_turn(("table", "section"), sorted(ROW_TYPES))
def test_rows_are_what_their_type_says(table, section):
    row_type = ROW_TYPES[table, section]
    hints = typing.get_type_hints(row_type)
    parsed = rows(table, section, row_type)
    assert parsed
    wrong = [
        (row, field.name)
        for row in parsed
        for field in fields(row_type)
        if not is_a(getattr(row, field.name), hints[field.name])
    ]
    assert wrong == []


@pytest.mark.parametrize("table", TABLES)
def test_what_editors_note_is_text_and_marks_are_set(table):
    for section in [value for value in load(table).values() if isinstance(value, list)]:
        for row in section:
            assert isinstance(row.get("note", ""), str) and row.get("unverified", True) is True, row


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_a_source(table):
    known = load(table).get("sources", {})
    used = set()
    for section in [value for value in load(table).values() if isinstance(value, list)]:
        for row in section:
            keys = row["source"] if isinstance(row["source"], list) else [row["source"]]
            assert keys
            used |= set(keys)
    # What is not a key must be an address or a repository's path, never a forgotten key.
    assert [key for key in used if key not in known and "/" not in key] == []
    assert set(known) <= used


@pytest.mark.parametrize("table", TABLES)
def test_one_row_per_line(table):
    lines = {line.rstrip(",") for line in (FOLDER / f"{table}.json").read_text(encoding="utf-8").splitlines()}
    for section in [value for value in load(table).values() if isinstance(value, list)]:
        for row in section:
            assert json.dumps(row, ensure_ascii=False) in lines


def test_the_catalogue_counts_and_dates_them():
    listed = nodedoctor_forked("list", "knowledge", "--json")
    catalogue = {table["name"]: table for table in json.loads(listed.stdout)}
    assert sorted(catalogue) == TABLES
    for table in catalogue.values():
        sections = [value for value in load(table["name"]).values() if isinstance(value, list)]
        assert table["rows"] == sum(map(len, sections)) > 0
        assert table["about"].endswith(".")
        assert date.fromisoformat(table["as_of"]) >= date(2026, 11, 21)


def test_nothing_is_read_before_it_is_asked_for():
    program = (
        "import sys, pkgutil, importlib, nodedoctor.knowledge as k, nodedoctor.cli.explain\n"
        "[importlib.import_module(m.name) for m in pkgutil.iter_modules(k.__path__, k.__name__ + '.')]\n"
        "from nodedoctor.knowledge.table import load\n"
        "print(load.cache_info().currsize, sorted({'packaging', 'textual', 'psutil'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.stdout.split() == ["0", "[]"], done.stderr
