#!/usr/bin/env python3
"""Asks the gate of every node of a Ray cluster: may new work start there?

    node_probe.py [NEEDED]      one line a node; 0 when NEEDED nodes (default: all) may start work, else 2

`probe_nodes()` gives the same to a program: place workers on the nodes whose code is 0 or 3 (not judged).
"""

from __future__ import annotations

import subprocess
import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

NODEDOCTOR = "/usr/local/bin/nodedoctor"
SECONDS = 60
MAY_START = (0, 3)


@ray.remote(num_cpus=0, max_retries=0)
def ask_gate(command: str) -> tuple[int, str]:
    """What the gate of this node says; 3 where it cannot be asked."""
    try:
        done = subprocess.run([command, "--gate"], capture_output=True, text=True, timeout=SECONDS / 2)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return 3, f"UNKN: {problem}"
    return done.returncode, done.stdout.strip()


def probe_nodes(command: str = NODEDOCTOR) -> dict[str, tuple[str, int, str]]:
    """Host name, exit code and line of every living node, by its id; one that does not answer has code 2."""
    nodes = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    asked = {
        ask_gate.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
            command
        ): node
        for node in nodes
    }
    ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=SECONDS)
    answers = {node: (host, 2, "no answer") for node, host in nodes.items()}
    for answer in ready:
        try:
            answers[asked[answer]] = (nodes[asked[answer]], *ray.get(answer))
        except ray.exceptions.RayError as problem:  # the node or its worker ended meanwhile
            answers[asked[answer]] = (nodes[asked[answer]], 2, type(problem).__name__)
    return answers


def main() -> int:
    """Print the answers, one line a node; 0 when enough of them may start work."""
    ray.init(address="auto", log_to_driver=False)
    answers = probe_nodes()
    for node, (host, code, line) in sorted(answers.items(), key=lambda item: item[1]):
        print(node, host, code, line)
    good = sum(code in MAY_START for _, code, _ in answers.values())
    needed = int(sys.argv[1]) if sys.argv[1:] else len(answers)
    return 0 if good >= needed else 2


if __name__ == "__main__":
    sys.exit(main())
