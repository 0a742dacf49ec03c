"""What both ends of a pair say, and what all its rails say, as one measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.json_shapes import number, part, text, whole_number
from nodedoctor.pairs.model import Fault, Measurement, Pair


def join_ends(pair: Pair, answers: Mapping[str, Mapping[str, Any]], place: int) -> Measurement:
    """What both ends say, as one measurement."""
    ends = [answers[name] for name in pair if name in answers]
    faults = [kind for end in ends if (kind := text(end, "fault"))]
    ranked: list[Fault] = [
        fault for fault in ("corrupt", "refused", "filtered", "hang", "error") if fault in faults
    ]
    fault = ranked[0] if ranked else "hang" if len(ends) < 2 or faults else None
    notes = [note for end in ends if (note := text(end, "note"))]
    rates = [rate for end in ends if (rate := number(end.get("gbps"))) is not None]
    losses = [
        again / segments
        for end in ends
        if (segments := whole_number(end, "segments")) and (again := whole_number(end, "again")) is not None
    ]
    trips = [trip for end in ends if (trip := number(end.get("rtt_us"))) is not None]
    return Measurement(
        pair,
        round(min(rates), 4) if len(rates) == 2 else None,
        fault,
        round(max(losses), 6) if losses else None,
        min(trips) if trips else None,
        place,
        "; ".join(dict.fromkeys(notes))[:200],
        _rail_rates(ends),
    )


def join_rails(measured: Sequence[tuple[str, Measurement]]) -> Measurement:
    """The measurements of all rails of a pair as one: as slow as the slowest, a dead rail has the rate 0."""
    first = measured[0][1]
    if not any(measurement.gbps for _, measurement in measured) or not all(rail for rail, _ in measured):
        return first
    rates = {
        rail: 0.0 if measurement.fault and measurement.fault != "corrupt" else measurement.gbps or 0.0
        for rail, measurement in measured
    }
    return replace(
        first,
        gbps=min(rates.values()),
        fault="corrupt" if any(measurement.fault == "corrupt" for _, measurement in measured) else None,
        loss=max(
            (measurement.loss for _, measurement in measured if measurement.loss is not None), default=None
        ),
        rtt_us=min(
            (measurement.rtt_us for _, measurement in measured if measurement.rtt_us is not None),
            default=None,
        ),
        note="; ".join(
            f"{rail}: {measurement.note or measurement.fault}"
            for rail, measurement in measured
            if measurement.fault
        )[:200],
        rails=rates,
    )


def _rail_rates(ends: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The lesser rate of each rail: each end says how fast it wrote."""
    rails: dict[str, float] = {}
    for end in ends:
        rates = part(end, "rails")
        for name in rates:
            if (rate := number(rates[name])) is not None:
                rails[name] = min(rate, rails.get(name, rate))
    return rails
