"""The parts that networks are made of; each a `Block`."""

from distrain.models.blocks.block import (
    AGGREGATIONS,
    Aggregate,
    Block,
    Chain,
    ParallelBlock,
    with_residual,
    with_shortcut,
)
from distrain.models.blocks.cross import CrossBlock
from distrain.models.blocks.dlrm import DLRMBlock
from distrain.models.blocks.filter import ContinuousFeatures, Filter
from distrain.models.blocks.functional import ACTIVATIONS, linear_over, one_hot
from distrain.models.blocks.hashed_cross import HashedCross
from distrain.models.blocks.interaction import DotProductInteraction, FMBlock
from distrain.models.blocks.layers import (
    NORMALISATIONS,
    BatchNorm,
    Dropout,
    L2Norm,
    LogitsTemperatureScaler,
)
from distrain.models.blocks.mlp import FASTAI_ORDER, USUAL_ORDER, MLPBlock

__all__ = [
    "ACTIVATIONS",
    "AGGREGATIONS",
    "Aggregate",
    "BatchNorm",
    "Block",
    "Chain",
    "ContinuousFeatures",
    "CrossBlock",
    "DLRMBlock",
    "DotProductInteraction",
    "Dropout",
    "FASTAI_ORDER",
    "FMBlock",
    "Filter",
    "HashedCross",
    "L2Norm",
    "LogitsTemperatureScaler",
    "MLPBlock",
    "NORMALISATIONS",
    "ParallelBlock",
    "USUAL_ORDER",
    "linear_over",
    "one_hot",
    "with_residual",
    "with_shortcut",
]
