"""Which cause explains which: a lower number outranks a higher one, because it makes it happen."""

GPU_FAULT = 10
HOST_OOM = 12
DRIVER = 14
VERSION = 15
FABRIC = 16
LIMITS = 18
INTERFACE = 20
CUDA_OOM = 22
CUDA_FAULT = 23
EXCEPTION = 24
DECLARED_MISMATCH = 28
NAMED_MISSING = 29
DIED = 30
LATE_ARRIVAL = 31
UNREACHABLE = 33
INFINIBAND = 34
P2P = 35
GUARDED = 36
DIFFERENT = 37
BEHIND = 38
SILENT = 39
STUCK = 40
HINT = 60
LATE = 80
"""Added to what was seen only after the others had given up."""
