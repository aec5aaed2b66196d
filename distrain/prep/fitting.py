"""Fits a workflow's operators on a cluster.

Each pass over the data fits one operator of every group. The columns of a group are divided into
units of a few columns, so that no task holds the states of all columns. The parts are divided into
at most 64 runs of consecutive parts; one task fits one unit on one run. Counts of values, and sums
of labels by value, are written to files and added up piece by piece (`counting`). Other states are
a few numbers. They are merged here in a tree whose shape depends on the parts alone, so the same
input gives the same bits on any cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from distrain.prep.counting.count_tables import fit_tables
from distrain.prep.counting.count_tasks import CountedColumn
from distrain.prep.counting.spilled import spill_counts
from distrain.prep.counting.vocabularies import VocabularyReport, fit_vocabularies
from distrain.prep.fit_task import ColumnStates, FitUnit, times_in, units_of, vocabulary_units
from distrain.prep.memory import MemoryPlan
from distrain.prep.operators.categorify import Categorify
from distrain.prep.operators.encodings import Encoding
from distrain.prep.operators.operator import FittedByColumn, in_column
from distrain.prep.parts import Part
from distrain.prep.progress import PhaseCounter, ProgressCallback
from distrain.prep.request import PrepRequest
from distrain.prep.updates.vocabularies import update_vocabularies
from distrain.prep.vocabulary import CATEGORIES
from distrain.prep.workers import TaskRunner
from distrain.prep.workflow import Workflow
from distrain.storage.folder import open_folder
from distrain.storage.retrying import RETRY_S, with_retries

_MAX_RUNS = 64
_LEAST_PARTS_PER_RUN = 4
_FAN_IN = 8
_OLD = "old"


def fit_as_asked(
    request: PrepRequest,
    workflow: Workflow,
    parts: Sequence[Part],
    runner: TaskRunner,
    folders: tuple[str, str],
    on_progress: ProgressCallback,
    memory: MemoryPlan,
) -> tuple[Workflow, dict[str, VocabularyReport]]:
    """Fit `workflow` on the parts, update it with them, or use it unchanged, as `request` says.

    `folders` are the workflow's output folder, and a folder for temporary files. Returns the
    workflow, whose vocabularies are in its output folder, and a report on the vocabulary of each
    categorical column. If the workflow is used unchanged, the reports have only names and
    cardinalities. `memory` bounds the memory of each task.
    """
    folder, staging = folders
    # A saved workflow is copied, since workers may not see its folder.
    if request.saved_workflow is not None:
        workflow.save(f"{staging}/{_OLD}" if request.update else folder)
        if not request.update:
            names, sizes = workflow.domains, workflow.cardinalities
            return workflow, {c: VocabularyReport(names.get(c, c), n) for c, n in sizes.items()}
    open_folder(f"{folder}/{CATEGORIES}").make()
    fit = _Fit(parts, runner, f"{folder}/{CATEGORIES}", staging, on_progress, memory)
    workflow, reports = (fit.update if request.update else fit.fit)(workflow)
    by_name, domains = {report.name: report for report in reports}, workflow.domains
    learnt = {column: by_name[domains.get(column, column)] for column in workflow.categorical}
    workflow.save_document(folder)
    return workflow, learnt


@dataclass(frozen=True)
class _Fit:
    """Fits or updates a workflow.

    Tasks on the workers write the vocabularies to files. This process never has a vocabulary in
    memory, since it may be large.
    """

    parts: Sequence[Part]
    runner: TaskRunner
    categories: str  # the folder of the vocabularies, which workers see
    staging: str  # a folder for temporary counts, which workers see
    on_progress: ProgressCallback
    memory: MemoryPlan

    def fit(self, workflow: Workflow) -> tuple[Workflow, list[VocabularyReport]]:
        if workflow.by_time:
            times = self.runner.run("times", times_in, [(run,) for run in self._runs])
            workflow = workflow.with_blocks(np.concatenate(times))
        passes = list(workflow.fit_passes())
        counter = self._counter(sum(len(units_of(workflow, stages)) for stages in passes))
        reports: list[VocabularyReport] = []
        for stages in passes:
            units = units_of(workflow, stages)  # with the operators fitted in the previous passes
            with self._states(units, counter) as (states, staging):
                where = (self.runner, self.categories, staging, self.memory)
                categorical = _counted(units, states, Categorify)
                reports += fit_vocabularies(categorical, *where)
                tables = iter(fit_tables(_counted(units, states, Encoding), *where))
            for unit, of_runs in zip(units, states, strict=True):
                if isinstance(unit.operator, Encoding):
                    fitted = {column: next(tables) for column in unit.columns}
                    workflow = workflow.with_fitted(unit.stage, fitted)
                elif not unit.counts_values:
                    workflow = workflow.with_fitted(unit.stage, _fitted(unit, of_runs))
        return workflow, reports

    def update(self, workflow: Workflow) -> tuple[Workflow, list[VocabularyReport]]:
        """Write vocabularies that are updated with the values of the parts.

        The old vocabularies are read from the staging folder.
        Returns `workflow` itself, and a report on each vocabulary.
        """
        units = vocabulary_units(workflow)
        old = f"{self.staging}/{_OLD}/{CATEGORIES}"
        with self._states(units, self._counter(len(units))) as (states, staging):
            counted = _counted(units, states, Categorify)
            where = (self.runner, self.categories, staging, self.memory)
            return workflow, update_vocabularies(counted, *where, old)

    def _counter(self, num_units: int) -> PhaseCounter:
        """Return a counter of the tasks that read rows: one for each unit and run of parts.

        `num_units` is the number of units of all passes, so also the number of times that each row
        is read. The later, short tasks are not counted.
        """
        num_tasks = num_units * len(self._runs)
        return PhaseCounter("fit", num_tasks, self.on_progress, times_read=max(1, num_units))

    @property
    def _runs(self) -> list[tuple[Part, ...]]:
        size = max(_LEAST_PARTS_PER_RUN, -(-len(self.parts) // _MAX_RUNS))
        return [tuple(self.parts[i : i + size]) for i in range(0, len(self.parts), size)]

    @contextmanager
    def _states(
        self, units: Sequence[FitUnit], counter: PhaseCounter
    ) -> Iterator[tuple[list[list[ColumnStates]], str]]:
        """Context manager that fits the units on all runs, and yields the states and a folder.

        The states are `[unit][run]`. The folder has temporary files with counts, to which some
        states refer. It is removed at the end, unless the body raises an error. `counter` counts
        the finished tasks.
        """
        counts = f"{self.staging}/counts"
        open_folder(counts).make()
        runs, held_bytes = self._runs, self.memory.held_bytes
        # Consecutive tasks read the same parts, which are then still in memory.
        tasks = [
            (unit, run, f"{counts}/{r:02d}-{u:04d}", held_bytes)
            for r, run in enumerate(runs)
            for u, unit in enumerate(units)
        ]
        rows = [sum(part.num_rows for part in run) for run in runs]
        results = self.runner.run(
            "fit", _fit_run, tasks, lambda place, _: counter.add(rows[place // len(units)])
        )
        yield [results[u :: len(units)] for u in range(len(units))], counts
        with_retries(open_folder(counts).remove, {"folder": counts}, RETRY_S)


def _counted(
    units: Sequence[FitUnit], states: Sequence[Sequence[ColumnStates]], kind: type
) -> list[CountedColumn]:
    return [
        CountedColumn(name, unit.operator, tuple(run[name] for run in of_runs))
        for unit, of_runs in zip(units, states, strict=True)
        if isinstance(unit.operator, kind)
        for name in of_runs[0]
    ]


def _fit_run(unit: FitUnit, run: tuple[Part, ...], stem: str, held_bytes: int) -> ColumnStates:
    if unit.counts_values:
        return dict(spill_counts(unit, run, stem, held_bytes))
    states: list[ColumnStates] = []
    for of_part in unit.states(run):
        states.append(of_part)
        if len(states) == _FAN_IN:
            states = [_merge(unit.operator, states)]
    return _merge(unit.operator, states)


def _fitted(unit: FitUnit, states: list[ColumnStates]) -> dict[str, Any]:
    while len(states) > 1:
        states = [
            _merge(unit.operator, states[i : i + _FAN_IN]) for i in range(0, len(states), _FAN_IN)
        ]
    learnt = {}
    for name, state in states[0].items():
        with in_column(name):
            learnt[name] = unit.operator.finish(state)
    return unit.group.by_column(learnt, unit.columns)


def _merge(operator: FittedByColumn, states: Sequence[ColumnStates]) -> ColumnStates:
    return {c: operator.merge(*(state[c] for state in states)) for c in states[0]}
