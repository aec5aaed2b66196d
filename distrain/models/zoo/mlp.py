"""The multi-layer perceptron."""

from collections.abc import Mapping

from distrain.embeddings.columns import Combiner
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.blueprint import Blueprint
from distrain.models.heads.binary import BinaryClassificationTask
from distrain.models.inputs import Embeddings, InputBlock
from distrain.schema import Schema
from distrain.spec import MlpSpec


def mlp(schema: Schema, spec: MlpSpec, combiners: Mapping[str, Combiner]) -> Blueprint:
    """All embeddings and continuous values side by side, hidden layers with ReLU, one logit.

    With `hidden: [128, 128, 128]` it is the network of NVTabular's "Training with TensorFlow"
    notebook, without the final sigmoid: the loss has it. Without hidden layers it is a logistic
    regression.
    """
    inputs = InputBlock(schema, Embeddings(spec.embedding_dim, combiners=combiners))
    return Blueprint(inputs, MLPBlock(spec.hidden), BinaryClassificationTask())
