"""The fixes of triage that are the same for any line, as text tables, and the reader of their rows.

A row is one fix (`text_table`): its name is all the names that it repairs, its flag the action, which is
to investigate where none is given, its sentence the text, and its lines are commands. Several rows of one
name are its fixes in order, least effort first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast, get_args

from nodedoctor.model import Action, Fix, Step
from nodedoctor.steps import as_steps, drastic, looks
from nodedoctor.text_table import table_rows

Fixes = tuple[Fix, ...]


def read_fixes(table: str) -> dict[str, Fixes]:
    """The fixes of a table, by the names of what they repair."""
    fixes: dict[str, Fixes] = {}
    for row in table_rows(table):
        action = next(iter(row.flags), "investigate")
        assert action in get_args(Action), row.name
        fix = Fix(row.sentence, steps_of(row.lines), cast(Action, action))
        for name in row.name.split():
            fixes[name] = (*fixes.get(name, ()), fix)
    return fixes


def steps_of(commands: Iterable[str]) -> tuple[Step, ...]:
    """Commands as steps: they only look, except those that end the work of others."""
    return tuple(
        step
        for command in commands
        for step in (as_steps((command,)) if drastic(command) else looks(command))
    )


BY_CAUSE = read_fixes("""
gpu_hardware_xid  drain
  Drain the node and diagnose its GPU; the job's settings are not the cause.
    nodedoctor
gpu_hardware_xid
  Reset or replace the GPU as its check says.
peer_host_oom  config
  Use less host memory: fewer data-loader workers, no pinned copies, sharded checkpoints.
peer_host_oom  config
  Request more memory, or run fewer ranks per node.
peer_cuda_oom  config
  Make the micro-batch or the sequence smaller and accumulate more steps.
peer_cuda_oom  config
  Recompute activations, shard more (FSDP, ZeRO-3), offload last.
user_code_exception  config
  Repair the exception shown above: the first of its process, not those that follow.
peer_died
  Find out why it ended: its own output, then the kernel log of its node (OOM kill, crash, Xid).
    dmesg -T | grep -iE 'killed process|oom|segfault|Xid'
collective_mismatch  config
  Make all ranks call the same collectives: none under `if rank == 0`, the same number of batches.
collective_mismatch  config
  In a multimodal model, give batches without images or audio dummy inputs, so that the layers for them run on
  all ranks.
collective_mismatch
  Run once with the check that compares every call.
    export TORCH_DISTRIBUTED_DEBUG=DETAIL
cpu_stuck_or_slow_rank
  If it hangs again, look before it is killed: storage, data loader, a lock, a prompt.
    nodedoctor triage --live
timeout_too_short_legit_work  config
  Do the long work on all ranks, or before the process group is made; save sharded.
network_ib
  Check the ports and links on both ends.
    nodedoctor ib
    ibstat
network_ib  config
  Exclude the NIC or the node until it is repaired.
network_socket_interface
  Find the interface that reaches the other nodes, and name it in NCCL_SOCKET_IFNAME.
    ip -br addr
    ip route
network_socket_interface
  Check address, port and firewall of the rendezvous.
p2p_pcie_acs_iommu
  Confirm it: if the job runs with this, P2P over PCIe is broken.
    export NCCL_P2P_LEVEL=NVL
p2p_pcie_acs_iommu  reboot
  Disable ACS on the bridges, or set iommu=pt.
    lspci -vvv | grep -i acsctl
nvlink_fabric  restart-service
  Start or repair the Fabric Manager; its version must be the driver's. On a tray of GB200 or GB300 it runs
  on the rack's switch trays: there see nvidia-imex and the rack's controller.
    systemctl status nvidia-fabricmanager
    sudo systemctl restart nvidia-fabricmanager
nvlink_fabric  config
  In a VM without NVSwitches, disable only NVLS.
    export NCCL_NVLS_ENABLE=0
shm_or_limits
  See which limits the job's processes have.
    nodedoctor limits
version_mismatch  config
  Install the NCCL and CUDA packages that this torch pins, and only those.
    pip check
version_mismatch
  Check which libraries are found first.
    nodedoctor stack
    echo $LD_LIBRARY_PATH
