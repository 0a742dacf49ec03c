"""The same log in the ways in which logs reach a person: printed, collected, exported, packed, pasted.

Each format takes the lines of a log and gives the bytes of a file. LOSSLESS ones keep every line as it was;
LOSSY ones lose something, and a verdict may then be weaker but not another one.
"""

from __future__ import annotations

import base64
import bz2
import csv
import gzip
import html
import io
import json
import logging
import lzma
import quopri
import tarfile
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from rich.console import Console
from rich.logging import RichHandler
from rich.panel import Panel
from rich.text import Text

Lines = list[str]
Format = Callable[[Lines], bytes]
START = datetime(2026, 11, 21, 10, 20, 0, tzinfo=timezone.utc)
LEVELS = ("INFO", "INFO", "WARNING", "ERROR")


def at(number: int) -> datetime:
    """When a line was written: ten in a second."""
    return START + timedelta(milliseconds=137 * number)


def iso(number: int, digits: int = 3, between: str = "T", dot: str = ".") -> str:
    """A time as most programs write it."""
    when = at(number)
    fraction = f"{when.microsecond:06d}000"[:digits]
    return when.strftime(f"%Y-%m-%d{between}%H:%M:%S") + (dot + fraction if digits else "")


def level(number: int) -> str:
    """A severity; what a collector or a wrapper gives says nothing about the line."""
    return LEVELS[number * 7 % len(LEVELS)]


def nanos(number: int) -> int:
    """Nanoseconds since 1970."""
    return int(at(number).timestamp() * 1000) * 1_000_000


def text(lines: Lines) -> bytes:
    """The log itself."""
    return "".join(line + "\n" for line in lines).encode()


def each(prefix: Callable[[int], str], suffix: str = "") -> Format:
    """Something in front of every line."""
    return lambda lines: text([prefix(n) + line + suffix for n, line in enumerate(lines, 1)])


def json_lines(make: Callable[[int, str], Any]) -> Format:
    """An object for every line."""
    return lambda lines: text([json.dumps(make(n, line)) for n, line in enumerate(lines, 1)])


def one_document(make: Callable[[Lines], Any], indent: int | None = None) -> Format:
    """One JSON document."""
    return lambda lines: json.dumps(make(lines), indent=indent).encode()


def listed(make: Callable[[int, str], Any], *, newest_first: bool = False) -> Callable[[Lines], list[Any]]:
    """A list with an object for each line."""

    def made(lines: Lines) -> list[Any]:
        found = [make(n, line) for n, line in enumerate(lines, 1)]
        return found[::-1] if newest_first else found

    return made


def table(names: list[str], make: Callable[[int, str], list[str]], mark: str = ",", quote: int = 0) -> Format:
    """Comma-separated values."""

    def made(lines: Lines) -> bytes:
        out = io.StringIO()
        writer = csv.writer(out, delimiter=mark, quoting=csv.QUOTE_ALL if quote else csv.QUOTE_MINIMAL)
        writer.writerow(names)
        writer.writerows(make(n, line) for n, line in enumerate(lines, 1))
        return out.getvalue().encode()

    return made


def folded(width: int) -> Format:
    """Broken at a width, as terminals and fold(1) do."""
    return lambda lines: text(
        [line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)]
    )


def zipped(name: str, method: int = zipfile.ZIP_DEFLATED) -> Format:
    """A zip with one file."""

    def made(lines: Lines) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as archive:
            archive.writestr(name, text(lines))
        return out.getvalue()

    return made


def tarred(mode: str) -> Format:
    """A tar with one file."""

    def made(lines: Lines) -> bytes:
        out, data = io.BytesIO(), text(lines)
        with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
            info = tarfile.TarInfo("logs/train.log")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        return out.getvalue()

    return made


def exported(lines: Lines) -> bytes:
    """`journalctl -o export`; a text that is not plain ASCII has its length in front."""
    out = b""
    for n, line in enumerate(lines, 1):
        out += f"__CURSOR=s=1;i={n}\n__REALTIME_TIMESTAMP={nanos(n) // 1000}\n_HOSTNAME=node-1\n".encode()
        plain = line.isprintable() and line.isascii()
        data = line.encode()
        out += (
            b"MESSAGE=" + data + b"\n"
            if plain
            else b"MESSAGE\n" + len(data).to_bytes(8, "little") + data + b"\n"
        )
        out += b"_PID=812\nPRIORITY=6\n\n"
    return out


def cut(lines: Lines) -> Iterator[tuple[str, str, bool]]:
    """The parts of long lines, here of 64 characters: its time, the part, whether it is its line's last."""
    for n, line in enumerate(lines, 1):
        parts = [line[at : at + 64] for at in range(0, len(line), 64)] or [""]
        for index, part in enumerate(parts):
            yield f"{iso(n, 9)}Z", part, index == len(parts) - 1


def docker_parts(lines: Lines) -> bytes:
    """docker's json-file cuts long lines. The last part alone ends in a line feed."""
    rows = ({"log": part + "\n" * last, "stream": "stderr", "time": time} for time, part, last in cut(lines))
    return text(list(map(json.dumps, rows)))


def cri_parts(lines: Lines) -> bytes:
    """The same of containerd: P for a part, F for the last one."""
    return text([f"{time} stderr {'F' if last else 'P'} {part}" for time, part, last in cut(lines)])


