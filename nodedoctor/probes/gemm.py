"""Multiply matrices on every GPU: TFLOP/s, and whether repeats and GPUs give the same bits; needs torch.

    python gemm.py [SIZE]

One line of JSON. Equal GPUs that run the same kernel on the same data must give the same bits; one that does
not computes wrongly without raising an error. Runs on Python 3.8.
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
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 8192
    try:
        torch = importlib.import_module("torch")
        count = torch.cuda.device_count()
    except Exception as error:
        print(json.dumps({"error": "no-torch", "text": f"{type(error).__name__}: {error}"}))
        return
    torch.manual_seed(7)
    one, other = (torch.randn(size, size).to(torch.bfloat16) for _ in range(2))
    print(json.dumps({"gpus": [measured(torch, index, one, other) for index in range(count)]}))


def measured(torch: Any, index: int, one: Any, other: Any) -> dict[str, Any]:
    """One GPU: its speed, its name, and a sum over the bits of each repeat."""
    said: dict[str, Any] = {"index": index, "name": torch.cuda.get_device_name(index)}
    try:
        with torch.cuda.device(index):
            left, right = one.cuda(), other.cuda()
            sums = {bits(torch, left @ right) for _ in range(3)}
            torch.cuda.synchronize()
            begun = time.monotonic()
            for _ in range(REPEATS):
                left @ right
            torch.cuda.synchronize()
            took = time.monotonic() - begun
    except Exception as error:
        return {**said, "error": f"{type(error).__name__}: {str(error)[:500]}"}
    tflops = 2 * left.shape[0] ** 3 * REPEATS / took / 1e12
    return {**said, "tflops": round(tflops, 1), "sums": sorted(sums)}


def bits(torch: Any, result: Any) -> int:
    """A sum that changes with nearly any change of a bit."""
    words = result.view(torch.int16).to(torch.int64).flatten()
    weights = torch.arange(words.numel(), device=words.device) % 65521 + 1
    return int((words * weights).sum().item())


if __name__ == "__main__":
    main()
