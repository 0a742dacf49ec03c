"""`nodedoctor arm`: what `run` would set, as a block to paste, and which captures work on this node."""

from __future__ import annotations

import os
import sys
import time

from nodedoctor.blackbox import arguments as words_of
from nodedoctor.blackbox import job_environment, stack_methods
from nodedoctor.cli.console import emit, write_stderr
from nodedoctor.cli.exit_codes import Exit


def main(words: list[str]) -> int:
    """Print the block on stdout; what works here goes to stderr, so that the block can be evaluated."""
    arguments = words_of.arm().parse_args(words)
    hook = "" if arguments.no_stack_hook else str(job_environment.HOOK)
    folder = os.path.abspath(arguments.dir)
    stamp = time.strftime("%Y%m%dT%H%M%S")
    # The block is for a job that starts later, from a shell of its own: only what that has set can be kept.
    armed = job_environment.arm(os.environ, folder, stamp=stamp, hook=hook, port=job_environment.free_port())
    if arguments.env_file:
        block = job_environment.for_env_file(armed)
    elif arguments.ray:
        block = job_environment.for_ray(armed)
    else:  # a shell and a batch script take the same lines
        block = job_environment.for_sbatch(armed)
    if not emit(block):
        return Exit.OUTPUT
    for name in armed.kept:
        write_stderr(f"arm: {name} is set already, and is left as it is")
    for way in stack_methods.stack_methods(hooked=bool(hook)):
        write_stderr(f"arm: stacks: {way.why}")
    write_stderr(f"arm: {stack_methods.UNTRIED}")
    sys.stderr.flush()
    return Exit.OK
