"""The door at which secrets stay out: every observation passes here before it is read, kept or quoted.

Of an environment the values of variables that are known stay, less what looks like a credential in them; of
any other variable the name stays, and its value only if it has a harmless shape: a number, a switch, a
version, a path, names of devices, addresses. In all other text what looks like a credential is replaced (see
`probes/host/environment.py`). What was replaced reads `***`, a whole value `<hidden>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from nodedoctor.grouping import group_pairs
from nodedoctor.json_shapes import loaded
from nodedoctor.knowledge.env_vars import is_env_var
from nodedoctor.model import Observation
from nodedoctor.patterns import regex
from nodedoctor.probes.host.environment import is_plain_name, scrubbed, speaks_of_secret
from nodedoctor.record import replace

HIDDEN = "<hidden>"

# fmt: off
_SIGNS = (
    "pass", "pwd", "secret", "token", "auth", "key", "cred", "cookie", "jwt", "signature", "headers",
    "_pat", "-pat", "sas=", "sas:", 'sas"', "dsn", "pem", "bearer", "basic", "sig=", "x-amz-",
    "sharedaccess", "webhook", "slack.com", "telegram", "login", "sshpass", "--user", "curl", "://",
    "hf_", "sk-", "k_live_", "k_test_", "whsec_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "glpat-",
    "gldt-", "glrt-", "glcbt-", "glptt-", "glsoat-", "glimt-", "glagent-", "glsa_", "xox", "xapp-",
    "nvapi-", "aiza", "ya29.", "hvs.", "hvb.", "hvr.", "_v1_", "pypi-", "npm_", "r8_", "dapi",
    "gsk_", "xai-", "pplx-", "tskey-", "shpat_", "shpss_", "shpca_", "shppa_", "lin_api_", "sntry",
    "atatt", "sg.", "pmak-", "rpa_", "akia", "asia", "aroa", "agpa", "eyj", "mysql",
    "mariadb", "xkeysib", "eaaa", "sq0", "eaac", "eaam", "ezak", "eztk", "shippo_", "a3-", "ops_",
    "ltai", "akid", "aqvn", "gocspx", "akcp", "cmvmd", "q~", "v1.0-", "hrku-", "api-",
    "dp.", "dt0c01", "atlasv1", "sha256~", "fo1_", "fm1", "fm2_", "glc_", "ico-", "ntn_", "pnu_", "pul-",
    "pscale_", "rdme_", "rubygems_", "sgp_", "sm_", "tfp_", "tk-us-", "clojars_", "duffel_", "_mmk",
    "flwseck", "figd_", "sbp_", "pcsk_", "lsv2_", "csk-", "nfp_", "atctt", "atbb",
)
# fmt: on
"""What credentials are announced by or begin with, in small letters: text with none of it is not read.

