"""Models with a linear part: Wide & Deep and DeepFM."""

from collections.abc import Mapping, Sequence

from distrain.errors import ModelError
from distrain.jobs.spec.models.interactions import XDeepFmSpec
from distrain.jobs.spec.models.kinds import CrossSpec, DeepFmSpec, WideDeepSpec
from distrain.models.blocks.block import Aggregate, Block, ParallelBlock
from distrain.models.blocks.filter import Filter
from distrain.models.blocks.hashed_cross import HashedCross
from distrain.models.blocks.interaction import FMBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.blueprint import Blueprint, ModelContext
from distrain.models.embeddings.columns import Combiner
from distrain.models.heads.tasks import BinaryClassificationTask, Task
from distrain.models.inputs import Embeddings, InputBlock

WIDE = "wide"


def wide_tables(
    combiners: Mapping[str, Combiner],
    crosses: Sequence[CrossSpec] = (),
    names: Sequence[str] | None = None,
) -> Embeddings:
    """Return tables of width 1, whose rows are the ids' weights in a linear model.

    Each cross has a table, and so have the columns `names`; `None` for all categorical columns.

    Raises ModelError if two crosses have the same columns in the same order.
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
    """Build a linear model: the sum of a row's wide weights and its weighted continuous values.

    It has no bias, because the deep part has one.
    """
    branches: dict[str, Block] = {}
    if any(column.part == WIDE for group in inputs.shape.groups for column in group.columns):
        branches["wide"] = Filter(part=WIDE).connect(Aggregate("sum"))
    if inputs.shape.continuous:
        continuous = MLPBlock([1], no_activation_last_layer=True, bias=False)
        branches["continuous"] = Filter(kind="continuous").connect(continuous)
    return ParallelBlock(branches, aggregation="sum")


def sum_or_parts(branches: Mapping[str, Block], head: Task | None) -> tuple[Block, Task]:
    """Return the body and the task of a model that adds up several parts, such as wide and deep.

    Without a head, the body is the sum of the branches, which is the logit. With a head, the body
    returns the separate branches.
    """
    if head is None:
        return ParallelBlock(branches, aggregation="sum"), BinaryClassificationTask(layer=False)
    return ParallelBlock(branches, aggregation=None), head


def logit_or_layers(spec: WideDeepSpec | DeepFmSpec | XDeepFmSpec, head: Task | None) -> MLPBlock:
    """Return the MLP branch for `sum_or_parts`.

    Without a head its last layer gives a logit; with a head it ends with the hidden layers.
    """
    if head is None:
        return MLPBlock([*spec.hidden, 1], dropout=spec.dropout, no_activation_last_layer=True)
    return MLPBlock(spec.hidden, dropout=spec.dropout)


def wide_deep(given: ModelContext, spec: WideDeepSpec) -> Blueprint:
    """Build a linear model of columns and hashed crosses, and an MLP over embeddings; one logit.

    The logit is the sum of the two (arXiv:1606.07792, eq. 3). In the wide part every categorical
    column has a weight for each id, every cross for each bin, and every continuous column for its
    value. All weights train with the job's optimizer, while the paper uses FTRL for the wide part.
    A head other than one binary task receives the wide part's sum and the MLP's last layer.
    """
    wide = wide_tables(given.combiners, spec.crosses)
    inputs = given.inputs(spec.embedding_dim, wide)
    branches = {
        "wide": linear(inputs),
        "deep": Filter(part="").connect(logit_or_layers(spec, given.head)),
    }
    return Blueprint(inputs, *sum_or_parts(branches, given.head))


def deepfm(given: ModelContext, spec: DeepFmSpec) -> Blueprint:
    """Build a linear model, the dot products of all pairs of embeddings, and an MLP.

    The MLP reads the same embeddings. The logit is the sum of the three (arXiv:1703.04247, eq. 1
    and 2). Continuous columns have a weight in the linear part and go into the MLP unchanged, as in
    DeepCTR. The paper does not specify how continuous columns become vectors.
    """
    inputs = given.inputs(spec.embedding_dim, wide_tables(given.combiners))
    branches = {
        "linear": linear(inputs),
        "pairs": Filter(part="", kind="categorical").connect(FMBlock()),
        "deep": Filter(part="").connect(logit_or_layers(spec, given.head)),
    }
    return Blueprint(inputs, *sum_or_parts(branches, given.head))
