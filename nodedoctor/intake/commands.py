"""What was typed at a prompt: whether it asks the machine, and how it says that it was refused."""

from __future__ import annotations

import re
from functools import lru_cache

from nodedoctor.intake.job_lines import is_of_job
from nodedoctor.patterns import regex
from nodedoctor.prompts import split_words

_PARTS = re.compile(r"\|\|?|&&|;")
_LAUNCHES = regex(
    r"torchrun|accelerate|deepspeed|mpirun|mpiexec|prterun|srun|sbatch|salloc|horovodrun|jsrun|flux|bsub|qsub|ray"
    r"|vllm|sglang|helm|make|docker|podman|nerdctl|apptainer|singularity|enroot|kubectl|oc"
    r"|nvcc|gcc|(?:python|pypy|ipython)[\d.]*"
)
"""Programs that start jobs, or build them: what these say of themselves may be why one did not start."""
_MANAGES = ("kubectl", "oc", "docker", "podman", "nerdctl", "ray")
_AROUND = ("bash", "-bash", "sh", "-sh", "zsh", "dash", "ksh", "fish", "sudo")
_ASKS = frozenset((
    "nvidia-smi", "nvidia-settings", "nvidia-debugdump", "nvcc", "dcgmi", "nvidia-ctk", "nv-fabricmanager",
    "rocm-smi", "amd-smi", "ibstat", "ibstatus", "ibv_devinfo", "ibv_devices", "ibdev2netdev", "show_gids",
    "ibdiagnet", "iblinkinfo", "ibnetdiscover", "ibqueryerrors", "perfquery", "sminfo", "saquery", "rdma",
    "ofed_info", "mst", "mlxlink", "mlxconfig", "mlxfwmanager", "mlxfwreset", "flint", "mstflint", "mlxup",
    "fi_info", "ucx_info", "ip", "ifconfig", "ethtool", "ss", "netstat", "ping", "iperf", "iperf3", "nmcli",
    "networkctl", "resolvectl", "dig", "nslookup", "getent", "traceroute", "arp", "route", "ssh", "curl",
    "lspci", "setpci", "lsusb", "lscpu", "lsmem", "lsmod", "modinfo", "modprobe", "insmod", "rmmod",
    "depmod", "dkms", "mokutil", "numactl", "numastat", "taskset", "nproc", "cpupower", "turbostat",
    "x86_energy_perf_policy", "free", "vmstat", "iostat", "mpstat", "sar", "top", "htop", "ps", "pgrep",
    "uptime", "w", "who", "id", "whoami", "groups", "uname", "hostname", "hostnamectl", "date",
    "timedatectl", "chronyc", "ntpq", "ntpstat", "sysctl", "ulimit", "prlimit", "systemctl", "service",
    "systemd-detect-virt", "systemd-analyze", "loginctl", "df", "du", "mount", "findmnt", "lsblk", "blkid",
    "nvme", "smartctl", "mdadm", "zpool", "zfs", "lfs", "lctl", "fuser", "lsof", "stat", "ls", "find",
    "readlink", "file", "touch", "mkdir", "rm", "cp", "mv", "ln", "tee", "which", "whereis", "type",
    "ldconfig", "ldd", "env", "printenv", "export", "module", "pip", "pip3", "conda", "apt", "apt-get",
    "apt-cache", "apt-mark", "dpkg", "dpkg-query", "rpm", "yum", "dnf", "zypper", "snap",
    "needs-restarting", "dmidecode", "ipmitool", "ipmi-sel", "ipmi-sensors", "bmc-info", "sensors",
    "ras-mc-ctl", "edac-util", "mcelog", "rasdaemon", "lshw", "inxi", "biosdecode", "efibootmgr", "bootctl",
    "aa-status", "getenforce", "scontrol", "sinfo", "squeue", "sacctmgr", "crictl", "ctr", "dmesg",
    "nodedoctor",
))  # fmt: skip
"""Programs that ask the machine, or the cluster of it: what they print is no job's log."""
_SHOWS = frozenset((
    "cat", "head", "tail", "less", "more", "grep", "egrep", "fgrep", "zgrep", "zcat", "awk", "sed", "sort",
    "wc", "cut", "tr", "uniq", "xargs", "strings", "for", "echo",
))  # fmt: skip
"""Programs that show a file: the machine's or a job's."""
_OF_MACHINE = regex(
    r"(?:^|[\s'\"=])/(?:proc|sys|etc|dev|run|boot|lib|usr)/(?![^\s'\"]{0,200}\.(?:log|out|err)\b)"
)
_QUESTIONS = frozenset((
    "get", "describe", "top", "version", "cluster-info", "auth", "api-resources", "explain", "config",
    "ps", "info", "inspect", "images", "image", "stats", "network", "volume", "system", "context",
    "status", "list", "ls",
))  # fmt: skip
_RUNS = frozenset(("run", "exec", "logs", "start", "attach", "compose", "apply", "create", "debug", "job"))
"""What programs for containers do: ask, or start and show one."""

