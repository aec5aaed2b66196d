"""fastai's TabularModel."""

from collections.abc import Mapping

from distrain.embeddings.columns import Combiner
from distrain.models.block import Block
from distrain.models.blocks.continuous import ContinuousFeatures
from distrain.models.blocks.dropout import Dropout
from distrain.models.blocks.filter import Filter
from distrain.models.blocks.mlp import FASTAI_ORDER, MLPBlock
from distrain.models.blocks.parallel import ParallelBlock
from distrain.models.blueprint import Blueprint
from distrain.models.heads.binary import BinaryClassificationTask
from distrain.models.inputs import Embeddings, InputBlock
from distrain.schema import Schema
from distrain.spec.models import TabularSpec


def tabular(schema: Schema, spec: TabularSpec, combiners: Mapping[str, Combiner]) -> Blueprint:
    """Embeddings with dropout beside batch-normed continuous columns, and layers over both.

    A layer is linear without bias, ReLU, batch norm, dropout; the last one is linear alone, to two
    logits or one. Source: `TabularModel` in fastai/tabular/model.py and `LinBnDrop` in
    fastai/layers.py, with `lin_first=True`. Initial values are ours.
    """
    inputs = InputBlock(schema, Embeddings(spec.embedding_dim, combiners=combiners))
    branches: dict[str, Block] = {}
    if inputs.shape.groups:
        dropout = Dropout(spec.embedding_dropout)
        branches["embeddings"] = Filter(kind="categorical").connect(dropout)
    if inputs.shape.continuous:
        branches["continuous"] = ContinuousFeatures(normalisation="batch_norm")
    layers = MLPBlock(
        spec.hidden,
        dropout=spec.dropout,
        normalisation="batch_norm",
        bias=False,
        order=FASTAI_ORDER,
    )
    body = ParallelBlock(branches, aggregation=None).connect(layers)
    return Blueprint(inputs, body, BinaryClassificationTask(outputs=spec.outputs))
