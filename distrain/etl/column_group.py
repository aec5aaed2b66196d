"""Columns that share their operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from distrain.errors import DataError, InputError
from distrain.etl.lists import Lists, holds_lists
from distrain.etl.operators import Categorify, FittedOperator, ListSlice, Operator
from distrain.etl.operators.base import concrete


@dataclass(frozen=True)
class ColumnGroup:
    """Columns that go through the same operators.

    A group that ends in Categorify gives int32 ids; any other gives float32.
    """

    columns: tuple[str, ...]
    operators: tuple[Operator, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "operators", tuple(self.operators))
        if any(isinstance(operator, Categorify) for operator in self.operators[:-1]):
            raise InputError(
                "Categorify must be the last operator of its group",
                where={"columns": ", ".join(self.columns)},
            )

    @property
    def is_categorical(self) -> bool:
        """Whether the group gives ids."""
        return bool(self.operators) and isinstance(self.operators[-1], Categorify)

    def transform(
        self, column: str, values: pa.Array, num_operators: int | None = None
    ) -> pa.Array:
        """One column's values after the first `num_operators` operators (all if `None`).

        Of lists the operators get the items, ListSlice alone the lists.
        """
        values = concrete(values)
        if not holds_lists(values.type):
            for operator in self.operators[:num_operators]:
                values = operator.transform(column, values)
            return values
        lists = Lists.of(values)
        for operator in self.operators[:num_operators]:
            if isinstance(operator, ListSlice):
                lists = Lists.of(operator.transform(column, lists.to_arrow()))
            else:
                lists = replace(lists, items=operator.transform(column, lists.items))
        return lists.to_arrow()

    @property
    def domain(self) -> str | None:
        """The name of the vocabulary that its columns share, if they do."""
        last = self.operators[-1] if self.operators else None
        return last.domain if isinstance(last, Categorify) else None

    def fit(self, operator: int, columns: Sequence[str], table: pa.Table) -> dict[str, Any]:
        """The states of one operator, from some rows.

        Args:
            operator: Its place; those before it are fitted.
            columns: Some of the group's; all of them if they share a domain.
            table: The rows.

        Returns:
            By column, or by domain if that is what is learnt.
        """
        to_fit = cast(FittedOperator, self.operators[operator])
        states = {}
        for column in columns:
            values = self.transform(column, table[column], operator)
            items = Lists.of(values).items if holds_lists(values.type) else values
            try:
                states[column] = to_fit.fit(items)
            except DataError as error:
                where = {"column": column, **error.where}
                raise DataError(error.message, where=where, hint=error.hint) from None
        if isinstance(to_fit, Categorify) and to_fit.domain is not None:
            return {to_fit.domain: to_fit.merge(*states.values())}
        return states

    def by_column(self, learnt: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
        """What was learnt, by column, whether it is by column or by domain."""
        shared = None if self.domain is None else learnt.get(self.domain)
        return {column: learnt.get(column, shared) for column in columns}
