"""Answers of our own programs say how many members they have, and are whole when they are printed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import PATIENCE
from hypothesis import given
from hypothesis import strategies as st
from recorded import container, driver_files, machine, nvml, pci, replay

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.json_shapes import answer, is_whole
from nodedoctor.model import Status
from nodedoctor.probes.measured import collective, gemm, ib_write_bw
from nodedoctor.probes.plain_json import members, with_count
from nodedoctor.probes.stack import target_python

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)
PROGRAMS = {
    "host/files": ("read:/proc/uptime", "list:/proc/self/task"),
    "host/processes": (),
    "host/environment": (),
    "kernel/kernel_log": (),
    "network/net": (),
    "network/ethtool": (),
    "rdma/rdma_growth": ("--seconds", "0.01"),
    "cluster/ray_session": (),
    "stack/mapped_nccl": (),
    "gpu/nvml": (),
}


def printed(program: str, words: tuple[str, ...], env: dict[str, str]) -> str:
    command = Command(child(program, *words, packages=True), env)
    seen = asyncio.run(child_process.run(program, command, PATIENCE))
    assert seen.rc == 0, seen.note
    return seen.text


@given(value=VALUES)
def test_programs_for_other_interpreters_count_alike(value: Any) -> None:
    wanted = members(value)
    for copy in (gemm, collective, ib_write_bw, target_python):
        assert copy.members(value) == wanted


@given(
    value=st.dictionaries(st.text(max_size=3), VALUES, max_size=4).filter(
        lambda value: "members" not in value
    )
)
def test_a_document_with_its_number_is_whole(value: dict[str, Any]) -> None:
    assert answer(json.dumps(with_count(value))) == with_count(value)
    for key in value:
        assert not is_whole({name: inner for name, inner in with_count(value).items() if name != key})


@pytest.mark.sampled(6)
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_program_prints_says_how_many_members_it_has(
    program: str, fake_nvml: Callable[..., dict[str, str]]
) -> None:
    document = json.loads(printed(program, PROGRAMS[program], fake_nvml({"gpus": 2})))
    assert type(document["members"]) is int
    assert is_whole(document)


def test_a_braked_gpu_that_was_deleted_is_not_healthy(
    tmp_path: Path, fake_nvml: Callable[..., dict[str, str]]
) -> None:
    """With the number of members, and in a recording of an older version without."""
    document = json.loads(nvml(fake_nvml({"gpu3.reasons": 0x88})))
    rest = {"pci": pci(8, "0x2330"), "driver-files": driver_files()}
    rest |= {"machine": machine(), "container": container()}
    fewer = [gpu for gpu in document["gpus"] if gpu["index"] != 3]
    statuses = []
    for number, gpus in enumerate((document["gpus"], fewer)):
        for older in (False, True):
            told = {key: value for key, value in document.items() if not (older and key == "members")}
            report = replay(
                tmp_path / f"{number}-{older}", {**rest, "nvml": json.dumps({**told, "gpus": gpus})}
            )
            statuses += [result.status for result in report.results if result.check == "thermal.throttle"]
    assert statuses == [Status.FAIL, Status.FAIL, Status.UNKNOWN, Status.UNKNOWN]
