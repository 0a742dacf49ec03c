"""Print the environment variables that matter to training, and never a secret; one JSON document on stdout.

    python -I environment.py [--root DIR] [--file FILE]...

A variable is kept when its name is of a known family and holds no word like KEY, TOKEN or SECRET. In a kept
value, credentials in URLs and what is assigned to such a word become `***`. FILE holds NAME=VALUE lines (an
env file, /etc/nccl.conf) and is filtered alike; `~` is the home directory. Links below DIR are followed
inside of it. The file NCCL_CONF_FILE names is read too. Each file is read by a forked process, which is left
behind when the file system under it is dead.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import select
import sys
from collections.abc import Iterator, Mapping

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.host.files_reading import inside
from nodedoctor.probes.plain_json import with_count
from nodedoctor.probes.readers import end

sys.path.pop()

_FAMILY = re.compile(
    r"(?:"
    r"NCCL|RCCL|TORCH|PYTORCH|TORCHELASTIC|TORCHINDUCTOR|GLOO|TP"  # the libraries of a collective
    r"|UCX|UCC|OFI|FI|SHARP|HCOLL|IBV|RDMAV|MLX5"  # their transports and plug-ins
    r"|CUDA|CUDNN|CUBLAS|NVIDIA|NV"  # the driver's side, and what an image says it holds
    r"|OMP|MKL|KMP|GOMP|OPENBLAS"  # threads, which starve a data loader
    r"|OMPI|PMI|PMIX|SLURM|RAY|PYXIS|ENROOT|APPTAINER|SINGULARITY"  # launchers, schedulers, runtimes
    r"|HF|TRANSFORMERS|DEEPSPEED|DS|VLLM|SGLANG|SKYRL|VERL|MEGATRON|ACCELERATE|FSDP|TRITON"  # frameworks
    r")_"
)
_NAME = re.compile(
    # who a process is in its job; what is loaded, and from where; where files go; which image this is
    r"RANK|WORLD_SIZE|(?:LOCAL|GROUP|NODE|ROLE)_RANK|LOCAL_WORLD_SIZE|MASTER_(?:ADDR|PORT)"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|PATH|VIRTUAL_ENV|CONDA_PREFIX|CONDA_DEFAULT_ENV|PYTHON[A-Z]+"
    r"|HOME|PWD|TMPDIR|XDG_CACHE_HOME|UV_CACHE_DIR|PIP_CACHE_DIR"
    r"|container|KUBERNETES_SERVICE_HOST|NVARCH|_CUDA_COMPAT_PATH|OPENMPI_VERSION|RDMACORE_VERSION"
)
_WORDS = (
    r"KEY(?!BOARD|WORD|SPACE)|TOKEN(?!S|IZ)|SECRET|PASS(?!ES|ING|IVE|ED|THR|_THR)|CREDENTIAL|AUTH(?!OR)|AUTHORIZATION"
    r"|JWT|COOKIE|HEADERS|SIGNATURE|(?<![A-Z0-9])(?:PWD|PAT|CREDS?|SAS|DSN|PEM)(?![A-Z0-9])"
)
_SECRET = re.compile(_WORDS, re.IGNORECASE)
_PARTITION = re.compile(r"[A-Z]+_IB_PKEYS?")  # InfiniBand's partition key is a number everybody may know
_OWN_FOLDERS = ("PWD", "OLDPWD")

# What to hide in values. A name never starts in the middle of a word, which keeps the search linear, and only
# names that speak of a secret match, so that `--verbose --token x` is not read as an option and its value.
_SPEAKING = rf"(?<![\w.-])(?=[\w.-]*(?:{_WORDS}))[\w.-]+"
_VALUE = r"(?:\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|[^\s&;,]+)"
_MIXED = r"(?=\S*[0-9=]|\S*[a-z][A-Z])"  # words of a sentence are no base64
# How the keys of services begin: their makers' documentation, and the rules of gitleaks/gitleaks.
_ISSUED = (
    r"\b(?:"
    r"hf_[A-Za-z0-9]{8,}|sk-[\w-]{12,}|(?:sk|rk|pk)_(?:live|test)_\w{8,}|whsec_\w{8,}|gh[pousr]_\w{8,}|github_pat_\w{8,}"
    r"|gl[a-z]{2,5}-[\w-]{16,}|glsa_\w{16,}|xox[a-z]-[\w-]{8,}|xapp-[\w-]{8,}|nvapi-[\w-]{8,}|AIza[\w-]{16,}"
    r"|ya29\.[\w.-]{8,}|hv[sbr]\.[\w-]{8,}|dckr_pat_[\w-]{8,}|do[por]_v1_\w{8,}|pypi-[\w-]{16,}|npm_[A-Za-z0-9]{16,}"
    r"|r8_\w{16,}|dapi[0-9a-f]{16,}|gsk_\w{16,}|xai-[\w-]{16,}|pplx-\w{16,}|tskey-[\w-]{8,}|shp[a-z]{2}_\w{16,}"
    r"|lin_api_\w{8,}|sntry[a-z]{1,2}_[\w=-]{16,}|ATATT\w{16,}|SG\.[\w-]{8,}\.[\w-]{8,}|PMAK-[\w-]{16,}|rpa_\w{16,}"
    r"|(?:SK|AC)[0-9a-fA-F]{32}(?![0-9a-zA-Z])|(?:pub)?key-[0-9a-f]{32}|[0-9a-f]{32}-us\d\d|xkeysib-[\w-]{16,}"
    r"|(?:EAAA|sq0[a-z]{3}-)[\w-]{22,}|EAA[MC][A-Za-z0-9]{100,}|EZ[AT]K[A-Za-z0-9]{54}|shippo_(?:live|test)_\w{16,}"
    r"|A3-[A-Z0-9]{6}-[A-Z0-9-]{20,}|ops_eyJ[\w+/=-]{16,}|pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"
    r"|[ps]at\.[\w-]{22}\.\w{24}\.\w{20}"
    r"|LTAI[A-Za-z0-9]{20}|AKID[A-Za-z0-9]{32}|AQVN[\w-]{35,}|GOCSPX-[\w-]{16,}|AKCp[A-Za-z0-9]{69}|cmVmd[A-Za-z0-9]{59}"
    r"|[\w~.]{3}\dQ~[\w~.-]{31,34}|v1\.0-[0-9a-f]{24}-[0-9a-f]{64,}|HRKU-[\w-]{32,}|API-[A-Z0-9]{26}|NR[A-Z]{2}-[\w-]{19,}"
    r"|dp\.[a-z]{2,6}\.[\w.-]{40,}|dt0c01\.\w{24}\.\w{64}|[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{16,}|sha256~[\w-]{43}|fo1_[\w-]{43}"
    r"|fm[12][ar]?_[\w+/=-]{64,}|glc_[\w+/=]{32,}|ico-[A-Za-z0-9]{32}|ntn_\w{40,}|p(?:nu|ul|scale_[a-z]{2,5})[_-][\w=.-]{32,}"
    r"|rdme_\w{32,}|rubygems_[0-9a-f]{48}|sgp_[\w]{40,}|sm_[aps]at_\w{16}|tfp_[\w.=-]{40,}|tk-us-[\w-]{48}|CLOJARS_\w{60}"
    r"|duffel_(?:test|live)_[\w=-]{32,}|[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk|FLWSECK[\w-]{12,}|figd_[\w-]{32,}|sbp_[0-9a-f]{40}"
    r"|pcsk_\w{32,}|lsv2_[a-z]{2}_\w{32,}|csk-\w{32,}|tgp_v1_[\w-]{32,}|wandb_v1_\w{16,}|nfp_\w{32,}|AT(?:CTT|BB)\w{16,}"
    r"|AGE-SECRET-KEY-\w{8,}|(?:AKIA|ASIA|AROA|AGPA)[A-Z0-9]{8,}|eyJ[\w-]{4,}(?:\.[\w-]*){0,4}|\d{8,10}:AA[\w-]{30,})"
)
_HIDE = (
    # what a value must contain; what to hide in it then; what is shown instead; whether the case matters not
    (
        "-----BEGIN",
        r"-----BEGIN [A-Z ]*PRIVATE KEY[^-]*-----(?s:.*?)(?:-----END [A-Z ]*-----|\Z)",
        "***",
        False,
    ),
    ("=", rf"({_SPEAKING} ?= ?){_VALUE}", r"\1***", True),  # token=..., also in queries
    ("-", rf"(?<![\w.-])((?=-){_SPEAKING} +){_VALUE}", r"\1***", True),  # --api-key ...
    # JSON, headers: all that follows; Python's KeyError is no key
    (
        ":",
        rf"({_SPEAKING}\\*[\"']\s*:|(?<![\w.-])(?![\w.]*(?:Error|Exception):){_SPEAKING}:\s).*",
        r"\1 ***",
        True,
    ),
    (":", r"((?<!\S)(?:-u|--user|--proxy-user)(?: +|=))['\"]?[^\s:]+:\S+", r"\1***", False),  # curl
    (
        " ",
        r"(\bsshpass +-p *|\b(?:mysql\w*|mariadb)\b.{0,200}? -p"
        r"|\blogin\b.{0,200}? -p +|\blogin +\S+ +password +)\S+",
        r"\1***",
        True,
    ),
    (" ", r"(\bwandb +login +(?:--\S+ +)*)\S+", r"\1***", True),
    (
        "/",
        r"((?:hooks\.slack\.com|discord(?:app)?\.com/api/webhooks|webhook\.office\.com|api\.telegram\.org)/)\S+",
        r"\1***",
        True,
    ),
    ("=", r"((?<![\w.-])(?:sig|x-amz-\w+|accountkey|sharedaccess\w*)=)[^&;\s\"']+", r"\1***", True),
    ("", rf"\bbasic\s+{_MIXED}[A-Za-z0-9+/=_-]{{8,}}|\bbearer\s+[^\s\"']+", "***", True),
    ("", _ISSUED, "***", False),
)

_NESTED = re.compile(r"[\"']env(?:_vars|ironment)?\\*[\"']\s*:", re.IGNORECASE)  # Ray: a whole environment
_PART = re.compile(r"\S+")

LONGEST = 16384  # characters of a value: a PATH fits, a configuration document does not
FILE_BYTES = 256 * 1024
FILE_SECONDS = 2.0


def kept_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that may be kept, sorted by name, their values without credentials."""
    return {name: scrubbed(environment[name]) for name in sorted(environment) if is_kept(name)}


