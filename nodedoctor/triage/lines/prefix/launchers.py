"""Prefixes of launchers and orchestrators: a rank, a local rank, a pod, an actor."""

from __future__ import annotations

import re

from nodedoctor.triage.lines.prefix.clocks import read_date
from nodedoctor.triage.lines.prefix.info import DIGITS, LOWER, UPPER, PrefixInfo, Reader, ignore_prefix
from nodedoctor.triage.model import (
    DEFAULT_WORLD,
    ENGINE_WORLD,
    LARGEST_PID,
    LARGEST_WORLD,
    SHORT_LABEL,
    Identity,
)
from nodedoctor.whole_numbers import whole_number

_RANK = re.compile(r"[ \t]{0,8}\[rank(\d{1,6})\](?::|(?=[][ ])) ?")
_MPI = re.compile(
    r"\[(?:[\w.-]+@)?(?:\d+,)?(\d{1,6})\]<std(?:out|err)>: ?"
    r"|\[?(?:\d+,)?mpirank: ?(\d{1,6})(?:,([\w.-]{1,64}))?\]?(?:<std(?:out|err)>)?:? ?"
)
"""Open MPI's `--tag-output`, and SageMaker's form of it, which has the host, too."""
_LOGGER_RANK = re.compile(
    r"[\[(<](?:[Rr]ank: |rank |RANK |[Gg]lobal [Rr]ank:? |[Rr]ank[=:]|RANK[=:])(\d{1,6})[\])>]:? ?"
    r"|(?:[Rr]ank[ =]?|RANK[ =]?)(\d{1,6})(?:: | ?\| | - |\t)"
    r"|[\[(<](?:[Rr]ank[ =:]?|R)(\d{1,6})(?:/| of )\d{1,6}[\])>]:? ?"
    r"|R(\d{1,6})/\d{1,6} (?:[|>] )?(?= {0,40}\S)"
)
_SHORT_RANK = re.compile(
    r"[\[(<](?:r|rk|R|RK)(\d{1,5})[\])>]:? (?= {0,40}\S)|(?:r|rk|R|RK)(\d{1,5}) ?[|>] (?= {0,40}\S)"
    r"|\[\d\d:\d\d:\d\d(?:[.,]\d{1,9})? (?:r|rk|R|RK|[Rr]ank[ =]?)(\d{1,5})\] (?= {0,40}\S)"
)
"""What programs call a rank for short: one where several differ, and also another number elsewhere."""
_COMPOSER = re.compile(
    r"rank(\d{1,6})\[(\d{1,7})\]\[[\w-]{1,40}\]: (?:([DIWEC])[A-Z]{3,7}: [\w.]{1,80}: )?(?=\S)"
)
"""Composer's loggers: rank, pid, thread, severity and name."""
_TEE = re.compile(r"\[(?!rank\d)([A-Za-z_]\w*?)(\d{1,4})\]: ?")
_HOST_RANK = re.compile(r"\[([A-Za-z][\w.]*(?:-[\w.]*)?):(\d{1,5})\]: ?")
_RAY = re.compile(
    r"\((?:([\w.:]+(?: [DPT]P\d{1,4}){0,3})(?:\([^)]*\))? )?"
    r"(?:rank=(\d{1,6}) )?pid=([\w]+)(?:, ip=([0-9a-fA-F.:]+))?\) ?"
)
_VERL = re.compile(r"(\w+?)_(\d{1,5}):(\d{1,3})$")
_VLLM = re.compile(
    r"(?:Vllm)?Worker(?:Proc)?"
    r"(?:(?:[_ ][DP]P\d{1,4}){1,2}(?:[_ ]TP\d{1,4})?|(?:[_ ]TP|-)(\d{1,4}))"
    r"(?:_[A-Z]{1,2}P\d{1,4})*$"
)
"""vLLM's workers (vllm/v1/executor/multiproc_executor.py); beside ranks of data or pipeline, that of tensors
is no global one."""
_RAYLET = re.compile(r"\((raylet|gcs_server|autoscaler)(?:, ip=([0-9a-fA-F.:]+))?\) ?")
_RAY_LOG = re.compile(
    r"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)[.,](\d{1,9}) ([DIWEFC]) \d+ \d+\] (?:\((\w+)\) )?"
    r"(?:[\w./-]+\.(?:cc|cpp|h|cu):\d+: )?"
)
"""Logs of Ray's own processes: time, severity, pid and thread."""
_POD = re.compile(
    r"\[pod/([\w.-]+)/[\w.-]+\] ?|([\w.-]+-\d+) +\| "
    r"|([a-z0-9][\w.-]*-(?:master|worker|chief|launcher)-\d+)"
    r"(?:: | [a-z][\w-]{0,40} |\[[\w-]{1,40}\]:? )(?= {0,40}\S)"
)
"""Pods as kubectl and compose name them; those of Kubeflow's jobs also as stern and kail do."""
_SKY = re.compile(r"\(([\w.-]{1,60}), rank=(\d{1,6}), pid=\d{1,7}(?:, ip=([0-9a-fA-F.:]+))?\) ?")
"""SkyPilot counts nodes, and calls their number a rank."""
_PDSH = re.compile(
    r"(?!nvidia-nvswitch\d)(?:slurmstepd-(?P<slurm>[\w.-]{1,255})"
    r"|(?P<pdsh>[a-z][\w.]*-[\w.-]*\d|node\d+|worker\d+)): (?= {0,40}\S)(?!Connection to )"
)
"""A host, as pdsh shows it, and as slurmstepd puts it behind its own name where configured to. In front of
what ssh's client says it shows that a launcher started that."""
_SGLANG = re.compile(r"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)()((?: [A-Z]{2,4}\d{1,4}){1,4})\] ?")


