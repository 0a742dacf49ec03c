"""Ask the nodes of a Ray cluster, from the Python that has Ray: each node by one task that is pinned to it.

    python ray_fleet.py ADDRESS

Every line it says is an object behind MARK. First `{"nodes": [...]}`, or `{"error": KIND, "text": ...}`; then
it reads one errand, `{"script", "file_script", "file", "lacks", "seconds", "hosts"}`, and answers with one
object a node as its task ends. The errand `{"talk": SCRIPT}` instead holds a line to each node: what comes
as `{"node", "data"}` is written to the script there, and `{"node", "lines"}` is what it prints, null when it
has ended. It ends when its reader is gone: when its stdin ends.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import sys
import threading
import time
from typing import Any

MARK = "@nodedoctor "
EXPECTED = (1, 4)  # NodeDeathInfo.Reason in Ray's gcs.proto: left on purpose, or was idle and scaled away
MOST = 4 * 1024 * 1024  # bytes of a report, as command.py keeps
MOST_SAID = 4096


def main() -> None:
    """Connect, tell the nodes, run the errand."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        tell(error="no-ray", text=f"{error}")
        return
    address = sys.argv[1]
    if address == "auto" and os.environ.get("RAY_ADDRESS"):
        address = os.environ["RAY_ADDRESS"]
    try:
        options: dict[str, Any] = (
            {} if "://" in address else {"log_to_driver": False, "logging_level": "ERROR"}
        )
        ray.init(address=address, namespace="nodedoctor", **options)
        tell(nodes=nodes(ray.nodes()), ray=ray.__version__)
    except Exception as error:  # Ray raises what it likes, and says in it what is wrong
        tell(error="no-cluster", text=f"{type(error).__name__}: {error}"[-2000:])
        return
    errand = json.loads(sys.stdin.readline() or "{}")
    if "talk" in errand:
        relay_lines(ray, errand["talk"])
        return
    threading.Thread(target=leave_with_parent, daemon=True).start()
    if errand:
        run(ray, errand)


def tell(**fields: Any) -> None:
    """Say one object in one write."""
    sys.stdout.write(f"{MARK}{json.dumps(fields)}\n")
    sys.stdout.flush()


def leave_with_parent() -> None:
    """End at once when stdin does; Ray then ends our tasks, and they what they started."""
    sys.stdin.read()
    os._exit(0)


