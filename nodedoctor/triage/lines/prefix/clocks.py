"""Times in front of lines, as loggers, syslog, collectors and shells write them."""

from __future__ import annotations

import re

from nodedoctor.triage.lines.prefix.info import DIGITS, LOWER, UPPER, PrefixInfo, Reader, ignore_prefix
from nodedoctor.triage.lines.times import MONTHS, parse_time, year_seconds
from nodedoctor.triage.model import LARGEST_PID
from nodedoctor.whole_numbers import whole_number

_DATE = re.compile(
    r"(?: (?=\[))?[\[(]?(?:\w{3} )?(\d{4})[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,:](\d{1,9}))?"
    r"(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?[\])]?"
    r"(?: (?:stdout|stderr) ([FP]) | - | \| |:? |\t|\||$)?"
)
_WORDED = re.compile(
    r"[\[(]?(?:[A-Z][a-z]{2},? )?(?:([A-Z][a-z]{2}) +(\d{1,2})|(\d{1,2})[ /]([A-Z][a-z]{2}))"
    r"(?:[ /](?:19|20)\d\d)?[ :](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?: (?:AM|PM))?"
    r"(?: (?:[A-Z]{3,4}|[+-]\d{4}))?(?: (?:19|20)\d\d)?"
    r"[\])]?(?: - | \| |:? |\t|(?=\[(?:\d{1,9},)?\d{1,6}\]<std)|$)"
)
_CLOCK = re.compile(
    r"\[\d\d:\d\d:\d\d(?:\.\d+)?\] ?|\d\d:\d\d:\d\d(?:[.,]\d+)?(?: - | \| | )(?=.)|\[\d{1,7}\] (?=\[)"
    r"|\[\d{1,2}/\d{1,2}/\d{2,4} \d\d:\d\d:\d\d\] ?"
)
_SECONDS = re.compile(r"(1\d{9})(?:\.(\d{1,9})|(\d{3}))? (?=\S)")
_SHORT_DATE = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?: - | \| | )")
_RFC5424 = re.compile(
    r"(?:<\d{1,3}>)?1 (\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|[+-]\d\d:?\d\d) (\S+)"
    r" \S+ \S+ \S+ (?:-|(?:\[[^\]]*\])+) ?(?:\ufeff)?"
)
_DAEMONS = r"kernel|systemd(?:-\w+)?|slurm\w*|kubelet|nvidia-\w+|nv-\w+|dcgm\w*|opensm|mcelog|rasdaemon"
"""Programs of a node in front of a colon: of other words there `Epoch 0: 12%` shows that they are none."""
_UPTIME = re.compile(r"(?:<\d>)?\[ *\d+\.\d{6}\] ?")
_SYSLOG = re.compile(
    r"(?:([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
    r"|(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)"
    r"(?:\.(\d{1,9}))?(?:Z|[+-]\d\d:?\d\d)?) "
    r"(?!(?i:error|warn|warning|info|debug|note|notice|fatal|critical) )([A-Za-z0-9][\w.-]*) "
    rf"(?:(?=(?:{_DAEMONS}): )"
    r"|(?:rank[_-]?(\d{1,6})|[\w./@-]+)\[(\d{1,10})\]: ?)"
)
_PASSES_ON = re.compile(
    r"[ /](?:torchrun|deepspeed|accelerate|horovodrun|srun|slurm\w*|mpi(?:run|exec)\S*|prte\w*|orte\w*|ray\w*"
    r"|docker\w*|containerd\S*|podman|conmon|kubelet|run\S*\.sh|ba?sh)\[\d+\]: ?$"
)
"""Tags of programs that give syslog what others print."""


def _read_clock(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.logged = True


def read_date(match: re.Match[str], prefix: PrefixInfo) -> None:
    """Take the time from groups of year, month, day, hour, minute, second, fraction."""
    prefix.time = year_seconds(*match.group(2, 3, 4, 5, 6, 7))
    prefix.logged = True


def _read_short_date(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.time = year_seconds(*match.group(1, 2, 3, 4, 5, 6))
    prefix.logged = True


def _read_worded(match: re.Match[str], prefix: PrefixInfo) -> None:
    name = match[1] or match[4]
    if name in MONTHS:
        day = match[2] or match[3]
        prefix.time = year_seconds(MONTHS.index(name) + 1, day, *match.group(5, 6, 7, 8))
        prefix.logged = True


def _read_seconds(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.time = parse_time(match[1] + "." + (match[2] or match[3] or "0"))
    prefix.logged = True


def _read_syslog(match: re.Match[str], prefix: PrefixInfo) -> None:
    if match[1] in MONTHS:
        prefix.time = year_seconds(MONTHS.index(match[1]) + 1, *match.group(2, 3, 4, 5, 6))
    elif match[7]:
        prefix.time = year_seconds(*match.group(8, 9, 10, 11, 12, 13))
    if match[16]:
        prefix.add_recorder(match[14])
    else:
        prefix.add(host=match[14])
    if match[15]:
        prefix.add_rank(int(match[15]))
    if _PASSES_ON.search(match[0]) is None:
        prefix.printer = whole_number(match[16], LARGEST_PID)


def _read_rfc5424(match: re.Match[str], prefix: PrefixInfo) -> None:
    read_date(match, prefix)
    prefix.add_recorder(match[8] if match[8] != "-" else None)


RFC5424: Reader = (_RFC5424, _read_rfc5424, "<1")
SYSLOG: Reader = (_SYSLOG, _read_syslog, UPPER + DIGITS)
DATE: Reader = (_DATE, read_date, "[(_ " + UPPER + LOWER + DIGITS)
CLOCK: Reader = (_CLOCK, _read_clock, "[" + DIGITS)
WORDED: Reader = (_WORDED, _read_worded, "[(" + UPPER + DIGITS)
SECONDS: Reader = (_SECONDS, _read_seconds, "1")
SHORT_DATE: Reader = (_SHORT_DATE, _read_short_date, DIGITS)
UPTIME: Reader = (_UPTIME, ignore_prefix, "[<")
