"""Models whose features gate, mask, attend to or multiply each other, beside an MLP."""

from collections.abc import Mapping, Sequence

from distrain.embeddings import Combiner
from distrain.models.blocks import (
    BilinearFusion,
    Block,
    Chain,
    CompressedInteraction,
    FeatureGate,
    FieldAttention,
    FieldVectors,
    Filter,
    MaskNetBlock,
    MLPBlock,
    ParallelBlock,
)
from distrain.models.blueprint import Blueprint
from distrain.models.heads import BinaryClassificationTask, Task
from distrain.models.inputs import Embeddings, InputBlock
from distrain.models.zoo.wide_deep import linear, sum_or_parts, wide_tables
from distrain.schema import Schema


def masknet(
    schema: Schema,
    combiners: Mapping[str, Combiner],
    *,
    embedding_dim: int | None,
    masks: Sequence[int],
    reduction: float,
    structure: str,
    hidden: Sequence[int],
    dropout: float,
    head: Task | None = None,
) -> Blueprint:
    """Mask blocks (arXiv:2102.07619), beside each other below an MLP or in a row; one logit."""
    inputs = InputBlock(schema, Embeddings(embedding_dim, combiners=combiners))
    body = MaskNetBlock(masks, reduction, structure).connect(MLPBlock(hidden, dropout=dropout))
    return Blueprint(inputs, body, head or BinaryClassificationTask())


def autoint(
    schema: Schema,
    combiners: Mapping[str, Combiner],
    *,
    embedding_dim: int,
    layers: int,
    heads: int,
    width: int,
    hidden: Sequence[int],
    dropout: float,
    head: Task | None = None,
) -> Blueprint:
    """Attention among embeddings and numbers as vectors (arXiv:1810.11921); one logit.

    With `hidden` an MLP over the same inputs stands beside it, as in the paper's AutoInt+, and the
    logit's layer takes both.
    """
    inputs = InputBlock(schema, Embeddings(embedding_dim, combiners=combiners))
    body: Block = FieldVectors().connect(FieldAttention(layers, heads, width))
    if hidden:
        branches = {"attention": body, "deep": MLPBlock(hidden, dropout=dropout)}
        body = ParallelBlock(branches, aggregation=None)
    return Blueprint(inputs, body, head or BinaryClassificationTask())


def xdeepfm(
    schema: Schema,
    combiners: Mapping[str, Combiner],
    *,
    embedding_dim: int,
    maps: Sequence[int],
    hidden: Sequence[int],
    dropout: float,
    head: Task | None = None,
) -> Blueprint:
    """A linear model, a compressed interaction network and an MLP (arXiv:1803.05170, eq. 9).

    The logit is the sum of a logit of each. Numbers are vectors as in `autoint` for the second; the
    paper has no numbers. A head of several tasks takes the three parts side by side.
    """
    inputs = InputBlock(
        schema, Embeddings(embedding_dim, combiners=combiners), wide_tables(combiners)
    )
    last = Chain() if head else MLPBlock([1], no_activation_last_layer=True)
    vectors = Filter(part="").connect(FieldVectors())
    mlp = MLPBlock([*hidden, 1], dropout=dropout, no_activation_last_layer=True)
    if head is not None:
        mlp = MLPBlock(hidden, dropout=dropout)
    branches = {
        "linear": linear(inputs),
        "cin": vectors.connect(CompressedInteraction(maps), last),
        "deep": Filter(part="").connect(mlp),
    }
    return Blueprint(inputs, *sum_or_parts(branches, head))


def finalmlp(
    schema: Schema,
    combiners: Mapping[str, Combiner],
    *,
    embedding_dim: int | None,
    gates: Sequence[int],
    first_context: Sequence[str],
    second_context: Sequence[str],
    first: Sequence[int],
    second: Sequence[int],
    heads: int,
    dropout: float,
    head: Task | None = None,
) -> Blueprint:
    """Two MLPs over gated features, fused by a bilinear form (arXiv:2304.00902); one logit.

    A head of several tasks takes both MLPs' outputs side by side.
    """
    inputs = InputBlock(schema, Embeddings(embedding_dim, combiners=combiners))
    streams = {
        name: FeatureGate(gates, context).connect(MLPBlock(widths, dropout=dropout))
        for name, context, widths in (
            ("first", first_context, first),
            ("second", second_context, second),
        )
    }
    both = ParallelBlock(streams, aggregation=None)
    if head is not None:
        return Blueprint(inputs, both, head)
    fused = both.connect(BilinearFusion(heads))
    return Blueprint(inputs, fused, BinaryClassificationTask(layer=False))
