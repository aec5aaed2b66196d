"""Turns measurements into records, a table and a plot."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.step_bench.cases import FBGEMM, MACHINE, OURS, SPARSE, TORCHREC
from benchmarks.step_bench.floors import rates
from benchmarks.step_bench.roofline import step_cost
from benchmarks.step_bench.turns import Measured

Record = dict[str, Any]
COLOURS = {OURS: "#3b6fb6", SPARSE: "#edae49", FBGEMM: "#66a182", TORCHREC: "#8d5a97"}


def records_of(
    results: Sequence[Measured], facts: Mapping[str, Mapping[str, float]]
) -> list[Record]:
    """Return a record for each contender, with the minimum time by the roofline.

    Args:
        results: Those of one comparison at one batch size, including the machine's rates.
        facts: For each kind of data `table_rows`, and `distinct_rows` of a rank's batch.
    """
    (machine,) = (each for each in results if each.entry.who == MACHINE)
    machine_s = machine.median_phases_s()
    records = []
    for each in results:
        if each is machine:
            continue
        setup, known = each.entry.setup, facts[each.entry.data]
        bytes_per_s, flops_per_s = rates(machine_s, setup)
        rates_told = {"copy_gb_per_s": bytes_per_s / 1e9, "matrix_gflops_per_s": flops_per_s / 1e9}
        cost = step_cost(setup, each.batch_rows, known["distinct_rows"])
        floor_s = cost.floor_s(bytes_per_s, flops_per_s)
        step_s = statistics.median(each.step_s)
        records.append(
            {"comparison": each.comparison, "name": each.entry.name, "who": each.entry.who}
            | asdict(setup)
            | {"batch_rows_per_rank": each.batch_rows, **known}
            | {"rows_per_s": each.rows_per_s, "step_ms": step_s * 1e3}
            | {"step_ms_of_rounds": [seconds * 1e3 for seconds in each.step_s]}
            | {"cpu_ms": statistics.median(each.cpu_s) * 1e3}
            | {"phases_ms": {n: s * 1e3 for n, s in each.median_phases_s().items()}}
            | {"bytes_per_row": cost.bytes / each.batch_rows}
            | {"flops_per_row": cost.flops / each.batch_rows}
            | {"floor_ms": floor_s * 1e3, "of_roofline": floor_s / step_s}
            | {"bound": "memory" if floor_s == cost.bytes / bytes_per_s else "matrices"}
            | rates_told
            | each.counts
        )
    return [{key: rounded(value) for key, value in record.items()} for record in records]


def rounded(value: Any) -> Any:
    """Round floats to four significant digits, also in lists and dictionaries."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return {k: rounded(v) for k, v in value.items()} if isinstance(value, dict) else value


def print_heads() -> None:
    """Print the table's header."""
    print(
        f"{'':40}{'rows/rank':>10}{'rows/s':>13}{'ms':>9}{'CPU ms':>9}{'of roofline':>13}"
        f"{'ops':>6}{'kernels':>9}{'syncs':>7}  ms by phase"
    )


def print_records(records: Sequence[Record]) -> None:
    """Print a line per contender."""
    for record in records:
        phases = ", ".join(f"{name} {ms:.3g}" for name, ms in record["phases_ms"].items())
        print(
            f"  {record['name']:38}{record['batch_rows_per_rank']:>10,}"
            f"{record['rows_per_s']:>13,.0f}{record['step_ms']:>9.4g}{record['cpu_ms']:>9.4g}"
            f"{record['of_roofline']:>9.1%} {record['bound'][:3]}"
            f"{record['dispatched_ops']:>6}{or_na(record['kernels']):>9}"
            f"{or_na(record['host_syncs']):>7}  {phases}",
            flush=True,
        )


def or_na(value: Any) -> str:
    """Return "n/a" for a count that does not exist on a CPU."""
    return "n/a" if value is None else str(value)


def draw(records: Sequence[Record], path: Path) -> None:
    """Draw a bar per contender and batch size, in a panel per comparison, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(record["comparison"] for record in records))
    own = {name: [r for r in records if r["comparison"] == name] for name in names}
    heights = [1 + len(own[name]) for name in names]
    figure = Figure(figsize=(10, 0.8 + 0.3 * sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(names), 1, squeeze=False, height_ratios=heights)[:, 0]
    for name, axes in zip(names, panels, strict=True):
        bars = list(reversed(own[name]))
        labels = [f"{r['name']}, {r['batch_rows_per_rank'] // 1024}k" for r in bars]
        rates_m = [r["rows_per_s"] / 1e6 for r in bars]
        axes.barh(range(len(bars)), rates_m, color=[COLOURS[r["who"]] for r in bars])
        axes.set_yticks(range(len(bars)), labels, fontsize=8)
        for place, record in enumerate(bars):
            note = f" {rates_m[place]:.3g} ({record['of_roofline']:.0%} of its roofline)"
            axes.annotate(note, (rates_m[place], place), va="center", fontsize=7)
        axes.set_xlim(0, 1.35 * max(rates_m))
        axes.set_title(name, fontsize=9, loc="left")
    panels[-1].set_xlabel("million rows/s, all ranks together")
    figure.savefig(path, format="png", dpi=120)
