"""Workflows: the operators of each column, fitted and saved together.

A workflow is saved as `workflow.json` and a folder `categories/` of parquet files; nothing is
pickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from distrain.errors import DataError, InputError
from distrain.prep.column_group import (
    FOLD,
    INTEGERS,
    LISTS_OF,
    TEXTS,
    ColumnGroup,
    kind_of,
    training_rows,
)
from distrain.prep.operators.categorify import Categorify, category_type
from distrain.prep.operators.encodings import Encoding
from distrain.prep.operators.history import History
from distrain.prep.operators.numbers import Clip, FillMissing, LogOp, Normalize
from distrain.prep.operators.operator import FittedByColumn, takes_of
from distrain.prep.operators.value_table import ValueTable
from distrain.prep.vocabulary import CATEGORIES, WORKFLOW_FILE, Vocabulary, is_text, mistake_of_name
from distrain.schema.criteo import CATEGORICAL, CONTINUOUS, LABEL
from distrain.storage.folder import open_folder
from distrain.storage.inputs import read_bytes
from distrain.storage.outputs import atomic_file

VERSION = 1
_OWN_KEYS = ("version", "groups", "history")
HOLDS = "holds"
FORM = "form"
RAW_FILES = "raw_files"
"""Keys of `Workflow.record`, with facts about the rows on which the workflow was fitted.

