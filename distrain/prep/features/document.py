"""The document that describes a table's columns: `features.yaml`.

Field descriptions appear in the published JSON Schema.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, field_validator, model_serializer, model_validator

from distrain.errors import InputError
from distrain.jobs.spec.explain import shown
from distrain.jobs.spec.fields import PositiveInt, Real, Section
from distrain.prep.features.columns import (
    TIMES_OF_SPLIT,
    CategoricalSpec,
    Column,
    ColumnName,
    ColumnSpec,
    ContinuousSpec,
    HistorySpec,
)
from distrain.prep.features.targets import TableWindows, TargetSpec, Value, as_text, or_name
from distrain.prep.operators.encodings import TargetEncode
from distrain.prep.vocabulary import mistake_of_name
from distrain.schema.column import ColumnSchema, Tags
from distrain.schema.criteo import LABEL

CRITEO: Final = "criteo"
"""The `kind` of a text format whose lines are those of Criteo's logs."""


class RowsSplit(Section):
    """The last rows are for validation."""

    by: Literal["rows"] = Field(description="How the validation rows are selected.")
    last: PositiveInt = Field(description="The number of validation rows.")


class FractionSplit(Section):
    """The last share of the rows is for validation."""

    by: Literal["fraction"] = Field(description="How the validation rows are selected.")
    last: Real = Field(gt=0, lt=1, description="The share of the validation rows.")


class TimeSplit(Section):
    """Rows from a given time on are for validation."""

    by: Literal["time"] = Field(description="How the validation rows are selected.")
    column: ColumnName = Field(description="The input's column of times or numbers.")
    start: Annotated[int | float | str, BeforeValidator(as_text)] = Field(
        alias="from", description="The first value of the validation rows, a time or a number."
    )

    @field_validator("start")
    @classmethod
    def _a_time(cls, value: int | float | str) -> int | float | str:
        try:
            if isinstance(value, bool | str):
                datetime.datetime.fromisoformat(str(value))
        except ValueError:
            raise ValueError(
                "a time (2024-05-01, 2024-05-01T12:00:00) or a number is needed"
            ) from None
        return value


class HashSplit(Section):
    """A share of a column's values, with all their rows, is for validation."""

    by: Literal["hash"] = Field(description="How the validation rows are selected.")
    column: ColumnName = Field(
        description="The input's column. Rows with a missing value are training rows."
    )
    share: Real = Field(
        gt=0, lt=1, description="The approximate share of values whose rows are validation rows."
    )


class RandomSplit(Section):
    """A share of the rows, drawn at random, is for validation."""

    by: Literal["random"] = Field(description="How the validation rows are selected.")
    share: Real = Field(gt=0, lt=1, description="The share of the validation rows.")


class ColumnSplit(Section):
    """The values of a column select the rows for validation."""

    by: Literal["column"] = Field(description="How the validation rows are selected.")
    column: ColumnName = Field(description="The input's column.")
    equals: Value = Field(description="The value of the validation rows.")


Split = RowsSplit | FractionSplit | TimeSplit | HashSplit | RandomSplit | ColumnSplit