None contains a blank, so a text may be searched word by word.
"""


def _any_word(words: Iterable[str]) -> str:
    """An expression for any of the words, grouped by their first letters: a third of the time of a search."""
    by_first = group_pairs((word[0], re.escape(word[1:])) for word in words)
    return "|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in by_first.items())


_SIGN = regex(_any_word(_SIGNS) + r"|:aa[\w-]{30}")  # the last is Telegram's, no address of a PCI device
_SHAPED_SIGN = regex(r"\b(?:(?:sk|ac)[0-9a-f]{32}|[0-9a-f]{32}-us\d|pat\w{14}\.|[ps]at\.|nr[a-z]{2}-\w{8})")
"""Signs that begin a word: in one expression with the others a search would take twice as long."""

_RUNTIME_VARIABLES = regex(
    r"(?:SLURM|OMPI|PMI|PMIX)_[A-Z0-9_]+"
    r"|PYXIS_CONTAINER_IMAGE|(?:APPTAINER|SINGULARITY)_CONTAINER|RAY_(?:ADDRESS|TMPDIR)|CUDA_(?:HOME|PATH)"
    r"|NVIDIA_(?:[A-Z]+_VERSION|VISIBLE_DEVICES|DRIVER_CAPABILITIES|REQUIRE_CUDA)"
)
"""What launchers and runtimes set themselves, beside the table of variables that libraries read."""

_DEVICE = (
    r"(?:mlx\d|bnxt_re|irdma|efa|rdmap|ib|eth|en|wl|bond|docker|lo$|lo,|br|veth|hsn|team|vlan|cni|cali|cuda"
    r"|gpu|hci|roce|nvidia)[\w.:-]{0,24}"
)
_HARMLESS = regex(
    r"|[+-]?\d{1,15}(?:\.\d{1,9})?(?:[eE][+-]?\d{1,3})?(?:%|[kKMGT]i?[bB]?|[munµ]?s|min|h)?"
    r"|0x[0-9a-fA-F]{1,16}|\d{1,6}(?:[-,: ]+\d{1,6}){1,256}"
    r"|v?\d{1,4}(?:\.\d{1,5}){1,4}(?:[+.-][a-z0-9]{1,12}){0,3}"
    r"|(?i:true|false|yes|no|on|off|none|null|auto|all|default|enabled?|disabled?|trace|debug|info|version"
    r"|warn(?:ing)?|error|critical|detail|spawn|fork|forkserver|expandable_segments:true|ring|tree|ib|socket|lazy|offline|online)"
    rf"|[\^=]{{0,2}}{_DEVICE}(?:,{_DEVICE}){{0,63}}"
    r"|(?:(?:GPU|MIG)-[0-9a-f-]{4,64}(?:/\d{1,3}){0,2},?){1,64}"
    r"|\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?:/\d{1,2})?"
)
_PATHS = regex(r"(?:~|\.{0,2}/)[\w./+@~:, -]*")
_RANDOM = regex(
    r"(?<![A-Za-z0-9])(?=[A-Za-z0-9]*[0-9])(?=[A-Za-z0-9]*[A-Z])(?=[A-Za-z0-9]*[a-z])[A-Za-z0-9]{16,}|\b[0-9a-fA-F]{32,}\b"
)

_ENVIRONMENTS = frozenset({"variables", "environment", "environ", "env", "env_vars"})
_ENVIRON = regex(r'"environ(?:ment)?"\s*:\s*\{')
"""How an environment begins in a document: it is read, whatever it holds."""
_NAME = regex(r"[\w.-]{1,64}")
_SHORTEST = 6
"""Characters of a credential at least (chosen by us, no external source); shorter texts are left."""
_LONG = 1000
"""Characters from which on it takes less time to look for words that are repeated."""
_ASSIGNED = regex(r"^([^\S\n]*(?:export[^\S\n]+)?([A-Za-z_]\w*)=)(.*)$", re.MULTILINE)


def without_secrets(observation: Observation) -> Observation:
    """The observation with every credential replaced in what was printed, noted and asked."""
    text, note, argv = (
        _clean_text(observation),
        _clean_lines(observation.note),
        tuple(map(_clean_lines, observation.argv)),
    )
    if (text, note, argv) == (observation.text, observation.note, observation.argv):
        return observation
    return replace(observation, text=text, note=note, argv=argv)


def is_harmless(value: str) -> bool:
    """Whether a value has a shape that no credential has."""
    if _HARMLESS.fullmatch(value):
        return True
    return len(value) <= 4096 and bool(_PATHS.fullmatch(value)) and not _RANDOM.search(value)


def variable(name: str, value: str) -> str:
    """The value of an environment's variable as it may be shown."""
    if speaks_of_secret(name):
        return value if value.lower() in ("", "0", "1", "true", "false") else HIDDEN
    if is_plain_name(name) or _RUNTIME_VARIABLES.fullmatch(name) or is_env_var(name):
        return value if is_harmless(value) and not _announces_credential(value) else scrubbed(value)
    return value if is_harmless(value) and scrubbed(value) == value else HIDDEN


def _clean_text(observation: Observation) -> str:
    text = observation.text
    if not (observation.probe == "env" or _ENVIRON.search(text) or _announces_credential(text)):
        return text
    if text.lstrip().startswith(("{", "[")):
        try:
            document = loaded(text)
        except ValueError:
            return _clean_lines(text)
        clean = _clean_document(document, observation.probe == "env")
        return text if clean == document else json.dumps(clean)
    if observation.probe == "env":
        return _ASSIGNED.sub(lambda line: line[1] + variable(line[2], line[3]), text)
    return _clean_lines(text)


def _clean_document(value: Any, environments: bool, key: str = "") -> Any:
    """A document with clean texts; `environments` says that its files hold variables, too."""
    if isinstance(value, str):
        if len(value) < _SHORTEST or not value.strip("0123456789abcdefx.\n"):
            return value
        if key and _NAME.fullmatch(key) and speaks_of_secret(key) and not is_harmless(value):
            return HIDDEN
        return _clean_lines(value)
    if isinstance(value, list):
        return [_clean_document(item, environments, key) for item in value]
    if not isinstance(value, dict):
        return value
    if key in _ENVIRONMENTS or (environments and key.startswith(("/", "~"))):
        return {name: _clean_variable(name, item) for name, item in value.items()}
    return {name: _clean_document(item, environments, name) for name, item in value.items()}


def _clean_variable(name: str, value: Any) -> Any:
    return variable(name, value) if isinstance(value, str) else _clean_document(value, False, name)


def _clean_lines(text: str) -> str:
    """Text of any kind, line by line where it has lines; only those that announce a credential are read."""
    if not _announces_credential(text):
        return text
    if "PRIVATE KEY" in text or "\n" not in text:
        return scrubbed(text, len(text))
    return "\n".join(
        scrubbed(line, len(line)) if _announces_credential(line) else line for line in text.split("\n")
    )


def _announces_credential(text: str) -> bool:
    """Whether a text has a sign of a credential; in a long one, a word that it repeats is read once."""
    searched = text.lower()
    if len(text) >= _LONG:
        searched = " ".join(set(searched.split()))
    return _SIGN.search(searched) is not None or _SHAPED_SIGN.search(searched) is not None
