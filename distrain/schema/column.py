"""One column."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distrain.errors import SchemaError

DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "string",
)

MAX_NAME_LENGTH = 1_000
"""Characters of a column's name at most: names go into messages, tables and pages."""


@dataclass(frozen=True)
class ColumnSchema:
    """A column's name, type and meaning.

    Attributes:
        name: The column's name in the table.
        dtype: One of `DTYPES`, of one value (of one list item for list columns); `None` if unknown.
        tags: What it is for, without repeats; `Tags` members or other lower-case words.
        cardinality: For a categorical column: ids lie in `0 .. cardinality-1`.
        embedding_dim: The embedding's width, if the data's owner chose one.
        is_list: Whether a value is a list of items.
        is_ragged: Whether those lists differ in length.
        value_count: Least and greatest list length, `None` where unbounded.
        properties: Whatever else a Merlin file says (`cat_path`, `freq_threshold`, ...), as JSON.
    """

    name: str
    dtype: str | None = None
    tags: tuple[str, ...] = ()
    cardinality: int | None = None
    embedding_dim: int | None = None
    is_list: bool = False
    is_ragged: bool = False
    value_count: tuple[int | None, int | None] | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name:
            raise SchemaError("a column needs a name")
        if len(self.name) > MAX_NAME_LENGTH:
            raise SchemaError(
                f"a column's name has {len(self.name):,} characters, and {MAX_NAME_LENGTH:,} are "
                f"the most; it begins with {self.name[:40]!r}"
            )
        if self.dtype is not None and self.dtype not in DTYPES:
            raise SchemaError(
                f"unknown dtype {self.dtype!r}",
                where={"column": self.name},
                hint=f"Allowed: {', '.join(DTYPES)}.",
            )
        if self.cardinality is not None and self.cardinality < 1:
            raise SchemaError(
                f"cardinality {self.cardinality} is not positive", where={"column": self.name}
            )
        if self.embedding_dim is not None and self.embedding_dim < 1:
            raise SchemaError(
                f"embedding_dim {self.embedding_dim} is not positive", where={"column": self.name}
            )
        if isinstance(self.tags, str):
            raise SchemaError(
                f"tags are a list of words, not the text {self.tags!r}", where={"column": self.name}
            )
        object.__setattr__(self, "tags", tuple(dict.fromkeys(str(tag) for tag in self.tags)))
        if self.value_count is not None:
            object.__setattr__(self, "value_count", tuple(self.value_count))
            if len(self.value_count) != 2:
                raise SchemaError(
                    f"value_count is a least and a greatest length, not {self.value_count}",
                    where={"column": self.name},
                )

    def __hash__(self) -> int:
        return hash((self.name, self.dtype, self.tags, self.cardinality, self.embedding_dim))

    @property
    def holds_lists(self) -> bool:
        """Whether a row holds a list of items; what is ragged is a list."""
        return self.is_list or self.is_ragged

    @property
    def domain(self) -> str:
        """The name of its domain: its own, unless a Merlin file gave it another.

        Columns of one domain have the same ids for the same things, so they can share a table.

        >>> ColumnSchema("last_item", properties={"domain": "item"}).domain
        'item'
        """
        given = self.properties.get("domain")
        return given if isinstance(given, str) and given else self.name

    @property
    def max_list_length(self) -> int | None:
        """How many items of a list models see, the first ones; `None` for all.

        >>> ColumnSchema("seen", is_list=True, properties={"max_list_length": 10}).max_list_length
        10
        """
        given = self.properties.get("max_list_length")
        return given if isinstance(given, int) and given > 0 else None

    def has_tag(self, tag: str) -> bool:
        """Whether the column carries `tag`."""
        return str(tag) in self.tags