class FormatSpec(Section):
    """The format of text files."""

    kind: Literal["auto", "csv", "jsonl", "criteo"] = Field(
        "auto",
        description="`csv` is any text with delimiters. `criteo` is the format of Criteo's "
        "logs: label, I1..I13, C1..C26; by default separated by tabs and without "
        "a header. `auto` is csv or jsonl, by name and content.",
    )
    delimiter: str | None = Field(
        None,
        min_length=1,
        max_length=1,
        description="The character between fields; null: detect it in the first line.",
    )
    quote: str | None = Field(
        '"',
        min_length=1,
        max_length=1,
        description="The quote character around fields; null: quotes are part of the text.",
    )
    escape: str | None = Field(
        None,
        min_length=1,
        max_length=1,
        description="The escape character before a quote inside quotes, besides the doubled quote.",
    )
    header: bool = Field(True, description="Whether each file's first line names the columns.")
    names: tuple[ColumnName, ...] = Field((), description="The columns of files without a header.")
    null_values: tuple[str, ...] = Field(("",), description="Texts that mean a missing value.")
    decimal_point: Literal[".", ","] = Field(".", description="The decimal mark of numbers.")
    encoding: Literal["utf-8", "latin-1", "cp1252"] = Field(
        "utf-8", description="The encoding of the text."
    )
    timestamp: str | None = Field(
        None,
        description="The format of times, as in strptime (`%m/%d/%Y %H:%M`). Those of ISO 8601 "
        "(`2024-05-01 12:00`) are read as well; null: only those.",
    )

    @model_validator(mode="before")
    @classmethod
    def _criteo_has_no_header(cls, value: object) -> object:
        if isinstance(value, Mapping) and value.get("kind") == CRITEO:
            return {"header": False, **value}
        return value

    @model_serializer(mode="wrap")
    def _with_header_of_criteo(self, dump: Any) -> dict[str, Any]:
        document: dict[str, Any] = dump(
            self
        )  # `dump` leaves out `header: true`, which is the default of other kinds
        return {**document, "header": self.header} if self.kind == CRITEO else document

    @model_validator(mode="after")
    def _names_for_headerless(self) -> FormatSpec:
        if self.kind == CRITEO:
            more = sorted(self.model_fields_set - {"kind", "delimiter", "header"})
            if more:
                raise ValueError(f"{', '.join(more)}: not with kind criteo, which determines it")
            return self
        if not self.header and not self.names:
            raise ValueError("without a header, names is needed")
        if self.header and self.names:
            raise ValueError("names is for files without a header; set header to false")
        if self.delimiter is not None and self.delimiter in (self.quote, self.decimal_point):
            raise ValueError(f"delimiter {self.delimiter!r} is also the quote or decimal point")
        repeated = sorted({name for name in self.names if self.names.count(name) > 1})
        if repeated:
            raise ValueError(f"names has {', '.join(repeated)} twice")
        return self


def _one_name(value: object) -> object:
    if isinstance(value, str):
        return {value: value}
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return {name: name for name in value}
    return value


def _or_names(schema: dict[str, Any]) -> None:
    mapping = {key: schema.pop(key) for key in ("type", "additionalProperties", "minProperties")}
    mapping |= {"propertyNames": schema.pop("propertyNames")} if "propertyNames" in schema else {}
    names = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
    schema["anyOf"] = [{"type": "string", "minLength": 1}, names, mapping]


Names = Annotated[dict[ColumnName, ColumnName], BeforeValidator(_one_name)]


class JoinSpec(Section):
    """A small table whose columns are joined to rows by keys.

    Rows without a match get missing values.
    """

    file: str = Field(
        min_length=1,
        description="CSV, JSON lines or parquet; a relative path starts at this document's folder.",
    )
    key: Names = Field(
        min_length=1,
        description="The key: a column's name, several names, or a mapping from the rows' column "
        "to the side table's. Values are compared as text. A key may occur in only one row of the "
        "side table.",
        json_schema_extra=_or_names,
    )
    columns: Names = Field(
        min_length=1,
        description="The columns to add to the rows: a name, several names, or a mapping "
        "from a new name to the side table's.",
        json_schema_extra=_or_names,
    )
    format: FormatSpec = FormatSpec()