`HOLDS`: the kind (`kind_of`) of each column's values. `FORM`: the form of the first file: `table`
(typed columns), `csv` or `json`. `RAW_FILES`: the size of each input file of fits and updates by
its absolute path, for the parts `train` and `valid`.
"""


@dataclass(frozen=True)
class FitStage:
    """One operator to fit: the index of its group in the workflow, and its index in the group."""

    group: int
    operator: int


@dataclass(frozen=True)
class Workflow:
    """The operators of a table's columns, fitted or not: groups of columns in output order.

    Each column is in one group. Methods that fit or change a workflow return a new one.

    >>> fitted = Workflow((ColumnGroup(("C1",), (Categorify(),)),)).fit(
    ...     [pa.table({"C1": ["b", "a", None, "b"]})]
    ... )
    >>> fitted.transform(pa.table({"C1": ["a", "b", "new", None]}))["C1"].to_pylist()
    [4, 3, 2, 1]

    Attributes:
        record: Other entries of `workflow.json`, about the files and rows of the fit.
        history: Describes the lists of earlier events that each row gets; `None` for no lists.
    """

    groups: tuple[ColumnGroup, ...]
    record: Mapping[str, Any] = field(default_factory=dict, compare=False)
    history: History | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        names = self.columns
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InputError(f"columns in more than one group: {', '.join(repeated)}")
        vocabularies = [
            name
            for group in self.groups
            if group.is_categorical
            for name in ([group.domain] if group.domain is not None else group.columns)
        ]
        twice = sorted({name for name in vocabularies if vocabularies.count(name) > 1})
        if twice:
            raise InputError(
                f"several vocabularies would be named {', '.join(twice)}",
                hint="A domain needs one group of columns, and no other column may have its name.",
            )
        for name in vocabularies:
            if mistake := mistake_of_name(name):
                raise InputError(mistake, where={"column or domain": name})
        if LABEL in names:
            raise InputError(f"{LABEL!r} cannot have operators: it is kept unchanged")
        if self.history is not None and (mistake := self.history.mistake_among(names)):
            raise InputError(mistake)
        listed = {*self.history.of} & {*self.labelled} if self.history is not None else ()
        if listed:
            raise InputError(
                f"a history cannot list {', '.join(sorted(listed))}: it is computed from labels",
                hint="List the categories themselves.",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the groups make, in output order."""
        return tuple(column for group in self.groups for column in group.columns)

    @property
    def categorical(self) -> tuple[str, ...]:
        """The columns that become ids, in output order."""
        return tuple(c for group in self.groups if group.is_categorical for c in group.columns)

    @property
    def taking_categories(self) -> tuple[str, ...]:
        """The columns whose raw values are read as categories, as their operators require."""
        takers = (group for group in self.groups if takes_of(group.operators) == "categories")
        return tuple(column for group in takers for column in group.columns)

    @property
    def labelled(self) -> tuple[str, ...]:
        """The columns with target means, which are computed differently for training rows."""
        return tuple(c for group in self.groups if group.learns_labels for c in group.columns)

    @property
    def learns_labels(self) -> bool:
        """Whether a column has target means."""
        return bool(self.labelled)

    @property
    def has_tables(self) -> bool:
        """Whether some columns have counts or target means; workers keep their tables in memory."""
        operators = (operator for group in self.groups for operator in group.operators)
        return any(isinstance(operator, Encoding) for operator in operators)

    @property
    def by_time(self) -> bool:
        """Whether some target means are learnt in the order of the training rows' times."""
        return any(group.by_time for group in self.groups)

    @property
    def cardinalities(self) -> dict[str, int]:
        """The number of ids of each categorical column."""
        return {column: v.cardinality for column, v in self._vocabularies().items()}

    @property
    def domains(self) -> dict[str, str]:
        """The domain of each column that shares its vocabulary with other columns."""
        return {
            column: group.domain
            for group in self.groups
            if group.domain is not None
            for column in group.columns
        }

    def reading(self, null_values: Sequence[str] = ()) -> dict[str, Any]:
        """Return fields of a `StagingTask` with which later rows are read like the fitted rows.

        Categories get the type that they had in the fit, in any file format. `null_values` are the
        texts that mean a missing value; an empty text is one only if the workflow was fitted on
        CSV.
        """
        kinds = {c: k.removeprefix(LISTS_OF) for c, k in self.record.get(HOLDS, {}).items()}
        types = {INTEGERS: "int64", TEXTS: "string"}
        holds = {c: types[kind] for c, kind in kinds.items() if kind in types}
        # A column without values when its domain was fitted has the type of the domain.
        of_domains = {self.domains[c]: kind for c, kind in holds.items() if c in self.domains}
        holds = {c: of_domains[d] for c, d in self.domains.items() if d in of_domains} | holds
        is_csv = self.record.get(FORM) == "csv"
        return {
            "holds": holds,
            "null_texts": tuple(text for text in null_values if text or is_csv),
        }

    @property
    def text_categories(self) -> frozenset[str]:
        """The categorical columns whose fitted vocabulary has texts."""
        vocabularies = self._vocabularies().items()
        return frozenset(column for column, one in vocabularies if is_text(one.values.type))

    @property
    def vocabulary_names(self) -> tuple[str, ...]:
        """The names of the vocabularies: domains, and the columns without a domain."""
        domains = self.domains
        return tuple(dict.fromkeys(domains.get(column, column) for column in self.categorical))

    def _vocabularies(self) -> dict[str, Vocabulary]:
        vocabularies: dict[str, Vocabulary] = {}
        for group in self.groups:
            if group.operators and isinstance(group.operators[-1], Categorify):
                vocabularies.update(group.operators[-1].vocabularies)
        return vocabularies

    def check_category_types(self, types: Mapping[str, str]) -> None:
        """Raise a `DataError` if a column has another type than its domain or fitted vocabulary.

        `types` has `int64` or `string` for each categorical column that has values.
        """
        first: dict[str, str] = {}
        for column, domain in self.domains.items():
            if column not in types:
                continue  # all its values are missing
            other = first.setdefault(domain, column)
            if types[column] != types[other]:
                raise DataError(
                    f"the column has type {types[column]}, but {other!r} of the same domain has "
                    f"type {types[other]}",
                    where={"column": column, "domain": domain},
                    hint="Values of one vocabulary must be of one kind.",
                )
        made = {column for group in self.groups if group.makes_buckets for column in group.columns}
        for column, vocabulary in self._vocabularies().items():
            if column in made:
                continue  # the column's vocabulary has buckets
            known = category_type(vocabulary.values.type)
            fits = vocabulary.cardinality == vocabulary.first_value_id  # the vocabulary is empty
            if not fits and types.get(column, known) != known:
                raise DataError(
                    f"the column has type {types[column]}, but the saved categories have "
                    f"type {known}",
                    where={"column": column},
                    hint="Use a workflow that was fitted on files of this kind.",
                )

    def fit_passes(self) -> Iterator[list[FitStage]]:
        """Yield the stages of each pass over the data; a stage is one operator of one group.

        Pass n fits, in every group, the n-th of the operators that need a fit.
        """
        to_fit = [
            [
                FitStage(g, o)
                for o, operator in enumerate(group.operators)
                if isinstance(operator, FittedByColumn)
            ]
            for g, group in enumerate(self.groups)
        ]
        for n in range(max((len(stages) for stages in to_fit), default=0)):
            yield [stages[n] for stages in to_fit if n < len(stages)]

    def with_fitted(self, stage: FitStage, fitted: Mapping[str, Any]) -> Workflow:
        """Return the workflow in which one operator is fitted.

        `stage` identifies the operator and its group; `fitted` has the fitted state of each column.
        """
        group = self.groups[stage.group]
        operators = list(group.operators)
        operator = cast(FittedByColumn, operators[stage.operator])
        operators[stage.operator] = operator.with_fitted(fitted)
        groups = list(self.groups)
        groups[stage.group] = replace(group, operators=tuple(operators))
        return replace(self, groups=tuple(groups))

    def with_blocks(self, times: Any) -> Workflow:
        """Return the workflow with the blocks of target means that are learnt in time order.

        Blocks are intervals of time, cut at quantiles of `times`, a sample of the training rows'
        times in seconds. Call it before `fit`; other operators are unchanged.
        """
        return replace(self, groups=tuple(group.with_blocks(times) for group in self.groups))

    def with_record(self, **fields: Any) -> Workflow:
        """Return the workflow with further entries in its record, given by key."""
        return replace(self, record={**self.record, **fields})

    def fit(self, tables: Iterable[pa.Table]) -> Workflow:
        """Return the workflow with every operator fitted on tables in memory.

        `prepare` does the same on a cluster. Operators that learn from labels need columns `label`
        and `training.fold` (`fold_numbers`, or times). `transform` treats the rows of a table with
        `training.fold` as training rows.
        """
        tables = list(tables)
        workflow = self
        if self.by_time:
            workflow = self.with_blocks(
                np.concatenate([table[FOLD].to_numpy() for table in tables])
            )
        for stages in self.fit_passes():
            for stage in stages:
                group = workflow.groups[stage.group]
                operator = cast(FittedByColumn, group.operators[stage.operator])
                states = [group.fit(stage.operator, group.columns, table) for table in tables]
                learnt = {
                    name: operator.finish(operator.merge(*(state[name] for state in states)))
                    for name in states[0]
                }
                workflow = workflow.with_fitted(stage, group.by_column(learnt, group.columns))
        kinds = {c: kind_of(tables[0].schema.field(c).type) for c in self.columns if tables}
        return workflow.with_record(**{HOLDS: kinds})

    def transform(self, table: pa.Table) -> pa.Table:
        """Return the table's columns after all operators: int32 ids and float32, non-null.

        List columns become lists of such values; a missing list becomes an empty list. A column
        `label` comes first, unchanged; other columns without operators are dropped.

        Raises:
            DataError: A column is missing, or has another type than the fitted one; a value
                cannot be used; or an operator is not fitted.
        """
        missing = [column for column in self.columns if column not in table.column_names]
        if missing:
            raise DataError(
                f"{len(missing)} of {len(self.columns)} columns are missing",
                where={"columns": ", ".join(missing[:20])},
                hint="Rename the table's columns to those that the workflow was fitted on.",
            )
        arrays, fields = [], []
        if LABEL in table.column_names:
            arrays.append(table[LABEL])
            fields.append(table.schema.field(LABEL))
        for group in self.groups:
            for column in group.columns:
                values = self._training_values(group, column, table)
                arrays.append(values)
                fields.append(pa.field(column, values.type, nullable=False))
        return pa.table(arrays, schema=pa.schema(fields))

    def values_of(self, table: pa.Table, column: str) -> pa.Array:
        """Return one column of the result of `transform`."""
        (group,) = (group for group in self.groups if column in group.columns)
        return self._training_values(group, column, table)

    def _training_values(self, group: ColumnGroup, column: str, table: pa.Table) -> pa.Array:
        fitted = self.record.get(HOLDS, {})
        group.check_type(column, table.schema.field(column).type, fitted.get(column))
        return group.training_values(column, table[column], training_rows(table))

    def save(self, folder: str | Path) -> None:
        """Write `workflow.json` and `categories/` into a folder, created if missing, or to a URL.

        Raises:
            OutputError: A file could not be written.
        """
        self.save_document(folder)
        by_name = {self.domains.get(c, c): found for c, found in self._vocabularies().items()}
        for name, vocabulary in by_name.items():
            vocabulary.save(f"{folder}/{CATEGORIES}", name)

    def save_document(self, folder: str | Path) -> None:
        """Write `workflow.json` and the tables of counts and target means to a folder or a URL.

        Vocabularies are not written: `save` writes them afterwards, or the tasks that fitted them
        have already done so.

        `workflow.json` is written last, and appears complete. Raises `OutputError` if a file cannot
        be written.
        """
        open_folder(f"{folder}/{CATEGORIES}").make()
        for group in self.groups:
            group.save_tables(f"{folder}/{CATEGORIES}")
        groups = [group.to_json() for group in self.groups]
        document = {**self.record, "version": VERSION, "groups": groups}
        if self.history is not None:
            document["history"] = asdict(self.history)
        with atomic_file(f"{folder}/{WORKFLOW_FILE}") as partial_file:
            partial_file.write_text(json.dumps(document, indent=1) + "\n")

    @classmethod
    def load(
        cls,
        folder: str | Path,
        load_vocabulary: Callable[[str], Vocabulary] | None = None,
        load_table: Callable[[str], ValueTable] | None = None,
    ) -> Workflow:
        """Read a workflow that `save` wrote.

        Args:
            load_vocabulary: Returns the vocabulary of a column or a domain; by default it is read
                from the folder into memory.
            load_table: Returns the table of a column's counts or target means; by default it is
                also read from the folder.

        Raises:
            DataError: A file is missing, damaged, or of another version.
        """
        document = _read_document(f"{folder}/{WORKFLOW_FILE}")
        load = load_vocabulary or partial(Vocabulary.load, f"{folder}/{CATEGORIES}")
        load_table = load_table or partial(ValueTable.load, f"{folder}/{CATEGORIES}")
        try:
            groups = tuple(
                ColumnGroup.from_json(group, load, load_table) for group in document["groups"]
            )
            listed = document.get("history")
            history = None if listed is None else History.from_json(listed)
        except (KeyError, TypeError) as error:
            raise DataError(
                f"not a workflow document: {error!r}", where={"file": f"{folder}/{WORKFLOW_FILE}"}
            ) from None
        record = {name: v for name, v in document.items() if name not in _OWN_KEYS}
        return cls(groups, record, history)


def _read_document(file: str) -> dict[str, Any]:
    try:
        document = json.loads(read_bytes(file))
    except (OSError, ValueError) as error:
        raise DataError(
            "the saved workflow cannot be read",
            where={"file": file, "cause": str(error)},
            hint="Give the `workflow` folder that `distrain prep` wrote.",
        ) from None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        version = document.get("version") if isinstance(document, dict) else None
        raise DataError(
            f"the saved workflow has version {version}, not {VERSION}", where={"file": file}
        )
    return document


def criteo_workflow(
    freq_threshold: int = 6, max_size: int = 10_000_000, num_buckets: int = 0
) -> Workflow:
    """Return a workflow for Criteo's columns: normalised logarithms of I1..I13, ids of C1..C26.

    Args:
        freq_threshold: Keep only categories seen at least this often.
        max_size: Keep at most this many categories per column; 0 keeps all.
        num_buckets: Number of ids over which other categories are spread; 0 means one id.
    """
    numbers = (FillMissing(0), Clip(min=0), LogOp(), Normalize())
    categories = (Categorify(freq_threshold, max_size, num_buckets),)
    return Workflow((ColumnGroup(CONTINUOUS, numbers), ColumnGroup(CATEGORICAL, categories)))