_SAGEMAKER = re.compile(r'ErrorMessage ":?(?=(?:\w{1,40}\.){0,4}[A-Z]\w{0,60}(?:Error|Exception)\b)')
"""SageMaker's toolkit, in front of the last words of the program that it ran (its errors.py)."""


def _read_rank(match: re.Match[str], prefix: PrefixInfo) -> None:
    if prefix.common_rank and not prefix.labels and prefix.who.rank is None:
        prefix.add_rank(int(match[1]))
    else:
        prefix.add(rank=int(match[1]))


def _read_mpi(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.add_rank(int(match[1] or match[2]))
    prefix.add(host=match[3])


def _read_logger_rank(match: re.Match[str], prefix: PrefixInfo) -> None:
    if prefix.who.rank is None:
        prefix.add_rank(int(match[1] or match[2] or match[3] or match[4]))


def _read_short_rank(match: re.Match[str], prefix: PrefixInfo) -> None:
    if prefix.who.rank is None and prefix.who.world == DEFAULT_WORLD:
        prefix.labels += ((SHORT_LABEL, int(match[1] or match[2] or match[3])),)


def _read_composer(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.add_rank(int(match[1]))
    prefix.add(pid=whole_number(match[2], LARGEST_PID))
    prefix.level = {"C": "F", None: ""}.get(match[3], match[3])
    prefix.severities += (False,)


def _read_tee(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.add_local_rank(int(match[2]))


def _read_host_rank(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.add(host=match[1])
    prefix.labels = (("seat", int(match[2])),)


def _read_ray(match: re.Match[str], prefix: PrefixInfo) -> None:
    world, rank = match[1] or DEFAULT_WORLD, whole_number(match[2], LARGEST_WORLD - 1)
    verl, vllm = _VERL.match(world), _VLLM.match(world)
    if verl:  # the name of verl's actors ends in the number of their node and their rank on it
        world = verl[1]
        prefix.add(local_rank=int(verl[3]))
        prefix.labels = (("node", int(verl[2])),)
    if vllm:
        own = whole_number(vllm[1], LARGEST_WORLD - 1)
        world, rank = ENGINE_WORLD, rank if rank is not None else own
    elif rank is not None:
        world = ENGINE_WORLD if Identity(world=world).role == "rollout" else DEFAULT_WORLD
    prefix.add(world=world, pid=whole_number(match[3], LARGEST_PID), host=match[4], rank=rank)


def _read_raylet(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.origin = match[1]
    prefix.add(host=match[2])


def _read_ray_log(match: re.Match[str], prefix: PrefixInfo) -> None:
    read_date(match, prefix)
    prefix.level = "F" if match[8] == "C" else match[8]
    prefix.severities += (False,)
    prefix.origin = match[9] or prefix.origin


def _read_pod(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.add_recorder(match[1] or match[2] or match[3])


def _read_sky(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.add(host=match[3] or match[1])
    prefix.labels += (("seat", int(match[2])),)


def _read_pdsh(match: re.Match[str], prefix: PrefixInfo) -> None:
    prefix.add(host=match["slurm"] or match["pdsh"])


def _read_sglang(match: re.Match[str], prefix: PrefixInfo) -> None:
    read_date(match, prefix)
    # beside a rank of data or pipeline it is no global one, but where that of experts is the same
    alone = re.fullmatch(r"(?: DP\d+)? TP(\d+) EP\1| TP(\d+)", match[8])
    prefix.add(world=ENGINE_WORLD, rank=int(alone[1] or alone[2]) if alone else None)


RANK: Reader = (_RANK, _read_rank, "[ \t")
MPI: Reader = (_MPI, _read_mpi, "[m")
LOGGER_RANK: Reader = (_LOGGER_RANK, _read_logger_rank, "[(<rRgG")
SHORT_RANK: Reader = (_SHORT_RANK, _read_short_rank, "[(<rR")
SGLANG: Reader = (_SGLANG, _read_sglang, "[")
COMPOSER: Reader = (_COMPOSER, _read_composer, "r")
TEE: Reader = (_TEE, _read_tee, "[")
HOST_RANK: Reader = (_HOST_RANK, _read_host_rank, "[")
RAY: Reader = (_RAY, _read_ray, "(")
SKY: Reader = (_SKY, _read_sky, "(")
RAYLET: Reader = (_RAYLET, _read_raylet, "(")
RAY_LOG: Reader = (_RAY_LOG, _read_ray_log, "[")
POD: Reader = (_POD, _read_pod, "[_.-" + UPPER + LOWER + DIGITS)
PDSH: Reader = (_PDSH, _read_pdsh, LOWER)
SAGEMAKER: Reader = (_SAGEMAKER, ignore_prefix, "E")
