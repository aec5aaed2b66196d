"""DeepFM."""

from collections.abc import Mapping

from distrain.embeddings.columns import Combiner
from distrain.models.blocks.filter import Filter
from distrain.models.blocks.fm import FMBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.blocks.parallel import ParallelBlock
from distrain.models.blueprint import Blueprint
from distrain.models.heads.binary import BinaryClassificationTask
from distrain.models.inputs import Embeddings, InputBlock
from distrain.models.zoo.wide import linear, wide_tables
from distrain.schema import Schema
from distrain.spec.models import DeepFmSpec


def deepfm(schema: Schema, spec: DeepFmSpec, combiners: Mapping[str, Combiner]) -> Blueprint:
    """A linear model, the dot products of all pairs of embeddings, and an MLP over the same ones.

    The logit is the sum of the three (arXiv:1703.04247, eq. 1 and 2). Continuous columns have a
    weight in the linear part and go into the MLP as they are, as in DeepCTR; the paper leaves open
    how they become vectors.
    """
    inputs = InputBlock(
        schema, Embeddings(spec.embedding_dim, combiners=combiners), wide_tables(combiners)
    )
    mlp = MLPBlock([*spec.hidden, 1], dropout=spec.dropout, no_activation_last_layer=True)
    body = ParallelBlock(
        {
            "linear": linear(inputs),
            "pairs": Filter(part="", kind="categorical").connect(FMBlock()),
            "deep": Filter(part="").connect(mlp),
        },
        aggregation="sum",
    )
    return Blueprint(inputs, body, BinaryClassificationTask(layer=False))
