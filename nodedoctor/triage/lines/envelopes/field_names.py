"""Records of envelopes: a text with a time, a host, a severity, a rank.

No collector has a case of its own: its fields are known by the names that all of them use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.lines.times import parse_time
from nodedoctor.triage.model import LARGEST_PID, LARGEST_WORLD, Identity
from nodedoctor.whole_numbers import whole_number

TEXT = (
    "log", "message", "msg", "textpayload", "@message", "body", "line", "event", "_raw", "short_message",
    "text", "full_message", "logmessage", "log_message", "log_s", "content", "output", "rendered",
    "stringvalue",
)  # fmt: skip
"""Names under which loggers and collectors keep the text, the surest first; case does not matter."""
STREAMS = ("stdout_lines", "stderr_lines", "stdout", "stderr", "logs", "log_tail")
"""Names under which what runs a command keeps the lines that it printed, beside a text of its own."""
TRACES = ("exc_info", "exc", "exception", "exc_text", "stack_trace", "stacktrace", "traceback", "stack_info")
SEVERAL = 3
"""Lines that make a text a log, whatever it is called."""
_TIME = (
    "asctime", "time", "timestamp", "@timestamp", "ts", "datetime", "date", "timegenerated", "@t",
    "_source_realtime_timestamp", "__realtime_timestamp", "timeunixnano", "timestampunixnano", "_time",
)  # fmt: skip
_HOST = (
    "hostname", "_hostname", "host", "pod_name", "podname", "pod", "node_name", "node", "computer",
    "instance",    "podname_s", "logstreamname", "container_name",
)  # fmt: skip
_SAGEMAKER_STREAM = re.compile(r"(?:.*/)?(algo-\d+)-\d{8,}")
"""The name of the stream of one of SageMaker's hosts: its job, host and time."""
_LEVEL = ("levelname", "level", "severity", "priority", "loglevel", "severitytext", "@l", "log.level")
_RANK = ("rank", "global_rank", "rank_id")
_LEVELS = {
    "d": "D", "t": "D", "i": "I", "n": "I", "w": "W", "e": "E", "f": "F", "c": "F", "a": "F",
    "10": "D", "20": "I", "30": "W", "40": "E", "50": "F",
    "0": "F", "1": "F", "2": "F", "3": "E", "4": "W", "5": "I", "6": "I", "7": "D",
}  # fmt: skip
"""First letters of severities, the numbers of logging and those of syslog."""


@record
class EnvelopeRecord:
    """The text of one envelope and its other fields.

    It is not `complete` when the text goes on in the next envelope of its `stream`.
    """

    text: str
    who: Identity = Identity()
    time: float | None = None
    level: str = ""
    complete: bool = True
    stream: str = ""


def who_of(fields: Mapping[str, Any], outer_who: Identity) -> Identity:
    """Identity from the fields of an object, and of those in it that describe it."""
    all_fields = dict(fields)
    for item in fields.values():
        if isinstance(item, dict):
            for key, inner in item.items():
                all_fields.setdefault(str(key).lower(), inner)
                if isinstance(inner, dict):
                    all_fields.update(
                        {str(k).lower(): v for k, v in inner.items() if str(k).lower() not in all_fields}
                    )
    host = next((item for name in _HOST if isinstance(item := all_fields.get(name), str) and item), None)
    if host and (stream := _SAGEMAKER_STREAM.fullmatch(host)):
        host = stream[1]
    rank = next(
        (n for name in _RANK if (n := whole_number(all_fields.get(name), LARGEST_WORLD - 1)) is not None),
        None,
    )
    pid = next(
        (n for name in ("_pid", "pid") if (n := whole_number(all_fields.get(name), LARGEST_PID))), None
    )
    own_who = Identity(
        rank=rank,
        local_rank=whole_number(all_fields.get("local_rank"), LARGEST_WORLD - 1),
        host=host[:200] if host else None,
        recorder=host[:200] if host else None,
        pid=pid if rank is not None else None,  # else it may be the launcher's, who speaks for all ranks
    )
    return own_who.fill_from(outer_who)


def level_of(fields: Mapping[str, Any]) -> str:
    """The severity of an object: D I W E F; '' without one."""
    for name in _LEVEL:
        item = fields.get(name)
        if isinstance(item, dict):
            item = item.get("name")
        word = str(item).lower() if isinstance(item, (str, int)) else ""
        if word:
            return _LEVELS.get(word, _LEVELS.get(word[:1], ""))
    return ""


def time_of(fields: Mapping[str, Any]) -> float | None:
    """The time that the fields of an object give."""
    return next((time for name in _TIME if (time := parse_time(fields.get(name))) is not None), None)


def fill_record(entry: EnvelopeRecord, fields: Mapping[str, Any]) -> EnvelopeRecord:
    """A record, its time and severity from the object around it where it has none."""
    time = entry.time if entry.time is not None else time_of(fields)
    return EnvelopeRecord(
        entry.text, entry.who, time, entry.level or level_of(fields), entry.complete, entry.stream
    )


def order_records(records: list[EnvelopeRecord]) -> list[EnvelopeRecord]:
    """Consoles of clouds show the newest first: turned round when the times only fall."""
    times = [entry.time for entry in records if entry.time is not None]
    if len(times) > 1 and times[0] > times[-1] and all(a >= b for a, b in pairwise(times)):
        return _newest_last(records)
    return records


def _newest_last(records: list[EnvelopeRecord]) -> list[EnvelopeRecord]:
    """Newest last; lines of one text, which share its time, stay in their order."""
    groups: list[list[EnvelopeRecord]] = []
    for entry in records:
        if groups and groups[-1][0].time == entry.time and entry.time is not None:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return [entry for group in reversed(groups) for entry in group]