def rich_lines(lines: Lines) -> bytes:
    """rich's handler: the time only when it changes, the place at the right margin."""
    rows, last = [], ""
    for n, line in enumerate(lines, 1):
        clock = at(n).strftime("[%H:%M:%S]")
        rows.append(f"{clock if clock != last else ' ' * 10} {'INFO':<8} {line:<90} train.py:{n}")
        last = clock
    return text(rows)


def rich_handler(width: int) -> Format:
    """What the handler of rich prints: it breaks texts at words into a column of its own."""

    def made(lines: Lines) -> bytes:
        out = io.StringIO()
        handler = RichHandler(console=Console(file=out, width=width, force_terminal=False))
        for n, line in enumerate(lines, 1):
            severity = getattr(logging, level(n))
            record = logging.LogRecord("train", severity, "/job/train.py", 100 + n % 7, "%s", (line,), None)
            record.created = at(n).timestamp()
            handler.emit(record)
        return out.getvalue().encode()

    return made


def rich_console(width: int) -> Format:
    """What `log` of a console of rich prints: the time when it changes, and the place at the right margin."""

    def made(lines: Lines) -> bytes:
        out = io.StringIO()
        console = Console(file=out, width=width, force_terminal=False)
        for line in lines:
            console.log(Text(line))
        return out.getvalue().encode()

    return made


def rich_panel(width: int) -> Format:
    """A frame of rich around the log, which is broken at words to fit into it."""

    def made(lines: Lines) -> bytes:
        out = io.StringIO()
        Console(file=out, width=width, force_terminal=False).print(Panel(Text("\n".join(lines))))
        return out.getvalue().encode()

    return made


def drawn_over(lines: Lines) -> bytes:
    """tqdm.write: the bar is wiped out, the line is printed, and the bar stands there again."""
    bar = "\r 12%|█▏        | 120/999 [00:40<01:40,  3.20it/s]"
    return "".join(f"{bar}\r{' ' * 60}\r{line}\n" for line in lines).encode()


def keyed(make: Callable[[int, str], Lines], front: Lines) -> Format:
    """A record of several lines for every line, behind a heading."""
    return lambda lines: text([*front, *(row for n, line in enumerate(lines, 1) for row in make(n, line))])


def journal_entry(n: int, line: str) -> Lines:
    """An entry as `journalctl -o verbose` prints it."""
    head = at(n).strftime("Sat %Y-%m-%d %H:%M:%S.%f UTC") + f" [s=ab;i={n:x};b=1;m=2;t=3;x=4]"
    fields = ("_UID=0", "PRIORITY=6", "_HOSTNAME=node-1", "_PID=812", f"MESSAGE={line}", "_TRANSPORT=stdout")
    return [head, *("    " + field for field in fields)]


def notebook(lines: Lines) -> dict[str, Any]:
    """A notebook of Jupyter with what a cell printed."""
    output = {"name": "stderr", "output_type": "stream", "text": [line + "\n" for line in lines]}
    return {
        "cells": [{"cell_type": "code", "source": ["!torchrun t.py"], "outputs": [output]}],
        "nbformat": 4,
    }


def status_line(lines: Lines) -> bytes:
    """A recorded tmux: its status line is drawn elsewhere on the screen again and again."""
    drawn = '\x1b7\x1b[50;1H\x1b[42m[0] 0:bash*  "node-1" 10:20 21-Nov-26\x1b[m\x1b8'
    return "".join(f"{line}\r\n{'' if n % 5 else drawn}" for n, line in enumerate(lines)).encode()


def in_a_mail(encoding: str, kind: str = "plain") -> Format:
    """A mail with the log as its text."""

    def made(lines: Lines) -> bytes:
        body = text(lines)
        if kind == "html":
            body = b"<html><body><pre>\n" + text([html.escape(line) for line in lines]) + b"</pre></html>\n"
        coded = base64.encodebytes(body) if encoding == "base64" else quopri.encodestring(body)
        head = f"Subject: job 17 failed\nMIME-Version: 1.0\nContent-Type: text/{kind}; charset=utf-8\n"
        return f"{head}Content-Transfer-Encoding: {encoding}\n\n".encode() + coded

    return made


def attached(lines: Lines) -> bytes:
    """A mail with the log beside its text."""
    parts = (
        'Content-Type: text/plain; charset="utf-8"\n\nthe job died again, its log is attached\n',
        'Content-Type: text/plain; name="train.log"\nContent-Transfer-Encoding: base64\n\n'
        + base64.encodebytes(text(lines)).decode(),
    )
    head = 'Subject: log\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="=b1"\n\n'
    return (head + "".join(f"--=b1\n{part}\n" for part in parts) + "--=b1--\n").encode()


def two_streams(lines: Lines) -> bytes:
    """containerd's parts of long lines, and whole lines of the other stream between them."""
    rows = []
    for time, part, last in cut(lines):
        rows.append(f"{time} stderr {'F' if last else 'P'} {part}")
        rows += [] if last else [f"{time} stdout F up"]
    return text(rows)


def padded_rows(width: int) -> Format:
    """Rows of a terminal that were copied with the blanks behind them."""
    return lambda lines: text(
        [line[at : at + width].ljust(width) for line in lines for at in range(0, max(len(line), 1), width)]
    )


