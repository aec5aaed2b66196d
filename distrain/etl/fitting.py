"""Fit a workflow's operators on a cluster.

Each pass over the data fits one operator of every group. Its columns are cut into units of a few
columns, so that no task holds the state of all; for each unit the parts are cut into at most 64
runs of neighbours, one task each. Counts of values go to files and are added up by pieces
(`counting`); other states are a few numbers, and are merged here in a tree whose shape depends
on the parts alone, so the same input gives the same bits on any cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distrain.etl.counting import Counted, MemoryPlan, count_values
from distrain.etl.days import (
    VocabularyReport,
    keep_counts_of,
    learn_vocabularies,
    with_keep_counts,
    with_update,
)
from distrain.etl.fit_unit import ColumnStates, FitUnit, units_of, vocabulary_units
from distrain.etl.operators import FittedOperator, in_column
from distrain.etl.parts import Part
from distrain.etl.progress import PhaseCounter, ProgressCallback
from distrain.etl.request import PrepRequest
from distrain.etl.workers import TaskRunner
from distrain.etl.workflow import Workflow
from distrain.storage import RETRY_S, open_folder, with_retries
from distrain.vocabulary import CATEGORIES

_MAX_RUNS = 64
_LEAST_PARTS_PER_RUN = 4
_FAN_IN = 8


def fit_as_asked(
    request: PrepRequest,
    workflow: Workflow,
    inputs: Sequence[str],
    parts: Sequence[Part],
    runner: TaskRunner,
    folders: tuple[str, str],
    on_progress: ProgressCallback,
    memory: MemoryPlan,
) -> tuple[Workflow, dict[str, VocabularyReport]]:
    """Fit the workflow on these parts, or update the saved one, or take it as it is.

    `folders` are the one that the workflow is written to, and one for what is of no use afterwards.
    Returns the workflow, whose vocabularies are in its folder, and what became of that of each
    categorical column.
    """
    folder, staging = folders
    where = (f"{folder}/{CATEGORIES}", staging, on_progress, memory)
    if request.saved_workflow is None:
        open_folder(f"{folder}/{CATEGORIES}").make()
        keep = request.keep_counts or 0
        workflow, reports = fit_on_cluster(workflow, parts, runner, *where, keep)
        workflow = with_keep_counts(workflow, keep)
        workflow.save_document(folder)
        return workflow, _by_column(workflow, reports)
    # The saved workflow may lie where workers do not see it.
    copy = f"{staging}/{OLD}" if request.update else folder
    workflow.save(copy)
    if not request.update:
        found = workflow.cardinalities
        domains = workflow.domains
        return workflow, {c: VocabularyReport(domains.get(c, c), n) for c, n in found.items()}
    open_folder(f"{folder}/{CATEGORIES}").make()
    keep = keep_counts_of(workflow) if request.keep_counts is None else request.keep_counts
    learnt = _by_column(workflow, update_on_cluster(workflow, parts, runner, *where, keep))
    new_ids = {column: report.new_ids for column, report in learnt.items()}
    workflow = with_keep_counts(workflow, keep)
    workflow = with_update(workflow, inputs, sum(part.num_rows for part in parts), new_ids)
    workflow.save_document(folder)
    return workflow, learnt


def _by_column(
    workflow: Workflow, reports: Sequence[VocabularyReport]
) -> dict[str, VocabularyReport]:
    by_name, domains = {report.name: report for report in reports}, workflow.domains
    return {column: by_name[domains.get(column, column)] for column in workflow.categorical}


def fit_on_cluster(
    workflow: Workflow,
    parts: Sequence[Part],
    runner: TaskRunner,
    categories: str,
    staging: str,
    on_progress: ProgressCallback,
    memory: MemoryPlan,
    keep_counts: int = 0,
) -> tuple[Workflow, list[VocabularyReport]]:
    """Fit every operator on these parts.

    Vocabularies are written where they are made, straight into `categories`, and don't pass through
    the calling process; `staging` holds counts meanwhile. Both are folders that workers see.
    """
    passes = list(workflow.fit_passes())
    runs = _runs(parts)
    counter = _counter(sum(len(units_of(workflow, p)) for p in passes), runs, on_progress)
    reports: list[VocabularyReport] = []
    for stages in passes:
        units = units_of(workflow, stages)  # with what the pass before has fitted
        counts = f"{staging}/counts"
        open_folder(counts).make()
        states = _run_states(units, runs, runner, counts, memory.held_bytes, counter)
        counted = _counted(units, states)
        reports += learn_vocabularies(
            counted, runner, categories, None, counts, keep_counts, memory
        )
        _forget(counts)
        for unit, of_runs in zip(units, states, strict=True):
            if not unit.counts_values:
                workflow = workflow.with_fitted(unit.stage, _fitted(unit, of_runs))
    return workflow, reports


def update_on_cluster(
    workflow: Workflow,
    parts: Sequence[Part],
    runner: TaskRunner,
    categories: str,
    staging: str,
    on_progress: ProgressCallback,
    memory: MemoryPlan,
    keep_counts: int,
) -> list[VocabularyReport]:
    """Let the vocabularies of a fitted workflow learn what these parts hold; nothing else changes.

    Those before, and the counts kept beside them, lie in `staging / OLD / CATEGORIES`.
    """
    units, runs = vocabulary_units(workflow), _runs(parts)
    counts = f"{staging}/counts"
    open_folder(counts).make()
    counter = _counter(len(units), runs, on_progress)
    counted = _counted(units, _run_states(units, runs, runner, counts, memory.held_bytes, counter))
    old = f"{staging}/{OLD}/{CATEGORIES}"
    learnt = learn_vocabularies(counted, runner, categories, old, counts, keep_counts, memory)
    _forget(counts)
    return learnt


def _forget(counts: str) -> None:
    with_retries(open_folder(counts).remove, {"folder": counts}, RETRY_S)


OLD = "old"
_OfVocabulary = tuple[FitUnit, str, list[Counted]]


def _runs(parts: Sequence[Part]) -> list[tuple[Part, ...]]:
    size = max(_LEAST_PARTS_PER_RUN, -(-len(parts) // _MAX_RUNS))
    return [tuple(parts[i : i + size]) for i in range(0, len(parts), size)]


def _counter(
    num_units: int, runs: Sequence[tuple[Part, ...]], on_progress: ProgressCallback
) -> PhaseCounter:
    """Counts the tasks that read rows; what follows is quick."""
    return PhaseCounter("fit", num_units * len(runs), on_progress, times_read=max(1, num_units))


def _run_states(
    units: Sequence[FitUnit],
    runs: Sequence[tuple[Part, ...]],
    runner: TaskRunner,
    counts: str,
    held_bytes: int,
    counter: PhaseCounter,
) -> list[list[ColumnStates]]:
    # Neighbouring tasks read the same parts, which are then still in memory.
    tasks = [
        (unit, run, f"{counts}/{r:02d}-{u:04d}", held_bytes)
        for r, run in enumerate(runs)
        for u, unit in enumerate(units)
    ]
    rows = [sum(part.num_rows for part in run) for run in runs]
    found = runner.run(
        "fit", _fit_run, tasks, lambda place, _: counter.add(place, rows[place // len(units)])
    )
    return [found[u :: len(units)] for u in range(len(units))]


def _fit_run(unit: FitUnit, run: tuple[Part, ...], stem: str, held_bytes: int) -> ColumnStates:
    if unit.counts_values:
        return dict(count_values(unit, run, stem, held_bytes))
    states: list[ColumnStates] = []
    for of_part in unit.states(run):
        states.append(of_part)
        if len(states) == _FAN_IN:
            states = [_merge(unit.operator, states)]
    return _merge(unit.operator, states)


def _counted(units: Sequence[FitUnit], states: Sequence[list[ColumnStates]]) -> list[_OfVocabulary]:
    return [
        (unit, name, [run[name] for run in of_runs])
        for unit, of_runs in zip(units, states, strict=True)
        if unit.counts_values
        for name in of_runs[0]
    ]


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


def _merge(operator: FittedOperator, states: Sequence[ColumnStates]) -> ColumnStates:
    return {c: operator.merge(*(state[c] for state in states)) for c in states[0]}
