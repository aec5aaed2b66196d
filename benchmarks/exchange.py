"""Measure what a rank sends in a step, in how many messages, and the host's time for each peer.

    python benchmarks/exchange.py [--quick] [--ranks 2 4 8 16] [--rows 512] [--steps 5]
                                  [--placements replicated row_wise mixed]

Gloo ranks with one thread each train an MLP over 26 tables of width 16 on this machine, on 2, 4, 8
and 16 ranks, also if there are fewer cores. Their process groups count each collective operation
and the bytes that the rank sends in it: one group for training (rows, sums, dense gradients), one
for routes (counts, ids). The number of rows is per rank, so more ranks have more rows in total.

messages   of a rank in a step, per group; independent of the number of ranks
KB sent    by a rank in a step, the mean over ranks and steps; `empty`: in steps in which no rank
           has rows, so that only counts and dense gradients are sent
host ms    processor time of a rank's process in a step, with gloo's threads; medians. With more
           ranks than cores it includes switches between processes.
ms/peer    by how much this time grows with each further peer: the slope of a line through the times

The last line is JSON: figures, goals, and whether they are met. There are no goals for times.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from benchmarks.exchange_bench import gang

SIZES = (2, 4, 8, 16)
MOST_SQUARE_BYTES = 1024


def main() -> None:
    options = parsed()
    found: dict[str, list[dict[str, Any]]] = {placement: [] for placement in options.placements}
    with tempfile.TemporaryDirectory() as folder:
        for placement, sizes in found.items():
            print(f"\n{placement}\n{HEADER}")
            for num_ranks in options.ranks:
                steps = gang.run_gang(
                    Path(folder), num_ranks, placement, options.rows, options.steps
                )
                sizes.append(figures(num_ranks, steps))
                print(line(sizes[-1]), flush=True)
    grown = {placement: growth(sizes) for placement, sizes in found.items()}
    for placement, growing in grown.items():
        print(f"{placement}: {growing['host_ms_per_peer']:.3f} ms/peer")
    reached = goals(found, grown)
    about = {name: getattr(options, name) for name in ("ranks", "rows", "steps")}
    print(
        json.dumps(
            {
                "benchmark": "exchange",
                **about,
                "figures": found,
                "growth": grown,
                "goals": {"messages_grow": 0, "square_bytes": MOST_SQUARE_BYTES, "untold_bytes": 0},
                "met": reached,
            }
        )
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--rows", type=int, default=512, help="rows of each rank's batch")
    parser.add_argument("--steps", type=int, default=5, help="steps of each kind")
    known = list(gang.PLACEMENTS)
    parser.add_argument("--placements", nargs="+", default=known, choices=known)
    parser.add_argument("--quick", action="store_true", help="64 rows, 2 steps of each kind")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.steps = 64, 2
    return options


HEADER = (
    f"{'ranks':>5} {'messages: training':>19} {'routes':>7} {'KB sent':>9} {'of it dense':>12} "
    f"{'empty':>7} {'route ms':>9} {'step ms':>8}"
)


def line(of: dict[str, Any]) -> str:
    """Return a row of the table."""
    training, routes = of["messages"]
    return (
        f"{of['num_ranks']:5} {training:19} {routes:7} {of['sent_bytes'] / 1e3:9.1f} "
        f"{of['dense_bytes'] / 1e3:12.1f} {of['empty_bytes'] / 1e3:7.1f} {of['route_ms']:9.2f} "
        f"{of['step_ms']:8.2f}"
    )


def figures(num_ranks: int, told: list[list[gang.Step]]) -> dict[str, Any]:
    """Return the figures over all steps and ranks of a gang.

    `untold_bytes` is the largest difference between the bytes that a rank sent in a step and those
    that the route's traffic and the dense gradients account for.

    Raises:
        RuntimeError: Two steps of a kind, or two ranks, called different numbers of operations.
    """
    full, empty = (gang.of_kind(told, kind) for kind in gang.KINDS)
    # If no rank has rows, replicated tables gather none.
    messages, _ = (all_have({step.messages for step in steps}) for steps in (full, empty))
    return {
        "num_ranks": num_ranks,
        "messages": messages,
        "sent_bytes": mean(sum(step.sent_bytes) for step in full),
        "dense_bytes": full[0].dense_bytes,
        "empty_bytes": mean(sum(step.sent_bytes) for step in empty),
        "untold_bytes": max(
            abs(sum(step.sent_bytes) - step.told_bytes - step.dense_bytes) for step in full + empty
        ),
        "route_ms": round(gang.median_ms(full, "route_ms"), 3),
        "step_ms": round(gang.median_ms(full, "step_ms"), 3),
    }


def all_have(messages: set[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the only element of a set.

    Raises:
        RuntimeError: The set has several elements.
    """
    if len(messages) != 1:
        raise RuntimeError(f"ranks or steps of a kind have different messages: {messages}")
    return messages.pop()


def mean(values: Any) -> float:
    """Return the mean, rounded to whole bytes."""
    return float(round(np.mean(list(values))))


def growth(sizes: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return how figures grow with the number of ranks W.

    Returns:
        `host_ms_per_peer`: the slope of a line through the times. `square_bytes`: the quadratic
            term of a parabola through the bytes of empty steps, without dense gradients, at the
            largest W.
    """
    ranks = np.array([of["num_ranks"] for of in sizes], dtype=float)
    host_ms = [of["route_ms"] + of["step_ms"] for of in sizes]
    counts = [of["empty_bytes"] - of["dense_bytes"] for of in sizes]
    square = np.polyfit(ranks, counts, 2)[0] if len(sizes) > 2 else 0.0
    return {
        "host_ms_per_peer": round(float(np.polyfit(ranks, host_ms, 1)[0]), 4),
        "square_bytes": round(float(abs(square) * ranks.max() ** 2), 1),
    }


def goals(
    found: dict[str, list[dict[str, Any]]], grown: dict[str, dict[str, float]]
) -> dict[str, bool]:
    """Return for each goal whether all placements meet it."""
    return {
        "messages_grow": all(
            len({tuple(of["messages"]) for of in sizes}) == 1 for sizes in found.values()
        ),
        "square_bytes": all(of["square_bytes"] <= MOST_SQUARE_BYTES for of in grown.values()),
        "untold_bytes": all(of["untold_bytes"] == 0 for sizes in found.values() for of in sizes),
    }


if __name__ == "__main__":
    main()
