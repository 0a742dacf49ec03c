"""The Python that trains: which one it is and why, what is installed in it, and its torch.

It is asked itself (probe `target-python`), or read from what people paste: `collect-env`, `pip-list`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodedoctor.declare.registry import fact
from nodedoctor.facts import shapes
from nodedoctor.facts.stack.packages import Package, Wanted, wanted
from nodedoctor.facts.stack.pastes import Pasted, collect_env, pip_list
from nodedoctor.json_shapes import Json, document, part, parts, text, texts, whole_number
from nodedoctor.knowledge.versions.stack import canonical
from nodedoctor.model import Observation, Reason, Step, Unseen
from nodedoctor.record import as_dict, field, field_names, record
from nodedoctor.steps import look, repair

_WAY_OUT = "Pass the training Python with --python PATH, or reach its container: --exec 'docker exec NAME'."
_REASONS: dict[str, Reason] = {"denied": "denied", "crash": "crash"}


@record
class OtherPython:
    """An interpreter that was found and not taken; `torch` is the version installed there, if any."""

    path: str
    why: str
    torch: str = ""
    problem: str = ""


@record
class RunningPython:
    """The environment a rank, raylet or Ray worker runs in; `ray` is the version installed there."""

    role: str
    pid: int
    prefix: str
    python: str = ""  # 3.12
    ray: str = ""
    problem: str = ""


@record
class Toolkit:
    """The CUDA toolkit extensions would be compiled with, and what led to it (CUDA_HOME, nvcc on PATH)."""

    home: str
    why: str
    version: str


@fact("target-python", "collect-env", "pip-list", name="target-python")
@record
class TargetPython:
    """The Python that trains and what is installed in it.

    `source` is the probe asked. `explicit` when the person named it (--python, --exec), `why` in words.
    `packages` are in the order of search, so the first of a name is the one imported; `complete` is False
    when only some are known. From a pasted collect-env also come the last three.
    """

    source: str
    path: str = ""
    real: str = ""
    why: str = ""
    explicit: bool = False
    version: str = ""
    implementation: str = "cpython"
    machine: str = "x86_64"
    glibc: str = ""
    prefix: str = ""
    base_prefix: str = ""
    owner: int | None = None
    asked_as: int | None = None
    uv: bool = False
    folders: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[Package, ...] = ()
    complete: bool = True
    conda: tuple[str, ...] = ()
    torch_build: Mapping[str, Any] | None = None
    toolkit: Toolkit | None = None
    others: tuple[OtherPython, ...] = ()
    running: tuple[RunningPython, ...] = ()
    driver_version: str = ""
    gpu_names: tuple[str, ...] = ()
    cuda_available: bool | None = None

    @classmethod
    def parse(cls, live: Observation, env: Observation, pips: Observation) -> TargetPython | Unseen:
        """Take the interpreter's own answer, else what was pasted."""
        own = _read_own_document(live)
        if isinstance(own, TargetPython):
            return own
        pastes = [paste for paste in (collect_env(env), pip_list(pips)) if paste is not None]
        return _of_pastes(pastes) if pastes else own

    def package(self, name: str) -> Package | None:
        """The package that would be imported; None when it is not installed."""
        return next((package for package in self.packages if package.name == name), None)

    def copies(self, name: str) -> tuple[Package, ...]:
        """All installed copies of a package, the one that is imported first."""
        return tuple(package for package in self.packages if package.name == name)

    def wanted(self, name: str) -> Iterator[Wanted]:
        """What a package requires here, by its own metadata; nothing when that was not seen."""
        package = self.package(name)
        return wanted(package, self.markers()) if package else iter(())

    def markers(self) -> dict[str, str]:
        """The environment that requirement markers ask about."""
        return {
            "python_version": ".".join(self.version.split(".")[:2]) or "3.11",
            "python_full_version": self.version or "3.11.0",
            "implementation_name": self.implementation,
            "platform_python_implementation": "CPython" if self.implementation == "cpython" else "PyPy",
            "platform_machine": self.machine,
            "platform_system": "Linux",
            "sys_platform": "linux",
            "os_name": "posix",
            "platform_release": "",
        }

    @property
    def label(self) -> str:
        """What to call it in a sentence: its path, or that it was pasted."""
        return self.path or f"the pasted {self.source}"

    def install(self, *words: str) -> Step:
        """The command that installs requirements into this Python, with the tool that made it."""
        tool = ("uv", "pip", "install", "--python", self._python) if self.uv else (*self._pip, "install")
        return repair("{}", [*tool, *words])

    def reinstall(self, *words: str) -> Step:
        """The command that writes the files of packages again, of a version that is installed already, too.

        pip and uv say "already satisfied" of such a version otherwise and change nothing.
        """
        again = ("--reinstall" if self.uv else "--force-reinstall", "--no-deps")
        return self.install(*again, *words)

    def listing(self) -> Step:
        """The command that lists the packages of this Python."""
        tool = ("uv", "pip", "list", "--python", self._python) if self.uv else (*self._pip, "list")
        return look("{}", [*tool])

    def uninstall(self, *names: str) -> Step:
        """The command that removes packages from this Python."""
        tool = ("uv", "pip", "uninstall", "--python", self._python)
        return repair("{}", [*(tool if self.uv else (*self._pip, "uninstall", "-y")), *names])

    @property
    def _python(self) -> str:
        return self.path or "python"

    @property
    def _pip(self) -> tuple[str, ...]:
        return (self._python, "-m", "pip")

    def expectations(self) -> dict[str, str]:
        """What `--expect` would say of the packages that must be the same on every node."""
        packages = {name: self.package(name) for name in ("torch", "ray")}
        return {name: package.version for name, package in packages.items() if package}

    def public(self) -> dict[str, Any]:
        """Everything but torch, which is a fact of its own; of the packages names and versions."""
        left_out = ("packages", "torch_build")
        shown = {name: getattr(self, name) for name in field_names(type(self)) if name not in left_out}
        for name in ("others", "running"):
            shown[name] = [as_dict(item) for item in shown[name]]
        shown["toolkit"] = as_dict(self.toolkit) if self.toolkit else None
        return {**shown, "packages": {package.name: package.version for package in reversed(self.packages)}}


