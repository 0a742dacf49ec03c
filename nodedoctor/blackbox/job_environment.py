"""What a job is started with so that its next hang leaves evidence; nothing that is set already is changed.

Sources of every variable: `nodedoctor explain NAME`. Old and new names of the flight recorder are both set,
because which torch the ranks will load is not known here: in the rank our sitecustomize knows, and leaves
the one that its torch reads. Where a person has set one of them, neither is.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path

from nodedoctor.record import record

ENTRIES = "2000"
"""Collectives the flight recorder keeps: torch's own default from 2.11 on."""
HOOK = Path(__file__).parents[1] / "probes" / "job" / "stack_hook"
"""The folder with our sitecustomize."""
REGISTERED = "NODEDOCTOR_STACKS"
PER_USER = "/tmp/nodedoctor-stacks-{uid}"
"""Where ranks write their stacks: on each node's own disk, as a rank must never wait for a file server."""


@record
class Armed:
    """The variables to set, and those a person had set, which stay as they are."""

    variables: Mapping[str, str]
    kept: tuple[str, ...] = ()
    hooked: bool = False


def arm(environ: Mapping[str, str], folder: str, *, stamp: str, hook: str = "", port: int = 0) -> Armed:
    """What is to be set for a job that starts with `environ` and whose folder is `folder`.

    `stamp` makes names unique between jobs of a user, `hook` is the folder of our sitecustomize ("": none),
    `port` a free one for NCCL's RAS (0: leave NCCL's default, which two jobs on one node cannot share).
    """
    groups: list[tuple[tuple[str, ...], dict[str, str]]] = [
        (
            ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
            {"TORCH_FR_BUFFER_SIZE": ENTRIES, "TORCH_NCCL_TRACE_BUFFER_SIZE": ENTRIES},
        ),
        (("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"), {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}),
        (
            ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
            {
                "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/fr/rank_",
                "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/fr/rank_",
            },
        ),
        (
            ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE",),
            {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"/tmp/nodedoctor-fr-{os.getuid()}-{stamp}-"},
        ),
        (
            ("NCCL_DEBUG", "NCCL_DEBUG_FILE"),
            {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": f"{folder}/nccl/%h.%p"},
        ),
        (("NCCL_RAS_ADDR", "NCCL_RAS_ENABLE"), {"NCCL_RAS_ADDR": f"localhost:{port}"} if port else {}),
        (("PYTHONFAULTHANDLER",), {"PYTHONFAULTHANDLER": "1"}),
    ]
    if hook:
        groups.append(((REGISTERED,), {REGISTERED: PER_USER.format(uid=os.getuid())}))
    variables: dict[str, str] = {}
    unchanged = []
    for names, wanted in groups:
        if present := [name for name in names if name in environ]:
            unchanged += present
        else:
            variables |= wanted
    if hook:
        entries = environ.get("PYTHONPATH", "").split(os.pathsep)
        before = os.pathsep.join(entry for entry in entries if entry != hook)
        variables["PYTHONPATH"] = f"{hook}{os.pathsep}{before}" if before else hook
        variables["NODEDOCTOR_TRACER"] = str(os.getpid())
    return Armed(variables, tuple(unchanged), bool(hook))


def free_port() -> int:
    """A TCP port without a listener now; 0 when none can be had."""
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            return int(listener.getsockname()[1])
    except OSError:
        return 0


def for_shell(armed: Armed) -> str:
    """Lines for a shell; PYTHONPATH keeps what the shell has by then."""
    return "".join(f"export {name}={_shell_value(name, value)}\n" for name, value in armed.variables.items())


def for_env_file(armed: Armed) -> str:
    """NAME=VALUE lines, as docker and systemd read them: no quotes, no variables."""
    return "".join(f"{name}={value}\n" for name, value in armed.variables.items())


def for_ray(armed: Armed) -> str:
    """A runtime_env; Ray sets its variables when it starts the workers of the job."""
    return json.dumps({"env_vars": dict(armed.variables)}, indent=1) + "\n"


def for_sbatch(armed: Armed) -> str:
    """Lines for a batch script: srun hands the environment on to all tasks; the folder must be shared."""
    folder = next((v for n, v in armed.variables.items() if n == "NCCL_DEBUG_FILE"), "")
    below = os.path.dirname(os.path.dirname(folder)) if folder else ""
    mkdir = f"mkdir -p {shlex.quote(below)}/fr {shlex.quote(below)}/nccl\n" if below else ""
    return mkdir + for_shell(armed)


def _shell_value(name: str, value: str) -> str:
    if name == "PYTHONPATH":
        return f"{shlex.quote(value.split(os.pathsep)[0])}${{PYTHONPATH:+:$PYTHONPATH}}"
    return shlex.quote(value)


def text(armed: Armed) -> str:
    """What was set, and what was left alone, for env.txt."""
    lines = ["# set by nodedoctor for this job", for_env_file(armed).rstrip("\n")]
    lines += [f"# {name} was set already, and is unchanged" for name in armed.kept]
    lines += [
        "# what may reach the job's output: stacks of a crash (PYTHONFAULTHANDLER)",
        "# of two names of one variable each Python keeps the one that its torch reads"
        if armed.hooked
        else "# from torch 2.8 on each rank says that TORCH_NCCL_TRACE_BUFFER_SIZE is deprecated",
    ]
    return "\n".join(lines) + "\n"