driver_problem
  Check the driver on that node.
    nodedoctor driver
    nvidia-smi
driver_problem  config
  Install a driver for this CUDA, or a torch built for the driver's CUDA.
""")
"""By cause, where the deciding evidence has no fix of its own."""

BY_FAMILY = read_fixes("""
not-a-number  config
  Replay this step with the same data on another GPU: the same NaN again is the data or the program, a number
  is the GPU.
launcher-variable  config
  The launcher did not set this variable: start the program with torchrun or srun on every node.
access  config
  Give the environment of every rank a token that has access, or download once and let the ranks read offline.
    export HF_HUB_OFFLINE=1
busy-server server  config
  The node does not reach that server, or the server cannot answer all ranks at once: download once to storage
  that all nodes share, and let the ranks read it offline.
    export HF_HUB_OFFLINE=1
libraries  config
  Check which libraries are found first, and rebuild or install what that line names for the torch and CUDA of
  that environment.
    nodedoctor stack
    echo $LD_LIBRARY_PATH
build  config
  Check that compiler and CUDA toolkit are on that node and fit its torch: the compiler's own lines stand
  above this one.
    nodedoctor stack
    which gcc nvcc ninja
command  config
  Correct the command: the line says which part of it is not known.
settings  config
  Correct the setting that the line names; it may be of another version of its library.
no-capacity  config
  Ask for less, or for the quota or the nodes that the line names.
packages  config
  Install what the line names for the Python that this rank runs, on its node: the launcher's may be another.
    nodedoctor stack
incomplete-file  config
  The file is not complete, as after a save or a download that was cut off: load the checkpoint before it, or
  fetch it again.
other-checkpoint  config
  The checkpoint is of another model or another split of it: compare the names and shapes in the message with
  the configuration.
already-there  config
  Let one rank make what that line names before the others use it, or allow that it is there: ranks that make
  it at the same time disturb each other.
device-busy  config
  End the process that holds the device: often a leftover of the last run.
    ps -ef
login  config
  Let the launcher's user log in on that node without a password, and try it by hand from the first node.
rights  config
  Give the job's user this right on that node, or another folder.
    id
files  config
  See that the path exists and can be read on the node of that rank: it may be mounted on others.
no-address  config
  Compare the address that the job was given with the names that the node resolves.
    getent hosts $(hostname)
no-connection  config
  Check that the service named there runs, and that the node has a way to it.
    ip -br addr
    ip route
""")
"""By the kind of failure that a line or an exception tells of."""

BY_NAME = read_fixes("""
nccl-no-algorithm  config
  Unset NCCL_ALGO and NCCL_PROTO, or allow more in them: not every algorithm can do every collective. They may
  also stand in /etc/nccl.conf and ~/.nccl.conf.
container-toolkit  config
  Install NVIDIA's container toolkit on that node, register it with docker, and restart docker.
    docker info | grep -i runtime
    nvidia-ctk runtime configure --runtime=docker
gpu-refused  config
  See what holds the GPU, its compute mode, and whether MIG is on without an instance.
    nvidia-smi --query-gpu=index,compute_mode,mig.mode.current --format=csv
    nvidia-smi --query-compute-apps=gpu_uuid,pid,name --format=csv
cuda-unknown
  Check that nvidia_uvm is loaded and that the process sees /dev/nvidia-uvm.
    lsmod | grep nvidia_uvm
    ls -l /dev/nvidia-uvm
dev-shm loader-bus-error cannot-map
  Give the container shared memory: docker run with --shm-size=16g or --ipc=host, in Kubernetes an emptyDir of
  medium Memory on /dev/shm.
    df -h /dev/shm
torch-without-part  config
  Install a torch that has it, or do without: the gloo backend in init_process_group where NCCL is missing,
  USE_LIBUV=0 where libuv is. On Windows torch never has NCCL: run under WSL or Linux for it.
    python -c 'import torch.distributed as d; print(d.is_nccl_available(), d.is_gloo_available())'
ray-versions  config
  Install the cluster's Ray and Python for this process: the lines behind the error have both versions.
    ray --version
    python --version
