"""In which Python environments the given processes run.

A part of find_python.py: standard library only. /proc of a sick process can block its reader for ever, so the
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
        _answer(wanted, start)
    os.close(start)
    answer = _read(answers)
    end([reader])
    try:
        found: list[Any] = json.loads(answer)
    except ValueError:
        return []
    return [process for process in found if process["prefix"]]


def _answer(wanted: list[tuple[str, str]], pipe: int) -> None:
    """The forked child: it must not keep our output open, nor ever return."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        with os.fdopen(pipe, "w") as answer:
            json.dump([_process(role, pid) for role, pid in wanted], answer)
    finally:
        os._exit(0)


def _read(pipe: int) -> bytes:
    answer = b""
    while select.select([pipe], [], [], SCAN_TIMEOUT_S)[0]:
        data = os.read(pipe, 65536)
        if not data:
            break
        answer += data
    os.close(pipe)
    return answer


def _process(role: str, pid: str) -> Running:
    """The environment of one process, from the libraries it has mapped: setproctitle cannot hide those."""
    found = {"role": role, "pid": pid, "prefix": ""}
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as file:
            mapped = SITE.search(file.read())
        program = os.readlink(f"/proc/{pid}/exe")
        elsewhere = os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
    except OSError:
        return found
    site = mapped or SITE.search(program)
    found["prefix"] = site.group(1) if site else os.path.dirname(os.path.dirname(program))
    if site:
        found["python"] = site.group(2)
        found["ray"] = _ray_version((f"/proc/{pid}/root" if elsewhere else "") + site.group(0))
    if elsewhere:
        found["problem"] = "it runs in another container: reach it with --exec"
    return found


def _ray_version(site: str) -> str:
    names = (os.path.basename(path) for path in glob.iglob(f"{glob.escape(site)}ray-*.dist-info"))
    return next((name[len("ray-") : -len(".dist-info")] for name in names), "")
