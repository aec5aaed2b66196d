"""`distrain compare`: compares several runs in a table."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from distrain.formatting import UNKNOWN
from distrain.jobs.run_paths import id_end
from distrain.jobs.spec.load import differences
from distrain.runs.report.outcome import outcome_rows
from distrain.runs.run_data import RunData


@dataclass(frozen=True)
class Comparison:
    """A comparison of runs; every row has a name and a text for each run."""

    names: tuple[str, ...]  # distinct short names of the runs
    settings: tuple[tuple[str, ...], ...]  # fields of the spec that differ
    environment: tuple[tuple[str, ...], ...]  # properties of machines and versions that differ
    outcomes: tuple[tuple[str, ...], ...]  # the runs' metrics
    # By the name of an outcome: the places of the best runs. Metrics of different numbers of
    # validation rows are of different tables, so none is the best.
    best: Mapping[str, frozenset[int]]


def compare(runs: Sequence[RunData]) -> Comparison:
    """Return the outcomes of runs, and the settings and machines in which they differ.

    All outcomes are listed, also those that are equal; an outcome that a run lacks is `UNKNOWN`.
    Settings and facts of machines that are equal in all runs are left out.
    """
    specs = [run.spec.model_dump(mode="json", by_alias=True) for run in runs]
    machines = [{"distrain": run.run.version, **run.run.environment} for run in runs]
    outcomes = [{"state": run.state, **dict(outcome_rows(run.outcome))} for run in runs]
    same_rows = len({run.outcome.get("scored_rows") for run in runs}) == 1
    return Comparison(
        names=_names(runs),
        settings=_differing(specs),
        environment=_differing(machines),
        outcomes=tuple(
            (name, *(of_run.get(name, UNKNOWN) for of_run in outcomes))
            for name in dict.fromkeys(name for of_run in outcomes for name in of_run)
        ),
        best={
            title: best_places([run.outcome.get(name) for run in runs], choose)
            for title, name, choose in _JUDGED
            if same_rows or name not in _OF_SCORED_ROWS
        },
    )


_JUDGED: tuple[tuple[str, str, Callable[[Iterable[float]], float]], ...] = (
    ("AUC", "auc", max),
    ("loss", "log_loss", min),
    ("normalised entropy", "normalised_entropy", min),
    ("rows/s", "rows_per_s", max),
)


_OF_SCORED_ROWS = frozenset({"auc", "log_loss", "normalised_entropy"})


def best_places(
    values: Sequence[float | None], choose: Callable[[Iterable[float]], float]
) -> frozenset[int]:
    """Return the places of the best values; none if all values are equal or unknown.

    NaN and infinities count as unknown.

    >>> best_places([0.5, None, 0.7], max), best_places([0.5, float("nan")], min)
    (frozenset({2}), frozenset())
    """
    known = {value for value in values if value is not None and isfinite(value)}
    best = choose(known) if len(known) > 1 else None
    return frozenset(n for n, value in enumerate(values) if best is not None and value == best)


def _names(runs: Sequence[RunData]) -> tuple[str, ...]:
    """Return a short name for each run, all different.

    These are the jobs' names if all differ, else the names of the run folders if all differ, else
    the folders' paths. If a folder's name is the job's id, `NAME-TIME-RANDOM`, it is shortened to
    `NAME RANDOM`.
    """
    folders = [
        f"{run.spec.name} {id_end(run.name, run.spec.name)}"
        if run.root.name == run.name and run.name.startswith(f"{run.spec.name}-")
        else run.root.name
        for run in runs
    ]
    for names in ([run.spec.name for run in runs], folders):
        if len(set(names)) == len(names):
            return tuple(names)
    return tuple(str(run.root) for run in runs)


def _differing(documents: Sequence[dict[str, Any]]) -> tuple[tuple[str, ...], ...]:
    """Return a row for each field that differs: its name, and its text in each document."""
    return tuple(
        (name, *(UNKNOWN if value is None else str(value) for value in values))
        for name, values in differences(documents).items()
    )
