"""Limits of the node or container that a job ran into: open files, shared memory, processes, disk."""

from __future__ import annotations

from nodedoctor.triage.events.log_pattern import LogPattern, Symptom, log_pattern, symptom_pattern
from nodedoctor.triage.model import Cause

_LIMITS: Cause = "shm_or_limits"

_FULL = Symptom(_LIMITS, "disk-full", "a file system (or /dev/shm) is full", personal=True)

SIGNS: tuple[LogPattern, ...] = (
    symptom_pattern(
        _LIMITS,
        "loader-bus-error",
        r"(?:DataLoader|worker).*killed by signal: Bus error|insufficient shared memory \(shm\)"
        r"|Unexpected bus error encountered in worker",
        "a data-loader worker ran out of shared memory",
        personal=True,
        owner="CONFIG",
    ),
    symptom_pattern(
        _LIMITS,
        "open-files",
        r"Too many open files|received 0 items of ancdata|out of file descriptors",
        "the limit of open files was reached",
        personal=True,
    ),
    symptom_pattern(
        _LIMITS,
        "threads",
        r"can't start new thread|Thread creation failed|pthread_create failed|fork: retry"
        r"|BlockingIOError: \[Errno 11\] Resource temporarily unavailable"
        r"|(?:\bthread|\bclone|\bfork(?:\(\))?|spawn\w*): (?:retry: )?Resource temporarily unavailable",
        "the limit of processes and threads was reached",
        personal=True,
    ),
    symptom_pattern(
        _LIMITS,
        "cannot-map",
        r"unable to (?:mmap|allocate shared memory|open shared memory|write to file).*(?:/torch|shm|bytes)"
        r"|OSError: \[Errno 12\] Cannot allocate memory",
        "memory could not be mapped or shared",
        personal=True,
        owner="CONFIG",
    ),
    log_pattern(
        # inotify(7) calls its limit of watches so: the disk has room, and what watches goes on without
        r"(?P<watch>inotify_add_watch\([^()]{0,255}\) failed: )?No space left on device"
        r"|Error: Not enough (?:free )?(?:disk )?space\b"  # datasets, huggingface_hub
        r"|low on resource: ephemeral-storage|\bOutOfDiskError\b",
        lambda found: None if found["watch"] else _FULL,
    ),
    symptom_pattern(
        # torch, c10/cuda/CUDACachingAllocator.cpp: segments that can grow are shared by descriptors
        _LIMITS,
        "pidfd-refused",
        r"\bpidfd_(?:getfd|open): (?:Operation not permitted|Permission denied|Function not implemented)",
        "the container does not let processes share GPU memory (pidfd_getfd is refused)",
        personal=True,
        owner="CONFIG",
    ),
    symptom_pattern(  # EDQUOT: the file system has room, for others
        _LIMITS,
        "quota-full",
        r"Disk quota exceeded",
        "the disk quota of this user or project is used up",
        personal=True,
        owner="CONFIG",
    ),
    symptom_pattern(  # torch's writer keeps no errno: a full file system, a quota or storage that went away
        _LIMITS,
        "write-failed",
        r"PytorchStreamWriter failed (?:writing|closing)|unexpected pos \d+ vs \d+"
        r"|(?:write|fwrite)\(\)?.{0,40}: (?:fd \d+ )?failed with ",
        "a file could not be written to its end: its file system is full, over quota or no longer there",
        personal=True,
    ),
    symptom_pattern(  # where a shell's tool ends its line in it, a container was never writable there
        _LIMITS,
        "storage-lost",
        r"\[Errno 5\] Input/output error: |Remote I/O error|Stale (?:NFS )?file handle"
        r"|Read-only file system(?=: ['\"/]| \(os error)|Transport endpoint is not connected"
        r"|Cannot send after transport endpoint shutdown",
        "a file system went away under the program",
        quoted=True,
        personal=True,
    ),
)
