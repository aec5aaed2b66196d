"""Measure what watching a run costs its scheduler and its training.

    python benchmarks/views.py [--quick]

**The scheduler.** Simulated ranks report to a real coordinator and its monitor, without a network:
64 ranks with 5 reports of steps per second for 10 minutes of simulated time, and 1,024 ranks with
one per second for the same time; each also sends a heartbeat per second. Every simulated second all
documents are read as JSON, the curves by their cursor, as an open page and `distrain top` do. 5
times per second `distrain train` polls for news, and every 15 seconds Prometheus scrapes. The
figure is the processor time of this thread, which runs the scheduler's event loop, per simulated
second:

    take in   parsing the reports, lifecycle, merging their metrics: also without any view
    keep      the monitor's processing of the reports
    show      the documents as JSON, the responses to `distrain train`, and the scrapes

Memory is the pickled size of what the monitor keeps, and the memory of the process. Reports of
65,536 rows, typical of GPUs, are measured too. "Dask" is the time that Dask needs to receive as
many messages from as many streams, in real time, without processing them
(`views_bench/streams.py`); it comes on top.

**The training.** The views of one run on a real local cluster are opened and closed in turns of
some seconds: a page of the dashboard on a websocket, JSON once per second, `distrain top`, and a
scrape every 5 s. The figure compares rows/s with views and without, as the median over pairs of
turns. The run has one rank less than there are cores, because the viewers run on this machine too
(`views_bench/training.py`).
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.views_bench.simulation import Simulated, simulate
from benchmarks.views_bench.streams import Received, receive
from benchmarks.views_bench.training import Watched, watch_training

SIMULATED_S, QUICK_SIMULATED_S = 600, 20
CASES = ((64, 5, 1024), (1024, 1, 1024))
LARGE_REPORTS = (64, 5, 65_536)
EVENT_LOOP_GOAL_PCT = 5.0
GROWTH_GOAL_PCT = 2.0
TRAINING_GOAL_PCT = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less time, simulated and real")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    options = parser.parse_args()
    quick = options.quick
    simulated = []
    for case in (*CASES, LARGE_REPORTS):
        simulated.append(simulate(*case, QUICK_SIMULATED_S if quick else SIMULATED_S))
        print(of_scheduler(simulated[-1]), flush=True)
    received = [receive(*case, 6.0 if quick else 20.0) for case in CASES]
    for each in received:
        print(of_dask(each), flush=True)
    watched = watch_training(turns=4 if quick else 12, turn_s=5.0 if quick else 10.0)
    print(of_training(watched), flush=True)
    figures = summary(simulated[: len(CASES)], received, watched)
    if options.json:
        details = {
            "simulated": [asdict(each) for each in simulated],
            "received": [asdict(each) for each in received],
            "training": asdict(watched),
        }
        options.json.write_text(json.dumps({**figures, **details}, indent=1) + "\n")
    print(json.dumps(figures))


def of_scheduler(case: Simulated) -> str:
    """Return the lines on a simulation."""
    parts = ", ".join(f"{name} {pct:.2f} %" for name, pct in case.event_loop_pct.items())
    half, end = case.held_bytes[len(case.held_bytes) // 2 - 1], case.held_bytes[-1]
    return (
        f"{case.num_ranks:5} ranks, {case.reports_per_s} reports/s of {case.rows:,} rows each, "
        f"{case.simulated_s} s: {case.total_pct:.2f} % of the event loop ({parts})\n"
        f"      the monitor keeps {case.kept_bytes[-1] / 2**20:.2f} MiB; the process holds "
        f"{half / 2**20:.0f} MiB half-way, {end / 2**20:.0f} MiB at the end"
    )


def of_dask(case: Received) -> str:
    """Return the line on Dask's own cost."""
    return (
        f"{case.num_ranks:5} streams, {case.messages_per_s:,.0f} messages/s: Dask takes "
        f"{case.receive_pct:.2f} % of the event loop (idle: {case.idle_pct:.2f} %)"
    )


def of_training(watched: Watched) -> str:
    """Return the lines on the training."""
    pairs = ", ".join(f"{pct:.2f}" for pct in watched.cost_pct)
    return (
        f"{watched.num_ranks} rank(s), {len(watched.cost_pct)} pairs of {watched.turn_s:g} s: "
        f"{watched.rows_per_s_alone:,.0f} rows/s without views, "
        f"{watched.rows_per_s_watched:,.0f} with all open\n"
        f"      they cost {watched.median_cost_pct:.2f} %; by pair: {pairs}"
    )


def summary(
    simulated: list[Simulated], received: list[Received], watched: Watched
) -> dict[str, object]:
    """Return the last line: every figure with its goal."""
    figures: dict[str, tuple[float, float]] = {}
    for case in simulated:
        name = f"{case.num_ranks} ranks at {case.reports_per_s} Hz"
        figures[f"event loop, {name}, %"] = (case.total_pct, EVENT_LOOP_GOAL_PCT)
        figures[f"memory growth in the second half, {name}, %"] = (
            case.growth_pct,
            GROWTH_GOAL_PCT,
        )
    figures["training slower with all views open, %"] = (
        watched.median_cost_pct,
        TRAINING_GOAL_PCT,
    )
    met = {name: value < goal for name, (value, goal) in figures.items()}
    return {
        "benchmark": "views",
        "figures": {
            name: {"value": round(value, 3), "goal": f"< {goal:g}", "met": met[name]}
            for name, (value, goal) in figures.items()
        },
        "dask_receives_pct": [round(each.receive_pct, 2) for each in received],
        "met": all(met.values()),
    }


if __name__ == "__main__":
    main()
