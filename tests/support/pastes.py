"""Outputs of tools as they are pasted, one of each kind, and the ways people paste them."""

from __future__ import annotations

import html
import json
from collections.abc import Callable

import smi_texts
from recorded import mesh, topo

UUID = "GPU-00000000-0000-0000-0000-00000000000{0}"
NVLINK = "".join(
    f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: {UUID.format(gpu)})\n"
    + "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(18))
    for gpu in range(2)
)
NVLINK_ERRORS = "".join(
    f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: {UUID.format(gpu)})\n"
    + "".join(
        f"\t Link {link}: {name} Errors: 0\n" for link in range(4) for name in ("Replay", "Recovery", "CRC")
    )
    for gpu in range(2)
)
IBSTAT = "".join(
    f"CA 'mlx5_{port}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.43.2026\n"
    "\tHardware version: 0\n\tNode GUID: 0xa088c20300000000\n\tPort 1:\n\t\tState: Active\n"
    "\t\tPhysical state: LinkUp\n\t\tRate: 400\n\t\tBase lid: 3\n\t\tLMC: 0\n\t\tSM lid: 1\n"
    "\t\tLink layer: InfiniBand\n"
    for port in range(2)
)
IBSTATUS = "".join(
    f"Infiniband device 'mlx5_{port}' port 1 status:\n\tdefault gid:\t fe80:0000:0000:0000:a088:c203:0:1\n"
    "\tbase lid:\t 0x3\n\tsm lid:\t\t 0x1\n\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n"
    "\trate:\t\t 400 Gb/sec (4X NDR)\n\tlink_layer:\t InfiniBand\n\n"
    for port in range(2)
)
DEVINFO = "".join(
    f"hca_id:\tmlx5_{port}\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t28.43.2026\n"
    "\tvendor_part_id:\t\t\t4129\n\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n"
    "\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n"
    "\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tsm_lid:\t\t\t1\n"
    "\t\t\tport_lid:\t\t3\n\t\t\tlink_layer:\t\tInfiniBand\n\n"
    for port in range(2)
)
RDMA_LINK = (
    "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1f0np0 \n"
    "link mlx5_1/1 state DOWN physical_state DISABLED netdev ens1f1np1 \n"
)
LSPCI = (
    "18:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n"
    "\tSubsystem: NVIDIA Corporation Device 16c1\n"
    "\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
    "\tLnkSta:\tSpeed 32GT/s, Width x16\n\tKernel driver in use: nvidia\n\n"
    "5e:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
    "\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
    "\tLnkSta:\tSpeed 32GT/s, Width x16\n\tKernel driver in use: mlx5_core\n"
)
DMESG = (
    "[    9.450001] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
    "[   10.020002] mlx5_core 0000:5e:00.0: firmware version: 28.43.2026\n"
    "[  812.300003] NVRM: Xid (PCI:0000:18:00): 79, pid=4242, name=python, GPU has fallen off the bus.\n"
)
SCONTROL = (
    "NodeName=gpu-07 Arch=x86_64 CoresPerSocket=48 \n   CPUAlloc=0 CPUTot=192 CPULoad=0.10\n"
    "   Gres=gpu:h100:8\n   State=IDLE+DRAIN ThreadsPerCore=2\n   CfgTRES=cpu=192,mem=2000G,gres/gpu=8\n"
    "   AllocTRES=\n   Reason=gpu missing [root@2026-01-01T00:00:00]\n"
)
IP_LINK = (
    "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT qlen 1000\n"
    "    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00\n"
    "    RX:  bytes packets errors dropped  missed   mcast\n"
    "        100       1      0       0       0       0\n"
    "2: ens1f0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT group default\n"
    "    link/ether 00:11:22:33:44:55 brd ff:ff:ff:ff:ff:ff\n"
    "    RX:  bytes packets errors dropped  missed   mcast\n"
    "        100       1      0       0       0       0\n"
)
ETHTOOL = (
    "NIC statistics:\n     rx_packets: 100\n     rx_discards_phy: 0\n     rx_prio3_pause: 12\n"
    "     tx_prio3_pause: 0\n     rx_packets_phy: 100000\n"
)
STATUS = (
    "\N{BLACK CIRCLE} nvidia-fabricmanager.service - NVIDIA fabric manager service\n"
    "     Loaded: loaded (/usr/lib/systemd/system/nvidia-fabricmanager.service; enabled; preset: enabled)\n"
    "     Active: failed (Result: exit-code) since Mon 2026-01-05 10:00:00 UTC; 1h ago\n"
    "   Main PID: 1234 (code=exited, status=1/FAILURE)\n"
)
COLLECT = (
    "PyTorch version: 2.9.1+cu128\nIs debug build: False\nCUDA used to build PyTorch: 12.8\n"
    "Python version: 3.12.3 (main) (64-bit runtime)\nIs CUDA available: True\n"
    "Nvidia driver version: 580.95.05\n\nVersions of relevant libraries:\n[pip3] numpy==2.2.6\n"
    "[pip3] nvidia-nccl-cu12==2.27.5\n[pip3] torch==2.9.1+cu128\n"
)
PIP = (
    "Package            Version\n------------------ ------------\nnumpy              2.2.6\n"
    "nvidia-nccl-cu12   2.27.5\n"
    "pyzmq              27.1.0\n"
)
ENV = "NCCL_DEBUG=INFO\nNCCL_SOCKET_IFNAME=ens1f0\nWORLD_SIZE=16\nMASTER_ADDR=10.0.0.1\n"

