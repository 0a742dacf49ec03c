"""The environment variables that matter to training: ours, and those in files NCCL or the user's job reads.

Which variables are kept at all, and what is hidden in their values, `probes/host/environment.py` decides
alone.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from nodedoctor.children.programs import child
from nodedoctor.declare.cache import once
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe
from nodedoctor.json_shapes import answer, texts
from nodedoctor.model import Observation, Unseen
from nodedoctor.patterns import regex
from nodedoctor.record import field, record

SYSTEM_CONF, USER_CONF = "/etc/nccl.conf", "~/.nccl.conf"
"""Read by NCCL at start: NVIDIA/nccl, src/misc/param.cc, initEnv."""


@probe("env", timeout=5, lane=Lane.FS)
def environment(options: Options) -> Command:
    """Our environment variables of known families without secrets, NCCL's conf files and --env-file."""
    system = posixpath.join(options.root, SYSTEM_CONF.lstrip("/"))
    files = [system, USER_CONF, *([options.env_file] if options.env_file else [])]
    words = (word for path in files for word in ("--file", path))
    return Command(child("host/environment", "--root", options.root, *words))


@record
class EnvFile:
    """One file of NAME=VALUE lines; `error` says why it could not be read (ENOENT, EACCES, TIMEOUT).

    `misread` are names in NCCL's files whose lines NCCL, which strips nothing, takes otherwise than meant.
    """

    path: str
    variables: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    misread: tuple[str, ...] = ()


@fact("env")
@record
class Env:
    """The environment nodedoctor was started in, which need not be that of the job.

    `left_out` counts secrets and variables of no interest: of those, absence here says nothing. `cards` are
    the names of GPUs in a pasted text. `partly` says why more may be set than is here.
    """

    variables: Mapping[str, str]
    files: tuple[EnvFile, ...] = ()
    left_out: int = 0
    partly: Unseen | None = None
    cards: tuple[str, ...] = ()

    @classmethod
    @once
    def parse(cls, observation: Observation) -> Env | Unseen:
        """Read the child's document, or the output of env(1) that somebody pasted into a recording."""
        if not observation.answered:
            return Unseen.of(observation)
        try:
            document = answer(observation.text)
        except ValueError:
            return (
                Unseen.of(observation)
                if observation.text.lstrip().startswith("{")
                else _parse_paste(observation)
            )
        if not isinstance(document, dict) or not isinstance(document.get("variables"), dict):
            return Unseen.of(observation)
        left_out = document.get("left_out")
        return cls(
            variables=strings(document["variables"]),
            files=_env_files(document.get("files"), document.get("errors"), document.get("misread")),
            left_out=left_out if isinstance(left_out, int) else 0,
        )

    def get(self, name: str) -> str | None:
        """The value of a variable, None when it is not set or not kept."""
        return self.variables.get(name)

    def file(self, path: str) -> EnvFile | None:
        """The file whose path ends so (a --root may precede it)."""
        return next((file for file in self.files if file.path.endswith(path)), None)


def strings(value: Any) -> dict[str, str]:
    """The entries of a JSON object whose values are text; empty for anything else."""
    if not isinstance(value, dict):
        return {}
    return {name: text for name, text in value.items() if isinstance(text, str)}


def _parse_paste(observation: Observation) -> Env | Unseen:
    """The output of env(1)."""
    from nodedoctor.probes.host.environment import assignments, kept_variables

    text = observation.text[: observation.text.rfind("\n") + 1]  # a line without an end may be half a value
    variables = dict(assignments(text))
    cards = tuple(dict.fromkeys(_CARD.findall(observation.text)))
    return Env(kept_variables(variables), partly=_PART, cards=cards) if variables else Unseen.of(observation)


_CARD = regex(r"\b(?:(?:GeForce|Quadro|TITAN|RTX) [\w ]{0,8}\d{4}|(?:[AHBV]\d{3}|L\d{1,2}S?|G[BH]\d{3}))\b")
"""How vLLM's and torch's reports of an environment, and people in comments, name cards."""


_PART = Unseen("not-visible-here", "the environment was pasted, and may have had more lines", probe="env")


def _env_files(files: Any, errors: Any, misread: Any) -> tuple[EnvFile, ...]:
    read = files.items() if isinstance(files, dict) else ()
    misread_lines = misread if isinstance(misread, dict) else {}
    good = [EnvFile(path, strings(variables), misread=texts(misread_lines, path)) for path, variables in read]
    return (*good, *(EnvFile(path, error=error) for path, error in strings(errors).items()))
