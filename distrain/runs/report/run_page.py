"""`distrain report`: writes a page about one run."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from distrain.formatting import (
    byte_size,
    command_line,
    count,
    duration,
    percent,
)
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.load import dump_yaml
from distrain.runs.report.figures import draw_curves, image_of, metric_curves, run_figures
from distrain.runs.report.markup import (
    columns,
    escaped,
    folded,
    page,
    paragraph,
    pictures_of,
    section,
    table,
    verbatim,
)
from distrain.runs.report.outcome import outcome_rows
from distrain.runs.run_data import BROKEN_OFF, RUNNING, RunData, read_run_to_show
from distrain.storage.outputs import atomic_file
from distrain.version import __version__

_FIGURE_TITLES = {
    "loss": "Loss",
    "auc": "AUC, with the error of its bins as a band",
    "reliability": "Reliability: predicted and observed rates of the last validation",
    "learning-rate": "Learning rate",
    "rows-per-second": "Rows per second",
    "time-over-rows": "Where the time went",
    "time-by-rank": "Where the time went, by rank",
}


def write_report(root: Path, out: Path) -> None:
    """Write the report of the run in `root` as one HTML file.

    Raises `InputError` if there is no run, and `OutputError` if the report cannot be written.
    """
    data = read_run_to_show(root)
    titles = {**metric_curves(data.records), **_FIGURE_TITLES}
    pictures = [
        section(titles[name], pictures_of([image_of(one) for one in figures], titles[name]))
        for name, figures in run_figures(data).items()
    ]
    outcome = section(
        "Outcome", columns(table([("state", data.state), *outcome_rows(data.outcome)]))
    )
    sections = [*_head(data), outcome, *pictures, *_tables(data)]
    with atomic_file(out) as partial:
        partial.write_text(page(data.spec.name, sections), encoding="utf-8")


def write_curves(root: Path) -> list[Path]:
    """Draw `curves.png` of the run in `root`; return its path in a list, or [] without records.

    Raises `InputError` if there is no run.
    """
    data = read_run_to_show(root)
    if not data.records:
        return []
    path = RunPaths(root).curves
    with atomic_file(path) as partial:
        draw_curves(data.records, data.name, partial, data.summary.get("model_step"))
    return [path]


def _head(data: RunData) -> Iterable[str]:
    yield f"<h1>{escaped(data.spec.name)}</h1>"
    about = f"{data.name}, {data.state}; begun {data.run.created}, distrain {data.run.version}"
    yield paragraph(about, "muted")
    if data.state == RUNNING:
        yield paragraph(f"The run has not ended{_last(data)}. This page shows its progress so far.")
    if data.state == BROKEN_OFF:
        yield paragraph(
            f"The run was interrupted without an outcome{_last(data)}: no process trains it now. "
            f"Resume it: {command_line('train', '--resume', data.root)}",
            "bad",
        )
    if data.problem():
        yield paragraph("Reason:", "bad") + verbatim(data.problem())


def _last(data: RunData) -> str:
    attempts = data.summary.get("attempts")
    return f"; attempt {attempts} was the last" if attempts else ""


def _tables(data: RunData) -> Iterable[str]:
    if data.restarts:
        restarts = [
            (s.get("attempt"), s.get("step"), duration(s.get("after_s")), s.get("reason"),
             (s.get("message") or "").partition("\n")[0])
            for s in data.restarts
        ]  # fmt: skip
        header = ("attempt", "after step", "after", "reason", "message")
        yield section("Restarts", table(restarts, header))
    yield section("Data", table(_data_rows(data)))
    yield section("Hardware", *_hardware(data))
    environment = data.run.environment
    packages = environment.get("packages", {})
    versions = [("Python", environment.get("python", "-")), *packages.items()]
    where = [("host", environment.get("host", "-")), ("system", environment.get("system", "-"))]
    yield section(
        "Environment",
        paragraph("The machine that first submitted the job.", "muted"),
        table([*where, *versions]),
    )
    spec = dump_yaml(data.spec.model_dump(mode="json", by_alias=True))
    yield section("Job spec, as resolved", folded("All settings", verbatim(spec)))
    yield paragraph(f"Written by distrain {__version__}.", "muted")


def _data_rows(data: RunData) -> list[tuple[str, object]]:
    last = data.train[-1] if data.train else None
    valid = data.valid[-1] if data.valid else None
    return [
        ("training rows", ", ".join(map(str, data.spec.data.train))),
        ("validation rows", ", ".join(map(str, data.spec.data.valid or ())) or "-"),
        ("epochs begun", count(last.epoch + 1 if last else 0)),
        ("rows trained", count(last.rows_total if last else 0)),
        ("rows validated", count(valid.rows if valid else None)),
    ]


def _hardware(data: RunData) -> Iterable[str]:
    environment = data.run.environment
    yield table(
        [
            ("CPU of the command's machine", environment.get("cpu", "-")),
            ("its cores", environment.get("cores", "-")),
            ("its memory", byte_size(environment.get("memory_bytes"))),
        ]
    )
    places: Sequence[Mapping[str, Any]] = data.summary.get("places", ())
    peaks: Sequence[Mapping[str, Any]] = data.summary.get("peak_memory", ())
    stalls: Sequence[float] = data.summary.get("stall_pct") or ()
    ranks = [
        (
            rank,
            place.get("host", "-"),
            place.get("device", "-"),
            place.get("hardware") or "-",
            byte_size(_at(peaks, rank, {}).get("host_bytes")),
            byte_size(_at(peaks, rank, {}).get("device_bytes") or None),
            percent(_at(stalls, rank, None)),
        )
        for rank, place in enumerate(places)
    ]
    if ranks:
        header = ("rank", "host", "device", "hardware", "peak host memory", "peak device memory",
                  "waiting for data")  # fmt: skip
        yield table(ranks, header)
    else:
        yield paragraph("The ranks' hosts are known once all ranks have started.", "muted")


def _at(values: Sequence[Any], index: int, default: Any) -> Any:
    return values[index] if index < len(values) else default