DCGM = (
    "+---------------------------+------------------------------------------------+\n"
    "| Diagnostic                | Result                                         |\n"
    "+===========================+================================================+\n"
    "|-----  Integration  -------+------------------------------------------------|\n"
    "| PCIe                      | Pass - All                                     |\n"
    "+---------------------------+------------------------------------------------+\n"
)
NVBANDWIDTH = (
    "nvbandwidth Version: v0.5\nBuilt from Git version: v0.5\n\nCUDA Runtime Version: 12040\n"
    "Device 0: NVIDIA H100 80GB HBM3 (00000000:18:00)\n\nRunning host_to_device_memcpy_ce.\n"
    "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n           0\n 0     55.31\n\n"
    "SUM host_to_device_memcpy_ce 55.31\n"
)
P2P_TEST = (
    "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n"
    "Device: 0, NVIDIA H100 80GB HBM3, pciBusID: 1b, pciDeviceID: 0, pciDomainID:0\n\n"
    "***NOTE: In case a device doesn't have P2P access to other one, it falls back to normal memcopy.\n\n"
    "P2P Connectivity Matrix\n     D\\D     0     1\n     0\t   1     1\n     1\t   1     1\n"
    "Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n   D\\D      0      1 \n"
    "     0 2580.56 764.12 \n     1 749.86 2575.74 \n"
)
NCCL_TESTS = (
    "# nThread 1 nGpus 8 minBytes 67108864 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20\n#\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    "  1073741824   268435456   float     sum   -1   4020.4  267.07  467.38      0   4017.5  267.27  0  0\n"
    "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 467.5\n"
)

