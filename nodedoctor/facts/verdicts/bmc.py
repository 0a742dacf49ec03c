"""Sensors and events of a server's own controller: `ipmitool sdr`, `sensor`, `sel list`, `chassis status`.

Formats: ipmitool 1.8, lib/ipmi_sdr.c, lib/ipmi_sensor.c, lib/ipmi_sel.c and lib/ipmi_chassis.c: columns
between bars, with -c between commas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Result, Verdict, make_verdict
from nodedoctor.patterns import regex
from nodedoctor.wording import count_with_noun

PROBE = "ipmitool"
ipmitool = pasted(PROBE, "The output of ipmitool sdr, sensor, sel or chassis status.")
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
_LASTING = regex(r"AC lost|Failure detected|Predictive|Redundancy Lost|Insufficient|Critical|\bFault")
"""Faults that are states: the sensor itself shows whether it is still so. The others happen once."""
_END = regex(r"Fully Redundant|[Tt]ransition to OK|State Deasserted|Limit Not Exceeded|Performance Met")
"""Events of IPMI 2.0 (tables 42-2 and 42-3) that say the good state of a sensor."""
_EVENT = regex(
    r"[ \t]*[\da-f]{1,5} \| \S{8,10}[ \t]*\| [\d:]{8}(?: \w{3,5})?[ \t]*\| (?P<sensor>[^|]{2,60})\|"
    r" (?P<event>[^|]{2,80})(?:\| (?P<way>Asserted|Deasserted)|$)"
)
_CHASSIS = regex(r"[ \t]*(?P<name>[A-Z][\w/ -]{2,30}?(?:Fault|Overload))[ \t]*: (?P<state>true|false)\b")


def verdicts(output: str) -> Iterator[Verdict]:
    """Sensors that are not well, and events of faults that nothing later ended."""
    events: dict[tuple[str, str], str] = {}
    shown_events: set[tuple[str, str]] = set()
    sound_names: set[str] = set()
    sensors, sick = 0, 0
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.split("|" if "|" in line else ",")]
        if event := _EVENT.match(line):
            _add_event(events, event)
            shown_events.add((event["sensor"].strip(), event["event"].strip()))
        elif state := _CHASSIS.match(line):
            sensors += 1
            if state["state"] == "true":
                sick += 1
                yield _of_bmc("warn", f"chassis: {state['name']}", f"sensor:{state['name']}", line)
        elif len(cells) > 2:
            sensors += 1
            if verdict := _sensor_verdict(cells, line):
                sick += verdict.result in ("warn", "fail")
                yield verdict
            elif cells[-1] and "ok" in cells[2:4]:
                sound_names |= {cells[0], f"#0x{cells[1][:2].lower()}"} if len(cells) == 5 else {cells[0]}
    for (sensor, words), line in events.items():
        if _FAULT.search(words) and not (_LASTING.search(words) and _shows_sensor(sensor, sound_names)):
            sick += 1
            when = line.split("|")[1].strip()
            yield _of_bmc("warn", f"event of {when}: {sensor}: {words}", f"event:{sensor}", line)
    if not sick:
        counts = f"{count_with_noun(sensors, 'sensor')} and {count_with_noun(len(shown_events), 'event')}"
        yield _of_bmc("pass", f"{counts}, none of a fault")


def _add_event(events: dict[tuple[str, str], str], event: re.Match[str]) -> None:
    """Add an event to those that last; the end of a fault, or the sensor's good state, takes it out."""
    sensor, words = event["sensor"].strip(), event["event"].strip()
    if event["way"] == "Deasserted":
        events.pop((sensor, words), None)
        return
    if _END.search(words):
        for key in [key for key in events if key[0] == sensor and _LASTING.search(key[1])]:
            del events[key]
    events[sensor, words] = event.string


def _shows_sensor(sensor: str, names: set[str]) -> bool:
    """Whether an event's sensor, `Fan FAN2` or `Fan #0x42`, is one of these."""
    return any(sensor == name or sensor.endswith(f" {name}") for name in names)


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
