"""What all sections of a job spec share."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

LARGEST = 2**31 - 1
MOST_LAYERS = 1024
"""Of one stack: a layer takes some memory before it has any values."""


def _no_truth_value(value: object) -> object:
    """To Python `True` is 1, so that `num_ranks: yes` would train on one rank."""
    if isinstance(value, bool):
        raise ValueError("a number is needed (YAML reads yes, no, on and off as truth values)")
    return value


Whole = Annotated[int, BeforeValidator(_no_truth_value)]
Real = Annotated[float, BeforeValidator(_no_truth_value)]
PositiveInt = Annotated[Whole, Field(gt=0, le=LARGEST)]
DecayRate = Annotated[Real, Field(ge=0, lt=1)]
Depth = Annotated[Whole, Field(gt=0, le=MOST_LAYERS)]
Widths = Annotated[tuple[PositiveInt, ...], Field(max_length=MOST_LAYERS)]
Placement = Literal["replicated", "row_wise", "host_cached"]
Combiner = Literal["mean", "sum", "sqrtn"]


class Section(BaseModel):
    """What all sections share: frozen, and no unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        serialize_by_alias=True,
        allow_inf_nan=False,
    )