class FeatureDocument(Section):
    """The description of a table's columns, and of the split of its rows."""

    version: Literal[1] = Field(1, description="The version of this document's format.")
    target: TargetSpec = Field(
        description="The name of a column, or a column and a comparison.", json_schema_extra=or_name
    )
    more_targets: dict[ColumnName, TargetSpec] = Field(
        {}, description="Further targets, by the names of their labels in the output."
    )
    weight: ColumnName | None = Field(
        None,
        description="The column of row weights, 0 or more; null: all rows have the same weight.",
    )
    windows: TableWindows | None = Field(
        None, description="Windows of the rows, such as days; null for none."
    )
    split: Annotated[Split, Field(discriminator="by")] | None = Field(
        None,
        description="Selects the validation rows; null: none, or those that the command selects.",
    )
    test: Annotated[Split, Field(discriminator="by")] | None = Field(
        None,
        description="Selects the test rows, before `split` selects from the others. They are only "
        "for a final evaluation; null: none.",
    )
    format: FormatSpec = FormatSpec()
    joins: tuple[JoinSpec, ...] = Field(
        (),
        description="Side tables, joined in this order; their columns can be used like the "
        "table's own.",
    )
    partitions: dict[ColumnName, Literal["text", "integer"]] = Field(
        {},
        description="Types of the values in the names of hive folders (`day=2024-05-01/`). "
        "By default they are integers if all folders hold integers of 32 bits without leading "
        "zeros, otherwise texts.",
    )
    columns: dict[ColumnName, Column] = Field(
        min_length=1, description="The features, by their names in the output."
    )

    history: HistorySpec | None = Field(
        None, description="Lists of earlier events with the same key; null for none."
    )

    @property
    def staged(self) -> dict[str, ColumnSpec]:
        """The columns of staged rows, by name, with the settings by which their values are read.

        These are the features, the keys and times of the history, and the times by which target
        means are learnt.
        """
        times = {TIMES_OF_SPLIT: self.times_of_split} if self.times_of_split else {}
        return {**self.columns, **(self.history.staged if self.history else {}), **times}

    @property
    def times_of_split(self) -> ColumnSpec | None:
        """The settings of the split's time column, for operators that learn in time order.

        `None` unless rows are split by time and a column has target means.
        """
        if not isinstance(self.split, TimeSplit) or not any(
            isinstance(operator, TargetEncode)
            for column in self.columns.values()
            for operator in column.operators
        ):
            return None
        as_ = "seconds" if isinstance(self.split.start, str) else "number"
        return ContinuousSpec.model_validate(
            {"kind": "continuous", "from": self.split.column, "as": as_, "fill": 0}
        )

    @property
    def last_rows(self) -> dict[str, Any]:
        """The field of a `PrepRequest` that splits off the last rows; empty for other splits."""
        return self.last_of(self.split)

    @staticmethod
    def last_of(split: Split | None) -> dict[str, Any]:
        """Return the number or share of last rows that a split selects, as in `last_rows`."""
        match split:
            case RowsSplit(last=rows):
                return {"valid_rows": rows}
            case FractionSplit(last=share):
                return {"valid_fraction": share}
        return {}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The table's columns that are read, each once, without the columns of side tables."""
        splits = [getattr(split, "column", None) for split in (self.test, self.split)]
        sources = [one for name, column in self.columns.items() for one in column.sources(name)]
        wanted = [target.column for target in self.targets.values()]
        wanted += [name for name in (self.weight, self.windows and self.windows.by) if name]
        wanted += [*filter(None, splits), *sources]
        wanted += [self.history.by, self.history.order] if self.history else []
        wanted += [name for join in self.joins for name in join.key]
        joined = {name for join in self.joins for name in join.columns}
        return tuple(name for name in dict.fromkeys(wanted) if name not in joined)

    @property
    def targets(self) -> dict[str, TargetSpec]:
        """All targets, by the names of their labels in the output."""
        return {LABEL: self.target, **self.more_targets}

    @property
    def beside(self) -> tuple[ColumnSchema, ...]:
        """The schema of the output columns other than the features and the first target's label.

        These are the labels of further targets, columns that mark known labels, the weight, and the
        windows.
        """
        columns = [target.schema_of(name) for name, target in self.more_targets.items()]
        known = [target.known_schema_of(name) for name, target in self.more_targets.items()]
        columns += [column for column in known if column is not None]
        if self.weight is not None:
            columns.append(ColumnSchema(self.weight, "float32", (Tags.WEIGHT,)))
        if self.windows is not None:
            size = {"window_size": self.windows.size}
            columns.append(ColumnSchema(self.windows.by, tags=(Tags.TIME,), properties=size))
        return tuple(columns)

    @model_validator(mode="after")
    def _consistent(self) -> FeatureDocument:
        sources = {name: column.sources(name) for name, column in self.columns.items()}
        targets = {t.column for t in self.targets.values() if not t.is_feature}
        beside = [column.name for column in self.beside]
        names = [LABEL, *beside, *self.columns]
        twice = sorted({name for name in beside if names.count(name) > 1})
        domains = {n: getattr(column, "domain", None) for n, column in self.columns.items()}
        mistakes = [*_bad_names(sources, domains), *_leaks(sources, targets)]
        mistakes += [
            f"{name!r} is the name of another output column; rename one of them" for name in twice
        ]
        mistakes += _unequal_domains(self.columns)
        mistakes += _without_mean(self.columns, self.target)
        if self.target.missing == "unknown":
            mistakes.append(
                "target.missing: unknown is only for more_targets; use drop for rows without "
                "a label of the first target"
            )
        last = (RowsSplit, FractionSplit)
        if isinstance(self.test, last) and not isinstance(self.split, (*last, type(None))):
            mistakes.append(
                f"test.by {self.test.by} needs split.by rows or fraction, too, not {self.split.by}"
            )
        mistakes += _crossed_joins(self.joins)
        mistakes += _unlisted(self.history, [*self.columns, *beside])
        if mistakes:
            raise ValueError("\n".join(mistakes))
        return self


