"""Fit a workflow's operators on a cluster.

Each pass over the data fits one operator of every group. Its columns are cut into units of a few
columns, so that no task holds the state of all; for each unit the parts are cut into at most 64
runs of neighbours, one task each, whose states are merged in a tree. The tree's shape depends on
the parts alone, so the same input gives the same bits on any cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from distrain.errors import DataError
from distrain.etl.column_group import ColumnGroup
from distrain.etl.operators import Categorify, FittedOperator, Vocabulary
from distrain.etl.parts import Part, located, read_part
from distrain.etl.tasks import TaskRunner
from distrain.etl.workflow import FitStage, Workflow

_MAX_RUNS = 64
_LEAST_PARTS_PER_RUN = 4
_FAN_IN = 8
# A vocabulary's state is large, so few to a task; the others are a few numbers.
_CATEGORIFY_COLUMNS_PER_UNIT = 4

ColumnStates = dict[str, Any]
Progress = Callable[[int, int, int], None]


@dataclass(frozen=True)
class FitUnit:
    """Some columns of a group and the place of the operator to fit."""

    group: ColumnGroup
    columns: tuple[str, ...]
    stage: FitStage

    @property
    def operator(self) -> FittedOperator:
        """The operator to fit."""
        return cast(FittedOperator, self.group.operators[self.stage.operator])


def fit_on_cluster(
    workflow: Workflow,
    parts: Sequence[Part],
    runner: TaskRunner,
    categories: Path,
    on_progress: Progress,
) -> tuple[Workflow, dict[str, int]]:
    """Fit every operator on these parts.

    Vocabularies are written where they are made, straight into `categories`, and don't pass through
    the calling process. Returns the workflow, fitted but for its vocabularies, and the cardinality
    of each categorical column.
    """
    passes = list(workflow.fit_passes())
    runs = _runs(parts)
    counter = _Counter(sum(len(_units(workflow, p)) for p in passes), runs, on_progress)
    cardinalities: dict[str, int] = {}
    for stages in passes:
        units = _units(workflow, stages)  # with what the pass before has fitted
        finished = _fit_pass(units, runs, runner, str(categories), counter)
        for unit, fitted in zip(units, finished, strict=True):
            if isinstance(unit.operator, Categorify):
                cardinalities.update(fitted)
            else:
                workflow = workflow.with_fitted(unit.stage, fitted)
    return workflow, cardinalities


def _units(workflow: Workflow, stages: Sequence[FitStage]) -> list[FitUnit]:
    units = []
    for stage in stages:
        group = workflow.groups[stage.group]
        is_categorify = isinstance(group.operators[stage.operator], Categorify)
        # The columns of a domain are counted together.
        apart = is_categorify and group.domain is None
        step = _CATEGORIFY_COLUMNS_PER_UNIT if apart else len(group.columns)
        units += [
            FitUnit(group, group.columns[i : i + step], stage)
            for i in range(0, len(group.columns), step)
        ]
    return units


def _runs(parts: Sequence[Part]) -> list[tuple[Part, ...]]:
    size = max(_LEAST_PARTS_PER_RUN, -(-len(parts) // _MAX_RUNS))
    return [tuple(parts[i : i + size]) for i in range(0, len(parts), size)]


class _Counter:
    """Counts the tasks that read rows; the merges are quick."""

    def __init__(self, num_units: int, runs: Sequence[tuple[Part, ...]], on_progress: Progress):
        self._rows = [sum(part.num_rows for part in run) for run in runs]
        self._total = num_units * len(runs)
        self._num_units = num_units
        self._done = 0
        self._rows_done = 0
        self._on_progress = on_progress
        on_progress(0, self._total, 0)

    def add(self, run: int) -> None:
        self._done += 1
        self._rows_done += self._rows[run]
        self._on_progress(self._done, self._total, self._rows_done // self._num_units)


def _fit_pass(
    units: Sequence[FitUnit],
    runs: Sequence[tuple[Part, ...]],
    runner: TaskRunner,
    categories: str,
    counter: _Counter,
) -> list[dict[str, Any]]:
    # Neighbouring tasks read the same parts, which are then still in memory.
    tasks = [(unit, run) for run in runs for unit in units]
    leaves = runner.run_on_workers(
        "fit", _fit_run, tasks, on_done=lambda place: counter.add(place // len(units))
    )
    states = [leaves[u :: len(units)] for u in range(len(units))]
    del leaves
    while len(states[0]) > 1:
        joins = [
            (units[u].operator, state[i : i + _FAN_IN])
            for u, state in enumerate(states)
            for i in range(0, len(state), _FAN_IN)
        ]
        per_unit = len(joins) // len(units)
        merged = runner.run_on_workers("merge", _merge, joins)
        states = [merged[u * per_unit : (u + 1) * per_unit] for u in range(len(units))]
    finishes = [(unit, state[0], categories) for unit, state in zip(units, states, strict=True)]
    return runner.run("finish", _finish, finishes)


def _fit_run(unit: FitUnit, run: tuple[Part, ...]) -> ColumnStates:
    states: list[ColumnStates] = []
    for part in run:
        table = read_part(part, unit.columns)
        with located(part):
            states.append(unit.group.fit(unit.stage.operator, unit.columns, table))
        if len(states) == _FAN_IN:
            states = [_merge(unit.operator, states)]
    return _merge(unit.operator, states)


def _merge(operator: FittedOperator, states: Sequence[ColumnStates]) -> ColumnStates:
    return {c: operator.merge(*(state[c] for state in states)) for c in states[0]}


def _finish(unit: FitUnit, states: ColumnStates, categories: str) -> dict[str, Any]:
    learnt = {}
    for name, state in states.items():
        try:
            fitted = unit.operator.finish(state)
        except DataError as error:
            where = {"column": name, **error.where}
            raise DataError(error.message, where=where, hint=error.hint) from None
        if isinstance(fitted, Vocabulary):
            fitted.save(Path(categories), name)
            fitted = fitted.cardinality
        learnt[name] = fitted
    return unit.group.by_column(learnt, unit.columns)