nccl-versions-differ
  Install one NCCL on all nodes.
    nodedoctor stack
disk-full
  Free space on the file system in that line.
    df -h
    df -i
quota-full
  Remove what is not needed below the path in that line, or write where the quota is larger: `df` shows room
  that is not this user's.
    quota -s
write-failed
  Check the room and the quota of the file system that is written to, then delete the file: it is not
  complete.
    df -h
    df -i
    quota -s
storage-lost
  Check the mount on that node, and the kernel's messages about its server.
    findmnt -t nfs,nfs4,lustre,fuse
    dmesg -T | grep -iE 'nfs|lustre|fuse|I/O error'
wrong-build
  Check which libraries and builds are loaded, and which versions match.
    nodedoctor stack
network-plugin-failed
  Check that the network plug-in finds its adapter on that node, and in the container.
    fi_info -p efa
    ls -l /dev/infiniband
task-lost
  Read the end of that task's own log, and its node's kernel log: the others only report its silence.
    dmesg -T | grep -iE 'killed process|oom|segfault|Xid'
engine-died  config
  Read the worker's own lines above: the engine only reports that it ended. Without any, look for an
  out-of-memory kill on its node.
engine-crowded
  Look at what else holds that GPU, a trainer beside the engine included; then give the engine a smaller share
  (vLLM gpu_memory_utilization).
    nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv
engine-no-cache  config
  Give the engine a larger share of the GPU (vLLM gpu_memory_utilization, SGLang --mem-fraction-static), a
  shorter longest sequence, or more GPUs per engine.
engine-too-long  config
  Set a shorter longest sequence (vLLM --max-model-len), or give the cache more room: a larger
  --gpu-memory-utilization, an fp8 cache (--kv-cache-dtype), or more GPUs (--tensor-parallel-size).
assertion  config
  The condition in that line did not hold: look at what was given to that call, and whether the library is of
  the version that the program was written for.
panic  config
  The line shows where it gave up, and the next one why: look at what was given to it.
not-begun  config
  Correct the command: the line says which argument or file it is.
interface-missing mesh-failed
  Find the interface that reaches the other nodes, and name it in GLOO_SOCKET_IFNAME.
    ip -br addr
    ip route
name-unresolved  config
  Compare the name in that line with those that the node resolves: in Kubernetes the service of a worker may
  be younger than who asks for it.
host-not-found  config
  Compare MASTER_ADDR with the names that the node resolves: in Kubernetes the master's service may be younger
  than the worker.
amdgpu-reset
  See what the kernel says of the GPU.
    dmesg -T | grep -i amdgpu
memory-limit-touched  config
  Ask for more memory, or read less at once.
rank-given-twice  config
  Give each process its own RANK: two launchers of one job have the same node rank.
worlds-differ  config
  Give all processes of the job the same world size: another job's may use the same address and port.
mpi-without-launcher  config
  Start it with that MPI's own mpirun, or with `srun --mpi=` and a kind that it was built for.
    srun --mpi=list
pod-evicted
  Look at the taints of that pod's node and at its events: it did not answer, or is being emptied.
    kubectl describe nodes
