"""Multiply matrices on every GPU: TFLOP/s, and whether repeats and GPUs give the same bits; needs torch.

    python gemm.py [SIZE [cpu]]

One line of JSON; `cpu` measures the processor in place of GPUs, to try the program out. Equal GPUs that run
the same kernel on the same data must give the same bits; one that does not computes wrongly without raising
an error. Runs on Python 3.8.
"""

from __future__ import annotations

import importlib
import json
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REPEATS = 20


def main() -> None:
    """Run as a program."""
    size, cpu = options(sys.argv[1:])
    try:
        torch = importlib.import_module("torch")
        devices = ["cpu"] if cpu else [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    except Exception as error:
        print(json.dumps({"error": "no-torch", "text": f"{type(error).__name__}: {error}"}))
        return
    if not devices:
        built = f"torch {torch.__version__}, built for CUDA {torch.version.cuda}"
        print(json.dumps({"error": "no-gpu", "text": f"{built}, sees no GPU"}))
        return
    torch.manual_seed(7)
    first, second = (torch.randn(size, size).to(torch.bfloat16) for _ in range(2))
    document: dict[str, Any] = {
        "gpus": [measured(torch, *numbered, first, second) for numbered in enumerate(devices)]
    }
    print(json.dumps({**document, "members": members(document)}))


def members(value: Any) -> int:
    """As in plain_json.py, which a foreign interpreter does not have."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return sum(1 + members(member) for member in inner)


def measured(torch: Any, index: int, device: str, first: Any, second: Any) -> dict[str, Any]:
    """One GPU: its speed, its name, and a sum over the bits of each repeat."""
    gpu: dict[str, Any] = {"index": index}
    try:
        gpu["name"] = device if device == "cpu" else torch.cuda.get_device_name(device)
        lhs, rhs = first.to(device), second.to(device)
        sums = {bits(torch, lhs @ rhs) for _ in range(3)}
        wait(torch, device)
        began = time.monotonic()
        for _ in range(REPEATS):
            lhs @ rhs
        wait(torch, device)
        took = time.monotonic() - began
    except Exception as error:
        return {**gpu, "error": f"{type(error).__name__}: {str(error)[:500]}"}
    tflops = 2 * lhs.shape[0] ** 3 * REPEATS / took / 1e12
    return {**gpu, "tflops": round(tflops, 3), "sums": sorted(sums)}


def wait(torch: Any, device: str) -> None:
    """Until the GPU has done what it was given."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def options(words: list[str]) -> tuple[int, bool]:
    """The size, and whether the processor is meant; exits when they make no sense."""
    size = words[0] if words else "8192"
    if words[1:] not in ([], ["cpu"]) or not size.isdecimal() or not 0 < int(size) <= 65536:
        sys.exit(__doc__)
    return int(size), words[1:] == ["cpu"]


def bits(torch: Any, result: Any) -> int:
    """A sum that changes with nearly any change of a bit."""
    words = result.view(torch.int16).to(torch.int64).flatten()
    weights = torch.arange(words.numel(), device=words.device) % 65521 + 1
    return int((words * weights).sum().item())


if __name__ == "__main__":
    main()