_STATE = regex(
    r"Read-only file system|No space left|[Ii]nput/output error|[Ss]tale file handle|needs cleaning"
    r"|[Tt]ransport endpoint|[Qq]uota exceeded|Cannot allocate memory|Too many open files"
    r"|Key was rejected|not found in directory|Cannot send after"
)
"""Answers that refuse, too, and tell the state of the machine."""
_REFUSAL = regex(
    r"[Pp]ermission denied|[Oo]peration not permitted|[Aa]ccess (?:is )?denied"
    r"|[Nn]ot (?:authorized|permitted)"
    r"|(?:[Mm]ust|[Nn]eeds? to) be (?:run (?:as|by|with) )?(?:a )?(?:root|super-?user|privileged)"
    r"|(?:run|re-?run|try)(?: this| it| again| the command)? (?:as|with|using) (?:root|sudo|super-?user)"
    r"|[Rr]equires? (?:root|super-?user|administrator|elevated)|[Ii]nsufficient (?:permissions?|privileges?)"
    r"|\(?(?:Forbidden|Unauthorized)\)?\b|is forbidden: |not in the sudoers file|password is required"
    r"|incorrect password|terminal is required"
    r"|[Nn]o such (?:file|device|process|unit|container|host|command|object|host or|node)"
    r"|[Cc]onnection (?:was )?(?:refused|timed out|reset|closed)|[Nn]o route to host|Host is down"
    r"|Host key verification"
    r"|[Nn]ame or service not known|[Tt]emporary failure in name resolution|[Cc]ould not resolve"
    r"|(?:[Uu]nable|[Ff]ailed|[Cc]annot|[Cc]an't|[Cc]an not|[Cc]ould not|[Cc]ouldn't)(?: to)?"
    r" (?:connect|establish a connection|contact|reach|open (?:the )?(?:device|/dev/)|get unit|list units"
    r"|access|load libkmod|find (?:the )?(?:device|command|program|module)|read kernel buffer)"
    r"|[Rr]ead kernel buffer failed|Host engine connection invalid|was refused - did you specify"
    r"|has not been booted with systemd|command not found|: not found$|[Nn]ot installed|could not be found"
    r"|[Uu]nit [\w@.-]{1,80} (?:not found|not loaded)|[Oo]peration not supported"
    r"|[Ii]nvalid (?:option|argument|choice|combination)"
    r"|un(?:known|recognized|recognised) (?:option|argument|command)"
    r"|[Nn]o (?:IB|RDMA|InfiniBand) devices? (?:were |was )?found|^-E- |^Try '|^[Uu]sage: "
)
"""What a program says that was not let, or found nothing to ask: it shows nothing of the machine."""


_CLIENT = regex(
    r"(?:Got )?permission denied while trying to connect to the Docker|Cannot connect to the Docker daemon"
    r"|Error from server \((?:Forbidden|Unauthorized)\)|Unable to connect to the server: "
    r"|The connection to the server |error: You must be logged in to the server"
)
"""What the clients of docker and of Kubernetes say whose server does not let them, whatever was asked."""


