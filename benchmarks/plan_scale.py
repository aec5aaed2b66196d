"""How far off are the step times that `distrain plan --machine` predicts?

    python benchmarks/plan_scale.py [--quick] [--rounds N] [--ranks 1 2 4] [--mbit 100 400]
                                    [--nice -10] [--machine-out FOLDER]

Each rank is a process in a network namespace of its own, on a link that sends 100 or 400 Mbit/s and
no faster. Measured for the machine file: one rank's steps of half and of twice the rows, the
processor time that two ranks take beyond one where links are free, a loader of one thread,
collectives of all ranks by `distrain bench`'s code, and how many cores ranks have that are busy at
the same time. More ranks than cores share them. What else runs on the machine takes its part, of
which `--nice -10` leaves it little.

Predicted from it and measured: steps of a DLRM on 1, 2 and 4 ranks. Only those of 1 rank are of
rows between two measured sizes; all others are of numbers of ranks and links that the machine
file's steps did not have. All of it comes in turns; medians count.

Needs root, `ip` and `tc`; says so and ends without them. The last line is JSON: machines' numbers,
figures, goals, and whether they are met.
"""

import argparse
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    os.environ["OMP_NUM_THREADS"] = "1"

import psutil
import yaml

from benchmarks.plan_scale_bench.hosts import ranks_on_hosts, why_not
from benchmarks.plan_scale_bench.machine import machine_document
from benchmarks.plan_scale_bench.measure import Found, Rounds, Sizes, phases_s, sent_bytes, step_s
from benchmarks.plan_scale_bench.result import Case, document, table
from benchmarks.plan_scale_bench.work import Orders, job, write_rows
from distrain.train.data.inputs import check_inputs
from distrain.train.planning.machine_file import load_machine
from distrain.train.planning.scale_plan import ScalePlan, plan_scale

FULL = Sizes(2048, 6, 5, 5, 2**19, 7, 0.5, (1, 2, 4), (100, 400))
QUICK = Sizes(2048, 4, 4, 2, 2**19, 4, 0.3, (1, 2, 4), (100, 400))
DATA_ROWS = 65_536


def main() -> None:
    options = parsed()
    if reason := why_not():
        print(json.dumps({"benchmark": "plan_scale", "skipped": reason}))
        return
    sizes = options.sizes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder, DATA_ROWS)
        with ranks_on_hosts(max(sizes.ranks), folder / "ranks.log") as (hosts, ranks):
            rounds = Rounds(hosts, ranks, Orders(hosts.here, folder), folder, sizes)
            ranks.hurry(options.nice)
            rounds.warm_up()
            for number in range(sizes.rounds):
                print(f"round {number + 1} of {sizes.rounds}", flush=True)
                rounds.one()
        cases, machines = compared(rounds, folder, options.machine_out or folder)
    print("\n".join(table(cases)))
    about = {"cores": psutil.cpu_count(), "rank_rows": sizes.rank_rows, "rounds": sizes.rounds}
    print(json.dumps(document(cases, machines, **about)))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and steps")
    parser.add_argument("--rounds", type=int, help="how often each is measured")
    parser.add_argument("--ranks", type=int, nargs="+", help="at least 1 and 2")
    parser.add_argument("--mbit", type=int, nargs="+", help="what links send, Mbit/s")
    parser.add_argument("--nice", type=int, default=0, help="priority of ranks, -20 the highest")
    parser.add_argument("--machine-out", type=Path, help="a folder for the machine files")
    options = parser.parse_args()
    found = QUICK if options.quick else FULL
    ranks = tuple(sorted({1, 2, *(options.ranks or found.ranks)}))
    mbits = tuple(options.mbit or found.mbits)
    rounds = options.rounds or found.rounds
    options.sizes = replace(found, ranks=ranks, mbits=mbits, rounds=rounds)
    return options


def compared(
    rounds: Rounds, data: Path, out: Path
) -> tuple[list[Case], dict[str, dict[str, float]]]:
    """The cases, and the machines that they were predicted for, by the links' rate."""
    sizes = rounds.sizes
    inputs = check_inputs(job(data, 1, sizes.rank_rows, 1, 1))
    machines, numbers, cases = {}, {}, []
    # What two ranks send for the dense part does not depend on the machine: any will do.
    two = plan_scale(job(data, 2, sizes.rank_rows, 1, 1), inputs, load_machine("h100-node"))
    how = f"benchmarks/plan_scale.py, {sizes.rounds} rounds"
    for mbit in sizes.mbits:
        measured = rounds.measured(mbit, len(inputs.schema.columns), two.work.dense_bytes)
        wanted = machine_document(measured, f"{psutil.cpu_count()} cores, {mbit} Mbit/s", how)
        path = out / f"machine-{mbit}.yaml"
        path.write_text(yaml.safe_dump(wanted, sort_keys=False))
        machines[mbit] = load_machine(str(path))
        numbers[str(mbit)] = {k: v["value"] for k, v in wanted.items() if isinstance(v, dict)}
    for ranks, mbit in sizes.cases:
        machine = machines[mbit or sizes.mbits[0]]
        plan = plan_scale(job(data, ranks, sizes.rank_rows, 1, 1), inputs, machine)
        cases.append(case_of(plan, mbit, rounds.found, sizes.rank_rows))
    return cases, numbers


def case_of(plan: ScalePlan, mbit: int, found: Found, rows: int) -> Case:
    """A prediction and what was measured."""
    ranks = plan.scale.num_ranks
    windows: list[dict[str, Any]] = found.steps[ranks, mbit, rows]
    return Case(
        ranks,
        mbit,
        plan.scale.step_s,
        step_s(windows),
        plan.scale.parts_s,
        phases_s(windows),
        sum(store.sent_bytes for store in plan.work.stores),
        sent_bytes(windows),
    )


if __name__ == "__main__":
    main()
