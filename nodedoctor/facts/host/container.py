"""Are we in a container: of which runtime, from which image, and what of the host does it not share?"""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from typing import Any, Literal

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Options, fact, probe
from nodedoctor.facts.files import Files
from nodedoctor.facts.host.cgroup import own_cgroup
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.mounts import line_of, parse_mountinfo
from nodedoctor.model import Evidence, Observation, Unseen, quoted_like, reading
from nodedoctor.record import as_dict, field, record

Runtime = Literal[
    "docker", "podman", "containerd", "kubernetes", "enroot", "apptainer", "lxc", "systemd-nspawn", "unknown"
]
Sharing = Literal["host", "private"]

_MARKERS = (
    "/.dockerenv",
    "/.singularity.d",
    "/etc/apt/apt.conf.d/enroot",
    "/var/run/secrets/kubernetes.io/serviceaccount",
)
_READ = (
    "/run/.containerenv",
    "/run/systemd/container",
    "/run/host/container-manager",
    "/proc/self/cgroup",
    "/proc/1/cgroup",
    "/proc/self/mountinfo",
    "/proc/self/status",
    "/proc/self/uid_map",
)

# Inode numbers of the namespaces a kernel starts with: linux, include/linux/proc_ns.h. Those of net and mnt
# are fixed only in recent kernels, so these two are also compared with init's.
_INITIAL = {
    "ipc": 0xEFFFFFFF,
    "uts": 0xEFFFFFFE,
    "user": 0xEFFFFFFD,
    "pid": 0xEFFFFFFC,
    "cgroup": 0xEFFFFFFB,
    "time": 0xEFFFFFFA,
    "net": 0xEFFFFFF9,
    "mnt": 0xEFFFFFF8,
}
_MOVABLE = ("net", "mnt")

# Bits of CapEff that training wants: linux, include/uapi/linux/capability.h.
_CAPABILITIES = {"IPC_LOCK": 14, "SYS_PTRACE": 19, "SYS_ADMIN": 21, "SYS_NICE": 23, "SYS_RESOURCE": 24}


@probe("container", timeout=5)
def container_files(options: Options) -> Command:
    """Marks that container runtimes leave inside, namespaces, control group and capabilities of ours."""
    words = [f"stat:{path}" for path in _MARKERS] + [f"read:{path}" for path in _READ]
    words += ["link:/proc/self/ns/*", "link:/proc/1/ns/*"]
    return Command(child("host/files", "--root", options.root, *words))


@fact("container", Env)
@record
class Container:
    """Where this process runs. `runtime` is None on the host, "unknown" in a container without a known mark.

    `namespaces` says per kind whether it is the host's or private; a kind that is not known is absent.
    `image` is the image's name if anything says it, `image_said_by` who did.
    """

    runtime: Runtime | None = None
    marks: tuple[str, ...] = ()
    said: tuple[Evidence, ...] = ()
    namespaces: Mapping[str, Sharing] = field(default_factory=dict)
    image: str | None = None
    image_said_by: str | None = None
    cgroup_version: int | None = None
    cgroup_path: str | None = None
    capabilities: tuple[str, ...] | None = ()
    seccomp: int | None = None
    user_namespace_maps_all: bool | None = None

    @classmethod
    def parse(cls, observation: Observation, env: Env | Unseen) -> Container | Unseen:
        """Put marks, namespaces and environment together."""
        files = Files.parse_json(observation)
        if isinstance(files, Unseen):
            return files
        variables = env.variables if isinstance(env, Env) else {}
        namespaces = _namespace_sharing(files)
        marks = _runtime_marks(files, variables)
        if not marks and "private" in (namespaces.get("pid"), namespaces.get("ipc")):
            marks = [("unknown", "the pid or ipc namespace is not the host's")]
        # A machine installed from a container image carries the image's marks and is no container.
        host = namespaces.get("mnt") == namespaces.get("pid") == "host"
        image, said_by = _image_name(files, variables)
        groups = own_cgroup(files.text("/proc/self/cgroup") or "")
        return cls(
            runtime=marks[0][0] if marks and not host else None,
            marks=tuple(mark for _, mark in marks),
            said=tuple(_runtime_mark(mark, files, variables) for _, mark in marks),
            namespaces=namespaces,
            image=image,
            image_said_by=said_by,
            cgroup_version=groups.version,
            cgroup_path=groups.path("memory"),
            capabilities=_capability_names(_status_value(files, "CapEff")),
            seccomp=_whole_number(_status_value(files, "Seccomp")),
            user_namespace_maps_all=_maps_all(files.text("/proc/self/uid_map")),
        )

    @property
    def inside(self) -> bool:
        """True when this process runs in a container."""
        return self.runtime is not None

    @property
    def may_lock_memory(self) -> bool:
        """True when the limit on locked memory does not bind us: IPC_LOCK, and no user namespace."""
        return "IPC_LOCK" in (self.capabilities or ()) and self.user_namespace_maps_all is True

    def shares(self, namespace: str) -> bool | None:
        """Whether a namespace (ipc, pid, net, ...) is the host's; None when not known."""
        sharing = self.namespaces.get(namespace)
        return None if sharing is None else sharing == "host"

    def expectations(self) -> dict[str, str]:
        """What `--expect` would say of the image."""
        return {"image": self.image} if self.image else {}

    def headline(self) -> dict[str, Any]:
        """What the report's `node` says."""
        return {"container": self.runtime}

    def public(self) -> dict[str, Any]:
        """All fields."""
        shown = as_dict(self) | {"inside": self.inside}
        del shown["said"]
        return shown


