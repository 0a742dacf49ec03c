"""What runs on a node while pairs are measured: it reads JSON objects on stdin, a line each, and answers so.

It ends when its stdin ends, when it has heard nothing for `quiet` seconds, or by a command; with it end
the children that move the data, each of which has an alarm of its own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from nodedoctor.pairs.on_node import collective, node, rdma, tcp, tied

MARK = "@nodedoctor "
MEASURED_BY = {
    "tcp": tcp.measured,
    "rails": tcp.measured,
    "rdma": rdma.measured,
    "collective": collective.measured,
}


def send_answer(**answer: object) -> None:
    """One answer, as one line in one write."""
    line = (MARK + json.dumps(answer) + "\n").encode()
    while line:
        line = line[os.write(1, line) :]


class Agent:
    """The listeners and children of the round, and what came on stdin so far."""

    def __init__(self) -> None:
        self.listeners: dict[str, socket.socket] = {}
        self.children: dict[int, tuple[int, int, str]] = {}
        self.address = ""
        self.quiet = 30.0
        self.heard = time.monotonic()
        self.rest = b""

    def run(self) -> None:
        """Until stdin ends, or is silent for too long."""
        try:
            while time.monotonic() - self.heard < self.quiet:
                ready, _, _ = select.select([0, *self.children], [], [], 1.0)
                for pipe in ready:
                    if pipe:
                        self.ended(pipe)
                    elif not self.observe():
                        return
        finally:
            self.clear()

    def observe(self) -> bool:
        """Do what was said; False when that was to end."""
        data = os.read(0, 1 << 16)
        if not data:
            return False
        self.heard = time.monotonic()
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            command = json.loads(line.decode())
            if command["do"] == "end":
                return False
            if command["do"] != "beat":
                getattr(self, command["do"])(command)
        return True

    def hello(self, command: dict[str, Any]) -> None:
        """Say who we are, and what can be measured here."""
        self.quiet = command["quiet"]
        self.address = node.toward(command["toward"])
        name = node.interface(self.address) if self.address else ""
        version = ".".join(map(str, sys.version_info[:2]))
        gbps = node.link_gbps(name)
        methods = {
            "collective": collective.able,
            "rdma": rdma.able,
            "auto": rdma.able,
            "rails": node.able,
            "tcp": dict,
        }
        able: dict[str, Any] = methods[command["what"]]()
        if command["what"] == "auto":
            able.pop("unable", None)
        send_answer(
            is_="ready",
            interfaces=len(node.rails()),
            address=self.address,
            interface=name,
            link_gbps=gbps,
            busy=node.busy(),
            python=version,
            **able,
        )

    def ping(self, command: dict[str, Any]) -> None:
        """Say that we are here."""
        send_answer(is_="pong", round=command["round"])

    def open(self, command: dict[str, Any]) -> None:
        """Listen for the partners of a round, each on a port of its own."""
        self.clear()
        ports = {}
        for flow in command["flows"]:
            address, device = command.get("rails", {}).get(flow) or (self.address, "")
            listener = socket.socket(
                socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM
            )
            try:
                node.bind_to(listener, device)
                listener.bind((address, 0))
                listener.listen(16)
            except OSError as error:
                send_answer(is_="trouble", round=command["round"], note=str(error))
                continue
            self.listeners[flow] = listener
            ports[flow] = listener.getsockname()[1]
        send_answer(is_="open", round=command["round"], ports=ports)

    def go(self, command: dict[str, Any]) -> None:
        """Start a child for each flow."""
        parent = os.getpid()
        for flow in command["flows"]:
            listener = self.listeners.get(flow["flow"]) if "from" in flow else None
            ours, theirs = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    signal.alarm(int(command["limit"]) + 2)
                    tied.orphaned(parent)
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
                    os.dup2(0, 1)  # what torch and NCCL print is no answer of ours
                    answer = MEASURED_BY[command["what"]](
                        listener,
                        flow,
                        flow.get("bound") or self.address,
                        command["seconds"],
                        command["size"],
                        command["limit"],
                    )
                except Exception as error:
                    answer = {"fault": "error", "note": f"{type(error).__name__}: {error}"}
                answer.update(round=command["round"], flow=flow["flow"])
                os.write(theirs, json.dumps(answer).encode())
                os._exit(0)
            os.close(theirs)
            self.children[ours] = (pid, command["round"], flow["flow"])
        self.close()

    def ended(self, pipe: int) -> None:
        """Send what a child found."""
        data = os.read(pipe, 1 << 16)
        pid, place, flow = self.children.pop(pipe)
        os.close(pipe)
        os.waitpid(pid, 0)
        answer = json.loads(data.decode()) if data else {"fault": "hang", "round": place, "flow": flow}
        send_answer(is_="result", **answer)

    def close(self) -> None:
        """Listen no longer."""
        for listener in self.listeners.values():
            listener.close()
        self.listeners.clear()

    def clear(self) -> None:
        """End whatever is left of a round."""
        self.close()
        for pipe, (pid, _, _) in self.children.items():
            os.kill(pid, signal.SIGKILL)
            os.close(pipe)
            os.waitpid(pid, 0)
        self.children.clear()


def main() -> None:
    """Serve until the end of stdin; a signal ends the children too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    Agent().run()
