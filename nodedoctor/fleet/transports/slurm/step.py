"""One job step that runs nodedoctor on many nodes, and its output taken apart per node as it comes.

srun cuts lines after 1024 bytes and mixes the nodes' output, its own messages and what a TaskProlog prints.
So each task packs its answer (gzip, base64: a tenth of the bytes through one srun) and marks every line of
it; `--label` puts the number of the task before each.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
import zlib
from collections.abc import Iterator

from nodedoctor.nodeset import NodeSetError, expand, fold
from nodedoctor.record import record

MARK = "@nodedoctor"
MOST = 4 * 1024 * 1024
"""Bytes of one answer, as command.py keeps of any; a report has a tenth of a megabyte."""
MOST_SAID = 4096
"""Characters kept of what one node said on stderr; ours."""
MOST_ERRORS = 20
PARTING = 2.0
"""Ours: seconds srun and salloc may take to cancel what they started."""

# srun brings stdout and stderr by two ways, one of which may be later: so both go by stdout.
_TASK = """\
echo "{mark} at $SLURM_PROCID ${{SLURMD_NODENAME:-$(hostname)}}"
{{
  {{
    {{ /bin/sh -c {script}; printf '\\n%s' $?; echo >&2; }} 2>&1 >&4 | sed 's/^/{mark} ! /' >&3
  }} 4>&1 | gzip -c | base64 | sed 's/^/{mark} = /'
}} 3>&1
echo "{mark} end"
"""

_LABELLED = re.compile(r" *(\d+): ?(.*)", re.S)
# src/api/step_launch.c, src/srun/libsrun: what srun says of nodes.
_NOT_STARTED = re.compile(r"srun: error: Task launch for \S+ failed on node (\S+?): (.*)")
_NODE_FAILED = re.compile(r"srun: error: Node failure on (\S+)")
_TASK_ENDED = re.compile(r"srun: error: (\S+): tasks? \S+: (.*)")
_ERROR = re.compile(r"srun: (?:error|fatal): (.*)")


def task(script: str) -> str:
    """The command for each node's /bin/sh: run a script, send back what it printed and its exit code."""
    return _TASK.format(mark=MARK, script=shlex.quote(script))


def argv(
    job: str, words: tuple[str, ...], hosts: tuple[str, ...], script: str, *, stdin: bool
) -> tuple[str, ...]:
    """srun for one step on these nodes of a job, beside whatever runs there; `words` are other options.

    No node's end ends the others' (`--wait=0 --kill-on-bad-exit=0 --no-kill`). Our working
    directory may not be there; `/` is.
    """
    count = str(len(hosts))
    return (
        *(
            "srun",
            *words,
            f"--jobid={job}",
            f"--nodelist={fold(hosts)}",
            f"--nodes={count}",
            f"--ntasks={count}",
        ),
        *("--ntasks-per-node=1", "--overlap", "--label", "--wait=0", "--kill-on-bad-exit=0", "--no-kill"),
        *("--mpi=none", "--cpu-bind=none", "--chdir=/", f"--input={'all' if stdin else 'none'}"),
        *("/bin/sh", "-c", task(script)),
    )


def held_argv(job: str, words: tuple[str, ...], host: str, script: str) -> tuple[str, ...]:
    """srun for a step on one node whose stdin and stdout are a line to it: nothing is held back or cut."""
    return (
        *("srun", *words, f"--jobid={job}", f"--nodelist={host}", "--nodes=1", "--ntasks=1", "--overlap"),
        *("--unbuffered", "--mpi=none", "--cpu-bind=none", "--chdir=/", "/bin/sh", "-c", script),
    )


@record
class NodeAnswer:
    """The whole answer of one node: text, exit code, and what it said on stderr."""

    host: str
    text: str
    rc: int | None
    errors: str = ""
    truncated: bool = False


class SlurmStep:
    """What has been heard from one step.

    `begun` are the nodes where the task runs, by its number, `lost` those srun could not start it on or has
    lost since, with its reason, `ended` those whose task ended before its time, `errors` what srun
    complained of about the step as a whole.
    """

    def __init__(self) -> None:
        self.begun: dict[int, str] = {}
        self.lost: dict[str, str] = {}
        self.ended: dict[str, str] = {}
        self.errors: list[str] = []
        self._packed: dict[int, _Packed] = {}
        self._said: dict[int, str] = {}

    def observe(self, fd: int, line: str) -> NodeAnswer | None:
        """Take in one line of srun; the answer it completes, if it does."""
        labelled = _LABELLED.fullmatch(line)
        if labelled is None:
            self._of_srun(line)
            return None
        task, text = int(labelled[1]), labelled[2]
        mark, _, rest = text.partition(" ")
        return self._marked_line(task, rest) if fd == 1 and mark == MARK else None

    def _marked_line(self, task: int, rest: str) -> NodeAnswer | None:
        word, _, value = rest.partition(" ")
        if word == "at" and task not in self.begun:
            self.begun[task] = value.partition(" ")[2].strip() or value
            self._packed[task] = _Packed()
            self._said[task] = ""
        elif word == "=" and task in self._packed:
            self._packed[task].feed(value)
        elif word == "!" and task in self._packed:
            self._said[task] = (self._said[task] + value + "\n")[-MOST_SAID:]
        elif word == "end" and task in self._packed:
            packed, host = self._packed.pop(task), self.begun[task]
            text, rc = packed.unpacked()
            if rc is None and not packed.flooded:
                # Its sh outlives what Slurm ends inside it, and says so behind half an answer.
                self.ended.setdefault(host, "its answer came only in part")
                return None
            return NodeAnswer(host, text, rc, self._said[task].strip(), truncated=packed.flooded)
        return None

    def _of_srun(self, line: str) -> None:
        if match := _NOT_STARTED.match(line):
            self.lost.update(dict.fromkeys(_expand_hosts(match[1]), match[2].strip()))
        elif match := _NODE_FAILED.match(line):
            self.lost.update(dict.fromkeys(_expand_hosts(match[1]), "node failure"))
        elif match := _TASK_ENDED.match(line):
            self.ended.update(dict.fromkeys(_expand_hosts(match[1]), match[2].strip()))
        elif (match := _ERROR.match(line)) and len(self.errors) < MOST_ERRORS:
            self.errors.append(match[1].strip())


class _Packed:
    """An answer on its way: base64 lines of a gzip stream, opened as they come and bounded both ways."""

    def __init__(self) -> None:
        self._gunzip = zlib.decompressobj(wbits=31)
        self._pieces: list[bytes] = []
        self._size = 0
        self._broken = False

    def feed(self, line: str) -> None:
        if self._broken:
            return
        try:
            data = self._gunzip.decompress(base64.b64decode(line, validate=True), MOST - self._size + 1)
        except (binascii.Error, ValueError, zlib.error):
            self._broken = True
            return
        self._size += len(data)
        self._pieces.append(data)
        self._broken = self.flooded

    @property
    def flooded(self) -> bool:
        """Whether more came than any report has."""
        return self._size > MOST

    def unpacked(self) -> tuple[str, int | None]:
        """The text and the exit code behind it; None for the code when the answer is not whole."""
        text = b"".join(self._pieces).decode("utf-8", "replace")
        if self._broken or not self._gunzip.eof:
            return text, None
        text, _, code = text.rpartition("\n")
        return text, int(code) if code.isascii() and code.isdigit() else None


def _expand_hosts(text: str) -> Iterator[str]:
    try:
        yield from expand(text)
    except NodeSetError:
        yield text