DCGM_HEALTH = (
    "+---------------------------+----------------------------------------------------------+\n"
    "| Health Monitor Report                                                                |\n"
    "+===========================+==========================================================+\n"
    "| Overall Health            | Healthy                                                  |\n"
    "+---------------------------+----------------------------------------------------------+\n"
)
MLXLINK = (
    "Operational Info\n----------------\n"
    "State                              : Active\nPhysical state                     : LinkUp\n"
    "Speed                              : IB-NDR\nWidth                              : 4x\n"
    "FEC                                : Standard_RS-FEC - (544,514)\n"
    "Auto Negotiation                   : ON\n\nSupported Info\n--------------\n"
    "Enabled Link Speed                 : 0x000000c1 (NDR,HDR,SDR)\n\n"
    "Troubleshooting Info\n--------------------\nStatus Opcode                      : 0\n"
    "Group Opcode                       : N/A\nRecommendation                     : No issue was observed\n"
)
IB_WRITE_BW = (
    "---------------------------------------------------------------------------------------\n"
    "                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : mlx5_0\n"
    " Number of qps   : 1\t\tTransport type : IB\n Mtu             : 4096[B]\n Link type       : IB\n"
    "---------------------------------------------------------------------------------------\n"
    " local address: LID 0x03 QPN 0x0127 PSN 0x6e4a3b RKey 0x1fff VAddr 0x007f00\n"
    "---------------------------------------------------------------------------------------\n"
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    " 1048576    5000             392.41             392.12             0.046744\n"
    "---------------------------------------------------------------------------------------\n"
)
KUBERNETES = (
    "Name:               gpu-07\nRoles:              <none>\n"
    "Labels:             kubernetes.io/hostname=gpu-07\n"
    "Taints:             nvidia.com/gpu=present:NoSchedule\nUnschedulable:      false\nConditions:\n"
    "  Type             Status  LastHeartbeatTime                 Reason                       Message\n"
    "  ----             ------  -----------------                 ------                       -------\n"
    "  MemoryPressure   False   Mon, 05 Jan 2026 10:00:00 +0000   KubeletHasSufficientMemory   ok\n"
    "  EtcdIsVoter      True    Mon, 05 Jan 2026 10:00:00 +0000   MemberNotLearner             voting\n"
    "  Ready            True    Mon, 05 Jan 2026 10:00:00 +0000   KubeletReady                 ready\n"
    "Capacity:\n  cpu:                192\n  memory:             2113Gi\n  nvidia.com/gpu:     8\n"
    "Allocatable:\n  cpu:                192\n  memory:             2113Gi\n  nvidia.com/gpu:     8\n"
    "Events:              <none>\n"
)
GPUD = (
    "\N{HOURGLASS} scanning the host (GOOS linux)\n\n"
    "\N{HEAVY CHECK MARK} machine info\n+--------------+---------+\n| GPUd Version | v0.9.1  |\n"
    "+--------------+---------+\n\N{HEAVY CHECK MARK} ok\n+---------------+-----+\n| Logical Cores | 192 |\n"
    "+---------------+-----+\n\N{HEAVY CHECK MARK} no temperature issue found\n\n"
    "\N{HEAVY CHECK MARK} scan complete\n"
)
IBDIAGNET = (
    "-I- Stage                     Warnings   Errors     Comment\n"
    "-I- Discovery                 3          0\n-I- Lids Check                0          0\n"
    "-I- Links Check               0          0\n-I- Port Counters             0          0\n"
)
VALIDATION = (
    '{\n  "affected_components": [\n    {\n      "category": "GPU",\n      "check_ids": ["GPUPowerState"],\n'
    '      "entities": ["GPU-0"],\n      "max_severity": "INFO"\n    }\n  ],\n  "verdict": "PASS"\n}\n'
)
INSPECTOR = "".join(
    f'{{"header":{{"id":"0x9b6a","rank":{rank},"n_ranks":16,"nnodes":2}},"metadata":{{"hostname":"gpu-07"}},'
    f'"coll_perf":{{"coll":"AllReduce","coll_sn":{number},"coll_msg_size_bytes":17179869184,'
    '"coll_exec_time_us":61974,"coll_algobw_gbs":277.21,"coll_busbw_gbs":536.71}}\n'
    for number in (1407, 1408)
    for rank in range(2)
)

