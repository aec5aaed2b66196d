"""Plots of the report."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Document = Mapping[str, Any]
BLUE, GREY = "#3b6fb6", "#c7c7c7"


def pictures(document: Document) -> dict[str, Callable[[Path], None]]:
    """Return the plots for which the report has data: file names, and functions that draw them."""
    made: dict[str, Callable[[Path], None]] = {}
    rates = next((s["rates"] for s in document["stages"] if s.get("rates")), None)
    if rates:
        made["rates.png"] = lambda path: draw_rates(rates, document["rehearsal"], path)
    records = [record for stage in document["stages"] for record in stage.get("records", ())]
    if records:
        made["step.png"] = lambda path: draw_steps(records, path)
    return made


def draw_steps(records: list[dict[str, Any]], path: Path) -> None:
    """Plot the rows/s of every contender, and its share of what the machine allows."""
    from benchmarks.step_bench.result import draw

    draw(records, path)


def draw_rates(rates: Mapping[str, Any], rehearsal: bool, path: Path) -> None:
    """Plot the rates of copies and matrix products."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    copies = {
        f"within the {'GPU' if rates['device'] == 'cuda' else 'CPU'}": rates["copy_bytes_per_s"],
        "host to GPU": rates.get("to_device_bytes_per_s"),
        "GPU to host": rates.get("from_device_bytes_per_s"),
    }
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    bars(left, {name: rate / 1e9 for name, rate in copies.items() if rate}, "GB/s", log=True)
    products = {name: rate / 1e12 for name, rate in rates["flops_per_s"].items()}
    bars(right, products, f"TFLOP/s, {rates['rows']}³", log=False)
    left.set_title("copies")
    right.set_title("products of matrices")
    if rehearsal:
        figure.suptitle("a rehearsal on a CPU: no figure of a GPU", color="#d1495b")
    figure.savefig(path, format="png", dpi=120)


def bars(axes: Any, rates: Mapping[str, float], label: str, log: bool) -> None:
    """Draw a labelled bar for each rate."""
    names = list(rates)
    drawn = axes.barh(names, [rates[name] for name in names], color=BLUE)
    axes.bar_label(drawn, fmt="{:,.3g}", padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    if log:  # GPU memory is a hundred times as fast as the bus to it
        axes.set_xscale("log")
        axes.set_xlim(1, 5 * max(rates.values()))
    else:
        axes.set_xlim(0, 1.2 * max(rates.values()))
    axes.grid(axis="x", color=GREY, alpha=0.4)
    axes.set_axisbelow(True)
