"""The minimal distributed program: collectives of rising size whose results are known; needs torch.

    python collective.py [--ranks 4] [--backend gloo|nccl] [--largest MIB] [--limit SECONDS]
                         [--ladder 2,4] [--isolate NAME=VALUE,...] [--fault die:2|absent:3|corrupt:1]

Prints one JSON document. Ranks get the environment torchrun gives them. A run that fails is repeated on the
numbers of ranks in `--ladder`; with `--isolate` also with one setting at a time. `--fault` makes a rank die,
stay away or alter a result, to see that it is reported. Runs on Python 3.8.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import re
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

WORDS = {"ranks": "4", "backend": "gloo", "largest": "16", "limit": "30"}
WORDS.update(dict.fromkeys(("ladder", "isolate", "fault"), ""))
KIB, MIB = 1024, 1024**2
LOG = 60000  # characters of NCCL's log that are handed on, of all ranks together
RANK_LOSS_WAIT_S = 3.0  # seconds for the others to notice that one rank is gone


def main() -> None:
    """Run as a program."""
    words = options(sys.argv[1:])
    began = time.monotonic()
    os.environ.setdefault("NCCL_DEBUG", "INFO")
    os.environ.setdefault("NCCL_DEBUG_SUBSYS", "INIT,NET,ENV,GRAPH,P2P,SHM")
    try:
        torch = importlib.import_module("torch")  # imported once; ranks are forked and share it
        importlib.import_module("torch.distributed")
    except Exception as error:
        print(json.dumps({"error": "no-torch", "text": f"{type(error).__name__}: {error}"}))
        return
    runs = list(all_runs(torch, words))
    seconds = round(time.monotonic() - began, 2)
    document: dict[str, Any] = {"torch": torch.__version__, "runs": runs, "seconds": seconds}
    print(json.dumps({**document, "members": members(document)}))


def members(value: Any) -> int:
    """As in plain_json.py, which a foreign interpreter does not have."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return sum(1 + members(member) for member in inner)


def all_runs(torch: Any, words: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The run that was asked for; if it fails the smaller ones, then one per setting on as few as fail."""
    ranks, least = int(words["ranks"]), int(words["ranks"])
    first = run(torch, words, ranks)
    yield first
    if first["ok"]:
        return
    for fewer in [int(word) for word in words["ladder"].split(",") if word]:
        if fewer < ranks:
            smaller = run(torch, words, fewer)
            yield smaller
            least = least if smaller["ok"] else min(least, fewer)
    for setting in filter(None, words["isolate"].split(",")):
        yield run(torch, words, least, setting)


def run(torch: Any, words: dict[str, str], ranks: int, setting: str = "") -> dict[str, Any]:
    """One job of some ranks, to its end or to the limit."""
    port = free_port()
    pipes: dict[int, int] = {}
    pids: dict[int, int] = {}
    for rank in range(ranks):
        reader, writer = os.pipe()
        pids[rank] = os.fork()
        if pids[rank] == 0:
            os.close(reader)
            be_rank(torch, words, rank, ranks, port, writer, setting)
        os.close(writer)
        pipes[reader] = rank
    lines, exits = follow(pipes, pids, float(words["limit"]))
    about = {"ranks": ranks, "backend": words["backend"], "setting": setting}
    return {**about, **summary(lines, exits, ranks)}


def follow(
    pipes: dict[int, int], pids: dict[int, int], limit: float
) -> tuple[dict[int, list[str]], dict[int, int | None]]:
    """What ranks write until all are gone, one of them was lost, or the limit."""
    end, text = time.monotonic() + limit, dict.fromkeys(pipes.values(), b"")
    exits: dict[int, int | None] = {}
    while pipes and time.monotonic() < end:
        for reader in select.select(list(pipes), [], [], 0.05)[0]:
            part = os.read(reader, 65536)
            text[pipes[reader]] += part
            if not part:
                os.close(reader)
                del pipes[reader]
        for rank in set(pids) - set(exits):
            done, status = os.waitpid(pids[rank], os.WNOHANG)
            if done:
                exits[rank] = status
                end = min(end, time.monotonic() + RANK_LOSS_WAIT_S) if status else end
    for rank in set(pids) - set(exits):
        os.kill(pids[rank], signal.SIGKILL)
        give_up(pids[rank])
        exits[rank] = None
    for reader in pipes:
        os.close(reader)
    return {rank: output.decode("utf-8", "replace").split("\n") for rank, output in text.items()}, exits


def give_up(pid: int) -> None:
    """Wait a moment for a killed rank; one that cannot be killed is left behind."""
    end = time.monotonic() + 1
    while time.monotonic() < end:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.02)


def summary(lines: dict[int, list[str]], exits: dict[int, int | None], ranks: int) -> dict[str, Any]:
    """What became of each rank, and the operations all of them did."""
    rows: dict[int, list[dict[str, Any]]] = {}
    logs: list[str] = []
    for rank, own in lines.items():
        rows[rank] = [json.loads(line[1:]) for line in own if line.startswith("\x1e{") and line.endswith("}")]
        logs.append(ends("\n".join(line for line in own if "NCCL" in line), LOG // ranks))
    at = {rank: ([row["at"] for row in own if "at" in row] or ["start"])[-1] for rank, own in rows.items()}
    died = [r for r in at if exits.get(r) and at[r] != "error"]
    errors = {r: row["error"] for r, own in rows.items() for row in own if "error" in row}
    wrong = [dict(row, rank=r) for r, own in rows.items() for row in own if row.get("ok") is False]
    done = [r for r in at if at[r] == "end"]
    return {
        "ok": len(done) == ranks and not wrong,
        "died": [{"rank": r, "how": how(exits[r] or 0), "at": at[r]} for r in died],
        "absent": [r for r in at if at[r] == "start" and exits[r] is None],
        "waiting": {r: at[r] for r in at if exits[r] is None and at[r] not in ("start", "end")},
        "errors": errors,
        "wrong": wrong,
        "operations": [row for row in rows.get(0, ()) if "busbw_gbytes_s" in row],
        "log": "" if len(done) == ranks and not wrong else "\n".join(logs),
    }


def ends(text: str, most: int) -> str:
    """The beginning (version, interface, network plug-in) and the end (what failed) of a long log."""
    if len(text) <= most:
        return text
    head = text[: most // 3].rpartition("\n")[0]
    tail = text[len(text) - (most - most // 3) :].partition("\n")[2]
    return f"{head}\n[{len(text) - len(head) - len(tail)} characters left out]\n{tail}"


def how(status: int) -> str:
    """How a process ended, in words."""
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.WEXITSTATUS(status)}"


def be_rank(
    torch: Any, words: dict[str, str], rank: int, ranks: int, port: int, writer: int, setting: str
) -> NoReturn:
    """A rank: everything it prints, NCCL's log too, goes to the pipe; never returns."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: do not outlive the parent
    os.dup2(writer, 1)
    os.dup2(writer, 2)
    fault, _, faulty = words["fault"].partition(":")
    fault = fault if faulty == str(rank) else ""
    if setting:
        name, _, value = setting.partition("=")
        os.environ[name] = value
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )  # fmt: skip
    try:
        if fault == "absent":
            time.sleep(86400)
        collectives(torch, words, rank, ranks, fault)
        tell(at="end")
    except Exception as error:
        tell(error=f"{type(error).__name__}: {str(error)[:2000]}")
        tell(at="error")
        os._exit(1)
    os._exit(0)