def is_kept(name: str) -> bool:
    """True for a variable of a known family whose name does not speak of a secret."""
    if not (_FAMILY.match(name) or _NAME.fullmatch(name)):
        return False
    return not speaks_of_secret(name)


def speaks_of_secret(name: str) -> bool:
    """True for a name that promises a credential: API_KEY, DB_PWD, GIT_PAT, client-secret."""
    return name not in _OWN_FOLDERS and bool(_SECRET.search(name)) and not _PARTITION.fullmatch(name)


def is_plain_name(name: str) -> bool:
    """True for a variable that says who a process is, what is loaded and where files go."""
    return _NAME.fullmatch(name) is not None


def scrubbed(value: str, longest: int = LONGEST) -> str:
    """A value with everything that looks like a credential replaced by ***; of a long one only its length."""
    if len(value) > longest:
        return f"({len(value)} characters)"
    if _NESTED.search(value):
        return "***"
    if "://" in value:
        value = _PART.sub(_without_user, value)
    for needed, expression, replacement, folded in _HIDE:
        if needed in value:
            value = _compiled_pattern(expression, folded).sub(replacement, value)
    return value


@functools.cache
def _compiled_pattern(expression: str, folded: bool) -> re.Pattern[str]:
    """The expression, compiled when a value first needs it: all of them take 6 ms."""
    return re.compile(expression, re.IGNORECASE if folded else 0)


