"""Converts jobs' JSON documents to the columns of figures; no I/O, no Bokeh."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrain.formatting import MAIN_METRICS, target_name
from distrain.jobs.events import PHASES
from distrain.runs.records.merging import phase_shares
from distrain.scheduler.history.ranks import is_straggler

Document = Mapping[str, Any]
Columns = dict[str, list[Any]]
Series = dict[str, NDArray[np.float64]]

TIMELINE_KINDS = ("notice", "validated", "checkpoint", "restart", "state")
GIB = 2.0**30


def train_series(train: Document) -> Series:
    """Return the columns of training curves; `train` is that key of a `metrics_document`.

    Unknown values are NaN. `auc` has the values of the column that `score_name` returns; the exact
    AUC is between `auc_low` and `auc_high`.
    """
    names = ("step", "elapsed_s", "rows_total", "rows_per_s", "loss", "auc", "auc_bound", "lr")
    return _scored(train, names)


def valid_series(valid: Document) -> Series:
    """Return the columns of validation curves; `valid` is that key of a `metrics_document`.

    They are those of `train_series`, without `rows_per_s` and `lr`.
    """
    return _scored(valid, ("step", "elapsed_s", "rows_total", "loss", "auc", "auc_bound"))


def score_name(points: Document) -> str:
    """Return the name of the column to draw: `auc`, or `TARGET.METRIC` for a job without an AUC.

    `points` are the columns of a curve. The result is the first of these columns that has a known
    value. If none has one, it is the first `TARGET.METRIC`, or `auc` if there is none.

    >>> score_name({"auc": [0.5], "a.rmse": [2.0]}), score_name({"auc": [None], "a.rmse": [2.0]})
    ('auc', 'a.rmse')
    >>> score_name({"auc": [None], "a.auc": [None], "b.rmse": [2.0]}), score_name({"a.auc": [None]})
    ('b.rmse', 'a.auc')
    """
    names = ["auc", *(name for name in points if "." in name)]
    known = {n: any(value is not None for value in points.get(n, ())) for n in names}
    return next((name for name in names if known[name]), (names[1:] or names)[0])


def score_title(points: Document) -> str:
    """Return the title of the figure that draws the column that `score_name` returns."""
    target, _, metric = score_name(points).rpartition(".")
    named = f"{target_name(target)}: {MAIN_METRICS.get(metric, metric)}"
    return named if target else "AUC (band: error of its bins)"


def phase_columns(ranks: Sequence[Document], window: str = "total_seconds") -> Columns:
    """Return the columns `rank`, `worker`, and for each phase of training `PHASE` and `PHASE_s`.

    `PHASE_s` is the phase's wall time in seconds, `PHASE` its share in percent. `window` is
    `total_seconds` for the time in this attempt, or `seconds` for that in each rank's last report.
    `ranks` is that of a `job_document`.
    """
    columns: Columns = _labels(ranks)
    windows = [rank.get(window) or {} for rank in ranks]
    of_ranks = [phase_shares(seconds) for seconds in windows]
    for phase in PHASES:
        columns[phase] = [shares.get(phase, 0.0) for shares in of_ranks]
        columns[f"{phase}_s"] = [float(seconds.get(phase, 0.0)) for seconds in windows]
    return columns


def step_time_columns(ranks: Sequence[Document], slowest: Document | None) -> Columns:
    """Return the columns `rank`, `worker`, `step_time_ms`, and `is_slow`.

    `is_slow` is `yes` for the slowest rank if it is significantly slower than the median, otherwise
    `no`. `ranks` and `slowest` are those of a `job_document`.
    """
    name = int(slowest["rank"]) if slowest and is_straggler(slowest) else None
    columns = _labels(ranks)
    columns["step_time_ms"] = [1e3 * (rank.get("step_time_s") or 0.0) for rank in ranks]
    columns["is_slow"] = ["yes" if int(rank["rank"]) == name else "no" for rank in ranks]
    return columns


def step_time_title(slowest: Document | None) -> str:
    """Return a title with the median, and with the slowest rank if it is significantly slower.

    >>> step_time_title({"rank": 1, "step_time_s": 0.013, "median_step_time_s": 0.010})
    'Slowest: rank 1, 30 % over the median of 10.0 ms'
    """
    if slowest is None:
        return "Time of a step"
    time_s, median_s = float(slowest["step_time_s"]), float(slowest["median_step_time_s"])
    if not is_straggler(slowest):
        return f"Time of a step: median {1e3 * median_s:.1f} ms"
    over = f"{100 * (time_s / median_s - 1):.0f} % over" if median_s else "against"
    return f"Slowest: rank {slowest['rank']}, {over} the median of {1e3 * median_s:.1f} ms"


def memory_columns(ranks: Sequence[Document]) -> Columns:
    """Return the columns `rank`, `worker`, `host_gib` and `device_gib` of ranks that report memory.

    `host_gib` is the memory of the rank's process, `device_gib` that of its tensors on the GPU.
    """
    reporting = [rank for rank in ranks if rank.get("memory")]
    return _labels(reporting) | {
        f"{kind}_gib": [rank["memory"].get(f"{kind}_bytes", 0) / GIB for rank in reporting]
        for kind in ("host", "device")
    }


def gpu_columns(ranks: Sequence[Document]) -> Columns:
    """Return the utilisation and memory of the GPUs of ranks that have one.

    The columns are `rank`, `worker`, `utilisation_pct`, `memory_pct`, `memory_used_gib` and
    `memory_total_gib`. Unknown values are 0. The used memory is that of all processes on the GPU.
    """
    with_gpu = [rank for rank in ranks if rank.get("gpu")]
    gpus = [rank["gpu"] for rank in with_gpu]
    used = [gpu.get("memory_used_bytes") or 0 for gpu in gpus]
    total = [gpu.get("memory_total_bytes") or 0 for gpu in gpus]
    return {
        **_labels(with_gpu),
        "utilisation_pct": [float(gpu.get("utilisation_pct") or 0.0) for gpu in gpus],
        "memory_pct": [100 * u / t if t else 0.0 for u, t in zip(used, total, strict=True)],
        "memory_used_gib": [u / GIB for u in used],
        "memory_total_gib": [t / GIB for t in total],
    }


def timeline_columns(timeline: Sequence[Document]) -> Columns:
    """Return the entries of a time line whose kind is one of `TIMELINE_KINDS`, as columns.

    The columns are `at_ms` (unix time), `kind`, `attempt`, `step` and `text`.
    """
    entries = [entry for entry in timeline if entry.get("kind") in TIMELINE_KINDS]
    return {
        "at_ms": [1e3 * float(entry["at_s"]) for entry in entries],
        **{name: [entry.get(name) for entry in entries] for name in ("kind", "attempt", "step")},
        "text": [str(entry.get("text") or "") for entry in entries],
    }


def _labels(ranks: Sequence[Document]) -> Columns:
    return {
        "rank": [str(rank["rank"]) for rank in ranks],
        "worker": [str(rank.get("worker") or "") for rank in ranks],
    }


def _numbers(values: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)  # None becomes NaN


def _scored(points: Document, names: Sequence[str]) -> Series:
    series = {name: _numbers(points.get(name, ())) for name in names}
    series["auc"] = _numbers(points.get(score_name(points), ()))
    bound = series["auc_bound"]
    return {
        **series,
        "auc_low": np.maximum(series["auc"] - bound, 0.0),
        "auc_high": np.minimum(series["auc"] + bound, 1.0),
    }
