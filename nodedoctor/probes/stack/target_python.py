"""What the Python that trains has installed and would load, by its own account, without importing torch.

    PYTHON -I -S target_python.py [FOUND-JSON]
    PYTHON -I target_python.py --deep [FOUND-JSON]

Runs in the target interpreter: Python 3.7 or newer, standard library only. find_python.py chooses it and
starts this text in it, so that nothing of ours need be installed or readable there. One JSON document on
stdout: packages from the names and metadata in their folders, torch from its files; nothing of the target's
packages runs, and .pth files are read as text. With --deep torch is imported and asked instead; that is a run
of its own, because an import can crash or hang.
"""

from __future__ import annotations

import os
import sys

# A json.py or torch.py in the working directory must never run.
sys.path[:] = [
    item
    for item in sys.path
    if item == os.path.dirname(os.__file__)
    or (item not in ("", ".") and os.path.realpath(item) != os.getcwd())
]

import glob  # noqa: E402
import json  # noqa: E402
import re  # noqa: E402
import site  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from nodedoctor.probes.stack.target_elf import arch_list
    from nodedoctor.probes.stack.target_libraries import find_libraries
else:
    by_path = "target_libraries" not in sys.modules  # else find_python.py has put it there
    if by_path:
        sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    from target_elf import arch_list
    from target_libraries import find_libraries

    if by_path:
        sys.path.pop()

MATTER = re.compile(
    r"torch(vision|audio|ao|data|titan)?|(pytorch-)?triton|nvidia-.*|cuda-.*|cupy.*|vllm.*|sglang|sgl-.*|ray"
    r"|xformers|flash-.*|flashinfer.*|transformer-engine.*|deepspeed|bitsandbytes|apex|megatron-.*|accelerate"
    r"|numpy|protobuf|click|transformers|trl|peft|verl|skyrl.*|(pytorch-)?lightning|nemo-.*|jax.*|mpi4py"
)
CONDA_MATTER = re.compile(r"(pytorch|libtorch|nccl|cuda|cudnn|python|ray)(-|$)")
METADATA_BYTES = 256 * 1024
CUDA_H_BYTES = 2 * 1024 * 1024
VARIABLES = re.compile(
    r"LD_(LIBRARY_PATH|PRELOAD)|CUDA_(HOME|PATH)|PYTHON(PATH|HOME|NOUSERSITE)|VIRTUAL_ENV|CONDA_PREFIX"
)


def package_folders() -> list[str]:
    """Where a training process of this interpreter finds packages, in its order of search.

    As module `site` would make it of PYTHONPATH, the user's own folder, site-packages and the paths in .pth
    files, but for lines of code in those, which are not run.
    """
    folders = [item for item in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(item)]
    prefixes = [sys.prefix]
    if sys.prefix != sys.base_prefix and _sees_system_packages():
        prefixes.append(sys.base_prefix)
    own = [_user_site()] if _sees_user_site() else []
    for folder in own + site.getsitepackages(prefixes):
        folders += [folder, *_named_by_pth(folder)]
    return [item for item in dict.fromkeys(folders) if os.path.isdir(item)]


