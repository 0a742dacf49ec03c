"""Outputs about a machine, its network names and its packages."""

from __future__ import annotations

from nodedoctor.intake.shape import FRONT, Shape, by_head, by_lines

_KNOWN_PACKAGES = (
    r"(?:torch(?:vision|audio|data|text|ao|rec)?|pytorch(?:-[\w-]{1,40})?|triton|vllm|sglang|sgl[_-]kernel|ray"
    r"|deepspeed|megatron[\w-]{0,20}|transformers|accelerate|flash[_-]attn\w{0,20}|xformers|apex"
    r"|transformer[_-]engine\w{0,20}|nvidia-[\w-]{1,60}|cuda-[\w-]{1,60}|cupy-cuda\d\dx|nccl|cudnn|cudatoolkit)"
)
"""Packages of which rows are known without the heading that `grep` takes away."""

ULIMIT = by_head(
    ("core file size", "max locked memory", "real-time non-blocking", "open files"),
    r"(?:core file size|max locked memory|real-time non-blocking time|open files)[ \t]{1,60}"
    r"\((?:[\w/-]{1,20}, )?-\w\)",
    "ulimit -a",
    "limits",
    "bash 3 to 5.3, builtins/ulimit.def",
    body=r"[a-z][\w -]{2,40}\((?:[\w/ -]{1,20}, )?-\w\)",
    joins=True,
)

LSMOD = by_head(
    "Used by",
    r"Module {1,60}Size {1,12}Used by\b",
    "lsmod",
    "driver-files",
    "kmod 9 to 34, tools/lsmod.c",
    body=r"\w[\w-]{0,60} {1,60}\d{1,12} {1,12}-?\d{1,6}\b",
    first=True,
)

_BMC_EVENT = (
    r"[\da-f]{1,5} \| \d\d/\d\d/\d{2,4}[ \t]{0,9}\| [\d:]{8}[^\n|]{0,6}\| [^\n|]{2,60}\| "
    r"(?:[^\n|]{2,80}\| (?:Deass|Ass)erted[^\n]{0,80}|[^\n|]{2,80})"
)
_BMC_STATE = r"(?:ok|n[scra]|cr|[lu](?:n[cr]|cr))"
_BMC_SENSORS = (
    rf"[A-Za-z\d][^\n|]{{1,40}}\| (?:[\dA-F]{{2}}h \| {_BMC_STATE} {{1,4}}\|[ \d.]{{3,8}}\|[^\n]{{0,200}}"
    rf"|(?:0x[\da-f]{{2,4}}|[Nn]o [Rr]eading|disabled|-?\d[\d.]{{0,12}} [A-Za-z]{{2,12}}(?: [A-Z])?)"
    rf" {{0,20}}\| {_BMC_STATE}"
    rf"|(?:-?\d[\d.]{{0,12}}|0x[\da-f]{{1,4}}|na) {{0,20}}\| [^\n|]{{2,20}}\|"
    rf" (?:{_BMC_STATE}|0x[\da-f]{{1,4}}) {{0,8}}(?:\| [^\n|]{{2,20}}){{6}})"
)
_BMC_CSV = (
    rf"[A-Za-z\d][\w ./#()-]{{1,40}},(?:[\dA-F]{{2}}h|-?\d[\d.]{{0,12}},"
    rf"(?:RPM|Volts|Amps|Watts|degrees [CF]|percent|unspecified)),{_BMC_STATE}(?:,[^\n]{{0,200}})?"
)
_BMC_CHASSIS = (
    r"(?:(?:Main Power|Power Control|Cooling/Fan|Drive) Fault|Power Overload)[ \t]{0,20}: (?:true|false)"
)
"""Rows of `ipmitool sel list`; of `sdr elist`, `sdr list`, `sensor`; of `-c sdr`; of `chassis status`."""