def collectives(torch: Any, words: dict[str, str], rank: int, ranks: int, fault: str) -> None:
    """Join, then every operation at rising sizes; each result is compared with what it must be."""
    import datetime

    gpu = words["backend"] == "nccl"
    device = f"cuda:{rank}" if gpu else "cpu"
    if gpu:
        torch.cuda.set_device(rank)
    tell(at="joining")
    limit = datetime.timedelta(seconds=float(words["limit"]))
    torch.distributed.init_process_group(words["backend"], rank=rank, world_size=ranks, timeout=limit)
    size = 4 * KIB
    while size <= int(words["largest"]) * MIB:
        for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast"):
            tell(at=f"{name} of {pretty(size)}")
            if fault == "die" and size > 4 * KIB:
                os.kill(os.getpid(), signal.SIGKILL)
            one_operation(torch, name, size, rank, ranks, device, fault)
        size *= 64
    torch.distributed.destroy_process_group()


def one_operation(torch: Any, name: str, size: int, rank: int, ranks: int, device: str, fault: str) -> None:
    """Do it twice, the second time against the clock, and tell how fast and whether right."""
    count = size // 4 // ranks
    ones = (torch.arange(count * ranks, device=device) % 251).float()
    for _ in range(2):
        tensor, wanted, work = prepared(torch, name, ones, count, rank, ranks)
        wait(torch, device)
        began = time.monotonic()
        work()
        wait(torch, device)
        took = time.monotonic() - began
    if fault == "corrupt" and name == "all_reduce":
        tensor[count // 2] += 1
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}.get(name, (ranks - 1) / ranks)
    speed = ones.numel() * 4 / max(took, 1e-9) / 1e9 * factor  # nccl-tests, doc/PERFORMANCE.md
    right = bool(torch.equal(tensor, wanted))
    tell(operation=name, bytes=ones.numel() * 4, busbw_gbytes_s=round(speed, 3), ok=right)


def prepared(
    torch: Any, name: str, ones: Any, count: int, rank: int, ranks: int
) -> tuple[Any, Any, Callable[[], Any]]:
    """Where the result lies after the call, what it must be, and the call."""
    dist, total = torch.distributed, ranks * (ranks + 1) / 2
    mine = ones + (rank + 1)
    if name == "all_reduce":
        return mine, ones * ranks + total, lambda: dist.all_reduce(mine)
    if name == "broadcast":
        return mine, ones + 1, lambda: dist.broadcast(mine, 0)
    if name == "all_gather":
        parts = [torch.empty_like(mine[:count]) for _ in range(ranks)]
        out = torch.empty_like(ones)
        wanted = torch.cat([ones[:count] + (r + 1) for r in range(ranks)])

        def gather() -> None:
            dist.all_gather(parts, mine[:count].contiguous())
            torch.cat(parts, out=out)

        return out, wanted, gather
    out = torch.empty_like(mine[:count])
    wanted = (ones * ranks + total)[rank * count : (rank + 1) * count]
    pieces = list(mine.chunk(ranks))
    return out, wanted, lambda: dist.reduce_scatter(out, pieces)


def wait(torch: Any, device: str) -> None:
    """Until the GPU has done what it was given."""
    if device != "cpu":
        torch.cuda.synchronize()


def tell(**values: Any) -> None:
    """One line to the parent, marked so that no other output is taken for it."""
    os.write(1, ("\n\x1e" + json.dumps(values) + "\n").encode())


def pretty(size: int) -> str:
    """Bytes as KiB or MiB."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def options(words: list[str]) -> dict[str, str]:
    """`--name value` pairs; exits 2 when they make no sense."""
    values = dict(WORDS)
    for name, value in zip(words[::2], words[1::2]):  # noqa: B905 - Python 3.8
        if not re.match("--", name) or name[2:] not in values:
            sys.exit(f"{__doc__}\nunknown option {name}")
        values[name[2:]] = value
    return values


if __name__ == "__main__":
    main()
