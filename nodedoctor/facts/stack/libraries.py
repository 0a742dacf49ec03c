"""The copies of NCCL, the CUDA runtime, cuDNN and libcuda that torch could load, and which ones it gets."""

from __future__ import annotations

from nodedoctor.declare.registry import fact
from nodedoctor.json_shapes import Json, document, part, parts, text, texts
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import record


@record
class LibraryCopy:
    """One file. `version` and `cuda` (what it was built with) are from the file, "" if it does not say.

    `family` is nccl, cudart, cudnn or cuda. `found` says where it turned up: LD_PRELOAD, LD_LIBRARY_PATH,
    torch (its own search path), wheel, conda, ld.so.cache, system, CUDA toolkit, vLLM.
    """

    family: str
    path: str
    real: str
    soname: str = ""
    version: str = ""
    cuda: str = ""
    found: tuple[str, ...] = ()


@record
class Resolved:
    """What a library name becomes for torch: a file and the rule that found it, both empty for none."""

    name: str
    path: str = ""
    real: str = ""
    rule: str = ""


@fact("target-python", name="libraries")
@record
class Libraries:
    """Every copy found, and what torch's needs resolve to in this environment.

    `nccl_built_in` is the version of an NCCL linked into libtorch_cuda, "" for none. `nccl_missing` are the
    NCCL functions torch calls that the libnccl it gets lacks, None where the two could not be compared.
    """

    copies: tuple[LibraryCopy, ...] = ()
    resolved: tuple[Resolved, ...] = ()
    nccl_built_in: str = ""
    nccl_missing: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, observation: Observation) -> Libraries | Unseen:
        """Read the `libraries` of probes/stack/target_python.py."""
        libraries = part(document(observation) or {}, "libraries")
        if not libraries:
            return Unseen.of(observation)
        return cls(
            tuple(_library_copy(item) for item in parts(libraries, "copies")),
            tuple(
                Resolved(*(text(item, key) for key in ("name", "path", "real", "rule")))
                for item in parts(libraries, "resolved")
            ),
            text(libraries, "nccl_built_in"),
            texts(libraries, "nccl_missing") if isinstance(libraries.get("nccl_missing"), list) else None,
        )

    def family(self, name: str) -> tuple[LibraryCopy, ...]:
        """All copies of one library (`nccl`)."""
        return tuple(copy for copy in self.copies if copy.family == name)

    def winner(self, prefix: str) -> tuple[Resolved, LibraryCopy | None] | None:
        """What torch gets for a library (`libnccl.so`), None when torch does not need it."""
        resolved = next((item for item in self.resolved if item.name.startswith(prefix + ".")), None)
        if resolved is None:
            return None
        return resolved, next((copy for copy in self.copies if copy.real == resolved.real), None)


def _library_copy(item: Json) -> LibraryCopy:
    family, path, real, soname, version, cuda = (
        text(item, key) for key in ("family", "path", "real", "soname", "version", "cuda")
    )
    return LibraryCopy(family, path, real, soname, version, cuda, texts(item, "found"))