@lru_cache(maxsize=64)
def programs(command: str) -> list[str]:
    """The names of the programs in what was typed, the first at first."""
    return [words[0] for part in _PARTS.split(command) if (words := split_words(part))]


def starts_program(command: str) -> bool:
    """Whether variables in front of a command are for the program behind them alone."""
    return any(name not in ("export", "declare", "set") for name in programs(command))


@lru_cache(maxsize=64)
def asks_machine(command: str) -> bool:
    """Whether what was typed asks for the state of the machine, and starts or shows no job."""
    words = split_words(_PARTS.split(command)[0])
    if not words:
        return False
    if words[0] in _SHOWS:
        return _OF_MACHINE.search(command) is not None
    if words[0] in _MANAGES:
        return next((word in _QUESTIONS for word in words if word in _QUESTIONS | _RUNS), False)
    return words[0] in _ASKS


_ELSEWHERE = re.compile(
    r"(?:^|[\s;|&(\"'`])(?:pdsh|clush|dsh|psh|xdsh|cexec|mussh|p(?:arallel-)?ssh|ansible|srun|ssh"
    r"|kubectl exec)\s"
)
"""Programs that start others on other nodes: pdsh 2.18 to 2.35, ClusterShell 1.6 to 1.9, pssh, ansible ..."""
_LOOP = re.compile(r"(?:^|[;&(]\s{0,9})for \w{1,40} in (?P<names>[^;\n]{1,2000});")


@lru_cache(maxsize=64)
def is_elsewhere(command: str) -> bool:
    """Whether what was typed asks other nodes than the one at whose prompt it was typed."""
    return _ELSEWHERE.search(command) is not None


@lru_cache(maxsize=64)
def loop_names(command: str) -> frozenset[str]:
    """The words that a loop around ssh goes over: a line that is one of them names a node."""
    match = _LOOP.search(command) if is_elsewhere(command) else None
    return frozenset(match["names"].split()) if match else frozenset()


LONGEST_REFUSAL = 400
"""Characters of a line in which a program says that it was refused; ours."""


def is_refusal(line: str, command: str) -> bool:
    """Whether a line is what the program that was typed says in place of an output: `ls: cannot access`."""
    name, colon, _ = line[:LONGEST_REFUSAL].partition(": ")
    if not command or len(line) > LONGEST_REFUSAL:
        return False
    if colon and name in _AROUND:
        return not _STATE.search(line)
    own = colon and name in programs(command) and not _LAUNCHES.fullmatch(name)
    refused = asks_machine(command) and _REFUSAL.search(line) is not None and not is_of_job(line)
    return bool(own or refused or _CLIENT.match(line)) and not _STATE.search(line)


_QUERY = re.compile(r"--query-(?:gpu|remapped-rows)[= ]['\"]?([a-z][\w.,]{1,4000})")


def bare_query_columns(line: str) -> tuple[str, ...]:
    """The columns that a command asks `nvidia-smi` for without their heading; () for any other line."""
    match = _QUERY.search(line) if "noheader" in line else None
    columns = tuple(match[1].strip(",").split(",")) if match else ()
    return columns if len(columns) > 1 else ()


_LOCKED_MEMORY = re.compile(r"(?:sudo )?ulimit (?:-[HS] ?-?|-)l\s*")


def limit_line(line: str, command: str) -> str:
    """The line of `ulimit -a` for the answer to `ulimit -l`; "" for anything else."""
    value = line.strip()
    is_value = value == "unlimited" or (value.isdecimal() and len(value) < 16)
    return f"max locked memory (kbytes, -l) {value}" if is_value and _LOCKED_MEMORY.fullmatch(command) else ""


_MODULE_ROW = re.compile(r"\w{1,60} {1,60}\d{4,12} {1,12}\d{1,6}(?: [\w,]{1,2000})?\s*")


def is_module_row(line: str, command: str) -> bool:
    """Whether a line is of `lsmod`, whose heading grep took away."""
    return command.startswith("lsmod") and _MODULE_ROW.fullmatch(line) is not None
