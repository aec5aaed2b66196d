"""Measure the latency, throughput and resource use of the job service.

    python benchmarks/service.py [--quick]

The API runs in separate processes, over SQLite and, if PostgreSQL is installed, over a PostgreSQL
server that the benchmark starts. Requests go over HTTP on the loopback interface, from this
process.

submits        8 connections; each submits a job when its last one was accepted; with one API
               process over SQLite, and with two and one over PostgreSQL
to coordinator the time from a submit until a simulated scheduler has the job, with a reconciler
process, one job after another
list           pages of 50 of a project with 100,000 finished jobs, from the newest to the oldest,
               with filters in turns (10,000 with --quick)
logs           a rank's log of 5 GB (256 MB with --quick): its last 100 lines, and responses of 4
               MiB
log lag        200 clients follow a rank that prints a line per second: the delay of the lines
event lag      200 clients follow the events of a job that changes twice per second, which a
               reconciler process publishes: the delay of the events. For both lags, what happens
               before every client has received something counts as start-up, and is reported
               separately
reconcile      1,000 running jobs on 20 simulated clusters, each with a new record every second: the
               time of a pass, and the reconciler's share of a core and its memory (100 jobs on 4
               clusters with --quick); then it is killed, and another one takes over

The load generator and the service share this machine's cores. The last line is JSON, with the
goals, whether they were met, and the server's processor time per request.
"""

import argparse
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.service_bench.events import event_followers
from benchmarks.service_bench.logs import followers, large_log
from benchmarks.service_bench.reconciling import reconcile, to_coordinator
from benchmarks.service_bench.requests import fill, lists, submits
from benchmarks.service_bench.server import ROOT, Served, folder, served

AT_LEAST = {
    "sqlite submits/s": 100.0,
    "postgresql submits/s": 500.0,
    "log MB/s": 100.0,
}
BELOW = {
    "sqlite submit p99 s": 0.1,
    "postgresql submit p99 s": 0.1,
    "submit to coordinator, worst s": 1.0,
    "list p99 s": 0.05,
    "list page bytes": 100_000.0,
    "log tail p99 s": 0.1,
    "sqlite log lag p99 s": 1.0,
    "sqlite event lag p99 s": 1.0,
    "postgresql log lag p99 s": 1.0,
    "postgresql event lag p99 s": 1.0,
    "reconcile pass p99 s": 2.0,
    "reconcile core %": 20.0,
    "reconcile RSS MiB": 300.0,
    "take-over s": 20.0,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer jobs, smaller logs, less time")
    quick = parser.parse_args().quick
    scale = {
        "submit_s": 4.0 if quick else 20.0,
        "listed_jobs": 10_000 if quick else 100_000,
        "log_bytes": 256 * 10**6 if quick else 5 * 10**9,
        "followers": 200,
        "follow_s": 6.0 if quick else 30.0,
        "reconciled_jobs": 100 if quick else 1000,
        "clusters": 4 if quick else 20,
        "reconcile_s": 10.0 if quick else 60.0,
    }
    figures: dict[str, float] = {}
    notes: list[str] = []
    over_http(scale, figures, quick)
    over_postgresql(scale, figures, notes)
    reconciling(scale, figures, quick)
    met = {name: figures[name] >= goal for name, goal in AT_LEAST.items() if name in figures}
    met |= {name: figures[name] < goal for name, goal in BELOW.items() if name in figures}
    print_table(figures, met)
    print(
        json.dumps(
            {
                "benchmark": "service",
                "quick": quick,
                "scale": scale,
                "notes": notes,
                "load_1min": round(os.getloadavg()[0], 1),
                "figures": {name: round(value, 4) for name, value in figures.items()},
                "goals": {"at_least": AT_LEAST, "below": BELOW},
                "met": met,
                "all_met": all(met.values()) and len(met) == len(AT_LEAST) + len(BELOW),
            }
        )
    )


def over_http(scale: dict[str, Any], figures: dict[str, float], quick: bool) -> None:
    with folder() as place, served(place) as at:
        taken = submits(at, scale["submit_s"])
        figures["sqlite submits/s"] = taken["per_s"]
        figures["sqlite submit p99 s"] = taken["p99_s"]
        figures["sqlite submit, server's CPU s"] = taken["server_cpu_s"]
        fill(at, scale["listed_jobs"])
        pages = lists(at, scale["submit_s"])
        figures["list p99 s"] = pages["p99_s"]
        figures["list, server's CPU s"] = pages["server_cpu_s"]
        figures["list page bytes"] = pages["page_bytes"]
        large = large_log(at, scale["log_bytes"], tails=20 if quick else 100)
        figures["log tail p99 s"] = large["tail_p99_s"]
        figures["log MB/s"] = large["mb_per_s"]
        lags(at, place, "sqlite", scale, figures)
    with folder() as place:
        arrived = to_coordinator(place, 5 if quick else 30)
        figures["submit to coordinator, worst s"] = arrived["worst_s"]


def over_postgresql(scale: dict[str, Any], figures: dict[str, float], notes: list[str]) -> None:
    sys.path.append(str(ROOT / "tests" / "support"))
    from real_postgres import Postgres, why_absent

    absent = why_absent()
    if absent is not None:
        notes.append(absent)
        return
    with ExitStack() as stack:
        server = stack.enter_context(Postgres())
        place = stack.enter_context(folder())
        with served(place, server.new_database()) as at:
            taken = submits(at, scale["submit_s"])
            lags(at, place, "postgresql", scale, figures)
        place, url = stack.enter_context(folder()), server.new_database()
        one = submits(stack.enter_context(served(place, url, processes=1)), scale["submit_s"])
    figures["postgresql submits/s"] = taken["per_s"]
    figures["postgresql, 1 API process, submits/s"] = one["per_s"]
    figures["postgresql, 1 API process, submit p99 s"] = one["p99_s"]
    figures["postgresql submit p99 s"] = taken["p99_s"]
    figures["postgresql submit, server's CPU s"] = taken["server_cpu_s"]


def lags(
    at: Served, place: Path, database: str, scale: dict[str, Any], figures: dict[str, float]
) -> None:
    logs = followers(at, scale["followers"], scale["follow_s"])
    events = event_followers(at, place, scale["followers"], scale["follow_s"])
    for name, found in (("log", logs), ("event", events)):
        figures[f"{database} {name} start p99 s"] = found["start_p99_s"]
        figures[f"{database} {name} lag p99 s"] = found["lag_p99_s"]


def reconciling(scale: dict[str, Any], figures: dict[str, float], quick: bool) -> None:
    with folder() as place:
        found = reconcile(place, scale["reconciled_jobs"], scale["clusters"], scale["reconcile_s"])
    figures["reconcile pass p99 s"] = found["pass_p99_s"]
    figures["reconcile core %"] = found["core_pct"]
    figures["reconcile RSS MiB"] = found["rss_mib"]
    figures["take-over s"] = found["take_over_s"]


def print_table(figures: dict[str, float], met: dict[str, bool]) -> None:
    goals = {name: f"at least {goal:g}" for name, goal in AT_LEAST.items()}
    goals |= {name: f"below {goal:g}" for name, goal in BELOW.items()}
    print(f"{'':34}{'measured':>12}  {'goal':16} met")
    for name, goal in goals.items():
        if name in figures:
            print(f"{name:34}{figures[name]:12.3f}  {goal:16} {'yes' if met[name] else 'no'}")
        else:
            print(f"{name:34}{'-':>12}  {goal:16} not measured")


if __name__ == "__main__":
    main()
