"""`ColumnSchema`: the name, type and meaning of one column."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal

from distrain.errors import SchemaError


class Tags(StrEnum):
    """Common tags: those of Merlin's tools, and some of distrain. Columns may have other tags too.

    Other tags are lower-case words by convention; this is not checked.
    """

    CATEGORICAL = "categorical"
    CONTINUOUS = "continuous"
    LIST = "list"
    SEQUENCE = "sequence"
    TEXT = "text"
    TOKENIZED = "tokenized"
    EMBEDDING = "embedding"
    TIME = "time"
    ID = "id"
    USER = "user"
    ITEM = "item"
    SESSION = "session"
    CONTEXT = "context"
    USER_ID = "user_id"
    ITEM_ID = "item_id"
    SESSION_ID = "session_id"
    TARGET = "target"
    BINARY = "binary"
    BINARY_CLASSIFICATION = "binary_classification"
    MULTI_CLASS_CLASSIFICATION = "multi_class_classification"
    REGRESSION = "regression"
    WEIGHT = "weight"
    TASK_WEIGHT = "task_weight"
    TIME_DIFFERENCE = "time_difference"


TargetKind = Literal["binary", "regression", "multiclass"]
TARGET_TAGS: Mapping[TargetKind, Tags] = {
    "binary": Tags.BINARY_CLASSIFICATION,
    "regression": Tags.REGRESSION,
    "multiclass": Tags.MULTI_CLASS_CLASSIFICATION,
}
"""The tag of each kind of target; a target with none of these tags is binary."""


DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "string"),
)

MAX_NAME_LENGTH = 1_000
"""The maximum length of a column name in characters; names are shown in messages and on pages."""


@dataclass(frozen=True)
class ColumnSchema:
    """A column's name, type and meaning.

    Attributes:
        name: The column's name in the table.
        dtype: The type of a value (in a list column, of an item), one of `DTYPES`; `None` if
            unknown.
        tags: The column's roles, without repeats: `Tags` members or other lower-case words.
        cardinality: For a categorical column, ids are in `0 .. cardinality-1`. For a multiclass
            target, the number of classes. `None` if unknown.
        embedding_dim: The width of the embedding; `None` if the schema does not specify it.
        is_list: Whether a value is a list of items.
        is_ragged: Whether a value is a list, and the lists differ in length.
        value_count: Minimum and maximum list length, each `None` if unbounded; `None` if unknown.
        properties: Other entries of a Merlin file (`cat_path`, `freq_threshold`, ...), as JSON
            values.
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

    # of `columns_from_json`
    __pydantic_config__: ClassVar = {"strict": True, "extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.name:
            raise SchemaError("a column needs a name")
        if len(self.name) > MAX_NAME_LENGTH:
            raise SchemaError(
                f"a column's name has {len(self.name):,} characters; the limit is "
                f"{MAX_NAME_LENGTH:,}; it begins with {self.name[:40]!r}"
            )
        where = {"column": self.name}
        if self.dtype is not None and self.dtype not in DTYPES:
            hint = f"Allowed: {', '.join(DTYPES)}."
            raise SchemaError(f"unknown dtype {self.dtype!r}", where=where, hint=hint)
        for size in ("cardinality", "embedding_dim"):
            value = getattr(self, size)
            if value is not None and not 1 <= value < 2**63:
                message = f"{size} {_short(str(value), 40)} is not in 1 .. 2**63-1"
                raise SchemaError(message, where=where)
        if isinstance(self.tags, str):
            raise SchemaError(f"tags are a list of words, not the text {self.tags!r}", where=where)
        object.__setattr__(self, "tags", tuple(dict.fromkeys(str(tag) for tag in self.tags)))
        if self.value_count is not None:
            object.__setattr__(self, "value_count", tuple(self.value_count))
            if len(self.value_count) != 2:
                message = f"value_count is a least and a greatest length, not {self.value_count}"
                raise SchemaError(message, where=where)
            if wrong := [n for n in self.value_count if n is not None and not 0 <= n < 2**63]:
                message = f"value_count {_short(str(wrong[0]), 40)} is not in 0 .. 2**63-1"
                raise SchemaError(message, where=where)

    def __hash__(self) -> int:
        return hash((self.name, self.dtype, self.tags, self.cardinality, self.embedding_dim))

    @property
    def holds_lists(self) -> bool:
        """Whether each row has a list of items: the column is marked as list or as ragged."""
        return self.is_list or self.is_ragged

    @property
    def domain(self) -> str:
        """The name of the column's domain: by default, the column's name.

        Columns of one domain have the same ids for the same values, so they can share an embedding
        table.

        >>> ColumnSchema("last_item", properties={"domain": "item"}).domain
        'item'
        """
        given = self.properties.get("domain")
        return given if isinstance(given, str) and given else self.name

    @property
    def event(self) -> str:
        """The name of the kind of event that a list column records: by default, the column's name.

        Several list columns can record different fields of the same events. In each row, their
        lists then have the same length, one item for each event, from the oldest to the newest.

        >>> ColumnSchema("seen_shop", is_list=True, properties={"event": "seen"}).event
        'seen'
        """
        given = self.properties.get("event")
        return given if isinstance(given, str) and given else self.name

    @property
    def known(self) -> str | None:
        """The name of the column that is 1 in rows where this target's label is known, else 0.

        `None` if all rows are labelled.

        >>> ColumnSchema("bought", tags=("target",), properties={"known": "bought_known"}).known
        'bought_known'
        """
        given = self.properties.get("known")
        return given if isinstance(given, str) and given else None

    @property
    def target_kind(self) -> TargetKind:
        """The kind of a target's labels, by the column's tags; `"binary"` by default.

        >>> ColumnSchema("price", tags=("target", "regression")).target_kind
        'regression'
        """
        kinds = (kind for kind, tag in TARGET_TAGS.items() if self.has_tag(tag))
        return "binary" if self.has_tag(Tags.BINARY) else next(kinds, "binary")

    @property
    def max_list_length(self) -> int | None:
        """The maximum number of items that models read, from the start of each list.

        `None` if models read all items.

        >>> ColumnSchema("seen", is_list=True, properties={"max_list_length": 10}).max_list_length
        10
        """
        given = self.properties.get("max_list_length")
        return given if isinstance(given, int) and given > 0 else None

    def has_tag(self, tag: str) -> bool:
        return str(tag) in self.tags


def _short(text: str, most: int) -> str:
    """Return a text with at most `most` characters, which ends with `...` if it was longer."""
    return text if len(text) <= most else text[: most - 3] + "..."


def check_names(columns: Sequence[ColumnSchema]) -> None:
    """Raise `SchemaError` if several columns have the same name."""
    counts = Counter(column.name for column in columns)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise SchemaError(f"columns named more than once: {', '.join(repeated)}")


def columns_to_json(columns: Sequence[ColumnSchema]) -> list[dict[str, Any]]:
    """Return the name and the non-default fields of each column, as JSON values."""
    empty = asdict(ColumnSchema("-"))
    return [
        {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(column).items()
            if key == "name" or value != empty[key]
        }
        for column in columns
    ]


def columns_from_json(document: Mapping[str, Any]) -> tuple[ColumnSchema, ...]:
    """Return the columns of a document `{"columns": columns_to_json(columns)}`.

    Raises:
        SchemaError: The document has another form, an unknown field or an invalid value, or a name
            is repeated.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        items = json.dumps(document["columns"])
        columns = TypeAdapter(tuple[ColumnSchema, ...]).validate_json(items)
    except (KeyError, TypeError) as error:
        raise SchemaError(f"not a schema document: {_short(repr(error), 200)}") from None
    except ValidationError as error:
        # A mistyped key is named before the key that is missing for this reason.
        first = min(
            error.errors(),
            key=lambda one: (one["loc"][:1], one["type"] != "unexpected_keyword_argument"),
        )
        at, *field_at = first["loc"] or ("",)
        name = document["columns"][at].get("name") if field_at else None
        named = ".".join(map(str, field_at)) or f"columns.{at}".rstrip(".")
        raise SchemaError(
            f"not a schema document: {named} is {_short(repr(first['input']), 80)}: {first['msg']}",
            where={} if name is None else {"column": _short(repr(name), 80)},
            hint=f"The fields of a column: {', '.join(asdict(ColumnSchema('-')))}.",
        ) from None
    check_names(columns)
    return columns
