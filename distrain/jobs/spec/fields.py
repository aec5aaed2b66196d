"""Types of fields, and the base class of the sections, of a job spec."""

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from distrain.errors import DataError
from distrain.storage.urls import check_url

FUNCTION = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"
"""The pattern of a reference to a function or class: `package.module:NAME`."""
LARGEST = 2**31 - 1
REMOVED_KEY = "removed_key"
"""The type of pydantic's error for a key that earlier versions had."""
MOST_LAYERS = 1024
"""Maximum number of layers in one stack: even a layer without parameters takes memory."""


def _no_truth_value(value: object) -> object:
    """Return a field's value unchanged; raise `ValueError` for a boolean.

    Since `True` is 1 in Python, `num_ranks: yes` would otherwise train on one rank.
    """
    if isinstance(value, bool):
        raise ValueError("a number is needed (YAML reads yes, no, on and off as booleans)")
    return value


Whole = Annotated[int, BeforeValidator(_no_truth_value)]
Real = Annotated[float, BeforeValidator(_no_truth_value)]
PositiveInt = Annotated[Whole, Field(gt=0, le=LARGEST)]
DecayRate = Annotated[Real, Field(ge=0, lt=1)]
Depth = Annotated[Whole, Field(gt=0, le=MOST_LAYERS)]
Widths = Annotated[tuple[PositiveInt, ...], Field(max_length=MOST_LAYERS)]
Dropout = Annotated[Real, Field(ge=0, lt=1)]
Width = Annotated[PositiveInt, Field(description="The dimension of every embedding.")]
WidthOrOwn = Annotated[
    PositiveInt | None,
    Field(
        description="The dimension of every embedding; null: that of the schema, for each column."
    ),
]
HiddenDropout = Annotated[Dropout, Field(description="The dropout rate after each hidden layer.")]
Pieces = Annotated[
    int,
    Field(
        ge=0,
        le=256,
        strict=True,
        description="The number of pieces of a piecewise linear encoding of each continuous "
        "column. The model takes it in addition to the column's value. 0: no encoding. It expects "
        "columns of mean 0 and standard deviation 1.",
    ),
]
Structure = Annotated[
    Literal["stacked", "parallel"],
    Field(
        description="`stacked`: the MLP takes the output of the crosses. `parallel`: both take "
        "the input."
    ),
]
Placement = Literal["replicated", "row_wise", "host_cached"]
Pooling = Literal["mean", "sum", "sqrtn"]


class Section(BaseModel):
    """The base of all sections of a job spec: frozen; unknown keys are rejected."""

    # names of fields that may change when a job continues from a checkpoint, because neither the
    # rows of a step nor its arithmetic depend on them
    may_differ: ClassVar[tuple[str, ...]] = ()

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        serialize_by_alias=True,
        allow_inf_nan=False,
    )


def check_url_of(url: str) -> None:
    """Check a URL or path in a field.

    Raises:
        ValueError: The text is not a valid URL or path; pydantic collects these errors.
    """
    try:
        check_url(url)
    except DataError as error:
        raise ValueError(f"{error.message} ({error.hint})") from None
