"""The deep learning recommendation model (arXiv:1906.00091), alone and beside hashed crosses."""

from collections.abc import Mapping, Sequence

from distrain.embeddings import Combiner
from distrain.models.blocks import Aggregate, DLRMBlock, Filter, MLPBlock, ParallelBlock
from distrain.models.blueprint import Blueprint
from distrain.models.heads import BinaryClassificationTask
from distrain.models.inputs import Embeddings, InputBlock
from distrain.models.zoo.wide_deep import WIDE, wide_tables
from distrain.schema import Schema
from distrain.spec import CrossSpec


def dlrm(
    schema: Schema,
    combiners: Mapping[str, Combiner],
    *,
    embedding_dim: int,
    bottom: Sequence[int],
    top: Sequence[int],
) -> Blueprint:
    inputs = InputBlock(schema, Embeddings(embedding_dim, combiners=combiners))
    return Blueprint(inputs, DLRMBlock(bottom, top), BinaryClassificationTask())


def dlrm_cross(
    schema: Schema,
    combiners: Mapping[str, Combiner],
    *,
    embedding_dim: int,
    bottom: Sequence[int],
    top: Sequence[int],
    crosses: Sequence[CrossSpec],
) -> Blueprint:
    """The logit of DLRM (arXiv:1906.00091) plus one weight for each cross's bin.

    That is Wide & Deep (arXiv:1606.07792, eq. 3) with DLRM as the deep part. A one-hot vector of a
    cross and a linear layer over it, as in Merlin's "customize and extend" notebook, is the same as
    a table of width 1.
    """
    inputs = InputBlock(
        schema,
        Embeddings(embedding_dim, combiners=combiners),
        wide_tables({}, crosses, names=()),
    )
    logit = MLPBlock([1], no_activation_last_layer=True)
    body = ParallelBlock(
        {
            "deep": Filter(part="").connect(DLRMBlock(bottom, top), logit),
            "wide": Filter(part=WIDE).connect(Aggregate("sum")),
        },
        aggregation="sum",
    )
    return Blueprint(inputs, body, BinaryClassificationTask(layer=False))
