"""Multi-layer perceptrons: a plain one, and fastai's TabularModel."""

from collections.abc import Mapping, Sequence
from typing import Literal

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


def mlp(
    schema: Schema,
    combiners: Mapping[str, Combiner],
    *,
    embedding_dim: int | None,
    hidden: Sequence[int],
    dropout: float,
    head: Task | None = None,
) -> Blueprint:
    """All embeddings and continuous values side by side, hidden layers with ReLU, one logit.

    With `hidden: [128, 128, 128]` it is the network of NVTabular's "Training with TensorFlow"
    notebook, without the final sigmoid: the loss has it. Without hidden layers it is a logistic
    regression.
    """
    inputs = InputBlock(schema, Embeddings(embedding_dim, combiners=combiners))
    body = MLPBlock(hidden, dropout=dropout)
    return Blueprint(inputs, body, head or BinaryClassificationTask())


def tabular(
    schema: Schema,
    combiners: Mapping[str, Combiner],
    *,
    embedding_dim: int | None,
    hidden: Sequence[int],
    dropout: float,
    embedding_dropout: float,
    outputs: Literal[1, 2],
    head: Task | None = None,
) -> Blueprint:
    """Embeddings with dropout beside batch-normed continuous columns, and layers over both.

    A layer is linear without bias, ReLU, batch norm, dropout; the last one is linear alone, to two
    logits or one. Source: `TabularModel` in fastai/tabular/model.py and `LinBnDrop` in
    fastai/layers.py, with `lin_first=True`. Initial values are ours.
    """
    inputs = InputBlock(schema, Embeddings(embedding_dim, combiners=combiners))
    branches: dict[str, Block] = {}
    if inputs.shape.groups:
        branches["embeddings"] = Filter(kind="categorical").connect(Dropout(embedding_dropout))
    if inputs.shape.continuous:
        branches["continuous"] = ContinuousFeatures(normalisation="batch_norm")
    layers = MLPBlock(
        hidden,
        dropout=dropout,
        normalisation="batch_norm",
        bias=False,
        order=FASTAI_ORDER,
    )
    body = ParallelBlock(branches, aggregation=None).connect(layers)
    return Blueprint(inputs, body, head or BinaryClassificationTask(outputs=outputs))
