"""Writes a bench as one self-contained HTML page with plots."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from distrain.diagnostics.bench.results import Bench, Measure, bench_json
from distrain.diagnostics.bench.summary import headline, quantity, summary_lines
from distrain.diagnostics.bench.verdict import BenchVerdict
from distrain.runs.report.figures import image_of, new_figure
from distrain.runs.report.markup import page, section, svg_image, table, verbatim
from distrain.storage.outputs import whole_file


def write_bench(bench: Bench, verdict: BenchVerdict, folder: Path) -> None:
    """Write the document, `bench.json`, and the page, `bench.html`, into a folder."""
    with whole_file(folder / "bench.json") as partial:
        partial.write_text(json.dumps(bench_json(bench), indent=1) + "\n", encoding="utf-8")
    write_bench_page(bench, verdict, folder / "bench.html")


def write_bench_page(bench: Bench, verdict: BenchVerdict, out: Path) -> None:
    text = page("distrain bench", _sections(bench, verdict))
    with whole_file(out) as partial:
        partial.write_text(text, encoding="utf-8")


def _sections(bench: Bench, verdict: BenchVerdict) -> list[str]:
    sections = [
        f"<h1>distrain bench: {'PASS' if verdict.passed else 'FAIL'}</h1>",
        section(headline(verdict), verbatim("\n".join(summary_lines(bench, verdict)[1:]))),
    ]
    if bench.steps:
        sections.append(section("Steps by ranks", _image(_draw_steps(bench), "Rows/s by ranks")))
    if verdict.limits:
        figure = _draw_limits(verdict)
        sections.append(section("What a step takes", _image(figure, "Seconds by resource")))
    for name, group in _sized(bench).items():
        sections.append(section(name, _image(_draw_sizes(group), f"{name} by size")))
    rows = [
        (m.name, m.place, m.size_bytes or "", quantity(m.median, m.unit), len(m.values))
        for m in bench.measures
    ]
    header = ("measure", "place", "bytes", "median", "repetitions")
    sections.append(section("All measures", table(rows, header)))
    nodes = [(key, value) for node in bench.inventory for key, value in node.items()]
    if nodes:
        sections.append(section("Inventory", table(nodes)))
    return sections


def _sized(bench: Bench) -> dict[str, list[Measure]]:
    groups: dict[str, list[Measure]] = defaultdict(list)
    for measure in bench.measures:
        if measure.size_bytes:
            groups[measure.name].append(measure)
    return {name: g for name, g in groups.items() if len({m.size_bytes for m in g}) > 1}


def _draw_sizes(group: list[Measure]) -> Any:
    figure = new_figure(11, 3.4)
    axes = figure.subplots()
    places: dict[str, list[Measure]] = defaultdict(list)
    for measure in sorted(group, key=lambda m: m.size_bytes):
        places[measure.place].append(measure)
    for place, measures in places.items():
        sizes = [m.size_bytes for m in measures]
        label = place if place and len(places) <= 8 else None
        axes.plot(sizes, [m.median for m in measures], marker="o", markersize=4, label=label)
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel=group[0].unit)
    axes.grid(alpha=0.25)
    if len(places) <= 8 and all(places):
        axes.legend(frameon=False, fontsize="small")
    return figure


def _draw_steps(bench: Bench) -> Any:
    figure = new_figure(11, 3.4)
    axes = figure.subplots()
    for scaling in ("weak", "strong"):
        steps = sorted((s for s in bench.steps if s.scaling == scaling), key=lambda s: s.ranks)
        if not steps:
            continue
        ranks = [step.ranks for step in steps]
        (line,) = axes.plot(ranks, [step.rate for step in steps], marker="o", label=scaling)
        even = [steps[0].rate * step.ranks / steps[0].ranks for step in steps]
        axes.plot(ranks, even, linestyle="--", linewidth=0.8, color=line.get_color())
    axes.set(xlabel="ranks", ylabel="rows/s, all ranks; dashed: efficiency of 1")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return figure


def _draw_limits(verdict: BenchVerdict) -> Any:
    assert verdict.limits is not None
    resources = verdict.limits.resources
    figure = new_figure(11, 0.8 + 0.4 * len(resources))
    axes = figure.subplots()
    axes.barh([r.resource for r in resources], [1e3 * r.seconds for r in resources])
    axes.invert_yaxis()
    axes.set_xlabel("ms of a step")
    return figure


def _image(figure: Any, text: str) -> str:
    return svg_image(image_of(figure), text)