def _without_user(word: re.Match[str]) -> str:
    """Hide what is before the last @ of a URL: passwords may hold any sign, also / and @ and quotes."""
    scheme, _, rest = word.group().partition("://")
    _, at, host = rest.rpartition("@")
    return f"{scheme}://***@{host}" if at else word.group()


def assignments(text: str) -> Iterator[tuple[str, str]]:
    """The NAME=VALUE lines of shells, docker, nccl.conf and env(1); comments and other lines are left out."""
    for line in text.splitlines():
        match = re.match(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)$", line)
        if match:
            value = match.group(2).strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            yield match.group(1), value[1:-1] if quoted else value


def misread(text: str) -> list[str]:
    """Names that NCCL reads otherwise: it strips neither `export` nor blanks nor quotes (misc/param.cc)."""
    plain = re.compile(r"[A-Za-z_]\w*=(?![\s\"']).*(?<!\s)$|[A-Za-z_]\w*=$")
    lines = (line for line in text.splitlines() if not plain.match(line))
    return sorted({name for line in lines for name, _ in assignments(line) if is_kept(name)})


def read_file(path: str, root: str) -> tuple[dict[str, str], list[str]]:
    """The variables a file may show, and those NCCL would misread.

    OSError when it cannot be read, TimeoutError when nothing comes back.
    """
    pipe, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer_and_exit(path, write_end, root)
    os.close(write_end)
    try:
        answer = json.loads(answer_of(pipe) or b"{}")
    except ValueError:  # cut off: the reader was killed, or found no memory
        answer = {}
    finally:
        os.close(pipe)
        end([pid])
    if "variables" not in answer:
        raise OSError(answer.get("errno", errno.EIO), "cannot be read")
    return answer["variables"], answer["misread"]


