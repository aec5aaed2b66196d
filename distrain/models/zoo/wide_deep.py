"""Wide & Deep."""

from collections.abc import Mapping

from distrain.embeddings.columns import Combiner
from distrain.models.blocks.filter import Filter
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.blocks.parallel import ParallelBlock
from distrain.models.blueprint import Blueprint
from distrain.models.heads.binary import BinaryClassificationTask
from distrain.models.inputs import Embeddings, InputBlock
from distrain.models.zoo.wide import linear, wide_tables
from distrain.schema import Schema
from distrain.spec.models import WideDeepSpec


def wide_deep(schema: Schema, spec: WideDeepSpec, combiners: Mapping[str, Combiner]) -> Blueprint:
    """A linear model of columns and hashed crosses, and an MLP over embeddings; one logit.

    The logit is the sum of the two (arXiv:1606.07792, eq. 3). Every categorical column has a weight
    for each id in the wide part, as every cross has for each bin and every continuous column for
    its value; all of them train with the job's one optimizer, where the paper has FTRL for these.
    """
    inputs = InputBlock(
        schema,
        Embeddings(spec.embedding_dim, combiners=combiners),
        wide_tables(combiners, spec.crosses),
    )
    mlp = MLPBlock([*spec.hidden, 1], no_activation_last_layer=True)
    body = ParallelBlock(
        {"wide": linear(inputs), "deep": Filter(part="").connect(mlp)}, aggregation="sum"
    )
    return Blueprint(inputs, body, BinaryClassificationTask(layer=False))
