"""`nodedoctor arm`: what `run` would set, as a block to paste, and which captures work on this node."""

from __future__ import annotations

import os
import sys
import time

from nodedoctor.blackbox import arguments as words_of
from nodedoctor.blackbox import arm, ways
from nodedoctor.cli.console import emit, say
from nodedoctor.cli.exit_codes import Exit


def main(words: list[str]) -> int:
    """Print the block on stdout; what works here goes to stderr, so that the block can be evaluated."""
    arguments = words_of.arm().parse_args(words)
    hook = "" if arguments.no_stack_hook else str(arm.HOOK)
    folder = os.path.abspath(arguments.dir)
    stamp = time.strftime("%Y%m%dT%H%M%S")
    # The block is for a job that starts later, from a shell of its own: only what that has set can be kept.
    armed = arm.arm(os.environ, folder, stamp=stamp, hook=hook, port=arm.free_port())
    if arguments.env_file:
        block = arm.for_env_file(armed)
    elif arguments.ray:
        block = arm.for_ray(armed)
    else:  # a shell and a batch script take the same lines
        block = arm.for_sbatch(armed)
    if not emit(block):
        return Exit.OUTPUT
    for name in armed.kept:
        say(f"arm: {name} is set already, and is left as it is")
    for way in ways.ways(hooked=bool(hook)):
        say(f"arm: stacks: {way.why}")
    say(f"arm: {ways.UNTRIED}")
    sys.stderr.flush()
    return Exit.OK