NVRX = (
    "[2026-01-05 10:00:00,123] [WARNING] [ft_launcher0@gpu-07] Health checks disabled: "
    "GPU driver version r535 is older than required r570 for the GPU Recovery API.\n"
)
NVCRE = json.dumps(
    {
        "name": "nightly",
        "platform": "aws",
        "gpu": "h100",
        "totalNodes": 2,
        "categories": [{"domain": "communication", "variant": "all-reduce", "status": "Succeeded"}],
        "failedNodes": [],
        "result": "PASSED",
    },
    indent=2,
)
DB_CSV = (
    "START_NODES\nNodeDesc,NumPorts,NodeType,ClassVersion,BaseVersion,SystemImageGUID,NodeGUID,PortGUID\n"
    '"MF0;leaf-01:MQM9700/U1",65,2,1,1,0x900a840300a1b2c0,0x900a840300a1b2c0,0x900a840300a1b2c0\n'
    '"gpu-07 mlx5_0",1,1,1,1,0xa088c20300d4e5f0,0xa088c20300d4e5f0,0xa088c20300d4e5f0\nEND_NODES\n\n'
    "START_PM_INFO\nNodeGUID,PortGUID,PortNumber,LinkDownedCounter,SymbolErrorCounter\n"
    "0x900a840300a1b2c0,0x900a840300a1b2c0,5,0,0\n0xa088c20300d4e5f0,0xa088c20300d4e5f0,1,0,0\nEND_PM_INFO\n"
)
FABRIC_LOG = (
    "[Jan 05 2026 09:00:01] [INFO] [tid 2231] Fabric Manager is starting with the options of its file\n"
    "[Jan 05 2026 09:00:03] [INFO] [tid 2231] Successfully configured all the available NVSwitches.\n"
)
IBQUERYERRORS = (
    'Errors for 0xa088c20300d4e5f0 "gpu-07 mlx5_0"\n'
    "   GUID 0xa088c20300d4e5f0 port 1: [PortXmitWait == 123456]\n"
    '   Link info:     25   1[  ] ==( 4X 106.25 Gbps Active/  LinkUp)==>  0x900a84   12 5[ ] "leaf-01" ( )\n'
    "## Summary: 300 nodes checked, 0 bad nodes found\n"
    "##          1200 ports checked, 0 ports have errors beyond threshold\n"
)
PERFQUERY = (
    "# Port counters: Lid 13305 port 1 (CapMask: 0x5A00)\nPortSelect:......................1\n"
    "SymbolErrorCounter:..............0\nLinkDownedCounter:...............0\n"
    "PortRcvErrors:...................0\nPortXmitWait:....................123456\n"
)
IPMITOOL = (
    "CPU0_Temp        | 01h | ok  |  3.1 | 48 degrees C\nFAN4             | 44h | ns  | 29.4 | No Reading\n"
    "PSU1 Status      | C8h | ok  | 10.1 | Presence detected\n"
    "PSU2 Status      | 0x01              | ok\nFAN1             | 7840 RPM          | ok\n"
    "   2 | 12/18/2024 | 14:02:40 | Power Unit | Power off/down | Asserted\n"
)
NUMACTL = (
    "available: 2 nodes (0-1)\nnode 0 cpus: 0 1 2 3\nnode 0 size: 1031764 MB\nnode 0 free: 988120 MB\n"
    "node 1 cpus: 4 5 6 7\nnode 1 size: 1032190 MB\nnode 1 free: 970001 MB\n"
    "node distances:\nnode   0   1 \n  0:  10  21 \n  1:  21  10 \n"
)
CHRONYC = (
    "MS Name/IP address         Stratum Poll Reach LastRx Last sample               \n"
    "===============================================================================\n"
    "^* ntp1.example.com              2   6   377    23   +102us[ +131us] +/-   10ms\n"
    "^- ntp2.example.com              2   6   377    24   -210us[ -181us] +/-   22ms\n"
)
EDAC = (
    "mc0: 0 Uncorrected Errors with no DIMM info\nmc0: 0 Corrected Errors with no DIMM info\n"
    "mc0: csrow0: CPU_SrcID#0_MC#0_Chan#0_DIMM#0: 3 Corrected Errors\n"
)
DMON = (
    "# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk  pviol  tviol\n"
    "# Idx      W      C      C      %      %      %      %    MHz    MHz      %   bool\n"
    + "".join(
        f"    {gpu}    690     61     74     99     60      0      0   2619   1755      0      0\n"
        for gpu in range(4)
    )
)
SINFO = (
    "REASON               USER      TIMESTAMP           NODELIST\n"
    "planned update       root      2026-01-05T09:21:11 gpu-[12-14]\n"
)
POD = (
    "Name:             trainer-0\nNamespace:        team-a\nPriority:         0\n"
    "Node:             gpu-07/10.4.0.7\n"
    "Status:           Running\nContainers:\n  trainer:\n    Image:         registry.example/trainer:3\n"
    "    State:          Running\n      Started:      Mon, 05 Jan 2026 10:00:00 +0000\n"
    "    Ready:          True\n"
    "    Restart Count:  0\n    Limits:\n      nvidia.com/gpu:  8\nConditions:\n  Type              Status\n"
    "  PodScheduled      True\nEvents:\n  Type    Reason   Age  From     Message\n"
    "  ----    ------   ---- ----     -------\n  Normal  Started  31m  kubelet  Started container trainer\n"
)
NODES = (
    "NAME     STATUS   ROLES           AGE    VERSION\n"
    "ctrl-1   Ready    control-plane   412d   v1.31.4\ngpu-07   Ready    <none>          97d    v1.31.4\n"
)
STATES = (
    "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
    "train*       up 7-00:00:00     12  alloc gpu-[01-12]\n"
    "train*       up 7-00:00:00      4   idle gpu-[13-16]\n"
)
ULIMIT = (
    "core file size              (blocks, -c) 0\nmax locked memory           (kbytes, -l) unlimited\n"
    "stack size                  (kbytes, -s) 8192\nmax user processes                  (-u) 4127845\n"
)
DF = (
    "Filesystem               Size  Used Avail Use% Mounted on\n"
    "tmpfs                    202G  4.1M  202G   1% /run\n/dev/mapper/vg-root      437G  121G  294G  30% /\n"
    "tmpfs                   1008G     0 1008G   0% /dev/shm\n"
    "/dev/loop3                64M   64M     0 100% /snap/core/9\n"
    "store-1:/export/home      90T   61T   30T  68% /home\n"
)
LSMOD = (
    "Module                  Size  Used by\n"
    "nvidia_uvm           1540096  16\n"
    "nvidia_modeset       1306624  0\n"
    "nvidia              56827904  452 nvidia_uvm,nvidia_modeset\n"
    "mlx5_ib               466944  0\n"
)
RAY_STATUS = (
    "======== Autoscaler status: 2026-01-05 10:00:00.123456 ========\nNode status\n" + "-" * 63 + "\n"
    "Active:\n 1 node_aaaa\n 1 node_bbbb\nPending:\n (no pending nodes)\nRecent failures:\n (no failures)\n\n"
    "Resources\n" + "-" * 63 + "\nUsage:\n 16.0/384.0 CPU\n 16.0/16.0 GPU\n 0B/3.6TiB memory\n\n"
    "Demands:\n (no resource demands)\n"
)
SGLANG = (
    "Python: 3.10.12 (main, Jan 17 2025, 14:35:34) [GCC 11.4.0]\nCUDA available: True\n"
    "GPU 0,1: NVIDIA H100 80GB HBM3\nGPU 0,1 Compute Capability: 9.0\nCUDA_HOME: /usr/local/cuda\n"
    "NVCC: Cuda compilation tools, release 12.4, V12.4.131\nCUDA Driver Version: 550.54.15\n"
    "PyTorch: 2.5.1+cu124\nsglang: 0.4.4.post3\nsgl_kernel: 0.0.5.post4\nflashinfer: Module Not Found\n"
    "triton: 3.1.0\ntransformers: 4.50.0\nzmq: 26.2.0\n"
)
VLLM = (
    "==============================\n        System Info\n==============================\n"
    "OS                           : Ubuntu 22.04.5 LTS (x86_64)\n\n"
    "==============================\n       PyTorch Info\n==============================\n"
    "PyTorch version              : 2.7.0+cu126\nIs debug build               : False\n"
    "CUDA used to build PyTorch   : 12.6\nROCM used to build PyTorch   : N/A\n\n"
    "==============================\n       CUDA / GPU Info\n==============================\n"
    "Is CUDA available            : True\nCUDA runtime version         : 12.8.93\n"
    "Nvidia driver version        : 570.86.15\n\n"
    "==============================\nVersions of relevant libraries\n==============================\n"
    "[pip3] nvidia-nccl-cu12==2.26.2\n[pip3] torch==2.7.0\n[pip3] triton==3.3.0\n"
)
DEVICE_PLUGIN = (
    "I0311 03:22:40.918301       1 health.go:186] XidCriticalError: Xid=31 on Device="
    "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c; marking device as unhealthy.\n"
)
CPUPOWER = (
    "analyzing CPU 0:\n  driver: intel_pstate\n  CPUs which run at the same hardware frequency: 0\n"
    "  hardware limits: 800 MHz - 3.80 GHz\n  available cpufreq governors: performance powersave\n"
    "  current policy: frequency should be within 800 MHz and 3.80 GHz.\n"
    '                  The governor "performance" may decide which speed to use\n'
    "                  within this range.\n"
)
MOUNT = (
    "/dev/sda2 on / type ext4 (rw,relatime,errors=remount-ro)\n"
    "/dev/sr0 on /media/cdrom type iso9660 (ro,relatime)\n"
)