def sql_table(lines: Lines) -> bytes:
    """A table as a database's client draws it."""
    wide = max(map(len, lines), default=0)
    rule = "+" + "-" * 25 + "+" + "-" * (wide + 2) + "+"
    rows = [f"| {iso(n, 3, ' '):<23} | {line:<{wide}} |" for n, line in enumerate(lines, 1)]
    return text([rule, f"| {'time':<23} | {'message':<{wide}} |", rule, *rows, rule])


def otel(n: int, line: str) -> dict[str, Any]:
    """A log record of OpenTelemetry as JSON."""
    record = {"timeUnixNano": str(nanos(n)), "severityText": "INFO", "body": {"stringValue": line}}
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}


PREFIXED: dict[str, Format] = {
    "iso zulu": each(lambda n: iso(n) + "Z "),
    "iso nanoseconds": each(lambda n: iso(n, 9) + "Z "),
    "iso offset": each(lambda n: iso(n, 6) + "+00:00 "),
    "iso blank comma": each(lambda n: iso(n, 3, " ", ",") + " "),
    "iso in brackets": each(lambda n: f"[{iso(n, 3, ' ', ',')}] "),
    "iso in brackets, Z": each(lambda n: f"[{iso(n)}Z] "),
    "slashes": each(lambda n: at(n).strftime("%Y/%m/%d %H:%M:%S ")),
    "epoch": each(lambda n: f"{at(n).timestamp():.3f} "),
    "epoch in brackets": each(lambda n: f"[{at(n).timestamp():.6f}] "),
    "epoch whole": each(lambda n: f"{int(at(n).timestamp())} "),
    "clock": each(lambda n: at(n).strftime("%H:%M:%S ")),
    "clock with fraction": each(lambda n: at(n).strftime("%H:%M:%S.%f ")),
    "clock in brackets": each(lambda n: at(n).strftime("[%H:%M:%S] ")),
    "date(1)": each(lambda n: at(n).strftime("%a %b %e %H:%M:%S UTC %Y ")),
    "date in words": each(lambda n: at(n).strftime("%d %b %Y %H:%M:%S ")),
    "apache": each(lambda n: at(n).strftime("[%d/%b/%Y:%H:%M:%S +0000] ")),
    "ts": each(lambda n: at(n).strftime("%b %d %H:%M:%S ")),
    "ts since start": each(lambda n: f"00:00:{n % 60:02d} "),
    "grep -n": each(lambda n: f"{n}:"),
    "grep -Hn": each(lambda n: f"train.log:{n}:"),
    "grep -H": each(lambda n: "logs/train.log:"),
    "grep -C": each(lambda n: f"{n}{'-:'[n % 5 == 0]}"),
    "git grep": each(lambda n: f"runs/17/out.txt:{n}:"),
    "cat -n": each(lambda n: f"{n:6d}\t"),
    "nl": each(lambda n: f"{n:6d}  "),
    "less -N": each(lambda n: f"{n:7d} "),
    "parallel --tag": each(lambda n: "seed=3\t"),
    "parallel --tagstring": each(lambda n: "[job 17] "),
    "pdsh": each(lambda n: "node-1: "),
    "clush": each(lambda n: "gpu017: "),
    "ansible": each(lambda n: "gpu-a3 | SUCCESS | rc=0 >> "),
    "docker compose": each(lambda n: "trainer-1  | "),
    "docker compose, named": each(lambda n: "trainer    | "),
    "kubectl --prefix": each(lambda n: "[pod/job-abc12/pytorch] "),
    "kubectl --prefix --timestamps": each(lambda n: f"[pod/job-abc12/pytorch] {iso(n, 9)}Z "),
    "stern": each(lambda n: "job-abc12 pytorch "),
    "stern with sign": each(lambda n: "job-abc12 \u203a pytorch "),
    "kail": each(lambda n: "default/job-abc12[pytorch]: "),
    "containerd": each(lambda n: f"{iso(n, 9)}Z stderr F "),
    "containerd, in another zone": each(
        lambda n: f"{at(n + 5 * 3600).strftime('%Y-%m-%dT%H:%M:%S')}.123456789Z "
    ),
    "GitHub Actions": each(lambda n: iso(n, 7) + "Z "),
    "gh run view": each(lambda n: f"train\tRun training\t{iso(n, 7)}Z "),
    "GitLab": each(lambda n: f"{iso(n, 6)}Z 01O "),
    "Buildkite": each(lambda n: f"\x1b_bk;t={nanos(n) // 1_000_000}\x07"),
    "Jenkins": each(lambda n: f"[{iso(n)}Z] [train] "),
    "Azure Pipelines": each(lambda n: f"{iso(n, 7)}Z ##[debug]"),
    "syslog": each(lambda n: at(n).strftime("%b %e %H:%M:%S node-1 train: ")),
    "syslog with pid": each(lambda n: at(n).strftime("%b %e %H:%M:%S node-1 torchrun[812]: ")),
    "syslog with priority": each(lambda n: at(n).strftime("<14>%b %e %H:%M:%S node-1 torchrun[812]: ")),
    "syslog RFC 5424": each(lambda n: f"<14>1 {iso(n, 6)}Z node-1 torchrun 812 - - "),
    "syslog RFC 5424 with data": each(lambda n: f'<14>1 {iso(n)}Z node-1 train 812 ID4 [a@1 b="c"] '),
    "journalctl": each(lambda n: at(n).strftime("Nov %d %H:%M:%S node-1 python3[812]: ")),
    "journalctl short-precise": each(lambda n: at(n).strftime("Nov %d %H:%M:%S.%f node-1 python3[812]: ")),
    "journalctl short-iso": each(lambda n: f"{iso(n, 0)}+0000 node-1 python3[812]: "),
    "journalctl short-full": each(
        lambda n: at(n).strftime("Sat %Y-%m-%d %H:%M:%S UTC node-1 python3[812]: ")
    ),
    "journalctl short-unix": each(lambda n: f"{at(n).timestamp():.6f} node-1 python3[812]: "),
    "rsyslog to a file": each(lambda n: f"{iso(n, 6)}+00:00 node-1 train[812]: "),
    "quoted": each(lambda n: "> "),
    "quoted twice": each(lambda n: ">> "),
    "indented": each(lambda n: "    "),
    "indented by a tab": each(lambda n: "\t"),
    "bar": each(lambda n: "| "),
    "box": each(lambda n: "│ "),
    "diff": each(lambda n: "+"),
    "logging": each(lambda n: f"{iso(n, 3, ' ', ',')} - train - {level(n)} - "),
    "logging basic": each(lambda n: f"{level(n)}:root:"),
    "logging basic, module": each(lambda n: f"{level(n)}:torch.trainer:"),
    "logging terse": each(lambda n: f"{iso(n, 3, ' ', ',')} {level(n):<8} "),
    "logging in brackets": each(lambda n: f"[{iso(n, 0, ' ')}] [{level(n)}] "),
    "logging with place": each(lambda n: f"{iso(n, 3, ' ', ',')} {level(n)} [trainer.py:{n}] "),
    "hydra": each(lambda n: f"[{iso(n, 3, ' ', ',')}][__main__][{level(n)}] - "),
    "transformers": each(lambda n: f"[{level(n)}|trainer.py:{n}] {iso(n, 3, ' ', ',')} >> "),
    "loguru": each(lambda n: f"{iso(n, 3, ' ')} | {level(n):<8} | __main__:main:{n} - "),
    "rich": rich_lines,
    "absl": each(lambda n: at(n).strftime(f"I1121 %H:%M:%S.%f 1403 train.py:{n}] ")),
    "vLLM": each(lambda n: at(n).strftime(f"{level(n)} %m-%d %H:%M:%S [core.py:{n}] ")),
    "Spark": each(lambda n: at(n).strftime(f"%y/%m/%d %H:%M:%S {level(n)} Worker: ")),
    "uvicorn": each(lambda n: f"{level(n) + ':':<9} "),
    "Lightning": each(lambda n: f"{iso(n, 0, ' ')},{n % 1000:03d} [{level(n)}] lightning: "),
    "SageMaker": each(lambda n: "[1,mpirank:0,algo-1]<stderr>:"),
    "SageMaker, one": each(lambda n: "algo-1 | "),
    "aws logs tail": each(lambda n: f"{iso(n, 6)}+00:00 train/algo-1-1763719200 "),
    "supervisord": each(lambda n: "train:train_00 STDERR | "),
    "honcho": each(lambda n: at(n).strftime("%H:%M:%S train.1 | ")),
    "systemd-cat": each(lambda n: "train[812]: "),
    "stream": each(lambda n: "[stderr] "),
    "stream and clock": each(lambda n: at(n).strftime("%H:%M:%S stderr> ")),
    "wandb console": each(lambda n: f"{n} {iso(n, 0)} "),
    "multitail": each(lambda n: f"[{n:4d}] "),
    "mpirun with times": each(lambda n: at(n).strftime("%a %b %e %H:%M:%S %Y") + "[1,0]<stderr>:"),
    "logcli": each(lambda n: f'{iso(n, 0)}Z {{pod="job-1", stream="stderr"}} '),
    "SkyPilot": each(lambda n: "(task, pid=812) "),
    "Airflow": each(lambda n: f"[{iso(n)}+0000] {{subprocess.py:93}} INFO - "),
    "mmengine": each(lambda n: at(n).strftime("%m/%d %H:%M:%S - mmengine - INFO - ")),
    "NeMo": each(lambda n: f"[NeMo I {iso(n, 0, ' ')} nemo_logging:381] "),
    "Determined": each(lambda n: f"[{iso(n, 6)}Z] a1b2c3d4 || INFO: "),
    "Determined, of what a program prints": each(lambda n: f"[{iso(n, 6)}Z] a1b2c3d4 || "),
    "Rust": each(lambda n: f"{iso(n, 6)}Z  INFO trainer::run: "),
    "Nomad": each(lambda n: f"{iso(n, 6)}Z [INFO]  client.alloc: "),
    "TeamCity": each(lambda n: at(n).strftime("[%H:%M:%S] :\t [Step 1/1] ")),
    "time since the start": each(lambda n: f"+{0.137 * n:.3f}s "),
    "time since the start in brackets": each(lambda n: f"[{0.137 * n:8.3f}s] "),
    "Vertex AI's stream": each(lambda n: f"ERROR\t{iso(n, 0, ' ')} +0000\tworkerpool0-0\t"),
    "fields between bars": each(lambda n: f"{iso(n, 3, ' ')}|INFO|train.py|{n}|"),
    "bat": each(lambda n: f"{n:4d}   │ "),
    "Metaflow": each(lambda n: f"{iso(n, 3, ' ')} [1695/train/4 (pid 812)] "),
    "Prefect": each(lambda n: at(n).strftime("%H:%M:%S.%f | INFO    | Task run 'train-0' - ")),
    "two layers": each(
        lambda n: at(n).strftime(f"trainer-1  | %b %d %H:%M:%S node-1 run[812]: {level(n)} - ")
    ),
    "three layers": each(lambda n: f"train.log:{n}:[pod/job-abc12/pytorch] {iso(n, 9)}Z stderr F "),
}

