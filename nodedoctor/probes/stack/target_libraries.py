"""Which copies of NCCL, the CUDA runtime, cuDNN and libcuda could be loaded, and which one torch would get.

A part of target_python.py: runs in the target interpreter, Python 3.7, standard library only. Nothing is
loaded; the search of ld.so(8) is followed on paper: LD_PRELOAD; the RPATHs of the object that asks and of
those that loaded it, unless it has a RUNPATH; LD_LIBRARY_PATH; its RUNPATH; /etc/ld.so.cache; the default
folders. It is right for processes started from this environment; what running ones did load is in their maps.
"""

from __future__ import annotations

import glob
import os
import re
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from nodedoctor.probes.stack.target_elf import Elf, nccl_version, read_elf, symbols
else:
    by_path = "target_elf" not in sys.modules  # else find_python.py has put it there
    if by_path:
        sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    from target_elf import Elf, nccl_version, read_elf, symbols

    if by_path:
        sys.path.pop()

FAMILY = re.compile(r"lib(nccl|cudart|cudnn|cuda)(?:-[0-9a-f]{8})?\.so(?:\.|$)")
DEFAULT_FOLDERS = (
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
)
LD_SO_CACHE = "/etc/ld.so.cache"
CACHE_MAGIC, CACHE_HEAD, CACHE_ENTRY = b"glibc-ld.so.cache1.1", 48, 24  # glibc: sysdeps/generic/dl-cache.h
CACHE_BYTES = 16 * 1024 * 1024
WITHOUT_TORCH = "libcuda.so.1"  # opened by libcudart, whose own search paths are empty


class Loader:
    """The dynamic loader as it would search for a process of this interpreter in this environment."""

    def __init__(self, torch_folder: str) -> None:
        environ = os.environ
        self.program = read_elf(os.path.realpath(sys.executable)) or Elf(sys.executable)
        self.chain = _torch_chain(torch_folder)
        # An empty item means the working directory of the job, which is not ours.
        self.library_path = [item for item in re.split("[:;]", environ.get("LD_LIBRARY_PATH", "")) if item]
        self.preload = [item for item in re.split("[ :]", environ.get("LD_PRELOAD", "")) if "/" in item]
        self.cache = list(_cache_entries())

    def resolve(self, name: str) -> dict[str, str]:
        """Which file a library name becomes, and by which rule; an empty path when it is nowhere."""
        for path, rule in self._load_candidates(name):
            elf = read_elf(path)
            if elf is not None and self.program.kind in (b"", elf.kind):
                return {"name": name, "path": path, "real": os.path.realpath(path), "rule": rule}
        return {"name": name, "path": "", "real": "", "rule": ""}

    def _load_candidates(self, name: str) -> Iterator[tuple[str, str]]:
        chain = [] if name == WITHOUT_TORCH else self.chain
        for path in self.preload:
            elf = read_elf(path)
            if elf is not None and name in (elf.soname, os.path.basename(path)):
                yield path, "LD_PRELOAD"
        if not (chain and chain[0].runpath):
            yield from self._rpath_candidates(name, chain)
        for folder in self.library_path:
            yield os.path.join(folder, name), "LD_LIBRARY_PATH"
        for folder in chain[0].runpath if chain else []:
            yield os.path.join(folder, name), "RUNPATH of " + os.path.basename(chain[0].path)
        for key, path in self.cache:
            if key == name:
                yield path, "ld.so.cache"
        for folder in DEFAULT_FOLDERS:
            yield os.path.join(folder, name), "default folders"

    def _rpath_candidates(self, name: str, chain: list[Elf]) -> Iterator[tuple[str, str]]:
        for elf in [*chain, self.program]:
            for folder in [] if elf.runpath else elf.rpath:
                yield os.path.join(folder, name), "RPATH of " + os.path.basename(elf.path)


def _torch_chain(torch_folder: str) -> list[Elf]:
    """The object that asks for NCCL, then those that load it, in the order their RPATHs are searched."""
    chain = []
    homes = [os.path.join(torch_folder, "lib"), os.path.join(sys.prefix, "lib")] if torch_folder else []
    for name in ("libtorch_cuda.so", "libtorch.so", "libtorch_python.so"):
        objects = [elf for elf in (read_elf(os.path.join(home, name)) for home in homes) if elf is not None]
        chain += objects[:1]
    return chain


