"""Every error of ours has one base, and a command line ends with the exit code of its class."""

import importlib
import pkgutil

import nodedoctor
from nodedoctor.cli.console import complain
from nodedoctor.cli.exit_codes import Exit
from nodedoctor.errors import NodeDoctorError

INTERNAL = {"_TooDeep", "NoPython", "CudaError", "BeyondBounds", "EndedBySignal", "NotStarted"}
"""Raised and caught in one stage, or in a child that imports nothing of ours."""


def test_every_error_of_ours_has_the_one_base():
    strange = []
    for found in pkgutil.walk_packages(nodedoctor.__path__, "nodedoctor."):
        if found.name.startswith(("nodedoctor.probes.", "nodedoctor.__main__", "nodedoctor.tui.screens")):
            continue
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            raised = isinstance(value, type) and issubclass(value, Exception)
            if raised and value.__module__ == found.name and not issubclass(value, NodeDoctorError):
                strange.append(f"{found.name}.{value.__name__}")
    assert not [name for name in strange if name.rpartition(".")[2] not in INTERNAL]


def test_a_command_line_ends_with_the_exit_code_of_the_class(capsys):
    class Unwritten(NodeDoctorError):
        exit_code = 74

    assert complain(Unwritten("the disk is full")) == Exit.OUTPUT
    assert complain(NodeDoctorError("no such node")) == complain("no such node") == Exit.USAGE
    assert capsys.readouterr().err.splitlines()[0] == "nodedoctor: the disk is full"
