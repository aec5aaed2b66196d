"""Groups of columns with the same operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

import numpy as np
import pyarrow as pa

from distrain.errors import DataError, InputError
from distrain.prep.lists import Lists, holds_lists
from distrain.prep.operators import OPERATORS
from distrain.prep.operators.buckets import (
    Bucketize,
    HashBucket,
    QuantileBuckets,
    StagedBuckets,
)
from distrain.prep.operators.categorify import Categorify
from distrain.prep.operators.encodings import Encoding, TargetEncode
from distrain.prep.operators.list_slice import ListSlice
from distrain.prep.operators.operator import (
    FittedByColumn,
    Operator,
    TrainingRows,
    concrete,
    in_column,
    takes_of,
)
from distrain.prep.operators.value_table import ValueTable
from distrain.prep.vocabulary import Vocabulary, is_text
from distrain.schema.criteo import LABEL

FOLD = "training.fold"
"""The column that tables of training rows have in addition to their features.

It has the number of each row's fold or, for target means that are learnt in time order, the row's
time in seconds.
"""


def _run(operators: Sequence[Operator], column: str, values: pa.Array) -> pa.Array:
    for operator in operators:
        values = operator.transform(column, values)
    return values


def kind_of(dtype: pa.DataType) -> str:
    """Return the kind of values of an Arrow type, for comparison with the fit, and for errors.

    It is `integers`, `numbers` (also decimals), `texts` or `lists of KIND`, for types of any width.
    A dictionary has the kind of its values. Any other type has Arrow's name.

    >>> kind_of(pa.list_(pa.int32())), kind_of(pa.large_string()), kind_of(pa.date32())
    ('lists of integers', 'texts', 'date32[day]')
    """
    if holds_lists(dtype):
        return f"lists of {kind_of(dtype.value_type)}"
    if pa.types.is_dictionary(dtype):
        return kind_of(dtype.value_type)
    if pa.types.is_floating(dtype) or pa.types.is_decimal(dtype):
        return NUMBERS
    if pa.types.is_integer(dtype):
        return INTEGERS
    return TEXTS if is_text(dtype) or isinstance(dtype, StagedBuckets) else str(dtype)


_BUCKETS = (Bucketize, QuantileBuckets, HashBucket)
INTEGERS, NUMBERS, TEXTS, LISTS_OF = "integers", "numbers", "texts", "lists of "
_ARE_NUMBERS = (INTEGERS, NUMBERS, "bool", "null")


@dataclass(frozen=True)
class ColumnGroup:
    """Columns with the same operators, which are applied one after another.

    A group whose last operator is Categorify makes int32 ids; any other group makes float32. List
    columns become lists of such values.
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
        """Whether the group's columns become ids (`Categorify`)."""
        return bool(self.operators) and isinstance(self.operators[-1], Categorify)

    def transform(
        self,
        column: str,
        values: pa.Array,
        num_operators: int | None = None,
        rows: TrainingRows | None = None,
    ) -> pa.Array:
        """Return one column's values after the first `num_operators` operators (all if `None`).

        For lists, ListSlice gets the lists, and all other operators get the items. `rows` has the
        folds and labels of training rows; `None` for other rows.
        """
        values = concrete(values)
        operators = self.operators[:num_operators]
        if not holds_lists(values.type):
            return _run(_of_rows(operators, rows), column, values)
        lists = Lists.of(values)
        for cuts, some in groupby(operators, lambda operator: isinstance(operator, ListSlice)):
            if cuts:
                lists = Lists.of(_run(tuple(some), column, lists.to_arrow()))
            else:
                of_items = rows and rows.of_items(lists.lengths)
                lists = replace(lists, items=_run(_of_rows(some, of_items), column, lists.items))
        return lists.to_arrow()

    @property
    def makes_buckets(self) -> bool:
        return any(isinstance(one, _BUCKETS) for one in self.operators)

    @property
    def by_time(self) -> bool:
        """Whether the group's target means are learnt in the order of the rows' times."""
        return any(isinstance(one, TargetEncode) and one.by_time for one in self.operators)

    def with_blocks(self, times: Any) -> ColumnGroup:
        """Return the group with the blocks of target means that are learnt in time order.

        `times` is a sample of the training rows' times, as for `Workflow.with_blocks`.
        """
        operators = (
            one.with_blocks(times) if isinstance(one, TargetEncode) else one
            for one in self.operators
        )
        return replace(self, operators=tuple(operators))

    def save_tables(self, categories: str) -> None:
        """Write the fitted tables of counts and target means to the folder `categories`."""
        for operator in self.operators:
            if isinstance(operator, Encoding):
                operator.save_tables(categories)

    @property
    def learns_labels(self) -> bool:
        """Whether an operator of the group is fitted to labels."""
        return any(isinstance(operator, TargetEncode) for operator in self.operators)

    @property
    def domain(self) -> str | None:
        """The name of the vocabulary that the columns share; `None` if they share none."""
        last = self.operators[-1] if self.operators else None
        return last.domain if isinstance(last, Categorify) else None

    def fit(self, operator: int, columns: Sequence[str], table: pa.Table) -> dict[str, Any]:
        """Return what the operator at index `operator` learns from a table, for its method `merge`.

        The result is by column. For a `Categorify` with a domain it is a single state, by the
        domain's name. The preceding operators must be fitted. `columns` are some of the group's
        columns, but all if they share a domain.
        """
        to_fit = cast(FittedByColumn, self.operators[operator])
        states = {}
        rows = training_rows(table)
        for column in columns:
            values = self.transform(column, table[column], operator, rows=rows)
            items, of_items = values, rows
            if holds_lists(values.type):
                lists = Lists.of(values)
                items, of_items = lists.items, rows and rows.of_items(lists.lengths)
            (fitting,) = cast(Sequence[FittedByColumn], _of_rows([to_fit], of_items))
            with in_column(column):
                states[column] = fitting.fit(items)
        if isinstance(to_fit, Categorify) and to_fit.domain is not None:
            return {to_fit.domain: to_fit.merge(*states.values())}
        return states

    def by_column(self, learnt: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
        """Return the fitted state of each column; `learnt` is by column, or by domain."""
        shared = None if self.domain is None else learnt.get(self.domain)
        return {column: learnt.get(column, shared) for column in columns}

    def check_type(self, column: str, dtype: pa.DataType, fitted: str | None) -> None:
        """Raise a `DataError` if the operators cannot use values of type `dtype`.

        Operators on numbers need numbers, of any kind. Operators on categories need the kind of
        values on which they were fitted; operators that only test for presence take any kind.
        Columns fitted on lists need lists, and the reverse. A column (or lists) without any value,
        of the type null, is accepted. `fitted` is the kind (`kind_of`) of the fitted values; `None`
        if unknown.
        """
        kind = kind_of(dtype)
        items, fitted_items = (k.removeprefix(LISTS_OF) for k in (kind, fitted or kind))
        same_shape = fitted is None or kind.startswith(LISTS_OF) == fitted.startswith(LISTS_OF)
        if kind == "null" or (same_shape and items == "null"):
            return
        takes = takes_of(self.operators)
        if takes == "presence":
            fits, wanted = True, fitted or kind
        elif takes == "numbers":
            fits, wanted = items in _ARE_NUMBERS, fitted or NUMBERS
        else:
            fits, wanted = items == fitted_items or fitted_items == "null", fitted or kind
        if not (same_shape and fits):
            raise DataError(
                f"the column contains {kind}, not {wanted}",
                where={"column": column},
                hint="A fitted workflow takes values of the kind that it was fitted on; "
                "`distrain prep --workflow` makes them from raw files.",
            )

    def training_values(
        self,
        column: str,
        values: pa.Array,
        rows: TrainingRows | None = None,
    ) -> pa.Array:
        """Return one column's values after all operators: int32 ids, float32, or lists of these.

        The result has no nulls. `rows` is as in `transform`.

        Raises:
            DataError: A value cannot be used, is missing, NaN or infinite after the last operator,
                or an operator is not fitted.
        """
        for operator in self.operators:
            if isinstance(operator, FittedByColumn) and not operator.is_fitted(column):
                raise DataError(
                    f"{operator.kind} was not fitted",
                    where={"column": column},
                    hint="Fit it first.",
                )
        target = pa.int32() if self.is_categorical else pa.float32()
        values = self.transform(column, values, rows=rows)
        if not holds_lists(values.type):
            return _cast(column, values, target)
        lists = Lists.of(values)
        try:
            items = _cast(column, lists.items, target)
        except DataError as error:
            item = error.where.get("row")
            if isinstance(item, int):
                error.where["row"] = lists.row_of(item)
            raise
        return replace(lists, items=items).to_arrow(nullable_items=False)

    def to_json(self) -> dict[str, Any]:
        operators = [{"kind": operator.kind, **operator.to_json()} for operator in self.operators]
        return {"columns": list(self.columns), "operators": operators}

    @classmethod
    def from_json(
        cls,
        document: Mapping[str, Any],
        load: Callable[[str], Vocabulary],
        load_table: Callable[[str], ValueTable],
    ) -> ColumnGroup:
        """Return the group of a document from `to_json`.

        Args:
            load: Returns the vocabulary of a column or a domain.
            load_table: Returns the table of a column's counts or target means.
        """
        columns = tuple(document["columns"])
        operators = [_operator(entry, columns, load, load_table) for entry in document["operators"]]
        return cls(columns, tuple(operators))


def training_rows(table: pa.Table) -> TrainingRows | None:
    """Return the folds (or times) and labels of a table's rows, for `TargetEncode`.

    The result is `None` if the table has no column `FOLD`; its labels are `None` if there is no
    column `LABEL`.
    """
    if FOLD not in table.column_names:
        return None
    labels = None
    if LABEL in table.column_names:
        labels = concrete(table[LABEL]).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return TrainingRows(concrete(table[FOLD]).to_numpy(zero_copy_only=False), labels)


def _of_rows(operators: Iterable[Operator], rows: TrainingRows | None) -> tuple[Operator, ...]:
    return tuple(
        one.of_rows(rows) if rows is not None and isinstance(one, TargetEncode) else one
        for one in operators
    )


def _cast(column: str, values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.null_count:
        raise DataError(
            f"{values.null_count} values are missing after the last operator",
            where={"column": column},
            hint="Add FillMissing to the column's operators.",
        )
    values = values.cast(target, safe=False)
    if pa.types.is_floating(target):
        finite = np.isfinite(values.to_numpy(zero_copy_only=False))
        if not finite.all():
            raise DataError(
                "a value is NaN or infinite as float32",
                where={"column": column, "row": int(np.argmin(finite))},
                hint="Add FillMissing or Clip to the column's operators.",
            )
    return values


def _operator(
    document: Mapping[str, Any],
    columns: tuple[str, ...],
    load: Callable[[str], Vocabulary],
    load_table: Callable[[str], ValueTable],
) -> Operator:
    settings = {key: value for key, value in document.items() if key != "kind"}
    kind = OPERATORS.get(document["kind"])
    if kind is None:
        raise DataError(f"unknown operator {document['kind']!r} in the saved workflow")
    if kind is Categorify:
        domain = settings.get("domain")
        settings["vocabularies"] = (
            {column: load(column) for column in columns}
            if domain is None
            else dict.fromkeys(columns, load(domain))
        )
    if "tables" in settings:
        settings["tables"] = {column: load_table(column) for column in settings["tables"]}
    make = getattr(kind, "from_json", None)
    operator: Operator = kind(**settings) if make is None else make(settings)
    return operator
