"""The section `embeddings`: where the rows of tables live.

Field descriptions are what `docs/spec.md` and the published JSON Schema show.
"""

from typing import Literal

from pydantic import Field

from distrain.spec.fields import Combiner, Placement, Real, Section


class EmbeddingsSpec(Section):
    """Where embedding rows live, in what form, and how much memory they may take."""

    may_differ = ("placement", "tables", "memory_gib", "cache_gib")

    placement: Literal["auto", Placement] = Field(
        "auto",
        description="`replicated`: every rank holds all rows; `row_wise`: a rank owns every "
        "num_ranks-th row; `host_cached`: rows lie in the host's memory, hot ones on the device; "
        "`auto` chooses among all but `host_cached`, as `distrain plan` shows.",
    )
    tables: dict[str, Placement] = Field(
        {}, description="Placements of single tables by column, which outrank `placement`."
    )
    combiner: Combiner = Field(
        "mean",
        description="How the embeddings of a row's n ids become one, in columns of lists: their "
        "sum, `mean` (sum / n) or `sqrtn` (sum / sqrt(n)); a row without ids gets zeros.",
    )
    combiners: dict[str, Combiner] = Field(
        {}, description="The same for single columns of lists, which outranks `combiner`."
    )
    storage: Literal["fp32", "bf16"] = Field("fp32", description="The form of stored weights.")
    memory_gib: Real | None = Field(
        None,
        gt=0,
        description="What a rank's tables and their optimizer state may take, in GiB; null: three "
        "quarters of the GPU's memory, or of a rank's share of the host's available memory.",
    )
    cache_gib: Real = Field(
        1.0,
        gt=0,
        description="Device memory for the weights of hot rows of host-cached tables, in GiB; the "
        "optimizer's state for them comes on top.",
    )
