"""Whose a file of a traceback is: the program's own, or of Python, torch and other packages."""

from __future__ import annotations

import pytest

from nodedoctor.triage.patterns.stacks import StackFrame, is_library_file, is_standard

FOLDERS = (
    "/usr/lib/python3.10",
    "/usr/lib64/python3.9",
    "/opt/conda/lib/python3.13t",
    r"C:\py\lib\python3.12",
)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("packages", ["", "site-packages", "dist-packages"])
def test_pythons_own_code_and_packages_are_libraries(folder: str, packages: str) -> None:
    separator = "\\" if "\\" in folder else "/"
    path = separator.join(filter(None, (folder, packages, "queue", "queue.py")))
    assert is_library_file(path)
    assert is_standard(StackFrame(path, 1, "get")) == (not packages)


@pytest.mark.parametrize(
    ("path", "library"),
    [
        ("/opt/src/torch/distributed/distributed_c10d.py", True),
        ("<frozen importlib._bootstrap>", True),
        ("/home/ada/torch/train.py", False),
        ("/home/ada/python/model.py", False),
        ("train.py", False),
    ],
)
def test_torch_built_in_place_is_a_library_and_a_folder_named_so_is_none(path: str, library: bool) -> None:
    assert is_library_file(path) is library
