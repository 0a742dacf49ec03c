"""In which Python environments the given processes run.

A part of find_python.py: standard library only. /proc of a sick process can hang its reader, so the
reading is done by a forked child that is left behind when it does not answer.
"""

from __future__ import annotations

import glob
import json
import os
import re
import select
from collections.abc import Iterable
from typing import Any

from nodedoctor.probes.readers import end

SCAN_TIMEOUT_S = 2.0  # seconds for all processes together
SITE = re.compile(r"(?<![^ \n])(/[^ \n]*?)/lib(?:64)?/python(3\.\d+)t?/(?:site|dist)-packages/")

Running = dict[str, str]
"""role, pid, prefix, python ("3.12"), ray (its version), problem (why it cannot be started from here)."""


def running(processes: Iterable[str]) -> list[Running]:
    """What processes given as ROLE:PID run; those that cannot be read are left out."""
    wanted = [text.partition(":")[::2] for text in processes]
    answers, start = os.pipe()
    reader = os.fork()
    if reader == 0:
        _write_answer(wanted, start)
    os.close(start)
    answer = _read_answer(answers)
    end([reader])
    try:
        rows: list[Any] = json.loads(answer)
    except ValueError:
        return []
    return [process for process in rows if process["prefix"]]


def _write_answer(wanted: list[tuple[str, str]], pipe: int) -> None:
    """The forked child: it must not keep our output open, nor ever return."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        with os.fdopen(pipe, "w") as answer:
            json.dump([_process_row(role, pid) for role, pid in wanted], answer)
    finally:
        os._exit(0)


def _read_answer(pipe: int) -> bytes:
    answer = b""
    while select.select([pipe], [], [], SCAN_TIMEOUT_S)[0]:
        data = os.read(pipe, 65536)
        if not data:
            break
        answer += data
    os.close(pipe)
    return answer


def _process_row(role: str, pid: str) -> Running:
    """The environment of one process, from the libraries it has mapped: setproctitle cannot hide those."""
    process = {"role": role, "pid": pid, "prefix": ""}
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as file:
            mapped = SITE.search(file.read())
        program = os.readlink(f"/proc/{pid}/exe")
        elsewhere = os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
    except OSError:
        return process
    site = mapped or SITE.search(program)
    process["prefix"] = site.group(1) if site else os.path.dirname(os.path.dirname(program))
    if site:
        process["python"] = site.group(2)
        process["ray"] = _ray_version((f"/proc/{pid}/root" if elsewhere else "") + site.group(0))
    if elsewhere:
        process["problem"] = "it runs in another container: reach it with --exec"
    return process


def _ray_version(site: str) -> str:
    names = (os.path.basename(path) for path in glob.iglob(f"{glob.escape(site)}ray-*.dist-info"))
    return next((name[len("ray-") : -len(".dist-info")] for name in names), "")
