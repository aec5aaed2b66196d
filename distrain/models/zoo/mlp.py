"""Multi-layer perceptrons: a plain one, and fastai's TabularModel."""

from collections.abc import Mapping

from distrain.embeddings import Combiner
from distrain.models.blocks import (
    FASTAI_ORDER,
    Block,
    ContinuousFeatures,
    Dropout,
    Filter,
    MLPBlock,
    ParallelBlock,
)
from distrain.models.blueprint import Blueprint
from distrain.models.heads import BinaryClassificationTask, Task
from distrain.models.inputs import Embeddings, InputBlock
from distrain.schema import Schema
from distrain.spec import MlpSpec, TabularSpec


def mlp(
    schema: Schema, combiners: Mapping[str, Combiner], spec: MlpSpec, head: Task | None
) -> Blueprint:
    """All embeddings and continuous values side by side, hidden layers with ReLU, one logit.

    With `hidden: [128, 128, 128]` it is the network of NVTabular's "Training with TensorFlow"
    notebook, without the final sigmoid: the loss has it. Without hidden layers it is a logistic
    regression.
    """
    inputs = InputBlock(schema, Embeddings(spec.embedding_dim, combiners=combiners))
    body = MLPBlock(spec.hidden, dropout=spec.dropout)
    return Blueprint(inputs, body, head or BinaryClassificationTask())


def tabular(
    schema: Schema, combiners: Mapping[str, Combiner], spec: TabularSpec, head: Task | None
) -> Blueprint:
    """Embeddings with dropout beside batch-normed continuous columns, and layers over both.

    A layer is linear without bias, ReLU, batch norm, dropout; the last one is linear alone, to two
    logits or one. Source: `TabularModel` in fastai/tabular/model.py and `LinBnDrop` in
    fastai/layers.py, with `lin_first=True`. Initial values are ours.
    """
    inputs = InputBlock(schema, Embeddings(spec.embedding_dim, combiners=combiners))
    branches: dict[str, Block] = {}
    if inputs.shape.groups:
        branches["embeddings"] = Filter(kind="categorical").connect(Dropout(spec.embedding_dropout))
    if inputs.shape.continuous:
        branches["continuous"] = ContinuousFeatures(normalisation="batch_norm")
    order, dropout = FASTAI_ORDER, spec.dropout
    layers = MLPBlock(
        spec.hidden, dropout=dropout, normalisation="batch_norm", bias=False, order=order
    )
    body = ParallelBlock(branches, aggregation=None).connect(layers)
    return Blueprint(inputs, body, head or BinaryClassificationTask(outputs=spec.outputs))