def _named_by_pth(folder: str) -> Iterator[str]:
    """The paths that .pth files of a folder add; hidden ones and lines of code are passed over."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".pth") and name[0] != ".")
    except OSError:
        return
    for name in names:
        for line in read_text(os.path.join(folder, name)).splitlines():
            path = line.strip()
            if path and not path.startswith(("#", "import ", "import\t")):
                yield os.path.normpath(os.path.join(folder, path))


def be_the_environment() -> None:
    """Before Python 3.14 it is module `site` that turns an interpreter into that of a virtual environment."""
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
    if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
        sys.prefix = sys.exec_prefix = prefix


def _user_site() -> str:
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return os.path.join(os.path.expanduser("~"), ".local", "lib", version, "site-packages")


def _sees_user_site() -> bool:
    if os.environ.get("PYTHONNOUSERSITE"):
        return False
    return sys.prefix == sys.base_prefix or _sees_system_packages()


def _sees_system_packages() -> bool:
    config = read_text(os.path.join(sys.prefix, "pyvenv.cfg")).lower()
    return re.search(r"^[ \t]*include-system-site-packages[ \t]*=[ \t]*true", config, re.M) is not None


def read_text(path: str, limit: int = METADATA_BYTES) -> str:
    """The beginning of a file; empty when it is none, or cannot be read."""
    try:
        if not os.path.isfile(path):  # opening a pipe would wait
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(limit)
    except OSError:
        return ""


def distributions(folders: list[str]) -> Iterator[dict[str, object]]:
    """Every installed distribution in the order of search; metadata is read only of those that matter."""
    for folder in folders:
        try:
            entries = sorted(os.listdir(folder))
        except OSError:
            continue
        for entry in entries:
            if entry.endswith((".dist-info", ".egg-info")):
                yield _distribution_row(folder, entry)


def _distribution_row(folder: str, entry: str) -> dict[str, object]:
    name, _, version = entry.rpartition(".")[0].partition("-")
    version = re.sub(r"-py\d.*$", "", version)  # as an .egg-info has it
    distribution: dict[str, object] = {"name": canonical(name), "version": version, "location": folder}
    matters = MATTER.fullmatch(canonical(name)) is not None
    if version and not matters:
        return distribution
    here = os.path.join(folder, entry)
    texts = (read_text(path) for path in (here + "/METADATA", here + "/PKG-INFO", here))
    headers = next((text for text in texts if text), "").partition("\n\n")[0]
    versions = re.findall(r"^Version: *(\S+)", headers, re.M)
    requires = re.findall(r"^Requires-Dist: *(\S.*)$", headers, re.M)
    requires += read_text(here + "/requires.txt").partition("[")[0].split("\n")
    origin = re.findall(r'"url": *"([^"]*)"', read_text(here + "/direct_url.json"))
    distribution["version"] = (versions or [version])[0]
    distribution["requires"] = [line.rstrip(" ") for line in requires if line and matters]
    distribution["installer"] = read_text(here + "/INSTALLER").strip()
    distribution["url"] = re.sub(r"//[^/@]*@", "//", (origin or [""])[0])
    return distribution


def canonical(name: str) -> str:
    """The name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def conda_packages() -> list[str]:
    """name-version-build of the conda packages that matter in this environment."""
    files = glob.glob(os.path.join(glob.escape(sys.prefix), "conda-meta", "*.json"))
    names = (os.path.basename(path)[: -len(".json")] for path in files)
    return sorted(name for name in names if CONDA_MATTER.match(name))


def torch_folder(folders: list[str]) -> str:
    """The folder `import torch` would take, empty when there is none."""
    candidates = (os.path.join(folder, "torch") for folder in folders)
    return next((folder for folder in candidates if os.path.isfile(os.path.join(folder, "version.py"))), "")


def torch_facts(folder: str) -> dict[str, object]:
    """What torch/version.py says of the build, and the GPU architectures it was compiled for."""
    text = read_text(os.path.join(folder, "version.py"))
    values = dict(re.findall(r"^(\w+)(?::[\w\[\], |.]+| *)= *'([^']*)'", text, re.M))
    return {
        "location": os.path.dirname(folder),
        "version": values.get("__version__", ""),
        "cuda": values.get("cuda", ""),
        "hip": values.get("hip", ""),
        "git": values.get("git_version", ""),
        "archs": arch_list(os.path.join(folder, "lib", "libtorch_python.so")) if values.get("cuda") else [],
    }


def toolkit() -> dict[str, str]:
    """The CUDA toolkit that would compile extensions, looked for as torch.utils.cpp_extension does."""
    places = [(name, os.environ.get(name, "")) for name in ("CUDA_HOME", "CUDA_PATH")]
    for folder in os.environ.get("NODEDOCTOR_CALLER_PATH", os.environ.get("PATH", "")).split(os.pathsep):
        nvcc = os.path.join(folder, "nvcc")
        if os.path.isabs(nvcc) and os.access(nvcc, os.X_OK):
            places.append(("nvcc on PATH", _home_of_nvcc(nvcc)))
    places.append(("default", "/usr/local/cuda" if os.path.isdir("/usr/local/cuda") else ""))
    why, home = next(((why, home) for why, home in places if home), ("", ""))
    return {"home": home, "why": why, "version": _toolkit_version(home) if home else ""}


