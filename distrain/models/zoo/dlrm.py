"""The deep learning recommendation model (arXiv:1906.00091), alone and beside hashed crosses."""

from collections.abc import Mapping

from distrain.embeddings import Combiner
from distrain.models.blocks import Aggregate, DLRMBlock, Filter, MLPBlock, ParallelBlock
from distrain.models.blueprint import Blueprint
from distrain.models.heads import BinaryClassificationTask
from distrain.models.inputs import Embeddings, InputBlock
from distrain.models.zoo.wide_deep import WIDE, wide_tables
from distrain.schema import Schema
from distrain.spec import DlrmCrossSpec, DlrmSpec


def dlrm(schema: Schema, spec: DlrmSpec, combiners: Mapping[str, Combiner]) -> Blueprint:
    """Bottom MLP, dot products of all pairs of vectors, top MLP, one logit."""
    inputs = InputBlock(schema, Embeddings(spec.embedding_dim, combiners=combiners))
    return Blueprint(inputs, DLRMBlock(spec.bottom, spec.top), BinaryClassificationTask())


def dlrm_cross(schema: Schema, spec: DlrmCrossSpec, combiners: Mapping[str, Combiner]) -> Blueprint:
    """The logit of DLRM (arXiv:1906.00091) plus one weight for each cross's bin.

    That is Wide & Deep (arXiv:1606.07792, eq. 3) with DLRM as the deep part. A one-hot vector of a
    cross and a linear layer over it, as in Merlin's "customize and extend" notebook, is the same as
    a table of width 1.
    """
    inputs = InputBlock(
        schema,
        Embeddings(spec.embedding_dim, combiners=combiners),
        wide_tables({}, spec.crosses, names=()),
    )
    logit = MLPBlock([1], no_activation_last_layer=True)
    body = ParallelBlock(
        {
            "deep": Filter(part="").connect(DLRMBlock(spec.bottom, spec.top), logit),
            "wide": Filter(part=WIDE).connect(Aggregate("sum")),
        },
        aggregation="sum",
    )
    return Blueprint(inputs, body, BinaryClassificationTask(layer=False))
