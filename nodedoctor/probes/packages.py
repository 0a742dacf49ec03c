"""Where psutil and pynvml are, for a child that starts without site-packages.

    python -I -S -X packages=FOLDER[:FOLDER] probes/gpu/nvml.py

The process that starts the child knows where it found them: in a virtual environment, among a user's own
packages, in an unpacked single file. By hand `python -I probes/gpu/nvml.py` will do.
"""

from __future__ import annotations

import os
import sys


def add_folders() -> None:
    """Search the folders named on the command line, after the standard library."""
    folders = sys._xoptions.get("packages")
    if isinstance(folders, str):
        sys.path += [folder for folder in folders.split(os.pathsep) if os.path.isabs(folder)]