def _home_of_nvcc(nvcc: str) -> str:
    """The toolkit an nvcc belongs to; it may be a two-line script that starts the real one elsewhere."""
    script = re.search(r"^exec +(/\S+/bin/nvcc)\b", read_text(nvcc, 4096), re.M)
    return os.path.dirname(os.path.dirname(script.group(1) if script else os.path.realpath(nvcc)))


def _toolkit_version(home: str) -> str:
    """The toolkit's version from its own files; nothing of it is run."""
    text = read_text(os.path.join(home, "version.json"))
    match = re.search(r'"cuda_nvcc"[^}]*?"version" *: *"([\d.]+)"', text)
    if match is None:
        match = re.search(r"CUDA Version ([\d.]+)", read_text(os.path.join(home, "version.txt")))
    if match is not None:
        return match.group(1)
    number = re.search(
        r"#define CUDA_VERSION (\d+)", read_text(os.path.join(home, "include", "cuda.h"), CUDA_H_BYTES)
    )
    return f"{int(number.group(1)) // 1000}.{int(number.group(1)) % 1000 // 10}" if number else ""


def owner(path: str) -> int:
    """The uid a path belongs to, -1 when that is not known."""
    try:
        return os.stat(path).st_uid
    except OSError:
        return -1


def describe() -> dict[str, object]:
    """The whole document about this interpreter."""
    folders = package_folders()
    torch = torch_folder(folders)
    tools = toolkit()
    return {
        "executable": sys.executable,
        "real": os.path.realpath(sys.executable),
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "machine": os.uname().machine,
        "glibc": os.confstr("CS_GNU_LIBC_VERSION") or "",
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "owner": owner(sys.prefix),
        "uid": os.geteuid(),
        "uv": re.search(r"^uv *=", read_text(os.path.join(sys.prefix, "pyvenv.cfg")), re.M) is not None,
        "folders": folders,
        "environ": {name: value for name, value in os.environ.items() if VARIABLES.fullmatch(name)},
        "distributions": list(distributions(folders)),
        "conda": conda_packages(),
        "torch": torch_facts(torch) if torch else None,
        "toolkit": tools,
        "libraries": find_libraries(folders, torch, tools["home"]),
    }


def deep() -> dict[str, object]:
    """Import torch and ask it; whatever that raises is part of the answer."""
    sys.path[:0] = [folder for folder in package_folders() if folder not in sys.path]
    answer: dict[str, object] = {}
    try:
        import torch  # type: ignore[import-not-found, unused-ignore]

        answer["version"], answer["cuda"] = str(torch.__version__), torch.version.cuda
        answer["archs"] = list(torch.cuda.get_arch_list())
        answer["available"] = torch.cuda.is_available()
        answer["devices"] = torch.cuda.device_count()
        if torch.version.cuda:
            answer["nccl"] = [str(number) for number in torch.cuda.nccl.version()]
            torch.cuda.init()  # says why there is no GPU to use
    except Exception as error:  # a broken installation raises anything
        answer["error"] = f"{type(error).__name__}: {error}"
    return answer


def main() -> None:
    """Print the document."""
    choices = [argument for argument in sys.argv[1:] if argument.startswith("{")]
    be_the_environment()
    document = {"deep": deep()} if "--deep" in sys.argv else describe()
    document["found"] = json.loads(choices[0]) if choices else {}
    print(json.dumps({**document, "members": members(document)}))


def members(value: object) -> int:
    """As in plain_json.py, which a foreign interpreter does not have."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return sum(1 + members(member) for member in inner)


if __name__ == "__main__":
    main()
