"""What all sections of a job spec share."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

LARGEST = 2**31 - 1
MOST_LAYERS = 1024
"""Of one stack: a layer takes some memory before it has any values."""

PositiveInt = Annotated[int, Field(gt=0, le=LARGEST)]
DecayRate = Annotated[float, Field(ge=0, lt=1)]
Depth = Annotated[int, Field(gt=0, le=MOST_LAYERS)]
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