def _read_own_document(live: Observation) -> TargetPython | Unseen:
    """Read the document of probes/stack/target_python.py."""
    answer = document(live)
    error = part(answer, "error") if answer else {}
    if answer and text(answer, "executable"):
        return _of_document(answer, live.probe)
    if text(error, "reason") == "none":
        return Unseen.skip(text(error, "note"))
    if error:
        reason = _REASONS.get(text(error, "reason"), "unparsable")
        return Unseen(reason, f"{live.probe}: {text(error, 'note')}", _WAY_OUT, live.probe)
    return Unseen.of(live, _WAY_OUT)


def _of_document(answer: Json, probe: str) -> TargetPython:
    search, tools, build = part(answer, "found"), part(answer, "toolkit"), answer.get("torch")
    return TargetPython(
        source=probe,
        path=text(answer, "executable"),
        real=text(answer, "real"),
        why=text(search, "why"),
        explicit=search.get("explicit") is True,
        version=shapes.version(text(answer, "version")),
        implementation=text(answer, "implementation") or "cpython",
        machine=text(answer, "machine") or "x86_64",
        glibc=text(answer, "glibc"),
        prefix=text(answer, "prefix"),
        base_prefix=text(answer, "base_prefix"),
        owner=whole_number(answer, "owner"),
        asked_as=whole_number(answer, "uid"),
        uv=answer.get("uv") is True,
        folders=texts(answer, "folders"),
        environ={key: value for key, value in part(answer, "environ").items() if isinstance(value, str)},
        packages=tuple(filter(None, map(_read_package, parts(answer, "distributions")))),
        conda=texts(answer, "conda"),
        torch_build=build if isinstance(build, dict) else None,
        toolkit=Toolkit(text(tools, "home"), text(tools, "why"), text(tools, "version"))
        if text(tools, "home")
        else None,
        others=tuple(
            OtherPython(*(text(item, key) for key in ("path", "why", "torch", "problem")))
            for item in parts(search, "others")
        ),
        running=tuple(
            _running_python(item) for item in parts(search, "running") if text(item, "pid").isdecimal()
        ),
    )


def _read_package(item: Json) -> Package | None:
    if not shapes.package_name(text(item, "name")):
        return None
    return Package(
        canonical(text(item, "name")),
        shapes.version(text(item, "version")),
        text(item, "location"),
        texts(item, "requires"),
        text(item, "installer"),
        text(item, "url"),
        text(item, "name"),
    )


def _running_python(item: Json) -> RunningPython:
    role, prefix, python, ray, problem = (
        text(item, k) for k in ("role", "prefix", "python", "ray", "problem")
    )
    number = int(text(item, "pid")[:9])
    return RunningPython(role, number, prefix, shapes.version(python), shapes.version(ray), problem)


def _of_pastes(pastes: list[Pasted]) -> TargetPython:
    """One target of one or two pastes: the list of packages is more complete, the environment says more."""
    packages = {package.name: package for paste in pastes for package in paste.packages}
    first = pastes[0]
    return TargetPython(
        source=", ".join(paste.source for paste in pastes),
        why="as pasted",
        version=first.python,
        machine=first.machine,
        packages=tuple(packages.values()),
        complete=any(paste.complete for paste in pastes),
        torch_build=first.torch,
        toolkit=Toolkit("", "pasted", first.toolkit) if first.toolkit else None,
        environ=first.environ,
        driver_version=first.driver,
        gpu_names=first.gpus,
        cuda_available=first.cuda_available,
    )
