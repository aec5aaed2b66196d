"""Linear parts of models: a weight for each id, hashed cross and continuous column."""

from collections.abc import Mapping, Sequence

from distrain.embeddings.columns import Combiner
from distrain.errors import ModelError
from distrain.models.block import Block
from distrain.models.blocks.aggregate import Aggregate
from distrain.models.blocks.filter import Filter
from distrain.models.blocks.hashed_cross import HashedCross
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.blocks.parallel import ParallelBlock
from distrain.models.inputs import Embeddings, InputBlock
from distrain.spec.models import CrossSpec

WIDE = "wide"


def wide_tables(
    combiners: Mapping[str, Combiner],
    crosses: Sequence[CrossSpec] = (),
    names: Sequence[str] | None = None,
) -> Embeddings:
    """Tables of width 1: a table's row is an id's weight in a linear model.

    Args:
        combiners: How the weights of a list's ids become one.
        crosses: Hashed crosses, each with a weight for each bin.
        names: Which columns; `None` for all.

    Raises:
        ModelError: Two crosses are of the same columns.
    """
    made = [HashedCross(cross.columns, cross.num_bins) for cross in crosses]
    seen = [cross.name for cross in made]
    twice = sorted({name for name in seen if seen.count(name) > 1})
    if twice:
        raise ModelError(
            f"two crosses of the same columns: {', '.join(twice)}",
            hint="Leave one out, or give it the columns in another order.",
        )
    return Embeddings(1, part=WIDE, names=names, crosses=made, combiners=combiners)


def linear(inputs: InputBlock) -> Block:
    """The sum of a row's weights in the wide tables and of its weighted continuous columns.

    No bias: the deep part beside it has one.
    """
    branches: dict[str, Block] = {}
    if any(column.part == WIDE for group in inputs.shape.groups for column in group.columns):
        branches["wide"] = Filter(part=WIDE).connect(Aggregate("sum"))
    if inputs.shape.continuous:
        continuous = MLPBlock([1], no_activation_last_layer=True, bias=False)
        branches["continuous"] = Filter(kind="continuous").connect(continuous)
    return ParallelBlock(branches, aggregation="sum")