def answer_of(pipe: int) -> bytes:
    """All that a forked reader says; TimeoutError when nothing comes any more."""
    answer = b""
    while select.select([pipe], [], [], FILE_SECONDS)[0]:
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            return answer
        answer += chunk
    raise TimeoutError(errno.ETIMEDOUT, "no answer")


def answer_and_exit(path: str, pipe: int, root: str) -> None:
    """The life of the forked reader; it holds no pipe of ours but its own."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        with open(pipe, "w", encoding="ascii") as out:
            try:
                real = inside(root, path[len(root) :]) if root and path.startswith(root) else path
                with open(os.path.expanduser(real), "rb") as file:
                    text = file.read(FILE_BYTES).decode("utf-8", "replace")
                answer = {"variables": kept_variables(dict(assignments(text))), "misread": misread(text)}
                json.dump(answer, out)
            except OSError as error:
                json.dump({"errno": error.errno or errno.EIO}, out)
    finally:
        os._exit(0)


def main() -> None:
    """Print our own environment and that of the files named."""
    words = sys.argv[1:]
    if len(words) % 2 or any(word not in ("--file", "--root") for word in words[::2]):
        sys.exit("usage: environment.py [--root DIR] [--file FILE]...")
    pairs = list(zip(words[::2], words[1::2], strict=True))
    root = next((value.rstrip("/") for name, value in pairs if name == "--root"), "")
    paths = [value for name, value in pairs if name == "--file"]
    own = {clean(name): clean(value) for name, value in os.environ.items()}
    files: dict[str, dict[str, str]] = {}
    misread: dict[str, list[str]] = {}
    errors: dict[str, str] = {}
    nccl_conf = own.get("NCCL_CONF_FILE", "")
    for path in dict.fromkeys([*paths, *([nccl_conf] if nccl_conf else [])]):
        try:
            files[path], names = read_file(path, root)
            if names and (path == nccl_conf or path.endswith("nccl.conf")):
                misread[path] = names
        except OSError as error:
            errors[path] = (
                "TIMEOUT" if isinstance(error, TimeoutError) else errno.errorcode.get(error.errno or 0, "EIO")
            )
    variables = kept_variables(own)
    document = {
        "variables": variables,
        "left_out": len(own) - len(variables),
        "files": files,
        "errors": errors,
        "misread": misread,
    }
    sys.stdout.write(json.dumps(with_count(document)) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a reader that was left behind may not delay the end


def clean(text: str) -> str:
    """Text from the system as valid text: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(text).decode("utf-8", "replace")


if __name__ == "__main__":
    main()
