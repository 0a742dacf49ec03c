"""NVLinks as the real NVML child reads them: generations, links that are down, counters, none at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.facts.gpu.gpu import Gpu, NvLink
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading

Fake = Callable[..., dict[str, str]]


def gpus(env: dict[str, str]) -> tuple[Gpu, ...]:
    asked = Command(child("gpu/nvml", packages=True), env=env)
    reading = NvmlReading.parse(asyncio.run(child_process.run("nvml", asked, 60)))
    assert isinstance(reading, NvmlReading)
    return reading.gpus.gpus


def links(gpu: Gpu) -> tuple[NvLink, ...]:
    assert gpu.nvlinks is not None
    return gpu.nvlinks


def test_a_healthy_h100_has_18_links_to_switches(fake_nvml: Fake):
    found = links(gpus(fake_nvml())[7])
    assert [link.link for link in found] == list(range(18))
    assert all(link.active and link.speed_gbytes_s == 26.562 and link.version == "4.0" for link in found)
    assert {link.remote_type for link in found} == {"switch"}
    assert {link.remote_bus_id for link in found} == {f"0000:0{bus}:00.0" for bus in (5, 6, 7, 8)}
    counters = {"crc_flit": 0, "crc_data": 0, "replay": 0, "recovery": 0, "ecc": 0}
    assert all(link.counters == counters and link.errors == {} for link in found)


def test_links_that_are_down_have_no_speed_and_no_error(fake_nvml: Fake):
    env = fake_nvml({"gpu3.link4": "down", "gpu3.link11": "down", "gpu5.link0.replay": 7, "gpu5.crc_flit": 2})
    found = gpus(env)
    assert [link.link for link in links(found[3]) if not link.active] == [4, 11]
    assert (links(found[3])[4].speed_gbytes_s, links(found[3])[4].errors) == (None, {})
    assert all(link.active for link in links(found[2]))
    assert [link.counters["replay"] for link in links(found[5])] == [7] + [0] * 17
    assert all(link.counters["crc_flit"] == 2 for link in links(found[5]))


def test_nvlink_5_has_counters_and_rates_of_its_own(fake_nvml: Fake):
    told = {"nvlink_version": 7, "speed_mbytes_s": 53125, "gpu0.link2.symbol_errors": 12}
    found = links(gpus(fake_nvml({**told, "gpu0.link2.symbol_ber": 0x30C}))[0])
    assert found[2].version == "5.0" and found[2].speed_gbytes_s == 53.125
    assert found[2].counters["symbol_errors"] == 12 and found[2].counters["link_recovery_failed"] == 0
    assert found[2].ber == {"symbol": 3e-12, "effective": 15e-254}
    assert "crc_flit" not in found[2].counters and found[2].errors == {}


@pytest.mark.parametrize("count", [0, 4, 12])
def test_as_many_links_as_the_model_has(fake_nvml: Fake, count: int):
    gpu = gpus(fake_nvml({"gpus": 1, "links": count}))[0]
    assert len(links(gpu)) == count
    assert "nvlinks" not in gpu.errors


def test_no_count_and_a_failing_driver_is_not_a_model_without_links(fake_nvml: Fake):
    failing = {"gpu0.error.nvlink": 999, "gpu0.error.field_values": 999}
    gpu = gpus(fake_nvml({"gpus": 1, **failing}))[0]
    assert (gpu.nvlinks, gpu.errors["nvlinks"]) == (None, "UNKNOWN")


def test_with_mig_links_are_there_and_their_state_is_not(fake_nvml: Fake):
    gpu = gpus(fake_nvml({"gpus": 1, "mig": 1}))[0]
    assert len(links(gpu)) == 18
    assert all(link.active is None and link.errors["active"] == "NOT_SUPPORTED" for link in links(gpu))
