"""What one task fits: an operator of some columns of a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from distrain.etl.column_group import ColumnGroup
from distrain.etl.operators import Categorify, FittedOperator
from distrain.etl.parts import Part, located, read_part
from distrain.etl.workflow import FitStage, Workflow

# Counted values take memory, so few columns to a task; the other states are a few numbers.
_CATEGORIFY_COLUMNS_PER_UNIT = 4

ColumnStates = dict[str, Any]


@dataclass(frozen=True)
class FitUnit:
    group: ColumnGroup
    columns: tuple[str, ...]
    stage: FitStage

    @property
    def operator(self) -> FittedOperator:
        return cast(FittedOperator, self.group.operators[self.stage.operator])

    @property
    def counts_values(self) -> bool:
        return isinstance(self.operator, Categorify)

    def states(self, parts: Sequence[Part]) -> Iterator[ColumnStates]:
        for part in parts:
            table = read_part(part, self.columns)
            with located(part):
                yield self.group.fit(self.stage.operator, self.columns, table)


def units_of(workflow: Workflow, stages: Sequence[FitStage]) -> list[FitUnit]:
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


def vocabulary_units(workflow: Workflow) -> list[FitUnit]:
    """The units that count for the vocabularies of a fitted workflow, and do not hold these."""
    stages, groups = [], []
    for place, group in enumerate(workflow.groups):
        last = group.operators[-1] if group.operators else None
        if isinstance(last, Categorify):
            operators = (*group.operators[:-1], replace(last, vocabularies={}))
            stages.append(FitStage(place, len(operators) - 1))
            group = replace(group, operators=operators)
        groups.append(group)
    return units_of(Workflow(tuple(groups)), stages)
