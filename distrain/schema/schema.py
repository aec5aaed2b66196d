"""`Schema`: the ordered columns of a table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from distrain.errors import SchemaError
from distrain.schema.column import (
    ColumnSchema,
    Tags,
    check_names,
    columns_from_json,
    columns_to_json,
)
from distrain.schema.files import read_columns, write_columns


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in order; raises `SchemaError` if a name is repeated.

    >>> schema = Schema((ColumnSchema("price", tags=(Tags.CONTINUOUS,)), ColumnSchema("clicked")))
    >>> schema.names
    ('price', 'clicked')
    >>> schema.select_by_tag(Tags.CONTINUOUS).names
    ('price',)
    """

    columns: tuple[ColumnSchema, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        check_names(self.columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def _by_name(self) -> Mapping[object, ColumnSchema]:
        return {column.name: column for column in self.columns}

    def __iter__(self) -> Iterator[ColumnSchema]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> ColumnSchema:
        """Return the column of that name.

        Raises:
            SchemaError: No column has that name; the hint suggests the most similar name.
        """
        if name in self._by_name:
            return self._by_name[name]
        near = get_close_matches(name, self.names, n=1)
        raise SchemaError(
            f"no column {name!r} in the schema",
            hint=f"Did you mean {near[0]!r}?" if near else f"It has: {_some(self.names)}.",
        )

    def select(self, names: Iterable[str]) -> "Schema":
        """Return the named columns in the order of `names`; `SchemaError` if one is missing."""
        return Schema(tuple(self[name] for name in names))

    def select_by_tag(self, *tags: str) -> "Schema":
        """Return the columns that carry any of the tags, in schema order."""
        return Schema(tuple(c for c in self.columns if any(c.has_tag(tag) for tag in tags)))

    def remove(self, names: Iterable[str]) -> "Schema":
        """Return the schema without the named columns; `SchemaError` if a name is not in it."""
        dropped = {self[name].name for name in names}
        return Schema(tuple(c for c in self.columns if c.name not in dropped))

    def remove_by_tag(self, *tags: str) -> "Schema":
        """Return the columns that carry none of the tags."""
        return Schema(tuple(c for c in self.columns if not any(c.has_tag(tag) for tag in tags)))

    def with_columns(self, *columns: ColumnSchema) -> "Schema":
        """Return a schema in which the given columns replace those of the same name.

        Columns with new names are appended.
        """
        new = {column.name: column for column in columns}
        kept = tuple(new.pop(c.name, c) for c in self.columns)
        return Schema(kept + tuple(new.values()))

    @property
    def categorical(self) -> "Schema":
        return self.select_by_tag(Tags.CATEGORICAL)

    @property
    def continuous(self) -> "Schema":
        return self.select_by_tag(Tags.CONTINUOUS)

    @property
    def target(self) -> ColumnSchema:
        """The only column tagged TARGET; raises `SchemaError` if there are none or several."""
        targets = self.select_by_tag(Tags.TARGET)
        if len(targets) != 1:
            listing = f": {', '.join(targets.names)}" if targets else ""
            raise SchemaError(
                f"the schema has {len(targets)} target columns, not one{listing}",
                hint="Tag the label's column, and only it, with `target`.",
            )
        return targets.columns[0]

    def to_json(self) -> dict[str, Any]:
        """Return the schema as JSON values: the non-default fields of every column."""
        return {"columns": columns_to_json(self.columns)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Schema":
        """Return the schema that `to_json` wrote.

        Raises:
            SchemaError: A field is unknown or has an invalid value, or a column is repeated.
        """
        return cls(columns_from_json(document))

    @classmethod
    def load(cls, path: str | Path) -> "Schema":
        """Read a schema file (`*.pbtxt`, `*.json`), or a folder's schema file (see `find_schema`).

        Raises:
            SchemaError: The file is missing, its format unknown, or its content unreadable.
        """
        return cls(read_columns(path))

    def save(self, path: str | Path) -> None:
        """Write the schema, completely or not at all. The file's extension determines the format.

        Raises:
            SchemaError: The name's ending is not a known format, or a column cannot be written.
            OutputError: The file could not be written.
        """
        write_columns(self.columns, path)


def _some(names: Sequence[str], most: int = 50) -> str:
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
