"""What JAX, inference engines, HCCL, ROCm and others print: text, cause and guilty ranks."""

from __future__ import annotations

from say import raised, steps

TASK = "/job:jax_worker/replica:0/task:"
SERVICE = (
    "2026-11-21 15:47:38.568412: E xla/tsl/distributed_runtime/coordination/coordination_service.cc:1170] "
)
ENGINE = "(EngineCore_DP0 pid=1174) ERROR 11-21 06:21:53 [multiproc_executor.py:273] "
DEAD = (
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above).\n"
)
JAX_BARRIER = (
    "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id:"
    " save.0. This usually happens"
    " because a task triggered the barrier too early or too slowly.\n# of tasks that"
    " reached the barrier: 2/4.\n"
    f"The first task at the barrier: {TASK}1. Some timed out task names:\n{TASK}3\n{TASK}0\n"
)
SAID = {
    "a JAX task was lost": (
        f"{SERVICE}{TASK}3 has been set to ERROR in coordination service: UNAVAILABLE: Task {TASK}3 heartbeat"
        " timeout. This indicates that the remote task has failed, got preempted, or crashed.\n",
        "peer_died",
        [3],
    ),
    "a barrier of JAX": (JAX_BARRIER, "cpu_stuck_or_slow_rank", [0, 3]),
    "JAX tasks that never joined": (
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id:"
        f" PjRT_Client_Connect. Timed out task names:\n{TASK}1\n{TASK}2\n",
        "network_socket_interface",
        [1, 2],
    ),
    "workers that ended before they met their raylet": (
        "(raylet) [2026-11-21 10:08:05,490 E 245 245] (raylet) worker_pool.cc:586: Some workers of the worker"
        " process(2615) have not registered within the timeout. The process is dead, probably it crashed"
        " during start.\n",
        "peer_died",
        [None],
    ),
    "an object of Ray whose owner is gone": (
        raised(0, "ray.exceptions.OwnerDiedError: Failed to retrieve object 00ff.").replace("[rank0]: ", ""),
        "peer_died",
        [],
    ),
    "a checkpoint that could not be written": (
        raised(
            2,
            "RuntimeError: [enforce fail at inline_container.cc:603] . PytorchStreamWriter failed writing"
            " file data/12: file write failed",
        ),
        "shm_or_limits",
        [2],
    ),
    "a file system that went away": (
        raised(1, "OSError: [Errno 116] Stale file handle: '/data/shard-7.bin'"),
        "shm_or_limits",
        [1],
    ),
    "a server outside that does not answer": (
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='models.example.org', port=443):"
        " Read timed out.\n",
        "user_code_exception",
        [],
    ),
    "a compiler that does not know the GPU": (
        raised(6, "RuntimeError: Internal Triton PTX codegen error:")
        + "[rank6]: ptxas fatal   : Value 'sm_100' is not defined for option 'gpu-name'\n",
        "version_mismatch",
        [6],
    ),
    "a tool that failed, and a second traceback that was cut": (
        "subprocess.CalledProcessError: Command '['/v/bin/ptxas', '-v', '/tmp/a.ptx']' returned non-zero exit"
        " status 255.\n\nDuring handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/v/core.py", line 314, in run\n    self.run()\n',
        "user_code_exception",
        [],
    ),
    "a loader that crashed": (
        "ERROR: Unexpected segmentation fault encountered in worker.\nTraceback (most recent call last):\n"
        '  File "/v/dataloader.py", line 990, in _try_get_data\n    data = self._data_queue.get()\n',
        "peer_died",
        [],
    ),
    "an assertion on the device": (
        "/p/Loss.cu:240: nll_loss_kernel: block: [0,0,0], thread: [17,0,0] Assertion `t >= 0 && t < n`"
        " failed.\n",
        "user_code_exception",
        [],
    ),
    "hydra's short trace": (
        "Error executing job with overrides: []\n\ntrain.py 74 <module>\nmain()\n",
        "undetermined",
        [],
    ),
    "a unit of systemd out of memory": (
        "Nov 21 10:00:05 gpu17 systemd[1]: train.service: A process of this unit has been killed by the OOM"
        " killer.\nNov 21 10:00:05 gpu17 systemd[1]: train.service: Main process exited, code=killed,"
        " status=9/KILL\n",
        "peer_host_oom",
        ["gpu17"],
    ),
    "a unit of systemd that crashed": (
        "Nov 21 10:00:05 gpu17 systemd[1]: train.service: Main process exited, code=dumped, status=11/SEGV\n",
        "peer_died",
        [],
    ),
    "a GPU that was not free enough for an engine": (
        f"{ENGINE}ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU"
        f" memory utilization (0.95, 45.01 GiB).\n{DEAD}",
        "peer_cuda_oom",
        [None],
    ),
    "no room for an engine's cache": (
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.\n",
        "peer_cuda_oom",
        [],
    ),
    "no room for a transform": (
        raised(3, "RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED"),
        "peer_cuda_oom",
        [3],
    ),
    "no room on a TPU": (
        "2026-11-21 00:27:49.642380: E tensorflow/compiler/xla/xla_util.cc:88]   (1) RESOURCE_EXHAUSTED:"
        " Attempting to reserve 6.48G at the bottom of memory. That was not possible.\n",
        "peer_cuda_oom",
        [],
    ),
    "a master whose name is not known": (
        raised(1, "ValueError: host not found: Name or service not known"),
        "network_socket_interface",
        [],
    ),
    "a peer of MPI": (
        "An MPI communication peer process has unexpectedly disconnected.  This\nusually indicates a failure"
        " in the peer process.\n  Local host: n3\n  Peer host:  n6\n",
        "peer_died",
        ["n6"],
    ),
    "an image that cannot be pulled": (
        "Warning  Failed  12s (x3 over 40s)  kubelet  Error: ErrImagePull\n",
        "undetermined",
        [],
    ),
    "a container that waits": (
        'Error from server (BadRequest): container "pytorch" in pod "w-0" is waiting to start:'
        " PodInitializing\n",
        "undetermined",
        [],
    ),
    "NCCL's first words for a refused connection": (
        "h1:94:95 [0] include/socket.h:390 NCCL WARN Connect to 10.38.10.112<21724> failed : Connection"
        " refused\nh1:94:95 [0] NCCL INFO init.cc:695 -> 2\n",
        "network_socket_interface",
        [],
    ),
    "what libmlx5 prints": (
        "(Actor pid=90, ip=10.0.0.3) mlx5: n7: got completion with error:\n(Actor pid=90, ip=10.0.0.3)"
        " 00000000 00008914 10000a0c 000ab0d2\n",
        "network_ib",
        [],
    ),
    "a plain exception": (
        raised(3, "Exception: Current loss scale already at minimum"),
        "user_code_exception",
        [3],
    ),
    "an exception of one's own": (raised(1, "OutOfResources: shared memory"), "user_code_exception", [1]),
    "a pickle that is empty": (raised(1, "EOFError: Ran out of input"), "user_code_exception", [1]),
    "a group that was never made": (
        raised(
            0, "ValueError: Default process group has not been initialized, please call init_process_group."
        ),
        "user_code_exception",
        [0],
    ),
    "a panic": (
        "thread '<unnamed>' panicked at src/lib.rs:4:5:\nindex out of bounds\n",
        "user_code_exception",
        [],
    ),
    "arguments that the program does not know": (
        "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lr 3\n",
        "user_code_exception",
        [],
    ),
    "a program that is not there": (
        "python: can't open file '/job/train.py': [Errno 2] No such file or directory\n",
        "user_code_exception",
        [],
    ),
    "Open MPI's handler of signals": (
        "[n1:1234] *** Process received signal ***\n[n1:1234] Signal: Segmentation fault (11)\n",
        "peer_died",
        ["n1"],
    ),
    "MPICH's launcher": (
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n",
        "peer_died",
        [],
    ),
    "JAX ended itself": (
        "F1121 17:42:48.594200 1044529 client.h:77] Terminating process because the JAX distributed service"
        " detected fatal errors. This most likely indicates that another task died.\n",
        "undetermined",
        [],
    ),
    "XLA's rendezvous": (
        "F1121 10:00:20.000000 1000 rendezvous.cc:52] [id=6] Termination timeout for `[6]"
        " [rank=6] Initialize clique`"
        " of 40 seconds exceeded. Exiting to ensure a consistent program state.\n",
        "undetermined",
        [],
    ),
    "a worker of vLLM": (
        f"{ENGINE}Worker proc VllmWorker-2 died unexpectedly, shutting down executor.\n{DEAD}",
        "peer_died",
        [2],
    ),
    "vLLM waits for a worker": (
        "(EngineCore pid=222) INFO 11-21 11:16:19 [shm_broadcast.py:705] No available"
        " shared memory broadcast block"
        f" found in 60 seconds.\n(EngineCore pid=222) TimeoutError: RPC call to"
        f" sample_tokens timed out.\n{DEAD}",
        "undetermined",
        [],
    ),
    "SGLang's watchdog": (
        "[2026-11-21 00:57:15 TP4] Watchdog timeout (self.watchdog_timeout=300)\n"
        "[2026-11-21 00:57:15 TP6] Watchdog timeout (self.watchdog_timeout=300)\n"
        "[2026-11-21 00:57:20] Received sigquit from a child process. It usually means the"
        " child failed.\nKilled\n",
        "undetermined",
        [],
    ),
    "an exception in SGLang": (
        "[2026-11-21 00:57:15 TP2] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/sgl/scheduler.py", line 1, in run\n    step()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has"
        " a total capacity of\n"
        "[2026-11-21 00:57:20] Received sigquit from a child process. It usually means the"
        " child failed.\nKilled\n",
        "peer_cuda_oom",
        [2],
    ),
    "HCCL could not connect": (
        raised(1, "RuntimeError: InnerRunOpApi OPS function error: HcclAllreduce, error code is 6")
        + "[rank1]: EI0006: [PID: 1292363] 2026-11-21-18:07:20.444.436 Getting socket times out. Reason:"
        " Remote Rank did not send the data in time.\n",
        "undetermined",
        [],
    ),
    "amdgpu's reset": (
        "Nov 21 10:00:00 n1 kernel: amdgpu 0000:c5:00.0: amdgpu: GPU reset begin!. Source:  3\n",
        "gpu_hardware_xid",
        ["n1"],
    ),
    "ROCm out of memory": (
        "[rank3]: RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB.\n",
        "peer_cuda_oom",
        [3],
    ),
    "three of four came": (
        "[rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting"
        " for clients. 3/4 clients"
        " joined.\n",
        "network_socket_interface",
        [],
    ),
    "a port that is taken": (
        "[W1121 10:00:00.1 socket.cpp:462] [c10d] The server socket has failed to bind to [::]:29444 (errno:"
        " 98 - Address already in use).\n"
        "[E1121 10:00:00.2 socket.cpp:500] [c10d] The server socket has failed to listen on any local network"
        " address.\n",
        "network_socket_interface",
        [],
    ),
    "an exception with a rank for a label": (
        'Traceback (most recent call last):\n  File "/job/optim.py", line 9, in step\n    assert finite\n'
        "AssertionError: Rank 21: the gradient is not finite\n",
        "user_code_exception",
        [21],
    ),
    "an exception in a page's marks": (
        'Traceback (most recent call last):\n  File "/job/load.py", line 9, in load\n    read()\n'
        "**### ValueError: 3 files are short**\n",
        "user_code_exception",
        [],
    ),
    "other parameters": (
        "RuntimeError: DDP expects same model across all ranks, but Rank 2 has 88 params, while rank 5 has"
        " inconsistent 86 params.\n",
        "collective_mismatch",
        [],
    ),
    "parameters of other sizes": (
        "RuntimeError: [Rank 1]: params[7] in this process with sizes [64, 3] appears not to match sizes"
        " [32, 3] of the same param in process 0.\n",
        "collective_mismatch",
        [],
    ),
    "a coordinator that does not answer": (
        "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: failed to connect to all addresses; last error:"
        " UNKNOWN: ipv4:10.0.0.7:8476: Failed to connect to remote host: Connection refused\n",
        "network_socket_interface",
        [],
    ),
    "a key that nobody set": (
        "E0000 00:00:1743713172.513857 42 client.cc:307] Execution of replica 0 failed: DEADLINE_EXCEEDED:"
        " GetKeyValue() timed out with key: cuda:gemm_cache and duration: 5m\n",
        "undetermined",
        [],
    ),
    "a network plug-in": (
        "ip-10-0-0-4:31:87 [2] nccl_net_ofi_init_ep:88 NCCL WARN NET/OFI Could not open endpoint. RC: -12,"
        " ERROR: Cannot allocate memory\n",
        "network_ib",
        ["ip-10-0-0-4"],
    ),
    "a container that ended": (
        "Error pod bert-worker-3 container pytorch exitCode: 2 terminated message: \n",
        "undetermined",
        [],
    ),
    "a container that ends again and again": (
        "NAME            READY   STATUS             RESTARTS   AGE\n"
        "bert-worker-1   0/1     CrashLoopBackOff   6          9m\n",
        "undetermined",
        [],
    ),
    "a stall of Horovod's": (
        "[1,0]<stderr>:[2026-11-21 10:00:00.851506: W horovod/common/operations.cc:588] grads_7 [missing"
        " ranks: 6]\n",
        "cpu_stuck_or_slow_rank",
        [6],
    ),
    "a stall of Horovod's, one line for each rank": (
        steps(1, 20)
        + "[2026-11-21 10:00:00.1: W horovod/common/stall_inspector.cc:107] One or more tensors were"
        " submitted by a subset of ranks.\nMissing ranks:\n2: [Broadcast_3, Broadcast_4]\n"
        "5: [allreduce.w, grads.b ...]\n",
        "cpu_stuck_or_slow_rank",
        [2, 5],
    ),
    "Horovod shut down": (
        "2026-11-21 10:00:00.5: W tensorflow/core/op_kernel.cc:1318] Aborted: Horovod has been shut down."
        " This was caused by an exception on one of the ranks.\n",
        "undetermined",
        [],
    ),
    "mpirun saw an end": (
        "mpirun detected that one or more processes exited with non-zero status, thus causing the job to be"
        " terminated.\n",
        "undetermined",
        [],
    ),
    "a division by zero in native code": (
        "(TrainWorker pid=77) [rank3]: *** SIGFPE received at time=1792345 on cpu 3 ***\n"
        "(TrainWorker pid=77) [rank3]: Fatal Python error: Floating point exception\n",
        "peer_died",
        [3],
    ),
    "a list of ends that is cut": (
        "Failures:\n[1]:\n  time      : 2026-11-21_10:02:58\n  rank      : 5 (local_rank: 5)\n"
        "  exitcode  : 1 (pid: 105)\n[2]:\n  time      : 2026-11-21_10:03:29\n"
        "  rank      : 0 (local_rank: 0)\n  exitcode  : -9 (pid: 100)\n",
        "undetermined",
        [],
    ),
    "an exception of any name": (
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/job/q.py", line 3, in take\n'
        "[rank1]:     get()\n[rank1]: _queue.Empty\n",
        "user_code_exception",
        [1],
    ),
    "a kernel of another build": (
        "[rank0]: torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised: RuntimeError: Triton"
        " Error [CUDA]: device kernel image is invalid\n",
        "version_mismatch",
        [0],
    ),
    "a process with another Ray than its cluster": (
        raised(2, "RuntimeError: Version mismatch: The cluster was started with:")
        + "[rank2]:     Ray: 2.40.0\n[rank2]:     Python: 3.10.14\n"
        + "[rank2]: This process on node 10.0.4.13 was started with:\n[rank2]:     Ray: 2.38.0\n",
        "version_mismatch",
        [2],
    ),
    "the head of a notebook's traceback": (
        "OutOfMemoryError                          Traceback (most recent call last)\n"
        "/tmp/ipykernel_7/11.py in <cell line: 0>()\n",
        "peer_cuda_oom",
        [],
    ),
    "a desync report of a rank that did not come": (
        "[rank1]:[E1121 10:00:00.1 ProcessGroupNCCL.cpp:1936] Rank 1\n"
        "\t - [1] Timeout at collective: ALLREDUCE, #41\n\t - To our best knowledge, the"
        " lagging/dead/mismatched ranks that caused the desync are:\n"
        "\t   - [3] finished collective #40, but didn't join collective #41 (count from 1)\n",
        "cpu_stuck_or_slow_rank",
        [3],
    ),
    "a memory limit that was only touched": (
        "slurmstepd: error: Exceeded step memory limit at some point.\n" + raised(1, "ValueError: bad shard"),
        "user_code_exception",
        [1],
    ),
    "DeepEP waits for tokens, on the host": (
        raised(9, "RuntimeError: DeepEP error: timeout (dispatch CPU)")
        + raised(11, "RuntimeError: DeepEP error: CPU recv timeout"),
        "undetermined",
        [],
    ),
    "DeepEP waits for tokens, in a kernel": (
        "DeepEP timeout check failed: rank = 4, thread = 0, value = 0)\n"
        "DeepEP timeout check failed: rank = 1, thread = 3, value = 512)\n"
        "DeepEP dispatch NVL receiver timeout, channel: 3, RDMA: 0, nvl: 2, src RDMA: 1\n",
        "undetermined",
        [],
    ),
    "NVSHMEM finds no interface": (
        "/build/modules/bootstrap/uid/bootstrap_uid.cpp:bootstrap_net_init:160: No socket interface found\n"
        "/build/host/init/init.cu:269: non-zero status: 7 bootstrap pre-initialization failed\n",
        "network_socket_interface",
        [],
    ),
    "NVSHMEM has no transport": (
        "/build/host/transport/transport.cpp:nvshmemi_transport_init:287: Unable to initialize any"
        " transports. returning error.\n/build/host/init/init.cu:989: nvshmem detect topo failed\n",
        "network_ib",
        [],
    ),
    "NVSHMEM reaches no GPU of another node": (
        "/build/host/topo/topo.cpp:469: [GPU 2] Peer GPU 8 is not accessible, exiting ...\n",
        "network_ib",
        [],
    ),
    "another program answers NCCL": (
        "node-1:852:2808 [0] misc/socket.cc:441 NCCL WARN socketFinalizeAccept: wrong type 4 != 3\n",
        "network_socket_interface",
        [],
    ),
    "NCCL's InfiniBand transport compares sizes": (
        "node-1:1307:2586 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 10.1.3.6<58683>"
        " collective mismatch error, local size 8192 remote size 4096\n",
        "collective_mismatch",
        [],
    ),
    "Open MPI meets a firewall": (
        "A process or daemon was unable to complete a TCP connection\nto another process:\n"
        "  Local host:    node-1\n  Remote host:   node-2\n",
        "network_socket_interface",
        [],
    ),
    "a device buffer of JAX": (
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to"
        " allocate 5.12G. That was not possible. There are 1.75G free.; (0x0x0_HBM0)\n",
        "peer_cuda_oom",
        [],
    ),
    "a pod on a node that is not ready": (
        "Warning  NodeNotReady  pod/train-worker-3  Node is not ready\n",
        "peer_died",
        [],
    ),
    "TRL's server is away": (
        raised(0, "ConnectionError: The vLLM server can't be reached at http://10.1.1.4:8000 after 240.0 s")
        + raised(
            1,
            "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving"
            " ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error:"
            " Connection reset by peer",
        ),
        "user_code_exception",
        [0],
    ),
}