def _cache_entries() -> Iterator[tuple[str, str]]:
    """Name and path of the libraries of interest in the loader's cache, in its order."""
    try:
        with open(LD_SO_CACHE, "rb") as file:
            data = file.read(CACHE_BYTES)
    except OSError:
        return
    base = data.find(CACHE_MAGIC)
    if base < 0 or len(data) < base + CACHE_HEAD:
        return
    fitting = (len(data) - base - CACHE_HEAD) // CACHE_ENTRY
    for i in range(min(struct.unpack_from("=I", data, base + len(CACHE_MAGIC))[0], fitting)):
        key, value = struct.unpack_from("=4xII", data, base + CACHE_HEAD + CACHE_ENTRY * i)
        name = _c_string(data, base + key)
        if FAMILY.match(name):
            yield name, _c_string(data, base + value)


def _c_string(data: bytes, at: int) -> str:
    return data[at : at + 4096].split(b"\0")[0].decode("utf-8", "replace")


def _search_places(loader: Loader, site_folders: list[str], cuda_home: str) -> Iterator[tuple[str, str]]:
    """Where to look, and the folder or file; the same file may turn up several times."""
    for path in loader.preload:
        yield "LD_PRELOAD", path
    for folder in loader.library_path:
        yield "LD_LIBRARY_PATH", folder
    for elf in loader.chain:
        for folder in elf.rpath + elf.runpath:
            yield "torch", folder
    for site in map(glob.escape, site_folders):
        for folder in glob.glob(os.path.join(site, "nvidia", "*", "lib")):
            yield "wheel", folder
        yield from (("torch", folder) for folder in glob.glob(os.path.join(site, "torch", "lib")))
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        yield "conda", os.path.join(sys.prefix, "lib")
    for _, path in loader.cache:
        yield "ld.so.cache", path
    for folder in DEFAULT_FOLDERS:
        yield "system", folder
    for home in [cuda_home, *glob.glob("/usr/local/cuda*")]:
        for below in ("lib64", "targets/*/lib", "compat", "compat/lib") if home else ():
            yield from (
                ("CUDA toolkit", folder) for folder in glob.glob(os.path.join(glob.escape(home), below))
            )
    # vLLM up to 0.4 downloads an NCCL of its own: github.com/vllm-project/vllm, vllm/utils.py of v0.4.2
    yield "vLLM", os.environ.get("VLLM_NCCL_SO_PATH", "")
    for folder in glob.glob(os.path.join(os.path.expanduser("~"), ".config", "vllm", "nccl", "*")):
        yield "vLLM", folder


def _library_files(path: str) -> list[str]:
    """The libraries of interest in a folder; a file is returned as it is."""
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return [path] if FAMILY.match(os.path.basename(path)) else []
    return [os.path.join(path, name) for name in names if FAMILY.match(name)]


def find_libraries(site_folders: list[str], torch_folder: str, cuda_home: str) -> dict[str, object]:
    """Every copy found, once per real file, and what each name that torch needs becomes."""
    loader = Loader(torch_folder)
    places: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for place, folder in _search_places(loader, site_folders, cuda_home):
        for path in _library_files(folder):
            real = os.path.realpath(path)
            first.setdefault(real, path)
            if place not in places.setdefault(real, []):
                places[real].append(place)
    copies = [
        dict(copy, found=places[real])
        for real, copy in ((r, _library_row(p, r)) for r, p in first.items())
        if copy
    ]
    needed = [name for elf in loader.chain for name in elf.needed if FAMILY.match(name)]
    linked_in = bool(loader.chain) and not any(name.startswith("libnccl.") for name in needed)
    resolved = [loader.resolve(name) for name in dict.fromkeys([*needed, WITHOUT_TORCH])]
    return {
        "copies": copies,
        "resolved": resolved,
        "nccl_missing": _nccl_missing(loader, resolved),
        "nccl_built_in": nccl_version(loader.chain[0])[0] if linked_in else "",
    }


def _nccl_missing(loader: Loader, resolved: list[dict[str, str]]) -> list[str] | None:
    """The NCCL functions torch calls and the libnccl it gets does not have; None when that is not known."""
    won = next((item["path"] for item in resolved if item["name"].startswith("libnccl.so")), "")
    needs = symbols(loader.chain[0].path, b"nccl", defined=False) if loader.chain and won else None
    has = symbols(won, b"", defined=True) if needs else None
    return sorted(needs - has) if needs and has else None


def _library_row(path: str, real: str) -> dict[str, object]:
    """One library; empty for what the loader would skip."""
    family, elf = FAMILY.match(os.path.basename(path)), read_elf(path)
    if family is None or elf is None:
        return {}
    numbers = re.search(r"\.so\.(\d+(?:\.\d+)+)$", os.path.basename(real))
    version, cuda = nccl_version(elf) if family.group(1) == "nccl" else ("", "")
    return {
        "family": family.group(1),
        "path": path,
        "real": real,
        "soname": elf.soname,
        "version": version or (numbers.group(1) if numbers else ""),
        "cuda": cuda,
    }