agent-unheard  config
  Look at the node that holds the rendezvous (torchrun's `--rdzv-endpoint`): its agent ended first, or cannot
  be reached from here.
rendezvous-failed  config
  Find the missing node: it has no log, or failed before its start.
declared-mismatch  config
  The line shows what each rank did: make shapes, objects and order equal.
sizes-differ  config
  Give all nodes the same NCCL_* variables: compare what each one has.
    env | grep ^NCCL_
sizes-differ
  With the same settings it is the program: run once with the check that compares every call.
    export TORCH_DISTRIBUTED_DEBUG=DETAIL
no-such-gpu  config
  Choose the device by LOCAL_RANK, not by the global rank, and start at most as many ranks on a node as
  CUDA_VISIBLE_DEVICES shows GPUs there.
    nvidia-smi -L
    echo $CUDA_VISIBLE_DEVICES
fabric-of-host  config
  Ask the provider to register it with the fabric, or take a new instance: the NVSwitches and their Fabric
  Manager are the host's.
fabric-in-progress
  See whether this machine has NVSwitches. With them, start the Fabric Manager of the driver's version;
  without any, as in a VM, ask the provider or take a new instance.
    lspci -d 10de: -nn | grep -i bridge
    systemctl status nvidia-fabricmanager
no-interface
  Unset NCCL_SOCKET_IFNAME, or name one of these in it; without it NCCL leaves out lo and docker.
    ip -br addr
virtual-interface  config
  Name the interface that reaches the other nodes in NCCL_SOCKET_IFNAME, or exclude this one with ^ in front.
    ip -br addr
    ip route
drive-failed  drain
  Drain the node, and replace the drive that its kernel names: what is on it may be lost.
    dmesg -T | grep -iE "nvme|I/O error"
    nvme smart-log /dev/nvme0
    smartctl -a /dev/sda
pidfd-refused  config
  Start the container with docker run --cap-add=SYS_PTRACE --security-opt seccomp=unconfined --ipc=host, in
  Kubernetes with the capability SYS_PTRACE. Without that right the kernel's setting must be 0.
    cat /proc/sys/kernel/yama/ptrace_scope
pidfd-refused  config
  Or share GPU memory without it, as torch itself proposes.
    export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False
diag-nvlink diag-links
  Check NVLink, fabric and peer access on that node.
    nodedoctor nvlink fabric p2p
    nvidia-smi topo -p2p n
ib-memory-refused
  Check what GPUDirect RDMA needs on that node: nvidia-peermem or DMA-BUF, and an IOMMU that does not
  translate. A run without GPUDirect shows whether it is that.
    nodedoctor ib.gdr pcie.iommu pcie.acs --preview
    export NCCL_NET_GDR_LEVEL=LOC
# other events; `exit-9` is an end by signal 9
duplicate-gpu  config
  Start one rank per GPU: as many ranks as CUDA_VISIBLE_DEVICES shows GPUs.
# an engine has no micro-batches and nothing to recompute
engine-full  config
  Let the inference engine take fewer or shorter sequences at a time (vLLM --max-num-seqs and --max-model-len,
  SGLang --max-running-requests and --context-length).
engine-full  config
  Leave more of the GPU outside of its cache (vLLM --gpu-memory-utilization, SGLang --mem-fraction-static), or
  share the model among more GPUs.
cuda-launch-failed
  Look for an Xid of that GPU at that moment: its number says whether the GPU or the program is at fault.
    dmesg -T | grep -i xid
    nodedoctor
cuda-program-fault cuda-launch-failed
  Find the kernel that went wrong: run once where it is reported at its own line.
    export CUDA_LAUNCH_BLOCKING=1
mismatch  config
  Make number, order, shapes and types equal on all ranks. Batches of different lengths and branches that
  depend on the data or on the rank are the usual reasons.
# a credential expires where the clocks of two nodes differ (Slurm's FAQ)
node-unstarted  drain
  Read the log of slurmd on that node, compare its clock with the others', and diagnose it before the next
  job.
    journalctl -u slurmd -n 50 --no-pager
    timedatectl
    nodedoctor
node-lost  drain
  Ask the scheduler why it gave the node up, and diagnose it before the next job.
    nodedoctor
exit-9
  Find out who killed it: the kernel's log of its node first, for an out-of-memory kill.
    dmesg -T | grep -iE 'killed process|oom'
exit-6
  It ended itself: the reason is above its abort, in its own log.
    export PYTHONFAULTHANDLER=1
exit-7
  It accessed mapped memory without backing: most often /dev/shm is full.
    df -h /dev/shm
    dmesg -T | grep -iE 'memory failure|mce|hardware'
exit-4 exit-8 exit-11
  It crashed in native code: make it print its Python stack, and look for the library it was in.
    export PYTHONFAULTHANDLER=1
    dmesg -T | grep -iE 'segfault|trap|general protection'
signalled-1  config
  Start the job where a closed terminal does not kill it: tmux, nohup or a batch system.
    tmux new -s train
signalled
  Check in the scheduler who cancelled the job and why: nothing in the job failed.
""")
"""By the name of a symptom or of another event."""
