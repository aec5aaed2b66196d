"""Fit units: a unit is one operator and some columns of its group, which one task fits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from distrain.prep.column_group import FOLD, ColumnGroup
from distrain.prep.features.columns import TIMES_OF_SPLIT
from distrain.prep.operators.categorify import Categorify
from distrain.prep.operators.encodings import Encoding, fold_numbers
from distrain.prep.operators.operator import FittedByColumn
from distrain.prep.parts import Part, located, read_part
from distrain.prep.workflow import FitStage, Workflow
from distrain.schema.criteo import LABEL

# Counted values take memory, so a task has few columns; other states are a few numbers.
_COUNTED_COLUMNS_PER_UNIT = 4
_COUNTING = (Categorify, Encoding)
_SAMPLED_TIMES = 1024
_TIMES_HELD = 1 << 24

ColumnStates = dict[str, Any]


@dataclass(frozen=True)
class FitUnit:
    """Some columns of a group, and the operator that one task fits to them."""

    group: ColumnGroup
    columns: tuple[str, ...]
    stage: FitStage

    @property
    def operator(self) -> FittedByColumn:
        return cast(FittedByColumn, self.group.operators[self.stage.operator])

    @property
    def counts_values(self) -> bool:
        """Whether the operator's states grow with the number of distinct values.

        Such states are written to files.
        """
        return isinstance(self.operator, _COUNTING)

    def states(self, parts: Sequence[Part]) -> Iterator[ColumnStates]:
        """Yield the states that the operator fits on each part, by column or domain."""
        for part in parts:
            table = read_training_rows(part, self.columns, self.group)
            with located(part):
                yield self.group.fit(self.stage.operator, self.columns, table)


def units_of(workflow: Workflow, stages: Sequence[FitStage]) -> list[FitUnit]:
    """Return the units of some stages, in order.

    A stage is one operator to fit, of one group. A unit is some of the group's columns, which one
    task fits. The columns of a domain are in one unit.
    """
    units = []
    for stage in stages:
        group = workflow.groups[stage.group]
        # The columns of a domain are counted together.
        apart = isinstance(group.operators[stage.operator], _COUNTING) and group.domain is None
        step = _COUNTED_COLUMNS_PER_UNIT if apart else len(group.columns)
        units += [
            FitUnit(group, group.columns[i : i + step], stage)
            for i in range(0, len(group.columns), step)
        ]
    return units


def vocabulary_units(workflow: Workflow) -> list[FitUnit]:
    """Return the units that count values, in order to update the vocabularies of a fitted workflow.

    The units' Categorify operators are copies without the fitted vocabularies.
    """
    stages, groups = [], []
    for place, group in enumerate(workflow.groups):
        last = group.operators[-1] if group.operators else None
        if isinstance(last, Categorify):
            operators = (*group.operators[:-1], replace(last, vocabularies={}))
            stages.append(FitStage(place, len(operators) - 1))
            group = replace(group, operators=operators)
        groups.append(group)
    return units_of(Workflow(tuple(groups)), stages)


def read_training_rows(
    part: Part, columns: Sequence[str], learner: ColumnGroup | Workflow
) -> pa.Table:
    """Return the given columns of a part; also `LABEL` and `FOLD` if `learner` learns from labels.

    `FOLD` has each row's fold number or, if `learner` is `by_time`, its time in seconds.
    """
    if not learner.learns_labels:
        return read_part(part, columns)
    beside = (LABEL, TIMES_OF_SPLIT) if learner.by_time else (LABEL,)
    table = read_part(part, tuple(dict.fromkeys((*columns, *beside))))
    if learner.by_time:
        names = [FOLD if name == TIMES_OF_SPLIT else name for name in table.column_names]
        return table.rename_columns(names)
    name = f"{os.path.basename(part.path)}:0:{part.skip_rows}"  # as earlier versions spelled it
    return table.append_column(FOLD, pa.array(fold_numbers(table.num_rows, name)))


def times_in(parts: Sequence[Part]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a sample of the times of the parts' rows, in seconds, ascending.

    It is every n-th time in sort order: 1,024 to 2,047 times, or all if there are fewer.
    """
    rows = sum(part.num_rows for part in parts)
    of_part = max(1, -(-rows // _TIMES_HELD))  # the sampling step within a part
    samples = [
        np.sort(read_part(part, [TIMES_OF_SPLIT])[TIMES_OF_SPLIT].to_numpy())[::of_part]
        for part in parts
    ]
    times = np.sort(np.concatenate(samples))
    return times[:: max(1, len(times) // _SAMPLED_TIMES)]