def nodes(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What Ray knows of nodes. Of dead ones only those that were not removed on purpose and are not back."""
    alive = [node for node in entries if node.get("Alive")]
    back = {place(node) for node in alive}
    dead = {
        place(node): node
        for node in entries
        if not node.get("Alive") and node.get("DeathReason") not in EXPECTED and place(node) not in back
    }
    return [
        {
            "id": node["NodeID"],
            "name": str(node.get("NodeName") or ""),
            "hostname": str(node.get("NodeManagerHostname") or ""),
            "address": str(node.get("NodeManagerAddress") or ""),
            "alive": bool(node.get("Alive")),
            "why": str(node.get("DeathReasonMessage") or "")[:500],
        }
        for node in [*alive, *dead.values()]
    ]


def place(node: dict[str, Any]) -> tuple[Any, Any]:
    """What a node that has come back has in common with its former self."""
    return node.get("NodeManagerHostname"), node.get("NodeManagerAddress")


def run(ray: Any, errand: dict[str, Any]) -> None:
    """Start one task on each node and tell what comes; nodes that lack nodedoctor are brought the file."""
    strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
    task = ray.remote(on_node)
    file = ray.put(base64.b64decode(errand["file"])) if errand["file"] else b""

    def start(node: str, script: str, brought: Any) -> Any:
        pinned = strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        options = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": pinned, "name": "nodedoctor"}
        return task.options(**options).remote(script, brought, errand["seconds"])

    running = {start(node, errand["script"], b""): (node, False) for node in errand["hosts"]}
    while running:
        done, _ = ray.wait(list(running), num_returns=1)
        for reference in done:
            node, brought = running.pop(reference)
            try:
                answer = ray.get(reference)
            except Exception as error:  # of a task: the node died, the worker crashed, it cannot be placed
                tell(node=node, lost=f"{type(error).__name__}: {error}"[:2000])
                continue
            if file and not brought and answer["rc"] == 127 and errand["lacks"] in answer["errors"]:
                running[start(node, errand["file_script"], file)] = (node, True)
            else:
                tell(node=node, **answer)


def relay_lines(ray: Any, script: str) -> None:
    """Hand lines to and fro between stdin and an actor on each node that is spoken to; ends with stdin."""
    strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
    groups = {"say": 1, "hear": 1}  # each in order, and neither waits for the other
    actor_class = ray.remote(num_cpus=0, max_restarts=0, concurrency_groups=groups)(held_on_node())
    actors: dict[str, Any] = {}
    fresh: list[str] = []

    def read() -> None:
        for line in sys.stdin:
            message = json.loads(line)
            node = message["node"]
            if node not in actors:
                pinned = strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=False)
                actors[node] = actor_class.options(scheduling_strategy=pinned).remote(script)
                fresh.append(node)
            actors[node].say.options(concurrency_group="say").remote(base64.b64decode(message["data"]))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    hearing: dict[Any, str] = {}
    while True:
        while fresh:
            node = fresh.pop()
            hearing[actors[node].observe.options(concurrency_group="hear").remote()] = node
        if not hearing:
            time.sleep(0.02)
            continue
        for reference in ray.wait(list(hearing), num_returns=1, timeout=0.1)[0]:
            node = hearing.pop(reference)
            try:
                lines = ray.get(reference)
            except Exception as error:  # the node died, the worker crashed, it cannot be placed
                tell(node=node, lines=None, lost=f"{type(error).__name__}: {error}"[:2000])
                continue
            tell(node=node, lines=lines)
            if lines is not None:
                hearing[actors[node].observe.options(concurrency_group="hear").remote()] = node


def held_on_node() -> Any:
    """The class of the actor; what it needs is imported inside, because Ray ships it."""

    class Held:
        """A script on the node whose stdin stays open for as long as the actor lives."""

        def __init__(self, script: str) -> None:
            import os
            import queue
            import subprocess
            import threading

            pipe = subprocess.PIPE
            env = dict(os.environ)
            for name in (
                "CUDA_VISIBLE_DEVICES",
                "OMP_NUM_THREADS",
            ):  # Ray's, for a task that asks for neither
                env.pop(name, None)
            argv = ["/bin/sh", "-c", script]
            self.child: Any = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd="/")
            self.said: Any = queue.Queue()
            self.ended = 0

            def read(number: int, source: Any) -> None:
                for line in source:
                    self.said.put([number, line.decode("utf-8", "replace").rstrip("\n")])
                self.said.put(None)

            for number, source in ((1, self.child.stdout), (2, self.child.stderr)):
                threading.Thread(target=read, args=(number, source), daemon=True).start()

        def say(self, data: bytes) -> None:
            """Tell the script something."""
            import contextlib

            with contextlib.suppress(OSError):
                self.child.stdin.write(data)
                self.child.stdin.flush()

        def observe(self) -> Any:
            """What it has said since, waiting a second for the first of it; None when it has ended."""
            import queue

            lines: list[Any] = []
            try:
                lines.append(self.said.get(timeout=1.0))
                while True:
                    lines.append(self.said.get_nowait())
            except queue.Empty:
                pass
            self.ended += lines.count(None)
            lines = [line for line in lines if line is not None]
            return lines if lines or self.ended < 2 else None

    return Held


def on_node(script: str, brought: bytes, seconds: float) -> dict[str, Any]:
    """Run the script there, until its time is over. What it needs is imported here, because Ray ships it.

    It gets the environment of the raylet, because Ray hides GPUs and sets OMP_NUM_THREADS for a task that
    asks for neither. Its stdin stays open until it is done: the script ends nodedoctor when we are killed.
    """
    import base64
    import contextlib
    import os
    import signal
    import subprocess
    import threading
    import time
    import zlib

    began = time.monotonic()
    env = dict(os.environ)
    with contextlib.suppress(OSError), open(f"/proc/{os.getppid()}/environ", "rb") as file:
        pairs = (item.partition(b"=") for item in file.read().split(b"\0") if b"=" in item)
        env = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs} or env
    pipe = subprocess.PIPE
    argv = ["/bin/sh", "-c", script]
    child: Any = subprocess.Popen(
        argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd="/", start_new_session=True
    )
    outputs: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}

    def read(number: int, source: Any, most: int) -> None:
        for data in iter(lambda: source.read1(65536), b""):
            outputs[number] += data
            del outputs[number][:-most]

    def write() -> None:
        with contextlib.suppress(OSError):
            child.stdin.write(b"held\n" + brought)
            child.stdin.flush()

    readers = [
        threading.Thread(target=read, args=(1, child.stdout, MOST), daemon=True),
        threading.Thread(target=read, args=(2, child.stderr, MOST_SAID), daemon=True),
    ]
    for thread in (*readers, threading.Thread(target=write, daemon=True)):
        thread.start()
    over = False
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        over = True
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            child.stdin.close()
            child.wait(1.0)
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
    for thread in readers:
        thread.join(0.5)
    return {
        "rc": child.poll(),
        "text": base64.b64encode(zlib.compress(bytes(outputs[1]))).decode(),
        "errors": bytes(outputs[2]).decode("utf-8", "replace"),
        "seconds": round(time.monotonic() - began, 3),
        "over": over,
    }


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # Ray's own goodbye waits for nodes that do not answer