PAYLOADS: dict[str, Format] = {
    "docker json-file": json_lines(
        lambda n, line: {"log": line + "\n", "stream": "stderr", "time": iso(n, 9) + "Z"}
    ),
    "docker json-file in parts": docker_parts,
    "containerd in parts": cri_parts,
    "journald JSON": json_lines(
        lambda n, line: {
            "__REALTIME_TIMESTAMP": str(nanos(n) // 1000),
            "_HOSTNAME": "node-1",
            "_PID": "812",
            "PRIORITY": "6",
            "SYSLOG_IDENTIFIER": "torchrun",
            "MESSAGE": line,
        }
    ),
    "journald JSON, bytes": json_lines(
        lambda n, line: {"__REALTIME_TIMESTAMP": str(nanos(n) // 1000), "MESSAGE": list(line.encode())}
    ),
    "journald export": exported,
    "Loki lines": json_lines(
        lambda n, line: {"labels": {"pod": "job-1"}, "line": line, "timestamp": iso(n, 9) + "Z"}
    ),
    "Loki answer": one_document(
        lambda lines: {
            "status": "success",
            "data": {
                "resultType": "streams",
                "result": [
                    {"stream": {"pod": "job"}, "values": listed(lambda n, line: [str(nanos(n)), line])(lines)}
                ],
            },
        }
    ),
    "Loki answer, newest first": one_document(
        lambda lines: {
            "status": "success",
            "data": {
                "result": [
                    {
                        "stream": {"pod": "job"},
                        "values": listed(lambda n, line: [str(nanos(n)), line], newest_first=True)(lines),
                    }
                ]
            },
        }
    ),
    "Cloud Logging": one_document(
        listed(
            lambda n, line: {
                "insertId": f"a{n}",
                "textPayload": line + "\n",
                "timestamp": iso(n, 9) + "Z",
                "resource": {"type": "k8s_container", "labels": {"pod_name": "job-abc"}},
                "severity": "ERROR",
            }
        ),
        indent=2,
    ),
    "Cloud Logging, newest first": one_document(
        listed(lambda n, line: {"textPayload": line, "timestamp": iso(n, 9) + "Z"}, newest_first=True),
        indent=2,
    ),
    "Cloud Logging jsonPayload": json_lines(
        lambda n, line: {"jsonPayload": {"message": line, "levelname": level(n)}, "timestamp": iso(n) + "Z"}
    ),
    "CloudWatch events": one_document(
        lambda lines: {
            "events": listed(
                lambda n, line: {
                    "timestamp": nanos(n) // 1_000_000,
                    "message": line,
                    "ingestionTime": nanos(n) // 1_000_000,
                }
            )(lines),
            "nextForwardToken": "f/1",
        },
        indent=4,
    ),
    "CloudWatch Insights": table(["@timestamp", "@message"], lambda n, line: [iso(n, 3, " "), line]),
    "CloudWatch answer": one_document(
        lambda lines: {
            "results": [
                [{"field": "@timestamp", "value": iso(n, 3, " ")}, {"field": "@message", "value": line}]
                for n, line in enumerate(lines, 1)
            ],
            "status": "Complete",
        }
    ),
    "Azure table": one_document(
        lambda lines: {
            "tables": [
                {
                    "name": "PrimaryResult",
                    "columns": [
                        {"name": "TimeGenerated", "type": "datetime"},
                        {"name": "LogMessage", "type": "string"},
                    ],
                    "rows": listed(lambda n, line: [iso(n) + "Z", line])(lines),
                }
            ]
        }
    ),
    "Azure CSV": table(
        ["TimeGenerated [UTC]", "Computer", "LogMessage"],
        lambda n, line: [iso(n, 3, " "), "node-1", line],
        quote=1,
    ),
    "Datadog": one_document(
        lambda lines: {
            "data": listed(
                lambda n, line: {
                    "id": f"A{n}",
                    "type": "log",
                    "attributes": {
                        "message": line,
                        "host": "node-1",
                        "timestamp": iso(n) + "Z",
                        "status": "info",
                    },
                }
            )(lines),
            "meta": {"page": {}},
        }
    ),
    "Elasticsearch": one_document(
        lambda lines: {
            "took": 3,
            "hits": {
                "total": {"value": 3},
                "hits": listed(
                    lambda n, line: {"_index": "x", "_source": {"@timestamp": iso(n) + "Z", "message": line}}
                )(lines),
            },
        }
    ),
    "Elasticsearch lines": json_lines(
        lambda n, line: {
            "_index": "x",
            "_source": {"@timestamp": iso(n) + "Z", "message": line, "log": {"offset": n}},
        }
    ),
    "Filebeat": json_lines(
        lambda n, line: {
            "@timestamp": iso(n) + "Z",
            "log": {"offset": n, "file": {"path": "/x"}},
            "message": line,
            "host": {"name": "node-1"},
            "ecs": {"version": "8"},
        }
    ),
    "Splunk": json_lines(
        lambda n, line: {"preview": False, "result": {"_raw": line, "_time": iso(n, 3, " ")}}
    ),
    "structlog": json_lines(
        lambda n, line: {"event": line, "level": level(n).lower(), "timestamp": iso(n) + "Z"}
    ),
    "bunyan": json_lines(
        lambda n, line: {
            "name": "t",
            "hostname": "node-1",
            "pid": 812,
            "level": 30,
            "msg": line,
            "time": iso(n) + "Z",
            "v": 0,
        }
    ),
    "logging as JSON": json_lines(
        lambda n, line: {
            "asctime": iso(n, 3, " ", ","),
            "levelname": level(n),
            "name": "root",
            "message": line,
        }
    ),
    "zap": json_lines(
        lambda n, line: {"level": "info", "ts": at(n).timestamp(), "caller": "a/b.go:12", "msg": line}
    ),
    "GELF": json_lines(
        lambda n, line: {
            "version": "1.1",
            "host": "node-1",
            "short_message": line,
            "timestamp": at(n).timestamp(),
            "level": 6,
        }
    ),
    "loguru serialized": json_lines(
        lambda n, line: {
            "text": f"{iso(n, 3, ' ')} | INFO     | m:f:1 - {line}\n",
            "record": {"message": line, "level": {"name": "INFO", "no": 20}},
        }
    ),
    "Vector": json_lines(
        lambda n, line: {
            "host": "node-1",
            "message": line,
            "source_type": "file",
            "timestamp": iso(n, 9) + "Z",
        }
    ),
    "Fluent Bit": json_lines(
        lambda n, line: {"date": at(n).timestamp(), "stream": "stderr", "_p": "F", "log": line}
    ),
    "Fluentd in kubernetes": json_lines(
        lambda n, line: {
            "log": line + "\n",
            "stream": "stderr",
            "docker": {"container_id": "ab"},
            "kubernetes": {"pod_name": "job-abc", "host": "node-1"},
            "@timestamp": iso(n) + "Z",
        }
    ),
    "OpenTelemetry": json_lines(otel),
    "Serilog": json_lines(
        lambda n, line: {"@t": iso(n) + "Z", "@m": line, "MessageTemplate": "x", "Message": line}
    ),
    "JSON in JSON": json_lines(
        lambda n, line: {
            "log": json.dumps({"message": line, "level": "info"}) + "\n",
            "stream": "stdout",
            "time": iso(n, 9) + "Z",
        }
    ),
    "JSON of a log with times": json_lines(
        lambda n, line: {
            "log": f"{iso(n, 3, ' ', ',')} - x - {level(n)} - {line}\n",
            "stream": "stderr",
            "time": iso(n, 9) + "Z",
        }
    ),
    "JSON behind a time": lambda lines: text(
        [
            f"{iso(n, 9)}Z stderr F " + json.dumps({"msg": line, "level": "info"})
            for n, line in enumerate(lines, 1)
        ]
    ),
    "JSON list on lines": lambda lines: (
        "[\n" + ",\n".join(json.dumps({"message": line}) for line in lines) + "\n]\n"
    ).encode(),
    "JSON pretty": one_document(listed(lambda n, line: {"time": iso(n), "message": line, "n": n}), indent=2),
    "logfmt": lambda lines: text(
        [
            f'time="{iso(n)}Z" level=info msg={json.dumps(line)} component=trainer pid=812'
            for n, line in enumerate(lines, 1)
        ]
    ),
    "logfmt of Go": lambda lines: text(
        [
            f"ts={iso(n)}Z caller=tail.go:12 level=info msg={json.dumps(line)}"
            for n, line in enumerate(lines, 1)
        ]
    ),
    "structlog, key=value": lambda lines: text(
        [f"timestamp='{iso(n)}Z' level='info' event={line!r}" for n, line in enumerate(lines, 1)]
    ),
    "fluentd": lambda lines: text(
        [
            f"{iso(n, 0)}+00:00\tkube.job\t{json.dumps({'log': line, 'stream': 'stderr'})}"
            for n, line in enumerate(lines, 1)
        ]
    ),
    "fluent-bit": lambda lines: text(
        [
            f"[{n}] job: [[{at(n).timestamp():.9f}, {{}}], {json.dumps({'log': line, 'stream': 'stderr'})}]"
            for n, line in enumerate(lines)
        ]
    ),
    "logfmt behind a name": lambda lines: text(
        [
            f'train-wf-main-17: time="{iso(n, 0)}Z" level=info msg={json.dumps(line)}'
            for n, line in enumerate(lines, 1)
        ]
    ),
    "YAML of gcloud": keyed(
        lambda n, line: [
            "---",
            f"insertId: a{n}",
            "resource:",
            "  labels:",
            "    pod_name: job-1",
            "severity: ERROR",
            f"textPayload: {json.dumps(line)}",
            f"timestamp: '{iso(n, 9)}Z'",
        ],
        [],
    ),
    "texts by their name": lambda lines: text([f"message: {json.dumps(line)}" for line in lines]),
    "Cloud Logging, newest first on lines": lambda lines: text(
        [json.dumps({"timestamp": iso(n, 6) + "Z", "message": line}) for n, line in enumerate(lines, 1)][::-1]
    ),
    "containerd in parts of two streams": two_streams,
    "Vertex AI": json_lines(
        lambda n, line: {
            "insertId": f"x{n}",
            "jsonPayload": {"attrs": {"tag": "workerpool0-0"}, "levelname": "ERROR", "message": line + "\n"},
            "resource": {"type": "ml_job", "labels": {"job_id": "1", "task_name": "workerpool0-0"}},
            "timestamp": iso(n, 9) + "Z",
        }
    ),
    "CSV": table(["time", "level", "message"], lambda n, line: [iso(n), level(n), line]),
    "CSV quoted": table(
        ["Date", "Host", "Service", "Content"], lambda n, line: [iso(n), "n1", "t", line], quote=1
    ),
    "TSV": table(["timestamp", "msg"], lambda n, line: [iso(n), line], mark="\t"),
    "one field": one_document(lambda lines: {"status": "FAILED", "exit_code": 1, "logs": "\n".join(lines)}),
    "one field of a nested object": one_document(
        lambda lines: {"job": {"id": 3, "stderr": "\n".join(lines), "stdout": ""}}, indent=2
    ),
    "list of lines": one_document(lambda lines: {"stdout_lines": lines, "rc": 1}, indent=4),
    "answer of a task": lambda lines: (
        b"fatal: [gpu1]: FAILED! => "
        + json.dumps({"msg": "non-zero return code", "rc": 1, "stdout_lines": lines}).encode()
        + b"\n"
    ),
    "notebook": one_document(notebook, indent=1),
    "YAML list": keyed(lambda n, line: [f"  - {json.dumps(line)}"], ["logs:"]),
    "YAML list in single quotes": keyed(lambda n, line: ["- '" + line.replace("'", "''") + "'"], ["logs:"]),
    "YAML records": keyed(
        lambda n, line: [f"- time: '{iso(n)}Z'", f"  message: {json.dumps(line)}", "  level: info"], []
    ),
    "YAML block": lambda lines: text(
        ["job: train", "steps:", "  - exit: 1", "    log: |", *("      " + line for line in lines)]
    ),
    "list of Python": lambda lines: text(["[", *(f"    {line!r}," for line in lines), "]"]),
    "text of Python": lambda lines: (repr("\n".join(lines)) + "\n").encode(),
    "escaped line ends": lambda lines: (
        "\\n".join(line.replace("\\", "\\\\") for line in lines) + "\n"
    ).encode(),
    "journalctl verbose": keyed(journal_entry, []),
    "XML": keyed(
        lambda n, line: [f"<record><date>{iso(n)}</date><message>{html.escape(line)}</message></record>"],
        ["<log>"],
    ),
    "XML over lines": keyed(
        lambda n, line: [
            "<record>",
            f"  <date>{iso(n)}</date>",
            f"  <message>{html.escape(line)}</message>",
            "</record>",
        ],
        ["<log>"],
    ),
    "CSV with paths of fields": table(
        ["insertId", "jsonPayload.message", "timestamp"], lambda n, line: [f"a{n}", line, iso(n) + "Z"]
    ),
    "JSON in JSON in JSON": json_lines(
        lambda n, line: {
            "log": json.dumps({"message": json.dumps({"msg": line, "level": "info"})}) + "\n",
            "stream": "stderr",
            "time": iso(n, 9) + "Z",
        }
    ),
    "semicolons": table(["zeit", "host", "text"], lambda n, line: [iso(n), "n1", line], mark=";"),
}

ENCODED: dict[str, Format] = {
    "CRLF": lambda lines: "".join(line + "\r\n" for line in lines).encode(),
    "screen": lambda lines: "".join(line + "\r\r\n" for line in lines).encode(),
    "BOM": lambda lines: b"\xef\xbb\xbf" + text(lines),
    "UTF-16 with mark": lambda lines: text(lines).decode().encode("utf-16"),
    "UTF-16 of PowerShell": lambda lines: ("\ufeff" + "".join(line + "\r\n" for line in lines)).encode(
        "utf-16-le"
    ),
    "UTF-16 big": lambda lines: b"\xfe\xff" + text(lines).decode().encode("utf-16-be"),
    "UTF-16 without mark": lambda lines: text(lines).decode().encode("utf-16-le"),
    "UTF-16 big without mark": lambda lines: text(lines).decode().encode("utf-16-be"),
    "UTF-32": lambda lines: text(lines).decode().encode("utf-32"),
    "Latin-1": lambda lines: "Größe der Platte: 3 µs\n".encode("latin-1") + text(lines),
    "NULs in front": lambda lines: bytes(70_000) + text(lines),
    "NULs between": lambda lines: b"\0".join(line.encode() + b"\n" for line in lines),
    "coloured": lambda lines: text([f"\x1b[31m{line}\x1b[0m" for line in lines]),
    "coloured in 256": lambda lines: text([f"\x1b[38;5;196m{line}\x1b[39;49m" for line in lines]),
    "bold name": lambda lines: text([f"\x1b[1;32mtrainer-1  |\x1b[0m {line}" for line in lines]),
    "blanks behind": lambda lines: text([line.ljust(200) for line in lines]),
    "blank lines between": lambda lines: text([part for line in lines for part in (line, "")]),
    "characters of no width": lambda lines: text(["\u200b" + line for line in lines]),
    "hard blanks": lambda lines: text([line.replace("  ", "\u00a0 ") for line in lines]),
    "bytes as Python prints them": lambda lines: text([repr(line.encode() + b"\n") for line in lines]),
    "HTML spans": lambda lines: (
        b"<pre>" + text([f'<span class="l">{html.escape(line)}</span>' for line in lines]) + b"</pre>"
    ),
    "rich of 200": rich_handler(200),
    "rich of 120": rich_handler(120),
    "rich console of 80": rich_console(80),
    "rich console of 140": rich_console(140),
    "rich panel of 80": rich_panel(80),
    "rich panel of 160": rich_panel(160),
    "tqdm.write": drawn_over,
    "HTML-escaped": lambda lines: text([html.escape(line) for line in lines]),
    "HTML page": lambda lines: (
        b"<html><body><pre>\n" + text([html.escape(line) for line in lines]) + b"</pre></html>\n"
    ),
    "HTML line breaks": lambda lines: (
        "<div>" + "<br/>".join(html.escape(line).replace("  ", "&nbsp; ") for line in lines) + "</div>\n"
    ).encode(),
    "HTML table": lambda lines: text(
        [f'<tr><td class="n">{n}</td><td>{html.escape(line)}</td></tr>' for n, line in enumerate(lines, 1)]
    ),
    "HTML elements": lambda lines: text(
        [
            f'<div class="line"><span>{iso(n)}</span> <span>{html.escape(line)}</span></div>'
            for n, line in enumerate(lines, 1)
        ]
    ),
    "HTML numbers": lambda lines: text(
        ["".join(f"&#{ord(char)};" if char in "<>&\"'[]" else char for char in line) for line in lines]
    ),
    "HTML with numbers": lambda lines: text(
        [
            f'<div class="line"><a class="n" href="#L{n}">{n}</a><span>{html.escape(line)}</span></div>'
            for n, line in enumerate(lines, 1)
        ]
    ),
    "HTML elements without line feeds": lambda lines: (
        "<pre>"
        + "".join(
            f'<div class="line"><span class="n">{n}</span><span>{html.escape(line)}</span></div>'
            for n, line in enumerate(lines, 1)
        )
        + "</pre>\n"
    ).encode(),
    "table of a database": sql_table,
    "rows of 80 with blanks": padded_rows(80),
    "a paragraph between sentences": lambda lines: text(
        ["It ends like this:", "", *("    " + line for line in lines), "", "Thanks!"]
    ),
    "colours written out": lambda lines: text([rf"\u001b[31m{line}\u001b[0m" for line in lines]),
    "another set of characters": lambda lines: text([f"\x1b[1m{line}\x1b(B\x1b[m\x0f" for line in lines]),
    "mail, quoted-printable": in_a_mail("quoted-printable"),
    "mail, base64": in_a_mail("base64"),
    "mail of HTML": in_a_mail("quoted-printable", "html"),
    "mail with an attachment": attached,
    "line separators": lambda lines: "\u2028".join(lines).encode(),
    "code spans": lambda lines: text([f"`{line}`" for line in lines]),
    "links of a terminal": lambda lines: text(
        [f"\x1b]8;;file:///x\x1b\\{line}\x1b]8;;\x1b\\" for line in lines]
    ),
    "tmux": status_line,
    "fence": lambda lines: b"```\n" + text(lines) + b"```\n",
    "fence with a name": lambda lines: b"Here is the log:\n\n```text\n" + text(lines) + b"```\n",
    "script(1)": lambda lines: (
        b"Script started on 2026-11-21 10:20:00+00:00\n" + text(lines) + b"Script done\n"
    ),
    "no end of line": lambda lines: text(lines)[:-1],
    "fold 80": folded(80),
    "fold 100": folded(100),
    "fold 132": folded(132),
}

PACKED: dict[str, Format] = {
    "gzip": lambda lines: gzip.compress(text(lines)),
    "gzip of two": lambda lines: gzip.compress(text(lines[:3])) + gzip.compress(text(lines[3:])),
    "bzip2": lambda lines: bz2.compress(text(lines)),
    "xz": lambda lines: lzma.compress(text(lines)),
    "zip": zipped("train.log"),
    "zip stored": zipped("logs/run/train.log", zipfile.ZIP_STORED),
    "tar": tarred("w"),
    "tar.gz": tarred("w:gz"),
    "tar.xz": tarred("w:xz"),
    "gzip twice": lambda lines: gzip.compress(gzip.compress(text(lines))),
    "gzip of UTF-16": lambda lines: gzip.compress(text(lines).decode().encode("utf-16")),
    "gzip of docker's JSON": lambda lines: gzip.compress(PAYLOADS["docker json-file"](lines)),
    "zip of a CSV": lambda lines: zip_of("x.csv", PAYLOADS["CSV"](lines)),
}

LOSSY: dict[str, Format] = {
    "wrapped at words": lambda lines: text(
        [part for line in lines for part in (textwrap.wrap(line, 100) or [""])]
    ),
    "stripped": lambda lines: text([line.strip() for line in lines]),
    "cut at 300": lambda lines: text([line[:300] for line in lines]),
    "lower case times lost": lambda lines: text([line.replace("2026-", "") for line in lines]),
    "base64 in one line": lambda lines: base64.b64encode(text(lines)) + b"\n",
}


def zip_of(name: str, data: bytes) -> bytes:
    """A zip with these bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, data)
    return out.getvalue()


LOSSLESS: dict[str, Format] = {**PREFIXED, **PAYLOADS, **ENCODED, **PACKED}
