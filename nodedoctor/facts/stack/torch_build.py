"""The torch of the training Python: version, the CUDA it was built with, the GPUs it is compiled for."""

from __future__ import annotations

from nodedoctor.declare.registry import fact
from nodedoctor.facts import shapes
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.json_shapes import text, texts
from nodedoctor.knowledge.versions.cuda import cuda_version
from nodedoctor.model import Unseen
from nodedoctor.record import record


@fact(TargetPython, name="torch")
@record
class Torch:
    """The torch of the target Python, as its files tell.

    `cuda` is the CUDA it was built with (12.8), "" for a CPU-only build, None when that is not known. `archs`
    is what torch.cuda.get_arch_list() would say, read from the library; empty when it was not seen there.
    """

    version: str
    cuda: str | None = None
    hip: str = ""
    git: str = ""
    location: str = ""
    archs: tuple[str, ...] = ()

    @property
    def public_version(self) -> str:
        """The version without the local part that names the build: 2.9.0 of 2.9.0+cu128."""
        return self.version.partition("+")[0]

    def headline(self) -> dict[str, str]:
        """The torch that trains, for the line that names the node."""
        return {"torch": self.version}

    @classmethod
    def parse(cls, target: TargetPython | Unseen) -> Torch | Unseen:
        """Take torch/version.py, else the package's metadata."""
        if isinstance(target, Unseen):
            return target
        package = target.package("torch")
        build = target.torch_build or {}
        version = shapes.version(text(build, "version")) or (package.version if package else "")
        if version:
            return cls(
                version=version,
                cuda=_cuda_build(text(build, "cuda")) if "cuda" in build else _cuda_of(version, target),
                hip=shapes.version(text(build, "hip")),
                git=text(build, "git"),
                location=text(build, "location") or (package.location if package else ""),
                archs=texts(build, "archs"),
            )
        return Unseen.skip(
            f"there is no torch in {target.label}" + (f" ({target.why})" if target.why else "")
        )


def _cuda_build(version: str) -> str | None:
    """What torch/version.py says: "" for a CPU-only build, None when it is no version at all."""
    return shapes.version(version) or (None if version else "")


def _cuda_of(version: str, target: TargetPython) -> str | None:
    """From the local version (+cu128, +cpu), else from the CUDA runtime that was installed with it."""
    local = version.partition("+")[2]
    runtimes = [package for package in target.packages if package.name.startswith("nvidia-cuda-runtime")]
    cuda = cuda_version(local or "") or (cuda_version(runtimes[0].version) if len(runtimes) == 1 else None)
    if cuda is None:
        return "" if local == "cpu" else None
    return f"{cuda[0]}.{cuda[1]}"


def torch_index(tag: str) -> str:
    """Where the builds of a kind are installed from; `tag` is cu128, cu126, cpu ..."""
    return f"https://download.pytorch.org/whl/{tag}"
