"""Sensors and events of a server's own controller: `ipmitool sdr`, `sensor` and `sel list`.

Formats: ipmitool 1.8, lib/ipmi_sdr.c, lib/ipmi_sensor.c and lib/ipmi_sel.c: columns between bars.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Result, Verdict, make_verdict
from nodedoctor.patterns import regex
from nodedoctor.wording import count_with_noun

PROBE = "ipmitool"
ipmitool = pasted(PROBE, "The output of ipmitool sdr, sensor or sel.")
_of_bmc = partial(make_verdict, PROBE, PROBE)

_STATES: Mapping[str, tuple[Result, str]] = {
    "nr": ("fail", "non-recoverable"),
    "unr": ("fail", "non-recoverable"),
    "lnr": ("fail", "non-recoverable"),
    "cr": ("warn", "critical"),
    "ucr": ("warn", "critical"),
    "lcr": ("warn", "critical"),
    "nc": ("note", "beyond its first threshold"),
    "unc": ("note", "beyond its first threshold"),
    "lnc": ("note", "beyond its first threshold"),
}
"""States of a sensor; `ok` is well, `ns` and `na` have no reading."""
_FAULT = regex(
    r"AC lost|Failure detected|Predictive [Ff]ailure|Redundancy Lost|Insufficient Resources|Uncorrectable"
    r"|logging limit reached|IERR|Thermal Trip|Machine Check|Non-[Rr]ecoverable|(?<!Non-)(?<!Non-c)Critical"
    r"|(?<!No )\bFault|Configuration Error|\bPERR\b|\bSERR\b|Bus Fatal"
)
"""Events of IPMI 2.0 (table 42-3) that are a fault, whatever the sensor."""
_EVENT = regex(
    r"[ \t]*[\da-f]{1,5} \| \S{8,10}[ \t]*\| [\d:]{8}(?: \w{3,5})?[ \t]*\| (?P<sensor>[^|]{2,60})\|"
    r" (?P<event>[^|]{2,80})\| (?P<way>Asserted|Deasserted)"
)


def verdicts(output: str) -> Iterator[Verdict]:
    """Sensors that are not well, and events of faults whose end was not logged."""
    events: dict[tuple[str, str], tuple[str, str]] = {}
    sensors, sick = 0, 0
    for line in output.splitlines():
        if event := _EVENT.match(line):
            events[event["sensor"].strip(), event["event"].strip()] = (event["way"], line)
        elif len(cells := [cell.strip() for cell in line.split("|")]) > 2:
            sensors += 1
            if verdict := _sensor_verdict(cells, line):
                sick += verdict.result in ("warn", "fail")
                yield verdict
    for (sensor, event_words), (way, line) in events.items():
        if way == "Asserted" and _FAULT.search(event_words):
            sick += 1
            when = line.split("|")[1].strip()
            yield _of_bmc("warn", f"event of {when}: {sensor}: {event_words}", f"event:{sensor}", line)
    if not sick:
        counts = f"{count_with_noun(sensors, 'sensor')} and {count_with_noun(len(events), 'event')}"
        yield _of_bmc("pass", f"{counts}, none of a fault")


def _sensor_verdict(cells: list[str], line: str) -> Verdict | None:
    """A sensor's state, or the fault that a sensor without thresholds tells in words."""
    name, reading = cells[0], cells[-1] if len(cells) == 5 else cells[1]
    state = next((cell for cell in cells[2:4] if cell in _STATES), "")
    if state:
        result, words = _STATES[state]
        return _of_bmc(result, f"{name} is {words} ({reading})", f"sensor:{name}", line)
    if len(cells) == 5 and _FAULT.search(reading):
        return _of_bmc("warn", f"{name}: {reading}", f"sensor:{name}", line)
    return None
