"""How many probes of a lane run at a time."""

from __future__ import annotations

from nodedoctor.declare.registry import Lane

WIDTH = {Lane.CPU: 8, Lane.NVIDIA: 1, Lane.FS: 4, Lane.GPU_LOAD: 1}
"""A driver is asked one question at a time, and load on GPUs disturbs other load; else as many as keep a
small node busy (chosen by us, no external source)."""