BANDWIDTH_TEST = (
    "[CUDA Bandwidth Test] - Starting...\nRunning on...\n\n Device 0: NVIDIA H100 80GB HBM3\n Quick Mode\n\n"
    " Host to Device Bandwidth, 1 Device(s)\n PINNED Memory Transfers\n"
    "   Transfer Size (Bytes)\tBandwidth(GB/s)\n   32000000\t\t\t55.2\n\n"
    " Device to Host Bandwidth, 1 Device(s)\n PINNED Memory Transfers\n"
    "   Transfer Size (Bytes)\tBandwidth(GB/s)\n   32000000\t\t\t54.8\n\nResult = PASS\n"
)
IMEX = """Nodes:
Node #0   * 10.2.0.7 *       - READY                - Version: 580.95.05    - Hostname: tray7
Node #1   - 10.2.0.8         - READY                - Version: 580.95.05    - Hostname: tray8

 Nodes From\\To  0   1
       0        C   C
       1        C   C
Domain State: UP
"""
PRIORITIES = """     rx_prio4_bytes: 733104772130
     rx_prio4_packets: 602113345
     rx_prio4_discards: 0
     tx_prio4_pause: 1204
"""
MLNX_QOS = """DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
\tprio:0 dscp:07,06,05,04,03,02,01,00,
\tprio:4 dscp:39,38,37,36,35,34,33,32,
default priority:
Receive buffer size (bytes): 20016,156096,0,0,0,0,0,0,total_size=1027728
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   0   1   0   0   0
\tbuffer      0   0   0   0   1   0   0   0
tc: 0 ratelimit: unlimited, tsa: vendor
\t priority:  1
"""
PROCESS_LIST = """    PID    PPID STAT     ELAPSED USER     CMD
  40211   40188 Rl      02:11:09 lena     python -u pretrain.py --local_rank=0
  40212   40188 Dl      02:11:09 lena     python -u pretrain.py --local_rank=1
"""
GPU_BURN = """Burning for 60 seconds.
Initialized device 0 with 81559 MB of memory (80000 MB available, using 72000 MB of it), using FLOATS
Results are 268435456 bytes each, thus performing 275 iterations
50.0%  proc'd: 550 (50112 Gflop/s) - 550 (50099 Gflop/s)   errors: 0 - 0   temps: 61 C - 60 C
\tSummary at:   Mon Mar  3 10:00:00 UTC 2025

100.0%  proc'd: 1100 (50112 Gflop/s) - 1100 (50099 Gflop/s)   errors: 0 - 0   temps: 66 C - 65 C
Killing processes.. done

Tested 2 GPUs:
\tGPU 0: OK
\tGPU 1: OK
"""
DOCKER_INSPECT = """[
    {
        "Id": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "Created": "2025-03-03T10:00:00.1Z",
        "Name": "/trainer",
        "RestartCount": 0,
        "HostConfig": {
            "IpcMode": "private",
            "ShmSize": 17179869184,
            "Ulimits": null,
            "DeviceRequests": [
                {
                    "Driver": "",
                    "Count": -1,
                    "DeviceIDs": null,
                    "Capabilities": [
                        [
                            "gpu"
                        ]
                    ],
                    "Options": {}
                }
            ]
        },
        "Config": {
            "Env": [
                "NCCL_DEBUG=INFO"
            ]
        }
    }
]
"""
PASTES: dict[str, str] = {
    "gpu-burn": GPU_BURN,
    "docker-inspect": DOCKER_INSPECT,
    "bandwidth-test": BANDWIDTH_TEST,
    "nvidia-smi-list": "GPU 0: NVIDIA H200 (UUID: GPU-240306c2-24b6-d5b9-c1d2-bf5b8d720eaf)\n",
    "nvidia-smi": smi_texts.table(smi_texts.row(0), smi_texts.row(1, bus="00000000:2A:00.0")),
    "nvidia-smi-q": smi_texts.q([smi_texts.q_gpu("00000000:18:00.0", {"Product Name": smi_texts.H100})]),
    "nvidia-smi-xml": smi_texts.xml([smi_texts.xml_gpu()]),
    "nvidia-smi-topo": topo(mesh(4, "NV18"), nics=2),
    "nvidia-smi-topo-p2p": " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n",
    "nvidia-smi-nvlink": NVLINK,
    "nvidia-smi-nvlink-errors": NVLINK_ERRORS,
    "ibstat": IBSTAT,
    "ibstatus": IBSTATUS,
    "ibv-devinfo": DEVINFO,
    "rdma-link": RDMA_LINK,
    "lspci": LSPCI,
    "kernel-log": DMESG,
    "slurm-node": SCONTROL,
    "net": IP_LINK,
    "ethtool": ETHTOOL,
    "services": STATUS,
    "collect-env": COLLECT,
    "pip-list": PIP,
    "env": ENV,
    "dcgmi-diag": DCGM,
    "nvbandwidth": NVBANDWIDTH,
    "p2p-bandwidth": P2P_TEST,
    "all-reduce-perf": NCCL_TESTS,
    "dcgm-health": DCGM_HEALTH,
    "mlxlink": MLXLINK,
    "ib-write-bw": IB_WRITE_BW,
    "kubernetes-node": KUBERNETES,
    "gpud-scan": GPUD,
    "ibdiagnet": IBDIAGNET,
    "health-validation": VALIDATION,
    "nccl-inspector": INSPECTOR,
    "nvrx-health": NVRX,
    "nvcre-report": f"{NVCRE}\n",
    "ibdiagnet-csv": DB_CSV,
    "fabric-manager-log": FABRIC_LOG,
    "ibqueryerrors": IBQUERYERRORS,
    "perfquery": PERFQUERY,
    "ipmitool": IPMITOOL,
    "numactl": NUMACTL,
    "chronyc-sources": CHRONYC,
    "edac": EDAC,
    "nvidia-smi-dmon": DMON,
    "sinfo-reasons": SINFO,
    "ray-status": RAY_STATUS,
    "kubernetes-pod": POD,
    "kubernetes-pods": "NAME                          READY   STATUS    RESTARTS   AGE\n"
    "nvidia-driver-daemonset-7xkfp 1/1     Running   0          12d\n",
    "kubernetes-nodes": NODES,
    "sinfo": STATES,
    "disk": DF,
    "driver-files": LSMOD,
    "limits": ULIMIT,
    "device-plugin": DEVICE_PLUGIN,
    "host-messages": MOUNT,
    "host": CPUPOWER,
    "imex-domain": IMEX,
    "priority-counters": PRIORITIES,
    "mlnx-qos": MLNX_QOS,
    "process-list": PROCESS_LIST,
}
"""A paste of each probe."""
OF_LOGS = {
    "nccl-lines": "gpu-7:2566:2739 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n"
    "gpu-7:2566:2739 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_1' (no module)\n",
}
"""Lines of a job's log that a probe reads, too."""