def _runtime_marks(files: Files, env: Mapping[str, str]) -> list[tuple[Runtime, str]]:
    """Every mark found; first of what wraps an engine (Kubernetes, Slurm), then of the engine."""
    groups = "\n".join(files.text(f"/proc/{pid}/cgroup") or "" for pid in ("self", "1"))
    mounts = parse_mountinfo(files.text("/proc/self/mountinfo") or "")
    roots = {mount.point: mount.root for mount in mounts}
    manager = files.text("/run/host/container-manager") or files.text("/run/systemd/container") or ""
    manager_name = env.get("container") or manager
    apptainer = next((n for n in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER") if n in env), "")
    tests: list[tuple[Runtime, str, bool]] = [
        ("apptainer", "/.singularity.d", "/.singularity.d" in files.stats),
        ("apptainer", apptainer, bool(apptainer)),
        ("enroot", "/ lies in enroot's data", bool(re.search(r"/(?:enroot|pyxis_)", roots.get("/", "")))),
        ("enroot", "/etc/apt/apt.conf.d/enroot", "/etc/apt/apt.conf.d/enroot" in files.stats),
        ("kubernetes", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_HOST" in env),
        ("kubernetes", "a service account", _MARKERS[3] in files.stats),
        ("kubernetes", "kubepods in the control group", "kubepods" in groups),
        ("podman", "/run/.containerenv", files.text("/run/.containerenv") is not None),
        ("podman", "libpod in the control group", "libpod-" in groups),
        ("docker", "/.dockerenv", "/.dockerenv" in files.stats),
        ("docker", "docker in the control group", bool(re.search(r"/docker[-/][0-9a-f]{12}", groups))),
        ("docker", "/etc/hosts lies in docker's data", "/docker/containers/" in roots.get("/etc/hosts", "")),
        ("containerd", "containerd in the control group", "cri-containerd" in groups or "/nerdctl" in groups),
        ("lxc", "lxc in the control group", bool(re.search(r"/lxc[./]", groups))),
    ]
    marks = [(runtime, mark) for runtime, mark, holds in tests if holds]
    if manager_name:
        names: tuple[Runtime, ...] = typing.get_args(Runtime)
        manager_runtime: Runtime = next((name for name in names if name == manager_name), "unknown")
        marks.append((manager_runtime, f"its manager says {manager_name[:40]}"))
    return marks


_CONTROL_GROUP = re.compile("kubepods|libpod|docker|containerd|lxc")


def _runtime_mark(mark: str, files: Files, env: Mapping[str, str]) -> Evidence:
    """Where the mark of a runtime is."""
    group = _CONTROL_GROUP.match(mark)
    if mark.startswith("/") and " " not in mark:
        return reading("container", f'files["{mark}"]', f'stats["{mark}"]')
    if group and "control group" in mark:
        ours = group[0] in (files.text("/proc/self/cgroup") or "")
        who = "self" if ours else "1"
        return quoted_like("container", rf"^.*{re.escape(group[0])}.*$", f'files["/proc/{who}/cgroup"]')
    if re.fullmatch("[A-Z_]+", mark):
        return reading("env", f"variables.{mark}", like=rf"^{mark}=.*")
    if mark == "a service account":
        return reading("container", f'stats["{_MARKERS[3]}"]')
    if mark.startswith("its manager") and env.get("container"):
        return reading("env", "variables.container", like=r"^container=.*")
    if mark.startswith("its manager"):
        return reading("container", 'files["/run/host/container-manager"]', 'files["/run/systemd/container"]')
    if " lies in " in mark:
        return quoted_like("container", line_of(mark.partition(" ")[0]), 'files["/proc/self/mountinfo"]')
    return reading("container", 'links["/proc/self/ns/pid"]')


def _namespace_sharing(files: Files) -> dict[str, Sharing]:
    mine = {kind: _link_inode(files.link(f"/proc/self/ns/{kind}")) for kind in _INITIAL}
    sharing: dict[str, Sharing] = {
        kind: "host" if mine[kind] == initial else "private"
        for kind, initial in _INITIAL.items()
        if mine[kind] is not None and (kind not in _MOVABLE or mine[kind] == initial)
    }
    for kind in _MOVABLE:
        inits = _link_inode(files.link(f"/proc/1/ns/{kind}"))
        # In a pid namespace of our own, process 1 is the container's and says nothing about the host.
        if kind not in sharing and mine[kind] and inits and sharing.get("pid") == "host":
            sharing[kind] = "host" if mine[kind] == inits else "private"
    return sharing


def _link_inode(link: str | None) -> int | None:
    match = re.fullmatch(r"\w+:\[(\d{1,12})\]", link or "")
    return int(match.group(1)) if match else None


def _image_name(files: Files, env: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The image's name and where it is: nothing inside most containers names it."""
    in_file = re.search(r'^image="([^"]+)"', files.text("/run/.containerenv") or "", re.MULTILINE)
    if in_file:
        return in_file.group(1), "/run/.containerenv"
    for name in (
        "PYXIS_CONTAINER_IMAGE",
        "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image",
        "APPTAINER_CONTAINER",
        "SINGULARITY_CONTAINER",
    ):
        if env.get(name):
            return env[name], name
    release = env.get("NVIDIA_PYTORCH_VERSION", "")
    if re.fullmatch(r"\d\d\.\d\d", release):
        return f"nvcr.io/nvidia/pytorch:{release}-py3", "NVIDIA_PYTORCH_VERSION"
    return None, None


def image_said(container: Container) -> list[Evidence]:
    """Where the image's name is."""
    by = container.image_said_by or ""
    if by.startswith("/"):
        return [quoted_like("container", "^image=.*", f'files["{by}"]')]
    return [reading("env", f"variables.{by}", like=rf"^{re.escape(by)}=.*")] if by else []


def _status_value(files: Files, key: str) -> str | None:
    match = re.search(rf"^{key}:\s*(\S+)", files.text("/proc/self/status") or "", re.MULTILINE)
    return match.group(1) if match else None


def _capability_names(effective: str | None) -> tuple[str, ...] | None:
    """Their names; None where the mask could not be read."""
    if not re.fullmatch(r"[0-9a-f]{1,16}", effective or ""):
        return None
    bits = int(effective or "0", 16)
    return tuple(name for name, bit in _CAPABILITIES.items() if bits >> bit & 1)


def _whole_number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,9}", text) else None


def _maps_all(uid_map: str | None) -> bool | None:
    """True outside any user namespace: all 2^32 - 1 ids map to themselves."""
    return None if not uid_map else uid_map.split() == ["0", "0", "4294967295"]
