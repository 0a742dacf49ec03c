"""What the planner finds in made-up clusters: `python tests/bench/pairs.py` prints the table.

Noise is 5 % of the rate, a round takes five seconds, leaves have 16 nodes (3 of 8).
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from pairs_world import LEAF, World, minutes

from nodedoctor.pairs.model import pair

KINDS = (
    "healthy",
    "0.7",
    "0.5",
    "0.1",
    "corrupt",
    "filtered",
    "late",
    "dies",
    "path 0.5",
    "path loss 2 %",
    "group 0.3",
)


def sicken(world: World, kind: str, count: int) -> set[str]:
    """Make some sick; the short names of what must be found."""
    mixed = world.chance.sample(world.nodes, min(len(world.nodes), 2 * count))
    if kind.startswith("path"):
        pairs = [pair(mixed[2 * i], mixed[2 * i + 1]) for i in range(count)]
        table = world.lossy if "loss" in kind else world.paths
        table.update(dict.fromkeys(pairs, 0.02 if "loss" in kind else 0.5))
        return {f"{a}:{b}" for a, b in pairs}
    if kind.startswith("group"):
        leaves = world.chance.sample(sorted(set(world.leaf.values()))[:-1], count)
        world.leaves.update(dict.fromkeys(leaves, 0.3))
        return set(leaves)
    for place, name in enumerate(mixed[:count] if kind != "healthy" else []):
        if kind == "corrupt":
            world.corrupt.add(name)
        elif kind == "late":
            world.late.add(name)
        elif kind == "filtered":
            world.closed.add(name)
        elif kind == "dies":
            world.dies[name] = 1 + place
        else:
            world.share[name] = float(kind)
    return set() if kind == "healthy" else set(mixed[:count])


def main() -> None:
    """Print a row for each size, kind and number of faults."""
    print("nodes fault          count runs put in found invented rounds minutes")
    for size, runs in ((8, 20), (64, 20), (512, 5)):
        for kind in KINDS:
            for count in (1, 5):
                if (kind == "healthy" and count > 1) or (size == 8 and count == 5):
                    continue
                if kind.startswith("group") and count * (3 if size == 8 else LEAF) * 2 > size:
                    continue
                put = found = invented = 0
                most = 0
                for seed in range(runs):
                    world = World(size, seed=seed, leaf=3 if size == 8 else LEAF)
                    sick = sicken(world, kind, count)
                    _, seen, _, rounds = world.run(topology=kind.startswith("group"))
                    named = {culprit.where for culprit in seen.culprits}
                    put, found = put + len(sick), found + len(sick & named)
                    invented += len(named - sick)
                    most = max(most, rounds)
                row = f"{size:5} {kind:<14} {count:5} {runs:4} {put:6} {found:5} {invented:8}"
                print(f"{row} {most:6} {minutes(most):7.1f}")


if __name__ == "__main__":
    main()
