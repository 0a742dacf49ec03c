"""Short questions to the cluster's own commands: `sinfo`, `squeue`, `ray status`.

They may hang, with a dead controller or a dead home: a hang costs a message and not the run.
"""

from __future__ import annotations

from nodedoctor.children import child_process
from nodedoctor.declare.registry import Command
from nodedoctor.model import Outcome
from nodedoctor.record import record

COMMAND_TIMEOUT_S = 15.0
"""Ours: seconds a question may take. Slurm's own commands wait MessageTimeout, by default 10 s."""


@record
class CommandAnswer:
    """What a command said; `rc` is None when it said nothing in time or is not there."""

    rc: int | None
    text: str = ""
    errors: str = ""

    @property
    def complaint(self) -> str:
        """The last line of its stderr, which is where commands say why."""
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.rc}"


async def ask(program: str, *words: str, timeout: float = COMMAND_TIMEOUT_S) -> CommandAnswer:
    """Run a command to its end, or kill it when the time is over; never raises for its deeds."""
    observation = await child_process.run(program, Command((program, *words)), timeout)
    if observation.outcome in (Outcome.TIMEOUT, Outcome.STUCK):
        return CommandAnswer(None, errors=f"{program} gave no answer within {timeout:g} s")
    if observation.outcome is Outcome.MISSING:
        return CommandAnswer(None, errors=f"{program} is not on PATH")
    return CommandAnswer(observation.rc if observation.answered else None, observation.text, observation.note)
