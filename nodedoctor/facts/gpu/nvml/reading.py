"""Makes a GpuReading of the document of probes/gpu/nvml.py, also of one that hung or crashed half-way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from nodedoctor.facts import shapes
from nodedoctor.facts.gpu.gpu import CallError, Gpu, GpuReading, InitError, LostGpu, SlowCall
from nodedoctor.facts.gpu.nvml.gpu import flag, gpu_of
from nodedoctor.facts.gpu.nvml.raw import Raw, index_of
from nodedoctor.facts.gpu.smi.errors import normal_bus_id
from nodedoctor.grouping import group_pairs
from nodedoctor.json_shapes import as_list, int_of, is_whole, loaded, mapping, number, part, text_of
from nodedoctor.knowledge.error_codes import QUIET
from nodedoctor.model import Observation, Outcome, Unseen
from nodedoctor.patterns import regex
from nodedoctor.probes.gpu import nvml_calls as asked
from nodedoctor.record import replace

MOST_GPUS = 1024  # beyond any node; keeps a damaged count from making millions of lost GPUs

_DEAD = frozenset({"GPU_IS_LOST", "RESET_REQUIRED"})  # nvml.h: inaccessible until the node or GPU is reset
_FATAL = "Fatal Python error"  # what faulthandler begins with; then come the frames, the innermost first
_CRASHED = regex(r"\bin (nvml\w+)")
_WAITING = regex(r'"waiting": "(nvml\w+)"')


def document_of(text: str) -> tuple[Mapping[str, Any], bool]:
    """The document and whether it is whole; one that was cut off is closed after its last whole line."""
    lines = text.rpartition("\n")[0].removesuffix(",")
    for prefix, ends in ((text, ("",)), (text, ("}", "]}")), (lines, ("}", "]}"))):
        for end in ends:
            try:
                document = loaded(prefix + end, parse_constant=_refuse_constant)
            except ValueError:
                continue
            return mapping(document), not end and is_whole(document)
    return {}, False


def reading_of(document: Mapping[str, Any], complete: bool, observation: Observation) -> GpuReading:
    """Everything the document says; what stopped it, when it is not complete."""
    started, system = mapping(document.get("init")), Raw.of(document.get("system"))
    count, no_count = system.read("count", _gpu_count)
    read = list(_read_gpus(document))
    lost_gpus = [lost_gpu for gpu in read if (lost_gpu := _lost_gpu(gpu))]
    reading = GpuReading(
        source="nvml",
        counted=count,
        gpus=tuple(gpu for gpu in read if _lost_gpu(gpu) is None),
        lost=(*unopened(document), *lost_gpus),
        library=_text_or_none(started.get("library")),
        excluded=tuple(_excluded_gpus(system)),
        init_error=init_error_of(started),
        seconds=number(document.get("seconds")),
        init_seconds=number(started.get("seconds")),
        slow_calls=tuple(_slow_calls(document)),
        call_errors=tuple(call_errors(document)),
        errors={"counted": no_count} if no_count else {},
    )
    reading = _with_versions(reading, system)
    gpu_count = len(reading.gpus) + len(reading.lost)
    if complete and observation.answered and (count is None or gpu_count >= count):
        return reading
    return _add_interruption(reading, observation)


def _driver_version(value: Any) -> str | None:
    return shapes.version(text_of(value)) or None


def _with_versions(reading: GpuReading, system: Raw) -> GpuReading:
    readings = {
        "driver_version": system.read("driver_version", _driver_version),
        "nvml_version": system.read("nvml_version", text_of),
        "cuda_version": system.read("cuda_version", _cuda_version),
        "driver_branch": system.read("driver_branch", lambda value: text_of(value["branch"])),
        "confidential_compute": system.read("confidential_compute", lambda value: flag(value["ccFeature"])),
    }
    values = {name: value for name, (value, _) in readings.items()}
    errors = {name: error for name, (_, error) in readings.items() if error}
    confidential = values["confidential_compute"]
    if confidential is not None:  # NVML knows it of the system only
        gpus = tuple(_set_confidential(gpu, confidential) for gpu in reading.gpus)
        reading = replace(reading, gpus=gpus)
    return replace(reading, **values, errors={**reading.errors, **errors})


def _set_confidential(gpu: Gpu, confidential: bool) -> Gpu:
    errors = {name: error for name, error in gpu.errors.items() if name != "confidential_compute"}
    return replace(gpu, confidential_compute=confidential, errors=errors)


def _read_gpus(document: Mapping[str, Any]) -> Iterator[Gpu]:
    """The GPUs that were read, each once: their entry is the only one with values."""
    programs, pairs = mapping(document.get("programs")), document.get("peers")
    peers = group_pairs((index_of(pair), Raw.of(pair)) for pair in as_list(pairs))
    indexes = set()
    for entry in as_list(document.get("gpus")):
        index = index_of(entry)
        if index is None or index in indexes or "values" not in entry:
            continue
        indexes.add(index)
        its_peers = None if pairs is None else peers.get(index, [])
        yield gpu_of(index, Raw.of(entry), its_peers, programs)


def _lost_gpu(gpu: Gpu) -> LostGpu | None:
    """A GPU that was opened and then answered that it is lost: what else it said is of no use."""
    for name, error in gpu.errors.items():
        if error in _DEAD:
            return LostGpu(gpu.index, gpu.bus_id, error, f"{name}: {error}")
    return None


def unopened(document: Mapping[str, Any]) -> Iterator[LostGpu]:
    """The GPUs without a handle."""
    for entry in as_list(document.get("gpus")):
        index, error = index_of(entry), mapping(entry).get("error")
        if index is not None and isinstance(error, str):
            yield LostGpu(index, None, error, _text_or_none(entry.get("text")) or "")


def _excluded_gpus(system: Raw) -> Iterator[str]:
    for address in as_list(system.values.get("excluded")):
        if bus_id := normal_bus_id(_text_or_none(address) or ""):
            yield bus_id


def init_error_of(started: Mapping[str, Any]) -> InitError | None:
    """Why the library did not start; None when it did."""
    name = _text_or_none(started.get("error"))
    if name is None and not {"code", "text"} & started.keys():
        return None
    name = name or "UNKNOWN"
    code = started.get("code")
    return InitError(
        name, code if isinstance(code, int) else None, _text_or_none(started.get("text")) or name
    )


def _slow_calls(document: Mapping[str, Any]) -> Iterator[SlowCall]:
    for entry in as_list(document.get("slow")):
        call, seconds = mapping(entry).get("call"), number(mapping(entry).get("seconds"))
        if isinstance(call, str) and seconds is not None:
            yield SlowCall(index_of(entry), call, seconds)


def call_errors(document: Mapping[str, Any]) -> Iterator[CallError]:
    """Every answer in the document that is an error and says more than that there is no such thing."""
    started = init_error_of(mapping(document.get("init"))) is None
    for key, error in _errors_of(document.get("system")) if started else ():
        yield CallError(None, call_name(key), error)
    for entry in as_list(document.get("gpus")):
        index = index_of(entry)
        for key, error in _errors_of(entry):
            yield CallError(index, call_name(key), error)
        for link in as_list(mapping(entry).get("links")):
            for key, error in _errors_of(link):
                yield CallError(index, call_name(key), error, link=index_of(link, "link"))
    for pair in as_list(document.get("peers")):
        for key, error in _errors_of(pair):
            yield CallError(index_of(pair), call_name(key), error, peer=index_of(pair, "peer"))


def _errors_of(entry: Any) -> Iterator[tuple[str, str]]:
    for key, error in part(mapping(entry), "errors").items():
        if isinstance(error, str) and error not in QUIET:
            yield key, error


def _add_interruption(reading: GpuReading, observation: Observation) -> GpuReading:
    """Add why it stopped, and the GPUs that were not read because of it: the one it was at, and the rest."""
    indexes = {gpu.index for gpu in reading.gpus} | {lost_gpu.index for lost_gpu in reading.lost}
    unread = [index for index in range(reading.counted or 0) if index not in indexes]
    # A child that keeps its output open until it crashes may be judged by that output before its death.
    crashed = observation.outcome is Outcome.CRASH or _FATAL in observation.note
    call = (
        _matched_call(_CRASHED, observation.note)
        if crashed
        else _matched_call(_WAITING, observation.text.rstrip().rpartition("\n")[2])
    )
    error = "CRASH" if crashed else "NOT_ASKED" if observation.answered else "NO_ANSWER"
    why = Unseen.of(replace(observation, outcome=Outcome.CRASH) if crashed else observation)
    note = (
        "nvml: the document is not whole"
        if observation.answered and not crashed
        else why.note.partition("\n")[0]
    )
    return replace(
        reading,
        lost=(*reading.lost, *_unread_gpus(unread, error, call)),
        interrupted=why.reason,
        interrupted_note=f"{note}; it was in {call}" if call else note,
    )


def _unread_gpus(indexes: list[int], error: str, call: str) -> Iterator[LostGpu]:
    """The GPU at which it stopped, then those it did not come to."""
    for place, index in enumerate(indexes):
        yield LostGpu(index, None, "NOT_ASKED", "") if place else LostGpu(index, None, error, call)


def _matched_call(pattern: re.Pattern[str], where: str) -> str:
    match = pattern.search(where)
    return match[1] if match else ""


def _cuda_version(value: Any) -> str:
    """12080 as 12.8."""
    number = int_of(value)
    return f"{number // 1000}.{number % 1000 // 10}"


def _gpu_count(value: Any) -> int:
    number = int_of(value)
    if not 0 <= number <= MOST_GPUS:
        raise ValueError(value)
    return number


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


_GET = "nvmlDeviceGet"
_FIELDS = frozenset({*asked.FIELDS, *asked.FIELDS_590, *asked.LINK_SPEED, *asked.LINK_FIELDS})
_ALONE = {
    "mig_devices": "nvmlDeviceGetMaxMigDeviceCount",
    "excluded": "nvmlGetExcludedDeviceCount",
    "path": "nvmlDeviceGetTopologyCommonAncestor",
}


def call_name(key: str) -> str:
    """The name of the function whose answer has this key, with the field where one serves many."""
    if key in asked.SYSTEM:
        return asked.SYSTEM[key]
    if key in _ALONE:
        return _ALONE[key]
    if key in _FIELDS:
        return f"nvmlDeviceGetFieldValues {key}"
    if key in asked.LINK_COUNTERS:
        return f"nvmlDeviceGetNvLinkErrorCounter {key}"
    if key in asked.P2P:
        return f"nvmlDeviceGetP2PStatus {key}"
    question = asked.VALUES.get(key) or asked.LINK_VALUES.get(key)
    return f"{_GET}{question.split()[0]}" if question else key