def _each(front: str) -> Callable[[str], str]:
    """A front before every line; `{0}` in it is the number of the line."""
    return lambda text: "".join(f"{front.format(n % 60)}{line}\n" for n, line in enumerate(text.splitlines()))


def _counted(text: str, gap: str) -> str:
    """As `cat -n` prints it."""
    return "".join(f"{n:6}{gap}{line}\n" for n, line in enumerate(text.splitlines(), 1))


WAYS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "behind a prompt": lambda text: f"root@gpu-7:~# cat out\n{text}root@gpu-7:~# exit\n",
    "behind a prompt in brackets": lambda text: f"[me@gpu-7 ~]$ cat out\n{text}[me@gpu-7 ~]$ \n",
    "in a fence": lambda text: f"Hello, this is what it says:\n\n```text\n{text}```\nAny idea?\n",
    "quoted": _each("> "),
    "quoted twice": _each(">> "),
    "indented": _each("    "),
    "coloured": lambda text: "".join(f"\x1b[32m{line}\x1b[0m\n" for line in text.splitlines()),
    "with the line ends of Windows": lambda text: text.replace("\n", "\r\n"),
    "as a web page has it": lambda text: f"<pre><code>{html.escape(text, quote=False)}</code></pre>\n",
    "behind a logger's prefix": _each("2026-01-01 12:00:{0:02d},123 INFO [node7] "),
    "in the journal": _each("Jan 05 09:{0:02d}:21 gpu-7 collect[123]: "),
    "with times of kubectl": _each("2026-01-05T09:{0:02d}:21.123456789Z "),
    "as containerd keeps it": _each("2026-01-05T09:{0:02d}:21.123456789Z stderr F "),
    "behind a node's name": _each("gpu-7: "),
    "behind a rank": _each("[rank3]: "),
    "behind a task of srun": _each("3: "),
    "behind a container's name": _each("trainer-1  | "),
    "behind the numbers of its lines": lambda text: _counted(text, "\t"),
    "behind the numbers of its lines, without tabs": lambda text: _counted(text, "  "),
}
"""How an output arrives."""
