"""Multi-layer perceptrons, and fastai's TabularModel."""

from distrain.jobs.spec.models.kinds import MlpSpec, TabularSpec
from distrain.models.blocks.block import Block, ParallelBlock
from distrain.models.blocks.filter import ContinuousFeatures, Filter
from distrain.models.blocks.layers import Dropout
from distrain.models.blocks.members import MemberMLP
from distrain.models.blocks.mlp import FASTAI_ORDER, MLPBlock
from distrain.models.blueprint import Blueprint, ModelContext
from distrain.models.heads.tasks import BinaryClassificationTask


def mlp(given: ModelContext, spec: MlpSpec) -> Blueprint:
    """Build hidden layers with ReLU over all embeddings and continuous values, and one logit.

    With `hidden: [128, 128, 128]` it is the network of NVTabular's "Training with TensorFlow"
    notebook, without the final sigmoid, which is part of the loss. With several members, see
    `MemberMLP`, it predicts the mean of theirs. Without hidden layers it is a logistic regression,
    and has no members.
    """
    inputs = given.inputs(spec.embedding_dim)
    layers = MLPBlock(spec.hidden, dropout=spec.dropout)
    has_members = spec.members > 1 and spec.hidden
    body = MemberMLP(layers, spec.members) if has_members else layers
    return Blueprint(inputs, body, given.task)


def tabular(given: ModelContext, spec: TabularSpec) -> Blueprint:
    """Build layers over embeddings with dropout and batch-normed continuous columns.

    A layer is linear without bias, ReLU, batch norm, dropout. The last one is only linear, to two
    logits or one. Source: `TabularModel` in fastai/tabular/model.py and `LinBnDrop` in
    fastai/layers.py, with `lin_first=True`. The initial values are not fastai's.
    """
    inputs = given.inputs(spec.embedding_dim)
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
    return Blueprint(inputs, body, given.head or BinaryClassificationTask(outputs=spec.outputs))