def mistakes_between_keys(document: Mapping[str, Any]) -> list[str]:
    """Return the mistakes in names, domains and sources of an unchecked document's columns.

    Parts of the document that cannot be read are skipped.
    """
    columns, target = document.get("columns"), document.get("target")
    if not isinstance(columns, Mapping):
        return []
    sources = {name: _sources(name, column) for name, column in columns.items()}
    domains = {
        n: column.get("domain") for n, column in columns.items() if isinstance(column, Mapping)
    }
    if isinstance(target, Mapping):
        target = None if target.get("is_feature") is True else target.get("column")
    return [*_bad_names(sources, domains), *_leaks(sources, {target})]


def _sources(name: str, column: object) -> tuple[str, ...]:
    if not isinstance(column, Mapping):
        return (name,)
    crossed = column.get("cross")
    if isinstance(crossed, list | tuple) and crossed:
        return tuple(map(str, crossed))
    return (str(column.get("from") or name),)


def _bad_names(sources: Mapping[str, tuple[str, ...]], domains: Mapping[str, object]) -> list[str]:
    mistakes = []
    for name, of_name in sources.items():
        if name == LABEL:
            mistakes.append(
                f"columns.{name}: the target is written as {LABEL!r}; give the feature another "
                f"name and `from: {of_name[0]}`"
            )
        elif mistake := mistake_of_name(name):
            hint = f"give another name and `from: {shown(name)[1:-1]}`"
            mistakes.append(f"columns.{shown(name)}: {mistake}; {hint}")
        domain = domains.get(name)
        if isinstance(domain, str) and (mistake := mistake_of_name(domain)):
            mistakes.append(f"columns.{name}.domain {shown(domain)}: {mistake}")
    return mistakes


def _leaks(sources: Mapping[str, tuple[str, ...]], targets: Collection[object]) -> list[str]:
    return [
        f"columns.{name}: {source!r} is the target, so a model would see the answer; leave it "
        "out, or set target.is_feature to true"
        for name, of_name in sources.items()
        for source in of_name
        if source in targets
    ]


def _crossed_joins(joins: tuple[JoinSpec, ...]) -> list[str]:
    mistakes = []
    brought: dict[str, int] = {}
    for place, join in enumerate(joins):
        for name in join.columns:
            if name in brought:
                mistakes.append(
                    f"joins.{place}.columns: joins.{brought[name]} brings {name!r} too; rename "
                    f"one: columns: {{NEW: {join.columns[name]}}}"
                )
            brought.setdefault(name, place)
    for place, join in enumerate(joins):
        mistakes += [
            f"joins.{place}.key: {name!r} comes from the later joins.{brought[name]}"
            for name in join.key
            if brought.get(name, -1) >= place
        ]
    return mistakes


def _unlisted(history: HistorySpec | None, names: Collection[str]) -> list[str]:
    if history is None:
        return []
    try:
        mistake = history.operator.mistake_among([*names])
    except InputError as error:
        mistake = error.message
    return [] if mistake is None else [f"history: {mistake}"]


def _without_mean(columns: Mapping[str, ColumnSpec], target: TargetSpec) -> list[str]:
    if target.kind != "multiclass":
        return []
    return [
        f"columns.{name}: target_mean needs a binary or regression target, not classes"
        for name, column in columns.items()
        if any(isinstance(operator, TargetEncode) for operator in column.operators)
    ]


def _unequal_domains(columns: Mapping[str, ColumnSpec]) -> list[str]:
    mistakes = []
    first: dict[str, tuple[str, CategoricalSpec]] = {}
    for name, column in columns.items():
        if not isinstance(column, CategoricalSpec) or column.domain is None:
            continue
        other, known = first.setdefault(column.domain, (name, column))
        if known.operators != column.operators:
            mistakes.append(
                f"columns.{name}: freq_threshold, max_size, num_buckets, buckets "
                f"and hash_buckets of the domain {column.domain!r} differ from "
                f"columns.{other}; a domain has one vocabulary"
            )
        apart = columns.get(column.domain)
        if isinstance(apart, CategoricalSpec) and apart.domain != column.domain:
            mistakes.append(
                f"columns.{name}: the domain {column.domain!r} has the name of a column outside it"
            )
    return mistakes