HOST_SHAPES: tuple[Shape, ...] = (
    by_head(
        "# packages in environment at",
        r"# packages in environment at [^\n]{1,400}:",
        "conda list",
        "pip-list",
        "conda/conda 4.6 to 26, conda/cli/main_list.py",
        body=r"#|[A-Za-z0-9_][\w.-]* +\d\S*|[A-Za-z0-9_][\w.-]* +\S+ +\S",
        first=True,
    ),
    by_lines(
        ("torch", "triton", "vllm", "sgl", "ray ", "deepspeed", "nvidia-", "cuda-", "nccl ", "flash"),
        FRONT + rf"[ \t]{{0,8}}{_KNOWN_PACKAGES}[ \t]{{1,60}}\d{{1,6}}(?:\.\d{{1,9}})[\w.+!-]{{0,60}}"
        r"(?:[ \t]{1,40}[\w./:-]{1,80}){0,3}[ \t]{0,20}$",
        "rows of pip list",
        "pip-list",
        "pypa/pip 9 to 26",
        tool="pip list",
        body=r"[A-Za-z0-9][\w.-]* +\d\S*$",
    ),
    by_head(
        ("Local time: ", "System clock synchronized: ", "NTP synchronized: "),
        r"(?:Local time: \w|System clock synchronized: (?:yes|no)|NTP synchronized: (?:yes|no))",
        "timedatectl",
        "net",
        "systemd 219 to 258, src/timedate/timedatectl.c",
        body=r"\s*(?:Local time|Universal time|RTC time|Time ?zone|System clock synchronized|NTP [a-z]{6,12}"
        r"|Network time on|systemd-timesyncd\.service active|RTC in local TZ|DST active): ",
        joins=True,
    ),
    by_head(
        "NVRM version:",
        r"NVRM version: NVIDIA UNIX ",
        "/proc/driver/nvidia/version",
        "",
        "NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia/nv-procfs.c",
        tool="cat /proc/driver/nvidia/version",
        body=r"(?:NVRM|GCC) version:",
    ),
    by_head(
        "ACCESS COMMAND",
        r"USER[ \t]{1,40}PID[ \t]{1,10}ACCESS COMMAND\b",
        "fuser",
        "",
        "psmisc 22 to 23, src/fuser.c",
        tool="sudo fuser -v /dev/nvidia*",
        body=r"/dev/\S{1,80}:|[\w.+-]{1,32}[ \t]{1,40}\d{1,9}[ \t]{1,10}[\w.]{5} ",
    ),
    by_head(
        ("localhost",),
        r"(?:127\.0\.0\.1|::1)[ \t]{1,20}(?:[\w.-]{1,80}[ \t]{1,20}){0,3}localhost\b",
        "/etc/hosts",
        "net",
        "hosts(5)",
        tool="cat /etc/hosts",
        body=r"#|(?:\d{1,3}\.){3}\d{1,3}[ \t]{1,40}[\w.-]|[\da-f:]{2,39}[ \t]{1,40}[a-z][\w.-]",
        joins=True,
    ),
    by_head(
        ("Reference ID ", "Leap status "),
        r"(?:Reference ID {1,12}: [\dA-F]|Leap status {1,12}: [A-Z])",
        "chronyc tracking",
        "net",
        "chrony 2.1 to 4.7, client.c",
        body=r"(?:Reference ID|Stratum|Ref time \(UTC\)|System time|Last offset|RMS offset|Frequency"
        r"|Residual freq|Skew|Root delay|Root dispersion|Update interval|Leap status) {0,12}: ",
        joins=True,
        needs=r"Leap status",
    ),
    LSMOD,
    by_head(
        ("Server Version:", "Default Runtime:", "Runtimes:"),
        r"(?:Server Version: \d|Runtimes: \S|Default Runtime: \S)",
        "docker info",
        "",
        "docker/cli 17 to 29, cli/command/system/info.go",
        body=r"\s*[A-Z][\w ()/-]{0,40}:|\s+\S|WARNING: ",
    ),
    by_lines(
        (" ==> ",),
        rf"{FRONT}[ \t]{{0,12}}(?:[\da-f]{{4,8}}:)?[\da-f]{{2}}:[\da-f]{{2}}\.[0-7] [\w.-]{{1,64}} \(MT\d"
        r"[^\n]{1,240}? fw \d[\d.]{3,20} port \d{1,3} \([A-Z]{2,12} {0,2}\) {1,6}==> [^\n]{1,200}$",
        "ibdev2netdev -v",
        "ibv-devinfo",
        "MLNX_OFED and Mellanox/container_scripts, ibdev2netdev",
    ),
    by_lines(
        ("==>",),
        FRONT + r"[\w.-]{1,64} {1,20}port {1,6}\d{1,3} {1,6}==> {1,6}[\w.@-]{1,64} {1,20}\((?:Up|Down)\)"
        r"[^\n]{0,200}$",
        "ibdev2netdev",
        "",
        "MLNX_OFED and Mellanox/container_scripts, ibdev2netdev",
    ),
    by_head(
        ("INDEX", "n_gids_found="),
        r"(?:DEV[ \t]{1,20}PORT[ \t]{1,20}INDEX[ \t]{1,20}GID\b|n_gids_found=\d)",
        "show_gids",
        "",
        "MLNX_OFED, show_gids",
        body=r"---|DEV[ \t]|n_gids_found=|[\w.-]{1,64}[ \t]{1,20}\d{1,3}[ \t]{1,20}\d{1,4}[ \t]",
        joins=True,
    ),
    by_head(
        "node GUID",
        r"device[ \t]{1,40}node GUID",
        "ibv_devices",
        "",
        "linux-rdma/rdma-core 17 to 60, libibverbs/examples/device_list.c",
        body=r"\s*-{4,}|\s*[\w.-]{1,64}[ \t]{1,40}[\da-f]{16}$",
    ),
    by_head(
        "Settings for ",
        r"Settings for [\w.@-]{1,40}:",
        "ethtool",
        "net",
        "ethtool 3.4 to 6.15",
        tool="ethtool INTERFACE",
        body=r"\s+\S|Cannot get |netlink error: ",
        joins=True,
    ),
    by_lines(
        ("x_prio", "_phy: ", "x_out_of_buffer: "),
        FRONT + r"[ \t]{0,20}(?:[rt]x_(?:prio[0-7]_\w{3,40}|out_of_buffer)|[a-z]\w{3,60}_phy): "
        r"\d{1,20}[ \t]{0,20}$",
        "counters of ethtool -S",
        "priority-counters",
        "ethtool 3.4 to 6.15",
        tool="ethtool -S INTERFACE",
        body=r"\s*[a-z]\w{3,60}: \d{1,20}$",
    ),
    by_head(
        ("DCBX mode: ", "Priority trust state: ", "PFC configuration:"),
        r"(?:DCBX mode: \w|Priority trust state: \w|PFC configuration:[ \t]{0,9}\n[^\n]{0,40}?priority )",
        "mlnx_qos",
        "mlnx-qos",
        "MLNX_OFED and Mellanox/mlnx-tools, mlnx_qos",
        tool="sudo mlnx_qos -i INTERFACE",
        body=r"\s+\S|(?:DCBX mode|Priority trust state|dscp2prio mapping|default priority|Receive buffer size"
        r"|Cable len|PFC configuration|tc)\b[^:\n]{0,12}:",
    ),
    by_head(
        "PPID",
        r"(?:[A-Z%][A-Z%_]{1,11}[ \t]{1,40}){0,6}PID[ \t]{1,40}(?:[A-Z%][A-Z%_]{0,11}[ \t]{1,40}){0,6}PPID\b"
        r"[^\n]{0,80}\bS(?:TAT)?\b[^\n]{0,80}(?:CMD|COMMAND)[ \t]{0,9}(?:\n|$)",
        "ps",
        "process-list",
        "procps 3.3 to 4.0, ps/output.c",
        tool="ps -eo pid,ppid,stat,etime,user,cmd",
        body=r"\s*(?:[\w+.-]{1,32}\s+){0,4}\d{1,8}\s+\S",
        joins=True,
    ),
    by_head(
        "Filesystem",
        r"Filesystem {1,200}(?:Type {1,20})?(?:Size|1K-blocks|1M-blocks|Inodes) {1,20}I?Used",
        "df",
        "disk",
        "coreutils 8 to 9, src/df.c",
        tool="df -h",
        body=r"\S{1,400}(?: {1,200}\S{1,20}){3,6} {1,20}(?:\d{1,3}%|-) {1,20}/",
        joins=True,
        needs=r"Filesystem[^\n]{1,300}(?:Size|-blocks|Inodes) [^\n]{0,80}\n(?:[^\n]{0,999}\n){0,99}?"
        r"(?:/dev/(?!loop|sr\d)|overlay |[\w.-]{1,200}:|[^\n]{1,200}% {1,20}/dev/shm$)",
    ),
    by_head(
        "buff/cache",
        r"total {1,20}used {1,20}free {1,20}shared {1,20}buff(?:ers|/cache)",
        "free",
        "",
        "procps 3.3 to 4.0, src/free.c",
        tool="free -h",
        body=r"(?:Mem|Swap|Total|Low|High|-/\+ buffers/cache):",
    ),
    by_head(
        "NUMA node",
        r"NUMA node(?:\(s\)|\d{1,4} CPU\(s\)):",
        "lscpu",
        "",
        "util-linux 2.20 to 2.41, sys-utils/lscpu.c",
    ),
    by_head(
        "available: ",
        r"available: \d{1,4} nodes? \(",
        "numactl -H",
        "numactl",
        "numactl 2.0, numactl.c",
        body=r"node (?:\d{1,4} (?:cpus|size|free):|distances|\s+\d)|\s+\d{1,4}:",
        needs=r"^[ \t]{0,20}node \d{1,4} size: \d",
    ),
    by_head(
        ("Name/IP address",),
        r"MS Name/IP address[ \t]{1,40}Stratum",
        "chronyc sources",
        "chronyc-sources",
        "chrony 3 to 4.7, client.c",
        body=r"={20}|[\^=#][*+?x~-] \S",
        first=True,
    ),
    by_lines(
        ("orrected Errors", "DIMM Label(s)"),
        FRONT + r"[ \t]{0,12}(?:mc\d{1,3}:[^\n]{0,120} (?:Unc|C)orrected Errors[^\n]{0,60}"
        r"|(?:Unc|C)orrected on DIMM Label\(s\): '[^\n]{1,240})$",
        "memory errors by module",
        "edac",
        "edac-utils 0.18; rasdaemon 0.6 to 0.8",
        tool="edac-util -v",
    ),
    by_lines(
        (
            *("sserted", "| ok", "| cr", "| nr", "| nc", "| ns"),
            *(" #0x", " | Power Supply ", " | Fan ", " | Temperature ", " | Memory ", " | Processor "),
            *(",ok", ",cr", ",nr", ",nc", ",ns", " Fault", "Power Overload"),
        ),
        rf"{FRONT}[ \t]{{0,12}}(?!std(?:out|err) )"
        rf"(?:{_BMC_EVENT}|{_BMC_SENSORS}|{_BMC_CSV}|{_BMC_CHASSIS})[ \t]{{0,20}}$",
        "ipmitool",
        "ipmitool",
        "ipmitool 1.8, lib/ipmi_sdr.c, ipmi_sensor.c, ipmi_sel.c",
        tool="sudo ipmitool sdr elist",
    ),
    by_head(
        "analyzing CPU ",
        r"analyzing CPU \d{1,5}:",
        "cpupower frequency-info",
        "host",
        "linux, tools/power/cpupower/utils/cpufreq-info.c",
        body=r"\s+\S|analyzing CPU ",
        joins=True,
    ),
    ULIMIT,
)
