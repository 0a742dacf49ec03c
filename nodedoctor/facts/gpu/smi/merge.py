"""Several outputs about the same GPUs put together: none hides what only another one has.

A value is the newest that was printed; a GPU is known by its bus address, else its UUID, else its index.
"""

from __future__ import annotations

from collections.abc import Sequence

from nodedoctor.facts.gpu.gpu import NOT_READ, Gpu, GpuReading
from nodedoctor.facts.gpu.smi.errors import error_name, normal_bus_id
from nodedoctor.facts.gpu.smi.sections import Section
from nodedoctor.facts.gpu.smi.values import leading_integer
from nodedoctor.record import field_names, record, replace

_SUMS = ("single_bit", "double_bit")
"""How `--query-gpu` and old drivers count memory errors; newer texts of `-q` count by memory."""
_LISTS = ("processes",)
"""Sections whose lines belong together, in their order."""


@record
class _Names:
    """What tells a GPU from others; two GPUs are one by the first name that both have."""

    bus_id: str | None
    uuid: str | None
    index: int | None

    def is_same(self, peer: _Names) -> bool:
        pairs = ((self.bus_id, peer.bus_id), (self.uuid, peer.uuid), (self.index, peer.index))
        return next((mine == its for mine, its in pairs if mine is not None and its is not None), False)

    @property
    def is_empty(self) -> bool:
        return self.bus_id is None and self.uuid is None and self.index is None


def merge_documents(roots: Sequence[Section]) -> Section | None:
    """Outputs of `-q` and `--query-gpu`, oldest first, as one; None where there is none."""
    if len(roots) < 2:
        return roots[0] if roots else None
    header: dict[str, Section] = {}
    gpus: list[Section] = []
    names: list[_Names] = []
    for root in roots:
        header.update({part.name: part for part in root.parts if part.name != "gpu"})
        for place, section, own in _placed_sections(root, names):
            if place is None:
                gpus.append(section)
                names.append(own)
            else:
                _put_newer(gpus[place], section)
                names[place] = _join_names(names[place], own)
    return Section("", parts=[*header.values(), *gpus])


def put_nameless_last(root: Section) -> Section:
    """The root, its GPUs that nothing names behind the others."""
    gpus = list(root.all("gpu"))
    names = [own.is_empty for own in _section_names(root)]
    if any(names) and not all(names):
        rest = [part for part in root.parts if part.name != "gpu"]
        pairs = sorted(zip(names, gpus, strict=True), key=lambda pair: pair[0])
        root.parts = [*rest, *(gpu for _, gpu in pairs)]
    return root


def _placed_sections(root: Section, names: Sequence[_Names]) -> list[tuple[int | None, Section, _Names]]:
    """Each GPU of an output with its place among those before; those without any name are in their order."""
    own_names = _section_names(root)
    in_order = _are_in_order(own_names, names)
    return [
        (
            number if in_order else next((at for at, name in enumerate(names) if name.is_same(own)), None),
            section,
            own,
        )
        for number, (section, own) in enumerate(zip(root.all("gpu"), own_names, strict=True))
    ]


def _are_in_order(first: Sequence[_Names], second: Sequence[_Names]) -> bool:
    """Whether two outputs show the same GPUs, as many in both, of which one names none."""
    return len(first) == len(second) and any(all(own.is_empty for own in names) for names in (first, second))


def _section_names(root: Section) -> list[_Names]:
    """The names of the GPUs of an output; of one that shows all of them also their indexes."""
    sections = list(root.all("gpu"))
    addresses = [normal_bus_id(section.text) for section in sections]
    order = sorted(address for address in addresses if address)
    is_whole = leading_integer(root.value("attached_gpus") or "") == len(sections) == len(set(order))
    return [
        _Names(
            address,
            section.value("uuid", "gpu_uuid"),
            order.index(address) if is_whole and address else leading_integer(section.value("index") or ""),
        )
        for section, address in zip(sections, addresses, strict=True)
    ]


def _join_names(first: _Names, second: _Names) -> _Names:
    return _Names(
        first.bus_id or second.bus_id,
        first.uuid or second.uuid,
        second.index if first.index is None else first.index,
    )


def _put_newer(section: Section, newer: Section) -> None:
    """Put the parts of a newer section in an older one."""
    section.text = newer.text if not section.text or _is_value(newer.text) else section.text
    if section.name in _LISTS:
        section.parts = newer.parts or section.parts
        return
    if newer.parts and not any(newer.find(name) for name in _SUMS):
        section.parts = [part for part in section.parts if part.name not in _SUMS]
    for name in dict.fromkeys(part.name for part in newer.parts):
        old, new = list(section.all(name)), list(newer.all(name))
        if len(old) == len(new) == 1:
            _put_newer(old[0], new[0])
        else:
            section.parts = [*(part for part in section.parts if part.name != name), *new]


def _is_value(text: str) -> bool:
    """Whether a text says something: an error does, and that there is no such thing does not."""
    return bool(text) and error_name(text) != "NOT_SUPPORTED"


def merge_readings(readings: Sequence[GpuReading]) -> tuple[Gpu, ...]:
    """The GPUs of several sources, the best first: each value from the first source that has it.

    Those that nothing names are counted from the end of their source: they may be some of the others.
    """
    merged: list[Gpu] = []
    counts: list[int] = []
    for number, reading in enumerate(readings):
        names = [_gpu_names(gpu) for gpu in merged]
        in_order = _are_in_order([_gpu_names(gpu) for gpu in reading.gpus], names)
        for at, gpu in enumerate(reading.gpus):
            own = _gpu_names(gpu)
            same = (i for i, peer in enumerate(merged) if _gpu_names(peer).is_same(own))
            place = at if in_order else next(same, None)
            if place is not None:
                merged[place] = _fill_values(merged[place], gpu, reading.source)
            else:
                counts.append(len(reading.gpus))
                merged.append(gpu if number == 0 else replace(gpu, sources=_sources(gpu, reading.source)))
    nameless = [place for place, gpu in enumerate(merged) if _gpu_names(gpu).is_empty and gpu.index >= 0]
    if len(nameless) < len(merged):
        for place in nameless:
            merged[place] = replace(merged[place], index=merged[place].index - counts[place])
    return tuple(merged if len(readings) < 2 else sorted(merged, key=lambda gpu: gpu.index))


def _gpu_names(gpu: Gpu) -> _Names:
    return _Names(gpu.bus_id, gpu.uuid, gpu.index if gpu.numbered else None)


def _values(gpu: Gpu) -> dict[str, object]:
    values = ((name, getattr(gpu, name)) for name in field_names(Gpu) if name not in NOT_READ)
    return {name: value for name, value in values if value is not None}


def _sources(gpu: Gpu, source: str) -> dict[str, str]:
    return dict.fromkeys((*_values(gpu), *gpu.errors), source)


def _fill_values(gpu: Gpu, later: Gpu, source: str) -> Gpu:
    """The first GPU with the values that only the later one has, and what is in place of values."""
    own = {**_values(gpu), **{name: None for name, error in gpu.errors.items() if error != "NOT_SUPPORTED"}}
    added = {name: value for name, value in _values(later).items() if name not in own}
    errors = {name: error for name, error in gpu.errors.items() if name not in added}
    errors |= {name: error for name, error in later.errors.items() if name not in own and name not in errors}
    number = later if later.numbered and not gpu.numbered else gpu
    return replace(
        gpu,
        index=number.index,
        numbered=number.numbered,
        errors=errors,
        printed=gpu.printed or later.printed,
        sources={**dict.fromkeys((*added, *later.errors), source), **gpu.sources},
        **added,
    )
