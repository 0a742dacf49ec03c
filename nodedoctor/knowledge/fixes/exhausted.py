"""What to do when processes, files or memory have run out.

Sources: getrlimit(2), fork(2) and open(2) for what each error means; cgroups(7) and the kernel's
Documentation/admin-guide/cgroup-v2.rst (pids.max, memory.max); proc(5) for the limits of the machine.
"""

from __future__ import annotations

from nodedoctor.model import Action, Fix, Step
from nodedoctor.steps import look, repair

_SESSION = "this session: limits hold for what is started after the change"
_GROUP = "the container or unit: it has to be started again"
_VERIFY = "nodedoctor doctor.exhausted"
_MOST_TASKS = look(
    "ps -eo user=,nlwp= | awk '{n[$1] += $2} END {for (u in n) print n[u], u}' | sort -rn | head"
)
_MOST_MEMORY = look("ps -eo rss,pid,user,comm --sort=-rss | head")

_REMEDIES: dict[str, tuple[str, tuple[Step, ...], str]] = {
    "nofile": (
        "Raise the limit of open files: of this session, and of later ones in /etc/security/limits.conf.",
        (look("ulimit -Hn"), repair("ulimit -n $(ulimit -Hn)")),
        _SESSION,
    ),
    "nproc": (
        "End processes of this user that are left over, or raise `nproc` in /etc/security/limits.conf.",
        (look("ulimit -u"), _MOST_TASKS),
        _SESSION,
    ),
    "pids.max": (
        "Raise the limit on tasks: --pids-limit=-1 for docker, TasksMax= in the unit, podPidsLimit of the "
        "kubelet; or end the processes that hold them.",
        (look("cat /proc/self/cgroup"), _MOST_TASKS),
        _GROUP,
    ),
    "pid_max": (
        "End the processes that hold the tasks, or raise kernel.pid_max.",
        (_MOST_TASKS, repair("sudo sysctl -w kernel.pid_max=4194304")),
        "nothing",
    ),
    "threads-max": (
        "End the processes that hold the tasks, or raise kernel.threads-max.",
        (_MOST_TASKS, look("sysctl kernel.threads-max")),
        "nothing",
    ),
    "file-max": (
        "End the processes that hold the files, or raise fs.file-max.",
        (look("cat /proc/sys/fs/file-nr"), repair("sudo sysctl -w fs.file-max=9223372036854775807")),
        "nothing",
    ),
    "memory.max": (
        "Raise the memory limit of the container or unit, or end what fills it.",
        (look("cat /proc/self/cgroup"), _MOST_MEMORY),
        _GROUP,
    ),
    "as": (
        "Raise the limit of address space of this session: CUDA maps far more than it uses, so training "
        "needs it unlimited.",
        (look("ulimit -Hv"), repair("ulimit -v unlimited")),
        _SESSION,
    ),
    "memory": ("End what fills the memory of this machine.", (_MOST_MEMORY,), ""),
}
_UNKNOWN = (
    "Check which limit is reached: of this session, of its cgroup, of the machine.",
    (
        look("ulimit -a"),
        look("cat /proc/self/cgroup"),
        look("sysctl kernel.pid_max kernel.threads-max"),
        _MOST_TASKS,
    ),
    "nothing",
)


def fix_of(resource: str) -> Fix:
    """How to get more of it; where to look when it is not known what ran out."""
    text, steps, disturbs = _REMEDIES.get(resource, _UNKNOWN)
    action: Action = "config" if resource in _REMEDIES else "investigate"
    return Fix(text, steps, action=action, disturbs=disturbs, verify=_VERIFY)
