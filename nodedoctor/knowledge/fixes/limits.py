"""How shared memory and limits are raised, which depends on what the job runs in.

Sources: docs.docker.com/reference/cli/docker/container/run, kubernetes.io/docs/concepts/storage/volumes
(emptyDir), NVIDIA/pyxis:README.md, apptainer.org/docs/user (bind paths), slurm.conf(5)
PropagateResourceLimitsExcept, systemd.exec(5) LimitNOFILE and LimitMEMLOCK.
"""

from __future__ import annotations

from nodedoctor.model import Fix, Step
from nodedoctor.record import record
from nodedoctor.steps import look, repair, stop_ray

NCCL_RUNTIME = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/runtime_and_mpi_issues.html"
)
_NEW_CONTAINER = "all processes in the container (it must be recreated)"
_MORE_SHM = (
    "Increase the size of /dev/shm: recreate the container with `--shm-size=16g`, or with the "
    "host's (`--ipc=host`)."
)
_SHM_IN_COMPOSE = "In compose files it is `shm_size: 16gb` or `ipc: host`."
_SHM_IN_PODS = (
    "Mount a memory-backed volume in the pod: under volumes `{name: dshm, emptyDir: {medium: Memory, "
    "sizeLimit: 16Gi}}`, under volumeMounts `{name: dshm, mountPath: /dev/shm}`. It counts against the pod's "
    "memory limit."
)


@record
class Procedure:
    """How something is done in one runtime."""

    text: str
    steps: tuple[Step, ...] = ()
    disturbs: str = _NEW_CONTAINER


_SHM = {
    "host": Procedure(
        "Increase the size of /dev/shm; to keep it after a reboot, add `tmpfs /dev/shm tmpfs "
        "defaults,size=50% 0 0` "
        "to /etc/fstab.",
        (repair("sudo mount -o remount,size=50% /dev/shm"),),
        "nothing",
    ),
    "docker": Procedure(f"{_MORE_SHM} {_SHM_IN_COMPOSE}"),
    "podman": Procedure(f"{_MORE_SHM} {_SHM_IN_COMPOSE}"),
    "containerd": Procedure(_MORE_SHM),
    "kubernetes": Procedure(_SHM_IN_PODS, (), "the pod (it must be recreated)"),
    "enroot": Procedure(
        "Mount the host's shared memory in the container: srun's `--container-mounts=/dev/shm:/dev/shm`, or "
        "enroot's `--mount /dev/shm:/dev/shm`."
    ),
    "apptainer": Procedure("Mount the host's shared memory in the container: `--bind /dev/shm`."),
    "lxc": Procedure(
        "Add `lxc.mount.entry = tmpfs dev/shm tmpfs size=16g,create=dir 0 0` to the "
        "container's configuration."
    ),
    "systemd-nspawn": Procedure("Start the container with its own tmpfs: `--tmpfs=/dev/shm:size=16G`."),
    "unknown": Procedure("Give the container at least 8 GiB of shared memory, or the host's ipc namespace."),
}

_LOOK = {
    "shm": look("df -h /dev/shm"),
    "memlock": look("grep 'Max locked memory' /proc/self/limits"),
    "nofile": look("grep 'Max open files' /proc/self/limits"),
}
"""What to type first where only the one who starts the container can raise it."""

_ULIMIT = {"memlock": ["-l", "unlimited"], "nofile": ["-n", "1048576"]}
_SYSTEMD = {"memlock": "LimitMEMLOCK=infinity", "nofile": "LimitNOFILE=1048576"}
_DOCKER = {"memlock": "memlock=-1", "nofile": "nofile=1048576:1048576"}
_PAM = {
    "memlock": "* soft memlock unlimited` and `* hard memlock unlimited",
    "nofile": "* soft nofile 1048576` and `* hard nofile 1048576",
}


def more_shm(runtime: str | None) -> Fix:
    """Enlarge /dev/shm; `runtime` is None on the host."""
    way = _SHM.get(runtime or "host", _SHM["unknown"])
    return _limit_fix(way, "limits.shm")


def raise_limit(limit: str, runtime: str | None, ray: bool = False) -> Fix:
    """Raise `memlock` or `nofile` for the user who starts the job; `runtime` is None on the host."""
    way = _limit_way(limit, runtime)
    if ray:
        text = (
            f"{way.text} Daemons keep the limits of their start: restart Ray where the limit is raised, "
            "with the same options."
        )
        steps = (*way.steps, stop_ray("the limit is raised where Ray is started"))
        way = Procedure(text, steps, "every job of this Ray node")
    return _limit_fix(way, f"limits.{limit}")


def _limit_way(limit: str, runtime: str | None) -> Procedure:
    if runtime in ("docker", "podman"):
        return Procedure(
            f"Start the container with the limit raised: {runtime} run's `--ulimit {_DOCKER[limit]}`."
        )
    if runtime in ("kubernetes", "containerd"):
        text = (
            f"Pods inherit the limits of the container runtime: add `{_SYSTEMD[limit]}` to its unit on the "
            "node and restart it, then recreate the pod."
        )
        if limit == "memlock":
            text += " The capability IPC_LOCK in the pod's securityContext has the same effect."
        return Procedure(
            text,
            (repair("sudo systemctl edit containerd"),),
            "the pod; other pods continue while containerd restarts",
        )
    text = (
        f"Raise the limit where the job is started; for logins add `{_PAM[limit]}` to a file in "
        f"/etc/security/limits.d. Services need `{_SYSTEMD[limit]}` in their unit. Slurm "
        "passes the limits of "
        f"the submitting shell to the job unless PropagateResourceLimitsExcept={limit.upper()} is set in "
        "slurm.conf, and slurmd's unit needs the same line. Jobs need a restart."
    )
    return Procedure(text, (repair("ulimit {}", _ULIMIT[limit], disturbs="nothing"),), "nothing")


def _limit_fix(way: Procedure, check: str) -> Fix:
    repaired = any(step.role == "repair" for step in way.steps)
    return Fix(
        way.text,
        way.steps if repaired else (_LOOK[check.partition(".")[2]], *way.steps),
        action="config",
        disturbs=way.disturbs,
        verify=f"nodedoctor {check}",
        docs=NCCL_RUNTIME,
    )
